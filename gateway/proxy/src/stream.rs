//! A legacy SSE stream: every event goes to the session's log first, then to whoever reads the stream now.
//!
//! The writer (a call, or the session's change notifications) and the reader (a connection) do not know each other:
//! a reader may leave and another come back with `Last-Event-ID`, and the writer never notices.

use std::{collections::VecDeque, pin::Pin, sync::Arc, task::Context, time::Duration};

use bytes::Bytes;
use moongate_storage::{EventId, State, StreamId};
use moongate_wire::Raw;
use tokio::{
    sync::mpsc,
    time::{Instant, Sleep},
};
use tokio_util::sync::{CancellationToken, DropGuard};

use crate::{edge::sse, session::Live};

/// The number of a session's GET stream.
pub const GET_STREAM: u64 = 0;
/// Events on their way to a connection; when full the writer waits for at most [`SLOW_READER`].
const CAPACITY: usize = 16;
/// A reader that takes nothing for so long is let go; the log keeps what it missed.
const SLOW_READER: Duration = Duration::from_secs(30);
/// What clients are told to wait before they come back, in milliseconds.
const RETRY_MS: u32 = 1000;

/// An event on its way to a connection.
#[derive(Clone, Debug)]
pub struct Chunk {
    /// Its place in the log; a reader skips what it has had.
    pub sequence: u64,
    /// The bytes of the event.
    pub bytes: Bytes,
}

/// The writing end.
#[derive(Debug)]
pub struct Stream {
    id: StreamId,
    writer: u64,
    live: Arc<Live>,
    state: StateRef,
}

struct StateRef(Arc<dyn State>);

impl std::fmt::Debug for StateRef {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

/// The reading end.
#[derive(Debug)]
pub struct Reader {
    /// The number of the stream.
    pub stream: u64,
    /// Events from the log that come first.
    pub replay: VecDeque<Chunk>,
    /// What is written from now on; ends when the stream does.
    pub events: mpsc::Receiver<Chunk>,
    /// The last event this reader has had.
    pub seen: u64,
    /// How long it may stay.
    pub stay: Stay,
    /// Tells the writer when this reader leaves.
    pub gone: DropGuard,
    /// Keeps the session in use while somebody reads.
    pub live: Arc<Live>,
}

/// How long a reader may stay.
#[derive(Debug)]
pub enum Stay {
    /// As long as there is something to read.
    Long,
    /// Until it is sent away, to come back for the rest.
    Until(Pin<Box<Sleep>>),
    /// It was sent away.
    Over,
}

impl Stream {
    /// Starts stream `number` of a session, with its first reader.
    pub fn open(live: &Arc<Live>, state: &Arc<dyn State>, number: u64) -> (Self, Reader) {
        let (sender, events) = mpsc::channel(CAPACITY);
        let gone = CancellationToken::new();
        let writer = live.attach(number, sender, gone.clone());
        let id = StreamId { session: Arc::clone(&live.id), number };
        let stream = Self { id, writer, live: Arc::clone(live), state: StateRef(Arc::clone(state)) };
        let gone = gone.drop_guard();
        let live = Arc::clone(live);
        let replay = VecDeque::new();
        (stream, Reader { stream: number, replay, events, seen: 0, stay: Stay::Long, gone, live })
    }

    /// Sends the event that lets a client come back although nothing was said yet. Only for 2025-11-25 and later: older
    /// clients choke on its empty data.
    pub async fn prime(&self) {
        if let Some(id) = self.append(Bytes::new()).await {
            self.deliver(Chunk { sequence: id.sequence, bytes: sse::priming(id, RETRY_MS) }).await;
        }
    }

    /// Whether this stream still is the one with its number.
    pub fn is_current(&self) -> bool {
        !self.live.reader_gone(self.id.number, self.writer).is_cancelled()
    }

    /// Sends one message.
    pub async fn emit(&self, message: &Raw) {
        let id = self.append(message.clone().into_bytes()).await;
        let sequence = id.map_or(u64::MAX, |id| id.sequence);
        self.deliver(Chunk { sequence, bytes: sse::event(id, message) }).await;
    }

    /// Ends the reader's connection, not the stream.
    pub fn hang_up(&self) {
        self.live.hang_up(self.id.number, self.writer);
    }

    /// Resolves when the present reader leaves, or another stream took this one's place.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn abandoned(&self) {
        self.live.reader_gone(self.id.number, self.writer).cancelled().await;
    }

    async fn append(&self, frame: Bytes) -> Option<EventId> {
        match self.state.0.append(&self.id, frame).await {
            Ok(id) => Some(id),
            Err(error) => {
                tracing::warn!(%error, session = %self.id.session, "event not logged; it cannot be replayed");
                None
            }
        }
    }

    async fn deliver(&self, chunk: Chunk) {
        let Some(reader) = self.live.reader(self.id.number, self.writer) else { return };
        if let Err(mpsc::error::SendTimeoutError::Timeout(_)) = reader.send_timeout(chunk, SLOW_READER).await
        {
            tracing::info!(session = %self.id.session, "slow reader let go");
            self.hang_up();
        }
    }
}

impl Reader {
    /// The same, to be sent away at some time.
    #[must_use]
    pub fn leaving(mut self, leave: Option<Instant>) -> Self {
        self.stay = leave.map_or(Stay::Long, |leave| Stay::Until(Box::pin(tokio::time::sleep_until(leave))));
        self
    }

    /// The last event for a reader that is sent away now: where it is, which some clients remember only as long as the
    /// connection they heard it on, and when to come back. None while it has nothing to come back to.
    pub fn poll_farewell(&mut self, poller: &mut Context<'_>) -> Option<Bytes> {
        let Stay::Until(leave) = &mut self.stay else { return None };
        if self.seen == 0 || leave.as_mut().poll(poller).is_pending() {
            return None;
        }
        self.stay = Stay::Over;
        Some(sse::priming(EventId { stream: self.stream, sequence: self.seen }, RETRY_MS))
    }
}

impl Drop for Stream {
    fn drop(&mut self) {
        self.live.close(self.id.number, self.writer);
    }
}

/// Comes back to a stream after the event a client saw last. `None` when neither the log nor a running call knows it.
///
/// # Cancel safety
/// Dropping the future may leave the stream without a reader, as a client that leaves does.
pub async fn resume(
    live: &Arc<Live>,
    state: &Arc<dyn State>,
    after: EventId,
) -> Result<Option<Reader>, moongate_storage::Error> {
    let (sender, events) = mpsc::channel(CAPACITY);
    let gone = CancellationToken::new();
    // Reattach before reading the log: an event that comes in between is in both, and the reader skips the second.
    let running = live.reattach(after.stream, sender, gone.clone());
    let replay = replay(live, state, after).await?;
    if replay.is_none() && !running {
        return Ok(None);
    }
    tracing::debug!(session = %live.id, event = %after, running, "stream resumed");
    // What fell out of the log is lost, but not what a running call still says.
    let replay = replay.unwrap_or_default();
    let (seen, gone, live) = (after.sequence, gone.drop_guard(), Arc::clone(live));
    Ok(Some(Reader { stream: after.stream, replay, events, seen, stay: Stay::Long, gone, live }))
}

/// What the log holds of a stream after an event; `None` when it does not know the event.
pub async fn replay(
    live: &Live,
    state: &Arc<dyn State>,
    after: EventId,
) -> Result<Option<VecDeque<Chunk>>, moongate_storage::Error> {
    let Some((_, frames)) = state.replay(&live.id, after).await? else { return Ok(None) };
    let messages = frames.into_iter().filter(|(_, frame)| !frame.is_empty());
    let chunk =
        |(id, frame): (EventId, Bytes)| Chunk { sequence: id.sequence, bytes: sse::frame(Some(id), &frame) };
    Ok(Some(messages.map(chunk).collect()))
}
