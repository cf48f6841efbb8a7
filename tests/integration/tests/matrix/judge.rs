//! What a server may send to a client of each version: shapes of results, errors, notifications and questions.
//!
//! Every function returns what is wrong, one sentence each. What depends on what came before (tokens, levels,
//! subscriptions) is the client's to judge.

use serde_json::Value;

use crate::version::{JUNE, MARCH, MODERN, NOVEMBER, PREFIX};

/// Methods whose results say how long they may be kept.
const CACHEABLE: [&str; 6] = [
    "server/discover",
    "tools/list",
    "prompts/list",
    "resources/list",
    "resources/templates/list",
    "resources/read",
];

/// Methods that may be answered by a question.
const RESUMABLE: [&str; 3] = ["tools/call", "prompts/get", "resources/read"];

/// Members of results that only the modern version has.
const MODERN_ONLY: [&str; 5] = ["resultType", "ttlMs", "cacheScope", "inputRequests", "requestState"];

/// Each notification of a server with the first and the last version that has it.
const NOTIFICATIONS: [(&str, &str, &str); 8] = [
    ("notifications/cancelled", "", MODERN),
    ("notifications/progress", "", MODERN),
    ("notifications/message", "", MODERN),
    ("notifications/tools/list_changed", "", MODERN),
    ("notifications/prompts/list_changed", "", MODERN),
    ("notifications/resources/list_changed", "", MODERN),
    ("notifications/resources/updated", "", MODERN),
    ("notifications/subscriptions/acknowledged", MODERN, MODERN),
];

/// What is wrong with the response to a request of `method` with `id`.
pub(crate) fn response(version: &str, method: &str, id: &Value, message: &Value) -> Vec<String> {
    let mut wrong = envelope(message);
    if message["id"] != *id {
        wrong.push(format!("{method} {id} was answered as {}", message["id"]));
    }
    match (message.get("result"), message.get("error")) {
        (Some(result), None) => wrong.extend(self::result(version, method, result)),
        (None, Some(error)) => wrong.extend(self::error(version, error)),
        _ => wrong.push(format!("neither result nor error: {message}")),
    }
    wrong
}

/// What is wrong with a notification, whenever it comes.
pub(crate) fn notification(version: &str, message: &Value) -> Vec<String> {
    let mut wrong = envelope(message);
    let (method, params) = (message["method"].as_str().unwrap_or_default(), &message["params"]);
    let exists = NOTIFICATIONS
        .iter()
        .any(|(name, first, last)| *name == method && (*first..=*last).contains(&version));
    if !exists {
        wrong.push(format!("{method} does not exist in {version}"));
    }
    if version < MODERN {
        wrong.extend(foreign_meta(params));
    }
    match method {
        "notifications/progress" => {
            if !params["progress"].is_number() || params.get("total").is_some_and(|total| !total.is_number())
            {
                wrong.push(format!("progress {params}"));
            }
            if version < MARCH && params.get("message").is_some() {
                wrong.push(format!("progress with a message for {version}"));
            }
        }
        "notifications/message" if !params["level"].is_string() || params.get("data").is_none() => {
            wrong.push(format!("the log message {params}"));
        }
        "notifications/resources/updated" if !params["uri"].is_string() => {
            wrong.push(format!("the update {params}"));
        }
        _ => {}
    }
    wrong
}

/// What is wrong with a question, as a server request or as an entry of `inputRequests`.
pub(crate) fn question(version: &str, question: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let (method, params) = (question["method"].as_str().unwrap_or_default(), &question["params"]);
    if version < MODERN {
        wrong.extend(envelope(question));
        wrong.extend(foreign_meta(params));
        if !question["id"].is_string() && !question["id"].is_i64() {
            wrong.push(format!("a question with the id {}", question["id"]));
        }
    } else if question.get("id").is_some() || question.get("jsonrpc").is_some() {
        wrong.push(format!("a server request: {question}"));
    }
    let right = match method {
        "elicitation/create" if version >= JUNE => {
            let form = params.get("mode").is_none_or(|mode| version >= NOVEMBER && mode == "form");
            form && params["message"].is_string() && params["requestedSchema"]["type"] == "object"
        }
        "sampling/createMessage" => params["maxTokens"].is_u64() && params["messages"].is_array(),
        "roots/list" => true,
        "ping" => version < MODERN,
        _ => false,
    };
    if !right {
        wrong.push(format!("{version} cannot be asked {question}"));
    }
    wrong
}

fn envelope(message: &Value) -> Vec<String> {
    let wrong = message["jsonrpc"] != "2.0";
    Vec::from_iter(wrong.then(|| format!("jsonrpc is {} in {message}", message["jsonrpc"])))
}

fn error(version: &str, error: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if !error["message"].is_string() {
        wrong.push(format!("the error {error}"));
    }
    match error["code"].as_i64() {
        None => wrong.push(format!("the error {error}")),
        Some(-32019..=-32000 | -32042) if version >= MODERN => {
            wrong.push(format!("{version} has no such code: {error}"));
        }
        Some(-32022..=-32020) if version < MODERN => {
            wrong.push(format!("{version} has no such code: {error}"));
        }
        Some(_) => {}
    }
    wrong
}

fn result(version: &str, method: &str, result: &Value) -> Vec<String> {
    let mut wrong = if version < MODERN { legacy(result) } else { modern(method, result) };
    if result["resultType"] == "input_required" {
        return wrong;
    }
    let items = |name: &str| result[name].as_array().into_iter().flatten();
    match method {
        "initialize" => {
            if result["protocolVersion"] != version {
                wrong.push(format!("{version} was answered by {}", result["protocolVersion"]));
            }
            if !result["capabilities"].is_object() || !result["serverInfo"]["name"].is_string() {
                wrong.push(format!("the welcome {result}"));
            }
        }
        "tools/list" => wrong.extend(items("tools").flat_map(|tool| definition(version, tool))),
        "tools/call" => {
            wrong.extend(items("content").filter_map(|block| content(version, block)));
            match result.get("structuredContent") {
                Some(_) if version < JUNE => wrong.push(format!("structuredContent for {version}")),
                Some(value) if version < MODERN && !value.is_object() => {
                    wrong.push(format!("structuredContent {value} for {version}"));
                }
                _ => {}
            }
        }
        "prompts/get" => {
            wrong.extend(items("messages").filter_map(|message| content(version, &message["content"])));
        }
        "resources/read" => {
            let odd = items("contents")
                .filter(|one| !one["uri"].is_string() || one["text"].is_string() == one["blob"].is_string());
            wrong.extend(odd.map(|one| format!("the contents {one}")));
        }
        _ => {}
    }
    let expected = match method {
        "tools/list" => "tools",
        "tools/call" => "content",
        "prompts/list" => "prompts",
        "prompts/get" => "messages",
        "resources/list" => "resources",
        "resources/templates/list" => "resourceTemplates",
        "resources/read" => "contents",
        _ => return wrong,
    };
    if !result[expected].is_array() {
        wrong.push(format!("{method} without {expected}: {result}"));
    }
    wrong
}

fn legacy(result: &Value) -> Vec<String> {
    let found = MODERN_ONLY.iter().filter(|name| result.get(name).is_some());
    let mut wrong: Vec<String> = found.map(|name| format!("{name} in a legacy result")).collect();
    wrong.extend(foreign_meta(result));
    wrong
}

fn modern(method: &str, result: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let info = &result["_meta"][format!("{PREFIX}serverInfo")];
    if !info["name"].is_string() || !info["version"].is_string() {
        wrong.push(format!("{method} without serverInfo: {result}"));
    }
    match result["resultType"].as_str() {
        Some("complete") if CACHEABLE.contains(&method) => {
            if !result["ttlMs"].is_u64()
                || !matches!(result["cacheScope"].as_str(), Some("public" | "private"))
            {
                wrong.push(format!(
                    "{method} with ttlMs {} and cacheScope {}",
                    result["ttlMs"], result["cacheScope"]
                ));
            }
        }
        Some("complete") => {}
        Some("input_required") if RESUMABLE.contains(&method) => {
            if result.get("inputRequests").is_none() && result.get("requestState").is_none() {
                wrong.push(format!("a question without a question: {result}"));
            }
        }
        _ => wrong.push(format!("{method} with resultType {}", result["resultType"])),
    }
    wrong
}

/// What the modern version puts into `_meta` is for nobody else.
fn foreign_meta(holder: &Value) -> Vec<String> {
    let names = holder["_meta"].as_object().into_iter().flatten().map(|(name, _)| name);
    names.filter(|name| name.starts_with(PREFIX)).map(|name| format!("{name} for a legacy client")).collect()
}

fn definition(version: &str, tool: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if !tool["name"].is_string() || tool["inputSchema"]["type"] != "object" {
        wrong.push(format!("the tool {tool}"));
    }
    for (member, first, last) in [
        ("annotations", MARCH, MODERN),
        ("title", JUNE, MODERN),
        ("outputSchema", JUNE, MODERN),
        ("execution", NOVEMBER, NOVEMBER),
    ] {
        if tool.get(member).is_some() && !(first..=last).contains(&version) {
            wrong.push(format!("{} has {member} for {version}", tool["name"]));
        }
    }
    wrong
}

fn content(version: &str, block: &Value) -> Option<String> {
    let encoded = || block["data"].is_string() && block["mimeType"].is_string();
    let right = match block["type"].as_str() {
        Some("text") => block["text"].is_string(),
        Some("image") => encoded(),
        Some("audio") => version >= MARCH && encoded(),
        Some("resource") => block["resource"]["uri"].is_string(),
        Some("resource_link") => version >= JUNE && block["uri"].is_string() && block["name"].is_string(),
        _ => false,
    };
    (!right).then(|| format!("{version} cannot read the content {block}"))
}
