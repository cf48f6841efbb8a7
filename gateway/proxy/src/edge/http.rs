//! HTTP in front of the engine: paths, verbs, the gate, the body, and the era each message belongs to.
//!
//! What is allowed is decided in this order: path, Host and Origin, token, content type, size, JSON, era. The two eras
//! then go their own ways in `legacy` and `modern`; `answer` turns what they say into responses.

use std::{
    future::{Future as _, poll_fn},
    num::NonZeroU32,
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use bytes::{Bytes, BytesMut};
use futures_core::future::BoxFuture;
use http::{Method as Verb, Response, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use moongate_security::{Admitted, Denied, Head, Headers, Knock, Reason, Said, headers::text, origin};
use moongate_storage::{Entry, Rate};
use moongate_wire::{
    Era, Frame, Id, Message, Mistyped, Raw, Refusal, Request, RpcError, Version, code,
    era::{self, Facts, Verdict},
    write::{self, NoId},
};
use tokio::time;

use self::{
    accept::Accept,
    answer::{denied, json_status, refused},
    names::Named,
};
use crate::{
    edge::{
        body::Body,
        serve::{App, Conn, Received},
    },
    gateway::{Gateway, Snapshot},
    trace::Trace,
};

mod accept;
mod answer;
mod legacy;
mod modern;
mod names;
mod standing;
mod streams;

/// A body that takes longer to arrive is let go.
const BODY_TIMEOUT: Duration = Duration::from_secs(30);
/// How long the rest of a refused body is still read.
const LINGER: Duration = Duration::from_secs(5);
/// How much of a refused body is still read, in bytes.
const DISCARDED: usize = 64 << 20;

impl App for Gateway {
    type Body = Body;

    fn handle(
        self: Arc<Self>,
        head: Head,
        mut body: Received,
        conn: Arc<Conn>,
    ) -> BoxFuture<'static, Response<Body>> {
        Box::pin(async move {
            let mut response = self.answer(&head, &mut body, &conn).await;
            if head.method == Verb::HEAD && head.version == http::Version::HTTP_2 {
                // It would break the stream. HTTP/1.1 leaves it out by itself, and says how long it would have been.
                *response.body_mut() = Body::empty();
            }
            if let Some(rest) = body.unread_stream() {
                self.tasks.spawn(discard(rest));
            }
            response
        })
    }
}

/// One request on its way to an era, after the gate.
#[derive(Debug)]
struct Visit<'a> {
    gateway: &'a Arc<Gateway>,
    snapshot: Arc<Snapshot>,
    admitted: Arc<Admitted>,
    profile: Option<Arc<str>>,
    head: &'a Head,
    named: Named<'a>,
    /// `MCP-Protocol-Version`. A value that is not text is not absent: it is a version nobody speaks.
    version: Option<&'a str>,
    /// `Mcp-Session-Id`
    session: Option<&'a str>,
    conn: &'a Conn,
    /// Whether the request was counted against the caller's rates.
    counted: AtomicBool,
}

/// A message by what becomes of it.
enum Sorted<'a> {
    Modern(&'a Request),
    Initialize(&'a Request),
    Legacy(&'a Message),
    /// It wants no answer and changes nothing.
    Nothing,
}

/// What a path stands for.
enum Place<'a> {
    Mcp(Option<&'a str>),
    Health,
    Ready,
    Nowhere,
}

fn place(path: &str) -> Place<'_> {
    match path {
        "/mcp" => Place::Mcp(None),
        "/healthz" | "/health" => Place::Health,
        "/readyz" => Place::Ready,
        _ => match path.strip_prefix("/mcp/") {
            Some(profile) if !profile.is_empty() => Place::Mcp(Some(profile)),
            _ => Place::Nowhere,
        },
    }
}

impl Gateway {
    async fn answer(self: &Arc<Self>, head: &Head, body: &mut Received, conn: &Conn) -> Response<Body> {
        let (cors, received) = self.receive(head, conn).await;
        let mut response = match received {
            // Where it lies: what is moved has room twice in a future.
            Ok(ref visit) => visit.serve(body).await,
            Err(response) => response,
        };
        if let origin::Cors::Allowed(origin) = &cors {
            origin::reflect(origin, response.headers_mut());
        }
        response
    }

    /// Lets a request in, or answers it at once; and what a browser is told about its origin.
    async fn receive<'a>(
        self: &'a Arc<Self>,
        head: &'a Head,
        conn: &'a Conn,
    ) -> (origin::Cors<'a>, Result<Visit<'a>, Response<Body>>) {
        let snapshot = self.snapshot();
        let named = Named::read(&head.headers);
        let (headers, shown) = (&head.headers, named.shown);
        let knock = Knock { conn: &conn.gate, headers, shown, uri: &head.uri, version: head.version };
        let version = named.version.first().map(|value| text(value).unwrap_or_default());
        // The gate checks Host and Origin when it admits; before that only where nobody is admitted, or where the answer
        // must say to a browser that its page may read it.
        let place = place(head.uri.path());
        let admits = matches!(place, Place::Mcp(_)) && head.method != Verb::OPTIONS;
        let cors = if admits && !named.shown.has_origin() {
            origin::Cors::Absent
        } else {
            match snapshot.gate.check_site(&knock) {
                Ok(cors) => cors,
                Err(refusal) => {
                    return (origin::Cors::Absent, Err(self.turn_away(refusal, era_of(version))));
                }
            }
        };
        let profile = match place {
            Place::Mcp(_) if head.method == Verb::OPTIONS => {
                return (origin::Cors::Absent, Err(preflight(&cors, &head.headers)));
            }
            Place::Mcp(profile) => profile,
            Place::Health | Place::Ready | Place::Nowhere => {
                return (cors, Err(aside(&place, head, conn, &snapshot)));
            }
        };
        let admitted = match snapshot.gate.admit(&knock).await {
            Ok(admitted) => Arc::new(admitted),
            Err(refusal) => return (cors, Err(self.turn_away(refusal, era_of(version)))),
        };
        let visit = profile_of(&snapshot, profile).map(|profile| Visit {
            gateway: self,
            snapshot,
            admitted,
            profile,
            head,
            named,
            version,
            session: named.session.text(),
            conn,
            counted: AtomicBool::new(false),
        });
        (cors, visit.map_err(|refusal| refused(None, &refusal)))
    }

    fn turn_away(&self, refusal: Denied, era: Era) -> Response<Body> {
        self.metrics.refused(refusal.reason.as_str()).increment();
        tracing::info!(reason = refusal.reason.as_str(), "request refused");
        denied(None, &refusal.in_era(era))
    }
}

/// What is answered beside the endpoint itself.
fn aside(place: &Place<'_>, head: &Head, conn: &Conn, snapshot: &Snapshot) -> Response<Body> {
    match place {
        Place::Health | Place::Ready if !matches!(head.method, Verb::GET | Verb::HEAD) => {
            not_allowed("GET, HEAD")
        }
        Place::Health => json_status(200, r#"{"status":"ok"}"#),
        Place::Ready if conn.drain.is_draining() => json_status(503, r#"{"status":"draining"}"#),
        // A server that is down costs its own tools only: the gateway takes work all the same.
        Place::Ready => match conditions(snapshot) {
            Some(upstreams) => {
                let text = format!(r#"{{"status":"ready","upstreams":{}}}"#, upstreams.as_str());
                json_status(200, text)
            }
            None => json_status(200, r#"{"status":"ready"}"#),
        },
        Place::Nowhere | Place::Mcp(_) => {
            refused(None, &Refusal::new(404, code::INVALID_REQUEST, "not found"))
        }
    }
}

/// How the servers behind the gateway are: a word for each, because anybody may ask.
fn conditions(snapshot: &Snapshot) -> Option<Raw> {
    let members = snapshot.catalog.members().iter();
    let told = members.filter_map(|member| Some((&*member.name, Raw::of((member.condition.as_ref()?)()))));
    let told: Vec<(&str, Raw)> = told.collect();
    let object = || write::object(told.iter().map(|(name, word)| (*name, word)));
    (!told.is_empty()).then(object)
}

/// The era of a request whose body was not read: the header must do.
fn era_of(version: Option<&str>) -> Era {
    version.and_then(Version::parse).map_or(Era::Legacy, Version::era)
}

fn profile_of(snapshot: &Snapshot, name: Option<&str>) -> Result<Option<Arc<str>>, Refusal> {
    match name {
        None => Ok(None),
        Some(name) if snapshot.config.profiles.contains_key(name) => Ok(Some(name.into())),
        Some(_) => {
            Err(Refusal::new(404, code::INVALID_REQUEST, "not found: there is no profile of that name"))
        }
    }
}

fn not_allowed(allow: &'static str) -> Response<Body> {
    let mut response = refused(None, &Refusal::new(405, code::INVALID_REQUEST, "method not allowed"));
    response.headers_mut().insert(header::ALLOW, http::HeaderValue::from_static(allow));
    response
}

fn preflight(cors: &origin::Cors<'_>, request: &Headers) -> Response<Body> {
    let mut response = Response::new(Body::empty());
    *response.status_mut() = http::StatusCode::NO_CONTENT;
    if let origin::Cors::Allowed(origin) = cors {
        origin::answer_preflight(origin, request, response.headers_mut());
    }
    response
}

impl Visit<'_> {
    /// Answers, and counts what was refused before anybody counted it: a caller's mistakes are requests too.
    ///
    /// What is rare is on the heap, here and in the eras: a future has room for all its branches and is moved whole.
    async fn serve(&self, body: &mut Received) -> Response<Body> {
        let response = match self.head.method {
            Verb::POST => match self.read(body).await {
                // Looked at where it lies: a message is moved as little as a future.
                Ok((accept, Frame::One(ref message))) => match self.sort(message, accept) {
                    Ok(Sorted::Modern(request)) => self.modern(request, accept).await,
                    Ok(Sorted::Legacy(message)) => self.legacy(message, accept).await,
                    Ok(Sorted::Initialize(request)) => Box::pin(self.initialize(request, accept)).await,
                    Ok(Sorted::Nothing) => answer::accepted(),
                    Err(response) => *response,
                },
                Ok((accept, Frame::Batch(messages))) => Box::pin(self.batch(messages, accept)).await,
                Err(response) => *response,
            },
            Verb::GET => Box::pin(self.get()).await,
            Verb::DELETE => Box::pin(self.delete()).await,
            _ => not_allowed("POST, GET, DELETE, OPTIONS"),
        };
        if self.counted.load(Ordering::Relaxed) {
            return response;
        }
        match self.enter(None, None).await {
            Ok(_) => response,
            Err(limited) => *limited,
        }
    }

    /// The frame in the body, unless something about the request forbids to look at it.
    async fn read(&self, body: &mut Received) -> Result<(Accept, Frame), Box<Response<Body>>> {
        let refuse = |status, code, message: &'static str| {
            Box::new(refused(None, &Refusal::new(status, code, message)))
        };
        if !accept::is_json(self.named.content_type.first()) {
            return Err(refuse(415, code::INVALID_REQUEST, "expected application/json"));
        }
        let accept = Accept::read(self.named.accept, &self.head.headers).ok_or_else(|| {
            refuse(
                406,
                code::INVALID_REQUEST,
                "not acceptable: the Accept header must allow application/json or text/event-stream",
            )
        })?;
        let body = collect(body, self.snapshot.config.server.max_body)
            .await
            .map_err(|refusal| Box::new(refused(None, &refusal)))?;
        let frame = Frame::parse(&body).map_err(|malformed| {
            Box::new(answer::error(400, malformed.id.as_ref(), self.no_id(), &malformed.error, Accept::JSON))
        })?;
        Ok((accept, frame))
    }

    /// What the message is, or the answer to one that may not be.
    fn sort<'m>(&self, message: &'m Message, accept: Accept) -> Result<Sorted<'m>, Box<Response<Body>>> {
        let id = id_of(message);
        // Nothing is read of a notification but what it cancels.
        if let Message::Request(request) = message
            && let Err(error) = request.params.check()
        {
            return Err(Box::new(self.unreadable(id, error, accept)));
        }
        let facts = Facts { version: self.version, session: self.session.is_some() };
        let verdict = era::decide(message, facts).map_err(|refusal| {
            Box::new(answer::error(refusal.status, id, self.no_id(), &refusal.error, accept))
        })?;
        Ok(match (verdict, message) {
            (Verdict::Modern, Message::Request(request)) => Sorted::Modern(request),
            // Nothing a modern client may notify means anything over HTTP: closing the connection is how it cancels.
            (Verdict::Modern, _) => Sorted::Nothing,
            (Verdict::Initialize, Message::Request(request)) => Sorted::Initialize(request),
            (_, message) => Sorted::Legacy(message),
        })
    }

    fn unreadable(&self, id: Option<&Id>, error: Mistyped, accept: Accept) -> Response<Body> {
        let error = RpcError::new(code::INVALID_PARAMS, format!("Invalid params: {error}"));
        let in_session = self.session.is_some() && self.era() == Era::Legacy;
        answer::error(if in_session { 200 } else { 400 }, id, self.no_id(), &error, accept)
    }

    /// Counts more requests than the one that was entered with.
    async fn count(&self, more: usize) -> Result<(), Box<Response<Body>>> {
        let Some(cost) = u32::try_from(more).ok().and_then(NonZeroU32::new) else { return Ok(()) };
        let rates: Vec<Rate> = self.admitted.rates().iter().map(|rate| Rate { cost, ..*rate }).collect();
        self.enter_with(None, None, &rates).await.map(drop)
    }

    /// Counts the request and, when a session is named, finds it.
    async fn enter(&self, id: Option<&Id>, session: Option<&str>) -> Result<Entry, Box<Response<Body>>> {
        self.counted.store(true, Ordering::Relaxed);
        self.enter_with(id, session, self.admitted.rates()).await
    }

    async fn enter_with(
        &self,
        id: Option<&Id>,
        session: Option<&str>,
        rates: &[Rate],
    ) -> Result<Entry, Box<Response<Body>>> {
        match self.gateway.state().enter(session, rates).await {
            Ok(Entry::Limited { retry_after }) => {
                self.gateway.metrics.refused(Reason::RateLimited.as_str()).increment();
                tracing::info!(principal = %self.admitted.principal(), "rate limit exceeded");
                Err(Box::new(denied(id, &Denied::rate_limited(retry_after).in_era(self.era()))))
            }
            Ok(entry) => Ok(entry),
            Err(error) => {
                tracing::error!(%error, "sessions cannot be reached");
                let refusal = Refusal::new(503, code::INTERNAL, "Internal error: sessions cannot be reached");
                Err(Box::new(refused(id, &refusal)))
            }
        }
    }

    fn era(&self) -> Era {
        era_of(self.version)
    }

    /// How to answer what has no id: a session without version header is taken for 2025-03-26.
    fn no_id(&self) -> NoId {
        let version = match self.version {
            Some(text) => Version::parse(text),
            None => self.session.map(|_| Version::V2025_03_26),
        };
        if version.is_some_and(|version| version < Version::V2025_11_25) { NoId::Null } else { NoId::Omit }
    }

    /// The trace that the request's headers name, if they do.
    fn trace(&self) -> Option<Arc<Trace>> {
        Trace::of(self.named.trace.map(Said::text))
    }

    fn header_ids(&self) -> [Option<Arc<str>>; 3] {
        self.named.context.map(|value| value.text().map(Into::into))
    }
}

/// The id an answer to the message must have: only requests are answered under theirs.
fn id_of(message: &Message) -> Option<&Id> {
    if let Message::Request(request) = message { Some(&request.id) } else { None }
}

/// Reads what is left of a refused body, for a while: a stream that is given up is reset, and some clients take that for
/// the answer.
async fn discard(mut body: Incoming) {
    let rest = async {
        let mut left = DISCARDED;
        while let Some(Ok(frame)) = body.frame().await {
            let length = frame.data_ref().map_or(0, Bytes::len);
            if length > left {
                return;
            }
            left -= length;
        }
    };
    drop(time::timeout(LINGER, rest).await);
}

/// The whole body, if it is small and quick enough.
async fn collect(body: &mut Received, limit: usize) -> Result<Bytes, Refusal> {
    let too_large =
        || Refusal::new(413, code::INVALID_REQUEST, format!("the body is larger than {limit} bytes"));
    if body.size_hint().lower() > limit as u64 {
        return Err(too_large());
    }
    // Most bodies come with their head, in one piece: neither a timer nor a copy is made for those.
    let mut late: Option<Pin<Box<time::Sleep>>> = None;
    let (mut whole, mut pieces) = (Bytes::new(), BytesMut::new());
    poll_fn(|poller| {
        loop {
            match Pin::new(&mut *body).poll_frame(poller) {
                Poll::Ready(Some(Ok(frame))) => {
                    let Ok(data) = frame.into_data() else { continue };
                    if whole.len() + pieces.len() + data.len() > limit {
                        return Poll::Ready(Err(too_large()));
                    }
                    if whole.is_empty() && pieces.is_empty() {
                        whole = data;
                    } else {
                        pieces.extend_from_slice(&std::mem::take(&mut whole));
                        pieces.extend_from_slice(&data);
                    }
                }
                Poll::Ready(Some(Err(_))) => {
                    let refusal = Refusal::new(400, code::PARSE, "Parse error: the body ended early");
                    return Poll::Ready(Err(refusal));
                }
                Poll::Ready(None) => {
                    let whole = std::mem::take(&mut whole);
                    let pieces = std::mem::take(&mut pieces);
                    return Poll::Ready(Ok(if pieces.is_empty() { whole } else { pieces.freeze() }));
                }
                Poll::Pending => {
                    let late = late.get_or_insert_with(|| Box::pin(time::sleep(BODY_TIMEOUT)));
                    let refusal =
                        || Refusal::new(408, code::INVALID_REQUEST, "the body took too long to arrive");
                    return late.as_mut().poll(poller).map(|()| Err(refusal()));
                }
            }
        }
    })
    .await
}
