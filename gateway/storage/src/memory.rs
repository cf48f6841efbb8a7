//! The State of a single process: everything in memory, nothing encoded.
//!
//! Each concern has its own file and its own locks; none is held over an await. What happens here is announced through
//! one bounded inbox. A full inbox makes `end`, `sweep` and `send` wait for room *before* they change anything: no note
//! is lost, not even when their future is dropped while it waits.

mod documents;
mod events;
mod rates;
mod sessions;
mod shards;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError, RwLock},
    time::Duration,
};

use bytes::Bytes;
use moongate_core::{BoxFuture, SessionKey, Soon};
use tokio::{
    sync::mpsc::{self, Permit},
    time::Instant,
};

use self::{
    documents::{DocumentMap, Moment},
    events::Bounds,
    rates::Rates,
    sessions::{Ended, Sessions},
};
use crate::{
    Document, Entry, Error, EventId, Note, Rate, SessionRecord, State, StreamId, To,
    state::{DocumentKey, Replay, Versioned},
};

/// Notes waiting for the one reader of the inbox. When it is full, senders wait.
const INBOX: usize = 1024;

/// How long things are kept, and how many.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MemoryOptions {
    /// A session that is idle for longer is over.
    pub session_ttl: Duration,
    /// A document that is idle for longer is gone, if `eviction` says so.
    pub document_ttl: Duration,
    /// Of so many combinations of session, assistant and thread the documents are kept, if `eviction` says so. At
    /// least 1.
    pub document_cap: usize,
    /// What makes documents go by themselves.
    pub eviction: Eviction,
    /// So many frames of a session can be replayed.
    pub log_frames: usize,
    /// So many bytes of a session's frames can be replayed.
    pub log_bytes: usize,
}

/// What makes documents go by themselves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Eviction {
    /// Being idle for longer than `document_ttl`.
    Ttl,
    /// Being the least recently used of more than `document_cap`.
    Lru,
    /// Either.
    TtlAndLru,
}

impl Default for MemoryOptions {
    fn default() -> Self {
        Self {
            session_ttl: Duration::from_mins(30),
            document_ttl: Duration::from_hours(1),
            document_cap: 100,
            eviction: Eviction::Ttl,
            log_frames: 256,
            log_bytes: 1 << 20,
        }
    }
}

impl MemoryOptions {
    fn bounds(self) -> Bounds {
        Bounds { frames: self.log_frames, bytes: self.log_bytes }
    }

    fn ttl(self) -> Option<Duration> {
        matches!(self.eviction, Eviction::Ttl | Eviction::TtlAndLru).then_some(self.document_ttl)
    }

    fn cap(self) -> Option<usize> {
        matches!(self.eviction, Eviction::Lru | Eviction::TtlAndLru).then_some(self.document_cap.max(1))
    }
}

/// The State of a single process.
pub struct MemoryState {
    options: RwLock<MemoryOptions>,
    sessions: Sessions,
    documents: DocumentMap,
    rates: Rates,
    notes: mpsc::Sender<(To, Note)>,
    inbox: Mutex<Option<mpsc::Receiver<(To, Note)>>>,
}

impl MemoryState {
    /// An empty State.
    pub fn new(options: MemoryOptions) -> Self {
        let (notes, inbox) = mpsc::channel(INBOX);
        Self {
            options: RwLock::new(options),
            sessions: Sessions::default(),
            documents: DocumentMap::default(),
            rates: Rates::default(),
            notes,
            inbox: Mutex::new(Some(inbox)),
        }
    }

    /// Changes the options of what is kept already, too; what is then too much goes with the next sweep.
    pub fn set_options(&self, options: MemoryOptions) {
        *self.options.write().unwrap_or_else(PoisonError::into_inner) = options;
    }

    fn options(&self) -> MemoryOptions {
        *self.options.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn moment(&self) -> Moment {
        Moment { now: Instant::now(), ttl: self.options().ttl() }
    }

    /// Runs `take` once there is room for its note. Once nobody reads notes any more, there is nobody to tell.
    async fn end_with(&self, take: impl FnOnce() -> Option<Ended>) -> bool {
        let room = self.notes.reserve().await.ok();
        take().map(|ended| announce(room, ended)).is_some()
    }
}

fn announce(room: Option<Permit<'_, (To, Note)>>, (id, record): Ended) {
    if let Some(room) = room {
        room.send((To::Session(Arc::clone(&id)), Note::SessionEnded { id, record }));
    }
}

impl State for MemoryState {
    fn enter<'a>(&'a self, session: Option<&'a str>, rates: &'a [Rate]) -> Soon<'a, Result<Entry, Error>> {
        let now = Instant::now();
        if let Err(retry_after) = self.rates.count(rates, now) {
            return Soon::now(Ok(Entry::Limited { retry_after }));
        }
        let Some(id) = session else { return Soon::now(Ok(Entry::Welcome(None))) };
        let found = self.sessions.enter(id, self.options().session_ttl, now);
        Soon::now(Ok(found.map_or(Entry::NoSession, |record| Entry::Welcome(Some(record)))))
    }

    fn put<'a>(&'a self, id: &'a str, record: SessionRecord) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move { self.sessions.put(id, record, Instant::now()) })
    }

    fn end<'a>(&'a self, id: &'a str) -> BoxFuture<'a, Result<bool, Error>> {
        Box::pin(async move { Ok(self.end_with(|| self.sessions.end(id, Instant::now())).await) })
    }

    fn touch<'a>(&'a self, ids: &'a [Arc<str>]) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.sessions.touch(ids, Instant::now());
            Ok(())
        })
    }

    fn sessions(&self) -> BoxFuture<'_, Result<usize, Error>> {
        Box::pin(async move { Ok(self.sessions.len()) })
    }

    fn sweep(&self) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move {
            self.rates.sweep(Instant::now());
            self.documents.sweep(self.moment());
            if let Some(cap) = self.options().cap() {
                self.documents.evict(cap);
            }
            // Last, because it may wait for the inbox. Each is looked at again once there is room for its note: it may
            // have been used or ended meanwhile.
            let ttl = self.options().session_ttl;
            for id in self.sessions.expired(ttl, Instant::now()) {
                self.end_with(|| self.sessions.expire(&id, ttl, Instant::now())).await;
            }
            self.sessions.tidy(Instant::now());
            Ok(())
        })
    }

    fn append<'a>(&'a self, stream: &'a StreamId, frame: Bytes) -> BoxFuture<'a, Result<EventId, Error>> {
        Box::pin(async move { self.sessions.append(stream, frame, self.options().bounds()) })
    }

    fn replay<'a>(
        &'a self,
        session: &'a str,
        after: EventId,
    ) -> BoxFuture<'a, Result<Option<Replay>, Error>> {
        Box::pin(async move { Ok(self.sessions.replay(session, after)) })
    }

    fn send(&self, to: To, note: Note) -> BoxFuture<'_, Result<(), Error>> {
        Box::pin(async move { self.notes.send((to, note)).await.map_err(|_| Error::Closed) })
    }

    fn inbox(&self) -> Option<mpsc::Receiver<(To, Note)>> {
        shards::lock(&self.inbox).take()
    }

    fn document<'a>(&'a self, key: &'a DocumentKey) -> Soon<'a, Result<Option<Versioned>, Error>> {
        Soon::now(Ok(self.documents.get(key, self.moment())))
    }

    fn swap<'a>(
        &'a self,
        key: &'a DocumentKey,
        expected: u64,
        value: Arc<dyn Document>,
    ) -> Soon<'a, Result<bool, Error>> {
        let swapped = self.documents.swap(key, expected, value, || self.moment());
        if let Some(cap) = self.options().cap() {
            self.documents.evict(cap);
        }
        Soon::now(Ok(swapped))
    }

    fn forget<'a>(&'a self, session: &'a SessionKey) -> BoxFuture<'a, Result<(), Error>> {
        Box::pin(async move {
            self.documents.forget(session);
            Ok(())
        })
    }
}

impl fmt::Debug for MemoryState {
    /// Only numbers: records and documents are their callers' business.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut text = f.debug_struct("MemoryState");
        text.field("options", &self.options()).field("sessions", &self.sessions.len()).finish_non_exhaustive()
    }
}
