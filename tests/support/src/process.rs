//! A running process of a test: signals, its end, its stderr. Killed when dropped.

use std::{
    path::PathBuf,
    process::{ExitStatus, Stdio as Pipe},
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};

use crate::Output;

/// How long the end of stderr may lag behind the end of the process: a child that outlives it may hold the stream.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// A child process whose stderr is kept. When a test panics, the stderr is printed with the test's own output.
#[derive(Debug)]
pub struct Process {
    name: String,
    pid: u32,
    child: Child,
    stderr: Output,
}

impl Process {
    /// Starts `command`; its stdin and stdout are closed unless the caller has set them.
    pub fn spawn(command: &mut Command) -> Result<Self> {
        let program = PathBuf::from(command.as_std().get_program());
        let name = program.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let mut child = command
            .stderr(Pipe::piped())
            .kill_on_drop(true)
            .spawn()
            .with_context(|| format!("{} did not start", program.display()))?;
        let pid = child.id().context("a process that just started has an id")?;
        let stderr = Output::collect(child.stderr.take().context("stderr was asked for")?);
        Ok(Self { name, pid, child, stderr })
    }

    /// The process id, also after the process has ended.
    pub fn pid(&self) -> u32 {
        self.pid
    }

    /// Its stderr.
    pub fn stderr(&self) -> &Output {
        &self.stderr
    }

    /// Its stdin, once, if the command asked for a pipe.
    pub fn take_stdin(&mut self) -> Option<ChildStdin> {
        self.child.stdin.take()
    }

    /// Its stdout, once, if the command asked for a pipe.
    pub fn take_stdout(&mut self) -> Option<ChildStdout> {
        self.child.stdout.take()
    }

    /// Sends `signal`; an error when the process has already been waited for.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        let running = self.child.id().context("the process has ended")?;
        let pid = i32::try_from(running).ok().and_then(Pid::from_raw).context("a process id is positive")?;
        kill_process(pid, signal).with_context(|| format!("{signal:?} to {} did not work", self.name))
    }

    /// Waits for the end of the process, at most `limit`. What it said last is then in [`Process::stderr`], unless a child
    /// of its own keeps the stream open.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        match tokio::time::timeout(limit, self.child.wait()).await {
            Ok(status) => {
                drop(tokio::time::timeout(LAST_WORDS, self.stderr.ended()).await);
                status.map_err(Into::into)
            }
            Err(_) => bail!("{} still runs after {limit:?}; it said:\n{}", self.name, self.stderr.text()),
        }
    }

    /// Whether the process is still running.
    pub fn is_running(&mut self) -> Result<bool> {
        Ok(self.child.try_wait()?.is_none())
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.pid))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).context("no VmRSS line")?;
        let kibibytes = line.trim().strip_suffix(" kB").context("VmRSS is not in kB")?;
        Ok(kibibytes.parse::<u64>()? * 1024)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("--- stderr of {} ({}) ---\n{}---", self.name, self.pid, self.stderr.text());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_process_is_signalled_waited_for_and_measured() {
        let mut process = Process::spawn(Command::new("cat").stdin(Pipe::piped())).unwrap();
        assert!(process.is_running().unwrap());
        assert!(process.resident().unwrap() > 0);
        process.signal(Signal::TERM).unwrap();
        let status = process.wait(crate::PATIENCE).await.unwrap();
        assert_eq!(std::os::unix::process::ExitStatusExt::signal(&status), Some(15));
        assert!(process.signal(Signal::TERM).is_err(), "an ended process is never signalled");
    }

    #[tokio::test]
    async fn waiting_too_long_names_the_process_and_what_it_said() {
        let mut command = Command::new("sh");
        let script = "echo stuck >&2; exec tail -f /dev/null";
        let mut process = Process::spawn(command.args(["-c", script])).unwrap();
        process.stderr().line(|line| line == "stuck").await.unwrap();
        let error = process.wait(Duration::from_millis(1)).await.unwrap_err().to_string();
        assert!(error.contains("sh still runs") && error.contains("stuck"), "{error}");
    }
}
