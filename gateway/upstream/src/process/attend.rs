//! Stays with a process until its end, and sees to it that there is one.
//!
//! In: the supervisor, what its pipes tell, and the wish to close. Out: the reason for the end, to whoever waits for the
//! process, and no process that is left over.

use std::{process::ExitStatus, sync::Arc, time::Duration};

use moongate_launch::{SIGNALLED, Supervisor};
use rustix::process::Signal as Kill;
use tokio::{
    sync::{mpsc, watch},
    time::timeout,
};
use tracing::debug;

use super::connection::Shared;
use crate::transport::Fault;

/// How long a process whose pipe ended has to end, so that its status can be told.
const EXPLANATION: Duration = Duration::from_millis(500);
/// How long pipes are read after the end of the process. Nobody holds them then, unless the supervisor was killed.
const REST: Duration = Duration::from_secs(1);
/// How much of the last words is told to callers.
const WORDS: usize = 200;

/// See the module.
pub(super) struct Attendant {
    pub(super) supervisor: Supervisor,
    pub(super) shared: Arc<Shared>,
    /// Why a pipe is of no use.
    pub(super) breaks: mpsc::Receiver<Fault>,
    /// How long the end may take, once it is asked for.
    pub(super) close: watch::Receiver<Option<Duration>>,
}

/// Tells whoever waits that the process is gone, also when the task is cancelled.
struct Farewell(Arc<Shared>);

impl Drop for Farewell {
    fn drop(&mut self) {
        let Self(shared) = self;
        shared.pending.close(&Fault::Lost("the connection was closed".into()));
        shared.finish.give();
        shared.cut.give();
        shared.gone.give();
    }
}

impl Attendant {
    pub(super) async fn attend(mut self) {
        let _farewell = Farewell(Arc::clone(&self.shared));
        let shared = Arc::clone(&self.shared);
        let status = tokio::select! {
            status = self.supervisor.wait() => status,
            Some(fault) = self.breaks.recv() => self.broken(fault).await,
            grace = asked(&mut self.close) => self.end(grace).await,
            () = shared.cut.given() => None,
        };
        match status {
            Some(status) => self.explain(status).await,
            None => self.cut().await,
        }
    }

    /// A pipe is of no use. Mostly because the process ends, whose status says more.
    async fn broken(&mut self, fault: Fault) -> Option<ExitStatus> {
        if matches!(fault, Fault::Lost(_))
            && let Ok(Some(status)) = timeout(EXPLANATION, self.supervisor.wait()).await
        {
            return Some(status);
        }
        self.shared.pending.close(&fault);
        None
    }

    /// Asks the process to end: first by closing its input, then by a signal.
    async fn end(&mut self, grace: Duration) -> Option<ExitStatus> {
        self.shared.pending.close(&Fault::Lost("the connection was closed".into()));
        self.shared.finish.give();
        if let Ok(status) = timeout(grace / 3, self.supervisor.wait()).await {
            return status;
        }
        self.supervisor.signal(Kill::TERM);
        timeout(grace / 3 * 2, self.supervisor.wait()).await.ok()?
    }

    /// Has everything killed.
    async fn cut(&mut self) {
        self.shared.pending.close(&Fault::Lost("the connection was closed".into()));
        self.shared.finish.give();
        self.shared.cut.give();
        self.supervisor.end().await;
    }

    /// Tells why the process ended, once everything it wrote was read.
    async fn explain(&mut self, status: ExitStatus) {
        let [stdout, stderr] = &self.shared.silent;
        // Not longer: if the supervisor was killed, others may hold the pipes.
        drop(timeout(REST, async { tokio::join!(stdout.given(), stderr.given()) }).await);
        let garbled = std::iter::from_fn(|| self.breaks.try_recv().ok())
            .find(|fault| matches!(fault, Fault::Garbled(_)));
        let fault = match (garbled, self.shared.not_run()) {
            (Some(fault), _) => fault,
            (None, Some(reason)) => Fault::Unreached(format!("cannot start the process: {reason}").into()),
            (None, None) => {
                let words = self.shared.last_words().map(|words| shortened(&words)).unwrap_or_default();
                let words = if words.is_empty() { words } else { format!("; its last words: {words}") };
                Fault::Lost(format!("{}{words}", ended(status)).into())
            }
        };
        debug!(upstream = %self.shared.name, pid = self.supervisor.report.pid, reason = %fault, "the process ended");
        self.shared.pending.close(&fault);
    }
}

/// Resolves when the end is asked for, which it may never be.
async fn asked(close: &mut watch::Receiver<Option<Duration>>) -> Duration {
    match close.wait_for(Option::is_some).await.ok().and_then(|asked| *asked) {
        Some(grace) => grace,
        // The connection was dropped, which is told otherwise.
        None => std::future::pending().await,
    }
}

fn ended(status: ExitStatus) -> String {
    match status.code() {
        Some(code) if code > SIGNALLED => format!("the process was ended by signal {}", code - SIGNALLED),
        Some(code) => format!("the process exited with status {code}"),
        None => "the process was ended with its supervisor".to_owned(),
    }
}

fn shortened(words: &str) -> String {
    match words.char_indices().nth(WORDS) {
        Some((end, _)) => format!("{}…", words.get(..end).unwrap_or_default()),
        None => words.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt as _;

    use super::*;

    #[test]
    fn an_end_is_told_in_words() {
        let told = |raw: i32| ended(ExitStatus::from_raw(raw));
        assert_eq!(told(1 << 8), "the process exited with status 1");
        assert_eq!(told(137 << 8), "the process was ended by signal 9");
        assert_eq!(told(9), "the process was ended with its supervisor");
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"ä".repeat(400)).chars().count(), WORDS + 1);
    }
}
