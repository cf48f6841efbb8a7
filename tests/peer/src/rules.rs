//! What a message of a client must look like in each version, whoever answers it and whatever came before.
//!
//! Every function returns what is wrong, one sentence each. The order of messages is the script's to judge.

use serde_json::Value;

use crate::Version;

/// The prefix of what the protocol itself puts into `_meta`.
pub(crate) const PREFIX: &str = "io.modelcontextprotocol/";

/// The log levels, least severe first.
pub(crate) const LEVELS: [&str; 8] =
    ["debug", "info", "notice", "warning", "error", "critical", "alert", "emergency"];

/// What every message has to have.
pub(crate) fn message(message: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if message["jsonrpc"] != "2.0" {
        wrong.push(format!("jsonrpc is {}", message["jsonrpc"]));
    }
    if message.get("id").is_some_and(|id| !is_id(id)) {
        wrong.push(format!("the id {} is neither a string nor an integer", message["id"]));
    }
    match (message.get("method"), message.get("result"), message.get("error")) {
        (Some(Value::String(_)), None, None) => {
            if message.get("params").is_some_and(|params| !params.is_object()) {
                wrong.push(format!("{} with params {}", message["method"], message["params"]));
            }
        }
        (None, Some(result), None) if !result.is_object() => wrong.push(format!("the result {result}")),
        (None, None, Some(error)) if !error["code"].is_i64() || !error["message"].is_string() => {
            wrong.push(format!("the error {error}"));
        }
        (None, Some(_), None) | (None, None, Some(_)) => {}
        _ => wrong.push(format!("{message} is neither request, notification nor response")),
    }
    wrong
}

/// What `initialize` has to say about the client. Capabilities are those of the version it asks for: which one it gets,
/// it cannot know yet.
pub(crate) fn initialize(params: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let asked = params["protocolVersion"].as_str().and_then(Version::from_name);
    match asked {
        Some(version) if !version.is_modern() => wrong.extend(capabilities(version, &params["capabilities"])),
        _ => wrong.push(format!("initialize asks for the version {}", params["protocolVersion"])),
    }
    wrong.extend(implementation(&params["clientInfo"]));
    wrong
}

/// What the `_meta` of a modern request has to say.
pub(crate) fn envelope(meta: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if !meta[format!("{PREFIX}protocolVersion")].is_string() {
        wrong.push(format!("{PREFIX}protocolVersion is missing"));
    }
    match meta.get(format!("{PREFIX}clientCapabilities")) {
        Some(declared) => wrong.extend(capabilities(Version::July2026, declared)),
        None => wrong.push(format!("{PREFIX}clientCapabilities is missing")),
    }
    if let Some(info) = meta.get(format!("{PREFIX}clientInfo")) {
        wrong.extend(implementation(info));
    }
    if let Some(level) = meta.get(format!("{PREFIX}logLevel"))
        && !is_level(level)
    {
        wrong.push(format!("{PREFIX}logLevel is {level}"));
    }
    let known = ["protocolVersion", "clientCapabilities", "clientInfo", "logLevel"];
    let ours = meta.as_object().into_iter().flatten().filter_map(|(name, _)| name.strip_prefix(PREFIX));
    wrong
        .extend(ours.filter(|name| !known.contains(name)).map(|name| format!("{PREFIX}{name} in a request")));
    wrong
}

/// What `params` must not have in this version, because only others have it.
pub(crate) fn foreign(version: Version, method: &str, params: &Value) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    if version.is_modern() {
        let resumable = ["tools/call", "prompts/get", "resources/read"].contains(&method);
        let answers = resumable || method == "tasks/update";
        names.extend((!answers).then(|| "inputResponses".to_owned()));
        names.extend((!resumable).then(|| "requestState".to_owned()));
    } else {
        names.extend(["inputResponses", "requestState"].map(str::to_owned));
        let modern = ["protocolVersion", "clientCapabilities", "clientInfo", "logLevel", "subscriptionId"];
        let found = modern.iter().filter(|name| params["_meta"].get(format!("{PREFIX}{name}")).is_some());
        names.extend(found.map(|name| format!("_meta {PREFIX}{name}")));
    }
    // Nobody asks for a task by a parameter: this server never declares those.
    names.push("task".to_owned());
    let sent = |name: &String| name.starts_with("_meta ") || params.get(name).is_some();
    let sent = names.into_iter().filter(sent);
    sent.map(|name| format!("{method} carries {name}, which is not for {}", version.name())).collect()
}

/// What the parameters of a request must be.
pub(crate) fn parameters(version: Version, method: &str, params: &Value) -> Vec<String> {
    let absent_or = |name: &str, right: fn(&Value) -> bool| params.get(name).is_none_or(right);
    let right = match method {
        "tools/call" => params["name"].is_string() && absent_or("arguments", Value::is_object),
        "prompts/get" => params["name"].is_string() && absent_or("arguments", is_map_of_strings),
        "resources/read" | "resources/subscribe" | "resources/unsubscribe" => params["uri"].is_string(),
        "logging/setLevel" => is_level(&params["level"]),
        "completion/complete" => is_completion(params),
        "tasks/get" | "tasks/cancel" => params["taskId"].is_string(),
        "tasks/update" => params["taskId"].is_string() && params["inputResponses"].is_object(),
        "subscriptions/listen" => is_filter(&params["notifications"]),
        "tools/list" | "prompts/list" | "resources/list" | "resources/templates/list" => {
            absent_or("cursor", Value::is_string)
        }
        _ => true,
    };
    let token_right = params["_meta"].get("progressToken").is_none_or(is_id);
    let resumed_right =
        absent_or("requestState", Value::is_string) && absent_or("inputResponses", Value::is_object);
    let mut wrong = Vec::new();
    if !right || (version.is_modern() && !resumed_right) {
        wrong.push(format!("{method} with params {params}"));
    }
    if !token_right {
        wrong.push(format!("the progress token {}", params["_meta"]["progressToken"]));
    }
    wrong
}

/// The place of a level among the others.
pub(crate) fn severity(level: &Value) -> Option<usize> {
    LEVELS.iter().position(|name| level == name)
}

fn capabilities(version: Version, declared: &Value) -> Vec<String> {
    let Some(declared) = declared.as_object() else {
        return vec![format!("the client's capabilities are {declared}")];
    };
    let mut known = vec!["experimental", "roots", "sampling"];
    if version.has_elicitation() {
        known.push("elicitation");
    }
    match version {
        Version::November2025 => known.push("tasks"),
        Version::July2026 => known.push("extensions"),
        _ => {}
    }
    let mut wrong = Vec::new();
    for (name, value) in declared {
        if !known.contains(&name.as_str()) {
            wrong.push(format!("the capability {name} does not exist in {}", version.name()));
        } else if !value.is_object() {
            wrong.push(format!("the capability {name} is {value}"));
        }
    }
    wrong
}

fn implementation(info: &Value) -> Option<String> {
    let right = info["name"].is_string() && info["version"].is_string();
    (!right).then(|| format!("clientInfo is {info}"))
}

fn is_id(value: &Value) -> bool {
    value.is_string() || value.is_i64() || value.is_u64()
}

fn is_level(value: &Value) -> bool {
    severity(value).is_some()
}

fn is_map_of_strings(value: &Value) -> bool {
    value.as_object().is_some_and(|map| map.values().all(Value::is_string))
}

fn is_completion(params: &Value) -> bool {
    let reference = &params["ref"];
    let known = match reference["type"].as_str() {
        Some("ref/prompt") => reference["name"].is_string(),
        Some("ref/resource") => reference["uri"].is_string(),
        _ => false,
    };
    known && params["argument"]["name"].is_string() && params["argument"]["value"].is_string()
}

fn is_filter(filter: &Value) -> bool {
    filter.as_object().is_some_and(|filter| {
        filter.iter().all(|(name, value)| match name.as_str() {
            "toolsListChanged" | "promptsListChanged" | "resourcesListChanged" => value.is_boolean(),
            "resourceSubscriptions" | "taskIds" => {
                value.as_array().is_some_and(|uris| uris.iter().all(Value::is_string))
            }
            _ => false,
        })
    })
}
