//! The end of a gateway and its replacement, with clients that go on asking: drain, hand-over, signals.

use std::{
    process::Stdio,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result};
use moongate_test_integration::{UNLIMITED, waiting::eventually};
use moongate_test_support::{
    Client, Gateway, Home, LegacySession, ModernClient, PATIENCE, Process, Protocol, RawTcp, patiently,
};
use rustix::process::Signal;
use serde_json::json;
use tokio::{task::JoinSet, time::Instant};

/// A gateway that was told to end must be gone by then.
const END: Duration = Duration::from_secs(5);
/// Clients that ask without a pause, each over a connection it keeps.
const CLIENTS: usize = 64;

/// What the clients have seen together.
#[derive(Debug, Default)]
struct Seen {
    answered: AtomicUsize,
    /// Requests on a connection in use that got no answer.
    lost: AtomicUsize,
    /// Connections that were made and ended before they carried an answer.
    stillborn: AtomicUsize,
    /// Connections that were refused.
    refused: AtomicUsize,
}

/// Clients that call a tool again and again until they are refused.
struct Load {
    seen: Arc<Seen>,
    clients: JoinSet<()>,
}

impl Load {
    fn start(client: &Client) -> Self {
        let seen = Arc::new(Seen::default());
        let mut clients = JoinSet::new();
        for _ in 0..CLIENTS {
            clients.spawn(ask_on(client.clone(), Arc::clone(&seen)));
        }
        Self { seen, clients }
    }

    /// Waits for so many more answers.
    async fn answers(&self, more: usize) -> Result<()> {
        let wanted = self.seen.answered.load(Ordering::Acquire) + more;
        let reached = async || Ok((self.seen.answered.load(Ordering::Acquire) >= wanted).then_some(()));
        eventually(&format!("{more} more answers"), reached).await
    }

    /// Waits until every client was refused.
    async fn ended(self) -> Result<Arc<Seen>> {
        patiently("the end of the load", self.clients.join_all()).await?;
        Ok(self.seen)
    }
}

async fn ask_on(client: Client, seen: Arc<Seen>) {
    let call =
        ModernClient::new(&client).prepare("tools/call", &json!({"name": "list_goals", "arguments": {}}));
    while let Ok(mut connection) = client.connect().await {
        for turn in 0.. {
            let Ok(answer) = call.over(&client).send_over(&mut connection).await else {
                let counter = if turn == 0 { &seen.stillborn } else { &seen.lost };
                counter.fetch_add(1, Ordering::AcqRel);
                break;
            };
            assert_eq!(answer.status, 200, "{answer:?}");
            seen.answered.fetch_add(1, Ordering::AcqRel);
            if answer.header("connection") == "close" {
                break;
            }
        }
    }
    seen.refused.fetch_add(1, Ordering::AcqRel);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn under_load_no_request_is_lost_to_quit_upgrade_or_term() -> Result<()> {
    let mut old = Gateway::start(UNLIMITED).await?;
    let load = Load::start(&old.client());
    load.answers(500).await?;

    // QUIT without a successor: nothing happens but a line that says why.
    old.signal(Signal::QUIT)?;
    old.logged("no successor waits").await?;
    load.answers(500).await?;

    // A successor takes the listeners; the old gateway ends by itself.
    let mut new = Gateway::builder().config(UNLIMITED).home(old.home()).arg("--upgrade").start().await?;
    assert_eq!((new.endpoint(), new.admin()), (old.endpoint(), old.admin()));
    assert!(old.wait(PATIENCE).await?.success(), "the old gateway ends well");
    load.answers(500).await?;
    let (lost, refused) = (load.seen.lost.load(Ordering::Acquire), load.seen.refused.load(Ordering::Acquire));
    let stillborn = load.seen.stillborn.load(Ordering::Acquire);
    assert_eq!((lost, refused, stillborn), (0, 0, 0), "the hand-over lost requests or refused connections");

    // TERM: everything in flight is answered, and the process is gone in time.
    let start = Instant::now();
    new.sigterm()?;
    let status = new.wait(PATIENCE).await?;
    let took = start.elapsed();
    assert!(status.success() && took < END, "{status} after {took:?}");
    let seen = load.ended().await?;
    assert_eq!(seen.lost.load(Ordering::Acquire), 0, "{seen:?}");
    // The kernel may complete one more handshake between the last look into its queue and the close of the listener. If
    // connections that were accepted got lost, it would be dozens.
    assert!(seen.stillborn.load(Ordering::Acquire) <= 1, "{seen:?}");
    Ok(())
}

#[tokio::test]
async fn a_hundred_open_streams_end_cleanly_and_in_time() -> Result<()> {
    let mut gateway = Gateway::start(UNLIMITED).await?;
    let mut streams = Vec::new();
    for _ in 0..100 {
        // Each with a client of its own: a connection for a session, and one for its stream.
        let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
        streams.push((session.listen(None).await?, session));
    }
    let start = Instant::now();
    gateway.sigterm()?;
    for (stream, _) in &mut streams {
        stream.rest().await.context("a stream was cut instead of ended")?;
    }
    let status = gateway.wait(PATIENCE).await?;
    let took = start.elapsed();
    assert!(status.success() && took < END, "{status} after {took:?}");
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_nobody_uses_ends_at_once() -> Result<()> {
    let mut gateway = Gateway::start("").await?;
    let start = Instant::now();
    gateway.sigterm()?;
    assert!(gateway.wait(PATIENCE).await?.success());
    // Far less than the shortest phase of a drain, on a busy machine too.
    assert!(start.elapsed() < Duration::from_secs(1), "{:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_second_signal_ends_it_without_waiting() -> Result<()> {
    let mut gateway = Gateway::start("").await?;
    // A request that never becomes complete keeps the drain waiting.
    let mut stuck = gateway.tcp().await?;
    stuck.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await?;
    assert!(gateway.anonymous_client().get("/healthz").send().await?.status == 200);
    let start = Instant::now();
    gateway.sigterm()?;
    gateway.logged("finishing what runs").await?;
    gateway.signal(Signal::INT)?;
    assert_eq!(gateway.wait(PATIENCE).await?.code(), Some(1));
    assert!(start.elapsed() < Duration::from_millis(1500), "{:?}", start.elapsed());
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_drains_says_so_and_still_answers() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let mut stuck = gateway.tcp().await?;
    stuck.write("POST /mcp HTTP/1.1\r\nHost: localhost\r\n").await?;
    assert_eq!(gateway.anonymous_client().get("/readyz").send().await?.status, 200);
    gateway.sigterm()?;
    gateway.logged("finishing what runs").await?;
    let client = gateway.anonymous_client();
    let draining =
        async || Ok(Some(client.get("/readyz").send().await?).filter(|answer| answer.status == 503));
    let answer = eventually("the gateway to say that it drains", draining).await?;
    assert_eq!(answer.header("connection"), "close");
    let admin = gateway.admin_client()?.get("/readyz").send().await?;
    assert_eq!((admin.status, &admin.json()?["details"]["draining"]), (503, &json!(true)));
    Ok(())
}

#[tokio::test]
async fn running_out_of_descriptors_passes() -> Result<()> {
    const FILES: usize = 100;
    let home = Home::create()?;
    let gateway = home.command("moongate")?;
    let program = gateway.as_std().get_program().to_owned();
    let mut command = home.command_at("sh");
    let script = format!("ulimit -n {FILES} && exec \"$0\" --http-port 0");
    let process = Process::spawn(command.arg("-c").arg(script).arg(program).stdin(Stdio::null()))?;
    let ready =
        patiently("the gateway", process.stderr().line(|line| line.starts_with("moongate ready"))).await??;
    let endpoint = ready.split("endpoint=http://").nth(1).and_then(|rest| rest.split('/').next());
    let address = endpoint.context("no endpoint")?.parse()?;
    let mut crowd = Vec::new();
    for _ in 0..FILES {
        crowd.push(RawTcp::connect(address).await?);
    }
    patiently("the trouble", process.stderr().line(|line| line.contains("cannot accept connections")))
        .await??;
    drop(crowd);
    let answer = Client::new(address, Protocol::Http1).get("/healthz").send().await?;
    assert_eq!(answer.status, 200);
    Ok(())
}

#[tokio::test]
async fn an_upgrade_needs_something_to_take_over() -> Result<()> {
    let home = Home::create()?;
    let output = home.run(&["serve", "--upgrade"]).await?;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr)?;
    assert!(text.contains("no gateway of this user is running"), "{text}");
    Ok(())
}

#[tokio::test]
async fn a_successor_that_cannot_start_changes_nothing() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let bad = gateway.home().path().join("bad.yaml");
    std::fs::write(&bad, "server: {lisen: x}")?;
    let output = gateway.home().run(&["serve", "--upgrade", "--config", &bad.to_string_lossy()]).await?;
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(gateway.anonymous_client().get("/healthz").send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_is_an_error() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let port = gateway.address()?.port().to_string();
    let output = Home::create()?.run(&["--http-port", &port]).await?;
    assert_eq!(output.status.code(), Some(1));
    let text = String::from_utf8(output.stderr)?;
    assert!(text.contains("port in use") && text.contains("--http-port"), "{text}");
    Ok(())
}

#[tokio::test]
async fn the_end_of_standard_input_leaves_the_port_open() -> Result<()> {
    let gateway = Gateway::builder().arg("--transport").arg("both").start().await?;
    gateway.logged("standard input ended").await?;
    assert_eq!(gateway.anonymous_client().get("/healthz").send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_signal_does_not_wait_for_standard_input() -> Result<()> {
    for arguments in [&["stdio"][..], &["--transport", "both", "--http-port", "0"]] {
        let home = Home::create()?;
        let mut command = home.command("moongate")?;
        let mut process =
            Process::spawn(command.args(arguments).stdin(Stdio::piped()).stdout(Stdio::null()))?;
        let stdin = process.take_stdin();
        let serving = process.stderr().line(|line| line.contains("serving standard input"));
        patiently("the pipe", serving).await??;
        let start = Instant::now();
        process.signal(Signal::TERM)?;
        let status = process.wait(PATIENCE).await?;
        assert!(
            status.success() && start.elapsed() < END,
            "{arguments:?}: {status} after {:?}",
            start.elapsed()
        );
        drop(stdin);
    }
    Ok(())
}
