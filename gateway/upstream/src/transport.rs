//! One connection to a server that speaks MCP, whichever way it goes: the pipes of a child process, or HTTP.
//!
//! In: requests whose ids the client of the connection mints, notifications, and answers to what the server asks. Out:
//! for each request an [`Exchange`] with everything that belongs to it; the rest goes to the connection's [`Inbound`].
//! A transport knows framing, headers and what a lost connection looks like. Eras, handshakes and whose call a server's
//! question belongs to are left to the client above it.

use std::{borrow::Cow, sync::Arc, time::Duration};

use futures_util::stream::BoxStream;
use moongate_core::BoxFuture;
use moongate_wire::{Message, Raw, RpcError, Version};

/// A way to make connections to one server.
pub trait Dial: Send + Sync {
    /// Makes a connection: starts a process, or prepares to speak HTTP. What the server says outside a request goes to
    /// `inbound`.
    ///
    /// # Cancel safety
    /// Dropping the future undoes what was begun.
    fn dial(&self, inbound: Arc<dyn Inbound>) -> BoxFuture<'_, Result<Arc<dyn Transport>, Fault>>;

    /// Which rules tell the server's era.
    fn way(&self) -> Way;
}

/// The two kinds of transport, where the protocol treats them differently.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Way {
    /// Lines on a pipe: one conversation, in which a server's question does not say whose call it belongs to.
    Pipe,
    /// HTTP: a stream for each request.
    Http,
}

/// A connection.
pub trait Transport: Send + Sync {
    /// Sends a request. Nothing happens before the exchange is polled. Dropping it before its last event cancels the
    /// request, in the way of the transport and of the request's era.
    fn request(&self, request: Outgoing) -> Exchange;

    /// Sends a notification, or an answer to a request of the server.
    ///
    /// # Cancel safety
    /// The message is sent whole or not at all.
    fn send(&self, message: Outward) -> BoxFuture<'_, Result<(), Fault>>;

    /// From now on the server speaks to us outside requests too, where that needs an effort: HTTP's GET stream. Told
    /// once, after a legacy handshake. True when the server has such a way.
    fn listen(&self, version: Version) -> BoxFuture<'_, bool>;

    /// Resolves when the connection is of no use any more, with the reason. HTTP without a session never is.
    ///
    /// # Cancel safety
    /// Cancel safe.
    fn closed(&self) -> BoxFuture<'_, Fault>;

    /// Ends the connection in order, which takes `grace` at most before it is cut: a child's stdin is closed, then it is
    /// told to end, then killed; an HTTP session is deleted. Exchanges end as lost.
    fn close(&self, grace: Duration) -> BoxFuture<'_, ()>;

    /// What a person wants to see who asks why the server does not work.
    fn diagnosis(&self) -> Diagnosis;
}

/// What a server says outside any request. Called by the transport's reader, so it must not block.
pub trait Inbound: Send + Sync {
    /// A notification or a request of the server; never a response.
    fn hear(&self, message: Message);
}

/// A request on its way to a server.
#[derive(Clone, Debug)]
pub struct Outgoing {
    /// Unique on this connection.
    pub id: i64,
    /// The method.
    pub method: &'static str,
    /// The whole message, with the envelope of the era.
    pub message: Raw,
    /// The version spoken; `None` while it is being negotiated (`initialize`).
    pub version: Option<Version>,
    /// What HTTP repeats in `Mcp-Name` in the modern era.
    pub name: Option<Arc<str>>,
    /// What HTTP repeats in `Mcp-Param-*` in the modern era: the part after the prefix, and the plain value.
    pub param_headers: Vec<(Arc<str>, String)>,
    /// What HTTP passes on in `Mcp-Param-*` in the modern era as a client wrote it, because no schema declares it.
    pub undeclared: Vec<(Arc<str>, Arc<str>)>,
}

/// A message on its way to a server that is not answered.
#[derive(Clone, Debug)]
pub struct Outward {
    /// The notification or response.
    pub message: Raw,
    /// The version spoken.
    pub version: Version,
}

/// Everything that belongs to one request, in order; the last event is [`Event::Answer`] or [`Event::Lost`].
pub type Exchange = BoxStream<'static, Event>;

/// What comes back for a request.
#[derive(Debug)]
pub enum Event {
    /// A notification or a request of the server that belongs to this request. A transport that cannot hand on a request
    /// because its reader does not keep up answers it with an error; notifications are dropped then.
    Message(Message),
    /// The server ended the connection and said when to come back for the rest, which the transport does by itself. It
    /// wants nobody to hold a connection meanwhile, our client included.
    HungUp,
    /// The end: the server's answer.
    Answer(Answer),
    /// The end: there will be no answer.
    Lost(Fault),
}

/// A server's answer to a request.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Result or error.
    pub outcome: Result<Raw, RpcError>,
    /// The status it came with, over HTTP.
    pub status: Option<u16>,
}

/// Why there is no answer. The texts name no secret: they are told to callers.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The server never got the request, so that it may be sent again: it could not be reached or started.
    #[error("{0}")]
    Unreached(Cow<'static, str>),
    /// The connection ended before the answer. The request may have been executed.
    #[error("{0}")]
    Lost(Cow<'static, str>),
    /// The server does not know our session any more and did nothing.
    #[error("the server has forgotten the session")]
    SessionGone,
    /// HTTP said no without saying anything in JSON-RPC.
    #[error("the server answered with HTTP status {status}{detail}")]
    Status {
        /// The status.
        status: u16,
        /// A blank and a few words, or nothing.
        detail: String,
    },
    /// The server sent what is not MCP.
    #[error("{0}")]
    Garbled(Cow<'static, str>),
}

/// The state of a connection, for people.
#[derive(Clone, Debug, Default)]
pub struct Diagnosis {
    /// The process, where there is one.
    pub pid: Option<u32>,
    /// The last lines of its standard error, secrets masked.
    pub stderr: Vec<String>,
    /// How limits are enforced, or not.
    pub notes: Vec<String>,
}
