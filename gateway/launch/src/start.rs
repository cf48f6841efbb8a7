//! The gateway's side: starts a supervisor, hears its report, and sees to its end.

use std::{
    ffi::OsString,
    io,
    path::PathBuf,
    process::{ExitStatus, Stdio},
    time::Duration,
};

use rustix::process::{Pid, Signal, getpid, kill_process_group};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, BufReader},
    process::{Child, ChildStderr, ChildStdin, ChildStdout, Command},
    time::timeout,
};
use tracing::warn;

use crate::{
    Confinement, Limits, fence,
    supervise::{self, Notice, Order, Report},
};

/// How long the supervisor's first line may be.
const LONGEST_REPORT: u64 = 64 << 10;
/// How long the supervisor has for killing everything.
const CUT: Duration = Duration::from_secs(3);

/// A command, and how to run it.
#[derive(Clone, Debug)]
pub struct Launch {
    /// Our own executable, whose `main` asks [`launched`](crate::launched) first.
    pub launcher: PathBuf,
    /// The program's file.
    pub program: PathBuf,
    /// What the program is told that it was called.
    pub name: OsString,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// All of its environment.
    pub environment: Vec<(OsString, OsString)>,
    /// Where it runs.
    pub directory: PathBuf,
    /// What it may use.
    pub limits: Limits,
    /// Where it is confined to, if it is.
    pub confinement: Option<Confinement>,
}

/// What the command reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Input {
    /// What it is written.
    Piped,
    /// Nothing.
    Empty,
}

/// A command that is about to run.
#[derive(Debug)]
pub struct Started {
    /// Who stays beside it.
    pub supervisor: Supervisor,
    /// There if it was asked for.
    pub stdin: Option<ChildStdin>,
    /// What the command writes. Dropping this does not end it.
    pub stdout: ChildStdout,
    /// What the command writes for people. Dropping this ends it, and all that it has started.
    pub stderr: BufReader<ChildStderr>,
}

/// The process beside a command.
#[derive(Debug)]
pub struct Supervisor {
    child: Child,
    /// What it said before the command ran.
    pub report: Report,
}

/// A command could not be started.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Our own program does not start.
    #[error("cannot start {launcher}: {source}", launcher = .launcher.display())]
    Launcher {
        /// Its file.
        launcher: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// The order cannot be written down.
    #[error("the order cannot be written: {0}")]
    Order(#[from] serde_json::Error),
    /// It started without the pipes it was given.
    #[error("the process has no pipes")]
    NoPipes,
    /// Its first line cannot be read.
    #[error("the supervisor cannot be heard: {0}")]
    Unheard(io::Error),
    /// It says so.
    #[error("cannot start the process: {0}")]
    Refused(String),
    /// It says something else.
    #[error("the supervisor did not start: {0}")]
    Strange(String),
}

impl Launch {
    /// Starts the command, and waits until it is about to run.
    ///
    /// # Cancel safety
    /// Dropping the future closes standard error, whereupon the supervisor kills what it has started.
    pub async fn start(self, input: Input) -> Result<Started, Error> {
        let gateway = getpid().as_raw_nonzero().get();
        let order = Order { gateway, limits: self.limits, confinement: self.confinement };
        let mut command = Command::new(&self.launcher);
        command.args(supervise::arguments(&order)?).arg(self.program).arg(self.name).args(self.args);
        command.env_clear().envs(self.environment).current_dir(self.directory);
        // Keys pressed at our terminal are for us, not for the supervisor.
        command.process_group(0);
        command.stdin(match input {
            Input::Piped => Stdio::piped(),
            Input::Empty => Stdio::null(),
        });
        command.stdout(Stdio::piped()).stderr(Stdio::piped());
        let launcher = self.launcher;
        let mut child = command.spawn().map_err(|source| Error::Launcher { launcher, source })?;
        let stdin = child.stdin.take();
        let (Some(stdout), Some(stderr)) = (child.stdout.take(), child.stderr.take()) else {
            return Err(Error::NoPipes);
        };
        let mut stderr = BufReader::new(stderr);
        let report = report(&mut stderr).await?;
        Ok(Started { supervisor: Supervisor { child, report }, stdin, stdout, stderr })
    }
}

/// Reads the supervisor's first line. The rest is the command's.
async fn report(stderr: &mut BufReader<ChildStderr>) -> Result<Report, Error> {
    let mut line = Vec::new();
    stderr.take(LONGEST_REPORT).read_until(b'\n', &mut line).await.map_err(Error::Unheard)?;
    let line = String::from_utf8_lossy(&line);
    match Notice::read(&line) {
        Some(Notice::Ready(report)) => Ok(report),
        Some(Notice::Failed(reason)) => Err(Error::Refused(reason)),
        None => Err(Error::Strange(line.trim_end().to_owned())),
    }
}

impl Supervisor {
    /// Waits for the end of the command and of all that it has started.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&mut self) -> Option<ExitStatus> {
        let status = self.child.wait().await.ok()?;
        if status.code().is_none() {
            warn!(pid = self.report.pid, "a supervisor was killed");
            self.clear_up();
        }
        Some(status)
    }

    /// Sees to it that everything is killed. To be called once standard error is dropped, which is how a supervisor is
    /// told to.
    pub async fn end(&mut self) -> Option<ExitStatus> {
        if let Ok(status) = timeout(CUT, self.wait()).await {
            return status;
        }
        warn!(pid = self.report.pid, "a supervisor does not end; killing it");
        // It ends now, or hangs in the kernel, where nobody can do anything about it.
        drop(timeout(CUT, self.child.kill()).await);
        self.clear_up();
        None
    }

    /// Signals the command's group. Its id stays its own until its supervisor, which is our child, has ended.
    pub fn signal(&self, signal: Signal) {
        if let Some(group) = Pid::from_raw(self.report.pid) {
            let _gone = kill_process_group(group, signal).is_err();
        }
    }

    /// What is left to do where a supervisor was killed and could not clear up itself.
    fn clear_up(&self) {
        self.signal(Signal::KILL);
        self.report.groups.iter().for_each(|group| fence::raze(group));
    }
}
