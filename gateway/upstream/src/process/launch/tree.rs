//! The processes below this one, as `/proc` shows them.
//!
//! Every orphan among them becomes our child, so whatever its group or session, a descendant is found by following
//! parents.

use std::{collections::BTreeSet, fs, os::fd::OwnedFd};

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
pub(super) struct Process {
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

/// The sum of memory that is used below this process, and how many processes there are. Memory that two of them share
/// counts twice.
pub(super) fn usage() -> (u64, u64) {
    let all = living(&all());
    let pages: u64 = all.iter().map(|process| process.resident).sum();
    (pages.saturating_mul(page_size() as u64), all.len() as u64)
}

/// Kills everything below this process until nothing is to be seen, and reaps what becomes our child but `command`. What
/// starts while `/proc` is read may not be seen. False where nothing can be seen at all.
pub(super) fn clear(command: Pid) -> bool {
    loop {
        cull(command);
        let all = all();
        let found = living(&all);
        if found.is_empty() {
            return !all.is_empty();
        }
        let mut dying: Vec<_> = found.into_iter().filter_map(Process::kill).collect();
        dying.truncate(AWAITED);
        await_ends(&dying);
    }
}

/// Kills our own children as fast as they come. One that starts another and ends is gone before a walk through `/proc`
/// reaches it, and so is the next; but each of them becomes our child, and the list of those is read in no time. Their
/// ids cannot be another's before we reap them.
fn cull(command: Pid) {
    let list = format!("/proc/self/task/{}/children", getpid().as_raw_nonzero());
    for _ in 0..CULLS {
        let text = fs::read_to_string(&list).unwrap_or_default();
        let children = text.split_ascii_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?));
        let mut dying = 0;
        for child in children.filter(|child| *child != command) {
            let _gone = kill_process(child, Signal::KILL).is_err();
            dying += usize::from(matches!(waitpid(Some(child), WaitOptions::NOHANG), Ok(None)));
        }
        if dying == 0 {
            return;
        }
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

/// The descendants of this process that run.
fn living(all: &[Process]) -> Vec<Process> {
    let mut found = below(getpid().as_raw_nonzero().get(), all);
    found.retain(|process| !process.dead);
    found
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
    fn this_process_is_seen() {
        let own = getpid().as_raw_nonzero().get();
        assert!(all().iter().any(|process| process.pid == own && process.resident > 0));
    }
}
