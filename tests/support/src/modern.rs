//! A client of the version without a handshake, over HTTP: every request carries its own envelope.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result};
use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde_json::{Value, json};

use crate::{Answers, Client, EventStream, Outcome, Request, message};

const VERSION: &str = "2026-07-28";
/// Rounds of questions before a test gives up; real tools ask once or twice.
const ROUNDS: usize = 10;

/// A stateless client. Clones share the counter of request ids.
#[derive(Clone, Debug)]
pub struct ModernClient {
    client: Client,
    capabilities: Value,
    log_level: Option<String>,
    answers: Answers,
    next: Arc<AtomicU64>,
}

/// A modern request, taken apart so that a test can change any part before it is sent.
#[derive(Clone, Debug)]
pub struct Modern {
    /// The JSON-RPC id.
    pub id: Value,
    /// The method.
    pub method: String,
    /// The params, with the envelope in `_meta`.
    pub params: Value,
}

impl Modern {
    /// The body.
    pub fn message(&self) -> Value {
        message::request(self.id.clone(), &self.method, &self.params)
    }

    /// The value of `Mcp-Name`, for methods that have one.
    pub fn name(&self) -> Option<&str> {
        match self.method.as_str() {
            "tools/call" | "prompts/get" => self.params["name"].as_str(),
            "resources/read" => self.params["uri"].as_str(),
            "tasks/get" | "tasks/update" | "tasks/cancel" => self.params["taskId"].as_str(),
            _ => None,
        }
    }

    /// The HTTP request with all headers that the version demands.
    pub fn over(&self, client: &Client) -> Request {
        let request = client
            .post(&self.message())
            .header("mcp-protocol-version", VERSION)
            .header("mcp-method", &self.method);
        match self.name() {
            Some(name) => request.header("mcp-name", &header_value(name)),
            None => request,
        }
    }
}

impl ModernClient {
    /// A client that can answer nothing.
    pub fn new(client: &Client) -> Self {
        Self {
            client: client.clone(),
            capabilities: json!({}),
            log_level: None,
            answers: Answers::none(),
            next: Arc::new(AtomicU64::new(1)),
        }
    }

    /// The same client with `capabilities`, answering by `answers`.
    #[must_use]
    pub fn with_answers(mut self, capabilities: &Value, answers: Answers) -> Self {
        self.capabilities = capabilities.clone();
        self.answers = answers;
        self
    }

    /// The same client, asking for log messages from `level` up.
    #[must_use]
    pub fn with_log_level(mut self, level: &str) -> Self {
        self.log_level = Some(level.to_owned());
        self
    }

    /// The HTTP client beneath.
    pub fn http(&self) -> &Client {
        &self.client
    }

    /// The next request, with its envelope.
    pub fn prepare(&self, method: &str, params: &Value) -> Modern {
        let mut params = if params.is_null() { json!({}) } else { params.clone() };
        let envelope = self.envelope();
        match params.get_mut("_meta").and_then(Value::as_object_mut) {
            Some(meta) => meta.extend(envelope),
            None => params["_meta"] = Value::Object(envelope),
        }
        Modern { id: json!(self.next.fetch_add(1, Ordering::Relaxed)), method: method.to_owned(), params }
    }

    /// Sends one request and returns its response, which may be `input_required`.
    pub async fn once(&self, request: &Modern) -> Result<Outcome> {
        read(request.over(&self.client).open().await?).await
    }

    /// Sends a request and answers rounds of questions until the response is final.
    pub async fn request(&self, method: &str, params: &Value) -> Result<Outcome> {
        let mut outcome = self.once(&self.prepare(method, params)).await?;
        for _ in 0..ROUNDS {
            let result = &outcome.response["result"];
            if result["resultType"] != "input_required" {
                return Ok(outcome);
            }
            let retry = self.retry(method, params, result)?;
            let mut next = self.once(&retry).await?;
            next.notifications.splice(0..0, outcome.notifications);
            let asked = outcome.response["result"]["inputRequests"].as_object().cloned().unwrap_or_default();
            next.questions = outcome.questions.into_iter().chain(asked.into_iter().map(|(_, q)| q)).collect();
            outcome = next;
        }
        anyhow::bail!("still asking after {ROUNDS} rounds: {}", outcome.response)
    }

    /// The request that answers an `input_required` result: same params, new id, the exact state.
    pub fn retry(&self, method: &str, params: &Value, result: &Value) -> Result<Modern> {
        let mut retry = self.prepare(method, params);
        let mut responses = serde_json::Map::new();
        for (key, question) in result["inputRequests"].as_object().into_iter().flatten() {
            let method = question["method"].as_str().context("a question has a method")?;
            let answer = self.answers.result(method, &question["params"]);
            responses.insert(key.clone(), answer.with_context(|| format!("no answer to {question}"))?);
        }
        retry.params["inputResponses"] = Value::Object(responses);
        if let Some(state) = result.get("requestState") {
            retry.params["requestState"] = state.clone();
        }
        Ok(retry)
    }

    /// `tools/call`: the final result, which may have `isError`.
    pub async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments})).await?.result()
    }

    /// A list method: the result.
    pub async fn list(&self, method: &str) -> Result<Value> {
        self.request(method, &json!({})).await?.result()
    }

    /// `subscriptions/listen`: the open stream.
    pub async fn listen(&self, filter: &Value) -> Result<EventStream> {
        let request = self.prepare("subscriptions/listen", &json!({"notifications": filter}));
        request.over(&self.client).open().await
    }

    fn envelope(&self) -> serde_json::Map<String, Value> {
        let mut envelope = serde_json::Map::from_iter([
            ("io.modelcontextprotocol/protocolVersion".to_owned(), json!(VERSION)),
            ("io.modelcontextprotocol/clientCapabilities".to_owned(), self.capabilities.clone()),
            (
                "io.modelcontextprotocol/clientInfo".to_owned(),
                json!({"name": "moongate-test", "version": "1.0.0"}),
            ),
        ]);
        if let Some(level) = &self.log_level {
            envelope.insert("io.modelcontextprotocol/logLevel".to_owned(), json!(level));
        }
        envelope
    }
}

/// A header value for any text: plain when it can be, else base64 between the markers the specification gives.
pub fn header_value(text: &str) -> String {
    let visible = text.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    let plain = visible && text.trim() == text && !text.starts_with("=?base64?");
    if plain { text.to_owned() } else { format!("=?base64?{}?=", STANDARD.encode(text)) }
}

async fn read(mut stream: EventStream) -> Result<Outcome> {
    let status = stream.status;
    let mut notifications = Vec::new();
    if !crate::legacy::is_event_stream(&stream) {
        let response = stream.body_json().await?.with_context(|| format!("status {status}, no body"))?;
        return Ok(Outcome { status, response, notifications, questions: Vec::new() });
    }
    while let Some(message) = stream.message().await? {
        match message::kind(&message) {
            message::Kind::Response => {
                return Ok(Outcome { status, response: message, notifications, questions: Vec::new() });
            }
            message::Kind::Notification => notifications.push(message),
            message::Kind::Question => anyhow::bail!("a modern stream never carries requests: {message}"),
        }
    }
    anyhow::bail!("the stream ended without a response")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn header_values_are_encoded_only_when_they_must_be() {
        for (text, expected) in [
            ("create_goal", "create_goal"),
            ("two words", "two words"),
            (" blank", "=?base64?IGJsYW5r?="),
            ("목표", "=?base64?66qp7ZGc?="),
            ("a\tb", "=?base64?YQli?="),
            ("=?base64?YQ==?=", "=?base64?PT9iYXNlNjQ/WVE9PT89?="),
        ] {
            assert_eq!(header_value(text), expected, "{text:?}");
        }
    }
}
