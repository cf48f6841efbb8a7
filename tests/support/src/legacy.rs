//! A client of the versions with a handshake, over HTTP: one session.

use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

use crate::{
    Answer, Answers, Client, EventStream, Outcome, Request,
    message::{self, Kind},
};

/// An initialised session. Requests may overlap.
#[derive(Debug)]
pub struct LegacySession {
    client: Client,
    id: String,
    /// What the server said to `initialize`.
    pub welcome: Value,
    answers: Answers,
    next: AtomicU64,
}

impl LegacySession {
    /// Opens a session of `version` for a client that can answer nothing.
    pub async fn open(client: &Client, version: &str) -> Result<Self> {
        Self::open_with(client, version, &json!({}), Answers::none()).await
    }

    /// Opens a session for a client with `capabilities`, which answers by `answers`.
    pub async fn open_with(
        client: &Client,
        version: &str,
        capabilities: &Value,
        answers: Answers,
    ) -> Result<Self> {
        let hello = message::request(0, "initialize", &message::initialize(version, capabilities));
        let answer = client.post(&hello).send().await?;
        let response = answer.messages()?.pop().context("initialize got no answer")?;
        let welcome = response.get("result").cloned();
        let welcome = welcome.with_context(|| format!("initialize failed: {response}"))?;
        let id = answer.header("mcp-session-id").to_owned();
        anyhow::ensure!(!id.is_empty(), "initialize gave no session id");
        let negotiated = welcome["protocolVersion"].as_str().context("no version was negotiated")?;
        let mut client = client.clone().with_header("mcp-session-id", &id);
        if negotiated >= "2025-06-18" {
            client = client.with_header("mcp-protocol-version", negotiated);
        }
        let session = Self { client, id, welcome, answers, next: AtomicU64::new(1) };
        session.notify("notifications/initialized", &Value::Null).await?;
        Ok(session)
    }

    /// The session id.
    pub fn id(&self) -> &str {
        &self.id
    }

    /// The HTTP client with the session's headers.
    pub fn client(&self) -> &Client {
        &self.client
    }

    /// The next request as it would be sent, for tests that change something about it.
    pub fn prepare(&self, method: &str, params: &Value) -> Request {
        self.client.post(&message::request(self.next_id(), method, params))
    }

    /// Sends a request, answers what the server asks meanwhile, and returns the response.
    pub async fn request(&self, method: &str, params: &Value) -> Result<Outcome> {
        let stream = self.prepare(method, params).open().await?;
        self.outcome(stream).await
    }

    /// `tools/call`: the result, which may have `isError`.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments})).await?.result()
    }

    /// A list method: the result.
    pub async fn list(&self, method: &str) -> Result<Value> {
        self.request(method, &json!({})).await?.result()
    }

    /// Sends a notification, which must be accepted.
    pub async fn notify(&self, method: &str, params: &Value) -> Result<()> {
        let answer = self.client.post(&message::notification(method, params)).send().await?;
        anyhow::ensure!(answer.status == 202, "{method} got {}: {:?}", answer.status, answer.body);
        Ok(())
    }

    /// Sends a JSON-RPC response to a server request.
    pub async fn respond(&self, response: &Value) -> Result<Answer> {
        self.client.post(response).send().await
    }

    /// Opens the session's GET stream; with the id of an event, resumes the stream it was sent on.
    pub async fn listen(&self, last_event_id: Option<&str>) -> Result<EventStream> {
        let request = self.client.listen();
        match last_event_id {
            Some(id) => request.header("last-event-id", id).open().await,
            None => request.open().await,
        }
    }

    /// Ends the session.
    pub async fn delete(&self) -> Result<Answer> {
        self.client.delete().send().await
    }

    /// Reads `stream` up to its response, answering questions.
    pub async fn outcome(&self, mut stream: EventStream) -> Result<Outcome> {
        let status = stream.status;
        let mut notifications = Vec::new();
        let mut questions = Vec::new();
        loop {
            let next =
                if is_event_stream(&stream) { stream.message().await? } else { stream.body_json().await? };
            let message = next.with_context(|| format!("status {status}, and no response"))?;
            match message::kind(&message) {
                Kind::Response => return Ok(Outcome { status, response: message, notifications, questions }),
                Kind::Notification => notifications.push(message),
                Kind::Question => {
                    let answer = self.respond(&self.answers.respond(&message)).await?;
                    anyhow::ensure!(answer.status == 202, "the answer was not taken: {}", answer.status);
                    questions.push(message);
                }
            }
        }
    }

    fn next_id(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }
}

pub(crate) fn is_event_stream(stream: &EventStream) -> bool {
    let kind = stream.headers.get("content-type").and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.starts_with("text/event-stream"))
}
