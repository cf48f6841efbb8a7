//! Hosts and origins: which are local, which are listed, and what a browser is told about it.
//!
//! A page on any site can make its visitor's browser call this machine, and can point a name of its own at it. `Host`
//! says under which name we were called, `Origin` which page calls. Both are read strictly: what does not parse is
//! never allowed.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
    str::FromStr,
};

use http::{HeaderMap, HeaderValue, header};

use crate::{
    headers::{Headers, text},
    knock::Said,
};

/// A host with or without a port, as in `Host`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Authority {
    host: Host,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Host {
    Localhost,
    V4(Ipv4Addr),
    V6(Ipv6Addr),
    /// In lower case; international names only as punycode, which is what browsers send.
    Name(Box<str>),
}

/// Where a page comes from: scheme, host and port, as in `Origin`.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Origin {
    /// In lower case.
    scheme: Box<str>,
    /// With the scheme's own port left out.
    authority: Authority,
}

/// Text that is no host or no origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseError {
    /// Not `host` or `host:port`.
    #[error("expected a host, or a host and a port, such as mcp.example.com:8443")]
    Authority,
    /// Not `scheme://host` or `scheme://host:port`.
    #[error("expected a scheme and a host without a path, such as https://ide.example.com")]
    Origin,
}

/// What a request's `Origin` means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Cors<'a> {
    /// None was sent: no browser, or the same site.
    Absent,
    /// It may call; this is what to reflect.
    Allowed(&'a [u8]),
    /// It may not.
    Refused,
}

impl Authority {
    /// Whether it is a name of this machine that no name server can hand out.
    pub fn is_local(&self) -> bool {
        match self.host {
            Host::Localhost => true,
            Host::V4(address) => address == Ipv4Addr::LOCALHOST,
            Host::V6(address) => address == Ipv6Addr::LOCALHOST,
            Host::Name(_) => false,
        }
    }

    /// Whether this, as an entry of a list, covers `given`: without a port it covers every port.
    pub fn covers(&self, given: &Self) -> bool {
        self.host == given.host && (self.port.is_none() || self.port == given.port)
    }
}

/// An address, on any port.
impl From<IpAddr> for Authority {
    fn from(address: IpAddr) -> Self {
        let host = match address.to_canonical() {
            IpAddr::V4(address) => Host::V4(address),
            IpAddr::V6(address) => Host::V6(address),
        };
        Self { host, port: None }
    }
}

impl FromStr for Authority {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (host, port) = if let Some(rest) = text.strip_prefix('[') {
            let (address, port) = rest.split_once(']').ok_or(ParseError::Authority)?;
            (address.parse().map(Host::V6).map_err(|_| ParseError::Authority)?, port)
        } else {
            let colon = text.bytes().position(|byte| byte == b':');
            let (name, port) = text.split_at(colon.unwrap_or(text.len()));
            (parse_name(name)?, port)
        };
        let port = match port.strip_prefix(':') {
            Some(digits) => Some(parse_port(digits)?),
            None if port.is_empty() => None,
            None => return Err(ParseError::Authority),
        };
        Ok(Self { host, port })
    }
}

fn parse_name(name: &str) -> Result<Host, ParseError> {
    // What nearly every caller says, without a closer look.
    match name {
        "127.0.0.1" => return Ok(Host::V4(Ipv4Addr::LOCALHOST)),
        "localhost" => return Ok(Host::Localhost),
        _ => {}
    }
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    if name.is_empty() || name.len() > 253 || !name.bytes().all(plain) {
        return Err(ParseError::Authority);
    }
    if name.eq_ignore_ascii_case("localhost") {
        return Ok(Host::Localhost);
    }
    Ok(name.parse().map_or_else(|_| Host::Name(name.to_ascii_lowercase().into()), Host::V4))
}

/// `u16::from_str` would take a `+` too.
fn parse_port(digits: &str) -> Result<u16, ParseError> {
    let all_digits = digits.bytes().all(|byte| byte.is_ascii_digit());
    digits.parse().ok().filter(|_| all_digits).ok_or(ParseError::Authority)
}

impl fmt::Display for Authority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            Host::Localhost => f.write_str("localhost")?,
            Host::V4(address) => write!(f, "{address}")?,
            Host::V6(address) => write!(f, "[{address}]")?,
            Host::Name(name) => f.write_str(name)?,
        }
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

impl Origin {
    /// Whether it is a page that this machine serves.
    pub fn is_local(&self) -> bool {
        matches!(&*self.scheme, "http" | "https") && self.authority.is_local()
    }
}

impl FromStr for Origin {
    type Err = ParseError;

    /// `null`, which a sandboxed page of anybody sends, is no origin.
    fn from_str(text: &str) -> Result<Self, ParseError> {
        let (scheme, authority) = text.split_once("://").ok_or(ParseError::Origin)?;
        let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.');
        if !scheme.starts_with(|first: char| first.is_ascii_alphabetic()) || !scheme.bytes().all(plain) {
            return Err(ParseError::Origin);
        }
        let scheme: Box<str> = scheme.to_ascii_lowercase().into();
        let mut authority: Authority = authority.parse().map_err(|_| ParseError::Origin)?;
        authority.port = authority.port.filter(|port| Some(*port) != default_port(&scheme));
        Ok(Self { scheme, authority })
    }
}

fn default_port(scheme: &str) -> Option<u16> {
    match scheme {
        "http" => Some(80),
        "https" => Some(443),
        _ => None,
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}://{}", self.scheme, self.authority)
    }
}

/// Decides about the `Origin` of a request: absent, local, or one of `listed`, exactly.
pub fn cors<'a>(origin: Said<'a>, listed: &[Origin]) -> Cors<'a> {
    let value = match origin {
        Said::Absent => return Cors::Absent,
        Said::Once(value) => value,
        Said::Again(_) => return Cors::Refused,
    };
    let origin = text(value).and_then(|text| text.parse::<Origin>().ok());
    match origin {
        Some(origin) if origin.is_local() || listed.contains(&origin) => Cors::Allowed(value),
        _ => Cors::Refused,
    }
}

const ALLOW_METHODS: HeaderValue = HeaderValue::from_static("POST, GET, DELETE, OPTIONS");
const ALLOW_HEADERS: &str = "Authorization, Content-Type, Mcp-Session-Id, MCP-Protocol-Version, Mcp-Method, Mcp-Name, \
                             Last-Event-ID, X-Session-Id, X-Assistant-Id, X-Thread-Id";
const EXPOSE_HEADERS: HeaderValue = HeaderValue::from_static("Mcp-Session-Id, WWW-Authenticate, Retry-After");
/// A day; browsers cut it to what they allow.
const MAX_AGE: HeaderValue = HeaderValue::from_static("86400");
/// Headers that tools define themselves; a page must be able to send those it asks for.
const PARAMETER_PREFIX: &str = "mcp-param-";

/// Adds to an answer what lets the page at `origin` read it: exactly this origin, never `*`.
pub fn reflect(origin: &[u8], answer: &mut HeaderMap) {
    allow_origin(origin, answer);
    answer.insert(header::ACCESS_CONTROL_EXPOSE_HEADERS, EXPOSE_HEADERS);
    answer.append(header::VARY, HeaderValue::from_static("Origin"));
}

/// Adds to the answer to a preflight from `origin` what the page may send.
pub fn answer_preflight(origin: &[u8], request: &Headers, answer: &mut HeaderMap) {
    allow_origin(origin, answer);
    answer.insert(header::ACCESS_CONTROL_ALLOW_METHODS, ALLOW_METHODS);
    answer.insert(header::ACCESS_CONTROL_ALLOW_HEADERS, allow_headers(request));
    answer.insert(header::ACCESS_CONTROL_MAX_AGE, MAX_AGE);
    answer.append(header::VARY, HeaderValue::from_static("Origin, Access-Control-Request-Headers"));
}

/// An origin that [`cors`] allows is text and always a value; without one a browser would not show the page the answer.
fn allow_origin(origin: &[u8], answer: &mut HeaderMap) {
    if let Ok(origin) = HeaderValue::from_bytes(origin) {
        answer.insert(header::ACCESS_CONTROL_ALLOW_ORIGIN, origin);
    }
}

fn allow_headers(request: &Headers) -> HeaderValue {
    let requested = request.get(header::ACCESS_CONTROL_REQUEST_HEADERS.as_str()).and_then(text);
    let mut text = ALLOW_HEADERS.to_owned();
    for name in requested.unwrap_or_default().split(',').map(str::trim) {
        let is_parameter = name.get(..PARAMETER_PREFIX.len()).is_some_and(|start| {
            start.eq_ignore_ascii_case(PARAMETER_PREFIX) && http::HeaderName::try_from(name).is_ok()
        });
        if is_parameter {
            text.push_str(", ");
            text.push_str(name);
        }
    }
    HeaderValue::try_from(text).unwrap_or(const { HeaderValue::from_static(ALLOW_HEADERS) })
}

#[cfg(test)]
mod tests;
