//! Sessions, event logs, rate counts, notes between processes and volatile documents.
//!
//! The shape is that of one round trip per step: [`State::enter`] validates the session, touches it and counts the
//! rates together, because one method per concern would cost several network round trips per call once this is Redis.

use std::{collections::BTreeMap, num::NonZeroU32, sync::Arc, time::Duration};

use bytes::Bytes;
use moongate_core::{Announcement, BoxFuture, Level, Raw, Soon, StateKey, Version};
use serde::{Deserialize, Serialize};

use crate::{Document, Error};

/// What may be lost on a restart.
pub trait State: Send + Sync {
    /// Counts `rates` in their order up to the first that is used up, and, when all of them allow it and a session is
    /// named, finds and touches that session.
    fn enter<'a>(&'a self, session: Option<&'a str>, rates: &'a [Rate]) -> Soon<'a, Result<Entry, Error>>;

    /// Stores a session under its id, new or changed. [`Error::NoSession`] when the session has just ended: a change
    /// that comes too late does not bring it back.
    fn put<'a>(&'a self, id: &'a str, record: SessionRecord) -> BoxFuture<'a, Result<(), Error>>;

    /// Ends a session: its event log is gone, and [`Note::SessionEnded`] is sent. False when it was not there.
    fn end<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>>;

    /// Marks sessions as in use (an open stream, a running call), so that they do not expire.
    fn touch<'a>(&'a self, ids: &'a [Arc<str>]) -> BoxFuture<'a, Result<(), Error>>;

    /// How many sessions there are.
    fn sessions(&self) -> BoxFuture<'_, Result<usize, Error>>;

    /// Claims sessions and documents whose time is up; each expired session is announced by exactly one
    /// [`Note::SessionEnded`].
    fn sweep(&self) -> BoxFuture<'_, Result<(), Error>>;

    /// Adds one frame to the log of a session's stream. Ids grow, and are unique in the session. [`Error::NoSession`]
    /// when there is no such session.
    fn append<'a>(&'a self, stream: &'a StreamId, frame: Bytes) -> BoxFuture<'a, Result<EventId, Error>>;

    /// The frames of the event's own stream that came after it, oldest first; `None` when the session's log does not
    /// hold that event any more.
    fn replay<'a>(&'a self, session: &'a str, after: EventId)
    -> BoxFuture<'a, Result<Option<Replay>, Error>>;

    /// Sends a note to the processes that serve `to`, this one included.
    fn send(&self, to: To, note: Note) -> BoxFuture<'_, Result<(), Error>>;

    /// The notes for this process. Taken once, at assembly. Whoever takes them must keep reading, and must not itself
    /// wait for [`end`](Self::end), [`sweep`](Self::sweep) or [`send`](Self::send), which wait for room in the inbox.
    fn inbox(&self) -> Option<tokio::sync::mpsc::Receiver<(To, Note)>>;

    /// Reads a document and marks it as used.
    fn document<'a>(&'a self, key: &'a DocumentKey) -> Soon<'a, Result<Option<Versioned>, Error>>;

    /// Writes a document if its revision still is `expected` (0: there is none). False when somebody was faster. Having
    /// been read is what counted as its use: a write does not begin its idle time anew.
    fn swap<'a>(
        &'a self,
        key: &'a DocumentKey,
        expected: u64,
        value: Arc<dyn Document>,
    ) -> Soon<'a, Result<bool, Error>>;

    /// Removes the documents of an ended session.
    fn forget<'a>(&'a self, session: &'a moongate_core::SessionKey) -> BoxFuture<'a, Result<(), Error>>;
}

/// The address of a document: whose, and which kind of thing.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DocumentKey {
    /// Whose.
    pub owner: StateKey,
    /// The backend that keeps it.
    pub kind: &'static str,
}

/// A document and the revision to swap against.
#[derive(Clone, Debug)]
pub struct Versioned {
    /// Grows with every swap, also over the document's removal, so that an old revision never fits a new document.
    /// Never 0.
    pub revision: u64,
    /// The value itself: in memory nothing is encoded.
    pub value: Arc<dyn Document>,
}

/// One rate to count a call against.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate {
    /// Who and what, hashed: address, principal or tool of a principal.
    pub key: u64,
    /// How much is allowed.
    pub quota: Quota,
    /// How much this call counts.
    pub cost: NonZeroU32,
}

/// So many per so long.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Quota {
    /// How many.
    pub count: NonZeroU32,
    /// Per how long.
    pub per: Duration,
}

/// What [`State::enter`] found.
#[derive(Clone, Debug)]
pub enum Entry {
    /// Go on; with the session's record when one was named.
    Welcome(Option<Arc<SessionRecord>>),
    /// A rate is used up.
    Limited {
        /// When to try again.
        retry_after: Duration,
    },
    /// The named session is not there, or not any more.
    NoSession,
}

/// What is known about a legacy session: plain, versioned data.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SessionRecord {
    /// Layout of this record.
    pub layout: u32,
    /// Whose session: the principal's text.
    pub principal: String,
    /// The path it was initialised on.
    pub path: String,
    /// The negotiated version.
    pub version: Version,
    /// The client's capabilities, as it wrote them.
    pub capabilities: Raw,
    /// The client's `clientInfo`.
    pub info: Option<Raw>,
    /// Set by `logging/setLevel`.
    pub log_level: Option<Level>,
    /// Resources it subscribed to, each with the session (of context) that it did so for.
    pub subscriptions: BTreeMap<String, String>,
}

impl SessionRecord {
    /// The layout this build writes.
    pub const LAYOUT: u32 = 2;
}

/// One stream of a session's event log.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StreamId {
    /// The session.
    pub session: Arc<str>,
    /// 0 is the GET stream; each POST that answers with SSE gets the next number.
    pub number: u64,
}

/// The stream an event belongs to, and the frames that came after the event.
pub type Replay = (StreamId, Vec<(EventId, Bytes)>);

/// The id of one event, unique in its session; written `<stream>-<sequence>` on the wire.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct EventId {
    /// The stream it belongs to.
    pub stream: u64,
    /// Its place in the session's log.
    pub sequence: u64,
}

impl std::fmt::Display for EventId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}-{}", self.stream, self.sequence)
    }
}

impl std::str::FromStr for EventId {
    type Err = ();
    fn from_str(text: &str) -> Result<Self, ()> {
        let (stream, sequence) = text.split_once('-').ok_or(())?;
        Ok(Self { stream: stream.parse().map_err(drop)?, sequence: sequence.parse().map_err(drop)? })
    }
}

/// Who a note is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum To {
    /// Whoever serves this session.
    Session(Arc<str>),
    /// Every process.
    All,
}

/// What processes tell each other.
#[derive(Clone, Debug, PartialEq)]
pub enum Note {
    /// A session ended or expired: free what is kept for it.
    SessionEnded {
        /// Its id.
        id: Arc<str>,
        /// What was known about it.
        record: Arc<SessionRecord>,
    },
    /// A backend's lists or resources changed.
    Changed(Announcement),
}
