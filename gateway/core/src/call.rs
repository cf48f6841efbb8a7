//! One call on its way to a backend, and the reply on its way back, as plain data.

use std::{sync::Arc, time::Duration};

use moongate_wire::Raw;

/// What a client wants done.
#[derive(Clone, Debug)]
pub struct Call {
    /// The operation with its parameters.
    pub operation: Operation,
    /// The client's `_meta` as it came, for backends that pass calls on; none where it says no more than every request.
    pub meta: Option<Raw>,
    /// What the client said beside the message about parameters that no schema declares, for backends that pass calls on by
    /// HTTP: the part after `Mcp-Param-`, and the value as it came.
    pub undeclared: Vec<(Arc<str>, Arc<str>)>,
    /// How long the answer may be kept for the same caller where the backend does not say.
    pub keep: Option<Duration>,
}

impl Call {
    /// A call with nothing beside its parameters.
    pub fn new(operation: Operation) -> Self {
        Self { operation, meta: None, undeclared: Vec::new(), keep: None }
    }
}

/// The operations a backend answers.
#[derive(Clone, Debug)]
pub enum Operation {
    /// `tools/call`
    CallTool {
        /// The name as the backend knows it: the tool's own, or the alias it was called by.
        name: Arc<str>,
        /// An object, free of context fields.
        arguments: Raw,
    },
    /// `prompts/get`
    GetPrompt {
        /// The name as the backend knows it.
        name: Arc<str>,
        /// An object.
        arguments: Raw,
    },
    /// `resources/read`
    ReadResource {
        /// The resource.
        uri: Arc<str>,
    },
    /// `completion/complete`
    Complete {
        /// The whole `params`: `ref`, `argument`, `context`.
        params: Raw,
    },
    /// `resources/subscribe`, or a URI of a `subscriptions/listen`
    Subscribe {
        /// The resource.
        uri: Arc<str>,
    },
    /// The end of a subscription.
    Unsubscribe {
        /// The resource.
        uri: Arc<str>,
    },
    /// What may be done with a task that a tool call made.
    Task {
        /// The task, as the backend knows it.
        id: Arc<str>,
        /// What is done with it.
        act: TaskAct,
    },
}

/// What may be done with a task.
#[derive(Clone, Debug)]
pub enum TaskAct {
    /// `tasks/get`: how far it is. The reply is the task, and inside it the plain `result` if there is one.
    Get,
    /// `tasks/update`: answers to what it asked.
    Update {
        /// By the keys of the questions.
        responses: Raw,
    },
    /// `tasks/cancel`
    Cancel,
    /// Its changes are told from now on ([`crate::Change::Task`]): a task of a `subscriptions/listen`.
    Watch,
    /// The end of that.
    Unwatch,
}

/// A backend's answer: the `result` object without anything that belongs to one era only.
#[derive(Clone, Debug)]
pub struct Reply {
    /// The result object.
    pub result: Raw,
    /// How long and for whom it may be kept, where the backend knows.
    pub freshness: Option<Freshness>,
    /// Whether the result may have a `_meta` of its own. False is certain, and spares a look for it.
    pub may_have_meta: bool,
    /// The id, as the backend knows it, of the task that a tool call has made instead of an answer; the result describes
    /// it. Only for clients that declared [`crate::TASKS`].
    pub task: Option<Arc<str>>,
    /// What kind of result it is, where an extension that the client declared defines that kind. Else it is complete.
    pub result_type: Option<Raw>,
}

/// Caching hints of a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Freshness {
    /// How long the result stays good.
    pub ttl: Duration,
    /// Whether other callers may see it.
    pub public: bool,
}

impl Freshness {
    /// Good for nobody but the caller, and not for long.
    pub const NONE: Self = Self { ttl: Duration::ZERO, public: false };
}

impl From<Raw> for Reply {
    fn from(result: Raw) -> Self {
        Self { result, freshness: None, may_have_meta: true, task: None, result_type: None }
    }
}
