//! A request to a server, with what it has beside the headers that all have.

use std::{fmt, sync::Arc};

use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, header};
use moongate_wire::{Version, header as names};

use super::head::{EVENTS, JSON};

const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");

/// A request.
pub(super) struct Outbound {
    pub(super) method: Method,
    version: Option<Version>,
    /// `Mcp-Session-Id`
    pub(super) session: Option<HeaderValue>,
    /// `Last-Event-ID`
    pub(super) last_event: Option<HeaderValue>,
    /// The method of the message and whom it names, which the modern era repeats.
    pub(super) repeated: Option<(&'static str, Option<Arc<str>>)>,
    /// What else it says.
    pub(super) more: Vec<(HeaderName, HeaderValue)>,
    pub(super) body: Bytes,
}

/// Without its headers and its body: they hold the session, tokens, and what callers say.
impl fmt::Debug for Outbound {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { method, version, body, .. } = self;
        f.debug_struct("Outbound")
            .field("method", method)
            .field("version", version)
            .field("body_bytes", &body.len())
            .finish_non_exhaustive()
    }
}

impl Outbound {
    /// A message to post.
    pub(super) fn post(version: Option<Version>, message: Bytes) -> Self {
        Self { body: message, ..Self::of(Method::POST, version) }
    }

    /// A request for a stream of events.
    pub(super) fn get(version: Option<Version>) -> Self {
        Self::of(Method::GET, version)
    }

    /// A request to end something.
    pub(super) fn delete(version: Option<Version>) -> Self {
        Self::of(Method::DELETE, version)
    }

    fn of(method: Method, version: Option<Version>) -> Self {
        // Servers of earlier versions do not know the header.
        let version = version.filter(|version| *version >= Version::V2025_06_18);
        Self {
            method,
            version,
            session: None,
            last_event: None,
            repeated: None,
            more: Vec::new(),
            body: Bytes::new(),
        }
    }

    /// Shows every header to `each`.
    pub(super) fn headers(&self, mut each: impl FnMut(&str, &[u8])) {
        if self.method == Method::POST {
            each(header::CONTENT_TYPE.as_str(), JSON.as_bytes());
            each(header::ACCEPT.as_str(), BOTH.as_bytes());
        } else if self.method == Method::GET {
            each(header::ACCEPT.as_str(), EVENTS.as_bytes());
        }
        if let Some(version) = self.version {
            each(names::PROTOCOL_VERSION, version.as_str().as_bytes());
        }
        let known = [(names::SESSION_ID, &self.session), (names::LAST_EVENT_ID, &self.last_event)];
        for (name, value) in known {
            if let Some(value) = value {
                each(name, value.as_bytes());
            }
        }
        if let Some((method, name)) = &self.repeated {
            each(names::METHOD, method.as_bytes());
            if let Some(name) = name {
                each(names::NAME, names::encode(name).as_bytes());
            }
        }
        for (name, value) in &self.more {
            each(name.as_str(), value.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_shown_of_a_request_holds_no_session() {
        let session = Some(HeaderValue::from_static("secret-session"));
        let shown =
            format!("{:?}", Outbound { session, ..Outbound::post(None, Bytes::from_static(b"secret-body")) });
        assert!(shown.contains("POST") && !shown.contains("secret"), "{shown}");
    }
}
