//! Resources that were read and are still good, as long as the server said they would be.
//!
//! What a server calls private is kept for those who share a connection, what it calls public for everybody. Whether a
//! caller may read at all is decided before. A resource that is known to be kept is fetched once, however many want it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use moongate_core::{Reply, call::Freshness, hash::Map};
use moongate_telemetry::Upstream;
use tokio::time::Instant;

use super::key::Key;

/// How much is kept; beyond that the oldest goes.
const MAX_BYTES: usize = 16 << 20;
const MAX_ENTRIES: usize = 4096;
/// A larger result is not kept: it would push out everything else.
const MAX_ENTRY: usize = 2 << 20;

/// What one server let us keep.
#[derive(Debug, Default)]
pub(crate) struct Readings {
    shelf: Mutex<Shelf>,
    turns: Mutex<Map<Place, Arc<tokio::sync::Mutex<()>>>>,
}

/// Whose reading, and of what.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Place {
    /// `None`: everybody's.
    owner: Option<Key>,
    uri: Arc<str>,
}

#[derive(Debug, Default)]
struct Shelf {
    entries: Map<Place, Entry>,
    bytes: usize,
    /// Grows when something was updated: what was asked for before must not be kept after.
    generation: u64,
}

#[derive(Debug)]
struct Entry {
    reply: Reply,
    since: Instant,
    until: Instant,
}

impl Readings {
    /// What `owner` reads at `uri`: kept, or fetched by `fetch` and kept if the server allows it.
    ///
    /// # Errors
    /// Those of `fetch`.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the fetch, and whoever waits for it fetches then.
    pub(crate) async fn read<E>(
        &self,
        owner: &Key,
        uri: &Arc<str>,
        metrics: &Upstream,
        fetch: impl Future<Output = Result<Reply, E>>,
    ) -> Result<Reply, E> {
        let places = [None, Some(owner.clone())].map(|owner| Place { owner, uri: Arc::clone(uri) });
        let (kept, known) = self.find(&places);
        if let Some(reply) = kept {
            metrics.cache_hits().increment();
            return Ok(reply);
        }
        // Only for what was kept before: others may be read side by side, as they always could.
        let turn = known.then(|| self.turn(&places));
        let _turn = match &turn {
            Some(turn) => Some(turn.lock().await),
            None => None,
        };
        if let (Some(reply), _) = self.find(&places) {
            metrics.cache_hits().increment();
            return Ok(reply);
        }
        metrics.cache_misses().increment();
        let generation = self.lock().generation;
        let reply = fetch.await?;
        self.keep(places, &reply, generation);
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

    /// What is kept at the first of these places that has it, less its age; and whether any ever had.
    fn find(&self, places: &[Place]) -> (Option<Reply>, bool) {
        let kept = self.lock();
        let mut known = false;
        for entry in places.iter().filter_map(|place| kept.entries.get(place)) {
            known = true;
            if let Some(left) =
                entry.until.checked_duration_since(Instant::now()).filter(|left| !left.is_zero())
            {
                let public = entry.reply.freshness.is_some_and(|freshness| freshness.public);
                let freshness = Some(Freshness { ttl: left, public });
                return (Some(Reply { freshness, ..entry.reply.clone() }), true);
            }
        }
        (None, known)
    }

    fn keep(&self, places: [Place; 2], reply: &Reply, generation: u64) {
        let Some(Freshness { ttl, public }) = reply.freshness.filter(|freshness| !freshness.ttl.is_zero())
        else {
            return;
        };
        let [everybodys, own] = places;
        let place = if public { everybodys } else { own };
        let mut kept = self.lock();
        if kept.generation != generation || reply.result.len() > MAX_ENTRY {
            return;
        }
        let since = Instant::now();
        // The result shares its memory with the answer it came in.
        let reply = Reply { result: reply.result.detached(), ..reply.clone() };
        kept.insert(place, Entry { reply, since, until: since + ttl });
    }

    fn remove(&self, goes: impl Fn(&Place) -> bool) {
        let mut kept = self.lock();
        kept.generation += 1;
        let gone: Vec<Place> = kept.entries.keys().filter(|place| goes(place)).cloned().collect();
        for place in gone {
            kept.remove(&place);
        }
    }

    fn turn(&self, [_, own]: &[Place; 2]) -> Arc<tokio::sync::Mutex<()>> {
        let mut turns = self.turns.lock().unwrap_or_else(PoisonError::into_inner);
        // Nobody waits for those that only this map holds.
        turns.retain(|_, turn| Arc::strong_count(turn) > 1);
        Arc::clone(turns.entry(own.clone()).or_default())
    }

    fn lock(&self) -> MutexGuard<'_, Shelf> {
        self.shelf.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Shelf {
    fn insert(&mut self, place: Place, entry: Entry) {
        self.remove(&place);
        self.bytes += entry.reply.result.len();
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
            self.bytes -= entry.reply.result.len();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, time::Duration};

    use moongate_core::{Principal, Raw};
    use moongate_telemetry::{Metrics, Transport};

    use super::*;

    fn owner(subject: &str) -> Key {
        Key { principal: Some(Principal::issued(subject)), ..Key::default() }
    }

    struct Scene {
        readings: Readings,
        metrics: Upstream,
        fetched: Cell<u32>,
    }

    impl Scene {
        fn new() -> Self {
            let metrics = Metrics::new().upstream("x", Transport::Pipe);
            Self { readings: Readings::default(), metrics, fetched: Cell::new(0) }
        }

        async fn read(&self, who: &str, uri: &str, freshness: impl Into<Option<Freshness>>) -> Reply {
            let freshness = freshness.into();
            let fetch = async {
                self.fetched.set(self.fetched.get() + 1);
                tokio::task::yield_now().await;
                Ok::<_, ()>(Reply { freshness, ..Raw::of(uri).into() })
            };
            self.readings.read(&owner(who), &uri.into(), &self.metrics, fetch).await.unwrap()
        }
    }

    fn good_for(seconds: u64, public: bool) -> Freshness {
        Freshness { ttl: Duration::from_secs(seconds), public }
    }

    #[tokio::test(start_paused = true)]
    async fn a_reading_is_kept_as_long_as_it_is_good_and_tells_what_is_left() {
        let scene = Scene::new();
        scene.read("a", "x://1", good_for(10, false)).await;
        tokio::time::advance(Duration::from_secs(4)).await;
        let again = scene.read("a", "x://1", good_for(10, false)).await;
        assert_eq!((scene.fetched.get(), again.freshness), (1, Some(good_for(6, false))));
        tokio::time::advance(Duration::from_secs(6)).await;
        scene.read("a", "x://1", None).await;
        assert_eq!(scene.fetched.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_private_is_kept_for_its_owner_and_what_is_public_for_everybody() {
        let scene = Scene::new();
        for (uri, public, fetched) in [("x://private", false, 2), ("x://public", true, 3)] {
            scene.read("a", uri, good_for(10, public)).await;
            scene.read("b", uri, good_for(10, public)).await;
            assert_eq!(scene.fetched.get(), fetched, "{uri}");
        }
        scene.read("a", "x://none", None).await;
        scene.read("a", "x://none", None).await;
        assert_eq!(scene.fetched.get(), 5, "without a word of the server nothing is kept");
    }

    #[tokio::test(start_paused = true)]
    async fn an_update_ends_it_also_for_what_is_being_fetched() {
        let scene = Scene::new();
        scene.read("a", "x://1/part", good_for(10, false)).await;
        scene.readings.updated("x://1");
        scene.read("a", "x://1/part", good_for(10, false)).await;
        assert_eq!(scene.fetched.get(), 2);
        let late = async {
            scene.readings.clear();
        };
        tokio::join!(scene.read("a", "x://2", good_for(10, false)), late);
        scene.read("a", "x://2", good_for(10, false)).await;
        assert_eq!(scene.fetched.get(), 4, "what was asked for before the update is not kept");
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_kept_once_is_fetched_once_for_all_who_want_it() {
        let scene = Scene::new();
        scene.read("a", "x://1", good_for(1, false)).await;
        tokio::time::advance(Duration::from_secs(2)).await;
        let read = || scene.read("a", "x://1", good_for(1, false));
        tokio::join!(read(), read(), read());
        assert_eq!(scene.fetched.get(), 2);
    }

    #[tokio::test(start_paused = true)]
    async fn the_oldest_goes_when_there_is_no_more_room() {
        let scene = Scene::new();
        for number in 0..=MAX_ENTRIES {
            scene.read("a", &format!("x://{number}"), good_for(1000, false)).await;
            tokio::time::advance(Duration::from_millis(1)).await;
        }
        let kept = scene.readings.lock();
        assert_eq!(kept.entries.len(), MAX_ENTRIES);
        let first = Place { owner: Some(owner("a")), uri: "x://0".into() };
        assert!(!kept.entries.contains_key(&first));
        let bytes: usize = kept.entries.values().map(|entry| entry.reply.result.len()).sum();
        assert_eq!(kept.bytes, bytes);
    }
}
