//! What the requests of one transport share: the session of the legacy era, and whether all is over.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use http::HeaderValue;
use moongate_core::task::Signal;
use moongate_wire::{Era, Message, Raw, Version, write};
use serde_json::json;

use super::{head::Head, link::Link, outbound::Outbound, refusal};
use crate::transport::{Fault, Inbound};

/// How long the server has to take note that we do not wait any more.
pub(super) const CANCEL_PATIENCE: Duration = Duration::from_secs(5);

/// Why nothing is answered after [`crate::transport::Transport::close`].
pub(super) const CLOSED: &str = "the connection was closed";

/// The common part of one transport and its exchanges.
pub(super) struct Session {
    pub(super) link: Arc<Link>,
    /// The id the server gave us with the answer to `initialize`.
    id: Mutex<Option<HeaderValue>>,
    /// The version that was spoken last.
    spoken: Mutex<Option<Version>>,
    /// The server does not know the id any more.
    gone: Signal,
    /// We closed the connection.
    closed: Signal,
    inbound: Arc<dyn Inbound>,
    /// Messages that belong to nothing: answers nobody waits for, and what is no message.
    strays: AtomicU64,
}

impl Session {
    pub(super) fn new(link: Arc<Link>, inbound: Arc<dyn Inbound>) -> Self {
        Self {
            link,
            id: Mutex::default(),
            spoken: Mutex::default(),
            gone: Signal::default(),
            closed: Signal::default(),
            inbound,
            strays: AtomicU64::new(0),
        }
    }

    /// Keeps the id that came with the answer to `initialize`, or that there was none.
    pub(super) fn remember(&self, head: &Head) {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone_from(&head.session);
    }

    fn id(&self) -> Option<HeaderValue> {
        self.id.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// A message to post. True when it is sent in a session.
    pub(super) fn post(&self, version: Option<Version>, message: Raw) -> (Outbound, bool) {
        *self.spoken.lock().unwrap_or_else(PoisonError::into_inner) = version;
        let mut request = Outbound::post(version, message.into_bytes());
        let in_session = self.enter(&mut request, version);
        (request, in_session)
    }

    /// A request for the stream of the session, or for the rest of the one that had the event `last_id`.
    pub(super) fn get(&self, version: Option<Version>, last_id: Option<HeaderValue>) -> (Outbound, bool) {
        let mut request = Outbound::get(version);
        // The rest of the answer to `initialize` is asked for in the session that its head has begun.
        let in_session = self.enter(&mut request, version.or(Some(Version::LATEST_LEGACY)));
        request.last_event = last_id;
        (request, in_session)
    }

    /// Puts the session's id on a request. The modern era has none, and `initialize` begins one.
    fn enter(&self, request: &mut Outbound, version: Option<Version>) -> bool {
        let legacy = version.is_some_and(|version| version.era() == Era::Legacy);
        request.session = if legacy { self.id() } else { None };
        request.session.is_some()
    }

    /// Sends what is not answered.
    pub(super) async fn send(&self, version: Version, message: Raw) -> Result<(), Fault> {
        let (request, in_session) = self.post(Some(version), message);
        let (head, body) = self.link.ask(&request).await?;
        if head.status.is_success() {
            self.link.drain(body);
            return Ok(());
        }
        match refusal::read(&self.link, &head, body, None, in_session).await {
            Ok(answer) => {
                let reason = answer.outcome.err().map(|error| refusal::excerpt(error.message.as_bytes()));
                let detail = reason.map(|reason| format!(" ({reason})")).unwrap_or_default();
                Err(Fault::Status { status: head.status.as_u16(), detail })
            }
            Err(fault) => Err(self.noted(fault)),
        }
    }

    /// Tells a legacy server that nobody waits for the answer to the request `id`. Closing the connection does not.
    pub(super) fn cancel(self: &Arc<Self>, version: Version, id: i64) {
        let session = Arc::clone(self);
        self.link.tasks.spawn(async move {
            let told = session.send(version, cancelled(id));
            // The server will find out when it answers.
            drop(tokio::time::timeout(CANCEL_PATIENCE, told).await);
        });
    }

    /// Ends the session. Whether the server lets us is its own affair: 405 is an answer, too.
    pub(super) async fn delete(&self) {
        let Some(id) = self.id().filter(|_| !self.gone.is_given()) else { return };
        let spoken = *self.spoken.lock().unwrap_or_else(PoisonError::into_inner);
        let mut request = Outbound::delete(spoken);
        request.session = Some(id);
        if let Ok((_, body)) = self.link.ask(&request).await {
            self.link.drain(body);
        }
    }

    /// The same fault, after taking note that the session is over if that is what it says.
    pub(super) fn noted(&self, fault: Fault) -> Fault {
        if fault == Fault::SessionGone {
            self.gone.give();
        }
        fault
    }

    /// Hands on what the server says outside a request.
    pub(super) fn hear(&self, message: Message) {
        match message {
            Message::Response(_) => self.stray(),
            message => self.inbound.hear(message),
        }
    }

    /// Counts a message that belongs to nothing.
    pub(super) fn stray(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn strays(&self) -> u64 {
        self.strays.load(Ordering::Relaxed)
    }

    pub(super) fn close(&self) {
        self.closed.give();
    }

    /// Resolves when we have closed the connection.
    pub(super) async fn closed(&self) {
        self.closed.given().await;
    }

    /// Resolves when nothing can be asked any more.
    pub(super) async fn over(&self) -> Fault {
        tokio::select! {
            () = self.gone.given() => Fault::SessionGone,
            () = self.closed() => Fault::Lost(CLOSED.into()),
        }
    }
}

/// The notification that nobody waits for the answer to the request `id`.
pub(super) fn cancelled(id: i64) -> Raw {
    write::notification("notifications/cancelled", &Raw::of(&json!({ "requestId": id })))
}

/// Lets every message of a frame pass through `each`. What is not a message passes as an error.
pub(super) fn messages(data: &Bytes, mut each: impl FnMut(Result<Message, moongate_wire::Malformed>)) {
    match moongate_wire::Frame::parse(data) {
        Ok(moongate_wire::Frame::One(message)) => each(Ok(message)),
        Ok(moongate_wire::Frame::Batch(elements)) => elements.into_iter().for_each(each),
        Err(malformed) => each(Err(malformed)),
    }
}
