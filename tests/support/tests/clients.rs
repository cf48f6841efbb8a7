//! The clients of this crate against a small scripted server, so that a failing gateway test is the gateway's fault.
#![expect(clippy::unwrap_used, reason = "helpers of tests, which fail by panicking")]

use std::{convert::Infallible, net::SocketAddr, sync::Arc};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, service::service_fn};
use hyper_util::rt::{TokioExecutor, TokioIo};
use moongate_test_support::{Answers, Client, LegacySession, ModernClient, Protocol, patiently};
use serde_json::{Value, json};
use tokio::{net::TcpListener, sync::mpsc, task::JoinSet};

/// What the server saw: the connection's number, the request head, the body.
type Seen = (usize, http::request::Parts, Value);
type Script = dyn Fn(&http::request::Parts, &Value) -> http::Response<Full<Bytes>> + Send + Sync;

struct Server {
    address: SocketAddr,
    seen: mpsc::Receiver<Seen>,
    ended: mpsc::Receiver<usize>,
    _tasks: JoinSet<()>,
}

impl Server {
    async fn start(
        protocol: Protocol,
        script: impl Fn(&http::request::Parts, &Value) -> http::Response<Full<Bytes>> + Send + Sync + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, seen) = mpsc::channel(64);
        let (end, ended) = mpsc::channel(64);
        let script: Arc<Script> = Arc::new(script);
        let mut tasks = JoinSet::new();
        tasks.spawn(async move {
            let mut connections = JoinSet::new();
            for number in 0.. {
                let (stream, _) = listener.accept().await.unwrap();
                let (sender, end, script) = (sender.clone(), end.clone(), Arc::clone(&script));
                let service =
                    service_fn(move |request| answer(number, request, sender.clone(), Arc::clone(&script)));
                connections.spawn(async move {
                    let io = TokioIo::new(stream);
                    match protocol {
                        Protocol::Http1 => {
                            drop(
                                hyper::server::conn::http1::Builder::new()
                                    .serve_connection(io, service)
                                    .await,
                            );
                        }
                        Protocol::Http2 => {
                            let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
                            drop(builder.serve_connection(io, service).await);
                        }
                    }
                    end.send(number).await.unwrap();
                });
            }
        });
        Self { address, seen, ended, _tasks: tasks }
    }

    async fn next(&mut self) -> Seen {
        patiently("a request", self.seen.recv()).await.unwrap().unwrap()
    }
}

async fn answer(
    number: usize,
    request: http::Request<Incoming>,
    seen: mpsc::Sender<Seen>,
    script: Arc<Script>,
) -> Result<http::Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.unwrap().to_bytes();
    let body = serde_json::from_slice(&body).unwrap_or(Value::Null);
    let response = script(&head, &body);
    seen.send((number, head, body)).await.unwrap();
    Ok(response)
}

fn reply(kind: &str, body: impl Into<Bytes>) -> http::Response<Full<Bytes>> {
    http::Response::builder().header("content-type", kind).body(Full::new(body.into())).unwrap()
}

fn result(request: &Value, result: &Value) -> http::Response<Full<Bytes>> {
    let message = json!({"jsonrpc": "2.0", "id": request["id"], "result": result});
    reply("application/json", message.to_string())
}

#[tokio::test]
async fn connections_are_kept_and_headers_can_be_replaced_or_left_out() {
    let mut server = Server::start(Protocol::Http1, |_, _| reply("text/plain", "fine")).await;
    let client = Client::new(server.address, Protocol::Http1).with_token("secret");
    assert_eq!(client.post(&json!({})).send().await.unwrap().text().unwrap(), "fine");
    let changed = client.post_text("x").header("host", "evil.example.com").without("authorization");
    changed.also("x-two", "1").also("x-two", "2").send().await.unwrap();
    let (first, head, _) = server.next().await;
    assert_eq!(head.headers["authorization"], "Bearer secret");
    assert_eq!(head.headers["host"], server.address.to_string());
    let (second, head, _) = server.next().await;
    assert_eq!(
        (head.headers["host"].as_bytes(), head.headers.get("authorization")),
        (&b"evil.example.com"[..], None)
    );
    assert_eq!(head.headers.get_all("x-two").iter().count(), 2);
    assert_eq!(first, second, "the connection is used again");
}

#[tokio::test]
async fn http2_requests_share_one_connection() {
    let mut server = Server::start(Protocol::Http2, |_, _| reply("text/plain", "two")).await;
    let client = Client::new(server.address, Protocol::Http2);
    client.get("/first").send().await.unwrap();
    let (a, b) = tokio::join!(client.get("/a").send(), client.get("/b").send());
    assert_eq!((a.unwrap().status, b.unwrap().status), (200, 200));
    for _ in 0..3 {
        let (number, head, _) = server.next().await;
        assert_eq!((number, head.version), (0, http::Version::HTTP_2));
    }
}

#[tokio::test]
async fn dropping_a_stream_closes_its_connection() {
    let mut server =
        Server::start(Protocol::Http1, |_, _| reply("text/event-stream", "data: 1\n\ndata: 2\n\n")).await;
    let client = Client::new(server.address, Protocol::Http1);
    let mut stream = client.listen().open().await.unwrap();
    assert_eq!(stream.message().await.unwrap(), Some(json!(1)));
    drop(stream);
    assert_eq!(patiently("the end of the connection", server.ended.recv()).await.unwrap(), Some(0));
}

#[tokio::test]
async fn legacy_session_answers_questions_and_collects_notifications() {
    let mut server = Server::start(Protocol::Http1, |_, message| match message["method"].as_str() {
        Some("initialize") => {
            let mut welcome =
                result(message, &json!({"protocolVersion": message["params"]["protocolVersion"]}));
            welcome.headers_mut().insert("mcp-session-id", "s1".parse().unwrap());
            welcome
        }
        Some("tools/call") => {
            let progress = json!({"jsonrpc": "2.0", "method": "notifications/progress", "params": {}});
            let question = json!({"jsonrpc": "2.0", "id": "q", "method": "roots/list"});
            let answer = json!({"jsonrpc": "2.0", "id": message["id"], "result": {"ok": true}});
            let events = format!(":\n\ndata:\n\ndata: {progress}\n\ndata: {question}\n\ndata: {answer}\n\n");
            reply("text/event-stream", events)
        }
        _ => http::Response::builder().status(202).body(Full::default()).unwrap(),
    })
    .await;
    let client = Client::new(server.address, Protocol::Http1);
    let answers = Answers::fixed(json!({}), "text");
    let session =
        LegacySession::open_with(&client, "2025-06-18", &json!({"roots": {}}), answers).await.unwrap();
    let outcome = session.request("tools/call", &json!({"name": "x"})).await.unwrap();
    assert_eq!(outcome.result().unwrap(), json!({"ok": true}));
    assert_eq!((outcome.notifications.len(), outcome.questions.len()), (1, 1));
    for expected in ["initialize", "notifications/initialized", "tools/call"] {
        assert_eq!(server.next().await.2["method"], expected);
    }
    let (_, head, response) = server.next().await;
    assert_eq!((&response["id"], response["result"]["roots"].is_array()), (&json!("q"), true));
    assert_eq!(
        (&head.headers["mcp-session-id"], &head.headers["mcp-protocol-version"]),
        (&"s1".parse().unwrap(), &"2025-06-18".parse().unwrap())
    );
}

#[tokio::test]
async fn modern_client_sends_its_envelope_and_answers_rounds() {
    let mut server = Server::start(Protocol::Http1, |_, message| {
        if message["params"].get("requestState").is_some() {
            return result(message, &json!({"resultType": "complete"}));
        }
        let question = json!({"method": "elicitation/create", "params": {}});
        let round =
            json!({"resultType": "input_required", "inputRequests": {"k": question}, "requestState": "s"});
        result(message, &round)
    })
    .await;
    let client = Client::new(server.address, Protocol::Http1);
    let answers = Answers::fixed(json!({"name": "Ada"}), "text");
    let modern = ModernClient::new(&client).with_answers(&json!({"elicitation": {}}), answers);
    assert_eq!(modern.call("목표", json!({"a": 1})).await.unwrap()["resultType"], "complete");
    let (_, head, first) = server.next().await;
    assert_eq!(head.headers["mcp-name"], "=?base64?66qp7ZGc?=");
    assert_eq!(head.headers["mcp-method"], "tools/call");
    assert_eq!(first["params"]["_meta"]["io.modelcontextprotocol/protocolVersion"], "2026-07-28");
    let (_, _, retry) = server.next().await;
    assert_ne!(first["id"], retry["id"]);
    assert_eq!(retry["params"]["inputResponses"]["k"]["content"]["name"], "Ada");
    assert_eq!(retry["params"]["arguments"], json!({"a": 1}));
}
