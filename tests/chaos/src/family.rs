//! All processes below one: who they are, and when the last of them is gone.

use std::{collections::HashMap, fs, os::fd::OwnedFd, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::time::Instant;

/// The descendants of a process. Each is held by a descriptor, so that another with the same number is not taken for it.
#[derive(Debug)]
pub struct Family(Arc<[Member]>);

#[derive(Debug)]
struct Member {
    pid: u32,
    /// Readable when it has ended.
    descriptor: OwnedFd,
}

impl Family {
    /// Everybody below `parent` at this moment.
    pub fn of(parent: u32) -> Result<Self> {
        Self::only(below(parent)?)
    }

    /// Those below `parent` whose command line has `text` in it, but for supervisors, which are the gateway itself.
    pub fn running(parent: u32, text: &str) -> Result<Self> {
        let own = fs::read_link(format!("/proc/{parent}/exe"))?;
        let mut pids = below(parent)?;
        pids.retain(|pid| {
            let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
            let other = fs::read_link(format!("/proc/{pid}/exe")).is_ok_and(|exe| exe != own);
            other && String::from_utf8_lossy(&line).contains(text)
        });
        Self::only(pids)
    }

    /// These and nobody else.
    pub fn only(pids: impl IntoIterator<Item = u32>) -> Result<Self> {
        let mut members = Vec::new();
        for pid in pids {
            // Who has ended since need not be waited for.
            let number =
                i32::try_from(pid).ok().and_then(Pid::from_raw).context("a process id is positive")?;
            if let Ok(descriptor) = pidfd_open(number, PidfdFlags::empty()) {
                members.push(Member { pid, descriptor });
            }
        }
        Ok(Self(members.into()))
    }

    /// How many there are.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is nobody.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Kills them all, as nothing can be done about.
    pub fn kill(&self) -> Result<()> {
        self.0.iter().try_for_each(|member| pidfd_send_signal(&member.descriptor, Signal::KILL))?;
        Ok(())
    }

    /// Waits until all have ended, at most `limit`.
    pub async fn gone(&self, limit: Duration) -> Result<()> {
        let (members, end) = (Arc::clone(&self.0), Instant::now() + limit);
        // In a thread where it may block: the kernel tells when each of them ends.
        let waiting = move || members.iter().try_for_each(|member| member.ended_by(end));
        let ended = tokio::task::spawn_blocking(waiting).await?;
        ended.with_context(|| format!("after {limit:?} some still live: {}", self.alive()))
    }

    /// The command lines of those who still run.
    fn alive(&self) -> String {
        let line = |member: &Member| {
            let bytes = fs::read(format!("/proc/{}/cmdline", member.pid)).ok();
            let bytes = bytes.filter(|bytes| !bytes.is_empty())?;
            Some(format!("{} {}", member.pid, String::from_utf8_lossy(&bytes).replace('\0', " ")))
        };
        self.0.iter().filter_map(line).collect::<Vec<_>>().join("; ")
    }
}

impl Member {
    fn ended_by(&self, end: Instant) -> Result<()> {
        let left = Timespec::try_from(end.saturating_duration_since(Instant::now()))?;
        let mut watched = [PollFd::new(&self.descriptor, PollFlags::IN)];
        anyhow::ensure!(poll(&mut watched, Some(&left))? == 1, "{} has not ended", self.pid);
        Ok(())
    }
}

/// The ids of all descendants of `parent`.
fn below(parent: u32) -> Result<Vec<u32>> {
    let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<u32>().ok()) else {
            continue;
        };
        // It may have ended since it was listed.
        let Ok(stat) = fs::read_to_string(format!("/proc/{pid}/stat")) else { continue };
        // `pid (name) state parent …`, and a name may hold anything.
        let after = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        if let Some(parent) = after.split(' ').nth(1).and_then(|field| field.parse().ok()) {
            children.entry(parent).or_default().push(pid);
        }
    }
    let (mut found, mut next) = (Vec::new(), vec![parent]);
    while let Some(pid) = next.pop() {
        let below = children.remove(&pid).unwrap_or_default();
        found.extend(&below);
        next.extend(below);
    }
    Ok(found)
}
