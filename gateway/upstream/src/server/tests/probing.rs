//! Whether a legacy server has become modern.

use std::sync::atomic::{AtomicBool, Ordering};

use super::*;

/// A server that is legacy until it is told otherwise, and then both.
fn upgraded(way: Way, modern: &Arc<AtomicBool>) -> Arc<Fake> {
    let modern = Arc::clone(modern);
    legacy_but(way, move |got| {
        let is_modern = modern.load(Ordering::Relaxed);
        (got.method == "server/discover" && is_modern).then(|| discovered(json!({"tools": {}})))
    })
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_is_asked_again_after_a_day_beside_the_calls_and_the_next_connection_is_modern() {
    for way in [Way::Pipe, Way::Http] {
        let modern = Arc::new(AtomicBool::new(false));
        let setup = Setup::new(upgraded(way, &modern));
        let tasks = Group::new();
        let server = Arc::clone(&setup.server);
        tasks.spawn(async move { server.keep_house().await });
        assert_eq!(line(setup.call(&bare()).await), 0);
        modern.store(true, Ordering::Relaxed);
        setup.clock.advance(Duration::from_hours(23));
        tokio::time::sleep(Duration::from_mins(10)).await;
        assert_eq!(setup.fake.count("server/discover"), 1, "{way:?}");

        setup.clock.advance(Duration::from_hours(1));
        setup.fake.counted("server/discover", 2).await;
        setup.fake.closed(1).await;
        settle().await;
        assert_eq!(line(setup.call(&bare()).await), 0, "who has a connection keeps it");
        let probe = setup.fake.requests().into_iter().rfind(|got| got.method == "server/discover").unwrap();
        assert_eq!((probe.line, setup.fake.dials()), (1, 2));
        setup.fake.end(0, Fault::Lost("killed".into()));
        settle().await;
        setup.call(&bare()).await.unwrap();
        let call = setup.fake.requests().pop().unwrap();
        assert_eq!((call.line, call.outgoing.version), (2, Some(Version::V2026_07_28)));
        assert_eq!(setup.server.status().era, Some("modern"));
        tasks.cancel();

        let again = Setup::on(Arc::clone(&setup.shelf), upgraded(way, &modern), |_| {});
        again.call(&bare()).await.unwrap();
        assert_eq!(again.fake.methods(), ["server/discover", "tools/call"], "it is remembered");
    }
}

#[tokio::test(start_paused = true)]
async fn a_start_believes_what_is_remembered_however_old_and_asks_beside_it() {
    let shelf = Arc::<Shelf>::default();
    Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {}).call(&bare()).await.unwrap();
    for (days, probes) in [(3, 1), (3, 1)] {
        let setup = Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {});
        setup.clock.advance(Duration::from_hours(24 * days));
        setup.call(&bare()).await.unwrap();
        assert_eq!(setup.fake.methods()[..2], ["initialize", "tools/call"]);
        setup.fake.counted("server/discover", 1).await;
        setup.fake.closed(1).await;
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!((setup.fake.count("server/discover"), setup.fake.dials()), (probes, 2));
        // Asked a moment ago, it is not asked with the next start.
        setup.fake.end(0, Fault::Lost("killed".into()));
        settle().await;
        setup.call(&bare()).await.unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(setup.fake.count("server/discover"), probes);
        // The clock of the next run begins where this one did.
        shelf.clear("upstream_verdict");
        Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {}).call(&bare()).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn one_that_calls_itself_another_version_is_asked_and_one_whose_era_is_configured_never() {
    for (era, probes) in [(EraChoice::Auto, 1), (EraChoice::Legacy, 0)] {
        let shelf = Arc::<Shelf>::default();
        let other = legacy_but(Way::Pipe, |got| {
            let info = json!({"name": "fake", "version": "9"});
            let capabilities = json!({"tools": {}});
            (got.method == "initialize").then(|| {
                React::Result(json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "serverInfo": info}))
            })
        });
        Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {}).call(&bare()).await.unwrap();
        let setup = Setup::on(shelf, other, |settings| settings.era = era);
        setup.call(&bare()).await.unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(setup.fake.count("server/discover"), probes, "{era:?}");
        setup.fake.end(0, Fault::Lost("killed".into()));
        settle().await;
        setup.call(&bare()).await.unwrap();
        tokio::time::sleep(Duration::from_mins(5)).await;
        assert_eq!(setup.fake.count("server/discover"), probes, "it has not changed again");
    }
}

#[tokio::test(start_paused = true)]
async fn what_says_nothing_about_the_era_changes_nothing_and_is_asked_again_later() {
    let shelf = Arc::<Shelf>::default();
    Setup::on(Arc::clone(&shelf), legacy(Way::Http), |_| {}).call(&bare()).await.unwrap();
    let down = |got: &Got| {
        let fault = Fault::Status { status: 503, detail: String::new() };
        (got.method == "server/discover").then_some(React::Lost(fault))
    };
    let setup = Setup::on(shelf, legacy_but(Way::Http, down), |_| {});
    setup.clock.advance(Duration::from_hours(30));
    let tasks = Group::new();
    let server = Arc::clone(&setup.server);
    tasks.spawn(async move { server.keep_house().await });
    setup.call(&bare()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(50)).await;
    assert_eq!(setup.fake.count("server/discover"), 1);
    setup.fake.counted("server/discover", 2).await;
    assert_eq!(setup.server.status().era, Some("legacy"));
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn nobody_starts_a_process_to_ask_a_server_that_nobody_uses() {
    let setup =
        Setup::with(legacy(Way::Pipe), |settings| settings.idle_timeout = Some(Duration::from_mins(5)));
    let tasks = Group::new();
    let server = Arc::clone(&setup.server);
    tasks.spawn(async move { server.keep_house().await });
    setup.call(&Context { transport_session: None, ..bare() }).await.unwrap();
    setup.fake.closed(0).await;
    setup.clock.advance(Duration::from_hours(48));
    tokio::time::sleep(Duration::from_hours(1)).await;
    assert_eq!(setup.fake.dials(), 1);
    tasks.cancel();
}
