//! Other MCP servers: processes that the gateway starts, and remote ones.
//!
//! The keys that every `mcpServers` of an IDE has are spelled as there, so that entries can be pasted. What only a process
//! or only a remote server has is in the file of that name; whether an entry mixes them up is left to `check`.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use self::{
    process::{Argument, Command, Process, RawProcessLimits, Share, Start, VariableName, VariableValue},
    remote::{Endpoint, HeaderText, RawRemoteTls, Remote, RemoteTransport},
};
use super::backends::NAMES;
use crate::{
    load::{
        declare::{section, text, words},
        node::Node,
        read::{At, FromNode, Given, Hidden, OrOff, Reader},
    },
    model::security::names::ScopeName,
    units::{Period, Size},
};

pub(crate) mod process;
pub(crate) mod remote;

/// The scope that an upstream's tools need: nobody knows what they change.
pub(crate) const SCOPE: &str = "write";
/// How long a first listing waits for an upstream: a package that has to be fetched takes about as long.
pub(crate) const LIST_TIMEOUT: Duration = Duration::from_secs(10);
/// The largest message of an upstream: screenshots and documents fit, a stream gone wild does not.
pub(crate) const MAX_MESSAGE: usize = 16 << 20;
/// What the name of an upstream looks like, for messages.
pub(crate) const NAME: &str =
    "up to 32 letters, digits, `-` and `_`, without `__` and with no `_` at the end";

section! {
    /// Another MCP server: a process, which has a `command`, or a remote one, which has a `url`.
    #[schemars(rename = "Upstream")]
    struct RawUpstream {
        /// A process: the program, by name or by path. A name is looked for in the `PATH`.
        command: Given<Command>,
        /// A process: its arguments.
        #[schemars(extend("default" = []))]
        args: Vec<At<Argument>>,
        /// A process: variables beside those of the clean environment. Their values are never shown.
        #[schemars(extend("default" = {}))]
        env: Hidden<VariableValue>,
        /// A process: names of variables that it gets from the gateway's own environment.
        #[schemars(extend("default" = []))]
        inherit_env: Vec<At<VariableName>>,
        /// A process: its working directory. Absent: that of the gateway.
        cwd: PathBuf,
        /// A process: when it is started: `lazy` on first use; `eager` with the gateway, for the local user (for everyone
        /// with `share: gateway`). A modern server's process serves every client of that user. A legacy server is told once
        /// what its client can do: its process is started for clients like the one that used it last, at first for one
        /// that can do nothing. Other callers, and those of servers that keep sessions or roots apart, start one with the call.
        #[schemars(extend("default" = "lazy"))]
        start: Start,
        /// A process: who shares one: everyone, the clients of one principal, or nobody beyond a session.
        #[schemars(extend("default" = "principal"))]
        share: Share,
        /// A process: how long it is kept when nobody uses it.
        #[schemars(extend("default" = "10m"))]
        idle_timeout: OrOff<Period>,
        /// A process that asks questions: how many run side by side for the calls of one principal that belong to no session,
        /// one call each. Further calls wait.
        #[schemars(extend("default" = 4, "maximum" = 64))]
        max_processes: NonZeroUsize,
        /// A process: how much of the machine it may take, with all that it starts.
        limits: RawProcessLimits,
        /// A remote server: its address, `https://…`.
        url: Given<Endpoint>,
        /// A remote server: headers that are sent with every request. Their values are never shown.
        #[schemars(extend("default" = {}))]
        headers: Hidden<HeaderText>,
        /// A remote server: whom to trust.
        tls: RawRemoteTls,
        /// A remote server: how it speaks. `sse` is the old HTTP+SSE; `auto` finds out.
        #[schemars(extend("default" = "auto"))]
        transport: RemoteTransport,
        /// A remote server: lets `url` be plain `http` beyond this machine. It warns about it at every start.
        #[schemars(extend("default" = false))]
        allow_insecure: bool,
        /// What IDEs write beside `command` or `url`. It only has to agree with them.
        r#type: Kind,
        /// Whether it is there.
        #[schemars(extend("default" = true))]
        enabled: bool,
        /// The era of the protocol it speaks; `auto` finds out.
        #[schemars(extend("default" = "auto"))]
        era: EraChoice,
        /// What its tools' names begin with: `<prefix>__<tool>`. `none` keeps their bare names. Absent: its name.
        prefix: Prefix,
        /// The scope its tools need, unless a route says otherwise.
        #[schemars(extend("default" = "write"))]
        scope: ScopeName,
        /// How long a call may take, unless a route says otherwise. Absent: `security.limits.call_timeout`.
        timeout: Period,
        /// How long a first listing waits for what it offers.
        #[schemars(extend("default" = "10s"))]
        list_timeout: Period,
        /// Directories it is told of, as paths or `file:///…`. Absent: those of the client.
        roots: Vec<At<Root>>,
        /// Sends it the calls of tools that nobody lists, and tells it, if it is of the modern era, of extensions that a
        /// client declared and the gateway does not know: it may answer that client's calls with results they define.
        /// Scopes and rules apply; methods of such extensions are not sent. Only with `prefix: none`, and for one upstream.
        #[schemars(extend("default" = false))]
        forward_unlisted: bool,
        /// The largest message it may send.
        #[schemars(extend("default" = "16MiB"))]
        max_message: Size,
        /// Whether clients are told its instructions.
        #[schemars(extend("default" = true))]
        instructions: bool,
    }
}

/// What an IDE calls the way an upstream is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Stdio,
    Http,
    StreamableHttp,
    Sse,
}

/// A root in the file, as a URI.
#[derive(Clone, Debug)]
pub(crate) struct Root(pub(crate) String);

words!(Kind { "stdio" => Stdio, "http" => Http, "streamable-http" => StreamableHttp, "sse" => Sse });
words!(EraChoice { "auto" => Auto, "legacy" => Legacy, "modern" => Modern });
text!(Prefix, "`none`, or a name as upstreams have", r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}", Prefix::parse);

/// Another MCP server.
#[derive(Clone, Debug, PartialEq)]
pub struct Upstream {
    /// What the file calls it. Together with a tool's own name it is the canonical name, `<upstream>__<tool>`.
    pub name: String,
    /// Whether it is there.
    pub enabled: bool,
    /// How it is reached.
    pub reach: Reach,
    /// The era of the protocol it speaks.
    pub era: EraChoice,
    /// What the names of its tools begin with. No two enabled upstreams have the same.
    pub prefix: Prefix,
    /// The scope its tools need, unless a route says otherwise.
    pub scope: String,
    /// How long a call may take, instead of `security.limits.call_timeout`.
    pub timeout: Option<Duration>,
    /// How long a first listing waits for what it offers.
    pub list_timeout: Duration,
    /// The directories it is told of, as URIs; `None`: those of the client.
    pub roots: Option<Vec<String>>,
    /// Whether it gets the calls of tools that nobody lists, and hears of extensions that the gateway does not know. Then it
    /// has no prefix, and no other upstream has this.
    pub forward_unlisted: bool,
    /// The largest message it may send, in bytes.
    pub max_message: usize,
    /// Whether clients are told its instructions.
    pub instructions: bool,
}

/// How an upstream is reached.
#[derive(Clone, Debug, PartialEq)]
pub enum Reach {
    /// Through the pipes of a process.
    Process(Process),
    /// Over HTTP.
    Remote(Remote),
}

/// Which era of the protocol an upstream speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// It is found out and remembered.
    #[default]
    Auto,
    /// `initialize` and sessions.
    Legacy,
    /// `server/discover`, without sessions.
    Modern,
}

/// What the names of an upstream's tools begin with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Prefix {
    /// Nothing: they keep their bare names.
    None,
    /// This and `__`.
    Name(String),
}

impl Upstream {
    /// Whether a running process or an open connection of `self` may serve `other`: whatever differs is the gateway's own
    /// business, and the server would not notice.
    pub fn same_connection(&self, other: &Self) -> bool {
        let reach = match (&self.reach, &other.reach) {
            (Reach::Process(one), Reach::Process(other)) => one.same(other),
            (Reach::Remote(one), Reach::Remote(other)) => one.same(other),
            (Reach::Process(_), Reach::Remote(_)) | (Reach::Remote(_), Reach::Process(_)) => false,
        };
        // It was told the roots, and may have kept to them.
        let told = self.roots == other.roots;
        reach && told && self.era == other.era && self.max_message == other.max_message
    }
}

impl Prefix {
    /// The text before `__`, if there is one.
    pub fn as_str(&self) -> Option<&str> {
        match self {
            Self::None => None,
            Self::Name(name) => Some(name),
        }
    }

    fn parse(text: &str) -> Result<Self, &'static str> {
        if text == "none" {
            return Ok(Self::None);
        }
        check_name(text).map(|()| Self::Name(text.to_owned()))
    }
}

/// Whether `text` can name an upstream: `<name>__<tool>` has to come apart again in one way only.
pub(crate) fn check_name(text: &str) -> Result<(), &'static str> {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    let begins = text.bytes().next().is_some_and(|first| first.is_ascii_alphanumeric());
    if !begins || text.len() > 32 || !text.bytes().all(good) || text.contains("__") || text.ends_with('_') {
        return Err("cannot name an upstream");
    }
    if NAMES.contains(&text) { Err("is the name of a built-in backend") } else { Ok(()) }
}

impl FromNode for Root {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        const EXPECTED: &str = "the path of a directory, or `file:///…`";
        let text = reader.text(node, EXPECTED)?.value;
        if text.starts_with("file:///") && !text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Some(Self(text));
        }
        if text.is_empty() || text.contains("://") {
            return reader.wrong(node, EXPECTED);
        }
        let path = reader.expander.directories.resolve(&text, &reader.expander.base);
        match path.to_str() {
            Some(path) if path.starts_with('/') => Some(Self(file_uri(path))),
            _ => reader.wrong(node, EXPECTED),
        }
    }
}

impl schemars::JsonSchema for Root {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Root".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// An absolute path as a URI: what has a meaning in URIs, or none, is percent-encoded.
fn file_uri(path: &str) -> String {
    use std::fmt::Write as _;
    let mut uri = "file://".to_owned();
    for byte in path.bytes() {
        if byte.is_ascii_alphanumeric() || b"/-._~!$&'()*+,;=:@".contains(&byte) {
            uri.push(char::from(byte));
        } else {
            write!(uri, "%{byte:02X}").expect("writing to a string cannot fail");
        }
    }
    uri
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::Config;

    #[test]
    fn names_come_apart_from_tools_in_one_way_only() {
        for good in ["github", "a", "7zip", "my-server_2", "Context7", &"x".repeat(32)] {
            assert_eq!(check_name(good), Ok(()), "{good}");
        }
        for bad in ["", "_a", "-a", "a_", "a__b", "a.b", "a b", "é", &"x".repeat(33)] {
            assert_eq!(check_name(bad), Err("cannot name an upstream"), "{bad}");
        }
        let built_in = Config::default().backends;
        for taken in NAMES.into_iter().chain(built_in.iter().map(|(name, _)| name)) {
            assert_eq!(check_name(taken), Err("is the name of a built-in backend"), "{taken}");
        }
    }

    #[test]
    fn paths_become_uris() {
        assert_eq!(file_uri("/home/me/My Documents/é?#%"), "file:///home/me/My%20Documents/%C3%A9%3F%23%25");
    }
}
