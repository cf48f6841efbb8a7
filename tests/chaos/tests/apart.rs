//! Processes that ask: whose call a question belongs to is never guessed, and who has other roots has another process.

use anyhow::{Context as _, Result};
use moongate_test_chaos::{Family, LEGACY, UNLIMITED, text_of};
use moongate_test_support::{Answers, Gateway, LegacySession, ModernClient, Outcome, PATIENCE, Peer};
use serde_json::{Value, json};

/// How many calls are asked at the same time.
const AT_ONCE: usize = 3;

async fn gateway(more: &str) -> Result<Gateway> {
    let asker = Peer::stdio_yaml("asker", LEGACY, &[])?;
    Gateway::start(&format!("{UNLIMITED}upstreams:\n{asker}{more}")).await
}

/// A client without a session, whose user answers every form with `name`.
fn person(gateway: &Gateway, name: &str) -> ModernClient {
    let content = json!({"answer": name});
    let answers = Answers::new(move |_, _| Some(json!({"action": "accept", "content": content})));
    ModernClient::new(&gateway.client()).with_answers(&json!({"elicitation": {}}), answers)
}

fn form(message: &str) -> Value {
    json!({"name": "asker__ask_form", "arguments": {"message": message}})
}

/// What the user of a call that waits was asked.
fn asked(outcome: &Outcome) -> Result<(Value, String)> {
    let result = outcome.result()?;
    let questions = result.get("inputRequests").and_then(Value::as_object);
    let question = questions.and_then(|all| all.values().next()).with_context(|| format!("{result}"))?;
    let message = question.pointer("/params/message").and_then(Value::as_str).unwrap_or_default();
    Ok((result.clone(), message.to_owned()))
}

#[tokio::test]
async fn callers_without_a_session_that_are_asked_at_once_are_each_asked_their_own() -> Result<()> {
    let mut gateway = gateway(&format!("    max_processes: {AT_ONCE}\n    timeout: 2s\n")).await?;
    // Now it is known to ask.
    person(&gateway, "first").call("asker__ask_form", json!({"message": "first"})).await?;

    let mut waiting = Vec::new();
    for number in 0..AT_ONCE {
        let name = format!("person {number}");
        let client = person(&gateway, &name);
        let (round, message) = asked(&client.once(&client.prepare("tools/call", &form(&name))).await?)?;
        assert_eq!(message, name);
        waiting.push((client, name, round));
    }
    let askers = Family::running(gateway.process().pid(), "moongate-peer")?;
    assert_eq!(askers.len(), AT_ONCE, "a process each");

    // There is none for one more, which waits as long as a call may take and is told what to do.
    let late = person(&gateway, "late");
    let refused = late.once(&late.prepare("tools/call", &form("late"))).await?;
    let told = text_of(&refused.response).to_owned();
    assert!(told.contains("upstream asker") && told.contains("upstreams.asker.max_processes"), "{told}");

    // The next one has the process of whoever is answered first.
    let client = person(&gateway, "queued");
    let mut queued = tokio::task::JoinSet::new();
    queued.spawn(async move { client.call("asker__ask_form", json!({"message": "queued"})).await });
    for (client, name, round) in waiting {
        let retry = client.retry("tools/call", &form(&name), &round)?;
        let answered = client.once(&retry).await?;
        let expected = json!({"action": "accept", "content": {"answer": name}});
        assert_eq!(serde_json::from_str::<Value>(text_of(&answered.response))?, expected);
    }
    let answer = queued.join_next().await.context("it runs")???;
    assert!(text_of(&json!({"result": answer})).contains("queued"), "{answer}");
    let after = Family::running(gateway.process().pid(), "moongate-peer")?;
    assert_eq!(after.len(), AT_ONCE, "they are kept for the next calls");

    let family = Family::of(gateway.process().pid())?;
    gateway.stop().await?;
    family.gone(PATIENCE).await
}

#[tokio::test]
async fn a_call_that_is_given_up_takes_its_process_along_and_leaves_its_place() -> Result<()> {
    let mut gateway = gateway("    max_processes: 1\n").await?;
    let client = person(&gateway, "Ada");
    client.call("asker__ask_form", json!({"message": "first"})).await?;
    let old = Family::running(gateway.process().pid(), "moongate-peer")?;
    let wait = json!({"name": "asker__wait", "arguments": {}, "_meta": {"progressToken": "p"}});
    let mut stream = client.prepare("tools/call", &wait).over(client.http()).open().await?;
    stream.message_where(|message| message["method"] == "notifications/progress").await?;
    // For a modern client that is how it cancels.
    drop(stream);
    let answer = client.call("asker__ask_form", json!({"message": "second"})).await?;
    assert!(text_of(&json!({"result": answer})).contains("Ada"), "{answer}");
    old.gone(PATIENCE).await?;
    assert_eq!(Family::running(gateway.process().pid(), "moongate-peer")?.len(), 1);
    let family = Family::of(gateway.process().pid())?;
    gateway.stop().await?;
    family.gone(PATIENCE).await
}

/// A session of a client that has one root, which it can change.
async fn rooted(gateway: &Gateway, uri: &'static str) -> Result<LegacySession> {
    let answers = Answers::new(move |_, _| Some(json!({"roots": [{"uri": uri}]})));
    LegacySession::open_with(&gateway.client(), LEGACY, &json!({"roots": {"listChanged": true}}), answers)
        .await
}

/// The roots that the server is told in a session, and how often the client was asked for them.
async fn roots(session: &LegacySession) -> Result<(String, usize)> {
    let call = json!({"name": "asker__ask_roots", "arguments": {}});
    let outcome = Box::pin(session.request("tools/call", &call)).await?;
    Ok((text_of(&outcome.response).to_owned(), outcome.questions.len()))
}

async fn pid(session: &LegacySession) -> Result<Value> {
    let known = session.call("asker__whoami", json!({})).await?;
    let known: Value = serde_json::from_str(text_of(&json!({"result": known})))?;
    known.get("pid").cloned().context("a process has an id")
}

#[tokio::test]
async fn sessions_with_other_roots_have_another_process_and_are_asked_once() -> Result<()> {
    let mut gateway = gateway("").await?;
    let first = rooted(&gateway, "file:///first").await?;
    let (told, questions) = roots(&first).await?;
    assert!(told.contains("file:///first") && questions == 1, "{told}");

    let (one, two, same) = (
        rooted(&gateway, "file:///one").await?,
        rooted(&gateway, "file:///two").await?,
        rooted(&gateway, "file:///one").await?,
    );
    for (session, uri) in [(&one, "file:///one"), (&two, "file:///two"), (&same, "file:///one")] {
        for expected in [1, 0] {
            let (told, questions) = roots(session).await?;
            assert!(told.contains(uri) && questions == expected, "{told} after {questions} questions");
        }
    }
    assert_eq!(roots(&first).await?.1, 0, "it has said it");
    let pids = (pid(&one).await?, pid(&two).await?, pid(&same).await?);
    assert!(pids.0 == pids.2 && pids.0 != pids.1, "{pids:?}");

    one.notify("notifications/roots/list_changed", &json!({})).await?;
    assert_eq!(roots(&one).await?.1, 1, "it says that they have changed");
    let family = Family::of(gateway.process().pid())?;
    gateway.stop().await?;
    family.gone(PATIENCE).await
}
