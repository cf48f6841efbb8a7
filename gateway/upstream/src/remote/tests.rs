//! The transport against a server whose every answer the tests write.

mod faults;
mod legacy;
mod old;
mod server;
mod standing;
mod streams;
mod tls;

use futures_util::StreamExt as _;
use moongate_wire::{Message, Raw};
use serde_json::{Value, json};
use server::Server;
use tokio::sync::mpsc;

use super::*;
use crate::transport::{Answer, Event};

/// So long that a paused clock, which jumps to the next timer while a test waits for the network, finds others first.
const EVER: Duration = Duration::from_secs(1_000_000);

/// Keeps what it hears.
struct Ears(mpsc::Sender<Message>);

impl Inbound for Ears {
    fn hear(&self, message: Message) {
        self.0.try_send(message).unwrap();
    }
}

/// A connection to a server, and what is heard on it.
struct Connected {
    transport: Arc<dyn Transport>,
    heard: mpsc::Receiver<Message>,
    tasks: Group,
}

fn spec(server: &Server) -> Spec {
    let url = format!("http://{}/mcp?key=hidden", server.address).parse().unwrap();
    Spec { connect_timeout: EVER, idle: EVER, max_message: 100_000, ..Spec::new("test", url) }
}

async fn connect(server: &Server) -> Connected {
    connect_with(spec(server)).await
}

async fn connect_with(spec: Spec) -> Connected {
    let tasks = Group::new();
    dial(&Remote::new(spec, tasks.clone()), tasks).await
}

async fn dial(dial: &dyn Dial, tasks: Group) -> Connected {
    let (sender, heard) = mpsc::channel(64);
    Connected { transport: dial.dial(Arc::new(Ears(sender))).await.unwrap(), heard, tasks }
}

impl Drop for Connected {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

impl Connected {
    /// Shakes hands, in the session `id` if there is one.
    async fn initialize(&self, server: &mut Server, id: Option<&str>) {
        let mut exchange = self.transport.request(outgoing(0, "initialize", None));
        let serve = async {
            let asked = server.next().await;
            assert_eq!(asked.header("mcp-session-id"), "");
            let headers = [("content-type", "application/json"), ("mcp-session-id", id.unwrap_or_default())];
            let headers = if id.is_some() { &headers[..] } else { &headers[..1] };
            asked.reply(200, headers, answer(0).to_string());
        };
        let (event, ()) = tokio::join!(exchange.next(), serve);
        assert!(matches!(event, Some(Event::Answer(_))), "{event:?}");
    }

    /// Begins a request and waits until the server has it.
    async fn ask(&self, server: &mut Server, request: Outgoing) -> (Exchange, server::Asked) {
        let mut exchange = self.transport.request(request);
        let asked = tokio::select! {
            asked = server.next() => asked,
            event = exchange.next() => panic!("{event:?} before the server was asked"),
        };
        (exchange, asked)
    }
}

const MODERN: Option<Version> = Some(Version::V2026_07_28);
const LEGACY: Option<Version> = Some(Version::V2025_11_25);

fn outgoing(id: i64, method: &'static str, version: Option<Version>) -> Outgoing {
    let message = Raw::of(&json!({"jsonrpc": "2.0", "id": id, "method": method, "params": {"name": "x"}}));
    Outgoing { id, method, message, version, name: None, param_headers: Vec::new(), undeclared: Vec::new() }
}

fn call(id: i64, version: Option<Version>) -> Outgoing {
    outgoing(id, "tools/call", version)
}

fn answer(id: i64) -> Value {
    json!({"jsonrpc": "2.0", "id": id, "result": {"ok": id}})
}

fn note(text: &str) -> Value {
    json!({"jsonrpc": "2.0", "method": "notifications/message", "params": {"data": text}})
}

/// The events of an exchange in a few words, and that nothing follows the last.
async fn told(mut exchange: Exchange) -> Vec<String> {
    let mut told = Vec::new();
    while let Some(event) = exchange.next().await {
        told.push(match event {
            Event::Message(message) => heard(&message),
            Event::HungUp => "hung up".to_owned(),
            Event::Answer(Answer { outcome: Ok(result), status }) => {
                format!("{status:?} {}", result.as_str())
            }
            Event::Answer(Answer { outcome: Err(error), status }) => format!("{status:?} {error}"),
            Event::Lost(fault) => fault.to_string(),
        });
    }
    told
}

/// A message in a few words.
fn heard(message: &Message) -> String {
    let data = message.params().and_then(|params| params.raw()?.member("data"));
    data.map_or_else(|| format!("{message:?}"), |data| data.as_str().to_owned())
}

#[test]
fn nothing_secret_is_printed() {
    let secret = HeaderValue::from_static("hunter2");
    let url = Uri::from_static("https://me:hunter2@example.com/hunter2?key=hunter2");
    let spec = Spec { headers: vec![(http::header::AUTHORIZATION, secret)], ..Spec::new("test", url) };
    let remote = Remote::new(spec.clone(), Group::new());
    let old = OldSse::new(spec.clone(), Group::new());
    let text = format!("{spec:?} {remote:?} {old:?}");
    assert!(!text.contains("hunter2") && text.contains("example.com:443"), "{text}");
}
