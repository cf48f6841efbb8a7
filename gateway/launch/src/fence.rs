//! Limits of a command and all that it starts: which way they are enforced here, and enforcing them.
//!
//! Memory and the number of processes belong to the whole tree, which only a control group knows: v2 where it is ours to
//! use, else v1. Where neither can be written, the supervisor looks every 100 ms, and `RLIMIT_DATA` stops a single
//! process in between. Never `RLIMIT_AS`: it breaks Node, which reserves more than it uses. Nor `RLIMIT_NPROC`: it counts
//! every process of the user, not those of the command. Processor time and open files are limits of each process.

mod place;

use std::{
    fs::{self, File},
    io,
    path::{Path, PathBuf},
};

use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use serde::{Deserialize, Serialize};

use self::place::{Place, Release};
use crate::{Limits, tree::Sight};

/// How often a control group is asked to go away. Its last process may still be on its way out.
const REMOVALS: usize = 100;

/// How the limits of one command are enforced.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Fence {
    memory: Option<Bound>,
    processes: Option<Bound>,
}

/// A limit of the whole tree.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Bound {
    limit: u64,
    /// The control group that enforces it, else the supervisor does.
    group: Option<Group>,
}

/// A control group made for one command.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Group {
    directory: PathBuf,
    release: Release,
}

/// Files of the control groups and what is written to each in the end. Open from the start, as [`Sight`] is.
#[derive(Debug)]
pub(crate) struct Gate(Vec<(File, &'static str)>);

impl Fence {
    /// Finds out what can be used here, and makes the control groups.
    pub(crate) fn build(limits: &Limits) -> Self {
        let bound = |limit: Option<u64>, controller: &str| {
            limit.map(|limit| Bound { limit, group: Group::make(controller, limit) })
        };
        Self { memory: bound(limits.memory, "memory"), processes: bound(limits.processes, "pids") }
    }

    /// The directories of the control groups.
    pub(crate) fn groups(&self) -> Vec<PathBuf> {
        let mut directories: Vec<_> = self.each_group().map(|group| group.directory.clone()).collect();
        directories.dedup();
        directories
    }

    fn each_group(&self) -> impl Iterator<Item = &Group> {
        [&self.memory, &self.processes].into_iter().flatten().filter_map(|bound| bound.group.as_ref())
    }

    /// Puts this process into the control groups.
    pub(crate) fn enter(&self) -> Result<(), String> {
        for directory in self.groups() {
            fs::write(directory.join("cgroup.procs"), "0")
                .map_err(|error| format!("cannot enter {}: {error}", directory.display()))?;
        }
        Ok(())
    }

    /// Sets the limits of this process, and says in words how each is enforced.
    pub(crate) fn limit(&self, limits: &Limits) -> Result<Vec<String>, String> {
        let mut notes = Vec::new();
        if let Some(Bound { limit, group }) = &self.memory {
            let way = if let Some(group) = group {
                group.release.as_str()
            } else {
                restrict(Resource::Data, *limit)?;
                "RLIMIT_DATA, and a look at the sum every 100 ms"
            };
            notes.push(format!("memory: {limit} bytes, by {way}"));
        }
        if let Some(Bound { limit, group }) = &self.processes {
            let way = group.as_ref().map_or("a count every 100 ms", |group| group.release.as_str());
            notes.push(format!("processes: {limit}, by {way}"));
        }
        if let Some(time) = limits.cpu {
            let seconds = time.as_secs() + u64::from(time.subsec_nanos() > 0);
            restrict(Resource::Cpu, seconds)?;
            notes.push(format!("processor time: {seconds} s for each process, by RLIMIT_CPU"));
        }
        if let Some(files) = limits.open_files {
            restrict(Resource::Nofile, files)?;
            notes.push(format!("open files: {files} for each process, by RLIMIT_NOFILE"));
        }
        if let Some(bytes) = limits.file_size {
            restrict(Resource::Fsize, bytes)?;
            notes.push(format!("size of a file: {bytes} bytes, by RLIMIT_FSIZE"));
        }
        Ok(notes)
    }

    /// Whether the supervisor has to look.
    pub(crate) fn is_watched(&self) -> bool {
        [&self.memory, &self.processes].into_iter().flatten().any(|bound| bound.group.is_none())
    }

    /// What is broken of that which the supervisor watches.
    pub(crate) fn breach(&self, sight: &Sight) -> Option<String> {
        self.is_watched()
            .then(|| sight.usage())
            .and_then(|(memory, processes)| self.broken(memory, processes))
    }

    fn broken(&self, memory: u64, processes: u64) -> Option<String> {
        let over = |bound: &Option<Bound>, used: u64| {
            bound
                .as_ref()
                .filter(|bound| bound.group.is_none() && used > bound.limit)
                .map(|bound| bound.limit)
        };
        let memory = over(&self.memory, memory).map(out_of_memory);
        memory.or_else(|| over(&self.processes, processes).map(too_many_processes))
    }

    /// What the control groups are closed with.
    pub(crate) fn gate(&self) -> Gate {
        let open = |directory: &Path, (file, text)| Some((writable(&directory.join(file)).ok()?, text));
        let ways = |directory: PathBuf| {
            // Where there is no such file, the kernel does not know this way; killing one by one goes on regardless.
            [("cgroup.kill", "1"), ("pids.max", "0")].into_iter().filter_map(move |way| open(&directory, way))
        };
        Gate(self.groups().into_iter().flat_map(ways).collect())
    }

    /// What the kernel killed somebody for.
    pub(crate) fn obituary(&self) -> Option<String> {
        let Bound { limit, group } = self.memory.as_ref()?;
        let directory = &group.as_ref()?.directory;
        let told = ["memory.events", "memory.oom_control"];
        let killed = told
            .iter()
            .filter_map(|file| fs::read_to_string(directory.join(file)).ok())
            .any(|text| kills(&text));
        killed.then(|| out_of_memory(*limit))
    }

    /// Removes the control groups, which are empty by now.
    pub(crate) fn remove(&self) {
        self.groups().iter().for_each(|directory| remove(directory));
    }
}

impl Gate {
    /// Kills what is in the control groups and lets nothing new start there, so that whoever starts processes faster than
    /// they are killed loses.
    pub(crate) fn close(self) {
        for (mut file, text) in self.0 {
            let _refused = io::Write::write_all(&mut file, text.as_bytes()).is_err();
        }
    }
}

impl Group {
    /// Makes a group with this limit in the first place that lets us.
    fn make(controller: &str, limit: u64) -> Option<Self> {
        let name = format!("moongate-{}", std::process::id());
        place::here(controller).into_iter().find_map(|Place { directory, release }| {
            let group = Self { directory: directory.join(&name), release };
            group.fill(controller, limit).inspect_err(|_| remove(&group.directory)).is_ok().then_some(group)
        })
    }

    fn fill(&self, controller: &str, limit: u64) -> io::Result<()> {
        match fs::create_dir(&self.directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        let limit = limit.to_string();
        match (controller, self.release) {
            ("memory", Release::Two) => {
                put(&self.directory, "memory.max", &limit)?;
                // Without swap the first is the whole; all die together, so that no half of a server stays.
                let _absent = put(&self.directory, "memory.swap.max", "0").is_err();
                let _absent = put(&self.directory, "memory.oom.group", "1").is_err();
            }
            ("memory", Release::One) => {
                put(&self.directory, "memory.limit_in_bytes", &limit)?;
                let _absent = put(&self.directory, "memory.memsw.limit_in_bytes", &limit).is_err();
            }
            _ => put(&self.directory, "pids.max", &limit)?,
        }
        // Whether somebody may enter is seen now, not when it is too late for another way.
        fs::OpenOptions::new().write(true).open(self.directory.join("cgroup.procs")).map(drop)
    }
}

/// Ends what is left in a control group whose supervisor was killed, and removes it.
pub(crate) fn raze(directory: &Path) {
    let text = fs::read_to_string(directory.join("cgroup.procs")).unwrap_or_default();
    for pid in text.lines().filter_map(|line| rustix::process::Pid::from_raw(line.parse().ok()?)) {
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL).is_err();
    }
    remove(directory);
}

fn remove(directory: &Path) {
    for _ in 0..REMOVALS {
        match fs::remove_dir(directory) {
            Err(error) if error.kind() == io::ErrorKind::ResourceBusy => std::thread::yield_now(),
            _ => return,
        }
    }
}

/// Writes to a file that the kernel has made; one that is not there is not made.
fn put(directory: &Path, file: &str, text: &str) -> io::Result<()> {
    io::Write::write_all(&mut writable(&directory.join(file))?, text.as_bytes())
}

fn writable(file: &Path) -> io::Result<File> {
    File::options().write(true).open(file)
}

/// Sets a limit of this process; one below it that is there already stays.
fn restrict(resource: Resource, limit: u64) -> Result<(), String> {
    let highest = getrlimit(resource).maximum.map_or(limit, |highest| highest.min(limit));
    setrlimit(resource, Rlimit { current: Some(highest), maximum: Some(highest) })
        .map_err(|error| format!("cannot set {resource:?}: {error}"))
}

/// Whether the kernel has killed somebody for want of memory, in both releases' words.
fn kills(text: &str) -> bool {
    let count = |line: &str| line.strip_prefix("oom_kill ")?.trim().parse::<u64>().ok();
    text.lines().filter_map(count).any(|count| count > 0)
}

fn out_of_memory(limit: u64) -> String {
    format!("moongate: the process was killed: its memory limit is {limit} bytes")
}

fn too_many_processes(limit: u64) -> String {
    format!("moongate: the process was killed: it may start {limit} processes at most")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_control_group_enforces_is_not_watched() {
        let group = Group { directory: "x".into(), release: Release::One };
        let enforced = Some(Bound { limit: 10, group: Some(group) });
        let watched = Some(Bound { limit: 10, group: None });
        let fence = Fence { memory: enforced.clone(), processes: enforced };
        assert!(!fence.is_watched());
        assert_eq!(fence.broken(11, 11), None);
        let fence = Fence { memory: watched.clone(), processes: watched };
        assert!(fence.is_watched());
        assert_eq!(fence.broken(10, 10), None);
        assert_eq!(fence.broken(11, 11), Some(out_of_memory(10)));
        assert_eq!(fence.broken(10, 11), Some(too_many_processes(10)));
    }

    #[test]
    fn both_releases_tell_of_kills() {
        assert!(kills("low 0\nhigh 0\nmax 3\noom 1\noom_kill 1\noom_group_kill 0\n"));
        assert!(kills("oom_kill_disable 0\nunder_oom 0\noom_kill 2\n"));
        assert!(!kills("oom_kill_disable 1\nunder_oom 0\noom_kill 0\n"));
    }
}
