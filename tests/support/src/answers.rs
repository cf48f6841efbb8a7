//! What a test's client says when the server asks it something: sampling, elicitation, roots.
//!
//! The same questions come as server requests (legacy) and as `inputRequests` (modern), so one set of answers serves
//! both eras and both transports.

use std::sync::Arc;

use serde_json::{Value, json};

type Answerer = dyn Fn(&str, &Value) -> Option<Value> + Send + Sync;

/// A function from a question (method, params) to its result.
#[derive(Clone)]
pub struct Answers(Arc<Answerer>);

impl Answers {
    /// Answers by `function`; a question it has no answer for is refused.
    pub fn new(function: impl Fn(&str, &Value) -> Option<Value> + Send + Sync + 'static) -> Self {
        Self(Arc::new(function))
    }

    /// Refuses every question.
    pub fn none() -> Self {
        Self::new(|_, _| None)
    }

    /// Accepts each elicitation with `content` and answers each sampling with `text`.
    pub fn fixed(content: Value, text: &str) -> Self {
        let text = text.to_owned();
        Self::new(move |method, _| match method {
            "elicitation/create" => Some(json!({"action": "accept", "content": content})),
            "sampling/createMessage" => Some(json!({
                "role": "assistant",
                "content": {"type": "text", "text": text},
                "model": "test-model",
                "stopReason": "endTurn",
            })),
            "roots/list" => Some(json!({"roots": [{"uri": "file:///test", "name": "test"}]})),
            _ => None,
        })
    }

    /// The result for one question.
    pub fn result(&self, method: &str, params: &Value) -> Option<Value> {
        (self.0)(method, params)
    }

    /// The JSON-RPC response to a server request.
    pub fn respond(&self, request: &Value) -> Value {
        let method = request["method"].as_str().unwrap_or_default();
        match self.result(method, &request["params"]) {
            Some(result) => json!({"jsonrpc": "2.0", "id": request["id"], "result": result}),
            None => json!({
                "jsonrpc": "2.0",
                "id": request["id"],
                "error": {"code": -32601, "message": format!("{method} is not supported by this client")},
            }),
        }
    }
}

impl std::fmt::Debug for Answers {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Answers")
    }
}
