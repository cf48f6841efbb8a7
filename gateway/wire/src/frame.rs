//! One frame of JSON-RPC: a message, or a batch of them.
//!
//! In: the bytes of a body or a line. Out: messages whose `params` and results stay text. The scan of [`crate::scan`]
//! (depth, duplicate members) runs over the whole frame first, so nothing behind this file sees an ambiguous document.
//! Which messages are allowed where is left to [`crate::era`].

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{
    Id, Raw, RpcError, code, scan,
    walk::{self, Member},
};

/// How many messages a batch may hold. Each of a few bytes costs an answer of hundreds.
pub const MAX_BATCH: usize = 1000;

/// What one body or line holds.
#[derive(Clone, Debug, PartialEq, Eq)]
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

/// A call that wants an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Echoed in the answer with its JSON type.
    pub id: Id,
    /// As written; [`crate::Method::parse`] knows the ones we serve.
    pub method: Box<str>,
    /// An object, when present.
    pub params: Option<Raw>,
}

/// A call that wants no answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Notification {
    /// As written.
    pub method: Box<str>,
    /// An object, when present.
    pub params: Option<Raw>,
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

/// The members of a message as they are written, before anything is known about them.
#[derive(Default)]
struct Envelope<'a> {
    jsonrpc: Option<&'a [u8]>,
    id: Option<&'a [u8]>,
    method: Option<&'a [u8]>,
    params: Option<Member<'a>>,
    result: Option<Member<'a>>,
    error: Option<&'a [u8]>,
}

impl<'a> Envelope<'a> {
    /// Where `null` means something it counts as a value, elsewhere as absent.
    fn read(text: &'a [u8]) -> Self {
        let mut envelope = Self::default();
        for member in walk::members(text) {
            match &*member.bytes() {
                b"jsonrpc" => envelope.jsonrpc = Some(member.value),
                b"id" => envelope.id = Some(member.value),
                b"method" => envelope.method = member.present(),
                b"params" => envelope.params = member.present().map(|_| member),
                b"result" => envelope.result = Some(member),
                b"error" => envelope.error = member.present(),
                _ => {}
            }
        }
        envelope
    }
}

impl Frame {
    /// Reads one frame.
    ///
    /// A duplicate inside `params.arguments` is -32602; everything else that is wrong is -32700 (not JSON) or -32600
    /// (JSON, but not a message).
    pub fn parse(body: &Bytes) -> Result<Self, Malformed> {
        let text = scan::scan(body).map_err(|problem| refuse(body, problem))?;
        if text.trim_ascii_start().starts_with('[') {
            let Elements(elements) =
                serde_json::from_str(text).map_err(|error| not_a_message(None, &error))?;
            if elements.is_empty() {
                return Err(Malformed::new(
                    None,
                    code::INVALID_REQUEST,
                    "Invalid Request: the batch is empty",
                ));
            }
            return Ok(Self::Batch(elements.iter().map(|element| message(body, element.get())).collect()));
        }
        message(body, text).map(Self::One)
    }
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

/// Reads one message. `text` is `body` or a part of it, so that what is cut out shares `body`'s memory. The scan has seen
/// it: it is JSON, and no member is there twice.
fn message(body: &Bytes, text: &str) -> Result<Message, Malformed> {
    let text = text.trim_ascii_start();
    if !text.starts_with('{') {
        return Err(Malformed::new(None, code::INVALID_REQUEST, "Invalid Request: a message is an object"));
    }
    let envelope = Envelope::read(text.as_bytes());
    let id = envelope.id.map(read_id).transpose()?.flatten();
    let invalid = |message: &'static str| Malformed::new(id.clone(), code::INVALID_REQUEST, message);
    if !envelope.jsonrpc.is_some_and(is_two) {
        return Err(invalid("Invalid Request: jsonrpc must be \"2.0\""));
    }
    let Some(method) = envelope.method else {
        let result = envelope.result.filter(|result| envelope.error.is_none() || result.present().is_some());
        let outcome = match (result, envelope.error) {
            (Some(result), None) => Ok(result.raw(body)),
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
    if envelope.result.is_some() || envelope.error.is_some() {
        return Err(invalid("Invalid Request: a message with a method has neither result nor error"));
    }
    let params = match envelope.params {
        None => None,
        Some(params) if params.value.starts_with(b"{") => Some(params.raw(body)),
        Some(_) => return Err(invalid("Invalid Request: params must be an object")),
    };
    match (id, envelope.id) {
        (Some(id), _) => Ok(Message::Request(Request { id, method, params })),
        (None, None) => Ok(Message::Notification(Notification { method, params })),
        (None, Some(_)) => Err(Malformed::new(
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
