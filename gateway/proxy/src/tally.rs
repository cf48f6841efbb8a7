//! How much each principal has going on: calls, sessions and parked calls, each with a ceiling.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use moongate_core::{Principal, hash::Map};

/// When to come back after a ceiling was reached: when something ends, nobody knows.
pub const AGAIN: Duration = Duration::from_secs(1);

/// Counts one sort of thing per principal.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Map<Principal, Arc<AtomicUsize>>>);

/// One counted thing; it stops counting when dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Tally {
    /// Counts one more for `principal`, unless that would be more than `limit`.
    pub fn count(&self, principal: &Principal, limit: usize) -> Option<Counted> {
        let mut counts = self.lock();
        if let Some(count) = counts.get(principal) {
            // Only here it grows, and under the lock: what is below the limit stays so.
            if count.load(Ordering::Relaxed) >= limit {
                return None;
            }
            count.fetch_add(1, Ordering::Relaxed);
            return Some(Counted(Arc::clone(count)));
        }
        if limit == 0 {
            return None;
        }
        // Nobody is told when a count falls to nothing, so those are let go of before more room is made. What is left gets
        // as much room again, or each newcomer would look through all of them.
        if counts.len() == counts.capacity() {
            counts.retain(|_, count| count.load(Ordering::Relaxed) > 0);
            let left = counts.len();
            counts.reserve(left);
        }
        let count = Arc::new(AtomicUsize::new(1));
        counts.insert(principal.clone(), Arc::clone(&count));
        Some(Counted(count))
    }

    /// How many there are, of all principals.
    pub fn total(&self) -> usize {
        self.lock().values().map(|count| count.load(Ordering::Relaxed)).sum()
    }

    fn lock(&self) -> MutexGuard<'_, Map<Principal, Arc<AtomicUsize>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_per_principal_and_frees_on_drop() {
        let tally = Tally::default();
        let (a, b) = (Principal::issued("a"), Principal::issued("b"));
        let first = tally.count(&a, 1).unwrap();
        assert!(tally.count(&a, 1).is_none());
        let _other = tally.count(&b, 1).unwrap();
        assert_eq!(tally.total(), 2);
        drop(first);
        assert!(tally.count(&a, 1).is_some());
        assert!(tally.count(&Principal::local(), 0).is_none());
        assert_eq!(tally.total(), 1);
    }

    #[test]
    fn principals_with_nothing_are_forgotten() {
        let tally = Tally::default();
        let kept = tally.count(&Principal::issued("kept"), 1);
        for number in 0..10_000 {
            drop(tally.count(&Principal::issued(&number.to_string()), 1));
        }
        assert!(tally.lock().capacity() < 100, "room for {}", tally.lock().capacity());
        assert!(tally.count(&Principal::issued("kept"), 1).is_none());
        drop(kept);
    }
}
