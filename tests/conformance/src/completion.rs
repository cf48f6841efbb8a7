//! Completion of the arguments of one prompt and one template.

use moongate_core::{CallError, Raw};
use serde::Deserialize;
use serde_json::json;

use crate::{prompts::WITH_ARGUMENTS, resources::TEMPLATE};

#[derive(Deserialize)]
struct Params {
    #[serde(rename = "ref")]
    reference: Reference,
    argument: Argument,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Reference {
    #[serde(rename = "ref/prompt")]
    Prompt { name: String },
    #[serde(rename = "ref/resource")]
    Resource { uri: String },
}

#[derive(Deserialize)]
struct Argument {
    name: String,
    value: String,
}

/// The values that continue what was typed so far.
pub(crate) fn complete(params: &Raw) -> Result<Raw, CallError> {
    let Params { reference, argument } = params.parse().map_err(CallError::invalid_params)?;
    let known: &[&str] = match (&reference, &*argument.name) {
        (Reference::Prompt { name }, "arg1") if name == WITH_ARGUMENTS => {
            &["paris", "park", "party", "test", "testing"]
        }
        (Reference::Prompt { name }, "arg2") if name == WITH_ARGUMENTS => &["second"],
        (Reference::Resource { uri }, "id") if uri == TEMPLATE => &["123", "456"],
        _ => return Err(CallError::invalid_params("nothing here completes this argument")),
    };
    let values: Vec<&str> =
        known.iter().copied().filter(|value| value.starts_with(&argument.value)).collect();
    Ok(Raw::of(&json!({"completion": {"values": values, "total": values.len(), "hasMore": false}})))
}
