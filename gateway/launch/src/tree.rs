//! The processes below this one, as `/proc` shows them.
//!
//! Every orphan among them becomes our child, so whatever its group or session, a descendant is found by following
//! parents. The kernel lists the children of a process, if it was built to; else every process is looked at.

use std::{
    collections::BTreeSet,
    fs::{self, File},
    io::{self, Read as _, Seek as _},
    os::fd::OwnedFd,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    param::page_size,
    process::{
        Pid, PidfdFlags, Signal, WaitOptions, getpid, kill_process, pidfd_open, pidfd_send_signal, waitpid,
    },
};

/// How long to wait for those that were killed before looking again for what they started meanwhile.
const PATIENCE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };
/// How many of them are waited for at once: descriptors are limited.
const AWAITED: usize = 64;
/// How often our own children are killed before the whole tree is looked at.
const CULLS: usize = 100;

/// A process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Process {
    pid: i32,
    parent: i32,
    /// Has ended, and its parent has not asked.
    dead: bool,
    /// Together with the id the identity: ids are used again.
    started: u64,
    /// In memory, in pages.
    resident: u64,
}

impl Process {
    /// Reads `/proc/PID/stat`, in which the name may hold anything, blanks and parentheses too.
    fn parse(pid: i32, stat: &str) -> Option<Self> {
        let fields: Vec<_> = stat.rsplit_once(')')?.1.split_ascii_whitespace().collect();
        // proc_pid_stat(5) counts from 1, and the name is its second.
        let field = |number: usize| fields.get(number.checked_sub(3)?).copied();
        let count = |number: usize| field(number)?.parse().ok();
        // The first thread may have ended and others go on.
        let threads: u64 = count(20)?;
        Some(Self {
            pid,
            parent: field(4)?.parse().ok()?,
            dead: matches!(field(3)?, "Z" | "X") && threads <= 1,
            started: count(22)?,
            resident: count(24)?,
        })
    }

    fn read(pid: i32) -> Option<Self> {
        Self::parse(pid, &String::from_utf8_lossy(&fs::read(format!("/proc/{pid}/stat")).ok()?))
    }

    /// Kills it, and hands over what becomes readable when it has ended.
    fn kill(self) -> Option<OwnedFd> {
        let pid = Pid::from_raw(self.pid)?;
        let Ok(life) = pidfd_open(pid, PidfdFlags::empty()) else {
            // Gone; or out of descriptors, or an old kernel: then by its id, which is better than not at all.
            let again = Self::read(self.pid).filter(|now| now.started == self.started)?;
            let _gone = kill_process(Pid::from_raw(again.pid)?, Signal::KILL).is_err();
            return None;
        };
        // The descriptor is of whoever has the id now: it is asked who that is before it is used.
        Self::read(self.pid).filter(|now| now.started == self.started)?;
        pidfd_send_signal(&life, Signal::KILL).ok().map(|()| life)
    }
}

/// How descendants are found.
#[derive(Debug)]
pub(crate) struct Sight {
    /// The list of our children, where there is such a thing. Open from the start: whoever may set the limits of this
    /// process can take the right to open files from it, and with that everything else to see by.
    children: Option<File>,
}

impl Sight {
    /// To be opened before a command runs.
    pub(crate) fn open() -> Self {
        let list = format!("/proc/self/task/{}/children", getpid().as_raw_nonzero());
        Self { children: File::open(list).ok() }
    }

    /// The sum of memory that is used below this process, and how many processes there are. Memory that two of them share
    /// counts twice.
    pub(crate) fn usage(&self) -> (u64, u64) {
        let all = self.living();
        let pages: u64 = all.iter().map(|process| process.resident).sum();
        (pages.saturating_mul(page_size() as u64), all.len() as u64)
    }

    /// Kills everything below this process until nothing is to be seen, and reaps what becomes our child but `command`.
    /// What starts meanwhile may not be seen, and there may be nothing to see by: whether a child is left only `wait`
    /// knows.
    pub(crate) fn clear(&self, command: Pid) {
        loop {
            self.cull(command);
            let found = self.living();
            if found.is_empty() {
                return;
            }
            let mut dying: Vec<_> = found.into_iter().filter_map(Process::kill).collect();
            dying.truncate(AWAITED);
            await_ends(&dying);
        }
    }

    /// Kills our own children as fast as they come. One that starts another and ends is gone before a walk through `/proc`
    /// reaches it, and so is the next; but each of them becomes our child, and the list of those is read in no time. Their
    /// ids cannot be another's before we reap them.
    fn cull(&self, command: Pid) {
        for _ in 0..CULLS {
            let mut dying = 0;
            for child in self.children().into_iter().filter(|child| *child != command) {
                let _gone = kill_process(child, Signal::KILL).is_err();
                dying += usize::from(matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None)));
            }
            if dying == 0 {
                return;
            }
        }
    }

    /// Our children, as far as they can be told.
    fn children(&self) -> Vec<Pid> {
        let read = |mut list: &File| {
            let mut text = String::new();
            list.rewind()?;
            list.read_to_string(&mut text)?;
            io::Result::Ok(text)
        };
        let text = self.children.as_ref().and_then(|list| read(list).ok()).unwrap_or_default();
        numbers(&text).into_iter().filter_map(Pid::from_raw).collect()
    }

    /// The descendants of this process that run.
    fn living(&self) -> Vec<Process> {
        let own = getpid().as_raw_nonzero().get();
        let mut found = if self.children.is_some() { listed_below(own) } else { below(own, &all()) };
        found.retain(|process| !process.dead);
        found
    }
}

/// Waits until all have ended, or for a while.
fn await_ends(dying: &[OwnedFd]) {
    let mut left: Vec<_> = dying.iter().map(|life| PollFd::new(life, PollFlags::IN)).collect();
    loop {
        match poll(&mut left, Some(&PATIENCE)) {
            Ok(1..) => left.retain(|life| life.revents().is_empty()),
            Ok(_) | Err(_) => return,
        }
        if left.is_empty() {
            return;
        }
    }
}

/// The descendants of `root` by the lists of children, which each thread has for itself.
fn listed_below(root: i32) -> Vec<Process> {
    let mut known = BTreeSet::from([root]);
    let mut ahead = vec![root];
    let mut found = Vec::new();
    while let Some(parent) = ahead.pop() {
        let threads = fs::read_dir(format!("/proc/{parent}/task")).into_iter().flatten().flatten();
        let lists = threads.filter_map(|thread| fs::read_to_string(thread.path().join("children")).ok());
        for pid in lists.flat_map(|list| numbers(&list)) {
            if known.insert(pid) {
                ahead.push(pid);
                found.extend(Process::read(pid));
            }
        }
    }
    found
}

fn numbers(list: &str) -> Vec<i32> {
    list.split_ascii_whitespace().filter_map(|number| number.parse().ok()).collect()
}

/// Every process there is to see.
fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|entry| Process::read(entry.file_name().to_str()?.parse().ok()?)).collect()
}

/// The descendants of `root`, the dead ones too.
fn below(root: i32, all: &[Process]) -> Vec<Process> {
    let mut known = BTreeSet::from([root]);
    let mut found = Vec::new();
    // As often as the tree is deep: ids say nothing about the order of birth.
    loop {
        let before = found.len();
        for process in all {
            if known.contains(&process.parent) && known.insert(process.pid) {
                found.push(*process);
            }
        }
        if found.len() == before {
            return found;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_may_hold_anything() {
        let stat = "12 (a) R 1 (b) c) S 7 12 12 0 -1 4194304 1 0 0 0 0 0 0 0 20 0 3 0 555 1000 42 18446744073709551615";
        let process = Process::parse(12, stat).unwrap();
        assert_eq!(process, Process { pid: 12, parent: 7, dead: false, started: 555, resident: 42 });
        assert_eq!(Process::parse(12, "12 (a) S"), None);
        assert_eq!(Process::parse(12, ""), None);
    }

    #[test]
    fn a_process_whose_first_thread_ended_is_not_dead() {
        let stat =
            |threads: u8| format!("12 (a) Z 7 12 12 0 -1 4 1 0 0 0 0 0 0 0 20 0 {threads} 0 555 1000 42 1");
        assert!(Process::parse(12, &stat(1)).unwrap().dead);
        assert!(!Process::parse(12, &stat(2)).unwrap().dead);
    }

    #[test]
    fn descendants_are_found_in_whatever_order() {
        let process = |pid, parent| Process { pid, parent, dead: false, started: 0, resident: 0 };
        let all = [process(9, 8), process(8, 5), process(5, 1), process(4, 5), process(3, 1), process(1, 0)];
        let mut found: Vec<_> = below(5, &all).iter().map(|process| process.pid).collect();
        found.sort_unstable();
        assert_eq!(found, [4, 8, 9]);
        assert!(below(3, &all).is_empty());
    }

    #[test]
    fn the_lists_of_children_tell_whom_a_look_at_everybody_tells() {
        let script = "sleep 1000 & (sleep 1000 & sleep 1000 & wait) & echo; wait";
        let mut shell = std::process::Command::new("setsid");
        shell
            .args(["sh", "-c", script])
            .stdin(std::process::Stdio::null())
            .stdout(std::process::Stdio::piped());
        let mut shell = shell.spawn().unwrap();
        let root = i32::try_from(shell.id()).unwrap();
        let ids = |found: Vec<Process>| found.iter().map(|process| process.pid).collect::<BTreeSet<_>>();
        // They come one after the other.
        let (listed, looked) = loop {
            let pair = (ids(listed_below(root)), ids(below(root, &all())));
            if pair.0.len() == 4 && pair.1.len() == 4 {
                break pair;
            }
            std::thread::yield_now();
        };
        rustix::process::kill_process_group(Pid::from_child(&shell), Signal::KILL).unwrap();
        shell.wait().unwrap();
        assert_eq!(listed, looked);
        assert!(listed_below(root).is_empty());
    }

    #[test]
    fn this_process_is_seen() {
        let own = getpid().as_raw_nonzero().get();
        assert!(all().iter().any(|process| process.pid == own && process.resident > 0));
    }
}
