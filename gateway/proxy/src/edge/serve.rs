//! Accepts connections and speaks HTTP/1.1 or HTTP/2 on them.
//!
//! In: a bound listener, bounds, an [`App`]. Out: requests to the app, answers to the clients. Ends when its [`Drain`]
//! does. Which process owns the listener, and who decides to drain, is left to the binary; what a request means is left
//! to the app.
//!
//! ```text
//! accept ─ PROXY v2? ─ TLS? ─ ALPN or preface ─ http1 | http2 ─ App
//!    └ connection cap, unwelcome ones     └ timed and drained by `activity`
//! ```

use std::{
    error::Error,
    fmt,
    future::Future,
    io,
    net::{IpAddr, SocketAddr},
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::Response;
use http_body::Body;
use hyper::server::conn::http2;
use hyper_util::rt::{TokioIo, TokioTimer};
use moongate_core::task::Group;
use moongate_security::Head;
use moongate_telemetry::Gauge;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::{TcpListener, TcpStream},
    sync::{OwnedSemaphorePermit, Semaphore},
    time::{self, Instant},
};
use tokio_rustls::TlsAcceptor;
use tracing::{debug, info, warn};

use self::{
    activity::{Activity, Verdict, Watched},
    drain::Backlog,
    http1::Http1,
    prelude::{Prefixed, Protocol},
    presence::Presence,
    service::Answering,
};

mod activity;
mod drain;
mod http1;
mod prelude;
mod presence;
mod service;
#[cfg(test)]
mod tests;

pub use activity::Times;
pub use drain::{Drain, Patience};
pub use http1::Received;

/// A TLS handshake that takes longer is an attack or a dead peer.
const HANDSHAKE: Duration = Duration::from_secs(5);
/// How long to wait after an accept failed for lack of descriptors or memory; others must close first.
const ACCEPT_BACKOFF: Duration = Duration::from_millis(100);
/// What a peer may run at once on one HTTP/2 connection.
const MAX_STREAMS: u32 = 100;
/// HTTP/2 has no other way to notice a peer that is gone.
const PING_EVERY: Duration = Duration::from_secs(20);
/// How long such a peer has to answer.
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// Answers requests.
pub trait App: Send + Sync + 'static {
    /// The body of its answers.
    type Body: Body<Data = Bytes, Error: Into<Box<dyn Error + Send + Sync>>> + Send + Unpin + 'static;

    /// Answers one request. The future is dropped when the client goes away. The body is read while the future is polled,
    /// and by no other task.
    fn handle(
        self: Arc<Self>,
        head: Head,
        body: Received,
        conn: Arc<Conn>,
    ) -> BoxFuture<'static, Response<Self::Body>>;
}

/// What is known about a request before it is read.
#[derive(Debug)]
pub struct Conn {
    /// The client: the peer of the socket, or whom a trusted proxy's PROXY header names.
    pub address: SocketAddr,
    /// The peer of the socket: the proxy, if there is one.
    pub peer: SocketAddr,
    /// What the gate needs to know.
    pub gate: moongate_security::Conn,
    /// Whether the connection is encrypted.
    pub tls: bool,
    /// When it begins, streams should end.
    pub drain: Drain,
}

/// Says something about a client's address. Called for every connection: must be quick.
pub type AddressTest = Arc<dyn Fn(IpAddr) -> bool + Send + Sync>;

/// The bounds and parts of one listener.
#[derive(Clone)]
pub struct Options {
    /// Encrypts; without it, cleartext.
    pub tls: Option<TlsAcceptor>,
    /// How many connections may be open; more wait in the kernel's queue.
    pub max_connections: usize,
    /// How long a connection may take for what.
    pub times: Times,
    /// How large a request's head may be, in bytes.
    pub max_header: usize,
    /// Whether an address has asked so much more than it may that its new connections are closed unanswered.
    pub unwelcome: AddressTest,
    /// Whether an address is a proxy that may say who the client is.
    pub trusted: AddressTest,
    /// Counts open connections.
    pub gauge: Option<Gauge>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            tls: None,
            max_connections: 16_384,
            times: Times::default(),
            max_header: 16 * 1024,
            unwelcome: Arc::new(|_| false),
            trusted: Arc::new(|_| false),
            gauge: None,
        }
    }
}

impl fmt::Debug for Options {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Options")
            .field("tls", &self.tls.is_some())
            .field("max_connections", &self.max_connections)
            .field("times", &self.times)
            .field("max_header", &self.max_header)
            .finish_non_exhaustive()
    }
}

/// Serves `app` on `listener` until `drain` is over. Dropping the future closes every connection.
///
/// # Cancel safety
/// Not cancel safe: requests in flight are lost.
pub async fn serve<A: App>(listener: TcpListener, options: Options, app: Arc<A>, drain: Drain) {
    let loopback = listener.local_addr().is_ok_and(|address| address.ip().to_canonical().is_loopback());
    let server = Arc::new(Server {
        permits: Arc::new(Semaphore::new(options.max_connections)),
        connections: Owned(Group::new()),
        failing: AtomicBool::new(false),
        options,
        app,
        drain,
        loopback,
    });
    server.accept_until_closing(listener).await;
    server.drain.over().await;
    let ended = server.connections.0.shut_down(Duration::from_secs(1)).await;
    debug!(ended, "listener closed");
}

/// What the connections of one listener share.
struct Server<A> {
    options: Options,
    app: Arc<A>,
    drain: Drain,
    loopback: bool,
    permits: Arc<Semaphore>,
    connections: Owned,
    /// Whether the last accept failed for a reason of ours.
    failing: AtomicBool,
}

/// Ends its tasks when dropped, so that a dropped server leaves nothing behind.
struct Owned(Group);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

impl<A: App> Server<A> {
    async fn accept_until_closing(self: &Arc<Self>, listener: TcpListener) {
        let _listening = self.drain.listener();
        let mut closing = pin!(self.drain.closing());
        let backlog = loop {
            tokio::select! {
                biased;
                backlog = &mut closing => break backlog,
                () = self.accept(&listener) => {}
            }
        };
        if backlog == Backlog::Adopt {
            self.adopt(listener);
        }
    }

    /// Accepts one connection. Cancel safe: between the permit and the connection nothing is lost.
    async fn accept(self: &Arc<Self>, listener: &TcpListener) {
        let Ok(permit) = Arc::clone(&self.permits).acquire_owned().await else {
            return std::future::pending().await;
        };
        match listener.accept().await {
            Ok((stream, peer)) => {
                self.failing.store(false, Ordering::Relaxed);
                self.open(stream, peer, permit);
            }
            Err(error) if is_the_peers(&error) => debug!(%error, "connection gone before it was accepted"),
            Err(error) => {
                // Said once, not ten times a second: it lasts until connections close.
                if !self.failing.swap(true, Ordering::Relaxed) {
                    warn!(%error, "cannot accept connections, trying again");
                }
                time::sleep(ACCEPT_BACKOFF).await;
            }
        }
    }

    /// Takes over what the kernel has already accepted: closing the listener would reset those clients.
    fn adopt(self: &Arc<Self>, listener: TcpListener) {
        // The plain socket, because tokio's would not look again before its next event.
        let Ok(listener) = listener.into_std() else { return };
        while let Ok((stream, peer)) = listener.accept() {
            let ready = stream.set_nonblocking(true).and_then(|()| TcpStream::from_std(stream));
            if let (Ok(stream), Ok(permit)) = (ready, Arc::clone(&self.permits).try_acquire_owned()) {
                self.open(stream, peer, permit);
            } else {
                info!(%peer, "connection refused: too many are open");
            }
        }
    }

    fn open(self: &Arc<Self>, stream: TcpStream, peer: SocketAddr, permit: OwnedSemaphorePermit) {
        let counted = (self.drain.connection(), self.options.gauge.as_ref().map(Gauge::hold));
        let server = Arc::clone(self);
        self.connections.0.spawn(async move {
            let _alive = (counted, permit);
            if let Err(error) = server.connection(stream, peer).await {
                debug!(%peer, error = %Chain(&*error), "connection ended");
            }
        });
    }

    /// Serves one connection to its end, within its times.
    async fn connection(&self, stream: TcpStream, peer: SocketAddr) -> Result<(), BoxError> {
        // Answers are small and written whole: waiting to fill a packet only delays them.
        stream.set_nodelay(true)?;
        let activity = Arc::new(Activity::new());
        let mut work = pin!(self.speak(stream, peer, Arc::clone(&activity)));
        let mut draining = pin!(self.drain.begun());
        let mut timer = pin!(time::sleep_until(Instant::now()));
        // A connection is polled with every request. What it waits for beside those is polled once, to be woken by it, and
        // again when it has happened: this is all of a task, and the waker of a task stays the same.
        let (mut listens, mut told, mut is_set) = (false, false, false);
        std::future::poll_fn(|cx| {
            let drains =
                if listens { self.drain.is_draining() } else { draining.as_mut().poll(cx).is_ready() };
            listens = true;
            if drains && !told {
                (told, is_set) = (true, false);
                activity.drain();
                timer.as_mut().reset(Instant::now());
            }
            if !is_set || timer.is_elapsed() {
                is_set = true;
                while timer.as_mut().poll(cx).is_ready() {
                    match activity.verdict(Instant::now(), &self.options.times) {
                        Verdict::Wait(until) => timer.as_mut().reset(until),
                        Verdict::HangUp => activity.hang_up(),
                        Verdict::Cut(reason) => return Poll::Ready(Err(reason.into())),
                    }
                }
            }
            let polled = work.as_mut().poll(cx);
            activity.settle();
            polled
        })
        .await
    }

    /// Finds out who the client is and what it speaks, then speaks it.
    async fn speak(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        activity: Arc<Activity>,
    ) -> Result<(), BoxError> {
        let (address, stream) = self.client(stream, peer, &activity).await?;
        // A client that reaches a dual-stack listener by IPv4 is counted and trusted as what it is.
        let address = SocketAddr::new(address.ip().to_canonical(), address.port());
        if (self.options.unwelcome)(address.ip()) {
            return Err("too many requests from this address".into());
        }
        let conn = Arc::new(Conn {
            address,
            peer,
            gate: moongate_security::Conn {
                address: address.ip().to_canonical(),
                loopback_listener: self.loopback,
            },
            tls: self.options.tls.is_some(),
            drain: self.drain.clone(),
        });
        let Some(tls) = &self.options.tls else {
            let mut stream = Watched::new(stream, Arc::clone(&activity));
            let (protocol, prefix) = prelude::protocol(&mut stream).await?;
            // On the heap, so that a cleartext connection does not carry the room that a TLS one needs.
            return Box::pin(self.http(protocol, Prefixed::new(prefix, stream), conn, activity)).await;
        };
        let stream = Box::pin(time::timeout(HANDSHAKE, tls.accept(stream)))
            .await
            .map_err(|_| "TLS handshake took too long")??;
        activity.prelude_over();
        let protocol = match stream.get_ref().1.alpn_protocol() {
            Some(b"h2") => Protocol::Http2,
            _ => Protocol::Http1,
        };
        Box::pin(self.http(protocol, Watched::new(stream, Arc::clone(&activity)), conn, activity)).await
    }

    /// The client's address: the peer's, unless a trusted proxy names another.
    async fn client(
        &self,
        stream: TcpStream,
        peer: SocketAddr,
        activity: &Arc<Activity>,
    ) -> io::Result<(SocketAddr, Prefixed<TcpStream>)> {
        if !(self.options.trusted)(peer.ip().to_canonical()) {
            return Ok((peer, Prefixed::new(Bytes::new(), stream)));
        }
        let mut stream = Watched::new(stream, Arc::clone(activity));
        let (client, prefix) = prelude::proxied(&mut stream).await?;
        // Bytes handed back are replayed to the next reader, which starts the head's time again.
        activity.prelude_over();
        Ok((client.unwrap_or(peer), Prefixed::new(prefix, stream.into_inner())))
    }

    async fn http<S>(
        &self,
        protocol: Protocol,
        stream: S,
        conn: Arc<Conn>,
        activity: Arc<Activity>,
    ) -> Result<(), BoxError>
    where
        S: AsyncRead + AsyncWrite + Presence + Unpin + Send + 'static,
    {
        let app = Arc::clone(&self.app);
        match protocol {
            // Each on the heap: a connection has the room its own protocol needs, not that of the larger one.
            Protocol::Http1 => {
                let connection = Http1::new(stream, app, conn, activity, self.options.max_header);
                Ok(Box::pin(connection.serve()).await?)
            }
            Protocol::Http2 => {
                activity.multiplex();
                let service = Answering { app, conn, activity: Arc::clone(&activity) };
                let mut connection = Box::pin(self.http2().serve_connection(TokioIo::new(stream), service));
                let mut told = false;
                std::future::poll_fn(|cx| {
                    if !told && activity.should_go_away() {
                        told = true;
                        connection.as_mut().graceful_shutdown();
                    }
                    connection.as_mut().poll(cx)
                })
                .await?;
                Ok(())
            }
        }
    }

    fn http2(&self) -> http2::Builder<OnGroup> {
        let mut builder = http2::Builder::new(OnGroup(self.connections.0.clone()));
        builder
            .timer(TokioTimer::new())
            .max_concurrent_streams(MAX_STREAMS)
            .keep_alive_interval(PING_EVERY)
            .keep_alive_timeout(PING_TIMEOUT)
            .max_header_list_size(u32::try_from(self.options.max_header).unwrap_or(u32::MAX));
        builder
    }
}

type BoxError = Box<dyn Error + Send + Sync>;

/// Runs the streams of HTTP/2 connections as tasks of the listener.
#[derive(Clone)]
struct OnGroup(Group);

impl<F: Future<Output = ()> + Send + 'static> hyper::rt::Executor<F> for OnGroup {
    fn execute(&self, future: F) {
        self.0.spawn(future);
    }
}

/// Whether an accept failed because of the client, so that the next one may well succeed.
fn is_the_peers(error: &io::Error) -> bool {
    use io::ErrorKind::{ConnectionAborted, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionReset | Interrupted)
}

/// An error with its causes, for a log line.
struct Chain<'a>(&'a (dyn Error + 'static));

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)?;
        let mut cause = self.0.source();
        while let Some(error) = cause {
            write!(f, ": {error}")?;
            cause = error.source();
        }
        Ok(())
    }
}
