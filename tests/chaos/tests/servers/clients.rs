//! The official SDKs: three in scripts, which print one line of JSON, and one inside the test.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use moongate_test_support::patiently;
use rmcp::{
    ClientLifecycleMode, ClientServiceExt as _,
    model::{CallToolRequestParams, ProtocolVersion},
    transport::{StreamableHttpClientTransport, streamable_http_client::StreamableHttpClientTransportConfig},
};
use serde_json::{Value, json};

use crate::{
    Call,
    site::{Site, variable},
};

/// A client.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Client {
    /// In a script of this name, for Node.
    Node(&'static str),
    /// The same for Python.
    Python(&'static str),
    /// rmcp.
    Rust,
}

/// Every client with the eras it speaks.
pub(crate) const ALL: [(Client, &[&str]); 4] = [
    (Client::Node("typescript-1.mjs"), &["legacy"]),
    (Client::Node("typescript-2.mjs"), &["legacy", "modern"]),
    (Client::Python("python_sdk.py"), &["legacy", "modern"]),
    (Client::Rust, &["legacy", "modern"]),
];

impl Client {
    /// Lists the tools and makes `calls`.
    pub(crate) async fn run(self, site: &Site, era: &str, calls: &[Call]) -> Result<Value> {
        match self {
            Self::Node(script) => scripted(site, "MOONGATE_NODE", "node", script, era, calls).await,
            Self::Python(script) => scripted(site, "MOONGATE_PYTHON", "python3", script, era, calls).await,
            Self::Rust => Box::pin(rust(site, era, calls)).await,
        }
    }
}

async fn scripted(
    site: &Site,
    interpreter: &str,
    otherwise: &str,
    script: &str,
    era: &str,
    calls: &[Call],
) -> Result<Value> {
    let path = PathBuf::from(variable("MOONGATE_CLIENTS", "../clients")).join(script);
    let mut command = site.gateway.home().command_at(variable(interpreter, otherwise));
    command.arg(std::path::absolute(path)?).args([
        era,
        "http",
        site.gateway.endpoint(),
        &site.gateway.token()?,
    ]);
    let calls: Vec<_> =
        calls.iter().map(|call| json!({"name": call.name, "arguments": call.arguments})).collect();
    command.env("MOONGATE_CALLS", json!(calls).to_string());
    let output = patiently("the script", command.output()).await??;
    let (said, complained) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    anyhow::ensure!(output.status.success(), "{script}: {}\n{complained}", output.status);
    serde_json::from_str(&said).with_context(|| format!("printed {said:?}\n{complained}"))
}

async fn rust(site: &Site, era: &str, calls: &[Call]) -> Result<Value> {
    let mode = match era {
        "legacy" => ClientLifecycleMode::Initialize,
        _ => ClientLifecycleMode::Discover { preferred_versions: vec![ProtocolVersion::V_2026_07_28] },
    };
    let config = StreamableHttpClientTransportConfig::with_uri(site.gateway.endpoint())
        .auth_header(site.gateway.token()?);
    let transport = StreamableHttpClientTransport::from_config(config);
    let client = patiently("the connection", ().serve_with_lifecycle(transport, mode)).await??;
    let tools = patiently("the tools", client.list_all_tools()).await??;
    let mut results = Vec::new();
    for call in calls {
        let arguments = call.arguments.as_object().cloned().context("arguments are an object")?;
        let request = CallToolRequestParams::new(call.name.clone()).with_arguments(arguments);
        results.push(serde_json::to_value(patiently("a call", client.call_tool(request)).await??)?);
    }
    patiently("the end of the connection", client.cancel()).await??;
    Ok(json!({"tools": tools, "results": results}))
}
