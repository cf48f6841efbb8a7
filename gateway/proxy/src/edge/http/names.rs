//! The headers of the protocol, found in one pass: looking one up by its name hashes that name anew.

use http::{HeaderMap, HeaderName, HeaderValue};
use moongate_wire::header;

/// `Mcp-Session-Id`
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);
/// `Last-Event-ID`
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(header::LAST_EVENT_ID);

/// The protocol's own headers of one request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Named<'a> {
    /// `MCP-Protocol-Version`
    pub(super) version: Value<'a>,
    /// `Mcp-Method`
    pub(super) method: Value<'a>,
    /// `Mcp-Name`
    pub(super) name: Value<'a>,
    /// `Mcp-Session-Id`
    pub(super) session: Value<'a>,
    /// `X-Session-Id`, `X-Assistant-Id`, `X-Thread-Id`
    pub(super) context: [Value<'a>; 3],
}

/// What one header says.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) enum Value<'a> {
    /// Nothing.
    #[default]
    Absent,
    /// This.
    Once(&'a HeaderValue),
    /// This, and then something else.
    Again(&'a HeaderValue),
}

impl<'a> Named<'a> {
    pub(super) fn read(headers: &'a HeaderMap) -> Self {
        let mut named = Self::default();
        let [session, assistant, thread] = &mut named.context;
        for (name, value) in headers {
            let slot = match name.as_str() {
                header::PROTOCOL_VERSION => &mut named.version,
                header::METHOD => &mut named.method,
                header::NAME => &mut named.name,
                header::SESSION_ID => &mut named.session,
                "x-session-id" => &mut *session,
                "x-assistant-id" => &mut *assistant,
                "x-thread-id" => &mut *thread,
                _ => continue,
            };
            *slot = match *slot {
                Value::Absent => Value::Once(value),
                Value::Once(first) | Value::Again(first) => Value::Again(first),
            };
        }
        named
    }
}

impl<'a> Value<'a> {
    /// The first of what it says.
    pub(super) fn first(self) -> Option<&'a HeaderValue> {
        match self {
            Self::Absent => None,
            Self::Once(value) | Self::Again(value) => Some(value),
        }
    }

    /// The first of what it says, if that is text.
    pub(super) fn text(self) -> Option<&'a str> {
        self.first()?.to_str().ok()
    }

    /// What it says, where it must repeat something: a header that comes twice repeats nothing.
    pub(super) fn repeated(self) -> Option<&'a [u8]> {
        match self {
            Self::Absent => None,
            Self::Once(value) => Some(value.as_bytes()),
            Self::Again(_) => Some(b""),
        }
    }
}

#[cfg(test)]
mod tests {
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
            ("accept", "a"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        let named = Named::read(&headers);
        let repeated = |value: Value<'_>| value.repeated().map(<[u8]>::to_vec);
        assert_eq!(repeated(named.version), Some(b"v".to_vec()));
        assert_eq!(repeated(named.method), Some(b"m".to_vec()));
        assert_eq!(repeated(named.name), Some(Vec::new()));
        assert_eq!(named.name.text(), Some("n"));
        assert_eq!(named.session.text(), Some("s"));
        assert_eq!(named.context.map(Value::text), [Some("xs"), Some("xa"), Some("xt")]);
        assert_eq!(Named::read(&HeaderMap::new()).session, Value::Absent);
    }
}
