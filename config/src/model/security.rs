//! Who may do what, and how often.

use std::{collections::BTreeSet, num::NonZeroUsize, path::PathBuf, time::Duration};

use self::names::{Host, Origin, ScopeName};
use super::server::Directories;
use crate::{
    glob::{Glob, Patterns},
    load::{
        declare::{section, words},
        expand::Expander,
        node::{Node, Value},
        read::{At, Entries, FromNode, NonEmpty, OrOff, Reader},
    },
    secret::Secret,
    units::{Per, Period, Rate},
};

pub(crate) mod names;

/// The scopes that exist without being defined.
pub(crate) const SCOPES: [&str; 6] = ["read", "write", "rules.write", "control", "admin", "context.write"];

/// One person's IDEs and agents stay far below; a loop gone wild does not.
const PER_ADDRESS: Rate = Rate::new(600, Per::Minute);
/// Twice that of an address: one principal may well use two machines.
const PER_PRINCIPAL: Rate = Rate::new(1200, Per::Minute);
/// Counted before anything is checked, so it only has to stop floods.
const FLOOD: Rate = Rate::new(6000, Per::Minute);
/// Open connections of all callers: well below the usual limit of open files.
const CONNECTIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Calls of one principal that run at the same time.
const CALLS: NonZeroUsize = NonZeroUsize::new(512).expect("not zero");
/// Sessions of one principal.
const SESSIONS: NonZeroUsize = NonZeroUsize::new(10_000).expect("not zero");
/// Calls of one principal that wait for a person.
const PARKED: NonZeroUsize = NonZeroUsize::new(64).expect("not zero");
/// How long a call may take if nothing else is said.
const CALL_TIMEOUT: Duration = Duration::from_mins(1);
/// How long a call may take at all, whatever a route or a client asks for.
const MAX_TIMEOUT: Duration = Duration::from_mins(10);

/// Base64 digits of a key's 32 bytes.
const KEY_DIGITS: usize = 43;

section! {
    /// Who may do what, and how often.
    #[schemars(rename = "Security")]
    struct RawSecurity {
        /// Further allowed values of `Host`; without a port, any port. On this machine `localhost`, `127.0.0.1` and `[::1]`
        /// are always allowed.
        hosts: Vec<At<Host>>,
        /// Further allowed values of `Origin`, such as `https://ide.example.com`. Local ones are always allowed.
        origins: Vec<At<Origin>>,
        /// The file with the local token, made at the first start. Absent: `token` in the state directory.
        token_file: PathBuf,
        /// The key all others are derived from: the path of a file that is made at the first start, or the key itself as
        /// `${file:…}` or `${env:…}`. Absent: `key` in the state directory.
        key: RootKey,
        /// Lets callers without a token in, from this machine only. For trying things out; it warns at every start.
        #[schemars(extend("default" = false))]
        anonymous: bool,
        /// What callers without a token may do.
        #[schemars(extend("default" = ["read"]))]
        anonymous_scopes: Vec<At<ScopeName>>,
        /// Names of scopes beside `read`, `write`, `rules.write`, `control`, `admin` and `context.write`. If given, any other
        /// name in this file is a problem; if not, every name is a scope.
        scopes: Vec<At<ScopeName>>,
        /// How much of everything.
        limits: RawLimits,
        /// Who may use which tools; the first rule that matches decides.
        rules: Vec<At<RawRule>>,
        /// What happens when no rule matches.
        #[schemars(extend("default" = "allow"))]
        default: Effect,
    }
    later: ["jwt"]
}

section! {
    /// How much of everything; `off` is no limit. Calls, sessions and parked calls are counted for each principal.
    #[schemars(rename = "Limits")]
    struct RawLimits {
        /// Requests of one address. A refused token counts as ten.
        #[schemars(extend("default" = "600/min"))]
        per_address: OrOff<Rate>,
        /// Requests of one principal.
        #[schemars(extend("default" = "1200/min"))]
        per_principal: OrOff<Rate>,
        /// Calls of one principal, by pattern of the tool's name; the first pattern that matches decides.
        per_tool: Entries<OrOff<Rate>>,
        /// Requests of one address before anything is checked.
        #[schemars(extend("default" = "6000/min"))]
        flood: OrOff<Rate>,
        /// Open connections, of everyone together.
        #[schemars(extend("default" = 10000))]
        connections: OrOff<NonZeroUsize>,
        /// Calls that run at the same time.
        #[schemars(extend("default" = 512))]
        calls: OrOff<NonZeroUsize>,
        /// Transport sessions.
        #[schemars(extend("default" = 10000))]
        sessions: OrOff<NonZeroUsize>,
        /// Calls that wait for a person.
        #[schemars(extend("default" = 64))]
        parked: OrOff<NonZeroUsize>,
        /// How long a call may take if its route says nothing.
        #[schemars(extend("default" = "60s"))]
        call_timeout: Period,
        /// How long any call may take.
        #[schemars(extend("default" = "10m"))]
        max_timeout: Period,
    }
}

section! {
    /// One rule: either `allow` or `deny`.
    #[schemars(rename = "Rule")]
    struct RawRule {
        /// Whom to let through.
        allow: RawCondition,
        /// Whom to hide the tools from.
        deny: RawCondition,
    }
}

section! {
    /// When a rule applies: when all that is said here holds.
    #[schemars(rename = "Condition")]
    struct RawCondition {
        /// Patterns of tool names, as clients see them or as `<backend>__<tool>`. Absent: every tool.
        tools: NonEmpty<Glob>,
        /// Patterns of principals, such as `local`, `anonymous` or `issued:ci-*`. Absent: everyone.
        principals: NonEmpty<Glob>,
        /// Only callers that hold this scope.
        scope: ScopeName,
        /// Only callers that do not hold this scope.
        unless_scope: ScopeName,
    }
}

words!(Effect { "allow" => Allow, "deny" => Deny });

/// Who may do what, and how often.
#[derive(Clone, Debug, PartialEq)]
pub struct Security {
    /// Further allowed values of `Host`, in lower case; without a port, any port.
    pub hosts: Vec<String>,
    /// Further allowed values of `Origin`, in lower case.
    pub origins: Vec<String>,
    /// The file with the local token.
    pub token_file: PathBuf,
    /// The key from which all others are derived.
    pub key: RootKey,
    /// Whether callers without a token are let in.
    pub anonymous: bool,
    /// What they may do then.
    pub anonymous_scopes: BTreeSet<String>,
    /// The scopes that are known: the built-in ones and those this file defines or uses.
    pub scopes: BTreeSet<String>,
    /// Whether the file lists its scopes, so that there are no others.
    pub scopes_closed: bool,
    /// How much of everything.
    pub limits: Limits,
    /// Exceptions from `default`; the first that matches decides.
    pub rules: Vec<Rule>,
    /// What happens when no rule matches.
    pub default: Effect,
}

/// Where the root key comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RootKey {
    /// A file that is made at the first start.
    File(PathBuf),
    /// The key itself, which the operator keeps elsewhere.
    Given(Secret),
}

/// How much of everything. `None` is `off`: no limit.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Requests of one address.
    pub per_address: Option<Rate>,
    /// Requests of one principal.
    pub per_principal: Option<Rate>,
    /// Calls of one principal to tools; the first pattern that matches decides.
    pub per_tool: Vec<ToolLimit>,
    /// Requests of one address before anything is checked.
    pub flood: Option<Rate>,
    /// Open connections, of everyone together.
    pub connections: Option<NonZeroUsize>,
    /// Running calls of one principal.
    pub calls: Option<NonZeroUsize>,
    /// Sessions of one principal.
    pub sessions: Option<NonZeroUsize>,
    /// Calls of one principal that wait for a person.
    pub parked: Option<NonZeroUsize>,
    /// How long a call may take if its route says nothing.
    pub call_timeout: Duration,
    /// How long any call may take.
    pub max_timeout: Duration,
}

/// The limit of the tools a pattern matches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ToolLimit {
    /// Which tools.
    pub tools: Glob,
    /// How often; `None` is `off`.
    pub rate: Option<Rate>,
}

/// One line of `rules`. It applies when all its conditions hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// What happens then.
    pub effect: Effect,
    /// For which tools.
    pub tools: Patterns,
    /// For whom, by the text of the principal.
    pub principals: Patterns,
    /// Only for callers that hold this scope.
    pub scope: Option<String>,
    /// Only for callers that do not hold this scope.
    pub unless_scope: Option<String>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Effect {
    /// The call goes on.
    #[default]
    Allow,
    /// The tool is hidden from this caller.
    Deny,
}

/// A lone placeholder is the key itself, anything else the path of its file.
impl FromNode for RootKey {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        if !matches!(&node.value, Value::Text(text) if Expander::is_placeholder(text)) {
            // Someone may take this for the place of the key itself.
            node.scalars(&mut reader.report.masked);
        }
        match &node.value {
            Value::Text(text) if Expander::is_placeholder(text) => {
                let expected = "32 random bytes in base64, such as `openssl rand -base64 32` writes";
                reader.parse(node, expected, |text| {
                    // A second line may hold the previous key.
                    let keys = text.lines().map(str::trim).filter(|line| !line.is_empty());
                    match keys.map(is_base64_key).reduce(|one, other| one && other) {
                        Some(true) => Ok(Self::Given(Secret::new(text.to_owned()))),
                        _ => Err("is no key"),
                    }
                })
            }
            Value::Text(text) if is_key(text) => reader.bare_secret(
                node,
                "this is the key itself",
                "the path of its file, `${file:…}` or `${env:…}`",
            ),
            Value::Text(_) => PathBuf::read(node, reader).map(Self::File),
            _ => reader.wrong(node, "a path, `${file:…}` or `${env:…}`"),
        }
    }
}

/// Whether a line is 32 bytes in base64, of either alphabet, padded or not.
fn is_base64_key(line: &str) -> bool {
    let digits = line.trim_end_matches('=');
    digits.len() == KEY_DIGITS
        && digits.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+/-_".contains(&byte))
}

/// Whether `text` is 32 bytes in hexadecimal or base64. Base64 may hold slashes, as paths do: then its padding tells.
fn is_key(text: &str) -> bool {
    let hexadecimal = text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    let padded = text.strip_suffix('=');
    let digits = padded.unwrap_or(text);
    let alphabet = |byte: u8| {
        byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'+') || byte == b'/' && padded.is_some()
    };
    hexadecimal || is_whole(digits) && digits.bytes().all(alphabet)
}

/// Whether base64 digits hold 32 bytes: 43 digits of 6 bits are two bits more, and those are zero.
fn is_whole(digits: &str) -> bool {
    digits.len() == KEY_DIGITS && digits.ends_with(|last| "AEIMQUYcgkosw048".contains(last))
}

impl schemars::JsonSchema for RootKey {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "RootKey".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

impl Security {
    pub(super) fn defaults(directories: &Directories) -> Self {
        Self {
            hosts: Vec::new(),
            origins: Vec::new(),
            token_file: directories.state.join("token"),
            key: RootKey::File(directories.state.join("key")),
            anonymous: false,
            anonymous_scopes: BTreeSet::from(["read".to_owned()]),
            scopes: SCOPES.map(str::to_owned).into(),
            scopes_closed: false,
            limits: Limits::default(),
            rules: Vec::new(),
            default: Effect::default(),
        }
    }
}

impl Security {
    /// Whether there is, or may be, a scope called `name`.
    ///
    /// # Errors
    /// Why not, for people.
    pub fn check_scope(&self, name: &str) -> Result<(), String> {
        ScopeName::parse(name).map_err(|why| format!("{name:?} {why}: expected {}", ScopeName::EXPECTED))?;
        if !self.scopes_closed || self.scopes.contains(name) {
            return Ok(());
        }
        let known = self.scopes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        Err(format!("there is no scope called {name:?}; there are: {known}"))
    }
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            per_address: Some(PER_ADDRESS),
            per_principal: Some(PER_PRINCIPAL),
            per_tool: Vec::new(),
            flood: Some(FLOOD),
            connections: Some(CONNECTIONS),
            calls: Some(CALLS),
            sessions: Some(SESSIONS),
            parked: Some(PARKED),
            call_timeout: CALL_TIMEOUT,
            max_timeout: MAX_TIMEOUT,
        }
    }
}

impl Limits {
    /// The limit of `per_tool` for the tool `name`: that of the first pattern that matches.
    pub fn of_tool(&self, name: &str) -> Option<Rate> {
        self.per_tool.iter().find(|limit| limit.tools.matches(name)).and_then(|limit| limit.rate)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_is_told_from_the_path_of_one() {
        for key in [
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
            "//79/Pv6+fj39vX08/Lx8O/u7ezr6uno5+bl5OPi4eA=",
            "__79_Pv6-fj39vX08_Lx8O_u7ezr6uno5-bl5OPi4eA",
            "000102030405060708090a0b0c0d0e0f101112131415161718191a1b1c1d1e1f",
        ] {
            assert!(is_key(key), "{key}");
        }
        for path in [
            "",
            "key",
            "/etc/moongate/key",
            "/var/lib/moongate/keys/of/production/key-01",
            "~/.local/state/moongate/key",
            "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8.pem",
        ] {
            assert!(!is_key(path), "{path}");
        }
    }

    #[test]
    fn scopes_are_closed_only_by_a_list() {
        let mut security = Security::defaults(&Directories::default());
        assert_eq!(security.check_scope("fly"), Ok(()));
        assert!(security.check_scope("Fly high").unwrap_err().contains("lower-case"));
        security.scopes_closed = true;
        assert_eq!(security.check_scope("read"), Ok(()));
        let error = security.check_scope("fly").unwrap_err();
        assert!(error.starts_with("there is no scope called \"fly\"; there are: "), "{error}");
    }

    #[test]
    fn the_first_pattern_limits_a_tool() {
        let limit = |tools: &str, rate| ToolLimit { tools: Glob::new(tools).unwrap(), rate };
        let rate = Rate::new(1, Per::Second);
        let limits = Limits {
            per_tool: vec![limit("add_memo", None), limit("add_*", Some(rate))],
            ..Limits::default()
        };
        assert_eq!(limits.of_tool("add_goal"), Some(rate));
        assert_eq!(limits.of_tool("add_memo"), None);
        assert_eq!(limits.of_tool("get_goal"), None);
    }
}
