//! W3C trace context: a server behind the gateway learns which trace a call belongs to, however the client named it.

use anyhow::{Context as _, Result};
use moongate_test_support::{Gateway, LegacySession, ModernClient, Peer};
use serde_json::{Value, json};

const PARENT: &str = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
const OTHER: &str = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01";

/// The `_meta` that the server got.
fn meta(result: &Value) -> Result<Value> {
    let text =
        result.pointer("/content/0/text").and_then(Value::as_str).context("whoami answers with text")?;
    let known: Value = serde_json::from_str(text)?;
    Ok(known.get("meta").cloned().unwrap_or_default())
}

#[tokio::test]
async fn the_trace_of_a_header_reaches_servers_of_both_eras_and_meta_wins() -> Result<()> {
    let old = Peer::stdio_yaml("old", "2025-06-18", &[])?;
    let new = Peer::stdio_yaml("new", "2026-07-28", &[])?;
    let gateway = Gateway::start(&format!("upstreams:\n{old}{new}")).await?;
    let client = ModernClient::new(&gateway.client());
    for tool in ["old__whoami", "new__whoami"] {
        let call = async |own: &Value, headers: &[(&str, &str)]| {
            let params = json!({"name": tool, "arguments": {}, "_meta": own});
            let mut request = client.prepare("tools/call", &params).over(client.http());
            for (name, value) in headers {
                request = request.header(name, value);
            }
            meta(&request.send().await?.json()?["result"])
        };
        let headers = [("traceparent", PARENT), ("tracestate", "a=1"), ("baggage", "b=2")];
        let seen = call(&json!({}), &headers).await?;
        for (name, value) in headers {
            assert_eq!(seen[name], value, "{tool}: {seen}");
        }
        let seen = call(&json!({"traceparent": OTHER}), &headers).await?;
        assert_eq!(
            (&seen["traceparent"], &seen["tracestate"]),
            (&json!(OTHER), &Value::Null),
            "{tool}: {seen}"
        );
        let seen = call(&json!({}), &[]).await?;
        assert_eq!(seen["traceparent"], Value::Null, "{tool}: {seen}");
    }
    Ok(())
}

#[tokio::test]
async fn a_session_names_its_trace_with_each_request() -> Result<()> {
    let gateway =
        Gateway::start(&format!("upstreams:\n{}", Peer::stdio_yaml("new", "2026-07-28", &[])?)).await?;
    let http = gateway.client();
    let session = LegacySession::open(&http, "2025-11-25").await?;
    let call = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call",
        "params": {"name": "new__whoami", "arguments": {}}});
    let request = http.post(&call).header("mcp-session-id", session.id()).header("traceparent", PARENT);
    let mut stream = request.header("accept", "application/json").open().await?;
    let answer = stream.body_json().await?.context("an answer has a body")?;
    assert_eq!(meta(&answer["result"])?["traceparent"], PARENT);
    Ok(())
}
