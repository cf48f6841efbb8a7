//! The headers of the protocol, found in one pass: looking one up by its name hashes that name anew.

use http::{HeaderMap, HeaderName};
use moongate_security::{Said, Shown};
use moongate_wire::header;

/// `Mcp-Session-Id`
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);
/// `Last-Event-ID`
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(header::LAST_EVENT_ID);

/// The headers of one request that every request is asked for.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named<'a> {
    /// `MCP-Protocol-Version`
    pub(super) version: Said<'a>,
    /// `Mcp-Method`
    pub(super) method: Said<'a>,
    /// `Mcp-Name`
    pub(super) name: Said<'a>,
    /// `Mcp-Session-Id`
    pub(super) session: Said<'a>,
    /// `X-Session-Id`, `X-Assistant-Id`, `X-Thread-Id`
    pub(super) context: [Said<'a>; 3],
    /// `traceparent`, `tracestate`, `baggage`
    pub(super) trace: [Said<'a>; 3],
    /// `Content-Type`
    pub(super) content_type: Said<'a>,
    /// `Accept`
    pub(super) accept: Said<'a>,
    /// What the gate reads.
    pub(super) shown: Shown<'a>,
}

impl<'a> Named<'a> {
    pub(super) fn read(headers: &'a HeaderMap) -> Self {
        let mut named = Self::default();
        let [session, assistant, thread] = &mut named.context;
        let [parent, state, baggage] = &mut named.trace;
        for (name, value) in headers {
            // Every header, whoever else reads it: what the gate is not shown it takes for absent.
            named.shown.note(name, value);
            let slot = match name.as_str() {
                header::PROTOCOL_VERSION => &mut named.version,
                header::METHOD => &mut named.method,
                header::NAME => &mut named.name,
                header::SESSION_ID => &mut named.session,
                "x-session-id" => &mut *session,
                "x-assistant-id" => &mut *assistant,
                "x-thread-id" => &mut *thread,
                "traceparent" => &mut *parent,
                "tracestate" => &mut *state,
                "baggage" => &mut *baggage,
                "content-type" => &mut named.content_type,
                "accept" => &mut named.accept,
                _ => continue,
            };
            slot.note(value);
        }
        named
    }
}

/// What it says, where it must repeat something: a header that comes twice repeats nothing.
pub(super) fn repeated(said: Said<'_>) -> Option<&[u8]> {
    match said {
        Said::Absent => None,
        Said::Once(value) => Some(value.as_bytes()),
        Said::Again(_) => Some(b""),
    }
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;

    use super::*;

    #[test]
    fn each_header_is_found_and_a_second_one_is_noticed() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("mcp-protocol-version", "v"),
            ("mcp-method", "m"),
            ("mcp-name", "n"),
            ("mcp-name", "n"),
            ("mcp-session-id", "s"),
            ("x-session-id", "xs"),
            ("x-assistant-id", "xa"),
            ("x-thread-id", "xt"),
            ("x-thread-id", "other"),
            ("traceparent", "p"),
            ("baggage", "b"),
            ("accept", "a"),
            ("origin", "o"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let named = Named::read(&headers);
        let repeated = |said: Said<'_>| repeated(said).map(<[u8]>::to_vec);
        assert_eq!(repeated(named.version), Some(b"v".to_vec()));
        assert_eq!(repeated(named.method), Some(b"m".to_vec()));
        assert_eq!(repeated(named.name), Some(Vec::new()));
        assert_eq!(named.name.text(), Some("n"));
        assert_eq!(named.session.text(), Some("s"));
        assert_eq!(named.context.map(Said::text), [Some("xs"), Some("xa"), Some("xt")]);
        assert_eq!(named.trace.map(Said::text), [Some("p"), None, Some("b")]);
        assert_eq!(named.accept.text(), Some("a"));
        assert_eq!(named.content_type, Said::Absent);
        assert!(named.shown.has_origin());
        assert_eq!(Named::read(&HeaderMap::new()).session, Said::Absent);
    }
}
