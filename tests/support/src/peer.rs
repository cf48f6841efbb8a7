//! A scripted MCP server to stand behind a gateway: the binary `moongate-peer` of this workspace (`tests/peer`).
//!
//! It speaks one protocol version and notes what the gateway does wrong; its tool `breaches` tells.

use std::{path::Path, process::Stdio as Pipe};

use anyhow::{Context as _, Result};
use serde_json::json;
use tokio::io::{AsyncBufReadExt as _, BufReader};

use crate::{Client, Home, Process, Protocol, gateway::address_of, home::locate, patiently};

const BINARY: &str = "moongate-peer";

/// A peer that serves HTTP on an ephemeral port. It is killed when dropped.
#[derive(Debug)]
pub struct Peer {
    process: Process,
    url: String,
    _home: Home,
}

impl Peer {
    /// An entry below `upstreams:` for a peer that the gateway starts itself. Lines that are indented by four more blanks
    /// may follow, such as `    share: session`.
    pub fn stdio_yaml(name: &str, version: &str, arguments: &[&str]) -> Result<String> {
        let mut all = vec!["--stdio", "--version", version];
        all.extend(arguments);
        // JSON is YAML, and quotes any path.
        let command = json!(locate(BINARY)?);
        Ok(format!("  {name}:\n    command: {command}\n    args: {}\n", json!(all)))
    }

    /// Starts one on HTTP and waits until it listens.
    pub async fn http(version: &str, arguments: &[&str]) -> Result<Self> {
        let home = Home::create()?;
        let mut command = home.command(BINARY)?;
        command.args(["--http", "--version", version]).args(arguments);
        let mut process = Process::spawn(command.stdin(Pipe::null()).stdout(Pipe::piped()))?;
        let mut output = BufReader::new(process.take_stdout().context("stdout was asked for")?);
        let mut line = String::new();
        patiently("the peer's address", output.read_line(&mut line)).await??;
        let url = line.trim_end().strip_prefix("listening ");
        let url = url.with_context(|| format!("the peer said {line:?}: {}", process.stderr().text()))?;
        Ok(Self { process, url: url.to_owned(), _home: home })
    }

    /// Where it listens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// An entry below `upstreams:` for this peer; more lines may follow as after [`Peer::stdio_yaml`].
    pub fn url_yaml(&self, name: &str) -> String {
        format!("  {name}:\n    url: {}\n", json!(self.url))
    }

    /// A plain client of it, without any gateway.
    pub fn client(&self) -> Result<Client> {
        let path = self.url.rfind('/').map_or("", |slash| self.url.get(slash..).unwrap_or_default());
        Ok(Client::new(address_of(&self.url)?, Protocol::Http1).with_path(path))
    }

    /// The process: stderr, signals, whether it runs.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// What peers that were started with `--breaches FILE` have noted in it; nothing while there is no such file.
    pub fn breaches_in(file: &Path) -> Result<Vec<String>> {
        match std::fs::read_to_string(file) {
            Ok(text) => Ok(text.lines().map(str::to_owned).collect()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(Vec::new()),
            Err(error) => Err(error.into()),
        }
    }
}
