//! Real clients, in every era they speak and over both transports: all of them see the same gateway.
//!
//! Each test runs one SDK, which lists the tools, creates a goal and lists the goals, and compares what it got with what
//! a bare HTTP request gets. What the SDKs send must be what `tests/fixtures/recorded` holds, which `recorded.rs` replays;
//! `MOONGATE_RECORD=1` writes it there.
//!
//! `./test clients` installs the SDKs and says where they are: `MOONGATE_CLIENTS` (scripts beside their packages),
//! `MOONGATE_NODE` and `MOONGATE_PYTHON` (interpreters).
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

mod recorder;
mod rust_sdk;

use std::{ffi::OsString, path::PathBuf, sync::Arc};

use anyhow::{Context as _, Result};
use moongate_test_support::{Gateway, Home, LegacySession, patiently};
use recorder::{Recorder, Recording};
use serde_json::{Value, json};
use tokio::process::Command;

/// What every client calls its goal.
const GOAL: &str = "Plant a tree";

#[tokio::test]
async fn typescript_sdk_1() -> Result<()> {
    agrees(&Script::node("typescript-1.mjs"), "typescript-1", &["legacy"]).await
}

#[tokio::test]
async fn typescript_sdk_2() -> Result<()> {
    agrees(&Script::node("typescript-2.mjs"), "typescript-2", &["legacy", "modern"]).await
}

#[tokio::test]
async fn python_sdk() -> Result<()> {
    agrees(&Script::python("python_sdk.py"), "python", &["legacy", "modern"]).await
}

#[tokio::test]
async fn rust_sdk() -> Result<()> {
    agrees(&rust_sdk::RustSdk, "rust", &["legacy", "modern"]).await
}

/// A client that can be run once against a gateway.
trait Sdk {
    async fn over_http(&self, era: &str, url: &str, token: &str, home: &Home) -> Result<Value>;
    async fn over_stdio(&self, era: &str, command: &[OsString], home: &Home) -> Result<Value>;
}

/// Runs `sdk` in each of `eras` over both transports, and compares each result with the bare one.
async fn agrees(sdk: &impl Sdk, name: &str, eras: &[&str]) -> Result<()> {
    let expected = bare().await?;
    for era in eras {
        let (seen, recording) = http(sdk, era).await.with_context(|| format!("{name}, {era}, HTTP"))?;
        assert_eq!(normal(seen), expected, "{name}, {era}, HTTP");
        recording.keep(&format!("{name}-{era}-http"))?;
        let (seen, recording) = stdio(sdk, era).await.with_context(|| format!("{name}, {era}, stdio"))?;
        assert_eq!(normal(seen), expected, "{name}, {era}, stdio");
        recording.keep(&format!("{name}-{era}-stdio"))?;
    }
    Ok(())
}

async fn http(sdk: &impl Sdk, era: &str) -> Result<(Value, Recording)> {
    let gateway = Gateway::start("").await?;
    let recorder = Recorder::before(gateway.address()?).await?;
    let url = format!("http://{}/mcp", recorder.address());
    let result = sdk.over_http(era, &url, &gateway.token()?, gateway.home()).await?;
    Ok((result, recorder.recording()))
}

async fn stdio(sdk: &impl Sdk, era: &str) -> Result<(Value, Recording)> {
    let home = Arc::new(Home::create()?);
    let config = home.write_config("")?;
    let sent = home.path().join("sent.jsonl");
    let gateway = home.command("moongate")?.as_std().get_program().to_owned();
    // `tee` keeps a copy of what the client writes; the gateway cannot tell.
    let tee: [OsString; 4] =
        ["sh".into(), "-c".into(), r#"tee -a "$0" | exec "$@""#.into(), sent.clone().into()];
    let command = tee.into_iter().chain([gateway, "stdio".into(), "--config".into(), config.into()]);
    let result = sdk.over_stdio(era, &command.collect::<Vec<_>>(), &home).await?;
    Ok((result, Recording::of_pipe(&std::fs::read_to_string(sent)?)))
}

/// The same three requests without any SDK.
async fn bare() -> Result<Value> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    let tools = session.list("tools/list").await?;
    let tools = tools["tools"].as_array().context("no tools")?;
    let tools: Vec<_> =
        tools.iter().map(|tool| pick(tool, &["name", "description", "inputSchema"])).collect();
    let created = session.call("create_goal", json!({"goal": GOAL})).await?;
    let goals = session.call("list_goals", json!({})).await?;
    assert!(goals.to_string().contains(GOAL), "{goals}");
    Ok(normal(json!({"tools": tools, "created": shown(&created), "goals": shown(&goals)})))
}

/// The part of a tool's result that clients can see.
fn shown(result: &Value) -> Value {
    let mut shown = pick(result, &["isError", "content", "structuredContent"]);
    if shown["isError"].is_null() {
        shown["isError"] = json!(false);
    }
    shown
}

fn pick(value: &Value, names: &[&str]) -> Value {
    names.iter().map(|name| ((*name).to_owned(), value[*name].clone())).collect()
}

/// The same report without the times of this run.
fn normal(mut report: Value) -> Value {
    forget_times(&mut report);
    report
}

fn forget_times(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(forget_times),
        Value::Object(members) => {
            for (name, member) in members {
                if name.ends_with("At") {
                    *member = json!("TIME");
                } else {
                    forget_times(member);
                }
            }
        }
        _ => {}
    }
}

/// An SDK of another language: a script that prints one line of JSON.
struct Script {
    interpreter: OsString,
    path: PathBuf,
}

impl Script {
    fn node(name: &str) -> Self {
        Self::new("MOONGATE_NODE", "node", name)
    }

    fn python(name: &str) -> Self {
        Self::new("MOONGATE_PYTHON", "python3", name)
    }

    fn new(variable: &str, interpreter: &str, name: &str) -> Self {
        let beside = std::path::absolute("../clients").expect("tests run in their package");
        let directory = std::env::var_os("MOONGATE_CLIENTS").map_or(beside, PathBuf::from);
        let interpreter = std::env::var_os(variable).unwrap_or_else(|| interpreter.into());
        Self { interpreter, path: directory.join(name) }
    }

    async fn run(&self, command: &mut Command) -> Result<Value> {
        let output = patiently("the script", command.output()).await??;
        let (said, complained) =
            (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        anyhow::ensure!(output.status.success(), "{}: {}\n{complained}", self.path.display(), output.status);
        serde_json::from_str(&said).with_context(|| format!("printed {said:?}\n{complained}"))
    }
}

impl Sdk for Script {
    async fn over_http(&self, era: &str, url: &str, token: &str, home: &Home) -> Result<Value> {
        let mut command = home.command_at(&self.interpreter);
        self.run(command.arg(&self.path).args([era, "http", url, token])).await
    }

    async fn over_stdio(&self, era: &str, server: &[OsString], home: &Home) -> Result<Value> {
        let mut command = home.command_at(&self.interpreter);
        self.run(command.arg(&self.path).args([era, "stdio"]).args(server)).await
    }
}
