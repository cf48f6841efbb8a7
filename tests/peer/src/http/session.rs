//! One script with its open streams: which part of what it says goes where.

use std::{
    collections::{HashMap, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use serde_json::Value;
use tokio::sync::mpsc;

use super::feed::Feed;
use crate::{Effect, Headers, Script, Setup, Stream};

/// Parts that wait for a slow reader; the exchange that caused more of them waits.
const WAITING: usize = 64;

/// Unsolicited messages kept while nobody listens; the oldest fall out.
const UNHEARD: usize = 64;

/// What is written to one stream, in order.
#[derive(Debug)]
pub(super) enum Part {
    Message(Value),
    Refusal(u16, Value),
    /// The address to post to, which is no message.
    Endpoint(String),
    /// No message either.
    Text(String),
    End,
    Exit {
        half: bool,
        code: i32,
    },
}

#[derive(Debug)]
pub(super) struct Session {
    script: Mutex<Script>,
    streams: Mutex<Streams>,
    forgotten: AtomicBool,
}

#[derive(Debug, Default)]
struct Streams {
    exchanges: HashMap<u64, mpsc::Sender<Part>>,
    listener: Option<mpsc::Sender<Part>>,
    unheard: VecDeque<Part>,
}

impl Session {
    pub(super) fn new(setup: Setup) -> Arc<Self> {
        Arc::new(Self {
            script: Mutex::new(Script::new(setup)),
            streams: Mutex::default(),
            forgotten: AtomicBool::new(false),
        })
    }

    /// Gives a frame to the script. What it has to say to this exchange, now and later, comes from the feed.
    pub(super) async fn post(session: &Arc<Self>, exchange: u64, frame: &[u8], headers: &Headers) -> Feed {
        let (sender, receiver) = mpsc::channel(WAITING);
        // Before the script sees the frame: what another exchange causes may come at once.
        session.streams().exchanges.insert(exchange, sender);
        let effects = session.script().receive(exchange, frame, headers);
        let (own, others): (Vec<_>, Vec<_>) =
            effects.into_iter().partition(|effect| concerns(effect, exchange));
        let own: VecDeque<_> = own.into_iter().filter_map(part).collect();
        session.deliver(others).await;
        Feed::new(Arc::clone(session), Some(exchange), own, receiver)
    }

    /// Gives a frame to the script, whose answers all go to the one who listens.
    pub(super) async fn post_aside(session: &Arc<Self>, exchange: u64, frame: &[u8], headers: &Headers) {
        let effects = session.script().receive(exchange, frame, headers);
        for effect in effects {
            if effect == Effect::Forget {
                session.forgotten.store(true, Ordering::Release);
            } else if let Some(part) = part(effect)
                && !matches!(part, Part::End)
            {
                session.tell(part).await;
            }
        }
    }

    /// The stream of what nobody asked for. It replaces an older one.
    pub(super) fn listen(session: &Arc<Self>, endpoint: Option<String>) -> Feed {
        let (sender, receiver) = mpsc::channel(WAITING);
        let mut streams = session.streams();
        streams.listener = Some(sender);
        let mut missed = std::mem::take(&mut streams.unheard);
        drop(streams);
        if let Some(endpoint) = endpoint {
            missed.push_front(Part::Endpoint(endpoint));
        }
        Feed::new(Arc::clone(session), None, missed, receiver)
    }

    pub(super) fn is_open(&self) -> bool {
        self.script().is_open()
    }

    pub(super) fn is_forgotten(&self) -> bool {
        self.forgotten.load(Ordering::Acquire)
    }

    /// Whether someone listens.
    pub(super) fn is_heard(&self) -> bool {
        self.streams().listener.as_ref().is_some_and(|listener| !listener.is_closed())
    }

    pub(super) fn flood(&self, exchange: Option<u64>) -> Option<Value> {
        self.script().flood(exchange)
    }

    /// The stream of this exchange is over, by whosever wish.
    pub(super) fn closed(&self, exchange: u64) {
        self.streams().exchanges.remove(&exchange);
        self.script().hung_up(exchange);
    }

    async fn deliver(&self, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Forget => self.forgotten.store(true, Ordering::Release),
                Effect::Send(Stream::Session, message) => self.tell(Part::Message(message)).await,
                other => {
                    let stream = exchange_of(&other).and_then(|number| self.stream(number));
                    if let (Some(stream), Some(part)) = (stream, part(other)) {
                        // A legacy client that has closed this stream misses it, as it would with any server.
                        drop(stream.send(part).await);
                    }
                }
            }
        }
    }

    async fn tell(&self, part: Part) {
        let listener = self.streams().listener.clone();
        let unheard = match listener {
            Some(listener) => listener.send(part).await.err().map(|error| error.0),
            None => Some(part),
        };
        if let Some(part) = unheard {
            let mut streams = self.streams();
            if streams.unheard.len() == UNHEARD {
                streams.unheard.pop_front();
            }
            streams.unheard.push_back(part);
        }
    }

    fn stream(&self, exchange: u64) -> Option<mpsc::Sender<Part>> {
        self.streams().exchanges.get(&exchange).cloned()
    }

    fn script(&self) -> MutexGuard<'_, Script> {
        self.script.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn streams(&self) -> MutexGuard<'_, Streams> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn exchange_of(effect: &Effect) -> Option<u64> {
    match effect {
        Effect::Send(Stream::Exchange(number), _)
        | Effect::Write(number, _)
        | Effect::Refuse(number, _, _)
        | Effect::End(number) => Some(*number),
        Effect::Exit(number, _) => *number,
        Effect::Send(Stream::Session, _) | Effect::Forget => None,
    }
}

/// Whether this is for the exchange that caused it. A process that exits is everybody's concern, but one has to do it.
fn concerns(effect: &Effect, exchange: u64) -> bool {
    exchange_of(effect) == Some(exchange) || matches!(effect, Effect::Exit(..))
}

fn part(effect: Effect) -> Option<Part> {
    Some(match effect {
        Effect::Send(_, message) => Part::Message(message),
        Effect::Refuse(_, status, message) => Part::Refusal(status, message),
        Effect::Write(_, text) => Part::Text(text),
        Effect::End(_) => Part::End,
        Effect::Exit(half, code) => Part::Exit { half: half.is_some(), code },
        Effect::Forget => return None,
    })
}
