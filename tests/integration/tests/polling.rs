//! `sessions.poll_after`: a client of 2025-11-25 is sent away before its call has ended and comes back for the rest, as
//! often as it takes; the call goes on, and nobody else notices.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use anyhow::{Context as _, Result};
use moongate_test_support::{Answers, Event, EventStream, Gateway, LegacySession, ModernClient, Peer};
use serde_json::{Value, json};

const LATEST: &str = "2025-11-25";
const OLDER: &str = "2025-06-18";
const MODERN: &str = "2026-07-28";

/// Gateways before a server of each era, on a pipe and over HTTP, which end a connection as soon as they may.
async fn gateways() -> Result<Vec<(Gateway, Option<Peer>)>> {
    let mut all = Vec::new();
    for version in [LATEST, MODERN] {
        let peer = Peer::http(version, &[]).await?;
        let gateway = polling(&peer.url_yaml("peer")).await?;
        all.push((gateway, Some(peer)));
        all.push((polling(&Peer::stdio_yaml("peer", version, &[])?).await?, None));
    }
    Ok(all)
}

async fn polling(upstream: &str) -> Result<Gateway> {
    Gateway::start(&format!("sessions: {{poll_after: 20ms}}\nupstreams:\n{upstream}    prefix: none\n")).await
}

fn asking() -> Value {
    json!({"name": "ask_form", "arguments": {"message": "Who?"}})
}

fn answers() -> Answers {
    Answers::fixed(json!({"answer": "Ada"}), "")
}

async fn asking_session(gateway: &Gateway, version: &str) -> Result<LegacySession> {
    LegacySession::open_with(&gateway.client(), version, &json!({"elicitation": {}}), answers()).await
}

/// The text that a tool without arguments returns to a client which comes back until it does.
async fn call(session: &LegacySession, tool: &str) -> Result<String> {
    let mut stream = session.prepare("tools/call", &json!({"name": tool, "arguments": {}})).open().await?;
    loop {
        let kind = stream.headers.get("content-type").and_then(|value| value.to_str().ok());
        let is_json = kind.is_some_and(|kind| kind.starts_with("application/json"));
        let answer = if is_json { stream.body_json().await? } else { stream.message().await? };
        if let Some(answer) = answer {
            let text = answer["result"]["content"][0]["text"].as_str();
            return Ok(text.with_context(|| format!("no text: {answer}"))?.to_owned());
        }
        let last = stream.last_event_id.take().context("a place to come back to")?;
        stream = session.listen(Some(&last)).await?;
    }
}

/// The messages of a connection. One that ends without a response ends with an id to come back to, and when.
fn told(events: &[Event]) -> Result<Vec<Value>> {
    let messages: Vec<Value> =
        events.iter().filter_map(|event| event.message().transpose()).collect::<Result<_>>()?;
    let last = events.last().context("an event")?;
    anyhow::ensure!(
        messages.last().is_some_and(|message| message.get("result").is_some())
            || last.id.is_some() && last.retry.is_some() && last.data.as_deref() == Some(""),
        "sent away without a word: {events:?}"
    );
    Ok(messages)
}

/// Reads until the connection ends: what was said, and where to come back to.
async fn read(stream: &mut EventStream) -> Result<(Vec<Value>, String)> {
    let events = stream.rest().await?;
    Ok((told(&events)?, stream.last_event_id.clone().context("a place to come back to")?))
}

#[tokio::test]
async fn a_client_comes_back_as_often_as_it_takes_and_loses_nothing() -> Result<()> {
    for (gateway, _peer) in gateways().await? {
        let session = asking_session(&gateway, LATEST).await?;
        let mut stream = session.prepare("tools/call", &asking()).open().await?;
        let (mut heard, mut last) = read(&mut stream).await?;
        // The question may come before the first connection ends or after, but only once.
        while heard.is_empty() {
            (heard, last) = read(&mut session.listen(Some(&last)).await?).await?;
        }
        let [question] = heard.as_slice() else { anyhow::bail!("one question: {heard:?}") };
        assert_eq!(question["method"], "elicitation/create");
        for _ in 0..3 {
            let (more, same) = read(&mut session.listen(Some(&last)).await?).await?;
            assert_eq!((more, &same), (Vec::new(), &last), "nothing new, and the same place");
        }
        // Answered while nobody reads: the result waits in the log.
        session.respond(&answers().respond(question)).await?;
        let mut heard = Vec::new();
        while heard.is_empty() {
            (heard, last) = read(&mut session.listen(Some(&last)).await?).await?;
        }
        let [result] = heard.as_slice() else { anyhow::bail!("one result: {heard:?}") };
        let text = result["result"]["content"][0]["text"].as_str().with_context(|| format!("{result}"))?;
        assert_eq!(serde_json::from_str::<Value>(text)?["content"], json!({"answer": "Ada"}));
        assert_eq!(call(&session, "cancelled").await?, "0");
        assert_eq!(call(&session, "breaches").await?, "[]");
    }
    Ok(())
}

/// A call that says nothing has no stream yet; and one that was sent away can still be cancelled.
#[tokio::test]
async fn a_silent_call_is_polled_too_and_ends_only_when_the_client_says_so() -> Result<()> {
    for (gateway, _peer) in gateways().await? {
        let session = LegacySession::open(&gateway.client(), LATEST).await?;
        let wait = session.prepare("tools/call", &json!({"name": "wait", "arguments": {}}));
        let (heard, mut last) = read(&mut wait.open().await?).await?;
        assert_eq!(heard, [] as [Value; 0]);
        for _ in 0..3 {
            let (heard, same) = read(&mut session.listen(Some(&last)).await?).await?;
            assert_eq!((heard, &same), (Vec::new(), &last));
            last = same;
        }
        assert_eq!(call(&session, "cancelled").await?, "0");
        // The first request after the handshake.
        session.notify("notifications/cancelled", &json!({"requestId": 1})).await?;
        moongate_test_support::eventually("the call to be cancelled", async || {
            Ok((call(&session, "cancelled").await? == "1").then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn clients_that_cannot_come_back_are_not_sent_away() -> Result<()> {
    for (gateway, _peer) in gateways().await? {
        let older = asking_session(&gateway, OLDER).await?;
        let mut stream = older.prepare("tools/call", &asking()).open().await?;
        let question = stream.message().await?.context("a question")?;

        // Meanwhile another was sent away more than once: it is time that it was, if it were.
        let newer = LegacySession::open(&gateway.client(), LATEST).await?;
        let wait = newer.prepare("tools/call", &json!({"name": "wait", "arguments": {}}));
        let (_, last) = read(&mut wait.open().await?).await?;
        read(&mut newer.listen(Some(&last)).await?).await?;

        older.respond(&answers().respond(&question)).await?;
        let result = stream.message().await?.context("still the same connection")?;
        assert!(result["result"]["content"][0]["text"].is_string(), "{result}");

        // Nor one that has no streams to come back to.
        let modern =
            ModernClient::new(&gateway.client()).with_answers(&json!({"elicitation": {}}), answers());
        assert_eq!(modern.call("ask_form", json!({"message": "Who?"})).await?["resultType"], "complete");
    }
    Ok(())
}
