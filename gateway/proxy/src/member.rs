//! A backend with what the request path has to know about it.

use std::{fmt, sync::Arc, time::Duration};

use moongate_core::{Backend, Principal, Scope, principal};

use crate::naming::Naming;

/// How long a listing waits for one member, unless it is told otherwise.
pub const LIST_TIMEOUT: Duration = Duration::from_secs(10);

/// A backend under the name it has in configuration, metrics and logs.
#[derive(Clone)]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// What answers.
    pub backend: Arc<dyn Backend>,
    /// How its tools and prompts are shown.
    pub naming: Naming,
    /// How long a listing waits for its offer; what comes later is announced.
    pub list_timeout: Duration,
    /// The longest a call of it may take, unless a route says otherwise.
    pub timeout: Option<Duration>,
    /// Whether what it offers depends on what the client can do, so that clients which differ there share no view.
    pub cares: bool,
    /// What a caller needs to hold for tools that it has and does not list; `None`: those are unknown.
    pub unlisted: Option<Scope>,
    /// Who may know of it.
    pub callers: Callers,
    /// Whether it is another server: its results may name resources nobody lists, and its schemas are its own.
    pub is_upstream: bool,
    /// Tells in one word how it is, where that may differ; anybody may be told.
    pub condition: Option<Condition>,
    /// Tells whether it makes tasks for clients that know them, as far as is known.
    pub tasks: Option<OffersTasks>,
    /// Tells which transport sessions it does something for that outlasts their calls.
    pub busy: Option<Busy>,
}

/// Who may know of a member; to all others it does not exist.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Callers {
    /// Whoever got in.
    #[default]
    Anyone,
    /// The user whose gateway it is.
    Local,
    /// Those with a name, who need to hold this scope for whatever it has.
    Holding(Scope),
}

impl Callers {
    /// Whether `principal` may know of it.
    pub fn include(&self, principal: &Principal) -> bool {
        match self {
            Self::Anyone => true,
            Self::Local => principal.kind() == principal::Kind::Local,
            Self::Holding(_) => principal.kind() != principal::Kind::Anonymous,
        }
    }

    /// What they need to hold to read something.
    pub fn scope(&self) -> Scope {
        match self {
            Self::Anyone | Self::Local => Scope::read(),
            Self::Holding(scope) => scope.clone(),
        }
    }
}

/// Tells in one word how a member is. Must not block.
pub type Condition = Arc<dyn Fn() -> &'static str + Send + Sync>;

/// Tells whether a member is known to make tasks for clients that know them. Must not block.
pub type OffersTasks = Arc<dyn Fn() -> bool + Send + Sync>;

/// Tells the transport sessions that must not expire, because something a member does for them goes on. Asked once for each
/// sweep; must not block. What is no session's id does no harm.
pub type Busy = Arc<dyn Fn() -> Vec<Arc<str>> + Send + Sync>;

impl Member {
    /// A backend of this process: bare names, and the same for every client.
    pub fn builtin(name: impl Into<Arc<str>>, backend: Arc<dyn Backend>) -> Self {
        Self {
            name: name.into(),
            backend,
            naming: Naming::Bare,
            list_timeout: LIST_TIMEOUT,
            timeout: None,
            cares: false,
            unlisted: None,
            callers: Callers::Anyone,
            is_upstream: false,
            condition: None,
            tasks: None,
            busy: None,
        }
    }

    /// Another server, whose names are shown behind `name`, and which is told what the client can do.
    pub fn upstream(name: impl Into<Arc<str>>, backend: Arc<dyn Backend>) -> Self {
        let name = name.into();
        let naming = Naming::Prefixed(Arc::clone(&name));
        Self { naming, cares: true, is_upstream: true, ..Self::builtin(name, backend) }
    }

    /// The same, for these callers only.
    #[must_use]
    pub fn with_callers(self, callers: Callers) -> Self {
        Self { callers, ..self }
    }

    /// Its name, if it is another server.
    pub fn upstream_name(&self) -> Option<&str> {
        self.is_upstream.then_some(&*self.name)
    }

    /// The same with names shown so.
    #[must_use]
    pub fn with_naming(self, naming: Naming) -> Self {
        Self { naming, ..self }
    }

    /// The same, waited for so long.
    #[must_use]
    pub fn with_list_timeout(self, list_timeout: Duration) -> Self {
        Self { list_timeout, ..self }
    }

    /// The same, with calls that take at most so long.
    #[must_use]
    pub fn with_timeout(self, timeout: Option<Duration>) -> Self {
        Self { timeout, ..self }
    }

    /// The same, which tells how it is.
    #[must_use]
    pub fn with_condition(self, condition: Condition) -> Self {
        Self { condition: Some(condition), ..self }
    }

    /// The same, which may make tasks.
    #[must_use]
    pub fn with_tasks(self, tasks: OffersTasks) -> Self {
        Self { tasks: Some(tasks), ..self }
    }

    /// The same, which may go on with something after the calls of a session.
    #[must_use]
    pub fn with_busy(self, busy: Busy) -> Self {
        Self { busy: Some(busy), ..self }
    }

    /// Whether it is known to make tasks for clients that know them.
    pub fn offers_tasks(&self) -> bool {
        self.tasks.as_ref().is_some_and(|tasks| tasks())
    }

    /// The same, called also by names that it does not list.
    #[must_use]
    pub fn with_unlisted(self, scope: Option<Scope>) -> Self {
        Self { unlisted: scope, ..self }
    }

    /// The same, caring or not about what the client can do.
    #[must_use]
    pub fn with_cares(self, cares: bool) -> Self {
        Self { cares, ..self }
    }
}

impl fmt::Debug for Member {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Member({})", self.name)
    }
}
