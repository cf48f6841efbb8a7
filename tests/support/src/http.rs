//! A plain HTTP client: any method, header and body, answers read whole or as a stream of events.
//!
//! It adds nothing that a test did not ask for except the headers that every MCP client sends, and each of those can be
//! replaced or left out. Idle connections are kept and used again.

use std::{
    net::SocketAddr,
    sync::{Arc, Mutex, PoisonError},
};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::{BodyExt as _, Full};
use rustls_pki_types::ServerName;
use serde_json::Value;

use crate::{Connection, Event, EventStream, Parser, Protocol, patiently};

/// Where requests go and what they carry by default. Clones share their idle connections.
#[derive(Clone, Debug)]
pub struct Client {
    address: SocketAddr,
    protocol: Protocol,
    tls: Option<(Arc<rustls::ClientConfig>, ServerName<'static>)>,
    headers: HeaderMap,
    path: String,
    idle: Arc<Mutex<Vec<Connection>>>,
}

/// A request in the making.
#[derive(Clone, Debug)]
pub struct Request {
    client: Client,
    method: Method,
    path: String,
    headers: HeaderMap,
    body: Bytes,
}

/// An answer that was read to its end.
#[derive(Clone, Debug)]
pub struct Answer {
    /// The HTTP status.
    pub status: u16,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
}

impl Client {
    /// A client of `address` that sends to `/mcp` and accepts JSON and event streams.
    pub fn new(address: SocketAddr, protocol: Protocol) -> Self {
        let mut headers = HeaderMap::new();
        headers.insert(http::header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(http::header::ACCEPT, HeaderValue::from_static("application/json, text/event-stream"));
        let idle = Arc::new(Mutex::new(Vec::new()));
        Self { address, protocol, tls: None, headers, path: "/mcp".to_owned(), idle }
    }

    /// The same client with a bearer token.
    #[must_use]
    pub fn with_token(self, token: &str) -> Self {
        self.with_header("authorization", &format!("Bearer {token}"))
    }

    /// The same client with one more header on every request.
    #[must_use]
    pub fn with_header(mut self, name: &str, value: &str) -> Self {
        insert(&mut self.headers, name, value);
        self
    }

    /// The same client for another path, such as a profile's.
    #[must_use]
    pub fn with_path(mut self, path: &str) -> Self {
        path.clone_into(&mut self.path);
        self
    }

    /// The same client over TLS, with connections of its own.
    #[must_use]
    pub fn with_tls(mut self, config: Arc<rustls::ClientConfig>, name: ServerName<'static>) -> Self {
        self.tls = Some((config, name));
        self.idle = Arc::default();
        self
    }

    /// `POST` of a JSON value to the client's path.
    pub fn post(&self, body: &Value) -> Request {
        self.post_text(body.to_string())
    }

    /// `POST` of any bytes to the client's path.
    pub fn post_text(&self, body: impl Into<Bytes>) -> Request {
        Request { body: body.into(), ..self.request(Method::POST, &self.path) }
    }

    /// `GET` of `path`.
    pub fn get(&self, path: &str) -> Request {
        self.request(Method::GET, path).without("content-type")
    }

    /// `GET` of the client's path as an event stream.
    pub fn listen(&self) -> Request {
        self.get(&self.path).header("accept", "text/event-stream")
    }

    /// `DELETE` of the client's path.
    pub fn delete(&self) -> Request {
        self.request(Method::DELETE, &self.path).without("content-type")
    }

    /// Any request.
    pub fn request(&self, method: Method, path: &str) -> Request {
        Request {
            client: self.clone(),
            method,
            path: path.to_owned(),
            headers: self.headers.clone(),
            body: Bytes::new(),
        }
    }

    /// A new connection, for tests that care which one a request takes.
    pub async fn connect(&self) -> Result<Connection> {
        match &self.tls {
            None => Connection::open(self.address, self.protocol).await,
            Some((config, name)) => {
                // Boxed: a TLS handshake is large, and most tests never do one.
                Box::pin(Connection::open_tls(self.address, self.protocol, Arc::clone(config), name.clone()))
                    .await
            }
        }
    }

    async fn connection(&self) -> Result<Connection> {
        while let Some(mut connection) = self.take_idle() {
            if connection.is_usable().await {
                return Ok(connection);
            }
        }
        let connection = self.connect().await?;
        self.put_idle(connection.share());
        Ok(connection)
    }

    /// HTTP/2 connections stay in the pool and are shared; HTTP/1.1 ones leave it while in use.
    fn take_idle(&self) -> Option<Connection> {
        let connection = self.idle.lock().unwrap_or_else(PoisonError::into_inner).pop()?;
        self.put_idle(connection.share());
        Some(connection)
    }

    fn put_idle(&self, connection: Option<Connection>) {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).extend(connection);
    }
}

impl Request {
    /// Sets a header, replacing what the client would send.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        insert(&mut self.headers, name, value);
        self
    }

    /// Adds a header beside an equal one.
    #[must_use]
    pub fn also(mut self, name: &str, value: &str) -> Self {
        let (name, value) = parse(name, value);
        self.headers.append(name, value);
        self
    }

    /// Leaves a header out.
    #[must_use]
    pub fn without(mut self, name: &str) -> Self {
        self.headers.remove(name);
        self
    }

    /// Sets the body.
    #[must_use]
    pub fn body(mut self, body: impl Into<Bytes>) -> Self {
        self.body = body.into();
        self
    }

    /// Sends the request and reads the whole answer; the connection is then used again.
    pub async fn send(self) -> Result<Answer> {
        let what = format!("the answer to {} {}", self.method, self.path);
        patiently(&what, self.exchange()).await?
    }

    /// Sends the request over `connection` and reads the whole answer.
    pub async fn send_over(self, connection: &mut Connection) -> Result<Answer> {
        let response = connection.send(self.into_http()?).await?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.context("the answer broke off")?.to_bytes();
        Ok(Answer { status: head.status.as_u16(), headers: head.headers, body })
    }

    /// Sends the request and returns as soon as the head of the answer is there.
    pub async fn open(self) -> Result<EventStream> {
        let what = format!("the head of the answer to {} {}", self.method, self.path);
        let exchange = async {
            let mut connection = self.client.connection().await?;
            let response = connection.send(self.into_http()?).await?;
            Ok(EventStream::new(response, connection))
        };
        patiently(&what, exchange).await?
    }

    async fn exchange(self) -> Result<Answer> {
        let client = self.client.clone();
        let mut connection = client.connection().await?;
        let answer = self.send_over(&mut connection).await?;
        if client.protocol == Protocol::Http1 {
            client.put_idle(Some(connection));
        }
        Ok(answer)
    }

    fn into_http(self) -> Result<http::Request<Full<Bytes>>> {
        let address = self.client.address;
        let mut request = http::Request::new(Full::new(self.body));
        *request.method_mut() = self.method;
        *request.headers_mut() = self.headers;
        let secure = self.client.tls.is_some();
        if self.client.protocol == Protocol::Http2 {
            let scheme = if secure { "https" } else { "http" };
            let host = request.headers_mut().remove(http::header::HOST);
            let authority =
                host.map_or_else(|| Ok(address.to_string()), |host| host.to_str().map(str::to_owned))?;
            *request.uri_mut() = format!("{scheme}://{authority}{}", self.path).parse()?;
            *request.version_mut() = http::Version::HTTP_2;
        } else {
            let host = HeaderValue::from_str(&address.to_string())?;
            request.headers_mut().entry(http::header::HOST).or_insert(host);
            *request.uri_mut() = self.path.parse()?;
        }
        Ok(request)
    }
}

impl Answer {
    /// A header as text; empty when absent.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body as text.
    pub fn text(&self) -> Result<String> {
        Ok(String::from_utf8(self.body.to_vec())?)
    }

    /// The body as JSON.
    pub fn json(&self) -> Result<Value> {
        let shown = || format!("status {}, not JSON: {:?}", self.status, String::from_utf8_lossy(&self.body));
        serde_json::from_slice(&self.body).with_context(shown)
    }

    /// The events of an event stream that has ended; none for another content type.
    pub fn events(&self) -> Vec<Event> {
        if self.is_event_stream() { Parser::default().push(&self.body) } else { Vec::new() }
    }

    /// The JSON-RPC messages, whether they came as JSON or as events.
    pub fn messages(&self) -> Result<Vec<Value>> {
        if self.is_event_stream() {
            self.events().iter().filter_map(|event| event.message().transpose()).collect()
        } else if self.body.is_empty() {
            Ok(Vec::new())
        } else {
            Ok(vec![self.json()?])
        }
    }

    fn is_event_stream(&self) -> bool {
        self.header("content-type").starts_with("text/event-stream")
    }
}

/// Bad headers cannot be sent from here on purpose: [`RawTcp`](crate::RawTcp) sends any bytes.
fn parse(name: &str, value: &str) -> (HeaderName, HeaderValue) {
    let name = name.parse().expect("tests use valid header names");
    (name, HeaderValue::from_str(value).expect("tests use valid header values"))
}

fn insert(headers: &mut HeaderMap, name: &str, value: &str) {
    let (name, value) = parse(name, value);
    headers.insert(name, value);
}
