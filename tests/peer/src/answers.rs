//! What a client may answer when it is asked: the shapes of each version.

use serde_json::Value;

use crate::Version;

/// What is wrong with the answer to an elicitation.
pub(crate) fn elicitation(version: Version, answer: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    let action = answer["action"].as_str().unwrap_or_default();
    if !["accept", "decline", "cancel"].contains(&action) {
        wrong.push(format!("elicitation answered with action {}", answer["action"]));
    }
    match &answer["content"] {
        Value::Null if answer.get("content").is_none() => {}
        Value::Object(_) if action != "accept" => {
            wrong.push(format!("elicitation answered with content and {action:?}"));
        }
        Value::Object(content) => {
            let odd = content.iter().filter(|(_, value)| !is_form_value(version, value));
            wrong.extend(odd.map(|(name, value)| format!("elicitation answered with {name} = {value}")));
        }
        other => wrong.push(format!("elicitation answered with content {other}")),
    }
    wrong
}

/// What is wrong with the answer to a sampling request.
pub(crate) fn sampling(version: Version, answer: &Value) -> Vec<String> {
    let mut wrong = Vec::new();
    if !answer["model"].is_string() {
        wrong.push(format!("sampling answered with model {}", answer["model"]));
    }
    if !matches!(answer["role"].as_str(), Some("assistant" | "user")) {
        wrong.push(format!("sampling answered with role {}", answer["role"]));
    }
    match &answer["content"] {
        Value::Array(blocks) if version >= Version::November2025 => {
            wrong.extend(blocks.iter().filter_map(|block| sampled(version, block)));
        }
        block => wrong.extend(sampled(version, block)),
    }
    wrong
}

/// What is wrong with the answer to a request for roots.
pub(crate) fn roots(answer: &Value) -> Vec<String> {
    let Some(roots) = answer["roots"].as_array() else {
        return vec![format!("roots answered with {}", answer["roots"])];
    };
    let odd = roots.iter().filter(|root| !root["uri"].as_str().is_some_and(|uri| uri.starts_with("file://")));
    odd.map(|root| format!("roots answered with {root}")).collect()
}

fn is_form_value(version: Version, value: &Value) -> bool {
    let strings = |values: &Vec<Value>| values.iter().all(Value::is_string);
    match value {
        Value::String(_) | Value::Number(_) | Value::Bool(_) => true,
        Value::Array(values) => version >= Version::November2025 && strings(values),
        Value::Null | Value::Object(_) => false,
    }
}

fn sampled(version: Version, block: &Value) -> Option<String> {
    let right = match block["type"].as_str() {
        Some("text") => block["text"].is_string(),
        Some("image") => block["data"].is_string() && block["mimeType"].is_string(),
        Some("audio") => {
            version >= Version::March2025 && block["data"].is_string() && block["mimeType"].is_string()
        }
        Some("tool_use" | "tool_result") => version >= Version::November2025,
        _ => false,
    };
    (!right).then(|| format!("sampling answered with content {block}"))
}
