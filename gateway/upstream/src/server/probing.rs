//! Looks again, from time to time, whether a server that was found to be legacy still is.
//!
//! A modern server that is not modern any more says so with the next request; a legacy one that has become modern works on
//! as it did, and nobody would ever know. So it is asked: after a day, and when it calls itself by another version. By a
//! process or a request of its own, beside the calls and never in their way; the answer is for the next connection.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{Arc, Mutex, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{EraChoice, Inner, START_LIMIT, lock};
use crate::client::{self, Hearing, Open, Verdict};

/// How long a found era is believed without asking again.
const VERDICT_LIFE: Duration = Duration::from_hours(24);
/// At most so much longer, so that servers that were started together are not asked together.
const SPREAD: Duration = Duration::from_hours(1);
/// The longest pause before one is asked: many may have become due while the gateway did not run.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);
/// How long one is left alone that did not say anything about it.
const PATIENCE: Duration = Duration::from_hours(1);

/// What is going on.
#[derive(Debug, Default)]
pub(crate) struct Probing(Mutex<Next>);

#[derive(Debug, Default)]
enum Next {
    /// Nothing.
    #[default]
    Any,
    /// Somebody is asking.
    Busy,
    /// Nobody asks before this time.
    After(Instant),
}

impl Inner {
    /// Asks the server, in a task, if it is time to, or if it `changed`.
    pub(super) async fn probe_if_due(self: &Arc<Self>, changed: bool) {
        if !self.is_doubtful(changed).await || self.stopping.is_given() {
            return;
        }
        // Nobody starts a process to ask a server that nobody uses.
        if !self.all_slots().iter().any(|slot| slot.is_running()) {
            return;
        }
        {
            let mut next = lock(&self.probing.0);
            let early = match *next {
                Next::Any => false,
                Next::Busy => true,
                Next::After(time) => !changed && Instant::now() < time,
            };
            if early {
                return;
            }
            *next = Next::Busy;
        }
        let probe = Probe(Arc::clone(self));
        self.tasks.spawn(async move {
            tokio::time::sleep(LONGEST_PAUSE.mul_f64(random())).await;
            probe.run().await;
        });
    }

    /// Whether the server was found to be legacy, and that was too long ago or before it `changed`.
    async fn is_doubtful(&self, changed: bool) -> bool {
        if self.settings().era != EraChoice::Auto {
            return false;
        }
        let now = self.clock.millis();
        let known = lock(self.known().await);
        known.as_ref().is_some_and(|known| {
            let age = Duration::from_millis(now.saturating_sub(known.at));
            !known.verdict.modern && known.at > 0 && (changed || age >= VERDICT_LIFE)
        })
    }
}

/// One question, whatever becomes of it.
struct Probe(Arc<Inner>);

impl Probe {
    async fn run(self) {
        let inner = &self.0;
        let hearing = || Hearing::new(Arc::clone(&inner.name), Open::default(), inner.tasks.clone(), |_| {});
        let probing = client::probe(&*inner.reach.main, hearing, &inner.tasks);
        let modern = match tokio::time::timeout(START_LIMIT, probing).await {
            Ok(Ok(modern)) => modern,
            Ok(Err(fault)) => return tracing::debug!(upstream = &*inner.name, %fault, "its era is not known"),
            Err(_) => {
                return tracing::debug!(upstream = &*inner.name, "its era is not known: it did not start");
            }
        };
        // So that those that were asked together are not the next time.
        let spread = u64::try_from(SPREAD.mul_f64(random()).as_millis()).unwrap_or(0);
        let now = inner.clock.millis();
        let mut apart = false;
        inner
            .learn(|known| {
                apart = known.asks || known.asks_roots;
                known.at = now.saturating_add(spread);
                if modern {
                    known.verdict = Verdict { modern, old_sse: false };
                }
            })
            .await;
        if modern {
            // Those of a server that asks are for one caller each, and not found by what is known of a modern one.
            inner.became_modern.store(!apart, Ordering::Relaxed);
            tracing::info!(
                upstream = &*inner.name,
                "has become modern; the next connection speaks 2026-07-28"
            );
        }
    }
}

impl Drop for Probe {
    fn drop(&mut self) {
        *lock(&self.0.probing.0) = Next::After(Instant::now() + PATIENCE);
    }
}

/// From 0 to 1. A new hasher is keyed at random.
fn random() -> f64 {
    let thousandths = u16::try_from(RandomState::new().hash_one(0) % 1000).unwrap_or(0);
    f64::from(thousandths) / 1000.0
}
