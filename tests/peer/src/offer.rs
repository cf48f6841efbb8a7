//! Prompts, resources and completions, and how lists are cut into pages.

use serde_json::{Value, json};

use crate::Version;

/// What the server tells models about itself.
pub(crate) const INSTRUCTIONS: &str = "A scripted server for tests. Call breaches last.";

/// The resource that can be subscribed to.
pub(crate) const TEXT: &str = "peer://text";

const ITEM: &str = "peer://item/";

/// The one id for which the template leads nowhere.
const MISSING: &str = "missing";

/// Names that the completion of `greet` knows.
const NAMES: [&str; 3] = ["Ada", "Alan", "Grace"];

pub(crate) fn server_info() -> Value {
    json!({"name": "moongate-peer", "version": env!("CARGO_PKG_VERSION")})
}

pub(crate) fn capabilities(version: Version) -> Value {
    let mut declared = json!({
        "tools": {"listChanged": true},
        "prompts": {"listChanged": true},
        "resources": {"listChanged": true, "subscribe": true},
        "logging": {},
    });
    if version >= Version::March2025 {
        declared["completions"] = json!({});
    }
    declared
}

pub(crate) fn prompts() -> Vec<Value> {
    let argument = json!({"name": "name", "description": "Whom to greet.", "required": true});
    vec![json!({"name": "greet", "description": "Greets someone.", "arguments": [argument]})]
}

pub(crate) fn resources() -> Vec<Value> {
    vec![
        json!({"uri": TEXT, "name": "text", "mimeType": "text/plain"}),
        json!({"uri": "peer://blob", "name": "blob", "mimeType": "application/octet-stream"}),
    ]
}

pub(crate) fn templates() -> Vec<Value> {
    vec![json!({"uriTemplate": format!("{ITEM}{{id}}"), "name": "item", "mimeType": "text/plain"})]
}

/// A prompt, or nothing when there is none of this name.
pub(crate) fn prompt(params: &Value) -> Option<Value> {
    (params["name"] == "greet").then(|| {
        let name = params["arguments"]["name"].as_str().unwrap_or("nobody");
        let content = json!({"type": "text", "text": format!("Say hello to {name}.")});
        json!({"description": "Greets someone.", "messages": [{"role": "user", "content": content}]})
    })
}

/// What a resource contains, or nothing when there is none of this URI.
pub(crate) fn read(uri: &str) -> Option<Value> {
    let contents = match uri {
        TEXT => json!({"uri": uri, "mimeType": "text/plain", "text": "some text"}),
        "peer://blob" => json!({"uri": uri, "mimeType": "application/octet-stream", "blob": "AAECAw=="}),
        _ => {
            let id = uri.strip_prefix(ITEM).filter(|id| *id != MISSING)?;
            json!({"uri": uri, "mimeType": "text/plain", "text": format!("item {id}")})
        }
    };
    Some(json!({"contents": [contents]}))
}

pub(crate) fn complete(params: &Value) -> Value {
    let begun = params["argument"]["value"].as_str().unwrap_or_default();
    let known = params["ref"]["name"] == "greet" && params["argument"]["name"] == "name";
    let values: Vec<_> = NAMES.into_iter().filter(|name| known && name.starts_with(begun)).collect();
    json!({"completion": {"total": values.len(), "values": values, "hasMore": false}})
}

/// Content of every type that the version has.
pub(crate) fn content(version: Version) -> Vec<Value> {
    let resource = json!({"uri": TEXT, "mimeType": "text/plain", "text": "some text"});
    let mut content = vec![
        json!({"type": "text", "text": "a text"}),
        json!({"type": "image", "data": "AAAA", "mimeType": "image/png"}),
        json!({"type": "resource", "resource": resource}),
    ];
    if version >= Version::March2025 {
        content.push(json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"}));
    }
    if version >= Version::June2025 {
        content.push(json!({"type": "resource_link", "uri": TEXT, "name": "text"}));
    }
    content
}

/// The page of `items` that `cursor` names, as the member `name` of a result; nothing when no such cursor was given out.
pub(crate) fn page(
    name: &str,
    items: &[Value],
    cursor: Option<&Value>,
    size: Option<usize>,
) -> Option<Value> {
    let size = size.unwrap_or(usize::MAX);
    let start = match cursor {
        None => 0,
        Some(cursor) => cursor.as_str()?.strip_prefix("after-")?.parse::<usize>().ok()?,
    };
    let asked_for_first = cursor.is_none();
    if !asked_for_first && (start == 0 || start % size != 0 || start >= items.len()) {
        return None;
    }
    let end = start.saturating_add(size).min(items.len());
    let mut page = json!({name: items.get(start..end)?});
    if end < items.len() {
        page["nextCursor"] = json!(format!("after-{end}"));
    }
    Some(page)
}
