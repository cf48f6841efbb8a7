//! What searches need, in memory: one index for each session that searches, made of its rows and never written.
//!
//! Whether an index still fits its rows is asked of the store before each search, so that it does not matter which process
//! changed them. Callers of one session share its index: one of them makes it or brings it up to date, the others wait.
//! Sessions do not wait for each other. An index goes when nobody has searched for a while, when the session ends, or
//! when all of them together take too much, those first that were not used for longest.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use moongate_core::{SessionKey, StoreScope, hash, task::Group};
use tokio::{
    sync::{OwnedRwLockReadGuard, RwLock},
    time::{Instant, sleep},
};

use crate::{error::Error, shelf::Shelf};

mod session;

pub(crate) use session::{Document, SessionIndex, run_sized};

/// An index that nobody has asked for so long is dropped.
pub(crate) const IDLE: Duration = Duration::from_mins(10);
/// What all indexes may take together: a thousand sessions with a few pages each, or one with a shelf of books.
const BUDGET: usize = 64 << 20;

/// One session's index takes at most this part of the budget, and what its last text brings; texts that come after that are found
/// literally only.
const SESSION_PART: usize = 2;

/// The indexes of all sessions.
pub(crate) struct Indexes {
    places: Mutex<Places>,
    budget: usize,
    tasks: Group,
}

#[derive(Default)]
struct Places {
    by_scope: hash::Map<StoreScope, Place>,
    /// Whether somebody looks for idle ones.
    watched: bool,
}

/// Where the index of one session is.
struct Place {
    index: Arc<RwLock<SessionIndex>>,
    used: Instant,
    memory: usize,
}

impl Indexes {
    pub(crate) fn new() -> Arc<Self> {
        Self::with_budget(BUDGET)
    }

    pub(crate) fn with_budget(budget: usize) -> Arc<Self> {
        Arc::new(Self { places: Mutex::default(), budget, tasks: Group::new() })
    }

    /// The index of `scope`, whose rows `texts` has, as they are now.
    ///
    /// # Cancel safety
    /// What was done of an index stays; the next caller goes on.
    pub(crate) async fn current(
        self: &Arc<Self>,
        scope: &StoreScope,
        texts: &Shelf<'_>,
    ) -> Result<OwnedRwLockReadGuard<SessionIndex>, Error> {
        let place = self.place(scope);
        let now = texts.summary().await?;
        let index = Arc::clone(&place).read_owned().await;
        if index.is_of(now) {
            return Ok(index);
        }
        drop(index);
        let mut index = place.write_owned().await;
        // Asked again: whoever was here before may have seen newer rows.
        let now = texts.summary().await?;
        if !index.is_of(now) {
            index = session::catch_up(index, texts, now, self.budget / SESSION_PART).await?;
        }
        self.weigh(scope, index.memory());
        Ok(index.downgrade())
    }

    /// Drops the index of a session that is over; if its rows are asked for again, it is made again.
    pub(crate) fn forget(&self, session: &SessionKey) {
        self.lock().by_scope.retain(|scope, _| {
            *scope.principal() != session.principal || *scope.session() != *session.session
        });
    }

    fn place(self: &Arc<Self>, scope: &StoreScope) -> Arc<RwLock<SessionIndex>> {
        let mut places = self.lock();
        if !std::mem::replace(&mut places.watched, true) {
            self.watch();
        }
        let place = places.by_scope.entry(scope.clone()).or_insert_with(|| Place {
            index: Arc::default(),
            used: Instant::now(),
            memory: SessionIndex::default().memory(),
        });
        place.used = Instant::now();
        Arc::clone(&place.index)
    }

    /// Notes what the index of `scope` takes and makes room for it. It stays itself, whatever it takes, until another comes.
    fn weigh(&self, scope: &StoreScope, memory: usize) {
        let mut places = self.lock();
        // It may have been dropped meanwhile; then it goes with the search that it is for.
        let Some(place) = places.by_scope.get_mut(scope) else { return };
        place.memory = memory;
        let mut total: usize = places.by_scope.values().map(|place| place.memory).sum();
        while total > self.budget {
            let others = places.by_scope.iter().filter(|(other, _)| *other != scope);
            let Some((oldest, place)) = others.min_by_key(|(_, place)| place.used) else { return };
            total -= place.memory;
            let oldest = oldest.clone();
            places.by_scope.remove(&oldest);
        }
    }

    /// Looks for idle indexes for as long as there are any.
    fn watch(self: &Arc<Self>) {
        let indexes = Arc::downgrade(self);
        self.tasks.spawn(async move {
            loop {
                sleep(IDLE / 2).await;
                let Some(indexes) = indexes.upgrade() else { return };
                let mut places = indexes.lock();
                places.by_scope.retain(|_, place| place.used.elapsed() < IDLE);
                places.watched = !places.by_scope.is_empty();
                if !places.watched {
                    return;
                }
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Places> {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
impl Indexes {
    /// How many there are, and what they take.
    pub(crate) fn load(&self) -> (usize, usize) {
        let places = self.lock();
        (places.by_scope.len(), places.by_scope.values().map(|place| place.memory).sum())
    }

    pub(crate) fn has(&self, scope: &StoreScope) -> bool {
        self.lock().by_scope.contains_key(scope)
    }
}
