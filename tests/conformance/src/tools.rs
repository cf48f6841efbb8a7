//! The tools: their definitions in the order they are listed, and which function runs which.

mod asking;
mod plain;

use std::sync::Arc;

use moongate_core::{CallError, Context, Kind, Raw, Scope, Tool, offer::HeaderParam};
use serde_json::{Value, json};

use crate::Fixture;

/// A tool as it is listed: name, description, input schema.
type Definition = (&'static str, &'static str, Value);

/// What the suite compares word by word, as it prints it.
const JSON_SCHEMA_2020_12_TOOL: &str = r##"{
  "name": "json_schema_2020_12_tool",
  "description": "Tool with JSON Schema 2020-12 features",
  "inputSchema": {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "type": "object",
    "$defs": {
      "address": {
        "$anchor": "addressDef",
        "type": "object",
        "properties": {"street": {"type": "string"}, "city": {"type": "string"}}
      }
    },
    "properties": {
      "name": {"type": "string"},
      "address": {"$ref": "#/$defs/address"},
      "contactMethod": {"type": "string", "enum": ["phone", "email"]},
      "phone": {"type": "string"},
      "email": {"type": "string"}
    },
    "allOf": [{"anyOf": [{"required": ["phone"]}, {"required": ["email"]}]}],
    "if": {"properties": {"contactMethod": {"const": "phone"}}, "required": ["contactMethod"]},
    "then": {"required": ["phone"]},
    "else": {"required": ["email"]},
    "additionalProperties": false
  }
}"##;

/// Every tool that is always there. The first must succeed without arguments: the suite calls whatever comes first.
pub(crate) fn all() -> Vec<Arc<Tool>> {
    let verbatim = Raw::from_text(JSON_SCHEMA_2020_12_TOOL).expect("the text above is JSON");
    let written = plain::definitions().into_iter().chain(asking::definitions()).map(defined);
    written.chain([tool("json_schema_2020_12_tool", verbatim)]).collect()
}

/// The tool that comes and goes.
pub(crate) fn extra() -> Arc<Tool> {
    defined((plain::EXTRA, "There after an odd number of changes of the tool list", without_arguments()))
}

/// Runs the tool called `name`.
pub(crate) async fn call(
    fixture: &Fixture,
    name: &str,
    arguments: &Raw,
    cx: &Context,
) -> Result<Raw, CallError> {
    if let Some(result) = plain::call(fixture, name, arguments, cx).await {
        return result;
    }
    match asking::call(fixture, name, arguments, cx).await {
        Some(result) => result,
        None => Err(CallError::client(Kind::Unknown, format!("Unknown tool: {name}"))),
    }
}

fn defined((name, description, schema): Definition) -> Arc<Tool> {
    tool(name, Raw::of(&json!({"name": name, "description": description, "inputSchema": schema})))
}

fn tool(name: &str, definition: Raw) -> Arc<Tool> {
    let schema = definition.member("inputSchema").expect("every definition has one");
    let params =
        moongate_wire::header::header_params(&schema).expect("the annotations here follow the rules");
    let header_params = params.into_iter().map(|(header, path)| HeaderParam {
        header: header.into(),
        path: path.into_iter().map(Into::into).collect(),
    });
    Arc::new(Tool {
        name: name.into(),
        aliases: Vec::new(),
        header_params: header_params.collect(),
        definition,
        scope: Scope::read(),
    })
}

/// The schema of a tool that takes nothing.
fn without_arguments() -> Value {
    json!({"type": "object", "properties": {}})
}

/// The schema of a tool that takes one required text.
fn with_text(name: &str, description: &str) -> Value {
    json!({
        "type": "object",
        "properties": {name: {"type": "string", "description": description}},
        "required": [name],
    })
}
