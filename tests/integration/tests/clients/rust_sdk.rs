//! The official Rust SDK, which runs inside the test.

use std::ffi::OsString;

use anyhow::{Context as _, Result};
use moongate_test_support::{Home, patiently};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _, RoleClient,
    model::{CallToolRequestParams, ProtocolVersion},
    service::RunningService,
    transport::{
        StreamableHttpClientTransport, TokioChildProcess,
        streamable_http_client::StreamableHttpClientTransportConfig,
    },
};
use serde_json::{Value, json};

use crate::{GOAL, Sdk, pick, shown};

pub(crate) struct RustSdk;

impl Sdk for RustSdk {
    async fn over_http(&self, era: &str, url: &str, token: &str, _home: &Home) -> Result<Value> {
        let config = StreamableHttpClientTransportConfig::with_uri(url).auth_header(token);
        let transport = StreamableHttpClientTransport::from_config(config);
        report(patiently("the connection", ().serve_with_lifecycle(transport, mode(era)?)).await??).await
    }

    async fn over_stdio(&self, era: &str, server: &[OsString], home: &Home) -> Result<Value> {
        let (program, arguments) = server.split_first().context("a command has a program")?;
        let mut command = home.command_at(program);
        command.args(arguments);
        let transport = TokioChildProcess::new(command)?;
        report(patiently("the connection", ().serve_with_lifecycle(transport, mode(era)?)).await??).await
    }
}

/// Never `Auto`: a gateway that cannot speak the era fails the test instead of falling back.
fn mode(era: &str) -> Result<ClientLifecycleMode> {
    Ok(match era {
        "legacy" => ClientLifecycleMode::Initialize,
        "modern" => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
        other => anyhow::bail!("no era is called {other}"),
    })
}

async fn report(client: RunningService<RoleClient, ()>) -> Result<Value> {
    let tools = serde_json::to_value(patiently("the tools", client.list_all_tools()).await??)?;
    let tools = tools.as_array().context("no tools")?;
    let tools: Vec<_> =
        tools.iter().map(|tool| pick(tool, &["name", "description", "inputSchema"])).collect();
    let created = call(&client, "create_goal", json!({"goal": GOAL})).await?;
    let goals = call(&client, "list_goals", json!({})).await?;
    patiently("the end of the connection", client.cancel()).await??;
    Ok(json!({"tools": tools, "created": shown(&created), "goals": shown(&goals)}))
}

async fn call(
    client: &RunningService<RoleClient, ()>,
    tool: &'static str,
    arguments: Value,
) -> Result<Value> {
    let arguments = arguments.as_object().cloned().context("arguments are an object")?;
    let call = client.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments));
    Ok(serde_json::to_value(patiently(tool, call).await??)?)
}
