//! What it means when a server says no.
//!
//! In: an answer whose status is not 2xx. Out: the JSON-RPC error in it, or a [`Fault`] in words that help. Nothing of a
//! body that is not JSON-RPC is passed on: it may be a page with anything on it.

use std::borrow::Cow;

use bytes::Bytes;
use http::{StatusCode, Uri};
use moongate_wire::{Frame, Id, Message, Response, RpcError, code};

use super::{
    head::{Head, Kind},
    link::Link,
    pool::Body,
};
use crate::transport::{Answer, Fault};

/// How much of a text is looked at, or told.
const EXCERPT: usize = 200;

/// Reads the answer that refuses the request `id`, which was sent `in_session` or not.
pub(super) async fn read(
    link: &Link,
    head: &Head,
    body: Body,
    id: Option<i64>,
    in_session: bool,
) -> Result<Answer, Fault> {
    let status = head.status;
    // A body that cannot be read does not change what the status says; one that is a stream might never end.
    let body = match head.kind() {
        Kind::Events => Bytes::new(),
        Kind::Json | Kind::Other => link.collect(body).await.unwrap_or_default(),
    };
    let response = match Frame::parse(&body) {
        Ok(Frame::One(Message::Response(Response { id, outcome: Err(error) }))) => Some((id, error)),
        _ => None,
    };
    let error = response.as_ref().map(|(_, error)| error);
    if in_session && is_session_gone(status, error, &body) {
        return Err(Fault::SessionGone);
    }
    match response {
        Some((answered, error)) if is_for(answered.as_ref(), id) => {
            Ok(Answer { outcome: Err(error), status: Some(status.as_u16()) })
        }
        _ => Err(Fault::Status { status: status.as_u16(), detail: detail(head, link) }),
    }
}

/// Whether an error belongs to the request it refuses. Without an id it does, and our ids are numbers: a text stands for
/// an id that was not read ("server-error" from Python's SDK).
fn is_for(answered: Option<&Id>, asked: Option<i64>) -> bool {
    match answered {
        None | Some(Id::Text(_)) => true,
        Some(Id::Integer(answered)) => Some(*answered) == asked,
    }
}

/// Whether the server has forgotten the session. The specification has 404 for that, which some servers send for an
/// unknown method too; servers written after the example of TypeScript's SDK say 400 and "No valid session ID provided".
fn is_session_gone(status: StatusCode, error: Option<&RpcError>, body: &[u8]) -> bool {
    let text = error.map_or(body, |error| error.message.as_bytes());
    let text = String::from_utf8_lossy(text.get(..EXCERPT).unwrap_or(text)).to_ascii_lowercase();
    match status {
        StatusCode::NOT_FOUND => error.is_none_or(|error| {
            let codes = [code::FORBIDDEN, code::INVALID_REQUEST, code::SERVER];
            codes.contains(&error.code) && text.contains("session")
        }),
        StatusCode::BAD_REQUEST => {
            let phrases = ["no valid session", "session not found", "invalid session", "unknown session"];
            phrases.iter().any(|phrase| text.contains(phrase))
        }
        _ => false,
    }
}

/// A blank and words that help, if there are any.
fn detail(head: &Head, link: &Link) -> String {
    let status = head.status;
    match status {
        StatusCode::UNAUTHORIZED => " (credentials are missing or wrong; check headers:)".to_owned(),
        StatusCode::FORBIDDEN => " (these credentials may not do that; check headers:)".to_owned(),
        StatusCode::NOT_FOUND => " (there is no MCP server at this path; check url:)".to_owned(),
        _ if status.is_redirection() => {
            let to = head.location.as_ref().and_then(|location| target(location.as_bytes(), link));
            let to = to.map(|to| format!(" to {to}")).unwrap_or_default();
            format!(" (a redirect{to}, which is not followed; correct url:)")
        }
        _ => status.canonical_reason().map(|reason| format!(" ({reason})")).unwrap_or_default(),
    }
}

/// Where a redirect points, without its query.
fn target(location: &[u8], link: &Link) -> Option<String> {
    let location: Uri = std::str::from_utf8(location).ok()?.parse().ok()?;
    let (scheme, host) = (location.scheme_str(), location.host());
    let port = location.port().map(|port| format!(":{port}")).unwrap_or_default();
    let origin = match (scheme, host) {
        (Some(scheme), Some(host)) => format!("{scheme}://{host}{port}"),
        _ => link.url.scheme_str().map(|scheme| format!("{scheme}://{}", link.place))?,
    };
    Some(format!("{origin}{}", location.path()).chars().take(EXCERPT).collect())
}

/// A text of the server that is told to people: short, and nothing in it but visible ASCII.
pub(super) fn excerpt(text: &[u8]) -> String {
    let text = text
        .iter()
        .take(EXCERPT)
        .map(|byte| if matches!(byte, b' '..=b'~') { char::from(*byte) } else { '?' });
    text.collect()
}

/// An answer of a kind that MCP does not have.
pub(super) fn wrong_type(head: &Head) -> Fault {
    let text: Cow<'static, str> = match &head.content_type {
        Some(kind) => format!(
            "the server answered with content of the type {:?}, which is not MCP",
            excerpt(kind.as_bytes())
        )
        .into(),
        None => "the server answered without saying which type of content it sends".into(),
    };
    Fault::Garbled(text)
}
