//! A server in memory, behind the face of a transport.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use moongate_core::{BoxFuture, task::Signal};
use moongate_wire::{Message, RpcError, Version};
use serde_json::{Value, json};
use tokio::sync::{mpsc, watch};

use super::{message, soon, value};
use crate::transport::{
    Answer, Diagnosis, Dial, Event, Exchange, Fault, Inbound, Outgoing, Outward, Transport, Way,
};

/// More messages than any test has.
const ROOM: usize = 4096;

/// A request that arrived.
#[derive(Clone, Debug)]
pub(crate) struct Got {
    /// The connection it came by, from 0.
    pub(crate) line: usize,
    pub(crate) id: i64,
    pub(crate) method: &'static str,
    pub(crate) params: Value,
    pub(crate) outgoing: Outgoing,
}

/// What a server does about a request.
#[derive(Clone, Debug)]
pub(crate) enum React {
    Result(Value),
    Error(RpcError),
    /// As [`React::Error`], with an HTTP status.
    Status(u16, RpcError),
    /// No answer, for this reason.
    Lost(Fault),
    /// The whole connection ends.
    Exit,
    /// The test answers.
    Hold,
}

/// A server; also the way to it.
pub(crate) struct Fake {
    way: Way,
    rule: Box<dyn Fn(&Got) -> React + Send + Sync>,
    state: Mutex<State>,
    dials: AtomicUsize,
    /// Grows with everything that happens.
    seen: watch::Sender<u64>,
    /// Whether it speaks outside requests.
    pub(crate) speaks: AtomicBool,
    /// Whether it takes what is sent outside requests.
    pub(crate) takes: watch::Sender<bool>,
}

#[derive(Default)]
struct State {
    refusals: VecDeque<Fault>,
    lines: Vec<Arc<Line>>,
    requests: Vec<Got>,
    sent: Vec<(usize, Value)>,
    held: Vec<Held>,
    given_up: Vec<i64>,
}

struct Line {
    inbound: Arc<dyn Inbound>,
    over: Signal,
    fault: Mutex<Option<Fault>>,
    closed: AtomicBool,
    listened: AtomicUsize,
}

impl Line {
    fn end(&self, fault: Fault) {
        self.fault.lock().unwrap().get_or_insert(fault);
        self.over.give();
    }

    fn fault(&self) -> Fault {
        self.fault.lock().unwrap().clone().unwrap_or(Fault::Lost("it ended".into()))
    }
}

/// A request that waits for the test.
pub(crate) struct Held {
    pub(crate) got: Got,
    events: mpsc::Sender<Event>,
}

impl Held {
    /// Says something that belongs to the request.
    pub(crate) fn say(&self, message: Message) {
        self.events.try_send(Event::Message(message)).unwrap();
    }

    /// Asks something that belongs to the request.
    pub(crate) fn ask(&self, id: Value, method: &str, params: Value) {
        self.say(message(json!({"id": id, "method": method, "params": params})));
    }

    pub(crate) fn answer(self, result: Value) {
        self.react(React::Result(result));
    }

    pub(crate) fn react(self, react: React) {
        let event = match react {
            React::Result(result) => Event::Answer(Answer { outcome: Ok(result.into()), status: None }),
            React::Error(error) => Event::Answer(Answer { outcome: Err(error), status: None }),
            React::Status(status, error) => {
                Event::Answer(Answer { outcome: Err(error), status: Some(status) })
            }
            React::Lost(fault) => Event::Lost(fault),
            React::Exit | React::Hold => panic!("not for one request"),
        };
        // The exchange may have been given up.
        drop(self.events.try_send(event));
    }
}

impl Fake {
    pub(crate) fn new(way: Way, rule: impl Fn(&Got) -> React + Send + Sync + 'static) -> Arc<Self> {
        Arc::new(Self {
            way,
            rule: Box::new(rule),
            state: Mutex::default(),
            dials: AtomicUsize::new(0),
            seen: watch::Sender::new(0),
            speaks: AtomicBool::new(true),
            takes: watch::Sender::new(true),
        })
    }

    /// The next dial fails so.
    pub(crate) fn refuse_dial(&self, fault: Fault) {
        self.with(|state| state.refusals.push_back(fault));
    }

    /// How often somebody tried to connect.
    pub(crate) fn dials(&self) -> usize {
        self.dials.load(Ordering::Relaxed)
    }

    /// Says something outside any request.
    pub(crate) fn say(&self, line: usize, message: Message) {
        let line = self.with(|state| Arc::clone(&state.lines[line]));
        line.inbound.hear(message);
    }

    /// Asks something outside any request.
    pub(crate) fn ask(&self, line: usize, id: Value, method: &str, params: Value) {
        self.say(line, message(json!({"id": id, "method": method, "params": params})));
    }

    /// A connection ends by itself.
    pub(crate) fn end(&self, line: usize, fault: Fault) {
        let line = self.with(|state| Arc::clone(&state.lines[line]));
        line.end(fault);
    }

    /// Whether a connection was closed by the client.
    pub(crate) fn is_closed(&self, line: usize) -> bool {
        self.with(|state| state.lines.get(line).is_some_and(|line| line.closed.load(Ordering::Relaxed)))
    }

    /// How often the server was asked to speak by itself.
    pub(crate) fn listened(&self, line: usize) -> usize {
        self.with(|state| state.lines[line].listened.load(Ordering::Relaxed))
    }

    /// Every request so far.
    pub(crate) fn requests(&self) -> Vec<Got> {
        self.with(|state| state.requests.clone())
    }

    /// The methods of every request so far, in order.
    pub(crate) fn methods(&self) -> Vec<&'static str> {
        self.requests().iter().map(|got| got.method).collect()
    }

    /// How many requests of a method there were.
    pub(crate) fn count(&self, method: &str) -> usize {
        self.methods().iter().filter(|of| **of == method).count()
    }

    /// Notifications and responses so far.
    pub(crate) fn sent(&self) -> Vec<Value> {
        self.with(|state| state.sent.iter().map(|(_, message)| message.clone()).collect())
    }

    /// The next held request of this method.
    pub(crate) async fn held(&self, method: &str) -> Held {
        self.until(|state| {
            let at = state.held.iter().position(|held| held.got.method == method)?;
            Some(state.held.remove(at))
        })
        .await
    }

    /// The client's answer to the question `id`.
    pub(crate) async fn response(&self, id: Value) -> Value {
        let find = |state: &mut State| {
            let response = |message: &Value| message["id"] == id && message.get("method").is_none();
            state.sent.iter().map(|(_, message)| message).find(|message| response(message)).cloned()
        };
        self.until(find).await
    }

    /// Resolves when the client has given the request `id` up.
    pub(crate) async fn given_up(&self, id: i64) {
        self.until(|state| state.given_up.contains(&id).then_some(())).await;
    }

    pub(crate) fn is_given_up(&self, id: i64) -> bool {
        self.with(|state| state.given_up.contains(&id))
    }

    /// Resolves when there were so many requests of a method.
    pub(crate) async fn counted(&self, method: &str, count: usize) {
        self.until(|state| {
            (state.requests.iter().filter(|got| got.method == method).count() >= count).then_some(())
        })
        .await;
    }

    /// Resolves when a connection was closed by the client.
    pub(crate) async fn closed(&self, line: usize) {
        self.until(|state| state.lines.get(line)?.closed.load(Ordering::Relaxed).then_some(())).await;
    }

    /// Resolves when there were so many dials.
    pub(crate) async fn dialled(&self, count: usize) {
        let mut seen = self.seen.subscribe();
        soon(async {
            while self.dials() < count {
                seen.changed().await.unwrap();
            }
        })
        .await;
    }

    async fn until<T>(&self, mut find: impl FnMut(&mut State) -> Option<T>) -> T {
        let mut seen = self.seen.subscribe();
        soon(async {
            loop {
                if let Some(found) = self.with(&mut find) {
                    return found;
                }
                seen.changed().await.unwrap();
            }
        })
        .await
    }

    fn with<T>(&self, work: impl FnOnce(&mut State) -> T) -> T {
        work(&mut self.state.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn happened(&self) {
        self.seen.send_modify(|count| *count += 1);
    }
}

/// The same server for the trait's callers.
pub(crate) struct Dialled(pub(crate) Arc<Fake>);

impl Dial for Dialled {
    fn dial(&self, inbound: Arc<dyn Inbound>) -> BoxFuture<'_, Result<Arc<dyn Transport>, Fault>> {
        async move {
            self.0.dials.fetch_add(1, Ordering::Relaxed);
            let refusal = self.0.with(|state| state.refusals.pop_front());
            self.0.happened();
            if let Some(fault) = refusal {
                return Err(fault);
            }
            let line = Arc::new(Line {
                inbound,
                over: Signal::default(),
                fault: Mutex::default(),
                closed: AtomicBool::new(false),
                listened: AtomicUsize::new(0),
            });
            let number = self.0.with(|state| {
                state.lines.push(Arc::clone(&line));
                state.lines.len() - 1
            });
            let connection = Connection { fake: Arc::clone(&self.0), line, number };
            Ok(Arc::new(connection) as Arc<dyn Transport>)
        }
        .boxed()
    }

    fn way(&self) -> Way {
        self.0.way
    }
}

struct Connection {
    fake: Arc<Fake>,
    line: Arc<Line>,
    number: usize,
}

/// Notes an exchange that is dropped before its end.
struct Watched {
    fake: Arc<Fake>,
    id: i64,
    over: bool,
}

impl Drop for Watched {
    fn drop(&mut self) {
        if !self.over {
            self.fake.with(|state| state.given_up.push(self.id));
            self.fake.happened();
        }
    }
}

impl Transport for Connection {
    fn request(&self, request: Outgoing) -> Exchange {
        let (fake, line, number) = (Arc::clone(&self.fake), Arc::clone(&self.line), self.number);
        let state = Step::Begin { fake, line, number, request: Box::new(request) };
        // As real ones: a stream that has ended must not be asked again.
        stream::unfold(state, advance).boxed()
    }

    fn send(&self, message: Outward) -> BoxFuture<'_, Result<(), Fault>> {
        async move {
            let mut takes = self.fake.takes.subscribe();
            takes.wait_for(|takes| *takes).await.unwrap();
            if self.line.over.is_given() {
                return Err(self.line.fault());
            }
            self.fake.with(|state| state.sent.push((self.number, value(&message.message))));
            self.fake.happened();
            Ok(())
        }
        .boxed()
    }

    fn listen(&self, _version: Version) -> BoxFuture<'_, bool> {
        self.line.listened.fetch_add(1, Ordering::Relaxed);
        std::future::ready(self.fake.speaks.load(Ordering::Relaxed)).boxed()
    }

    fn closed(&self) -> BoxFuture<'_, Fault> {
        async move {
            self.line.over.given().await;
            self.line.fault()
        }
        .boxed()
    }

    fn close(&self, _grace: Duration) -> BoxFuture<'_, ()> {
        self.line.closed.store(true, Ordering::Relaxed);
        self.line.end(Fault::Lost("it was closed".into()));
        self.fake.happened();
        std::future::ready(()).boxed()
    }

    fn diagnosis(&self) -> Diagnosis {
        Diagnosis { pid: u32::try_from(self.number).ok(), ..Diagnosis::default() }
    }
}

/// How far an exchange is.
enum Step {
    Begin { fake: Arc<Fake>, line: Arc<Line>, number: usize, request: Box<Outgoing> },
    Open { inbox: mpsc::Receiver<Event>, watched: Watched, line: Arc<Line> },
    Over,
}

async fn advance(step: Step) -> Option<(Event, Step)> {
    let step = match step {
        Step::Begin { line, .. } if line.over.is_given() => {
            let fault = Fault::Unreached(line.fault().to_string().into());
            return Some((Event::Lost(fault), Step::Over));
        }
        Step::Begin { fake, line, number, request } => begin(&fake, line, number, *request),
        begun => begun,
    };
    let Step::Open { mut inbox, mut watched, line } = step else { return None };
    let event = tokio::select! {
        biased;
        Some(event) = inbox.recv() => event,
        () = line.over.given() => Event::Lost(line.fault()),
    };
    if matches!(event, Event::Message(_) | Event::HungUp) {
        return Some((event, Step::Open { inbox, watched, line }));
    }
    watched.over = true;
    Some((event, Step::Over))
}

fn begin(fake: &Arc<Fake>, line: Arc<Line>, number: usize, outgoing: Outgoing) -> Step {
    let (id, method) = (outgoing.id, outgoing.method);
    let got = Got { line: number, id, method, params: value(&outgoing.message)["params"].take(), outgoing };
    fake.with(|state| state.requests.push(got.clone()));
    let (events, inbox) = mpsc::channel(ROOM);
    let held = Held { got, events };
    match (fake.rule)(&held.got) {
        React::Hold => fake.with(|state| state.held.push(held)),
        React::Exit => line.end(Fault::Lost("the process exited".into())),
        react => held.react(react),
    }
    fake.happened();
    Step::Open { inbox, watched: Watched { fake: Arc::clone(fake), id, over: false }, line }
}
