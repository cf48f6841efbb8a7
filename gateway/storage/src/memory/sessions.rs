//! Sessions and their event logs.
//!
//! In: ids and records. Out: records of sessions that are in use, and those that ended, each exactly once. Telling
//! others about an ended session is left to `memory`.

use std::{collections::hash_map::Entry, sync::Arc, time::Duration};

use bytes::Bytes;
use moongate_core::{Raw, hash::Map};
use tokio::time::Instant;

use super::{
    events::{Bounds, EventLog},
    shards::Shards,
};
use crate::{Error, EventId, SessionRecord, StreamId, state::Replay};

/// How long an ended session is remembered, so that a change that was on its way does not bring it back.
const ENDED_KEPT: Duration = Duration::from_mins(1);

#[derive(Default)]
pub(super) struct Sessions(Shards<Shard>);

/// A session that ended: its id and what was known about it.
pub(super) type Ended = (Arc<str>, Arc<SessionRecord>);

#[derive(Default)]
struct Shard {
    live: Map<Arc<str>, Session>,
    ended: Map<Arc<str>, Instant>,
}

struct Session {
    record: Arc<SessionRecord>,
    used: Instant,
    /// Most sessions never stream: no log before the first frame.
    log: Option<Box<EventLog>>,
}

impl Session {
    fn expired(&self, ttl: Duration, now: Instant) -> bool {
        now.saturating_duration_since(self.used) > ttl
    }
}

impl Sessions {
    /// Finds and touches a session that has not expired.
    pub(super) fn enter(&self, id: &str, ttl: Duration, now: Instant) -> Option<Arc<SessionRecord>> {
        let mut shard = self.0.of(id);
        let session = shard.live.get_mut(id).filter(|session| !session.expired(ttl, now))?;
        session.used = now;
        Some(Arc::clone(&session.record))
    }

    pub(super) fn put(&self, id: &str, record: SessionRecord, now: Instant) -> Result<(), Error> {
        let record = Arc::new(detached(record));
        let mut shard = self.0.of(id);
        if shard.ended.contains_key(id) {
            return Err(Error::NoSession);
        }
        match shard.live.entry(id.into()) {
            Entry::Occupied(mut known) => {
                let session = known.get_mut();
                session.record = record;
                session.used = now;
            }
            Entry::Vacant(new) => {
                new.insert(Session { record, used: now, log: None });
            }
        }
        Ok(())
    }

    pub(super) fn touch(&self, ids: &[Arc<str>], now: Instant) {
        for id in ids {
            if let Some(session) = self.0.of(&**id).live.get_mut(id) {
                session.used = now;
            }
        }
    }

    /// Takes a session out. Only one of many that try gets it.
    pub(super) fn end(&self, id: &str, now: Instant) -> Option<Ended> {
        self.take(id, now, |_| true)
    }

    /// Takes a session out if its time is up.
    pub(super) fn expire(&self, id: &str, ttl: Duration, now: Instant) -> Option<Ended> {
        self.take(id, now, |session| session.expired(ttl, now))
    }

    /// The sessions whose time is up, still there.
    pub(super) fn expired(&self, ttl: Duration, now: Instant) -> Vec<Arc<str>> {
        let mut expired = Vec::new();
        for shard in self.0.each() {
            let ids = shard.live.iter().filter(|(_, session)| session.expired(ttl, now)).map(|(id, _)| id);
            expired.extend(ids.cloned());
        }
        expired
    }

    /// Gives back memory that ended sessions left.
    pub(super) fn tidy(&self, now: Instant) {
        for mut shard in self.0.each() {
            shard.ended.retain(|_, ended| now.saturating_duration_since(*ended) <= ENDED_KEPT);
            shrink(&mut shard.ended);
            shrink(&mut shard.live);
        }
    }

    pub(super) fn len(&self) -> usize {
        self.0.each().map(|shard| shard.live.len()).sum()
    }

    pub(super) fn append(&self, stream: &StreamId, frame: Bytes, bounds: Bounds) -> Result<EventId, Error> {
        let mut shard = self.0.of(&*stream.session);
        let session = shard.live.get_mut(&stream.session).ok_or(Error::NoSession)?;
        Ok(session.log.get_or_insert_default().append(stream.number, frame, bounds))
    }

    pub(super) fn replay(&self, id: &str, after: EventId) -> Option<Replay> {
        let shard = self.0.of(id);
        let (session, state) = shard.live.get_key_value(id)?;
        let frames = state.log.as_ref()?.replay(after)?;
        Some((StreamId { session: Arc::clone(session), number: after.stream }, frames))
    }

    fn take(&self, id: &str, now: Instant, condition: impl Fn(&Session) -> bool) -> Option<Ended> {
        let mut shard = self.0.of(id);
        shard.live.get(id).filter(|session| condition(session))?;
        let (id, session) = shard.live.remove_entry(id)?;
        shard.ended.insert(Arc::clone(&id), now);
        Some((id, session.record))
    }
}

/// The record with its own copies of what the client wrote: a cut-out of the first request would keep all of that
/// request in memory for as long as the session lives.
fn detached(mut record: SessionRecord) -> SessionRecord {
    record.capabilities = record.capabilities.detached();
    record.info = record.info.as_ref().map(Raw::detached);
    record
}

/// Halves what is mostly empty; not to the very size, or the next session would grow it again.
fn shrink<V>(map: &mut Map<Arc<str>, V>) {
    if map.capacity() > 32 && map.len() < map.capacity() / 4 {
        map.shrink_to(map.len() * 2);
    }
}
