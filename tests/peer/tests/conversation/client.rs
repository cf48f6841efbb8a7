//! A small client of every version and transport, which does nothing wrong and answers whatever it is asked.

use std::process::Stdio as Pipe;

use anyhow::{Context as _, Result, bail};
use moongate_test_peer::Version;
use moongate_test_support::{
    self as support, EventStream, Home, Peer, Process, Request, header_value, patiently,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader, Lines},
    process::{ChildStdin, ChildStdout},
};

pub(crate) struct Client {
    pub(crate) version: Version,
    /// Notifications that came before the answer to the last request.
    pub(crate) notes: Vec<Value>,
    wire: Wire,
    next: u64,
}

/// A request that is not waited for.
pub(crate) struct Begun {
    id: u64,
    stream: Option<EventStream>,
}

enum Wire {
    Pipe {
        input: ChildStdin,
        lines: Lines<BufReader<ChildStdout>>,
        _process: Process,
        _home: Home,
    },
    /// The old one: everything comes on one stream.
    Events {
        client: support::Client,
        path: String,
        stream: EventStream,
        _peer: Peer,
    },
    Http {
        client: support::Client,
        standing: Option<EventStream>,
        _peer: Peer,
    },
}

impl Client {
    pub(crate) async fn over_stdio(version: Version) -> Result<Self> {
        let home = Home::create()?;
        let mut command = home.command("moongate-peer")?;
        command.args(["--stdio", "--version", version.name()]);
        let mut process = Process::spawn(command.stdin(Pipe::piped()).stdout(Pipe::piped()))?;
        let input = process.take_stdin().context("stdin was asked for")?;
        let lines = BufReader::new(process.take_stdout().context("stdout was asked for")?).lines();
        Self::greet(version, Wire::Pipe { input, lines, _process: process, _home: home }).await
    }

    pub(crate) async fn over_http(version: Version) -> Result<Self> {
        let peer = Peer::http(version.name(), &[]).await?;
        let client = peer.client()?;
        if version > Version::November2024 {
            return Self::greet(version, Wire::Http { client, standing: None, _peer: peer }).await;
        }
        let mut stream = client.listen().open().await?;
        let first = stream.next().await?.context("the stream ended")?;
        anyhow::ensure!(first.event.as_deref() == Some("endpoint"), "{first:?}");
        let path = first.data.context("an address to post to")?;
        Self::greet(version, Wire::Events { client, path, stream, _peer: peer }).await
    }

    /// Whether what nobody asked for comes on the same stream as answers.
    pub(crate) fn has_one_stream(&self) -> bool {
        !matches!(self.wire, Wire::Http { .. })
    }

    async fn greet(version: Version, wire: Wire) -> Result<Self> {
        let mut client = Self { version, notes: Vec::new(), wire, next: 1 };
        if version.is_modern() {
            let found = client.request("server/discover", json!({})).await?;
            anyhow::ensure!(found["result"]["supportedVersions"] == json!([version.name()]), "{found}");
            return Ok(client);
        }
        let info = json!({"name": "test", "version": "1"});
        let mut capabilities = json!({"sampling": {}, "roots": {"listChanged": true}});
        if version.has_elicitation() {
            capabilities["elicitation"] = json!({});
        }
        let hello =
            json!({"protocolVersion": version.name(), "capabilities": capabilities, "clientInfo": info});
        let welcome = client.request("initialize", hello).await?;
        anyhow::ensure!(welcome["result"]["protocolVersion"] == version.name(), "{welcome}");
        client.tell(json!({"jsonrpc": "2.0", "method": "notifications/initialized"})).await?;
        if let Wire::Http { client, standing, .. } = &mut client.wire {
            *standing = Some(client.listen().without("content-type").open().await?);
        }
        Ok(client)
    }

    /// The text of a tool's result, after answering what it asks.
    pub(crate) async fn call(&mut self, tool: &str, arguments: Value) -> Result<String> {
        let answer = self.result(tool, arguments).await?;
        Ok(answer["content"][0]["text"].as_str().with_context(|| answer.to_string())?.to_owned())
    }

    /// A tool's result, after answering what it asks.
    pub(crate) async fn result(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        let params = json!({"name": tool, "arguments": arguments});
        let mut answer = self.request("tools/call", params.clone()).await?;
        while answer["result"]["resultType"] == "input_required" {
            let asked = answer["result"]["inputRequests"].as_object().context("nothing was asked")?;
            let answers: serde_json::Map<_, _> =
                asked.iter().map(|(key, request)| (key.clone(), answer_to(&request["method"]))).collect();
            let mut retry = params.clone();
            retry["inputResponses"] = json!(answers);
            retry["requestState"] = answer["result"]["requestState"].clone();
            answer = self.request("tools/call", retry).await?;
        }
        answer.get("result").cloned().with_context(|| answer.to_string())
    }

    /// The response to a request.
    pub(crate) async fn request(&mut self, method: &str, params: Value) -> Result<Value> {
        self.notes.clear();
        let mut begun = self.begin(method, params).await?;
        loop {
            let message = match &mut begun.stream {
                Some(stream) => next_of(stream).await?,
                None => self.receive().await?,
            };
            match (message.get("id"), message.get("method")) {
                (Some(id), Some(method)) => {
                    self.tell(json!({"jsonrpc": "2.0", "id": id, "result": answer_to(method)})).await?;
                }
                (None, Some(_)) => self.notes.push(message),
                (Some(id), None) if *id == begun.id => return Ok(message),
                _ => bail!("not the answer to {}: {message}", begun.id),
            }
        }
    }

    pub(crate) async fn begin(&mut self, method: &str, mut params: Value) -> Result<Begun> {
        let id = self.next;
        self.next += 1;
        if self.version.is_modern() {
            let meta = &mut params["_meta"];
            meta["io.modelcontextprotocol/protocolVersion"] = json!(self.version.name());
            meta["io.modelcontextprotocol/clientCapabilities"] =
                json!({"sampling": {}, "elicitation": {}, "roots": {}});
            meta["io.modelcontextprotocol/logLevel"] = json!("warning");
        }
        let message = json!({"jsonrpc": "2.0", "id": id, "method": method, "params": params});
        let Wire::Http { client, .. } = &mut self.wire else {
            self.tell(message).await?;
            return Ok(Begun { id, stream: None });
        };
        let stream = dress(self.version, client.post(&message), &message).open().await?;
        if let Some(session) = stream.headers.get("mcp-session-id") {
            *client = client.clone().with_header("mcp-session-id", session.to_str()?);
            if self.version.has_version_header() {
                *client = client.clone().with_header("mcp-protocol-version", self.version.name());
            }
        }
        Ok(Begun { id, stream: Some(stream) })
    }

    /// Cancels in the way of the version and the transport.
    pub(crate) async fn cancel(&mut self, begun: Begun) -> Result<()> {
        if self.version.is_modern() && begun.stream.is_some() {
            return Ok(());
        }
        let params = json!({"requestId": begun.id});
        self.tell(json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": params})).await?;
        if let Some(mut stream) = begun.stream {
            anyhow::ensure!(stream.message().await?.is_none(), "a cancelled call was answered");
        }
        Ok(())
    }

    /// The next message of a request that was not waited for.
    pub(crate) async fn next(&mut self, begun: &mut Begun) -> Result<Value> {
        match &mut begun.stream {
            Some(stream) => next_of(stream).await,
            None => self.receive().await,
        }
    }

    /// The next message on the stream of what nobody asked for.
    pub(crate) async fn unasked(&mut self) -> Result<Value> {
        match &mut self.wire {
            Wire::Http { standing: Some(standing), .. } => next_of(standing).await,
            _ => bail!("there is no such stream"),
        }
    }

    /// Sends what has no answer.
    async fn tell(&mut self, message: Value) -> Result<()> {
        let answer = match &mut self.wire {
            Wire::Pipe { input, .. } => {
                return input.write_all(format!("{message}\n").as_bytes()).await.map_err(Into::into);
            }
            Wire::Events { client, path, .. } => client.clone().with_path(path).post(&message).send().await?,
            Wire::Http { client, .. } => client.post(&message).send().await?,
        };
        anyhow::ensure!(answer.status == 202 && answer.body.is_empty(), "{answer:?}");
        Ok(())
    }

    async fn receive(&mut self) -> Result<Value> {
        match &mut self.wire {
            Wire::Pipe { lines, .. } => {
                let line = patiently("a line of the peer", lines.next_line()).await??;
                serde_json::from_str(&line.context("the peer has ended")?).map_err(Into::into)
            }
            Wire::Events { stream, .. } => next_of(stream).await,
            Wire::Http { .. } => bail!("answers come on their own streams"),
        }
    }
}

async fn next_of(stream: &mut EventStream) -> Result<Value> {
    let kind = stream.headers.get("content-type").and_then(|kind| kind.to_str().ok());
    let message = match kind {
        Some("text/event-stream") => stream.message().await?,
        _ => stream.body_json().await?,
    };
    message.context("the stream has ended")
}

/// Adds the headers that a modern server wants.
fn dress(version: Version, request: Request, message: &Value) -> Request {
    if !version.is_modern() {
        return request;
    }
    let method = message["method"].as_str().unwrap_or_default();
    let request = request.header("mcp-protocol-version", version.name()).header("mcp-method", method);
    let params = &message["params"];
    match params["name"].as_str().or_else(|| params["uri"].as_str()) {
        Some(name) => request.header("mcp-name", &header_value(name)),
        None => request,
    }
}

fn answer_to(method: &Value) -> Value {
    match method.as_str() {
        Some("elicitation/create") => json!({"action": "accept", "content": {"answer": "yes"}}),
        Some("sampling/createMessage") => {
            json!({"role": "assistant", "model": "none", "content": {"type": "text", "text": "42"}})
        }
        Some("roots/list") => json!({"roots": [{"uri": "file:///home"}]}),
        _ => json!({}),
    }
}
