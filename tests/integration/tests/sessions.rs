//! Sessions of clients with a handshake: how they begin, whose they are, and how they end.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use anyhow::{Context as _, Result};
use moongate_test_integration::{caller, fixture, pipe::ModernPipe, waiting};
use moongate_test_support::{Answer, Client, Gateway, LegacySession, ModernClient, Request, Stdio};
use serde_json::{Value, json};

const LATEST: &str = "2025-11-25";
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
/// Longer than any test: a call with this many milliseconds only ends when somebody ends it.
const ENDLESS: u64 = 600_000;

fn request(id: impl Into<Value>, method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": method, "params": params})
}

fn call(id: impl Into<Value>, tool: &str, arguments: &Value) -> Value {
    request(id, "tools/call", &json!({"name": tool, "arguments": arguments}))
}

fn initialize(version: &str) -> Value {
    let client = json!({"name": "test", "version": "1"});
    request(
        "hello",
        "initialize",
        &json!({"protocolVersion": version, "capabilities": {}, "clientInfo": client}),
    )
}

fn ping() -> Value {
    request("ping", "ping", &json!({}))
}

/// Status and code of a refusal.
fn refusal(answer: &Answer) -> Result<(u16, i64)> {
    let error = answer.json()?["error"].clone();
    Ok((answer.status, error["code"].as_i64().with_context(|| format!("not an error: {error}"))?))
}

#[tokio::test]
async fn a_session_begins_with_initialize_and_ends_with_delete() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client();
    let hello = client.post(&initialize(LATEST)).send().await?;
    let id = hello.header("mcp-session-id").to_owned();
    assert_eq!(hello.status, 200);
    assert!(id.len() >= 32 && id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id:?}");
    let session = client.with_header("mcp-session-id", &id);
    let initialized = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let taken = session.post(&initialized).send().await?;
    assert_eq!((taken.status, taken.body.len()), (202, 0));
    assert_eq!(session.post(&ping()).send().await?.json()?["result"], json!({}));
    waiting::metric(&gateway, "moongate_sessions", 1.0).await?;

    assert_eq!(session.delete().send().await?.status, 204);
    for answer in [
        session.post(&ping()).send().await?,
        session.post(&initialized).send().await?,
        session.listen().send().await?,
        session.delete().send().await?,
    ] {
        assert_eq!(refusal(&answer)?, (404, -32001));
        assert_eq!(answer.json()?["error"]["message"], "session expired");
    }
    waiting::metric(&gateway, "moongate_sessions", 0.0).await
}

#[tokio::test]
async fn no_two_sessions_have_the_same_id() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let mut ids = std::collections::BTreeSet::new();
    for _ in 0..50 {
        ids.insert(LegacySession::open(&gateway.client(), LATEST).await?.id().to_owned());
    }
    assert_eq!(ids.len(), 50);
    Ok(())
}

#[tokio::test]
async fn every_legacy_version_is_negotiated() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for (asked, answered) in LEGACY
        .map(|version| (version, version))
        .into_iter()
        .chain([("2026-07-28", LATEST), ("1999-12-31", LATEST)])
    {
        let session = LegacySession::open(&gateway.client(), asked).await?;
        assert_eq!(session.welcome["protocolVersion"], answered, "{asked}");
        assert_eq!(session.welcome["serverInfo"]["name"], "moongate");
        let capabilities = &session.welcome["capabilities"];
        assert_eq!(capabilities["tools"]["listChanged"], json!(true));
        assert_eq!(capabilities["resources"]["subscribe"], json!(true));
        let created = session.call("create_goal", json!({"goal": asked})).await?;
        assert_eq!(created["isError"], json!(false), "{asked}: {created}");
        let mut pipe = Stdio::start("")?;
        assert_eq!(pipe.initialize(asked, &json!({})).await?["protocolVersion"], answered, "{asked}");
    }
    Ok(())
}

#[tokio::test]
async fn the_version_header_of_initialize_is_ignored_and_of_others_checked() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client();
    let hello = client.post(&initialize("2025-06-18")).header("mcp-protocol-version", LATEST);
    let hello = hello.header("mcp-method", "initialize").send().await?;
    assert_eq!(hello.json()?["result"]["protocolVersion"], "2025-06-18");
    let session = client.with_header("mcp-session-id", hello.header("mcp-session-id"));
    for version in LEGACY {
        let answer = session.post(&ping()).header("mcp-protocol-version", version).send().await?;
        assert_eq!(answer.status, 200, "{version}");
    }
    assert_eq!(session.post(&ping()).send().await?.status, 200, "absent: the version of the session");
    let answer = session.post(&ping()).header("mcp-protocol-version", "1999-12-31").send().await?;
    assert_eq!(answer.status, 400);
    Ok(())
}

#[tokio::test]
async fn a_second_initialize_is_refused_and_the_session_stays() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let again = session.client().post(&initialize(LATEST)).send().await?;
    assert_eq!(refusal(&again)?, (400, -32600));
    assert_eq!(again.json()?["id"], "hello");
    assert_eq!(session.client().post(&ping()).send().await?.status, 200);

    let mut pipe = Stdio::start("")?;
    pipe.initialize(LATEST, &json!({})).await?;
    pipe.send(&initialize(LATEST)).await?;
    assert_eq!(pipe.outcome(&json!("hello")).await?.code()?, -32600);
    assert_eq!(pipe.request("ping", &json!({})).await?.result()?, json!({}));
    Ok(())
}

#[tokio::test]
async fn a_request_without_a_session_is_refused() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client();
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for request in [
        client.post(&ping()),
        client.post(&call(1, "create_goal", &json!({"goal": "x"}))),
        client.post(&notification),
        client.listen(),
        client.delete(),
    ] {
        assert_eq!(refusal(&request.send().await?)?, (400, -32000));
    }
    let response = json!({"jsonrpc": "2.0", "id": "x", "result": {}});
    assert_eq!(refusal(&client.post(&response).send().await?)?, (400, -32600));
    Ok(())
}

/// Everything that can be asked of the session `id` with `client`.
fn every_use(client: &Client, id: &str) -> Vec<Request> {
    let session = client.clone().with_header("mcp-session-id", id);
    vec![
        session.post(&call(1, "create_goal", &json!({"goal": "mischief"}))),
        session.post(
            &json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}}),
        ),
        session.post(&json!({"jsonrpc": "2.0", "id": "x", "result": {}})),
        session.listen(),
        session.delete(),
    ]
}

#[tokio::test]
async fn anothers_session_looks_as_if_it_did_not_exist() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let alice = caller::issued(&gateway, "alice", "read,write").await?;
    let bob = caller::issued(&gateway, "bob", "read,write").await?;
    let session = LegacySession::open(&alice, LATEST).await?;
    session.call("create_goal", json!({"goal": "of alice"})).await?;
    for intruder in [bob, gateway.client()] {
        let unknown = every_use(&intruder, "00000000-0000-4000-8000-000000000000");
        for (stolen, unknown) in every_use(&intruder, session.id()).into_iter().zip(unknown) {
            let (stolen, unknown) = (stolen.send().await?, unknown.send().await?);
            assert_eq!(refusal(&stolen)?, (404, -32001));
            assert_eq!(stolen.body, unknown.body, "nobody can tell whether it exists");
        }
    }
    let listed = session.call("list_goals", json!({})).await?;
    assert_eq!(listed["structuredContent"]["goals"].as_array().map(Vec::len), Some(1), "{listed}");
    Ok(())
}

#[tokio::test]
async fn a_session_belongs_to_the_path_it_began_on() -> Result<()> {
    let gateway =
        Gateway::start("profiles: {review: {tools: [list_goals]}, work: {upstreams: [planning]}}").await?;
    let client = gateway.client();
    let session = LegacySession::open(&client.clone().with_path("/mcp/review"), LATEST).await?;
    for path in ["/mcp", "/mcp/work"] {
        for request in every_use(&client.clone().with_path(path), session.id()) {
            assert_eq!(refusal(&request.send().await?)?, (404, -32001), "{path}");
        }
    }
    assert_eq!(session.call("list_goals", json!({})).await?["isError"], json!(false));
    Ok(())
}

#[tokio::test]
async fn an_idle_session_expires() -> Result<()> {
    let gateway = Gateway::start("sessions: {idle_timeout: 300ms, sweep_interval: 50ms}").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    waiting::metric(&gateway, "moongate_sessions", 0.0).await?;
    assert_eq!(refusal(&session.client().post(&ping()).send().await?)?, (404, -32001));
    Ok(())
}

#[tokio::test]
async fn an_expired_session_may_get_another_status() -> Result<()> {
    let gateway = Gateway::start("sessions: {expired_status: 401}").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    session.delete().await?;
    assert_eq!(session.client().post(&ping()).send().await?.status, 401);
    let unknown = gateway.client().with_header("mcp-session-id", "never-was");
    assert_eq!(unknown.post(&ping()).send().await?.status, 401);
    assert_eq!(unknown.listen().send().await?.status, 401);
    Ok(())
}

/// Waits until a session that is opened now has expired: by then any other that was not used since has, too.
async fn outlive_an_idle_session(gateway: &Gateway) -> Result<()> {
    let before = gateway.metric("moongate_sessions").await?;
    LegacySession::open(&gateway.client(), LATEST).await?;
    waiting::metric(gateway, "moongate_sessions", before).await
}

#[tokio::test]
async fn a_session_with_an_open_stream_never_expires() -> Result<()> {
    let gateway = Gateway::start("sessions: {idle_timeout: 300ms, sweep_interval: 50ms}").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let stream = session.listen(None).await?;
    waiting::metric(&gateway, "moongate_sessions", 1.0).await?;
    for _ in 0..3 {
        outlive_an_idle_session(&gateway).await?;
    }
    assert_eq!(session.client().post(&ping()).send().await?.status, 200);
    drop(stream);
    waiting::metric(&gateway, "moongate_sessions", 0.0).await?;
    assert_eq!(session.client().post(&ping()).send().await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn a_session_with_a_running_call_never_expires() -> Result<()> {
    let gateway = fixture::gateway("sessions: {idle_timeout: 300ms, sweep_interval: 50ms}").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let slow = session.call("test_slow", json!({"milliseconds": 1500}));
    let others = async {
        outlive_an_idle_session(&gateway).await?;
        outlive_an_idle_session(&gateway).await
    };
    let (slow, others) = tokio::join!(slow, others);
    others?;
    assert_eq!(slow?["content"][0]["text"], "Waited for 1500 ms");
    assert_eq!(session.client().post(&ping()).send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_session_whose_call_outlasted_the_idle_time_is_still_there_however_rare_the_sweeps() -> Result<()> {
    let gateway = fixture::gateway("sessions: {idle_timeout: 1s, sweep_interval: 1h}").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    session.call("test_slow", json!({"milliseconds": 2000})).await?;
    assert_eq!(session.client().post(&ping()).send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_session_that_ends_takes_its_calls_with_it() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let endless = session.call("test_slow", json!({"milliseconds": ENDLESS}));
    let delete = async {
        waiting::eventually("the call to run", async || {
            let duplicate = session.client().post(&call(1, "test_simple_text", &json!({}))).send().await?;
            Ok(duplicate.json()?.get("error").map(drop))
        })
        .await?;
        session.delete().await
    };
    let (ended, deleted) = tokio::join!(endless, delete);
    assert_eq!(deleted?.status, 204);
    assert!(ended.is_err(), "{ended:?}");
    waiting::metric(&gateway, &fixture::calls("test_slow", "cancelled"), 1.0).await
}

#[tokio::test]
async fn batches_exist_in_one_version_only() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let batch = json!([ping(), call(2, "create_goal", &json!({"goal": "x"}))]);
    for version in LEGACY {
        let session = LegacySession::open(&gateway.client(), version).await?;
        let answer = session.client().post(&batch).send().await?;
        if version == "2025-03-26" {
            let answers = answer.json()?;
            let answers = answers.as_array().context("an array")?;
            assert_eq!((answer.status, answers.len()), (200, 2));
            let of = |id: Value| answers.iter().find(|answer| answer["id"] == id);
            assert_eq!(of(json!("ping")).context("an answer to ping")?["result"], json!({}));
            assert_eq!(of(json!(2)).context("an answer to 2")?["result"]["isError"], json!(false));
        } else {
            assert_eq!(refusal(&answer)?, (400, -32600), "{version}");
            let listed = session.call("list_goals", json!({})).await?;
            assert_eq!(listed["structuredContent"]["goals"], json!([]), "nothing was executed");
        }
    }
    let claim = json!({"io.modelcontextprotocol/protocolVersion": "2026-07-28"});
    let modern = json!([request(1, "tools/list", &json!({"_meta": claim}))]);
    assert_eq!(refusal(&gateway.client().post(&modern).send().await?)?, (400, -32600));
    assert_eq!(refusal(&gateway.client().post(&batch).send().await?)?, (400, -32000), "no session");
    Ok(())
}

#[tokio::test]
async fn a_batch_answers_requests_and_only_those() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), "2025-03-26").await?;
    let notification = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let answer = session.client().post(&json!([notification, notification])).send().await?;
    assert_eq!((answer.status, answer.body.len()), (202, 0));
    let mixed = json!([notification, {"jsonrpc": "2.0", "id": 5}, request(6, "no/such", &json!({}))]);
    let answers = session.client().post(&mixed).send().await?.json()?;
    let codes: Vec<_> = answers
        .as_array()
        .context("an array")?
        .iter()
        .map(|answer| (answer["id"].clone(), answer["error"]["code"].as_i64()))
        .collect();
    assert_eq!(codes.len(), 2, "{answers}");
    assert!(codes.contains(&(json!(5), Some(-32600))), "{answers}");
    assert!(codes.contains(&(json!(6), Some(-32601))), "{answers}");
    let hello = json!([ping(), initialize("2025-03-26")]);
    assert_eq!(refusal(&session.client().post(&hello).send().await?)?, (400, -32600));
    assert_eq!(refusal(&session.client().post(&json!([])).send().await?)?, (400, -32600));

    let mut pipe = Stdio::start("")?;
    pipe.initialize("2025-03-26", &json!({})).await?;
    pipe.send(&json!([ping(), notification, call(2, "list_goals", &json!({}))])).await?;
    let answers = pipe.receive().await?.context("an answer")?;
    assert_eq!(answers.as_array().map(Vec::len), Some(2), "{answers}");
    Ok(())
}

#[tokio::test]
async fn a_running_call_is_cancelled_by_its_id() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let client = session.client();
    for id in [json!(77), json!("77")] {
        let endless = client.post(&call(id.clone(), "test_slow", &json!({"milliseconds": ENDLESS}))).send();
        // It may be heard before the call has begun; then it is one of nobody's and has to be sent again.
        let cancel = waiting::eventually::<()>("the call to end", async || {
            session.notify("notifications/cancelled", &json!({"requestId": id, "reason": "test"})).await?;
            Ok(None)
        });
        let answer = tokio::select! {
            answer = endless => answer?,
            stopped = cancel => anyhow::bail!("the call was not cancelled: {stopped:?}"),
        };
        assert!(answer.json()?.get("result").is_none(), "{:?}", answer.body);
    }
    waiting::metric(&gateway, &fixture::calls("test_slow", "cancelled"), 2.0).await?;
    session.notify("notifications/cancelled", &json!({"requestId": "never was"})).await?;
    assert_eq!(client.post(&ping()).send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn one_session_cannot_cancel_anothers_call() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let other = LegacySession::open(&gateway.client(), LATEST).await?;
    let slow = session.client().post(&call(5, "test_slow", &json!({"milliseconds": 500}))).send();
    let meddling = waiting::eventually::<()>("nothing", async || {
        other.notify("notifications/cancelled", &json!({"requestId": 5})).await?;
        Ok(None)
    });
    let answer = tokio::select! {
        answer = slow => answer?,
        stopped = meddling => anyhow::bail!("{stopped:?}"),
    };
    assert_eq!(answer.json()?["result"]["content"][0]["text"], "Waited for 500 ms");
    Ok(())
}

#[tokio::test]
async fn a_call_on_a_pipe_is_cancelled_even_by_the_very_next_line() -> Result<()> {
    // As only one call may run, the next can only begin when the one before is really over.
    let mut pipe = ModernPipe::new(fixture::pipe("security: {limits: {calls: 1}}")?);
    pipe.stdio.initialize(LATEST, &json!({})).await?;
    for number in 0..20 {
        let params = json!({"name": "test_slow", "arguments": {"milliseconds": ENDLESS}});
        for (id, params) in [(number, pipe.enveloped(&params)), (-1 - number, params)] {
            let begin = request(id, "tools/call", &params);
            let cancel = json!({"requestId": id});
            let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": cancel});
            pipe.stdio.send_raw(format!("{begin}\n{cancel}\n")).await?;
            waiting::eventually("the call to end", async || {
                // Fails on anything that is said about the cancelled call.
                let outcome = pipe.request("tools/call", &json!({"name": "test_simple_text"})).await?;
                Ok(outcome.result().ok())
            })
            .await?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_id_that_is_still_running_is_refused() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let client = session.client();
    let slow = client.post(&call("same", "test_slow", &json!({"milliseconds": 1000}))).send();
    let echo = call("same", "test_echo", &json!({"text": "second"}));
    let duplicate = waiting::eventually("the first to run", async || {
        Ok(client.post(&echo).send().await?.json()?.get("error").cloned())
    });
    let (slow, duplicate) = tokio::join!(slow, duplicate);
    let error = duplicate?;
    assert!(error["message"].as_str().is_some_and(|text| text.contains("still running")), "{error}");
    assert_eq!(slow?.json()?["result"]["content"][0]["text"], "Waited for 1000 ms", "the first is unharmed");
    assert_eq!(client.post(&echo).send().await?.json()?["result"]["content"][0]["text"], "second");

    let mut pipe = fixture::pipe("")?;
    pipe.initialize(LATEST, &json!({})).await?;
    pipe.send(&call("same", "test_slow", &json!({"milliseconds": 300}))).await?;
    pipe.send(&echo).await?;
    let refused = pipe.outcome(&json!("same")).await?;
    assert!(refused.error_message().contains("still running"), "{}", refused.response);
    let first = pipe.outcome(&json!("same")).await?.result()?;
    assert_eq!(first["content"][0]["text"], "Waited for 300 ms");
    Ok(())
}

#[tokio::test]
async fn ids_come_back_with_their_json_type() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    let modern = ModernClient::new(&gateway.client());
    let mut pipe = Stdio::start("")?;
    pipe.initialize(LATEST, &json!({})).await?;
    for id in
        [json!(0), json!(-7), json!(9_007_199_254_740_993_i64), json!("1"), json!(""), json!("목\"표\n")]
    {
        let message = call(id.clone(), "list_goals", &json!({}));
        assert_eq!(session.client().post(&message).send().await?.json()?["id"], id);
        pipe.send(&message).await?;
        assert_eq!(pipe.receive().await?.context("an answer")?["id"], id);
        let mut request = modern.prepare("tools/call", &json!({"name": "list_goals", "arguments": {}}));
        request.id = id.clone();
        assert_eq!(modern.once(&request).await?.response["id"], id);
    }
    for id in [json!(null), json!(1.5), json!([1]), json!({}), json!(true)] {
        let message = call(id.clone(), "list_goals", &json!({}));
        assert_eq!(refusal(&session.client().post(&message).send().await?)?, (400, -32600), "{id}");
        pipe.send(&message).await?;
        let answer = pipe.receive().await?.context("an answer")?;
        assert_eq!(answer["error"]["code"], json!(-32600), "{id}: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn an_unknown_method_leaves_the_session_alone() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST).await?;
    for method in ["no/such/method", "server/discover", "subscriptions/listen"] {
        let outcome = session.request(method, &json!({})).await?;
        assert_eq!((outcome.status, outcome.code()?), (200, -32601), "{method}");
    }
    assert_eq!(session.client().post(&ping()).send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_pipe_needs_the_handshake_for_everything_but_ping() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    assert_eq!(pipe.request("ping", &json!({})).await?.result()?, json!({}));
    assert_eq!(pipe.request("tools/list", &json!({})).await?.code()?, -32602);
    let mut pipe = ModernPipe::new(pipe);
    let discovered = pipe.request("server/discover", &json!({})).await?.result()?;
    assert_eq!(discovered["supportedVersions"], json!(["2026-07-28"]));
    pipe.stdio.initialize(LATEST, &json!({})).await?;
    assert!(pipe.stdio.request("tools/list", &json!({})).await?.result()?["tools"].is_array());
    assert!(pipe.request("tools/list", &json!({})).await?.result()?["tools"].is_array(), "both at once");
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_input_ends_the_pipe_after_its_last_answer() -> Result<()> {
    let mut pipe = fixture::pipe("")?;
    pipe.initialize(LATEST, &json!({})).await?;
    pipe.send(&call("last", "test_slow", &json!({"milliseconds": 200}))).await?;
    pipe.close_stdin();
    let outcome = pipe.outcome(&json!("last")).await?.result()?;
    assert_eq!(outcome["content"][0]["text"], "Waited for 200 ms");
    assert_eq!(pipe.receive().await?, None);
    assert!(pipe.wait(moongate_test_support::PATIENCE).await?.success());
    Ok(())
}

#[tokio::test]
async fn one_principal_can_have_so_many_sessions_and_no_more() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {sessions: 2}}").await?;
    let client = gateway.client();
    let first = LegacySession::open(&client, LATEST).await?;
    LegacySession::open(&client, LATEST).await?;
    let answer = client.post(&initialize(LATEST)).send().await?;
    assert_eq!(answer.status, 429);
    assert!(answer.text()?.contains("at most 2"), "{}", answer.text()?);
    LegacySession::open(&caller::issued(&gateway, "other", "read").await?, LATEST).await?;
    first.delete().await?;
    waiting::eventually("room for another", async || {
        Ok(LegacySession::open(&client, LATEST).await.ok().map(drop))
    })
    .await
}
