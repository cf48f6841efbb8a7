//! What is said to one call outside its stream, and what it lets those know who say it. Nearly every call ends without a
//! message, so an empty box costs nothing but itself.

use std::{
    collections::VecDeque,
    future::poll_fn,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Poll, Waker},
};

use moongate_wire::Message;

/// Messages for one call that it has not looked at yet; a call looks at once, so more means that it is being ended.
const ROOM: usize = 64;

/// The one who reads; dropping it closes the box.
#[derive(Debug, Default)]
pub(super) struct Mailbox(Arc<Shared>);

/// The way into a box.
#[derive(Clone, Debug)]
pub(super) struct Slit(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    letters: Mutex<Letters>,
    /// The call waits for its client, so that it is not the one that others ask about.
    asking: AtomicBool,
    /// A question that may have been for the call was refused.
    refused: AtomicBool,
}

#[derive(Debug, Default)]
struct Letters {
    messages: VecDeque<Message>,
    reader: Option<Waker>,
    closed: bool,
}

impl Mailbox {
    /// A way in.
    pub(super) fn slit(&self) -> Slit {
        Slit(Arc::clone(&self.0))
    }

    /// The next message, whenever it comes.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn next(&self) -> Message {
        // One that is filled as fast as it is read would let nobody else have a turn.
        tokio::task::coop::consume_budget().await;
        poll_fn(|cx| {
            let mut letters = self.0.lock();
            if let Some(message) = letters.messages.pop_front() {
                return Poll::Ready(message);
            }
            if !letters.reader.as_ref().is_some_and(|reader| reader.will_wake(cx.waker())) {
                letters.reader = Some(cx.waker().clone());
            }
            Poll::Pending
        })
        .await
    }

    /// Whether there is nothing in it.
    fn is_empty(&self) -> bool {
        self.0.lock().messages.is_empty()
    }

    /// A message that is there.
    pub(super) fn take(&self) -> Option<Message> {
        self.0.lock().messages.pop_front()
    }

    /// Tells whether the call waits for an answer of its client. What it has not looked at yet may be a question.
    pub(super) fn set_asking(&self, asking: bool) {
        self.0.asking.store(asking || !self.is_empty(), Ordering::Relaxed);
    }

    /// Whether a question that may have been for this call was refused, because it may have been for others too.
    pub(super) fn was_refused(&self) -> bool {
        self.0.refused.load(Ordering::Relaxed)
    }
}

impl Drop for Mailbox {
    fn drop(&mut self) {
        let mut letters = self.0.lock();
        letters.closed = true;
        let unread = std::mem::take(&mut letters.messages);
        drop(letters);
        drop(unread);
    }
}

impl Slit {
    /// Puts a message in; gives it back when the box is full or nobody reads it any more.
    pub(super) fn put(&self, message: Message) -> Result<(), Box<Message>> {
        let mut letters = self.0.lock();
        if letters.closed || letters.messages.len() >= ROOM {
            return Err(Box::new(message));
        }
        letters.messages.push_back(message);
        let reader = letters.reader.take();
        drop(letters);
        if let Some(reader) = reader {
            reader.wake();
        }
        Ok(())
    }

    /// Whether the call waits for an answer of its client.
    pub(super) fn is_asking(&self) -> bool {
        self.0.asking.load(Ordering::Relaxed)
    }

    /// The call asks from now on, also if it has not noticed yet.
    pub(super) fn asks(&self) {
        self.0.asking.store(true, Ordering::Relaxed);
    }

    /// Lets the call know that a question was refused that may have been for it.
    pub(super) fn refuse(&self) {
        self.0.refused.store(true, Ordering::Relaxed);
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Letters> {
        self.letters.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;

    use futures_util::FutureExt as _;
    use moongate_wire::Frame;

    use super::*;

    fn message(number: usize) -> Message {
        let text = format!(r#"{{"jsonrpc":"2.0","method":"m{number}"}}"#);
        let Ok(Frame::One(message)) = Frame::parse(&text.into()) else { panic!() };
        message
    }

    #[tokio::test]
    async fn messages_come_in_order_and_wake_the_one_who_waits() {
        let mailbox = Mailbox::default();
        let slit = mailbox.slit();
        slit.put(message(1)).unwrap();
        slit.put(message(2)).unwrap();
        assert_eq!(
            (mailbox.next().await, mailbox.take(), mailbox.take()),
            (message(1), Some(message(2)), None)
        );
        let mut next = pin!(mailbox.next());
        assert!(next.as_mut().now_or_never().is_none());
        let (heard, ()) = tokio::join!(next, async {
            tokio::task::yield_now().await;
            slit.put(message(3)).unwrap();
        });
        assert_eq!(heard, message(3));
    }

    #[test]
    fn a_full_box_and_one_that_nobody_reads_give_messages_back() {
        let mailbox = Mailbox::default();
        let slit = mailbox.slit();
        assert!((0..ROOM).all(|number| slit.put(message(number)).is_ok()));
        assert_eq!(slit.put(message(ROOM)), Err(Box::new(message(ROOM))));
        assert_eq!(mailbox.take(), Some(message(0)));
        assert!(slit.put(message(ROOM)).is_ok());
        drop(mailbox);
        assert_eq!(slit.put(message(1)), Err(Box::new(message(1))));
    }
}
