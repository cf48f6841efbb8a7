//! What the conformance suite asks of one server in one way, at servers of either era that the gateway reaches in either
//! way: whoever names no questions and ends no connections is helped by the gateway.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use anyhow::{Context as _, Result};
use moongate_test_support::{Answers, Event, Gateway, LegacySession, ModernClient, Peer};
use serde_json::{Value, json};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// A gateway before a peer on a pipe, and one before a peer on HTTP, which lives as long as it is held.
async fn before(version: &str) -> Result<[(Gateway, Option<Peer>); 2]> {
    let peer = Peer::http(version, &[]).await?;
    let over_http = Gateway::start(&upstream(&peer.url_yaml("peer"))).await?;
    let over_a_pipe = Gateway::start(&upstream(&Peer::stdio_yaml("peer", version, &[])?)).await?;
    Ok([(over_http, Some(peer)), (over_a_pipe, None)])
}

fn upstream(entry: &str) -> String {
    format!("upstreams:\n{entry}    prefix: none\n")
}

fn text(result: &Value) -> Result<&str> {
    result["content"][0]["text"].as_str().with_context(|| format!("no text: {result}"))
}

/// `input-required-result-basic-elicitation` and `-ignore-extra-params`, for a server that gives its questions no names.
#[tokio::test]
async fn a_modern_client_answers_a_legacy_server_by_the_key_it_was_given() -> Result<()> {
    for (gateway, _peer) in before(LEGACY).await? {
        let filled = json!({"answer": "Ada"});
        let client = ModernClient::new(&gateway.client())
            .with_answers(&json!({"elicitation": {}}), Answers::fixed(filled.clone(), ""));
        let params = json!({"name": "ask_form", "arguments": {"message": "Who?"}});
        // An answer to a question that nobody asked yet answers nothing.
        let mut first = client.prepare("tools/call", &params);
        first.params["inputResponses"] = json!({"form": {"action": "accept", "content": {"answer": "Eve"}}});
        let asked = client.once(&first).await?.result()?;
        assert_eq!(asked["resultType"], "input_required", "{asked}");
        assert!(asked["requestState"].is_string(), "{asked}");
        let questions = asked["inputRequests"].as_object().context("there are questions")?;
        let (_, question) = questions.iter().next().context("there is a question")?;
        assert_eq!((questions.len(), &question["method"]), (1, &json!("elicitation/create")), "{asked}");
        assert_eq!(
            (&question["params"]["message"], &question["params"]["mode"]),
            (&json!("Who?"), &json!("form"))
        );
        assert_eq!(
            question["params"]["requestedSchema"]["properties"],
            json!({"answer": {"type": "string"}})
        );

        let mut retry = client.retry("tools/call", &params, &asked)?;
        retry.params["inputResponses"]["unknown"] = json!({"action": "accept", "content": {"answer": "Eve"}});
        retry.params["inputResponses"]["other"] = json!({"action": "accept", "content": {"foo": 1}});
        let result = client.once(&retry).await?.result()?;
        assert_eq!(result["resultType"], "complete", "{result}");
        assert_eq!(
            serde_json::from_str::<Value>(text(&result)?)?,
            json!({"action": "accept", "content": filled})
        );
        assert_eq!(text(&client.call("breaches", json!({})).await?)?, "[]");
    }
    Ok(())
}

/// A question that its server names is answered by that name, before it is asked as well as after; no other name will do.
#[tokio::test]
async fn a_modern_client_answers_a_legacy_server_by_the_name_of_the_question() -> Result<()> {
    for (gateway, _peer) in before(LEGACY).await? {
        let client = ModernClient::new(&gateway.client())
            .with_answers(&json!({"elicitation": {}}), Answers::fixed(json!({"answer": "Ada"}), ""));
        let params = json!({"name": "ask_form", "arguments": {"message": "Who?", "key": "user_name"}});
        let given = |answer: Value| json!({"action": "accept", "content": {"answer": answer}});
        let answered = async |responses: Value| {
            let mut request = client.prepare("tools/call", &params);
            request.params["inputResponses"] = responses;
            client.once(&request).await?.result()
        };

        let early = answered(json!({"user_name": given(json!("Ada")), "other": given(json!(1))})).await?;
        assert_eq!(early["resultType"], "complete", "{early}");
        assert_eq!(serde_json::from_str::<Value>(text(&early)?)?, given(json!("Ada")));

        for wrong in [json!({"other": given(json!("Eve"))}), json!({"user_name": 12345})] {
            let asked = answered(wrong).await?;
            assert_eq!(asked["resultType"], "input_required", "{asked}");
            let questions = asked["inputRequests"].as_object().context("there are questions")?;
            assert_eq!(questions.keys().collect::<Vec<_>>(), ["user_name"]);
            assert_eq!(questions["user_name"]["params"].get("_meta"), None, "{asked}");

            // Again the wrong one: asked again, and by the same name.
            let mut retry = client.retry("tools/call", &params, &asked)?;
            retry.params["inputResponses"] = json!({"other": given(json!("Eve"))});
            let again = client.once(&retry).await?.result()?;
            assert_eq!(again["inputRequests"], asked["inputRequests"], "{again}");
            let result = client.once(&client.retry("tools/call", &params, &again)?).await?.result()?;
            assert_eq!(serde_json::from_str::<Value>(text(&result)?)?, given(json!("Ada")));
        }
        assert_eq!(text(&client.call("breaches", json!({})).await?)?, "[]");
    }
    Ok(())
}

/// `server-sse-polling`, where neither the server nor the gateway ends a connection: whoever loses one can come back.
#[tokio::test]
async fn a_legacy_client_can_resume_the_stream_of_a_call_at_any_server() -> Result<()> {
    for version in [LEGACY, MODERN] {
        for (gateway, _peer) in before(version).await? {
            let session = LegacySession::open(&gateway.client(), LEGACY).await?;
            let params =
                json!({"name": "progress", "arguments": {"steps": 3}, "_meta": {"progressToken": "mine"}});
            let events = session.prepare("tools/call", &params).open().await?.rest().await?;
            let first = events.first().context("a stream")?;
            assert!(first.data.as_deref() == Some("") && first.retry.is_some(), "not primed: {events:?}");
            let messages = told(&events)?;
            let tokens =
                messages.iter().filter(|(_, note)| note["params"]["progressToken"] == "mine").count();
            assert_eq!((tokens, messages.len()), (3, 4), "three notes and the result: {messages:?}");
            for (at, event) in events.iter().enumerate() {
                let mut resumed = session.listen(event.id.as_deref()).await?;
                assert_eq!(
                    told(&resumed.rest().await?)?,
                    told(&events[at + 1..])?,
                    "{version}, after {event:?}"
                );
            }
        }
    }
    Ok(())
}

/// The ids and messages of events, the first of a stream left out: it has no message.
fn told(events: &[Event]) -> Result<Vec<(String, Value)>> {
    let mut told = Vec::new();
    for event in events {
        if let Some(message) = event.message()? {
            told.push((event.id.clone().context("an event has an id")?, message));
        }
    }
    Ok(told)
}
