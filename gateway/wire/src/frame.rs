//! One frame of JSON-RPC: a message, or a batch of them.
//!
//! In: the bytes of a body or a line. Out: messages whose `params` and results stay text. The scan of [`crate::scan`]
//! (depth, duplicate members) runs over the whole frame first, so nothing behind this file sees an ambiguous document;
//! it also finds the members that are read here. Which messages are allowed where is left to [`crate::era`].

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Id, Params, Raw, RpcError, code,
    params::Span,
    scan::{self, Place},
    walk,
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
    pub method: Box<str>,
    /// What it is called with.
    pub params: Params,
}

/// A call that wants no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// As written.
    pub method: Box<str>,
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

/// The members of a message where they are written, before anything is known about them.
#[derive(Default)]
struct Outline {
    jsonrpc: Span,
    id: Span,
    method: Span,
    whole_params: Span,
    result: Span,
    error: Span,
    params: Params,
}

impl Outline {
    fn note(&mut self, place: Place, name: &[u8], value: Range<usize>, frame: &[u8]) {
        if place != Place::Frame {
            return self.params.note(place, name, value, frame);
        }
        let span = value.into();
        match name {
            b"jsonrpc" => self.jsonrpc = span,
            b"id" => self.id = span,
            b"method" => self.method = span,
            b"params" => self.whole_params = span,
            b"result" => self.result = span,
            b"error" => self.error = span,
            _ => {}
        }
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
        let note = |place, name: &[u8], value| outline.note(place, name, value, body);
        let text = scan::outline(body, Place::Frame, note)
            .map_err(|problem| refuse(body, problem))?
            .trim_ascii_start();
        if text.starts_with('[') {
            batch(body, text).map(Self::Batch)
        } else {
            message(body, outline).map(Self::One)
        }
    }
}

/// Reads the elements of a batch, which the scan has seen, each for itself.
fn batch(body: &Bytes, text: &str) -> Result<Vec<Result<Message, Malformed>>, Malformed> {
    let Elements(elements) = serde_json::from_str(text).map_err(|error| not_a_message(None, &error))?;
    if elements.is_empty() {
        return Err(Malformed::new(None, code::INVALID_REQUEST, "Invalid Request: the batch is empty"));
    }
    let read = |element: &&RawValue| {
        let element = body.slice_ref(element.get().as_bytes());
        let mut outline = Outline::default();
        let note = |place, name: &[u8], value| outline.note(place, name, value, &element);
        scan::outline(&element, Place::Frame, note).map_err(|problem| refuse(&element, problem))?;
        message(&element, outline)
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
fn message(frame: &Bytes, found: Outline) -> Result<Message, Malformed> {
    if !frame.trim_ascii_start().starts_with(b"{") {
        return Err(Malformed::new(None, code::INVALID_REQUEST, "Invalid Request: a message is an object"));
    }
    // Where `null` means something it counts as a value, elsewhere as absent.
    let present = |span: Span| span.of(frame).filter(|value| *value != b"null");
    let id = found.id.of(frame).map(read_id).transpose()?.flatten();
    let invalid = |message: &'static str| Malformed::new(id.clone(), code::INVALID_REQUEST, message);
    if !found.jsonrpc.of(frame).is_some_and(is_two) {
        return Err(invalid("Invalid Request: jsonrpc must be \"2.0\""));
    }
    let error = present(found.error);
    let Some(method) = present(found.method) else {
        let result = found.result.raw(frame).filter(|result| error.is_none() || !result.is_null());
        let outcome = match (result, error) {
            (Some(result), None) => Ok(result),
            (None, Some(error)) => Err(read_error(error).ok_or_else(|| {
                invalid("Invalid Request: error must be an object with an integer code and a message")
            })?),
            _ => return Err(invalid("Invalid Request: a message has a method, a result or an error")),
        };
        return Ok(Message::Response(Response { id, outcome }));
    };
    let method = walk::text(method)
        .map(Into::into)
        .ok_or_else(|| invalid("Invalid Request: method must be a string"))?;
    if !found.result.is_absent() || error.is_some() {
        return Err(invalid("Invalid Request: a message with a method has neither result nor error"));
    }
    let params = match present(found.whole_params) {
        None => Params::default(),
        Some(params) if params.starts_with(b"{") => found.params.located(found.whole_params, frame),
        Some(_) => return Err(invalid("Invalid Request: params must be an object")),
    };
    match id {
        Some(id) => Ok(Message::Request(Request { id, method, params })),
        None if found.id.is_absent() => Ok(Message::Notification(Notification { method, params })),
        None => Err(Malformed::new(
            None,
            code::INVALID_REQUEST,
            "Invalid Request: the id of a request must not be null",
        )),
    }
}

/// The id, unless it is `null`, which a response has when its sender could not read ours.
fn read_id(id: &[u8]) -> Result<Option<Id>, Malformed> {
    // Nearly all are small integers. JSON has neither a plus nor leading zeros, and the scan has seen it.
    if id.len() < 10 && id.iter().all(u8::is_ascii_digit) {
        let number = id.iter().fold(0, |number, digit| number * 10 + i64::from(digit - b'0'));
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
