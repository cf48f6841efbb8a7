//! One frame of JSON-RPC: a message, or a batch of them.
//!
//! In: the bytes of a body or a line. Out: messages whose `params` and results stay text. The scan of [`crate::scan`]
//! (depth, duplicate members) runs over the whole frame first, so nothing behind this file sees an ambiguous document;
//! it also finds the members that are read here. Which messages are allowed where is left to [`crate::era`].

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Id, Method, Params, Raw, RpcError, code,
    outline::{Field, Outline, Place, Span},
    params, scan, walk,
};

/// How many messages a batch may hold. Each of a few bytes costs an answer of hundreds.
pub const MAX_BATCH: usize = 1000;

/// What one body or line holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "nearly every frame is one message, and a box would cost each of them"
)]
pub enum Frame {
    /// A single message.
    One(Message),
    /// A JSON array; each element parsed on its own. Neither empty nor longer than [`MAX_BATCH`].
    Batch(Vec<Result<Message, Malformed>>),
}

/// One JSON-RPC message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Message {
    /// Wants an answer.
    Request(Request),
    /// Wants none.
    Notification(Notification),
    /// Is an answer, to something we asked.
    Response(Response),
}

impl Message {
    /// What it is called with, if it is a call.
    pub fn params(&self) -> Option<&Params> {
        match self {
            Self::Request(request) => Some(&request.params),
            Self::Notification(notification) => Some(&notification.params),
            Self::Response(_) => None,
        }
    }
}

/// A call that wants an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Echoed in the answer with its JSON type.
    pub id: Id,
    /// As written; [`crate::Method::parse`] knows the ones we serve.
    pub method: Cow<'static, str>,
    /// What it is called with.
    pub params: Params,
}

/// A call that wants no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// As written.
    pub method: Cow<'static, str>,
    /// What it is called with.
    pub params: Params,
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
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
    fn new(id: Option<Id>, code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { id, error: RpcError::new(code, message) }
    }
}

impl Frame {
    /// Reads one frame.
    ///
    /// A duplicate inside `params.arguments` is -32602; everything else that is wrong is -32700 (not JSON) or -32600
    /// (JSON, but not a message).
    pub fn parse(body: &Bytes) -> Result<Self, Malformed> {
        if body.len() > Span::MAX {
            return Err(Malformed::new(
                None,
                code::INVALID_REQUEST,
                "Invalid Request: the message is too long",
            ));
        }
        let mut outline = Outline::default();
        scan::outline(body, Place::Frame, &mut outline).map_err(|problem| refuse(body, problem))?;
        if starts_with(body, b'[') {
            batch(body).map(Self::Batch)
        } else {
            message(body, &outline).map(Self::One)
        }
    }
}

/// Reads the elements of a batch, which the scan has seen, each for itself.
fn batch(body: &Bytes) -> Result<Vec<Result<Message, Malformed>>, Malformed> {
    let Elements(elements) =
        serde_json::from_slice(body.trim_ascii_start()).map_err(|error| not_a_message(None, &error))?;
    if elements.is_empty() {
        return Err(Malformed::new(None, code::INVALID_REQUEST, "Invalid Request: the batch is empty"));
    }
    let read = |element: &&RawValue| {
        let element = body.slice_ref(element.get().as_bytes());
        let mut outline = Outline::default();
        scan::outline(&element, Place::Frame, &mut outline).map_err(|problem| refuse(&element, problem))?;
        message(&element, &outline)
    };
    Ok(elements.iter().map(read).collect())
}

/// What is answered to a frame that the scan refused.
fn refuse(body: &[u8], problem: scan::Problem) -> Malformed {
    match problem {
        scan::Problem::NotJson => {
            // serde names the position; the scanner only knows that it lost its way.
            let detail = serde_json::from_slice::<serde::de::IgnoredAny>(body)
                .err()
                .map_or_else(|| "the text is not valid JSON".to_owned(), |error| error.to_string());
            Malformed::new(None, code::PARSE, format!("Parse error: {detail}"))
        }
        scan::Problem::TooDeep => {
            let limit = scan::MAX_DEPTH;
            let text = format!("Invalid Request: nested deeper than {limit} levels");
            Malformed::new(None, code::INVALID_REQUEST, text)
        }
        scan::Problem::Duplicate { name } => {
            let text = format!("Invalid Request: member {name:?} appears twice");
            Malformed::new(None, code::INVALID_REQUEST, text)
        }
        scan::Problem::DuplicateArgument { name } => {
            let text = format!("Invalid params: argument {name:?} appears twice; nothing was executed");
            Malformed::new(peek_id(body), code::INVALID_PARAMS, text)
        }
    }
}

/// Reads one message, whose members the scan found in `frame`. What is cut out shares its memory.
fn message(frame: &Bytes, found: &Outline) -> Result<Message, Malformed> {
    if !starts_with(frame, b'{') {
        return Err(Malformed::new(None, code::INVALID_REQUEST, "Invalid Request: a message is an object"));
    }
    let value = |field: Field| found.span(field).of(frame);
    let id = value(Field::Id).map(read_id).transpose()?.flatten();
    let invalid = |message: &'static str| Malformed::new(id.clone(), code::INVALID_REQUEST, message);
    if !value(Field::Jsonrpc).is_some_and(is_two) {
        return Err(invalid("Invalid Request: jsonrpc must be \"2.0\""));
    }
    let Some(method) = value(Field::Method) else {
        let error = value(Field::Error);
        let result = params::raw(found.span(Field::Result), frame);
        let outcome = match (result.filter(|result| error.is_none() || !result.is_null()), error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(read_error(error).ok_or_else(|| {
                invalid("Invalid Request: error must be an object with an integer code and a message")
            })?),
            _ => return Err(invalid("Invalid Request: a message has a method, a result or an error")),
        };
        return Ok(Message::Response(Response { id, outcome }));
    };
    let method = read_method(method).ok_or_else(|| invalid("Invalid Request: method must be a string"))?;
    if !found.span(Field::Error).is_absent() || !found.span(Field::Result).is_absent() {
        return Err(invalid("Invalid Request: a message with a method has neither result nor error"));
    }
    let whole = found.params.span(Field::Params).of(frame);
    if whole.is_some_and(|params| !params.starts_with(b"{")) {
        return Err(invalid("Invalid Request: params must be an object"));
    }
    // Made where it goes: it is too large to be moved for nothing.
    let params = || whole.map_or_else(Params::default, |_| Params::found(&found.params, frame.clone()));
    match id {
        Some(id) => Ok(Message::Request(Request { id, method, params: params() })),
        None if found.span(Field::Id).is_absent() => {
            Ok(Message::Notification(Notification { method, params: params() }))
        }
        None => Err(Malformed::new(
            None,
            code::INVALID_REQUEST,
            "Invalid Request: the id of a request must not be null",
        )),
    }
}

/// Whether the first byte that is not blank is this one.
fn starts_with(text: &[u8], byte: u8) -> bool {
    text.first() == Some(&byte) || text.trim_ascii_start().first() == Some(&byte)
}

/// The name of a method. Of one that is known there is a copy already.
fn read_method(method: &[u8]) -> Option<Cow<'static, str>> {
    let known = method.strip_prefix(b"\"").and_then(|name| Method::named(name.strip_suffix(b"\"")?));
    match known {
        Some(known) => Some(Cow::Borrowed(known.as_str())),
        None => walk::text(method).map(|name| Cow::Owned(name.into_owned())),
    }
}

/// The id, unless it is `null`, which a response has when its sender could not read ours.
fn read_id(id: &[u8]) -> Result<Option<Id>, Malformed> {
    // Nearly all are small integers. JSON has neither a plus nor leading zeros, and the scan has seen it.
    let digit = |byte: u8| Some(byte.wrapping_sub(b'0')).filter(|digit| *digit < 10);
    let small = || id.iter().try_fold(0, |number, byte| Some(number * 10 + i64::from(digit(*byte)?)));
    if id.len() < 10
        && let Some(number) = small()
    {
        return Ok(Some(Id::from(number)));
    }
    serde_json::from_slice(id).map_err(|_| {
        Malformed::new(None, code::INVALID_REQUEST, "Invalid Request: id must be a string or an integer")
    })
}

fn is_two(version: &[u8]) -> bool {
    version == br#""2.0""# || walk::text(version).as_deref() == Some("2.0")
}

fn read_error(error: &[u8]) -> Option<RpcError> {
    error.starts_with(b"{").then(|| serde_json::from_slice(error).ok())?
}

fn not_a_message(id: Option<Id>, error: &serde_json::Error) -> Malformed {
    let (code, label) = if error.is_data() {
        (code::INVALID_REQUEST, "Invalid Request")
    } else {
        (code::PARSE, "Parse error")
    };
    Malformed::new(id, code, format!("{label}: {error}"))
}

/// The id of a message that is refused for another reason, so that the refusal can be matched to it.
fn peek_id(text: &[u8]) -> Option<Id> {
    #[derive(Deserialize)]
    struct OnlyId {
        id: Option<Id>,
    }
    let object = text.trim_ascii_start().starts_with(b"{");
    object.then(|| serde_json::from_slice::<OnlyId>(text).ok())??.id
}

/// The elements of a batch, as long as there are not too many.
struct Elements<'a>(Vec<&'a RawValue>);

impl<'de> Deserialize<'de> for Elements<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<&'de RawValue>;
            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("an array of messages")
            }
            fn visit_seq<A: serde::de::SeqAccess<'de>>(
                self,
                mut sequence: A,
            ) -> Result<Self::Value, A::Error> {
                let mut elements = Vec::new();
                while let Some(element) = sequence.next_element()? {
                    if elements.len() == MAX_BATCH {
                        let text = format!("a batch holds at most {MAX_BATCH} messages");
                        return Err(serde::de::Error::custom(text));
                    }
                    elements.push(element);
                }
                Ok(elements)
            }
        }
        deserializer.deserialize_seq(Visitor).map(Self)
    }
}

#[cfg(test)]
mod tests;
