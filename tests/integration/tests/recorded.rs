//! Calls that real SDKs once made still work, byte for byte as they were sent (CTX-T23).
//!
//! `tests/fixtures/recorded` holds one file per SDK, era and transport, written by `clients`. Here nothing of an SDK is
//! needed: the recorded messages are sent again, with the session id of this run.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use moongate_test_support::{Gateway, Stdio};
use serde_json::Value;

#[tokio::test]
async fn recorded_http_calls_still_work() -> Result<()> {
    for path in recordings("http")? {
        replay_http(&path).await.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

#[tokio::test]
async fn recorded_stdio_calls_still_work() -> Result<()> {
    for path in recordings("stdio")? {
        replay_stdio(&path).await.with_context(|| path.display().to_string())?;
    }
    Ok(())
}

async fn replay_http(path: &Path) -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client();
    let mut session = String::new();
    let mut replies = Vec::new();
    for (headers, body) in entries(path)? {
        let mut request = client.post_text(body.clone());
        for (name, value) in headers.as_object().context("recorded headers")? {
            let value = value.as_str().context("a header is text")?;
            request = request.header(name, if value == "SESSION" { &session } else { value });
        }
        let answer = request.send().await?;
        let message: Value = serde_json::from_str(&body)?;
        let wanted = if message.get("id").is_some() { 200 } else { 202 };
        anyhow::ensure!(answer.status == wanted, "{body} got {}", answer.status);
        if session.is_empty() {
            answer.header("mcp-session-id").clone_into(&mut session);
        }
        replies.extend(answer.messages()?.into_iter().map(|reply| (message.clone(), reply)));
    }
    judge(&replies)
}

async fn replay_stdio(path: &Path) -> Result<()> {
    let mut gateway = Stdio::start("")?;
    let mut replies = Vec::new();
    for (_, body) in entries(path)? {
        gateway.send_raw(format!("{body}\n")).await?;
        let message: Value = serde_json::from_str(&body)?;
        if let Some(id) = message.get("id") {
            let response = gateway.outcome(id).await?.response;
            replies.push((message, response));
        }
    }
    judge(&replies)
}

/// The goal was created and is listed, and no request got an error.
fn judge(replies: &[(Value, Value)]) -> Result<()> {
    for (request, reply) in replies {
        anyhow::ensure!(reply.get("error").is_none(), "{request} got {reply}");
    }
    let result_of = |tool: &str| {
        let found = replies.iter().find(|(request, _)| request["params"]["name"] == tool);
        found.map(|(_, reply)| &reply["result"]).with_context(|| format!("{tool} was not called"))
    };
    for tool in ["create_goal", "list_goals"] {
        let result = result_of(tool)?;
        anyhow::ensure!(
            result["isError"] != true && result.to_string().contains("Plant a tree"),
            "{tool}: {result}"
        );
    }
    Ok(())
}

/// The recordings of one transport: every SDK in every era it speaks.
fn recordings(transport: &str) -> Result<Vec<PathBuf>> {
    let directory = Path::new("../fixtures/recorded");
    let ending = format!("-{transport}.jsonl");
    let all = std::fs::read_dir(directory).context("no recordings")?;
    let paths = all.map(|entry| Ok(entry?.path())).collect::<Result<Vec<_>>>()?;
    let mut paths: Vec<_> =
        paths.into_iter().filter(|path| path.to_string_lossy().ends_with(&ending)).collect();
    paths.sort();
    anyhow::ensure!(paths.len() == 7, "four SDKs, three of them in both eras, are seven: {paths:?}");
    Ok(paths)
}

/// Headers and body of each message.
fn entries(path: &Path) -> Result<Vec<(Value, String)>> {
    let text = std::fs::read_to_string(path)?;
    let lines = text.lines().map(|line| {
        let mut entry: Value = serde_json::from_str(line)?;
        let body = entry["body"].as_str().context("a body is text")?.to_owned();
        Ok((entry["headers"].take(), body))
    });
    lines.collect()
}
