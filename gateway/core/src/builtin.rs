//! The smaller trait of backends that live in this process: a name, tools, and one function that runs them.
//!
//! `moongate_upstream::builtin` makes a [`crate::Backend`] of it: it checks arguments against the published schema,
//! shapes results, and turns a [`ToolError`] into a result with `isError`.

use std::{future::Future, sync::Arc};

use moongate_wire::{Raw, code, write::ToolResult};
use serde::Serialize;
use serde_json::Value;

pub use moongate_wire::write::{Fragment, escape};

use crate::{CallError, Context, ResourcePage, Scope, SessionKey};

/// A backend of tools in this process.
pub trait Builtin: Send + Sync {
    /// The backend's name in configuration, metrics and logs.
    fn name(&self) -> &'static str;

    /// Its tools, in the order they are listed. Called once.
    fn tools(&self) -> Vec<ToolSpec>;

    /// Aliases that [`call_tool`](Self::call_tool) gets as they are, because a tool does not do quite the same under them.
    fn told_aliases(&self) -> &'static [&'static str] {
        &[]
    }

    /// Runs the tool called `tool` (its canonical name, or one of the told aliases) on arguments that fit its schema.
    /// Dropping the future cancels.
    fn call_tool(
        &self,
        tool: &str,
        arguments: Raw,
        cx: &Context,
    ) -> impl Future<Output = Result<ToolOutput, ToolError>> + Send;

    /// The transport session is over: free what was kept for it in memory. Stored rows stay.
    fn session_ended(&self, session: &SessionKey);
}

/// The definition of a built-in tool.
#[derive(Clone, Debug)]
pub struct ToolSpec {
    /// Its canonical name.
    pub name: &'static str,
    /// A short title for people.
    pub title: &'static str,
    /// What it does, for the model.
    pub description: &'static str,
    /// JSON Schema of its arguments; an object schema without any `__*` property.
    pub input_schema: Value,
    /// Other names that call it.
    pub aliases: &'static [&'static str],
    /// What a caller needs to hold: [`Scope::READ`] or [`Scope::WRITE`].
    pub scope: &'static str,
    /// What it does to the world, so that a client may ask its user first.
    pub effect: Effect,
}

/// What a tool does to the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effect {
    /// Nothing: it only tells.
    Reads,
    /// It adds something to the gateway's own state.
    Adds,
    /// It overwrites or removes something there.
    Overwrites,
    /// Whatever its caller says: it runs programs.
    Anything,
}

/// What a backend in this process lets its callers read by address, beside its tools.
///
/// Every function gets the caller's context and answers for that caller alone; an address that is another's is as unknown as
/// one that never was ([`CallError::unknown_resource`]). Changes are announced through [`crate::Changes`].
pub trait Resources: Send + Sync {
    /// How addresses are formed. Called once.
    fn templates(&self) -> Vec<TemplateSpec>;

    /// Whether any are ever listed. What cannot be listed is no reason to ask before every list.
    fn lists(&self) -> bool;

    /// The resources this caller has, in an order that lasts: those behind `after`, the `next` of the page before, or the
    /// first ones.
    fn list(
        &self,
        after: Option<&str>,
        cx: &Context,
    ) -> impl Future<Output = Result<ResourcePage, CallError>> + Send;

    /// What lies at `uri`.
    fn read(
        &self,
        uri: &str,
        cx: &Context,
    ) -> impl Future<Output = Result<Vec<ResourceContents>, CallError>> + Send;

    /// The caller wants to hear of updates of `uri`. Several may, and one may several times.
    fn subscribe(&self, uri: &str, cx: &Context) -> impl Future<Output = Result<(), CallError>> + Send;

    /// One subscription less. What a session still watches when it ends is ended by `session_ended`.
    fn unsubscribe(&self, uri: &str, cx: &Context) -> impl Future<Output = Result<(), CallError>> + Send;
}

/// How the addresses of some resources are formed.
#[derive(Clone, Debug)]
pub struct TemplateSpec {
    /// An RFC 6570 template; `{name}` and `{+name}` are understood.
    pub uri_template: &'static str,
    /// A name for programs.
    pub name: &'static str,
    /// A short title for people.
    pub title: &'static str,
    /// What lies there, for the model.
    pub description: &'static str,
}

/// What was read at one address.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ResourceContents {
    /// The address.
    pub uri: String,
    /// What kind of data it is.
    pub mime_type: String,
    /// The data.
    #[serde(flatten)]
    pub data: ResourceData,
}

/// The data of a resource.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub enum ResourceData {
    /// As it is.
    Text(String),
    /// As base64.
    Blob(String),
}

/// What a tool answers.
#[derive(Clone, Debug)]
pub struct ToolOutput(ToolResult);

/// Something went wrong inside a known tool.
#[derive(Debug)]
pub enum ToolError {
    /// Told to the model: a result with `isError: true`.
    Failed(Failure),
    /// Not the tool's doing (a missing capability, a storage failure, a cancelled question).
    Call(CallError),
}

/// A failure the model can read and act on.
#[derive(Clone, Debug)]
pub struct Failure {
    /// -32602 for wrong arguments, -32603 for denials and inner failures.
    pub code: i64,
    /// One sentence that says what to do.
    pub message: String,
    /// More members of the structured result, beside `error`.
    pub details: Option<Value>,
}

impl ToolOutput {
    /// Text for the model and the same as data.
    pub fn new(text: impl AsRef<str>, structured: impl Serialize) -> Self {
        Self(ToolResult::text(text.as_ref()).structured(&structured))
    }

    /// As [`new`](Self::new), with text and data as these functions write them: the text as it stands between the
    /// quotes of a JSON string, the data as an object. `room` is about how many bytes both take.
    pub fn written(
        room: usize,
        text: impl FnOnce(&mut Fragment),
        structured: impl FnOnce(&mut Fragment),
    ) -> Self {
        Self(ToolResult::written(room, text).structured_written(structured))
    }

    /// The same output with one more content block.
    #[must_use]
    pub fn with_block(self, block: impl Serialize) -> Self {
        Self(self.0.block(&block))
    }

    /// The result as the client gets it.
    pub fn into_result(self) -> Raw {
        self.0.finish(false)
    }
}

impl ToolError {
    /// The arguments are wrong in a way the schema cannot say.
    pub fn invalid(message: impl Into<String>) -> Self {
        Self::Failed(Failure { code: code::INVALID_PARAMS, message: message.into(), details: None })
    }

    /// The tool could not do it: a denial or a limit.
    pub fn denied(message: impl Into<String>) -> Self {
        Self::Failed(Failure { code: code::INTERNAL, message: message.into(), details: None })
    }

    /// The same failure with more structured members; nothing for a [`ToolError::Call`].
    #[must_use]
    pub fn with_details(mut self, details: Value) -> Self {
        if let Self::Failed(failure) = &mut self {
            failure.details = Some(details);
        }
        self
    }
}

impl From<CallError> for ToolError {
    fn from(error: CallError) -> Self {
        Self::Call(error)
    }
}

impl ToolSpec {
    /// The scope as a value.
    pub fn scope(&self) -> Scope {
        Scope::new(self.scope)
    }

    /// All names that call this tool, the canonical one first.
    pub fn names(&self) -> impl Iterator<Item = Arc<str>> {
        std::iter::once(self.name).chain(self.aliases.iter().copied()).map(Into::into)
    }
}
