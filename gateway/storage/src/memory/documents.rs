//! Volatile documents: compare-and-swap, idle time, and optionally only the last used ones.
//!
//! Grouped by session, so that the end of a session does not search all of them. Revisions and the order of use come
//! from one counter, the turn; time alone does not order what happens in the same instant.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use moongate_core::{SessionKey, StateKey, hash::Map};
use tokio::time::Instant;

use super::shards::{Shards, lock};
use crate::{
    Document,
    state::{DocumentKey, Versioned},
};

#[derive(Default)]
pub(super) struct DocumentMap {
    shards: Shards<Map<SessionKey, Owners>>,
    turn: AtomicU64,
    /// How many owners there are in all shards.
    owners: AtomicUsize,
    /// The owners to go next, as of the last look at all of them; see [`DocumentMap::evict`].
    next_out: Mutex<VecDeque<(u64, StateKey)>>,
}

/// The owners of one session. Nearly always that is one, which takes neither a table nor another hash.
#[derive(Default)]
struct Owners {
    one: Option<(StateKey, Owner)>,
    others: Map<StateKey, Owner>,
}

/// The documents of one session, assistant and thread.
struct Owner {
    /// Of its last use.
    turn: u64,
    /// One per backend that keeps state: too few for a map.
    documents: Vec<Kept>,
}

struct Kept {
    kind: &'static str,
    used: Instant,
    current: Versioned,
}

/// The moment of a use, and how long a document may be idle (`None`: for ever).
#[derive(Clone, Copy, Debug)]
pub(super) struct Moment {
    pub(super) now: Instant,
    pub(super) ttl: Option<Duration>,
}

impl Moment {
    fn expired(self, kept: &Kept) -> bool {
        self.ttl.is_some_and(|ttl| self.now.saturating_duration_since(kept.used) > ttl)
    }
}

impl Owners {
    fn get_mut(&mut self, key: &StateKey) -> Option<&mut Owner> {
        match &mut self.one {
            Some((known, owner)) if known == key => Some(owner),
            _ => self.others.get_mut(key),
        }
    }

    /// Adds an owner that is not there.
    fn insert(&mut self, key: StateKey, owner: Owner) {
        if self.one.is_none() {
            self.one = Some((key, owner));
        } else {
            self.others.insert(key, owner);
        }
    }

    fn remove(&mut self, key: &StateKey) {
        if self.one.take_if(|(known, _)| known == key).is_none() {
            self.others.remove(key);
        }
    }

    fn retain(&mut self, mut keep: impl FnMut(&StateKey, &mut Owner) -> bool) {
        self.one.take_if(|(key, owner)| !keep(key, owner));
        self.others.retain(keep);
    }

    fn iter(&self) -> impl Iterator<Item = (&StateKey, &Owner)> {
        self.one.iter().map(|(key, owner)| (key, owner)).chain(&self.others)
    }

    fn len(&self) -> usize {
        usize::from(self.one.is_some()) + self.others.len()
    }
}

impl DocumentMap {
    /// Reads a document and marks it as used.
    pub(super) fn get(&self, key: &DocumentKey, moment: Moment) -> Option<Versioned> {
        let mut shard = self.shards.of(key.owner.session());
        let owner = shard.get_mut(key.owner.session())?.get_mut(&key.owner)?;
        let kept = owner.documents.iter_mut().find(|kept| kept.kind == key.kind && !moment.expired(kept))?;
        kept.used = moment.now;
        owner.turn = self.next_turn();
        Some(kept.current.clone())
    }

    /// Writes a document if its revision is `expected`, 0 meaning that there is none. Who knows a revision has just read
    /// the document, which was its use; the moment is asked for only when there was nothing to read.
    pub(super) fn swap(
        &self,
        key: &DocumentKey,
        expected: u64,
        value: Arc<dyn Document>,
        moment: impl FnOnce() -> Moment,
    ) -> bool {
        let session = key.owner.session();
        let mut shard = self.shards.of(session);
        let known = shard.get_mut(session).and_then(|owners| owners.get_mut(&key.owner));
        let turn = self.next_turn();
        let next = Versioned { revision: turn, value };
        let Some(owner) = known else {
            if expected == 0 {
                let kept = Kept { kind: key.kind, used: moment().now, current: next };
                let owner = Owner { turn, documents: vec![kept] };
                shard.entry(session.clone()).or_default().insert(key.owner.clone(), owner);
                self.owners.fetch_add(1, Ordering::Relaxed);
            }
            return expected == 0;
        };
        let place = owner.documents.iter_mut().find(|kept| kept.kind == key.kind);
        match place {
            Some(kept) if kept.current.revision == expected => kept.current = next,
            Some(_) | None if expected != 0 => return false,
            Some(kept) => {
                let moment = moment();
                if !moment.expired(kept) {
                    return false;
                }
                (kept.used, kept.current) = (moment.now, next);
            }
            None => owner.documents.push(Kept { kind: key.kind, used: moment().now, current: next }),
        }
        owner.turn = turn;
        true
    }

    /// Removes all documents of a session.
    pub(super) fn forget(&self, session: &SessionKey) {
        let owners = self.shards.of(session).remove(session).unwrap_or_default();
        self.owners.fetch_sub(owners.len(), Ordering::Relaxed);
    }

    /// Removes what was not used for longer than its time.
    pub(super) fn sweep(&self, moment: Moment) {
        for mut shard in self.shards.each() {
            shard.retain(|_, owners| {
                let before = owners.len();
                owners.retain(|key, owner| {
                    owner.documents.retain(|kept| !moment.expired(kept));
                    let keep = !owner.documents.is_empty();
                    if !keep {
                        tracing::debug!(key = %key, "state expired");
                    }
                    keep
                });
                self.owners.fetch_sub(before - owners.len(), Ordering::Relaxed);
                owners.len() > 0
            });
            if shard.capacity() > 32 && shard.len() < shard.capacity() / 4 {
                let twice = shard.len() * 2;
                shard.shrink_to(twice);
            }
        }
    }

    /// Removes the least recently used owners until at most `cap` are left.
    ///
    /// Keeping all owners in order of use would put one lock around every use. Instead the oldest few are listed
    /// together; as whoever is used later gets a later turn, the list stays right for as long as it lasts, but for
    /// those in it that were used meanwhile, and their turn tells.
    pub(super) fn evict(&self, cap: usize) {
        if self.owners.load(Ordering::Relaxed) <= cap {
            return;
        }
        let mut next_out = lock(&self.next_out);
        loop {
            let excess = self.owners.load(Ordering::Relaxed).saturating_sub(cap);
            if excess == 0 {
                return;
            }
            if next_out.is_empty() {
                *next_out = self.oldest(excess.max(cap / 16));
            }
            let Some((turn, key)) = next_out.pop_front() else { return };
            self.remove(&key, turn);
        }
    }

    fn oldest(&self, count: usize) -> VecDeque<(u64, StateKey)> {
        let mut all = Vec::with_capacity(self.owners.load(Ordering::Relaxed));
        for shard in self.shards.each() {
            all.extend(shard.values().flat_map(Owners::iter).map(|(key, owner)| (owner.turn, key.clone())));
        }
        all.sort_unstable_by_key(|(turn, _)| *turn);
        all.truncate(count);
        all.shrink_to_fit();
        all.into()
    }

    /// Removes an owner unless it was used after `turn`.
    fn remove(&self, key: &StateKey, turn: u64) {
        let mut shard = self.shards.of(key.session());
        let Some(owners) = shard.get_mut(key.session()) else { return };
        if owners.get_mut(key).is_none_or(|owner| owner.turn != turn) {
            return;
        }
        owners.remove(key);
        if owners.len() == 0 {
            shard.remove(key.session());
        }
        self.owners.fetch_sub(1, Ordering::Relaxed);
        tracing::debug!(key = %key, "state evicted: least recently used");
    }

    fn next_turn(&self) -> u64 {
        self.turn.fetch_add(1, Ordering::Relaxed) + 1
    }
}

#[cfg(test)]
impl DocumentMap {
    /// How many owners are counted, and how many there are.
    pub(super) fn owners(&self) -> (usize, usize) {
        let there = self.shards.each().map(|shard| shard.values().map(Owners::len).sum::<usize>()).sum();
        (self.owners.load(Ordering::Relaxed), there)
    }
}

#[cfg(test)]
mod tests {
    use moongate_core::{Context, Principal};

    use super::*;

    #[test]
    fn the_owners_of_a_session_come_and_go_one_by_one() {
        let key = |thread: &str| Context::for_test(Principal::local(), "s", None, Some(thread)).state_key();
        let mut owners = Owners::default();
        for (turn, thread) in (0..).zip(["a", "b", "c"]) {
            owners.insert(key(thread), Owner { turn, documents: Vec::new() });
        }
        for (gone, left) in [("b", 2), ("a", 1), ("a", 1)] {
            owners.remove(&key(gone));
            assert!(owners.get_mut(&key(gone)).is_none());
            assert_eq!((owners.len(), owners.iter().count()), (left, left));
        }
        owners.insert(key("d"), Owner { turn: 3, documents: Vec::new() });
        assert_eq!(["c", "d"].map(|thread| owners.get_mut(&key(thread)).unwrap().turn), [2, 3]);
        owners.retain(|_, owner| owner.turn == 2);
        assert_eq!(owners.iter().map(|(_, owner)| owner.turn).collect::<Vec<_>>(), [2]);
        owners.retain(|_, _| false);
        assert_eq!(owners.len(), 0);
    }
}
