//! Responses: every refusal has a JSON-RPC error body, and one function turns kinds of errors into statuses.

use bytes::Bytes;
use http::{HeaderValue, Response, StatusCode, header};
use moongate_core::CallError;
use moongate_security::Denied;
use moongate_wire::{
    Id, Method, Raw, Refusal, RpcError, Version,
    write::{self, NoId},
};

use super::accept::Accept;
use crate::{
    edge::{
        body::{Body, OpenStream},
        sse,
    },
    job::Outcome,
    shape::{self, Failed},
};

const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const NO_CACHE: HeaderValue = HeaderValue::from_static("no-cache");
const NO_BUFFER: HeaderValue = HeaderValue::from_static("no");

/// A result of so many bytes is sent from where it is: lists are long, and kept.
const LARGE: usize = 32 * 1024;

/// Known JSON with a status.
pub(super) fn json_status(status: u16, text: impl Into<Bytes>) -> Response<Body> {
    with_status(status, text.into(), JSON)
}

/// 202: taken, nothing to say.
pub(super) fn accepted() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::ACCEPTED;
    response
}

/// 204: done, nothing to say.
pub(super) fn done() -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::NO_CONTENT;
    response
}

/// A message as the client takes it: JSON, else a stream of this one event.
pub(super) fn message(status: u16, message: Raw, accept: Accept) -> Response<Body> {
    if accept.json {
        return with_status(status, message.into_bytes(), JSON);
    }
    let mut response = with_status(status, sse::event(None, &message), EVENTS);
    response.headers_mut().insert(header::CACHE_CONTROL, NO_CACHE);
    response
}

/// A JSON-RPC error.
pub(super) fn error(
    status: u16,
    id: Option<&Id>,
    no_id: NoId,
    error: &RpcError,
    accept: Accept,
) -> Response<Body> {
    message(status, write::error(id, no_id, error), accept)
}

/// A refusal outside any session.
pub(super) fn refused(id: Option<&Id>, refusal: &Refusal) -> Response<Body> {
    error(refusal.status, id, NoId::Omit, &refusal.error, Accept::JSON)
}

/// The gate's refusal, with its challenge and the time to wait.
pub(super) fn denied(id: Option<&Id>, denied: &Denied) -> Response<Body> {
    let mut response = error(denied.status, id, NoId::Omit, &denied.error, Accept::JSON);
    let challenge = denied.challenge.as_deref().and_then(|text| HeaderValue::from_str(text).ok());
    if let Some(challenge) = challenge {
        response.headers_mut().insert(header::WWW_AUTHENTICATE, challenge);
    }
    if let Some(seconds) = denied.retry_after_seconds() {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

/// The end of a call.
pub(super) fn outcome(
    id: &Id,
    method: Method,
    outcome: Outcome,
    version: Version,
    accept: Accept,
) -> Response<Body> {
    match outcome {
        Ok(reply) if accept.json && reply.result.len() >= LARGE => {
            let mut response = Response::new(Body::pieces(shape::pieces(id, method, &reply, version)));
            response.headers_mut().insert(header::CONTENT_TYPE, JSON);
            response
        }
        Ok(reply) => message(200, shape::message(id, method, &reply, version), accept),
        Err(failed) => failure(id, method, &failed, version, accept),
    }
}

/// The failed end of a call, while the status can still say so.
pub(super) fn failure(
    id: &Id,
    method: Method,
    failed: &CallError,
    version: Version,
    accept: Accept,
) -> Response<Body> {
    match shape::error(method, failed, version) {
        Failed::Error(refusal) => error(refusal.status, Some(id), NoId::Omit, &refusal.error, accept),
        Failed::Limited(retry_after, error) => {
            denied(Some(id), &Denied { error, ..Denied::rate_limited(retry_after) })
        }
        Failed::NeedsScope(scope, _) => denied(Some(id), &Denied::missing_scope(&scope, version.era())),
        Failed::ToolResult(result) => {
            message(200, shape::message(id, method, &result.into(), version), accept)
        }
    }
}

/// A stream of events.
pub(super) fn events(body: impl FnOnce(OpenStream) -> Body, open: OpenStream) -> Response<Body> {
    let mut response = Response::new(body(open));
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, EVENTS);
    headers.insert(header::CACHE_CONTROL, NO_CACHE);
    headers.insert("x-accel-buffering", NO_BUFFER);
    response
}

fn with_status(status: u16, bytes: Bytes, kind: HeaderValue) -> Response<Body> {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, kind);
    response
}
