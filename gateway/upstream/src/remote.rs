//! Servers that are reached over HTTP.
//!
//! [`Remote`] speaks Streamable HTTP of both eras, [`OldSse`] the transport before it. Each has one pool of connections,
//! which all its transports share. What the configuration says is sent, and never anything of a caller's own
//! credentials; redirects are not followed, because they would take the configured ones elsewhere.

mod connect;
mod exchange;
mod head;
mod http1;
mod link;
mod old;
mod outbound;
mod pool;
mod refusal;
mod roots;
mod session;
mod sse;
mod standing;

use std::{fmt, future::ready, path::PathBuf, sync::Arc, time::Duration};

use futures_util::FutureExt as _;
use http::{HeaderName, HeaderValue, Uri};
use moongate_core::{
    BoxFuture,
    task::{Group, Signal},
};
use moongate_wire::{Era, Version};

pub use self::old::OldSse;
use self::{link::Link, session::Session};
use crate::transport::{Diagnosis, Dial, Exchange, Fault, Inbound, Outgoing, Outward, Transport, Way};

/// Large enough for a picture, small enough for many at a time.
const MAX_MESSAGE: usize = 16 * 1024 * 1024;
/// A server that is there answers within a second; a name or a handshake may take a few.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// Below what servers usually keep idle connections for, so that seldom a request meets one that is being closed.
const IDLE: Duration = Duration::from_secs(50);

/// How to reach a server.
#[derive(Clone)]
pub struct Spec {
    /// The upstream, in the log.
    pub name: Arc<str>,
    /// The MCP endpoint: `http` or `https`, with a host.
    pub url: Uri,
    /// Sent with every request; the values are secret.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Certificate authorities to believe beside the system's: PEM files.
    pub ca_files: Vec<PathBuf>,
    /// How many bytes a message of the server may have.
    pub max_message: usize,
    /// How long a connection may take to be made, TLS included.
    pub connect_timeout: Duration,
    /// How long an idle connection is kept.
    pub idle: Duration,
}

/// A way to a server that speaks Streamable HTTP.
pub struct Remote {
    link: Arc<Link>,
}

/// The transport: a session, and the end of its standing stream.
struct Http {
    session: Arc<Session>,
    unheard: Signal,
}

impl Spec {
    /// A server that needs nothing special.
    pub fn new(name: impl Into<Arc<str>>, url: Uri) -> Self {
        Self {
            name: name.into(),
            url,
            headers: Vec::new(),
            ca_files: Vec::new(),
            max_message: MAX_MESSAGE,
            connect_timeout: CONNECT_TIMEOUT,
            idle: IDLE,
        }
    }
}

impl fmt::Debug for Spec {
    /// Values of headers and the query of an address may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let headers: Vec<&HeaderName> = self.headers.iter().map(|(name, _)| name).collect();
        f.debug_struct("Spec")
            .field("name", &self.name)
            .field("place", &connect::place(&self.url))
            .field("headers", &headers)
            .finish_non_exhaustive()
    }
}

impl Remote {
    /// Prepares to connect; `tasks` own the connections.
    pub fn new(spec: Spec, tasks: Group) -> Self {
        Self { link: Arc::new(Link::new(spec, tasks)) }
    }
}

impl Dial for Remote {
    /// Nothing is sent before the first request.
    fn dial(&self, inbound: Arc<dyn Inbound>) -> BoxFuture<'_, Result<Arc<dyn Transport>, Fault>> {
        let session = Arc::new(Session::new(Arc::clone(&self.link), inbound));
        Box::pin(ready(Ok(Arc::new(Http { session, unheard: Signal::default() }) as Arc<dyn Transport>)))
    }

    fn way(&self) -> Way {
        Way::Http
    }
}

impl fmt::Debug for Remote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Remote").field("link", &self.link).finish()
    }
}

impl Transport for Http {
    fn request(&self, request: Outgoing) -> Exchange {
        exchange::start(Arc::clone(&self.session), request)
    }

    fn send(&self, message: Outward) -> BoxFuture<'_, Result<(), Fault>> {
        self.session.send(message.version, message.message).boxed()
    }

    fn listen(&self, version: Version) -> BoxFuture<'_, bool> {
        if version.era() == Era::Modern {
            return Box::pin(ready(false));
        }
        standing::listen(&self.session, version, self.unheard.clone()).boxed()
    }

    fn closed(&self) -> BoxFuture<'_, Fault> {
        self.session.over().boxed()
    }

    fn close(&self, grace: Duration) -> BoxFuture<'_, ()> {
        Box::pin(async move {
            self.session.close();
            // A session that is not deleted in time expires.
            drop(tokio::time::timeout(grace, self.session.delete()).await);
        })
    }

    fn diagnosis(&self) -> Diagnosis {
        diagnosis(&self.session.link, self.session.strays())
    }
}

impl Drop for Http {
    /// Exchanges go on without the transport; the standing stream is of no use to anyone.
    fn drop(&mut self) {
        self.unheard.give();
    }
}

fn diagnosis(link: &Link, strays: u64) -> Diagnosis {
    let mut notes = vec![format!("reached at {}", link.place)];
    if strays > 0 {
        notes.push(format!("{strays} messages of the server belonged to no request and were dropped"));
    }
    Diagnosis { notes, ..Diagnosis::default() }
}

#[cfg(test)]
mod tests;
