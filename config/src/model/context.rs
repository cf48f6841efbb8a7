//! Sessions, and the three context ids of a call.

use std::{num::NonZeroUsize, sync::Arc, time::Duration};

use crate::{
    load::{
        declare::{section, text, words},
        expand::Expander,
        node::{Node, Value},
        read::{At, FromNode, OrOff, Reader},
    },
    units::Period,
};

/// A transport session nobody uses for so long is over.
const IDLE_TIMEOUT: Duration = Duration::from_mins(30);
/// How often idle sessions are looked for: they live at most this much longer.
const SESSION_SWEEP: Duration = Duration::from_mins(1);
/// Volatile state nobody touches for so long is gone; longer than a session, so that a reconnect finds it.
const STATE_TTL: Duration = Duration::from_hours(1);
/// How often old state is looked for.
const STATE_SWEEP: Duration = Duration::from_mins(5);
/// How many states are kept under `eviction: lru`.
const LRU_MAX: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");
/// The session of a caller that names none.
const DEFAULT_SESSION: &str = "default";

section! {
    /// Transport sessions of clients that have them.
    #[schemars(rename = "Sessions")]
    struct RawSessions {
        /// How long an unused session lives.
        #[schemars(extend("default" = "30m"))]
        idle_timeout: Period,
        /// How often unused sessions are looked for.
        #[schemars(extend("default" = "60s"))]
        sweep_interval: Period,
        /// The HTTP status for a session that is unknown or over. Clients initialise again on 404; 401 sends most of them
        /// to a login.
        #[schemars(extend("default" = 404))]
        expired_status: ExpiredStatus,
        /// How long the answer to a call may stay open before there is a result. Then a client of 2025-11-25, which can come
        /// back for the rest, is sent away to do so, and the call goes on: for proxies that cut off whatever takes long.
        #[schemars(extend("default" = "off"))]
        poll_after: OrOff<Period>,
    }
}

section! {
    /// Where the session, assistant and thread of a call come from, and how long its state lives.
    #[schemars(rename = "Context")]
    struct RawContext {
        /// How long volatile state lives that nobody touches.
        #[schemars(extend("default" = "1h"))]
        state_ttl: Period,
        /// How often old state is looked for.
        #[schemars(extend("default" = "5m"))]
        sweep_interval: Period,
        /// What makes volatile state go: its age, too many of them (least recently used first), or both.
        #[schemars(extend("default" = "ttl"))]
        eviction: Eviction,
        /// How many states are kept when the least recently used ones go.
        #[schemars(extend("default" = 100))]
        lru_max: NonZeroUsize,
        /// The session of a caller that names none.
        #[schemars(extend("default" = "default"))]
        default_session: SessionName,
        /// Refuse calls without an assistant to the backends that keep what they store by assistant: playbook.
        #[schemars(extend("default" = false))]
        require_assistant: bool,
        /// Which session durable data belongs to: only a named one (else the default one), or that of the transport too.
        /// What a transport session stored stays in the database when it ends, where no other session finds it.
        #[schemars(extend("default" = "named"))]
        durable_session: DurableSession,
        /// Whose headers and `_meta` may name session, assistant and thread.
        trust: RawTrust,
    }
    later: ["claims"]
}

section! {
    /// Which sources of context are believed, by kind of principal.
    #[schemars(rename = "Trust")]
    struct RawTrust {
        /// The holder of the local token.
        #[schemars(extend("default" = ["headers", "meta"]))]
        local: Vec<At<Source>>,
        /// Holders of tokens that this gateway signed.
        #[schemars(extend("default" = []))]
        issued: Vec<At<Source>>,
        /// Callers without a token.
        #[schemars(extend("default" = []))]
        anonymous: Vec<At<Source>>,
    }
    later: ["jwt", "mtls"]
}

/// The name of a session in the file.
#[derive(Clone, Debug)]
pub(crate) struct SessionName(pub(crate) String);

text!(SessionName, "a name of at most 128 characters", r"\S{1,128}", SessionName::parse);
words!(Eviction { "ttl" => Ttl, "lru" => Lru, "ttl+lru" => TtlLru });
words!(DurableSession { "named" => Named, "transport" => Transport });
words!(Source { "headers" => Headers, "meta" => Meta });

impl SessionName {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let fits = (1..=128).contains(&text.chars().count());
        if !fits || text.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("is not a name");
        }
        Ok(Self(text.to_owned()))
    }
}

impl FromNode for ExpiredStatus {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        const EXPECTED: &str = "404 or 401";
        match &node.value {
            Value::Int(404) => Some(Self::NotFound),
            Value::Int(401) => Some(Self::Unauthorized),
            Value::Text(text) if Expander::applies(text) => reader.parse(node, EXPECTED, |text| match text {
                "404" => Ok(Self::NotFound),
                "401" => Ok(Self::Unauthorized),
                _ => Err("is another status"),
            }),
            _ => reader.wrong(node, EXPECTED),
        }
    }
}

impl schemars::JsonSchema for ExpiredStatus {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "ExpiredStatus".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "enum": [404, 401] })
    }
}

/// Transport sessions of clients that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// How long an unused session lives.
    pub idle_timeout: Duration,
    /// How often unused sessions are looked for.
    pub sweep_interval: Duration,
    /// What a request of a session that is over gets.
    pub expired_status: ExpiredStatus,
    /// How long an answer stays open before there is a result, where the client can come back for the rest; `None` is `off`.
    pub poll_after: Option<Duration>,
}

/// The HTTP status for a session that is unknown or over.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ExpiredStatus {
    /// 404: clients initialise again.
    #[default]
    NotFound,
    /// 401: for clients that expect it; others start to log in.
    Unauthorized,
}

/// Where the context of a call comes from and how long its state lives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Context {
    /// How long untouched volatile state lives.
    pub state_ttl: Duration,
    /// How often old state is looked for.
    pub sweep_interval: Duration,
    /// What makes state go.
    pub eviction: Eviction,
    /// How many states are kept when the least recently used ones go.
    pub lru_max: NonZeroUsize,
    /// The session of a caller that names none.
    pub default_session: Arc<str>,
    /// Whether a call that names no assistant is refused.
    pub require_assistant: bool,
    /// Which session durable data belongs to.
    pub durable_session: DurableSession,
    /// Whose headers and `_meta` may name session, assistant and thread.
    pub trust: Trust,
}

/// What makes volatile state go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Eviction {
    /// Its age.
    #[default]
    Ttl,
    /// Too many of them: the least recently used first.
    Lru,
    /// Both.
    TtlLru,
}

/// Which session durable data belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DurableSession {
    /// A named session, else the default one: a client that reconnects finds its data again.
    #[default]
    Named,
    /// The transport session too: what unnamed sessions stored is out of reach when they end, though its rows stay.
    Transport,
}

/// Which sources of context are believed, by kind of principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Trust {
    /// The holder of the local token.
    pub local: Sources,
    /// Holders of tokens this gateway signed.
    pub issued: Sources,
    /// Callers without a token.
    pub anonymous: Sources,
}

/// A set of [`Source`]s.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sources {
    /// `X-Session-Id`, `X-Assistant-Id`, `X-Thread-Id`.
    pub headers: bool,
    /// The `_meta` keys of the same meaning.
    pub meta: bool,
}

/// One source of context ids.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Source {
    /// Request headers.
    Headers,
    /// `_meta` of the request.
    Meta,
}

impl Default for Sessions {
    fn default() -> Self {
        Self {
            idle_timeout: IDLE_TIMEOUT,
            sweep_interval: SESSION_SWEEP,
            expired_status: ExpiredStatus::default(),
            poll_after: None,
        }
    }
}

impl ExpiredStatus {
    /// The status code.
    pub const fn code(self) -> u16 {
        match self {
            Self::NotFound => 404,
            Self::Unauthorized => 401,
        }
    }
}

impl Default for Context {
    fn default() -> Self {
        Self {
            state_ttl: STATE_TTL,
            sweep_interval: STATE_SWEEP,
            eviction: Eviction::default(),
            lru_max: LRU_MAX,
            default_session: DEFAULT_SESSION.into(),
            require_assistant: false,
            durable_session: DurableSession::default(),
            trust: Trust::default(),
        }
    }
}

/// The user's own programs may say for whom they call; others may not, unless the operator says so.
impl Default for Trust {
    fn default() -> Self {
        Self {
            local: Sources { headers: true, meta: true },
            issued: Sources::default(),
            anonymous: Sources::default(),
        }
    }
}

impl FromIterator<Source> for Sources {
    fn from_iter<I: IntoIterator<Item = Source>>(sources: I) -> Self {
        sources.into_iter().fold(Self::default(), |all, source| match source {
            Source::Headers => Self { headers: true, ..all },
            Source::Meta => Self { meta: true, ..all },
        })
    }
}
