//! Stands between a client and the gateway and writes down what the client posts.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{Request, Response, body::Incoming, client, server, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tokio::{
    net::{TcpListener, TcpStream},
    task::JoinSet,
};

/// Headers that make a request what it is; the others say who sent it and how.
const KEPT: [&str; 2] = ["accept", "content-type"];

/// A listening recorder; it stops when dropped.
pub(crate) struct Recorder {
    address: SocketAddr,
    posted: Arc<Mutex<Vec<Value>>>,
    _tasks: JoinSet<()>,
}

/// What a client sent, without what differs from run to run.
pub(crate) struct Recording(Vec<Value>);

impl Recorder {
    /// Listens, and passes every request on to `gateway`.
    pub(crate) async fn before(gateway: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let posted = Arc::new(Mutex::new(Vec::new()));
        let log = Arc::clone(&posted);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                let log = Arc::clone(&log);
                let service = service_fn(move |request| pass_on(request, gateway, Arc::clone(&log)));
                let connection =
                    server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service);
                // A client that hangs up ends its connection with an error, which is not ours to judge.
                connections.spawn(async move { drop(connection.await) });
            }
        });
        Ok(Self { address, posted, _tasks: tasks })
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }

    pub(crate) fn recording(&self) -> Recording {
        Recording(self.posted.lock().unwrap_or_else(PoisonError::into_inner).clone())
    }
}

impl Recording {
    /// What stood on a pipe, a message per line.
    pub(crate) fn of_pipe(lines: &str) -> Self {
        Self(lines.lines().map(|line| json!({"body": line})).collect())
    }

    /// Compares it with the committed recording, so that what `recorded` replays is what the SDK really sends; with
    /// `MOONGATE_RECORD` set, writes it there instead.
    pub(crate) fn keep(&self, name: &str) -> Result<()> {
        let calls = self.0.iter().filter(|entry| entry["body"].to_string().contains("tools/call")).count();
        anyhow::ensure!(calls == 2, "{name}: {calls} calls were recorded");
        let directory = Path::new("../fixtures/recorded");
        let path = directory.join(format!("{name}.jsonl"));
        let text = self.0.iter().map(|entry| format!("{entry}\n")).collect::<Vec<_>>().concat();
        if std::env::var_os("MOONGATE_RECORD").is_some() {
            std::fs::create_dir_all(directory)?;
            std::fs::write(path, text)?;
        } else {
            let committed = std::fs::read_to_string(&path).context("record it with MOONGATE_RECORD=1")?;
            assert_eq!(
                text, committed,
                "{name}: the SDK sends something new; record it with MOONGATE_RECORD=1"
            );
        }
        Ok(())
    }
}

async fn pass_on(
    request: Request<Incoming>,
    gateway: SocketAddr,
    log: Arc<Mutex<Vec<Value>>>,
) -> Result<Response<Incoming>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await?.to_bytes();
    if head.method == http::Method::POST {
        log.lock().unwrap_or_else(PoisonError::into_inner).push(entry(&head, &body));
    }
    let stream = TcpStream::connect(gateway).await?;
    let (mut sender, connection) = client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let mut driver = JoinSet::new();
    driver.spawn(async move { drop(connection.await) });
    let response = sender.send_request(Request::from_parts(head, Full::new(body))).await?;
    // Detached: it ends with the answer, which outlives this function.
    driver.detach_all();
    Ok(response)
}

/// The body stays text: a replay sends the very bytes.
fn entry(head: &http::request::Parts, body: &Bytes) -> Value {
    let headers: BTreeMap<_, _> = head
        .headers
        .iter()
        .filter(|(name, _)| KEPT.contains(&name.as_str()) || name.as_str().starts_with("mcp-"))
        .map(|(name, value)| match name.as_str() {
            "mcp-session-id" => (name.as_str(), "SESSION".into()),
            other => (other, String::from_utf8_lossy(value.as_bytes())),
        })
        .collect();
    json!({"headers": headers, "body": String::from_utf8_lossy(body)})
}
