//! Who may do what, and how often.

use std::{collections::BTreeSet, num::NonZeroUsize, path::PathBuf, time::Duration};

use super::server::Directories;
use crate::{
    glob::{Glob, Patterns},
    secret::Secret,
    units::{Per, Rate},
};

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
const CALL_TIMEOUT: Duration = Duration::from_secs(60);
/// How long a call may take at all, whatever a route or a client asks for.
const MAX_TIMEOUT: Duration = Duration::from_secs(10 * 60);

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
    /// Every scope that exists: the built-in ones and those this file defines or uses.
    pub scopes: BTreeSet<String>,
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
            limits: Limits::default(),
            rules: Vec::new(),
            default: Effect::default(),
        }
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
