//! The headers of the protocol, ready to be looked up: a name given as text is checked and hashed anew each time.

use http::HeaderName;
use moongate_wire::header;

/// `MCP-Protocol-Version`
pub(super) const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(header::PROTOCOL_VERSION);
/// `Mcp-Method`
pub(super) const METHOD: HeaderName = HeaderName::from_static(header::METHOD);
/// `Mcp-Name`
pub(super) const NAME: HeaderName = HeaderName::from_static(header::NAME);
/// `Mcp-Session-Id`
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);
/// `Last-Event-ID`
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(header::LAST_EVENT_ID);
/// `X-Session-Id`, `X-Assistant-Id`, `X-Thread-Id`
pub(super) const CONTEXT: [HeaderName; 3] = [
    HeaderName::from_static("x-session-id"),
    HeaderName::from_static("x-assistant-id"),
    HeaderName::from_static("x-thread-id"),
];
