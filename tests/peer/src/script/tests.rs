//! One wrong thing each, and that it is noted; what is right is tested over real pipes and sockets.

use serde_json::{Value, json};

use super::*;

const PROBE: &str = "server/discover";

/// A script with the client's side of the conversation so far.
struct Talk {
    script: Script,
    exchange: u64,
}

impl Talk {
    fn with(version: Version, transport: Transport, chaos: &[&str]) -> Self {
        let setup = Setup {
            tasks: false,
            version,
            transport,
            chaos: Chaos(chaos.iter().map(|one| one.parse().unwrap()).collect()),
            breaches: Breaches::default(),
            environment: Vec::new(),
        };
        Self { script: Script::new(setup), exchange: 0 }
    }

    /// A pipe to a server that has not been spoken to.
    fn new(version: Version) -> Self {
        Self::with(version, Transport::Stdio, &[])
    }

    /// A pipe to a server that is ready for anything.
    fn ready(version: Version) -> Self {
        let mut talk = Self::new(version);
        if !version.is_modern() {
            talk.initialize();
        }
        talk
    }

    fn initialize(&mut self) {
        self.say(&json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": introduction()}));
        self.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
    }

    fn say(&mut self, message: &Value) -> Vec<Effect> {
        self.say_with(message, &Headers::default())
    }

    fn say_with(&mut self, message: &Value, headers: &Headers) -> Vec<Effect> {
        self.say_text(&message.to_string(), headers)
    }

    fn say_text(&mut self, text: &str, headers: &Headers) -> Vec<Effect> {
        self.exchange += 1;
        self.script.receive(self.exchange, text.as_bytes(), headers)
    }

    /// A request with whatever the version wants around `params`.
    fn ask(&mut self, id: u64, method: &str, params: Value) -> Vec<Effect> {
        let version = self.script.setup.version;
        self.say(&request(version, id, method, params))
    }

    fn call(&mut self, id: u64, tool: &str, arguments: &Value) -> Vec<Effect> {
        self.ask(id, "tools/call", json!({"name": tool, "arguments": arguments}))
    }

    fn breaches(&self) -> Vec<String> {
        self.script.setup.breaches.all()
    }

    /// Checks that exactly one breach was noted, and that it says this.
    #[track_caller]
    fn noted(&self, part: &str) {
        let breaches = self.breaches();
        assert!(breaches.len() == 1 && breaches[0].contains(part), "{part:?} is not what {breaches:?} says");
    }
}

fn introduction() -> Value {
    let capabilities = json!({"sampling": {}, "elicitation": {}, "roots": {}});
    let info = json!({"name": "test", "version": "1"});
    json!({"protocolVersion": "2025-11-25", "capabilities": capabilities, "clientInfo": info})
}

fn request(version: Version, id: u64, method: &str, mut params: Value) -> Value {
    if version.is_modern() {
        params["_meta"] = envelope();
    }
    json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params})
}

fn envelope() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": "2026-07-28",
        "io.modelcontextprotocol/clientCapabilities": {"sampling": {}, "elicitation": {}, "roots": {}},
        "io.modelcontextprotocol/clientInfo": {"name": "test", "version": "1"},
    })
}

fn headers(pairs: &[(&str, &str)]) -> Headers {
    let pairs = pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
    Headers::new(&pairs.collect())
}

/// The messages among the effects.
fn sent(effects: &[Effect]) -> Vec<&Value> {
    let messages = effects.iter().filter_map(|effect| match effect {
        Effect::Send(_, message) | Effect::Refuse(_, _, message) => Some(message),
        _ => None,
    });
    messages.collect()
}

const LEGACY: [Version; 4] =
    [Version::November2024, Version::March2025, Version::June2025, Version::November2025];

#[test]
fn legacy_servers_want_the_handshake_in_order() {
    for version in LEGACY {
        let mut talk = Talk::new(version);
        talk.ask(1, "tools/list", json!({}));
        talk.noted("tools/list before initialize");

        let mut talk = Talk::new(version);
        talk.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        talk.noted("notifications/initialized before initialize");

        let mut talk = Talk::new(version);
        talk.ask(1, "initialize", introduction());
        talk.ask(2, "ping", json!({}));
        talk.ask(3, "tools/list", json!({}));
        talk.noted("tools/list before notifications/initialized");

        let mut talk = Talk::ready(version);
        talk.ask(1, "initialize", introduction());
        talk.noted("initialize twice");

        let mut talk = Talk::ready(version);
        talk.say(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"}));
        talk.noted("initialized twice");
    }
}

#[test]
fn a_client_may_probe_a_legacy_server_once_and_well() {
    for version in LEGACY {
        let mut talk = Talk::new(version);
        let effects = talk.say(&request(Version::July2026, 1, PROBE, json!({})));
        assert_eq!(sent(&effects)[0]["error"]["code"], -32601);
        talk.initialize();
        assert_eq!(talk.breaches(), [""; 0]);
        talk.ask(2, PROBE, json!({}));
        talk.noted("server/discover does not exist");

        let mut talk = Talk::new(version);
        talk.ask(1, PROBE, json!({}));
        talk.noted("server/discover before initialize");
    }
}

#[test]
fn methods_of_other_versions_are_noted() {
    for version in LEGACY {
        for method in ["subscriptions/listen", "tasks/list", "no/such"] {
            let mut talk = Talk::ready(version);
            let effects = talk.ask(1, method, json!({}));
            assert_eq!(sent(&effects)[0]["error"]["code"], -32601);
            talk.noted(&format!("{method} does not exist in {}", version.name()));
        }
        let mut talk = Talk::ready(version);
        talk.say(&json!({"jsonrpc": "2.0", "method": "notifications/elicitation/complete"}));
        talk.noted("does not exist");
    }
    for method in [
        "initialize",
        "ping",
        "logging/setLevel",
        "resources/subscribe",
        "resources/unsubscribe",
        "tasks/get",
    ] {
        let mut talk = Talk::ready(Version::July2026);
        let effects = talk.ask(1, method, json!({}));
        assert!(matches!(effects[..], [Effect::Refuse(1, 404, _), Effect::End(1)]), "{effects:?}");
        talk.noted(&format!("{method} does not exist"));
    }
    for method in ["initialized", "progress", "roots/list_changed"] {
        let mut talk = Talk::ready(Version::July2026);
        talk.say(&json!({"jsonrpc": "2.0", "method": format!("notifications/{method}")}));
        talk.noted("does not exist");
    }
}

#[test]
fn the_modern_envelope_is_wanted_whole() {
    let wrong = [
        ("protocolVersion", None, "protocolVersion is missing"),
        ("clientCapabilities", None, "clientCapabilities is missing"),
        ("protocolVersion", Some(json!("2099-01-01")), "claims the version"),
        ("clientCapabilities", Some(json!([])), "capabilities are []"),
        ("clientCapabilities", Some(json!({"tasks": {}})), "tasks does not exist"),
        ("clientInfo", Some(json!({"name": "test"})), "clientInfo is"),
        ("logLevel", Some(json!("loud")), "logLevel is"),
        ("somethingNew", Some(json!(1)), "somethingNew in a request"),
    ];
    for (name, value, part) in wrong {
        let mut talk = Talk::ready(Version::July2026);
        let mut message = request(Version::July2026, 1, "tools/list", json!({}));
        let meta = message["params"]["_meta"].as_object_mut().unwrap();
        let name = format!("{PREFIX}{name}");
        match value {
            Some(value) => meta.insert(name, value),
            None => meta.remove(&name),
        };
        let effects = talk.say(&message);
        assert!(matches!(effects[..], [Effect::Refuse(1, 400, _), Effect::End(1)]), "{effects:?}");
        talk.noted(part);
    }
}

#[test]
fn modern_headers_repeat_the_body() {
    let right = [
        ("mcp-protocol-version", "2026-07-28"),
        ("mcp-method", "tools/call"),
        ("mcp-name", "=?base64?ZWNobw==?="),
    ];
    let message =
        request(Version::July2026, 1, "tools/call", json!({"name": "echo", "arguments": {"text": "a"}}));
    let mut talk = Talk::with(Version::July2026, Transport::Http, &[]);
    talk.say_with(&message, &headers(&right));
    assert_eq!(talk.breaches(), [""; 0]);
    for place in 0..right.len() {
        let (mut other, mut fewer) = (right.to_vec(), right.to_vec());
        other[place].1 = "other";
        fewer.remove(place);
        for (wrong, part) in [(other, "where the body says"), (fewer, "is missing")] {
            let mut talk = Talk::with(Version::July2026, Transport::Http, &[]);
            let effects = talk.say_with(&message, &headers(&wrong));
            assert_eq!(sent(&effects)[0]["error"]["code"], -32020);
            talk.noted(part);
        }
    }
    for name in ["mcp-session-id", "last-event-id"] {
        let mut talk = Talk::with(Version::July2026, Transport::Http, &[]);
        let mut more = right.to_vec();
        more.push((name, "1"));
        talk.say_with(&message, &headers(&more));
        talk.noted("without sessions");
    }
}

#[test]
fn modern_headers_repeat_the_arguments_that_the_schema_names() {
    let said = |region: Option<&str>, header: Option<&str>| {
        let mut talk = Talk::with(Version::July2026, Transport::Http, &[]);
        let mut all =
            vec![("mcp-protocol-version", "2026-07-28"), ("mcp-method", "tools/call"), ("mcp-name", "route")];
        all.extend(header.map(|value| ("mcp-param-region", value)));
        let params = json!({"name": "route", "arguments": {"region": region}});
        talk.say_with(&request(Version::July2026, 1, "tools/call", params), &headers(&all));
        talk
    };
    for (region, header) in [(Some("eu"), Some("eu")), (Some(" "), Some("=?base64?IA==?=")), (None, None)] {
        assert_eq!(said(region, header).breaches(), [""; 0]);
    }
    said(Some("eu"), None).noted("Mcp-Param-Region is missing");
    said(Some("eu"), Some("us")).noted("where the body says");
    said(None, Some("eu")).noted("where the body says");
}

#[test]
fn legacy_headers_repeat_what_was_agreed() {
    for version in LEGACY {
        let mut talk = Talk::with(version, Transport::Http, &[]);
        talk.ask(1, "initialize", introduction());
        talk.ask(2, "ping", json!({}));
        if version.has_version_header() {
            talk.noted("MCP-Protocol-Version is missing");
        } else {
            assert_eq!(talk.breaches(), [""; 0]);
        }

        let mut talk = Talk::with(version, Transport::Http, &[]);
        talk.ask(1, "initialize", introduction());
        let message = request(version, 2, "ping", json!({}));
        talk.say_with(&message, &headers(&[("mcp-protocol-version", version.name())]));
        assert_eq!(talk.breaches(), [""; 0]);
        talk.say_with(&message, &headers(&[("mcp-protocol-version", "2026-07-28")]));
        talk.noted("was agreed");
    }
}

#[test]
fn modern_members_are_not_for_legacy_servers() {
    let members = [
        ("_meta", envelope(), 3),
        ("_meta", json!({"io.modelcontextprotocol/logLevel": "info"}), 1),
        ("inputResponses", json!({}), 1),
        ("requestState", json!("state"), 1),
        ("task", json!({}), 1),
    ];
    for version in LEGACY {
        for (name, value, count) in members.clone() {
            let mut talk = Talk::ready(version);
            talk.ask(1, "tools/call", json!({"name": "echo", "arguments": {"text": "a"}, name: value}));
            let breaches = talk.breaches();
            assert_eq!(breaches.len(), count, "{breaches:?}");
            assert!(breaches.iter().all(|breach| breach.contains("which is not for")), "{breaches:?}");
        }
    }
    let mut talk = Talk::ready(Version::July2026);
    talk.ask(1, "tools/list", json!({"requestState": "state"}));
    talk.noted("which is not for");
}

#[test]
fn capabilities_are_those_of_the_version_that_is_asked_for() {
    let declared = [
        ("2024-11-05", json!({"elicitation": {}}), "elicitation does not exist"),
        ("2025-06-18", json!({"tasks": {}}), "tasks does not exist"),
        ("2025-11-25", json!({"extensions": {}}), "extensions does not exist"),
        ("2025-11-25", json!({"sampling": true}), "sampling is true"),
        ("2026-07-28", json!({}), "asks for the version"),
    ];
    for (asked, capabilities, part) in declared {
        let mut talk = Talk::new(Version::November2024);
        let mut params = introduction();
        params["protocolVersion"] = json!(asked);
        params["capabilities"] = capabilities;
        talk.ask(1, "initialize", params);
        talk.noted(part);
    }
}

#[test]
fn frames_hold_one_message_of_the_right_shape() {
    let wrong = [
        ("{\"jsonrpc\":\"2.0\",", "not a message"),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, "jsonrpc is"),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, "the id null"),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, "the id 1.5"),
        (r#"{"jsonrpc":"2.0","id":1}"#, "neither request"),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, "with params []"),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":"x","message":"y"}}"#, "the error"),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{}}"#, "neither request"),
    ];
    for version in Version::ALL {
        for (text, part) in wrong {
            let mut talk = Talk::ready(version);
            talk.say_text(text, &Headers::default());
            talk.noted(part);
        }
    }
}

#[test]
fn batches_are_for_one_version() {
    for version in Version::ALL {
        let mut talk = Talk::ready(version);
        let batch =
            json!([request(version, 1, "tools/list", json!({})), request(version, 2, "ping", json!({}))]);
        let effects = talk.say(&batch);
        if version.has_batches() {
            assert_eq!(talk.breaches(), [""; 0]);
            assert_eq!(sent(&effects)[0].as_array().unwrap().len(), 2);
            assert_eq!(effects.last(), Some(&Effect::End(talk.exchange)));
        } else {
            talk.noted("a batch of 2");
        }
    }
}

#[test]
fn ids_and_tokens_are_not_used_twice_at_a_time() {
    for version in Version::ALL {
        let mut talk = Talk::ready(version);
        talk.call(1, "wait", &json!({}));
        talk.call(1, "echo", &json!({"text": "a"}));
        talk.noted("the id 1 of tools/call is in flight");
    }
    let mut talk = Talk::ready(Version::June2025);
    let params = json!({"name": "wait", "arguments": {}, "_meta": {"progressToken": 7}});
    talk.ask(1, "tools/call", params.clone());
    talk.ask(2, "tools/call", params);
    talk.noted("the progress token of tools/call is in use");
}

#[test]
fn only_what_was_asked_is_cancelled_and_answered() {
    let cancel =
        |id: u64| json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": id}});
    for version in Version::ALL {
        let mut talk = Talk::ready(version);
        talk.say(&cancel(99));
        talk.noted("for 99, which was never used");

        let mut talk = Talk::ready(version);
        talk.call(1, "wait", &json!({}));
        let effects = talk.say(&cancel(1));
        assert_eq!(effects, [Effect::End(talk.exchange - 1), Effect::End(talk.exchange)]);
        talk.say(&cancel(1));
        let effects = talk.call(2, "cancelled", &json!({}));
        assert_eq!(sent(&effects)[0]["result"]["content"][0]["text"], "1");
        assert_eq!(talk.breaches(), [""; 0]);

        talk.say(&json!({"jsonrpc": "2.0", "id": "question-9", "result": {}}));
        talk.noted(if version.is_modern() { "a response to a modern server" } else { "was not asked" });
    }
    let mut talk = Talk::with(Version::July2026, Transport::Http, &[]);
    talk.say(&cancel(1));
    talk.noted("closing is cancelling");
}

#[test]
fn a_modern_client_cancels_by_hanging_up_and_a_legacy_one_does_not() {
    for version in Version::ALL {
        let mut talk = Talk::ready(version);
        talk.call(1, "wait", &json!({}));
        talk.script.hung_up(talk.exchange);
        let effects = talk.call(2, "cancelled", &json!({}));
        let count = if version.is_modern() { "1" } else { "0" };
        assert_eq!(sent(&effects)[0]["result"]["content"][0]["text"], count);
    }
}

#[test]
fn answers_have_the_shape_of_the_question() {
    let wrong = [
        ("ask_form", json!({}), "action null"),
        ("ask_form", json!({"action": "yes"}), "action \"yes\""),
        ("ask_form", json!({"action": "decline", "content": {}}), "content and \"decline\""),
        ("ask_form", json!({"action": "accept", "content": {"answer": {}}}), "answer = {}"),
        ("ask_model", json!({"model": "m", "role": "assistant", "content": {}}), "content {}"),
        (
            "ask_model",
            json!({"model": "m", "role": "x", "content": {"type": "text", "text": ""}}),
            "role \"x\"",
        ),
        ("ask_model", json!({"role": "user", "content": {"type": "text", "text": ""}}), "model null"),
        ("ask_roots", json!({"roots": [{"uri": "http://a"}]}), "http://a"),
        ("ask_roots", json!({}), "roots answered with null"),
    ];
    for (tool, answer, part) in wrong {
        for version in Version::ALL.into_iter().filter(|version| version.has_elicitation()) {
            let mut talk = Talk::ready(version);
            let effects = talk.call(1, tool, &json!({}));
            let question = sent(&effects)[0];
            if version.is_modern() {
                let (key, state) = (tool.trim_start_matches("ask_"), &question["result"]["requestState"]);
                let responses = json!({key: answer});
                let params = json!({"name": tool, "arguments": {}, "requestState": state, "inputResponses": responses});
                talk.ask(2, "tools/call", params);
            } else {
                talk.say(&json!({"jsonrpc": "2.0", "id": question["id"], "result": answer}));
            }
            talk.noted(part);
        }
    }
    let mut talk = Talk::ready(Version::June2025);
    let effects = talk.call(1, "ask_roots", &json!({}));
    let id = &sent(&effects)[0]["id"];
    talk.say(&json!({"jsonrpc": "2.0", "id": id, "result": {"roots": [], "resultType": "complete"}}));
    talk.noted("answered with resultType");
}

#[test]
fn a_retry_brings_everything_back() {
    let answer = json!({"action": "cancel"});
    let right = json!({"name": "ask_form", "arguments": {}, "inputResponses": {"form": answer}});
    let wrong = [
        (2, "requestState", json!("made-up"), "was never given"),
        (2, "inputResponses", json!({"other": {}}), "without the answer \"form\""),
        (2, "arguments", json!({"message": "changed"}), "other params"),
        (1, "name", json!("ask_form"), "the same id"),
        (2, "requestState", Value::Null, "with params"),
    ];
    for (id, name, value, part) in wrong {
        let mut talk = Talk::ready(Version::July2026);
        let effects = talk.call(1, "ask_form", &json!({}));
        let mut params = right.clone();
        params["requestState"] = sent(&effects)[0]["result"]["requestState"].clone();
        params[name] = value;
        talk.ask(id, "tools/call", params);
        talk.noted(part);
    }
    let mut talk = Talk::ready(Version::July2026);
    talk.call(1, "ask_form", &json!({}));
    talk.ask(2, "tools/call", right);
    talk.noted("without the requestState");
}

#[test]
fn other_parameters_are_judged_too() {
    let wrong = [
        ("tools/call", json!({"name": 1})),
        ("tools/call", json!({"name": "echo", "arguments": []})),
        ("prompts/get", json!({"name": "greet", "arguments": {"name": 1}})),
        ("resources/read", json!({})),
        ("tools/list", json!({"cursor": 1})),
        ("tools/list", json!({"cursor": "after-3"})),
        ("completion/complete", json!({"ref": {"type": "ref/prompt"}})),
    ];
    for version in Version::ALL {
        for (method, params) in wrong.clone() {
            let mut talk = Talk::ready(version);
            let effects = talk.ask(1, method, params);
            assert_eq!(sent(&effects)[0]["error"]["code"], -32602);
            talk.noted(&format!("{method} with"));
        }
    }
    let mut talk = Talk::ready(Version::June2025);
    talk.ask(1, "logging/setLevel", json!({"level": "loud"}));
    talk.noted("logging/setLevel with");
    let mut talk = Talk::ready(Version::June2025);
    talk.ask(1, "resources/unsubscribe", json!({"uri": "peer://text"}));
    talk.noted("was not subscribed to");
    let mut talk = Talk::ready(Version::June2025);
    talk.say(&json!({"jsonrpc": "2.0", "method": "notifications/roots/list_changed"}));
    talk.noted("listChanged was not declared");
    let mut talk = Talk::ready(Version::July2026);
    talk.ask(1, "subscriptions/listen", json!({"notifications": {"taskIds": []}}));
    talk.noted("taskIds of a client that did not declare tasks");
}

#[test]
fn misbehaviour_is_as_asked() {
    let talk = |one: &str| {
        let mut talk = Talk::with(Version::November2025, Transport::Stdio, &[one]);
        talk.initialize();
        talk
    };
    let effects = talk("answer-twice").call(1, "count", &json!({}));
    assert_eq!(sent(&effects).len(), 2);
    let effects = talk("wrong-id").call(1, "count", &json!({}));
    assert_ne!(sent(&effects)[0]["id"], 1);
    let effects = talk("garbage").call(1, "count", &json!({}));
    assert!(matches!(&effects[0], Effect::Write(3, text) if serde_json::from_str::<Value>(text).is_err()));
    let effects = talk("long-line=5000").call(1, "count", &json!({}));
    assert!(sent(&effects)[0].to_string().len() > 5000);
    assert_eq!(talk("silent").call(1, "count", &json!({})), []);

    let mut flooding = talk("flood");
    assert_eq!(flooding.script.flood(None), None);
    flooding.call(1, "wait", &json!({}));
    assert!(flooding.script.flood(None).is_some() && flooding.script.flood(Some(1)).is_none());

    let mut exiting = Talk::with(Version::November2025, Transport::Stdio, &["exit-on-discover"]);
    assert_eq!(exiting.ask(1, PROBE, json!({})), [Effect::Exit(None, 1)]);
    let mut refusing = Talk::with(Version::November2025, Transport::Stdio, &["refuse-initialize"]);
    let effects = refusing.ask(1, "initialize", introduction());
    assert_eq!(sent(&effects)[0]["error"]["code"], -32602);

    let mut many =
        Talk::with(Version::July2026, Transport::Stdio, &["tools=30", "schema-bytes=999", "paginate=40"]);
    let effects = many.ask(1, "tools/list", json!({}));
    let first = &sent(&effects)[0]["result"];
    assert_eq!(first["tools"].as_array().unwrap().len(), 40);
    let effects = many.ask(2, "tools/list", json!({"cursor": first["nextCursor"]}));
    let last = sent(&effects)[0]["result"]["tools"].as_array().unwrap();
    assert!(last[0].to_string().len() > 999, "{}", last[0]);
    assert_eq!(last.last().unwrap()["name"], "breaches");
    assert!("tools".parse::<Misbehaviour>().is_err() && "tools=x".parse::<Misbehaviour>().is_err());
}
