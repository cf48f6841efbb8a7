//! How long a request to a server takes, counted however it ends: also when nobody waits for it any more.

use moongate_core::Reply;
use moongate_telemetry::{ErrorType, Upstream};
use tokio::time::Instant;

use crate::client::Failure;

/// A request under way. Dropping it counts the request as given up.
pub(super) struct Timing<'a> {
    metrics: &'a Upstream,
    method: &'static str,
    began: Instant,
    deadline: Instant,
    over: bool,
}

impl<'a> Timing<'a> {
    /// A request of `method` is sent, which its caller waits for until `deadline`.
    pub(super) fn begin(metrics: &'a Upstream, method: &'static str, deadline: Instant) -> Self {
        Self { metrics, method, began: Instant::now(), deadline, over: false }
    }

    /// It has ended so.
    pub(super) fn end(mut self, outcome: &Result<Reply, Failure>) {
        self.over = true;
        self.count(outcome.as_ref().err().map(Failure::kind));
    }

    fn count(&self, error: Option<ErrorType>) {
        self.metrics.observe(self.method, self.began.elapsed(), error);
    }
}

impl Drop for Timing<'_> {
    fn drop(&mut self) {
        if !self.over {
            let late = Instant::now() >= self.deadline;
            self.count(Some(if late { ErrorType::Timeout } else { ErrorType::Cancelled }));
        }
    }
}
