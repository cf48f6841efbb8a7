//! Keeps the measured and the measuring apart: one core each.
//!
//! A process inherits the cores of the thread that starts it, so whoever starts a server moves to the server's core for
//! as long as that takes. A server pinned this way also sees only one core, and starts one worker thread.

use std::future::Future;

use anyhow::{Context as _, Result};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};

/// The cores this process may use.
#[derive(Clone, Debug)]
pub struct Cores {
    all: CpuSet,
    /// The server's and the load's; none on a machine with a single core.
    pair: Option<(usize, usize)>,
}

impl Cores {
    /// Looks up what this process may use.
    pub fn find() -> Result<Self> {
        let all = sched_getaffinity(None).context("cannot read which cores may be used")?;
        let mut usable = (0..CpuSet::MAX_CPU).filter(|core| all.is_set(*core));
        let pair = usable.next().zip(usable.next());
        Ok(Self { all, pair })
    }

    /// Starts a server on its core, then moves this thread to the core of the load.
    pub async fn start<T>(&self, server: impl Future<Output = Result<T>>) -> Result<T> {
        let Some((first, second)) = self.pair else { return server.await };
        pin(first)?;
        let started = server.await;
        pin(second)?;
        started
    }

    /// Lets this thread, and what it starts from now on, use every core again.
    pub fn release(&self) -> Result<()> {
        sched_setaffinity(None, &self.all).context("cannot use all cores again")
    }

    /// The core of the load, for a server that is to share it.
    pub fn load(&self) -> Option<usize> {
        self.pair.map(|(_, load)| load)
    }

    /// How many there are.
    pub fn count(&self) -> u32 {
        self.all.count()
    }

    /// A sentence for the results.
    pub fn describe(&self) -> &'static str {
        match self.pair {
            Some(_) => "Servers run on one core, the load generator on another.",
            None => "There is a single core: servers and load share it, which makes every ratio worthless.",
        }
    }
}

/// Moves this thread, and what it starts from now on, to a core.
pub fn pin(core: usize) -> Result<()> {
    let mut one = CpuSet::new();
    one.set(core);
    sched_setaffinity(None, &one).with_context(|| format!("cannot move to core {core}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_server_starts_on_another_core_than_the_load() {
        let cores = Cores::find().unwrap();
        let here = || async { Ok(sched_getaffinity(None)?) };
        let server = cores.start(here()).await.unwrap();
        let load = here().await.unwrap();
        if cores.pair.is_some() {
            assert_eq!((server.count(), load.count()), (1, 1));
            assert_ne!(server, load);
        }
        cores.release().unwrap();
        assert_eq!(here().await.unwrap(), cores.all);
    }
}
