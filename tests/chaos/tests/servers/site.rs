//! The gateway with the six servers, and what they have to work with.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use anyhow::{Context as _, Result};
use moongate_test_chaos::{Family, UNLIMITED};
use moongate_test_support::{Gateway, ModernClient};
use serde_json::json;
use tempfile::TempDir;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    task::JoinSet,
    time::Instant,
};

use crate::{Call, names};

/// The servers, named as their programs but for one, whose name a built-in backend has.
pub(crate) const NAMES: [&str; 6] = ["everything", "filesystem", GRAPH, "git", "time", "fetch"];
const GRAPH: &str = "graph";
/// How long six interpreters may take to start on a machine that is busy.
const STARTING: Duration = Duration::from_secs(90);
const PAGE: &str = "<!doctype html><title>Moon</title><article><h1>Moon</h1>\
    <p>The moon keeps the same face to the earth, and has done so for as long as anybody has looked.</p></article>";

/// Everything that runs.
pub(crate) struct Site {
    pub(crate) gateway: Gateway,
    pid: u32,
    directory: TempDir,
    page: String,
    _pages: JoinSet<()>,
}

impl Site {
    pub(crate) async fn open() -> Result<Self> {
        let directory = tempfile::tempdir()?;
        std::fs::create_dir(directory.path().join("files"))?;
        std::fs::write(directory.path().join("files/note.txt"), "a note about the moon")?;
        make_repository(&directory.path().join("repository"))?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let page = format!("http://{}/moon", listener.local_addr()?);
        let mut pages = JoinSet::new();
        pages.spawn(serve(listener));
        let mut gateway = Gateway::start(&yaml(directory.path())).await?;
        let pid = gateway.process().pid();
        let site = Self { gateway, pid, directory, page, _pages: pages };
        site.until_all_are_listed().await?;
        // What the calls look for.
        let entity = json!({"name": "Luna", "entityType": "moon", "observations": ["is round"]});
        let client = ModernClient::new(&site.gateway.client());
        Box::pin(client.call("graph__create_entities", json!({"entities": [entity]}))).await?;
        Ok(site)
    }

    /// One call of each server, whose results are the same every time.
    pub(crate) fn calls(&self) -> Vec<Call> {
        let inside = |name: &str| self.directory.path().join(name).display().to_string();
        let call = |server: &'static str, tool: &str, arguments, expected: &str| Call {
            server,
            name: format!("{server}__{tool}"),
            arguments,
            expected: expected.to_owned(),
        };
        let noon = json!({"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"});
        vec![
            call("everything", "echo", json!({"message": "hello moon"}), "Echo: hello moon"),
            call("filesystem", "read_text_file", json!({"path": inside("files/note.txt")}), "about the moon"),
            call(GRAPH, "read_graph", json!({}), "Luna"),
            call("git", "git_log", json!({"repo_path": inside("repository")}), "first light"),
            call("time", "convert_time", noon, "21:00"),
            call("fetch", "fetch", json!({"url": self.page}), "keeps the same face"),
        ]
    }

    /// The names of all tools, as a client without any SDK sees them.
    pub(crate) async fn all_tools(&self) -> Result<Vec<String>> {
        let client = ModernClient::new(&self.gateway.client());
        Ok(names(&Box::pin(client.list("tools/list")).await?))
    }

    /// The processes of one server, without those that supervise them.
    pub(crate) fn processes(&self, name: &str) -> Result<Family> {
        Family::running(self.pid, &program(name))
    }

    async fn until_all_are_listed(&self) -> Result<()> {
        let (deadline, mut beat) =
            (Instant::now() + STARTING, tokio::time::interval(Duration::from_millis(250)));
        loop {
            beat.tick().await;
            let tools = self.all_tools().await?;
            let has = |name: &&str| tools.iter().any(|tool| tool.starts_with(&format!("{name}__")));
            if NAMES.iter().all(has) {
                return Ok(());
            }
            anyhow::ensure!(Instant::now() < deadline, "not all are listed after {STARTING:?}: {tools:?}");
        }
    }
}

fn yaml(directory: &Path) -> String {
    let node = variable("MOONGATE_NODE", "node");
    let scripts =
        PathBuf::from(variable("MOONGATE_SERVERS", "../upstreams/servers")).join("node_modules/.bin");
    let python = PathBuf::from(variable("MOONGATE_PYTHON", "python3"));
    let from_npm = |name: &str, more: &[String], extra: &str| {
        let script = scripts.join(program(name)).display().to_string();
        let arguments: Vec<&String> = std::iter::once(&script).chain(more).collect();
        entry(name, &node.to_string_lossy(), &json!(arguments), extra)
    };
    let from_pypi = |name: &str, more: &[String]| {
        let script = python.with_file_name(program(name));
        entry(name, &script.to_string_lossy(), &json!(more), "")
    };
    let inside = |name: &str| directory.join(name).display().to_string();
    let memory = format!("    env: {{MEMORY_FILE_PATH: {}}}\n", json!(inside("memory.jsonl")));
    let entries = [
        from_npm("everything", &[], ""),
        from_npm("filesystem", &[inside("files")], ""),
        from_npm(GRAPH, &[], &memory),
        from_pypi("git", &["--repository".to_owned(), inside("repository")]),
        from_pypi("time", &[]),
        from_pypi("fetch", &["--allow-private-ips".to_owned()]),
    ];
    format!("{UNLIMITED}upstreams:\n{}", entries.concat())
}

fn entry(name: &str, command: &str, arguments: &serde_json::Value, extra: &str) -> String {
    format!("  {name}:\n    command: {}\n    args: {arguments}\n    start: eager\n{extra}", json!(command))
}

/// The program of a server.
fn program(name: &str) -> String {
    format!("mcp-server-{}", if name == GRAPH { "memory" } else { name })
}

/// A path from the environment.
pub(crate) fn variable(name: &str, otherwise: &str) -> OsString {
    std::env::var_os(name).unwrap_or_else(|| otherwise.into())
}

fn make_repository(path: &Path) -> Result<()> {
    std::fs::create_dir(path)?;
    std::fs::write(path.join("moon.txt"), "round\n")?;
    let who = ["-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false"];
    for arguments in [&["init", "-q"][..], &["add", "."], &["commit", "-q", "-m", "first light"]] {
        let output = Command::new("git").current_dir(path).args(who).args(arguments).output()?;
        let complaint = String::from_utf8_lossy(&output.stderr);
        anyhow::ensure!(output.status.success(), "git {arguments:?}: {complaint}");
    }
    Ok(())
}

/// Serves one page, and nothing else.
async fn serve(listener: TcpListener) {
    while let Ok((stream, _)) = listener.accept().await {
        // Who asks may go at any time.
        drop(answer(stream).await);
    }
}

async fn answer(mut stream: TcpStream) -> Result<()> {
    let mut head = vec![0; 8192];
    let length = stream.read(&mut head).await?;
    let asked = String::from_utf8_lossy(head.get(..length).context("no more than was read")?).into_owned();
    let (status, body) =
        if asked.starts_with("GET /moon ") { ("200 OK", PAGE) } else { ("404 Not Found", "") };
    let length = body.len();
    let text = format!(
        "HTTP/1.1 {status}\r\ncontent-type: text/html\r\ncontent-length: {length}\r\nconnection: close\r\n\r\n{body}"
    );
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await.map_err(Into::into)
}
