//! What each method does, for every edge and both eras.
//!
//! In: a [`Caller`] and a method with its parameters. Out: an outcome at once, or a [`Job`] for what may report, ask or
//! take long. The edges decide how either reaches the client.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use moongate_core::{
    Call, CallError, Client, Context, ContextIds, Kind, Level, Operation, Peer, Reply, Scope, TASKS,
    call::Freshness, peer::Link,
};
use moongate_security::{Reason, gate::Admitted};
use moongate_telemetry::Transport;
use moongate_wire::{Id, Method, Params, Raw, Version, write};
use serde_json::json;
use tokio::time::Instant;

use crate::{
    context::{self, Claimed, Resolved, Sources},
    downgrade::Face,
    extras::{Inject, meta_with},
    fingerprint::Fingerprint,
    gateway::{Gateway, Snapshot},
    job::{Job, Outbox, Outcome, within},
    member::Member,
    observed::{Observed, error_type},
    parked::RoundsLink,
    returned,
    session::{Live, Running, SessionLink},
    shape,
    tally::{AGAIN, Counted},
    target::{Check, clean_meta},
    tasks::Issuer,
    trace::Trace,
    view::{INCOMPLETE_TTL, View},
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
    /// The trace that the headers name, if they do.
    pub trace: Option<Arc<Trace>>,
    /// The legacy session's or the pipe's id.
    pub transport_session: Option<Arc<str>>,
    /// The least severe log level the client wants.
    pub log_level: Option<Level>,
}

impl Caller {
    /// Another server is told which trace a call belongs to; backends of this process are in it anyway.
    fn tell_trace(&self, call: &mut Call, member: &Member) {
        if let (Some(trace), true) = (&self.trace, member.is_upstream) {
            trace.join(&mut call.meta);
        }
    }
}

/// How a job's backend reaches the client.
#[derive(Debug)]
pub enum Way {
    /// A legacy session: server requests on the call's own stream.
    Session {
        /// The session.
        live: Arc<Live>,
        /// The call's registration there, kept as long as it runs.
        running: Running,
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
    profile: Option<Arc<str>>,
    method: Method,
    target: Box<str>,
    arguments: Raw,
    /// Whether the answer may be a task: then whoever comes back for it must know what that is.
    takes_task: bool,
}

impl Identity {
    /// What `params` of `method` call under `profile`.
    pub fn of(profile: Option<&Arc<str>>, method: Method, params: &Params) -> Self {
        let target = params.target(method).unwrap_or_default();
        let arguments = params.arguments().unwrap_or_else(Raw::empty_object);
        let declared = || params.meta().client_capabilities()?.member("extensions")?.member(TASKS);
        let takes_task = method == Method::CallTool && declared().is_some_and(|settings| !settings.is_null());
        Self { profile: profile.cloned(), method, target: target.into(), arguments, takes_task }
    }

    /// Its fingerprint; context fields do not count.
    pub fn fingerprint(&self) -> Fingerprint {
        let (arguments, _) = context::strip(self.arguments.clone(), true, &|_| false);
        let profile = self.profile.as_deref().unwrap_or_default();
        let method = if self.takes_task { "tools/call for a task" } else { self.method.as_str() };
        Fingerprint::of(profile, method, &self.target, &arguments)
    }
}

impl Gateway {
    /// The result of `initialize`.
    pub(crate) fn initialize(&self, caller: &Caller) -> Raw {
        let version = Raw::of(caller.client.version.as_str());
        let instructions = self.instructions(caller);
        let mut members = vec![
            ("protocolVersion", &version),
            ("capabilities", &*shape::CAPABILITIES),
            ("serverInfo", &*shape::SERVER_INFO),
        ];
        members.extend(instructions.as_ref().map(|text| ("instructions", text)));
        write::object(members)
    }

    /// The result of `server/discover`.
    pub(crate) fn discover(&self, caller: &Caller) -> Reply {
        let versions = Raw::of(&Version::MODERN.map(Version::as_str));
        let view = self.view(caller).now_or_never();
        let instructions = view.as_ref().and_then(|view| view.instructions.as_ref().map(Raw::of));
        let tasks = caller.snapshot.catalog.offers_tasks(caller.profile.as_deref(), view.as_deref());
        let capabilities = if tasks { &*shape::CAPABILITIES_AND_TASKS } else { &*shape::CAPABILITIES };
        let mut members = vec![("supportedVersions", &versions), ("capabilities", capabilities)];
        members.extend(instructions.as_ref().map(|text| ("instructions", text)));
        // What is not known of an upstream now may be in a moment.
        let is_known = view.is_some_and(|view| view.is_complete());
        let ttl = if is_known { DISCOVER_TTL } else { INCOMPLETE_TTL };
        let freshness = Some(Freshness { ttl, public: false });
        Reply { freshness, ..write::object(members).into() }
    }

    /// What the backends tell the model, as far as it is known: a greeting never waits for one of them.
    fn instructions(&self, caller: &Caller) -> Option<Raw> {
        self.view(caller).now_or_never()?.instructions.as_ref().map(Raw::of)
    }

    /// One of the four lists.
    pub(crate) async fn list(&self, caller: &Caller, method: Method, params: &Params) -> Outcome {
        let view = self.view(caller).await;
        if method == Method::ListResources && !view.owners().is_empty() {
            // On the heap: most lists are at hand.
            return Box::pin(self.list_with_own(caller, &view, params)).await;
        }
        let list = match method {
            Method::ListTools => view.tool_list.of(Face::of(caller.client.version)),
            Method::ListPrompts => &view.prompt_list,
            Method::ListResources => &view.resource_list,
            Method::ListTemplates => &view.template_list,
            _ => return Err(unsupported(method)),
        };
        Ok(listed(list.page(params.cursor())?, view.ttl))
    }

    /// `completion/complete`, and the start and end of a subscription: calls that neither ask nor report.
    pub(crate) async fn call_quietly(
        &self,
        caller: &Caller,
        params: &Params,
        operation: Operation,
    ) -> Outcome {
        let view = self.view(caller).await;
        let refused = |error: &CallError| self.refused(caller, error);
        let _counted = self.count_call(caller)?;
        let (member, uri, operation) = match operation {
            Operation::Subscribe { ref uri } | Operation::Unsubscribe { ref uri } => {
                let owner = self.resource_owner(caller, &view, uri).inspect_err(refused)?;
                (Arc::clone(owner), Some(Arc::clone(uri)), operation)
            }
            Operation::Complete { params } => {
                let (member, params) = self.completion(caller, &view, &params).inspect_err(refused)?;
                (member, None, Operation::Complete { params })
            }
            Operation::CallTool { .. }
            | Operation::GetPrompt { .. }
            | Operation::ReadResource { .. }
            | Operation::Task { .. } => {
                let source = "call_quietly was asked to run it";
                return Err(CallError::internal("this call goes another way", source));
            }
        };
        let outcome = self.quietly(caller, params, &member, operation, Inject::None).await;
        outcome.map(|(reply, _)| reply).map_err(|error| returned::error(error, uri.as_deref()))
    }

    /// Calls `member`, which neither asks nor reports, and learns the context ids as `how` says; tells as whom.
    pub(crate) async fn quietly(
        &self,
        caller: &Caller,
        params: &Params,
        member: &Member,
        operation: Operation,
        how: Inject,
    ) -> Result<(Reply, Context), CallError> {
        let peer = Peer::silent(Arc::clone(&caller.client));
        let (limit, start) = (timeout(caller, member.timeout), Instant::now());
        let cx = self.context(caller, params, None, peer, start + limit)?;
        let mut call = Call { meta: clean_meta(params.meta()), ..Call::new(operation) };
        inject(&mut call, how, &cx.ids);
        caller.tell_trace(&mut call, member);
        let calling = member.backend.call(call, &cx);
        let reply = within(limit, start, &Outbox::default(), member.upstream_name(), calling).await?;
        Ok((reply, cx))
    }

    /// Starts `tools/call`, `prompts/get` or `resources/read`, which speaks through `outbox`. `check` may still refuse a
    /// tool call by its arguments.
    ///
    /// # Errors
    /// Whatever forbids to start it; nothing has been executed then.
    pub(crate) async fn begin(
        &self,
        caller: &Caller,
        request: (Id, Method, &Params),
        outbox: Arc<Outbox>,
        way: Way,
        check: &Check<'_>,
    ) -> Result<Job, CallError> {
        // What did not start is measured without a tool's name: a caller could make up as many as it likes.
        let operation = self.operation(request.1, caller.transport);
        let started = self.start(caller, request, outbox, way, check).await;
        started.inspect_err(|error| operation.observe(Duration::ZERO, Some(error_type(error))))
    }

    async fn start(
        &self,
        caller: &Caller,
        request: (Id, Method, &Params),
        outbox: Arc<Outbox>,
        way: Way,
        check: &Check<'_>,
    ) -> Result<Job, CallError> {
        let (id, method, params) = request;
        let refused = |error: &CallError| self.refused(caller, error);
        let target = self.target(caller, method, params, check).await.inspect_err(refused)?;
        let counted = self.count_call(caller)?;
        let version = caller.client.version;
        let (link, running) = link(way, &outbox, version);
        let peer = Peer::new(Arc::clone(&caller.client), link);
        let (limit, start) = (timeout(caller, target.timeout), Instant::now());
        let cx = self.context(caller, params, Some(&target.claimed), peer, start + limit)?;
        let mut call = Call {
            meta: clean_meta(params.meta()),
            undeclared: target.undeclared,
            keep: target.keep,
            ..Call::new(target.operation)
        };
        inject(&mut call, target.inject, &cx.ids);
        caller.tell_trace(&mut call, &target.member);
        let uri = (method == Method::ReadResource).then(|| Arc::clone(&target.name));
        let issuer = match &call.operation {
            Operation::CallTool { name, .. } if target.member.is_upstream => Some(Issuer {
                ids: self.task_ids.clone(),
                profile: caller.profile.clone(),
                shown: Arc::clone(&target.name),
                tool: Arc::clone(name),
            }),
            _ => None,
        };
        let observed = Observed::new(method, target.name, target.metric, start, cx);
        let (member, wraps, inner) = (target.member, target.wraps, Arc::clone(&outbox));
        let learnt = member.is_upstream.then(|| Arc::clone(&self.learnt));
        let notes_dropped = self.metrics.notes_dropped().clone();
        let future = Box::pin(async move {
            let _held = (counted, running);
            let outcome =
                within(limit, start, &inner, member.upstream_name(), member.backend.call(call, &observed.cx))
                    .await;
            notes_dropped.add(inner.take_dropped());
            if let (Some(learnt), Ok(reply)) = (learnt, &outcome) {
                learnt.learn(&observed.cx.principal, &member.name, method, &reply.result);
            }
            let issue = |reply| match &issuer {
                Some(issuer) => issuer.issue(reply, &member, &observed.cx.principal),
                None => reply,
            };
            let outcome = outcome
                .map(|reply| issue(returned::reply(reply, method, &member, version, wraps)))
                .map_err(|error| returned::error(error, uri.as_deref()));
            observed.finish(&outcome);
            outcome
        });
        Ok(Job::new(id, outbox, future))
    }

    /// Counts one more call in progress, unless the caller has too many.
    pub(crate) fn count_call(&self, caller: &Caller) -> Result<Counted, CallError> {
        let limit = caller.snapshot.config.security.limits.calls.map_or(usize::MAX, Into::into);
        let counted = self.calls.count(caller.admitted.principal(), limit);
        counted.ok_or_else(|| {
            let error =
                CallError::limited(AGAIN, format!("Too many calls in progress: at most {limit} at a time"));
            self.refused(caller, &error);
            error
        })
    }

    /// Counts a call that was refused before it began.
    pub(crate) fn refused(&self, caller: &Caller, error: &CallError) {
        let reason = match &error.kind {
            Kind::MissingScope { .. } => Some(Reason::Scope),
            Kind::Limited { .. } => Some(Reason::RateLimited),
            _ => None,
        };
        if let Some(reason) = reason {
            self.metrics.refused(reason.as_str()).increment();
        }
        let principal = caller.admitted.principal().as_str();
        tracing::info!(principal, kind = error_type(error).as_str(), "call refused");
    }

    /// Notes how a request ended that was answered at once.
    pub(crate) fn observe(&self, method: Method, transport: Transport, started: Instant, outcome: &Outcome) {
        self.operation(method, transport).observe(started.elapsed(), outcome.as_ref().err().map(error_type));
    }

    pub(crate) async fn view(&self, caller: &Caller) -> Arc<View> {
        let cx = || {
            let resolved = resolve(caller, &Params::default(), None);
            let peer = Peer::silent(Arc::clone(&caller.client));
            context_of(caller, resolved, peer, Instant::now() + timeout(caller, None))
        };
        let catalog = &caller.snapshot.catalog;
        catalog.view(&caller.admitted, caller.profile.as_ref(), &caller.client, cx).await
    }

    pub(crate) fn context(
        &self,
        caller: &Caller,
        params: &Params,
        claimed: Option<&Claimed>,
        peer: Peer,
        deadline: Instant,
    ) -> Result<Context, CallError> {
        let resolved = resolve(caller, params, claimed);
        if let Some(field) = context::unusable(&resolved.ids) {
            let most = context::MAX_ID;
            let message = format!("the {field} id must be at most {most} bytes without control characters");
            return Err(CallError::invalid_params(message));
        }
        if resolved.defaulted {
            self.warn_default_session(caller.admitted.principal(), &resolved.ids.session);
        }
        Ok(context_of(caller, resolved, peer, deadline))
    }
}

/// A page of a list that stays good so long. Lists depend on the caller's scopes, so nobody else may be given them.
pub(crate) fn listed(page: Raw, ttl: Duration) -> Reply {
    let freshness = Some(Freshness { ttl, public: false });
    // A page is written here, and may be too long to look through for nothing.
    Reply { freshness, may_have_meta: false, ..page.into() }
}

/// The context ids of a call, from wherever this caller may name them.
fn resolve(caller: &Caller, params: &Params, claimed: Option<&Claimed>) -> Resolved {
    let admitted = &caller.admitted;
    let sources = Sources {
        claimed: claimed.filter(|_| admitted.scopes().allow_named(Scope::CONTEXT_WRITE)),
        token: None,
        headers: &caller.header_ids,
        meta: params.meta(),
        transport: caller.transport_session.as_ref(),
    };
    context::resolve(&sources, admitted.principal().kind(), &caller.snapshot.config.context)
}

/// The session that a call with these parameters is for.
pub(crate) fn session_of(caller: &Caller, params: &Params) -> Arc<str> {
    resolve(caller, params, None).ids.session
}

fn context_of(caller: &Caller, resolved: Resolved, peer: Peer, deadline: Instant) -> Context {
    Context {
        principal: caller.admitted.principal().clone(),
        ids: resolved.ids,
        deadline,
        client: Arc::clone(&caller.client),
        peer,
        log_level: caller.log_level,
        transport_session: caller.transport_session.clone(),
        session_named: !resolved.defaulted,
    }
}

/// How long a call may take.
pub(crate) fn timeout(caller: &Caller, route: Option<Duration>) -> Duration {
    let limits = &caller.snapshot.config.security.limits;
    route.unwrap_or(limits.call_timeout).min(limits.max_timeout)
}

/// Tells a backend that asks for them which ids a call is for.
fn inject(call: &mut Call, how: Inject, ids: &ContextIds) {
    match (how, &mut call.operation) {
        (Inject::Fields, Operation::CallTool { arguments, .. }) => {
            *arguments = context::inject(arguments, ids);
        }
        (Inject::Meta, _) => call.meta = Some(meta_with(call.meta.as_ref(), ids)),
        (Inject::None | Inject::Fields, _) => {}
    }
}

fn link(way: Way, outbox: &Arc<Outbox>, version: Version) -> (Arc<dyn Link>, Option<Running>) {
    match way {
        Way::Session { live, running, can_stream } => {
            let outbox = Arc::clone(outbox);
            (Arc::new(SessionLink { live, outbox, version, can_stream }), Some(running))
        }
        Way::Rounds { responses } => {
            outbox.bring(responses.as_ref().map(Raw::members).unwrap_or_default());
            (Arc::new(RoundsLink { outbox: Arc::clone(outbox), version }), None)
        }
    }
}

/// The outbox of a request that wants progress and logs as `params` and `caller` say.
pub(crate) fn outbox(caller: &Caller, params: &Params) -> Arc<Outbox> {
    Arc::new(Outbox::new(params.meta().progress_token(), caller.log_level))
}

/// The error for a method nothing here implements.
pub fn unsupported(method: Method) -> CallError {
    CallError::client(Kind::Unsupported, format!("Method not found: {}", method.as_str()))
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

#[cfg(test)]
mod tests;
