//! Connections to one server, kept for the next request.
//!
//! A connection of HTTP/1.1 serves one request at a time and is driven by whoever uses it; one of HTTP/2 is shared, and a
//! task drives it. In: requests. Out: answers whose bodies bring their connection back when they are read to the end; one
//! that is dropped before closes it.

use std::{
    future::{Future, poll_fn},
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Uri, header};
use http_body::{Frame, SizeHint};
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{TrySendError, http2},
};
use hyper_util::rt::{TokioIo, TokioTimer};
use moongate_core::task::Group;
use tokio::time::Instant;

use super::{
    connect::{Connector, Failure, Stream, host_header},
    head::Head,
    http1::{self, Http1},
    outbound::Outbound,
};

/// How many idle connections are kept. More than that many requests at a time are rare, and connections made for a
/// burst should not stay for it.
const MAX_IDLE: usize = 64;
/// How long an HTTP/2 connection with requests on it may be silent before we ask whether the server is there, and how
/// long that answer may take.
const PING_EVERY: Duration = Duration::from_secs(20);
const PING_PATIENCE: Duration = Duration::from_secs(10);

/// The connections to one server.
pub(super) struct Pool {
    connector: Connector,
    /// What every request carries.
    headers: Vec<(HeaderName, HeaderValue)>,
    /// The same, and where it goes, as lines of HTTP/1.1.
    lines: Vec<u8>,
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
    single: Box<Http1>,
    since: Instant,
}

type Shared = http2::SendRequest<Full<Bytes>>;

/// Why there is no head of an answer.
#[derive(Debug, thiserror::Error)]
pub(super) enum Unanswered {
    /// There is no connection.
    #[error(transparent)]
    Unconnected(#[from] Failure),
    /// The connection ended, or the server refused the stream, before the request was taken.
    #[error("the request was not sent")]
    Unsent(#[source] io::Error),
    /// The server may have got the request.
    #[error("the answer did not come")]
    Lost(#[source] io::Error),
}

impl Pool {
    /// No connection yet; those made go through `connector`, and idle ones of HTTP/1.1 are closed after `idle`.
    pub(super) fn new(
        connector: Connector,
        url: &Uri,
        headers: Vec<(HeaderName, HeaderValue)>,
        idle: Duration,
        tasks: Group,
    ) -> Self {
        let mut lines = Vec::new();
        if !headers.iter().any(|(name, _)| name == header::HOST) {
            http1::line(&mut lines, header::HOST.as_str(), host_header(url).as_bytes());
        }
        for (name, value) in &headers {
            http1::line(&mut lines, name.as_str(), value.as_bytes());
        }
        Self { connector, headers, lines, idle, tasks, kept: Mutex::default() }
    }

    /// Sends a request to `url`, on a kept connection or a new one, and waits for the head of the answer.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection, or resets the stream.
    pub(super) async fn ask(
        self: &Arc<Self>,
        url: &Uri,
        request: &Outbound,
    ) -> Result<(Head, Body), Unanswered> {
        while let Some(mut single) = self.take() {
            if !poll_fn(|cx| Poll::Ready(single.is_open(cx))).await {
                continue;
            }
            match self.ask_single(single, url, request).await {
                // It was closed while nobody looked.
                Err(http1::Failed::Unsent(_)) => {}
                answered => return answered.map_err(Unanswered::from),
            }
        }
        // On the heap: most requests find a connection, and have no use for the room that making one takes.
        Box::pin(self.ask_elsewhere(url, request)).await
    }

    /// Asks on the connection that is shared, or on a new one.
    async fn ask_elsewhere(
        self: &Arc<Self>,
        url: &Uri,
        request: &Outbound,
    ) -> Result<(Head, Body), Unanswered> {
        if let Some(shared) = self.shared() {
            match self.ask_shared(shared, url, request).await {
                Err(Unanswered::Unsent(_)) => {}
                answered => return answered,
            }
        }
        let stream = self.connector.connect(url).await?;
        if stream.speaks_http2() {
            let shared =
                self.share(stream).await.map_err(|error| Unanswered::Unsent(io::Error::other(error)))?;
            return self.ask_shared(shared, url, request).await;
        }
        Ok(self.ask_single(Box::new(Http1::new(stream)), url, request).await?)
    }

    async fn ask_single(
        self: &Arc<Self>,
        mut single: Box<Http1>,
        url: &Uri,
        request: &Outbound,
    ) -> Result<(Head, Body), http1::Failed> {
        let head = single.ask(url, &self.lines, request).await?;
        let mut body = Body::Single { single: Some(single), pool: Arc::clone(self) };
        // One without a body brings its connection back at once.
        body.give_back();
        Ok((head, body))
    }

    async fn ask_shared(
        &self,
        mut shared: Shared,
        url: &Uri,
        request: &Outbound,
    ) -> Result<(Head, Body), Unanswered> {
        let mut sent = http::Request::new(Full::new(request.body.clone()));
        *sent.method_mut() = request.method.clone();
        *sent.uri_mut() = url.clone();
        for (name, value) in &self.headers {
            sent.headers_mut().append(name, value.clone());
        }
        request.headers(|name, value| {
            // Each was made of such a name and such a value.
            if let (Ok(name), Ok(value)) =
                (HeaderName::from_bytes(name.as_bytes()), HeaderValue::from_bytes(value))
            {
                sent.headers_mut().append(name, value);
            }
        });
        let (parts, body) = shared.try_send_request(sent).await.map_err(unanswered)?.into_parts();
        Ok((Head::from(&parts), Body::Shared(body)))
    }

    /// Makes a connection of HTTP/2 that everybody uses from now on, unless there is one already.
    async fn share(&self, stream: Stream) -> Result<Shared, hyper::Error> {
        let mut builder = http2::Builder::new(Executor(self.tasks.clone()));
        builder.timer(TokioTimer::new()).keep_alive_interval(PING_EVERY).keep_alive_timeout(PING_PATIENCE);
        let (sender, driver) = builder.handshake(TokioIo::new(stream)).await?;
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
    fn take(&self) -> Option<Box<Http1>> {
        self.lock().single.pop().map(|idle| idle.single)
    }

    /// Keeps a connection for the next request.
    fn put(self: &Arc<Self>, mut single: Box<Http1>) {
        single.rest();
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
            // Often: what is kept for longer than it may be is what its server closes.
            tokio::time::sleep(self.idle / 10).await;
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

impl From<http1::Failed> for Unanswered {
    fn from(failed: http1::Failed) -> Self {
        match failed {
            http1::Failed::Unsent(error) => Self::Unsent(error),
            http1::Failed::Lost(error) => Self::Lost(error),
        }
    }
}

/// What became of a request on a shared connection. A server may say that it did nothing with a stream.
fn unanswered<T>(error: TrySendError<T>) -> Unanswered {
    let given_back = error.message().is_some();
    let error = error.into_error();
    let source = std::error::Error::source(&error).and_then(|source| source.downcast_ref::<h2::Error>());
    let refused = source.is_some_and(|error| error.reason() == Some(h2::Reason::REFUSED_STREAM));
    let error = io::Error::other(error);
    if given_back || refused { Unanswered::Unsent(error) } else { Unanswered::Lost(error) }
}

/// The body of an answer.
pub(super) enum Body {
    /// On a connection that goes back to its pool afterwards.
    Single {
        /// Gone when it went.
        single: Option<Box<Http1>>,
        /// Where it goes.
        pool: Arc<Pool>,
    },
    /// On one that others use too.
    Shared(Incoming),
}

impl Body {
    /// Keeps the connection for another request if the answer has ended as it should.
    fn give_back(&mut self) {
        if let Self::Single { single, pool } = self
            && let Some(single) = single.take_if(|single| single.has_ended())
            && single.is_reusable()
        {
            pool.put(single);
        }
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<io::Result<Frame<Bytes>>>> {
        let body = self.get_mut();
        match body {
            Self::Single { single: held, .. } => {
                let Some(single) = held else { return Poll::Ready(None) };
                let piece = single.poll_body(cx);
                if let Poll::Ready(Some(Err(_))) = piece {
                    // Where the next answer would begin nobody knows.
                    *held = None;
                } else {
                    body.give_back();
                }
                piece.map_ok(Frame::data)
            }
            Self::Shared(incoming) => Pin::new(incoming).poll_frame(cx).map_err(io::Error::other),
        }
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Single { single, .. } => single.is_none(),
            Self::Shared(incoming) => incoming.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Single { single, .. } => {
                let mut hint = SizeHint::new();
                hint.set_lower(single.as_ref().map_or(0, |single| single.left()));
                hint
            }
            Self::Shared(incoming) => incoming.size_hint(),
        }
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
