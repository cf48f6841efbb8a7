//! The load generator: keep-alive HTTP/1.1 connections that call as fast as the server answers.
//!
//! In: templates and how many connections. Out: how many calls, how long each took. It reads the status line, the length
//! and the id of an answer and nothing else, so that it stays cheaper than any server it measures. Loops are bounded
//! both in time and in count.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use anyhow::{Context as _, Result, bail, ensure};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    task::JoinSet,
    time::Instant,
};

use crate::template::{FIRST_ID, Template, has_id, status};

/// Room for an answer; grows when one is larger.
const BUFFER: usize = 8 * 1024;
/// Each connection numbers its calls in a range of its own, so that no two calls of a session share an id.
const IDS_PER_CONNECTION: u32 = 3_000_000;
/// How far a connection goes from one session to the next. It shares no factor with the numbers of sessions in use, so
/// that every connection comes by every session.
const STRIDE: usize = 37;
/// No single answer takes longer, or the run fails.
const PATIENCE: Duration = Duration::from_secs(30);

/// A keep-alive connection.
#[derive(Debug)]
pub struct Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

/// An answer that was read to its end.
#[derive(Clone, Copy, Debug)]
pub struct Answer<'a> {
    /// The HTTP status.
    pub status: u16,
    /// Status line and headers.
    pub head: &'a [u8],
    /// The body.
    pub body: &'a [u8],
}

impl Connection {
    /// Connects.
    pub async fn open(address: SocketAddr) -> Result<Self> {
        let stream =
            TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, buffer: vec![0; BUFFER] })
    }

    /// Sends one request and reads its answer.
    pub async fn send(&mut self, request: &[u8]) -> Result<Answer<'_>> {
        self.stream.write_all(request).await.context("the server does not take the request")?;
        let mut filled = 0;
        let (head, end) = loop {
            let free = self.buffer.get_mut(filled..).unwrap_or_default();
            let count = self.stream.read(free).await.context("the answer broke off")?;
            ensure!(count > 0, "the server closed the connection after {filled} bytes of an answer");
            filled += count;
            match measure(self.buffer.get(..filled).unwrap_or_default())? {
                Some((head, end)) if end <= filled => {
                    ensure!(end == filled, "the server sent more than one answer");
                    break (head, end);
                }
                Some((_, end)) if end > self.buffer.len() => self.buffer.resize(end, 0),
                None if filled == self.buffer.len() => self.buffer.resize(filled * 2, 0),
                _ => {}
            }
        };
        let (head, body) = self.buffer.get(..end).unwrap_or_default().split_at(head);
        Ok(Answer { status: status(head)?, head, body })
    }
}

/// Where the head of an answer ends and where its body does; `None` while the head is not complete.
fn measure(bytes: &[u8]) -> Result<Option<(usize, usize)>> {
    const LENGTH: &[u8] = b"content-length:";
    let mut at = 0;
    let mut length = None;
    loop {
        let rest = bytes.get(at..).unwrap_or_default();
        let Some(end) = rest.iter().position(|byte| *byte == b'\n') else { return Ok(None) };
        let line = rest.get(..end).unwrap_or_default();
        at += end + 1;
        if line == b"\r" {
            let length = length.context("an answer without content-length")?;
            return Ok(Some((at, at + length)));
        }
        if line.get(..LENGTH.len()).is_some_and(|name| name.eq_ignore_ascii_case(LENGTH)) {
            let value = std::str::from_utf8(line.get(LENGTH.len()..).unwrap_or_default())?;
            length = Some(value.trim().parse::<usize>()?);
        }
    }
}

/// What ids the answers have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ids {
    /// Those of their requests.
    Echoed,
    /// Always the first one, because the answer is a constant.
    Constant,
}

/// Who is called with what.
#[derive(Clone, Debug)]
pub struct Load {
    /// The server.
    pub address: SocketAddr,
    /// The calls of each session, which are made in turn.
    pub sessions: Arc<[Vec<Template>]>,
    /// How many connections call at the same time.
    pub connections: usize,
    /// What to expect.
    pub ids: Ids,
    /// Whether something else needs the core of the load, which therefore sleeps when it has nothing to do.
    pub shares_core: bool,
}

/// When to stop: whatever comes first.
#[derive(Clone, Copy, Debug)]
pub struct Limit {
    /// After so long.
    pub time: Duration,
    /// After so many calls.
    pub calls: u64,
}

/// What came out.
#[derive(Clone, Debug)]
pub struct Round {
    /// Answered calls.
    pub calls: u64,
    /// How long they took together.
    pub elapsed: Duration,
    /// How long each took in nanoseconds, sorted.
    pub latencies: Vec<u32>,
}

impl Round {
    /// Calls per second.
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52")]
    pub fn rate(&self) -> f64 {
        self.calls as f64 / self.elapsed.as_secs_f64()
    }
}

impl Load {
    /// Calls until a limit is reached. One wrong answer fails the run.
    pub async fn run(&self, limit: Limit) -> Result<Round> {
        let mut connections = Vec::with_capacity(self.connections);
        for _ in 0..self.connections {
            connections.push(Connection::open(self.address).await?);
        }
        let (begun, left) = (Instant::now(), Arc::new(AtomicU64::new(limit.calls)));
        let mut callers = JoinSet::new();
        for (number, connection) in connections.into_iter().enumerate() {
            let caller = Calling {
                connection,
                number,
                sessions: Arc::clone(&self.sessions),
                ids: self.ids,
                left: Arc::clone(&left),
                until: begun + limit.time,
            };
            callers.spawn(caller.run());
        }
        let mut latencies = Vec::new();
        let all = async {
            while let Some(ended) = callers.join_next().await {
                latencies.extend(ended.context("a connection of the load generator panicked")??);
            }
            anyhow::Ok(())
        };
        let all = tokio::time::timeout(limit.time + PATIENCE, all);
        tokio::select! {
            ended = all => ended.context("the server stopped answering")??,
            () = stay_awake(), if !self.shares_core => {}
        }
        let elapsed = begun.elapsed();
        latencies.sort_unstable();
        Ok(Round { calls: latencies.len() as u64, elapsed, latencies })
    }

    /// Makes every call of every session once, and looks at the whole answer.
    pub async fn check(&self) -> Result<()> {
        let mut connection = Connection::open(self.address).await?;
        for template in self.sessions.iter().flatten() {
            let answer = connection.send(template.bytes()).await?;
            let text = String::from_utf8_lossy(answer.body);
            ensure!(answer.status == 200, "status {}: {text}", answer.status);
            let message: serde_json::Value = serde_json::from_slice(answer.body)?;
            let failed = message.pointer("/result/isError") != Some(&serde_json::Value::Bool(false));
            ensure!(!failed, "the call failed: {text}");
            ensure!(has_id(answer.body, FIRST_ID), "the answer has another id: {text}");
        }
        Ok(())
    }
}

/// Keeps this thread from sleeping, for as long as it is polled.
///
/// To wake a thread that sleeps on another core costs the server several microseconds of its own time, and the slower a
/// server is the more often its clients sleep. Clients that never sleep charge no server for that.
async fn stay_awake() {
    loop {
        tokio::task::yield_now().await;
    }
}

/// One connection at work.
struct Calling {
    connection: Connection,
    number: usize,
    sessions: Arc<[Vec<Template>]>,
    ids: Ids,
    left: Arc<AtomicU64>,
    until: Instant,
}

impl Calling {
    /// The latency of each call in nanoseconds.
    async fn run(mut self) -> Result<Vec<u32>> {
        let mut latencies = Vec::with_capacity(4096);
        let mut request = Vec::new();
        let first = FIRST_ID + u32::try_from(self.number)? * IDS_PER_CONNECTION;
        // Each session's calls in turn, then the next session.
        let mut session = self.number;
        let mut turn = 0;
        let mut sent = Instant::now();
        for id in first..first + IDS_PER_CONNECTION {
            if sent >= self.until || !self.take() {
                return Ok(latencies);
            }
            let calls =
                self.sessions.get(session % self.sessions.len().max(1)).context("no session to call")?;
            let template = calls.get(turn).context("no call to make")?;
            (session, turn) =
                if turn + 1 < calls.len() { (session, turn + 1) } else { (session + STRIDE, 0) };
            let id = if self.ids == Ids::Constant { FIRST_ID } else { id };
            template.write(id, &mut request);
            let answer = self.connection.send(&request).await?;
            if answer.status != 200 || !has_id(answer.body, id) {
                bail!("call {id} got status {}: {}", answer.status, String::from_utf8_lossy(answer.body));
            }
            let now = Instant::now();
            latencies.push(u32::try_from((now - sent).as_nanos()).unwrap_or(u32::MAX));
            sent = now;
        }
        bail!("a connection ran out of ids")
    }

    fn take(&self) -> bool {
        self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1)).is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{bare, template::Caller};

    const ANSWER: &str = r#"{"jsonrpc":"2.0","id":100000000,"result":{"isError":false}}"#;

    async fn load(answer: &'static str, ids: Ids) -> (Load, JoinSet<()>) {
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut server = JoinSet::new();
        server.spawn(bare::serve(listener, answer.into()));
        let caller = Caller { address, token: "t".to_owned() };
        let sessions: Vec<_> = (0..3).map(|_| vec![caller.initialize(), caller.initialize()]).collect();
        (Load { address, sessions: sessions.into(), connections: 4, ids, shares_core: false }, server)
    }

    #[tokio::test]
    async fn it_makes_exactly_as_many_calls_as_it_may() {
        let (load, _server) = load(ANSWER, Ids::Constant).await;
        load.check().await.unwrap();
        let limit = Limit { time: PATIENCE, calls: 1001 };
        let round = load.run(limit).await.unwrap();
        assert_eq!(round.calls, 1001);
        assert!(round.latencies.is_sorted() && round.rate() > 0.0);
    }

    #[tokio::test]
    async fn it_stops_in_time() {
        let (mut load, _server) = load(ANSWER, Ids::Constant).await;
        load.shares_core = true;
        let round = load.run(Limit { time: Duration::from_millis(50), calls: u64::MAX }).await.unwrap();
        assert!(round.elapsed < PATIENCE && round.calls > 0);
    }

    #[tokio::test]
    async fn a_wrong_id_or_a_failed_call_is_an_error() {
        let (echoing, _server) = load(ANSWER, Ids::Echoed).await;
        assert!(echoing.run(Limit { time: PATIENCE, calls: 100 }).await.is_err());
        let failed = r#"{"jsonrpc":"2.0","id":100000000,"result":{"isError":true}}"#;
        let (failing, _server) = load(failed, Ids::Constant).await;
        assert!(failing.check().await.is_err());
    }

    #[test]
    fn heads_are_measured() {
        let answer = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\ndate: x\r\n\r\nok";
        assert_eq!(measure(answer).unwrap(), Some((47, 49)));
        assert_eq!(measure(&answer[..30]).unwrap(), None);
        assert!(measure(b"HTTP/1.1 200 OK\r\n\r\n").is_err());
    }
}
