//! Requests through the engine to fake upstreams.

use moongate_config::{Config, ContextFields, Glob, Route, RouteArgs};
use moongate_core::{Offer, RpcError};
use serde_json::Value;

use super::*;
use crate::{
    Member, Naming,
    fake::{Fake, catalog, defined, gateway, prompt, resource, tool},
    job::Step,
    shape::Failed,
    target::UNCHECKED,
};

const MODERN: Version = Version::V2026_07_28;

struct Scene {
    gateway: Arc<Gateway>,
    upstream: Arc<Fake>,
}

impl Scene {
    fn new(offer: Offer, answer: impl Fn(&Call) -> Result<Raw, CallError> + Send + Sync + 'static) -> Self {
        Self::with_routes(offer, answer, &[])
    }

    fn with_routes(
        offer: Offer,
        answer: impl Fn(&Call) -> Result<Raw, CallError> + Send + Sync + 'static,
        routes: &[Route],
    ) -> Self {
        let upstream = Arc::new(Fake::new(offer).answering(answer));
        let config = || Config { routes: routes.to_vec(), ..Config::default() };
        let members = vec![Member::upstream("up", Arc::clone(&upstream) as Arc<_>)];
        let catalog = catalog(members, config());
        Self { gateway: gateway(catalog, config()), upstream }
    }

    async fn caller(&self, version: Version) -> Caller {
        crate::fake::caller(&self.gateway, version).await
    }

    /// Calls from start to end.
    async fn call(&self, version: Version, method: Method, params: Value) -> Outcome {
        let params = Params::read(Raw::of(&params)).unwrap();
        let caller = self.caller(version).await;
        let request = (Id::from(1), method, &params);
        let way = Way::Rounds { responses: None };
        let outbox = outbox(&caller, &params);
        let mut job = self.gateway.begin(&caller, request, outbox, way, UNCHECKED).await?;
        match job.step().await {
            Step::Done(outcome) => outcome,
            other => panic!("{other:?}"),
        }
    }

    async fn result(&self, version: Version, method: Method, params: Value) -> Value {
        self.call(version, method, params).await.unwrap().result.parse().unwrap()
    }

    async fn quietly(&self, operation: Operation) -> Outcome {
        let caller = self.caller(MODERN).await;
        self.gateway.call_quietly(&caller, &Params::default(), operation).await
    }
}

fn offer() -> Offer {
    Offer {
        tools: vec![tool("t")],
        prompts: vec![prompt("p")],
        resources: vec![resource("x://listed")],
        ..Offer::default()
    }
}

#[tokio::test]
async fn an_upstream_is_called_by_its_own_names() {
    let scene = Scene::new(offer(), |_| Ok(Raw::empty_object()));
    scene.call(MODERN, Method::CallTool, json!({"name": "up__t"})).await.unwrap();
    let Operation::CallTool { name, .. } = scene.upstream.last_call().operation else { panic!() };
    assert_eq!(&*name, "t");
    scene.call(MODERN, Method::GetPrompt, json!({"name": "up__p"})).await.unwrap();
    let Operation::GetPrompt { name, .. } = scene.upstream.last_call().operation else { panic!() };
    assert_eq!(&*name, "p");
    let unknown = scene.call(MODERN, Method::CallTool, json!({"name": "t"})).await.unwrap_err();
    assert_eq!(unknown.public, "Unknown tool: t");

    let reference = json!({"type": "ref/prompt", "name": "up__p", "title": "x"});
    let argument = json!({"name": "a", "value": ""});
    let params = Raw::of(&json!({"ref": reference, "argument": argument}));
    scene.quietly(Operation::Complete { params }).await.unwrap();
    let Operation::Complete { params } = scene.upstream.last_call().operation else { panic!() };
    let own = json!({"type": "ref/prompt", "name": "p", "title": "x"});
    assert_eq!(params.parse::<Value>().unwrap(), json!({"ref": own, "argument": argument}));
}

#[tokio::test]
async fn a_resource_that_a_result_named_is_read_from_and_watched_at_its_owner() {
    let link = json!({"content": [{"type": "resource_link", "uri": "x://hidden", "name": "h"}]});
    let scene = Scene::new(offer(), move |_| Ok(Raw::of(&link)));
    let read = || json!({"uri": "x://hidden"});
    let unknown = scene.call(MODERN, Method::ReadResource, read()).await.unwrap_err();
    assert!(matches!(unknown.kind, Kind::UnknownResource { .. }));
    assert!(scene.quietly(Operation::Subscribe { uri: "x://hidden".into() }).await.is_err());

    scene.call(MODERN, Method::CallTool, json!({"name": "up__t"})).await.unwrap();
    scene.call(MODERN, Method::ReadResource, read()).await.unwrap();
    let Operation::ReadResource { uri } = scene.upstream.last_call().operation else { panic!() };
    assert_eq!(&*uri, "x://hidden");
    scene.quietly(Operation::Subscribe { uri: "x://hidden".into() }).await.unwrap();
    assert!(matches!(scene.upstream.last_call().operation, Operation::Subscribe { .. }));
    assert!(scene.call(MODERN, Method::ReadResource, json!({"uri": "x://other"})).await.is_err());
}

#[tokio::test]
async fn a_result_fits_the_clients_version_and_the_schema_it_was_listed() {
    let listed = json!({"name": "list", "inputSchema": {}, "outputSchema": {"type": "array"}});
    let offer = Offer { tools: vec![defined(&listed), tool("plain")], ..Offer::default() };
    let answer = json!({"content": [{"type": "resource_link", "uri": "x://a", "name": "a"}], "structuredContent": [1]});
    let scene = Scene::new(offer, move |_| Ok(Raw::of(&answer)));
    for (tool, version, expected) in [
        ("up__list", Version::V2025_03_26, None),
        ("up__list", Version::V2025_06_18, Some(json!({"result": [1]}))),
        ("up__list", MODERN, Some(json!([1]))),
        ("up__plain", Version::V2025_11_25, None),
        ("up__plain", MODERN, Some(json!([1]))),
    ] {
        let result = scene.result(version, Method::CallTool, json!({"name": tool})).await;
        assert_eq!(result.get("structuredContent").cloned(), expected, "{tool} {version}");
        let kind = if version < Version::V2025_06_18 { "text" } else { "resource_link" };
        assert_eq!(result["content"][0]["type"], kind, "{tool} {version}");
    }
}

#[tokio::test]
async fn a_missing_resource_has_the_code_of_the_clients_era_whatever_the_upstreams() {
    for said in
        [RpcError::new(-32002, "gone"), RpcError::new(-32602, "gone").with_data(json!({"uri": "x://listed"}))]
    {
        let scene =
            Scene::new(offer(), move |_| Err(CallError::upstream(Kind::Rpc { error: said.clone() }, "gone")));
        for (version, code) in [(Version::V2025_11_25, -32002), (MODERN, -32602)] {
            let read = scene.call(version, Method::ReadResource, json!({"uri": "x://listed"})).await;
            let failed = shape::error(Method::ReadResource, &read.unwrap_err(), version);
            let Failed::Error(refusal) = failed else { panic!("{failed:?}") };
            assert_eq!((refusal.error.code, &*refusal.error.message), (code, "gone"));
            assert_eq!(refusal.error.data.unwrap().as_str(), r#"{"uri":"x://listed"}"#);
        }
    }
}

#[tokio::test]
async fn a_route_edits_arguments_and_adds_context() {
    let route = |name: &str, context| Route {
        pattern: Glob::new(name).unwrap(),
        upstream: None,
        rename: None,
        description: None,
        scope: None,
        limit: None,
        timeout: None,
        args: RouteArgs { remove: vec!["secret".into()], ..RouteArgs::default() },
        context,
        hide: false,
    };
    let tools = ["fields", "meta", "plain"];
    let offer = Offer { tools: tools.map(tool).to_vec(), ..Offer::default() };
    let routes = [route("up__fields", ContextFields::Fields), route("up__meta", ContextFields::Meta)];
    let scene = Scene::with_routes(offer, |_| Ok(Raw::empty_object()), &routes);
    for (tool, arguments, meta) in [
        ("up__fields", json!({"a": 1, "__sessionId": "s1"}), None),
        ("up__meta", json!({"a": 1}), Some(json!({"x": 1, "dev.moongate/sessionId": "s1"}))),
        ("up__plain", json!({"a": 1, "secret": 2}), None),
    ] {
        let meta_sent = if meta.is_some() { json!({"x": 1}) } else { Value::Null };
        // A field of the caller's own never gets through.
        let sent = json!({"a": 1, "secret": 2, "__sessionId": "forged"});
        let params = json!({"name": tool, "arguments": sent, "_meta": meta_sent});
        scene.call(MODERN, Method::CallTool, params).await.unwrap();
        let call = scene.upstream.last_call();
        let Operation::CallTool { arguments: got, .. } = call.operation else { panic!() };
        assert_eq!(got.parse::<Value>().unwrap(), arguments, "{tool}");
        assert_eq!(call.meta.map(|meta| meta.parse::<Value>().unwrap()), meta, "{tool}");
    }
}

#[tokio::test]
async fn a_server_may_be_called_by_names_that_it_does_not_list() {
    let upstream = Arc::new(Fake::new(offer()).answering(|_| Ok(Raw::empty_object())));
    let hidden = Route {
        pattern: Glob::new("secret").unwrap(),
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
    let scene = |unlisted: Option<&str>| {
        let member = Member::upstream("up", Arc::clone(&upstream) as Arc<_>).with_naming(Naming::Bare);
        let member = member.with_unlisted(unlisted.map(Scope::new));
        Scene { gateway: gateway(catalog(vec![member], config()), config()), upstream: Arc::clone(&upstream) }
    };
    let call = async |unlisted, name: &str| {
        scene(unlisted)
            .call(MODERN, Method::CallTool, json!({"name": name}))
            .await
            .map_err(|error| error.kind)
    };
    assert_eq!(call(None, "unlisted").await.err(), Some(Kind::Unknown));
    call(Some("write"), "unlisted").await.unwrap();
    let Operation::CallTool { name, .. } = upstream.last_call().operation else { panic!() };
    assert_eq!(&*name, "unlisted");
    let needed = Scope::new(Scope::CONTEXT_WRITE);
    let refused = call(Some(Scope::CONTEXT_WRITE), "unlisted").await.err();
    assert_eq!(refused, Some(Kind::MissingScope { scope: needed }));
    for unreachable in ["secret", "", "a b"] {
        assert_eq!(call(Some("write"), unreachable).await.err(), Some(Kind::Unknown), "{unreachable:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn an_upstreams_own_limit_holds_for_quiet_calls_too() {
    let upstream = Arc::new(Fake::new(offer()));
    let limit = Duration::from_secs(7);
    let member = Member::upstream("up", Arc::clone(&upstream) as Arc<_>).with_timeout(Some(limit));
    let gateway = gateway(catalog(vec![member.clone()], Config::default()), Config::default());
    let caller = crate::fake::caller(&gateway, MODERN).await;
    let operation = Operation::Subscribe { uri: "x://listed".into() };
    let params = Params::default();
    let (_, cx) = gateway.quietly(&caller, &params, &member, operation, Inject::None).await.unwrap();
    assert_eq!(cx.deadline, Instant::now() + limit);
}
