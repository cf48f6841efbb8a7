//! A tool that asks twice, first the person and then the model, with clients of both eras on both transports.
//!
//! It counts how often it was started: a call that goes on after an answer must not have been started again.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use anyhow::{Context as _, Result};
use moongate_test_integration::{
    caller,
    fixture::{self, person, talkative},
    pipe::ModernPipe,
    waiting,
};
use moongate_test_support::{Answers, Client, Gateway, LegacySession, Modern, ModernClient, Outcome};
use serde_json::{Value, json};

const TOOL: &str = "test_ask_twice";
const LEGACY: &str = "2025-11-25";

fn params() -> Value {
    json!({"name": TOOL, "arguments": {}})
}

/// A modern client of somebody called `name`.
fn modern(client: &Client, name: &str) -> ModernClient {
    ModernClient::new(client).with_answers(&talkative(), person(name))
}

/// Whether `result` greets `name` and comes from the `execution`-th start of the tool.
fn assert_greets(result: &Value, name: &str, execution: u64) {
    let expected = json!({"name": name, "greeting": format!("Hello, {name}!"), "execution": execution});
    assert_eq!(result["structuredContent"], expected, "{result}");
}

fn methods(questions: &[Value]) -> Vec<&str> {
    questions.iter().filter_map(|question| question["method"].as_str()).collect()
}

/// The `input_required` result of a round.
fn round(outcome: &Outcome) -> Result<Value> {
    let result = outcome.result()?;
    anyhow::ensure!(result["resultType"] == "input_required", "not a question: {result}");
    anyhow::ensure!(result["requestState"].is_string(), "a call that waits has a state: {result}");
    Ok(result)
}

/// Starts a call and returns its first question.
async fn begin(client: &ModernClient, params: &Value) -> Result<Value> {
    round(&client.once(&client.prepare("tools/call", params)).await?)
}

#[tokio::test]
async fn a_legacy_client_is_asked_twice_over_http() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    for (execution, version) in [(1, "2025-06-18"), (2, LEGACY)] {
        let session =
            LegacySession::open_with(&gateway.client(), version, &talkative(), person("Ada")).await?;
        let outcome = session.request("tools/call", &params()).await?;
        assert_eq!(methods(&outcome.questions), ["elicitation/create", "sampling/createMessage"]);
        assert_greets(&outcome.result()?, "Ada", execution);
    }
    Ok(())
}

#[tokio::test]
async fn a_modern_client_is_asked_twice_over_http() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    for (execution, client) in [(1, gateway.client()), (2, gateway.http2_client())] {
        let outcome = modern(&client, "Ada").request("tools/call", &params()).await?;
        assert_eq!(methods(&outcome.questions), ["elicitation/create", "sampling/createMessage"]);
        assert_greets(&outcome.result()?, "Ada", execution);
    }
    Ok(())
}

#[tokio::test]
async fn clients_of_both_eras_are_asked_twice_on_one_pipe() -> Result<()> {
    let stdio = fixture::pipe("")?.with_answers(person("Grace"));
    let mut pipe = ModernPipe::new(stdio).with_answers(talkative(), person("Ada"));
    let outcome = pipe.request("tools/call", &params()).await?;
    assert_eq!(methods(&outcome.questions), ["elicitation/create", "sampling/createMessage"]);
    assert_greets(&outcome.result()?, "Ada", 1);
    pipe.stdio.initialize(LEGACY, &talkative()).await?;
    let outcome = pipe.stdio.request("tools/call", &params()).await?;
    assert_eq!(methods(&outcome.questions), ["elicitation/create", "sampling/createMessage"]);
    assert_greets(&outcome.result()?, "Grace", 2);
    assert_greets(&pipe.call(TOOL, json!({})).await?, "Ada", 3);
    Ok(())
}

#[tokio::test]
async fn many_clients_are_asked_at_once_and_each_gets_its_own_answer() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let mut calls = tokio::task::JoinSet::new();
    for number in 0..20 {
        let (client, name) = (gateway.client(), format!("Person {number}"));
        calls.spawn(async move {
            let result = if number % 2 == 0 {
                modern(&client, &name).call(TOOL, json!({})).await?
            } else {
                let session = LegacySession::open_with(&client, LEGACY, &talkative(), person(&name)).await?;
                session.call(TOOL, json!({})).await?
            };
            anyhow::ensure!(result["structuredContent"]["name"] == name, "{name} got {result}");
            let execution = result["structuredContent"]["execution"].as_u64();
            execution.context("no number")
        });
    }
    let mut executions = Vec::new();
    while let Some(execution) = calls.join_next().await {
        executions.push(execution??);
    }
    executions.sort_unstable();
    assert_eq!(executions, (1..=20).collect::<Vec<_>>(), "each call was started once");
    Ok(())
}

#[tokio::test]
async fn a_modern_call_survives_lost_connections_between_its_rounds() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let first = begin(&modern(&gateway.client(), "Ada"), &params()).await?;
    // Each client has connections of its own; those of the one before are closed by now.
    let client = modern(&gateway.http2_client(), "Ada");
    let second = round(&client.once(&client.retry("tools/call", &params(), &first)?).await?)?;
    assert_ne!(first["requestState"], second["requestState"]);
    drop(client);
    let client = modern(&gateway.client(), "Ada");
    let last = client.once(&client.retry("tools/call", &params(), &second)?).await?.result()?;
    assert_eq!(last["resultType"], "complete");
    assert_greets(&last, "Ada", 1);
    waiting::metric(&gateway, "moongate_parked_calls", 0.0).await
}

#[tokio::test]
async fn a_legacy_call_survives_lost_connections_between_its_questions() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let answers = person("Ada");
    let session = LegacySession::open_with(&gateway.client(), LEGACY, &talkative(), answers.clone()).await?;
    let mut stream = session.prepare("tools/call", &params()).open().await?;
    let priming = stream.next().await?.and_then(|event| event.id).context("a priming event has an id")?;
    drop(stream);
    let mut stream = session.listen(Some(&priming)).await?;
    let question = stream.message().await?.context("the first question comes again")?;
    assert_eq!(question["method"], "elicitation/create");
    let seen = stream.last_event_id.take().context("an event has an id")?;
    assert_eq!(session.respond(&answers.respond(&question)).await?.status, 202);
    drop(stream);
    let mut stream = session.listen(Some(&seen)).await?;
    let question = stream.message().await?.context("the second question")?;
    assert_eq!(question["method"], "sampling/createMessage", "the first does not come a third time");
    let seen = stream.last_event_id.take().context("an event has an id")?;
    drop(stream);
    assert_eq!(session.respond(&answers.respond(&question)).await?.status, 202);
    let mut stream = session.listen(Some(&seen)).await?;
    let response = stream.message().await?.context("the result")?;
    assert_greets(&response["result"], "Ada", 1);
    assert_eq!(stream.next().await?, None, "the stream ends with the result");
    Ok(())
}

#[tokio::test]
async fn waiting_for_a_person_counts_in_no_timeout() -> Result<()> {
    let gateway = fixture::gateway("security: {limits: {call_timeout: 500ms}}").await?;
    let session = LegacySession::open_with(&gateway.client(), LEGACY, &talkative(), person("Grace")).await?;
    let client = modern(&gateway.client(), "Ada");
    let asked = begin(&client, &params()).await?;
    let mut stream = session.prepare("tools/call", &params()).open().await?;
    let question = stream.message_where(|message| message["method"] == "elicitation/create").await?;
    // Begun later, with the same limit: once it is over, so would be the others.
    let endless = json!({"name": "test_slow", "arguments": {"milliseconds": 60_000}});
    assert_eq!(client.request("tools/call", &endless).await?.code()?, -32603);
    let second = round(&client.once(&client.retry("tools/call", &params(), &asked)?).await?)?;
    let last = client.once(&client.retry("tools/call", &params(), &second)?).await?;
    assert_greets(&last.result()?, "Ada", 1);
    session.respond(&person("Grace").respond(&question)).await?;
    assert_greets(&session.outcome(stream).await?.result()?, "Grace", 2);
    Ok(())
}

/// Sends `retry` and expects it to be refused as wrong parameters, with a reason that contains `why`.
async fn assert_refused(client: &ModernClient, retry: &Modern, why: &str) -> Result<()> {
    let outcome = client.once(retry).await?;
    assert_eq!((outcome.status, outcome.code()?), (200, -32602), "{why}: {}", outcome.response);
    assert!(outcome.error_message().contains(why), "{why}: {}", outcome.error_message());
    Ok(())
}

#[tokio::test]
async fn a_foreign_state_is_refused_and_its_owner_can_still_go_on() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let alice = modern(&caller::issued(&gateway, "alice", "read").await?, "Alice");
    let bob = modern(&caller::issued(&gateway, "bob", "read").await?, "Bob");
    let local = modern(&gateway.client(), "Local");
    let asked = begin(&alice, &params()).await?;
    for other in [&bob, &local] {
        let stolen = other.retry("tools/call", &params(), &asked)?;
        assert_refused(other, &stolen, "not one this gateway gave to this caller").await?;
    }
    let second = round(&alice.once(&alice.retry("tools/call", &params(), &asked)?).await?)?;
    let stolen = bob.retry("tools/call", &params(), &second)?;
    assert_refused(&bob, &stolen, "not one this gateway gave to this caller").await?;
    let last = alice.once(&alice.retry("tools/call", &params(), &second)?).await?;
    assert_greets(&last.result()?, "Alice", 1);
    Ok(())
}

#[tokio::test]
async fn a_changed_state_is_refused_and_the_true_one_still_works() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = modern(&gateway.client(), "Ada");
    let asked = begin(&client, &params()).await?;
    let state = asked["requestState"].as_str().context("a state")?;
    let flipped = |at: usize| -> String {
        let other = |c: char| if c == 'A' { 'B' } else { 'A' };
        state.chars().enumerate().map(|(n, c)| if n == at { other(c) } else { c }).collect()
    };
    let mut changed: Vec<Value> =
        (0..state.len() - 1).step_by(7).map(|at| Value::from(flipped(at))).collect();
    changed.push(json!(format!("{state}-TAMPERED")));
    changed.push(json!(state.get(..state.len() - 4).context("a state is longer")?));
    changed.extend([json!(""), json!(7), json!(null), json!({"state": state}), json!([state])]);
    for state in changed {
        let mut retry = client.retry("tools/call", &params(), &asked)?;
        retry.params["requestState"] = state.clone();
        let outcome = client.once(&retry).await?;
        if state.is_null() {
            // As if there were none: a call of its own, which asks anew.
            assert_eq!(outcome.response["result"]["resultType"], "input_required", "{}", outcome.response);
        } else {
            assert_eq!(outcome.code()?, -32602, "{state}: {}", outcome.response);
        }
    }
    let second = round(&client.once(&client.retry("tools/call", &params(), &asked)?).await?)?;
    let last = client.once(&client.retry("tools/call", &params(), &second)?).await?;
    assert_greets(&last.result()?, "Ada", 1);
    Ok(())
}

#[tokio::test]
async fn a_state_is_good_for_the_same_call_only() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = modern(&gateway.client(), "Ada");
    let called = json!({"name": TOOL, "arguments": {"a": 1, "b": [true, {"c": 2.0}]}});
    let asked = begin(&client, &called).await?;
    for (method, other) in [
        ("tools/call", json!({"name": TOOL, "arguments": {"a": 2, "b": [true, {"c": 2.0}]}})),
        ("tools/call", json!({"name": TOOL, "arguments": {"a": 1}})),
        ("tools/call", json!({"name": TOOL, "arguments": {"a": "1", "b": [true, {"c": 2.0}]}})),
        ("tools/call", json!({"name": TOOL})),
        ("tools/call", json!({"name": "test_echo", "arguments": {"a": 1, "b": [true, {"c": 2.0}]}})),
        (
            "prompts/get",
            json!({"name": "test_simple_prompt", "arguments": {"a": 1, "b": [true, {"c": 2.0}]}}),
        ),
    ] {
        let retry = client.retry(method, &other, &asked)?;
        assert_refused(&client, &retry, "differs from the call that asked").await?;
    }
    // Other words for the same: members in another order, numbers by value, fields that are the gateway's own.
    let same = json!({"name": TOOL, "arguments": {"b": [true, {"c": 2}], "__sessionId": "x", "a": 1.0}});
    let second = round(&client.once(&client.retry("tools/call", &same, &asked)?).await?)?;
    let last = client.once(&client.retry("tools/call", &called, &second)?).await?;
    assert_greets(&last.result()?, "Ada", 1);
    Ok(())
}

#[tokio::test]
async fn a_spent_state_is_refused() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = modern(&gateway.client(), "Ada");
    let asked = begin(&client, &params()).await?;
    let second = round(&client.once(&client.retry("tools/call", &params(), &asked)?).await?)?;
    assert_refused(&client, &client.retry("tools/call", &params(), &asked)?, "already answered").await?;
    let last = client.once(&client.retry("tools/call", &params(), &second)?).await?;
    assert_greets(&last.result()?, "Ada", 1);
    for state in [&asked, &second] {
        assert_refused(&client, &client.retry("tools/call", &params(), state)?, "already answered").await?;
    }
    Ok(())
}

#[tokio::test]
async fn of_two_retries_at_once_one_goes_on() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = modern(&gateway.client(), "Ada");
    for execution in 1..=10 {
        let asked = begin(&client, &params()).await?;
        let retries =
            [client.retry("tools/call", &params(), &asked)?, client.retry("tools/call", &params(), &asked)?];
        let [left, right] = &retries;
        let (left, right) = tokio::join!(client.once(left), client.once(right));
        let outcomes = [left?, right?];
        let (went_on, refused): (Vec<_>, Vec<_>) =
            outcomes.iter().partition(|outcome| outcome.response.get("result").is_some());
        let [went_on] = went_on.as_slice() else { panic!("not one of {outcomes:?}") };
        assert_eq!(refused[0].code()?, -32602);
        let last = client.once(&client.retry("tools/call", &params(), &round(went_on)?)?).await?;
        assert_greets(&last.result()?, "Ada", execution);
    }
    Ok(())
}

#[tokio::test]
async fn a_state_of_before_a_restart_is_refused_and_says_so() -> Result<()> {
    let mut gateway = fixture::gateway("").await?;
    let asked = begin(&modern(&gateway.client(), "Ada"), &params()).await?;
    assert!(gateway.stop().await?.success());
    let builder = Gateway::builder().binary("moongate-conformance").home(gateway.home());
    let gateway = builder.start().await?;
    let client = modern(&gateway.client(), "Ada");
    assert_refused(&client, &client.retry("tools/call", &params(), &asked)?, "restarted").await
}

#[tokio::test]
async fn what_was_not_answered_is_asked_again() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = modern(&gateway.client(), "Ada");
    let mut asked = begin(&client, &params()).await?;
    for responses in [
        json!({"wrong_key": {"action": "accept", "content": {"name": "Eve"}}}),
        json!({"user_name": 5}),
        json!({"user_name": null}),
        json!({"user_name": {"action": "perhaps"}}),
        json!({}),
    ] {
        let mut retry = client.retry("tools/call", &params(), &asked)?;
        retry.params["inputResponses"] = responses.clone();
        let again = round(&client.once(&retry).await?)?;
        assert_eq!(again["inputRequests"], asked["inputRequests"], "{responses}");
        assert_ne!(again["requestState"], asked["requestState"], "{responses}");
        let spent = client.retry("tools/call", &params(), &asked)?;
        assert_refused(&client, &spent, "already answered").await?;
        asked = again;
    }
    let mut retry = client.retry("tools/call", &params(), &asked)?;
    retry.params["inputResponses"]["one_too_many"] = json!({"action": "accept"});
    let second = round(&client.once(&retry).await?)?;
    let last = client.once(&client.retry("tools/call", &params(), &second)?).await?;
    assert_greets(&last.result()?, "Ada", 1);
    Ok(())
}

#[tokio::test]
async fn of_several_questions_only_the_open_ones_are_asked_again() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let capabilities = json!({"elicitation": {}, "sampling": {}, "roots": {}});
    let client = ModernClient::new(&gateway.client()).with_answers(&capabilities, person("Ada"));
    let params = json!({"name": "test_input_required_result_multiple_inputs", "arguments": {}});
    let asked = begin(&client, &params).await?;
    assert_eq!(asked["inputRequests"].as_object().context("questions")?.len(), 3);
    let mut retry = client.retry("tools/call", &params, &asked)?;
    retry.params["inputResponses"].as_object_mut().context("answers")?.remove("greeting");
    let again = round(&client.once(&retry).await?)?;
    let open: Vec<_> = again["inputRequests"].as_object().context("questions")?.keys().collect();
    assert_eq!(open, ["greeting"]);
    let last = client.once(&client.retry("tools/call", &params, &again)?).await?.result()?;
    let text = last["content"][0]["text"].as_str().context("a text")?;
    assert_eq!(text, "Hello, Ada! Ada, with 1 open directories");
    Ok(())
}

#[tokio::test]
async fn what_a_request_answers_already_is_not_asked() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = modern(&gateway.client(), "Ada");
    let name = json!({"action": "accept", "content": {"name": "Ada"}});
    let greeting =
        json!({"role": "assistant", "model": "m", "content": {"type": "text", "text": "Hello, Ada!"}});
    let mut all = client.prepare("tools/call", &params());
    all.params["inputResponses"] = json!({"user_name": name, "greeting": greeting});
    assert_greets(&client.once(&all).await?.result()?, "Ada", 1);
    let mut first = client.prepare("tools/call", &params());
    first.params["inputResponses"] = json!({"user_name": name});
    let asked = round(&client.once(&first).await?)?;
    assert_eq!(asked["inputRequests"]["greeting"]["method"], "sampling/createMessage");
    let last = client.once(&client.retry("tools/call", &params(), &asked)?).await?;
    assert_greets(&last.result()?, "Ada", 2);
    // With a state as without: a retry may answer what is asked only after it.
    let asked = begin(&client, &params()).await?;
    let mut both = client.retry("tools/call", &params(), &asked)?;
    both.params["inputResponses"]["greeting"] = greeting;
    assert_greets(&client.once(&both).await?.result()?, "Ada", 3);
    Ok(())
}

#[tokio::test]
async fn one_principal_can_have_so_many_parked_calls_and_no_more() -> Result<()> {
    let gateway = fixture::gateway("security: {limits: {parked: 2}}").await?;
    let client = modern(&gateway.client(), "Ada");
    let asked = begin(&client, &params()).await?;
    begin(&client, &params()).await?;
    let outcome = client.once(&client.prepare("tools/call", &params())).await?;
    assert_eq!((outcome.status, outcome.code()?), (429, -32600));
    assert!(outcome.error_message().contains("at most 2"), "{}", outcome.error_message());
    let other = modern(&caller::issued(&gateway, "other", "read").await?, "Other");
    begin(&other, &params()).await?;
    // The answered one makes room, by parking again for its second question.
    let second = round(&client.once(&client.retry("tools/call", &params(), &asked)?).await?)?;
    let last = client.once(&client.retry("tools/call", &params(), &second)?).await?;
    assert_greets(&last.result()?, "Ada", 1);
    begin(&client, &params()).await?;
    Ok(())
}

#[tokio::test]
async fn a_modern_client_without_the_capability_gets_its_own_error() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let mute = ModernClient::new(&gateway.client());
    let outcome = mute.request("tools/call", &params()).await?;
    assert_eq!((outcome.status, outcome.code()?), (400, -32021));
    let required = &outcome.response["error"]["data"]["requiredCapabilities"];
    assert_eq!(*required, json!({"elicitation": {}}));
    let half = mute.with_answers(&json!({"elicitation": {}}), person("Ada"));
    let outcome = half.request("tools/call", &params()).await?;
    assert_eq!((outcome.status, outcome.code()?), (400, -32021));
    assert_eq!(outcome.response["error"]["data"]["requiredCapabilities"], json!({"sampling": {}}));
    let mut pipe = ModernPipe::new(fixture::pipe("")?);
    assert_eq!(pipe.request("tools/call", &params()).await?.code()?, -32021);
    Ok(())
}

#[tokio::test]
async fn a_legacy_client_without_the_capability_gets_a_tool_error() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open(&gateway.client(), LEGACY).await?;
    let outcome = session.request("tools/call", &params()).await?;
    let result = outcome.result()?;
    assert_eq!((outcome.status, &result["isError"]), (200, &json!(true)));
    let text = result["content"][0]["text"].as_str().context("a text")?;
    assert!(text.contains("elicitation"), "{text}");
    let mut pipe = fixture::pipe("")?;
    pipe.initialize(LEGACY, &json!({"sampling": {}})).await?;
    assert_eq!(pipe.call(TOOL, json!({})).await?["isError"], json!(true));
    Ok(())
}

#[tokio::test]
async fn a_legacy_client_that_takes_no_stream_cannot_be_asked() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let session = LegacySession::open_with(&gateway.client(), LEGACY, &talkative(), person("Ada")).await?;
    let request = session.prepare("tools/call", &params()).header("accept", "application/json");
    let answer = request.send().await?;
    assert_eq!(answer.header("content-type"), "application/json");
    let error = answer.json()?["error"].clone();
    assert!(error["message"].as_str().is_some_and(|text| text.contains("text/event-stream")), "{error}");
    Ok(())
}

#[tokio::test]
async fn a_person_who_declines_is_understood_in_both_eras() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let shy = Answers::new(|method, params| match method {
        "elicitation/create" => Some(json!({"action": "decline"})),
        _ => person("nobody").result(method, params),
    });
    let client = ModernClient::new(&gateway.client()).with_answers(&talkative(), shy.clone());
    assert_greets(&client.call(TOOL, json!({})).await?, "nobody", 1);
    let session = LegacySession::open_with(&gateway.client(), LEGACY, &talkative(), shy).await?;
    assert_greets(&session.call(TOOL, json!({})).await?, "nobody", 2);
    Ok(())
}

#[tokio::test]
async fn a_prompt_may_ask_too() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let answers = Answers::fixed(json!({"context": "the sea"}), "");
    let client = ModernClient::new(&gateway.client()).with_answers(&talkative(), answers.clone());
    let session = LegacySession::open_with(&gateway.client(), LEGACY, &talkative(), answers).await?;
    let params = json!({"name": "test_input_required_result_prompt"});
    for outcome in
        [client.request("prompts/get", &params).await?, session.request("prompts/get", &params).await?]
    {
        let text = &outcome.result()?["messages"][0]["content"]["text"];
        assert_eq!(*text, json!("Use this context: the sea"));
        assert_eq!(outcome.questions.len(), 1);
    }
    Ok(())
}
