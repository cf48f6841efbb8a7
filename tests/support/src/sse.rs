//! Server-sent events: a parser without I/O, and a reader over an open answer.

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::HeaderMap;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use serde_json::Value;

use crate::{Connection, patiently};

/// What stood between two blank lines of an event stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// `id:`, the last one given in this event.
    pub id: Option<String>,
    /// `event:`.
    pub event: Option<String>,
    /// `data:` lines, joined by newlines; `Some("")` for an empty one.
    pub data: Option<String>,
    /// `retry:` in milliseconds.
    pub retry: Option<u64>,
    /// Comment lines, which keep a connection alive.
    pub comments: Vec<String>,
}

/// Turns bytes into events, in any cut.
#[derive(Debug, Default)]
pub struct Parser {
    pending: Vec<u8>,
    event: Event,
}

/// An answer whose events are read as they come. Dropping it closes the connection (on HTTP/2: resets the stream).
#[derive(Debug)]
pub struct EventStream {
    /// The HTTP status.
    pub status: u16,
    /// The headers of the answer.
    pub headers: HeaderMap,
    /// The last event id seen, for resuming.
    pub last_event_id: Option<String>,
    body: Incoming,
    parser: Parser,
    ready: std::collections::VecDeque<Event>,
    _connection: Connection,
}

impl Event {
    /// The JSON-RPC message it carries; none for comments and priming events.
    pub fn message(&self) -> Result<Option<Value>> {
        let data = self.data.as_deref().filter(|data| !data.is_empty());
        data.map(|data| serde_json::from_str(data).with_context(|| format!("not JSON: {data:?}"))).transpose()
    }

    fn field(&mut self, name: &str, value: &str) {
        match name {
            "id" => self.id = Some(value.to_owned()),
            "event" => self.event = Some(value.to_owned()),
            "retry" => self.retry = value.parse().ok(),
            "data" => match &mut self.data {
                Some(data) => {
                    data.push('\n');
                    data.push_str(value);
                }
                None => self.data = Some(value.to_owned()),
            },
            _ => {}
        }
    }
}

impl Parser {
    /// The events that `bytes` complete.
    pub fn push(&mut self, bytes: &[u8]) -> Vec<Event> {
        self.pending.extend_from_slice(bytes);
        let mut events = Vec::new();
        while let Some(end) = self.pending.iter().position(|byte| *byte == b'\n') {
            let line: Vec<u8> = self.pending.drain(..=end).collect();
            let text = String::from_utf8_lossy(&line);
            self.line(text.trim_end_matches(['\r', '\n']), &mut events);
        }
        events
    }

    fn line(&mut self, line: &str, events: &mut Vec<Event>) {
        if line.is_empty() {
            let event = std::mem::take(&mut self.event);
            if event != Event::default() {
                events.push(event);
            }
        } else if let Some(comment) = line.strip_prefix(':') {
            self.event.comments.push(comment.trim_start().to_owned());
        } else {
            let (name, value) = line.split_once(':').unwrap_or((line, ""));
            self.event.field(name, value.strip_prefix(' ').unwrap_or(value));
        }
    }
}

impl EventStream {
    pub(crate) fn new(response: http::Response<Incoming>, connection: Connection) -> Self {
        let (head, body) = response.into_parts();
        Self {
            status: head.status.as_u16(),
            headers: head.headers,
            last_event_id: None,
            body,
            parser: Parser::default(),
            ready: std::collections::VecDeque::new(),
            _connection: connection,
        }
    }

    /// The next event, comments included; none at the end of the stream. Waits at most [`PATIENCE`](crate::PATIENCE).
    pub async fn next(&mut self) -> Result<Option<Event>> {
        loop {
            if let Some(event) = self.ready.pop_front() {
                self.last_event_id = event.id.clone().or(self.last_event_id.take());
                return Ok(Some(event));
            }
            let Some(bytes) = self.bytes().await? else { return Ok(None) };
            self.ready.extend(self.parser.push(&bytes));
        }
    }

    /// The next JSON-RPC message, past comments and priming events; none at the end of the stream.
    pub async fn message(&mut self) -> Result<Option<Value>> {
        while let Some(event) = self.next().await? {
            if let Some(message) = event.message()? {
                return Ok(Some(message));
            }
        }
        Ok(None)
    }

    /// The next message that satisfies `wanted`; an error when the stream ends first.
    pub async fn message_where(&mut self, wanted: impl Fn(&Value) -> bool) -> Result<Value> {
        while let Some(message) = self.message().await? {
            if wanted(&message) {
                return Ok(message);
            }
        }
        anyhow::bail!("the stream ended before the expected message")
    }

    /// Every event up to the end of the stream.
    pub async fn rest(&mut self) -> Result<Vec<Event>> {
        let mut events = Vec::new();
        while let Some(event) = self.next().await? {
            events.push(event);
        }
        Ok(events)
    }

    /// The body as one JSON document, for an answer that turned out not to be a stream; none when it is empty.
    pub async fn body_json(&mut self) -> Result<Option<Value>> {
        let mut body = Vec::new();
        while let Some(bytes) = self.bytes().await? {
            body.extend_from_slice(&bytes);
        }
        if body.is_empty() {
            return Ok(None);
        }
        let shown = || format!("status {}, not JSON: {:?}", self.status, String::from_utf8_lossy(&body));
        serde_json::from_slice(&body).map(Some).with_context(shown)
    }

    async fn bytes(&mut self) -> Result<Option<Bytes>> {
        let frame = patiently("the next bytes of an event stream", self.body.frame()).await?;
        Ok(frame.transpose()?.map(|frame| frame.into_data().unwrap_or_default()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STREAM: &[u8] = b"id: 1\nretry: 500\ndata:\n\n: keep-alive\n\nevent: message\r\ndata: {\"a\":\r\ndata: 1}\r\nid:2\r\n\r\n\n";

    fn expected() -> Vec<Event> {
        let priming =
            Event { id: Some("1".into()), retry: Some(500), data: Some(String::new()), ..Event::default() };
        let comment = Event { comments: vec!["keep-alive".into()], ..Event::default() };
        let message = Event {
            id: Some("2".into()),
            event: Some("message".into()),
            data: Some("{\"a\":\n1}".into()),
            ..Event::default()
        };
        vec![priming, comment, message]
    }

    #[test]
    fn events_are_the_same_in_every_cut() {
        for cut in 0..STREAM.len() {
            let mut parser = Parser::default();
            let mut events = parser.push(&STREAM[..cut]);
            events.extend(parser.push(&STREAM[cut..]));
            assert_eq!(events, expected(), "cut at {cut}");
        }
    }

    #[test]
    fn only_data_is_a_message() {
        let messages: Vec<_> = expected().iter().map(|event| event.message().unwrap()).collect();
        assert_eq!(messages, [None, None, Some(serde_json::json!({"a": 1}))]);
        let broken = Event { data: Some("{".into()), ..Event::default() };
        assert!(broken.message().is_err());
    }
}
