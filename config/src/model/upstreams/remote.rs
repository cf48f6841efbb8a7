//! An upstream that is reached over HTTP: its address, and what is sent with every request.

use std::{fmt, path::PathBuf};

use http::{HeaderName, HeaderValue, Uri, uri::Scheme};

use crate::{
    load::{
        declare::{section, text, words},
        node::Node,
        read::{FromNode, Given, OneOrMore, Reader},
    },
    model::server::is_loopback,
    secret::Secret,
};

section! {
    /// Whom to trust when a remote server shows its certificate.
    #[schemars(rename = "RemoteTls")]
    struct RawRemoteTls {
        /// PEM files with certificates that are trusted beside those of the system: a path, or a list of them.
        #[schemars(required)]
        ca: Given<OneOrMore<PathBuf>>,
    }
}

/// The value of a header in the file.
#[derive(Debug)]
pub(crate) struct HeaderText(pub(crate) Secret);

words!(RemoteTransport { "auto" => Auto, "streamable" => Streamable, "sse" => Sse });
text!(Endpoint, "an address such as `https://mcp.example.com/mcp`", r"https?://[^@#\s]+", Endpoint::parse);

/// An upstream that is reached over HTTP.
#[derive(Clone, Debug, PartialEq)]
pub struct Remote {
    /// Its address.
    pub url: Endpoint,
    /// Headers that are sent with every request, in the order of the file; each name once, none that the protocol owns,
    /// and every value is one that `http` takes.
    pub headers: Vec<(HeaderName, Secret)>,
    /// PEM files with certificates that are trusted beside those of the system.
    pub ca: Vec<PathBuf>,
    /// How it speaks.
    pub transport: RemoteTransport,
    /// Whether `url` may be plain `http` beyond this machine.
    pub allow_insecure: bool,
}

/// The address of a remote server: `http` or `https`, absolute, without user, password and fragment.
///
/// Paths and queries of such addresses often hold a key, so its `Debug` leaves them out, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Endpoint(Uri);

/// How a remote server speaks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RemoteTransport {
    /// Streamable HTTP, and HTTP+SSE if that is what the server has.
    #[default]
    Auto,
    /// Streamable HTTP.
    Streamable,
    /// HTTP+SSE, as servers of 2024 have it.
    Sse,
}

impl Remote {
    /// One at `url`, with every default.
    pub fn new(url: Endpoint) -> Self {
        let transport = RemoteTransport::default();
        Self { url, headers: Vec::new(), ca: Vec::new(), transport, allow_insecure: false }
    }

    /// Whether connections of `self` may go on as those of `other`.
    pub(super) fn same(&self, other: &Self) -> bool {
        // Every field is named, so that a new one has to be thought about here.
        let Self { url, headers, ca, transport, allow_insecure: _ } = self;
        *url == other.url && *headers == other.headers && *ca == other.ca && *transport == other.transport
    }
}

impl Endpoint {
    /// Reads an address.
    ///
    /// # Errors
    /// Why it is none, as a clause that goes on after the text.
    pub fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "is not a URL")?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err("is not a URL");
        };
        if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
            return Err("is neither `http` nor `https`");
        }
        if authority.as_str().contains('@') {
            return Err("holds a user or a password, which belong in `headers`");
        }
        // `Authority` takes a port that no socket has for none at all.
        let has_port = authority.host().len() < authority.as_str().len();
        if authority.host().is_empty() || has_port && authority.port_u16().is_none() {
            return Err("is not a URL");
        }
        // `Uri` drops a fragment without a word.
        if text.contains('#') {
            return Err("has a fragment");
        }
        Ok(Self(uri))
    }

    /// The whole address; to be handed on, never to be written anywhere.
    pub fn uri(&self) -> &Uri {
        &self.0
    }

    /// Scheme, host and port: the part that may be shown.
    pub fn origin(&self) -> String {
        let (scheme, authority) = (self.0.scheme_str(), self.0.authority());
        format!("{}://{}", scheme.unwrap_or_default(), authority.map_or("", |authority| authority.as_str()))
    }

    /// Whether what is sent there could be read on the way: plain `http` beyond this machine.
    pub fn is_exposed(&self) -> bool {
        let host = self.0.host().unwrap_or_default().to_ascii_lowercase();
        self.is_plain() && !is_loopback(&host)
    }

    /// Whether it is plain `http`.
    pub fn is_plain(&self) -> bool {
        self.0.scheme() == Some(&Scheme::HTTP)
    }
}

impl fmt::Debug for Endpoint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/…", self.origin())
    }
}

impl FromNode for HeaderText {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let fits = |text: &str| HeaderValue::from_str(text).is_ok();
        reader.hidden(node, "text on one line, without control characters", fits).map(Self)
    }
}

/// Whether the gateway, its HTTP client or the protocol sets the header itself.
pub(crate) fn is_owned(name: &HeaderName) -> bool {
    const OWNED: [&str; 15] = [
        "accept",
        "connection",
        "content-length",
        "content-type",
        "expect",
        "host",
        "keep-alive",
        "last-event-id",
        "proxy-authenticate",
        "proxy-authorization",
        "proxy-connection",
        "te",
        "trailer",
        "transfer-encoding",
        "upgrade",
    ];
    OWNED.contains(&name.as_str()) || name.as_str().starts_with("mcp-")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn endpoints_are_absolute_and_hold_no_user() {
        for good in [
            "https://mcp.example.com",
            "https://mcp.example.com:8443/mcp?team=a",
            "http://[::1]:80/mcp",
            "HTTP://localhost",
        ] {
            assert!(Endpoint::parse(good).is_ok(), "{good}");
        }
        for (bad, why) in [
            ("", "is not a URL"),
            ("/mcp", "is not a URL"),
            ("mcp.example.com", "is not a URL"),
            ("https://x:99999", "is not a URL"),
            ("https://:80", "is not a URL"),
            ("https://a b", "is not a URL"),
            ("ws://x", "is neither `http` nor `https`"),
            ("https://u:p@x", "holds a user or a password, which belong in `headers`"),
            ("https://x#y", "has a fragment"),
        ] {
            assert_eq!(Endpoint::parse(bad), Err(why), "{bad}");
        }
    }

    #[test]
    fn only_plain_http_beyond_this_machine_is_exposed() {
        for (url, exposed) in [
            ("http://mcp.example.com", true),
            ("http://10.0.0.1", true),
            ("https://mcp.example.com", false),
            ("http://LOCALHOST:1", false),
            ("http://127.3.2.1", false),
            ("http://[::1]", false),
        ] {
            assert_eq!(Endpoint::parse(url).unwrap().is_exposed(), exposed, "{url}");
        }
    }

    #[test]
    fn debug_shows_no_path() {
        let url = Endpoint::parse("https://mcp.example.com/s/hunter2?key=hunter2").unwrap();
        assert_eq!(format!("{url:?}"), "https://mcp.example.com/…");
        assert_eq!(url.uri().query(), Some("key=hunter2"));
    }
}
