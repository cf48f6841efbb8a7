//! Tools that ask nothing: every kind of content, progress, logs, a broken connection, changed lists.

use std::time::Duration;

use moongate_core::{CallError, Context, Level, Raw};
use serde::Deserialize;
use serde_json::json;

use super::{Definition, with_text, without_arguments};
use crate::{
    Fixture,
    content::{audio, blocks, failed, image, resource, said, text},
};

/// The name of the tool that comes and goes.
pub(super) const EXTRA: &str = "test_dynamic_tool";

/// Between two notes, so that a client sees them come one by one.
const BEAT: Duration = Duration::from_millis(50);
/// After the connection was ended: long enough for the client to notice before the result is there.
const AWAY: Duration = Duration::from_millis(100);

pub(super) fn definitions() -> Vec<Definition> {
    let none = without_arguments;
    vec![
        ("test_simple_text", "Returns one text", none()),
        ("test_image_content", "Returns an image", none()),
        ("test_audio_content", "Returns a sound", none()),
        ("test_embedded_resource", "Returns an embedded resource", none()),
        ("test_multiple_content_types", "Returns a text, an image and a resource", none()),
        ("test_error_handling", "Always fails", none()),
        ("test_tool_with_progress", "Reports progress three times while it works", none()),
        ("test_tool_with_logging", "Logs three lines while it works", none()),
        ("test_logging_tool", "Logs one line and is done", none()),
        ("test_reconnection", "Ends the connection while it works; the result waits for the client", none()),
        ("test_trigger_tool_change", "Changes the list of tools", none()),
        ("test_trigger_prompt_change", "Changes the list of prompts", none()),
        ("test_trigger_resource_update", "Announces an update of the watched resource", none()),
        (
            "test_header_param",
            "Returns its argument, which a header has to repeat",
            json!({
                "type": "object",
                "properties": {
                    "region": {"type": "string", "description": "Any text", "x-mcp-header": "Region"}
                },
                "required": ["region"],
            }),
        ),
        ("test_echo", "Returns its argument", with_text("text", "Any text")),
        (
            "test_slow",
            "Answers after a while",
            json!({
                "type": "object",
                "properties": {"milliseconds": {"type": "integer", "minimum": 0, "maximum": 600_000}},
                "required": ["milliseconds"],
            }),
        ),
    ]
}

/// Runs the tool, if it is one of these.
pub(super) async fn call(
    fixture: &Fixture,
    name: &str,
    arguments: &Raw,
    cx: &Context,
) -> Option<Result<Raw, CallError>> {
    Some(Ok(match name {
        "test_simple_text" => said("This is a simple text response for testing."),
        "test_image_content" => blocks(&[image()]),
        "test_audio_content" => blocks(&[audio()]),
        "test_embedded_resource" => embedded(),
        "test_multiple_content_types" => mixed(),
        "test_error_handling" => failed("This tool intentionally returns an error for testing"),
        "test_tool_with_progress" => progress(cx).await,
        "test_tool_with_logging" => logging(cx).await,
        "test_logging_tool" => {
            cx.peer.log(Level::Info, Some("fixture"), "One line for whoever asked for logs");
            said("Logged one line")
        }
        "test_reconnection" => reconnection(cx).await,
        "test_trigger_tool_change" => {
            fixture.change_tools();
            said("The list of tools changed")
        }
        "test_trigger_prompt_change" => {
            fixture.change_prompts();
            said("The list of prompts changed")
        }
        "test_trigger_resource_update" => {
            fixture.update_watched();
            said("The watched resource was updated")
        }
        "test_header_param" => return Some(region(arguments)),
        "test_echo" => return Some(echo(arguments)),
        "test_slow" => return Some(slow(arguments).await),
        "json_schema_2020_12_tool" => said(format!("Called with {}", arguments.as_str())),
        EXTRA => said("There for now"),
        _ => return None,
    }))
}

fn embedded() -> Raw {
    blocks(&[resource("test://embedded-resource", "text/plain", "This is an embedded resource content.")])
}

fn mixed() -> Raw {
    let data = json!({"test": "data", "value": 123}).to_string();
    blocks(&[
        text("Multiple content types test:"),
        image(),
        resource("test://mixed-content-resource", "application/json", &data),
    ])
}

async fn progress(cx: &Context) -> Raw {
    cx.peer.progress(0.0, Some(100.0), Some("Started"));
    tokio::time::sleep(BEAT).await;
    cx.peer.progress(50.0, Some(100.0), Some("Half done"));
    tokio::time::sleep(BEAT).await;
    cx.peer.progress(100.0, Some(100.0), Some("Done"));
    said("Reported progress three times")
}

async fn logging(cx: &Context) -> Raw {
    let log = |words: &str| cx.peer.log(Level::Info, Some("fixture"), words);
    log("Tool execution started");
    tokio::time::sleep(BEAT).await;
    log("Tool processing data");
    tokio::time::sleep(BEAT).await;
    log("Tool execution completed");
    said("Logged three lines")
}

async fn reconnection(cx: &Context) -> Raw {
    cx.peer.hang_up();
    tokio::time::sleep(AWAY).await;
    said("Reconnection test completed: this result was made after the connection ended")
}

fn region(arguments: &Raw) -> Result<Raw, CallError> {
    #[derive(Deserialize)]
    struct Arguments {
        region: String,
    }
    let Arguments { region } = arguments.parse().map_err(CallError::invalid_params)?;
    Ok(said(format!("Region: {region}")))
}

fn echo(arguments: &Raw) -> Result<Raw, CallError> {
    #[derive(Deserialize)]
    struct Arguments {
        text: String,
    }
    let Arguments { text } = arguments.parse().map_err(CallError::invalid_params)?;
    Ok(said(text))
}

async fn slow(arguments: &Raw) -> Result<Raw, CallError> {
    #[derive(Deserialize)]
    struct Arguments {
        milliseconds: u32,
    }
    let Arguments { milliseconds } = arguments.parse().map_err(CallError::invalid_params)?;
    tokio::time::sleep(Duration::from_millis(milliseconds.into())).await;
    Ok(said(format!("Waited for {milliseconds} ms")))
}
