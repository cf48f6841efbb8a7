//! What each method does, for every edge and both eras.
//!
//! In: a [`Caller`] and a method with its parameters. Out: an outcome at once, or a [`Job`] for what may report, ask or
//! take long. The edges decide how either reaches the client.

use std::{sync::Arc, time::Duration};

use moongate_core::{
    Call, CallError, Client, Context, Kind, Level, Operation, Peer, Reply, Scope, call::Freshness, peer::Link,
};
use moongate_security::{gate::Admitted, limit};
use moongate_storage::{Entry, Rate};
use moongate_telemetry::{ErrorType, Transport};
use moongate_wire::{Id, Method, Params, Raw, Version, write};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    catalog::Member,
    context::{self, Claimed, Sources},
    gateway::{Gateway, Snapshot},
    job::{Job, Outbox, Outcome, within},
    parked::{Fingerprint, RoundsLink},
    session::{Live, Running, SessionLink},
    shape,
    view::{ToolEntry, View},
};

/// How long `server/discover` stays good.
const DISCOVER_TTL: Duration = Duration::from_hours(1);

/// Who is calling, from where, under which configuration.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The configuration this call entered with.
    pub snapshot: Arc<Snapshot>,
    /// The gate's word.
    pub admitted: Arc<Admitted>,
    /// The profile of the path, if any; it exists.
    pub profile: Option<Arc<str>>,
    /// What the client said about itself.
    pub client: Arc<Client>,
    /// HTTP or a pipe.
    pub transport: Transport,
    /// `X-Session-Id`, `X-Assistant-Id`, `X-Thread-Id`.
    pub header_ids: [Option<Arc<str>>; 3],
    /// The legacy session's or the pipe's id.
    pub transport_session: Option<Arc<str>>,
    /// The least severe log level the client wants.
    pub log_level: Option<Level>,
}

/// How a job's backend reaches the client.
#[derive(Debug)]
pub enum Way {
    /// A legacy session: server requests on the call's own stream.
    Session {
        /// The session.
        live: Arc<Live>,
        /// Whether the client takes SSE.
        can_stream: bool,
    },
    /// A modern request: rounds of `input_required`.
    Rounds {
        /// What the request answers already.
        responses: Option<Raw>,
    },
}

/// What a parked call must be asked with again, kept until it is needed.
#[derive(Clone, Debug)]
pub struct Identity {
    method: Method,
    target: Box<str>,
    arguments: Raw,
}

impl Identity {
    /// What `params` of `method` call.
    pub fn of(method: Method, params: &Params) -> Self {
        let target = params.name.as_deref().or(params.uri.as_deref()).unwrap_or_default();
        let arguments = params.arguments.clone().unwrap_or_else(Raw::empty_object);
        Self { method, target: target.into(), arguments }
    }

    /// Its fingerprint; context fields do not count.
    pub fn fingerprint(&self) -> Fingerprint {
        let (arguments, _) = context::strip(&self.arguments, &|_| false);
        Fingerprint::of(self.method.as_str(), &self.target, &arguments)
    }
}

impl Gateway {
    /// The result of `initialize`.
    pub(crate) async fn initialize(&self, caller: &Caller) -> Raw {
        let version = Raw::of(caller.client.version.as_str());
        let instructions = self.instructions(caller).await;
        let mut members = vec![
            ("protocolVersion", &version),
            ("capabilities", &*shape::CAPABILITIES),
            ("serverInfo", &*shape::SERVER_INFO),
        ];
        members.extend(instructions.as_ref().map(|text| ("instructions", text)));
        write::object(members)
    }

    /// The result of `server/discover`.
    pub(crate) async fn discover(&self, caller: &Caller) -> Reply {
        let versions = Raw::of(&Version::MODERN.map(Version::as_str));
        let instructions = self.instructions(caller).await;
        let mut members = vec![("supportedVersions", &versions), ("capabilities", &*shape::CAPABILITIES)];
        members.extend(instructions.as_ref().map(|text| ("instructions", text)));
        Reply {
            result: write::object(members),
            freshness: Some(Freshness { ttl: DISCOVER_TTL, public: false }),
        }
    }

    async fn instructions(&self, caller: &Caller) -> Option<Raw> {
        self.view(caller).await.instructions.as_ref().map(Raw::of)
    }

    /// One of the four lists.
    pub(crate) async fn list(&self, caller: &Caller, method: Method, cursor: Option<&str>) -> Outcome {
        let view = self.view(caller).await;
        let list = match method {
            Method::ListTools => &view.tool_list,
            Method::ListPrompts => &view.prompt_list,
            Method::ListResources => &view.resource_list,
            Method::ListTemplates => &view.template_list,
            _ => return Err(unsupported(method)),
        };
        // Lists depend on the caller's scopes, so nobody else may be given them.
        Ok(Reply { result: list.page(cursor)?, freshness: Some(Freshness { ttl: view.ttl, public: false }) })
    }

    /// `completion/complete`, and the start and end of a subscription: calls that neither ask nor report.
    pub(crate) async fn call_quietly(
        &self,
        caller: &Caller,
        params: &Params,
        operation: Operation,
    ) -> Outcome {
        let view = self.view(caller).await;
        let member = match &operation {
            Operation::Subscribe { uri } | Operation::Unsubscribe { uri } => view.resource(uri)?,
            Operation::Complete { params } => completion_owner(&view, params)?,
            Operation::CallTool { .. } | Operation::GetPrompt { .. } | Operation::ReadResource { .. } => {
                return Err(CallError::internal("this call needs a job", "call_quietly was asked to run it"));
            }
        };
        let peer = Peer::silent(Arc::clone(&caller.client));
        let limit = timeout(caller, None);
        let cx = self.context(caller, params, None, peer, limit);
        let backend = Arc::clone(&member.backend);
        let call = Call { operation, meta: params.meta.raw.clone() };
        within(limit, Arc::default(), Box::pin(async move { backend.call(call, &cx).await })).await
    }

    /// Starts `tools/call`, `prompts/get` or `resources/read`. `check` may still refuse a tool call by its arguments.
    ///
    /// # Errors
    /// Whatever forbids to start it; nothing has been executed then.
    pub(crate) async fn begin(
        &self,
        caller: &Caller,
        id: Id,
        method: Method,
        params: &Params,
        way: Way,
        check: &(dyn Fn(&ToolEntry, &Raw) -> Result<(), CallError> + Send + Sync),
    ) -> Result<Job, CallError> {
        let view = self.view(caller).await;
        let target = self.target(&view, caller, method, params, check).await?;
        let principal = caller.admitted.principal();
        let calls = caller.snapshot.config.security.limits.calls.map_or(usize::MAX, Into::into);
        let counted = self.count_call(principal, calls).ok_or_else(|| {
            CallError::client(Kind::Limited, format!("Too many calls in progress: at most {calls} at a time"))
        })?;
        let outbox = Arc::new(Outbox::new(params.meta.progress_token.clone(), caller.log_level));
        let (link, running) = link(way, &outbox, &id)?;
        let peer = Peer::new(Arc::clone(&caller.client), link);
        let limit = timeout(caller, target.timeout);
        let cx = self.context(caller, params, Some(&target.claimed), peer, limit);
        let observed = Observed::new(&target.metric, cx.clone());
        let call = Call { operation: target.operation, meta: params.meta.raw.clone() };
        let (backend, inner) = (target.member.backend, Arc::clone(&outbox));
        let notes_dropped = self.metrics.notes_dropped().clone();
        let future = Box::pin(async move {
            let _held = (counted, running);
            let running = Box::pin(async move { backend.call(call, &cx).await });
            let outcome = within(limit, Arc::clone(&inner), running).await;
            notes_dropped.add(inner.take_dropped());
            observed.finish(&outcome);
            outcome
        });
        Ok(Job::new(id, outbox, future))
    }

    async fn target(
        &self,
        view: &View,
        caller: &Caller,
        method: Method,
        params: &Params,
        check: &(dyn Fn(&ToolEntry, &Raw) -> Result<(), CallError> + Send + Sync),
    ) -> Result<Target, CallError> {
        let arguments = || arguments(params);
        let metric = || self.operation(method, caller.transport).clone();
        match method {
            Method::CallTool => {
                let entry = view.tool(required(params.name.as_deref(), "name")?)?;
                let arguments = arguments()?;
                check(entry, &arguments)?;
                self.count_tool(caller, entry).await?;
                let (arguments, claimed) = context::strip(&arguments, &|name| entry.declares(name));
                Ok(Target {
                    operation: Operation::CallTool { name: Arc::clone(&entry.tool.name), arguments },
                    member: entry.member.clone(),
                    timeout: entry.timeout,
                    claimed,
                    metric: entry.operation(caller.transport).clone(),
                })
            }
            Method::GetPrompt => {
                let (member, prompt) = view.prompt(required(params.name.as_deref(), "name")?)?;
                let operation =
                    Operation::GetPrompt { name: Arc::clone(&prompt.name), arguments: arguments()? };
                Ok(Target::plain(operation, member, metric()))
            }
            Method::ReadResource => {
                let uri = required(params.uri.as_deref(), "uri")?;
                let operation = Operation::ReadResource { uri: uri.into() };
                Ok(Target::plain(operation, view.resource(uri)?, metric()))
            }
            _ => Err(unsupported(method)),
        }
    }

    /// Notes how a request ended that was answered at once.
    pub(crate) fn observe(&self, method: Method, transport: Transport, started: Instant, outcome: &Outcome) {
        self.operation(method, transport).observe(started.elapsed(), outcome.as_ref().err().map(error_type));
    }

    async fn count_tool(&self, caller: &Caller, entry: &ToolEntry) -> Result<(), CallError> {
        let Some(quota) = entry.limit else { return Ok(()) };
        let rate: Rate = limit::tool_rate(caller.admitted.principal(), &entry.shown, quota);
        match self.state().enter(None, &[rate]).await? {
            Entry::Limited { retry_after } => {
                let seconds = retry_after.as_secs().max(1);
                let message = format!("rate limit exceeded for this tool; try again in {seconds} s");
                Err(CallError::client(Kind::Limited, message))
            }
            Entry::Welcome(_) | Entry::NoSession => Ok(()),
        }
    }

    pub(crate) async fn view(&self, caller: &Caller) -> Arc<View> {
        let cx = || {
            let peer = Peer::silent(Arc::clone(&caller.client));
            self.context(caller, &Params::default(), None, peer, timeout(caller, None))
        };
        caller.snapshot.catalog.view(&caller.admitted, caller.profile.as_ref(), cx).await
    }

    fn context(
        &self,
        caller: &Caller,
        params: &Params,
        claimed: Option<&Claimed>,
        peer: Peer,
        limit: Duration,
    ) -> Context {
        let principal = caller.admitted.principal();
        let sources = Sources {
            claimed: claimed.filter(|_| caller.admitted.scopes().allow(&Scope::new(Scope::CONTEXT_WRITE))),
            token: None,
            headers: &caller.header_ids,
            meta: &params.meta,
            transport: caller.transport_session.as_ref(),
        };
        let resolved = context::resolve(&sources, principal.kind(), &caller.snapshot.config.context);
        if resolved.defaulted {
            self.warn_default_session(principal);
        }
        Context {
            principal: principal.clone(),
            ids: resolved.ids,
            deadline: Instant::now() + limit,
            client: Arc::clone(&caller.client),
            peer,
        }
    }
}

/// How long a call may take.
fn timeout(caller: &Caller, route: Option<Duration>) -> Duration {
    let limits = &caller.snapshot.config.security.limits;
    route.unwrap_or(limits.call_timeout).min(limits.max_timeout)
}

/// Where a call goes and with what.
struct Target {
    operation: Operation,
    member: Member,
    timeout: Option<Duration>,
    claimed: Claimed,
    metric: moongate_telemetry::Operation,
}

impl Target {
    fn plain(operation: Operation, member: &Member, metric: moongate_telemetry::Operation) -> Self {
        Self { operation, member: member.clone(), timeout: None, claimed: Claimed::default(), metric }
    }
}

fn link(way: Way, outbox: &Arc<Outbox>, id: &Id) -> Result<(Arc<dyn Link>, Option<Running>), CallError> {
    match way {
        Way::Session { live, can_stream } => {
            let running = live.start(id, outbox).ok_or_else(|| {
                CallError::client(
                    Kind::InvalidParams,
                    format!("Invalid params: a request with the id {id} is still running"),
                )
            })?;
            Ok((Arc::new(SessionLink { live, outbox: Arc::clone(outbox), can_stream }), Some(running)))
        }
        Way::Rounds { responses } => {
            Ok((Arc::new(RoundsLink::new(Arc::clone(outbox), responses.as_ref())), None))
        }
    }
}

fn arguments(params: &Params) -> Result<Raw, CallError> {
    match &params.arguments {
        None => Ok(Raw::empty_object()),
        Some(arguments) if arguments.is_object() => Ok(arguments.clone()),
        Some(_) => Err(CallError::invalid_params("arguments must be an object")),
    }
}

fn required<'a>(value: Option<&'a str>, name: &str) -> Result<&'a str, CallError> {
    value.ok_or_else(|| CallError::invalid_params(format_args!("{name} is required")))
}

/// The error for a method nothing here implements.
pub fn unsupported(method: Method) -> CallError {
    CallError::client(Kind::Unsupported, format!("Method not found: {}", method.as_str()))
}

fn completion_owner<'a>(view: &'a View, params: &Raw) -> Result<&'a Member, CallError> {
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
    match params.parse::<Completion>().map_err(CallError::invalid_params)?.r#ref {
        Reference::Prompt { name } => view.prompt(&name).map(|(member, _)| member),
        Reference::Resource { uri } => view.template(&uri).map_or_else(|| view.resource(&uri), Ok),
    }
}

/// Notes how a call ended, also when it is dropped on the way.
struct Observed {
    metric: moongate_telemetry::Operation,
    started: Instant,
    cx: Context,
    finished: bool,
}

impl Observed {
    fn new(metric: &moongate_telemetry::Operation, cx: Context) -> Self {
        Self { metric: metric.clone(), started: Instant::now(), cx, finished: false }
    }

    fn finish(mut self, outcome: &Outcome) {
        self.finished = true;
        let error = match outcome {
            Ok(reply) => is_tool_error(&reply.result).then_some(ErrorType::Tool),
            Err(error) => Some(error_type(error)),
        };
        self.note(error);
        if let Err(error) = outcome {
            let source = std::error::Error::source(error).map(ToString::to_string);
            tracing::info!(
                principal = %self.cx.principal, session = %self.cx.ids.session,
                assistant = self.cx.ids.assistant.as_deref(), thread = self.cx.ids.thread.as_deref(),
                kind = error_type(error).as_str(), source, "call failed"
            );
        }
    }

    fn note(&self, error: Option<ErrorType>) {
        let elapsed = self.started.elapsed();
        self.metric.observe(elapsed, error);
        tracing::debug!(
            principal = %self.cx.principal, session = %self.cx.ids.session,
            assistant = self.cx.ids.assistant.as_deref(), thread = self.cx.ids.thread.as_deref(),
            micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            error = error.map(ErrorType::as_str), "call"
        );
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if !self.finished {
            self.note(Some(ErrorType::Cancelled));
        }
    }
}

/// Whether a result says `isError: true`, without building it.
fn is_tool_error(result: &Raw) -> bool {
    #[derive(Deserialize)]
    struct Flag {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    // Most results are no errors, and most say so at their end: do not read them through for that.
    !result.as_bytes().ends_with(br#""isError":false}"#)
        && result.parse::<Flag>().is_ok_and(|flag| flag.is_error)
}

fn error_type(error: &CallError) -> ErrorType {
    match &error.kind {
        Kind::Unknown | Kind::InvalidParams => ErrorType::InvalidParams,
        Kind::UnknownResource { .. } => ErrorType::ResourceNotFound,
        Kind::Unsupported => ErrorType::MethodNotFound,
        Kind::MissingCapability { .. } => ErrorType::MissingCapability,
        Kind::MissingScope { .. } => ErrorType::Forbidden,
        Kind::Timeout => ErrorType::Timeout,
        Kind::Cancelled => ErrorType::Cancelled,
        Kind::Limited => ErrorType::Limited,
        Kind::Unavailable => ErrorType::Unavailable,
        Kind::Rpc { error } => ErrorType::of_code(error.code),
        Kind::Internal => ErrorType::Internal,
    }
}

/// The level named by `text`.
///
/// # Errors
/// `InvalidParams` that lists the levels.
pub fn log_level(text: &Raw) -> Result<Level, CallError> {
    text.parse().map_err(|_| {
        CallError::invalid_params(
            "the log level must be one of debug, info, notice, warning, error, critical, alert, emergency",
        )
    })
}

/// `{}`
pub fn empty() -> Reply {
    Raw::of(&json!({})).into()
}
