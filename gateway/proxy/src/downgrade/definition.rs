//! A tool's definition as an older version can read it.
//!
//! Output that is no object is listed as an object with the one property `result`; [`wraps`] says for which tools, so that
//! their results are wrapped exactly then.

use moongate_wire::{
    Raw,
    edit::{self, Edit},
    scan::MAX_DEPTH,
    write,
};

use super::Face;

/// Where the schema of a wrapped output is.
const INSIDE: &str = "#/properties/result";

/// `definition` as `face` is shown it.
pub fn shape(definition: &Raw, face: Face) -> Raw {
    let any = |names: &[&str]| names.iter().any(|name| definition.may_name(name));
    let named = match face {
        Face::Modern => any(&["execution"]),
        Face::Structured => any(&["outputSchema", "true", "false"]),
        Face::Annotated => any(&["outputSchema", "title", "true", "false"]),
        Face::First => any(&["outputSchema", "title", "annotations", "true", "false"]),
    };
    if !named {
        return definition.clone();
    }
    edit::members(definition, |name, value| match (name, face) {
        ("execution", Face::Modern)
        | ("outputSchema" | "title", Face::First | Face::Annotated)
        | ("annotations", Face::First) => Edit::Drop,
        ("inputSchema", Face::First | Face::Annotated | Face::Structured) => {
            replaced(value, without_boolean_properties(value))
        }
        ("outputSchema", Face::Structured) => replaced(value, output(value)),
        _ => Edit::Keep,
    })
}

/// Whether the tool's output is listed wrapped for those who understand objects only.
pub fn wraps(definition: &Raw) -> bool {
    definition.may_name("outputSchema")
        && definition.member("outputSchema").is_some_and(|schema| !describes_object(&schema))
}

fn describes_object(schema: &Raw) -> bool {
    schema.member("type").is_some_and(|kind| kind.is_text("object"))
}

fn output(schema: &Raw) -> Raw {
    if describes_object(schema) {
        return without_boolean_properties(schema);
    }
    // A dialect is said at the root of a document.
    let dialect = schema.member("$schema");
    let inner = edit::remove(schema, |name, _| name == "$schema");
    let inner = if schema.member("$id").is_some() { inner } else { moved(&inner, MAX_DEPTH) };
    let properties = write::object([("result", &plain(&inner))]);
    let (kind, required) = (Raw::of("object"), Raw::of(&["result"]));
    let wrapper = [("type", &kind), ("properties", &properties), ("required", &required)];
    write::object(dialect.as_ref().map(|dialect| ("$schema", dialect)).into_iter().chain(wrapper))
}

/// A schema whose references to its own root lead to where that root is now. What is nested deeper than any sane schema
/// stays as it is, and so does a part with an `$id`, which is its own root.
fn moved(schema: &Raw, depth: usize) -> Raw {
    let Some(depth) = depth.checked_sub(1).filter(|_| schema.may_name("$ref")) else { return schema.clone() };
    if schema.is_array() {
        return edit::items(schema, |schema| {
            let other = moved(schema, depth);
            (other != *schema).then(|| vec![other])
        });
    }
    if schema.member("$id").is_some() {
        return schema.clone();
    }
    edit::members(schema, |keyword, value| match keyword {
        "$ref" => match value.text().and_then(|reference| moved_reference(&reference)) {
            Some(reference) => Edit::Replace(Raw::of(&reference)),
            None => Edit::Keep,
        },
        // Schemas under names, which are no keywords.
        "properties" | "patternProperties" | "dependentSchemas" | "dependencies" | "$defs"
        | "definitions" => {
            replaced(value, edit::members(value, |_, schema| replaced(schema, moved(schema, depth))))
        }
        // Data, not schemas.
        "const" | "default" | "enum" | "example" | "examples" => Edit::Keep,
        _ => replaced(value, moved(value, depth)),
    })
}

/// `#` and `#/…` point from the root; `#name` is found wherever it is.
fn moved_reference(reference: &str) -> Option<String> {
    let pointer = reference.strip_prefix('#')?;
    (pointer.is_empty() || pointer.starts_with('/')).then(|| format!("{INSIDE}{pointer}"))
}

/// A schema whose properties are objects, as older versions want them.
fn without_boolean_properties(schema: &Raw) -> Raw {
    edit::members(schema, |keyword, value| match keyword {
        "properties" => {
            replaced(value, edit::members(value, |_, property| replaced(property, plain(property))))
        }
        _ => Edit::Keep,
    })
}

/// A schema that is no boolean.
fn plain(schema: &Raw) -> Raw {
    match schema.as_bytes() {
        b"true" => Raw::empty_object(),
        b"false" => write::object([("not", &Raw::empty_object())]),
        _ => schema.clone(),
    }
}

fn replaced(old: &Raw, new: Raw) -> Edit {
    if new == *old { Edit::Keep } else { Edit::Replace(new) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn shaped(definition: &Value, face: Face) -> Value {
        shape(&Raw::of(definition), face).parse().unwrap()
    }

    fn listed_output(schema: &Value) -> Value {
        shaped(&json!({"name": "t", "outputSchema": schema}), Face::Structured)["outputSchema"].clone()
    }

    #[test]
    fn each_face_is_shown_what_it_knows() {
        let all = json!({"name": "t", "title": "T", "inputSchema": {}, "outputSchema": {"type": "object"},
            "annotations": {"title": "A"}, "execution": {"taskSupport": "optional"}, "icons": []});
        for (face, gone) in [
            (Face::First, &["title", "outputSchema", "annotations"][..]),
            (Face::Annotated, &["title", "outputSchema"]),
            (Face::Structured, &[]),
            (Face::Modern, &["execution"]),
        ] {
            let mut expected = all.clone();
            expected.as_object_mut().unwrap().retain(|name, _| !gone.contains(&name.as_str()));
            assert_eq!(shaped(&all, face), expected, "{face:?}");
        }
    }

    #[test]
    fn what_needs_no_change_is_not_copied() {
        let text = r##"{ "name":"t",  "inputSchema":{"type":"object", "additionalProperties":false},
            "outputSchema":{"$schema":"x","type":"object","properties":{"a":{"$ref":"#/$defs/b"}},"$defs":{"b":{}}}}"##;
        let definition = Raw::from_text(text).unwrap();
        for face in [Face::Structured, Face::Modern] {
            assert_eq!(
                shape(&definition, face).as_bytes().as_ptr(),
                definition.as_bytes().as_ptr(),
                "{face:?}"
            );
        }
        assert!(!wraps(&definition) && !wraps(&Raw::empty_object()));
    }

    #[test]
    fn output_that_is_no_object_is_listed_as_one_and_its_references_follow() {
        let tree = json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "array",
            "items": {"anyOf": [{"$ref": "#/$defs/leaf"}, {"$ref": "#"}, {"$ref": "#anchored"}, {"$ref": "other#/x"}]},
            "$defs": {"leaf": {"type": "object", "properties": {"$ref": {"type": "string", "const": "#"}}}},
            "examples": [{"$ref": "#"}]});
        assert!(wraps(&Raw::of(&json!({"outputSchema": tree}))));
        assert_eq!(
            listed_output(&tree),
            json!({"$schema": "https://json-schema.org/draft/2020-12/schema", "type": "object",
                "required": ["result"], "properties": {"result": {"type": "array",
                    "items": {"anyOf": [{"$ref": "#/properties/result/$defs/leaf"}, {"$ref": "#/properties/result"},
                        {"$ref": "#anchored"}, {"$ref": "other#/x"}]},
                    "$defs": {"leaf": {"type": "object", "properties": {"$ref": {"type": "string", "const": "#"}}}},
                    "examples": [{"$ref": "#"}]}}})
        );
    }

    #[test]
    fn a_part_that_is_its_own_root_keeps_its_references() {
        let schema = json!({"anyOf": [{"$id": "urn:a", "$ref": "#/$defs/x"}, {"$ref": "#/$defs/x"}]});
        let inner = &listed_output(&schema)["properties"]["result"]["anyOf"];
        assert_eq!(inner[0]["$ref"], "#/$defs/x");
        assert_eq!(inner[1]["$ref"], "#/properties/result/$defs/x");
        let rooted = json!({"$id": "urn:b", "type": "string", "not": {"$ref": "#/$defs/x"}});
        assert_eq!(listed_output(&rooted)["properties"]["result"], rooted);
    }

    #[test]
    fn every_root_but_a_plain_object_is_wrapped() {
        for schema in
            [json!({"type": "string"}), json!({"type": ["object"]}), json!({"anyOf": []}), json!({})]
        {
            assert_eq!(listed_output(&schema)["properties"]["result"], schema);
        }
        assert_eq!(listed_output(&json!(true))["properties"]["result"], json!({}));
        assert_eq!(listed_output(&json!(false))["properties"]["result"], json!({"not": {}}));
    }

    #[test]
    fn boolean_properties_become_objects_for_legacy_clients_only() {
        let schema = json!({"type": "object", "properties": {"any": true, "none": false, "deep": {"properties": {"x": true}}}});
        let plain = json!({"type": "object",
            "properties": {"any": {}, "none": {"not": {}}, "deep": {"properties": {"x": true}}}});
        let tool = json!({"name": "t", "inputSchema": schema, "outputSchema": schema});
        assert_eq!(
            shaped(&tool, Face::Structured),
            json!({"name": "t", "inputSchema": plain, "outputSchema": plain})
        );
        assert_eq!(shaped(&tool, Face::First), json!({"name": "t", "inputSchema": plain}));
        assert_eq!(shaped(&tool, Face::Modern), tool);
    }
}
