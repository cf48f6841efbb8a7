//! The prompts, one of which asks the person first.

use std::sync::Arc;

use moongate_core::{CallError, Context, Kind, Prompt, Raw};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::{
    content::{image, resource, text},
    question::{fill, line},
};

/// The prompt whose arguments can be completed.
pub(crate) const WITH_ARGUMENTS: &str = "test_prompt_with_arguments";
/// The name of the prompt that comes and goes.
const EXTRA: &str = "test_dynamic_prompt";

/// Every prompt that is always there.
pub(crate) fn all() -> Vec<Arc<Prompt>> {
    vec![
        prompt("test_simple_prompt", "One message", &[]),
        prompt(
            WITH_ARGUMENTS,
            "Two arguments in one message",
            &[("arg1", "First test argument"), ("arg2", "Second test argument")],
        ),
        prompt(
            "test_prompt_with_embedded_resource",
            "A resource in a message",
            &[("resourceUri", "URI of the resource to embed")],
        ),
        prompt("test_prompt_with_image", "An image in a message", &[]),
        prompt("test_input_required_result_prompt", "Asks the person for context first", &[]),
    ]
}

/// The prompt that comes and goes.
pub(crate) fn extra() -> Arc<Prompt> {
    prompt(EXTRA, "There after an odd number of changes of the prompt list", &[])
}

/// The messages of the prompt called `name`.
pub(crate) async fn get(name: &str, arguments: &Raw, cx: &Context) -> Result<Raw, CallError> {
    match name {
        "test_simple_prompt" => Ok(messages(&[text("This is a simple prompt for testing.")])),
        WITH_ARGUMENTS => with_arguments(arguments),
        "test_prompt_with_embedded_resource" => with_resource(arguments),
        "test_prompt_with_image" => Ok(messages(&[image(), text("Please analyze the image above.")])),
        "test_input_required_result_prompt" => with_context(cx).await,
        EXTRA => Ok(messages(&[text("There for now")])),
        _ => Err(CallError::client(Kind::Unknown, format!("Unknown prompt: {name}"))),
    }
}

fn with_arguments(arguments: &Raw) -> Result<Raw, CallError> {
    #[derive(Deserialize)]
    struct Arguments {
        arg1: String,
        arg2: String,
    }
    let Arguments { arg1, arg2 } = arguments.parse().map_err(CallError::invalid_params)?;
    Ok(messages(&[text(&format!("Prompt with arguments: arg1='{arg1}', arg2='{arg2}'"))]))
}

fn with_resource(arguments: &Raw) -> Result<Raw, CallError> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Arguments {
        resource_uri: String,
    }
    let Arguments { resource_uri } = arguments.parse().map_err(CallError::invalid_params)?;
    Ok(messages(&[
        resource(&resource_uri, "text/plain", "Embedded resource content for testing."),
        text("Please process the embedded resource above."),
    ]))
}

async fn with_context(cx: &Context) -> Result<Raw, CallError> {
    let answer = fill(cx, "user_context", line("What context should the prompt use?", "context")).await?;
    let context = answer.text("context").unwrap_or("none");
    Ok(messages(&[text(&format!("Use this context: {context}"))]))
}

/// A prompt's result: one message of the user per block.
fn messages(blocks: &[Value]) -> Raw {
    let messages: Vec<Value> = blocks.iter().map(|block| json!({"role": "user", "content": block})).collect();
    Raw::of(&json!({"messages": messages}))
}

fn prompt(name: &str, description: &str, arguments: &[(&str, &str)]) -> Arc<Prompt> {
    let arguments: Vec<Value> = arguments
        .iter()
        .map(|(name, description)| json!({"name": name, "description": description, "required": true}))
        .collect();
    let definition = Raw::of(&json!({"name": name, "description": description, "arguments": arguments}));
    Arc::new(Prompt { name: name.into(), definition })
}
