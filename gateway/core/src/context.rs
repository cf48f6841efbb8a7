//! Everything a backend may know about the caller of one call.
//!
//! A backend can address stored state only through the keys made here, so it cannot reach another caller's by mistake.

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use moongate_wire::Era;
use tokio::time::Instant;

use crate::{Abilities, Level, Peer, Principal, Raw, Version};

/// The caller and the circumstances of one call.
#[derive(Clone, Debug)]
pub struct Context {
    /// Who is calling.
    pub principal: Principal,
    /// For which session, assistant and thread.
    pub ids: ContextIds,
    /// When the call is over if it never waits for the client; the gateway adds the time that the client takes.
    pub deadline: Instant,
    /// What the client said about itself.
    pub client: Arc<Client>,
    /// The way back to the client while the call runs.
    pub peer: Peer,
    /// The least severe log note the client wants; the peer filters, this is for those who must ask for notes.
    pub log_level: Option<Level>,
    /// The legacy session or the pipe that the call came by, whose end [`crate::Backend::session_ended`] tells.
    pub transport_session: Option<Arc<str>>,
    /// Whether the session was named or is that of the transport. Else it is the default one, which callers share that have
    /// nothing to do with each other.
    pub session_named: bool,
}

/// The three context ids of a call.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ContextIds {
    /// The session that volatile state belongs to: named, of the transport, or `default`.
    pub session: Arc<str>,
    /// The session that durable data belongs to: named or `default`, unless configured otherwise.
    pub durable_session: Arc<str>,
    /// The acting assistant, if the caller said.
    pub assistant: Option<Arc<str>>,
    /// The thread inside the session, if the caller said.
    pub thread: Option<Arc<str>>,
}

/// What a client said about itself.
#[derive(Clone, Debug)]
pub struct Client {
    /// The version it speaks.
    pub version: Version,
    /// The capabilities it declared, as it wrote them.
    pub capabilities: Raw,
    /// `{name, version, …}`, as it wrote it.
    pub info: Option<Raw>,
    /// What [`Client::abilities`] found in the capabilities when it was first asked; a new client begins without.
    pub able: OnceLock<Abilities>,
}

/// A transport session of one principal.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SessionKey {
    /// Whose.
    pub principal: Principal,
    /// Which.
    pub session: Arc<str>,
}

/// The address of volatile state: one principal's session, assistant and thread. Made by [`Context::state_key`] only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StateKey {
    session: SessionKey,
    assistant: Option<Arc<str>>,
    thread: Option<Arc<str>>,
}

/// The address of durable data: one principal's named session. Made by [`Context::store_scope`] only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoreScope {
    principal: Principal,
    session: Arc<str>,
}

impl Context {
    /// Where this caller's volatile state lives.
    pub fn state_key(&self) -> StateKey {
        StateKey {
            session: self.session_key(),
            assistant: self.ids.assistant.clone(),
            thread: self.ids.thread.clone(),
        }
    }

    /// The session this caller's volatile state ends with.
    pub fn session_key(&self) -> SessionKey {
        SessionKey { principal: self.principal.clone(), session: Arc::clone(&self.ids.session) }
    }

    /// Where this caller's durable data lives.
    pub fn store_scope(&self) -> StoreScope {
        StoreScope { principal: self.principal.clone(), session: Arc::clone(&self.ids.durable_session) }
    }
}

impl StateKey {
    /// The session this state ends with.
    pub fn session(&self) -> &SessionKey {
        &self.session
    }

    /// The assistant, if any.
    pub fn assistant(&self) -> Option<&str> {
        self.assistant.as_deref()
    }

    /// The thread, if any.
    pub fn thread(&self) -> Option<&str> {
        self.thread.as_deref()
    }
}

/// `session::assistant::thread`, for logs and admin output only: the text is ambiguous, the key is not.
impl fmt::Display for StateKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let assistant = self.assistant.as_deref().unwrap_or("none");
        let thread = self.thread.as_deref().unwrap_or("default");
        write!(f, "{}::{assistant}::{thread}", self.session.session)
    }
}

impl StoreScope {
    /// Whose data.
    pub fn principal(&self) -> &Principal {
        &self.principal
    }

    /// Which session's.
    pub fn session(&self) -> &str {
        &self.session
    }
}

impl Client {
    /// A client of `version` that declared nothing.
    pub fn bare(version: Version) -> Self {
        Self { version, capabilities: Raw::empty_object(), info: None, able: OnceLock::new() }
    }

    /// The same in memory of its own, for whoever keeps it longer than the request it was read from.
    #[must_use]
    pub fn detached(&self) -> Self {
        let info = self.info.as_ref().map(Raw::detached);
        let (capabilities, able) = (self.capabilities.detached(), self.able.clone());
        Self { version: self.version, capabilities, info, able }
    }

    /// What it can do for a server; read once, because each call of a session asks.
    pub fn abilities(&self) -> Abilities {
        // As most modern ones have it, of which each request has its own.
        if self.capabilities.as_bytes() == b"{}" {
            return Abilities::none(self.version);
        }
        *self.able.get_or_init(|| Abilities::of(self))
    }

    /// The declared capability `name`, unless it is absent or `null`.
    pub fn capability(&self, name: &str) -> Option<Raw> {
        self.capabilities.member(name).filter(|value| !value.is_null())
    }

    /// Whether it declared the extension `name`, which only modern clients can.
    pub fn has_extension(&self, name: &str) -> bool {
        let declared = || self.capability("extensions")?.member(name).filter(|settings| !settings.is_null());
        self.version.era() == Era::Modern && declared().is_some()
    }
}

/// A context for tests of backends: `session`, optionally an assistant and a thread, a far deadline, a silent peer.
#[cfg(any(test, feature = "testing"))]
impl Context {
    /// See the `impl`'s comment.
    pub fn for_test(
        principal: Principal,
        session: &str,
        assistant: Option<&str>,
        thread: Option<&str>,
    ) -> Self {
        let client = Arc::new(Client::bare(Version::LATEST_LEGACY));
        Self {
            principal,
            ids: ContextIds {
                session: session.into(),
                durable_session: session.into(),
                assistant: assistant.map(Into::into),
                thread: thread.map(Into::into),
            },
            deadline: Instant::now() + std::time::Duration::from_hours(1),
            peer: Peer::silent(Arc::clone(&client)),
            client,
            log_level: None,
            transport_session: None,
            session_named: true,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_extension_is_there_if_a_modern_client_declared_it() {
        for (version, declared, has) in [
            (Version::V2026_07_28, r#"{"extensions":{"a/b":{}}}"#, true),
            (Version::V2026_07_28, r#"{"extensions":{"a/b":null}}"#, false),
            (Version::V2026_07_28, r#"{"extensions":{"a/c":{}},"a/b":{}}"#, false),
            (Version::V2026_07_28, "{}", false),
            (Version::V2025_11_25, r#"{"extensions":{"a/b":{}}}"#, false),
        ] {
            let capabilities = Raw::from_text(declared.to_owned()).unwrap();
            let client = Client { capabilities, ..Client::bare(version) };
            assert_eq!(client.has_extension("a/b"), has, "{version} {declared}");
        }
    }

    #[test]
    fn keys_that_read_alike_are_not_equal() {
        let key = |session: &str, assistant: Option<&str>, thread: Option<&str>| {
            Context::for_test(Principal::local(), session, assistant, thread).state_key()
        };
        assert_eq!(key("sess_1", None, None).to_string(), "sess_1::none::default");
        assert_eq!(key("s", Some("a"), Some("t")).to_string(), "s::a::t");
        assert_ne!(key("s", Some("none"), None), key("s", None, None));
        assert_ne!(key("s::a", Some("b"), None), key("s", Some("a::b"), None));
    }
}
