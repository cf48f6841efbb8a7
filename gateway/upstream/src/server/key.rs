//! Who shares a connection.

use std::sync::Arc;

use moongate_core::{Context, Principal, Raw, SessionKey};

use crate::client::Declared;

/// Who shares a connection.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Key {
    /// `None`: everybody.
    pub(crate) principal: Option<Principal>,
    /// `None`: all sessions of the principal.
    pub(crate) session: Option<Arc<str>>,
    /// What its clients can do, where a server is told once for all; see [`alike`].
    pub(crate) abilities: Declared,
    /// The hash of the roots that the server was told, where it keeps to those of a client.
    pub(crate) roots: Option<u64>,
    /// Which of the processes that calls without a session lease; 0 for every other one, and for the first of them.
    pub(crate) place: usize,
}

/// Who shares a process or an HTTP session.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Share {
    /// Everybody; the server is told of no client capabilities.
    Gateway,
    /// The calls of one principal.
    #[default]
    Principal,
    /// The calls of one session.
    Session,
}

impl Key {
    /// The key of a call. `abilities` is what the server is told in its handshake.
    pub(crate) fn of(cx: &Context, share: Share, abilities: &Declared) -> Self {
        let shared = share == Share::Gateway;
        Self {
            principal: (!shared).then(|| cx.principal.clone()),
            session: (share == Share::Session).then(|| Arc::clone(&cx.ids.session)),
            abilities: alike(abilities),
            roots: None,
            place: 0,
        }
    }

    /// The key of the connection that lists for this one: what is offered to calls without a session is one list, whichever
    /// process they lease.
    pub(crate) fn of_lists(&self) -> Self {
        Self { place: 0, ..self.clone() }
    }

    /// Whether it lists for itself.
    pub(crate) fn lists(&self) -> bool {
        self.place == 0
    }

    /// Whether the connection ends with `session`.
    pub(crate) fn is_of(&self, session: &SessionKey) -> bool {
        self.session.as_ref() == Some(&session.session) && self.principal.as_ref() == Some(&session.principal)
    }
}

/// The same for all clients that are told apart by nothing but their settings. Those are whatever a client says: kept apart
/// by them, one caller could have any number of connections and lists.
pub(crate) fn alike(abilities: &Declared) -> Declared {
    Declared { ui: abilities.ui.as_ref().map(|_| Raw::empty_object()), ..abilities.clone() }
}
