//! A value in sixteen parts, each with its own lock, so that sessions rarely wait for each other.

use std::{
    hash::Hash,
    sync::{Mutex, MutexGuard, PoisonError},
};

use moongate_core::hash::Hasher;

const COUNT: usize = 16;

/// Sixteen of `T`; a key always belongs to the same one.
pub(super) struct Shards<T> {
    /// Keyed by chance: callers choose some of the keys and must not be able to choose the shard.
    hasher: Hasher,
    shards: [Mutex<T>; COUNT],
}

impl<T: Default> Default for Shards<T> {
    fn default() -> Self {
        Self { hasher: Hasher::new(), shards: Default::default() }
    }
}

impl<T> Shards<T> {
    /// The part that `key` belongs to, locked.
    pub(super) fn of<K: Hash + ?Sized>(&self, key: &K) -> MutexGuard<'_, T> {
        let [first, ..] = self.hasher.hash_one(key).to_be_bytes();
        lock(self.shards.get(usize::from(first) % COUNT).expect("a remainder is less than its divisor"))
    }

    /// Every part, one locked after the other.
    pub(super) fn each(&self) -> impl Iterator<Item = MutexGuard<'_, T>> {
        self.shards.iter().map(lock)
    }
}

/// Locks, also after a panic elsewhere: no critical section here leaves a value half changed.
pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
