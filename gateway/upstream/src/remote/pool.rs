//! Connections to one server, kept for the next request.
//!
//! A connection of HTTP/1.1 serves one request at a time, so it needs no task of its own: whoever holds it drives it, and
//! an answer wakes nobody but the one who waits for it. A connection of HTTP/2 is shared, and a task drives it.
//!
//! In: requests. Out: answers whose bodies bring their connection back when they are read to the end; one that is
//! dropped before closes it.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Request, Response, Uri, header, uri};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http1, http2},
};
use hyper_util::rt::TokioTimer;
use moongate_core::task::Group;
use tokio::time::Instant;

use super::connect::{Connector, Failure, Stream, host_header};

/// How many idle connections are kept. More than that many requests at a time are rare, and connections made for a
/// burst should not stay for it.
const MAX_IDLE: usize = 64;
/// How long an HTTP/2 connection with requests on it may be silent before we ask whether the server is there, and how
/// long that answer may take.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// A message on its way out.
pub(super) type Outbound = Request<Full<Bytes>>;

/// The connections to one server.
pub(super) struct Pool {
    connector: Connector,
    /// What HTTP/1.1 says of where it goes.
    host: HeaderValue,
    idle: Duration,
    tasks: Group,
    kept: Mutex<Kept>,
}

#[derive(Default)]
struct Kept {
    /// Those of HTTP/1.1 that nobody uses, the last used last.
    single: Vec<Idle>,
    /// That of HTTP/2, if the server speaks it.
    shared: Option<Shared>,
    /// Somebody looks for those that nobody has used for long.
    sweeping: bool,
}

struct Idle {
    single: Box<Single>,
    since: Instant,
}

type Shared = http2::SendRequest<Full<Bytes>>;

/// A connection of HTTP/1.1. Its future does all that is done on it.
struct Single {
    sender: http1::SendRequest<Full<Bytes>>,
    /// Gone when the connection is.
    driver: Option<http1::Connection<Stream, Full<Bytes>>>,
}

/// Why there is no head of an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// There is no connection.
    #[error(transparent)]
    Unconnected(#[from] Failure),
    /// The connection ended, or the server refused the stream, before the request was taken.
    #[error("the request was not sent")]
    Unsent(#[source] hyper::Error),
    /// The server may have got the request.
    #[error("the answer did not come")]
    Lost(#[source] hyper::Error),
}

impl Pool {
    /// No connection yet; those made go through `connector`, and idle ones are closed after `idle`.
    pub(super) fn new(connector: Connector, url: &Uri, idle: Duration, tasks: Group) -> Self {
        Self { connector, host: host_header(url), idle, tasks, kept: Mutex::default() }
    }

    /// Sends a request to `url`, on a kept connection or a new one, and waits for the head of the answer.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, or resets the stream.
    pub(super) async fn ask(
        self: &Arc<Self>,
        url: &Uri,
        mut request: Outbound,
    ) -> Result<Response<Body>, Unanswered> {
        while let Some(mut single) = self.take() {
            if !poll_fn(|cx| Poll::Ready(single.drive(cx).is_pending())).await {
                continue;
            }
            match self.ask_single(single, url, request).await {
                Ok(answer) => return Ok(answer),
                // It was closed while nobody looked.
                Err(Failed { unsent: Some(unsent), .. }) => request = *unsent,
                Err(failed) => return Err(failed.into()),
            }
        }
        if let Some(shared) = self.shared() {
            match ask_shared(shared, url, request).await {
                Ok(answer) => return Ok(answer),
                Err(Failed { unsent: Some(unsent), .. }) => request = *unsent,
                Err(failed) => return Err(failed.into()),
            }
        }
        let stream = self.connector.connect(url).await?;
        let answered = if stream.speaks_http2() {
            let shared = self.share(stream).await.map_err(Unanswered::Unsent)?;
            ask_shared(shared, url, request).await
        } else {
            let made = http1::Builder::new().handshake(stream).await;
            let (sender, driver) = made.map_err(Unanswered::Unsent)?;
            self.ask_single(Box::new(Single { sender, driver: Some(driver) }), url, request).await
        };
        answered.map_err(Unanswered::from)
    }

    async fn ask_single(
        self: &Arc<Self>,
        mut single: Box<Single>,
        url: &Uri,
        mut request: Outbound,
    ) -> Result<Response<Body>, Failed> {
        *request.uri_mut() = origin_form(url);
        request.headers_mut().entry(header::HOST).or_insert_with(|| self.host.clone());
        let answer = single.ask(request).await?;
        Ok(answer.map(|incoming| Body { incoming, single: Some((single, Arc::clone(self))) }))
    }

    /// Makes a connection of HTTP/2 that everybody uses from now on, unless there is one already.
    async fn share(&self, stream: Stream) -> Result<Shared, hyper::Error> {
        let mut builder = http2::Builder::new(Executor(self.tasks.clone()));
        builder.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_PATIENCE);
        let (sender, driver) = builder.handshake(stream).await?;
        let mut kept = self.lock();
        if let Some(earlier) = kept.shared.as_ref().filter(|shared| !shared.is_closed()) {
            return Ok(earlier.clone());
        }
        kept.shared = Some(sender.clone());
        drop(kept);
        // Why it ended is told to those who had requests on it.
        self.tasks.spawn(async move { drop(driver.await) });
        Ok(sender)
    }

    fn shared(&self) -> Option<Shared> {
        let mut kept = self.lock();
        kept.shared.take_if(|shared| shared.is_closed());
        kept.shared.clone()
    }

    /// The connection that was used last: it is the least likely to be closed.
    fn take(&self) -> Option<Box<Single>> {
        self.lock().single.pop().map(|idle| idle.single)
    }

    /// Keeps a connection for the next request.
    fn put(self: &Arc<Self>, single: Box<Single>) {
        let mut kept = self.lock();
        let surplus = (kept.single.len() >= MAX_IDLE).then(|| kept.single.remove(0));
        kept.single.push(Idle { single, since: Instant::now() });
        let sweep = !std::mem::replace(&mut kept.sweeping, true);
        drop(kept);
        // Closing takes a while, so it is done where nobody waits for the lock.
        drop(surplus);
        if sweep {
            let pool = Arc::clone(self);
            self.tasks.spawn(async move { pool.sweep().await });
        }
    }

    /// Closes what nobody has used for long, until there is nothing left.
    async fn sweep(&self) {
        loop {
            tokio::time::sleep(self.idle / 2).await;
            let mut kept = self.lock();
            let fresh = kept.single.partition_point(|idle| idle.since.elapsed() >= self.idle);
            let stale: Vec<_> = kept.single.drain(..fresh).collect();
            kept.sweeping = !kept.single.is_empty();
            let done = !kept.sweeping;
            drop(kept);
            drop(stale);
            if done {
                return;
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A request without an answer.
struct Failed {
    error: hyper::Error,
    /// The request, if the connection did not begin to write it.
    unsent: Option<Box<Outbound>>,
}

impl From<TrySendError<Outbound>> for Failed {
    fn from(mut error: TrySendError<Outbound>) -> Self {
        let unsent = error.take_message().map(Box::new);
        Self { error: error.into_error(), unsent }
    }
}

impl From<Failed> for Unanswered {
    fn from(Failed { error, unsent }: Failed) -> Self {
        if unsent.is_some() || is_refused(&error) { Self::Unsent(error) } else { Self::Lost(error) }
    }
}

/// Whether a server of HTTP/2 says that it did nothing with the request.
fn is_refused(error: &hyper::Error) -> bool {
    let source = std::error::Error::source(error).and_then(|source| source.downcast_ref::<h2::Error>());
    source.is_some_and(|error| error.reason() == Some(h2::Reason::REFUSED_STREAM))
}

async fn ask_shared(mut shared: Shared, url: &Uri, mut request: Outbound) -> Result<Response<Body>, Failed> {
    *request.uri_mut() = url.clone();
    // The address says it.
    request.headers_mut().remove(header::HOST);
    let answer = shared.try_send_request(request).await?;
    Ok(answer.map(|incoming| Body { incoming, single: None }))
}

/// The path and query of an address, which is all that HTTP/1.1 sends of it.
fn origin_form(url: &Uri) -> Uri {
    let mut parts = uri::Parts::default();
    parts.path_and_query = url.path_and_query().cloned();
    Uri::from_parts(parts).unwrap_or_default()
}

impl Single {
    async fn ask(&mut self, request: Outbound) -> Result<Response<Incoming>, TrySendError<Outbound>> {
        let mut answer = pin!(self.sender.try_send_request(request));
        poll_fn(|cx| {
            let _over = self.drive(cx).is_ready();
            // Only the driver can have made it ready.
            answer.as_mut().poll(&mut Context::from_waker(Waker::noop()))
        })
        .await
    }

    /// Does what there is to do on the connection. Ready when it is over.
    fn drive(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(driver) = &mut self.driver else { return Poll::Ready(()) };
        match Pin::new(driver).poll(cx) {
            Poll::Pending => Poll::Pending,
            Poll::Ready(_told_to_the_one_who_asked) => {
                self.driver = None;
                Poll::Ready(())
            }
        }
    }
}

/// The body of an answer.
pub(super) struct Body {
    incoming: Incoming,
    /// The connection it comes on, and where that goes afterwards; unless others use it too.
    single: Option<(Box<Single>, Arc<Pool>)>,
}

impl Body {
    /// Keeps the connection for another request if the answer has ended as it should.
    fn give_back(&mut self, cx: &mut Context<'_>) {
        if let Some((mut single, pool)) = self.single.take()
            && (single.sender.is_ready() || single.drive(cx).is_pending() && single.sender.is_ready())
        {
            pool.put(single);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        let body = self.get_mut();
        let Some((single, _)) = &mut body.single else { return Pin::new(&mut body.incoming).poll_frame(cx) };
        // Only the driver can make it ready, so nobody else needs to be woken by it.
        let mut unheard = Context::from_waker(Waker::noop());
        let mut frame = Pin::new(&mut body.incoming).poll_frame(&mut unheard);
        if frame.is_pending() {
            let _over = single.drive(cx).is_ready();
            frame = Pin::new(&mut body.incoming).poll_frame(&mut unheard);
        }
        if matches!(frame, Poll::Ready(None)) || frame.is_ready() && body.incoming.is_end_stream() {
            body.give_back(cx);
        }
        frame
    }

    fn is_end_stream(&self) -> bool {
        self.incoming.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.incoming.size_hint()
    }
}

/// What HTTP/2 starts belongs to the group of those who made the pool.
#[derive(Clone)]
struct Executor(Group);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for Executor {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}
