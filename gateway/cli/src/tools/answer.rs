//! What a tool answered, for people: its text as it is, and a word about everything else.

use moongate_wire::Raw;
use serde_json::Value;

use crate::{
    check::Verdict,
    output::{self, complain},
};

/// Prints a result; one that reports a failure goes to standard error.
pub(super) fn print(result: &Raw, json: bool) -> anyhow::Result<Verdict> {
    let result: Value = result.parse()?;
    let failed = result.get("isError").and_then(Value::as_bool) == Some(true);
    if json {
        output::json(&result)?;
    } else if failed {
        complain(&format!("the tool failed: {}", plain(&result)?));
    } else {
        let text = plain(&result)?;
        if !text.is_empty() {
            output::line(&text)?;
        }
    }
    Ok(if failed { Verdict::Wrong } else { Verdict::Right })
}

fn plain(result: &Value) -> anyhow::Result<String> {
    let content = result.get("content").and_then(Value::as_array);
    let blocks: Vec<String> = content.into_iter().flatten().map(block).collect();
    match result.get("structuredContent") {
        Some(structured) if blocks.is_empty() => Ok(serde_json::to_string_pretty(structured)?),
        _ => Ok(blocks.join("\n").trim_end().to_owned()),
    }
}

fn block(block: &Value) -> String {
    let text =
        |of: &Value, member: &str| of.get(member).and_then(Value::as_str).unwrap_or_default().to_owned();
    match text(block, "type").as_str() {
        "text" => text(block, "text"),
        "resource_link" => format!("[{}: {}]", text(block, "name"), text(block, "uri")),
        "resource" => {
            let resource = block.get("resource").unwrap_or(&Value::Null);
            match resource.get("text").and_then(Value::as_str) {
                Some(text) => text.to_owned(),
                None => format!("[{} {}]", text(resource, "mimeType"), text(resource, "uri")),
            }
        }
        kind => {
            // Three bytes in four characters, but for the padding.
            let bytes = text(block, "data").trim_end_matches('=').len() * 3 / 4;
            format!("[{kind} {}, {bytes} bytes; --json has them]", text(block, "mimeType"))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn text_is_printed_as_it_is_and_the_rest_is_named() {
        let result = json!({"content": [
            {"type": "text", "text": "one\ntwo"},
            {"type": "image", "mimeType": "image/png", "data": "AAAA"},
            {"type": "resource_link", "name": "readme", "uri": "file:///r"},
            {"type": "resource", "resource": {"uri": "a://b", "text": "inside"}},
            {"type": "resource", "resource": {"uri": "a://b", "mimeType": "x/y", "blob": "AAAA"}},
        ], "structuredContent": {"not": "printed"}});
        let expected =
            "one\ntwo\n[image image/png, 3 bytes; --json has them]\n[readme: file:///r]\ninside\n[x/y a://b]";
        assert_eq!(plain(&result).unwrap(), expected);
        let structured = json!({"content": [], "structuredContent": {"sum": 3}});
        assert_eq!(plain(&structured).unwrap(), "{\n  \"sum\": 3\n}");
    }
}
