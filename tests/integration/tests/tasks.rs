//! Tasks of a modern server behind the gateway, over the wire: followed by clients that know them, run to their end for
//! legacy clients, and nobody's but their owner's.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use anyhow::{Context as _, Result};
use moongate_test_integration::{caller, fixture, pipe::ModernPipe};
use moongate_test_support::{Answers, Client, Gateway, LegacySession, ModernClient, Peer, Stdio};
use serde_json::{Value, json};

const TASKS: &str = "io.modelcontextprotocol/tasks";
const MODERN: &str = "2026-07-28";

/// A client that knows tasks and can be asked.
fn knowing(client: &Client) -> ModernClient {
    ModernClient::new(client).with_answers(&abilities(), Answers::none())
}

fn abilities() -> Value {
    json!({"elicitation": {}, "extensions": {TASKS: {}}})
}

/// A gateway before one peer with tasks, which it starts itself.
async fn gateway() -> Result<Gateway> {
    let peer = Peer::stdio_yaml("peer", MODERN, &["--tasks"])?;
    Gateway::start(&format!("upstreams:\n{peer}profiles: {{other: {{upstreams: [peer]}}}}\n")).await
}

/// Has a task made: what the call answered.
async fn started(client: &ModernClient) -> Result<Value> {
    let made = client.call("peer__job", json!({})).await?;
    assert_eq!(made["resultType"], "task", "{made}");
    Ok(made)
}

/// Follows a task from its making to its end.
async fn follow(client: &ModernClient) -> Result<()> {
    let made = started(client).await?;
    let id = made["taskId"].as_str().context("a task has an id")?;
    assert!(!id.contains("task"), "the id is the gateway's own: {id}");
    assert_eq!((&made["status"], &made["ttlMs"]), (&json!("input_required"), &json!(60000)));
    assert!(made["_meta"]["io.modelcontextprotocol/serverInfo"]["name"] == "moongate", "{made}");
    let task = json!({"taskId": id});
    let asks = client.request("tasks/get", &task).await?.result()?;
    assert_eq!((&asks["taskId"], &asks["resultType"]), (&json!(id), &json!("complete")));
    assert_eq!(asks["inputRequests"]["name"]["method"], "elicitation/create");

    let mut listen = client.listen(&json!({"taskIds": [id, "nobody's", id]})).await?;
    let acknowledged = listen.message().await?.context("an acknowledgement")?;
    assert_eq!(acknowledged["params"]["notifications"], json!({"taskIds": [id]}));
    let answer = json!({"name": {"action": "accept", "content": {"name": "Ada"}}});
    let update = json!({"taskId": id, "inputResponses": answer});
    let update = client.request("tasks/update", &update).await?.result()?;
    assert!(update["resultType"] == "complete" && update.get("taskId").is_none(), "{update}");
    let told = listen.message().await?.context("news of the task")?;
    assert_eq!(told["method"], "notifications/tasks");
    assert!(told["params"]["_meta"]["io.modelcontextprotocol/subscriptionId"].is_number(), "{told}");
    let done = client.request("tasks/get", &task).await?.result()?;
    for said in [&told["params"], &done] {
        assert_eq!((&said["taskId"], &said["status"]), (&json!(id), &json!("completed")));
        assert_eq!(said["result"]["content"][0]["text"], "Hello, Ada!");
        assert_eq!(said["result"]["resultType"], "complete", "as the tool itself would have answered");
    }
    let cancel = client.request("tasks/cancel", &task).await?.result()?;
    assert_eq!(cancel["resultType"], "complete");
    assert_eq!(client.call("peer__breaches", json!({})).await?["content"][0]["text"], "[]");
    Ok(())
}

#[tokio::test]
async fn a_client_that_knows_tasks_follows_them_at_a_process() -> Result<()> {
    let gateway = gateway().await?;
    follow(&knowing(&gateway.client())).await
}

#[tokio::test]
async fn a_client_that_knows_tasks_follows_them_at_a_remote_server() -> Result<()> {
    let peer = Peer::http(MODERN, &["--tasks"]).await?;
    let gateway = Gateway::start(&format!("upstreams:\n{}", peer.url_yaml("peer"))).await?;
    follow(&knowing(&gateway.client())).await
}

#[tokio::test]
async fn a_client_on_a_pipe_follows_tasks_too() -> Result<()> {
    let peer = Peer::stdio_yaml("peer", MODERN, &["--tasks"])?;
    let home = std::sync::Arc::new(moongate_test_support::Home::create()?);
    let stdio = Stdio::start_binary("moongate", &home, &format!("upstreams:\n{peer}"), &[], &[])?;
    let mut pipe = ModernPipe::new(stdio).with_answers(abilities(), Answers::none());
    let made = pipe.call("peer__job", json!({})).await?;
    let task = json!({"taskId": made["taskId"]});
    pipe.once("tasks/cancel", &task).await?.result()?;
    let task = pipe.once("tasks/get", &task).await?.result()?;
    assert_eq!((&task["taskId"], &task["status"]), (&made["taskId"], &json!("cancelled")));
    assert_eq!(pipe.once("tasks/get", &json!({})).await?.code()?, -32602);
    Ok(())
}

#[tokio::test]
async fn a_task_is_its_owners_and_nobody_elses() -> Result<()> {
    let gateway = gateway().await?;
    let (ada, bob) = (
        caller::issued(&gateway, "ada", "write").await?,
        knowing(&caller::issued(&gateway, "bob", "write").await?),
    );
    let made = started(&knowing(&ada)).await?;
    let id = made["taskId"].as_str().context("an id")?.to_owned();
    started(&bob).await?;
    let (front, back) = id.split_at(id.len() / 2);
    let changed = format!("{front}{}{}", if back.starts_with('A') { 'B' } else { 'A' }, &back[1..]);
    let elsewhere = knowing(&ada.clone().with_path("/mcp/other"));
    let ada_knowing = knowing(&ada);
    for (who, id) in [
        (&bob, id.as_str()),
        (&elsewhere, &id),
        (&ada_knowing, &changed),
        (&ada_knowing, "task 1"),
        (&ada_knowing, ""),
    ] {
        for method in ["tasks/get", "tasks/update", "tasks/cancel"] {
            let outcome = who.request(method, &json!({"taskId": id, "inputResponses": {}})).await?;
            assert_eq!((outcome.status, outcome.code()?), (200, -32602), "{method} {id}");
        }
        let mut listen = who.listen(&json!({"taskIds": [id]})).await?;
        let acknowledged = listen.message().await?.context("an acknowledgement")?;
        assert_eq!(acknowledged["params"]["notifications"], json!({}), "{id}");
    }
    // Whoever may not call the tool may not ask after its tasks, also if they are its own.
    let reader = knowing(&caller::issued(&gateway, "ada", "read").await?);
    assert_eq!(reader.request("tasks/get", &json!({"taskId": id})).await?.status, 403);
    let still = ada_knowing.request("tasks/get", &json!({"taskId": id})).await?.result()?;
    assert_eq!(still["status"], "input_required", "nobody has cancelled it");
    Ok(())
}

#[tokio::test]
async fn who_did_not_declare_tasks_is_told_what_is_missing() -> Result<()> {
    let gateway = gateway().await?;
    let id = started(&knowing(&gateway.client())).await?["taskId"].clone();
    let plain = ModernClient::new(&gateway.client());
    let required = json!({"extensions": {TASKS: {}}});
    let listen = json!({"notifications": {"taskIds": [id]}});
    for (method, params) in [
        ("tasks/get", json!({"taskId": id})),
        ("tasks/update", json!({"taskId": id, "inputResponses": {}})),
        ("tasks/cancel", json!({"taskId": "any"})),
        ("subscriptions/listen", listen),
        ("tools/call", json!({"name": "peer__job", "arguments": {}})),
    ] {
        let outcome = plain.request(method, &params).await?;
        assert_eq!((outcome.status, outcome.code()?), (400, -32021), "{method}");
        assert_eq!(outcome.response["error"]["data"]["requiredCapabilities"], required, "{method}");
    }
    Ok(())
}

#[tokio::test]
async fn a_legacy_client_has_the_task_run_to_its_end() -> Result<()> {
    let gateway = gateway().await?;
    let session = LegacySession::open_with(
        &gateway.client(),
        "2025-11-25",
        &json!({"elicitation": {}}),
        fixture::person("Ada"),
    )
    .await?;
    let result = session.call("peer__job", json!({})).await?;
    assert_eq!(result["content"][0]["text"], "Hello, Ada!");
    assert_eq!(session.call("peer__breaches", json!({})).await?["content"][0]["text"], "[]");
    let outcome = session.request("tasks/get", &json!({"taskId": "task 1"})).await?;
    assert_eq!(outcome.code()?, -32601, "it knows nothing of tasks");
    Ok(())
}

#[tokio::test]
async fn tasks_are_advertised_once_a_server_is_known_to_make_them() -> Result<()> {
    let peer = Peer::http(MODERN, &["--tasks"]).await?;
    let plain = Peer::http(MODERN, &[]).await?;
    let rules = "security: {rules: [{deny: {tools: [\"peer__*\"], principals: [\"issued:bob\"]}}]}\n";
    let profiles = "profiles: {none: {upstreams: [plain]}}\n";
    let upstreams = format!("upstreams:\n{}{}", peer.url_yaml("peer"), plain.url_yaml("plain"));
    let gateway = Gateway::start(&format!("{rules}{profiles}{upstreams}")).await?;
    let advertised = async |client: &Client| -> Result<bool> {
        let client = ModernClient::new(client);
        client.list("tools/list").await?;
        let discovered = client.request("server/discover", &json!({})).await?.result()?;
        assert!(discovered["capabilities"].get("tasks").is_none(), "{discovered}");
        Ok(discovered["capabilities"]["extensions"][TASKS].is_object())
    };
    let client = gateway.client();
    assert!(advertised(&client).await?);
    assert!(!advertised(&client.clone().with_path("/mcp/none")).await?);
    assert!(!advertised(&caller::issued(&gateway, "bob", "write").await?).await?);
    let builtin = Gateway::start("").await?;
    assert!(!advertised(&builtin.client()).await?);
    Ok(())
}
