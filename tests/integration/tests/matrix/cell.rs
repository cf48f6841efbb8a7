//! One cell of the matrix: a client of one version does everything that an upstream of another has to offer.
//!
//! Each behaviour is told in a few words: `works`, or exactly what the client was answered instead.

use anyhow::{Context as _, Result};
use moongate_test_support::{Outcome, patiently};
use serde_json::{Value, json};

use crate::{
    client::Client,
    version::{MARCH, MODERN},
};

/// What a client that can do everything its version has tries in every cell, in this order.
pub(crate) const ABLE: [&str; 19] = [
    "tools",
    "prompts",
    "resources",
    "completion",
    "call",
    "structured",
    "content",
    "errors",
    "missing",
    "progress",
    "log",
    "cancel",
    "sampling",
    "elicitation",
    "roots",
    "twice",
    "subscription",
    "list_changed",
    "other era",
];

/// What a client that can do nothing for a server tries.
pub(crate) const BARE: [&str; 2] = ["silence", "unable"];

const WORKS: &str = "works";
const TEXT: &str = "peer://text";

/// Tries one behaviour. What goes wrong on the way is told as well.
pub(crate) async fn attempt(behaviour: &str, client: &mut Client, upstream: &str) -> String {
    let tried = match behaviour {
        "tools" => tools(client, upstream).await,
        "prompts" => prompts(client).await,
        "resources" => resources(client).await,
        "completion" => completion(client).await,
        "call" => call(client).await,
        "structured" => structured(client).await,
        "content" => content(client).await,
        "errors" => errors(client).await,
        "missing" => missing(client).await,
        "progress" => progress(client, upstream).await,
        "log" => log(client).await,
        "cancel" => cancel(client).await,
        "sampling" | "unable" => {
            ask(client, "ask_model", json!({"prompt": "Which colour?"}), "It is blue.").await
        }
        "elicitation" => ask(client, "ask_form", json!({"message": "Which colour?"}), "blue").await,
        "roots" => ask(client, "ask_roots", json!({}), "file:///test").await,
        "twice" => twice(client).await,
        "subscription" => subscription(client).await,
        "list_changed" => list_changed(client).await,
        "other era" => other_era(client).await,
        "silence" => silence(client).await,
        other => Err(anyhow::anyhow!("nothing is called {other}")),
    };
    tried.unwrap_or_else(|error| format!("failed: {error:#}"))
}

async fn tools(client: &mut Client, upstream: &str) -> Result<String> {
    let names = names(client).await?;
    let all = if upstream >= MODERN { 22 } else { 24 };
    let own = names.iter().filter(|name| name.starts_with("peer__")).count();
    anyhow::ensure!(own == names.len() && own >= all, "{names:?}");
    Ok(WORKS.to_owned())
}

async fn prompts(client: &mut Client) -> Result<String> {
    let listed = client.request("prompts/list", &json!({})).await?.result()?;
    anyhow::ensure!(listed["prompts"][0]["name"] == "peer__greet", "{listed}");
    let params = json!({"name": "peer__greet", "arguments": {"name": "Ada"}});
    let prompt = client.request("prompts/get", &params).await?.result()?;
    anyhow::ensure!(prompt["messages"][0]["content"]["text"] == "Say hello to Ada.", "{prompt}");
    Ok(WORKS.to_owned())
}

async fn resources(client: &mut Client) -> Result<String> {
    let listed = client.request("resources/list", &json!({})).await?.result()?;
    anyhow::ensure!(listed["resources"].as_array().map(Vec::len) == Some(2), "{listed}");
    let templates = client.request("resources/templates/list", &json!({})).await?.result()?;
    anyhow::ensure!(templates["resourceTemplates"][0]["uriTemplate"] == "peer://item/{id}", "{templates}");
    for (uri, member, expected) in [
        (TEXT, "text", "some text"),
        ("peer://blob", "blob", "AAECAw=="),
        ("peer://item/7", "text", "item 7"),
    ] {
        let read = client.request("resources/read", &json!({"uri": uri})).await?.result()?;
        anyhow::ensure!(read["contents"][0][member] == expected, "{read}");
    }
    Ok(WORKS.to_owned())
}

async fn completion(client: &mut Client) -> Result<String> {
    let reference = json!({"type": "ref/prompt", "name": "peer__greet"});
    let params = json!({"ref": reference, "argument": {"name": "name", "value": "A"}});
    let outcome = client.request("completion/complete", &params).await?;
    let expected = outcome.response["result"]["completion"]["values"] == json!(["Ada", "Alan"]);
    Ok(if expected { WORKS.to_owned() } else { told(&outcome) })
}

async fn call(client: &mut Client) -> Result<String> {
    let text = "two words, \u{65e5}\u{672c}";
    anyhow::ensure!(client.text("echo", json!({"text": text})).await? == text, "another text came back");
    Ok(WORKS.to_owned())
}

/// What is listed and what is returned have to agree.
async fn structured(client: &mut Client) -> Result<String> {
    let listed = client.request("tools/list", &json!({})).await?.result()?;
    let tools = listed["tools"].as_array().context("there are tools")?;
    let add = tools.iter().find(|tool| tool["name"] == "peer__add").context("add is listed")?;
    let result = client.call("add", json!({"a": 1, "b": 2})).await?.result()?;
    let sum: Value = serde_json::from_str(result["content"][0]["text"].as_str().unwrap_or_default())?;
    anyhow::ensure!(sum["sum"].as_f64() == Some(3.0), "{result}");
    match (add.get("outputSchema"), result.get("structuredContent")) {
        (Some(_), Some(content)) if *content == sum => Ok(WORKS.to_owned()),
        (None, None) => Ok("the sum as text".to_owned()),
        _ => anyhow::bail!("{add} returned {result}"),
    }
}

/// The types of content that arrive.
async fn content(client: &mut Client) -> Result<String> {
    let result = client.call("links", json!({})).await?.result()?;
    let blocks = result["content"].as_array().context("there is content")?;
    let kind = |block: &Value| match block["type"].as_str() {
        Some("text") => format!("{:?}", block["text"].as_str().unwrap_or_default()),
        other => other.unwrap_or_default().to_owned(),
    };
    let kinds: Vec<String> = blocks.iter().map(kind).collect();
    Ok(kinds.join(", "))
}

async fn errors(client: &mut Client) -> Result<String> {
    let failed = told(&client.call("fail", json!({})).await?);
    let plain = told(&client.call("error", json!({"code": -32602, "message": "plain"})).await?);
    let own = told(&client.call("error", json!({"code": -32007, "message": "own"})).await?);
    let unknown = told(&client.call("nothing", json!({})).await?);
    Ok([failed, plain, own, unknown].join("; "))
}

async fn missing(client: &mut Client) -> Result<String> {
    let unknown = client.request("resources/read", &json!({"uri": "peer://nothing"})).await?;
    let gone = client.request("resources/read", &json!({"uri": "peer://item/missing"})).await?;
    anyhow::ensure!(unknown.response["error"]["data"]["uri"] == "peer://nothing", "{}", unknown.response);
    anyhow::ensure!(gone.response["error"]["data"]["uri"] == "peer://item/missing", "{}", gone.response);
    Ok(format!("{}, {}", unknown.code()?, gone.code()?))
}

async fn progress(client: &mut Client, upstream: &str) -> Result<String> {
    let params = |token: &Value| json!({"name": "peer__progress", "arguments": {"steps": 3}, "_meta": {"progressToken": token}});
    // An integer and a string.
    for _ in 0..2 {
        let token = client.fresh("token");
        let _skipped = client.fresh("token");
        let outcome = client.request("tools/call", &params(&token)).await?;
        let steps: Vec<_> = outcome.notifications.iter().map(|one| &one["params"]["progress"]).collect();
        anyhow::ensure!(steps == [&json!(1), &json!(2), &json!(3)], "{:?}", outcome.notifications);
        let message = outcome.notifications[0]["params"].get("message");
        let has_message = client.version >= MARCH && upstream >= MARCH;
        anyhow::ensure!(message.is_some() == has_message, "{:?}", outcome.notifications);
    }
    Ok(WORKS.to_owned())
}

async fn log(client: &mut Client) -> Result<String> {
    client.set_level("warning").await?;
    let quiet = client.call("log", json!({"level": "info", "text": "quiet"})).await?;
    let loud = client.call("log", json!({"level": "error", "text": "loud"})).await?;
    anyhow::ensure!(quiet.notifications.is_empty(), "{:?}", quiet.notifications);
    let [one] = loud.notifications.as_slice() else { anyhow::bail!("{:?}", loud.notifications) };
    anyhow::ensure!(one["params"]["data"] == "loud" && one["params"]["logger"] == "peer/peer", "{one}");
    Ok(WORKS.to_owned())
}

async fn cancel(client: &mut Client) -> Result<String> {
    let before: u64 = client.text("cancelled", json!({})).await?.parse()?;
    let token = client.fresh("token");
    let params = json!({"name": "peer__wait", "arguments": {}, "_meta": {"progressToken": token}});
    let mut sent = client.send("tools/call", params).await?;
    client.begun(&mut sent).await?;
    client.cancel(sent).await?;
    // Over HTTP nothing tells the client when the upstream knows.
    let counted = async {
        while client.text("cancelled", json!({})).await? != (before + 1).to_string() {}
        anyhow::Ok(())
    };
    patiently("the upstream to be told", counted).await??;
    Ok(WORKS.to_owned())
}

/// A tool that asks, whose result has the answer in it.
async fn ask(client: &mut Client, tool: &str, arguments: Value, answer: &str) -> Result<String> {
    let outcome = client.call(tool, arguments).await?;
    let told = told(&outcome);
    if outcome.response["result"]["isError"] == true || !told.contains(answer) {
        return Ok(told);
    }
    // For roots a session is asked once, perhaps by a call before this one.
    let asked = outcome.questions.len();
    anyhow::ensure!(asked == 1 || asked == 0 && tool == "ask_roots", "asked {:?}", outcome.questions);
    Ok(WORKS.to_owned())
}

/// Asks a person and then the model, and must not start over in between.
async fn twice(client: &mut Client) -> Result<String> {
    let mut counts = Vec::new();
    for _ in 0..2 {
        let outcome = client.call("ask_twice", json!({})).await?;
        let told = told(&outcome);
        let Some(count) = told.strip_prefix("executed ") else { return Ok(told) };
        counts.push(count.parse::<u64>()?);
        let asked: Vec<_> = outcome.questions.iter().map(|question| &question["method"]).collect();
        anyhow::ensure!(asked == ["elicitation/create", "sampling/createMessage"], "{asked:?}");
    }
    anyhow::ensure!(counts[1] == counts[0] + 1, "executed {counts:?}");
    Ok(WORKS.to_owned())
}

async fn subscription(client: &mut Client) -> Result<String> {
    client.subscribe(TEXT).await?;
    let touched = client.text("touch", json!({"uri": TEXT})).await?;
    anyhow::ensure!(touched == "told 1", "{touched}");
    let updated = client.notified("notifications/resources/updated").await?;
    anyhow::ensure!(updated["params"]["uri"] == TEXT, "{updated}");
    Ok(WORKS.to_owned())
}

/// Goes on with what `subscription` has begun, because a modern client hears of nothing else.
async fn list_changed(client: &mut Client) -> Result<String> {
    let added = client.text("change_tools", json!({})).await?;
    let added = format!("peer__{added}");
    // An announcement may still be that of another client's change to the same server; then ours follows.
    loop {
        client.notified("notifications/tools/list_changed").await?;
        if names(client).await?.contains(&added) {
            break;
        }
    }
    client.unsubscribe(TEXT).await?;
    Ok(WORKS.to_owned())
}

/// What only the other era has is not there.
async fn other_era(client: &mut Client) -> Result<String> {
    let methods: &[(&str, Value)] = if client.is_modern() {
        &[
            ("resources/subscribe", json!({"uri": TEXT})),
            ("ping", json!({})),
            ("logging/setLevel", json!({"level": "info"})),
        ]
    } else {
        &[("server/discover", json!({})), ("subscriptions/listen", json!({"notifications": {}}))]
    };
    let status = if client.is_modern() && !client.is_piped() { 404 } else { 200 };
    for (method, params) in methods {
        let outcome = client.request(method, params).await?;
        anyhow::ensure!(outcome.status == status && outcome.code()? == -32601, "{method}: {outcome:?}");
    }
    Ok("-32601".to_owned())
}

/// Whoever asks for no log messages gets none.
async fn silence(client: &mut Client) -> Result<String> {
    let outcome = client.call("log", json!({"level": "emergency", "text": "loud"})).await?;
    Ok(format!("{} heard", outcome.notifications.len()))
}

async fn names(client: &mut Client) -> Result<Vec<String>> {
    let listed = client.request("tools/list", &json!({})).await?.result()?;
    let tools = listed["tools"].as_array().context("there are tools")?;
    Ok(tools.iter().filter_map(|tool| tool["name"].as_str()).map(str::to_owned).collect())
}

/// What the client was answered, in one line.
fn told(outcome: &Outcome) -> String {
    let (result, error) = (&outcome.response["result"], &outcome.response["error"]);
    if error.is_object() {
        let mut line = format!("{} {}", error["code"], error["message"].as_str().unwrap_or_default());
        if let Some(data) = error.get("data") {
            line = format!("{line} {data}");
        }
        return line;
    }
    let text = result["content"][0]["text"].as_str().map_or_else(|| result.to_string(), str::to_owned);
    if result["isError"] == true { format!("isError: {text}") } else { text }
}
