//! What of the head of an answer anybody here reads, whichever version of HTTP it came by.

use http::{HeaderName, HeaderValue, StatusCode, header, response::Parts};
use moongate_wire::header as names;

const SESSION_ID: HeaderName = HeaderName::from_static(names::SESSION_ID);
pub(super) const JSON: HeaderValue = HeaderValue::from_static("application/json");
pub(super) const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");

/// The head of an answer. Of headers that are there twice, it has the first.
#[derive(Debug)]
pub(super) struct Head {
    pub(super) status: StatusCode,
    pub(super) content_type: Option<HeaderValue>,
    pub(super) session: Option<HeaderValue>,
    pub(super) location: Option<HeaderValue>,
}

/// What kind of body an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Events,
    Other,
}

impl Head {
    /// One without headers.
    pub(super) fn new(status: StatusCode) -> Self {
        Self { status, content_type: None, session: None, location: None }
    }

    /// Takes note of a header, if it is one that is read.
    pub(super) fn note(&mut self, name: &str, value: &[u8]) {
        let is = |other: &HeaderName| name.eq_ignore_ascii_case(other.as_str());
        let place = match () {
            () if is(&header::CONTENT_TYPE) => &mut self.content_type,
            () if is(&SESSION_ID) => &mut self.session,
            () if is(&header::LOCATION) => &mut self.location,
            () => return,
        };
        // The usual types are not copied.
        let known = || [JSON, EVENTS].into_iter().find(|known| known.as_bytes() == value);
        if place.is_none() {
            *place = known().or_else(|| HeaderValue::from_bytes(value).ok());
        }
    }

    /// What kind of body follows.
    pub(super) fn kind(&self) -> Kind {
        let value = self.content_type.as_ref().map_or(&b""[..], HeaderValue::as_bytes);
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        match essence {
            _ if essence.eq_ignore_ascii_case(JSON.as_bytes()) => Kind::Json,
            _ if essence.eq_ignore_ascii_case(EVENTS.as_bytes()) => Kind::Events,
            _ => Kind::Other,
        }
    }
}

impl From<&Parts> for Head {
    fn from(parts: &Parts) -> Self {
        let mut head = Self::new(parts.status);
        for (name, value) in &parts.headers {
            head.note(name.as_str(), value.as_bytes());
        }
        head
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_of_a_body_is_what_its_type_says_without_parameters() {
        for (value, kind) in [
            ("application/json", Kind::Json),
            ("Application/JSON; charset=utf-8", Kind::Json),
            ("text/event-stream", Kind::Events),
            ("text/html", Kind::Other),
            ("", Kind::Other),
        ] {
            let mut head = Head::new(StatusCode::OK);
            head.note("Content-Type", value.as_bytes());
            assert_eq!(head.kind(), kind, "{value}");
        }
        assert_eq!(Head::new(StatusCode::OK).kind(), Kind::Other);
    }

    #[test]
    fn of_two_headers_the_first_counts_in_both_versions() {
        let mut response = http::Response::new(());
        for (name, value) in
            [("mcp-session-id", "a"), ("mcp-session-id", "b"), ("location", "/x"), ("x", "y")]
        {
            response.headers_mut().append(name, HeaderValue::from_static(value));
        }
        let head = Head::from(&response.into_parts().0);
        assert_eq!(
            (head.session.unwrap(), head.location.unwrap()),
            ("a".parse().unwrap(), "/x".parse().unwrap())
        );
    }
}
