//! What each tool does, and how a tool that asks goes on when it is answered.

use serde_json::{Value, json};

use crate::{
    Headers, Version,
    ask::{Ask, asked_by},
    offer,
    rules::{self, PREFIX},
    script::{Effect, Script, key, notification},
    tasks,
};

/// A request that is being answered.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) exchange: u64,
    pub(crate) id: Value,
    pub(crate) method: String,
    pub(crate) params: Value,
    headers: Vec<String>,
    /// Ids are unique to an exchange only: several clients speak to the server, and nothing tells them apart.
    pub(crate) alone: bool,
}

/// What a legacy client was asked, and what is to be asked next.
#[derive(Debug)]
pub(crate) struct Question {
    pub(crate) call: Call,
    asks: Vec<Ask>,
    at: usize,
}

/// What a modern client was asked, by the state it has to bring back.
#[derive(Debug)]
pub(crate) struct Round {
    id: Value,
    params: Value,
    at: usize,
}

impl Call {
    pub(crate) fn new(exchange: u64, mut message: Value, headers: &Headers) -> Self {
        Self {
            exchange,
            id: message["id"].take(),
            method: message["method"].as_str().unwrap_or_default().to_owned(),
            params: message["params"].take(),
            headers: headers.names().into_iter().map(str::to_owned).collect(),
            alone: false,
        }
    }

    /// Its id, to look it up by.
    pub(crate) fn key(&self) -> String {
        if self.alone { format!("{} of {}", self.id, self.exchange) } else { key(&self.id) }
    }

    pub(crate) fn uri(&self) -> &str {
        self.params["uri"].as_str().unwrap_or_default()
    }

    fn tool(&self) -> &str {
        self.params["name"].as_str().unwrap_or_default()
    }

    fn argument(&self, name: &str) -> &Value {
        &self.params["arguments"][name]
    }

    fn text(&self, name: &str) -> &str {
        self.argument(name).as_str().unwrap_or_default()
    }

    /// What makes the call the one it is, without what a retry adds.
    fn essence(&self) -> Value {
        json!({"name": self.params["name"], "arguments": self.params["arguments"]})
    }
}

impl Script {
    pub(crate) fn call(&mut self, call: Call) {
        if let Some(asks) = asked_by(call.tool(), &call.params["arguments"]) {
            return self.start_asking(call, asks);
        }
        match call.tool() {
            "echo" => self.say(&call, call.text("text")),
            "route" => self.say(&call, call.text("region")),
            "add" => self.add(&call),
            "whoami" => self.say(&call, &self.knows(&call).to_string()),
            "progress" => self.report_progress(&call),
            "log" => self.log(&call),
            // Stays among the running requests until it is cancelled.
            "wait" => self.report(&call, 1, None),
            "cancelled" => self.say(&call, &self.cancelled.to_string()),
            "links" => self.respond(&call, json!({"content": offer::content(self.setup.version)})),
            "fail" => self.respond(&call, failure("failed as asked")),
            "error" => {
                let code = call.argument("code").as_i64().unwrap_or(-32603);
                self.fail(&call, code, call.text("message"), None);
            }
            "count" => {
                self.counted += 1;
                self.say(&call, &self.counted.to_string());
            }
            "change_tools" => {
                self.added += 1;
                self.announce_tools();
                self.say(&call, &format!("added_{}", self.added));
            }
            "touch" => {
                let told = self.announce_update(call.text("uri"));
                self.say(&call, &format!("told {told}"));
            }
            "big" => {
                let bytes = call.argument("bytes").as_u64().unwrap_or_default();
                self.say(&call, &"x".repeat(usize::try_from(bytes).unwrap_or_default()));
            }
            "crash" => self.act(Effect::Exit(Some(call.exchange), 1)),
            "exit" => self.act(Effect::Exit(None, 0)),
            "forget" => {
                self.say(&call, "forgotten");
                self.act(Effect::Forget);
            }
            "breaches" => self.say(&call, &json!(self.setup.breaches.all()).to_string()),
            tasks::TOOL if self.setup.tasks => self.start_task(&call),
            name if is_numbered(name) => self.say(&call, name),
            _ => self.fail(&call, -32602, "unknown tool", None),
        }
    }

    fn say(&mut self, call: &Call, text: &str) {
        self.respond(call, json!({"content": [{"type": "text", "text": text}]}));
    }

    fn add(&mut self, call: &Call) {
        let number = |name| call.argument(name).as_f64().unwrap_or_default();
        let sum = json!({"sum": number("a") + number("b")});
        let mut result = json!({"content": [{"type": "text", "text": sum.to_string()}]});
        if self.setup.version >= Version::June2025 {
            result["structuredContent"] = sum;
        }
        self.respond(call, result);
    }

    fn knows(&self, call: &Call) -> Value {
        let meta = &call.params["_meta"];
        let info = if self.setup.version.is_modern() {
            &meta[format!("{PREFIX}clientInfo")]
        } else {
            &self.client["clientInfo"]
        };
        json!({
            "pid": std::process::id(),
            "capabilities": self.capabilities(call),
            "clientInfo": info,
            "meta": meta,
            "environment": self.setup.environment,
            "headers": call.headers,
        })
    }

    pub(crate) fn capabilities(&self, call: &Call) -> Value {
        if self.setup.version.is_modern() {
            call.params["_meta"][format!("{PREFIX}clientCapabilities")].clone()
        } else {
            self.client["capabilities"].clone()
        }
    }

    fn report_progress(&mut self, call: &Call) {
        let steps = call.argument("steps").as_u64().unwrap_or_default();
        for step in 1..=steps {
            self.report(call, step, Some(steps));
        }
        self.say(call, "done");
    }

    /// Reports one step to whoever has given a token.
    fn report(&mut self, call: &Call, step: u64, total: Option<u64>) {
        let Some(token) = call.params["_meta"].get("progressToken") else { return };
        let mut params = json!({"progressToken": token, "progress": step});
        if let Some(total) = total {
            params["total"] = json!(total);
        }
        if self.setup.version >= Version::March2025 {
            params["message"] = json!(format!("step {step}"));
        }
        self.send(call, notification("notifications/progress", &params));
    }

    fn log(&mut self, call: &Call) {
        let asked = if self.setup.version.is_modern() {
            rules::severity(&call.params["_meta"][format!("{PREFIX}logLevel")])
        } else {
            // Whoever never set a level gets everything.
            Some(self.level.unwrap_or_default())
        };
        let severity = rules::severity(call.argument("level"));
        if asked.is_some() && severity >= asked {
            let params = json!({"level": call.text("level"), "logger": "peer", "data": call.text("text")});
            self.send(call, notification("notifications/message", &params));
        }
        self.say(call, "done");
    }

    fn start_asking(&mut self, call: Call, asks: Vec<Ask>) {
        let version = self.setup.version;
        let capabilities = self.capabilities(&call);
        if let Some(needed) = asks.iter().find_map(|ask| ask.lacks(&capabilities)) {
            if version.is_modern() {
                let data = json!({"requiredCapabilities": needed});
                return self.deny(&call, 400, -32021, "Missing required client capability", Some(data));
            }
            return self.respond(&call, failure(&format!("the client does not have {needed}")));
        }
        if version.is_modern() {
            return self.next_round(&call, &asks);
        }
        if !version.has_elicitation() && asks.iter().any(|ask| matches!(ask, Ask::Form(_))) {
            return self.respond(&call, failure(&format!("{} has no elicitation", version.name())));
        }
        self.count_execution(&call);
        self.ask(Question { call, asks, at: 0 });
    }

    /// Legacy: asks on the stream of the call, which stays open.
    fn ask(&mut self, question: Question) {
        let Some(ask) = question.asks.get(question.at) else { return };
        self.asked += 1;
        let id = json!(format!("question-{}", self.asked));
        let (method, mut params) = (ask.method(), ask.params(self.setup.version));
        // A name for modern clients of a gateway, if the test wants one.
        if let Some(name) = question.call.argument("key").as_str() {
            params["_meta"] = json!({"dev.moongate/inputKey": name});
        }
        self.send(&question.call, json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params}));
        self.questions.insert(key(&id), question);
    }

    /// Legacy: the client has answered.
    pub(crate) fn answered(&mut self, mut question: Question, message: &Value) {
        let Some(ask) = question.asks.get(question.at) else { return };
        let answer = match message.get("result") {
            Some(result) => {
                self.setup.breaches.extend(ask.judge(self.setup.version, result));
                result.clone()
            }
            None => json!({"error": message["error"]}),
        };
        question.at += 1;
        if question.at < question.asks.len() {
            return self.ask(question);
        }
        self.conclude(&question.call, &answer);
    }

    /// Modern: asks by answering, and goes on with the retry that brings the state back.
    fn next_round(&mut self, call: &Call, asks: &[Ask]) {
        let Some(state) = call.params["requestState"].as_str() else {
            if call.params.get("inputResponses").is_some() {
                self.breach(format!("inputResponses without the requestState of {}", call.tool()));
            }
            self.count_execution(call);
            return self.require(call, asks, 0);
        };
        let Some(Round { id, params, at }) = self.rounds.get(state) else {
            self.breach(format!("the requestState {state:?} was never given"));
            return self.fail(call, -32602, "unknown requestState", None);
        };
        let at = *at;
        let mut wrong = Vec::new();
        if *id == call.id {
            wrong.push(format!("a retry with the same id {id}"));
        }
        if *params != call.essence() {
            wrong.push(format!("a retry with other params: {}", call.essence()));
        }
        let Some(ask) = asks.get(at) else { return };
        let answer = call.params["inputResponses"].get(ask.key()).cloned();
        match &answer {
            Some(answer) => wrong.extend(ask.judge(self.setup.version, answer)),
            None => wrong.push(format!("a retry without the answer {:?}", ask.key())),
        }
        self.setup.breaches.extend(wrong);
        match answer {
            None => self.require(call, asks, at),
            Some(_) if at + 1 < asks.len() => self.require(call, asks, at + 1),
            Some(answer) => self.conclude(call, &answer),
        }
    }

    fn require(&mut self, call: &Call, asks: &[Ask], at: usize) {
        let Some(ask) = asks.get(at) else { return };
        self.asked += 1;
        let state = format!("state-{}", self.asked);
        let request = json!({"method": ask.method(), "params": ask.params(self.setup.version)});
        let result = json!({
            "resultType": "input_required",
            "inputRequests": {ask.key(): request},
            "requestState": state,
        });
        self.rounds.insert(state, Round { id: call.id.clone(), params: call.essence(), at });
        self.respond(call, result);
    }

    fn count_execution(&mut self, call: &Call) {
        self.executed += u64::from(call.tool() == "ask_twice");
    }

    fn conclude(&mut self, call: &Call, answer: &Value) {
        if call.tool() == "ask_twice" {
            self.say(call, &format!("executed {}", self.executed));
        } else {
            self.say(call, &answer.to_string());
        }
    }
}

fn failure(text: &str) -> Value {
    json!({"content": [{"type": "text", "text": text}], "isError": true})
}

/// Whether this is a tool that was added or generated; any number will do.
fn is_numbered(name: &str) -> bool {
    let number = name.strip_prefix("added_").or_else(|| name.strip_prefix("generated_"));
    number.is_some_and(|number| number.parse::<u64>().is_ok())
}
