//! Every task has an owner: a group that cancels and awaits what it started.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    task::Poll,
    time::Duration,
};

use tokio::sync::Notify;
use tokio_util::task::TaskTracker;

/// A set of tasks with a common end.
#[derive(Clone, Debug, Default)]
pub struct Group {
    tasks: TaskTracker,
    cancelled: Signal,
}

/// Something that happens once, and that many wait for; clones share it.
#[derive(Clone, Debug, Default)]
pub struct Signal(Arc<Shared>);

#[derive(Debug, Default)]
struct Shared {
    given: AtomicBool,
    waiting: Notify,
}

impl Signal {
    /// Lets it happen.
    pub fn give(&self) {
        self.0.given.store(true, Ordering::Release);
        self.0.waiting.notify_waiters();
    }

    /// Whether it has happened.
    pub fn is_given(&self) -> bool {
        self.0.given.load(Ordering::Acquire)
    }

    /// Resolves when it has happened.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn given(&self) {
        let waiting = self.0.waiting.notified();
        // Asked only now: what is given from here on wakes the one who waits.
        if !self.is_given() {
            waiting.await;
        }
    }

    /// Runs `work` to its end, or until this happens.
    ///
    /// The task that awaits this may be polled for every byte of a connection, so it puts itself on the list of those who
    /// wait once, and asks a flag from then on. The waker of a task stays the same; nobody awaits this inside something
    /// that hands out wakers of its own.
    async fn ends<T>(&self, mut work: Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
        let mut given = pin!(self.given());
        let mut listed = false;
        poll_fn(|poller| {
            let over = if listed { self.is_given() } else { given.as_mut().poll(poller).is_ready() };
            listed = true;
            if over { Poll::Ready(None) } else { work.as_mut().poll(poller).map(Some) }
        })
        .await
    }
}

impl Group {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// Runs `task` until it ends or the group is cancelled, whichever is first.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancelled = self.cancelled.clone();
        // On the heap, because racing a future moves it: the task would have room for it twice.
        let mut task = Box::pin(task);
        self.tasks.spawn(async move {
            cancelled.ends(task.as_mut()).await;
        });
    }

    /// Waits until every task has ended by itself or `patience` has passed. Nothing is cancelled.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn settle(&self, patience: Duration) {
        self.tasks.close();
        // Those that take longer are the caller's to end.
        drop(tokio::time::timeout(patience, self.tasks.wait()).await);
        self.tasks.reopen();
    }

    /// Resolves when the group is cancelled.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn cancelled(&self) {
        self.cancelled.given().await;
    }

    /// Whether the group was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancelled.is_given()
    }

    /// Cancels every task of the group.
    pub fn cancel(&self) {
        self.cancelled.give();
    }

    /// How many tasks are running.
    pub fn len(&self) -> usize {
        self.tasks.len()
    }

    /// Whether no task is running.
    pub fn is_empty(&self) -> bool {
        self.tasks.is_empty()
    }

    /// Cancels, then waits until every task has ended or `grace` has passed. True when all ended.
    ///
    /// # Cancel safety
    /// Cancel safe: the group stays cancelled.
    pub async fn shut_down(&self, grace: Duration) -> bool {
        self.cancelled.give();
        self.tasks.close();
        tokio::time::timeout(grace, self.tasks.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancelled_group_ends_its_tasks_also_those_that_come_later() {
        let group = Group::new();
        group.spawn(std::future::pending());
        assert_eq!(group.len(), 1);
        assert!(group.shut_down(Duration::from_secs(5)).await);
        group.spawn(std::future::pending());
        assert!(group.shut_down(Duration::from_secs(5)).await);
        assert!(group.is_empty());
    }

    #[tokio::test]
    async fn a_signal_ends_work_that_is_busy_and_work_that_sleeps() {
        let signal = Signal::default();
        let mut polls = 0;
        let busy = poll_fn(|poller| {
            polls += 1;
            if polls == 3 {
                signal.give();
            }
            poller.waker().wake_by_ref();
            Poll::<()>::Pending
        });
        assert_eq!(signal.ends(pin!(busy)).await, None);
        assert_eq!(polls, 3);
        assert_eq!(signal.ends(pin!(async { 1 })).await, None, "it has happened");

        let signal = Signal::default();
        let (mut asleep, mut waiting) = (pin!(std::future::pending::<()>()), pin!(signal.given()));
        let (ended, (), ()) = tokio::join!(signal.ends(asleep.as_mut()), waiting.as_mut(), async {
            tokio::task::yield_now().await;
            signal.give();
        });
        assert_eq!(ended, None);
        assert_eq!(Signal::default().ends(pin!(async { 1 })).await, Some(1));
    }
}
