//! What a backend announces outside any call: its lists changed, a resource was updated, and whom that concerns.

use std::{fmt, sync::Arc};

use crate::{Principal, SessionKey};

/// Something that clients may want to hear of.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Change {
    /// `notifications/tools/list_changed`
    Tools,
    /// `notifications/prompts/list_changed`
    Prompts,
    /// `notifications/resources/list_changed`
    Resources,
    /// `notifications/resources/list_changed`, too: of the resources that callers have of their own. What is offered to all
    /// stays as it is.
    OwnResources,
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

/// Whom a change concerns. Others are not told: what changes at one caller's server is none of their business.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Audience {
    /// Every caller.
    #[default]
    Everybody,
    /// The calls of one principal.
    Principal(Principal),
    /// The calls for one session of a principal.
    Session(SessionKey),
}

impl Audience {
    /// Whether `principal` belongs to it, in this session or another.
    pub fn has(&self, principal: &Principal) -> bool {
        match self {
            Self::Everybody => true,
            Self::Principal(whose) => whose == principal,
            Self::Session(key) => key.principal == *principal,
        }
    }

    /// Whether a call of `principal` for `session` belongs to it.
    pub fn has_session(&self, principal: &Principal, session: &str) -> bool {
        match self {
            Self::Everybody | Self::Principal(_) => self.has(principal),
            Self::Session(key) => key.principal == *principal && *key.session == *session,
        }
    }
}

/// A change and whom it concerns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Announcement {
    /// What happened.
    pub change: Change,
    /// To whom it matters.
    pub audience: Audience,
}

/// The sender a backend gets when it is built. Never blocks and never loses a change: changes are a set, and a change
/// that is already waiting to be told is not told twice.
#[derive(Clone)]
pub struct Changes(Arc<dyn Fn(Announcement) + Send + Sync>);

impl Changes {
    /// A sender that hands every change to `sink`, which must not block.
    pub fn new(sink: impl Fn(Announcement) + Send + Sync + 'static) -> Self {
        Self(Arc::new(sink))
    }

    /// A sender nobody listens to, for tests.
    pub fn ignored() -> Self {
        Self::new(|_| {})
    }

    /// Announces one change to everybody.
    pub fn send(&self, change: Change) {
        self.send_to(Audience::Everybody, change);
    }

    /// Announces one change to those whom it concerns.
    pub fn send_to(&self, audience: Audience, change: Change) {
        (self.0)(Announcement { change, audience });
    }
}

impl fmt::Debug for Changes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Changes")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_audience_is_no_larger_than_it_says() {
        let (a, b) = (Principal::issued("a"), Principal::issued("b"));
        let session = Audience::Session(SessionKey { principal: a.clone(), session: "s".into() });
        for (audience, others, elsewhere) in [
            (Audience::Everybody, true, true),
            (Audience::Principal(a.clone()), false, true),
            (session, false, false),
        ] {
            assert!(audience.has(&a) && audience.has_session(&a, "s"), "{audience:?}");
            assert_eq!(audience.has(&b), others, "{audience:?}");
            assert_eq!(audience.has_session(&b, "s"), others, "{audience:?}");
            assert_eq!(audience.has_session(&a, "t"), elsewhere, "{audience:?}");
        }
    }
}
