//! The shell for HTTP: sessions, streams and statuses around scripts.
//!
//! 2024-11-05 has two endpoints: a stream at `/sse` and POSTs beside it. The versions after it have sessions at `/mcp`,
//! each a script of its own. The last has one script for all, and only POST.

use std::{
    collections::{HashMap, HashSet},
    convert::Infallible,
    future::pending,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use anyhow::Result;
use bytes::Bytes;
use http::{HeaderName, HeaderValue, Method, Request, Response, StatusCode, header, request::Parts};
use http_body_util::{BodyExt as _, Full, StreamBody, combinators::UnsyncBoxBody};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{
    io::{AsyncWrite, AsyncWriteExt as _},
    net::TcpListener,
    task::JoinSet,
};

use self::{
    feed::Feed,
    session::{Part, Session},
};
use crate::{Headers, Misbehaviour, Setup, Version};

mod feed;
mod session;

type Body = UnsyncBoxBody<Bytes, std::io::Error>;
type Answer = Response<Body>;

const SESSION: HeaderName = HeaderName::from_static("mcp-session-id");

/// Everything the server knows beside its scripts.
#[derive(Debug)]
struct Server {
    setup: Setup,
    /// Numbers for exchanges and sessions.
    next: AtomicU64,
    sessions: Mutex<Sessions>,
    /// The one script of a version without sessions.
    stateless: Arc<Session>,
}

#[derive(Debug, Default)]
struct Sessions {
    live: HashMap<String, Arc<Session>>,
    /// Those that the server forgot, whose clients cannot know it yet.
    forgotten: HashSet<String>,
}

/// Serves on an ephemeral port of this machine until the process ends. Where it listens is the first line of `output`.
pub async fn serve(setup: Setup, mut output: impl AsyncWrite + Unpin) -> Result<()> {
    let listener = TcpListener::bind("127.0.0.1:0").await?;
    let path = if setup.version == Version::November2024 { "/sse" } else { "/mcp" };
    let line = format!("listening http://{}{path}\n", listener.local_addr()?);
    output.write_all(line.as_bytes()).await?;
    output.flush().await?;
    let stateless = Session::new(setup.clone());
    let server = Arc::new(Server { setup, next: AtomicU64::new(1), sessions: Mutex::default(), stateless });
    let mut connections = JoinSet::new();
    loop {
        let (stream, _) = listener.accept().await?;
        let server = Arc::clone(&server);
        connections.spawn(async move {
            let service = service_fn(move |request| {
                let server = Arc::clone(&server);
                async move { Ok::<_, Infallible>(server.answer(request).await) }
            });
            // A client may go at any time; nothing is left to be told.
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

impl Server {
    async fn answer(&self, request: Request<Incoming>) -> Answer {
        let (head, body) = request.into_parts();
        let Ok(body) = body.collect().await else { return empty(400) };
        if self.setup.chaos.has(Misbehaviour::Silent) {
            pending::<()>().await;
        }
        if let Some(answer) = self.misbehave(&head) {
            return answer;
        }
        let headers = Headers::new(&head.headers);
        let frame = body.to_bytes();
        let (version, path) = (self.setup.version, head.uri.path());
        if version == Version::November2024 {
            return match (&head.method, path) {
                (&Method::GET, "/sse") => self.open_events(),
                (&Method::POST, "/messages") => self.post_message(&head, &frame, &headers).await,
                // A client that looks for the newer transport first.
                (_, "/sse") => empty(405),
                _ => empty(404),
            };
        }
        match (&head.method, path) {
            (&Method::POST, "/mcp") if version.is_modern() => self.post_stateless(&frame, &headers).await,
            (&Method::POST, "/mcp") => self.post(&frame, &headers).await,
            (&Method::GET | &Method::DELETE, "/mcp") if version.is_modern() => {
                self.breach(format!("{} to a server without sessions", head.method));
                empty(405)
            }
            (&Method::GET, "/mcp") => self.listen(&headers),
            (&Method::DELETE, "/mcp") => self.delete(&headers),
            (_, "/mcp") => empty(405),
            _ => empty(404),
        }
    }

    /// What the command line wants instead of an answer to a POST; everything else is then not allowed.
    fn misbehave(&self, head: &Parts) -> Option<Answer> {
        let answer = self.setup.chaos.find(|one| match one {
            Misbehaviour::HttpStatus(status) => Some(empty(status)),
            Misbehaviour::Redirect => {
                Some(with_header(empty(307), header::LOCATION, "http://127.0.0.1:9/elsewhere"))
            }
            Misbehaviour::WrongType => Some(full(200, "text/html", "<!doctype html><p>Sign in")),
            Misbehaviour::HangUp => Some(hang_up()),
            _ => None,
        })?;
        Some(if head.method == Method::POST { answer } else { empty(405) })
    }

    async fn post_stateless(&self, frame: &[u8], headers: &Headers) -> Answer {
        self.setup.breaches.extend(headers.judge_post(self.setup.version));
        let exchange = self.number();
        let feed = Session::post(&self.stateless, exchange, frame, headers).await;
        respond(feed)
    }

    async fn post(&self, frame: &[u8], headers: &Headers) -> Answer {
        self.setup.breaches.extend(headers.judge_post(self.setup.version));
        let (exchange, known) = (self.number(), headers.get(SESSION.as_str()));
        let Some(id) = known else {
            let session = Session::new(self.setup.clone());
            let feed = Session::post(&session, exchange, frame, headers).await;
            let opened = session.is_open();
            let answer = respond(feed);
            if !opened {
                return answer;
            }
            let id = format!("session-{}-{}", std::process::id(), self.number());
            self.sessions().live.insert(id.clone(), session);
            return with_header(answer, SESSION, &id);
        };
        let session = match self.find(id) {
            Ok(session) => session,
            Err(status) => return empty(status),
        };
        let feed = Session::post(&session, exchange, frame, headers).await;
        if session.is_forgotten() {
            let mut sessions = self.sessions();
            sessions.live.remove(id);
            sessions.forgotten.insert(id.to_owned());
        }
        respond(feed)
    }

    fn listen(&self, headers: &Headers) -> Answer {
        if !headers.get("accept").is_some_and(|accept| accept.contains("text/event-stream")) {
            self.breach("GET does not accept an event stream");
        }
        if headers.get("last-event-id").is_some() {
            self.breach("Last-Event-ID though no event had an id");
        }
        match self.session_of("GET", headers) {
            Ok(session) => events(Session::listen(&session, None)),
            Err(status) => empty(status),
        }
    }

    fn delete(&self, headers: &Headers) -> Answer {
        match self.session_of("DELETE", headers) {
            Ok(_) => {
                self.sessions().live.remove(headers.get(SESSION.as_str()).unwrap_or_default());
                empty(200)
            }
            Err(status) => empty(status),
        }
    }

    /// 2024-11-05: opens a session, whose stream first says where to post.
    fn open_events(&self) -> Answer {
        let (session, id) = (Session::new(self.setup.clone()), self.number().to_string());
        let feed = Session::listen(&session, Some(format!("/messages?session={id}")));
        self.sessions().live.insert(id, session);
        events(feed)
    }

    /// 2024-11-05: whatever there is to say comes on the stream.
    async fn post_message(&self, head: &Parts, frame: &[u8], headers: &Headers) -> Answer {
        self.setup.breaches.extend(headers.judge_post(self.setup.version));
        let id = head.uri.query().and_then(|query| query.strip_prefix("session=")).unwrap_or_default();
        let session = match self.find(id) {
            Ok(session) if session.is_heard() => session,
            Ok(_) => {
                self.breach("a message after the stream was closed");
                return empty(404);
            }
            Err(status) => return empty(status),
        };
        Session::post_aside(&session, self.number(), frame, headers).await;
        if session.is_forgotten() {
            let mut sessions = self.sessions();
            sessions.live.remove(id);
            sessions.forgotten.insert(id.to_owned());
        }
        empty(202)
    }

    fn session_of(&self, method: &str, headers: &Headers) -> Result<Arc<Session>, u16> {
        let Some(id) = headers.get(SESSION.as_str()) else {
            self.breach(format!("{method} without a session"));
            return Err(400);
        };
        let session = self.find(id)?;
        if let Some(breach) = headers.judge_agreed(self.setup.version, true) {
            self.breach(format!("{method}: {breach}"));
        }
        Ok(session)
    }

    fn find(&self, id: &str) -> Result<Arc<Session>, u16> {
        let sessions = self.sessions();
        if let Some(session) = sessions.live.get(id) {
            return Ok(Arc::clone(session));
        }
        if !sessions.forgotten.contains(id) {
            self.breach(format!("the session {id:?}, which is over or never was"));
        }
        Err(404)
    }

    fn sessions(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    fn breach(&self, breach: impl Into<String>) {
        self.setup.breaches.note(breach);
    }
}

/// The answer that fits what the script has said so far: a status, one message, or a stream.
fn respond(feed: Feed) -> Answer {
    match feed.so_far() {
        [Part::Refusal(status, message), ..] => full(*status, "application/json", &message.to_string()),
        [Part::End] => empty(202),
        [Part::Message(message), Part::End] => full(200, "application/json", &message.to_string()),
        _ => events(feed),
    }
}

fn events(feed: Feed) -> Answer {
    let body = StreamBody::new(feed.into_stream()).boxed_unsync();
    let mut answer = Response::new(body);
    answer.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    with_header(answer, header::CONTENT_TYPE, "text/event-stream")
}

fn full(status: u16, content_type: &str, text: &str) -> Answer {
    let body = Full::new(Bytes::from(text.to_owned())).map_err(|never| match never {}).boxed_unsync();
    let mut answer = Response::new(body);
    *answer.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    with_header(answer, header::CONTENT_TYPE, content_type)
}

fn empty(status: u16) -> Answer {
    let mut answer = full(status, "text/plain", "");
    answer.headers_mut().remove(header::CONTENT_TYPE);
    if status == 405 {
        answer.headers_mut().insert(header::ALLOW, HeaderValue::from_static("POST"));
    }
    answer
}

/// A head that promises a body, then the end of the connection.
fn hang_up() -> Answer {
    let broken = futures_util::stream::once(async {
        // The head is written while the body is awaited.
        tokio::task::yield_now().await;
        Err(std::io::ErrorKind::ConnectionAborted.into())
    });
    let answer = Response::new(StreamBody::new(broken).boxed_unsync());
    with_header(answer, header::CONTENT_TYPE, "application/json")
}

fn with_header(mut answer: Answer, name: HeaderName, value: &str) -> Answer {
    let value = HeaderValue::from_str(value).unwrap_or_else(|_| HeaderValue::from_static(""));
    answer.headers_mut().insert(name, value);
    answer
}

/// A message as an event.
fn event(message: &Value) -> Bytes {
    Bytes::from(format!("event: message\ndata: {message}\n\n"))
}
