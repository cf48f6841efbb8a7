//! What arrives at the gate: a connection, and the head of a request on it.
//!
//! Takes apart what the head says about its target host and its token, and decides nothing.

use std::{fmt, net::IpAddr};

use http::{Uri, Version};
use percent_encoding::percent_decode_str;

use crate::headers::{Headers, text};

/// Query parameters that people put tokens into. Query strings end up in logs, histories and `Referer`.
const TOKEN_PARAMETERS: [&str; 3] = ["access_token", "auth_token", "token"];

/// The connection a request came on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conn {
    /// The peer's address, or the one that a trusted proxy's preface named.
    pub address: IpAddr,
    /// Whether the listener is bound to a loopback address, so that only this machine reaches it.
    pub loopback_listener: bool,
}

/// What one header says.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub enum Said<'a> {
    /// Nothing.
    #[default]
    Absent,
    /// This.
    Once(&'a [u8]),
    /// This, and then something else.
    Again(&'a [u8]),
}

impl<'a> Said<'a> {
    /// Takes note of what it says next.
    pub fn note(&mut self, value: &'a [u8]) {
        *self = match *self {
            Self::Absent => Self::Once(value),
            Self::Once(first) | Self::Again(first) => Self::Again(first),
        };
    }

    /// The first of what it says.
    pub fn first(self) -> Option<&'a [u8]> {
        match self {
            Self::Absent => None,
            Self::Once(value) | Self::Again(value) => Some(value),
        }
    }

    /// The first of what it says, if that is text.
    pub fn text(self) -> Option<&'a str> {
        self.first().and_then(text)
    }
}

/// The headers that the gate reads. Looking one up by its name goes through all headers; whoever does that anyway shows
/// each of them to [`Shown::note`]. One that holds nothing yet says that nothing was sent.
#[derive(Clone, Copy, Default)]
pub struct Shown<'a> {
    host: Said<'a>,
    pub(crate) origin: Said<'a>,
    authorization: Said<'a>,
}

impl<'a> Shown<'a> {
    /// Finds them.
    pub fn read(headers: &'a Headers) -> Self {
        let mut shown = Self::default();
        headers.iter().for_each(|(name, value)| shown.note(name, value));
        shown
    }

    /// Takes note of a header, if it is one of them. Its name is in lower case.
    pub fn note(&mut self, name: &[u8], value: &'a [u8]) {
        match name {
            b"host" => self.host.note(value),
            b"origin" => self.origin.note(value),
            b"authorization" => self.authorization.note(value),
            _ => {}
        }
    }

    /// Whether a page of some site sent this.
    pub fn has_origin(&self) -> bool {
        self.origin != Said::Absent
    }
}

/// A request that wants in.
#[derive(Clone, Copy)]
pub struct Knock<'a> {
    /// Its connection.
    pub conn: &'a Conn,
    /// Its headers.
    pub headers: &'a Headers,
    /// Those of them that the gate always reads.
    pub shown: Shown<'a>,
    /// Its target; with HTTP/2 this holds the authority.
    pub uri: &'a Uri,
    /// The version of HTTP.
    pub version: Version,
}

/// What the `Authorization` header holds.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Bearer<'a> {
    /// There is no such header.
    Absent,
    /// A token.
    Token(&'a str),
    /// Another scheme, or no token behind the scheme, as when a variable in a client's configuration is not set.
    Unusable,
    /// More than one header.
    Several,
}

impl<'a> Knock<'a> {
    /// The one host this request is for, as it was sent; `None` when there is none, several, or two that differ.
    ///
    /// HTTP/1 must name it in exactly one `Host` header, HTTP/2 in the authority of its target or there.
    pub(crate) fn host(&self) -> Option<&'a str> {
        let header = match self.shown.host {
            Said::Absent => None,
            Said::Once(value) => Some(text(value)?),
            Said::Again(_) => return None,
        };
        let authority = self.uri.authority().map(http::uri::Authority::as_str);
        match (header, authority) {
            (Some(header), Some(authority)) => header.eq_ignore_ascii_case(authority).then_some(header),
            (Some(header), None) => Some(header),
            (None, Some(authority)) if self.version >= Version::HTTP_2 => Some(authority),
            (None, _) => None,
        }
    }

    /// What the `Authorization` header holds.
    pub(crate) fn bearer(&self) -> Bearer<'a> {
        match self.shown.authorization {
            Said::Absent => Bearer::Absent,
            Said::Once(value) => text(value).map_or(Bearer::Unusable, parse_bearer),
            Said::Again(_) => Bearer::Several,
        }
    }

    /// Whether the query string holds a token, however its name is spelled.
    pub(crate) fn token_in_query(&self) -> bool {
        let Some(query) = self.uri.query() else { return false };
        query.split('&').any(|pair| {
            let name = pair.split_once('=').map_or(pair, |(name, _)| name);
            let name = percent_decode_str(name).decode_utf8_lossy();
            TOKEN_PARAMETERS.iter().any(|parameter| name.eq_ignore_ascii_case(parameter))
        })
    }
}

impl fmt::Debug for Knock<'_> {
    /// Without the headers and the query: both may hold a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { conn, uri, version, .. } = self;
        f.debug_struct("Knock")
            .field("conn", conn)
            .field("path", &uri.path())
            .field("version", version)
            .finish()
    }
}

impl fmt::Debug for Said<'_> {
    /// Whether and how often, not what: it may be a token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::Once(_) => "Once(***)",
            Self::Again(_) => "Again(***)",
        })
    }
}

impl fmt::Debug for Shown<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, origin, authorization } = self;
        write!(f, "Shown {{ host: {host:?}, origin: {origin:?}, authorization: {authorization:?} }}")
    }
}

impl fmt::Debug for Bearer<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Absent => "Absent",
            Self::Token(_) => "Token(***)",
            Self::Unusable => "Unusable",
            Self::Several => "Several",
        })
    }
}

fn parse_bearer(value: &str) -> Bearer<'_> {
    const SCHEME: &str = "bearer ";
    let token = match value.split_at_checked(SCHEME.len()) {
        Some((scheme, token)) if scheme.eq_ignore_ascii_case(SCHEME) => token.trim_ascii(),
        _ => "",
    };
    if token.is_empty() { Bearer::Unusable } else { Bearer::Token(token) }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&str, &str)]) -> Headers {
        pairs.iter().map(|(name, value)| (*name, value.as_bytes())).collect()
    }

    fn host(version: Version, uri: &'static str, hosts: &[&'static str]) -> Option<String> {
        let conn = Conn { address: IpAddr::from([127, 0, 0, 1]), loopback_listener: true };
        let headers = headers(&hosts.iter().map(|host| ("host", *host)).collect::<Vec<_>>());
        let uri = Uri::from_static(uri);
        let shown = Shown::read(&headers);
        Knock { conn: &conn, headers: &headers, shown, uri: &uri, version }.host().map(str::to_owned)
    }

    #[test]
    fn exactly_one_host_is_found() {
        let http1 = Version::HTTP_11;
        let http2 = Version::HTTP_2;
        for (version, uri, hosts, expected) in [
            (http1, "/mcp", &["localhost:3847"][..], Some("localhost:3847")),
            (http1, "/mcp", &[], None),
            (http1, "/mcp", &["localhost", "localhost"], None),
            (http1, "/mcp", &["localhost", "evil.example.com"], None),
            (http1, "http://localhost/mcp", &["localhost"], Some("localhost")),
            (http1, "http://LOCALHOST/mcp", &["localhost"], Some("localhost")),
            (http1, "http://evil.example.com/mcp", &["localhost"], None),
            (http1, "http://localhost/mcp", &[], None),
            (Version::HTTP_10, "/mcp", &[], None),
            (http2, "https://localhost:3847/mcp", &[], Some("localhost:3847")),
            (http2, "https://localhost/mcp", &["localhost"], Some("localhost")),
            (http2, "https://localhost/mcp", &["evil.example.com"], None),
            (http2, "https://evil.example.com/mcp", &["localhost"], None),
            (http2, "/mcp", &["localhost"], Some("localhost")),
            (http2, "/mcp", &[], None),
        ] {
            assert_eq!(host(version, uri, hosts).as_deref(), expected, "{version:?} {uri} {hosts:?}");
        }
    }

    #[test]
    fn a_bearer_token_is_taken_from_one_header() {
        let conn = Conn { address: IpAddr::from([127, 0, 0, 1]), loopback_listener: true };
        let uri = Uri::from_static("/mcp");
        for (values, expected) in [
            (&[][..], Bearer::Absent),
            (&["Bearer abc"], Bearer::Token("abc")),
            (&["bearer  abc "], Bearer::Token("abc")),
            (&["BEARER abc"], Bearer::Token("abc")),
            (&["Bearer"], Bearer::Unusable),
            (&["Bearer "], Bearer::Unusable),
            (&["Bearerabc"], Bearer::Unusable),
            (&["Basic YTpi"], Bearer::Unusable),
            (&["abc"], Bearer::Unusable),
            (&["Bearer abc", "Bearer abc"], Bearer::Several),
        ] {
            let pairs: Vec<_> = values.iter().map(|value| ("authorization", *value)).collect();
            let headers = headers(&pairs);
            let (headers, shown) = (&headers, Shown::read(&headers));
            let knock = Knock { conn: &conn, headers, shown, uri: &uri, version: Version::HTTP_11 };
            assert_eq!(knock.bearer(), expected, "{values:?}");
        }
    }

    #[test]
    fn a_token_in_the_query_is_seen_in_every_spelling() {
        let conn = Conn { address: IpAddr::from([127, 0, 0, 1]), loopback_listener: true };
        let headers = Headers::default();
        for (uri, expected) in [
            ("/mcp", false),
            ("/mcp?", false),
            ("/mcp?session=token", false),
            ("/mcp?tokens=1", false),
            ("/mcp?token=abc", true),
            ("/mcp?access_token=abc", true),
            ("/mcp?a=b&Access_Token=abc", true),
            ("/mcp?a=b&access%5Ftoken=abc", true),
            ("/mcp?%74oken", true),
        ] {
            let uri = Uri::from_static(uri);
            let (headers, shown) = (&headers, Shown::read(&headers));
            let knock = Knock { conn: &conn, headers, shown, uri: &uri, version: Version::HTTP_11 };
            assert_eq!(knock.token_in_query(), expected, "{uri}");
        }
    }
}
