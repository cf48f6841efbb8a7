//! Pairs what a process writes with the exchanges that wait for it.
//!
//! In: requests as they are queued and written, messages as they are read, and once the end of the connection. Out: the
//! events of each exchange, in order, and the ids of those that were given up, which the process must be told. A
//! [`Ticket`] that is dropped gives its exchange up.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use moongate_core::{hash, task::Signal};
use moongate_wire::Message;
use tokio::sync::{Notify, mpsc, oneshot};

use crate::transport::{Event, Fault};

/// How many messages of one exchange wait to be read. Further ones are not kept: the reader waits for nobody.
const MESSAGES: usize = 64;

/// The request that is never cancelled: a server that is not initialised has no notifications to read.
const INITIALIZE: &str = "initialize";
/// The request that a server may end by cancelling it.
const LISTEN: &str = "subscriptions/listen";

/// The exchanges of one connection.
#[derive(Debug, Default)]
pub(super) struct Pending {
    state: Mutex<State>,
    /// Given once the connection is over.
    over: Signal,
    /// Somebody was given up.
    given_up: Notify,
}

#[derive(Debug, Default)]
struct State {
    entries: hash::Map<i64, Entry>,
    /// Those whose requests were written and that nobody waits for. Not longer than there were entries at once: nothing
    /// is written before these are.
    given_up: Vec<i64>,
    fault: Option<Fault>,
    counts: Counts,
}

/// What went wrong so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Counts {
    /// Answers that nobody waits for: late, given twice, or to nothing we asked.
    pub(super) unasked: u64,
    /// Messages that were not kept, because their exchange was not read.
    pub(super) dropped: u64,
    /// Lines that are no messages.
    pub(super) garbage: u64,
}

#[derive(Debug)]
struct Entry {
    method: &'static str,
    /// The process may have seen it.
    written: bool,
    messages: mpsc::Sender<Message>,
    end: oneshot::Sender<Event>,
}

/// What became of a message.
#[derive(Debug)]
pub(super) enum Delivery {
    Taken,
    /// Its exchange has no room for it.
    Full(Message),
    /// It belongs to no exchange.
    Unknown(Message),
}

impl Pending {
    /// Registers a request before it is queued.
    pub(super) fn open(self: &Arc<Self>, id: i64, method: &'static str) -> Result<Ticket, Fault> {
        let (messages, inbox) = mpsc::channel(MESSAGES);
        let (end, outcome) = oneshot::channel();
        let mut state = self.lock();
        if let Some(fault) = &state.fault {
            return Err(unreached(fault));
        }
        if state.entries.contains_key(&id) {
            return Err(Fault::Unreached("the id of the request is in use".into()));
        }
        state.entries.insert(id, Entry { method, written: false, messages, end });
        Ok(Ticket { pending: Arc::clone(self), id, inbox, outcome })
    }

    /// Whether the request is still wanted, which is about to be written.
    pub(super) fn begin(&self, id: i64) -> bool {
        let mut state = self.lock();
        let entry = state.entries.get_mut(&id);
        entry.map(|entry| entry.written = true).is_some()
    }

    /// The request could not be written after all.
    pub(super) fn take_back(&self, id: i64) {
        if let Some(entry) = self.lock().entries.get_mut(&id) {
            entry.written = false;
        }
    }

    /// Ends an exchange.
    pub(super) fn end(&self, id: Option<i64>, event: Event) {
        let mut state = self.lock();
        match id.and_then(|id| state.entries.remove(&id)) {
            // Whoever waited may have gone at this very moment.
            Some(entry) => drop(entry.end.send(event)),
            None => state.counts.unasked += 1,
        }
    }

    /// Ends the exchange `id` if it listens: the server has no more to say to it.
    pub(super) fn end_listening(&self, id: i64, message: Message) -> Delivery {
        let mut state = self.lock();
        match state.entries.get(&id) {
            Some(entry) if entry.method == LISTEN => {
                let fault = Fault::Lost("the server ended the subscription".into());
                if let Some(entry) = state.entries.remove(&id) {
                    drop(entry.end.send(Event::Lost(fault)));
                }
                Delivery::Taken
            }
            _ => Delivery::Unknown(message),
        }
    }

    /// Hands a message to its exchange, without waiting.
    pub(super) fn deliver(&self, id: i64, message: Message) -> Delivery {
        let mut state = self.lock();
        let Some(entry) = state.entries.get(&id) else { return Delivery::Unknown(message) };
        match entry.messages.try_send(message) {
            Ok(()) => Delivery::Taken,
            Err(error) => {
                state.counts.dropped += 1;
                Delivery::Full(error.into_inner())
            }
        }
    }

    /// Whether an exchange has this id.
    pub(super) fn has(&self, id: i64) -> bool {
        self.lock().entries.contains_key(&id)
    }

    /// Ends the connection with every exchange, unless it is over already. What was not written yet can be sent again.
    pub(super) fn close(&self, fault: &Fault) {
        let mut state = self.lock();
        if state.fault.is_none() {
            state.fault = Some(fault.clone());
            for entry in std::mem::take(&mut state.entries).into_values() {
                let fault = if entry.written { fault.clone() } else { unreached(fault) };
                drop(entry.end.send(Event::Lost(fault)));
            }
        }
        drop(state);
        self.over.give();
    }

    /// Resolves when the connection is over, with the reason.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn over(&self) -> Fault {
        self.over.given().await;
        self.lock().fault.clone().unwrap_or(Fault::Lost(Cow::Borrowed("the connection has ended")))
    }

    /// Resolves when the connection is over, with what is told to a request that was not written.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn refusal(&self) -> Fault {
        unreached(&self.over().await)
    }

    /// Resolves when there may be something for [`Pending::take_given_up`].
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn given_up(&self) {
        self.given_up.notified().await;
    }

    /// The ids of requests that were written and that nobody waits for any more, each once.
    pub(super) fn take_given_up(&self) -> Vec<i64> {
        std::mem::take(&mut self.lock().given_up)
    }

    /// Counts a line that is no message.
    pub(super) fn count_garbage(&self) {
        self.lock().counts.garbage += 1;
    }

    pub(super) fn counts(&self) -> Counts {
        self.lock().counts
    }

    fn give_up(&self, id: i64) {
        let mut state = self.lock();
        let Some(entry) = state.entries.remove(&id) else { return };
        if entry.written && entry.method != INITIALIZE {
            state.given_up.push(id);
            self.given_up.notify_one();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half way through a change.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreached(fault: &Fault) -> Fault {
    Fault::Unreached(fault.to_string().into())
}

/// The receiving end of one exchange.
#[derive(Debug)]
pub(super) struct Ticket {
    pending: Arc<Pending>,
    id: i64,
    inbox: mpsc::Receiver<Message>,
    outcome: oneshot::Receiver<Event>,
}

impl Ticket {
    /// What comes next. The end is told after every message before it: the inbox is closed with it, and read first.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&mut self) -> Event {
        if let Some(message) = self.inbox.recv().await {
            return Event::Message(message);
        }
        let lost = || Event::Lost(Fault::Lost("the connection has ended".into()));
        (&mut self.outcome).await.unwrap_or_else(|_| lost())
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.pending.give_up(self.id);
    }
}

#[cfg(test)]
mod tests {
    use moongate_wire::{Frame, Raw};

    use super::*;
    use crate::transport::Answer;

    fn note(number: usize) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"notifications/{number}"}}"#);
        match Frame::parse(&text.into()).unwrap() {
            Frame::One(message) => message,
            Frame::Batch(_) => panic!("one message"),
        }
    }

    fn answer() -> Event {
        Event::Answer(Answer { outcome: Ok(Raw::empty_object()), status: None })
    }

    #[tokio::test]
    async fn the_answer_comes_after_the_messages_before_it() {
        let pending = Arc::new(Pending::default());
        let mut ticket = pending.open(1, "tools/call").unwrap();
        assert!(matches!(pending.deliver(1, note(0)), Delivery::Taken));
        assert!(matches!(pending.deliver(1, note(1)), Delivery::Taken));
        pending.end(Some(1), answer());
        assert!(matches!(pending.deliver(1, note(2)), Delivery::Unknown(_)));
        for number in 0..2 {
            let Event::Message(message) = ticket.next().await else { panic!("a message") };
            assert_eq!(message, note(number));
        }
        assert!(matches!(ticket.next().await, Event::Answer(_)));
        drop(ticket);
        assert_eq!(pending.take_given_up(), [0; 0]);
    }

    #[tokio::test]
    async fn a_full_inbox_does_not_hold_up_the_answer() {
        let pending = Arc::new(Pending::default());
        let mut ticket = pending.open(1, "tools/call").unwrap();
        let taken = (0..100).filter(|number| matches!(pending.deliver(1, note(*number)), Delivery::Taken));
        assert_eq!(taken.count(), MESSAGES);
        pending.end(Some(1), answer());
        for _ in 0..MESSAGES {
            assert!(matches!(ticket.next().await, Event::Message(_)));
        }
        assert!(matches!(ticket.next().await, Event::Answer(_)));
        assert_eq!(pending.counts().dropped, 100 - MESSAGES as u64);
    }

    #[test]
    fn only_what_was_written_is_cancelled_and_never_initialize() {
        let pending = Arc::new(Pending::default());
        for (id, method, written) in
            [(1, "tools/call", true), (2, "tools/call", false), (3, INITIALIZE, true), (4, LISTEN, true)]
        {
            let ticket = pending.open(id, method).unwrap();
            assert!(!written || pending.begin(id));
            drop(ticket);
            assert!(!pending.begin(id), "nobody wants it any more");
        }
        assert_eq!(pending.take_given_up(), [1, 4]);
        assert_eq!(pending.take_given_up(), [0; 0]);
    }

    #[tokio::test]
    async fn the_end_tells_what_was_written_from_what_was_not() {
        let pending = Arc::new(Pending::default());
        let mut written = pending.open(1, "tools/call").unwrap();
        let mut queued = pending.open(2, "tools/call").unwrap();
        assert!(pending.begin(1));
        let fault = Fault::Lost("it died".into());
        pending.close(&fault);
        pending.close(&Fault::Lost("again".into()));
        assert!(matches!(written.next().await, Event::Lost(lost) if lost == fault));
        let unreached = Fault::Unreached("it died".into());
        assert!(matches!(queued.next().await, Event::Lost(lost) if lost == unreached));
        assert_eq!(pending.open(3, "tools/call").unwrap_err(), unreached);
        assert_eq!((pending.over().await, pending.refusal().await), (fault, unreached));
    }

    #[tokio::test]
    async fn only_a_subscription_is_ended_by_the_server() {
        let pending = Arc::new(Pending::default());
        let mut listening = pending.open(1, LISTEN).unwrap();
        let _calling = pending.open(2, "tools/call").unwrap();
        assert!(matches!(pending.end_listening(2, note(0)), Delivery::Unknown(_)));
        assert!(matches!(pending.end_listening(3, note(0)), Delivery::Unknown(_)));
        assert!(matches!(pending.end_listening(1, note(0)), Delivery::Taken));
        assert!(matches!(listening.next().await, Event::Lost(Fault::Lost(_))));
    }

    #[test]
    fn answers_that_nobody_waits_for_are_counted() {
        let pending = Arc::new(Pending::default());
        let _ticket = pending.open(1, "tools/call").unwrap();
        assert!(pending.open(1, "tools/call").is_err(), "an id is used once");
        pending.end(Some(1), answer());
        pending.end(Some(1), answer());
        pending.end(Some(7), answer());
        pending.end(None, answer());
        assert_eq!(pending.counts(), Counts { unasked: 3, dropped: 0, garbage: 0 });
    }
}
