//! A server of 2025-11-25 that ends the connection of a call and finishes later: the gateway comes back to it, and its
//! client is let go and may come back too.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::sync::{Arc, Mutex};

use anyhow::{Context as _, Result};
use moongate_test_support::{Gateway, LegacySession, ModernClient};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
    task::JoinSet,
};

/// A server with one tool. It answers a call only after it has hung up, was resumed and may.
struct Upstream {
    address: String,
    /// How many calls may end.
    may_end: Arc<Semaphore>,
    _tasks: JoinSet<()>,
}

impl Upstream {
    async fn start() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?.to_string();
        let may_end = Arc::new(Semaphore::new(0));
        let (gate, called, mut tasks) =
            (Arc::clone(&may_end), Arc::new(Mutex::new(Value::Null)), JoinSet::new());
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            while let Ok((connection, _)) = listener.accept().await {
                let (gate, called) = (Arc::clone(&gate), Arc::clone(&called));
                // A gateway that breaks off is the business of the test, not of the server.
                connections.spawn(async move { drop(answer(connection, &gate, &called).await) });
            }
        });
        Ok(Self { address, may_end, _tasks: tasks })
    }

    async fn gateway(&self) -> Result<Gateway> {
        let url = format!("http://{}/mcp", self.address);
        let settings = json!({"url": url, "prefix": "none", "era": "legacy"});
        Gateway::start(&format!("upstreams: {}\n", json!({"slow": settings}))).await
    }
}

/// Answers one request and closes the connection.
async fn answer(connection: TcpStream, may_end: &Semaphore, called: &Mutex<Value>) -> Result<()> {
    let mut connection = BufReader::new(connection);
    let (mut head, mut length) = (String::new(), 0);
    while connection.read_line(&mut head).await? > 2 {
        let line = head.lines().next_back().unwrap_or_default().to_ascii_lowercase();
        if let Some(value) = line.strip_prefix("content-length:") {
            length = value.trim().parse()?;
        }
    }
    let mut body = vec![0; length];
    connection.read_exact(&mut body).await?;
    let message: Value = serde_json::from_slice(&body).unwrap_or_default();
    let json = |result: Value| {
        let body = json!({"jsonrpc": "2.0", "id": message["id"], "result": result}).to_string();
        ("200 OK", "application/json", body)
    };
    let (status, kind, body) = match message["method"].as_str() {
        Some("initialize") => json(json!({
            "protocolVersion": "2025-11-25",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "slow", "version": "1"},
        })),
        Some("tools/list") => json(json!({"tools": [{"name": "slow", "inputSchema": {"type": "object"}}]})),
        Some("tools/call") => {
            called.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.clone_from(&message["id"]);
            ("200 OK", "text/event-stream", "id: 1\nretry: 1\ndata:\n\n".to_owned())
        }
        Some(_) => ("202 Accepted", "text/plain", String::new()),
        None if head.to_ascii_lowercase().contains("last-event-id: 1\r\n") => {
            may_end.acquire().await?.forget();
            let id = called.lock().map_err(|_| anyhow::anyhow!("poisoned"))?.clone();
            let result = json!({"content": [{"type": "text", "text": "done"}]});
            let message = json!({"jsonrpc": "2.0", "id": id, "result": result});
            ("200 OK", "text/event-stream", format!("id: 2\ndata: {message}\n\n"))
        }
        None => ("405 Method Not Allowed", "text/plain", String::new()),
    };
    let head =
        format!("HTTP/1.1 {status}\r\ncontent-type: {kind}\r\nmcp-session-id: s\r\nconnection: close\r\n");
    connection.write_all(format!("{head}content-length: {}\r\n\r\n{body}", body.len()).as_bytes()).await?;
    Ok(connection.shutdown().await?)
}

fn assert_done(result: &Value) {
    assert_eq!(result["content"], json!([{"type": "text", "text": "done"}]), "{result}");
}

#[tokio::test]
async fn a_client_that_can_come_back_is_let_go_with_the_gateway() -> Result<()> {
    let upstream = Upstream::start().await?;
    let gateway = upstream.gateway().await?;
    let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    let mut stream = session.prepare("tools/call", &json!({"name": "slow"})).open().await?;
    let events = stream.rest().await?;
    assert!(events.iter().all(|event| event.data.as_deref() == Some("")), "no result yet: {events:?}");
    let id = stream.last_event_id.as_deref().context("a place to come back to")?;
    let mut resumed = session.listen(Some(id)).await?;
    upstream.may_end.add_permits(1);
    assert_done(&resumed.message().await?.context("a result")?["result"]);
    Ok(())
}

#[tokio::test]
async fn other_clients_notice_nothing() -> Result<()> {
    let upstream = Upstream::start().await?;
    let gateway = upstream.gateway().await?;
    upstream.may_end.add_permits(2);
    let session = LegacySession::open(&gateway.client(), "2025-06-18").await?;
    assert_done(&session.call("slow", json!({})).await?);
    assert_done(&ModernClient::new(&gateway.client()).call("slow", json!({})).await?);
    Ok(())
}
