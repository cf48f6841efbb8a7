//! JSON-RPC messages as a test's client sees them.

use anyhow::{Context as _, Result, bail};
use serde_json::{Value, json};

/// What one request brought: its response, and what came before it on the same stream or pipe.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The HTTP status; 200 on a pipe.
    pub status: u16,
    /// The response message, with `result` or `error`.
    pub response: Value,
    /// Notifications that came before it.
    pub notifications: Vec<Value>,
    /// Questions that were answered meanwhile: server requests, or entries of `inputRequests`.
    pub questions: Vec<Value>,
}

impl Outcome {
    /// The result; an error when the server answered with one.
    pub fn result(&self) -> Result<Value> {
        match self.response.get("result") {
            Some(result) => Ok(result.clone()),
            None => bail!("status {}, no result: {}", self.status, self.response),
        }
    }

    /// The code of the JSON-RPC error.
    pub fn code(&self) -> Result<i64> {
        self.response["error"]["code"].as_i64().with_context(|| format!("not an error: {}", self.response))
    }

    /// The message of the JSON-RPC error; empty when it is a result.
    pub fn error_message(&self) -> &str {
        self.response["error"]["message"].as_str().unwrap_or_default()
    }
}

pub(crate) fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    let mut message = json!({"jsonrpc": "2.0", "id": id.into(), "method": method});
    add_params(&mut message, params);
    message
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    let mut message = json!({"jsonrpc": "2.0", "method": method});
    add_params(&mut message, params);
    message
}

/// `Value::Null` stands for "no params": JSON-RPC knows none that are null.
fn add_params(message: &mut Value, params: &Value) {
    if !params.is_null() {
        message["params"] = params.clone();
    }
}

/// What kind of message came from a server.
pub(crate) enum Kind {
    Response,
    Question,
    Notification,
}

pub(crate) fn kind(message: &Value) -> Kind {
    match (message.get("method"), message.get("id")) {
        (None, _) => Kind::Response,
        (Some(_), Some(_)) => Kind::Question,
        (Some(_), None) => Kind::Notification,
    }
}

/// The handshake request of a legacy client.
pub(crate) fn initialize(version: &str, capabilities: &Value) -> Value {
    json!({
        "protocolVersion": version,
        "capabilities": capabilities,
        "clientInfo": {"name": "moongate-test", "version": "1.0.0"},
    })
}
