//! Questions of modern servers: a result that asks, and the call made again with the answers.

use std::time::Duration;

use moongate_core::{Ask, Kind};
use tokio::time::Instant;

use super::*;
use crate::testing::Says;

fn input(questions: Value, state: Option<&str>) -> Value {
    let mut result = json!({"resultType": "input_required", "inputRequests": questions});
    if let Some(state) = state {
        result["requestState"] = json!(state);
    }
    result
}

fn form() -> Value {
    json!({"method": "elicitation/create", "params": {"message": "?", "requestedSchema": {}}})
}

/// Told with each request, as the server does it.
fn told() -> Request<'static> {
    Request {
        capabilities: Some(Raw::of(&everything())),
        ..Request::own("tools/call", Raw::of(&json!({"name": "t", "arguments": {"x": 1}})))
    }
}

#[tokio::test(start_paused = true)]
async fn the_call_is_made_again_with_the_answers_under_their_keys_and_the_exact_state() {
    for context in [legacy_client, modern_client] {
        let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, Caller::willing());
        let call = line.request(told(), &context(&caller));
        let first = line.fake.held("tools/call").await;
        let (id, params) = (first.got.id, first.got.params.clone());
        first.answer(input(json!({"z": form(), "a": {"method": "roots/list"}}), Some("st\u{e4}te \"1\"")));
        let second = line.fake.held("tools/call").await;
        assert_ne!(second.got.id, id);
        let mut again = second.got.params.clone();
        let responses = again.as_object_mut().unwrap().remove("inputResponses").unwrap();
        assert_eq!(responses["z"], json!({"action": "accept", "content": {"a": 1}}));
        assert_eq!(responses["a"], json!({"roots": [{"uri": "file:///home"}]}));
        assert_eq!(again.as_object_mut().unwrap().remove("requestState").unwrap(), "st\u{e4}te \"1\"");
        assert_eq!(again, params, "the same call otherwise");
        // Another round without a state: nothing of the last one is left.
        second.answer(input(json!({"b": form()}), None));
        let third = line.fake.held("tools/call").await;
        assert!(third.got.params.get("requestState").is_none());
        let keys: Vec<_> = third.got.params["inputResponses"].as_object().unwrap().keys().collect();
        assert_eq!(keys, ["b"]);
        third.answer(json!({"resultType": "complete", "content": []}));
        assert_eq!(call.result().await, json!({"content": []}));
        assert_eq!(caller.asked(), [vec!["roots/list", "elicitation/create"], vec!["elicitation/create"]]);
    }
}

#[tokio::test(start_paused = true)]
async fn a_round_that_only_carries_state_waits_a_moment() {
    let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, Caller::willing());
    let call = line.request(told(), &legacy_client(&caller));
    line.fake.held("tools/call").await.answer(json!({"resultType": "input_required", "requestState": "s"}));
    let before = Instant::now();
    let second = line.fake.held("tools/call").await;
    assert_eq!(before.elapsed(), Duration::from_millis(250));
    assert_eq!(second.got.params["requestState"], "s");
    assert!(second.got.params.get("inputResponses").is_none());
    second.answer(json!({"resultType": "complete"}));
    call.result().await;
    assert_eq!(caller.rounds().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn ten_rounds_are_enough() {
    for (rounds, enough) in [(10, true), (11, false)] {
        let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, Caller::willing());
        let call = line.request(told(), &legacy_client(&caller));
        for _ in 0..rounds {
            line.fake.held("tools/call").await.answer(input(json!({"a": form()}), None));
        }
        if enough {
            line.fake.held("tools/call").await.answer(json!({"resultType": "complete"}));
            assert_eq!(call.result().await, json!({}));
        } else {
            let error = call.error().await;
            assert!(error.public.contains("git") && error.public.contains("again and again"), "{error}");
        }
        assert_eq!(caller.rounds().len(), 10, "nobody is asked in vain");
    }
}

#[tokio::test(start_paused = true)]
async fn a_refused_form_is_cancelled_and_a_refused_prompt_ends_the_call() {
    let refuse = || Caller::new(|_| Says::Refuse(-1));
    let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, refuse());
    let call = line.request(told(), &legacy_client(&caller));
    line.fake.held("tools/call").await.answer(input(json!({"a": form()}), None));
    let second = line.fake.held("tools/call").await;
    assert_eq!(second.got.params["inputResponses"], json!({"a": {"action": "cancel"}}));
    second.answer(input(json!({"b": {"method": "sampling/createMessage", "params": {}}}), None));
    assert_eq!(call.result().await["isError"], true);

    let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, refuse());
    let call = line.request(Request { method: "prompts/get", ..told() }, &legacy_client(&caller));
    line.fake.held("prompts/get").await.answer(input(json!({"b": {"method": "roots/list"}}), None));
    assert!(matches!(call.error().await.kind, Kind::Rpc { error } if error.code == -1));
}

#[tokio::test(start_paused = true)]
async fn configured_roots_answer_a_modern_server_too() {
    let roots = super::listed_roots(&["file:///srv".to_owned()]);
    let line = Line::declaring(modern(Way::Http, json!({})), everything(), Some(roots)).await;
    let caller = Caller::willing();
    let call = line.request(told(), &legacy_client(&caller));
    line.fake.held("tools/call").await.answer(input(json!({"r": {"method": "roots/list"}}), None));
    let second = line.fake.held("tools/call").await;
    assert_eq!(second.got.params["inputResponses"]["r"], json!({"roots": [{"uri": "file:///srv"}]}));
    second.answer(json!({"resultType": "complete"}));
    call.result().await;
    assert_eq!(caller.rounds().len(), 0);
}

#[tokio::test(start_paused = true)]
async fn what_the_client_did_not_declare_is_named_and_an_unknown_mode_is_cancelled() {
    let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, Caller::willing());
    let call = line.request(told(), &caller.context(Version::V2026_07_28, json!({"elicitation": {}})));
    let url = json!({"method": "elicitation/create", "params": {"mode": "url", "url": "https://a.example"}});
    line.fake.held("tools/call").await.answer(input(json!({"u": url, "f": form()}), None));
    let second = line.fake.held("tools/call").await;
    assert_eq!(second.got.params["inputResponses"]["u"], json!({"action": "cancel"}));
    assert_eq!(second.got.params["inputResponses"]["f"]["action"], "accept");
    second.answer(input(json!({"s": {"method": "sampling/createMessage"}}), None));
    let required = Raw::of(&json!({"sampling": {}}));
    assert_eq!(call.error().await.kind, Kind::MissingCapability { required });
}

#[tokio::test(start_paused = true)]
async fn a_modern_server_that_breaks_the_rules_gets_nothing() {
    let sampling = json!({"s": {"method": "sampling/createMessage"}});
    for (ask, result) in [
        (told(), json!({"resultType": "task", "taskId": "1"})),
        (told(), input(json!({"x": {"method": "tasks/list"}}), None)),
        (Request { method: "completion/complete", ..told() }, input(json!({"a": form()}), None)),
        // It was told that nobody can be asked, because all share it.
        (Request { capabilities: None, ..told() }, input(sampling, None)),
    ] {
        let caller = Caller::willing();
        let line = Line::declaring(modern(Way::Http, json!({})), json!({}), None).await;
        let method = ask.method;
        let call = line.request(ask, &legacy_client(&caller));
        line.fake.held(method).await.answer(result);
        let error = call.error().await;
        assert!(error.public.starts_with("The upstream git gave no valid answer"), "{error}");
        assert_eq!((error.kind, caller.rounds().len()), (Kind::Unavailable, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_request_of_a_modern_server_fails_the_call_and_is_not_answered() {
    for way in [Way::Http, Way::Pipe] {
        let (line, caller) = (Line::to(modern(way, json!({}))).await, Caller::willing());
        let call = line.request(told(), &legacy_client(&caller));
        let held = line.fake.held("tools/call").await;
        match way {
            Way::Http => held.ask(json!(1), "elicitation/create", json!({})),
            Way::Pipe => line.fake.ask(0, json!(1), "elicitation/create", json!({})),
        }
        assert!(call.error().await.public.contains("it sent a request"));
        line.fake.given_up(held.got.id).await;
        line.fake.ask(0, json!(2), "ping", json!({}));
        crate::testing::settle().await;
        assert_eq!((line.fake.sent().len(), line.news().len(), caller.rounds().len()), (0, 0, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn an_answer_of_the_client_goes_on_as_it_is() {
    let blocks = json!([{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]);
    let content = blocks.clone();
    let caller = Caller::new(move |question| match question {
        Ask::Sample { .. } => Says::Result(json!({"role": "assistant", "content": content})),
        _ => Says::Nothing,
    });
    let line = Line::to(modern(Way::Http, json!({}))).await;
    let _call = line.request(told(), &legacy_client(&caller));
    line.fake
        .held("tools/call")
        .await
        .answer(input(json!({"s": {"method": "sampling/createMessage"}}), None));
    let second = line.fake.held("tools/call").await;
    assert_eq!(second.got.params["inputResponses"]["s"]["content"], blocks);
}

#[tokio::test(start_paused = true)]
async fn a_task_of_a_server_that_all_share_asks_nobody_either() {
    for (told, asks) in [(told(), true), (Request { capabilities: None, ..told() }, false)] {
        let line = Line::declaring(modern(Way::Http, json!({})), json!({}), None).await;
        let caller = Caller::willing();
        let _call = line.request(told, &legacy_client(&caller));
        let tasks = json!({"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}});
        let refused = moongate_wire::RpcError::new(-32021, "as a task").with_data(tasks);
        line.fake.held("tools/call").await.react(React::Error(refused));
        let question = json!({"s": {"method": "sampling/createMessage"}});
        let task = json!({"resultType": "task", "taskId": "1", "status": "input_required", "inputRequests": question});
        line.fake.held("tools/call").await.answer(task);
        let _next = line.fake.held(if asks { "tasks/update" } else { "tasks/cancel" }).await;
        assert_eq!(caller.rounds().len(), usize::from(asks));
    }
}
