//! What is kept of readings, for whom, and who fetches when several want the same.

use std::cell::Cell;

use futures_util::FutureExt as _;
use moongate_core::Principal;
use moongate_telemetry::{Metrics, Transport};

use super::*;

const MINUTE: Duration = Duration::from_mins(1);

struct Scene {
    readings: Readings,
    page: Metrics,
    metrics: Upstream,
    fetched: Cell<u32>,
}

impl Scene {
    fn new() -> Self {
        let page = Metrics::new();
        let metrics = page.upstream("x", Transport::Pipe);
        Self { readings: Readings::default(), page, metrics, fetched: Cell::new(0) }
    }

    /// Reads what its server calls this fresh.
    async fn read(&self, who: &str, uri: &str, freshness: impl Into<Option<Freshness>>) -> Reply {
        self.take(&wanted(who, uri, None), self.answer(freshness.into())).await.unwrap()
    }

    /// Reads what its server says nothing about.
    async fn keep(&self, keep: impl Into<Option<Duration>>) -> Reply {
        self.take(&wanted("a", "x://1", keep.into()), self.answer(None)).await.unwrap()
    }

    async fn take(
        &self,
        wanted: &Wanted,
        fetch: impl Future<Output = Result<Reply, ()>>,
    ) -> Result<Reply, ()> {
        self.readings.read(wanted, &self.metrics, fetch).await
    }

    async fn answer(&self, freshness: Option<Freshness>) -> Result<Reply, ()> {
        self.fetched.set(self.fetched.get() + 1);
        tokio::time::sleep(Duration::from_millis(1)).await;
        Ok(Reply { freshness, ..Raw::of("text").into() })
    }
}

fn wanted(who: &str, uri: &str, keep: Option<Duration>) -> Wanted {
    let owner = Key { principal: Some(Principal::issued(who)), ..Key::default() };
    Wanted { owner, uri: uri.into(), keep }
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
    let page = scene.page.render();
    assert!(page.contains(r#"moongate_cache_total{result="hit",upstream="x"} 1"#), "{page}");
    assert!(page.contains(r#"moongate_cache_total{result="miss",upstream="x"} 2"#), "{page}");
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
async fn a_route_keeps_what_the_server_says_nothing_about_and_nothing_else() {
    let scene = Scene::new();
    let first = scene.keep(MINUTE).await;
    assert_eq!(first.freshness, Some(good_for(60, false)));
    tokio::time::advance(MINUTE / 2).await;
    scene.keep(MINUTE).await;
    assert_eq!(scene.fetched.get(), 1);
    scene.keep(MINUTE / 4).await;
    assert_eq!(scene.fetched.get(), 2, "the route was changed");
    scene.keep(None).await;
    assert_eq!(scene.fetched.get(), 3, "there is no such route any more");
    let fetch = || scene.answer(Some(Freshness::NONE));
    for _ in 0..2 {
        scene.take(&wanted("a", "x://2", Some(MINUTE)), fetch()).await.unwrap();
    }
    assert_eq!(scene.fetched.get(), 5, "the server wants it fetched");
    let fetch = || scene.answer(None);
    scene.take(&wanted("a", "x://3", Some(MINUTE)), fetch()).await.unwrap();
    scene.take(&wanted("b", "x://3", Some(MINUTE)), fetch()).await.unwrap();
    assert_eq!(scene.fetched.get(), 7, "it is private");
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
async fn what_may_be_shared_is_fetched_once_for_all_who_want_it() {
    let scene = Scene::new();
    for round in 1..=2 {
        let read = || scene.read("a", "x://1", good_for(1, false));
        tokio::join!(read(), read(), read());
        assert_eq!(scene.fetched.get(), round);
        tokio::time::advance(Duration::from_secs(2)).await;
    }
    let read = |who| scene.read(who, "x://2", good_for(1, true));
    tokio::join!(read("a"), read("b"));
    assert_eq!(scene.fetched.get(), 4, "nobody knows yet that it is public");
    assert!(lock(&scene.readings.turns).is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_for_one_caller_only_is_fetched_by_each_side_by_side() {
    let scene = Scene::new();
    let start = Instant::now();
    let read = || scene.read("a", "x://1", None);
    tokio::join!(read(), read(), read(), read());
    assert_eq!((scene.fetched.get(), start.elapsed().as_millis()), (4, 2), "the others after the first");
    tokio::join!(read(), read(), read());
    assert_eq!((scene.fetched.get(), start.elapsed().as_millis()), (7, 3), "now it is known");
    assert!(lock(&scene.readings.turns).is_empty());
}

#[tokio::test(start_paused = true)]
async fn when_the_first_fails_or_goes_away_the_next_fetches_for_the_rest() {
    let scene = Scene::new();
    let want = wanted("a", "x://1", Some(MINUTE));
    let failing = async {
        scene.answer(None).await.unwrap();
        Err(())
    };
    let (first, second, third) = tokio::join!(
        scene.take(&want, failing),
        scene.take(&want, scene.answer(None)),
        scene.take(&want, scene.answer(None))
    );
    assert!(first.is_err() && second.is_ok() && third.is_ok());
    assert_eq!(scene.fetched.get(), 2);

    let want = wanted("a", "x://2", Some(MINUTE));
    let mut first = Box::pin(scene.take(&want, std::future::pending()));
    assert!((&mut first).now_or_never().is_none());
    let mut second = Box::pin(scene.take(&want, scene.answer(None)));
    assert!((&mut second).now_or_never().is_none());
    drop(first);
    tokio::join!(second, scene.take(&want, scene.answer(None))).1.unwrap();
    assert_eq!(scene.fetched.get(), 3);
    assert!(lock(&scene.readings.turns).is_empty());
}

#[tokio::test(start_paused = true)]
async fn nobody_waits_for_ever_for_the_first() {
    let scene = Scene::new();
    let want = wanted("a", "x://1", Some(MINUTE));
    let mut first = Box::pin(scene.take(&want, std::future::pending()));
    assert!((&mut first).now_or_never().is_none());
    let start = Instant::now();
    scene.take(&want, scene.answer(None)).await.unwrap();
    assert!(start.elapsed() < PATIENCE + Duration::from_secs(1));
}

#[tokio::test(start_paused = true)]
async fn the_oldest_goes_when_there_is_no_more_room() {
    let scene = Scene::new();
    for number in 0..=MAX_ENTRIES {
        scene.read("a", &format!("x://{number}"), good_for(1000, false)).await;
    }
    let shelf = scene.readings.lock();
    assert_eq!(shelf.entries.len(), MAX_ENTRIES);
    let first = Place { owner: Some(wanted("a", "", None).owner), uri: "x://0".into() };
    assert!(!shelf.entries.contains_key(&first));
    let bytes: usize = shelf.entries.iter().map(|(place, entry)| weight(place, entry)).sum();
    assert_eq!(shelf.bytes, bytes);
}

#[tokio::test(start_paused = true)]
async fn what_is_too_long_is_not_kept_and_what_is_for_nobody_else_is_not_counted_for_ever() {
    let scene = Scene::new();
    let long = format!("x://{}", "a".repeat(MAX_ENTRY));
    for _ in 0..2 {
        scene.read("a", &long, good_for(1000, false)).await;
    }
    assert_eq!((scene.fetched.get(), scene.readings.lock().alone.len()), (2, 0));
    for number in 0..=MAX_ALONE {
        scene.read("a", &format!("x://{number}"), None).await;
    }
    assert_eq!(scene.readings.lock().alone.len(), 1);
    scene.read("a", "x://1", Freshness { ttl: Duration::MAX, public: false }).await;
    tokio::time::advance(LONGEST).await;
    scene.read("a", "x://1", None).await;
    assert_eq!(scene.fetched.get() as usize, MAX_ALONE + 5, "nothing is kept for longer than a day");
}

#[test]
fn a_request_that_says_more_than_how_to_handle_it_is_told_apart() {
    for (meta, more) in [
        ("{}", false),
        (r#"{"progressToken":1,"traceparent":"x","io.modelcontextprotocol/logLevel":"info"}"#, false),
        (r#"{"com.example/tenant":"a"}"#, true),
    ] {
        assert_eq!(says_more(&Raw::from_text(meta).unwrap()), more, "{meta}");
    }
}
