//! Tools that only run as tasks: started, asked after, answered and cancelled for clients that know nothing of tasks.

use moongate_core::Kind;
use moongate_wire::RpcError;

use super::*;
use crate::{testing::Held, transport::Fault};

const EXTENSION: &str = "io.modelcontextprotocol/tasks";

fn as_task() -> Request<'static> {
    Request { as_task: true, ..Request::own("tools/call", Raw::of(&json!({"name": "t", "arguments": {}}))) }
}

fn told() -> Request<'static> {
    Request { capabilities: Some(Raw::of(&everything())), as_task: false, ..as_task() }
}

/// A modern task in this state, with whatever else belongs to it, as `tasks/get` answers.
fn task(status: &str, more: Value) -> Value {
    let mut task = json!({
        "resultType": "complete", "taskId": "7", "status": status, "ttlMs": null, "pollIntervalMs": 100,
    });
    task.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    task
}

/// The same as a call answers that has made it.
fn made(status: &str, more: Value) -> Value {
    let mut task = task(status, more);
    task["resultType"] = json!("task");
    task
}

/// A legacy call whose task was made, and the request for its result.
async fn waiting_for_its_result(line: &Line, cx: &Context) -> (Running, Held) {
    let call = line.request(as_task(), cx);
    let first = line.fake.held("tools/call").await;
    assert_eq!(first.got.params["task"], json!({}));
    first.answer(json!({"task": {"taskId": "7", "status": "working", "pollInterval": 100}}));
    let held = line.fake.held("tasks/result").await;
    assert_eq!(held.got.params["taskId"], "7");
    (call, held)
}

/// A modern call that was refused for want of the extension and made again with it.
async fn declared(line: &Line, cx: &Context) -> (Running, Held) {
    let call = line.request(told(), cx);
    let first = line.fake.held("tools/call").await;
    assert!(abilities(&first)["extensions"].is_null());
    let required = json!({"requiredCapabilities": {"extensions": {EXTENSION: {}}}});
    first.react(React::Error(RpcError::new(-32021, "as a task").with_data(required)));
    let second = line.fake.held("tools/call").await;
    assert_eq!(abilities(&second)["extensions"], json!({EXTENSION: {}}));
    assert_eq!(abilities(&second)["sampling"], json!({}), "what the client can do is still told");
    (call, second)
}

fn abilities(held: &Held) -> &Value {
    &held.got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"]
}

#[test]
fn a_definition_says_whether_a_tool_only_runs_as_a_task() {
    for (definition, only) in [
        (json!({"name": "t", "execution": {"taskSupport": "required"}}), true),
        (json!({"name": "t", "execution": {"taskSupport": "optional"}}), false),
        (json!({"name": "t", "execution": {}}), false),
        (json!({"name": "t", "description": "taskSupport: required"}), false),
    ] {
        assert_eq!(only_runs_as_task(&Raw::of(&definition)), only, "{definition}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_tasks_result_is_the_calls_and_says_nothing_of_the_task() {
    let (line, caller) = (Line::to(legacy(Way::Pipe)).await, Caller::willing());
    let (call, held) = waiting_for_its_result(&line, &legacy_client(&caller)).await;
    held.ask(json!(1), "roots/list", json!({}));
    assert!(line.fake.response(json!(1)).await["result"]["roots"].is_array(), "a task may ask");
    let related = json!({"io.modelcontextprotocol/related-task": {"taskId": "7"}, "own": 1});
    held.answer(json!({"content": [], "_meta": related}));
    assert_eq!(call.result().await, json!({"content": [], "_meta": {"own": 1}}));
    assert_eq!(line.fake.count("tasks/cancel"), 0);
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_may_answer_at_once_after_all() {
    let (line, caller) = (Line::to(legacy(Way::Pipe)).await, Caller::willing());
    let call = line.request(as_task(), &legacy_client(&caller));
    line.fake.held("tools/call").await.answer(json!({"content": []}));
    assert_eq!(call.result().await, json!({"content": []}));
    assert_eq!((line.fake.count("tasks/result"), line.fake.count("tasks/cancel")), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_legacy_task_is_cancelled_with_its_call() {
    let (line, caller) = (Line::to(legacy(Way::Pipe)).await, Caller::willing());
    let (call, held) = waiting_for_its_result(&line, &legacy_client(&caller)).await;
    call.cancel();
    line.fake.given_up(held.got.id).await;
    assert_eq!(line.fake.held("tasks/cancel").await.got.params["taskId"], "7");
}

#[tokio::test(start_paused = true)]
async fn a_modern_task_is_asked_after_and_told_what_it_wants_to_know_once() {
    let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, Caller::willing());
    let (call, second) = declared(&line, &legacy_client(&caller)).await;
    second.answer(made("working", json!({})));
    let get = line.fake.held("tasks/get").await;
    assert_eq!((&get.got.params["taskId"], get.got.outgoing.name.as_deref()), (&json!("7"), Some("7")));
    assert_eq!(abilities(&get)["extensions"], json!({EXTENSION: {}}));
    let asks = || task("input_required", json!({"inputRequests": {"r": {"method": "roots/list"}}}));
    get.answer(asks());
    let update = line.fake.held("tasks/update").await;
    assert_eq!(update.got.params["taskId"], "7");
    assert_eq!(update.got.params["inputResponses"], json!({"r": {"roots": [{"uri": "file:///home"}]}}));
    update.answer(json!({"resultType": "complete"}));
    // The server has not looked at the answer yet: it is not asked for again.
    line.fake.held("tasks/get").await.answer(asks());
    line.fake.held("tasks/get").await.answer(task("completed", json!({"result": {"content": []}})));
    assert_eq!(call.result().await, json!({"content": []}));
    assert_eq!(caller.asked(), [["roots/list"]]);
    assert_eq!((line.fake.count("tasks/update"), line.fake.count("tasks/cancel")), (1, 0));
}

#[tokio::test(start_paused = true)]
async fn a_modern_task_that_ends_badly_says_so() {
    let failed = json!({"error": {"code": -32099, "message": "broken"}});
    let own = Kind::Rpc { error: RpcError::new(-32099, "broken") };
    for (end, kind, text) in [
        (task("failed", failed), own, "broken"),
        (task("failed", json!({"statusMessage": "no luck"})), Kind::Unavailable, "no luck"),
        (task("cancelled", json!({})), Kind::Unavailable, "cancelled"),
    ] {
        let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, Caller::willing());
        let (call, second) = declared(&line, &legacy_client(&caller)).await;
        second.answer(made("working", json!({})));
        line.fake.held("tasks/get").await.answer(end);
        let error = call.error().await;
        assert!(error.public.contains(text), "{error}");
        assert_eq!((error.kind, line.fake.count("tasks/cancel")), (kind, 0));
    }
}

#[tokio::test(start_paused = true)]
async fn a_modern_task_is_cancelled_with_its_call() {
    let (line, caller) = (Line::to(modern(Way::Http, json!({}))).await, Caller::willing());
    let (call, second) = declared(&line, &legacy_client(&caller)).await;
    second.answer(made("working", json!({})));
    let _get = line.fake.held("tasks/get").await;
    call.cancel();
    let cancel = line.fake.held("tasks/cancel").await;
    assert_eq!((&cancel.got.params["taskId"], cancel.got.outgoing.name.as_deref()), (&json!("7"), Some("7")));
    assert_eq!(abilities(&cancel)["extensions"], json!({EXTENSION: {}}));
}

#[tokio::test(start_paused = true)]
async fn a_task_that_cannot_be_reached_any_more_is_lost_and_not_started_again() {
    for fault in [Fault::SessionGone, Fault::Unreached("refused".into())] {
        let caller = Caller::willing();
        let line = Line::to(legacy(Way::Http)).await;
        let (call, held) = waiting_for_its_result(&line, &legacy_client(&caller)).await;
        held.react(React::Lost(fault.clone()));
        assert!(matches!(call.outcome().await, Err(Failure::Fault(Fault::Lost(_)))), "{fault:?}");

        let asks = made("input_required", json!({"inputRequests": {"r": {"method": "roots/list"}}}));
        for (state, next) in [(made("working", json!({})), "tasks/get"), (asks, "tasks/update")] {
            let line = Line::to(modern(Way::Http, json!({}))).await;
            let (call, second) = declared(&line, &legacy_client(&caller)).await;
            second.answer(state);
            line.fake.held(next).await.react(React::Lost(fault.clone()));
            assert!(matches!(call.outcome().await, Err(Failure::Fault(Fault::Lost(_)))), "{next} {fault:?}");
        }
    }
}
