//! The quick look at arguments: texts, flags and choices by name, seen in the text as it is.
//!
//! It answers "fits" or "cannot tell", never "does not fit": every keyword and every argument it does not know by heart
//! is left to the validator, which needs a tree of the arguments and can say what is wrong with them.

use moongate_core::Raw;
use serde_json::{Map, Value};

/// A schema of an object, as far as it is understood here.
#[derive(Debug)]
pub(super) struct Shape {
    properties: Vec<(String, Property)>,
    /// A bit for each property that must be there.
    required: u64,
}

#[derive(Debug)]
enum Property {
    /// A text of at least so many characters.
    Text { least: usize },
    /// One of these values.
    Choice(Vec<Raw>),
    /// Something that is left to the validator.
    Other,
}

impl Shape {
    /// `None` when `schema` says more than which members must be there and what each may be.
    pub(super) fn of(schema: &Value) -> Option<Self> {
        let schema = schema.as_object()?;
        let known = ["type", "properties", "required", "additionalProperties", "title", "description"];
        if schema.get("type")? != "object" || !only(schema, &known) {
            return None;
        }
        let properties: Vec<(String, Property)> = schema
            .get("properties")?
            .as_object()?
            .iter()
            .map(|(name, schema)| (name.clone(), property(schema).unwrap_or(Property::Other)))
            .collect();
        let mut required = 0;
        for name in schema.get("required").and_then(Value::as_array).into_iter().flatten() {
            required |= bit(properties.iter().position(|(property, _)| name == property)?)?;
        }
        Some(Self { properties, required })
    }

    /// Whether `arguments` fit for certain.
    pub(super) fn surely_fits(&self, arguments: &Raw) -> bool {
        self.all_fit(arguments.as_bytes()).is_some()
    }

    fn all_fit(&self, arguments: &[u8]) -> Option<()> {
        let mut seen = 0;
        let mut rest = arguments.strip_prefix(b"{")?.trim_ascii_start();
        while rest != b"}" {
            let (name, after) = simple_value(rest)?;
            let (value, after) =
                simple_value(after.trim_ascii_start().strip_prefix(b":")?.trim_ascii_start())?;
            // What is escaped here may read like another name.
            let name = inside(name).filter(|name| !name.contains(&b'\\'))?;
            let at = self.properties.iter().position(|(property, _)| property.as_bytes() == name)?;
            self.properties.get(at).filter(|(_, property)| property.admits(value))?;
            // Of a repeated name the validator would see one value only, and it need not be this one.
            seen |= bit(at).filter(|this| seen & this == 0)?;
            let after = after.trim_ascii_start();
            rest = after.strip_prefix(b",").map_or(after, <[u8]>::trim_ascii_start);
        }
        (seen & self.required == self.required).then_some(())
    }
}

impl Property {
    fn admits(&self, value: &[u8]) -> bool {
        match self {
            Self::Text { least } => is_text(value, *least),
            Self::Choice(options) => options.iter().any(|option| option.as_bytes() == value),
            Self::Other => false,
        }
    }
}

/// The schema of a property, if all it says is understood.
fn property(schema: &Value) -> Option<Property> {
    let schema = schema.as_object()?;
    let has_only = |keyword| only(schema, &["type", "title", "description", keyword]);
    match schema.get("type")?.as_str()? {
        "boolean" if has_only("description") => Some(Property::Choice(vec![Raw::of(&true), Raw::of(&false)])),
        "string" if has_only("minLength") => {
            let least = schema.get("minLength").map_or(Some(0), Value::as_u64)?;
            Some(Property::Text { least: usize::try_from(least).ok()? })
        }
        "string" if has_only("enum") => {
            let options = schema.get("enum")?.as_array()?;
            Some(Property::Choice(options.iter().filter(|option| option.is_string()).map(Raw::of).collect()))
        }
        _ => None,
    }
}

fn only(members: &Map<String, Value>, known: &[&str]) -> bool {
    members.keys().all(|key| known.contains(&key.as_str()))
}

/// `None` beyond the last bit.
fn bit(at: usize) -> Option<u64> {
    1_u64.checked_shl(u32::try_from(at).ok()?)
}

/// The string, `true` or `false` at the start of checked JSON, and what follows it.
fn simple_value(text: &[u8]) -> Option<(&[u8], &[u8])> {
    let end = match text.first()? {
        b'"' => string_end(text)?,
        b't' => "true".len(),
        b'f' => "false".len(),
        _ => return None,
    };
    text.split_at_checked(end)
}

/// Behind the first quote after the opening one that is not escaped.
fn string_end(text: &[u8]) -> Option<usize> {
    let mut end = 1;
    loop {
        end += text.get(end..)?.iter().position(|byte| *byte == b'"')?;
        let escapes = text.get(..end)?.iter().rev().take_while(|byte| **byte == b'\\').count();
        end += 1;
        if escapes % 2 == 0 {
            return Some(end);
        }
    }
}

/// What is between the quotes of a string; `None` when the value is no string.
fn inside(value: &[u8]) -> Option<&[u8]> {
    value.strip_prefix(b"\"")?.strip_suffix(b"\"")
}

/// Whether `value` surely is a text of at least so many characters.
fn is_text(value: &[u8], least: usize) -> bool {
    inside(value).is_some_and(|text| {
        // An escape makes fewer characters than it has, and `\u` may make none: half of a pair is not readable.
        let unclear = text.contains(&b'\\') && (least > 1 || text.windows(2).any(|pair| pair == b"\\u"));
        // All bytes of a character but the first are continuations.
        let starts = text.iter().filter(|byte| **byte & 0xc0 != 0x80);
        !unclear && starts.take(least).count() == least
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schema() -> Value {
        json!({"type": "object", "additionalProperties": false, "required": ["name"], "properties": {
            "name": {"type": "string", "minLength": 2, "description": "A name"},
            "note": {"type": "string"},
            "flag": {"type": "boolean"},
            "level": {"type": "string", "enum": ["low", "hígh"]},
            "id": {"type": ["integer", "string"], "minimum": 1},
        }})
    }

    fn surely_fits(schema: &Value, arguments: &str) -> Option<bool> {
        Some(Shape::of(schema)?.surely_fits(&Raw::from_text(arguments.to_owned()).unwrap()))
    }

    #[test]
    fn what_is_simple_and_right_is_seen() {
        for (arguments, expected) in [
            (r#"{"name":"ab"}"#, true),
            (r#"{ "name" : "a달", "flag":true,"note":"" ,"level": "hígh" }"#, true),
            (r#"{"n\u0061me":"ab"}"#, false),
            (r#"{"name":"ab","note":"\"tab\"\t\\"}"#, true),
            (r#"{"name":"ab","note":"\ud800"}"#, false),
            (r#"{"name":"\n"}"#, false),
            ("{}", false),
            (r#"{"note":"x"}"#, false),
            (r#"{"name":"달"}"#, false),
            (r#"{"name":"ab","name":"ab"}"#, false),
            (r#"{"name":"ab","other":1}"#, false),
            (r#"{"name":"ab","level":"middle"}"#, false),
            (r#"{"name":"ab","flag":"true"}"#, false),
            (r#"{"name":"ab","note":true}"#, false),
            (r#"{"name":"ab","note":null}"#, false),
            (r#"{"name":"ab","id":1}"#, false),
            (r#"["ab"]"#, false),
            ("null", false),
        ] {
            assert_eq!(surely_fits(&schema(), arguments), Some(expected), "{arguments}");
        }
        let escape = json!({"type": "object", "properties": {r"a\n": {"type": "string"}}});
        assert_eq!(surely_fits(&escape, r#"{"a\n":""}"#), Some(false));
        let nothing = json!({"type": "object", "properties": {}, "required": []});
        assert_eq!(surely_fits(&nothing, "{}"), Some(true));
    }

    #[test]
    fn a_schema_that_says_more_is_left_to_the_validator() {
        for (keyword, value) in [
            ("minProperties", json!(2)),
            ("anyOf", json!([])),
            ("$ref", json!("#/x")),
            ("$schema", json!("http://json-schema.org/draft-04/schema#")),
            ("required", json!(["unknown"])),
            ("type", json!(["object"])),
            ("properties", json!(true)),
        ] {
            let mut more = schema();
            more[keyword] = value;
            assert!(Shape::of(&more).is_none(), "{keyword}");
        }
        for (keyword, value) in [
            ("pattern", json!("^x")),
            ("maxLength", json!(1)),
            ("format", json!("uri")),
            ("minLength", json!(1.0)),
            ("enum", json!(["ab"])),
        ] {
            let mut more = schema();
            more["properties"]["name"][keyword] = value;
            assert_eq!(surely_fits(&more, r#"{"name":"ab"}"#), Some(false), "{keyword}");
        }
        let many: Map<String, Value> = (10..75).map(|n| (n.to_string(), json!({"type": "string"}))).collect();
        let many = json!({"type": "object", "properties": many});
        assert_eq!(surely_fits(&many, r#"{"73":""}"#), Some(true));
        assert_eq!(surely_fits(&many, r#"{"74":""}"#), Some(false));
    }

    #[test]
    fn the_validator_agrees_with_every_yes() {
        let names = ["name", "note", "flag", "level", "id", "other"];
        let values = json!(["", "a", "달", "ab", "low", "hígh", "a \"b\"\n", true, 0, 1, null, ["ab"], {"name": "ab"}]);
        let validator = jsonschema::validator_for(&schema()).unwrap();
        let mut seen = 0;
        for (first, second) in names.iter().flat_map(|first| names.iter().map(move |second| (first, second)))
        {
            for (one, two) in pairs(values.as_array().unwrap()) {
                let arguments = json!({*first: one, *second: two});
                let sure = surely_fits(&schema(), &arguments.to_string()) == Some(true);
                assert!(!sure || validator.is_valid(&arguments), "{arguments}");
                seen += usize::from(sure);
            }
        }
        assert!(seen > 50, "{seen}");
    }

    fn pairs(values: &[Value]) -> impl Iterator<Item = (&Value, &Value)> {
        values.iter().flat_map(move |one| values.iter().map(move |two| (one, two)))
    }
}
