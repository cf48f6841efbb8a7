//! What a backend announces outside any call: its lists changed, a resource was updated.

use std::{fmt, sync::Arc};

/// Something that clients may want to hear of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// `notifications/tools/list_changed`
    Tools,
    /// `notifications/prompts/list_changed`
    Prompts,
    /// `notifications/resources/list_changed`
    Resources,
    /// `notifications/resources/updated`
    Updated {
        /// The resource, or one inside the subscribed one.
        uri: Arc<str>,
    },
    /// `notifications/tasks`
    Task {
        /// The backend it runs at.
        backend: Arc<str>,
        /// The task, as the backend knows it.
        id: Arc<str>,
        /// How far it is: the JSON text of what `tasks/get` would reply.
        task: Arc<str>,
    },
}

impl Change {
    /// Whether nobody needs to hear this after `newer`, which tells how far the same task is.
    pub fn is_outdone_by(&self, newer: &Self) -> bool {
        match (self, newer) {
            (Self::Task { backend, id, .. }, Self::Task { backend: of, id: same, .. }) => {
                backend == of && id == same
            }
            _ => false,
        }
    }
}

/// The sender a backend gets when it is built. Never blocks and never loses a change: changes are a set, and a change
/// that is already waiting to be told is not told twice.
#[derive(Clone)]
pub struct Changes(Arc<dyn Fn(Change) + Send + Sync>);

impl Changes {
    /// A sender that hands every change to `sink`, which must not block.
    pub fn new(sink: impl Fn(Change) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// A sender nobody listens to, for tests.
    pub fn ignored() -> Self {
        Self::new(|_| {})
    }

    /// Announces one change.
    pub fn send(&self, change: Change) {
        (self.0)(change);
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}
