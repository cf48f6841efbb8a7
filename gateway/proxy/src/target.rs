//! What a request's parameters call, and whether this caller may: names to backends, arguments without context fields.

use std::{sync::Arc, time::Duration};

use moongate_core::{CallError, Kind, Operation};
use moongate_security::limit;
use moongate_storage::{Entry, Rate};
use moongate_wire::{
    Meta, Method, Params, Raw,
    edit::{self, Edit},
    params::OURS,
};
use serde::Deserialize;

use crate::{
    context::{self, Claimed},
    engine::{Caller, unsupported},
    extras::Inject,
    gateway::Gateway,
    member::Member,
    view::{ToolEntry, View},
};

/// A last look at a tool call by its arguments: refuses it, or tells what came beside them that its schema does not declare.
pub(crate) type Check<'a> = dyn Fn(&ToolEntry, &Raw) -> Result<Undeclared, CallError> + Send + Sync + 'a;

/// Parameters in headers that no schema declares: the part after `Mcp-Param-`, and the value as it came.
pub(crate) type Undeclared = Vec<(Arc<str>, Arc<str>)>;

/// The check of calls that bring no headers.
pub(crate) const UNCHECKED: &Check<'static> = &|_, _| Ok(Vec::new());

/// Where a call goes and with what.
pub(crate) struct Target {
    pub(crate) operation: Operation,
    /// What clients call it.
    pub(crate) name: Arc<str>,
    pub(crate) member: Arc<Member>,
    /// How the backend learns the context ids.
    pub(crate) inject: Inject,
    /// Whether the result is to be wrapped for versions that take objects only.
    pub(crate) wraps: bool,
    /// The longest it may take, if a route says.
    pub(crate) timeout: Option<Duration>,
    /// Context ids that came as arguments.
    pub(crate) claimed: Claimed,
    /// What came beside the arguments for an upstream that takes it.
    pub(crate) undeclared: Undeclared,
    /// How long the answer may be kept, if a route says.
    pub(crate) keep: Option<Duration>,
    /// Where its duration goes.
    pub(crate) metric: moongate_telemetry::Operation,
}

impl Target {
    fn plain(
        operation: Operation,
        name: Arc<str>,
        member: &Arc<Member>,
        metric: moongate_telemetry::Operation,
    ) -> Self {
        Self {
            operation,
            name,
            member: Arc::clone(member),
            inject: Inject::None,
            wraps: false,
            timeout: member.timeout,
            claimed: Claimed::default(),
            undeclared: Vec::new(),
            keep: None,
            metric,
        }
    }
}

impl Gateway {
    /// What `params` of `method` call, as far as this caller may. `check` may refuse a tool call by its arguments.
    ///
    /// # Errors
    /// Whatever forbids the call.
    pub(crate) async fn target(
        &self,
        caller: &Caller,
        method: Method,
        params: &Params,
        check: &Check<'_>,
    ) -> Result<Target, CallError> {
        let view = self.view(caller).await;
        let metric = || self.operation(method, caller.transport).clone();
        match method {
            Method::CallTool => {
                let name = required(params.name(), "name")?;
                let forwarded;
                let entry = match view.tool(name) {
                    Ok(entry) => &**entry,
                    Err(error) => {
                        forwarded = unlisted(caller, name, error)?;
                        &forwarded
                    }
                };
                let arguments = arguments(params)?;
                let undeclared = check(entry, &arguments)?;
                self.count_tool(caller, entry).await?;
                let marked = params.has_marked_arguments();
                let (arguments, claimed) = context::strip(arguments, marked, &|name| entry.declares(name));
                let arguments = entry.extras.arguments.apply(arguments);
                Ok(Target {
                    operation: Operation::CallTool { name: Arc::clone(entry.tool.called(name)), arguments },
                    name: Arc::clone(&entry.shown),
                    member: Arc::clone(&entry.member),
                    inject: entry.extras.inject,
                    wraps: entry.wraps,
                    timeout: entry.timeout,
                    claimed,
                    undeclared,
                    keep: None,
                    metric: entry.operation(caller.transport).clone(),
                })
            }
            Method::GetPrompt => {
                let entry = view.prompt(required(params.name(), "name")?)?;
                // No prompt declares context fields: nobody's get through.
                let marked = params.has_marked_arguments();
                let (arguments, claimed) = context::strip(arguments(params)?, marked, &|_| false);
                let operation = Operation::GetPrompt { name: Arc::clone(&entry.prompt.name), arguments };
                let shown = Arc::clone(&entry.shown);
                Ok(Target { claimed, ..Target::plain(operation, shown, &entry.member, metric()) })
            }
            Method::ReadResource => {
                let uri = required(params.uri(), "uri")?;
                let member = self.resource_owner(caller, &view, uri)?;
                let uri: Arc<str> = uri.into();
                let operation = Operation::ReadResource { uri: Arc::clone(&uri) };
                let keep = caller.snapshot.config.cache_of(&member.name, &uri);
                Ok(Target { keep, ..Target::plain(operation, uri, member, metric()) })
            }
            _ => Err(unsupported(method)),
        }
    }

    /// The backend that owns `uri`: who lists it, who has a template for it, or whose result named it to this caller.
    ///
    /// # Errors
    /// `UnknownResource`.
    pub(crate) fn resource_owner<'a>(
        &self,
        caller: &Caller,
        view: &'a View,
        uri: &str,
    ) -> Result<&'a Arc<Member>, CallError> {
        view.resource(uri).or_else(|unknown| {
            let (admitted, profile) = (&caller.admitted, caller.profile.as_deref());
            let mut upstreams = view.upstreams(uri);
            let owner = upstreams.find(|member| {
                self.learnt.knows(admitted.principal(), &member.name, uri)
                    && caller.snapshot.catalog.allows_resource(admitted, profile, uri, member)
            });
            owner.ok_or(unknown)
        })
    }

    async fn count_tool(&self, caller: &Caller, entry: &ToolEntry) -> Result<(), CallError> {
        let Some(quota) = entry.limit else { return Ok(()) };
        let rate: Rate = limit::tool_rate(caller.admitted.principal(), &entry.canonical, quota);
        match self.state().enter(None, &[rate]).await? {
            Entry::Limited { retry_after } => {
                let message = "rate limit exceeded for this tool";
                Err(CallError::limited(retry_after, message))
            }
            Entry::Welcome(_) | Entry::NoSession => Ok(()),
        }
    }
}

/// The tool called `name`, which is not in the caller's view because of `why`, if somebody takes such calls.
pub(crate) fn unlisted(caller: &Caller, name: &str, why: CallError) -> Result<ToolEntry, CallError> {
    if why.kind != Kind::Unknown {
        return Err(why);
    }
    let profile = caller.profile.as_deref();
    caller.snapshot.catalog.unlisted(&caller.admitted, profile, name).unwrap_or(Err(why))
}

fn arguments(params: &Params) -> Result<Raw, CallError> {
    match params.arguments() {
        None => Ok(Raw::empty_object()),
        Some(arguments) if arguments.is_object() => Ok(arguments),
        Some(_) => Err(CallError::invalid_params("arguments must be an object")),
    }
}

fn required<'a>(value: Option<&'a str>, name: &str) -> Result<&'a str, CallError> {
    value.ok_or_else(|| CallError::invalid_params(format_args!("{name} is required")))
}

impl Gateway {
    /// The backend that completes what `params` refer to, and the parameters as that backend knows them: with its own name
    /// for the prompt, and without context fields among the arguments they carry along.
    pub(crate) fn completion(
        &self,
        caller: &Caller,
        view: &View,
        params: &Raw,
    ) -> Result<(Arc<Member>, Raw), CallError> {
        #[derive(Deserialize)]
        struct Completion {
            r#ref: Reference,
        }
        #[derive(Deserialize)]
        #[serde(tag = "type")]
        enum Reference {
            #[serde(rename = "ref/prompt")]
            Prompt { name: String },
            #[serde(rename = "ref/resource")]
            Resource { uri: String },
        }
        let clean = clean_completion(params);
        match params.parse::<Completion>().map_err(CallError::invalid_params)?.r#ref {
            Reference::Prompt { name } => {
                let entry = view.prompt(&name)?;
                let own = &entry.prompt.name;
                let named = |reference: &Raw| within(reference, "name", &|_| Raw::of(&**own));
                let params = if **own == *name { clean } else { within(&clean, "ref", &named) };
                Ok((Arc::clone(&entry.member), params))
            }
            Reference::Resource { uri } => {
                let owner =
                    view.template(&uri).map_or_else(|| self.resource_owner(caller, view, &uri), Ok)?;
                Ok((Arc::clone(owner), clean))
            }
        }
    }
}

fn clean_completion(params: &Raw) -> Raw {
    let strip = |arguments: &Raw| context::strip(arguments.clone(), true, &|_| false).0;
    within(params, "context", &|context| within(context, "arguments", &strip))
}

/// `object` with the member `name`, if it is there, as `change` makes it.
fn within(object: &Raw, name: &str, change: &dyn Fn(&Raw) -> Raw) -> Raw {
    edit::members(object, |key, member| if key == name { Edit::Replace(change(member)) } else { Edit::Keep })
}

/// A client's `_meta` on its way to a backend: what it says to the gateway about context stays here, and so does what the
/// protocol has in every request.
pub(crate) fn clean_meta(meta: Meta<'_>) -> Option<Raw> {
    let all = meta.raw().filter(|_| meta.says_more())?;
    Some(if meta.speaks_to_us() { edit::remove(&all, |key, _| key.starts_with(OURS)) } else { all })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_meta_says_to_the_gateway_stays_here_however_it_is_spelled() {
        for (meta, expected) in [
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"dev.moongate/sessionId":"s","a":1}"#, r#"{"a":1}"#),
            (r#"{"dev.moongate\/sessionId":"s","a":1}"#, r#"{"a":1}"#),
            (r#"{"a":1,"\u0064ev.moongate/threadId":"t"}"#, r#"{"a":1}"#),
            (r#"{"other.dev/x":"dev.moongate/"}"#, r#"{"other.dev/x":"dev.moongate/"}"#),
        ] {
            assert_eq!(cleaned(meta).unwrap().as_str(), expected, "{meta}");
        }
    }

    #[test]
    fn what_every_request_says_is_not_passed_on() {
        let usual =
            r#""io.modelcontextprotocol/protocolVersion":"x","io.modelcontextprotocol/clientInfo":{"a":1}"#;
        for nothing in
            [format!("{{{usual}}}"), r#"{"dev.moongate/sessionId":"s"}"#.to_owned(), "{}".to_owned()]
        {
            assert_eq!(cleaned(&nothing), None, "{nothing}");
        }
        for more in [r#""progressToken":1"#, r#""traceparent":null"#, r#""\u0070rogressToken":"a""#] {
            let meta = format!("{{{usual},{more}}}");
            assert_eq!(cleaned(&meta).unwrap().as_str(), meta);
        }
    }

    fn cleaned(meta: &str) -> Option<Raw> {
        let params = Params::read(Raw::from_text(format!(r#"{{"_meta":{meta}}}"#)).unwrap()).unwrap();
        clean_meta(params.meta())
    }
}
