//! Legacy requests over HTTP: sessions, their streams, and calls that outlive the connection that made them.

use std::{collections::BTreeMap, sync::Arc};

use http::{HeaderValue, Response};
use moongate_core::{CallError, Client, Kind};
use moongate_security::{Denied, Reason};
use moongate_storage::{Entry, SessionRecord};
use moongate_telemetry::Transport;
use moongate_wire::{
    Era, Id, Message, Method, Params, Refusal, Request, RpcError, Version, code,
    frame::Malformed,
    ladder,
    write::{self, NoId},
};
use tokio::time::Instant;

use super::{Visit, accept::Accept, answer, id_of, names};
use crate::{
    edge::body::Body,
    engine::{self, Caller, Way},
    gateway::{Gateway, random_id},
    job::{Job, Outcome, Step},
    legacy::{Hello, Place},
    session::Live,
    tally::AGAIN,
    target::UNCHECKED,
};

/// A request inside a session.
pub(super) struct InSession<'a> {
    pub(super) visit: &'a Visit<'a>,
    pub(super) live: Arc<Live>,
    pub(super) caller: Caller,
}

impl Visit<'_> {
    pub(super) async fn initialize(&self, request: &Request, accept: Accept) -> Response<Body> {
        match self.enter(Some(&request.id), self.session).await {
            Err(response) => return *response,
            Ok(Entry::Welcome(Some(_))) => {
                let refusal = Refusal::new(
                    400,
                    code::INVALID_REQUEST,
                    "Invalid Request: the session is already initialized",
                );
                return answer::refused(Some(&request.id), &refusal);
            }
            Ok(_) => {}
        }
        let hello = match Hello::read(request.params.raw().as_ref()) {
            Ok(hello) => hello,
            Err(error) => {
                return answer::failure(
                    &request.id,
                    Method::Initialize,
                    &error,
                    Version::LATEST_LEGACY,
                    accept,
                );
            }
        };
        let client = Arc::new(hello.client());
        match self.create(&request.id, &client).await {
            Err(response) => *response,
            Ok(id) => {
                let caller = self.legacy_caller(client, Arc::clone(&id), None);
                let result = self.gateway.initialize(&caller);
                let mut response = answer::message(200, write::result(&request.id, &result), accept);
                if let Ok(value) = HeaderValue::from_str(&id) {
                    response.headers_mut().insert(names::SESSION_ID, value);
                }
                response
            }
        }
    }

    async fn create(&self, request: &Id, client: &Client) -> Result<Arc<str>, Box<Response<Body>>> {
        let limit = self.snapshot.config.security.limits.sessions.map_or(usize::MAX, Into::into);
        let principal = self.admitted.principal();
        let Some(counted) = self.gateway.count_session(principal, limit) else {
            self.gateway.metrics.refused(Reason::RateLimited.as_str()).increment();
            tracing::info!(%principal, "too many sessions");
            let message = format!("too many sessions: at most {limit} at a time; end some with DELETE");
            let error = RpcError::new(code::SERVER, message);
            let refusal = Denied { error, ..Denied::rate_limited(AGAIN) };
            return Err(Box::new(answer::denied(Some(request), &refusal)));
        };
        let id: Arc<str> = random_id().to_string().into();
        let record = SessionRecord {
            layout: SessionRecord::LAYOUT,
            principal: principal.to_string(),
            path: self.head.uri.path().to_owned(),
            version: client.version,
            capabilities: client.capabilities.clone(),
            info: client.info.clone(),
            log_level: None,
            subscriptions: BTreeMap::new(),
        };
        if let Err(error) = self.gateway.state().put(&id, record).await {
            tracing::error!(%error, "the session could not be stored");
            return Err(Box::new(answer::refused(
                Some(request),
                &Refusal::new(503, code::INTERNAL, "Internal error: sessions cannot be stored"),
            )));
        }
        self.gateway.sessions.created(&id, counted);
        self.gateway.count_sessions().await;
        Ok(id)
    }

    fn legacy_caller(
        &self,
        client: Arc<Client>,
        session: Arc<str>,
        record: Option<&SessionRecord>,
    ) -> Caller {
        Caller {
            snapshot: Arc::clone(&self.snapshot),
            admitted: Arc::clone(&self.admitted),
            profile: self.profile.clone(),
            client,
            transport: Transport::Tcp,
            header_ids: self.header_ids(),
            trace: self.trace(),
            transport_session: Some(session),
            log_level: record.and_then(|record| record.log_level),
        }
    }

    /// The session this request names, if it is the caller's own on this path.
    async fn session(&self, request: Option<&Id>) -> Result<InSession<'_>, Box<Response<Body>>> {
        if self.version.is_some_and(|text| Version::parse(text).is_none()) {
            let message = "Bad Request: unsupported protocol version in MCP-Protocol-Version";
            let error = RpcError::new(code::SERVER, message);
            return Err(Box::new(answer::error(400, request, self.no_id(), &error, Accept::JSON)));
        }
        let Some(id) = self.session else {
            let refusal = Refusal::new(
                400,
                code::SERVER,
                "Bad Request: missing Mcp-Session-Id header; begin with initialize",
            );
            return Err(Box::new(answer::error(400, request, self.no_id(), &refusal.error, Accept::JSON)));
        };
        let record = match self.enter(request, Some(id)).await? {
            Entry::Welcome(Some(record)) => Some(record),
            _ => None,
        };
        // Another's session, or one of another path, must look as if it did not exist.
        let own = |record: &Arc<SessionRecord>| {
            record.principal == self.admitted.principal().as_str() && record.path == self.head.uri.path()
        };
        let Some(record) = record.filter(own) else {
            let status = self.snapshot.config.sessions.expired_status.code();
            let error = Refusal::new(status, code::FORBIDDEN, "session expired").error;
            return Err(Box::new(answer::error(status, request, self.no_id(), &error, Accept::JSON)));
        };
        let live = self.gateway.sessions.enter(id);
        let caller = self.legacy_caller(live.client(&record), Arc::clone(&live.id), Some(&record));
        Ok(InSession { visit: self, live, caller })
    }

    pub(super) async fn legacy(&self, message: &Message, accept: Accept) -> Response<Body> {
        let session = match self.session(id_of(message)).await {
            Ok(session) => session,
            Err(response) => return *response,
        };
        match message {
            Message::Request(request) => session.request(request, accept).await,
            other => {
                self.gateway.take(self.admitted.principal(), &session.live, other);
                answer::accepted()
            }
        }
    }

    pub(super) async fn batch(
        &self,
        messages: Vec<Result<Message, Malformed>>,
        accept: Accept,
    ) -> Response<Body> {
        let refuse = |why: &'static str| {
            let error = Refusal::new(400, code::INVALID_REQUEST, why).error;
            answer::error(400, None, self.no_id(), &error, Accept::JSON)
        };
        if messages.iter().flatten().any(is_modern) {
            return refuse("Invalid Request: this version has no batches");
        }
        if messages.iter().flatten().any(is_initialize) {
            return refuse("Invalid Request: initialize cannot be part of a batch");
        }
        let session = match self.session(None).await {
            Ok(session) => session,
            Err(response) => return *response,
        };
        if session.caller.client.version != Version::V2025_03_26 {
            return refuse("Invalid Request: batches exist in 2025-03-26 only");
        }
        // The first of them was counted on entering.
        if let Err(response) = self.count(messages.len().saturating_sub(1)).await {
            return *response;
        }
        // In a task of the session's: a client that leaves does not cancel.
        let (gateway, caller, live) = (Arc::clone(self.gateway), session.caller, session.live);
        let (done, answers) = tokio::sync::oneshot::channel();
        self.gateway.tasks.spawn(async move {
            let answers = gateway.batch(&caller, &Place::Stored(&live), messages).await;
            // Nobody may wait for them any more.
            drop(done.send(answers));
        });
        let answers = answers.await.unwrap_or_default();
        if answers.is_empty() {
            answer::accepted()
        } else {
            answer::message(200, write::array(&answers), accept)
        }
    }

    pub(super) async fn get(&self) -> Response<Body> {
        if self.era() == Era::Modern {
            return post_only();
        }
        if !Accept::read(self.named.accept, &self.head.headers).is_some_and(|accept| accept.events) {
            let refusal = Refusal::new(
                406,
                code::INVALID_REQUEST,
                "not acceptable: GET answers with text/event-stream",
            );
            return answer::refused(None, &refusal);
        }
        match self.session(None).await {
            Ok(session) => session.open_stream().await,
            Err(response) => *response,
        }
    }

    pub(super) async fn delete(&self) -> Response<Body> {
        if self.era() == Era::Modern {
            return post_only();
        }
        let session = match self.session(None).await {
            Ok(session) => session,
            Err(response) => return *response,
        };
        match self.gateway.state().end(&session.live.id).await {
            Ok(_) => answer::done(),
            Err(error) => {
                tracing::error!(%error, "the session could not be ended");
                answer::refused(
                    None,
                    &Refusal::new(503, code::INTERNAL, "Internal error: sessions cannot be reached"),
                )
            }
        }
    }
}

fn post_only() -> Response<Body> {
    let mut response = answer::refused(
        None,
        &Refusal::new(405, code::INVALID_REQUEST, "method not allowed: this version uses POST only"),
    );
    response.headers_mut().insert(http::header::ALLOW, HeaderValue::from_static("POST"));
    response
}

fn is_initialize(message: &Message) -> bool {
    matches!(message, Message::Request(request) if &*request.method == Method::Initialize.as_str())
}

fn is_modern(message: &Message) -> bool {
    message.params().is_some_and(|params| params.meta().claims())
}

impl InSession<'_> {
    pub(super) fn gateway(&self) -> &Arc<Gateway> {
        self.visit.gateway
    }

    pub(super) fn version(&self) -> Version {
        self.caller.client.version
    }

    async fn request(&self, request: &Request, accept: Accept) -> Response<Body> {
        let version = self.version();
        let Some(method) = Method::parse(&request.method, version) else {
            let error = ladder::not_found(&request.method);
            return answer::error(200, Some(&request.id), NoId::Omit, &error, accept);
        };
        if method.may_ask() {
            return self.call(request, method, accept).await;
        }
        let started = Instant::now();
        let outcome = Box::pin(self.quick(method, request)).await;
        self.gateway().observe(method, Transport::Tcp, started, &outcome);
        answer::outcome(&request.id, method, outcome, version, accept)
    }

    async fn quick(&self, method: Method, request: &Request) -> Outcome {
        self.gateway().legacy_quick(&self.caller, &Place::Stored(&self.live), method, request).await
    }

    async fn call(&self, request: &Request, method: Method, accept: Accept) -> Response<Body> {
        let id = &request.id;
        let job = match self.begin(id, method, &request.params, accept).await {
            Ok(job) => job,
            Err(error) => return answer::failure(id, method, &error, self.version(), accept),
        };
        let mut patient = Patient { job: Some(job), gateway: Arc::clone(self.gateway()) };
        let may_come_back = accept.events && self.version() >= Version::V2025_11_25;
        let leave = self.sent_away().filter(|_| accept.events);
        loop {
            let step = match leave {
                // Not even begun to answer, and it is time to go: that takes a stream to come back to.
                Some(leave) => tokio::time::timeout_at(leave, patient.step()).await.unwrap_or(Step::HangUp),
                None => patient.step().await,
            };
            match step {
                Step::Message(message) if accept.events => {
                    return self.stream(patient, method, Some(message), leave);
                }
                Step::HangUp if may_come_back => {
                    return self.stream(patient, method, None, Some(Instant::now()));
                }
                Step::Message(_) | Step::HangUp | Step::Ask(_) => {}
                Step::Cancelled => {
                    patient.job = None;
                    let error = CallError::client(Kind::Cancelled, "Request cancelled");
                    return answer::failure(id, method, &error, self.version(), accept);
                }
                Step::Done(outcome) => {
                    patient.job = None;
                    return answer::outcome(id, method, outcome, self.version(), accept);
                }
            }
        }
    }

    /// When a client that has come now is to leave and come back, if it can.
    pub(super) fn sent_away(&self) -> Option<Instant> {
        let after = self.caller.snapshot.config.sessions.poll_after?;
        (self.version() >= Version::V2025_11_25).then(|| Instant::now() + after)
    }

    async fn begin(
        &self,
        id: &Id,
        method: Method,
        params: &Params,
        accept: Accept,
    ) -> Result<Job, CallError> {
        let outbox = engine::outbox(&self.caller, params);
        let running = self.live.start(id, &outbox)?;
        let way = Way::Session { live: Arc::clone(&self.live), running, can_stream: accept.events };
        let request = (id.clone(), method, params);
        self.gateway().begin(&self.caller, request, outbox, way, UNCHECKED).await
    }
}

/// A legacy call while its client waits for JSON. Its client leaving does not cancel it: it goes on unheard.
pub(super) struct Patient {
    pub(super) job: Option<Job>,
    gateway: Arc<Gateway>,
}

impl Patient {
    async fn step(&mut self) -> Step {
        match &mut self.job {
            Some(job) => job.step().await,
            None => Step::Cancelled,
        }
    }
}

impl Drop for Patient {
    fn drop(&mut self) {
        if let Some(job) = self.job.take() {
            self.gateway.tasks.spawn(job.run_unheard());
        }
    }
}
