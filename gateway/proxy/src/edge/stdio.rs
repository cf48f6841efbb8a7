//! A pipe in front of the engine: both eras on one stream of messages.
//!
//! One task reads, one writes, and every request has its own, so that a slow call holds up nothing. The pipe is the
//! caller's session: what HTTP keeps under a session id lives here, and ends with the input.

use std::{
    collections::BTreeSet,
    future::Future,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use moongate_core::{Client, SessionKey, task::Group};
use moongate_security::Admitted;
use moongate_storage::{Entry, SessionRecord};
use moongate_telemetry::Transport;
use moongate_wire::{
    Frame, Id, Message, Method, Params, Raw, Request, RpcError, Version, code,
    era::{self, Verdict},
    frame::Malformed,
    ladder,
    write::{self, NoId},
};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    sync::mpsc,
};
use tokio_util::sync::CancellationToken;

use self::framing::{Framed, Framing, Reader};
use crate::{
    engine::{Caller, Identity, Way},
    gateway::{Gateway, random_id},
    hub::{self, Filter, Listener},
    job::{Job, Step},
    legacy::{Hello, Place, cancelled},
    modern,
    parked::Resumed,
    session::Live,
    shape,
};

mod framing;

/// Messages that wait to be written; when full, whoever has something to say waits.
const CAPACITY: usize = 64;
/// After the input ended, running calls may still answer for so long: `echo … | moongate stdio` gets its answer.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Who is at the other end of a pipe.
#[derive(Debug)]
pub struct Peer {
    /// The gate's word.
    pub admitted: Admitted,
    /// The profile the pipe was started with; it exists.
    pub profile: Option<Arc<str>>,
}

/// What a pipe's legacy client has set.
#[derive(Debug)]
pub(crate) struct PipeSession {
    live: Arc<Live>,
    record: Mutex<SessionRecord>,
    listener: Listener,
}

impl PipeSession {
    pub(crate) fn live(&self) -> &Arc<Live> {
        &self.live
    }

    pub(crate) fn edit(&self, change: impl FnOnce(&mut SessionRecord)) {
        let mut record = self.lock();
        change(&mut record);
        let uris = record.subscriptions.clone();
        self.listener.refine(|filter| filter.uris = uris);
    }

    fn lock(&self) -> MutexGuard<'_, SessionRecord> {
        self.record.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Serves one pipe until its input ends or `stop` resolves.
///
/// # Cancel safety
/// Not cancel safe: a dropped pipe does not tell its backends that it ended. Use `stop`.
pub async fn serve(
    gateway: Arc<Gateway>,
    peer: Peer,
    input: impl AsyncRead + Unpin + Send + 'static,
    output: impl AsyncWrite + Unpin + Send + 'static,
    stop: impl Future<Output = ()> + Send,
) {
    let tasks = Group::new();
    let (out, messages) = mpsc::channel(CAPACITY);
    let framing = Framing::default();
    let written = CancellationToken::new();
    let (done, writer) = (written.clone(), framing.clone());
    tasks.spawn(async move {
        framing::write(output, messages, &writer).await;
        done.cancel();
    });
    let max = gateway.snapshot().config.server.max_body;
    let id: Arc<str> = random_id().to_string().into();
    let live = Arc::new(Live::new(Arc::clone(&id), "pipe".into(), Weak::new()));
    let pipe = Arc::new(Pipe {
        gateway,
        peer: Arc::new(peer.admitted),
        profile: peer.profile,
        out,
        live,
        legacy: Mutex::default(),
    });
    let mut reader = Reader::new(input, framing, max);
    let calls = Calls { running: Group::new(), background: Group::new() };
    let reading = async {
        loop {
            match reader.next().await {
                Framed::Frame(body) => pipe.receive(Frame::parse(&body), &calls).await,
                Framed::Bad(error) => pipe.say(write::error(None, pipe.no_id(), &error)).await,
                Framed::Broken(error) => {
                    pipe.say(write::error(None, pipe.no_id(), &error)).await;
                    break;
                }
                Framed::End => break,
            }
        }
    };
    tokio::select! {
        () = reading => calls.running.settle(LAST_ANSWERS).await,
        () = stop => {}
        () = written.cancelled() => tracing::info!("the pipe's reader is gone"),
    }
    pipe.live.end();
    calls.background.shut_down(LAST_ANSWERS).await;
    calls.running.shut_down(LAST_ANSWERS).await;
    pipe.gateway.session_ended(&SessionKey { principal: pipe.peer.principal().clone(), session: id }).await;
    // The last sender goes with the pipe; the writer then finishes what waits.
    drop(pipe);
    tokio::select! {
        () = written.cancelled() => {}
        () = tokio::time::sleep(LAST_ANSWERS) => {}
    }
    tasks.shut_down(Duration::ZERO).await;
}

/// The tasks of one pipe.
struct Calls {
    /// Requests that are to be answered.
    running: Group,
    /// What goes on until the pipe ends: listens, change notifications.
    background: Group,
}

/// The state of one pipe.
struct Pipe {
    gateway: Arc<Gateway>,
    peer: Arc<Admitted>,
    profile: Option<Arc<str>>,
    out: mpsc::Sender<Raw>,
    live: Arc<Live>,
    /// Set by `initialize`.
    legacy: Mutex<Option<Arc<PipeSession>>>,
}

impl Pipe {
    async fn say(&self, message: Raw) {
        // The writer ends only with the pipe; then nobody listens.
        drop(self.out.send(message).await);
    }

    fn legacy(&self) -> Option<Arc<PipeSession>> {
        self.legacy.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn no_id(&self) -> NoId {
        let version = self.legacy().map(|session| session.lock().version);
        if version.is_some_and(|version| version < Version::V2025_11_25) { NoId::Null } else { NoId::Omit }
    }

    async fn receive(self: &Arc<Self>, frame: Result<Frame, Malformed>, calls: &Calls) {
        match frame {
            Err(malformed) => {
                self.say(write::error(malformed.id.as_ref(), self.no_id(), &malformed.error)).await;
            }
            Ok(Frame::One(message)) => self.message(message, calls).await,
            Ok(Frame::Batch(messages)) => self.batch(messages, calls).await,
        }
    }

    async fn message(self: &Arc<Self>, message: Message, calls: &Calls) {
        let raw = match &message {
            Message::Request(request) => request.params.as_ref(),
            Message::Notification(notification) => notification.params.as_ref(),
            Message::Response(_) => None,
        };
        let params = Params::read(raw);
        match message {
            Message::Notification(notification) => cancelled(&self.live, &notification),
            Message::Response(response) => {
                if let Some(id) = &response.id {
                    self.live.answer(id, response.outcome);
                }
            }
            Message::Request(request) => match params {
                Ok(params) => self.request(request, params, calls).await,
                Err(error) => {
                    let error = RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {error}"));
                    self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
                }
            },
        }
    }

    async fn request(self: &Arc<Self>, request: Request, params: Params, calls: &Calls) {
        let refuse = |id: &Id, error: &RpcError| write::error(Some(id), NoId::Omit, error);
        if let Some(error) = self.limited().await {
            return self.say(refuse(&request.id, &error)).await;
        }
        let message = Message::Request(request.clone());
        match era::decide_stdio(&message, &params.meta, self.legacy().is_some()) {
            Err(error) => self.say(refuse(&request.id, &error)).await,
            Ok(Verdict::Modern) => match ladder::check_stdio(&request, &params) {
                Err(error) => self.say(refuse(&request.id, &error)).await,
                Ok((version, method)) => {
                    let pipe = Arc::clone(self);
                    let group = if method == Method::Listen { &calls.background } else { &calls.running };
                    group.spawn(async move { pipe.modern(version, method, request, params).await });
                }
            },
            // In order with what follows it: the next line may need the session.
            Ok(Verdict::Initialize) => self.initialize(&request, calls).await,
            Ok(Verdict::Legacy) => {
                let pipe = Arc::clone(self);
                calls.running.spawn(async move { pipe.in_session(request, params).await });
            }
        }
    }

    async fn limited(&self) -> Option<RpcError> {
        match self.gateway.state().enter(None, self.peer.rates()).await {
            Ok(Entry::Limited { retry_after }) => {
                let seconds = retry_after.as_secs().max(1);
                Some(RpcError::new(code::INTERNAL, format!("rate limit exceeded; try again in {seconds} s")))
            }
            _ => None,
        }
    }

    fn caller(&self, client: Client, log_level: Option<moongate_core::Level>) -> Caller {
        Caller {
            snapshot: self.gateway.snapshot(),
            admitted: Arc::clone(&self.peer),
            profile: self.profile.clone(),
            client: Arc::new(client),
            transport: Transport::Pipe,
            header_ids: [None, None, None],
            transport_session: Some(Arc::clone(&self.live.id)),
            log_level,
        }
    }

    async fn initialize(self: &Arc<Self>, request: &Request, calls: &Calls) {
        if self.legacy().is_some() {
            let error =
                RpcError::new(code::INVALID_REQUEST, "Invalid Request: the session is already initialized");
            return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
        }
        let hello = match Hello::read(request.params.as_ref()) {
            Ok(hello) => hello,
            Err(error) => {
                let last =
                    shape::final_message(&request.id, Method::Initialize, Err(error), Version::LATEST_LEGACY);
                return self.say(last).await;
            }
        };
        let client = hello.client();
        let record = SessionRecord {
            layout: SessionRecord::LAYOUT,
            principal: self.peer.principal().to_string(),
            path: String::new(),
            version: client.version,
            capabilities: client.capabilities.clone(),
            info: client.info.clone(),
            log_level: None,
            subscriptions: BTreeSet::new(),
        };
        let listener = self.gateway.hub.listen(Filter::lists());
        let session =
            Arc::new(PipeSession { live: Arc::clone(&self.live), record: Mutex::new(record), listener });
        *self.legacy.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&session));
        let result = self.gateway.initialize(&self.caller(client, None)).await;
        self.say(write::result(&request.id, &result)).await;
        let out = self.out.clone();
        calls.background.spawn(async move {
            loop {
                for change in session.listener.changes().await {
                    if out.send(hub::notification(&change, None)).await.is_err() {
                        return;
                    }
                }
            }
        });
    }

    async fn in_session(self: Arc<Self>, request: Request, params: Params) {
        let Some(session) = self.legacy() else {
            // Only ping is let through before the handshake.
            return self.say(write::result(&request.id, &Raw::empty_object())).await;
        };
        let caller = self.session_caller(&session);
        let version = caller.client.version;
        let Some(method) = Method::parse(&request.method, version) else {
            let error =
                RpcError::new(code::METHOD_NOT_FOUND, format!("Method not found: {}", request.method));
            return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
        };
        if !method.may_ask() {
            let started = tokio::time::Instant::now();
            let outcome =
                self.gateway.legacy_quick(&caller, &Place::Pipe(&session), method, &request, &params).await;
            self.gateway.observe(method, Transport::Pipe, started, &outcome);
            return self.say(shape::final_message(&request.id, method, outcome, version)).await;
        }
        let way = Way::Session { live: Arc::clone(&self.live), can_stream: true };
        match self.gateway.begin(&caller, request.id.clone(), method, &params, way, &|_, _| Ok(())).await {
            Err(error) => self.say(shape::final_message(&request.id, method, Err(error), version)).await,
            Ok(job) => self.drive(&caller, method, &Identity::of(method, &params), job).await,
        }
    }

    fn session_caller(&self, session: &PipeSession) -> Caller {
        let record = session.lock();
        let client = Client {
            version: record.version,
            capabilities: record.capabilities.clone(),
            info: record.info.clone(),
        };
        self.caller(client, record.log_level)
    }

    async fn modern(self: Arc<Self>, version: Version, method: Method, request: Request, params: Params) {
        let failed = |error| shape::final_message(&request.id, method, Err(error), version);
        let caller = match modern::client(version, &params) {
            Ok((client, log_level)) => self.caller(client, log_level),
            Err(error) => return self.say(failed(error)).await,
        };
        let started = tokio::time::Instant::now();
        if let Some(outcome) = self.gateway.modern_quick(&caller, method, &request, &params).await {
            self.gateway.observe(method, Transport::Pipe, started, &outcome);
            return self.say(shape::final_message(&request.id, method, outcome, version)).await;
        }
        if method == Method::Listen {
            return self.listen(&caller, &request, version).await;
        }
        let identity = Identity::of(method, &params);
        let job = if let Some(state) = &params.request_state {
            match self.gateway.resume(&caller, request.id.clone(), &identity, state, &params) {
                Ok(Resumed::Go(job)) => job,
                Ok(Resumed::Again(result)) => return self.say(write::result(&request.id, &result)).await,
                Err(error) => return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await,
            }
        } else {
            let way = Way::Rounds { responses: params.input_responses.clone() };
            match self.gateway.begin(&caller, request.id.clone(), method, &params, way, &|_, _| Ok(())).await
            {
                Ok(job) => job,
                Err(error) => return self.say(failed(error)).await,
            }
        };
        // Registered here, as a modern call's link does not know the pipe: `notifications/cancelled` finds it.
        let Some(_running) = self.live.start(&request.id, job.outbox()) else {
            let error = RpcError::new(
                code::INVALID_REQUEST,
                "Invalid Request: a request with this id is still running",
            );
            return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
        };
        self.drive(&caller, method, &identity, job).await;
    }

    async fn drive(&self, caller: &Caller, method: Method, identity: &Identity, mut job: Job) {
        let version = caller.client.version;
        loop {
            match job.step().await {
                Step::Message(message) => self.say(message).await,
                Step::HangUp => {}
                // After a cancellation nothing more is said about the call.
                Step::Cancelled => return,
                Step::Ask(questions) => {
                    let id = job.id.clone();
                    let message = match self.gateway.park(caller, identity, job, questions) {
                        Ok(result) => write::result(&id, &result),
                        Err(error) => shape::final_message(&id, method, Err(error), version),
                    };
                    return self.say(message).await;
                }
                Step::Done(outcome) => {
                    return self.say(shape::final_message(&job.id, method, outcome, version)).await;
                }
            }
        }
    }

    async fn listen(&self, caller: &Caller, request: &Request, version: Version) {
        let outbox = Arc::default();
        let Some(_running) = self.live.start(&request.id, &outbox) else {
            let error = RpcError::new(
                code::INVALID_REQUEST,
                "Invalid Request: a request with this id is still running",
            );
            return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
        };
        match self.gateway.listen(caller, request.id.clone(), request.params.as_ref()).await {
            Err(error) => {
                self.say(shape::final_message(&request.id, Method::Listen, Err(error), version)).await;
            }
            Ok(listening) => {
                // A listen says nothing by itself; its outbox only hears of the cancellation.
                let mut cancelled = Job::new(request.id.clone(), outbox, Box::pin(std::future::pending()));
                let stopped = async { drop(cancelled.step().await) };
                listening.run(self.out.clone(), stopped).await;
            }
        }
    }

    async fn batch(self: &Arc<Self>, messages: Vec<Result<Message, Malformed>>, calls: &Calls) {
        let session = self.legacy().filter(|session| session.lock().version == Version::V2025_03_26);
        let Some(session) = session else {
            let error =
                RpcError::new(code::INVALID_REQUEST, "Invalid Request: batches exist in 2025-03-26 only");
            return self.say(write::error(None, self.no_id(), &error)).await;
        };
        let pipe = Arc::clone(self);
        calls.running.spawn(async move {
            let caller = pipe.session_caller(&session);
            let mut answers = Vec::new();
            for message in messages {
                match message {
                    Err(malformed) => {
                        answers.push(write::error(malformed.id.as_ref(), NoId::Null, &malformed.error));
                    }
                    Ok(Message::Request(request)) => {
                        answers.push(
                            pipe.gateway.answer_batched(&caller, &Place::Pipe(&session), request).await,
                        );
                    }
                    Ok(Message::Notification(notification)) => cancelled(&pipe.live, &notification),
                    Ok(Message::Response(response)) => {
                        if let Some(id) = &response.id {
                            pipe.live.answer(id, response.outcome);
                        }
                    }
                }
            }
            if !answers.is_empty() {
                pipe.say(write::array(&answers)).await;
            }
        });
    }
}
