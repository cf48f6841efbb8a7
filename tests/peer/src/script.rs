//! The server as a state machine: a frame comes in, effects go out. It neither reads nor writes anything.
//!
//! One script is one stdio process, one legacy HTTP session, or a whole modern HTTP server, which keeps nothing between
//! requests except what the test tools count. What tools do is in `call`; here is the order of things: the handshake,
//! ids in flight, cancellation, and answers.

use std::{
    collections::{BTreeSet, HashMap, HashSet},
    mem,
};

use serde_json::{Value, json};

use crate::{
    Breaches, Chaos, Headers, Misbehaviour, Version,
    call::{Call, Question, Round},
    methods, offer,
    rules::{self, PREFIX},
    tasks,
};

mod answer;
mod dispatch;
#[cfg(test)]
mod tests;

/// What carries the messages: some rules depend on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// Pipes.
    Stdio,
    /// Any of the HTTP transports.
    Http,
}

/// What a script is made from.
#[derive(Clone, Debug)]
pub struct Setup {
    /// The version it speaks.
    pub version: Version,
    /// What carries the messages.
    pub transport: Transport,
    /// How it misbehaves.
    pub chaos: Chaos,
    /// Where breaches are noted.
    pub breaches: Breaches,
    /// The names of the environment variables, for `whoami`.
    pub environment: Vec<String>,
    /// Whether it has tasks; only where the version has the extension.
    pub tasks: bool,
}

/// Where a message goes on HTTP; on a pipe both are the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// To the answer of this exchange.
    Exchange(u64),
    /// To whoever listens for what nobody asked for.
    Session,
}

/// What the shell has to do.
#[derive(Clone, Debug, PartialEq)]
pub enum Effect {
    /// Write a message.
    Send(Stream, Value),
    /// Write something that is no message.
    Write(u64, String),
    /// Answer the exchange with an HTTP status and a message; on a pipe, only with the message.
    Refuse(u64, u16, Value),
    /// Nothing more comes for this exchange.
    End(u64),
    /// Forget the session.
    Forget,
    /// Write half a message, if this exchange is given, and exit with this code.
    Exit(Option<u64>, i32),
}

/// How far a legacy client has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Handshake {
    Expected,
    Answered,
    Over,
}

/// A request that is not answered yet.
#[derive(Debug)]
struct Running {
    exchange: u64,
    method: String,
    token: Option<Value>,
}

/// A `subscriptions/listen` that is open.
#[derive(Debug)]
struct Listen {
    exchange: u64,
    id: Value,
    filter: Value,
}

/// The state machine.
#[derive(Debug)]
pub struct Script {
    pub(crate) setup: Setup,
    handshake: Handshake,
    /// What `initialize` said.
    pub(crate) client: Value,
    /// Ids ever used, as JSON texts.
    seen: HashSet<String>,
    running: HashMap<String, Running>,
    /// Requests of each exchange that are not answered yet: several only in a batch.
    open: HashMap<u64, usize>,
    listens: Vec<Listen>,
    subscribed: BTreeSet<String>,
    pub(crate) level: Option<usize>,
    pub(crate) questions: HashMap<String, Question>,
    pub(crate) rounds: HashMap<String, Round>,
    pub(crate) asked: u64,
    pub(crate) added: u64,
    pub(crate) counted: u64,
    pub(crate) cancelled: u64,
    pub(crate) executed: u64,
    /// What became of the tasks, by their ids.
    pub(crate) tasks: Vec<(String, tasks::State)>,
    effects: Vec<Effect>,
}

impl Script {
    /// A server that has not been spoken to.
    pub fn new(setup: Setup) -> Self {
        Self {
            setup,
            handshake: Handshake::Expected,
            client: Value::Null,
            seen: HashSet::new(),
            running: HashMap::new(),
            open: HashMap::new(),
            listens: Vec::new(),
            subscribed: BTreeSet::new(),
            level: None,
            questions: HashMap::new(),
            rounds: HashMap::new(),
            asked: 0,
            added: 0,
            counted: 0,
            cancelled: 0,
            executed: 0,
            tasks: Vec::new(),
            effects: Vec::new(),
        }
    }

    /// Takes one frame of the client. `exchange` is a number the shell has not used before.
    pub fn receive(&mut self, exchange: u64, frame: &[u8], headers: &Headers) -> Vec<Effect> {
        let parsed = std::str::from_utf8(frame).ok().and_then(|text| serde_json::from_str(text).ok());
        match parsed {
            None => {
                self.breach(format!("not a message: {:?}", String::from_utf8_lossy(frame)));
                self.refuse(exchange, 400, &Value::Null, -32700, "not JSON", None);
            }
            Some(Value::Array(batch)) => self.batch(exchange, batch, headers),
            Some(message) => self.message(exchange, message, headers),
        }
        if self.setup.chaos.has(Misbehaviour::Silent) {
            self.effects.clear();
        }
        mem::take(&mut self.effects)
    }

    /// The client has closed the exchange, which means something only where there are no sessions.
    pub fn hung_up(&mut self, exchange: u64) {
        if self.setup.version.is_modern() {
            let running = self.running.iter().find(|(_, running)| running.exchange == exchange);
            if let Some(id) = running.map(|(id, _)| id.clone()) {
                self.cancel(&id);
                // Nobody is left to be told.
                self.effects.clear();
            }
        }
    }

    /// Whether `initialize` has been answered.
    pub fn is_open(&self) -> bool {
        self.handshake != Handshake::Expected
    }

    /// A notification to write now, when the server floods and a call runs (that of `exchange`, if given).
    pub fn flood(&self, exchange: Option<u64>) -> Option<Value> {
        let matches = |running: &Running| {
            running.method == "tools/call" && exchange.is_none_or(|exchange| running.exchange == exchange)
        };
        let floods = self.setup.chaos.has(Misbehaviour::Flood) && self.running.values().any(matches);
        floods.then(|| notification("notifications/message", &json!({"level": "info", "data": "flood"})))
    }

    pub(crate) fn breach(&self, breach: String) {
        self.setup.breaches.note(breach);
    }

    fn breaches(&self, breaches: impl IntoIterator<Item = String>) {
        self.setup.breaches.extend(breaches);
    }

    fn batch(&mut self, exchange: u64, batch: Vec<Value>, headers: &Headers) {
        let version = self.setup.version;
        if !version.has_batches() || batch.is_empty() {
            self.breach(format!("a batch of {} for {}", batch.len(), version.name()));
            return self.refuse(exchange, 400, &Value::Null, -32600, "no batches", None);
        }
        // One more than there are, so that the exchange does not end before the last is looked at.
        self.open.insert(exchange, 1);
        for message in batch {
            if message["method"] == "initialize" {
                self.breach("initialize in a batch".to_owned());
            }
            self.message(exchange, message, headers);
        }
        self.join_answers(exchange);
        self.finish(exchange);
    }

    /// What can be answered at once is answered by one array, as a batch is.
    fn join_answers(&mut self, exchange: u64) {
        let (mut answers, mut others) = (Vec::new(), Vec::new());
        for effect in self.effects.drain(..) {
            match effect {
                Effect::Send(Stream::Exchange(number), message)
                    if number == exchange && message.get("method").is_none() =>
                {
                    answers.push(message);
                }
                other => others.push(other),
            }
        }
        if !answers.is_empty() {
            others.push(Effect::Send(Stream::Exchange(exchange), Value::Array(answers)));
        }
        self.effects = others;
    }

    fn message(&mut self, exchange: u64, message: Value, headers: &Headers) {
        let wrong = rules::message(&message);
        let unusable = !wrong.is_empty();
        self.breaches(wrong);
        if unusable {
            return self.refuse(exchange, 400, &message["id"], -32600, "not a message", None);
        }
        // A script has no headers on a pipe, and none to judge before the session exists.
        if self.setup.transport == Transport::Http && self.is_open() {
            self.breaches(headers.judge_agreed(self.setup.version, true));
        }
        match (message.get("method"), message.get("id")) {
            (Some(_), Some(_)) => self.request(exchange, message, headers),
            (Some(_), None) => {
                self.notification(&message);
                self.end_unless_open(exchange);
            }
            (None, _) => {
                self.response(&message);
                self.end_unless_open(exchange);
            }
        }
    }

    fn request(&mut self, exchange: u64, message: Value, headers: &Headers) {
        let mut call = Call::new(exchange, message, headers);
        call.alone = self.setup.version.is_modern() && self.setup.transport == Transport::Http;
        let key = call.key();
        if self.running.contains_key(&key) {
            self.breach(format!("the id {key} of {} is in flight", call.method));
        }
        let token = call.params["_meta"].get("progressToken").cloned();
        if token.is_some() && !call.alone && self.running.values().any(|running| running.token == token) {
            self.breach(format!("the progress token of {} is in use", call.method));
        }
        self.seen.insert(key.clone());
        self.running.insert(key, Running { exchange, method: call.method.clone(), token });
        *self.open.entry(exchange).or_default() += 1;
        if self.setup.version.is_modern() {
            self.modern_request(call, headers);
        } else {
            self.legacy_request(call);
        }
    }

    fn legacy_request(&mut self, call: Call) {
        let version = self.setup.version;
        match (self.handshake, call.method.as_str()) {
            (Handshake::Expected, "initialize") => return self.initialize(&call),
            (Handshake::Expected, _) if self.setup.chaos.has(Misbehaviour::ExitOnDiscover) => {
                return self.effects.push(Effect::Exit(None, 1));
            }
            // How a client finds out which era a server is of: allowed, and never answered well.
            (Handshake::Expected, "server/discover") if rules::envelope(&call.params["_meta"]).is_empty() => {
                return self.deny(&call, 400, -32601, "Method not found: server/discover", None);
            }
            (Handshake::Expected, "ping") => {}
            (Handshake::Expected, method) => {
                self.breach(format!("{method} before initialize"));
                return self.deny(&call, 400, -32600, "not initialized", None);
            }
            (_, "initialize") => {
                self.breach("initialize twice".to_owned());
                return self.deny(&call, 400, -32600, "already initialized", None);
            }
            (Handshake::Answered, method) if method != "ping" => {
                self.breach(format!("{method} before notifications/initialized"));
            }
            _ => {}
        }
        if !methods::has_request(version, &call.method) {
            self.breach(format!("{} does not exist in {}", call.method, version.name()));
            return self.deny(&call, 200, -32601, "Method not found", None);
        }
        self.dispatch(call);
    }

    /// First failure answers, but everything wrong is noted.
    fn modern_request(&mut self, call: Call, headers: &Headers) {
        let version = self.setup.version;
        let of_tasks = self.setup.tasks && tasks::METHODS.contains(&call.method.as_str());
        let exists = of_tasks || methods::has_request(version, &call.method);
        let envelope = rules::envelope(&call.params["_meta"]);
        let mut mismatch = Vec::new();
        if self.setup.transport == Transport::Http {
            mismatch = headers.judge_modern(&json!({"method": call.method, "params": call.params}));
            self.breaches(headers.judge_stateless());
        }
        self.breaches(envelope.iter().chain(&mismatch).cloned());
        if !exists {
            self.breach(format!("{} does not exist in {}", call.method, version.name()));
        }
        let claimed = &call.params["_meta"][format!("{PREFIX}protocolVersion")];
        if let Some(first) = envelope.first() {
            self.deny(&call, 400, -32602, first, None);
        } else if let Some(first) = mismatch.first() {
            self.deny(&call, 400, -32020, first, None);
        } else if claimed != version.name() {
            if call.method != "server/discover" {
                self.breach(format!("{} claims the version {claimed}", call.method));
            }
            let data = json!({"supported": [version.name()], "requested": claimed});
            self.deny(&call, 400, -32022, "Unsupported protocol version", Some(data));
        } else if exists {
            self.dispatch(call);
        } else {
            self.deny(&call, 404, -32601, "Method not found", None);
        }
    }

    fn initialize(&mut self, call: &Call) {
        self.breaches(rules::initialize(&call.params));
        self.breaches(rules::foreign(self.setup.version, "initialize", &call.params));
        let name = self.setup.version.name();
        if self.setup.chaos.has(Misbehaviour::RefuseInitialize) {
            let data = json!({"supported": [name], "requested": call.params["protocolVersion"]});
            return self.deny(call, 200, -32602, "Unsupported protocol version", Some(data));
        }
        self.handshake = Handshake::Answered;
        self.client = call.params.clone();
        let result = json!({
            "protocolVersion": name,
            "capabilities": offer::capabilities(self.setup.version),
            "serverInfo": offer::server_info(),
            "instructions": offer::INSTRUCTIONS,
        });
        self.respond(call, result);
    }

    fn notification(&mut self, message: &Value) {
        let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
        let version = self.setup.version;
        if !methods::has_notification(version, method) {
            return self.breach(format!("{method} does not exist in {}", version.name()));
        }
        self.breaches(rules::foreign(version, method, params));
        if !version.is_modern() && !self.is_open() {
            return self.breach(format!("{method} before initialize"));
        }
        match method {
            "notifications/initialized" if self.handshake == Handshake::Over => {
                self.breach("notifications/initialized twice".to_owned());
            }
            "notifications/initialized" => self.handshake = Handshake::Over,
            "notifications/cancelled" if version.is_modern() && self.setup.transport == Transport::Http => {
                self.breach(format!("{method} over HTTP, where closing is cancelling"));
            }
            "notifications/cancelled" => {
                let id = key(&params["requestId"]);
                if !self.seen.contains(&id) {
                    return self.breach(format!("{method} for {id}, which was never used"));
                }
                if self.running.get(&id).is_some_and(|running| running.method == "initialize") {
                    self.breach("initialize was cancelled".to_owned());
                }
                // One that has been answered crossed our answer on its way, which is nobody's fault.
                self.cancel(&id);
            }
            "notifications/roots/list_changed" => {
                if self.client["capabilities"]["roots"]["listChanged"] != true {
                    self.breach(format!("{method} though roots.listChanged was not declared"));
                }
            }
            // The server never gives a progress token.
            _ => self.breach(format!("{method} for a token nobody gave")),
        }
    }

    fn response(&mut self, message: &Value) {
        if self.setup.version.is_modern() {
            return self.breach(format!("a response to a modern server: {message}"));
        }
        match self.questions.remove(&key(&message["id"])) {
            Some(question) => self.answered(question, message),
            None => self.breach(format!("a response to {}, which was not asked", message["id"])),
        }
    }

    /// Ends a running request without an answer.
    fn cancel(&mut self, id: &str) {
        if let Some(running) = self.running.remove(id) {
            if running.method == "tools/call" {
                self.cancelled += 1;
            }
            self.questions.retain(|_, question| question.call.key() != id);
            self.listens.retain(|listen| listen.exchange != running.exchange);
            self.finish(running.exchange);
        }
    }
}

pub(crate) fn notification(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "method": method, "params": params})
}

/// An id as it stands on the wire: `1` is not `"1"`.
pub(crate) fn key(id: &Value) -> String {
    id.to_string()
}
