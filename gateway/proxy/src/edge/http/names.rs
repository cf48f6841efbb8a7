//! The headers of the protocol, found in one pass: looking one up by its name hashes that name anew.

use std::sync::Arc;

use http::{HeaderMap, HeaderName};
use moongate_core::Tool;
use moongate_security::{Said, Shown};
use moongate_wire::header;

/// `Mcp-Session-Id`
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);
/// `Last-Event-ID`
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(header::LAST_EVENT_ID);

/// Headers with parameters that no schema declares, of which one request passes on so many.
const MAX_UNDECLARED: usize = 32;
/// And so many bytes of names and values.
const MAX_UNDECLARED_BYTES: usize = 8 << 10;

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
    /// Whether there is an `Mcp-Param-*`.
    pub(super) has_params: bool,
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
                other => {
                    named.has_params |= other.starts_with(header::PARAM_PREFIX);
                    continue;
                }
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

/// The `Mcp-Param-*` that `tool` does not declare, as they came; what is too much is left out. Values must be plain or
/// encoded, so that what is not visible ASCII is none.
pub(super) fn undeclared(headers: &HeaderMap, tool: &Tool) -> Vec<(Arc<str>, Arc<str>)> {
    let declared =
        |name: &str| tool.header_params.iter().any(|param| param.header.eq_ignore_ascii_case(name));
    let mut room = MAX_UNDECLARED_BYTES;
    let sent = headers.iter().filter_map(|(name, value)| {
        let name = name.as_str().strip_prefix(header::PARAM_PREFIX)?;
        let value = value.to_str().ok().filter(|_| !name.is_empty() && !declared(name))?;
        Some((name, value))
    });
    let fits = |(name, value): &(&str, &str)| {
        room = room.saturating_sub(name.len() + value.len());
        room > 0
    };
    sent.take(MAX_UNDECLARED).take_while(fits).map(|(name, value)| (name.into(), value.into())).collect()
}

#[cfg(test)]
mod tests {
    use http::HeaderValue;
    use moongate_core::{Raw, Scope, offer::HeaderParam};

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
        assert!(!named.has_params);
        assert_eq!(Named::read(&HeaderMap::new()).session, Said::Absent);
    }

    fn tool(declared: &[&str]) -> Tool {
        let param = |name: &&str| HeaderParam { header: (*name).into(), path: Vec::new() };
        Tool {
            name: "t".into(),
            aliases: Vec::new(),
            definition: Raw::empty_object(),
            scope: Scope::read(),
            header_params: declared.iter().map(param).collect(),
        }
    }

    #[test]
    fn only_parameters_that_are_not_declared_are_passed_on_and_not_too_many() {
        let mut headers = HeaderMap::new();
        for (name, value) in [
            ("mcp-param-region", "eu"),
            ("mcp-param-other", "=?base64?!?="),
            ("mcp-param-", "no name"),
            ("mcp-name", "n"),
            ("authorization", "Bearer x"),
            ("mcp-param-other", "two"),
        ] {
            headers.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        assert!(Named::read(&headers).has_params);
        let bytes = HeaderValue::from_bytes(b"\xff").unwrap();
        headers.append("mcp-param-bytes", bytes);
        let passed = |headers: &HeaderMap| undeclared(headers, &tool(&["Region"]));
        let text = |(name, value): &(&str, &str)| ((*name).into(), (*value).into());
        let expected: Vec<(Arc<str>, Arc<str>)> =
            [("other", "=?base64?!?="), ("other", "two")].iter().map(text).collect();
        assert_eq!(passed(&headers), expected);
        let many = (0..100).map(|n| {
            let name = HeaderName::from_bytes(format!("mcp-param-{n}").as_bytes()).unwrap();
            (name, HeaderValue::from_static("v"))
        });
        assert_eq!(passed(&many.collect()).len(), MAX_UNDECLARED);
        let long = HeaderValue::from_str(&"v".repeat(MAX_UNDECLARED_BYTES)).unwrap();
        headers.insert("mcp-param-other", long);
        assert_eq!(passed(&headers), []);
    }
}
