//! A caller with a named session, and what the tests ask of it.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use moongate_test_integration::waiting::eventually;
use moongate_test_support::{Gateway, ModernClient};
use serde_json::{Value, json};

/// A gateway with these settings of its workspace. It lets callers ask as often as they like.
pub(crate) async fn start(settings: &str) -> Result<Gateway> {
    Gateway::start(&yaml(settings)).await
}

/// Its configuration.
pub(crate) fn yaml(settings: &str) -> String {
    let limits = "{per_address: off, per_principal: off, flood: off}";
    format!("security: {{limits: {limits}}}\nbackends: {{workspace: {{{settings}}}}}\n")
}

/// The local user in the session called `name`.
pub(crate) fn session(gateway: &Gateway, name: &str) -> Caller {
    Caller(ModernClient::new(&gateway.client().with_header("x-session-id", name)))
}

/// Somebody with a session.
#[derive(Clone, Debug)]
pub(crate) struct Caller(pub(crate) ModernClient);

impl Caller {
    /// The result of a tool, which may be an error.
    pub(crate) async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        self.0.call(tool, arguments).await
    }

    /// The structured result of a tool that must not fail.
    pub(crate) async fn data(&self, tool: &str, arguments: Value) -> Result<Value> {
        let result = self.call(tool, arguments).await?;
        anyhow::ensure!(result["isError"] == json!(false), "{tool} failed: {result}");
        Ok(result["structuredContent"].clone())
    }

    /// The code and the text of a tool that must fail.
    pub(crate) async fn refusal(&self, tool: &str, arguments: Value) -> Result<(i64, String)> {
        let result = self.call(tool, arguments).await?;
        anyhow::ensure!(result["isError"] == json!(true), "{tool} did not fail: {result}");
        let error = &result["structuredContent"]["error"];
        assert_eq!(error["message"], result["content"][0]["text"]);
        let code = error["code"].as_i64().context("an error has a code")?;
        Ok((code, error["message"].as_str().unwrap_or_default().to_owned()))
    }

    /// Runs a command and waits for it.
    pub(crate) async fn run(&self, command: &str) -> Result<Value> {
        self.data("execute_shell", json!({"command": command})).await
    }

    /// Runs a command that must work, and tells what it wrote.
    pub(crate) async fn output(&self, command: &str) -> Result<String> {
        let ended = self.run(command).await?;
        anyhow::ensure!(ended["exit_code"] == 0, "{command}: {ended}");
        Ok(ended["stdout"].as_str().unwrap_or_default().to_owned())
    }

    /// Starts a command, and tells its id.
    pub(crate) async fn start(&self, command: &str) -> Result<String> {
        let started = self.data("execute_command", json!({"command": command})).await?;
        anyhow::ensure!(started["status"] == "started", "{started}");
        Ok(started["processId"].as_str().context("a process has an id")?.to_owned())
    }

    /// Waits until a process has a status.
    pub(crate) async fn becomes(&self, id: &str, status: &str) -> Result<Value> {
        eventually(&format!("{status} of {id}"), async || {
            let found = self.data("poll_process", json!({"processId": id})).await?;
            Ok((found["status"] == status).then_some(found))
        })
        .await
    }

    /// Waits until a process has written a line.
    pub(crate) async fn says(&self, id: &str, line: &str) -> Result<Value> {
        eventually(&format!("{line:?} of {id}"), async || {
            let found = self.data("poll_process", json!({"processId": id})).await?;
            Ok(found["output"]
                .as_str()
                .is_some_and(|output| output.lines().any(|said| said == line))
                .then_some(found))
        })
        .await
    }

    /// The directory of the session.
    pub(crate) async fn directory(&self) -> Result<PathBuf> {
        Ok(self.output("pwd").await?.into())
    }
}

/// The program that tries to get out.
pub(crate) const ESCAPE: &str = env!("CARGO_BIN_EXE_escape");
