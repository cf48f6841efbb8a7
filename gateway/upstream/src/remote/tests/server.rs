//! A server that does what a test tells it to: every request waits until the test has looked at it and answers.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::stream;
use http::{HeaderMap, Method, Request, Response, StatusCode, Version, header};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::BoxBody};
use hyper::{
    body::{Frame, Incoming},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use moongate_core::task::Group;
use serde_json::Value;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpListener,
    sync::{mpsc, oneshot},
};
use tokio_rustls::TlsAcceptor;

type Body = BoxBody<Bytes, io::Error>;

pub(super) struct Server {
    pub(super) address: SocketAddr,
    asked: mpsc::Receiver<Asked>,
    connections: Arc<AtomicUsize>,
    tasks: Group,
}

/// A request that waits for its answer.
pub(super) struct Asked {
    pub(super) method: Method,
    pub(super) uri: String,
    pub(super) version: Version,
    pub(super) headers: HeaderMap,
    pub(super) body: Bytes,
    answer: oneshot::Sender<Response<Body>>,
}

/// The body of an answer that is being written.
pub(super) struct Writer(mpsc::Sender<io::Result<Frame<Bytes>>>);

impl Server {
    pub(super) async fn start() -> Self {
        Self::start_with(None).await
    }

    pub(super) async fn start_with(tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (sender, asked) = mpsc::channel(16);
        let (tasks, connections) = (Group::new(), Arc::new(AtomicUsize::new(0)));
        let (group, count) = (tasks.clone(), Arc::clone(&connections));
        tasks.spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::SeqCst);
                let (sender, tls) = (sender.clone(), tls.clone());
                group.spawn(async move {
                    match tls {
                        Some(tls) => {
                            let Ok(stream) = tls.accept(stream).await else { return };
                            let h2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
                            serve(stream, h2, sender).await;
                        }
                        None => serve(stream, false, sender).await,
                    }
                });
            }
        });
        Self { address, asked, connections, tasks }
    }

    /// The next request.
    pub(super) async fn next(&mut self) -> Asked {
        self.asked.recv().await.unwrap()
    }

    /// Nothing was asked that the test has not seen.
    pub(super) fn is_quiet(&mut self) -> bool {
        self.asked.try_recv().is_err()
    }

    pub(super) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Ends every connection.
    pub(super) async fn stop(self) {
        assert!(self.tasks.shut_down(Duration::from_mins(1)).await);
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.tasks.cancel();
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    h2: bool,
    sender: mpsc::Sender<Asked>,
) {
    let service = service_fn(move |request| ask(request, sender.clone()));
    let stream = TokioIo::new(stream);
    if h2 {
        let builder = hyper::server::conn::http2::Builder::new(TokioExecutor::new());
        drop(builder.serve_connection(stream, service).await);
    } else {
        drop(hyper::server::conn::http1::Builder::new().serve_connection(stream, service).await);
    }
}

async fn ask(request: Request<Incoming>, sender: mpsc::Sender<Asked>) -> Result<Response<Body>, Infallible> {
    let (parts, body) = request.into_parts();
    let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
    let (answer, answered) = oneshot::channel();
    let asked = Asked {
        method: parts.method,
        uri: parts.uri.to_string(),
        version: parts.version,
        headers: parts.headers,
        body,
        answer,
    };
    // A test that is over takes no more requests.
    drop(sender.send(asked).await);
    Ok(answered.await.unwrap_or_else(|_| {
        let mut response = Response::new(Full::default().map_err(|never| match never {}).boxed());
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
        response
    }))
}

impl Asked {
    /// A header as text; empty when there is none.
    pub(super) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    pub(super) fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap()
    }

    pub(super) fn reply(self, status: u16, headers: &[(&str, &str)], body: impl Into<Bytes>) {
        let body = Full::new(body.into()).map_err(|never| match never {}).boxed();
        self.send(status, headers, body);
    }

    pub(super) fn json_reply(self, status: u16, body: &Value) {
        self.reply(status, &[("content-type", "application/json")], body.to_string());
    }

    /// Answers the request with a result.
    pub(super) fn result(self, result: &Value) {
        let id = self.json()["id"].clone();
        self.json_reply(200, &serde_json::json!({"jsonrpc": "2.0", "id": id, "result": result}));
    }

    /// Answers with a stream of events.
    pub(super) fn events(self) -> Writer {
        self.events_with(&[])
    }

    pub(super) fn events_with(self, headers: &[(&str, &str)]) -> Writer {
        let headers =
            [&[(header::CONTENT_TYPE.as_str(), "text/event-stream; charset=utf-8")], headers].concat();
        self.stream(200, &headers)
    }

    pub(super) fn stream(self, status: u16, headers: &[(&str, &str)]) -> Writer {
        let (sender, mut frames) = mpsc::channel(1);
        let frames = stream::poll_fn(move |cx| frames.poll_recv(cx));
        self.send(status, headers, StreamBody::new(frames).boxed());
        Writer(sender)
    }

    /// Waits until the client has gone without an answer.
    pub(super) async fn abandoned(mut self) {
        self.answer.closed().await;
    }

    fn send(self, status: u16, headers: &[(&str, &str)], body: Body) {
        let mut response = Response::builder().status(status);
        for (name, value) in headers {
            response = response.header(*name, *value);
        }
        self.answer.send(response.body(body).unwrap()).ok().unwrap();
    }
}

impl Writer {
    /// Writes a chunk. False when the client has gone.
    pub(super) async fn write(&self, text: impl Into<Bytes>) -> bool {
        self.0.send(Ok(Frame::data(text.into()))).await.is_ok()
    }

    /// Writes an event with a message.
    pub(super) async fn message(&self, message: &Value) -> bool {
        self.write(format!("event: message\ndata: {message}\n\n")).await
    }

    /// Breaks off in the middle of the body.
    pub(super) async fn cut(self) {
        drop(self.0.send(Err(io::Error::other("cut"))).await);
    }

    /// Waits until the client has gone.
    pub(super) async fn abandoned(self) {
        self.0.closed().await;
    }
}
