//! Resident memory of a gateway that has nothing to do: alone, with sessions, with open streams.
//!
//! Every figure is the median of fresh processes: an allocator that has already grown would hide what comes next.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};

use super::Settings;
use crate::{
    load::Connection,
    report::{Section, bytes},
    statistics::Spread,
    subject::{self, Subject},
    template::{Template, ToolCall, status},
};

const IDLE: f64 = 25.0;
const PER_SESSION: f64 = 6.0;
const PER_STREAM: f64 = 20.0;
/// For freed memory to be given back and timers to come to rest.
const SETTLE: Duration = Duration::from_millis(500);
/// Descriptors beside those of the streams.
const SPARE: u64 = 256;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let count: u32 = settings.choose(1000, 100);
    raise_open_files(u64::from(count) + SPARE)?;
    let mut samples = Vec::new();
    for _ in 0..settings.choose(3, 1) {
        samples.push(sample(count).await?);
    }
    let median = |value: fn(&Sample) -> u64| {
        #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
        let spread = Spread::of(samples.iter().map(|sample| value(sample) as f64));
        spread.median
    };
    let each = |grown: f64| grown / 1024.0 / f64::from(count);
    let mut section = Section::new();
    let idle = median(|sample| sample.idle) / 1024.0 / 1024.0;
    section.at_most("idle, all backends, one call made", idle, format!("{idle:.1} MiB"), IDLE, " MiB");
    for (what, grown, budget) in [
        ("idle legacy session", median(|sample| sample.sessions), PER_SESSION),
        ("open GET stream of a legacy session", median(|sample| sample.streams), PER_STREAM),
        ("open subscriptions/listen", median(|sample| sample.listens), PER_STREAM),
    ] {
        let each = each(grown);
        section.at_most(format!("each {what}, of {count}"), each, format!("{each:.1} KiB"), budget, " KiB");
    }
    for (what, total) in [
        ("sessions", median(|sample| sample.with_sessions)),
        ("sessions and GET streams", median(|sample| sample.with_streams)),
        ("subscriptions/listen", median(|sample| sample.with_listens)),
    ] {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "a size, shown with one digit"
        )]
        section.value(format!("resident with {count} {what}"), bytes(total as u64));
    }
    Ok(section)
}

/// Bytes, all resident; the first three beyond what was there before.
struct Sample {
    idle: u64,
    sessions: u64,
    streams: u64,
    listens: u64,
    with_sessions: u64,
    with_streams: u64,
    with_listens: u64,
}

async fn sample(count: u32) -> Result<Sample> {
    let (idle, with_sessions, with_streams) = legacy(count).await?;
    let subject = Subject::start().await?;
    let _first = Stream::open(&subject, &subject.caller.listen()).await?;
    let before = settled(&subject).await?;
    let mut streams = Vec::new();
    for _ in 0..count {
        streams.push(Stream::open(&subject, &subject.caller.listen()).await?);
    }
    let with_listens = settled(&subject).await?;
    open_streams(&subject, count + 1).await?;
    Ok(Sample {
        idle,
        sessions: with_sessions.saturating_sub(idle),
        streams: with_streams.saturating_sub(with_sessions),
        listens: with_listens.saturating_sub(before),
        with_sessions,
        with_streams,
        with_listens,
    })
}

/// Resident memory with one session, with `count` more, and with a stream for each of those.
async fn legacy(count: u32) -> Result<(u64, u64, u64)> {
    let subject = Subject::start().await?;
    let caller = &subject.caller;
    let first = subject::open_sessions(caller, 1).await?.pop().context("one was asked for")?;
    let call = ToolCall { name: "get_planning_state", arguments: serde_json::json!({}), headers: &[] };
    let answer =
        Connection::open(caller.address).await?.send(caller.legacy_call(&first, &call).bytes()).await?.status;
    ensure!(answer == 200, "the first call got status {answer}");
    let idle = settled(&subject).await?;
    let sessions = subject::open_sessions(caller, count as usize).await?;
    let with_sessions = settled(&subject).await?;
    let mut streams = Vec::new();
    for session in &sessions {
        streams.push(Stream::open(&subject, &caller.get_stream(session)).await?);
    }
    let with_streams = settled(&subject).await?;
    open_streams(&subject, count).await?;
    Ok((idle, with_sessions, with_streams))
}

async fn settled(subject: &Subject) -> Result<u64> {
    tokio::time::sleep(SETTLE).await;
    subject.gateway.resident()
}

/// Makes sure that what was measured was really there.
async fn open_streams(subject: &Subject, expected: u32) -> Result<()> {
    let open = subject.gateway.metric("moongate_open_streams").await?;
    ensure!((open - f64::from(expected)).abs() < 0.5, "{open} streams are open, not {expected}");
    Ok(())
}

/// An event stream that stays open until it is dropped.
struct Stream {
    _socket: TcpStream,
}

impl Stream {
    /// Opens it and waits for its first event.
    async fn open(subject: &Subject, request: &Template) -> Result<Self> {
        let mut socket = TcpStream::connect(subject.caller.address).await?;
        socket.write_all(request.bytes()).await?;
        let mut read = Vec::new();
        while !read.windows(5).any(|window| window == b"data:") {
            ensure!(
                socket.read_buf(&mut read).await? > 0,
                "the stream ended: {}",
                String::from_utf8_lossy(&read)
            );
            ensure!(status(&read)? == 200, "no stream: {}", String::from_utf8_lossy(&read));
        }
        Ok(Self { _socket: socket })
    }
}

/// Every stream needs a descriptor here and one in the gateway, which inherits our limit.
fn raise_open_files(needed: u64) -> Result<()> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let Rlimit { current, maximum } = getrlimit(Resource::Nofile);
    if current.is_none_or(|current| current >= needed) {
        return Ok(());
    }
    ensure!(maximum.is_none_or(|maximum| maximum >= needed), "{needed} open files are not allowed here");
    setrlimit(Resource::Nofile, Rlimit { current: Some(needed), maximum })
        .context("cannot raise the limit of open files")
}
