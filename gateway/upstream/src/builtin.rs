//! A backend of this process behind the trait the router knows.
//!
//! In: calls by name or alias, with arguments as the caller wrote them. Out: the result object, `isError` always said.
//! This is where arguments meet the published schema; who may call what is decided before a call gets here.

use std::{fmt, future::ready, sync::Arc};

use moongate_core::{
    Backend, BoxFuture, Builtin, Call, CallError, Context, Kind, Offer, Operation, Raw, Reply, ResourcePage,
    Resources, RpcError, SessionKey, Template, Tool,
    builtin::{Effect, Failure, ResourceContents, TemplateSpec, ToolError, ToolOutput, ToolSpec},
    call::Freshness,
    hash,
};
use moongate_wire::write;
use serde_json::{Map, Value, json};

use crate::schema::Schema;

/// A [`Builtin`] as a [`Backend`]; `R` says what can be read by address there.
pub struct BuiltinBackend<B, R = NoResources> {
    builtin: B,
    resources: R,
    schemas: Vec<Schema>,
    by_name: hash::Map<Arc<str>, Name>,
    offer: Arc<Offer>,
    tool_errors: ToolErrors,
}

/// The [`Resources`] of a backend that has none.
#[derive(Clone, Copy, Debug)]
pub struct NoResources;

/// How a failure inside a known tool is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolErrors {
    /// As a result with `isError: true`, which the model gets to read.
    #[default]
    Result,
    /// As a JSON-RPC error, for clients that want the code.
    JsonRpc,
}

/// A name or alias of a tool.
struct Name {
    index: usize,
    /// What the backend gets to hear.
    told: &'static str,
}

impl<B: Builtin> BuiltinBackend<B> {
    /// Puts `builtin`, which has tools only, behind the seam.
    pub fn new(builtin: B, tool_errors: ToolErrors) -> Self {
        Self::with_resources(builtin, NoResources, tool_errors)
    }
}

impl<B: Builtin, R: Resources> BuiltinBackend<B, R> {
    /// Puts `builtin` and what can be read by address there behind the seam.
    pub fn with_resources(builtin: B, resources: R, tool_errors: ToolErrors) -> Self {
        let specs = builtin.tools();
        let mut by_name = hash::Map::default();
        for (index, spec) in specs.iter().enumerate() {
            by_name.extend(spec.names().map(|name| (name, Name { index, told: spec.name })));
        }
        for alias in builtin.told_aliases() {
            by_name.entry((*alias).into()).and_modify(|name| name.told = alias);
        }
        let templates: Vec<_> = resources.templates().iter().map(|spec| Arc::new(template(spec))).collect();
        let offer = Offer {
            tools: specs.iter().map(|spec| Arc::new(tool(spec))).collect(),
            has_own_resources: resources.lists(),
            templates,
            ..Offer::default()
        };
        let schemas = specs.into_iter().map(|spec| Schema::new(spec.input_schema)).collect();
        Self { builtin, resources, schemas, by_name, offer: Arc::new(offer), tool_errors }
    }

    fn find(&self, name: &str) -> Option<(&'static str, &Schema)> {
        let Name { index, told } = self.by_name.get(name)?;
        Some((told, self.schemas.get(*index)?))
    }

    /// The tool called `name` and arguments that fit it.
    fn prepare(&self, name: &str, arguments: Raw) -> Result<(&'static str, Raw), ToolError> {
        let unknown = || CallError::client(Kind::Unknown, format!("Unknown tool: {name}"));
        let (tool, schema) = self.find(name).ok_or_else(unknown)?;
        // Some clients send `"arguments": null` for a tool without arguments.
        let arguments = if arguments.is_null() { Raw::empty_object() } else { arguments };
        schema.check(&arguments)?;
        Ok((tool, arguments))
    }

    fn reply(&self, outcome: Result<ToolOutput, ToolError>) -> Result<Reply, CallError> {
        match outcome {
            Ok(output) => Ok(Reply { may_have_meta: false, ..output.into_result().into() }),
            Err(ToolError::Failed(failure)) => self.failed(failure),
            Err(ToolError::Call(error)) => Err(error),
        }
    }

    fn failed(&self, failure: Failure) -> Result<Reply, CallError> {
        match self.tool_errors {
            ToolErrors::Result => {
                let result = write::ToolResult::text(&failure.message);
                Ok(result.structured(&structured(failure)).finish(true).into())
            }
            ToolErrors::JsonRpc => {
                let mut error = RpcError::new(failure.code, failure.message.clone());
                error.data = failure.details.as_ref().map(Raw::of);
                Err(CallError::client(Kind::Rpc { error }, failure.message))
            }
        }
    }
}

impl<B: Builtin, R: Resources> Backend for BuiltinBackend<B, R> {
    fn offer<'a>(&'a self, _cx: &'a Context) -> BoxFuture<'a, Arc<Offer>> {
        Box::pin(ready(Arc::clone(&self.offer)))
    }

    fn call<'a>(&'a self, call: Call, cx: &'a Context) -> BoxFuture<'a, Result<Reply, CallError>> {
        let refusal = match call.operation {
            Operation::CallTool { name, arguments } => {
                // Before the future, which is smaller for it: each call moves one to the heap.
                let (tool, arguments) = match self.prepare(&name, arguments) {
                    Ok(prepared) => prepared,
                    Err(error) => return Box::pin(ready(self.reply(Err(error)))),
                };
                return Box::pin(
                    async move { self.reply(self.builtin.call_tool(tool, arguments, cx).await) },
                );
            }
            Operation::GetPrompt { name, .. } => {
                CallError::client(Kind::Unknown, format!("Unknown prompt: {name}"))
            }
            Operation::ReadResource { uri } => {
                return Box::pin(async move { Ok(contents(&self.resources.read(&uri, cx).await?)) });
            }
            Operation::Subscribe { uri } => {
                return Box::pin(async move {
                    self.resources.subscribe(&uri, cx).await?;
                    Ok(Raw::empty_object().into())
                });
            }
            Operation::Unsubscribe { uri } => {
                return Box::pin(async move {
                    self.resources.unsubscribe(&uri, cx).await?;
                    Ok(Raw::empty_object().into())
                });
            }
            Operation::Complete { .. } => {
                CallError::client(Kind::Unsupported, "Nothing here can be completed")
            }
            Operation::Task { .. } => CallError::client(Kind::Unsupported, "Nothing here runs as a task"),
        };
        Box::pin(ready(Err(refusal)))
    }

    fn resources<'a>(
        &'a self,
        after: Option<&'a str>,
        cx: &'a Context,
    ) -> BoxFuture<'a, Result<ResourcePage, CallError>> {
        Box::pin(self.resources.list(after, cx))
    }

    // Its tools ask for roots when they need them, and keep none.
    fn roots_changed(&self, _session: &SessionKey) {}

    fn session_ended(&self, session: &SessionKey) {
        self.builtin.session_ended(session);
    }
}

impl<B: Builtin, R> fmt::Debug for BuiltinBackend<B, R> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuiltinBackend({})", self.builtin.name())
    }
}

impl Resources for NoResources {
    fn templates(&self) -> Vec<TemplateSpec> {
        Vec::new()
    }

    fn lists(&self) -> bool {
        false
    }

    async fn list(&self, _after: Option<&str>, _cx: &Context) -> Result<ResourcePage, CallError> {
        Ok(ResourcePage::default())
    }

    async fn read(&self, uri: &str, _cx: &Context) -> Result<Vec<ResourceContents>, CallError> {
        Err(CallError::unknown_resource(uri))
    }

    async fn subscribe(&self, uri: &str, _cx: &Context) -> Result<(), CallError> {
        Err(CallError::unknown_resource(uri))
    }

    async fn unsubscribe(&self, uri: &str, _cx: &Context) -> Result<(), CallError> {
        Err(CallError::unknown_resource(uri))
    }
}

/// The result of a reading. It may be another's with the next call, so nobody keeps it.
fn contents(read: &[ResourceContents]) -> Reply {
    let contents = Raw::of(read);
    let result = write::object([("contents", &contents)]);
    Reply { freshness: Some(Freshness::NONE), may_have_meta: false, ..result.into() }
}

fn template(spec: &TemplateSpec) -> Template {
    let members = [
        ("uriTemplate", Raw::of(spec.uri_template)),
        ("name", Raw::of(spec.name)),
        ("title", Raw::of(spec.title)),
        ("description", Raw::of(spec.description)),
    ];
    Template {
        uri_template: spec.uri_template.into(),
        definition: write::object(members.iter().map(|(key, value)| (*key, value))),
    }
}

fn tool(spec: &ToolSpec) -> Tool {
    let annotations = json!({
        "readOnlyHint": spec.effect == Effect::Reads,
        "destructiveHint": matches!(spec.effect, Effect::Overwrites | Effect::Anything),
        // All others touch this gateway's own state and nothing else.
        "openWorldHint": spec.effect == Effect::Anything,
    });
    let members = [
        ("name", Raw::of(spec.name)),
        ("title", Raw::of(spec.title)),
        ("description", Raw::of(spec.description)),
        ("inputSchema", Raw::of(&spec.input_schema)),
        ("annotations", Raw::of(&annotations)),
    ];
    Tool {
        name: spec.name.into(),
        aliases: spec.names().skip(1).collect(),
        definition: write::object(members.iter().map(|(key, value)| (*key, value))),
        scope: spec.scope(),
        header_params: Vec::new(),
    }
}

fn structured(failure: Failure) -> Map<String, Value> {
    let mut members = match failure.details {
        Some(Value::Object(details)) => details,
        Some(details) => Map::from_iter([("details".to_owned(), details)]),
        None => Map::new(),
    };
    members.insert("error".to_owned(), json!({"code": failure.code, "message": failure.message}));
    members
}

#[cfg(test)]
mod tests;
