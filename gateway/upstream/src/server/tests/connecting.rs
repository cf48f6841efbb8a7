//! When connections are made, lost, made again and ended.

use moongate_core::Kind;
use tokio::time::Instant;

use super::*;

#[tokio::test(start_paused = true)]
async fn a_server_that_does_not_start_is_left_alone_for_a_growing_while() {
    let setup = Setup::new(legacy(Way::Pipe));
    let fault = || Fault::Unreached("command not found".into());
    let mut tried = Vec::new();
    for dials in 1..6 {
        setup.fake.refuse_dial(fault());
        let began = Instant::now();
        // Callers are told at once until it is time.
        while setup.fake.dials() < dials {
            let error = setup.call(&bare()).await.unwrap_err();
            assert_eq!(&*error.public, "The upstream git failed: command not found");
            assert_eq!(error.kind, Kind::Unavailable);
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
        tried.push(began.elapsed());
    }
    assert!(
        tried.is_sorted() && tried[1] > Duration::from_millis(300) && tried[4] > Duration::from_secs(2),
        "{tried:?}"
    );
    let status = setup.server.status();
    assert_eq!((status.state, status.last_error.as_deref()), (State::Down, Some("command not found")));
    tokio::time::sleep(Duration::from_mins(1)).await;
    setup.call(&bare()).await.unwrap();
    assert_eq!(setup.server.status().state, State::Up);
}

#[tokio::test(start_paused = true)]
async fn many_calls_make_one_connection() {
    let setup = Setup::new(legacy(Way::Pipe));
    let cx = bare();
    let calls = (0..10).map(|_| setup.call(&cx));
    let outcomes = futures_util::future::join_all(calls).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!((setup.fake.dials(), setup.fake.count("tools/call")), (1, 10));
}

#[tokio::test(start_paused = true)]
async fn a_lost_connection_is_made_anew_by_the_next_call() {
    let setup = Setup::new(legacy(Way::Pipe));
    assert_eq!(line(setup.call(&bare()).await), 0);
    setup.fake.end(0, Fault::Lost("killed".into()));
    settle().await;
    assert_eq!((setup.fake.dials(), setup.server.status().state), (1, State::Idle));
    assert_eq!(line(setup.call(&bare()).await), 1);
    assert_eq!((setup.fake.dials(), setup.server.status().starts), (2, 2));
}

#[tokio::test(start_paused = true)]
async fn it_is_made_anew_at_once_for_those_who_watch_with_all_that_was_watched() {
    let setup = Setup::new(legacy(Way::Pipe));
    let cx = bare();
    for _ in 0..2 {
        setup.perform(subscribe(), &cx).await.unwrap();
    }
    setup.fake.end(0, Fault::Lost("killed".into()));
    setup.fake.counted("resources/subscribe", 2).await;
    setup.announced(Change::Updated { uri: "x://1".into() }).await;
    assert_eq!(setup.fake.dials(), 2);
    // It was watched twice, and is now.
    setup.perform(unsubscribe(), &cx).await.unwrap();
    assert_eq!(setup.fake.count("resources/unsubscribe"), 0);
    setup.perform(unsubscribe(), &cx).await.unwrap();
    assert_eq!(setup.fake.count("resources/unsubscribe"), 1);
    setup.fake.say(1, note("notifications/resources/updated", json!({"uri": "x://1/2"})));
    setup.announced(Change::Updated { uri: "x://1/2".into() }).await;
}

#[tokio::test(start_paused = true)]
async fn what_was_watched_is_not_forgotten_while_the_server_stays_away() {
    let setup = Setup::new(legacy(Way::Pipe));
    setup.perform(subscribe(), &bare()).await.unwrap();
    for _ in 0..3 {
        setup.fake.refuse_dial(Fault::Unreached("down".into()));
    }
    setup.fake.end(0, Fault::Lost("killed".into()));
    setup.fake.counted("resources/subscribe", 2).await;
    assert_eq!(setup.fake.dials(), 5);

    setup.fake.refuse_dial(Fault::Unreached("down".into()));
    setup.fake.end(1, Fault::Lost("killed".into()));
    setup.fake.dialled(6).await;
    settle().await;
    setup.perform(unsubscribe(), &bare()).await.unwrap();
    tokio::time::sleep(Duration::from_mins(10)).await;
    assert_eq!(setup.fake.dials(), 6, "nobody watches any more");
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_ends_before_it_watches_again_is_followed_by_another() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| {
        (got.method == "resources/subscribe" && got.line == 1).then_some(React::Hold)
    }));
    setup.perform(subscribe(), &bare()).await.unwrap();
    setup.fake.end(0, Fault::Lost("killed".into()));
    let _unanswered = setup.fake.held("resources/subscribe").await;
    setup.fake.end(1, Fault::Lost("killed".into()));
    setup.fake.counted("resources/subscribe", 3).await;
    assert_eq!((setup.fake.dials(), setup.fake.is_closed(1)), (3, true));
    settle().await;
    setup.perform(unsubscribe(), &bare()).await.unwrap();
    assert_eq!(setup.fake.count("resources/unsubscribe"), 1);
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_not_stopped_while_it_lists() {
    let slow = Arc::new(Mutex::new(false));
    let now = Arc::clone(&slow);
    let setup = Setup::with(
        legacy_but(Way::Pipe, move |got| {
            (got.method == "tools/list" && *now.lock().unwrap()).then_some(React::Hold)
        }),
        |settings| settings.idle_timeout = Some(Duration::from_mins(5)),
    );
    let tasks = Group::new();
    let server = Arc::clone(&setup.server);
    tasks.spawn(async move { server.keep_house().await });
    setup.offer(&bare()).await;
    *slow.lock().unwrap() = true;
    tokio::time::sleep(Duration::from_secs(299)).await;
    setup.offer(&bare()).await;
    let held = setup.fake.held("tools/list").await;
    tokio::time::sleep(Duration::from_mins(2)).await;
    assert!(!setup.fake.is_closed(0));
    held.react(tools(&["t"]));
    setup.fake.closed(0).await;
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn a_verdict_that_does_not_hold_is_dropped_and_looked_at_again_once() {
    let status = |status| React::Lost(Fault::Status { status, detail: String::new() });
    let shelf_of = async |fake: Arc<Fake>| {
        let setup = Setup::new(fake);
        setup.call(&bare()).await.unwrap();
        setup.shelf
    };
    // Modern before, legacy now.
    for exits in [false, true] {
        let shelf = shelf_of(modern(Way::Pipe)).await;
        let setup = Setup::on(
            shelf,
            legacy_but(Way::Pipe, move |got| {
                (exits && got.method == "server/discover").then_some(React::Exit)
            }),
            |_| {},
        );
        setup.call(&bare()).await.unwrap();
        // The believed one, the probe, and a fresh one where the probe was too much for it.
        assert_eq!(setup.fake.dials(), if exits { 3 } else { 2 });
        assert_eq!(setup.server.status().era, Some("legacy"));
    }
    // Legacy before, modern now.
    let setup = Setup::on(
        shelf_of(legacy(Way::Http)).await,
        modern_but(Way::Http, move |got| (got.method == "initialize").then(|| status(404))),
        |_| {},
    );
    setup.call(&bare()).await.unwrap();
    assert_eq!(setup.fake.methods(), ["initialize", "server/discover", "tools/call"]);
    // Trouble that is not about the era is not taken for it.
    let setup = Setup::on(
        shelf_of(legacy(Way::Http)).await,
        legacy_but(Way::Http, move |got| (got.method == "initialize").then(|| status(503))),
        |_| {},
    );
    assert!(setup.call(&bare()).await.is_err());
    assert_eq!(setup.fake.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_took_the_place_of_a_modern_one_and_says_nothing_is_looked_at_again() {
    let shelf = Arc::<Shelf>::default();
    Setup::on(Arc::clone(&shelf), modern(Way::Pipe), |_| {}).call(&bare()).await.unwrap();
    let silent = legacy_but(Way::Pipe, |got| (got.method == "server/discover").then_some(React::Hold));
    let setup = Setup::on(shelf, silent, |_| {});
    let error = setup.call(&bare()).await.unwrap_err();
    assert!(error.public.contains("did not start within 60 s"), "{error}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    setup.call(&bare()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_configured_era_is_not_looked_for() {
    for (era, fake, method) in [
        (EraChoice::Legacy, legacy(Way::Http), "initialize"),
        (EraChoice::Modern, modern(Way::Http), "server/discover"),
    ] {
        let setup = Setup::old(Arc::default(), fake, Some(legacy(Way::Http)), |settings| settings.era = era);
        setup.call(&bare()).await.unwrap();
        assert_eq!(setup.fake.methods(), [method, "tools/call"]);
    }
}

#[tokio::test(start_paused = true)]
async fn the_old_way_is_remembered() {
    let not_found =
        || legacy_but(Way::Http, |_| Some(React::Lost(Fault::Status { status: 404, detail: String::new() })));
    let (shelf, old) = (Arc::<Shelf>::default(), legacy(Way::Http));
    for (era, asked) in [(EraChoice::Auto, 2), (EraChoice::Auto, 0), (EraChoice::Legacy, 0)] {
        let setup = Setup::old(Arc::clone(&shelf), not_found(), Some(Arc::clone(&old)), |settings| {
            settings.era = era;
        });
        setup.call(&bare()).await.unwrap();
        assert_eq!(setup.fake.requests().len(), asked);
    }
}

#[tokio::test(start_paused = true)]
async fn an_unused_connection_is_stopped_and_a_used_one_is_not() {
    let idle = |settings: &mut Settings| settings.idle_timeout = Some(Duration::from_mins(5));
    let long = Duration::from_hours(1);
    let setup = Setup::with(
        legacy_but(Way::Pipe, |got| (got.method == "tools/call" && got.line == 2).then_some(React::Hold)),
        idle,
    );
    let tasks = Group::new();
    let server = Arc::clone(&setup.server);
    tasks.spawn(async move { server.keep_house().await });
    let cx = bare();

    setup.call(&cx).await.unwrap();
    tokio::time::sleep(long).await;
    assert!(!setup.fake.is_closed(0), "its session may call again");
    setup.server.session_ended(&session(&cx));
    tokio::time::sleep(Duration::from_mins(2)).await;
    setup.fake.closed(0).await;
    assert_eq!(setup.server.status().state, State::Idle);

    let nobody = Context { transport_session: None, ..cx };
    setup.perform(subscribe(), &nobody).await.unwrap();
    tokio::time::sleep(long).await;
    assert!(!setup.fake.is_closed(1), "somebody watches");
    setup.perform(unsubscribe(), &nobody).await.unwrap();
    let before = Instant::now();
    setup.fake.closed(1).await;
    assert!(before.elapsed() >= Duration::from_mins(5));

    let running = setup.begin(tool(), &nobody);
    let held = setup.fake.held("tools/call").await;
    tokio::time::sleep(long).await;
    assert!(!setup.fake.is_closed(2), "a call runs");
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    setup.fake.closed(2).await;
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn places_of_sessions_that_are_not_used_are_forgotten() {
    let setup = Setup::with(legacy(Way::Pipe), |settings| {
        (settings.share, settings.idle_timeout) = (Share::Session, Some(Duration::from_mins(5)));
    });
    for number in 0..10 {
        let cx = client(Version::V2026_07_28, json!({}), &number.to_string());
        setup.call(&Context { transport_session: None, ..cx }).await.unwrap();
    }
    assert_eq!(setup.server.0.all_slots().len(), 10);
    drop(tokio::time::timeout(Duration::from_mins(20), setup.server.keep_house()).await);
    assert_eq!(setup.server.0.all_slots().len(), 0);
    assert!((0..10).all(|number| setup.fake.is_closed(number)));
}

#[tokio::test(start_paused = true)]
async fn places_of_principals_are_forgotten_too_and_those_of_failures_after_a_while() {
    let capabilities = json!({"sampling": {}});
    for fake in [legacy(Way::Pipe), modern(Way::Pipe)] {
        let setup = Setup::with(fake, |settings| settings.idle_timeout = Some(Duration::from_mins(5)));
        let cx = client(Version::V2025_11_25, capabilities.clone(), "s");
        setup.call(&Context { transport_session: None, ..cx }).await.unwrap();
        drop(tokio::time::timeout(Duration::from_mins(30), setup.server.keep_house()).await);
        assert_eq!(setup.server.0.all_slots().len(), 1, "what it offered is shown to people");
        drop(tokio::time::timeout(Duration::from_mins(40), setup.server.keep_house()).await);
        assert_eq!(setup.server.0.all_slots().len(), 0);
    }
    let failing = Setup::with(legacy(Way::Pipe), |settings| settings.share = Share::Session);
    failing.fake.refuse_dial(Fault::Unreached("no".into()));
    failing.call(&bare()).await.unwrap_err();
    drop(tokio::time::timeout(Duration::from_secs(61), failing.server.keep_house()).await);
    assert_eq!(failing.server.0.all_slots().len(), 1);
    drop(tokio::time::timeout(Duration::from_mins(2), failing.server.keep_house()).await);
    assert_eq!(failing.server.0.all_slots().len(), 0, "also where connections are kept for ever");
}

#[tokio::test(start_paused = true)]
async fn the_house_is_kept_until_the_server_is_stopped() {
    for idle in [None, Some(Duration::from_mins(5))] {
        let setup = Setup::with(legacy(Way::Pipe), |settings| settings.idle_timeout = idle);
        setup.call(&bare()).await.unwrap();
        let keeping = setup.server.keep_house();
        let stopping = setup.server.stop(Duration::from_secs(1));
        soon(async { tokio::join!(keeping, stopping) }).await;
        assert!(setup.fake.is_closed(0));
    }
}

#[tokio::test(start_paused = true)]
async fn stopping_waits_for_calls_that_run_and_takes_no_new_ones() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| (got.method == "tools/call").then_some(React::Hold)));
    let running = setup.begin(tool(), &bare());
    let held = setup.fake.held("tools/call").await;
    let during = async {
        settle().await;
        assert!(!setup.fake.is_closed(0));
        for cx in [bare(), client(Version::V2025_11_25, json!({"roots": {}}), "other")] {
            let error = setup.call(&cx).await.unwrap_err();
            assert!(error.public.contains("is being removed"), "{error}");
        }
        held.answer(json!({"content": []}));
        soon(running).await.unwrap().unwrap();
    };
    let before = Instant::now();
    tokio::join!(setup.server.stop(Duration::from_mins(5)), during);
    assert!(setup.fake.is_closed(0) && before.elapsed() < Duration::from_secs(1));
    assert!(setup.call(&bare()).await.is_err());
    assert_eq!(
        (setup.fake.dials(), setup.offer(&client(Version::V2025_11_25, json!({}), "z")).await.tools.len()),
        (1, 0)
    );

    let setup = Setup::new(legacy_but(Way::Pipe, |got| (got.method == "tools/call").then_some(React::Hold)));
    let _running = setup.begin(tool(), &bare());
    setup.fake.counted("tools/call", 1).await;
    let before = Instant::now();
    setup.server.stop(Duration::from_mins(5)).await;
    assert!(setup.fake.is_closed(0));
    assert_eq!(before.elapsed(), Duration::from_mins(5), "not for ever");
}

#[tokio::test(start_paused = true)]
async fn stopping_ends_a_start_that_takes_its_time() {
    let setup = Setup::new(legacy_but(Way::Pipe, |got| (got.method == "initialize").then_some(React::Hold)));
    let running = setup.begin(tool(), &bare());
    setup.fake.counted("initialize", 1).await;
    let before = Instant::now();
    setup.server.stop(Duration::from_mins(5)).await;
    assert!(soon(running).await.unwrap().is_err());
    assert!(before.elapsed() < Duration::from_secs(5));
}

#[tokio::test(start_paused = true)]
async fn a_warm_server_is_there_for_the_first_call() {
    let able =
        client(Version::V2026_07_28, json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}}), "s");
    for (fake, first) in [(legacy(Way::Pipe), bare()), (modern(Way::Pipe), able)] {
        let setup = Setup::new(fake);
        setup.server.warm().await;
        let status = setup.server.status();
        assert_eq!((status.state, status.pids), (State::Up, vec![0]));
        setup.call(&first).await.unwrap();
        assert_eq!(setup.fake.dials(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_is_warmed_for_clients_like_the_one_that_used_it_last() {
    let ui = json!({"io.modelcontextprotocol/ui": {"mimeTypes": ["text/html"]}});
    for capabilities in [
        json!({"sampling": {"tools": {}}, "elicitation": {"form": {}, "url": {}}, "extensions": ui}),
        json!({"elicitation": {}}),
        json!({"roots": {}}),
        json!({}),
    ] {
        let shelf = Arc::<Shelf>::default();
        let usual = client(Version::V2025_11_25, capabilities.clone(), "s");
        Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {}).call(&usual).await.unwrap();
        let setup = Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {});
        let other = Context { principal: Principal::anonymous(), ..bare() };
        setup.call(&other).await.unwrap();
        setup.server.warm().await;
        assert_eq!(line(setup.call(&usual).await), 1, "{capabilities}");
        assert_eq!(setup.fake.dials(), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_keeps_to_roots_is_not_started_for_a_client_whose_roots_are_not_known() {
    let shelf = Arc::<Shelf>::default();
    let first = Setup::on(Arc::clone(&shelf), holding(), |_| {});
    let rooted = client(Version::V2025_11_25, json!({"roots": {}}), "s");
    let running = first.begin(tool(), &rooted);
    let held = first.fake.held("tools/call").await;
    first.fake.ask(0, json!(1), "roots/list", json!({}));
    first.fake.response(json!(1)).await;
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    let setup = Setup::on(Arc::clone(&shelf), legacy(Way::Pipe), |_| {});
    setup.server.warm().await;
    assert_eq!(setup.fake.dials(), 0);
    let told = |settings: &mut Settings| settings.roots = Some(vec!["file:///srv".to_owned()]);
    let setup = Setup::on(shelf, legacy(Way::Pipe), told);
    setup.server.warm().await;
    assert_eq!(line(setup.call(&rooted).await), 0, "all have the same");
}

/// A legacy server whose calls the test answers.
fn holding() -> Arc<Fake> {
    legacy_but(Way::Pipe, |got| (got.method == "tools/call").then_some(React::Hold))
}
