//! How much each principal has going on: calls, sessions and parked calls, each with a ceiling.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use moongate_core::{Principal, hash::Map};

/// When to come back after a ceiling was reached: when something ends, nobody knows.
pub const AGAIN: Duration = Duration::from_secs(1);

/// Counts one sort of thing per principal.
#[derive(Debug, Default)]
pub struct Tally(Mutex<Map<Principal, usize>>);

/// One counted thing; it stops counting when dropped.
#[derive(Debug)]
pub struct Counted {
    tally: Arc<Tally>,
    principal: Principal,
}

impl Tally {
    /// Counts one more for `principal`, unless that would be more than `limit`.
    pub fn count(self: &Arc<Self>, principal: &Principal, limit: usize) -> Option<Counted> {
        let mut counts = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(principal) {
            if *count >= limit {
                return None;
            }
            *count += 1;
        } else if limit == 0 {
            return None;
        } else {
            counts.insert(principal.clone(), 1);
        }
        drop(counts);
        Some(Counted { tally: Arc::clone(self), principal: principal.clone() })
    }

    /// How many there are, of all principals.
    pub fn total(&self) -> usize {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().sum()
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let mut counts = self.tally.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = counts.get_mut(&self.principal) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_limit_holds_per_principal_and_frees_on_drop() {
        let tally = Arc::new(Tally::default());
        let (a, b) = (Principal::issued("a"), Principal::issued("b"));
        let first = tally.count(&a, 1).unwrap();
        assert!(tally.count(&a, 1).is_none());
        let _other = tally.count(&b, 1).unwrap();
        drop(first);
        assert!(tally.count(&a, 1).is_some());
        assert!(tally.count(&Principal::local(), 0).is_none());
        assert_eq!(tally.total(), 1, "principals with nothing are forgotten");
    }
}
