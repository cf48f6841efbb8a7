//! The adaptor against a backend that does as it is told.

use std::sync::Mutex;

use moongate_core::{Principal, Resource, Scope, builtin::ResourceData};

use super::*;

/// Answers `echo` with its arguments, fails `fail` in the way the argument says, and notes ended sessions.
#[derive(Default)]
struct Probe {
    ended: Mutex<Vec<SessionKey>>,
}

impl Builtin for Probe {
    fn name(&self) -> &'static str {
        "probe"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        let spec = |name, aliases, scope, effect| ToolSpec {
            name,
            title: "A title",
            description: "What it does",
            input_schema: json!({"type": "object", "properties": {"text": {"type": "string"}},
                "additionalProperties": false}),
            aliases,
            scope,
            effect,
        };
        vec![
            spec("echo", &["repeat", "say"], Scope::READ, Effect::Reads),
            spec("fail", &[], Scope::WRITE, Effect::Overwrites),
        ]
    }

    fn told_aliases(&self) -> &'static [&'static str] {
        &["say"]
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, _cx: &Context) -> Result<ToolOutput, ToolError> {
        match (tool, arguments.as_str()) {
            ("say", text) => Ok(ToolOutput::new(text, json!({"said": text}))),
            ("echo", text) => Ok(ToolOutput::new(text, json!({"heard": text}))),
            (_, r#"{"text":"denied"}"#) => {
                Err(ToolError::denied("no").with_details(json!({"success": false})))
            }
            _ => Err(CallError::missing_capability("sampling").into()),
        }
    }

    fn session_ended(&self, session: &SessionKey) {
        self.ended.lock().unwrap().push(session.clone());
    }
}

fn backend(tool_errors: ToolErrors) -> BuiltinBackend<Probe> {
    BuiltinBackend::new(Probe::default(), tool_errors)
}

fn context() -> Context {
    Context::for_test(Principal::local(), "s", None, None)
}

async fn perform(backend: &BuiltinBackend<Probe>, operation: Operation) -> Result<Value, CallError> {
    let reply = backend.call(Call::new(operation), &context()).await?;
    Ok(reply.result.parse().unwrap())
}

async fn call(backend: &BuiltinBackend<Probe>, name: &str, arguments: &str) -> Result<Value, CallError> {
    let arguments = Raw::from_text(arguments.to_owned()).unwrap();
    perform(backend, Operation::CallTool { name: name.into(), arguments }).await
}

#[tokio::test]
async fn a_success_says_that_it_is_no_error() {
    let answer = call(&backend(ToolErrors::Result), "echo", r#"{"text":"hi"}"#).await.unwrap();
    assert_eq!(answer["isError"], json!(false));
    assert_eq!(answer["content"], json!([{"type": "text", "text": r#"{"text":"hi"}"#}]));
    assert_eq!(answer["structuredContent"], json!({"heard": r#"{"text":"hi"}"#}));
}

#[tokio::test]
async fn null_arguments_are_no_arguments() {
    let answer = call(&backend(ToolErrors::Result), "echo", "null").await.unwrap();
    assert_eq!(answer["structuredContent"], json!({"heard": "{}"}));
}

#[tokio::test]
async fn aliases_reach_the_tool_under_its_own_name_unless_it_wants_to_know() {
    let backend = backend(ToolErrors::Result);
    let heard = async |name| call(&backend, name, "{}").await.unwrap()["structuredContent"].clone();
    assert_eq!(heard("repeat").await, json!({"heard": "{}"}));
    assert_eq!(heard("say").await, json!({"said": "{}"}));
    let refused = call(&backend, "say", r#"{"text":1}"#).await.unwrap();
    assert_eq!(refused["isError"], json!(true), "the schema holds under every name");
}

#[tokio::test]
async fn unknown_things_are_refused_by_kind() {
    let backend = backend(ToolErrors::Result);
    let error = call(&backend, "nope", "{}").await.unwrap_err();
    assert_eq!((&error.kind, &*error.public), (&Kind::Unknown, "Unknown tool: nope"));
    let uri: Arc<str> = "x://y".into();
    for (operation, kind) in [
        (Operation::GetPrompt { name: "p".into(), arguments: Raw::empty_object() }, Kind::Unknown),
        (Operation::Complete { params: Raw::empty_object() }, Kind::Unsupported),
        (Operation::ReadResource { uri: uri.clone() }, Kind::UnknownResource { uri: uri.clone() }),
        (Operation::Subscribe { uri: uri.clone() }, Kind::UnknownResource { uri: uri.clone() }),
        (Operation::Unsubscribe { uri: uri.clone() }, Kind::UnknownResource { uri }),
    ] {
        assert_eq!(perform(&backend, operation).await.unwrap_err().kind, kind);
    }
}

#[tokio::test]
async fn a_failure_is_a_result_the_model_reads() {
    let backend = backend(ToolErrors::Result);
    let answer = call(&backend, "fail", r#"{"text":"denied"}"#).await.unwrap();
    assert_eq!(answer["isError"], json!(true));
    assert_eq!(answer["content"][0]["text"], json!("no"));
    let expected = json!({"error": {"code": -32603, "message": "no"}, "success": false});
    assert_eq!(answer["structuredContent"], expected);
    let answer = call(&backend, "echo", r#"{"text":1}"#).await.unwrap();
    assert_eq!(answer["structuredContent"]["error"]["code"], json!(-32602));
    assert_eq!(answer["content"][0]["text"], json!("Error: text must be a string"));
}

#[tokio::test]
async fn a_failure_is_a_json_rpc_error_where_the_client_wants_that() {
    let backend = backend(ToolErrors::JsonRpc);
    let error = call(&backend, "fail", r#"{"text":"denied"}"#).await.unwrap_err();
    let Kind::Rpc { error } = error.kind else { panic!("{error:?}") };
    assert_eq!((error.code, &*error.message), (-32603, "no"));
    assert_eq!(error.data.unwrap().as_str(), r#"{"success":false}"#);
    let error = call(&backend, "echo", r#"{"nope":1}"#).await.unwrap_err();
    assert!(matches!(error.kind, Kind::Rpc { error } if error.code == -32602));
}

#[tokio::test]
async fn what_is_not_the_tools_doing_passes_through() {
    let error = call(&backend(ToolErrors::Result), "fail", "{}").await.unwrap_err();
    assert!(matches!(error.kind, Kind::MissingCapability { .. }));
}

#[tokio::test]
async fn the_offer_is_built_once_and_complete() {
    let backend = backend(ToolErrors::Result);
    let (first, second) = (backend.offer(&context()).await, backend.offer(&context()).await);
    assert!(Arc::ptr_eq(&first, &second));
    let [echo, fail] = first.tools.as_slice() else { panic!("two tools") };
    assert_eq!(echo.aliases, ["repeat".into(), "say".into()]);
    assert_eq!((echo.scope.as_str(), fail.scope.as_str()), ("read", "write"));
    let definition: Value = fail.definition.parse().unwrap();
    assert_eq!((&definition["name"], &definition["title"]), (&json!("fail"), &json!("A title")));
    assert_eq!(definition["description"], json!("What it does"));
    assert_eq!(definition["inputSchema"]["type"], json!("object"));
    assert_eq!(definition["annotations"]["readOnlyHint"], json!(false));
    assert_eq!(definition["annotations"]["destructiveHint"], json!(true));
    assert!(definition.get("aliases").is_none());
}

#[test]
fn the_end_of_a_session_is_passed_on() {
    let backend = backend(ToolErrors::Result);
    backend.session_ended(&context().session_key());
    assert_eq!(*backend.builtin.ended.lock().unwrap(), [context().session_key()]);
}

/// One resource, at `shelf://1`.
struct Shelf {
    listed: bool,
}

impl Resources for Shelf {
    fn templates(&self) -> Vec<TemplateSpec> {
        let (title, description) = ("Shelf", "What lies there");
        vec![TemplateSpec { uri_template: "shelf://{id}", name: "shelf", title, description }]
    }

    fn lists(&self) -> bool {
        self.listed
    }

    async fn list(&self, after: Option<&str>, _cx: &Context) -> Result<ResourcePage, CallError> {
        let resource = Resource { uri: "shelf://1".into(), definition: Raw::empty_object() };
        Ok(ResourcePage { resources: vec![resource], next: after.map(str::to_owned) })
    }

    async fn read(&self, uri: &str, _cx: &Context) -> Result<Vec<ResourceContents>, CallError> {
        let data = ResourceData::Blob("AA==".into());
        match uri {
            "shelf://1" => Ok(vec![ResourceContents { uri: uri.to_owned(), mime_type: "a/b".into(), data }]),
            _ => Err(CallError::unknown_resource(uri)),
        }
    }

    async fn subscribe(&self, uri: &str, cx: &Context) -> Result<(), CallError> {
        self.read(uri, cx).await.map(drop)
    }

    async fn unsubscribe(&self, uri: &str, cx: &Context) -> Result<(), CallError> {
        self.read(uri, cx).await.map(drop)
    }
}

#[tokio::test]
async fn resources_are_offered_by_template_listed_read_and_watched() {
    let shelf = Shelf { listed: true };
    let backend = BuiltinBackend::with_resources(Probe::default(), shelf, ToolErrors::Result);
    let (cx, offer) = (context(), backend.offer(&context()).await);
    assert!(offer.has_own_resources && offer.resources.is_empty());
    let definition: Value = offer.templates[0].definition.parse().unwrap();
    let described = json!({"uriTemplate": "shelf://{id}", "name": "shelf", "title": "Shelf",
        "description": "What lies there"});
    assert_eq!(definition, described);
    assert_eq!(backend.resources(Some("x"), &cx).await.unwrap().next.as_deref(), Some("x"));

    let uri = || Arc::<str>::from("shelf://1");
    let read = backend.call(Call::new(Operation::ReadResource { uri: uri() }), &cx).await.unwrap();
    let contents = json!([{"uri": "shelf://1", "mimeType": "a/b", "blob": "AA=="}]);
    assert_eq!(read.result.parse::<Value>().unwrap(), json!({"contents": contents}));
    assert_eq!(read.freshness, Some(Freshness::NONE));
    for operation in [Operation::Subscribe { uri: uri() }, Operation::Unsubscribe { uri: uri() }] {
        let answer = backend.call(Call::new(operation), &cx).await.unwrap();
        assert_eq!(answer.result.as_str(), "{}");
    }
    let foreign = Call::new(Operation::ReadResource { uri: "shelf://2".into() });
    assert!(matches!(backend.call(foreign, &cx).await.unwrap_err().kind, Kind::UnknownResource { .. }));
}

#[tokio::test]
async fn resources_that_are_never_listed_are_offered_by_template_alone() {
    let shelf = Shelf { listed: false };
    let backend = BuiltinBackend::with_resources(Probe::default(), shelf, ToolErrors::Result);
    let offer = backend.offer(&context()).await;
    assert_eq!((offer.templates.len(), offer.has_own_resources), (1, false));
}

#[tokio::test]
async fn who_has_tools_only_has_no_resources() {
    let backend = backend(ToolErrors::Result);
    assert!(!backend.offer(&context()).await.has_own_resources);
    assert!(backend.resources(None, &context()).await.unwrap().resources.is_empty());
    let read = Call::new(Operation::ReadResource { uri: "shelf://1".into() });
    assert!(matches!(backend.call(read, &context()).await.unwrap_err().kind, Kind::UnknownResource { .. }));
}
