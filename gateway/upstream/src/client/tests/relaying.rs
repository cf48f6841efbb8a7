//! Tasks that clients follow themselves: made, asked after, answered, cancelled and watched.

use moongate_core::{Kind, TASKS, TaskAct};

use super::*;
use crate::testing::{note, settle};

const LISTEN: &str = "subscriptions/listen";

/// A server that makes tasks.
async fn line() -> Line {
    Line::to(modern(Way::Http, json!({"tools": {}, "extensions": {TASKS: {}}}))).await
}

fn knowing(caller: &Arc<Caller>) -> Context {
    caller.context(Version::V2026_07_28, json!({"extensions": {TASKS: {}}}))
}

fn declared() -> Raw {
    Raw::of(&json!({"extensions": {TASKS: {}}}))
}

fn relaying() -> Request<'static> {
    Request {
        capabilities: Some(declared()),
        relays_tasks: true,
        ..Request::own("tools/call", Raw::of(&json!({"name": "t", "arguments": {}})))
    }
}

fn task(kind: &str, status: &str) -> Value {
    json!({"resultType": kind, "taskId": "7", "status": status, "ttlMs": 5000})
}

async fn acts(line: &Line, act: TaskAct) -> Result<Reply, Failure> {
    soon(line.connection.act_on_task(&"7".into(), &act, declared(), None)).await
}

/// A call that was answered with a task: the reply.
async fn made(line: &Line, said: Value) -> Result<Reply, Failure> {
    let call = line.request(relaying(), &knowing(&Caller::willing()));
    line.fake.held("tools/call").await.answer(said);
    soon(call.outcome).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_task_is_given_to_a_client_that_knows_tasks_and_keeps_the_server_until_it_has_ended() {
    let line = line().await;
    let reply = made(&line, task("task", "working")).await.unwrap();
    assert_eq!(reply.task.as_deref(), Some("7"));
    assert_eq!(value(&reply.result), json!({"taskId": "7", "status": "working", "ttlMs": 5000}));
    assert!(line.connection.is_busy());
    for (status, busy) in [("working", true), ("input_required", true), ("completed", false)] {
        let server = async {
            let get = line.fake.held("tasks/get").await;
            assert_eq!(
                (&get.got.params["taskId"], get.got.outgoing.name.as_deref()),
                (&json!("7"), Some("7"))
            );
            let told = &get.got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
            assert_eq!(told["extensions"], json!({TASKS: {}}));
            get.answer(task("complete", status));
        };
        let (got, ()) = tokio::join!(acts(&line, TaskAct::Get), server);
        assert_eq!(value(&got.unwrap().result)["status"], status);
        assert_eq!(line.connection.is_busy(), busy, "{status}");
    }
    made(&line, task("task", "working")).await.unwrap();
    tokio::time::advance(std::time::Duration::from_secs(5)).await;
    assert!(!line.connection.is_busy(), "nobody waits longer than the server keeps it");
}

#[tokio::test(start_paused = true)]
async fn answers_and_cancellation_are_passed_on() {
    let line = line().await;
    let responses = Raw::of(&json!({"a": {"action": "accept"}}));
    for (act, method) in [(TaskAct::Update { responses }, "tasks/update"), (TaskAct::Cancel, "tasks/cancel")]
    {
        let server = async {
            let held = line.fake.held(method).await;
            assert_eq!(held.got.params["taskId"], "7");
            let answers = (method == "tasks/update").then(|| json!({"a": {"action": "accept"}}));
            assert_eq!(held.got.params.get("inputResponses").cloned(), answers);
            held.answer(json!({"resultType": "complete"}));
        };
        let (done, ()) = tokio::join!(acts(&line, act), server);
        assert_eq!(value(&done.unwrap().result), json!({}));
    }
}

#[tokio::test(start_paused = true)]
async fn what_is_no_task_or_another_one_is_not_passed_on() {
    let line = line().await;
    for said in [json!({"resultType": "task"}), json!({"resultType": "task", "taskId": ""})] {
        assert!(matches!(made(&line, said.clone()).await, Err(Failure::Invalid(_))), "{said}");
    }
    let long = json!({"resultType": "task", "taskId": "x".repeat(1025)});
    assert!(matches!(made(&line, long).await, Err(Failure::Invalid(_))));
    for said in
        [json!({"resultType": "complete", "taskId": "8", "status": "working"}), json!({"taskId": "7"})]
    {
        let server = async { line.fake.held("tasks/get").await.answer(said.clone()) };
        let (got, ()) = tokio::join!(acts(&line, TaskAct::Get), server);
        assert!(matches!(got, Err(Failure::Invalid(_))), "{said}");
    }
    // A task that nobody declared to know.
    let call = line.call(&modern_client(&Caller::willing()));
    line.fake.held("tools/call").await.answer(task("task", "working"));
    assert!(matches!(call.outcome().await, Err(Failure::Invalid(_))));
}

#[tokio::test(start_paused = true)]
async fn a_modern_client_that_knows_no_tasks_is_told_so_and_one_that_does_has_them_run() {
    let line = Line::to(modern(Way::Http, json!({}))).await;
    let required = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    let refusal = || React::Error(moongate_wire::RpcError::new(-32021, "as a task").with_data(&required));
    let call = line.call(&modern_client(&Caller::willing()));
    line.fake.held("tools/call").await.react(refusal());
    let told = Kind::MissingCapability { required: declared() };
    assert_eq!(call.error().await.kind, told);
    assert_eq!(line.fake.count("tools/call"), 1);
    // It is the server that was not told, as one that all share.
    let call = line.call(&knowing(&Caller::willing()));
    line.fake.held("tools/call").await.react(refusal());
    line.fake.held("tools/call").await.answer(task("task", "working"));
    let mut done = task("complete", "completed");
    done["result"] = json!({"content": []});
    line.fake.held("tasks/get").await.answer(done);
    assert_eq!(call.result().await, json!({"content": []}));
}

#[tokio::test(start_paused = true)]
async fn a_driven_call_may_ask_before_it_makes_its_task() {
    let (line, caller) = (line().await, Caller::willing());
    let call = line.call(&legacy_client(&caller));
    let required = json!({"requiredCapabilities": {"extensions": {TASKS: {}}}});
    let refusal = moongate_wire::RpcError::new(-32021, "as a task").with_data(required);
    line.fake.held("tools/call").await.react(React::Error(refusal));
    let asks = json!({"resultType": "input_required", "inputRequests": {"r": {"method": "roots/list"}}});
    line.fake.held("tools/call").await.answer(asks);
    let again = line.fake.held("tools/call").await;
    assert!(again.got.params["inputResponses"]["r"]["roots"].is_array());
    let told = &again.got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
    assert!(told["extensions"][TASKS].is_object());
    again.answer(task("task", "working"));
    let mut done = task("complete", "completed");
    done["result"] = json!({"content": []});
    line.fake.held("tasks/get").await.answer(done);
    assert_eq!(call.result().await, json!({"content": []}));
}

fn acknowledge(filter: Value) -> moongate_wire::Message {
    note("notifications/subscriptions/acknowledged", json!({"notifications": filter}))
}

#[tokio::test(start_paused = true)]
async fn a_watched_task_is_news_and_others_are_not() {
    let line = line().await;
    let server = async {
        let listen = line.fake.held(LISTEN).await;
        assert_eq!(listen.got.params["notifications"], json!({"taskIds": ["7"]}));
        let told = &listen.got.params["_meta"]["io.modelcontextprotocol/clientCapabilities"];
        assert_eq!(told["extensions"], json!({TASKS: {}}));
        listen.say(acknowledge(json!({"taskIds": ["7"]})));
        listen
    };
    let (watched, listen) = tokio::join!(acts(&line, TaskAct::Watch), server);
    watched.unwrap();
    assert!(line.connection.is_busy());
    acts(&line, TaskAct::Watch).await.unwrap();
    let meta = json!({"io.modelcontextprotocol/subscriptionId": 2});
    for id in ["8", "7"] {
        listen.say(note("notifications/tasks", json!({"taskId": id, "status": "completed", "_meta": meta})));
    }
    settle().await;
    let said = Raw::of(&json!({"status": "completed", "taskId": "7"}));
    assert_eq!(line.news(), [News::Task { id: "7".into(), task: said }]);
    acts(&line, TaskAct::Unwatch).await.unwrap();
    assert!(!line.fake.is_given_up(listen.got.id), "somebody watches it still");
    acts(&line, TaskAct::Unwatch).await.unwrap();
    line.fake.given_up(listen.got.id).await;
    assert!(!line.connection.is_busy());
}

#[tokio::test(start_paused = true)]
async fn a_task_that_the_server_does_not_tell_of_is_not_watched() {
    let line = line().await;
    let server = async { line.fake.held(LISTEN).await.say(acknowledge(json!({}))) };
    let (watched, ()) = tokio::join!(acts(&line, TaskAct::Watch), server);
    assert!(matches!(watched, Err(Failure::Invalid(_))));
    settle().await;
    assert!(!line.connection.is_busy());
    let other = Line::to(modern(Way::Http, json!({}))).await;
    let refused = acts(&other, TaskAct::Get).await;
    assert!(matches!(refused, Err(Failure::Rpc(error)) if error.code == -32602), "it makes no tasks");
}
