//! A whole conversation in every version over every transport: everything is answered, and nothing is a breach.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

mod client;

use anyhow::Result;
use moongate_test_peer::Version;
use serde_json::{Value, json};

use self::client::Client;

#[tokio::test]
async fn a_correct_client_on_a_pipe_commits_no_breach() -> Result<()> {
    for version in Version::ALL {
        converse(Client::over_stdio(version).await?).await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_correct_client_over_http_commits_no_breach() -> Result<()> {
    for version in Version::ALL {
        converse(Client::over_http(version).await?).await?;
    }
    Ok(())
}

async fn converse(mut client: Client) -> Result<()> {
    lists(&mut client).await?;
    plain_tools(&mut client).await?;
    questions(&mut client).await?;
    cancellation(&mut client).await?;
    changes(&mut client).await?;
    assert_eq!(client.call("breaches", json!({})).await?, "[]", "{:?}", client.version);
    Ok(())
}

async fn lists(client: &mut Client) -> Result<()> {
    let tools = client.request("tools/list", json!({})).await?;
    let tools = tools["result"]["tools"].as_array().expect("tools");
    assert_eq!(tools.last().expect("some")["name"], "breaches");
    let add = tools.iter().find(|tool| tool["name"] == "add").expect("add");
    assert_eq!(add["annotations"].is_object(), client.version >= Version::March2025);
    assert_eq!(add["outputSchema"].is_object(), client.version >= Version::June2025);

    for (method, member) in [
        ("prompts/list", "prompts"),
        ("resources/list", "resources"),
        ("resources/templates/list", "resourceTemplates"),
    ] {
        let list = client.request(method, json!({})).await?;
        assert!(!list["result"][member].as_array().expect(member).is_empty());
        assert_eq!(list["result"]["cacheScope"].is_string(), client.version.is_modern());
    }
    let prompt =
        client.request("prompts/get", json!({"name": "greet", "arguments": {"name": "Ada"}})).await?;
    assert_eq!(prompt["result"]["messages"][0]["content"]["text"], "Say hello to Ada.");
    let reference =
        json!({"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "name", "value": "A"}});
    let completed = client.request("completion/complete", reference).await?;
    assert_eq!(completed["result"]["completion"]["values"], json!(["Ada", "Alan"]));
    for (uri, member, value) in [
        ("peer://text", "text", "some text"),
        ("peer://blob", "blob", "AAECAw=="),
        ("peer://item/7", "text", "item 7"),
    ] {
        let read = client.request("resources/read", json!({"uri": uri})).await?;
        assert_eq!(read["result"]["contents"][0][member], value);
    }
    let missing = client.request("resources/read", json!({"uri": "peer://none"})).await?;
    assert_eq!(missing["error"]["code"], if client.version.is_modern() { -32602 } else { -32002 });
    Ok(())
}

async fn plain_tools(client: &mut Client) -> Result<()> {
    assert_eq!(client.call("echo", json!({"text": "häl\n"})).await?, "häl\n");
    let sum = client.result("add", json!({"a": 1, "b": 2})).await?;
    assert_eq!(sum.get("structuredContent").is_some(), client.version >= Version::June2025);
    assert_eq!(sum["content"][0]["text"], r#"{"sum":3.0}"#);
    let known: Value = serde_json::from_str(&client.call("whoami", json!({})).await?)?;
    assert!(known["pid"].is_u64() && known["capabilities"]["sampling"].is_object(), "{known}");

    let params = json!({"name": "progress", "arguments": {"steps": 100}, "_meta": {"progressToken": "t"}});
    client.request("tools/call", params).await?;
    let steps: Vec<_> = client.notes.iter().map(|note| note["params"]["progress"].as_u64()).collect();
    assert_eq!(steps, (1..=100).map(Some).collect::<Vec<_>>());
    client.call("progress", json!({"steps": 3})).await?;
    assert_eq!(client.notes, [Value::Null; 0], "nobody gave a token");

    if !client.version.is_modern() {
        client.request("logging/setLevel", json!({"level": "warning"})).await?;
    }
    client.call("log", json!({"level": "info", "text": "too quiet"})).await?;
    assert_eq!(client.notes, [Value::Null; 0]);
    client.call("log", json!({"level": "error", "text": "loud"})).await?;
    assert_eq!(client.notes[0]["params"]["data"], "loud");

    let links = client.result("links", json!({})).await?;
    let count = 3
        + usize::from(client.version >= Version::March2025)
        + usize::from(client.version >= Version::June2025);
    assert_eq!(links["content"].as_array().expect("content").len(), count);
    assert_eq!(client.result("fail", json!({})).await?["isError"], true);
    let params = json!({"name": "error", "arguments": {"code": 7, "message": "seven"}});
    assert_eq!(client.request("tools/call", params).await?["error"], json!({"code": 7, "message": "seven"}));
    assert_eq!(client.call("count", json!({})).await?, "1");
    assert_eq!(client.call("count", json!({})).await?, "2");
    assert_eq!(client.call("big", json!({"bytes": 100_000})).await?.len(), 100_000);
    Ok(())
}

async fn questions(client: &mut Client) -> Result<()> {
    let model: Value = serde_json::from_str(&client.call("ask_model", json!({"prompt": "?"})).await?)?;
    assert_eq!(model["content"]["text"], "42");
    let roots: Value = serde_json::from_str(&client.call("ask_roots", json!({})).await?)?;
    assert_eq!(roots["roots"][0]["uri"], "file:///home");
    if client.version.has_elicitation() {
        let form: Value = serde_json::from_str(&client.call("ask_form", json!({"message": "?"})).await?)?;
        assert_eq!(form["content"]["answer"], "yes");
        assert_eq!(client.call("ask_twice", json!({})).await?, "executed 1");
    } else {
        assert_eq!(client.result("ask_form", json!({"message": "?"})).await?["isError"], true);
    }
    if !client.version.is_modern() {
        assert_eq!(client.call("ping_client", json!({})).await?, "{}");
        assert_eq!(client.request("ping", json!({})).await?["result"], json!({}));
    }
    Ok(())
}

async fn cancellation(client: &mut Client) -> Result<()> {
    let waiting = client.begin("tools/call", json!({"name": "wait", "arguments": {}})).await?;
    client.cancel(waiting).await?;
    // A connection that is closed is noticed when it is noticed: each question is one more round for the server.
    for _ in 0..1000 {
        if client.call("cancelled", json!({})).await? == "1" {
            return Ok(());
        }
        tokio::task::yield_now().await;
    }
    panic!("{:?}: nothing was cancelled", client.version)
}

async fn changes(client: &mut Client) -> Result<()> {
    let wanted = json!({"toolsListChanged": true, "resourceSubscriptions": ["peer://text", "peer://other"]});
    let mut listening = None;
    if client.version.is_modern() {
        let mut begun = client.begin("subscriptions/listen", json!({"notifications": wanted})).await?;
        let acknowledged = client.next(&mut begun).await?;
        assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
        assert_eq!(acknowledged["params"]["notifications"]["resourceSubscriptions"], json!(["peer://text"]));
        listening = Some(begun);
    } else {
        client.request("resources/subscribe", json!({"uri": "peer://text"})).await?;
    }
    assert_eq!(client.call("touch", json!({"uri": "peer://text"})).await?, "told 1");
    let mut told = client.notes.clone();
    assert_eq!(client.call("change_tools", json!({})).await?, "added_1");
    told.extend(client.notes.clone());
    if !client.has_one_stream() {
        for _ in 0..2 {
            told.push(match &mut listening {
                Some(begun) => client.next(begun).await?,
                None => client.unasked().await?,
            });
        }
    }
    let methods: Vec<_> = told.iter().map(|note| note["method"].as_str().expect("a method")).collect();
    assert_eq!(methods, ["notifications/resources/updated", "notifications/tools/list_changed"]);
    let tagged = told.iter().all(|note| note["params"]["_meta"].is_object());
    assert_eq!(tagged, client.version.is_modern());
    assert_eq!(client.call("touch", json!({"uri": "peer://other"})).await?, "told 0");
    assert_eq!(client.call("added_1", json!({})).await?, "added_1");
    if !client.version.is_modern() {
        client.request("resources/unsubscribe", json!({"uri": "peer://text"})).await?;
        assert_eq!(client.call("touch", json!({"uri": "peer://text"})).await?, "told 0");
    }
    Ok(())
}
