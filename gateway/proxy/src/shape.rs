//! Results and errors as the client's version wants them.
//!
//! Backends answer in the plain form; here it gets what one era requires and another does not know. Kinds of errors
//! become codes and statuses in one function, by a match without a wildcard.

use std::{sync::LazyLock, time::Duration};

use bytes::Bytes;
use moongate_core::{CallError, Kind, Reply, Scope, TASKS, call::Freshness};
use moongate_wire::{
    Era, Id, Method, Raw, Refusal, RpcError, Version, code, edit,
    write::{self, NoId},
};
use serde_json::json;

use crate::job::Outcome;

/// Who we are, for `initialize` and for `_meta` of modern results.
pub static SERVER_INFO: LazyLock<Raw> = LazyLock::new(|| {
    Raw::of(&json!({"name": "moongate", "title": "Moongate", "version": env!("CARGO_PKG_VERSION")}))
});

/// The `_meta` of a modern result that has none of its own.
static MODERN_META: LazyLock<Raw> = LazyLock::new(|| write::object([(SERVER_INFO_KEY, &*SERVER_INFO)]));

/// `"complete"`
static COMPLETE: LazyLock<Raw> = LazyLock::new(|| Raw::of("complete"));

/// `"task"`
static TASK: LazyLock<Raw> = LazyLock::new(|| Raw::of("task"));

/// What most modern results begin with.
static USUAL: LazyLock<[(&str, Raw); 2]> =
    LazyLock::new(|| [("resultType", COMPLETE.clone()), ("_meta", MODERN_META.clone())]);

const SERVER_INFO_KEY: &str = "io.modelcontextprotocol/serverInfo";

/// What a client is told it can use; never waits for an upstream.
pub static CAPABILITIES: LazyLock<Raw> = LazyLock::new(|| {
    Raw::of(&json!({
        "tools": {"listChanged": true},
        "prompts": {"listChanged": true},
        "resources": {"subscribe": true, "listChanged": true},
        "completions": {},
        "logging": {},
    }))
});

/// The same where some upstream makes tasks for clients that know them.
pub static CAPABILITIES_AND_TASKS: LazyLock<Raw> =
    LazyLock::new(|| write::with_members(&CAPABILITIES, &[("extensions", Raw::of(&json!({TASKS: {}})))]));

/// The message that answers `id` with a result, as `version` wants it.
pub fn message(id: &Id, method: Method, reply: &Reply, version: Version) -> Raw {
    shaped(method, reply, version, |result, members| write::result_with(id, result, members))
}

/// The same in pieces, so that a large result is not copied.
pub fn pieces(id: &Id, method: Method, reply: &Reply, version: Version) -> [Bytes; 3] {
    shaped(method, reply, version, |result, members| write::result_pieces(id, result, members))
}

/// A result that stands inside another one, as `version` wants it.
pub fn inner(method: Method, reply: &Reply, version: Version) -> Raw {
    shaped(method, reply, version, write::with_members)
}

/// What `write` makes of a result and of what `version` puts before it.
fn shaped<T>(
    method: Method,
    reply: &Reply,
    version: Version,
    write: impl FnOnce(&Raw, &[(&str, Raw)]) -> T,
) -> T {
    if version.era() == Era::Legacy {
        return write(&reply.result, &[]);
    }
    let of_extension = reply.result_type.as_ref();
    if !reply.may_have_meta && !method.is_cacheable() && of_extension.is_none() {
        return write(&reply.result, &*USUAL);
    }
    let own = if reply.task.is_some() { &*TASK } else { &*COMPLETE };
    let mut members = vec![("resultType", of_extension.unwrap_or(own).clone())];
    // What another kind of result says of its life is its own.
    if method.is_cacheable() && of_extension.is_none() {
        let Freshness { ttl, public } = reply.freshness.unwrap_or(Freshness::NONE);
        members.push(("ttlMs", Raw::of(&u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX))));
        members.push(("cacheScope", Raw::of(if public { "public" } else { "private" })));
    }
    if reply.may_have_meta {
        return write(&without_meta(&reply.result, &mut members), &members);
    }
    members.push(("_meta", MODERN_META.clone()));
    write(&reply.result, &members)
}

/// An `input_required` result, which carries its own `resultType`.
pub fn input_required(result: &Raw) -> Raw {
    let mut members = Vec::new();
    write::with_members(&without_meta(result, &mut members), &members)
}

/// Puts our `_meta` among `members`, and with it what a result's own says; the rest of the result.
fn without_meta(result: &Raw, members: &mut Vec<(&'static str, Raw)>) -> Raw {
    // Most results have none, which a look for its name tells soonest.
    let own = result.may_name("_meta").then(|| result.member("_meta")).flatten();
    let meta = match own.as_ref().filter(|own| own.is_object()) {
        // A backend that is a modern server itself says who it is; the client talks to us.
        Some(own) => {
            let others = edit::remove(own, |key, _| key == SERVER_INFO_KEY);
            write::with_members(&others, &[(SERVER_INFO_KEY, SERVER_INFO.clone())])
        }
        None => MODERN_META.clone(),
    };
    members.push(("_meta", meta));
    if own.is_some() { edit::remove(result, |key, _| key == "_meta") } else { result.clone() }
}

/// What a failed call is answered with.
#[derive(Clone, Debug)]
pub enum Failed {
    /// A JSON-RPC error; the status counts only while no head was sent.
    Error(Refusal),
    /// A scope is missing: 403 with a challenge.
    NeedsScope(Scope, RpcError),
    /// A limit was reached: 429 with the time to wait.
    Limited(Duration, RpcError),
    /// A tool result with `isError`.
    ToolResult(Raw),
}

/// A failed call, as `version` wants it.
pub fn error(method: Method, error: &CallError, version: Version) -> Failed {
    let modern = version.era() == Era::Modern;
    let plain = |code: i64| Failed::Error(Refusal::new(200, code, error.public.clone()));
    match &error.kind {
        Kind::Unknown | Kind::InvalidParams => plain(code::INVALID_PARAMS),
        Kind::UnknownResource { uri } => {
            let code = if modern { code::INVALID_PARAMS } else { code::RESOURCE_NOT_FOUND };
            let error = RpcError::new(code, error.public.clone()).with_data(json!({"uri": uri}));
            Failed::Error(Refusal { status: 200, error })
        }
        Kind::Unsupported => {
            let status = if modern { 404 } else { 200 };
            Failed::Error(Refusal::new(status, code::METHOD_NOT_FOUND, error.public.clone()))
        }
        Kind::MissingCapability { required } if modern => {
            let data = write::object([("requiredCapabilities", required)]);
            let error = RpcError::new(code::MISSING_CAPABILITY, error.public.clone()).with_data(data);
            Failed::Error(Refusal { status: 400, error })
        }
        Kind::MissingCapability { .. } if method == Method::CallTool => {
            Failed::ToolResult(tool_error(&error.public))
        }
        Kind::MissingScope { scope } => {
            let error = if modern {
                RpcError::new(code::INVALID_PARAMS, error.public.clone())
                    .with_data(json!({"requiredScope": scope}))
            } else {
                RpcError::new(code::FORBIDDEN, error.public.clone())
            };
            Failed::NeedsScope(scope.clone(), error)
        }
        Kind::Limited { retry_after } => {
            // The modern specification closed the old server range to new uses.
            let code = if modern { code::INVALID_REQUEST } else { code::SERVER };
            Failed::Limited(*retry_after, RpcError::new(code, error.public.clone()))
        }
        Kind::Rpc { error } => {
            let status = if error.code == code::HEADER_MISMATCH { 400 } else { 200 };
            Failed::Error(Refusal { status, error: passed_on(error, modern) })
        }
        Kind::MissingCapability { .. }
        | Kind::Timeout
        | Kind::Cancelled
        | Kind::Unavailable
        | Kind::Internal => plain(code::INTERNAL),
    }
}

/// A backend's own error; codes that the modern specification forbids to emit become -32603 with the original as data.
fn passed_on(error: &RpcError, modern: bool) -> RpcError {
    if modern && (-32019..=-32000).contains(&error.code) {
        return RpcError::new(code::INTERNAL, error.message.clone()).with_data(json!({"original": error}));
    }
    error.clone()
}

/// `{"content":[{"type":"text",…}],"isError":true}`
pub fn tool_error(message: &str) -> Raw {
    Raw::of(&json!({"content": [{"type": "text", "text": message}], "isError": true}))
}

/// The last message of a call whose head was sent already.
pub fn final_message(id: &Id, method: Method, outcome: Outcome, version: Version) -> Raw {
    match outcome {
        Ok(reply) => message(id, method, &reply, version),
        Err(failed) => match error(method, &failed, version) {
            Failed::Error(Refusal { error, .. })
            | Failed::NeedsScope(_, error)
            | Failed::Limited(_, error) => write::error(Some(id), NoId::Omit, &error),
            Failed::ToolResult(result) => message(id, method, &result.into(), version),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    #[test]
    fn a_result_of_an_extension_keeps_its_kind_and_says_nothing_else_of_itself() {
        for method in [Method::CallTool, Method::ReadResource] {
            let said = Raw::of(&json!({"ttlMs": "own", "_meta": {"a": 1}}));
            let reply = Reply { result_type: Some(Raw::of("x/later")), ..said.into() };
            let written =
                message(&Id::from(1), method, &reply, Version::V2026_07_28).member("result").unwrap();
            let written: Value = written.parse().unwrap();
            assert_eq!((&written["resultType"], &written["ttlMs"]), (&json!("x/later"), &json!("own")));
            assert_eq!((written.get("cacheScope"), &written["_meta"]["a"]), (None, &json!(1)));
        }
    }

    fn result(method: Method, value: &Value, version: Version) -> Raw {
        let message = message(&Id::from(1), method, &Raw::of(value).into(), version);
        message.member("result").unwrap()
    }

    #[test]
    fn a_legacy_result_stays_as_it_is() {
        let plain = json!({"content": []});
        assert_eq!(result(Method::CallTool, &plain, Version::V2025_11_25), Raw::of(&plain));
    }

    #[test]
    fn a_result_known_to_have_no_meta_is_shaped_like_one_that_was_looked_through() {
        for method in [Method::CallTool, Method::ReadResource, Method::ListTools] {
            let looked_through = Reply::from(Raw::of(&json!({"content": [], "isError": false})));
            let known = Reply { may_have_meta: false, ..looked_through.clone() };
            let shaped = |reply: &Reply| message(&Id::from(1), method, reply, Version::V2026_07_28);
            assert_eq!(shaped(&known), shaped(&looked_through), "{method:?}");
        }
    }

    #[test]
    fn a_message_in_pieces_is_the_same_message() {
        let plain = Reply::from(Raw::of(&json!({"tools": [], "nextCursor": "x"})));
        let known = Reply { may_have_meta: false, ..plain.clone() };
        let own = Reply::from(Raw::of(&json!({"contents": [], "_meta": {"x": 1}})));
        for reply in [&plain, &known, &own] {
            for method in [Method::CallTool, Method::ListTools] {
                for version in [Version::V2025_11_25, Version::V2026_07_28] {
                    let whole = message(&Id::from(1), method, reply, version);
                    assert_eq!(pieces(&Id::from(1), method, reply, version).concat(), whole.as_bytes());
                }
            }
        }
    }

    #[test]
    fn a_modern_result_has_type_and_server_and_keeps_its_own_meta() {
        let shaped =
            result(Method::CallTool, &json!({"content": [], "_meta": {"x": 1}}), Version::V2026_07_28);
        let value: Value = shaped.parse().unwrap();
        assert_eq!(value["resultType"], "complete");
        assert_eq!(value["_meta"]["x"], 1);
        assert_eq!(value["_meta"][SERVER_INFO_KEY]["name"], "moongate");
        assert!(value.get("ttlMs").is_none());
        let foreign = json!({"_meta": {SERVER_INFO_KEY: {"name": "other"}, "x": 1}});
        let meta = result(Method::CallTool, &foreign, Version::V2026_07_28).member("_meta").unwrap();
        let names: Vec<String> = meta.members().into_iter().map(|(name, _)| name).collect();
        assert_eq!(names, [SERVER_INFO_KEY, "x"]);
        assert_eq!(meta.member(SERVER_INFO_KEY), Some(SERVER_INFO.clone()));
        // One `_meta`, whatever the backend made of its own.
        for own in [r#"{"_meta":null,"x":1}"#, r#"{"x":1,"\u005fmeta":7}"#] {
            let reply = Raw::from_text(own).unwrap().into();
            let shaped = message(&Id::from(1), Method::CallTool, &reply, Version::V2026_07_28);
            let members = shaped.member("result").unwrap().members();
            assert_eq!(members.iter().filter(|(key, _)| key == "_meta").count(), 1, "{own}");
            assert!(members.iter().any(|(key, _)| key == "x"), "{own}");
        }
        let read: Value =
            result(Method::ReadResource, &json!({"contents": []}), Version::V2026_07_28).parse().unwrap();
        assert_eq!((&read["ttlMs"], &read["cacheScope"]), (&json!(0), &json!("private")));
    }

    #[test]
    fn kinds_become_codes_and_statuses_by_era() {
        let legacy = Version::V2025_06_18;
        let modern = Version::V2026_07_28;
        let status_and_code =
            |kind: Kind, version| match error(Method::ReadResource, &CallError::client(kind, "m"), version) {
                Failed::Error(refusal) => (refusal.status, refusal.error.code),
                Failed::NeedsScope(_, error) => (403, error.code),
                Failed::Limited(_, error) => (429, error.code),
                Failed::ToolResult(_) => (200, 0),
            };
        let required = Raw::of(&json!({"sampling": {}}));
        for (kind, in_legacy, in_modern) in [
            (Kind::Unknown, (200, -32602), (200, -32602)),
            (Kind::UnknownResource { uri: "x".into() }, (200, -32002), (200, -32602)),
            (Kind::Unsupported, (200, -32601), (404, -32601)),
            (Kind::MissingCapability { required }, (200, -32603), (400, -32021)),
            (Kind::MissingScope { scope: Scope::write() }, (403, -32001), (403, -32602)),
            (Kind::Limited { retry_after: Duration::ZERO }, (429, -32000), (429, -32600)),
            (Kind::Rpc { error: RpcError::new(-32004, "x") }, (200, -32004), (200, -32603)),
            (Kind::Internal, (200, -32603), (200, -32603)),
        ] {
            assert_eq!(status_and_code(kind.clone(), legacy), in_legacy, "{kind:?}");
            assert_eq!(status_and_code(kind.clone(), modern), in_modern, "{kind:?}");
        }
    }

    #[test]
    fn a_legacy_tool_call_without_the_capability_is_a_tool_error() {
        let missing = CallError::missing_capability("sampling");
        let failed = error(Method::CallTool, &missing, Version::V2025_11_25);
        let Failed::ToolResult(result) = failed else { panic!("{failed:?}") };
        assert_eq!(result.parse::<Value>().unwrap()["isError"], true);
    }
}
