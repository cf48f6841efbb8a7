//! Event streams: what changes, what is missed and comes again, and who leaves without cancelling.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::time::Duration;

use anyhow::{Context as _, Result};
use moongate_test_integration::{
    fixture::{self, WATCHED},
    pipe::ModernPipe,
    waiting,
};
use moongate_test_support::{Event, EventStream, LegacySession, ModernClient};
use serde_json::{Value, json};

const LATEST: &str = "2025-11-25";
const OLDER: &str = "2025-06-18";
const TOOLS_CHANGED: &str = "notifications/tools/list_changed";
const PROMPTS_CHANGED: &str = "notifications/prompts/list_changed";
const UPDATED: &str = "notifications/resources/updated";
const ACKNOWLEDGED: &str = "notifications/subscriptions/acknowledged";
const SUBSCRIPTION: &str = "io.modelcontextprotocol/subscriptionId";
/// Longer than any test: a call with this many milliseconds only ends when somebody ends it.
const ENDLESS: u64 = 600_000;

/// The next message of a stream that must not have ended.
async fn next(stream: &mut EventStream) -> Result<Value> {
    stream.message().await?.context("the stream ended")
}

/// The method of the next message.
async fn next_method(stream: &mut EventStream) -> Result<String> {
    let message = next(stream).await?;
    Ok(message["method"].as_str().with_context(|| format!("not a notification: {message}"))?.to_owned())
}

fn is_priming(event: &Event) -> bool {
    event.id.is_some() && event.data.as_deref() == Some("") && event.retry.is_some()
}

async fn trigger(session: &LegacySession, what: &str) -> Result<()> {
    session.call(&format!("test_trigger_{what}"), json!({})).await.map(drop)
}

#[tokio::test]
async fn a_get_stream_tells_what_changes() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let mut stream = session.listen(None).await?;
    assert_eq!(stream.status, 200);
    for (header, value) in
        [("content-type", "text/event-stream"), ("cache-control", "no-cache"), ("x-accel-buffering", "no")]
    {
        assert_eq!(stream.headers.get(header).context(header)?, value);
    }
    let before = session.list("tools/list").await?;
    trigger(&session, "tool_change").await?;
    assert_eq!(next_method(&mut stream).await?, TOOLS_CHANGED);
    let after = session.list("tools/list").await?;
    assert_ne!(before, after, "whoever hears of it sees the new list");
    trigger(&session, "prompt_change").await?;
    assert_eq!(next_method(&mut stream).await?, PROMPTS_CHANGED);
    Ok(())
}

/// The gateway asks the gate about an open stream every 15 s; changes in between must not put that off.
#[tokio::test]
async fn a_stream_ends_when_its_token_is_revoked_however_busy_it_is() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let issue =
        ["token", "issue", "--subject", "leaver", "--scopes", "read", "--ttl", "1h", "--json"].as_slice();
    let issued: Value = serde_json::from_slice(&gateway.home().run(issue).await?.stdout)?;
    let token = issued["token"].as_str().context("a token")?;
    let leaver = LegacySession::open(&gateway.anonymous_client().with_token(token), LATEST).await?;
    let mut stream = leaver.listen(None).await?;
    gateway.home().run(&["token", "revoke", issued["id"].as_str().context("an id")?]).await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    for _second in 0..40 {
        session.call("test_slow", json!({"milliseconds": 1000})).await?;
        trigger(&session, "tool_change").await?;
        if stream.message().await?.is_none() {
            return Ok(());
        }
    }
    anyhow::bail!("the stream of a revoked token goes on")
}

#[tokio::test]
async fn a_change_while_no_stream_is_open_is_told_later() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    drop(session.listen(None).await?);
    waiting::metric(&gateway, "moongate_open_streams", 0.0).await?;
    trigger(&session, "tool_change").await?;
    let mut stream = session.listen(None).await?;
    assert_eq!(next_method(&mut stream).await?, TOOLS_CHANGED);
    Ok(())
}

#[tokio::test]
async fn a_second_get_stream_replaces_the_first() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let mut first = session.listen(None).await?;
    let mut second = session.listen(None).await?;
    assert!(first.rest().await?.iter().all(is_priming), "the first ends without a message");
    trigger(&session, "tool_change").await?;
    assert_eq!(next_method(&mut second).await?, TOOLS_CHANGED);
    trigger(&session, "prompt_change").await?;
    assert_eq!(next_method(&mut second).await?, PROMPTS_CHANGED, "each change is told once");
    waiting::metric(&gateway, "moongate_open_streams", 1.0).await
}

#[tokio::test]
async fn only_the_version_that_knows_it_gets_a_priming_event() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let with_token = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": "t"}});
    for (version, primed) in [(LATEST, true), (OLDER, false), ("2025-03-26", false)] {
        let session = LegacySession::open(&gateway.client(), version).await?;
        let mut stream = session.listen(None).await?;
        trigger(&session, "tool_change").await?;
        let first = stream.next().await?.context("an event")?;
        assert_eq!(is_priming(&first), primed, "GET, {version}: {first:?}");
        let mut stream = session.prepare("tools/call", &with_token).open().await?;
        let events = stream.rest().await?;
        assert_eq!(is_priming(&events[0]), primed, "POST, {version}: {events:?}");
        assert_eq!(
            events.iter().filter(|event| event.data.as_deref() == Some("")).count(),
            usize::from(primed)
        );
        assert_eq!(events.len(), 4 + usize::from(primed), "three notes and the result: {events:?}");
    }
    Ok(())
}

/// The ids and messages of events, priming ones left out.
fn told(events: &[Event]) -> Result<Vec<(String, Value)>> {
    let mut told = Vec::new();
    for event in events {
        if let Some(message) = event.message()? {
            told.push((event.id.clone().context("an event has an id")?, message));
        }
    }
    Ok(told)
}

#[tokio::test]
async fn a_stream_can_be_resumed_after_every_one_of_its_events() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let reporting =
        |token: &str| json!({"name": "test_tool_with_progress", "_meta": {"progressToken": token}});
    for version in [LATEST, OLDER, "2025-03-26"] {
        let session = LegacySession::open(&gateway.client(), version).await?;
        let call = async |token: &str| {
            let mut stream = session.prepare("tools/call", &reporting(token)).open().await?;
            stream.rest().await
        };
        // Two at once: what one of them says must not turn up in the other.
        let (left, right) = tokio::join!(call("left"), call("right"));
        for events in [left?, right?] {
            assert_eq!(told(&events)?.len(), 4, "{events:?}");
            for (at, event) in events.iter().enumerate() {
                let after = told(&events[at + 1..])?;
                let mut resumed = session.listen(event.id.as_deref()).await?;
                assert_eq!(told(&resumed.rest().await?)?, after, "{version}, after {event:?}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_legacy_client_that_leaves_finds_the_rest_of_its_stream_once_and_in_order() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let with_token = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": 7}});
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    for _ in 0..5 {
        let mut stream = session.prepare("tools/call", &with_token).open().await?;
        let mut events = Vec::new();
        // Leaves after each event; how far the call is by then is up to chance.
        while events.last().is_none_or(|message: &Value| message.get("result").is_none()) {
            let event = stream.next().await?.context("the stream ended early")?;
            let id = event.id.clone().context("an event has an id")?;
            events.extend(event.message()?);
            drop(stream);
            stream = session.listen(Some(&id)).await?;
        }
        let progress: Vec<_> =
            events.iter().filter_map(|event| event["params"]["progress"].as_f64()).collect();
        assert_eq!((progress.as_slice(), events.len()), (&[0.0, 50.0, 100.0][..], 4), "{events:?}");
        assert_eq!(stream.next().await?, None, "nothing follows the result");
    }
    Ok(())
}

#[tokio::test]
async fn a_server_that_hangs_up_finishes_when_the_client_is_back() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let mut stream = session.prepare("tools/call", &json!({"name": "test_reconnection"})).open().await?;
    let events = stream.rest().await?;
    assert!(events.iter().all(is_priming), "the connection ends before the result: {events:?}");
    let id = stream.last_event_id.as_deref().context("a priming event")?;
    let mut resumed = session.listen(Some(id)).await?;
    let result = next(&mut resumed).await?;
    let text = result["result"]["content"][0]["text"].as_str().context("a text")?;
    assert!(text.contains("Reconnection test completed"), "{text}");
    assert_eq!(resumed.next().await?, None);
    // Once more: it is still in the log.
    assert_eq!(next(&mut session.listen(Some(id)).await?).await?, result);
    Ok(())
}

#[tokio::test]
async fn an_older_client_is_never_hung_up_on() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), OLDER).await?;
    let result = session.call("test_reconnection", json!({})).await?;
    assert!(result["content"][0]["text"].is_string(), "{result}");
    let modern = ModernClient::new(&gateway.client()).call("test_reconnection", json!({})).await?;
    assert!(modern["content"][0]["text"].is_string(), "{modern}");
    Ok(())
}

#[tokio::test]
async fn missed_changes_are_replayed_on_a_resumed_get_stream() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let mut stream = session.listen(None).await?;
    let priming = stream.next().await?.and_then(|event| event.id).context("a priming event")?;
    trigger(&session, "tool_change").await?;
    assert_eq!(next_method(&mut stream).await?, TOOLS_CHANGED);
    drop(stream);
    waiting::metric(&gateway, "moongate_open_streams", 0.0).await?;
    trigger(&session, "prompt_change").await?;
    let mut stream = session.listen(Some(&priming)).await?;
    assert_eq!(
        next_method(&mut stream).await?,
        TOOLS_CHANGED,
        "what came after the priming event comes again"
    );
    assert_eq!(next_method(&mut stream).await?, PROMPTS_CHANGED, "and then what came meanwhile");
    trigger(&session, "tool_change").await?;
    assert_eq!(next_method(&mut stream).await?, TOOLS_CHANGED, "and then what comes now");
    Ok(())
}

#[tokio::test]
async fn an_event_of_another_session_resumes_nothing() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let other = LegacySession::open(&gateway.client(), LATEST).await?;
    let stream = session.prepare("tools/call", &json!({"name": "test_reconnection"})).open().await;
    let id = stream?.rest().await?.pop().and_then(|event| event.id).context("a priming event")?;
    let mut foreign = other.listen(Some(&id)).await?;
    trigger(&other, "prompt_change").await?;
    assert_eq!(next_method(&mut foreign).await?, PROMPTS_CHANGED, "only what is new");
    for nonsense in ["", "x", "1", "1-", "-1-1", "99999999999999999999-1"] {
        let answer = session.client().listen().header("last-event-id", nonsense).send().await?;
        assert_eq!(answer.status, 400, "{nonsense:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_legacy_client_that_leaves_does_not_cancel() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let mut id = 0;
    waiting::eventually("a call to be left", async || {
        id += 1;
        let call = |params| json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": params});
        let slow = call(json!({"name": "test_slow", "arguments": {"milliseconds": 700}}));
        let same_id = call(json!({"name": "test_simple_text"}));
        // Leaves as soon as the call runs, which another with the same id finds out.
        let running = waiting::eventually("the call to run", async || {
            Ok(session.client().post(&same_id).send().await?.json()?.get("error").map(drop))
        });
        tokio::select! {
            early = session.client().post(&slow).send() => {
                // The other one came first, and the call itself was refused. Any other answer is one too early.
                let early = early?.json()?;
                let message = early["error"]["message"].as_str().unwrap_or_default();
                anyhow::ensure!(message.contains("still running"), "an answer before anybody left: {early}");
                Ok(None)
            }
            running = running => running.map(Some),
        }
    })
    .await?;
    waiting::metric(&gateway, &fixture::calls("test_slow", ""), 1.0).await?;
    assert!(gateway.metric(&fixture::calls("test_slow", "cancelled")).await? < 1.0);
    Ok(())
}

#[tokio::test]
async fn a_modern_client_that_leaves_cancels() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let cancelled = fixture::calls("test_slow", "cancelled");
    let params = json!({"name": "test_slow", "arguments": {"milliseconds": ENDLESS}});
    for (count, client) in [(1.0, gateway.client()), (2.0, gateway.http2_client())] {
        // Whoever leaves too soon has not called yet; the next leaves later.
        let mut stay = Duration::from_millis(20);
        waiting::eventually("a call to be cancelled", async || {
            let client = ModernClient::new(&client);
            let call = client.prepare("tools/call", &params).over(client.http()).open();
            let left = tokio::time::timeout(stay, call).await;
            anyhow::ensure!(left.is_err(), "an answer before anybody left: {left:?}");
            stay *= 2;
            Ok((gateway.metric(&cancelled).await? >= count).then_some(()))
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_modern_client_that_leaves_a_stream_cancels() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = ModernClient::new(&gateway.client());
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": "t"}});
    let mut stream = client.prepare("tools/call", &params).over(client.http()).open().await?;
    let first = stream.next().await?.context("an event")?;
    assert_eq!(first.id, None, "a modern stream cannot be resumed");
    drop(stream);
    waiting::metric(&gateway, &fixture::calls("test_tool_with_progress", "cancelled"), 1.0).await
}

#[tokio::test]
async fn a_modern_stream_has_the_notes_of_its_request_and_then_the_result() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = ModernClient::new(&gateway.client());
    let params = json!({"name": "test_tool_with_progress", "_meta": {"progressToken": 5}});
    let outcome = client.request("tools/call", &params).await?;
    let tokens: Vec<_> = outcome.notifications.iter().map(|note| &note["params"]["progressToken"]).collect();
    assert_eq!(tokens, [&json!(5); 3]);
    let silent = client.request("tools/call", &json!({"name": "test_tool_with_logging"})).await?;
    assert!(silent.notifications.is_empty(), "no level, no logs: {silent:?}");
    let told = client.clone().with_log_level("info");
    let told = told.request("tools/call", &json!({"name": "test_tool_with_logging"})).await?;
    assert_eq!(told.notifications.len(), 3);
    let quiet = client.with_log_level("error");
    let quiet = quiet.request("tools/call", &json!({"name": "test_tool_with_logging"})).await?;
    assert!(quiet.notifications.is_empty(), "{quiet:?}");
    Ok(())
}

/// Opens a listen with the id `id` and returns it with its acknowledgement.
async fn listen(client: &ModernClient, id: &Value, filter: &Value) -> Result<(EventStream, Value)> {
    let mut request = client.prepare("subscriptions/listen", &json!({"notifications": filter}));
    request.id = id.clone();
    let mut stream = request.over(client.http()).open().await?;
    let first = next(&mut stream).await?;
    anyhow::ensure!(first["method"] == ACKNOWLEDGED, "the acknowledgement comes first: {first}");
    anyhow::ensure!(first["params"]["_meta"][SUBSCRIPTION] == *id, "it names the listen: {first}");
    Ok((stream, first["params"]["notifications"].clone()))
}

#[tokio::test]
async fn a_listen_hears_what_it_asked_for_and_nothing_else() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = ModernClient::new(&gateway.client());
    let (mut tools, honoured) = listen(&client, &json!(41), &json!({"toolsListChanged": true})).await?;
    assert_eq!(honoured, json!({"toolsListChanged": true}));
    let both = json!({"promptsListChanged": true, "toolsListChanged": false, "resourceSubscriptions": [WATCHED, "test://unknown"]});
    let (mut others, honoured) = listen(&client, &json!("a text"), &both).await?;
    assert_eq!(honoured, json!({"promptsListChanged": true, "resourceSubscriptions": [WATCHED]}));
    let (mut nothing, honoured) = listen(&client, &json!(0), &json!({})).await?;
    assert_eq!(honoured, json!({}));

    for what in ["tool_change", "resource_update", "prompt_change"] {
        client.call(&format!("test_trigger_{what}"), json!({})).await?;
    }
    let changed = next(&mut tools).await?;
    assert_eq!(
        (&changed["method"], &changed["params"]["_meta"][SUBSCRIPTION]),
        (&json!(TOOLS_CHANGED), &json!(41))
    );
    let mut heard = Vec::new();
    for _ in 0..2 {
        let message = next(&mut others).await?;
        assert_eq!(
            message["params"]["_meta"][SUBSCRIPTION],
            json!("a text"),
            "of the same JSON type: {message}"
        );
        if message["method"] == UPDATED {
            assert_eq!(message["params"]["uri"], WATCHED);
        }
        heard.push(message["method"].as_str().unwrap_or_default().to_owned());
    }
    heard.sort();
    assert_eq!(heard, [PROMPTS_CHANGED, UPDATED]);

    // A second change shows that nothing was left over from the first.
    client.call("test_trigger_tool_change", json!({})).await?;
    assert_eq!(next_method(&mut tools).await?, TOOLS_CHANGED);
    client.call("test_trigger_prompt_change", json!({})).await?;
    assert_eq!(next_method(&mut others).await?, PROMPTS_CHANGED);
    gateway.sigterm()?;
    let last = next(&mut nothing).await?;
    assert_eq!(last["id"], json!(0), "who asked for nothing hears of nothing but the end: {last}");
    Ok(())
}

#[tokio::test]
async fn a_listen_that_cannot_be_read_is_refused() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = ModernClient::new(&gateway.client());
    for params in
        [json!({}), json!({"notifications": []}), json!({"notifications": {"toolsListChanged": "yes"}})]
    {
        let answer = client.prepare("subscriptions/listen", &params).over(client.http()).send().await?;
        assert_eq!(answer.json()?["error"]["code"], json!(-32602), "{params}: {:?}", answer.body);
    }
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_gateway_ends_streams_in_order() -> Result<()> {
    let mut gateway = fixture::gateway("").await?;
    let client = ModernClient::new(&gateway.client());
    let (mut by_number, _) = listen(&client, &json!(41), &json!({"toolsListChanged": true})).await?;
    let (mut by_text, _) =
        listen(&client, &json!("forty-two"), &json!({"resourceSubscriptions": [WATCHED]})).await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let mut get = session.listen(None).await?;
    gateway.sigterm()?;
    for (stream, id) in [(&mut by_number, json!(41)), (&mut by_text, json!("forty-two"))] {
        let result = next(stream).await?;
        assert_eq!(result["id"], id);
        assert_eq!(result["result"]["resultType"], "complete");
        assert_eq!(result["result"]["_meta"][SUBSCRIPTION], id);
        assert_eq!(stream.next().await?, None, "the stream ends with the result");
    }
    assert!(get.rest().await?.iter().all(is_priming));
    assert!(gateway.wait(Duration::from_secs(5)).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_listen_on_a_pipe_is_acknowledged_told_and_ended() -> Result<()> {
    let mut pipe = ModernPipe::new(fixture::pipe("")?);
    let id = pipe.send("subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}})).await?;
    let first = pipe.stdio.receive().await?.context("an acknowledgement")?;
    assert_eq!((&first["method"], &first["params"]["_meta"][SUBSCRIPTION]), (&json!(ACKNOWLEDGED), &id));
    let call = pipe.send("tools/call", &json!({"name": "test_trigger_tool_change"})).await?;
    let mut heard = Vec::new();
    for _ in 0..2 {
        heard.push(pipe.stdio.receive().await?.context("a message")?);
    }
    assert!(
        heard.iter().any(|message| message["id"] == call && message.get("result").is_some()),
        "{heard:?}"
    );
    assert!(
        heard.iter().any(|message| {
            message["method"] == TOOLS_CHANGED && message["params"]["_meta"][SUBSCRIPTION] == id
        }),
        "{heard:?}"
    );
    pipe.stdio.process().signal(rustix::process::Signal::TERM)?;
    let last = pipe.stdio.receive().await?.context("the result of the listen")?;
    assert_eq!((&last["id"], &last["result"]["resultType"]), (&id, &json!("complete")));
    let cancelled = pipe.stdio.receive().await?.context("the other way to end a listen")?;
    assert_eq!(
        (&cancelled["method"], &cancelled["params"]["requestId"]),
        (&json!("notifications/cancelled"), &id)
    );
    assert_eq!(pipe.stdio.receive().await?, None);
    assert!(pipe.stdio.wait(Duration::from_secs(5)).await?.success());
    Ok(())
}

#[tokio::test]
async fn a_listen_that_its_client_cancels_says_nothing_more() -> Result<()> {
    let mut pipe = ModernPipe::new(fixture::pipe("")?);
    let id = pipe.send("subscriptions/listen", &json!({"notifications": {"toolsListChanged": true}})).await?;
    assert_eq!(pipe.stdio.receive().await?.context("an acknowledgement")?["method"], ACKNOWLEDGED);
    pipe.stdio.notify("notifications/cancelled", &json!({"requestId": id})).await?;
    let outcome = pipe.request("tools/call", &json!({"name": "test_trigger_tool_change"})).await?;
    assert!(outcome.notifications.is_empty(), "{outcome:?}");
    let while_later = json!({"name": "test_slow", "arguments": {"milliseconds": 100}});
    let outcome = pipe.request("tools/call", &while_later).await?;
    assert!(outcome.notifications.is_empty(), "{outcome:?}");
    Ok(())
}

#[tokio::test]
async fn a_legacy_client_on_a_pipe_hears_what_changes_and_what_it_subscribed_to() -> Result<()> {
    let mut pipe = fixture::pipe("")?;
    pipe.initialize(LATEST, &json!({})).await?;
    pipe.request("resources/subscribe", &json!({"uri": WATCHED})).await?.result()?;
    for (what, method) in [("resource_update", UPDATED), ("tool_change", TOOLS_CHANGED)] {
        let mut heard =
            pipe.request("tools/call", &json!({"name": format!("test_trigger_{what}")})).await?.notifications;
        if heard.is_empty() {
            heard.extend(pipe.receive().await?);
        }
        let methods: Vec<_> = heard.iter().map(|message| &message["method"]).collect();
        assert_eq!(methods, [method]);
    }
    Ok(())
}

#[tokio::test]
async fn a_legacy_subscription_is_told_of_until_it_ends() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let other = LegacySession::open(&gateway.client(), LATEST).await?;
    let (mut stream, mut elsewhere) = (session.listen(None).await?, other.listen(None).await?);
    let watched = json!({"uri": WATCHED});
    session.request("resources/subscribe", &watched).await?.result()?;
    trigger(&session, "resource_update").await?;
    let updated = next(&mut stream).await?;
    assert_eq!((&updated["method"], &updated["params"]["uri"]), (&json!(UPDATED), &json!(WATCHED)));
    session.request("resources/unsubscribe", &watched).await?.result()?;
    trigger(&session, "resource_update").await?;
    trigger(&session, "tool_change").await?;
    for stream in [&mut stream, &mut elsewhere] {
        assert_eq!(next_method(stream).await?, TOOLS_CHANGED, "who did not subscribe hears of no update");
    }
    trigger(&session, "prompt_change").await?;
    for stream in [&mut stream, &mut elsewhere] {
        assert_eq!(next_method(stream).await?, PROMPTS_CHANGED);
    }
    let unknown = session.request("resources/subscribe", &json!({"uri": "test://unknown"})).await?;
    assert_eq!(unknown.code()?, -32002);
    Ok(())
}

#[tokio::test]
async fn a_modern_subscription_ends_with_its_stream() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = ModernClient::new(&gateway.client());
    let filter = json!({"resourceSubscriptions": [WATCHED]});
    let (mut stream, _) = listen(&client, &json!(1), &filter).await?;
    client.call("test_trigger_resource_update", json!({})).await?;
    assert_eq!(next_method(&mut stream).await?, UPDATED);
    waiting::metric(&gateway, "moongate_open_streams", 1.0).await?;
    drop(stream);
    waiting::metric(&gateway, "moongate_open_streams", 0.0).await
}

#[tokio::test]
async fn get_and_delete_do_not_exist_for_modern_clients() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = gateway.client().with_header("mcp-protocol-version", "2026-07-28");
    for request in [client.listen(), client.delete()] {
        let answer = request.send().await?;
        assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
    }
    Ok(())
}

#[tokio::test]
async fn a_get_that_takes_no_stream_is_refused() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let answer = session.client().listen().header("accept", "application/json").send().await?;
    assert_eq!(answer.status, 406);
    Ok(())
}
