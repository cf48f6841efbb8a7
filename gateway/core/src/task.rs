//! Every task has an owner: a group that cancels and awaits what it started.

use std::{future::Future, time::Duration};

use tokio_util::{sync::CancellationToken, task::TaskTracker};

/// A set of tasks with a common end.
#[derive(Clone, Debug, Default)]
pub struct Group {
    tasks: TaskTracker,
    cancel: CancellationToken,
}

impl Group {
    /// An empty group.
    pub fn new() -> Self {
        Self::default()
    }

    /// A group that ends with this one, or earlier.
    #[must_use]
    pub fn child(&self) -> Self {
        Self { tasks: TaskTracker::new(), cancel: self.cancel.child_token() }
    }

    /// Runs `task` until it ends or the group is cancelled, whichever is first.
    pub fn spawn(&self, task: impl Future<Output = ()> + Send + 'static) {
        let cancel = self.cancel.clone();
        // On the heap, because racing a future moves it: the task would have room for it twice.
        let task = Box::pin(task);
        self.tasks.spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = task => {}
            }
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
        self.cancel.cancelled().await;
    }

    /// Whether the group was cancelled.
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    /// Cancels every task of the group and of its children.
    pub fn cancel(&self) {
        self.cancel.cancel();
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
        self.cancel.cancel();
        self.tasks.close();
        tokio::time::timeout(grace, self.tasks.wait()).await.is_ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_cancelled_group_ends_its_tasks_and_its_childrens() {
        let group = Group::new();
        let child = group.child();
        group.spawn(std::future::pending());
        child.spawn(std::future::pending());
        assert!(group.shut_down(Duration::from_secs(5)).await);
        assert!(child.shut_down(Duration::from_secs(5)).await);
    }
}
