//! The directory of a session: made when it is first used, found again by name, removed when it is over.
//!
//! A room's name is a digest of who it belongs to, so that no session name is ever part of a path. Whoever holds a [`Room`]
//! holds a shared lock on its directory: several gateways may share a root, and none sweeps what is in use anywhere. So
//! what runs in a room keeps its `Room`. Everything here blocks on the file system; call it from where blocking is fine.

use std::{
    fmt::Write as _,
    fs::DirBuilder,
    io,
    os::{
        fd::{AsFd, OwnedFd},
        unix::fs::DirBuilderExt,
    },
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, UNIX_EPOCH},
};

use aws_lc_rs::digest::{Context, SHA256};
use moongate_core::{Clock, SessionKey, hash::Map};
use rustix::{
    fs::{AtFlags, CWD, Dir, FlockOperation, Mode, OFlags, Stat, Timespec, Timestamps},
    io::Errno,
    path::Arg,
};

/// A room is used and looked at by its owner alone.
const PRIVATE: u32 = 0o700;
/// An empty directory that stands for every room that is not there yet. No room has this name.
const EMPTY: &str = "empty";
/// The ending of directories that are being removed. A room's name has none.
const GONE: &str = ".gone";
/// How often a room may vanish between being made and being locked.
const ATTEMPTS: u8 = 16;
/// How often the lock of a room is tried, which takes some milliseconds.
const LOCK_ATTEMPTS: u16 = 10_000;
/// How often a directory is read that does not get empty, because somebody still writes to it.
const PASSES: u8 = 100;

/// The rooms below one directory.
#[derive(Debug)]
pub struct Rooms {
    root: PathBuf,
    clock: Clock,
    removals: AtomicU64,
    /// The locks of the rooms in use, by path.
    edits: Mutex<Map<PathBuf, Weak<Mutex<()>>>>,
}

/// A room in use. Clones share it; while one is left, no sweep removes it.
#[derive(Clone, Debug)]
pub struct Room(Arc<Open>);

#[derive(Debug)]
struct Open {
    path: PathBuf,
    /// Holds the lock, too.
    directory: OwnedFd,
    edits: Arc<Mutex<()>>,
}

impl Room {
    /// Where it is. For programs that run in it; files are reached through [`Room::directory`].
    pub fn path(&self) -> &Path {
        &self.0.path
    }

    /// The directory itself, whatever its name means by now.
    pub fn directory(&self) -> &OwnedFd {
        &self.0.directory
    }

    /// Held while a file is read, changed and written back: of two edits at a time, none is lost. All who hold this room
    /// share it.
    pub fn edits(&self) -> &Mutex<()> {
        &self.0.edits
    }
}

impl Rooms {
    /// The rooms below `root`, which is made when the first of them is; `clock` tells when they were last used.
    pub fn new(root: PathBuf, clock: Clock) -> Self {
        Self { root, clock, removals: AtomicU64::new(0), edits: Mutex::default() }
    }

    /// The room of `session`, made now if it is not there.
    pub fn open(&self, session: &SessionKey) -> io::Result<Room> {
        DirBuilder::new().recursive(true).mode(PRIVATE).create(&self.root)?;
        let path = self.root.join(name(session));
        for _ in 0..ATTEMPTS {
            match DirBuilder::new().mode(PRIVATE).create(&path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            if let Some(directory) = self.lock(&path)? {
                return Ok(self.room(path, directory));
            }
        }
        Err(io::Error::other("the directory of the session is being removed again and again"))
    }

    /// The room of `session` to look into; an empty one if it is not there, so that nobody gets a room by looking.
    pub fn look(&self, session: &SessionKey) -> io::Result<Room> {
        let path = self.root.join(name(session));
        if let Some(directory) = self.lock(&path)? {
            return Ok(self.room(path, directory));
        }
        let path = self.root.join(EMPTY);
        DirBuilder::new().recursive(true).mode(PRIVATE).create(&path)?;
        let directory = open_directory(CWD, &path)?;
        Ok(self.room(path, directory))
    }

    fn room(&self, path: PathBuf, directory: OwnedFd) -> Room {
        let mut all = self.edits.lock().unwrap_or_else(PoisonError::into_inner);
        let edits = all.get(&path).and_then(Weak::upgrade).unwrap_or_else(|| {
            all.retain(|_, edits| edits.strong_count() > 0);
            let edits = Arc::default();
            all.insert(path.clone(), Arc::downgrade(&edits));
            edits
        });
        Room(Arc::new(Open { path, directory, edits }))
    }

    /// Removes the rooms of these names, for good, also while they are in use: their sessions are over. All of them are set
    /// aside before the first is emptied, so that whoever comes later finds none, however long that takes.
    pub(crate) fn remove_named(&self, names: &[String]) -> io::Result<()> {
        let Some(root) = there(self.open_root())? else { return Ok(()) };
        let mut outcome = Ok(());
        let mut gone = Vec::new();
        for name in names {
            match there(self.set_aside(&root, &root, name.as_str())) {
                Ok(aside) => gone.extend(aside),
                Err(error) => outcome = outcome.and(Err(error)),
            }
        }
        gone.into_iter().fold(outcome, |outcome, gone| outcome.and(self.clear(&root, gone)))
    }

    /// Takes the room of this name out of everybody's way; the next sweep removes it.
    pub(crate) fn set_aside_named(&self, name: &str) -> io::Result<()> {
        let Some(root) = there(self.open_root())? else { return Ok(()) };
        // Whatever else it may be called, it is none of ours.
        if is_room(name) { there(self.set_aside(&root, &root, name)).map(drop) } else { Ok(()) }
    }

    /// Removes the rooms that nobody has opened for `retention` and nobody holds, and what earlier removals left. Says how
    /// many rooms it were. One that cannot be removed stays for the next time, and its error is told at the end.
    pub fn sweep(&self, retention: Duration) -> io::Result<usize> {
        let Some(root) = there(self.open_root())? else { return Ok(0) };
        let mut removed = 0;
        let mut outcome = Ok(());
        for entry in Dir::read_from(&root)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().to_str() else { continue };
            let gone = if name.ends_with(GONE) {
                Ok(Some(name.to_owned()))
            } else if is_room(name) {
                self.set_aside_unused(&root, name, retention)
            } else {
                Ok(None)
            };
            let cleared = gone.and_then(|gone| {
                let Some(gone) = gone else { return Ok(()) };
                removed += usize::from(is_room(name));
                self.clear(&root, gone)
            });
            outcome = outcome.and(cleared);
        }
        outcome.map(|()| removed)
    }

    /// Opens the root, which its operator may have made a symbolic link.
    fn open_root(&self) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        Ok(rustix::fs::openat(CWD, &self.root, flags, Mode::empty())?)
    }

    /// Opens and locks the room at `path` and notes that it is used; nothing when it is being removed meanwhile.
    fn lock(&self, path: &Path) -> io::Result<Option<OwnedFd>> {
        let Some(directory) = there(open_directory(CWD, path))? else { return Ok(None) };
        lock_shared(&directory)?;
        let opened = rustix::fs::fstat(&directory)?;
        match rustix::fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW) {
            Ok(named) if is_same(&opened, &named) => {}
            _ => return Ok(None),
        }
        let since = self.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = Timespec {
            tv_sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
            tv_nsec: since.subsec_nanos().into(),
        };
        rustix::fs::futimens(&directory, &Timestamps { last_access: now, last_modification: now })?;
        Ok(Some(directory))
    }

    /// Takes the room called `name` from where it is found, unless somebody holds it or has opened it lately.
    fn set_aside_unused(
        &self,
        root: &OwnedFd,
        name: &str,
        retention: Duration,
    ) -> io::Result<Option<String>> {
        let Some(directory) = there(open_directory(root, name))? else { return Ok(None) };
        // Who opens it meanwhile waits for this lock, then finds that it is gone and makes a new one.
        if rustix::fs::flock(&directory, FlockOperation::NonBlockingLockExclusive).is_err() {
            return Ok(None);
        }
        let used = u64::try_from(rustix::fs::fstat(&directory)?.st_mtime).unwrap_or(0);
        let now = self.clock.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        if now.as_secs().saturating_sub(used) <= retention.as_secs() {
            return Ok(None);
        }
        self.set_aside(root, root, name).map(Some)
    }

    /// Moves the directory `name` of `from` to `root`, under a name that says that it is to be removed.
    fn set_aside(&self, root: &OwnedFd, from: &OwnedFd, name: impl Arg) -> io::Result<String> {
        let number = self.removals.fetch_add(1, Ordering::Relaxed);
        let gone = format!("{}-{}-{number}{GONE}", std::process::id(), self.clock.millis());
        rustix::fs::renameat(from, name, root, &gone)?;
        Ok(gone)
    }

    /// Removes the directory `name` of `root` and all that is in it, without following a symbolic link and however deep it
    /// is: directories inside are moved to `root` and removed from there, so that no path and no stack grows with them.
    fn clear(&self, root: &OwnedFd, name: String) -> io::Result<()> {
        let mut outcome = Ok(());
        let mut left = vec![name];
        while let Some(name) = left.pop() {
            let directory = match there(open_emptiable(root, &*name)) {
                Ok(Some(directory)) => directory,
                Ok(None) => continue,
                Err(error) => {
                    outcome = outcome.and(Err(error));
                    continue;
                }
            };
            let mut emptied = Ok(true);
            for _ in 0..PASSES {
                // Reading while removing may skip entries, so it is read again for as long as something turns up.
                emptied = self.empty(root, &directory, &mut left);
                if !matches!(emptied, Ok(true)) {
                    break;
                }
            }
            let removed = rustix::fs::unlinkat(root, &*name, AtFlags::REMOVEDIR).map_err(io::Error::from);
            outcome = outcome.and(emptied.map(drop)).and(removed);
        }
        outcome
    }

    /// Removes what `directory` lists and moves the directories in it to `root`; whether there was anything.
    fn empty(&self, root: &OwnedFd, directory: &OwnedFd, left: &mut Vec<String>) -> io::Result<bool> {
        let mut any = false;
        for entry in Dir::read_from(directory)? {
            let entry = entry?;
            let name = entry.file_name();
            if matches!(name.to_bytes(), b"." | b"..") {
                continue;
            }
            match rustix::fs::unlinkat(directory, name, AtFlags::empty()) {
                Ok(()) => {}
                Err(Errno::ISDIR | Errno::PERM) => {
                    drop(open_emptiable(directory, name)?);
                    left.push(self.set_aside(root, directory, name)?);
                }
                Err(error) => return Err(error.into()),
            }
            any = true;
        }
        Ok(any)
    }
}

/// Opens a directory that is no symbolic link, also one that a program has closed to everybody.
fn open_directory(at: impl AsFd, path: impl Arg + Copy) -> io::Result<OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    match rustix::fs::openat(&at, path, flags, Mode::empty()) {
        Err(Errno::ACCESS) => {
            unlock(&at, path)?;
            Ok(rustix::fs::openat(&at, path, flags, Mode::empty())?)
        }
        outcome => Ok(outcome?),
    }
}

/// Opens a directory whose entries are to be removed. Who may not write to one may neither do that nor move it away; tools
/// leave such directories behind.
fn open_emptiable(at: impl AsFd, path: impl Arg + Copy) -> io::Result<OwnedFd> {
    let directory = open_directory(at, path)?;
    rustix::fs::fchmod(&directory, Mode::RWXU)?;
    Ok(directory)
}

/// Lets its owner into a directory that is no symbolic link.
#[cfg(target_os = "linux")]
fn unlock(at: impl AsFd, path: impl Arg) -> io::Result<()> {
    use std::os::fd::AsRawFd as _;

    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let directory = rustix::fs::openat(at, path, flags, Mode::empty())?;
    // A descriptor that may only be named, not changed; but its name here means the directory and nothing else.
    let named = format!("/proc/self/fd/{}", directory.as_raw_fd());
    Ok(rustix::fs::chmod(named, Mode::RWXU)?)
}

/// Lets its owner into a directory that is no symbolic link.
#[cfg(not(target_os = "linux"))]
fn unlock(at: impl AsFd, path: impl Arg) -> io::Result<()> {
    Ok(rustix::fs::chmodat(at, path, Mode::RWXU, AtFlags::SYMLINK_NOFOLLOW)?)
}

/// Nothing, where the error is that there is nothing.
fn there<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Ok(found) => Ok(Some(found)),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// A sweep holds the other lock for a moment only. A program in the room may hold it for good, and we do not wait for that.
fn lock_shared(directory: &OwnedFd) -> io::Result<()> {
    for _ in 0..LOCK_ATTEMPTS {
        match rustix::fs::flock(directory, FlockOperation::NonBlockingLockShared) {
            Err(Errno::WOULDBLOCK) => std::thread::yield_now(),
            outcome => return Ok(outcome?),
        }
    }
    Err(io::Error::new(io::ErrorKind::WouldBlock, "a program has locked the directory of the session"))
}

fn is_same(one: &Stat, other: &Stat) -> bool {
    (one.st_dev, one.st_ino) == (other.st_dev, other.st_ino)
}

/// The digest of a session's owner and name, each with its length before it, in hexadecimal.
pub(crate) fn name(session: &SessionKey) -> String {
    let mut digest = Context::new(&SHA256);
    for part in [session.principal.as_str(), &session.session] {
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part.as_bytes());
    }
    digest.finish().as_ref().iter().fold(String::new(), |mut name, byte| {
        write!(name, "{byte:02x}").expect("writing to a string cannot fail");
        name
    })
}

fn is_room(name: &str) -> bool {
    name.len() == 64 && name.bytes().all(|byte| byte.is_ascii_hexdigit())
}

#[cfg(test)]
mod tests;
