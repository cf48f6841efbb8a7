//! The supervisor of a command: `moongate __launch`.
//!
//! A gateway that is killed cannot clean up, and a death signal reaches one process only: `npx` would leave its `sh` and
//! `node` alive. So between the gateway and each command stays a process of our own, single-threaded and without a
//! runtime, that inherits every orphan of the command (it is their subreaper) and waits for one of three things: the
//! command ends, the gateway ends, or the gateway lets go of standard error. Then it kills whatever is left below it.
//!
//! In: an [`Order`] and the command line, as arguments; the command's environment as its own, so that no secret is in a
//! list of processes. Out: the command with the standard streams of the supervisor, a [`Report`] as the first line on
//! standard error, and the command's status as the supervisor's.
//!
//! It runs in two steps. Limits and the death signal can be set only by the process they are for, or in a forked child
//! before it becomes the command, which is `unsafe`. So the supervisor starts this program once more as `exec`, which
//! prepares itself and then becomes the command under the same process id. Limits set on the supervisor would be
//! inherited too, but would hit the supervisor first.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, Write as _},
    os::{fd::OwnedFd, unix::process::CommandExt as _},
    path::PathBuf,
    process::{Command, ExitCode},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    io::Errno,
    process::{
        Pid, Signal, WaitOptions, WaitStatus, getpid, getppid, kill_process, kill_process_group, setsid, wait,
    },
    stdio::{dup2_stdin, dup2_stdout},
};
use serde::{Deserialize, Serialize, de::DeserializeOwned};

use crate::{
    Confinement, Limits, SIGNALLED,
    confine::Outcome,
    fence::{Fence, Gate},
    tree::Sight,
};

/// The command of the gateway's executable that runs this file. Not for people, and in no help.
const COMMAND: &str = "__launch";
const SUPERVISE: &str = "supervise";
const EXEC: &str = "exec";

/// What the lines of ours on standard error begin with.
const MARK: &str = "moongate-launch ";
const FAILED: &str = "failed: ";

/// What shells answer with for a command that cannot be run.
const NOT_RUN: u8 = 127;

/// How often orphans are reaped, and limits looked at that nothing else enforces.
const TICK: Timespec = Timespec { tv_sec: 0, tv_nsec: 100_000_000 };
/// How often orphans are reaped when nothing needs to be watched.
const SLOW_TICK: Timespec = Timespec { tv_sec: 1, tv_nsec: 0 };
/// How long to wait for children that die before looking again.
const MOMENT: Timespec = Timespec { tv_sec: 0, tv_nsec: 1_000_000 };

/// What the gateway asks of a supervisor.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Order {
    /// The process that must be alive.
    pub(crate) gateway: i32,
    pub(crate) limits: Limits,
    pub(crate) confinement: Option<Confinement>,
}

/// What the second step does to itself before it becomes the command.
#[derive(Debug, Serialize, Deserialize)]
struct Preparation {
    supervisor: i32,
    limits: Limits,
    confinement: Option<Confinement>,
    fence: Fence,
}

/// What the gateway is told before the command runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Report {
    /// The command's process, and its group.
    pub pid: i32,
    /// How limits are enforced.
    pub notes: Vec<String>,
    /// Where in the control group file systems the command is.
    pub groups: Vec<PathBuf>,
    /// What of the confinement could not be enforced.
    pub unconfined: Vec<String>,
}

/// A line of ours on standard error.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Notice {
    /// The command is about to run.
    Ready(Report),
    /// It was not run.
    Failed(String),
}

impl Notice {
    /// Reads a line, unless it is the command's own.
    pub fn read(line: &str) -> Option<Self> {
        let text = line.trim_end().strip_prefix(MARK)?;
        match text.strip_prefix(FAILED) {
            Some(reason) => Some(Self::Failed(reason.to_owned())),
            None => serde_json::from_str(text).ok().map(Self::Ready),
        }
    }

    /// In one write, so that it stays one line whoever else writes.
    fn write(&self) {
        let text = match self {
            Self::Ready(report) => serde_json::to_string(report).unwrap_or_default(),
            Self::Failed(reason) => format!("{FAILED}{reason}"),
        };
        say(&format!("{MARK}{text}"));
    }
}

/// The arguments with which a supervisor of this command is started.
pub(crate) fn arguments(order: &Order) -> Result<[OsString; 3], serde_json::Error> {
    Ok([COMMAND.into(), SUPERVISE.into(), serde_json::to_string(order)?.into()])
}

/// Runs as a supervisor if this process was started as one, and says with which status it ends. To be asked before
/// anything else in `main`: a supervisor has one thread and reads no configuration.
pub fn launched() -> Option<ExitCode> {
    let mut arguments = std::env::args_os().skip(1);
    arguments.next().filter(|command| command == COMMAND)?;
    let code = run(arguments.collect()).unwrap_or_else(|reason| {
        Notice::Failed(reason).write();
        NOT_RUN
    });
    Some(ExitCode::from(code))
}

fn run(arguments: Vec<OsString>) -> Result<u8, String> {
    let mut arguments = arguments.into_iter();
    let step = arguments.next().ok_or("no step is given")?;
    let settings = arguments.next().ok_or("no settings are given")?;
    let command: Vec<_> = arguments.collect();
    match step.to_str() {
        Some(SUPERVISE) => supervise(&read(&settings)?, command),
        Some(EXEC) => become_command(&read(&settings)?, command),
        _ => Err("this is started by the gateway only".to_owned()),
    }
}

fn read<T: DeserializeOwned>(settings: &OsString) -> Result<T, String> {
    let text = settings.to_str().ok_or("the settings are no text")?;
    serde_json::from_str(text).map_err(|error| format!("the settings cannot be read: {error}"))
}

/// The first step: starts the second, waits for an end, and clears up.
fn supervise(order: &Order, command: Vec<OsString>) -> Result<u8, String> {
    let gateway = Life::of(Pid::from_raw(order.gateway).ok_or("no gateway is named")?);
    // Only now: had the gateway ended before it was opened, the descriptor could be of another process.
    if !gateway.is_parent() {
        return Err("the gateway has ended".to_owned());
    }
    adopt_orphans()?;
    let fence = Fence::build(&order.limits);
    // Before the command runs, which may see to it that this process can open nothing more.
    let (gate, sight) = (fence.gate(), Sight::open());
    let outcome = start(order, &fence, command).map(|pid| {
        let mut ward = Ward { pid, status: None };
        watch(&gateway, &mut ward, &fence, &sight);
        ward.clear(&fence, gate, &sight)
    });
    fence.remove();
    outcome
}

fn start(order: &Order, fence: &Fence, command: Vec<OsString>) -> Result<Pid, String> {
    let supervisor = getpid().as_raw_nonzero().get();
    let (limits, confinement) = (order.limits.clone(), order.confinement.clone());
    let preparation = Preparation { supervisor, limits, confinement, fence: fence.clone() };
    let settings = serde_json::to_string(&preparation).map_err(|error| error.to_string())?;
    let program = own_program().map_err(|error| error.to_string())?;
    let mut step = Command::new(program);
    step.args([COMMAND, EXEC, &settings]).args(command);
    // A confined one makes a session of its own, which has a group too, and no terminal.
    if order.confinement.is_none() {
        step.process_group(0);
    }
    let child = step.spawn().map_err(|error| format!("cannot start the second step: {error}"))?;
    // From here on only the command holds its pipes: whoever reads them sees when it closes them.
    let nothing = File::options().read(true).write(true).open("/dev/null");
    let released = nothing.and_then(|nothing| Ok(dup2_stdin(&nothing).and(dup2_stdout(&nothing))?));
    released.map_err(|error| format!("cannot let go of the standard streams: {error}"))?;
    Ok(Pid::from_child(&child))
}

/// This program, also when its file was replaced meanwhile.
fn own_program() -> io::Result<PathBuf> {
    if cfg!(target_os = "linux") { Ok("/proc/self/exe".into()) } else { std::env::current_exe() }
}

/// The second step: prepares this process and becomes the command. Returns only if it cannot.
fn become_command(preparation: &Preparation, command: Vec<OsString>) -> Result<u8, String> {
    die_with(preparation.supervisor)?;
    preparation.fence.enter()?;
    let mut notes = preparation.fence.limit(&preparation.limits)?;
    let mut command = command.into_iter();
    let program = command.next().ok_or("no program is given")?;
    let name = command.next().ok_or("no name is given")?;
    let pid = getpid().as_raw_nonzero().get();
    let groups = preparation.fence.groups();
    // Last, because from here on this process can do next to nothing but become the command.
    let outcome = preparation.confinement.as_ref().map_or(Ok(Outcome::default()), confine)?;
    // Again, because changes of a process's rights may undo it.
    die_with(preparation.supervisor)?;
    notes.extend(outcome.notes);
    Notice::Ready(Report { pid, notes, groups, unconfined: outcome.missing }).write();
    let error = Command::new(&program).arg0(name).args(command).exec();
    Err(format!("cannot run {}: {error}", program.display()))
}

fn confine(confinement: &Confinement) -> Result<Outcome, String> {
    setsid().map_err(|error| format!("cannot leave the terminal: {error}"))?;
    confinement.enter()
}

/// Waits until the command or the gateway has ended, nobody listens any more, or a limit is broken.
fn watch(gateway: &Life, ward: &mut Ward, fence: &Fence, sight: &Sight) {
    let command = Life::of(ward.pid);
    let stderr = io::stderr();
    let blind = gateway.descriptor.is_none() || command.descriptor.is_none();
    let tick = if blind || fence.is_watched() { TICK } else { SLOW_TICK };
    loop {
        // Nothing is asked about standard error, and yet it is told when the other end is closed.
        let mut events = vec![PollFd::new(&stderr, PollFlags::empty())];
        let lives = [gateway, &command].into_iter().filter_map(|life| life.descriptor.as_ref());
        events.extend(lives.map(|descriptor| PollFd::new(descriptor, PollFlags::IN)));
        let polled = poll(&mut events, Some(&tick));
        let happened = polled.is_ok() && events.iter().any(|event| !event.revents().is_empty());
        if happened || !gateway.is_parent() || ward.reap() {
            return;
        }
        if let Some(breach) = fence.breach(sight) {
            return say(&breach);
        }
    }
}

/// A process whose end is waited for.
struct Life {
    pid: Pid,
    /// Becomes readable when it ends. Old kernels and other systems have no such thing.
    descriptor: Option<OwnedFd>,
}

impl Life {
    fn of(pid: Pid) -> Self {
        #[cfg(target_os = "linux")]
        let descriptor = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()).ok();
        #[cfg(not(target_os = "linux"))]
        let descriptor = None;
        Self { pid, descriptor }
    }

    fn is_parent(&self) -> bool {
        getppid() == Some(self.pid)
    }
}

/// The command, and what it leaves behind.
struct Ward {
    pid: Pid,
    status: Option<WaitStatus>,
}

impl Ward {
    /// Reaps what has ended, orphans that came to us included: nobody else waits for a child of this process. True when
    /// the command was among them.
    fn reap(&mut self) -> bool {
        let _others = self.is_alone();
        self.status.is_some()
    }

    /// The same, and true when there is no child left. Then there is no descendant: before a process can be reaped, its
    /// children have become ours.
    fn is_alone(&mut self) -> bool {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == self.pid => self.status = Some(status),
                Ok(Some(_)) | Err(Errno::INTR) => {}
                Ok(None) => return false,
                Err(_) => return true,
            }
        }
    }

    /// Kills everything below this process, and says with which status to end. Does not return while a child is left,
    /// whether it can be seen or not.
    fn clear(mut self, fence: &Fence, gate: Gate, sight: &Sight) -> u8 {
        if self.status.is_none() {
            // It may have ended by itself: then there may be others in its group. It may have left its group.
            let _gone = kill_process_group(self.pid, Signal::KILL).is_err();
            let _gone = kill_process(self.pid, Signal::KILL).is_err();
        }
        gate.close();
        // The command is reaped last, so that until then its id, by which the gateway signals it, is nobody else's.
        loop {
            sight.clear(self.pid);
            if self.is_alone() {
                break;
            }
            let _nothing = poll(&mut [], Some(&MOMENT)).is_err();
        }
        if let Some(reason) = fence.obituary() {
            say(&reason);
        }
        self.status.map_or(NOT_RUN, code)
    }
}

/// The status as shells tell it.
fn code(status: WaitStatus) -> u8 {
    let signal = || status.terminating_signal().map(|signal| signal + SIGNALLED);
    status.exit_status().or_else(signal).and_then(|code| u8::try_from(code).ok()).unwrap_or(NOT_RUN)
}

/// Makes the orphans of our descendants our children, so that they can be found.
fn adopt_orphans() -> Result<(), String> {
    #[cfg(target_os = "linux")]
    rustix::process::set_child_subreaper(Some(getpid()))
        .map_err(|error| format!("cannot become the reaper of orphans: {error}"))?;
    Ok(())
}

/// Lets this process, and the command it becomes, be killed when the supervisor is.
fn die_with(supervisor: i32) -> Result<(), String> {
    #[cfg(target_os = "linux")]
    rustix::process::set_parent_process_death_signal(Some(Signal::KILL))
        .map_err(|error| format!("cannot be tied to the supervisor: {error}"))?;
    // It may have been killed before.
    if getppid() == Pid::from_raw(supervisor) { Ok(()) } else { Err("the supervisor has ended".to_owned()) }
}

/// Writes a line to standard error, where somebody may read it.
fn say(line: &str) {
    let _written = io::stderr().write_all(format!("{line}\n").as_bytes()).is_ok();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_notice_is_told_from_what_the_command_says() {
        let report = Report {
            pid: 7,
            notes: vec!["memory: 1 MiB".to_owned()],
            groups: Vec::new(),
            unconfined: Vec::new(),
        };
        let line = format!("{MARK}{}\n", serde_json::to_string(&report).unwrap());
        assert_eq!(Notice::read(&line), Some(Notice::Ready(report)));
        let line = format!("{MARK}{FAILED}no such file\n");
        assert_eq!(Notice::read(&line), Some(Notice::Failed("no such file".to_owned())));
        for line in ["", "Listening", "moongate-launch", "moongate-launch {}x", "x moongate-launch failed: y"]
        {
            assert_eq!(Notice::read(line), None, "{line}");
        }
    }

    #[test]
    fn a_step_that_nobody_asked_for_is_refused() {
        for arguments in [&[][..], &["supervise"], &["dance", "{}"], &["supervise", "{}"], &["exec", "x"]] {
            assert!(run(arguments.iter().map(OsString::from).collect()).is_err(), "{arguments:?}");
        }
    }
}
