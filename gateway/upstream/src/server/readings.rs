//! Resources that were read and are still good: as long as the server said they would be or, where it said nothing, as
//! long as a route says.
//!
//! What a server calls public is kept for everybody; everything else for those who share a connection and can do the same.
//! Whether a caller may read at all is decided before. What may be shared is fetched once, however many want it at a time:
//! the others wait for the first, and when that fails or goes away, the next of them fetches. What turned out to be for one
//! caller only is fetched by each, side by side.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use moongate_core::{Call, Context, Operation, Raw, Reply, call::Freshness, hash::Map};
use moongate_telemetry::Upstream;
use moongate_wire::Era;
use tokio::time::Instant;

use super::{
    Inner,
    key::{Key, alike},
    seating::Seat,
};
use crate::client::Connection;

/// How much is kept, addresses included; beyond that the oldest goes.
const MAX_BYTES: usize = 16 << 20;
const MAX_ENTRIES: usize = 4096;
/// A larger result, or one with a longer address, is not kept: it would push out everything else.
const MAX_ENTRY: usize = 2 << 20;
/// Nothing is kept for longer, whatever a server says.
const LONGEST: Duration = Duration::from_hours(24);
/// Places that are known to have nothing to share; when there are more, all are forgotten.
const MAX_ALONE: usize = 1024;
/// How long others wait for the first, who may be waiting for a person.
const PATIENCE: Duration = Duration::from_secs(10);

/// What one server let us keep.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    shelf: Mutex<Shelf>,
    turns: Mutex<Map<Place, Arc<Turn>>>,
}

/// What somebody wants to read.
#[derive(Clone, Debug)]
pub(crate) struct Wanted {
    /// Who shares what is private.
    pub(crate) owner: Key,
    pub(crate) uri: Arc<str>,
    /// How long it is kept where the server does not say.
    pub(crate) keep: Option<Duration>,
}

/// Whose reading, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// `None`: everybody's.
    owner: Option<Key>,
    uri: Arc<str>,
}

/// Those who want the same at a time.
#[derive(Debug, Default)]
struct Turn {
    fetching: tokio::sync::Mutex<()>,
    /// The answer was for one caller only: nobody waits any more.
    apart: AtomicBool,
}

#[derive(Debug, Default)]
struct Shelf {
    entries: Map<Place, Entry>,
    bytes: usize,
    /// Where there was nothing to share, so that nobody waits for it again.
    alone: HashSet<Place>,
    /// Grows when something was updated: what was asked for before must not be kept after.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    reply: Reply,
    since: Instant,
    until: Instant,
    /// Whether the server said how long; else a route did, and may have been changed since.
    said: bool,
}

impl Readings {
    /// What is read as `wanted`: kept, or fetched by `fetch` and kept if that is allowed.
    ///
    /// # Errors
    /// Those of `fetch`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the fetch, and one of those who wait for it fetches then.
    pub(crate) async fn read<E>(
        &self,
        wanted: &Wanted,
        metrics: &Upstream,
        fetch: impl Future<Output = Result<Reply, E>>,
    ) -> Result<Reply, E> {
        let places =
            [None, Some(wanted.owner.clone())].map(|owner| Place { owner, uri: Arc::clone(&wanted.uri) });
        let hit = |reply: Reply| {
            metrics.cache_hits().increment();
            Ok(reply)
        };
        if let Some(reply) = self.find(&places, wanted.keep) {
            return hit(reply);
        }
        let [_, own] = &places;
        let waiting = Waiting::new(self, own);
        let fetching = waiting.turn().await;
        if let Some(reply) = self.find(&places, wanted.keep) {
            return hit(reply);
        }
        metrics.cache_misses().increment();
        let generation = self.lock().generation;
        let mut reply = fetch.await?;
        let said = reply.freshness.is_some();
        reply.freshness = reply.freshness.or(wanted.keep.map(|ttl| Freshness { ttl, public: false }));
        if !self.keep(&places, &reply, said, generation) {
            waiting.part();
        }
        drop(fetching);
        Ok(reply)
    }

    /// A resource was updated, and with it what lies inside it.
    pub(crate) fn updated(&self, uri: &str) {
        self.remove(|place| place.uri.strip_prefix(uri).is_some());
    }

    /// Nothing is good any more.
    pub(crate) fn clear(&self) {
        self.remove(|_| true);
    }

    /// What is kept at the first of these places that has it, less its age. A route keeps it for as long as it says now.
    fn find(&self, places: &[Place], keep: Option<Duration>) -> Option<Reply> {
        let (kept, now) = (self.lock(), Instant::now());
        places.iter().filter_map(|place| kept.entries.get(place)).find_map(|entry| {
            let until = match (entry.said, keep) {
                (true, _) => entry.until,
                (false, Some(keep)) => entry.until.min(entry.since + keep.min(LONGEST)),
                (false, None) => return None,
            };
            let left = until.checked_duration_since(now).filter(|left| !left.is_zero())?;
            let public = entry.reply.freshness.is_some_and(|freshness| freshness.public);
            let freshness = Some(Freshness { ttl: left, public });
            Some(Reply { freshness, ..entry.reply.clone() })
        })
    }

    /// Keeps a reply. False when it is for nobody but whoever fetched it.
    fn keep(&self, places: &[Place; 2], reply: &Reply, said: bool, generation: u64) -> bool {
        let [everybodys, own] = places;
        let mut kept = self.lock();
        let freshness = reply.freshness.filter(|freshness| !freshness.ttl.is_zero());
        let small = reply.result.len() + own.uri.len() <= MAX_ENTRY;
        let Some(Freshness { ttl, public }) = freshness.filter(|_| small) else {
            // Counted by their number alone, so they have to be short.
            if own.uri.len() <= MAX_ENTRY / MAX_ALONE {
                if kept.alone.len() >= MAX_ALONE {
                    kept.alone.clear();
                }
                kept.alone.insert(own.clone());
            }
            return false;
        };
        kept.alone.remove(own);
        // Fetched again by the next who wants it: it was updated meanwhile.
        if kept.generation != generation {
            return true;
        }
        let place = if public { everybodys } else { own };
        let since = Instant::now();
        // The result shares its memory with the answer it came in.
        let reply = Reply { result: reply.result.detached(), ..reply.clone() };
        kept.insert(place.clone(), Entry { reply, since, until: since + ttl.min(LONGEST), said });
        true
    }

    fn remove(&self, goes: impl Fn(&Place) -> bool) {
        let mut kept = self.lock();
        kept.generation += 1;
        let gone: Vec<Place> = kept.entries.keys().filter(|place| goes(place)).cloned().collect();
        for place in gone {
            kept.remove(&place);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        lock(&self.shelf)
    }
}

/// One of those who want the same; the last of them takes their turn off the list.
struct Waiting<'a> {
    readings: &'a Readings,
    place: &'a Place,
    /// None where it is known that there is nothing to wait for.
    turn: Option<Arc<Turn>>,
}

impl<'a> Waiting<'a> {
    fn new(readings: &'a Readings, place: &'a Place) -> Self {
        let alone = readings.lock().alone.contains(place);
        let turn = || Arc::clone(lock(&readings.turns).entry(place.clone()).or_default());
        Self { readings, place, turn: (!alone).then(turn) }
    }

    /// The right to fetch for all who wait; nothing when each fetches for itself.
    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        let turn = self.turn.as_ref()?;
        let fetching = tokio::time::timeout(PATIENCE, turn.fetching.lock()).await.ok()?;
        (!turn.apart.load(Ordering::Acquire)).then_some(fetching)
    }

    /// Nobody is to wait for what is not shared.
    fn part(&self) {
        if let Some(turn) = &self.turn {
            turn.apart.store(true, Ordering::Release);
        }
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        if self.turn.is_none() {
            return;
        }
        // Let go of under the lock: who comes second then sees that nobody is left.
        let mut turns = lock(&self.readings.turns);
        self.turn = None;
        if turns.get(self.place).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(self.place);
        }
    }
}

impl Shelf {
    fn insert(&mut self, place: Place, entry: Entry) {
        self.remove(&place);
        self.bytes += weight(&place, &entry);
        self.entries.insert(place, entry);
        while self.bytes > MAX_BYTES || self.entries.len() > MAX_ENTRIES {
            let oldest =
                self.entries.iter().min_by_key(|(_, entry)| entry.since).map(|(place, _)| place.clone());
            let Some(oldest) = oldest else { return };
            self.remove(&oldest);
        }
    }

    fn remove(&mut self, place: &Place) {
        if let Some(entry) = self.entries.remove(place) {
            self.bytes -= weight(place, &entry);
        }
    }
}

fn weight(place: &Place, entry: &Entry) -> usize {
    place.uri.len() + entry.reply.result.len()
}

impl Inner {
    /// What `call` wants to read, if that may be kept: the server says so itself, or a route does, and the request says
    /// nothing else that the answer may depend on.
    pub(super) fn wanted(
        &self,
        call: &Call,
        seat: &Seat,
        connection: &Connection,
        cx: &Context,
    ) -> Option<Wanted> {
        let Operation::ReadResource { uri } = &call.operation else { return None };
        let kept = call.keep.is_some() || connection.version().era() == Era::Modern;
        let says_more = call.meta.as_ref().is_some_and(says_more) || !self.other_extensions(cx).is_empty();
        if !kept || says_more {
            return None;
        }
        // A modern server is told with each request what its client can do, and may answer by that. Which process was
        // leased makes no difference: what one was asked about is not kept.
        let owner = Key { abilities: alike(&seat.abilities), ..seat.lists.key.clone() };
        Some(Wanted { owner, uri: Arc::clone(uri), keep: call.keep })
    }
}

/// Whether a client's `_meta` says more than how its request is to be handled and traced.
fn says_more(meta: &Raw) -> bool {
    let about_handling = |key: &str| {
        key.starts_with("io.modelcontextprotocol/")
            || matches!(key, "progressToken" | "traceparent" | "tracestate" | "baggage")
    };
    meta.members().iter().any(|(key, _)| !about_handling(key))
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
