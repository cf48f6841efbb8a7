//! Processes that ask, leased by calls without a session.

use moongate_core::Kind;
use tokio::time::Instant;

use super::*;
use crate::testing::Says;

fn asking() -> Value {
    json!({"elicitation": {}})
}

fn form() -> Value {
    json!({"message": "?", "requestedSchema": {}})
}

/// A modern call that belongs to no session.
fn nameless(caller: &Arc<Caller>) -> Context {
    let cx = caller.context(Version::V2026_07_28, asking());
    Context { session_named: false, ..cx }
}

/// A server on a pipe that is known to ask, whose calls the test answers.
async fn known_to_ask(adjust: impl FnOnce(&mut Settings)) -> Setup {
    let shelf = Arc::<Shelf>::default();
    let first = Setup::on(Arc::clone(&shelf), holding(), |_| {});
    let running = first.begin(tool(), &nameless(&Caller::willing()));
    let held = first.fake.held("tools/call").await;
    first.fake.ask(0, json!(1), "elicitation/create", form());
    first.fake.response(json!(1)).await;
    held.answer(json!({"content": []}));
    soon(running).await.unwrap().unwrap();
    Setup::on(shelf, holding(), adjust)
}

fn holding() -> Arc<Fake> {
    legacy_but(Way::Pipe, |got| (got.method == "tools/call").then_some(React::Hold))
}

#[tokio::test(start_paused = true)]
async fn calls_without_a_session_that_are_asked_at_once_each_get_their_own_answer() {
    let setup = known_to_ask(|_| {}).await;
    let callers: Vec<_> = (0..4)
        .map(|number| {
            Caller::new(move |_| Says::Result(json!({"action": "accept", "content": {"number": number}})))
        })
        .collect();
    let mut calls = Vec::new();
    for (number, caller) in callers.iter().enumerate() {
        calls.push((setup.begin(tool(), &nameless(caller)), setup.fake.held("tools/call").await));
        assert_eq!(calls[number].1.got.line, number, "a process each");
    }
    for line in [2, 0, 3, 1] {
        setup.fake.ask(line, json!(line + 10), "elicitation/create", form());
    }
    for (line, (call, held)) in calls.into_iter().enumerate() {
        let answer = setup.fake.response(json!(line + 10)).await;
        assert_eq!(answer["result"]["content"]["number"], line);
        held.answer(json!({"content": []}));
        soon(call).await.unwrap().unwrap();
    }
    assert!(callers.iter().all(|caller| caller.rounds().len() == 1));
    assert_eq!(setup.server.status().connections, 4);
}

#[tokio::test(start_paused = true)]
async fn who_finds_no_process_waits_and_is_told_at_the_deadline_what_to_raise() {
    let setup = known_to_ask(|settings| settings.max_processes = NonZeroUsize::new(2).unwrap()).await;
    let caller = Caller::new(|_| Says::Nothing);
    let first = setup.begin(tool(), &nameless(&caller));
    let one = setup.fake.held("tools/call").await;
    // It waits for its client, and keeps its process.
    setup.fake.ask(0, json!(1), "elicitation/create", form());
    caller.until(|caller| caller.rounds().len() == 1).await;
    let _second = setup.begin(tool(), &nameless(&caller));
    let _two = setup.fake.held("tools/call").await;

    let began = Instant::now();
    let late = Context { deadline: began + Duration::from_secs(30), ..nameless(&caller) };
    let third = setup.begin(tool(), &late);
    let fourth = setup.begin(tool(), &nameless(&caller));
    let error = soon(third).await.unwrap().unwrap_err();
    assert_eq!((error.kind, began.elapsed().as_secs()), (Kind::Timeout, 30));
    for words in ["The upstream git failed", "busy (2)", "raise upstreams.git.max_processes"] {
        assert!(error.public.contains(words), "{}", error.public);
    }
    assert_eq!((setup.fake.dials(), setup.fake.count("tools/call")), (2, 2));
    // The one in front has left the queue.
    one.answer(json!({"content": []}));
    soon(first).await.unwrap().unwrap();
    let held = setup.fake.held("tools/call").await;
    assert_eq!((held.got.line, setup.fake.dials()), (0, 2), "by the process that was given back");
    held.answer(json!({"content": []}));
    soon(fourth).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_given_up_frees_its_place_and_its_process_is_not_used_again() {
    let setup = known_to_ask(|settings| settings.max_processes = NonZeroUsize::MIN).await;
    let caller = Caller::new(|_| Says::Nothing);
    let parked = Group::new();
    let (server, cx) = (Arc::clone(&setup.server), nameless(&caller));
    parked.spawn(async move { drop(server.call(Call::new(tool()), &cx).await) });
    let _held = setup.fake.held("tools/call").await;
    setup.fake.ask(0, json!(1), "elicitation/create", form());
    caller.until(|caller| caller.rounds().len() == 1).await;
    let next = setup.begin(tool(), &nameless(&Caller::willing()));
    settle().await;
    assert_eq!(setup.fake.count("tools/call"), 1);
    // As when it expires.
    parked.shut_down(Duration::from_secs(1)).await;
    let held = setup.fake.held("tools/call").await;
    assert_eq!(held.got.line, 1, "what the old one asks now would be taken for a question of this call");
    setup.fake.closed(0).await;
    held.answer(json!({"content": []}));
    soon(next).await.unwrap().unwrap();
    let (again, held) = (setup.begin(tool(), &nameless(&caller)), setup.fake.held("tools/call").await);
    assert_eq!(held.got.line, 1, "that one was answered");
    held.answer(json!({"content": []}));
    soon(again).await.unwrap().unwrap();
}

#[tokio::test(start_paused = true)]
async fn idle_processes_are_used_by_those_who_are_alike_and_stop_in_time() {
    let setup = known_to_ask(|settings| {
        settings.idle_timeout = Some(Duration::from_mins(5));
        settings.max_processes = NonZeroUsize::new(2).unwrap();
    })
    .await;
    let tasks = Group::new();
    let server = Arc::clone(&setup.server);
    tasks.spawn(async move { server.keep_house().await });
    let caller = Caller::willing();
    let other = Context { principal: Principal::anonymous(), ..nameless(&caller) };
    let samples = caller.context(Version::V2026_07_28, json!({"sampling": {}, "elicitation": {}}));
    let able = Context { session_named: false, ..samples };
    for (cx, line, why) in [
        (nameless(&caller), 0, "the first"),
        (nameless(&caller), 0, "again"),
        (other.clone(), 1, "another principal"),
        (able.clone(), 2, "the server is told something else"),
        (nameless(&caller), 0, "the first again"),
        (able.clone(), 2, "and that one"),
        (other, 1, "and the other's"),
    ] {
        let call = setup.begin(tool(), &cx);
        let held = setup.fake.held("tools/call").await;
        assert_eq!(held.got.line, line, "{why}");
        held.answer(json!({"content": []}));
        soon(call).await.unwrap().unwrap();
    }
    // There is a place for two of one principal: the idle one makes room.
    let first = setup.begin(tool(), &able);
    let one = setup.fake.held("tools/call").await;
    let second = setup.begin(tool(), &able);
    let two = setup.fake.held("tools/call").await;
    assert_eq!((one.got.line, two.got.line), (2, 3));
    setup.fake.closed(0).await;
    for (held, call) in [(one, first), (two, second)] {
        held.answer(json!({"content": []}));
        soon(call).await.unwrap().unwrap();
    }
    for line in 1..4 {
        setup.fake.closed(line).await;
    }
    assert_eq!(setup.server.status().connections, 0);
    tasks.cancel();
}

#[tokio::test(start_paused = true)]
async fn only_the_very_first_question_has_nobody_and_its_callers_are_told_to_try_again() {
    let setup = Setup::new(holding());
    let callers: Vec<_> = (0..2).map(|_| Caller::willing()).collect();
    let mut calls = Vec::new();
    for caller in &callers {
        calls.push((setup.begin(tool(), &nameless(caller)), setup.fake.held("tools/call").await));
    }
    setup.fake.ask(0, json!(1), "elicitation/create", form());
    assert_eq!(setup.fake.response(json!(1)).await["error"]["code"], -32603);
    for (call, held) in calls {
        held.answer(json!({"content": [], "isError": true}));
        let error = soon(call).await.unwrap().unwrap_err();
        assert_eq!(error.kind, Kind::Unavailable);
        assert!(error.public.ends_with("try again") && error.public.contains("git"), "{error}");
    }
    for (caller, id) in callers.iter().zip(2..) {
        let call = setup.begin(tool(), &nameless(caller));
        let held = setup.fake.held("tools/call").await;
        setup.fake.ask(held.got.line, json!(id), "elicitation/create", form());
        assert_eq!(setup.fake.response(json!(id)).await["result"]["action"], "accept");
        held.answer(json!({"content": []}));
        soon(call).await.unwrap().unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_process_is_kept_when_it_has_answered_whatever_it_said() {
    let setup = known_to_ask(|_| {}).await;
    let caller = Caller::willing();
    let bare = Context { session_named: false, ..caller.context(Version::V2026_07_28, json!({})) };
    for (react, asks) in [
        (React::Error(moongate_wire::RpcError::new(-32000, "no")), false),
        (React::Result(json!({"content": [], "isError": true})), true),
        (React::Result(json!({"content": []})), false),
    ] {
        let call = setup.begin(tool(), &bare);
        let held = setup.fake.held("tools/call").await;
        assert_eq!(held.got.line, 0);
        if asks {
            setup.fake.ask(0, json!(1), "sampling/createMessage", json!({}));
            setup.fake.response(json!(1)).await;
        }
        held.react(react);
        let outcome = soon(call).await.unwrap();
        assert_eq!(asks, outcome.is_err_and(|error| matches!(error.kind, Kind::MissingCapability { .. })));
    }
}

#[tokio::test(start_paused = true)]
async fn sessions_and_servers_that_say_whose_question_it_is_lease_nothing() {
    let setup = known_to_ask(|_| {}).await;
    let caller = Caller::willing();
    let named = caller.context(Version::V2026_07_28, asking());
    let mut calls = Vec::new();
    for _ in 0..6 {
        calls.push((setup.begin(tool(), &named), setup.fake.held("tools/call").await));
    }
    assert!(calls.iter().all(|(_, held)| held.got.line == 0), "all of one session");

    // Over HTTP it may also ask where that is not said, and is remembered for it.
    let remote = Setup::new(legacy_but(Way::Http, |got| (got.method == "tools/call").then_some(React::Hold)));
    let first = remote.begin(tool(), &nameless(&caller));
    let held = remote.fake.held("tools/call").await;
    remote.fake.ask(0, json!(1), "elicitation/create", form());
    remote.fake.response(json!(1)).await;
    held.answer(json!({"content": []}));
    soon(first).await.unwrap().unwrap();
    let _calls: Vec<_> = (0..6).map(|_| remote.begin(tool(), &nameless(&caller))).collect();
    remote.fake.counted("tools/call", 7).await;
    assert_eq!(remote.fake.dials(), 1);
}

#[tokio::test(start_paused = true)]
async fn what_is_listed_is_one_list_by_whichever_process_runs() {
    let setup = known_to_ask(|_| {}).await;
    let cx = nameless(&Caller::willing());
    assert_eq!(names(&setup.offer(&cx).await), ["t"]);
    let listed = setup.fake.count("tools/list");
    let _one = (setup.begin(tool(), &cx), setup.fake.held("tools/call").await);
    let two = (setup.begin(tool(), &cx), setup.fake.held("tools/call").await);
    assert_eq!((two.1.got.line, setup.fake.dials()), (1, 2), "listing has no process of its own");
    settle().await;
    setup.changes();
    setup.fake.say(1, note("notifications/tools/list_changed", json!({})));
    setup.announced(Change::Tools).await;
    assert!(setup.fake.count("tools/list") > listed && setup.fake.dials() == 2);
    // What is watched is not watched by a process that comes and goes.
    setup.perform(subscribe(), &cx).await.unwrap();
    let subscribed = setup.fake.requests().into_iter().find(|got| got.method == "resources/subscribe");
    assert_eq!(subscribed.unwrap().line, 0);
}

#[tokio::test(start_paused = true)]
async fn a_server_that_is_stopped_waits_for_leased_calls_and_tells_those_in_the_queue() {
    let setup = known_to_ask(|settings| settings.max_processes = NonZeroUsize::MIN).await;
    let cx = nameless(&Caller::willing());
    let running = setup.begin(tool(), &cx);
    let held = setup.fake.held("tools/call").await;
    let waiting = setup.begin(tool(), &cx);
    settle().await;
    let during = async {
        let error = soon(waiting).await.unwrap().unwrap_err();
        assert!(error.public.contains("is being removed"), "{error}");
        assert!(!setup.fake.is_closed(0));
        held.answer(json!({"content": []}));
        soon(running).await.unwrap().unwrap();
    };
    tokio::join!(setup.server.stop(Duration::from_mins(5)), during);
    assert!(setup.fake.is_closed(0));
}

#[tokio::test(start_paused = true)]
async fn what_a_route_keeps_is_read_once_whichever_process_is_leased() {
    let shelf = known_to_ask(|_| {}).await.shelf;
    let slow = legacy_but(Way::Pipe, |got| (got.method == "resources/read").then_some(React::Hold));
    let setup = Setup::on(shelf, slow, |_| {});
    let kept = || Call { keep: Some(Duration::from_mins(1)), ..Call::new(read()) };
    let cx = nameless(&Caller::willing());
    let first = setup.begin_call(kept(), &cx);
    let held = setup.fake.held("resources/read").await;
    let mut given_up = setup.server.call(kept(), &cx);
    tokio::select! {
        _ = &mut given_up => panic!("nobody answered"),
        () = settle() => {}
    }
    drop(given_up);
    settle().await;
    assert!(setup.fake.dials() == 2 && !setup.fake.is_closed(1), "that process was asked nothing");
    let second = setup.begin_call(kept(), &cx);
    settle().await;
    held.answer(json!({"contents": []}));
    for reading in [first, second] {
        soon(reading).await.unwrap().unwrap();
    }
    assert_eq!((setup.fake.count("resources/read"), setup.fake.dials()), (1, 2));
}
