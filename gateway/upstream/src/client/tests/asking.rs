//! Questions of legacy servers: whose they are, what the client says, and what the server hears of it.

use std::time::Duration;

use moongate_core::{Ask, Kind};
use moongate_wire::RpcError;

use super::*;
use crate::testing::{Says, note, settle};

fn form() -> Value {
    json!({"message": "?", "requestedSchema": {"type": "object"}})
}

#[tokio::test(start_paused = true)]
async fn each_question_reaches_the_client_and_its_answer_the_server_under_its_own_id() {
    for context in [legacy_client, modern_client] {
        let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::willing());
        let call = line.call(&context(&caller));
        let held = line.fake.held("tools/call").await;
        for (id, method, params, result) in [
            (json!(7), "elicitation/create", form(), json!({"action": "accept", "content": {"a": 1}})),
            (
                json!("seven"),
                "sampling/createMessage",
                json!({"messages": [], "maxTokens": 1}),
                json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "ok"}}),
            ),
            (json!(0), "roots/list", json!({}), json!({"roots": [{"uri": "file:///home"}]})),
            (json!(8), "ping", json!({}), json!({})),
        ] {
            held.ask(id.clone(), method, params.clone());
            let response = line.fake.response(id).await;
            assert_eq!(response["result"], result, "{method}");
            if method != "ping" {
                let round = caller.rounds().pop().unwrap();
                assert_eq!((round[0].1, &round[0].2), (method, &params));
            }
        }
        held.ask(json!(9), "tasks/list", json!({}));
        assert_eq!(line.fake.response(json!(9)).await["error"]["code"], -32601);
        held.answer(json!({"content": []}));
        assert_eq!(call.result().await, json!({"content": []}));
        assert_eq!(caller.rounds().len(), 3);
        assert_eq!(line.news(), [News::AskedRoots], "the others said whose they are");
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_is_asked_in_one_round_what_comes_together_and_a_legacy_one_at_once() {
    for (context, rounds) in [
        (
            modern_client as fn(&Arc<Caller>) -> Context,
            vec![vec!["elicitation/create", "roots/list"], vec!["elicitation/create"]],
        ),
        (legacy_client, vec![vec!["elicitation/create"], vec!["roots/list"], vec!["elicitation/create"]]),
    ] {
        let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::willing());
        let _call = line.call(&context(&caller));
        let held = line.fake.held("tools/call").await;
        held.ask(json!(1), "elicitation/create", form());
        held.ask(json!(2), "roots/list", json!({}));
        assert_eq!(line.fake.response(json!(1)).await["result"]["action"], "accept");
        assert!(line.fake.response(json!(2)).await["result"]["roots"].is_array());
        held.ask(json!(3), "elicitation/create", form());
        line.fake.response(json!(3)).await;
        held.ask(json!(4), "roots/list", json!({}));
        assert!(line.fake.response(json!(4)).await["result"]["roots"].is_array());
        assert_eq!(caller.asked(), rounds, "for roots once in a session");
        let keys: Vec<_> = caller.rounds().into_iter().flatten().map(|(key, ..)| key).collect();
        let mut once = keys.clone();
        once.sort_unstable();
        once.dedup();
        assert_eq!(once.len(), 3, "keys are used once in a call: {keys:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_its_server_names_is_asked_by_that_name_which_nobody_sees() {
    let named = |name: &str| {
        let mut params = form();
        params["_meta"] = json!({"dev.moongate/inputKey": name, "other": 1});
        params
    };
    for context in [legacy_client, modern_client] {
        let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::willing());
        let _call = line.call(&context(&caller));
        let held = line.fake.held("tools/call").await;
        for (id, name) in ["user_name", "user_name", "not a name"].into_iter().enumerate() {
            held.ask(json!(id), "elicitation/create", named(name));
        }
        held.ask(json!(3), "elicitation/create", form());
        held.ask(json!(4), "roots/list", json!({"_meta": {"dev.moongate/inputKey": "open"}}));
        for id in 0..5 {
            assert!(line.fake.response(json!(id)).await["result"].is_object());
        }
        // In another round it may have the name again.
        held.ask(json!(5), "elicitation/create", named("user_name"));
        line.fake.response(json!(5)).await;
        let asked: Vec<_> = caller.rounds().into_iter().flatten().collect();
        let keys: Vec<_> = asked.iter().map(|(key, ..)| key.as_str()).collect();
        let (_, _, params) = &asked[0];
        assert_eq!(params["_meta"], json!({"other": 1}), "{params}");
        if caller.rounds().len() == 2 {
            assert_eq!(keys, ["user_name", "question_2", "question_3", "question_4", "open", "user_name"]);
        } else {
            assert_eq!(caller.rounds().len(), 6, "a legacy client is asked one by one: {keys:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_question_that_comes_while_others_are_answered_waits_for_the_next_round() {
    let line = Line::to(legacy(Way::Http)).await;
    let caller = Caller::new(|question| match question {
        Ask::Elicit { .. } => Says::Nothing,
        _ => Says::Result(json!({"roots": []})),
    });
    let _call = line.call(&modern_client(&caller));
    let held = line.fake.held("tools/call").await;
    held.ask(json!(1), "elicitation/create", form());
    caller.until(|caller| caller.rounds().len() == 1).await;
    held.ask(json!(2), "roots/list", json!({}));
    held.ask(json!(3), "ping", json!({}));
    line.fake.response(json!(3)).await;
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(caller.asked(), [["elicitation/create"]]);
    held.say(note("notifications/cancelled", json!({"requestId": 1})));
    line.fake.response(json!(2)).await;
    assert_eq!(
        (caller.asked(), caller.withdrawn()),
        (vec![vec!["elicitation/create"], vec!["roots/list"]], 1)
    );
}

#[tokio::test(start_paused = true)]
async fn a_question_that_the_server_takes_back_is_not_asked_or_withdrawn() {
    let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::new(|_| Says::Nothing));
    let call = line.call(&legacy_client(&caller));
    let held = line.fake.held("tools/call").await;
    held.ask(json!(1), "elicitation/create", form());
    caller.until(|caller| caller.rounds().len() == 1).await;
    held.say(note("notifications/cancelled", json!({"requestId": 1})));
    caller.until(|caller| caller.withdrawn() == 1).await;
    held.answer(json!({}));
    call.result().await;

    // Before a modern client was asked at all: not even an empty round.
    let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::willing());
    let call = line.call(&modern_client(&caller));
    let held = line.fake.held("tools/call").await;
    held.ask(json!(1), "elicitation/create", form());
    held.say(note("notifications/cancelled", json!({"requestId": 1})));
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(caller.rounds().len(), 0);
    // Those that come later wait for each other as the first would have.
    held.ask(json!(2), "roots/list", json!({}));
    settle().await;
    held.ask(json!(3), "roots/list", json!({}));
    line.fake.response(json!(3)).await;
    assert_eq!(caller.asked(), [["roots/list", "roots/list"]]);
    held.answer(json!({}));
    call.result().await;
}

#[tokio::test(start_paused = true)]
async fn configured_roots_answer_without_asking() {
    let roots = super::listed_roots(&["file:///srv".to_owned()]);
    let line = Line::declaring(legacy(Way::Pipe), everything(), Some(roots)).await;
    let caller = Caller::willing();
    line.fake.ask(0, json!("before"), "roots/list", json!({}));
    assert_eq!(line.fake.response(json!("before")).await["result"]["roots"][0]["uri"], "file:///srv");
    let _call = line.call(&legacy_client(&caller));
    let held = line.fake.held("tools/call").await;
    line.fake.ask(0, json!(1), "roots/list", json!({}));
    held.ask(json!(2), "roots/list", json!({}));
    for id in [1, 2] {
        assert_eq!(line.fake.response(json!(id)).await["result"]["roots"][0]["uri"], "file:///srv");
    }
    assert_eq!(caller.rounds().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_client_cannot_do_is_refused_and_named_to_a_modern_client_whose_call_then_fails() {
    let failed = json!({"content": [], "isError": true});
    let refuse = || RpcError::new(-32603, "cannot go on");
    for (id, method, params, code, required) in [
        (1, "sampling/createMessage", json!({}), -32601, json!({"sampling": {}})),
        (2, "elicitation/create", json!({"mode": "url"}), -32602, json!({"elicitation": {"url": {}}})),
        (3, "roots/list", json!({}), -32601, json!({"roots": {}})),
    ] {
        for version in [Version::V2026_07_28, Version::V2025_11_25] {
            for fails in [Some(React::Result(failed.clone())), Some(React::Error(refuse())), None] {
                let caller = Caller::willing();
                let (line, cx) = (
                    Line::declaring(legacy(Way::Http), json!({}), None).await,
                    caller.context(version, json!({"elicitation": {}})),
                );
                let call = line.call(&cx);
                let held = line.fake.held("tools/call").await;
                held.ask(json!(id), method, params.clone());
                assert_eq!(line.fake.response(json!(id)).await["error"]["code"], code, "{method}");
                held.react(fails.clone().unwrap_or_else(|| React::Result(json!({"content": []}))));
                let outcome = call.outcome().await;
                match (fails, version) {
                    (None, _) => assert_eq!(outcome.unwrap(), json!({"content": []})),
                    (Some(_), Version::V2026_07_28) => {
                        let error = outcome.unwrap_err().into_call_error("git");
                        assert_eq!(error.kind, Kind::MissingCapability { required: Raw::of(&required) });
                    }
                    (Some(React::Result(result)), _) => assert_eq!(outcome.unwrap(), result),
                    (Some(_), _) => assert!(matches!(outcome, Err(Failure::Rpc(error)) if error == refuse())),
                }
                assert_eq!(caller.rounds().len(), 0);
            }
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_was_told_of_no_client_asks_nobody() {
    let (line, caller) = (Line::declaring(legacy(Way::Pipe), json!({}), None).await, Caller::willing());
    let call = line.call(&modern_client(&caller));
    let held = line.fake.held("tools/call").await;
    line.fake.ask(0, json!(1), "elicitation/create", form());
    assert_eq!(line.fake.response(json!(1)).await["error"]["code"], -32601);
    held.answer(json!({"content": [], "isError": true}));
    assert_eq!(call.result().await["isError"], true, "the client could: it is not told that it cannot");
    assert_eq!(caller.rounds().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn refusals_and_silence_of_the_client_are_told_to_the_server() {
    for (method, says, expected) in [
        ("elicitation/create", Says::Refuse(-1), json!({"error": {"code": -1, "message": "no"}})),
        ("elicitation/create", Says::Fail(Kind::Timeout), json!({"result": {"action": "cancel"}})),
        ("elicitation/create", Says::Fail(Kind::Cancelled), json!({"result": {"action": "cancel"}})),
        (
            "sampling/createMessage",
            Says::Fail(Kind::Timeout),
            json!({"error": {"code": -1, "message": "the client is gone"}}),
        ),
        (
            "roots/list",
            Says::Fail(Kind::Timeout),
            json!({"error": {"code": -32603, "message": "the client is gone"}}),
        ),
    ] {
        let says = Mutex::new(Some(says));
        let line = Line::to(legacy(Way::Http)).await;
        let caller = Caller::new(move |_| says.lock().unwrap().take().unwrap());
        let _call = line.call(&legacy_client(&caller));
        line.fake.held("tools/call").await.ask(json!(1), method, form());
        let response = line.fake.response(json!(1)).await;
        for member in ["error", "result"] {
            assert_eq!(response.get(member), expected.get(member), "{method}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_in_several_blocks_is_one_block_for_an_older_server() {
    let fake = Fake::new(Way::Http, |got| match got.method {
        "server/discover" => refused(-32601, "no such method"),
        "initialize" => greeting("2025-06-18", json!({})),
        _ => React::Hold,
    });
    let text = |text: &str| json!({"type": "text", "text": text});
    let blocks = json!([text("a"), text("b")]);
    let caller =
        Caller::new(move |_| Says::Result(json!({"role": "assistant", "model": "m", "content": blocks})));
    let line = Line::to(fake).await;
    let _call = line.call(&legacy_client(&caller));
    line.fake.held("tools/call").await.ask(json!(1), "sampling/createMessage", json!({}));
    assert_eq!(line.fake.response(json!(1)).await["result"]["content"], text("a\nb"));
}

#[tokio::test(start_paused = true)]
async fn on_a_pipe_a_question_is_nobodys_while_several_sessions_call() {
    let line = Line::to(legacy(Way::Pipe)).await;
    let callers: Vec<_> = (0..2).map(|_| Caller::new(|_| Says::Nothing)).collect();
    let mut calls = Vec::new();
    for (caller, session) in callers.iter().zip(["one", "another"]) {
        let mut cx = legacy_client(caller);
        cx.ids.session = session.into();
        calls.push((line.call(&cx), line.fake.held("tools/call").await));
    }
    line.fake.ask(0, json!(1), "elicitation/create", form());
    assert_eq!(line.fake.response(json!(1)).await["error"]["code"], -32603);
    assert!(callers.iter().all(|caller| caller.rounds().is_empty()));
    assert_eq!(line.news(), [News::AskedUnbound]);
}

#[tokio::test(start_paused = true)]
async fn on_a_pipe_calls_of_the_default_session_are_those_of_several_clients() {
    let line = Line::to(legacy(Way::Pipe)).await;
    let callers: Vec<_> = (0..2).map(|_| Caller::willing()).collect();
    let call = |caller| line.call(&Context { session_named: false, ..modern_client(caller) });
    let _one = call(&callers[0]);
    let _first = line.fake.held("tools/call").await;
    line.fake.ask(0, json!(1), "elicitation/create", form());
    assert_eq!(line.fake.response(json!(1)).await["result"]["action"], "accept", "it can only be this one");
    let _two = call(&callers[1]);
    let _second = line.fake.held("tools/call").await;
    line.fake.ask(0, json!(2), "elicitation/create", form());
    assert_eq!(line.fake.response(json!(2)).await["error"]["code"], -32603);
    assert!(callers[1].rounds().is_empty() && callers[0].rounds().len() == 1);
}

#[tokio::test(start_paused = true)]
async fn on_a_pipe_a_question_goes_to_the_youngest_call_that_is_not_asking() {
    let line = Line::to(legacy(Way::Pipe)).await;
    let callers: Vec<_> = (0..3).map(|_| Caller::new(|_| Says::Nothing)).collect();
    let mut calls = Vec::new();
    for caller in &callers {
        calls.push((line.call(&legacy_client(caller)), line.fake.held("tools/call").await));
    }
    let rounds = || callers.iter().map(|caller| caller.rounds().len()).collect::<Vec<_>>();
    // Two at once, before any call has looked.
    line.fake.ask(0, json!(1), "elicitation/create", form());
    line.fake.ask(0, json!(2), "sampling/createMessage", json!({}));
    settle().await;
    assert_eq!(rounds(), [0, 1, 1]);
    assert_eq!(callers[2].asked(), [["elicitation/create"]]);
    line.fake.ask(0, json!(3), "elicitation/create", form());
    settle().await;
    assert_eq!(rounds(), [1, 1, 1]);
    line.fake.ask(0, json!(4), "elicitation/create", form());
    settle().await;
    assert_eq!(rounds(), [1, 1, 2], "all ask: the youngest");
    assert_eq!(line.news(), vec![News::AskedUnbound; 4]);
    // The server takes back what an older call asks.
    line.fake.say(0, note("notifications/cancelled", json!({"requestId": 3})));
    callers[0].until(|caller| caller.withdrawn() == 1).await;
    assert_eq!((callers[1].withdrawn(), callers[2].withdrawn()), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_question_without_a_call_is_refused_but_roots_wait_for_the_first() {
    let (line, caller) = (Line::to(legacy(Way::Pipe)).await, Caller::willing());
    line.fake.ask(0, json!(1), "elicitation/create", form());
    line.fake.ask(0, json!(2), "roots/list", json!({}));
    line.fake.ask(0, json!(3), "ping", json!({}));
    assert_eq!(line.fake.response(json!(1)).await["error"]["code"], -32601);
    assert_eq!(line.fake.response(json!(3)).await["result"], json!({}));
    let call = line.call(&legacy_client(&caller));
    assert_eq!(line.fake.response(json!(2)).await["result"]["roots"][0]["uri"], "file:///home");
    line.fake.held("tools/call").await.answer(json!({}));
    call.result().await;

    // A call that has no time for them leaves them to the next; what the server takes back is not asked.
    line.fake.ask(0, json!(4), "roots/list", json!({}));
    line.fake.ask(0, json!(5), "roots/list", json!({}));
    line.fake.say(0, note("notifications/cancelled", json!({"requestId": 4})));
    let hasty = line.call(&modern_client(&caller));
    line.fake.held("tools/call").await.answer(json!({}));
    hasty.result().await;
    let _patient = line.call(&modern_client(&caller));
    assert!(line.fake.response(json!(5)).await["result"]["roots"].is_array());
    assert_eq!(caller.asked(), [["roots/list"]], "its session has said it");

    let line = Line::declaring(legacy(Way::Pipe), json!({}), None).await;
    line.fake.ask(0, json!(1), "roots/list", json!({}));
    assert_eq!(line.fake.response(json!(1)).await["error"]["code"], -32601, "nobody said that we have roots");
}

#[tokio::test(start_paused = true)]
async fn questions_on_the_stream_of_a_list_are_refused() {
    let line = Line::to(legacy(Way::Http)).await;
    let list = line.connection.list(Request::own("tools/list", Raw::empty_object()), "tools");
    let server = async {
        let held = line.fake.held("tools/list").await;
        held.ask(json!(1), "elicitation/create", form());
        let code = line.fake.response(json!(1)).await["error"]["code"].clone();
        held.answer(json!({"tools": []}));
        code
    };
    let (listed, code) = tokio::join!(list, server);
    assert_eq!((listed.unwrap().0.len(), code), (0, json!(-32601)));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_a_call_withdraws_what_its_client_was_asked() {
    let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::new(|_| Says::Nothing));
    let call = line.call(&legacy_client(&caller));
    let held = line.fake.held("tools/call").await;
    held.ask(json!(1), "elicitation/create", form());
    caller.until(|caller| caller.rounds().len() == 1).await;
    held.ask(json!(2), "roots/list", json!({}));
    held.answer(json!({"content": []}));
    call.result().await;
    caller.until(|caller| caller.withdrawn() >= 1).await;
    for id in [1, 2] {
        assert_eq!(line.fake.response(json!(id)).await["error"]["code"], -32601, "it does not wait for ever");
    }
}

#[tokio::test(start_paused = true)]
async fn a_server_that_asks_on_and_never_reads_is_not_answered_for_ever() {
    let line = Line::to(legacy(Way::Pipe)).await;
    let before = line.fake.sent().len();
    line.fake.takes.send_replace(false);
    for id in 0..100 {
        line.fake.ask(0, json!(id), "ping", json!({}));
    }
    settle().await;
    line.fake.takes.send_replace(true);
    line.fake.response(json!(63)).await;
    settle().await;
    assert_eq!(line.fake.sent().len() - before, 64);
    line.fake.ask(0, json!("later"), "ping", json!({}));
    assert_eq!(line.fake.response(json!("later")).await["result"], json!({}), "it reads again");
}

#[tokio::test(start_paused = true)]
async fn a_call_asks_its_client_only_so_much_at_once() {
    for context in [legacy_client, modern_client] {
        let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::new(|_| Says::Nothing));
        let call = line.call(&context(&caller));
        let held = line.fake.held("tools/call").await;
        for id in 0..33 {
            held.ask(json!(id), "elicitation/create", form());
        }
        assert_eq!(line.fake.response(json!(32)).await["error"]["code"], -32603);
        caller.until(|caller| caller.rounds().iter().flatten().count() == 32).await;
        held.ask(json!("ping"), "ping", json!({}));
        assert_eq!(line.fake.response(json!("ping")).await["result"], json!({}), "that takes nobody's time");
        // Where one is not open any more there is room for another.
        held.say(note("notifications/cancelled", json!({"requestId": 0})));
        held.ask(json!(33), "elicitation/create", form());
        held.ask(json!(34), "elicitation/create", form());
        assert_eq!(line.fake.response(json!(34)).await["error"]["code"], -32603);
        held.answer(json!({}));
        call.result().await;
        assert_eq!(line.fake.response(json!(33)).await["error"]["code"], -32601, "it was open to the end");
    }
}

fn addresses(entries: Value) -> React {
    React::Error(RpcError::new(-32042, "visit first").with_data(json!({"elicitations": entries})))
}

#[tokio::test(start_paused = true)]
async fn addresses_are_visited_before_a_modern_clients_call_is_made_again() {
    let (line, caller) = (Line::to(legacy(Way::Http)).await, Caller::willing());
    let call = line.call(&modern_client(&caller));
    let first = line.fake.held("tools/call").await;
    let (id, params) = (first.got.id, first.got.params.clone());
    first.react(addresses(json!([
        {"mode": "url", "elicitationId": "1", "url": "https://a.example", "message": "m"},
        {"elicitationId": "2", "url": "https://b.example", "message": "m"},
    ])));
    let second = line.fake.held("tools/call").await;
    assert_eq!(second.got.params, params);
    assert_ne!(second.got.id, id);
    second.answer(json!({"content": []}));
    assert_eq!(call.result().await, json!({"content": []}));
    let round = &caller.rounds()[0];
    assert_eq!((round.len(), &round[0].2["mode"], &round[1].2["mode"]), (2, &json!("url"), &json!("url")));
}

#[tokio::test(start_paused = true)]
async fn addresses_are_left_to_a_legacy_client_and_not_shown_to_one_that_cannot() {
    let entries = || addresses(json!([{"mode": "url", "url": "https://a.example", "message": "m"}]));
    let run = async |cx: Context| {
        let line = Line::to(legacy(Way::Http)).await;
        let call = line.call(&cx);
        line.fake.held("tools/call").await.react(entries());
        call.error().await.kind
    };
    let caller = Caller::willing();
    assert!(matches!(run(legacy_client(&caller)).await, Kind::Rpc { error } if error.code == -32042));
    let forms_only = caller.context(Version::V2026_07_28, json!({"elicitation": {}}));
    let required = Raw::of(&json!({"elicitation": {"url": {}}}));
    assert_eq!(run(forms_only).await, Kind::MissingCapability { required });
    assert_eq!(caller.rounds().len(), 0);
    let unwilling = Caller::new(|_| Says::Result(json!({"action": "decline"})));
    assert_eq!(run(modern_client(&unwilling)).await, Kind::Cancelled);
}
