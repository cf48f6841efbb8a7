//! How requests are answered: dressed as the version wants it, refused, or distorted as the command line wants it.

use serde_json::{Value, json};

use super::{Effect, Script, Stream};
use crate::{Misbehaviour, Version, call::Call, offer, rules::PREFIX};

/// Methods whose results say how long they may be kept.
const CACHEABLE: [&str; 6] = [
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

impl Script {
    /// Sends something on the stream of a call that still runs.
    pub(crate) fn send(&mut self, call: &Call, message: Value) {
        self.effects.push(Effect::Send(Stream::Exchange(call.exchange), message));
    }

    /// Does something that is no message.
    pub(crate) fn act(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    /// Answers with a result, dressed as the version wants it.
    pub(crate) fn respond(&mut self, call: &Call, mut result: Value) {
        if self.setup.version.is_modern() {
            result["_meta"][format!("{PREFIX}serverInfo")] = offer::server_info();
            if result.get("resultType").is_none() {
                result["resultType"] = json!("complete");
                if CACHEABLE.contains(&call.method.as_str()) {
                    result["ttlMs"] = json!(0);
                    result["cacheScope"] = json!("private");
                }
            }
        }
        self.answer(call, json!({"jsonrpc": "2.0", "id": call.id, "result": result}));
    }

    /// Answers with an error, in a way that is not refused by HTTP.
    pub(crate) fn fail(&mut self, call: &Call, code: i64, message: &str, data: Option<Value>) {
        self.answer(call, error(&call.id, code, message, data));
    }

    /// Answers a request with an error that HTTP has a status for.
    pub(crate) fn deny(&mut self, call: &Call, status: u16, code: i64, message: &str, data: Option<Value>) {
        if status == 200 {
            return self.fail(call, code, message, data);
        }
        self.running.remove(&call.key());
        self.refuse(call.exchange, status, &call.id, code, message, data);
        self.finish(call.exchange);
    }

    pub(super) fn refuse(
        &mut self,
        exchange: u64,
        status: u16,
        id: &Value,
        code: i64,
        text: &str,
        data: Option<Value>,
    ) {
        let mut message = error(id, code, text, data);
        // Who cannot be named is left out since this version, and null before it.
        if id.is_null()
            && self.setup.version >= Version::November2025
            && let Some(members) = message.as_object_mut()
        {
            members.remove("id");
        }
        self.effects.push(Effect::Refuse(exchange, status, message));
        self.end_unless_open(exchange);
    }

    fn answer(&mut self, call: &Call, mut message: Value) {
        self.running.remove(&call.key());
        let stream = Stream::Exchange(call.exchange);
        if call.method == "tools/call" {
            self.distort(call, &mut message);
            if self.setup.chaos.has(Misbehaviour::AnswerTwice) {
                self.effects.push(Effect::Send(stream, message.clone()));
            }
        }
        self.effects.push(Effect::Send(stream, message));
        self.finish(call.exchange);
    }

    fn distort(&mut self, call: &Call, message: &mut Value) {
        let chaos = &self.setup.chaos;
        if chaos.has(Misbehaviour::WrongId) {
            message["id"] = json!("nobody-used-this");
        }
        let length = chaos.find(|one| match one {
            Misbehaviour::LongLine(bytes) => Some(bytes),
            _ => None,
        });
        if let Some(bytes) = length
            && message.get("result").is_some()
        {
            message["result"]["_meta"]["padding"] = json!("x".repeat(bytes));
        }
        if chaos.has(Misbehaviour::Garbage) {
            self.effects.push(Effect::Write(call.exchange, "Debugger listening: {not JSON".to_owned()));
        }
    }

    pub(super) fn finish(&mut self, exchange: u64) {
        if let Some(open) = self.open.get_mut(&exchange) {
            *open -= 1;
            if *open == 0 {
                self.open.remove(&exchange);
            }
        }
        self.end_unless_open(exchange);
    }

    pub(super) fn end_unless_open(&mut self, exchange: u64) {
        if !self.open.contains_key(&exchange) {
            self.effects.push(Effect::End(exchange));
        }
    }
}

fn error(id: &Value, code: i64, message: &str, data: Option<Value>) -> Value {
    let mut error = json!({"code": code, "message": message});
    if let Some(data) = data {
        error["data"] = data;
    }
    json!({"jsonrpc": "2.0", "id": id, "error": error})
}
