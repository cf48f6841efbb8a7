//! One request over HTTP, from the POST to its answer.
//!
//! Whoever polls the exchange drives it; no task is started for it. The answer comes as JSON, or at the end of a stream
//! of events, which in the legacy era may break off and be resumed. Dropping the exchange drops the HTTP exchange, which
//! in the modern era is all it takes to cancel; a legacy server is told.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream};
use http::{HeaderName, HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use moongate_wire::{Era, Id, Malformed, Message, Raw, Response, Version, header as names};

use super::{
    head::Kind,
    pool::Body,
    refusal,
    session::{CLOSED, Session, messages},
    sse::{self, Parser},
};
use crate::transport::{Answer, Event, Exchange, Fault, Outgoing};

/// How often a stream is resumed without anything new on it.
const MAX_ATTEMPTS: u32 = 5;
/// How long we wait before a stream is resumed unless the server says otherwise, at least, and at most: `retry: 0` asks
/// for a loop without a pause.
pub(super) const RETRY: Duration = Duration::from_secs(1);
pub(super) const MIN_RETRY: Duration = Duration::from_millis(100);
pub(super) const MAX_RETRY: Duration = Duration::from_secs(30);

/// Prepares to send `request`.
pub(super) fn start(session: Arc<Session>, request: Outgoing) -> Exchange {
    let course = Course { session, request, stage: Stage::New, ready: VecDeque::new() };
    stream::unfold(course, async |mut course| course.next().await.map(|event| (event, course))).boxed()
}

struct Course {
    session: Arc<Session>,
    request: Outgoing,
    stage: Stage,
    /// Events that came at once; the last of them may end the exchange.
    ready: VecDeque<Event>,
}

enum Stage {
    /// Nothing was sent.
    New,
    /// The request is on its way, or the server is writing its answer to it.
    Asked,
    /// Events follow.
    Following(Box<Following>),
    /// The last event is known.
    Over,
}

/// A stream of events that leads to the answer.
struct Following {
    body: Body,
    parser: Parser,
    status: u16,
    /// How often it was resumed since something new came, and the last id then.
    attempts: u32,
    seen: Option<Vec<u8>>,
    /// What it is if it cannot be resumed; there when the stream has ended.
    ended: Option<Fault>,
}

impl Course {
    async fn next(&mut self) -> Option<Event> {
        let event = match self.ready.pop_front() {
            Some(event) => event,
            None if matches!(self.stage, Stage::Over) => return None,
            None => {
                let session = Arc::clone(&self.session);
                tokio::select! {
                    // Whichever ends first, the other is not polled again.
                    biased;
                    () = session.closed() => Event::Lost(self.cut()),
                    event = self.advance() => event.unwrap_or_else(|fault| Event::Lost(session.noted(fault))),
                }
            }
        };
        if matches!(event, Event::Answer(_) | Event::Lost(_)) {
            self.stage = Stage::Over;
        }
        Some(event)
    }

    /// What it means for this request that the connection was closed.
    fn cut(&self) -> Fault {
        match self.stage {
            Stage::New => Fault::Unreached(CLOSED.into()),
            Stage::Asked | Stage::Following(_) | Stage::Over => Fault::Lost(CLOSED.into()),
        }
    }

    /// Goes on until there is an event; more of them may be ready then.
    async fn advance(&mut self) -> Result<Event, Fault> {
        if matches!(self.stage, Stage::New) {
            self.stage = Stage::Asked;
            if let Some(event) = self.ask().await? {
                return Ok(event);
            }
        }
        self.follow().await
    }

    /// Sends the request. `None` when its answer is a stream.
    async fn ask(&mut self) -> Result<Option<Event>, Fault> {
        // It is sent once.
        let message = std::mem::replace(&mut self.request.message, Raw::null());
        let (mut request, in_session) = self.session.post(self.request.version, message);
        if self.request.version.is_some_and(|version| version.era() == Era::Modern) {
            request.repeated = Some((self.request.method, self.request.name.take()));
            self.repeat_params(&mut request.more);
        }
        let (id, link) = (self.request.id, &self.session.link);
        let (head, body) = link.ask(&request).await?;
        if !head.status.is_success() {
            let answer = Box::pin(refusal::read(link, &head, body, Some(id), in_session)).await?;
            return Ok(Some(Event::Answer(answer)));
        }
        if self.request.version.is_none() {
            self.session.remember(&head);
        }
        let status = head.status.as_u16();
        match head.kind() {
            _ if head.status == StatusCode::ACCEPTED => {
                Err(Fault::Garbled("the server accepted the request and did not answer it".into()))
            }
            Kind::Json => self.answer(&link.collect(body).await?, status).map(Some),
            Kind::Events => {
                let parser = Parser::new(link.max_message);
                let following = Following { body, parser, status, attempts: 0, seen: None, ended: None };
                self.stage = Stage::Following(Box::new(following));
                Ok(None)
            }
            Kind::Other => Err(refusal::wrong_type(&head)),
        }
    }

    /// What the modern era repeats of arguments.
    fn repeat_params(&self, headers: &mut Vec<(HeaderName, HeaderValue)>) {
        let mut insert = |name: &str, value: &str| {
            let name = HeaderName::from_bytes(format!("{}{name}", names::PARAM_PREFIX).as_bytes());
            // A tool whose annotations name no header was refused when it was listed, and what was encoded is visible
            // ASCII.
            if let (Ok(name), Ok(value)) = (name, HeaderValue::from_str(value)) {
                headers.push((name, value));
            }
        };
        for (name, value) in &self.request.param_headers {
            insert(name, &names::encode(value));
        }
        for (name, value) in &self.request.undeclared {
            insert(name, value);
        }
    }

    /// Reads an answer that came as one piece of JSON.
    fn answer(&mut self, body: &Bytes, status: u16) -> Result<Event, Fault> {
        let mut problem = None;
        let end = self.sort(body, status, &mut problem)?;
        let last = end.ok_or_else(|| {
            let problem = problem.map_or_else(
                || "the server answered another request than was asked".to_owned(),
                |malformed: Malformed| {
                    format!("the server's answer is not JSON-RPC: {}", malformed.error.message)
                },
            );
            Fault::Garbled(problem.into())
        })?;
        Ok(self.in_order(last))
    }

    /// The first of what is ready, `last` after it.
    fn in_order(&mut self, last: Event) -> Event {
        let Some(first) = self.ready.pop_front() else { return last };
        self.ready.push_back(last);
        first
    }

    /// Puts the messages of `data` where they belong: the answer is returned, what goes before it is ready.
    fn sort(
        &mut self,
        data: &Bytes,
        status: u16,
        problem: &mut Option<Malformed>,
    ) -> Result<Option<Event>, Fault> {
        let mut end = None;
        let id = Id::from(self.request.id);
        messages(data, |message| match message {
            Ok(Message::Response(response)) if end.is_none() && is_answer(&response, &id) => {
                end = Some(Ok(Event::Answer(Answer { outcome: response.outcome, status: Some(status) })));
            }
            Ok(Message::Response(_)) => self.session.stray(),
            Ok(message) => self.ready.push_back(Event::Message(message)),
            Err(malformed) if malformed.id.as_ref() == Some(&id) && end.is_none() => {
                let text = format!("the server's answer is not JSON-RPC: {}", malformed.error.message);
                end = Some(Err(Fault::Garbled(text.into())));
            }
            Err(malformed) => {
                self.session.stray();
                *problem = Some(malformed);
            }
        });
        end.transpose()
    }

    /// Reads the stream until there is an event.
    async fn follow(&mut self) -> Result<Event, Fault> {
        loop {
            // A flood that is always there would let nobody else have a turn, not even the clock.
            tokio::task::coop::consume_budget().await;
            let Stage::Following(following) = &mut self.stage else {
                return Err(Fault::Garbled("the server's answer is empty".into()));
            };
            if let Some(fault) = following.ended.take() {
                Box::pin(resume(&self.session, self.request.version, following, fault)).await?;
            }
            let (parser, status) = (&mut following.parser, following.status);
            match parser.next().map_err(|sse::TooLong| too_long(&self.session))? {
                Some(event) if event.name == sse::Name::Message => {
                    following.attempts = 0;
                    if let Some(last) = self.sort(&event.data, status, &mut None)? {
                        self.end_stream();
                        return Ok(self.in_order(last));
                    }
                    if let Some(first) = self.ready.pop_front() {
                        return Ok(first);
                    }
                }
                Some(_) => {}
                None => match following.body.frame().await {
                    Some(Ok(frame)) => {
                        if let Ok(data) = frame.into_data() {
                            following.parser.feed(data);
                        }
                    }
                    end => {
                        let link = &self.session.link;
                        let broken = end.and_then(Result::err).map(|error| link.lost(&error));
                        // Ended in order, with a word about when to come back: that was meant.
                        let meant = broken.is_none()
                            && following.parser.retry().is_some()
                            && following.place(self.request.version).is_some();
                        following.ended = Some(broken.unwrap_or_else(|| {
                            Fault::Lost(format!("{} ended its stream without an answer", link.place).into())
                        }));
                        if meant {
                            return Ok(Event::HungUp);
                        }
                    }
                },
            }
        }
    }

    /// After the answer comes the end of the stream, and then another request may use its connection.
    fn end_stream(&mut self) {
        if let Stage::Following(following) = std::mem::replace(&mut self.stage, Stage::Asked) {
            self.session.link.drain(following.body);
        }
    }
}

impl Following {
    /// Where the stream may be resumed, if the server says so and its era knows such a thing.
    fn place(&self, version: Option<Version>) -> Option<HeaderValue> {
        let legacy = version.is_none_or(|version| version.era() == Era::Legacy);
        self.parser.last_id().filter(|_| legacy).and_then(|id| HeaderValue::from_bytes(id).ok())
    }
}

impl Drop for Course {
    fn drop(&mut self) {
        let begun = !matches!(self.stage, Stage::New | Stage::Over);
        // `initialize` has no version yet, and must not be cancelled.
        let version = self.request.version.filter(|version| version.era() == Era::Legacy);
        if let Some(version) = version.filter(|_| begun) {
            self.session.cancel(version, self.request.id);
        }
    }
}

/// Whether a response answers the request `id`. An error without an id does: nothing else was asked here.
fn is_answer(response: &Response, id: &Id) -> bool {
    match &response.id {
        Some(answered) => answered == id,
        None => response.outcome.is_err(),
    }
}

/// Gets the rest of a stream that broke off, or returns `fault`.
async fn resume(
    session: &Session,
    version: Option<Version>,
    following: &mut Following,
    fault: Fault,
) -> Result<(), Fault> {
    let Some(last_id) = following.place(version) else { return Err(fault) };
    if following.seen.as_deref() != Some(last_id.as_bytes()) {
        following.seen = Some(last_id.as_bytes().to_vec());
        following.attempts = 0;
    }
    while following.attempts < MAX_ATTEMPTS {
        following.attempts += 1;
        tokio::time::sleep(following.parser.retry().unwrap_or(RETRY).clamp(MIN_RETRY, MAX_RETRY)).await;
        let (request, in_session) = session.get(version, Some(last_id.clone()));
        // What cannot be reached now may be back the next time.
        let Ok((head, body)) = session.link.ask(&request).await else { continue };
        match head.status {
            status if status.is_success() && head.kind() == Kind::Events => {
                following.parser.resume();
                following.body = body;
                return Ok(());
            }
            StatusCode::NOT_FOUND if in_session => {
                // The session is gone, but not before it got the request: what became of that nobody knows.
                session.noted(Fault::SessionGone);
                break;
            }
            status if status.is_server_error() => {}
            _ => break,
        }
    }
    Err(fault)
}

fn too_long(session: &Session) -> Fault {
    let limit = session.link.max_message;
    Fault::Garbled(format!("the server sent an event longer than {limit} bytes").into())
}
