//! A client of the version without a handshake, on a pipe.

use anyhow::{Context as _, Result};
use moongate_test_support::{Answers, Outcome, Stdio};
use serde_json::{Map, Value, json};

/// Rounds of questions before a test gives up.
const ROUNDS: usize = 10;

/// A modern client of a gateway on a pipe.
#[derive(Debug)]
pub struct ModernPipe {
    /// The pipe.
    pub stdio: Stdio,
    capabilities: Value,
    answers: Answers,
    next: u64,
}

impl ModernPipe {
    /// A client that can answer nothing.
    pub fn new(stdio: Stdio) -> Self {
        // Apart from the ids that the pipe itself counts, so that both eras can share it.
        Self { stdio, capabilities: json!({}), answers: Answers::none(), next: 1000 }
    }

    /// The same client with `capabilities`, answering by `answers`.
    #[must_use]
    pub fn with_answers(mut self, capabilities: Value, answers: Answers) -> Self {
        self.capabilities = capabilities;
        self.answers = answers;
        self
    }

    /// `params` with the envelope that every modern request carries.
    pub fn enveloped(&self, params: &Value) -> Value {
        let mut params = params.as_object().cloned().unwrap_or_default();
        let mut meta = params.get("_meta").and_then(Value::as_object).cloned().unwrap_or_default();
        meta.insert("io.modelcontextprotocol/protocolVersion".to_owned(), json!("2026-07-28"));
        meta.insert("io.modelcontextprotocol/clientCapabilities".to_owned(), self.capabilities.clone());
        params.insert("_meta".to_owned(), Value::Object(meta));
        Value::Object(params)
    }

    /// Sends one request and returns its id.
    pub async fn send(&mut self, method: &str, params: &Value) -> Result<Value> {
        self.next += 1;
        let id = json!(self.next);
        let params = self.enveloped(params);
        self.stdio.send(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})).await?;
        Ok(id)
    }

    /// Sends one request and returns its response, which may be `input_required`.
    pub async fn once(&mut self, method: &str, params: &Value) -> Result<Outcome> {
        let id = self.send(method, params).await?;
        let outcome = self.stdio.outcome(&id).await?;
        anyhow::ensure!(outcome.questions.is_empty(), "a modern client is never asked: {outcome:?}");
        Ok(outcome)
    }

    /// Sends a request and answers rounds of questions until the response is final.
    pub async fn request(&mut self, method: &str, params: &Value) -> Result<Outcome> {
        let mut outcome = self.once(method, params).await?;
        let mut questions = Vec::new();
        for _ in 0..ROUNDS {
            let result = outcome.response.get("result").cloned().unwrap_or_default();
            if result.get("resultType") != Some(&json!("input_required")) {
                return Ok(Outcome { questions, ..outcome });
            }
            let (retry, asked) = self.retry(params, &result)?;
            questions.extend(asked);
            outcome = self.once(method, &retry).await?;
        }
        anyhow::bail!("still asking after {ROUNDS} rounds: {}", outcome.response)
    }

    /// `tools/call`: the final result, which may have `isError`.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments})).await?.result()
    }

    /// The params that answer an `input_required` result, and the questions it asked.
    fn retry(&self, params: &Value, result: &Value) -> Result<(Value, Vec<Value>)> {
        let questions = result.get("inputRequests").and_then(Value::as_object).cloned().unwrap_or_default();
        let mut responses = Map::new();
        for (key, question) in &questions {
            let method = question.get("method").and_then(Value::as_str).context("a question has a method")?;
            let params = question.get("params").cloned().unwrap_or_default();
            let answer = self.answers.result(method, &params);
            responses.insert(key.clone(), answer.with_context(|| format!("no answer to {question}"))?);
        }
        let mut retry = params.as_object().cloned().unwrap_or_default();
        retry.insert("inputResponses".to_owned(), Value::Object(responses));
        if let Some(state) = result.get("requestState") {
            retry.insert("requestState".to_owned(), state.clone());
        }
        Ok((Value::Object(retry), questions.into_iter().map(|(_, question)| question).collect()))
    }
}
