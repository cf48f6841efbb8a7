//! Makes connections for the client: TCP, and TLS for `https`.
//!
//! Over TLS the server chooses HTTP/2 or HTTP/1.1; without TLS it is HTTP/1.1. Certificates are always verified. The
//! errors are sentences that name the host and its port, because they are what a user gets to read.

use std::{
    io::{self, IoSlice},
    path::PathBuf,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll},
    time::Duration,
};

use http::{HeaderValue, Uri, uri::Scheme};
use rustls::ClientConfig;
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
    sync::OnceCell,
    time::Instant,
};
use tokio_rustls::{TlsConnector, client::TlsStream};

use super::roots;

/// How long a connection may be silent before the system asks whether the other end is still there: a stream on which
/// nothing is said would otherwise outlive a server that vanished.
const KEEP_ALIVE_AFTER: Duration = Duration::from_mins(1);
const KEEP_ALIVE_EVERY: Duration = Duration::from_secs(15);

/// Connects to servers.
pub(super) struct Connector {
    ca_files: Vec<PathBuf>,
    timeout: Duration,
    /// Read when the first connection needs it, and again as long as that fails.
    tls: OnceCell<Arc<ClientConfig>>,
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(super) struct Failure(pub(super) String);

/// A connection.
pub(super) enum Stream {
    Plain(TcpStream),
    Tls(Box<TlsStream<TcpStream>>),
}

impl Connector {
    /// One that takes `timeout` at most for a connection.
    pub(super) fn new(ca_files: Vec<PathBuf>, timeout: Duration) -> Self {
        Self { ca_files, timeout, tls: OnceCell::new() }
    }

    /// Connects to the server of an address.
    pub(super) async fn connect(&self, uri: &Uri) -> Result<Stream, Failure> {
        let place = place(uri);
        let work = async {
            // Settings first: what is wrong with them is not the network's fault.
            let tls = if is_tls(uri) { Some(self.tls().await?) } else { None };
            let stream =
                self.reach(uri).await.map_err(|error| format!("cannot connect to {place}: {error}"))?;
            let Some(tls) = tls else { return Ok(Stream::Plain(stream)) };
            let name = ServerName::try_from(host(uri).to_owned())
                .map_err(|_| format!("{place} cannot be verified: the host is not a name"))?;
            let stream = TlsConnector::from(tls).connect(name, stream).await;
            let stream = stream.map_err(|error| format!("cannot speak TLS with {place}: {error}"))?;
            Ok(Stream::Tls(Box::new(stream)))
        };
        let late = |_| Err(format!("cannot connect to {place}: no answer within {:?}", self.timeout));
        tokio::time::timeout(self.timeout, work).await.unwrap_or_else(late).map_err(Failure)
    }

    /// A TCP connection to the first address that accepts one. An address that does not answer leaves time for the next.
    async fn reach(&self, uri: &Uri) -> io::Result<TcpStream> {
        let deadline = Instant::now() + self.timeout;
        let mut addresses =
            tokio::net::lookup_host((host(uri), port(uri))).await?.collect::<Vec<_>>().into_iter();
        let mut problem = io::Error::new(io::ErrorKind::NotFound, "the host has no address");
        while let Some(address) = addresses.next() {
            let left = deadline.saturating_duration_since(Instant::now());
            let attempts = u32::try_from(addresses.len() + 1).unwrap_or(u32::MAX);
            match tokio::time::timeout(left / attempts, TcpStream::connect(address)).await {
                Ok(Ok(stream)) => return prepare(&stream).map(|()| stream),
                Ok(Err(error)) => problem = error,
                Err(_) => {
                    problem = io::Error::new(io::ErrorKind::TimedOut, format!("no answer from {address}"));
                }
            }
        }
        Err(problem)
    }

    async fn tls(&self) -> Result<Arc<ClientConfig>, String> {
        let load = async || {
            let files = self.ca_files.clone();
            let loaded = tokio::task::spawn_blocking(move || roots::load(&files)).await;
            loaded.map_err(|_| "cannot set up TLS: the gateway is stopping".to_owned())?
        };
        self.tls.get_or_try_init(load).await.cloned()
    }
}

/// A request is small and waits for its answer, so nothing is gained by collecting.
fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nodelay(true)?;
    rustix::net::sockopt::set_socket_keepalive(stream, true)?;
    rustix::net::sockopt::set_tcp_keepidle(stream, KEEP_ALIVE_AFTER)?;
    Ok(rustix::net::sockopt::set_tcp_keepintvl(stream, KEEP_ALIVE_EVERY)?)
}

fn is_tls(uri: &Uri) -> bool {
    uri.scheme() == Some(&Scheme::HTTPS)
}

/// The host as a name or address, without the brackets of IPv6.
fn host(uri: &Uri) -> &str {
    let host = uri.host().unwrap_or_default();
    host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host)
}

fn port(uri: &Uri) -> u16 {
    uri.port_u16().unwrap_or(if is_tls(uri) { 443 } else { 80 })
}

/// Host and port, for people: no user name, path or query, which may be secret.
pub(super) fn place(uri: &Uri) -> String {
    format!("{}:{}", uri.host().unwrap_or_default(), port(uri))
}

/// What HTTP/1.1 says of where a request goes: the port only where it is not the usual one.
pub(super) fn host_header(uri: &Uri) -> HeaderValue {
    let host = uri.host().unwrap_or_default();
    let usual = uri.port_u16().is_none_or(|port| port == if is_tls(uri) { 443 } else { 80 });
    let text = if usual { host.to_owned() } else { place(uri) };
    // What is part of an address can be part of a header.
    HeaderValue::from_str(&text).unwrap_or(HeaderValue::from_static(""))
}

/// Whether two addresses have the same scheme, host and port.
pub(super) fn same_origin(one: &Uri, other: &Uri) -> bool {
    let host = |uri: &Uri| uri.host().unwrap_or_default().to_ascii_lowercase();
    one.scheme() == other.scheme() && host(one) == host(other) && port(one) == port(other)
}

impl Stream {
    /// Whether the server chose HTTP/2.
    pub(super) fn speaks_http2(&self) -> bool {
        match self {
            Self::Tls(stream) => stream.get_ref().1.alpn_protocol() == Some(b"h2"),
            Self::Plain(_) => false,
        }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_read(cx, buffer),
            Self::Tls(stream) => Pin::new(stream).poll_read(cx, buffer),
        }
    }
}

impl AsyncWrite for Stream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write(cx, bytes),
            Self::Tls(stream) => Pin::new(stream).poll_write(cx, bytes),
        }
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_flush(cx),
            Self::Tls(stream) => Pin::new(stream).poll_flush(cx),
        }
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_shutdown(cx),
            Self::Tls(stream) => Pin::new(stream).poll_shutdown(cx),
        }
    }

    fn is_write_vectored(&self) -> bool {
        match self {
            Self::Plain(stream) => stream.is_write_vectored(),
            Self::Tls(stream) => stream.is_write_vectored(),
        }
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        match self.get_mut() {
            Self::Plain(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
            Self::Tls(stream) => Pin::new(stream).poll_write_vectored(cx, slices),
        }
    }
}
