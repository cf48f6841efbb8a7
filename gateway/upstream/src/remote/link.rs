//! The pooled client of one server, with what every request to it carries.
//!
//! In: requests. Out: heads of answers, or why there is none: whether the server can have seen the request decides
//! between [`Fault::Unreached`] and [`Fault::Lost`]. What an answer means is left to those who asked.

use std::{borrow::Cow, error::Error as _, fmt, future::Future, pin::Pin, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Response, Uri, header};
use http_body::Body as _;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper_util::{
    client::legacy::{Client, Error},
    rt::TokioTimer,
};
use moongate_core::task::Group;
use moongate_wire::{Version, header as names};

use super::{
    Spec,
    connect::{Connector, Failure, place},
};
use crate::transport::Fault;

/// How many idle connections are kept. More than that many requests at a time are rare, and connections made for a
/// burst should not stay for it.
const MAX_IDLE: usize = 64;
/// How long an HTTP/2 connection with requests on it may be silent before we ask whether the server is there, and how
/// long that answer may take.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);
/// What of a body that nobody reads is taken in, and for how long, so that its connection can be used again.
const DRAIN_BYTES: usize = 64 * 1024;
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// How many headers a request has beside the configured ones; more of them make it grow.
const OWN_HEADERS: usize = 8;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(names::PROTOCOL_VERSION);
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(names::SESSION_ID);
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(names::LAST_EVENT_ID);

/// The way to one server.
pub(super) struct Link {
    /// The upstream, in the log.
    pub(super) name: Arc<str>,
    pub(super) url: Uri,
    /// Host and port, for texts.
    pub(super) place: String,
    pub(super) max_message: usize,
    pub(super) connect_timeout: Duration,
    pub(super) tasks: Group,
    /// The configured headers.
    headers: Vec<(HeaderName, HeaderValue)>,
    client: Client<Connector, Full<Bytes>>,
}

/// What kind of body an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Events,
    Other,
}

impl Link {
    pub(super) fn new(spec: Spec, tasks: Group) -> Self {
        let client = Client::builder(Tasks(tasks.clone()))
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(spec.idle)
            .pool_max_idle_per_host(MAX_IDLE)
            .http2_keep_alive_interval(PING_EVERY)
            .http2_keep_alive_timeout(PING_PATIENCE)
            .build(Connector::new(spec.ca_files, spec.connect_timeout));
        let mut headers = spec.headers;
        for (_, value) in &mut headers {
            value.set_sensitive(true);
        }
        Self {
            name: spec.name,
            place: place(&spec.url),
            url: spec.url,
            max_message: spec.max_message,
            connect_timeout: spec.connect_timeout,
            tasks,
            headers,
            client,
        }
    }

    /// A message to post to `url`.
    pub(super) fn post(&self, url: Uri, version: Option<Version>, message: Bytes) -> Request<Full<Bytes>> {
        let mut request = self.request(Method::POST, url, version, Full::new(message));
        request.headers_mut().insert(header::CONTENT_TYPE, JSON);
        request.headers_mut().insert(header::ACCEPT, BOTH);
        request
    }

    /// A request for a stream of events.
    pub(super) fn get(&self, version: Option<Version>) -> Request<Full<Bytes>> {
        let mut request = self.request(Method::GET, self.url.clone(), version, Full::default());
        request.headers_mut().insert(header::ACCEPT, EVENTS);
        request
    }

    /// A request to end something.
    pub(super) fn delete(&self, version: Option<Version>) -> Request<Full<Bytes>> {
        self.request(Method::DELETE, self.url.clone(), version, Full::default())
    }

    fn request(
        &self,
        method: Method,
        url: Uri,
        version: Option<Version>,
        body: Full<Bytes>,
    ) -> Request<Full<Bytes>> {
        let mut request = Request::new(body);
        *request.method_mut() = method;
        *request.uri_mut() = url;
        let headers = request.headers_mut();
        headers.reserve(self.headers.len() + OWN_HEADERS);
        for (name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        // Servers of earlier versions do not know the header.
        if let Some(version) = version.filter(|version| *version >= Version::V2025_06_18) {
            headers.insert(PROTOCOL_VERSION, HeaderValue::from_static(version.as_str()));
        }
        request
    }

    /// Sends a request and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream or closes the connection.
    pub(super) async fn ask(&self, request: Request<Full<Bytes>>) -> Result<Response<Incoming>, Fault> {
        self.client.request(request).await.map_err(|error| self.fault(&error))
    }

    /// Why there is no head of an answer.
    fn fault(&self, error: &Error) -> Fault {
        let place = &self.place;
        if let Some(failure) = find::<Failure>(error) {
            return Fault::Unreached(Cow::Owned(failure.0.clone()));
        }
        // hyper gives a request back that it has not begun to write, and says then that it was cancelled. Errors from before
        // that, when a connection is prepared, name no connection.
        let unsent = find::<hyper::Error>(error).is_some_and(hyper::Error::is_canceled);
        if unsent || error.connect_info().is_none() {
            let text =
                format!("the connection to {place} closed before the request was sent: {}", cause(error));
            return Fault::Unreached(text.into());
        }
        self.lost(error)
    }

    /// The connection ended in the middle of an answer.
    pub(super) fn lost(&self, error: &dyn std::error::Error) -> Fault {
        let text = format!("the connection to {} was lost before the answer: {}", self.place, cause(error));
        Fault::Lost(text.into())
    }

    /// A whole body.
    pub(super) async fn collect(&self, mut body: Incoming) -> Result<Bytes, Fault> {
        let too_long = || {
            let text = format!("the server's answer is longer than {} bytes", self.max_message);
            Fault::Garbled(text.into())
        };
        if body.size_hint().lower() > self.max_message as u64 {
            return Err(too_long());
        }
        // Nearly every answer is one piece, which is not copied.
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while let Some(frame) = body.frame().await {
            let Ok(data) = frame.map_err(|error| self.lost(&error))?.into_data() else { continue };
            if first.len().max(all.len()) + data.len() > self.max_message {
                return Err(too_long());
            }
            if first.is_empty() {
                first = data;
                continue;
            }
            if all.is_empty() {
                let rest = usize::try_from(body.size_hint().lower()).unwrap_or(0);
                all.reserve(first.len() + data.len() + rest);
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    /// Takes in the end of a body that nobody needs, so that its connection can be used again. Most bodies have ended
    /// already; the others get a moment.
    pub(super) fn drain(&self, mut body: Incoming) {
        if body.is_end_stream() {
            return;
        }
        let mut rest = Box::pin(async move {
            let mut left = DRAIN_BYTES;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                let Some(still) = left.checked_sub(length) else { return };
                left = still;
            }
        });
        if rest.as_mut().now_or_never().is_none() {
            self.tasks.spawn(async move { drop(tokio::time::timeout(DRAIN_PATIENCE, rest).await) });
        }
    }
}

impl fmt::Debug for Link {
    /// The place only: headers and the rest of an address may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Kind {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        match essence {
            _ if essence.eq_ignore_ascii_case(JSON.as_bytes()) => Self::Json,
            _ if essence.eq_ignore_ascii_case(EVENTS.as_bytes()) => Self::Events,
            _ => Self::Other,
        }
    }
}

/// What the client starts belongs to the group of those who made it.
#[derive(Clone)]
struct Tasks(Group);

impl hyper::rt::Executor<Pin<Box<dyn Future<Output = ()> + Send>>> for Tasks {
    fn execute(&self, future: Pin<Box<dyn Future<Output = ()> + Send>>) {
        self.0.spawn(future);
    }
}

/// The error of type `E` that is behind `error`.
fn find<E: std::error::Error + 'static>(error: &Error) -> Option<&E> {
    let mut source = error.source();
    while let Some(error) = source {
        if let Some(found) = error.downcast_ref() {
            return Some(found);
        }
        source = error.source();
    }
    None
}

/// The innermost reason, which says most in the fewest words.
fn cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        task::{Context, Poll},
    };

    use futures_util::future::{Ready, ready};
    use hyper::rt::{Read, ReadBufCursor, Write};
    use hyper_util::client::legacy::connect::{Connected, Connection};

    use super::*;

    /// Connects to a server that closes the connection at once, or as soon as there is a request for it.
    #[derive(Clone)]
    struct Closed {
        at_once: bool,
    }

    impl tower_service::Service<Uri> for Closed {
        type Response = Self;
        type Error = io::Error;
        type Future = Ready<io::Result<Self>>;

        fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn call(&mut self, _: Uri) -> Self::Future {
            ready(Ok(self.clone()))
        }
    }

    impl Connection for Closed {
        fn connected(&self) -> Connected {
            Connected::new()
        }
    }

    impl Read for Closed {
        fn poll_read(
            mut self: Pin<&mut Self>,
            _: &mut Context<'_>,
            _: ReadBufCursor<'_>,
        ) -> Poll<io::Result<()>> {
            // Nobody is woken by us: the next to look is the connection that has got a request.
            if std::mem::replace(&mut self.at_once, true) { Poll::Ready(Ok(())) } else { Poll::Pending }
        }
    }

    impl Write for Closed {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, _: &[u8]) -> Poll<io::Result<usize>> {
            panic!("something was sent");
        }

        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }

        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn a_request_that_a_new_connection_never_took_was_not_sent() {
        let tasks = Group::new();
        let link = Link::new(Spec::new("test", Uri::from_static("http://example.com/")), tasks.clone());
        for at_once in [true, false] {
            let closed = Closed { at_once };
            let client: Client<Closed, Full<Bytes>> = Client::builder(Tasks(tasks.clone())).build(closed);
            let request = link.post(link.url.clone(), None, Bytes::from_static(b"{}"));
            let error = client.request(request).await.unwrap_err();
            let fault = link.fault(&error);
            assert!(matches!(fault, Fault::Unreached(_)), "{fault:?} for {error:?}");
        }
    }
}
