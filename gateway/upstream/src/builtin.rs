//! A backend of this process behind the trait the router knows.
//!
//! In: calls by name or alias, with arguments as the caller wrote them. Out: the result object, `isError` always said.
//! This is where arguments meet the published schema; who may call what is decided before a call gets here.

use std::{fmt, future::ready, sync::Arc};

use moongate_core::{
    Backend, BoxFuture, Builtin, Call, CallError, Context, Kind, Offer, Operation, Raw, Reply, RpcError,
    Scope, SessionKey, Tool,
    builtin::{Failure, ToolError, ToolOutput, ToolSpec},
    hash,
};
use moongate_wire::write;
use serde_json::{Map, Value, json};

use crate::schema::Schema;

/// A [`Builtin`] as a [`Backend`].
pub struct BuiltinBackend<B> {
    builtin: B,
    tools: Vec<Entry>,
    by_name: hash::Map<Arc<str>, usize>,
    offer: Arc<Offer>,
    tool_errors: ToolErrors,
}

/// How a failure inside a known tool is told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolErrors {
    /// As a result with `isError: true`, which the model gets to read.
    #[default]
    Result,
    /// As a JSON-RPC error, for clients that want the code.
    JsonRpc,
}

struct Entry {
    name: &'static str,
    schema: Schema,
}

impl<B: Builtin> BuiltinBackend<B> {
    /// Puts `builtin` behind the seam.
    pub fn new(builtin: B, tool_errors: ToolErrors) -> Self {
        let specs = builtin.tools();
        let mut by_name = hash::Map::default();
        for (index, spec) in specs.iter().enumerate() {
            by_name.extend(spec.names().map(|name| (name, index)));
        }
        let offer =
            Offer { tools: specs.iter().map(|spec| Arc::new(tool(spec))).collect(), ..Offer::default() };
        let entry = |spec: ToolSpec| Entry { name: spec.name, schema: Schema::new(spec.input_schema) };
        let tools = specs.into_iter().map(entry).collect();
        Self { builtin, tools, by_name, offer: Arc::new(offer), tool_errors }
    }

    fn find(&self, name: &str) -> Option<&Entry> {
        self.tools.get(*self.by_name.get(name)?)
    }

    /// The tool called `name` and arguments that fit it.
    fn prepare(&self, name: &str, arguments: Raw) -> Result<(&'static str, Raw), ToolError> {
        let unknown = || CallError::client(Kind::Unknown, format!("Unknown tool: {name}"));
        let tool = self.find(name).ok_or_else(unknown)?;
        // Some clients send `"arguments": null` for a tool without arguments.
        let arguments = if arguments.is_null() { Raw::empty_object() } else { arguments };
        tool.schema.check(&arguments)?;
        Ok((tool.name, arguments))
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

impl<B: Builtin> Backend for BuiltinBackend<B> {
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
            Operation::ReadResource { uri }
            | Operation::Subscribe { uri }
            | Operation::Unsubscribe { uri } => CallError::unknown_resource(&uri),
            Operation::Complete { .. } => {
                CallError::client(Kind::Unsupported, "Nothing here can be completed")
            }
            Operation::Task { .. } => CallError::client(Kind::Unsupported, "Nothing here runs as a task"),
        };
        Box::pin(ready(Err(refusal)))
    }

    // Its tools ask for roots when they need them, and keep none.
    fn roots_changed(&self, _session: &SessionKey) {}

    fn session_ended(&self, session: &SessionKey) {
        self.builtin.session_ended(session);
    }
}

impl<B: Builtin> fmt::Debug for BuiltinBackend<B> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BuiltinBackend({})", self.builtin.name())
    }
}

fn tool(spec: &ToolSpec) -> Tool {
    let read_only = spec.scope == Scope::READ;
    // Built-in tools touch this gateway's own state and nothing else, hence a closed world.
    let annotations = json!({"readOnlyHint": read_only, "destructiveHint": !read_only && spec.destructive, "openWorldHint": false});
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
