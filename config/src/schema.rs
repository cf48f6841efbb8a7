//! The JSON Schema of the file, for editors. Its descriptions are the documentation of the `Raw*` structs.

use std::borrow::Cow;

use schemars::{JsonSchema, Schema, SchemaGenerator, generate::SchemaSettings, json_schema};

use crate::{
    load::read::{At, Entries, Given, Hidden, Json, NonEmpty, OneOrMore, OrOff},
    model::RawConfig,
};

/// The JSON Schema (draft 2020-12) of the configuration file, as text that ends with a line break.
///
/// It describes exactly the keys that this version enforces. It is more lenient than [`load`](crate::load), which also
/// knows what makes sense together.
pub fn json_schema() -> String {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<RawConfig>();
    let mut value = serde_json::Value::from(schema);
    // The order must not depend on which features other crates ask of `serde_json`.
    value.sort_all_objects();
    format!("{value:#}\n")
}

/// Where a value stands is not part of the file.
impl<T: JsonSchema> JsonSchema for At<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for Entries<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("Entries_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": generator.subschema_for::<T>() })
    }
}

impl<T: JsonSchema> JsonSchema for NonEmpty<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("NonEmpty_list_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "array", "items": generator.subschema_for::<T>(), "minItems": 1 })
    }
}

impl<T: JsonSchema> JsonSchema for OrOff<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("{}_or_off", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        json_schema!({ "anyOf": [generator.subschema_for::<T>(), { "const": "off" }] })
    }
}

/// That a value could not be read is not part of the file either.
impl<T: JsonSchema> JsonSchema for Given<T> {
    fn inline_schema() -> bool {
        T::inline_schema()
    }

    fn schema_name() -> Cow<'static, str> {
        T::schema_name()
    }

    fn schema_id() -> Cow<'static, str> {
        T::schema_id()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        T::json_schema(generator)
    }
}

impl<T: JsonSchema> JsonSchema for OneOrMore<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        format!("One_or_more_of_{}", T::schema_name()).into()
    }

    fn json_schema(generator: &mut SchemaGenerator) -> Schema {
        let one = generator.subschema_for::<T>();
        json_schema!({ "anyOf": [one, { "type": "array", "items": one, "minItems": 1 }] })
    }
}

impl<T> JsonSchema for Hidden<T> {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Hidden".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!({ "type": "object", "additionalProperties": { "type": "string" } })
    }
}

impl JsonSchema for Json {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> Cow<'static, str> {
        "Json".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        json_schema!(true)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use serde_json::{Map, Value};

    use super::*;
    use crate::load::load;

    /// Every default the schema states, as a configuration.
    fn defaults(schema: &Value, root: &Value) -> Value {
        let target = |schema: &Value| -> Option<Value> {
            let reference = schema.get("$ref").or_else(|| schema.pointer("/anyOf/0/$ref"))?.as_str()?;
            root.pointer(reference.strip_prefix('#')?).cloned()
        };
        let mut stated = Map::new();
        for (key, schema) in schema["properties"].as_object().unwrap() {
            if let Some(default) = schema.get("default") {
                stated.insert(key.clone(), default.clone());
            } else if let Some(section) = target(schema).filter(|_| key != "tls") {
                stated.insert(key.clone(), defaults(&section, root));
            }
        }
        Value::Object(stated)
    }

    #[test]
    fn the_committed_schema_is_current() {
        let path = Path::new("moongate.schema.json");
        let current = json_schema();
        if std::env::var_os("UPDATE_SCHEMA").is_some() {
            std::fs::write(path, &current).unwrap();
        }
        let committed = std::fs::read_to_string(path).unwrap_or_default();
        assert!(
            committed == current,
            "config/moongate.schema.json is out of date: UPDATE_SCHEMA=1 cargo test -p moongate-config schema"
        );
    }

    #[test]
    fn the_defaults_it_states_are_the_real_ones() {
        let root: Value = serde_json::from_str(&json_schema()).unwrap();
        let stated = defaults(&root, &root);
        assert!(stated["security"]["limits"]["call_timeout"] == "60s", "{stated:#}");
        let load = |text: &str| load(text, Path::new("x.yaml"), &|_| None, &|_| unreachable!()).unwrap();
        assert_eq!(load(&stated.to_string()), load(""));
    }

    #[test]
    fn every_key_is_documented() {
        let root: Value = serde_json::from_str(&json_schema()).unwrap();
        for (name, section) in root["$defs"].as_object().unwrap() {
            for (key, schema) in section["properties"].as_object().unwrap() {
                assert!(schema["description"].is_string(), "{name}.{key}");
            }
        }
    }
}
