//! What the shells add to the script: lines and exits on a pipe; sessions, statuses and broken answers over HTTP.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{path::PathBuf, process::Stdio as Pipe};

use anyhow::{Context as _, Result};
use moongate_test_support::{Client, Home, PATIENCE, Peer, Process, patiently};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

const LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";

/// Gives `input` to a peer on a pipe; what it says until it exits, its exit code and the breaches it noted.
async fn pipe(version: &str, arguments: &[&str], input: &str) -> Result<(String, i32, Vec<String>)> {
    let home = Home::create()?;
    let file = home.path().join("breaches");
    let mut command = home.command("moongate-peer")?;
    command.args(["--stdio", "--version", version, "--breaches"]).arg(&file).args(arguments);
    let mut process = Process::spawn(command.stdin(Pipe::piped()).stdout(Pipe::piped()))?;
    let mut stdin = process.take_stdin().context("stdin was asked for")?;
    stdin.write_all(input.as_bytes()).await?;
    drop(stdin);
    let mut said = String::new();
    let mut stdout = process.take_stdout().context("stdout was asked for")?;
    patiently("all the peer says", stdout.read_to_string(&mut said)).await??;
    let code = process.wait(PATIENCE).await?.code().context("it was not killed")?;
    Ok((said, code, Peer::breaches_in(&file)?))
}

/// A peer over HTTP with a file of breaches.
struct Server {
    peer: Peer,
    client: Client,
    breaches: PathBuf,
    _directory: tempfile::TempDir,
}

impl Server {
    async fn start(version: &str, arguments: &[&str]) -> Result<Self> {
        let directory = tempfile::tempdir()?;
        let breaches = directory.path().join("breaches");
        let mut all = vec!["--breaches", breaches.to_str().context("a path")?];
        all.extend(arguments);
        let peer = Peer::http(version, &all).await?;
        let client = peer.client()?;
        Ok(Self { client, peer, breaches, _directory: directory })
    }

    /// A client of a session that is ready.
    async fn session(&self) -> Result<Client> {
        let answer = self.client.post(&hello()).send().await?;
        let id = answer.header("mcp-session-id");
        let client = self.client.clone().with_header("mcp-session-id", id);
        let client = client.with_header("mcp-protocol-version", LEGACY);
        client.post(&json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).send().await?;
        Ok(client)
    }

    /// Checks that exactly one breach was noted, and that it says this.
    #[track_caller]
    fn noted(&self, part: &str) {
        let breaches = Peer::breaches_in(&self.breaches).expect("the file can be read");
        assert!(breaches.len() == 1 && breaches[0].contains(part), "{part:?} is not what {breaches:?} says");
    }
}

fn hello() -> Value {
    let info = json!({"name": "test", "version": "1"});
    let params = json!({"protocolVersion": LEGACY, "capabilities": {}, "clientInfo": info});
    json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": params})
}

fn call(id: u64, tool: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "method": "tools/call", "params": {"name": tool, "arguments": {}}})
}

fn greeting() -> String {
    format!("{}\n{}\n", hello(), json!({"jsonrpc": "2.0", "method": "notifications/initialized"}))
}

#[tokio::test]
async fn lines_that_are_no_messages_are_noted() -> Result<()> {
    let input = format!(
        "{}\n{{\"jsonrpc\":\"2.0\",\n\"method\":\"ping\",\"id\":1}}\n{}",
        greeting(),
        call(1, "count")
    );
    let (said, code, breaches) = pipe(LEGACY, &[], &input).await?;
    assert_eq!((said.lines().count(), code), (4, 0), "{said}");
    let parts = ["an empty line", "not a message", "not a message", "the last line has no end"];
    assert_eq!(breaches.len(), parts.len(), "{breaches:?}");
    for part in parts {
        assert!(breaches.iter().any(|breach| breach.contains(part)), "{part}: {breaches:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_peer_on_a_pipe_ends_as_asked() -> Result<()> {
    let (said, code, _) = pipe(LEGACY, &[], &format!("{}{}\n", greeting(), call(1, "crash"))).await?;
    assert!(code == 1 && !said.ends_with('\n') && said.lines().count() == 2, "{code}: {said}");
    let (said, code, _) = pipe(LEGACY, &[], &format!("{}{}\n", greeting(), call(1, "exit"))).await?;
    assert!(code == 0 && said.lines().count() == 1, "{code}: {said}");
    let exits = ["--misbehave", "exit-on-discover"];
    let probe = json!({"jsonrpc": "2.0", "id": 1, "method": "server/discover", "params": {}});
    assert_eq!(pipe(LEGACY, &exits, &format!("{probe}\n")).await?.1, 1);
    assert_eq!(pipe(LEGACY, &exits, &greeting()).await?.1, 0);
    let (said, code, breaches) = pipe(LEGACY, &["--misbehave", "slow-start=1"], &greeting()).await?;
    assert_eq!((said.lines().count(), code, breaches.len()), (1, 0, 0));
    let (said, ..) = pipe(LEGACY, &["--misbehave", "silent"], &greeting()).await?;
    assert_eq!(said, "");
    Ok(())
}

#[tokio::test]
async fn floods_come_while_a_call_runs() -> Result<()> {
    let server = Server::start(LEGACY, &["--misbehave", "flood"]).await?;
    let client = server.session().await?;
    let mut waiting = client.post(&call(1, "wait")).open().await?;
    for _ in 0..1000 {
        let note = waiting.message().await?.context("the flood ended")?;
        assert_eq!(note["params"]["data"], "flood");
    }
    let cancel = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    assert_eq!(client.post(&cancel).send().await?.status, 202);
    patiently("the end of the flood", waiting.rest()).await??;
    assert_eq!(Peer::breaches_in(&server.breaches)?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn sessions_are_used_as_they_were_given() -> Result<()> {
    let server = Server::start(LEGACY, &[]).await?;
    assert_eq!(server.client.post(&call(1, "count")).send().await?.status, 400);
    server.noted("tools/call before initialize");

    let server = Server::start(LEGACY, &[]).await?;
    let foreign = server.client.clone().with_header("mcp-session-id", "made-up");
    assert_eq!(foreign.post(&call(1, "count")).send().await?.status, 404);
    server.noted("\"made-up\", which is over or never was");

    let server = Server::start(LEGACY, &[]).await?;
    assert_eq!(server.client.listen().send().await?.status, 400);
    server.noted("GET without a session");

    let server = Server::start(LEGACY, &[]).await?;
    let client = server.session().await?;
    assert_eq!(client.delete().send().await?.status, 200);
    assert_eq!(client.post(&call(1, "count")).send().await?.status, 404);
    server.noted("which is over or never was");

    let server = Server::start(LEGACY, &[]).await?;
    let client = server.session().await?;
    assert_eq!(client.post(&call(1, "forget")).send().await?.status, 200);
    assert_eq!(client.post(&call(2, "count")).send().await?.status, 404);
    assert_eq!(Peer::breaches_in(&server.breaches)?, [""; 0], "the client could not know");
    Ok(())
}

#[tokio::test]
async fn requests_describe_themselves() -> Result<()> {
    for (name, value, part) in [
        ("accept", "application/json", "not both JSON and event streams"),
        ("content-type", "text/plain", "content type \"text/plain\""),
        ("mcp-protocol-version", "2025-06-18", "was agreed"),
    ] {
        let server = Server::start(LEGACY, &[]).await?;
        server.session().await?.post(&call(1, "count")).header(name, value).send().await?;
        server.noted(part);
    }
    let server = Server::start(LEGACY, &[]).await?;
    drop(server.session().await?.listen().header("last-event-id", "7").open().await?);
    server.noted("Last-Event-ID");
    for request in ["GET", "DELETE"] {
        let server = Server::start(MODERN, &[]).await?;
        let answer = server.client.request(request.parse()?, "/mcp").send().await?;
        assert_eq!((answer.status, answer.header("allow")), (405, "POST"));
        server.noted("to a server without sessions");
    }
    Ok(())
}

#[tokio::test]
async fn the_old_transport_keeps_its_two_endpoints() -> Result<()> {
    let server = Server::start("2024-11-05", &[]).await?;
    assert!(server.peer.url().ends_with("/sse"));
    assert_eq!(server.client.post(&hello()).send().await?.status, 405);
    let mut stream = server.client.listen().open().await?;
    let path = stream.next().await?.and_then(|event| event.data).context("an address")?;
    let messages = server.client.clone().with_path(&path);
    assert_eq!(messages.post(&hello()).send().await?.status, 202);
    assert_eq!(stream.message().await?.context("a welcome")?["id"], "hello");
    assert_eq!(Peer::breaches_in(&server.breaches)?, [""; 0], "looking for the newer transport is no breach");
    let gone = server.client.clone().with_path("/messages?session=none");
    assert_eq!(gone.post(&hello()).send().await?.status, 404);
    server.noted("which is over or never was");
    Ok(())
}

#[tokio::test]
async fn answers_over_http_are_broken_as_asked() -> Result<()> {
    let start = async |one: &str| Server::start(MODERN, &["--misbehave", one]).await;
    let server = start("http-status=503").await?;
    assert_eq!(server.client.post(&hello()).send().await?.status, 503);
    let server = start("redirect").await?;
    let answer = server.client.post(&hello()).send().await?;
    assert!(answer.status == 307 && !answer.header("location").is_empty(), "{answer:?}");
    let server = start("wrong-type").await?;
    assert_eq!(server.client.post(&hello()).send().await?.header("content-type"), "text/html");
    let server = start("hang-up").await?;
    let mut answer = server.client.post(&hello()).open().await?;
    assert_eq!(answer.status, 200);
    assert!(answer.body_json().await.is_err(), "the body breaks off");
    Ok(())
}

#[tokio::test]
async fn a_peer_over_http_ends_as_asked() -> Result<()> {
    for (tool, code) in [("crash", 1), ("exit", 0)] {
        let mut server = Server::start(LEGACY, &[]).await?;
        let client = server.session().await?;
        let broken = match client.post(&call(1, tool)).open().await {
            Ok(mut stream) => stream.rest().await.is_err(),
            // Without a head there is nothing to read on.
            Err(_) => true,
        };
        assert!(broken, "{tool} was answered");
        assert_eq!(server.peer.process().wait(PATIENCE).await?.code(), Some(code));
    }
    Ok(())
}

#[test]
fn entries_of_a_configuration_name_the_peer() -> Result<()> {
    let yaml = Peer::stdio_yaml("one", MODERN, &["--misbehave", "silent"])?;
    assert!(yaml.starts_with("  one:\n    command: \"/"), "{yaml}");
    let args = r#"["--stdio","--version","2026-07-28","--misbehave","silent"]"#;
    assert!(yaml.ends_with(&format!("/moongate-peer\"\n    args: {args}\n")), "{yaml}");
    Ok(())
}
