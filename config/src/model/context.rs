//! Sessions, and the three context ids of a call.

use std::{num::NonZeroUsize, time::Duration};

/// A transport session nobody uses for so long is over.
const IDLE_TIMEOUT: Duration = Duration::from_secs(30 * 60);
/// How often idle sessions are looked for: they live at most this much longer.
const SESSION_SWEEP: Duration = Duration::from_secs(60);
/// Volatile state nobody touches for so long is gone; longer than a session, so that a reconnect finds it.
const STATE_TTL: Duration = Duration::from_secs(60 * 60);
/// How often old state is looked for.
const STATE_SWEEP: Duration = Duration::from_secs(5 * 60);
/// How many states are kept under `eviction: lru`.
const LRU_MAX: NonZeroUsize = NonZeroUsize::new(100).expect("not zero");
/// The session of a caller that names none.
const DEFAULT_SESSION: &str = "default";

/// Transport sessions of clients that have them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sessions {
    /// How long an unused session lives.
    pub idle_timeout: Duration,
    /// How often unused sessions are looked for.
    pub sweep_interval: Duration,
    /// What a request of a session that is over gets.
    pub expired_status: ExpiredStatus,
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
    pub default_session: String,
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
    /// The transport session too: data of unnamed sessions ends with them.
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
            default_session: DEFAULT_SESSION.to_owned(),
            require_assistant: false,
            durable_session: DurableSession::default(),
            trust: Trust::default(),
        }
    }
}

impl Eviction {
    /// Whether state goes by age.
    pub const fn by_age(self) -> bool {
        matches!(self, Self::Ttl | Self::TtlLru)
    }

    /// Whether the least recently used states go when there are too many.
    pub const fn by_count(self) -> bool {
        matches!(self, Self::Lru | Self::TtlLru)
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
