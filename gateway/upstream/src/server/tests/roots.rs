//! Servers that ask for roots: who shares one, and how often clients are asked.

use super::*;
use crate::testing::Says;

fn rooted(version: Version, session: &str, uri: &'static str) -> (Arc<Caller>, Context) {
    let caller = Caller::new(move |_| Says::Result(json!({"roots": [{"uri": uri}]})));
    let mut cx = caller.context(version, json!({"roots": {}}));
    cx.ids.session = session.into();
    cx.transport_session = (version != Version::V2026_07_28).then(|| session.into());
    (caller, cx)
}

const LEGACY: Version = Version::V2025_11_25;
const MODERN: Version = Version::V2026_07_28;

/// A server that is known to ask for roots.
async fn known_to_ask(way: Way) -> Setup {
    let shelf = Arc::<Shelf>::default();
    let first = Setup::on(Arc::clone(&shelf), holding(way), |_| {});
    let (_, cx) = rooted(LEGACY, "before", "file:///before");
    let running = first.begin(tool(), &cx);
    let held = first.fake.held("tools/call").await;
    held.ask(json!(1), "roots/list", json!({}));
    first.fake.response(json!(1)).await;
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    Setup::on(shelf, legacy(way), |_| {})
}

fn holding(way: Way) -> Arc<Fake> {
    legacy_but(way, |got| (got.method == "tools/call").then_some(React::Hold))
}

#[tokio::test(start_paused = true)]
async fn sessions_share_a_server_only_if_they_have_the_same_roots() {
    for (way, version) in [(Way::Pipe, LEGACY), (Way::Http, LEGACY), (Way::Pipe, MODERN)] {
        let setup = known_to_ask(way).await;
        let (one, two, same) = (
            rooted(version, "one", "file:///a"),
            rooted(version, "two", "file:///b"),
            rooted(version, "same", "file:///a"),
        );
        for _ in 0..2 {
            for (cx, expected) in [(&one.1, 0), (&two.1, 1), (&same.1, 0)] {
                assert_eq!(line(setup.call(cx).await), expected, "{way:?} {version}");
            }
        }
        for (caller, _) in [&one, &two, &same] {
            assert_eq!(caller.asked(), [["roots/list"]], "once for each session");
        }
        // Each is told its own, and nobody is asked again.
        for (line, uri) in [(0, "file:///a"), (1, "file:///b")] {
            setup.fake.ask(line, json!(line + 7), "roots/list", json!({}));
            assert_eq!(setup.fake.response(json!(line + 7)).await["result"]["roots"][0]["uri"], uri);
        }
        let able = client(version, json!({}), "other");
        assert_eq!(line(setup.call(&able).await), 2, "a client without roots has one without");
    }
}

#[tokio::test(start_paused = true)]
async fn the_first_question_is_answered_and_its_process_left_to_the_calls_it_has() {
    let setup = Setup::new(holding(Way::Pipe));
    let (one, cx) = rooted(LEGACY, "one", "file:///a");
    let (_, other) = rooted(LEGACY, "two", "file:///b");
    let running = setup.begin(tool(), &cx);
    let held = setup.fake.held("tools/call").await;
    setup.fake.ask(0, json!(1), "roots/list", json!({}));
    assert_eq!(setup.fake.response(json!(1)).await["result"]["roots"][0]["uri"], "file:///a");
    let second = setup.begin(tool(), &other);
    let apart = setup.fake.held("tools/call").await;
    assert_eq!(apart.got.line, 1, "it has other roots");
    assert!(!setup.fake.is_closed(0), "a call runs");
    // One that has not said its roots, and cannot be asked now.
    let (_, unknown) = rooted(MODERN, "three", "file:///c");
    drop(setup.perform(Operation::Complete { params: Raw::empty_object() }, &unknown).await);
    setup.fake.ask(0, json!(3), "roots/list", json!({}));
    setup.fake.response(json!(3)).await;
    settle().await;
    assert!(setup.fake.dials() == 3 && !setup.fake.is_closed(2), "the first has said it all");
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    setup.fake.closed(0).await;
    let again = setup.begin(tool(), &cx);
    let held = setup.fake.held("tools/call").await;
    setup.fake.ask(held.got.line, json!(2), "roots/list", json!({}));
    assert_eq!(setup.fake.response(json!(2)).await["result"]["roots"][0]["uri"], "file:///a");
    assert_eq!((held.got.line, one.asked().len()), (3, 1));
    for (held, call) in [(held, again), (apart, second)] {
        held.answer(json!({"content": []}));
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_is_asked_again_when_it_says_so_and_when_its_session_is_another() {
    let setup = known_to_ask(Way::Pipe).await;
    let (caller, cx) = rooted(LEGACY, "one", "file:///a");
    setup.call(&cx).await.unwrap();
    setup.server.roots_changed(&session(&cx));
    setup.call(&cx).await.unwrap();
    assert_eq!((caller.asked().len(), setup.fake.dials()), (2, 1), "they turned out to be the same");
    setup.server.roots_changed(&session(&cx));
    let slots = setup.server.0.all_slots();
    let idle = slots.iter().filter_map(|slot| slot.take_idle(Duration::ZERO)).count();
    assert_eq!(idle, 1, "nobody is bound to the process with the old ones");
    setup.server.session_ended(&session(&cx));
    setup.call(&cx).await.unwrap();
    assert_eq!(caller.asked().len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_call_without_a_session_is_asked_when_the_server_asks_and_leaves_no_process_that_was_told() {
    let shelf = known_to_ask(Way::Pipe).await.shelf;
    let setup = Setup::on(shelf, holding(Way::Pipe), |_| {});
    for (line, uri) in [(0, "file:///a"), (1, "file:///b")] {
        let (caller, cx) = rooted(MODERN, "default", uri);
        let cx = Context { session_named: false, ..cx };
        let call = setup.begin(tool(), &cx);
        let held = setup.fake.held("tools/call").await;
        assert_eq!((held.got.line, caller.asked().len()), (line, 0));
        let beside = setup.begin(tool(), &cx);
        let other = setup.fake.held("tools/call").await;
        assert_ne!(other.got.line, line, "nobody else may be there when it is told");
        setup.fake.ask(line, json!(line + 1), "roots/list", json!({}));
        assert_eq!(setup.fake.response(json!(line + 1)).await["result"]["roots"][0]["uri"], uri);
        held.answer(json!({"content": []}));
        soon(call).await.unwrap().unwrap();
        setup.fake.closed(line).await;
        other.answer(json!({"content": []}));
        soon(beside).await.unwrap().unwrap();
        assert!(!setup.fake.is_closed(line + 1), "that one was told nothing");
    }
}

#[tokio::test(start_paused = true)]
async fn a_client_that_does_not_say_is_taken_for_one_without_and_one_that_leaves_has_no_call() {
    let setup = known_to_ask(Way::Pipe).await;
    let unwilling = Caller::new(|_| Says::Refuse(-32603));
    let cx = unwilling.context(LEGACY, json!({"roots": {}}));
    for _ in 0..2 {
        setup.call(&cx).await.unwrap();
    }
    setup.fake.ask(0, json!(1), "roots/list", json!({}));
    assert_eq!(setup.fake.response(json!(1)).await["result"]["roots"], json!([]));
    assert_eq!(unwilling.asked().len(), 1);

    let gone = Caller::new(|_| Says::Fail(moongate_core::Kind::Cancelled));
    let mut cx = gone.context(MODERN, json!({"roots": {}}));
    cx.ids.session = "gone".into();
    let calls = setup.fake.count("tools/call");
    setup.call(&cx).await.unwrap_err();
    assert_eq!(setup.fake.count("tools/call"), calls, "it never began");
}

#[tokio::test(start_paused = true)]
async fn configured_roots_are_everybodys() {
    let shelf = known_to_ask(Way::Pipe).await.shelf;
    let setup =
        Setup::on(shelf, legacy(Way::Pipe), |settings| settings.roots = Some(vec!["file:///srv".to_owned()]));
    for (session, uri) in [("one", "file:///a"), ("two", "file:///b")] {
        let (caller, cx) = rooted(LEGACY, session, uri);
        assert_eq!(line(setup.call(&cx).await), 0);
        assert!(caller.asked().is_empty());
    }
}

#[tokio::test(start_paused = true)]
async fn what_cannot_ask_uses_what_is_known() {
    let setup = known_to_ask(Way::Pipe).await;
    let (caller, cx) = rooted(MODERN, "one", "file:///a");
    let complete = || Operation::Complete { params: Raw::empty_object() };
    drop(setup.perform(complete(), &cx).await);
    assert!(caller.asked().is_empty(), "its answer could not ask");
    assert_eq!(line(setup.call(&cx).await), 1);
    drop(setup.perform(complete(), &cx).await);
    let asked = setup.fake.requests().pop().unwrap();
    assert_eq!((asked.method, asked.line), ("completion/complete", 1));
}

#[tokio::test(start_paused = true)]
async fn a_session_lists_and_watches_where_it_calls() {
    let setup = known_to_ask(Way::Pipe).await;
    let (_, cx) = rooted(LEGACY, "one", "file:///a");
    assert_eq!(line(setup.call(&cx).await), 0);
    setup.perform(subscribe(), &cx).await.unwrap();
    assert_eq!(names(&setup.offer(&cx).await), ["t"]);
    setup.changes();
    setup.fake.say(0, note("notifications/tools/list_changed", json!({})));
    setup.announced(Change::Tools).await;
    setup.perform(unsubscribe(), &cx).await.unwrap();
    assert_eq!((setup.fake.count("resources/unsubscribe"), setup.fake.dials()), (1, 1));
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_and_watched_outlives_the_first_question() {
    let setup = Setup::new(holding(Way::Pipe));
    let (_, cx) = rooted(LEGACY, "one", "file:///a");
    setup.perform(subscribe(), &cx).await.unwrap();
    let running = setup.begin(tool(), &cx);
    let held = setup.fake.held("tools/call").await;
    setup.fake.ask(0, json!(1), "roots/list", json!({}));
    setup.fake.counted("resources/subscribe", 2).await;
    setup.announced(Change::Updated { uri: "x://1".into() }).await;
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    assert_eq!(names(&setup.offer(&cx).await), ["t"]);
    setup.fake.say(1, note("notifications/resources/updated", json!({"uri": "x://1/2"})));
    setup.announced(Change::Updated { uri: "x://1/2".into() }).await;
}
