//! The product with the conformance fixtures as one more backend: tools that ask, take long, or change lists.

use std::sync::Arc;

use anyhow::Result;
use moongate_test_support::{Answers, Gateway, Home, Stdio};
use serde_json::{Value, json};

const BINARY: &str = "moongate-conformance";

/// The resource that `test_trigger_resource_update` updates.
pub const WATCHED: &str = "test://watched-resource";

/// Starts it on a port.
pub async fn gateway(yaml: &str) -> Result<Gateway> {
    Gateway::builder().binary(BINARY).config(yaml).start().await
}

/// Starts it on a pipe.
pub fn pipe(yaml: &str) -> Result<Stdio> {
    Stdio::start_binary(BINARY, &Arc::new(Home::create()?), yaml, &[], &[])
}

/// What a client declares that can answer both questions of `test_ask_twice`.
pub fn talkative() -> Value {
    json!({"elicitation": {}, "sampling": {}})
}

/// The answers of a person called `name`, whose model says `Hello, NAME!`.
pub fn person(name: &str) -> Answers {
    Answers::fixed(json!({"name": name}), &format!("Hello, {name}!"))
}

/// The sample that counts calls of `tool` over HTTP that ended with `error`; empty for those that ended well.
pub fn calls(tool: &str, error: &str) -> String {
    format!(
        "mcp_server_operation_duration_seconds_count{{error_type=\"{error}\",gen_ai_tool_name=\"{tool}\",\
         mcp_method_name=\"tools/call\",network_transport=\"tcp\"}}"
    )
}
