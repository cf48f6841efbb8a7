//! The fixture's process is the product with one more backend: whoever the product refuses is refused here too.

use anyhow::Result;
use moongate_test_support::{Answer, Client, Gateway, ModernClient};
use serde_json::json;

async fn start(yaml: &str) -> Result<Gateway> {
    Gateway::builder().binary("moongate-conformance").config(yaml).start().await
}

async fn call_first_tool(client: &Client, host: Option<&str>) -> Result<Answer> {
    let request =
        ModernClient::new(client).prepare("tools/call", &json!({"name": "test_simple_text"})).over(client);
    let request = match host {
        Some(host) => request.header("host", host),
        None => request,
    };
    request.send().await
}

#[tokio::test]
async fn the_fixture_is_listed_first_and_without_a_prefix() -> Result<()> {
    let gateway = start("security: {anonymous: true}").await?;
    let listed = ModernClient::new(&gateway.anonymous_client()).list("tools/list").await?;
    assert_eq!(listed["tools"][0]["name"], "test_simple_text");
    Ok(())
}

#[tokio::test]
async fn a_foreign_host_does_not_reach_the_fixture() -> Result<()> {
    let gateway = start("security: {anonymous: true}").await?;
    let client = gateway.anonymous_client();
    assert_eq!(call_first_tool(&client, None).await?.status, 200);
    assert_eq!(call_first_tool(&client, Some("evil.example.com")).await?.status, 403);
    Ok(())
}

#[tokio::test]
async fn a_caller_without_a_token_does_not_reach_the_fixture() -> Result<()> {
    let gateway = start("").await?;
    assert_eq!(call_first_tool(&gateway.anonymous_client(), None).await?.status, 401);
    assert_eq!(call_first_tool(&gateway.client(), None).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_caller_over_its_limit_is_refused_and_told_when_to_come_back() -> Result<()> {
    let gateway = start("security: {anonymous: true, limits: {per_address: 3/min}}").await?;
    let client = gateway.anonymous_client();
    let mut statuses = Vec::new();
    for _ in 0..4 {
        statuses.push(call_first_tool(&client, None).await?);
    }
    let codes: Vec<u16> = statuses.iter().map(|answer| answer.status).collect();
    assert_eq!(codes, [200, 200, 200, 429]);
    let seconds: u64 = statuses[3].header("retry-after").parse()?;
    assert!((1..=60).contains(&seconds), "{seconds}");
    Ok(())
}

#[tokio::test]
async fn a_page_of_another_site_does_not_reach_the_fixture() -> Result<()> {
    let gateway = start("security: {anonymous: true}").await?;
    let client = gateway.anonymous_client().with_header("origin", "https://evil.example.com");
    assert_eq!(call_first_tool(&client, None).await?.status, 403);
    Ok(())
}

#[tokio::test]
async fn rules_routes_and_limits_of_tools_hold_for_the_fixture() -> Result<()> {
    let yaml = "security: {rules: [{deny: {tools: [test_echo]}}], limits: {per_tool: {test_image_content: 1/h}}}\n\
                routes: [{match: test_audio_content, hide: true}, {match: test_error_handling, scope: admin}]";
    let gateway = start(yaml).await?;
    let client = gateway.client();
    let modern = ModernClient::new(&client);
    let listed = modern.list("tools/list").await?.to_string();
    let call = async |tool: &str| {
        let params = json!({"name": tool, "arguments": {"text": "x"}});
        modern.prepare("tools/call", &params).over(&client).send().await
    };
    for tool in ["test_echo", "test_audio_content"] {
        assert!(!listed.contains(&format!("\"{tool}\"")), "{tool} is listed");
        assert_eq!(call(tool).await?.json()?["error"]["code"], -32602, "{tool} is unknown");
    }
    assert_eq!(call("test_error_handling").await?.status, 200, "the local token may do everything");
    assert_eq!(
        (call("test_image_content").await?.status, call("test_image_content").await?.status),
        (200, 429)
    );
    Ok(())
}

/// The refusals above are made by the process that has the fixture, not by something in front of it.
#[tokio::test]
async fn the_process_that_refuses_is_the_one_that_counts_and_answers() -> Result<()> {
    let mut gateway = start("security: {anonymous: true, limits: {per_address: 2/min}}").await?;
    let client = gateway.anonymous_client();
    assert_eq!(call_first_tool(&client, Some("evil.example.com")).await?.status, 403);
    assert_eq!(call_first_tool(&client, None).await?.status, 200);
    assert_eq!(call_first_tool(&client, None).await?.status, 200);
    assert_eq!(call_first_tool(&client, None).await?.status, 429);
    let page = gateway.metrics().await?;
    for reason in ["host", "rate_limited"] {
        assert!(
            page.contains(&format!("moongate_refused_total{{reason=\"{reason}\"}} 1\n")),
            "{reason}: {page}"
        );
    }
    let pid = gateway.process().pid();
    let program = std::fs::read_link(format!("/proc/{pid}/exe"))?;
    assert!(program.ends_with("moongate-conformance"), "{}", program.display());
    Ok(())
}
