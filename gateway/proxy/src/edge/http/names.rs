//! The headers of the protocol, found in one pass: looking one up by its name goes through all of them.

use std::sync::Arc;

use http::HeaderName;
use moongate_core::Tool;
use moongate_security::{Headers, Said, Shown, headers::text};
use moongate_wire::header;

/// `Mcp-Session-Id`
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(header::SESSION_ID);

const VERSION: &[u8] = header::PROTOCOL_VERSION.as_bytes();
const METHOD: &[u8] = header::METHOD.as_bytes();
const NAME: &[u8] = header::NAME.as_bytes();
const SESSION: &[u8] = header::SESSION_ID.as_bytes();

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
    pub(super) fn read(headers: &'a Headers) -> Self {
        let mut named = Self::default();
        let [session, assistant, thread] = &mut named.context;
        let [parent, state, baggage] = &mut named.trace;
        for (name, value) in headers.iter() {
            // Every header, whoever else reads it: what the gate is not shown it takes for absent.
            named.shown.note(name, value);
            let slot = match name {
                VERSION => &mut named.version,
                METHOD => &mut named.method,
                NAME => &mut named.name,
                SESSION => &mut named.session,
                b"x-session-id" => &mut *session,
                b"x-assistant-id" => &mut *assistant,
                b"x-thread-id" => &mut *thread,
                b"traceparent" => &mut *parent,
                b"tracestate" => &mut *state,
                b"baggage" => &mut *baggage,
                b"content-type" => &mut named.content_type,
                b"accept" => &mut named.accept,
                other => {
                    named.has_params |= other.starts_with(header::PARAM_PREFIX.as_bytes());
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
        Said::Once(value) => Some(value),
        Said::Again(_) => Some(b""),
    }
}

/// The `Mcp-Param-*` that `tool` does not declare, as they came; what is too much is left out. Values must be plain or
/// encoded, so that what is not visible ASCII is none.
pub(super) fn undeclared(headers: &Headers, tool: &Tool) -> Vec<(Arc<str>, Arc<str>)> {
    let declared =
        |name: &str| tool.header_params.iter().any(|param| param.header.eq_ignore_ascii_case(name));
    let mut room = MAX_UNDECLARED_BYTES;
    let sent = headers.iter().filter_map(|(name, value)| {
        let name = text(name)?.strip_prefix(header::PARAM_PREFIX)?;
        let value = text(value).filter(|_| !name.is_empty() && !declared(name))?;
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
    use moongate_core::{Raw, Scope, offer::HeaderParam};

    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
    }

    #[test]
    fn each_header_is_found_and_a_second_one_is_noticed() {
        let headers = headers(&[
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
        ]);
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
        assert_eq!(Named::read(&Headers::default()).session, Said::Absent);
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
        let sent: [(&str, &[u8]); 7] = [
            ("mcp-param-region", b"eu"),
            ("mcp-param-other", b"=?base64?!?="),
            ("mcp-param-", b"no name"),
            ("mcp-name", b"n"),
            ("authorization", b"Bearer x"),
            ("mcp-param-other", b"two"),
            ("mcp-param-bytes", b"\xff"),
        ];
        let sent: Headers = sent.into_iter().collect();
        assert!(Named::read(&sent).has_params);
        let passed = |headers: &Headers| undeclared(headers, &tool(&["Region"]));
        let text = |(name, value): &(&str, &str)| ((*name).into(), (*value).into());
        let expected: Vec<(Arc<str>, Arc<str>)> =
            [("other", "=?base64?!?="), ("other", "two")].iter().map(text).collect();
        assert_eq!(passed(&sent), expected);
        let many: Vec<String> = (0..100).map(|n| format!("mcp-param-{n}")).collect();
        let many: Vec<(&str, &str)> = many.iter().map(|name| (&**name, "v")).collect();
        assert_eq!(passed(&headers(&many)).len(), MAX_UNDECLARED);
        let long = "v".repeat(MAX_UNDECLARED_BYTES);
        assert_eq!(passed(&headers(&[("mcp-param-other", &long)])), []);
    }
}
