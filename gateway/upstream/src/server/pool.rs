//! The processes that calls without a session lease, one call each: how many there are, and whose turn it is.
//!
//! On a pipe a question does not say whose call it belongs to, and calls without a session have clients that nobody can
//! tell apart: a process that asks has one such call at a time. Each principal has places for so many processes; whoever
//! finds none free waits for its turn. Which slot is behind a place is left to `seating`.

use std::{
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use moongate_core::{Principal, hash::Map};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::key::Key;

/// The pools of a server, one for each principal.
#[derive(Debug, Default)]
pub(crate) struct Pools(Mutex<Map<Principal, Arc<Pool>>>);

/// The places of one principal.
#[derive(Debug)]
pub(crate) struct Pool {
    turns: Arc<Semaphore>,
    places: Mutex<Places>,
}

#[derive(Debug)]
struct Places {
    all: Vec<Place>,
    /// How many may be taken.
    size: usize,
    /// How many more are taken, since the size was made smaller.
    excess: usize,
}

/// A place for a process.
#[derive(Clone, Debug, Default)]
pub(crate) struct Place {
    taken: bool,
    /// Who had it last, and has left a process in it perhaps.
    pub(crate) last: Option<Key>,
}

/// A turn, for which there is a place.
#[derive(Debug)]
pub(crate) struct Turn {
    pool: Arc<Pool>,
    permit: OwnedSemaphorePermit,
}

/// A place that is taken; until it is dropped.
#[derive(Debug)]
pub(crate) struct Taken {
    pool: Arc<Pool>,
    /// Which.
    pub(crate) number: usize,
    permit: Option<OwnedSemaphorePermit>,
}

impl Pools {
    /// The pool of a principal, with `size` places if it is new.
    pub(crate) fn of(&self, principal: &Principal, size: NonZeroUsize) -> Arc<Pool> {
        let mut pools = self.lock();
        if let Some(pool) = pools.get(principal) {
            return Arc::clone(pool);
        }
        let pool = Arc::new(Pool::new(size));
        pools.insert(principal.clone(), Arc::clone(&pool));
        pool
    }

    /// There are so many places from now on. Who has one keeps it.
    pub(crate) fn resize(&self, size: NonZeroUsize) {
        self.lock().values().for_each(|pool| pool.resize(size));
    }

    /// Forgets the pools that nobody uses and that have left nothing behind, as far as `is_running` knows.
    pub(crate) fn forget_unused(&self, is_running: impl Fn(&Key) -> bool) {
        self.lock().retain(|_, pool| Arc::strong_count(pool) > 1 || pool.lasts().iter().any(&is_running));
    }

    fn lock(&self) -> MutexGuard<'_, Map<Principal, Arc<Pool>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Pool {
    fn new(size: NonZeroUsize) -> Self {
        let size = size.get();
        Self {
            turns: Arc::new(Semaphore::new(size)),
            places: Mutex::new(Places { all: Vec::new(), size, excess: 0 }),
        }
    }

    /// Waits for a turn; first come, first served.
    ///
    /// # Cancel safety
    /// Cancel safe; who comes again stands at the end.
    pub(crate) async fn turn(self: &Arc<Self>) -> Turn {
        let permit = Arc::clone(&self.turns).acquire_owned().await.expect("it is never closed");
        Turn { pool: Arc::clone(self), permit }
    }

    fn resize(&self, size: NonZeroUsize) {
        let mut places = self.lock();
        let (old, new) = (places.size, size.get());
        places.size = new;
        if new < old {
            let gone = self.turns.forget_permits(old - new);
            places.excess += old - new - gone;
        } else {
            let paid = places.excess.min(new - old);
            places.excess -= paid;
            self.turns.add_permits(new - old - paid);
        }
    }

    fn lasts(&self) -> Vec<Key> {
        self.lock().all.iter().filter_map(|place| place.last.clone()).collect()
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Turn {
    /// Takes the free place that `rank` likes best, the lowest, for `key`. Gives who had it before as well.
    pub(crate) fn take(self, key: &Key, rank: impl Fn(usize, &Place) -> u8) -> (Taken, Option<Key>) {
        let Self { pool, permit } = self;
        let mut places = pool.lock();
        let size = places.size.max(places.all.len());
        places.all.resize_with(size, Place::default);
        let free = places.all.iter().enumerate().filter(|(_, place)| !place.taken);
        // There are more places than turns, so that one is free.
        let number = free.min_by_key(|(number, place)| rank(*number, place)).map_or(0, |(number, _)| number);
        let before = places.all.get_mut(number).and_then(|place| {
            place.taken = true;
            place.last.replace(Key { place: number, ..key.clone() })
        });
        drop(places);
        (Taken { pool, number, permit: Some(permit) }, before)
    }
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut places = self.pool.lock();
        if let Some(place) = places.all.get_mut(self.number) {
            place.taken = false;
        }
        if places.excess > 0 {
            places.excess -= 1;
            if let Some(permit) = self.permit.take() {
                permit.forget();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;

    use super::*;

    fn size(number: usize) -> NonZeroUsize {
        NonZeroUsize::new(number).unwrap()
    }

    fn first(number: usize, _: &Place) -> u8 {
        u8::try_from(number).unwrap()
    }

    /// A turn, if there is one.
    fn now(pool: &Arc<Pool>) -> Option<Taken> {
        pool.turn().now_or_never().map(|turn| turn.take(&Key::default(), first).0)
    }

    #[tokio::test]
    async fn places_are_given_in_order_and_again_when_they_are_free() {
        let pools = Pools::default();
        let pool = pools.of(&Principal::local(), size(2));
        let (one, two) = (now(&pool).unwrap(), now(&pool).unwrap());
        assert_eq!((one.number, two.number), (0, 1));
        let (mut third, mut fourth) = (Box::pin(pool.turn()), Box::pin(pool.turn()));
        assert!(third.as_mut().now_or_never().is_none() && fourth.as_mut().now_or_never().is_none());
        drop(two);
        assert!(fourth.as_mut().now_or_never().is_none(), "first come, first served");
        let (taken, before) = third.await.take(&Key::default(), first);
        assert_eq!((taken.number, before), (1, Some(Key { place: 1, ..Key::default() })));
        drop(one);
        assert_eq!(fourth.await.take(&Key::default(), first).0.number, 0);
    }

    #[tokio::test]
    async fn there_are_as_many_as_last_said() {
        let pools = Pools::default();
        let pool = pools.of(&Principal::local(), size(3));
        let mut taken: Vec<_> = (0..3).filter_map(|_| now(&pool)).collect();
        pools.resize(size(1));
        for left in (0..3).rev() {
            assert!(now(&pool).is_none(), "{left} are taken");
            taken.pop();
        }
        let kept = now(&pool).unwrap();
        assert!(now(&pool).is_none());
        pools.resize(size(2));
        let more = now(&pool).unwrap();
        assert_eq!((kept.number, more.number), (0, 1));
        pools.resize(size(1));
        pools.resize(size(4));
        let all: Vec<_> = (0..4).filter_map(|_| now(&pool)).collect();
        assert_eq!(all.len(), 2, "four, with those that were kept");
    }

    #[tokio::test]
    async fn pools_are_forgotten_when_nobody_uses_them() {
        let pools = Pools::default();
        let taken = now(&pools.of(&Principal::local(), size(1)));
        pools.forget_unused(|_| false);
        assert_eq!(pools.lock().len(), 1);
        drop(taken);
        pools.forget_unused(|_| true);
        assert_eq!(pools.lock().len(), 1);
        pools.forget_unused(|_| false);
        assert_eq!(pools.lock().len(), 0);
    }
}
