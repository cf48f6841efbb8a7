//! What a legacy session does, whichever edge it came by: the handshake, settings, quick requests, cancellation.

use std::sync::{Arc, OnceLock};

use moongate_core::{CallError, Client, Kind, Operation, Principal, SessionKey};
use moongate_storage::{Entry, SessionRecord};
use moongate_wire::{
    Id, Message, Method, Notification, Params, Raw, Request, Response, RpcError, Version, code,
    frame::Malformed,
    ladder,
    write::{self, NoId},
};
use serde::Deserialize;

use crate::{
    edge::stdio::PipeSession,
    engine::{self, Caller, Way},
    gateway::Gateway,
    job::{Outcome, Step},
    listen::MAX_SUBSCRIPTIONS,
    session::Live,
    shape,
    target::UNCHECKED,
};

/// What `initialize` says.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Hello {
    pub(crate) protocol_version: String,
    #[serde(default = "Raw::empty_object")]
    pub(crate) capabilities: Raw,
    pub(crate) client_info: Option<Raw>,
}

impl Hello {
    /// Reads the parameters of `initialize`.
    pub(crate) fn read(params: Option<&Raw>) -> Result<Self, CallError> {
        params
            .ok_or_else(|| CallError::invalid_params("protocolVersion is required"))?
            .parse()
            .map_err(CallError::invalid_params)
    }

    /// The client it describes, with the version it will be spoken to in.
    pub(crate) fn client(&self) -> Client {
        Client {
            version: Version::negotiate(&self.protocol_version),
            capabilities: self.capabilities.clone(),
            info: self.client_info.clone(),
            able: OnceLock::new(),
        }
    }
}

impl Gateway {
    /// Takes what wants no answer itself from a session of `principal`: notifications, and answers to our questions.
    pub(crate) fn take(&self, principal: &Principal, live: &Live, message: &Message) {
        match message {
            Message::Notification(notification)
                if &*notification.method == "notifications/roots/list_changed" =>
            {
                let (principal, session) = (principal.clone(), Arc::clone(&live.id));
                self.snapshot().catalog.roots_changed(&SessionKey { principal, session });
            }
            Message::Notification(notification) => cancelled(live, notification),
            Message::Response(Response { id: Some(id), outcome }) => live.answer(id, outcome.clone()),
            Message::Response(_) | Message::Request(_) => {}
        }
    }
}

/// Cancels what `notifications/cancelled` names; every other notification is for information only.
fn cancelled(live: &Live, notification: &Notification) {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Cancelled {
        request_id: Id,
    }
    if &*notification.method == "notifications/cancelled"
        && let Some(Ok(Cancelled { request_id })) = notification.params.raw().map(|params| params.parse())
    {
        live.cancel(&request_id);
    }
}

/// Where a legacy session keeps what it sets: `State` for HTTP, the pipe itself for stdio.
pub(crate) enum Place<'a> {
    /// In `State`, under the session's id.
    Stored(&'a Arc<Live>),
    /// In the pipe.
    Pipe(&'a PipeSession),
}

impl Gateway {
    /// Requests of a session that are answered at once.
    pub(crate) async fn legacy_quick(
        &self,
        caller: &Caller,
        place: &Place<'_>,
        method: Method,
        request: &Request,
    ) -> Outcome {
        let params = &request.params;
        let uri = || params.uri().ok_or_else(|| CallError::invalid_params("uri is required"));
        match method {
            Method::Ping => Ok(engine::empty()),
            Method::ListTools | Method::ListPrompts | Method::ListResources | Method::ListTemplates => {
                self.list(caller, method, params).await
            }
            Method::Complete => {
                let all = params.raw().unwrap_or_else(Raw::empty_object);
                self.call_quietly(caller, params, Operation::Complete { params: all }).await
            }
            Method::SetLevel => {
                let level = params.raw().and_then(|params| params.member("level"));
                let level = engine::log_level(&level.unwrap_or_else(Raw::null))?;
                self.edit(caller, place, |record| record.log_level = Some(level)).await?;
                Ok(engine::empty())
            }
            Method::Subscribe => self.subscribe(caller, place, params, uri()?).await,
            Method::Unsubscribe => self.unsubscribe(caller, place, uri()?).await,
            Method::Initialize => {
                let message = "Invalid Request: the session is already initialized";
                let error = RpcError::new(code::INVALID_REQUEST, message);
                Err(CallError::client(Kind::Rpc { error }, message))
            }
            _ => Err(engine::unsupported(method)),
        }
    }

    async fn subscribe(&self, caller: &Caller, place: &Place<'_>, params: &Params, uri: &str) -> Outcome {
        let mut watches = place.live().watches.lock().await;
        // Listened for before the backend knows: a change right after the subscription must not be missed.
        let mut full = false;
        let session = engine::session_of(caller, params);
        let add = |record: &mut SessionRecord| {
            full = record.subscriptions.len() >= MAX_SUBSCRIPTIONS && !record.subscriptions.contains_key(uri);
            if !full {
                // What is watched already stays watched for the session it was first watched for.
                record.subscriptions.entry(uri.to_owned()).or_insert_with(|| session.to_string());
            }
        };
        self.edit(caller, place, add).await?;
        if full {
            let message = format!("at most {MAX_SUBSCRIPTIONS} resources can be watched at a time");
            return Err(CallError::invalid_params(message));
        }
        // Backends count: what is watched twice would have to be released twice.
        if watches.contains_key(uri) {
            return Ok(engine::empty());
        }
        let uri: Arc<str> = uri.into();
        match self.watch(caller, params, &uri).await {
            Ok(watch) => {
                watches.insert(uri, watch);
                Ok(engine::empty())
            }
            Err(error) => {
                self.forget(caller, place, &uri).await?;
                Err(error)
            }
        }
    }

    async fn unsubscribe(&self, caller: &Caller, place: &Place<'_>, uri: &str) -> Outcome {
        let _counted = self.count_call(caller)?;
        let mut watches = place.live().watches.lock().await;
        self.forget(caller, place, uri).await?;
        // What this session does not watch is another's to end, if anybody's.
        let Some(watch) = watches.remove(uri) else { return Ok(engine::empty()) };
        let limit = engine::timeout(caller, watch.member.timeout);
        watch.end(limit).await?;
        Ok(engine::empty())
    }

    async fn forget(&self, caller: &Caller, place: &Place<'_>, uri: &str) -> Result<(), CallError> {
        let remove = |record: &mut SessionRecord| {
            record.subscriptions.remove(uri);
        };
        self.edit(caller, place, remove).await
    }

    /// Changes what a session has set, one change at a time, and what it hears of follows.
    async fn edit(
        &self,
        caller: &Caller,
        place: &Place<'_>,
        change: impl FnOnce(&mut SessionRecord),
    ) -> Result<(), CallError> {
        match place {
            Place::Stored(live) => {
                let _alone = live.editing.lock().await;
                let Entry::Welcome(Some(record)) = self.state().enter(Some(&live.id), &[]).await? else {
                    return Err(CallError::client(Kind::Cancelled, "session expired"));
                };
                let mut record = SessionRecord::clone(&record);
                change(&mut record);
                let uris = record.subscriptions.clone();
                self.state().put(&live.id, record).await?;
                let principal = caller.admitted.principal();
                self.sessions.listener(&live.id, principal, |filter| filter.uris = uris);
            }
            Place::Pipe(session) => session.edit(change),
        }
        Ok(())
    }

    async fn call_batched(
        &self,
        caller: &Caller,
        live: &Arc<Live>,
        id: &Id,
        method: Method,
        params: &Params,
    ) -> Outcome {
        let outbox = engine::outbox(caller, params);
        let running = live.start(id, &outbox)?;
        let way = Way::Session { live: Arc::clone(live), running, can_stream: false };
        let mut job = self.begin(caller, (id.clone(), method, params), outbox, way, UNCHECKED).await?;
        loop {
            match job.step().await {
                Step::Done(outcome) => return outcome,
                Step::Cancelled => return Err(CallError::client(Kind::Cancelled, "Request cancelled")),
                Step::Message(_) | Step::HangUp | Step::Ask(_) => {}
            }
        }
    }

    /// The answers to a 2025-03-26 batch, each request from start to end, side by side as separate ones would run. A batch
    /// has no stream of its own, so notes are not told.
    pub(crate) async fn batch(
        self: &Arc<Self>,
        caller: &Caller,
        place: &Place<'_>,
        messages: Vec<Result<Message, Malformed>>,
    ) -> Vec<Raw> {
        let answers = messages.into_iter().map(|message| self.batched(caller, place, message));
        futures_util::future::join_all(answers).await.into_iter().flatten().collect()
    }

    async fn batched(
        self: &Arc<Self>,
        caller: &Caller,
        place: &Place<'_>,
        message: Result<Message, Malformed>,
    ) -> Option<Raw> {
        match message {
            Err(malformed) => Some(write::error(malformed.id.as_ref(), NoId::Null, &malformed.error)),
            Ok(Message::Request(request)) => Some(self.answer_batched(caller, place, request).await),
            Ok(other) => {
                self.take(caller.admitted.principal(), place.live(), &other);
                None
            }
        }
    }

    /// One request of a 2025-03-26 batch, from start to end.
    async fn answer_batched(self: &Arc<Self>, caller: &Caller, place: &Place<'_>, request: Request) -> Raw {
        let version = caller.client.version;
        if let Err(error) = request.params.check() {
            let error = RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {error}"));
            return write::error(Some(&request.id), NoId::Null, &error);
        }
        let Some(method) = Method::parse(&request.method, version) else {
            let error = ladder::not_found(&request.method);
            return write::error(Some(&request.id), NoId::Null, &error);
        };
        let outcome = if method.may_ask() {
            self.call_batched(caller, place.live(), &request.id, method, &request.params).await
        } else {
            self.legacy_quick(caller, place, method, &request).await
        };
        shape::final_message(&request.id, method, outcome, version)
    }
}

impl Place<'_> {
    fn live(&self) -> &Arc<Live> {
        match self {
            Self::Stored(live) => live,
            Self::Pipe(session) => session.live(),
        }
    }
}
