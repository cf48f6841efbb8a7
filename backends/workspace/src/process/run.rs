//! One process from its start to its end.
//!
//! In: what was started, and the wish to end it. Out: its output in files, and a [`State`] that others may watch. Whoever
//! holds a [`Process`] may look and ask; only its task, [`attend`], acts.

use std::{
    process::ExitStatus,
    sync::{
        Arc,
        atomic::{AtomicU32, Ordering},
    },
    time::{Duration, SystemTime},
};

use moongate_core::{Clock, SessionKey};
use moongate_launch::{Started, Supervisor};
use rustix::process::Signal;
use serde::Serialize;
use tokio::{
    sync::watch,
    time::{Instant, sleep_until, timeout},
};
use tracing::debug;

use super::output::{Output, Source};
use crate::room::Room;

/// How long a process that was asked to end has for it.
pub(crate) const GRACE: Duration = Duration::from_secs(3);
/// How long pipes are read after the end of a process. Nobody holds them then, unless the supervisor was killed.
const REST: Duration = Duration::from_secs(1);

/// How far a process is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Status {
    /// It is about to run.
    Starting,
    /// It runs.
    Running,
    /// It ended with status 0.
    Finished,
    /// It ended otherwise.
    Failed,
    /// It was ended by us.
    Killed,
}

impl Status {
    pub(crate) fn is_over(self) -> bool {
        matches!(self, Self::Finished | Self::Failed | Self::Killed)
    }

    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Starting => "starting",
            Self::Running => "running",
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Killed => "killed",
        }
    }
}

/// What can be said about a process at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct State {
    pub(crate) status: Status,
    pub(crate) pid: Option<i32>,
    pub(crate) exit_code: Option<i32>,
    pub(crate) finished_at: Option<SystemTime>,
    pub(crate) timed_out: bool,
}

/// How a process is to end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wish {
    GoOn,
    Terminate,
    Kill,
}

/// A process of a session.
#[derive(Debug)]
pub(crate) struct Process {
    pub(crate) id: String,
    pub(crate) session: SessionKey,
    pub(crate) command: String,
    pub(crate) started_at: SystemTime,
    pub(crate) output: Output,
    state: watch::Sender<State>,
    wish: watch::Sender<Wish>,
    /// How often in a row it was asked about and found running.
    polls: AtomicU32,
}

/// Ends a process that nobody waits for any more.
pub(crate) struct KillOnDrop(pub(crate) Arc<Process>);

impl Drop for KillOnDrop {
    fn drop(&mut self) {
        self.0.kill();
    }
}

impl Process {
    pub(crate) fn new(
        id: String,
        session: SessionKey,
        command: String,
        output: Output,
        started_at: SystemTime,
    ) -> Self {
        let state = State {
            status: Status::Starting,
            pid: None,
            exit_code: None,
            finished_at: None,
            timed_out: false,
        };
        let (state, wish) = (watch::Sender::new(state), watch::Sender::new(Wish::GoOn));
        Self { id, session, command, started_at, output, state, wish, polls: AtomicU32::new(0) }
    }

    pub(crate) fn state(&self) -> State {
        *self.state.borrow()
    }

    pub(crate) fn is_over(&self) -> bool {
        self.state().status.is_over()
    }

    /// It runs from now on.
    pub(crate) fn begin(&self, pid: i32) {
        self.state.send_modify(|state| (state.status, state.pid) = (Status::Running, Some(pid)));
    }

    /// It has ended.
    pub(crate) fn finish(&self, state: State) {
        self.state.send_replace(state);
    }

    /// Resolves when it has ended.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn ended(&self) -> State {
        let mut state = self.state.subscribe();
        let ended = state.wait_for(|state| state.status.is_over()).await.map(|state| *state);
        // The sender is ours, so there is always one.
        ended.unwrap_or_else(|_| self.state())
    }

    /// Asks it to end, and kills it if it does not.
    pub(crate) fn terminate(&self) {
        self.wish.send_if_modified(|wish| raise(wish, Wish::Terminate));
    }

    /// Kills it.
    pub(crate) fn kill(&self) {
        self.wish.send_if_modified(|wish| raise(wish, Wish::Kill));
    }

    /// Counts that somebody asked, and says how often in a row it was running then.
    pub(crate) fn polled(&self) -> u32 {
        if self.is_over() {
            self.polls.store(0, Ordering::Relaxed);
            return 0;
        }
        self.polls.fetch_add(1, Ordering::Relaxed) + 1
    }
}

fn raise(wish: &mut Wish, to: Wish) -> bool {
    let raised = *wish < to;
    *wish = (*wish).max(to);
    raised
}

/// What a process may take beside what its supervisor sees to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Bounds {
    /// Bytes of each stream.
    pub(crate) output: u64,
    /// How long it may run.
    pub(crate) wall: Option<Duration>,
}

/// Stays with a process until it has ended. Dropping this kills it.
pub(crate) async fn attend(
    process: Arc<Process>,
    started: Started,
    bounds: Bounds,
    clock: Clock,
    room: Room,
) {
    let Started { mut supervisor, stdout, stderr, .. } = started;
    let pid = Some(supervisor.report.pid);
    let kept = Arc::clone(&process);
    // They hold the pipes: dropping them is how the supervisor is told to kill everything.
    let mut pipes = Box::pin(async move {
        let [out, err] = [Source::Stdout, Source::Stderr].map(|source| kept.output.stream(source));
        tokio::join!(out.keep(stdout, bounds.output), err.keep(stderr, bounds.output));
    });
    let end = follow(&process, &mut supervisor, pipes.as_mut(), bounds.wall).await;
    let ended = match end {
        End::Ended(status) => status,
        End::Overdue | End::Unwanted => {
            drop(pipes);
            supervisor.end().await
        }
    };
    let timed_out = matches!(end, End::Overdue);
    let stopped = timed_out || *process.wish.borrow() != Wish::GoOn;
    let exit_code = ended.and_then(|status| status.code());
    debug!(process = %process.id, ?exit_code, stopped, timed_out, "a process has ended");
    let status = match exit_code {
        _ if stopped => Status::Killed,
        Some(0) => Status::Finished,
        _ => Status::Failed,
    };
    drop(room);
    process.finish(State { status, pid, exit_code, finished_at: Some(clock.now()), timed_out });
}

/// How it came to an end, or what there is to be one for.
enum End {
    Ended(Option<ExitStatus>),
    Overdue,
    Unwanted,
}

async fn follow(
    process: &Process,
    supervisor: &mut Supervisor,
    mut pipes: std::pin::Pin<&mut impl Future<Output = ()>>,
    wall: Option<Duration>,
) -> End {
    let mut wish = process.wish.subscribe();
    let mut seen = Wish::GoOn;
    let mut silent = false;
    let overdue = wall.map(|wall| Instant::now() + wall);
    let mut grace = None;
    loop {
        tokio::select! {
            () = &mut pipes, if !silent => silent = true,
            status = supervisor.wait() => {
                if !silent {
                    drop(timeout(REST, pipes).await);
                }
                return End::Ended(status);
            }
            () = at(overdue) => return End::Overdue,
            () = at(grace) => return End::Unwanted,
            wished = wished(&mut wish, seen) => match wished {
                Wish::Kill => return End::Unwanted,
                wished => {
                    seen = wished;
                    supervisor.signal(Signal::TERM);
                    grace = Some(Instant::now() + GRACE);
                }
            },
        }
    }
}

/// Resolves when more is wished for than `seen`.
async fn wished(wish: &mut watch::Receiver<Wish>, seen: Wish) -> Wish {
    match wish.wait_for(|wish| *wish > seen).await.map(|wish| *wish) {
        Ok(wish) => wish,
        Err(_) => std::future::pending().await,
    }
}

async fn at(time: Option<Instant>) {
    match time {
        Some(time) => sleep_until(time).await,
        None => std::future::pending().await,
    }
}
