//! One frame of JSON-RPC: a message, or a batch of them.
//!
//! In: the bytes of a body or a line. Out: messages whose `params` and results stay text. The scan of [`crate::scan`]
//! (depth, duplicate members) runs over the whole frame first, so nothing behind this file sees an ambiguous document.
//! Which messages are allowed where is left to [`crate::era`].

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Id, Raw, RpcError, code, scan};

/// What one body or line holds.
#[derive(Clone, Debug)]
pub enum Frame {
    /// A single message.
    One(Message),
    /// A JSON array; each element parsed on its own. Never empty.
    Batch(Vec<Result<Message, Malformed>>),
}

/// One JSON-RPC message.
#[derive(Clone, Debug)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Is an answer, to something we asked.
    Response(Response),
}

/// A call that wants an answer.
#[derive(Clone, Debug)]
pub struct Request {
    /// Echoed in the answer with its JSON type.
    pub id: Id,
    /// As written; [`crate::Method::parse`] knows the ones we serve.
    pub method: Box<str>,
    /// An object, when present.
    pub params: Option<Raw>,
}

/// A call that wants no answer.
#[derive(Clone, Debug)]
pub struct Notification {
    /// As written.
    pub method: Box<str>,
    /// An object, when present.
    pub params: Option<Raw>,
}

/// An answer.
#[derive(Clone, Debug)]
pub struct Response {
    /// The id of the request it answers; absent when the other side could not read it.
    pub id: Option<Id>,
    /// Result or error.
    pub outcome: Outcome,
}

/// What a response carries.
pub type Outcome = Result<Raw, RpcError>;

/// A frame or batch element that is not a message, with the id when it could be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error}")]
pub struct Malformed {
    /// The id to answer under, if there was a readable one.
    pub id: Option<Id>,
    /// What to answer.
    pub error: RpcError,
}

impl Malformed {
    fn anonymous(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { id: None, error: RpcError::new(code, message) }
    }
}

#[derive(Deserialize)]
struct Envelope<'a> {
    #[serde(borrow)]
    jsonrpc: Option<Cow<'a, str>>,
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    method: Option<Cow<'a, str>>,
    #[serde(borrow)]
    params: Option<&'a RawValue>,
    #[serde(borrow)]
    result: Option<&'a RawValue>,
    error: Option<RpcError>,
}

impl Frame {
    /// Reads one frame.
    ///
    /// A duplicate inside `params.arguments` is -32602 and keeps the id; everything else that is wrong is -32700 (not
    /// JSON) or -32600 (JSON, but not a message).
    pub fn parse(body: &Bytes) -> Result<Self, Malformed> {
        let finding = scan::scan(body);
        match finding {
            Err(scan::Problem::NotJson) => {
                // serde names the position; the scanner only knows that it lost its way.
                let detail = serde_json::from_slice::<serde::de::IgnoredAny>(body)
                    .err()
                    .map_or_else(|| "the text is not valid JSON".to_owned(), |error| error.to_string());
                return Err(Malformed::anonymous(code::PARSE, format!("Parse error: {detail}")));
            }
            Err(scan::Problem::TooDeep) => {
                let limit = scan::MAX_DEPTH;
                let message = format!("Invalid Request: nested deeper than {limit} levels");
                return Err(Malformed::anonymous(code::INVALID_REQUEST, message));
            }
            Err(scan::Problem::Duplicate { name }) => {
                let message = format!("Invalid Request: member {name:?} appears twice");
                return Err(Malformed::anonymous(code::INVALID_REQUEST, message));
            }
            Err(scan::Problem::DuplicateArgument { name }) => {
                let error = RpcError::new(
                    code::INVALID_PARAMS,
                    format!("Invalid params: argument {name:?} appears twice; nothing was executed"),
                );
                return Err(Malformed { id: peek_id(body), error });
            }
            Ok(_) => {}
        }
        if body.iter().find(|byte| !byte.is_ascii_whitespace()) == Some(&b'[') {
            return Self::parse_batch(body);
        }
        let envelope: Envelope<'_> = serde_json::from_slice(body).map_err(|error| not_a_message(&error))?;
        message(body, &envelope).map(Self::One)
    }

    fn parse_batch(body: &Bytes) -> Result<Self, Malformed> {
        let elements: Vec<&RawValue> = serde_json::from_slice(body).map_err(|error| not_a_message(&error))?;
        if elements.is_empty() {
            return Err(Malformed::anonymous(code::INVALID_REQUEST, "Invalid Request: the batch is empty"));
        }
        let read = |element: &&RawValue| {
            let envelope: Envelope<'_> =
                serde_json::from_str(element.get()).map_err(|error| not_a_message(&error))?;
            message(body, &envelope)
        };
        Ok(Self::Batch(elements.iter().map(read).collect()))
    }
}

fn not_a_message(error: &serde_json::Error) -> Malformed {
    let kind = if error.is_data() { code::INVALID_REQUEST } else { code::PARSE };
    let label = if error.is_data() { "Invalid Request" } else { "Parse error" };
    Malformed::anonymous(kind, format!("{label}: {error}"))
}

fn message(body: &Bytes, envelope: &Envelope<'_>) -> Result<Message, Malformed> {
    let id = match envelope.id {
        None => None,
        Some(raw) if raw.get() == "null" => None,
        Some(raw) => Some(serde_json::from_str::<Id>(raw.get()).map_err(|_| {
            Malformed::anonymous(code::INVALID_REQUEST, "Invalid Request: id must be a string or an integer")
        })?),
    };
    let invalid = |message: &'static str| Malformed { id: id.clone(), error: RpcError::new(code::INVALID_REQUEST, message) };
    if envelope.jsonrpc.as_deref() != Some("2.0") {
        return Err(invalid("Invalid Request: jsonrpc must be \"2.0\""));
    }
    let Some(method) = envelope.method.as_deref() else {
        let outcome = match (envelope.result, &envelope.error) {
            (Some(result), None) => Ok(Raw::slice_of(body, result)),
            (None, Some(error)) => Err(error.clone()),
            _ => return Err(invalid("Invalid Request: a message has a method, a result or an error")),
        };
        return Ok(Message::Response(Response { id, outcome }));
    };
    if envelope.result.is_some() || envelope.error.is_some() {
        return Err(invalid("Invalid Request: a message with a method has neither result nor error"));
    }
    let params = match envelope.params {
        None => None,
        Some(raw) if raw.get().starts_with('{') => Some(Raw::slice_of(body, raw)),
        Some(_) => return Err(invalid("Invalid Request: params must be an object")),
    };
    let method: Box<str> = method.into();
    match (id, envelope.id) {
        (Some(id), _) => Ok(Message::Request(Request { id, method, params })),
        (None, None) => Ok(Message::Notification(Notification { method, params })),
        (None, Some(_)) => {
            Err(Malformed::anonymous(code::INVALID_REQUEST, "Invalid Request: a request's id must not be null"))
        }
    }
}

/// The id of a frame that is refused for another reason, so that the refusal can be matched to it.
fn peek_id(body: &[u8]) -> Option<Id> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: Option<Id>,
    }
    serde_json::from_slice::<OnlyId>(body).ok()?.id
}
