//! Ids of tasks, and what may be done with them, through a gateway in front of a fake upstream.

use moongate_config::{Config, ContextFields, Glob, Route, RouteArgs};
use moongate_core::{Call, Client, Kind, Offer};
use moongate_wire::Id;
use serde_json::{Value, json};

use super::*;
use crate::{
    Catalog, Snapshot,
    engine::{Way, outbox},
    fake::{Fake, caller, catalog, gate, gateway, tool},
    job::Step,
};

const MODERN: Version = Version::V2026_07_28;

/// An upstream that makes a task of every call, and describes it so.
fn upstream(task: Value) -> Arc<Fake> {
    let offer = Offer { tools: vec![tool("t")], ..Offer::default() };
    Arc::new(Fake::new(offer).answering(move |call: &Call| {
        let made = matches!(call.operation, Operation::CallTool { .. });
        let reply: Reply = Raw::of(&task).into();
        Ok::<_, CallError>(Reply { task: made.then(|| "their/id".into()), ..reply })
    }))
}

fn members(upstream: &Arc<Fake>) -> Vec<Member> {
    vec![Member::upstream("up", Arc::clone(upstream) as Arc<_>).with_tasks(Arc::new(|| true))]
}

fn scene(task: Value) -> (Arc<Gateway>, Arc<Fake>) {
    let upstream = upstream(task);
    (gateway(catalog(members(&upstream), Config::default()), Config::default()), upstream)
}

async fn knowing(gateway: &Gateway) -> Caller {
    let capabilities = Raw::of(&json!({"extensions": {TASKS: {}}}));
    let client = Arc::new(Client { capabilities, ..Client::bare(MODERN) });
    Caller { client, ..caller(gateway, MODERN).await }
}

fn named(id: &str) -> Params {
    Params::read(Raw::of(&json!({"taskId": id, "inputResponses": {"a": 1}}))).unwrap()
}

/// Calls the tool: the id of the task it made.
async fn made(gateway: &Arc<Gateway>, caller: &Caller) -> String {
    let params = Params::read(Raw::of(&json!({"name": "up__t"}))).unwrap();
    let (request, way) = ((Id::from(1), Method::CallTool, &params), Way::Rounds { responses: None });
    let job = gateway.begin(caller, request, outbox(caller, &params), way, &|_, _| Ok(Vec::new())).await;
    let Step::Done(Ok(reply)) = job.unwrap().step().await else { panic!("no task") };
    let message: Value = shape::message(&Id::from(1), Method::CallTool, &reply, MODERN).parse().unwrap();
    assert_eq!(message["result"]["resultType"], "task");
    message["result"]["taskId"].as_str().unwrap().to_owned()
}

#[tokio::test]
async fn a_task_is_known_by_an_id_of_ours_and_reached_by_its_own() {
    let (gateway, upstream) = scene(json!({"taskId": "their/id", "status": "working", "ttlMs": 7}));
    let caller = knowing(&gateway).await;
    let id = made(&gateway, &caller).await;
    assert!(!id.contains("their"), "{id}");
    let got = gateway.task(&caller, Method::GetTask, &named(&id)).await.unwrap();
    let got: Value = got.result.parse().unwrap();
    assert_eq!(got, json!({"taskId": id, "status": "working", "ttlMs": 7}));
    for method in [Method::GetTask, Method::UpdateTask, Method::CancelTask] {
        gateway.task(&caller, method, &named(&id)).await.unwrap();
        let Operation::Task { id, act } = upstream.last_call().operation else { panic!("{method:?}") };
        assert_eq!(&*id, "their/id");
        match (method, act) {
            (Method::GetTask, TaskAct::Get) | (Method::CancelTask, TaskAct::Cancel) => {}
            (Method::UpdateTask, TaskAct::Update { responses }) => {
                assert_eq!(responses, Raw::of(&json!({"a": 1})));
            }
            (method, act) => panic!("{method:?} {act:?}"),
        }
    }
    let without = Params::read(Raw::of(&json!({"taskId": id}))).unwrap();
    let error = gateway.task(&caller, Method::UpdateTask, &without).await.unwrap_err();
    assert_eq!(error.kind, Kind::InvalidParams);
}

#[tokio::test]
async fn an_id_is_good_for_one_principal_on_one_path_under_one_key() {
    let keyring = || Arc::new(Keyring::fixed(&moongate_security::Secret::random()).unwrap());
    let (ids, other) = (TaskIds::new(keyring()), TaskIds::new(keyring()));
    let ticket =
        || Ticket { upstream: "up".into(), shown: "up__t".into(), tool: "t".into(), task: "their/id".into() };
    let ada: Principal = "issued:ada".parse().unwrap();
    let bob: Principal = "issued:bob".parse().unwrap();
    let id = ids.seal(&owner(&ada, Some("p")), &ticket());
    assert_eq!(&*ids.open(&owner(&ada, Some("p")), &id).unwrap().task, "their/id");
    for (who, path) in [(&ada, None), (&ada, Some("q")), (&bob, Some("p"))] {
        assert!(ids.open(&owner(who, path), &id).is_none(), "{who} {path:?}");
    }
    assert!(other.open(&owner(&ada, Some("p")), &id).is_none());
    let parked = ids.0.seal(Purpose::ParkedState, &owner(&ada, Some("p")), b"{}");
    assert!(ids.open(&owner(&ada, Some("p")), &parked).is_none());
}

#[tokio::test]
async fn a_request_is_refused_for_what_it_lacks_first() {
    let (gateway, _) = scene(json!({"taskId": "their/id", "status": "working"}));
    let caller = knowing(&gateway).await;
    let id = made(&gateway, &caller).await;
    let plain = crate::fake::caller(&gateway, MODERN).await;
    let kind = async |caller: &Caller, id: &str| {
        gateway.task(caller, Method::GetTask, &named(id)).await.unwrap_err().kind
    };
    let required = Raw::of(&json!({"extensions": {TASKS: {}}}));
    assert_eq!(kind(&plain, &id).await, Kind::MissingCapability { required: required.clone() });
    assert_eq!(kind(&plain, "any").await, Kind::MissingCapability { required });
    assert_eq!(kind(&caller, "any").await, Kind::InvalidParams);
    // Where nobody is known to make tasks there is no such method, but for whoever has one.
    let upstream = upstream(json!({"taskId": "their/id", "status": "working"}));
    let silent = vec![Member::upstream("up", upstream as Arc<_>)];
    let snapshot = Snapshot {
        config: Arc::new(Config::default()),
        gate: gate(),
        catalog: catalog(silent, Config::default()),
    };
    gateway.reload(snapshot);
    let caller = knowing(&gateway).await;
    assert_eq!(kind(&caller, "any").await, Kind::Unsupported);
    assert!(gateway.task(&caller, Method::GetTask, &named(&id)).await.is_ok());
}

#[tokio::test]
async fn who_may_not_call_the_tool_any_more_may_not_ask_after_its_tasks() {
    let (gateway, upstream) = scene(json!({"taskId": "their/id", "status": "working"}));
    let caller = knowing(&gateway).await;
    let id = made(&gateway, &caller).await;
    let hidden = Route {
        pattern: Glob::new("up__*").unwrap(),
        upstream: None,
        rename: None,
        description: None,
        scope: None,
        limit: None,
        timeout: None,
        args: RouteArgs::default(),
        context: ContextFields::None,
        hide: true,
    };
    let config = || Config { routes: vec![hidden.clone()], ..Config::default() };
    let catalog: Catalog = catalog(members(&upstream), config());
    gateway.reload(Snapshot { config: Arc::new(config()), gate: gate(), catalog });
    let caller = knowing(&gateway).await;
    let error = gateway.task(&caller, Method::GetTask, &named(&id)).await.unwrap_err();
    assert_eq!(error.kind, Kind::Unknown, "{error}");
}

#[tokio::test]
async fn a_result_is_the_tools_and_an_error_the_calls() {
    let result = json!({"content": [{"type": "resource_link", "uri": "x://y", "name": "y"}]});
    let (gateway, _) = scene(json!({"taskId": "their/id", "status": "completed", "result": result}));
    let caller = knowing(&gateway).await;
    let id = made(&gateway, &caller).await;
    let got = gateway.task(&caller, Method::GetTask, &named(&id)).await.unwrap();
    let got: Value = got.result.parse().unwrap();
    assert_eq!(got["result"]["resultType"], "complete");
    assert_eq!(got["result"]["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "moongate");
    assert_eq!(got["result"]["content"], result["content"]);
    assert!(gateway.learnt.knows(caller.admitted.principal(), &"up".into(), "x://y"), "it may be read now");

    for (said, told) in [(-32603, -32603), (-32000, -32603), (-32099, -32099)] {
        let error = json!({"code": said, "message": "m"});
        let (gateway, _) = scene(json!({"taskId": "their/id", "status": "failed", "error": error}));
        let caller = knowing(&gateway).await;
        let id = made(&gateway, &caller).await;
        let got = gateway.task(&caller, Method::GetTask, &named(&id)).await.unwrap();
        let got: Value = got.result.parse().unwrap();
        assert_eq!(got["error"]["code"], told, "{said}");
    }
}
