//! A pipe in front of the engine: both eras on one stream of messages.
//!
//! One task reads, one writes, and every request has its own, so that a slow call holds up nothing. The pipe is the
//! caller's session: what HTTP keeps under a session id lives here, and ends with the input.

use std::{
    collections::BTreeMap,
    future::Future,
    num::NonZeroU32,
    pin::pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak},
    time::Duration,
};

use moongate_core::{CallError, Client, Level, SessionKey, task::Group};
use moongate_security::{Admitted, Reason, Secret};
use moongate_storage::{Entry, Rate, SessionRecord};
use moongate_telemetry::Transport;
use moongate_wire::{
    Frame, Message, Method, Params, Raw, Request, RpcError, Version, code,
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
    job::{Job, Outbox, Step},
    legacy::{Hello, Place},
    listen::Closing,
    modern,
    parked::Resumed,
    session::{Live, Running},
    shape,
    target::UNCHECKED,
};

mod framing;

/// Messages that wait to be written; when full, whoever has something to say waits.
const CAPACITY: usize = 64;
/// After the input ended, running calls may still answer for so long: `echo … | moongate stdio` gets its answer.
const LAST_ANSWERS: Duration = Duration::from_secs(5);

/// Who is at the other end of a pipe.
#[derive(Debug)]
pub struct Peer {
    /// The gate's word when the pipe was opened.
    pub admitted: Admitted,
    /// The token it was given for, if not the user's own pipe: it is asked for again with every request.
    pub token: Option<Secret>,
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
    let live = Arc::new(Live::new(Arc::clone(&id), gateway.sessions.instance(), Weak::new()));
    let principal = peer.admitted.principal().clone();
    let pipe = Arc::new(Pipe {
        gateway,
        peer,
        out,
        live,
        legacy: Mutex::default(),
        stopping: CancellationToken::new(),
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
    pipe.stopping.cancel();
    calls.background.settle(LAST_ANSWERS).await;
    pipe.live.end();
    calls.running.shut_down(LAST_ANSWERS).await;
    pipe.gateway.release(&pipe.live).await;
    pipe.gateway.session_ended(&SessionKey { principal, session: id }).await;
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

/// One request on its way to its era.
struct Turn {
    admitted: Arc<Admitted>,
    request: Request,
    outbox: Arc<Outbox>,
    running: Running,
}

/// The state of one pipe.
struct Pipe {
    gateway: Arc<Gateway>,
    peer: Peer,
    out: mpsc::Sender<Raw>,
    live: Arc<Live>,
    /// Set by `initialize`.
    legacy: Mutex<Option<Arc<PipeSession>>>,
    /// Cancelled when the pipe ends, so that listens are closed in order.
    stopping: CancellationToken,
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
        match message {
            Message::Request(request) => match request.params.check() {
                Ok(()) => self.request(request, calls).await,
                Err(error) => {
                    let error = RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {error}"));
                    self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
                }
            },
            other => self.gateway.take(self.peer.admitted.principal(), &self.live, &other),
        }
    }

    async fn request(self: &Arc<Self>, request: Request, calls: &Calls) {
        let admitted = match self.admit(1).await {
            Ok(admitted) => admitted,
            Err(error) => return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await,
        };
        let message = Message::Request(request.clone());
        let verdict = era::decide_stdio(&message, self.legacy().is_some());
        let modern = match verdict {
            Err(error) => return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await,
            // In order with what follows it: the next line may need the session.
            Ok(Verdict::Initialize) => return self.initialize(&admitted, &request, calls).await,
            Ok(Verdict::Legacy) => None,
            Ok(Verdict::Modern) => match ladder::check_stdio(&request) {
                Ok(checked) => Some(checked),
                Err(error) => return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await,
            },
        };
        // Registered before the next line is read: that may cancel it.
        let outbox = Arc::new(Outbox::new(request.params.meta().progress_token(), None));
        let running = match self.live.start(&request.id, &outbox) {
            Ok(running) => running,
            Err(why) => {
                let error = RpcError::new(code::INVALID_PARAMS, CallError::from(why).public);
                return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
            }
        };
        let turn = Turn { admitted, request, outbox, running };
        let pipe = Arc::clone(self);
        match modern {
            None => calls.running.spawn(async move { pipe.in_session(turn).await }),
            Some((version, Method::Listen)) => {
                calls.background.spawn(async move { pipe.listen(version, turn).await });
            }
            Some((version, method)) => {
                calls.running.spawn(async move { pipe.modern(version, method, turn).await });
            }
        }
    }

    /// Asks the gate again, and counts `requests`: a token may have been revoked since the pipe was opened, and rates
    /// may have changed.
    async fn admit(&self, requests: usize) -> Result<Arc<Admitted>, RpcError> {
        let token = self.peer.token.as_ref().map(Secret::expose);
        let admitted = self.gateway.snapshot().gate.admit_local(token).await.map_err(|denied| {
            self.gateway.metrics.refused(denied.reason.as_str()).increment();
            denied.error
        })?;
        let cost = u32::try_from(requests).ok().and_then(NonZeroU32::new).unwrap_or(NonZeroU32::MIN);
        let rates: Vec<Rate> = admitted.rates().iter().map(|rate| Rate { cost, ..*rate }).collect();
        if let Ok(Entry::Limited { retry_after }) = self.gateway.state().enter(None, &rates).await {
            self.gateway.metrics.refused(Reason::RateLimited.as_str()).increment();
            tracing::info!(principal = admitted.principal().as_str(), "rate limit exceeded");
            let seconds = retry_after.as_millis().div_ceil(1000).max(1);
            let message = format!("rate limit exceeded; try again in {seconds} s");
            return Err(RpcError::new(code::INTERNAL, message));
        }
        Ok(Arc::new(admitted))
    }

    fn caller(&self, admitted: &Arc<Admitted>, client: Arc<Client>, log_level: Option<Level>) -> Caller {
        Caller {
            snapshot: self.gateway.snapshot(),
            admitted: Arc::clone(admitted),
            profile: self.peer.profile.clone(),
            client,
            transport: Transport::Pipe,
            header_ids: [None, None, None],
            trace: None,
            transport_session: Some(Arc::clone(&self.live.id)),
            log_level,
        }
    }

    async fn initialize(self: &Arc<Self>, admitted: &Arc<Admitted>, request: &Request, calls: &Calls) {
        if self.legacy().is_some() {
            let error =
                RpcError::new(code::INVALID_REQUEST, "Invalid Request: the session is already initialized");
            return self.say(write::error(Some(&request.id), NoId::Omit, &error)).await;
        }
        let hello = match Hello::read(request.params.raw().as_ref()) {
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
            principal: admitted.principal().to_string(),
            path: String::new(),
            version: client.version,
            capabilities: client.capabilities.clone(),
            info: client.info.clone(),
            log_level: None,
            subscriptions: BTreeMap::new(),
        };
        let listener = self.gateway.hub.listen(admitted.principal().clone(), Filter::lists());
        let session =
            Arc::new(PipeSession { live: Arc::clone(&self.live), record: Mutex::new(record), listener });
        *self.legacy.lock().unwrap_or_else(PoisonError::into_inner) = Some(Arc::clone(&session));
        let result = self.gateway.initialize(&self.caller(admitted, Arc::new(client), None));
        self.say(write::result(&request.id, &result)).await;
        let (out, stopping) = (self.out.clone(), self.stopping.clone());
        calls.background.spawn(async move {
            let told = async {
                loop {
                    for change in session.listener.changes().await {
                        if out.send(hub::notification(&change, None)).await.is_err() {
                            return;
                        }
                    }
                }
            };
            tokio::select! {
                () = told => {}
                () = stopping.cancelled() => {}
            }
        });
    }

    async fn in_session(self: Arc<Self>, turn: Turn) {
        let Turn { admitted, request, outbox, running } = turn;
        let Some(session) = self.legacy() else {
            // Only ping is let through before the handshake.
            return self.say(write::result(&request.id, &Raw::empty_object())).await;
        };
        let caller = self.session_caller(&admitted, &session);
        let version = caller.client.version;
        let Some(method) = Method::parse(&request.method, version) else {
            return self
                .say(write::error(Some(&request.id), NoId::Omit, &ladder::not_found(&request.method)))
                .await;
        };
        if !method.may_ask() {
            let started = tokio::time::Instant::now();
            let place = Place::Pipe(&session);
            let outcome = self.gateway.legacy_quick(&caller, &place, method, &request).await;
            self.gateway.observe(method, Transport::Pipe, started, &outcome);
            return self.say(shape::final_message(&request.id, method, outcome, version)).await;
        }
        let params = &request.params;
        outbox.rebind(params.meta().progress_token(), caller.log_level);
        let way = Way::Session { live: Arc::clone(&self.live), running, can_stream: true };
        let what = (request.id.clone(), method, params);
        match self.gateway.begin(&caller, what, Arc::clone(&outbox), way, UNCHECKED).await {
            // What is cancelled gets no answer, not even that it was refused meanwhile.
            Err(_) if outbox.is_cancelled() => {}
            Err(error) => self.say(shape::final_message(&request.id, method, Err(error), version)).await,
            Ok(job) => self.drive(&caller, method, params, job).await,
        }
    }

    fn session_caller(&self, admitted: &Arc<Admitted>, session: &PipeSession) -> Caller {
        let record = session.lock();
        self.caller(admitted, self.live.client(&record), record.log_level)
    }

    async fn modern(self: Arc<Self>, version: Version, method: Method, turn: Turn) {
        let Turn { admitted, request, outbox, mut running } = turn;
        let params = &request.params;
        let failed = |error| shape::final_message(&request.id, method, Err(error), version);
        let caller = match modern::client(version, params) {
            Ok((client, log_level)) => self.caller(&admitted, Arc::new(client), log_level),
            Err(error) => return self.say(failed(error)).await,
        };
        if !method.may_ask() {
            let started = tokio::time::Instant::now();
            let outcome = self.gateway.modern_quick(&caller, method, &request).await;
            self.gateway.observe(method, Transport::Pipe, started, &outcome);
            return self.say(shape::final_message(&request.id, method, outcome, version)).await;
        }
        let identity = Identity::of(caller.profile.as_ref(), method, params);
        let what = (request.id.clone(), method, params);
        let started = if let Some(state) = params.request_state() {
            self.gateway.resume(&caller, what, &identity, &state, UNCHECKED).await
        } else {
            outbox.rebind(params.meta().progress_token(), caller.log_level);
            let way = Way::Rounds { responses: params.input_responses() };
            self.gateway.begin(&caller, what, Arc::clone(&outbox), way, UNCHECKED).await.map(Resumed::Go)
        };
        match started {
            _ if outbox.is_cancelled() => {}
            Err(error) => self.say(failed(error)).await,
            Ok(Resumed::Again(result)) => self.say(write::result(&request.id, &result)).await,
            Ok(Resumed::Go(job)) => {
                running.rebind(job.outbox());
                self.drive(&caller, method, params, job).await;
            }
        }
        // Until here `notifications/cancelled` finds the call; a parked one cannot be cancelled by its old id.
        drop(running);
    }

    async fn drive(&self, caller: &Caller, method: Method, params: &Params, mut job: Job) {
        let version = caller.client.version;
        loop {
            match job.step().await {
                Step::Message(message) => self.say(message).await,
                Step::HangUp => {}
                // After a cancellation nothing more is said about the call.
                Step::Cancelled => return,
                Step::Ask(questions) => {
                    let id = job.id.clone();
                    let identity = Identity::of(caller.profile.as_ref(), method, params);
                    let message = match self.gateway.park(caller, &identity, job, questions) {
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

    async fn listen(self: Arc<Self>, version: Version, turn: Turn) {
        let Turn { admitted, request, outbox, running } = turn;
        let listening = match modern::client(version, &request.params) {
            Err(error) => Err(error),
            Ok((client, log_level)) => {
                let caller = self.caller(&admitted, Arc::new(client), log_level);
                self.gateway.listen(&caller, request.id.clone(), &request.params).await
            }
        };
        match listening {
            Err(_) if outbox.is_cancelled() => {}
            Err(error) => {
                self.say(shape::final_message(&request.id, Method::Listen, Err(error), version)).await;
            }
            Ok(listening) => {
                // A listen says nothing by itself; its outbox only hears of the cancellation.
                let mut waiting = Job::new(request.id.clone(), outbox, Box::pin(std::future::pending()));
                let cancelled = pin!(async { drop(waiting.step().await) });
                let stop = pin!(self.stopping.cancelled());
                listening.run(self.out.clone(), cancelled, stop, Closing::ResultAndCancelled).await;
            }
        }
        drop(running);
    }

    async fn batch(self: &Arc<Self>, messages: Vec<Result<Message, Malformed>>, calls: &Calls) {
        let session = self.legacy().filter(|session| session.lock().version == Version::V2025_03_26);
        let Some(session) = session else {
            let error =
                RpcError::new(code::INVALID_REQUEST, "Invalid Request: batches exist in 2025-03-26 only");
            return self.say(write::error(None, self.no_id(), &error)).await;
        };
        let admitted = match self.admit(messages.len()).await {
            Ok(admitted) => admitted,
            Err(error) => return self.say(write::error(None, self.no_id(), &error)).await,
        };
        let pipe = Arc::clone(self);
        calls.running.spawn(async move {
            let caller = pipe.session_caller(&admitted, &session);
            let answers = pipe.gateway.batch(&caller, &Place::Pipe(&session), messages).await;
            if !answers.is_empty() {
                pipe.say(write::array(&answers)).await;
            }
        });
    }
}
