//! A service built on the official Rust SDK, which acts for one session and one assistant (CTX-T11).
//!
//! It says who it acts for when it is built, in headers of its transport, and never again: what it calls is called once,
//! for that session and assistant, and what comes of it is seen by nobody else.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::collections::HashMap;

use anyhow::{Context as _, Result};
use http::{HeaderName, HeaderValue};
use moongate_test_integration::fixture;
use moongate_test_support::{Gateway, patiently};
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _, RoleClient,
    model::{CallToolRequestParams, ProtocolVersion},
    service::RunningService,
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::{Value, json};

const GOAL: &str = "Plant a tree";

/// A connection of the SDK, all of whose requests name one session and one assistant.
struct Service(RunningService<RoleClient, ()>);

impl Service {
    async fn connect(
        gateway: &Gateway,
        mode: &ClientLifecycleMode,
        session: &'static str,
        assistant: &'static str,
    ) -> Result<Self> {
        let headers = HashMap::from([
            (HeaderName::from_static("x-session-id"), HeaderValue::from_static(session)),
            (HeaderName::from_static("x-assistant-id"), HeaderValue::from_static(assistant)),
        ]);
        let config = StreamableHttpClientTransportConfig::with_uri(gateway.endpoint())
            .auth_header(gateway.token()?)
            .custom_headers(headers);
        let transport = StreamableHttpClientTransport::from_config(config);
        let connecting = ().serve_with_lifecycle(transport, mode.clone());
        Ok(Self(patiently("the connection", connecting).await??))
    }

    async fn call(&self, tool: &'static str, arguments: Value) -> Result<Value> {
        let arguments = arguments.as_object().cloned().context("arguments are an object")?;
        let call = self.0.call_tool(CallToolRequestParams::new(tool).with_arguments(arguments));
        let result = serde_json::to_value(patiently(tool, call).await??)?;
        anyhow::ensure!(result["isError"] == false, "{tool}: {result}");
        Ok(result)
    }

    /// The names of the goals it is shown.
    async fn goals(&self) -> Result<Vec<String>> {
        let listed = self.call("list_goals", json!({})).await?;
        let goals = listed["structuredContent"]["goals"].as_array();
        let goals = goals.with_context(|| format!("no list: {listed}"))?;
        let name = |goal: &Value| goal["name"].as_str().map(ToOwned::to_owned);
        goals.iter().map(|goal| name(goal).with_context(|| format!("no name: {goal}"))).collect()
    }

    async fn close(self) -> Result<()> {
        patiently("the end of the connection", self.0.cancel()).await??;
        Ok(())
    }
}

#[tokio::test]
async fn ctx_t11_a_legacy_service_acts_once_for_its_session_and_assistant() -> Result<()> {
    acts_once(&ClientLifecycleMode::Initialize).await
}

#[tokio::test]
async fn ctx_t11_a_modern_service_acts_once_for_its_session_and_assistant() -> Result<()> {
    acts_once(&ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] })
        .await
}

async fn acts_once(mode: &ClientLifecycleMode) -> Result<()> {
    let mut gateway = Gateway::start("telemetry: {log_level: debug, log_format: json}").await?;
    let service = Service::connect(&gateway, mode, "sess_1", "asst_1").await?;
    let created = service.call("create_goal", json!({"goal": GOAL})).await?;
    assert!(created.to_string().contains(GOAL), "{created}");
    assert_eq!(service.goals().await?, [GOAL]);

    // The second one is the same pair on another connection: the ids decide, not who is connected.
    let others = [("sess_1", "asst_1", 1), ("sess_2", "asst_1", 0), ("sess_1", "asst_2", 0)];
    for (session, assistant, seen) in others {
        let other = Service::connect(&gateway, mode, session, assistant).await?;
        assert_eq!(other.goals().await?, vec![GOAL; seen], "{assistant} in {session}");
        other.close().await?;
    }
    service.close().await?;

    assert_eq!(counted(&gateway.metrics().await?), [format!("{} 1", fixture::calls("create_goal", ""))]);
    let calls = calls_in(&whole_log(&mut gateway).await?);
    let call = |tool: &str, session: &str, assistant: &str| [tool, session, assistant].map(ToOwned::to_owned);
    assert_eq!(
        calls,
        [
            call("create_goal", "sess_1", "asst_1"),
            call("list_goals", "sess_1", "asst_1"),
            call("list_goals", "sess_1", "asst_1"),
            call("list_goals", "sess_2", "asst_1"),
            call("list_goals", "sess_1", "asst_2"),
        ]
    );
    Ok(())
}

/// The samples that count calls of `create_goal`, however they ended and came.
fn counted(page: &str) -> Vec<&str> {
    let counts = page.lines().filter(|line| line.starts_with("mcp_server_operation_duration_seconds_count{"));
    counts.filter(|line| line.contains(r#"="create_goal""#) && !line.ends_with(" 0")).collect()
}

/// All that the gateway has logged when it has ended, so that no late line is missed.
async fn whole_log(gateway: &mut Gateway) -> Result<String> {
    let status = gateway.stop().await?;
    anyhow::ensure!(status.success(), "the gateway ended with {status}");
    let log = gateway.process().stderr();
    let beyond = patiently("the end of the log", log.line(|_| false)).await?;
    anyhow::ensure!(beyond.is_err(), "no line satisfies nothing");
    Ok(log.text())
}

/// Tool, session and assistant of every tool call in the log, in the order in which they ended.
fn calls_in(log: &str) -> Vec<[String; 3]> {
    // The ready line is no JSON.
    let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
    let calls = lines.filter(|line| line["message"] == "call" && line["method"] == "tools/call");
    calls.map(|line| ["name", "session", "assistant"].map(|key| text(&line[key]))).collect()
}

fn text(value: &Value) -> String {
    value.as_str().map_or_else(|| format!("no text: {value}"), ToOwned::to_owned)
}
