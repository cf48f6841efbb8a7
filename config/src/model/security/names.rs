//! Hosts, origins and scopes, as the file spells them and as requests are compared with them.

use crate::load::declare::text;

/// A value of `Host` in the file.
#[derive(Clone, Debug)]
pub(crate) struct Host(pub(crate) String);

/// A value of `Origin` in the file.
#[derive(Clone, Debug)]
pub(crate) struct Origin(pub(crate) String);

/// The name of a scope in the file.
#[derive(Clone, Debug)]
pub(crate) struct ScopeName(pub(crate) String);

text!(Host, "a host such as `mcp.example.com`, with or without a port", r"[^/*@\s]+", Host::parse);
text!(
    Origin,
    "an origin such as `https://ide.example.com`",
    r"[a-zA-Z][a-zA-Z0-9+.-]*://[^/*@\s]+",
    Origin::parse
);
text!(ScopeName, ScopeName::EXPECTED, r"[a-z0-9._:-]{1,64}", ScopeName::parse);
impl Host {
    fn parse(text: &str) -> Result<Self, &'static str> {
        if text.contains('*') {
            return Err("is a pattern; each host is listed by name");
        }
        let bad = |c: char| c.is_whitespace() || c.is_control() || matches!(c, '/' | '@' | '?' | '#');
        if text.is_empty() || text.contains(bad) || text.parse::<http::uri::Authority>().is_err() {
            return Err("is not a host");
        }
        Ok(Self(text.to_ascii_lowercase()))
    }
}

impl Origin {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let Some((scheme, host)) = text.split_once("://") else { return Err("is not an origin") };
        let host = Host::parse(host).map_err(|_| "is not an origin: scheme, host and port, nothing more")?.0;
        let scheme = scheme.to_ascii_lowercase();
        let good = |c: char| c.is_ascii_alphanumeric() || matches!(c, '+' | '.' | '-');
        if scheme.is_empty() || !scheme.chars().all(good) {
            return Err("is not an origin");
        }
        // Browsers leave out the port that the scheme implies.
        let implied = match scheme.as_str() {
            "http" => ":80",
            "https" => ":443",
            _ => "",
        };
        Ok(Self(format!("{scheme}://{}", host.strip_suffix(implied).unwrap_or(&host))))
    }
}

impl ScopeName {
    pub(super) const EXPECTED: &str = "a name of lower-case letters, digits, `.`, `_`, `-` and `:`";

    pub(super) fn parse(text: &str) -> Result<Self, &'static str> {
        let good =
            |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '.' | '_' | '-' | ':');
        let fits = (1..=64).contains(&text.len()) && text.chars().all(good);
        if fits { Ok(Self(text.to_owned())) } else { Err("is not the name of a scope") }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_compared_as_browsers_send_them() {
        for (text, origin) in [
            ("https://IDE.example.com", Some("https://ide.example.com")),
            ("https://ide.example.com:443", Some("https://ide.example.com")),
            ("http://ide.example.com:443", Some("http://ide.example.com:443")),
            ("vscode-webview://abc", Some("vscode-webview://abc")),
            ("http://[::1]:80", Some("http://[::1]")),
            ("*", None),
            ("https://*.example.com", None),
            ("https://ide.example.com/", None),
            ("ide.example.com", None),
            ("https://", None),
            ("://x", None),
            ("null", None),
        ] {
            assert_eq!(Origin::parse(text).ok().map(|origin| origin.0).as_deref(), origin, "{text}");
        }
    }

    #[test]
    fn hosts_are_names_with_or_without_a_port() {
        for good in ["mcp.example.com", "mcp.example.com:8443", "[fd00::1]:80", "10.0.0.1"] {
            assert!(Host::parse(good).is_ok(), "{good}");
        }
        for bad in ["", "*", "*.example.com", "http://x", "x/y", "u@x", "a b"] {
            assert!(Host::parse(bad).is_err(), "{bad}");
        }
    }
}
