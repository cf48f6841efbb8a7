//! How requests to a server and its results look in each era. Pure.
//!
//! A legacy server gets what the client wrote, without the envelope of the modern era; a modern one gets ours around it.
//! What comes back loses what belongs to one era only, which the client's side of the gateway adds again as the client
//! wants it.

use std::{sync::LazyLock, time::Duration};

use moongate_core::{Level, Reply, call::Freshness};
use moongate_wire::{
    Era, Raw, Version, edit,
    write::{self, Fragment},
};
use serde::Deserialize;
use serde_json::json;

/// Keys of the protocol in `_meta`.
const PROTOCOL: &str = "io.modelcontextprotocol/";
const PROTOCOL_VERSION: &str = "io.modelcontextprotocol/protocolVersion";
const CLIENT_INFO: &str = "io.modelcontextprotocol/clientInfo";
const CLIENT_CAPABILITIES: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL: &str = "io.modelcontextprotocol/logLevel";
const SERVER_INFO: &str = "io.modelcontextprotocol/serverInfo";
const PROGRESS_TOKEN: &str = "progressToken";

/// What our own part of an envelope takes, beside what clients put into it.
const ROOM: usize = 320;

/// Who we say we are.
pub(crate) static OUR_INFO: LazyLock<Raw> = LazyLock::new(|| {
    Raw::of(&json!({"name": "moongate", "title": "Moongate", "version": env!("CARGO_PKG_VERSION")}))
});

/// What a request carries beside its own parameters.
#[derive(Clone, Debug, Default)]
pub(crate) struct Envelope<'a> {
    /// The client's `_meta`, which is passed on but for what the protocol says in it.
    pub(crate) meta: Option<&'a Raw>,
    /// Our token, where the client wants to hear of progress.
    pub(crate) progress: Option<i64>,
    /// What the client can do; for modern servers.
    pub(crate) capabilities: Option<&'a Raw>,
    /// The level the client wants; for modern servers.
    pub(crate) log_level: Option<Level>,
}

/// What every request to a modern server says of us, from our name to where the client's abilities follow.
static OURSELVES: LazyLock<String> =
    LazyLock::new(|| format!(r#","{CLIENT_INFO}":{},"{CLIENT_CAPABILITIES}":"#, OUR_INFO.as_str()));

/// The parameters of a request, without `_meta`.
#[derive(Clone, Debug)]
pub(crate) enum Params<'a> {
    /// An object.
    Whole(Raw),
    /// `name` and `arguments`: most calls have no others, and are written once, with all that is around them.
    Named { name: &'a str, arguments: &'a Raw },
}

impl<'a> Params<'a> {
    /// The same and `members`, which are none of theirs.
    pub(crate) fn with(&self, members: &[(&str, Raw)]) -> Params<'a> {
        Params::Whole(match self {
            Self::Whole(object) => write::with_members(object, members),
            Self::Named { name, arguments } => write::with_members(&write::named(name, arguments), members),
        })
    }

    fn len(&self) -> usize {
        match self {
            Self::Whole(object) => object.len(),
            Self::Named { name, arguments } => name.len() + arguments.len() + 24,
        }
    }
}

impl Envelope<'_> {
    /// The request `id` of `method` as a server of `version` wants it.
    pub(crate) fn request(&self, id: i64, method: &str, params: &Params<'_>, version: Version) -> Raw {
        let room =
            self.meta.map_or(0, Raw::len) + self.capabilities.map_or(0, Raw::len) + params.len() + ROOM;
        write::request_written(&id.into(), method, room, |out| {
            let has_meta = self.write_meta(version, out);
            match params {
                Params::Whole(object) if has_meta => out.rest_of(object),
                Params::Whole(object) => out.raw(object.as_bytes()),
                Params::Named { name, arguments } => {
                    out.raw(if has_meta { "," } else { "{" }).raw(r#""name":"#).string(name);
                    out.raw(r#","arguments":"#).raw(arguments.as_bytes()).raw("}")
                }
            };
        })
    }

    /// Writes the beginning of `params` up to the end of `_meta`, if there is anything to say in it.
    fn write_meta(&self, version: Version, out: &mut Fragment) -> bool {
        let modern = version.era() == Era::Modern;
        let own = self.meta.filter(|meta| meta.names().any(|name| is_passed_on(&name)));
        if !modern && own.is_none() && self.progress.is_none() {
            return false;
        }
        out.raw(r#"{"_meta":"#);
        let mut before = "{";
        if modern {
            out.raw("{\"").raw(PROTOCOL_VERSION).raw("\":\"").raw(version.as_str()).raw("\"");
            out.raw(&*OURSELVES).raw(self.capabilities.map_or(&b"{}"[..], Raw::as_bytes));
            if let Some(level) = self.log_level {
                out.raw(",\"").raw(LOG_LEVEL).raw("\":").value(&level);
            }
            before = ",";
        }
        if let Some(token) = self.progress {
            out.raw(before).raw("\"").raw(PROGRESS_TOKEN).raw("\":").value(&token);
            before = ",";
        }
        match own.map(|meta| edit::remove(meta, |name, _| !is_passed_on(name))) {
            Some(own) => out.raw(before).raw(own.as_bytes().get(1..).unwrap_or_default()),
            None => out.raw("}"),
        };
        true
    }
}

/// Whether a client's `_meta` says this to the server, as trace context and extensions do, and not to the gateway.
fn is_passed_on(name: &str) -> bool {
    !name.starts_with(PROTOCOL) && name != PROGRESS_TOKEN
}

fn is_empty(object: &Raw) -> bool {
    object.names().next().is_none()
}

/// What a modern result is.
#[derive(Debug)]
pub(crate) enum Shape {
    /// The answer.
    Complete(Reply),
    /// The server wants to know more first.
    InputRequired {
        /// Questions by key; none in a round that only carries state.
        questions: Vec<(String, Question)>,
        /// To be sent back as it is.
        state: Option<Raw>,
    },
    /// The server has made a task that will have the answer; this describes it, as the server wrote it.
    Task(Raw),
    /// Nothing we asked for.
    Unknown(String),
}

/// One question of an `input_required`.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Question {
    pub(crate) method: String,
    #[serde(default)]
    pub(crate) params: Option<Raw>,
}

/// What a modern result asks for.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Asking {
    request_state: Option<Raw>,
    input_requests: Option<Raw>,
}

/// Reads a result of a server of `version`.
pub(crate) fn read(result: &Raw, version: Version) -> Shape {
    if version.era() == Era::Legacy {
        return Shape::Complete(result.clone().into());
    }
    if !result.is_object() {
        return Shape::Unknown("no object".to_owned());
    }
    let (mut kind, mut ttl, mut public) = (None, None, false);
    let (mut has_meta, mut mixed) = (false, false);
    // One walk: results are read with every call.
    let plain = edit::remove(result, |name, value| match name {
        "resultType" => {
            kind = value.text();
            true
        }
        "ttlMs" => {
            ttl = value.number();
            true
        }
        "cacheScope" => {
            public = value.text().as_deref() == Some("public");
            true
        }
        "_meta" => {
            let named = value.names().any(|name| name == SERVER_INFO);
            mixed = named && value.names().any(|name| name != SERVER_INFO);
            has_meta |= !named || mixed;
            named && !mixed
        }
        _ => false,
    });
    match kind.as_deref() {
        // Servers written before the result type was settled leave it out.
        None | Some("complete") => {
            let plain = if mixed { without_server_info(&plain) } else { plain };
            let freshness = ttl.map(|ttl| Freshness {
                ttl: Duration::try_from_secs_f64(ttl / 1000.0).unwrap_or(Duration::ZERO),
                public,
            });
            Shape::Complete(Reply { freshness, may_have_meta: has_meta, ..plain.into() })
        }
        Some("task") => Shape::Task(result.clone()),
        Some("input_required") => asking(result),
        Some(other) => Shape::Unknown(other.to_owned()),
    }
}

/// What a modern server says of a task, without what belongs to the message it came in.
pub(crate) fn task(said: &Raw) -> Raw {
    edit::members(said, |name, value| match name {
        "resultType" => edit::Edit::Drop,
        "result" => edit::Edit::Replace(plain(value)),
        "_meta" => rest(value, edit::remove(value, |name, _| !is_passed_on(name))),
        _ => edit::Edit::Keep,
    })
}

fn asking(result: &Raw) -> Shape {
    let unreadable = || Shape::Unknown("input_required without a readable question".to_owned());
    let Ok(asking) = result.parse::<Asking>() else { return unreadable() };
    let questions = asking.input_requests.as_ref().map(Raw::members).unwrap_or_default();
    let read = |(key, question): (String, Raw)| Some((key, question.parse().ok()?));
    let count = questions.len();
    let questions: Vec<_> = questions.into_iter().filter_map(read).collect();
    if questions.len() < count || (count == 0 && asking.request_state.is_none()) {
        return unreadable();
    }
    Shape::InputRequired { questions, state: asking.request_state }
}

/// A complete result without what belongs to the modern era only.
pub(crate) fn plain(result: &Raw) -> Raw {
    let plain = edit::remove(result, |name, _| matches!(name, "resultType" | "ttlMs" | "cacheScope"));
    without_server_info(&plain)
}

/// `result` without its server's name in `_meta`, which the client hears from us.
fn without_server_info(result: &Raw) -> Raw {
    edit::members(result, |name, value| match name {
        "_meta" => rest(value, edit::remove(value, |key, _| key == SERVER_INFO)),
        _ => edit::Edit::Keep,
    })
}

/// Leaves of an object what is left, and nothing where nothing is.
fn rest(object: &Raw, left: Raw) -> edit::Edit {
    if left == *object {
        edit::Edit::Keep
    } else if is_empty(&left) {
        edit::Edit::Drop
    } else {
        edit::Edit::Replace(left)
    }
}

/// One page of a list.
#[derive(Debug)]
pub(crate) struct Paged {
    /// Its entries, as the server wrote them.
    pub(crate) entries: Vec<Raw>,
    /// Where the next page begins.
    pub(crate) next: Option<String>,
}

impl Paged {
    /// Reads the page in `result` under `member`. What is not there is empty.
    pub(crate) fn read(result: &Raw, member: &str) -> Self {
        let entries = result.member(member).and_then(|entries| entries.parse().ok()).unwrap_or_default();
        let next = result.member("nextCursor").and_then(|cursor| cursor.parse().ok());
        Self { entries, next }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    /// The parameters that a server gets.
    fn wrapped(envelope: &Envelope<'_>, version: Version) -> Value {
        let (whole, arguments) = (Raw::of(&json!({"name": "x", "arguments": {}})), Raw::empty_object());
        let ways = [Params::Whole(whole), Params::Named { name: "x", arguments: &arguments }];
        let [one, two] =
            ways.map(|params| envelope.request(3, "tools/call", &params, version).parse::<Value>().unwrap());
        assert_eq!(one, two);
        assert_eq!(
            (&one["jsonrpc"], &one["id"], &one["method"]),
            (&json!("2.0"), &json!(3), &json!("tools/call"))
        );
        one["params"].clone()
    }

    #[test]
    fn a_legacy_server_gets_no_envelope_and_a_modern_one_gets_ours() {
        let meta = Raw::of(&json!({
            "progressToken": "theirs", "traceparent": "00-1-2-01", "io.modelcontextprotocol/protocolVersion": "x",
            "io.modelcontextprotocol/logLevel": "debug", "com.example/y": 1,
        }));
        let capabilities = Raw::of(&json!({"sampling": {}}));
        let envelope = Envelope {
            meta: Some(&meta),
            progress: Some(7),
            capabilities: Some(&capabilities),
            log_level: Some(Level::Info),
        };
        assert_eq!(
            wrapped(&envelope, Version::V2025_06_18),
            json!({
                "name": "x", "arguments": {},
                "_meta": {"progressToken": 7, "traceparent": "00-1-2-01", "com.example/y": 1},
            })
        );
        let modern = wrapped(&envelope, Version::V2026_07_28);
        assert_eq!(modern["_meta"][PROTOCOL_VERSION], "2026-07-28");
        assert_eq!(modern["_meta"][CLIENT_INFO]["name"], "moongate");
        assert_eq!(modern["_meta"][CLIENT_CAPABILITIES], json!({"sampling": {}}));
        assert_eq!(modern["_meta"][LOG_LEVEL], "info");
        assert_eq!(
            (&modern["_meta"]["progressToken"], &modern["_meta"]["traceparent"]),
            (&json!(7), &json!("00-1-2-01"))
        );
    }

    #[test]
    fn a_plain_legacy_call_has_its_own_parameters_only() {
        let nothing = Raw::of(&json!({"progressToken": 1}));
        let envelope = Envelope { meta: Some(&nothing), ..Envelope::default() };
        assert_eq!(wrapped(&envelope, Version::V2024_11_05), json!({"name": "x", "arguments": {}}));
    }

    #[test]
    fn parameters_of_a_later_round_are_those_of_the_first_and_what_was_added() {
        let (arguments, added) = (Raw::of(&json!({"a": 1})), [("requestState", Raw::of("s"))]);
        let named = Params::Named { name: "x", arguments: &arguments };
        let whole = Params::Whole(Raw::of(&json!({"name": "x", "arguments": {"a": 1}})));
        for params in [named, whole] {
            let request =
                Envelope::default().request(1, "tools/call", &params.with(&added), Version::V2025_11_25);
            let expected = json!({"requestState": "s", "name": "x", "arguments": {"a": 1}});
            assert_eq!(request.parse::<Value>().unwrap()["params"], expected);
        }
    }

    #[test]
    fn a_modern_result_loses_what_only_its_era_has() {
        let result = json!({
            "resultType": "complete", "ttlMs": 1500, "cacheScope": "public", "contents": [],
            "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "s"}},
        });
        let Shape::Complete(reply) = read(&Raw::of(&result), Version::V2026_07_28) else { panic!() };
        assert!(!reply.may_have_meta);
        assert_eq!(reply.result.parse::<Value>().unwrap(), json!({"contents": []}));
        assert_eq!(reply.freshness, Some(Freshness { ttl: Duration::from_millis(1500), public: true }));
        let own = Raw::of(&json!({"_meta": {"x": 1}, "content": []}));
        let Shape::Complete(reply) = read(&own, Version::V2026_07_28) else { panic!() };
        assert!(reply.may_have_meta);
        assert_eq!(reply.result, own);
        assert_eq!(reply.freshness, None);
    }

    #[test]
    fn a_task_keeps_its_own_time_to_live_and_its_result_is_plain() {
        let said = json!({
            "resultType": "complete", "taskId": "1", "status": "completed", "ttlMs": 5,
            "result": {"resultType": "complete", "content": [], "_meta": {"io.modelcontextprotocol/serverInfo": {}}},
            "_meta": {"io.modelcontextprotocol/subscriptionId": 7, "com.example/x": 1},
        });
        let expected = json!({
            "taskId": "1", "status": "completed", "ttlMs": 5, "result": {"content": []}, "_meta": {"com.example/x": 1},
        });
        assert_eq!(task(&Raw::of(&said)).parse::<Value>().unwrap(), expected);
    }

    #[test]
    fn questions_are_read_and_what_is_neither_answer_nor_question_is_named() {
        let ask = json!({
            "resultType": "input_required", "requestState": "s",
            "inputRequests": {"a": {"method": "roots/list"}, "b": {"method": "elicitation/create", "params": {"message": "?"}}},
        });
        let Shape::InputRequired { questions, state } = read(&Raw::of(&ask), Version::V2026_07_28) else {
            panic!()
        };
        let methods: Vec<_> = questions.iter().map(|(key, it)| (key.as_str(), it.method.as_str())).collect();
        assert_eq!(methods, [("a", "roots/list"), ("b", "elicitation/create")]);
        assert_eq!(state, Some(Raw::of("s")));
        for bad in [
            json!({"resultType": "incomplete", "taskId": "1"}),
            json!({"resultType": "input_required"}),
            json!({"resultType": "input_required", "inputRequests": {"a": 1}}),
            json!([]),
        ] {
            assert!(matches!(read(&Raw::of(&bad), Version::V2026_07_28), Shape::Unknown(_)), "{bad}");
        }
        let task = json!({"resultType": "task", "taskId": "1"});
        assert!(matches!(read(&Raw::of(&task), Version::V2026_07_28), Shape::Task(_)));
        let legacy = read(&Raw::of(&ask), Version::V2025_11_25);
        assert!(matches!(legacy, Shape::Complete(_)), "a legacy server may call a member so");
    }
}
