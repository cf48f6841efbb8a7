//! A strict client of one version, over HTTP or on a pipe: what the gateway sends it is judged, message by message.
//!
//! It does what its version says: a legacy one keeps a session and answers server requests, a modern one says who it is
//! in every request and answers by asking again. Ids and tokens are integers and strings by turns.

use std::collections::VecDeque;

use anyhow::{Context as _, Result};
use moongate_test_support::{Answers, Client as Http, EventStream, LegacySession, Modern, Outcome, Stdio};
use serde_json::{Value, json};

use crate::{
    judge,
    version::{MODERN, PREFIX},
    wire::{Wire, is_event_stream},
};

/// Rounds of questions before a test gives up.
const ROUNDS: usize = 10;

/// The log levels, least severe first.
const LEVELS: [&str; 8] = ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// A client of one version, and what the gateway did wrong towards it.
#[derive(Debug)]
pub(crate) struct Client {
    pub(crate) version: &'static str,
    pub(crate) breaches: Vec<String>,
    wire: Wire,
    capabilities: Value,
    answers: Answers,
    next: u64,
    level: Option<String>,
    /// The id of the open `subscriptions/listen`; what a legacy client subscribed to is always heard.
    listening: Option<Value>,
    /// What came on the pipe while something else was waited for.
    aside: VecDeque<Value>,
}

/// A request on its way.
#[derive(Debug)]
pub(crate) struct Sent {
    id: Value,
    method: String,
    params: Value,
    stream: Option<EventStream>,
    token: Option<Value>,
    progress: f64,
}

impl Client {
    /// A client over HTTP; a legacy one has its session and listens.
    pub(crate) async fn http(version: &'static str, capabilities: &Value, http: &Http) -> Result<Self> {
        if version >= MODERN {
            // A name of its own, so that what it calls is kept for it from call to call.
            let http = http.clone().with_header("x-session-id", "matrix");
            return Ok(Self::new(version, capabilities, Wire::stateless(http)));
        }
        let session = LegacySession::open_with(http, version, capabilities, answers()).await?;
        let welcome = session.welcome.clone();
        let mut client = Self::new(version, capabilities, Wire::session(session).await?);
        client.welcomed(&welcome);
        Ok(client)
    }

    /// A client on the pipe of a gateway of its own; a legacy one has shaken hands.
    pub(crate) async fn pipe(version: &'static str, capabilities: &Value, mut pipe: Stdio) -> Result<Self> {
        if version >= MODERN {
            return Ok(Self::new(version, capabilities, Wire::Pipe(Box::new(pipe))));
        }
        let welcome = pipe.initialize(version, capabilities).await?;
        let mut client = Self::new(version, capabilities, Wire::Pipe(Box::new(pipe)));
        client.welcomed(&welcome);
        Ok(client)
    }

    fn new(version: &'static str, capabilities: &Value, wire: Wire) -> Self {
        Self {
            version,
            breaches: Vec::new(),
            wire,
            capabilities: capabilities.clone(),
            answers: answers(),
            next: 1,
            level: None,
            listening: None,
            aside: VecDeque::new(),
        }
    }

    /// Whether it has no handshake.
    pub(crate) fn is_modern(&self) -> bool {
        self.version >= MODERN
    }

    /// Whether it is on a pipe.
    pub(crate) fn is_piped(&self) -> bool {
        self.wire.is_pipe()
    }

    /// Sends a request, answers what it is asked, and returns the response.
    pub(crate) async fn request(&mut self, method: &str, params: &Value) -> Result<Outcome> {
        let mut sent = self.send(method, params.clone()).await?;
        let (mut notifications, mut questions) = (Vec::new(), Vec::new());
        for _ in 0..ROUNDS {
            let mut outcome = self.outcome(&mut sent).await?;
            notifications.append(&mut outcome.notifications);
            questions.append(&mut outcome.questions);
            let result = &outcome.response["result"];
            if result["resultType"] != "input_required" {
                return Ok(Outcome { notifications, questions, ..outcome });
            }
            let mut again = params.clone();
            again["inputResponses"] = self.answer(result, &mut questions)?;
            if let Some(state) = result.get("requestState") {
                again["requestState"] = state.clone();
            }
            sent = self.send(method, again).await?;
        }
        anyhow::bail!("still asking after {ROUNDS} rounds")
    }

    /// `tools/call` of the upstream's `tool`.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<Outcome> {
        self.request("tools/call", &json!({"name": format!("peer__{tool}"), "arguments": arguments})).await
    }

    /// The text of what `tool` returns.
    pub(crate) async fn text(&mut self, tool: &str, arguments: Value) -> Result<String> {
        let result = self.call(tool, arguments).await?.result()?;
        Ok(result["content"][0]["text"].as_str().with_context(|| format!("no text: {result}"))?.to_owned())
    }

    /// Sends a request without waiting for anything.
    pub(crate) async fn send(&mut self, method: &str, params: Value) -> Result<Sent> {
        let id = self.fresh("request");
        let token = params["_meta"].get("progressToken").cloned();
        let mut sent =
            Sent { id, method: method.to_owned(), params, stream: None, token, progress: f64::NEG_INFINITY };
        if self.is_modern() {
            self.introduce(&mut sent.params);
        }
        let request =
            Modern { id: sent.id.clone(), method: sent.method.clone(), params: sent.params.clone() };
        sent.stream = self.wire.send(&request).await?;
        Ok(sent)
    }

    /// Waits for the first progress of a request, which says that it has begun.
    pub(crate) async fn begun(&mut self, sent: &mut Sent) -> Result<()> {
        let message = self.first(sent).await?;
        anyhow::ensure!(message["method"] == "notifications/progress", "it did not begin: {message}");
        self.heard(&message, sent);
        Ok(())
    }

    /// Gives a request up in the way of the version.
    pub(crate) async fn cancel(&mut self, sent: Sent) -> Result<()> {
        if self.is_modern() && !self.is_piped() {
            return Ok(());
        }
        let params = json!({"requestId": sent.id, "reason": "no longer wanted"});
        self.wire.notify("notifications/cancelled", &params).await?;
        if let Some(mut stream) = sent.stream {
            let rest = stream.rest().await?;
            let messages = rest.iter().filter_map(|event| event.message().transpose());
            self.breaches.extend(messages.map(|message| format!("{message:?} after it was cancelled")));
        }
        Ok(())
    }

    /// Asks for log messages from `level` up.
    pub(crate) async fn set_level(&mut self, level: &str) -> Result<()> {
        if !self.is_modern() {
            self.request("logging/setLevel", &json!({"level": level})).await?.result()?;
        }
        self.level = Some(level.to_owned());
        Ok(())
    }

    /// Subscribes to a resource and, where that has to be asked for, to changes of the tools.
    pub(crate) async fn subscribe(&mut self, uri: &str) -> Result<()> {
        if !self.is_modern() {
            self.request("resources/subscribe", &json!({"uri": uri})).await?.result()?;
            return Ok(());
        }
        let filter = json!({"toolsListChanged": true, "resourceSubscriptions": [uri]});
        let mut sent = self.send("subscriptions/listen", json!({"notifications": filter})).await?;
        let message = self.first(&mut sent).await?;
        anyhow::ensure!(
            message["method"] == "notifications/subscriptions/acknowledged",
            "first came {message}"
        );
        self.listening = Some(sent.id.clone());
        self.told(&message);
        anyhow::ensure!(message["params"]["notifications"] == filter, "not all was acknowledged: {message}");
        self.wire.stand(sent.stream);
        Ok(())
    }

    /// Waits for a notification that nobody asked for.
    pub(crate) async fn notified(&mut self, method: &str) -> Result<Value> {
        loop {
            let message = match self.aside.pop_front() {
                Some(message) => Some(message),
                None => self.wire.unsolicited().await?,
            };
            let message = message.with_context(|| format!("all ended before {method}"))?;
            self.told(&message);
            if message["method"] == method {
                return Ok(message);
            }
        }
    }

    /// Ends what it has subscribed to.
    pub(crate) async fn unsubscribe(&mut self, uri: &str) -> Result<()> {
        if !self.is_modern() {
            self.request("resources/unsubscribe", &json!({"uri": uri})).await?.result()?;
            return Ok(());
        }
        let id = self.listening.take().context("it has subscribed")?;
        if self.is_piped() {
            self.wire.notify("notifications/cancelled", &json!({"requestId": id})).await?;
        }
        self.wire.stand(None);
        Ok(())
    }

    /// Says goodbye; what the gateway did wrong.
    pub(crate) async fn leave(mut self) -> Result<Vec<String>> {
        self.wire.leave().await?;
        Ok(self.breaches)
    }

    /// An id or token that was never used: an integer, then a string, and so on.
    pub(crate) fn fresh(&mut self, word: &str) -> Value {
        self.next += 1;
        if self.next.is_multiple_of(2) { json!(self.next) } else { json!(format!("{word}-{}", self.next)) }
    }

    /// Reads up to the response, judging everything and answering server requests.
    async fn outcome(&mut self, sent: &mut Sent) -> Result<Outcome> {
        let status = sent.stream.as_ref().map_or(200, |stream| stream.status);
        let (mut notifications, mut questions) = (Vec::new(), Vec::new());
        loop {
            let message = self
                .wire
                .next(&mut sent.stream)
                .await?
                .with_context(|| format!("status {status}, no response"))?;
            match (message.get("method").is_some(), message.get("id").is_some()) {
                (true, false) if self.is_unsolicited(&message) => self.aside.push_back(message),
                (true, false) => {
                    self.heard(&message, sent);
                    notifications.push(message);
                }
                (true, true) => {
                    self.breaches.extend(judge::question(self.version, &message));
                    self.wire.respond(&self.answers.respond(&message)).await?;
                    questions.push(message);
                }
                (false, _) if self.is_piped() && message["id"] != sent.id => {
                    self.breaches.push(format!("a response that nobody waits for: {message}"));
                }
                (false, _) => {
                    self.breaches.extend(judge::response(self.version, &sent.method, &sent.id, &message));
                    if let Some(stream) = sent.stream.as_mut().filter(|stream| is_event_stream(stream))
                        && let Some(more) = stream.message().await?
                    {
                        self.breaches.push(format!("after the response to {} came {more}", sent.method));
                    }
                    return Ok(Outcome { status, response: message, notifications, questions });
                }
            }
        }
    }

    /// What comes first for a request.
    async fn first(&mut self, sent: &mut Sent) -> Result<Value> {
        loop {
            let message = self
                .wire
                .next(&mut sent.stream)
                .await?
                .with_context(|| format!("nothing came for {}", sent.method))?;
            if !self.is_unsolicited(&message) {
                return Ok(message);
            }
            self.aside.push_back(message);
        }
    }

    /// The `inputResponses` to an `input_required` result.
    fn answer(&mut self, result: &Value, questions: &mut Vec<Value>) -> Result<Value> {
        let mut responses = json!({});
        for (key, question) in result["inputRequests"].as_object().into_iter().flatten() {
            self.breaches.extend(judge::question(self.version, question));
            let method = question["method"].as_str().unwrap_or_default();
            let answer = self.answers.result(method, &question["params"]);
            responses[key] = answer.with_context(|| format!("no answer to {question}"))?;
            questions.push(question.clone());
        }
        Ok(responses)
    }

    /// Judges what came with a request: progress with its token, logs at the level asked for.
    fn heard(&mut self, message: &Value, sent: &mut Sent) {
        self.breaches.extend(judge::notification(self.version, message));
        let params = &message["params"];
        match message["method"].as_str().unwrap_or_default() {
            "notifications/progress" => {
                if sent.token.as_ref() != Some(&params["progressToken"]) {
                    self.breaches
                        .push(format!("progress of {}, wanted {:?}", params["progressToken"], sent.token));
                }
                let progress = params["progress"].as_f64().unwrap_or(f64::NEG_INFINITY);
                if progress <= sent.progress {
                    self.breaches.push(format!("progress {progress} after {}", sent.progress));
                }
                sent.progress = progress;
            }
            "notifications/message" => {
                let place = |level: &str| LEVELS.iter().position(|name| *name == level);
                let asked = self.level.as_deref().and_then(place);
                // A legacy client that never set a level gets what the server likes.
                let silent = if self.is_modern() { asked.is_none() } else { false };
                if silent || params["level"].as_str().and_then(place) < asked {
                    self.breaches.push(format!("{} though {:?} was asked for", params["level"], self.level));
                }
            }
            other => self.breaches.push(format!("{other} on the stream of {}", sent.method)),
        }
    }

    /// Judges what nobody asked for: a modern client hears it only because it listens.
    fn told(&mut self, message: &Value) {
        self.breaches.extend(judge::notification(self.version, message));
        if message.get("id").is_some() {
            self.breaches.push(format!("out of nowhere: {message}"));
        }
        let subscription = message["params"]["_meta"].get(format!("{PREFIX}subscriptionId"));
        if self.is_modern() && subscription != self.listening.as_ref() {
            self.breaches.push(format!("{message} on the subscription {:?}", self.listening));
        }
    }

    fn welcomed(&mut self, welcome: &Value) {
        let message = json!({"jsonrpc": "2.0", "id": 0, "result": welcome});
        self.breaches.extend(judge::response(self.version, "initialize", &json!(0), &message));
    }

    /// On a pipe everything comes the same way; over HTTP what nobody asked for has a stream of its own.
    fn is_unsolicited(&self, message: &Value) -> bool {
        let method = message["method"].as_str().unwrap_or_default();
        self.is_piped() && (method.ends_with("/list_changed") || method == "notifications/resources/updated")
    }

    fn introduce(&self, params: &mut Value) {
        let meta = &mut params["_meta"];
        meta[format!("{PREFIX}protocolVersion")] = json!(self.version);
        meta[format!("{PREFIX}clientCapabilities")] = self.capabilities.clone();
        meta[format!("{PREFIX}clientInfo")] = json!({"name": "moongate-test", "version": "1.0.0"});
        if let Some(level) = &self.level {
            meta[format!("{PREFIX}logLevel")] = json!(level);
        }
    }
}

/// What it answers when it is asked.
fn answers() -> Answers {
    Answers::fixed(json!({"answer": "blue"}), "It is blue.")
}
