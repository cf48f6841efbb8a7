//! What several callers of one upstream share, and what stays with each of them.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use anyhow::{Context as _, Result};
use moongate_test_support::{Answers, Client, EventStream, Gateway, LegacySession, ModernClient, Peer};
use serde_json::{Value, json};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const TEXT: &str = "peer://text";
const UPDATED: &str = "notifications/resources/updated";
const TOOLS: &str = "notifications/tools/list_changed";

/// A client of another principal than the user.
async fn issued(gateway: &Gateway, subject: &str) -> Result<Client> {
    let issue = ["token", "issue", "--subject", subject, "--scopes", "write", "--ttl", "1h", "--json"];
    let output = gateway.home().run(&issue).await?;
    let issued: Value = serde_json::from_slice(&output.stdout).context("a token")?;
    let token = issued["token"].as_str().context("a token")?;
    Ok(gateway.anonymous_client().with_token(token))
}

/// A gateway before a server on a pipe, with these further lines of configuration.
async fn before(version: &str, more: &str) -> Result<Gateway> {
    let entry = Peer::stdio_yaml("peer", version, &[])?;
    Gateway::start(&format!("upstreams:\n{entry}    prefix: none\n{more}")).await
}

/// A session that watches the text, and its stream.
async fn watching(client: &Client) -> Result<(LegacySession, EventStream)> {
    let session = LegacySession::open(client, LEGACY).await?;
    session.request("resources/subscribe", &json!({"uri": TEXT})).await?.result()?;
    let stream = session.listen(None).await?;
    Ok((session, stream))
}

/// The methods of what is heard up to the next change of tools.
async fn heard(stream: &mut EventStream) -> Result<Vec<String>> {
    let mut heard = Vec::new();
    while heard.last().is_none_or(|last| last != TOOLS) {
        let message = stream.message().await?.context("the stream goes on")?;
        heard.push(message["method"].as_str().unwrap_or_default().to_owned());
    }
    Ok(heard)
}

#[tokio::test]
async fn an_update_at_one_callers_server_is_told_to_nobody_else() -> Result<()> {
    for version in [LEGACY, MODERN] {
        let gateway = before(version, "").await?;
        let (a, b) = (issued(&gateway, "a").await?, issued(&gateway, "b").await?);
        let (session, mut told) = watching(&a).await?;
        let (other, mut untold) = watching(&b).await?;
        let modern = ModernClient::new(&b);
        let mut listening =
            modern.listen(&json!({"toolsListChanged": true, "resourceSubscriptions": [TEXT]})).await?;
        let acknowledged = listening.message().await?.context("an acknowledgement")?;
        assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!([TEXT]));
        session.call("touch", json!({"uri": TEXT})).await?;
        told.message_where(|message| message["method"] == UPDATED).await?;
        // What was told then comes before what is told of these.
        for _ in 0..3 {
            other.call("change_tools", json!({})).await?;
            for stream in [&mut untold, &mut listening] {
                let heard = heard(stream).await?;
                assert!(!heard.iter().any(|method| method == UPDATED), "{version}: {heard:?}");
            }
        }
        // Their own they do hear of.
        other.call("touch", json!({"uri": TEXT})).await?;
        for stream in [&mut untold, &mut listening] {
            stream.message_where(|message| message["method"] == UPDATED).await?;
        }
    }
    Ok(())
}

/// How often the server was asked to read, and how often that was spared.
async fn reads(gateway: &Gateway) -> Result<(f64, f64)> {
    let sent = "mcp_client_operation_duration_seconds_count{error_type=\"\",mcp_method_name=\"resources/read\",\
                network_transport=\"pipe\",upstream=\"peer\"}";
    let hits = "moongate_cache_total{result=\"hit\",upstream=\"peer\"}";
    Ok((gateway.metric(sent).await?, gateway.metric(hits).await?))
}

#[tokio::test]
async fn a_route_keeps_what_was_read_for_its_reader_until_it_is_updated() -> Result<()> {
    let gateway = before(LEGACY, "routes:\n  - {match: \"peer://*\", upstream: peer, cache: 1h}\n").await?;
    let (a, b) = (issued(&gateway, "a").await?, issued(&gateway, "b").await?);
    let (session, mut stream) = watching(&a).await?;
    let read = json!({"uri": TEXT});
    let modern = ModernClient::new(&a);
    for _ in 0..2 {
        let text = session.request("resources/read", &read).await?.result()?;
        assert_eq!(text["contents"][0]["text"], "some text", "{text}");
    }
    assert_eq!(reads(&gateway).await?, (1.0, 1.0));
    let told = modern.request("resources/read", &read).await?.result()?;
    let left = told["ttlMs"].as_u64().context("a time")?;
    assert!((3_000_000..=3_600_000).contains(&left) && told["cacheScope"] == "private", "{told}");
    assert_eq!(reads(&gateway).await?, (1.0, 2.0));
    ModernClient::new(&b).request("resources/read", &read).await?.result()?;
    assert_eq!(reads(&gateway).await?, (2.0, 2.0), "another's reading is not shared");
    session.call("touch", json!({"uri": TEXT})).await?;
    stream.message_where(|message| message["method"] == UPDATED).await?;
    session.request("resources/read", &read).await?.result()?;
    assert_eq!(reads(&gateway).await?, (3.0, 2.0), "whoever hears of an update reads anew");
    Ok(())
}

#[tokio::test]
async fn without_a_route_a_legacy_server_is_always_asked() -> Result<()> {
    let gateway = before(LEGACY, "routes:\n  - {match: \"other://*\", cache: 1h}\n").await?;
    let modern = ModernClient::new(&gateway.client());
    for _ in 0..2 {
        let read = modern.request("resources/read", &json!({"uri": TEXT})).await?.result()?;
        assert_eq!(read["ttlMs"], 0, "{read}");
    }
    assert_eq!(reads(&gateway).await?, (2.0, 0.0));
    Ok(())
}

/// The capabilities that the server was told of with a call.
async fn told(client: &ModernClient) -> Result<Value> {
    let knows = client.call("whoami", json!({})).await?;
    let text = knows["content"][0]["text"].as_str().with_context(|| knows.to_string())?;
    Ok(serde_json::from_str::<Value>(text)?["capabilities"].clone())
}

#[tokio::test]
async fn extensions_that_nobody_knows_go_to_the_server_that_takes_what_is_unlisted() -> Result<()> {
    let declared = json!({"extensions": {"com.example/colours": {"depth": 24}}});
    for (forwards, expected) in [(true, &declared), (false, &json!({}))] {
        let gateway = before(MODERN, &format!("    forward_unlisted: {forwards}\n")).await?;
        let client =
            ModernClient::new(&gateway.client()).with_answers(&declared, Answers::fixed(json!({}), ""));
        assert_eq!(&told(&client).await?, expected);
        assert_eq!(client.call("breaches", json!({})).await?["content"][0]["text"], "[]");
    }
    Ok(())
}

/// The names of the headers that a call of `tool` with these headers reached the server with.
async fn headers_of(client: &ModernClient, headers: &[(&str, &str)]) -> Result<Vec<String>> {
    let request = client.prepare("tools/call", &json!({"name": "whoami", "arguments": {}}));
    let request = headers
        .iter()
        .fold(request.over(client.http()), |request, (name, value)| request.header(name, value));
    let answer = request.send().await?.json()?;
    let text = answer["result"]["content"][0]["text"].as_str().with_context(|| answer.to_string())?;
    let knows: Value = serde_json::from_str(text)?;
    let names = knows["headers"].as_array().cloned().unwrap_or_default();
    Ok(names.iter().filter_map(|name| name.as_str().map(str::to_owned)).collect())
}

#[tokio::test]
async fn parameters_in_headers_that_no_schema_declares_go_to_a_modern_server_over_http() -> Result<()> {
    let sent = [("mcp-param-tenant", "blue"), ("x-custom", "1"), ("mcp-name-x", "2")];
    for (version, passed) in [(MODERN, true), (LEGACY, false)] {
        let peer = Peer::http(version, &[]).await?;
        let gateway =
            Gateway::start(&format!("upstreams:\n{}    prefix: none\n", peer.url_yaml("peer"))).await?;
        let client = ModernClient::new(&gateway.client());
        let got = headers_of(&client, &sent).await?;
        assert_eq!(got.iter().any(|name| name == "mcp-param-tenant"), passed, "{version}: {got:?}");
        assert!(!got.iter().any(|name| name == "x-custom" || name == "mcp-name-x"), "{version}: {got:?}");
        let params = json!({"name": "route", "arguments": {"region": "eu"}});
        // What a schema declares is written anew, and the server notes if it were not.
        let route = client.prepare("tools/call", &params).over(client.http());
        let route = route.header("mcp-param-region", "eu").header("mcp-param-tenant", "blue");
        let answer = route.send().await?.json()?;
        assert_eq!(answer["result"]["content"][0]["text"], "eu", "{version}: {answer}");
        let breaches = client.call("breaches", json!({})).await?;
        assert_eq!(breaches["content"][0]["text"], "[]", "{version}");
    }
    Ok(())
}
