//! Whether an answer has something to do, or only its connection.
//!
//! A connection is one task, which is polled for its client's bytes, for its timers and when a body has been read. Each time
//! hyper polls the answer that it waits for, and with it every layer down to the socket of the server that is asked. So an
//! answer has a waker of its own, and is left alone until that was used.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
};

use futures_util::task::AtomicWaker;

/// Woken for the answers of one connection, one after another, or for a single one.
#[derive(Debug, Default)]
pub(super) struct Nudge {
    given: AtomicBool,
    connection: AtomicWaker,
}

/// What polls one answer.
#[derive(Debug)]
pub(super) struct Nudged {
    nudge: Arc<Nudge>,
    waker: Waker,
}

impl Nudge {
    /// For an answer that was not polled yet. The one before it, if there was one, must be over.
    pub(super) fn answer(self: &Arc<Self>) -> Nudged {
        self.given.store(true, Ordering::Release);
        Nudged { nudge: Arc::clone(self), waker: Arc::clone(self).into() }
    }
}

impl Nudged {
    /// Polls what the answer is made of, if it was woken since.
    pub(super) fn poll<T>(
        &self,
        connection: &Context<'_>,
        answer: impl FnOnce(&mut Context<'_>) -> Poll<T>,
    ) -> Poll<T> {
        // Before looking: who comes later wakes the connection.
        self.nudge.connection.register(connection.waker());
        if !self.nudge.given.swap(false, Ordering::AcqRel) {
            return Poll::Pending;
        }
        answer(&mut Context::from_waker(&self.waker))
    }
}

impl Wake for Nudge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        self.given.store(true, Ordering::Release);
        self.connection.wake();
    }
}

#[cfg(test)]
mod tests {
    use futures_util::task::noop_waker;

    use super::*;

    /// Counts how often a connection is woken.
    #[derive(Default)]
    struct Connection(std::sync::atomic::AtomicUsize);

    impl Wake for Connection {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn an_answer_is_polled_at_first_and_when_it_was_woken() {
        let (nudge, task) = (Arc::new(Nudge::default()), Arc::new(Connection::default()));
        let waker = Waker::from(Arc::clone(&task));
        let cx = Context::from_waker(&waker);
        for _ in 0..2 {
            let answer = nudge.answer();
            let mut kept = None;
            let first = answer.poll(&cx, |inner| {
                kept = Some(inner.waker().clone());
                Poll::<()>::Pending
            });
            assert!(first.is_pending());
            let unasked = answer.poll(&cx, |_| Poll::Ready(()));
            assert!(unasked.is_pending(), "only the connection was polled");
            let before = task.0.load(Ordering::Relaxed);
            kept.unwrap().wake();
            assert_eq!(task.0.load(Ordering::Relaxed), before + 1);
            assert!(answer.poll(&cx, |_| Poll::Ready(())).is_ready());
        }
    }

    #[test]
    fn what_wakes_itself_while_it_is_polled_is_polled_again() {
        let (nudge, task) = (Arc::new(Nudge::default()), Arc::new(Connection::default()));
        let (idle, waker) = (noop_waker(), Waker::from(Arc::clone(&task)));
        let answer = nudge.answer();
        let wakes_itself = |inner: &mut Context<'_>| {
            inner.waker().wake_by_ref();
            Poll::<()>::Pending
        };
        // The connection may have moved to another task meanwhile.
        assert!(answer.poll(&Context::from_waker(&idle), wakes_itself).is_pending());
        assert!(answer.poll(&Context::from_waker(&waker), wakes_itself).is_pending());
        assert_eq!(task.0.load(Ordering::Relaxed), 1);
        assert!(answer.poll(&Context::from_waker(&waker), |_| Poll::Ready(())).is_ready());
    }
}
