//! The pieces that input schemas of built-in tools are made of.
//!
//! No combinator stands at the top of a schema: several model providers refuse those.

use serde_json::{Value, json};

/// An object of `properties`, of which `required` must be there. Anything else is refused, so that a misspelt
/// argument is noticed.
#[expect(clippy::needless_pass_by_value, reason = "callers write the properties in place")]
pub fn object(properties: Value, required: &[&str]) -> Value {
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
}

/// A text that must not be empty.
pub fn text(description: &str) -> Value {
    json!({"type": "string", "minLength": 1, "description": description})
}

/// A text that may be empty.
pub fn optional_text(description: &str) -> Value {
    json!({"type": "string", "description": description})
}

/// A whole number from `least` on, as a number or as digits in a string.
pub fn number(least: u8, description: &str) -> Value {
    let pattern = if least == 0 { "^[0-9]+$" } else { "^[1-9][0-9]*$" };
    json!({"type": ["integer", "string"], "minimum": least, "pattern": pattern, "description": description})
}

/// True or false.
pub fn flag(description: &str) -> Value {
    json!({"type": "boolean", "description": description})
}

/// One of `options`.
pub fn choice(options: &[&str], description: &str) -> Value {
    json!({"type": "string", "enum": options, "description": description})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_object_takes_nothing_it_does_not_name() {
        let schema = object(json!({"goal": text("What")}), &["goal"]);
        assert_eq!(schema["additionalProperties"], json!(false));
        assert_eq!(schema["required"], json!(["goal"]));
        assert_eq!(schema["properties"]["goal"]["minLength"], json!(1));
    }
}
