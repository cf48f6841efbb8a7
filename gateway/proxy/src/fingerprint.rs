//! What makes two calls the same: method, target and arguments, whatever the order of keys and the spelling of numbers.

use std::fmt;

use aws_lc_rs::digest;
use base64::{Engine as _, prelude::BASE64_STANDARD_NO_PAD};
use moongate_wire::Raw;
use serde_json::Value;

/// What a call must be to belong to a `requestState`: its method, target and arguments.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fingerprint(String);

impl fmt::Display for Fingerprint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Fingerprint {
    /// The fingerprint of calling `target` by `method` on `path` with `arguments`: keys in any order, numbers by value.
    pub fn of(path: &str, method: &str, target: &str, arguments: &Raw) -> Self {
        let mut text = String::new();
        match arguments.parse::<Value>() {
            Ok(value) => canonical(&value, &mut text),
            // Numbers that no machine number holds: then the retry must repeat the very text.
            Err(_) => text.push_str(arguments.as_str()),
        }
        let parts = Raw::of(&(path, method, target, text));
        Self(BASE64_STANDARD_NO_PAD.encode(digest::digest(&digest::SHA256, parts.as_bytes())))
    }
}

fn canonical(value: &Value, out: &mut String) {
    match value {
        Value::Object(members) => {
            let mut members: Vec<_> = members.iter().collect();
            members.sort_by_key(|(key, _)| *key);
            out.push('{');
            for (key, value) in members {
                out.push_str(&Value::from(key.as_str()).to_string());
                out.push(':');
                canonical(value, out);
                out.push(',');
            }
            out.push('}');
        }
        Value::Array(items) => {
            out.push('[');
            for item in items {
                canonical(item, out);
                out.push(',');
            }
            out.push(']');
        }
        Value::Number(number) if number.is_f64() => {
            let float = number.as_f64().unwrap_or_default();
            // 1.0 and 1 are one value to JSON.
            #[expect(clippy::cast_possible_truncation, reason = "checked to be a small whole number first")]
            if float.fract() == 0.0 && float.abs() < 9e18 {
                out.push_str(&(float as i64).to_string());
            } else {
                out.push_str(&number.to_string());
            }
        }
        other => out.push_str(&other.to_string()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_fingerprint_ignores_order_and_spelling_but_nothing_else() {
        let of = |value: Value| Fingerprint::of("/mcp", "tools/call", "t", &Raw::of(&value));
        let text = |text: &str| {
            Fingerprint::of("/mcp", "tools/call", "t", &Raw::from_text(text.to_owned()).unwrap())
        };
        assert_eq!(text(r#"{"a":1,"b":[1,2]}"#), text(r#"{ "b" : [1.0, 2], "\u0061":1e0 }"#));
        assert_ne!(of(serde_json::json!({"a": 1})), of(serde_json::json!({"a": 2})));
        assert_ne!(of(serde_json::json!({"a": "1"})), of(serde_json::json!({"a": 1})));
        assert_ne!(of(serde_json::json!({"a": 0.5})), of(serde_json::json!({"a": 0.25})));
        assert_eq!(text(r#"{"a":1e16}"#), text(r#"{"a":10000000000000000}"#));
        assert_ne!(text(r#"{"a":1e400}"#), text(r#"{"a":1e400,"b":1}"#));
        assert_ne!(text("{}"), Fingerprint::of("/mcp/x", "tools/call", "t", &Raw::empty_object()));
        assert_ne!(text("{}"), Fingerprint::of("/mcp", "prompts/get", "t", &Raw::empty_object()));
        assert_ne!(text("{}"), Fingerprint::of("/mcp", "tools/call", "u", &Raw::empty_object()));
    }
}
