//! How long a request to a server takes, counted however it ends: also when nobody waits for it any more. What was wrong
//! with the server is kept for people.

use moongate_core::Reply;
use moongate_telemetry::{ErrorType, Upstream};
use tokio::time::Instant;

use super::slot::Slot;
use crate::{client::Failure, transport::Fault};

/// A request under way. Dropping it counts the request as given up.
pub(super) struct Timing<'a> {
    metrics: &'a Upstream,
    slot: &'a Slot,
    method: &'static str,
    began: Instant,
    deadline: Instant,
    over: bool,
}

impl<'a> Timing<'a> {
    /// A request of `method` is sent by the connection of `slot`, which its caller waits for until `deadline`.
    pub(super) fn begin(
        metrics: &'a Upstream,
        slot: &'a Slot,
        method: &'static str,
        deadline: Instant,
    ) -> Self {
        Self { metrics, slot, method, began: Instant::now(), deadline, over: false }
    }

    /// It has ended so.
    pub(super) fn end(mut self, outcome: &Result<Reply, Failure>) {
        self.over = true;
        self.count(outcome.as_ref().err().map(Failure::kind));
        if let Some(fault) = outcome.as_ref().err().and_then(Failure::blame) {
            self.slot.troubled(&fault);
        }
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
            if late {
                let (method, seconds) = (self.method, self.began.elapsed().as_secs_f32());
                let what = format!("it did not answer {method} within {seconds:.1} s");
                self.slot.troubled(&Fault::Lost(what.into()));
            }
        }
    }
}
