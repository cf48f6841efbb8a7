//! What one gateway has of a root that several may share: a directory of its own, whose lock it holds for as long as it lives.
//!
//! In there is the output of processes, and a mark for each room that goes with its session, which this gateway alone
//! knows. So whoever starts next can tell what the dead left from what the living use. None of it is in a session's
//! directory: a command can neither reach nor fake it.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

use moongate_core::hash::Set;

const PRIVATE: u32 = 0o700;
/// The file whose lock says that somebody lives. The same name guards the whole directory while one moves in.
const LOCK: &str = "lock";
/// Where the marks of rooms are. No process has this id.
const ROOMS: &str = "rooms";

/// The directories of all gateways. Ours is not made before it is needed.
#[derive(Debug)]
pub(crate) struct Instances {
    root: PathBuf,
    own: Mutex<Option<Arc<Instance>>>,
}

/// The directory of this gateway. It goes with the last who holds it.
#[derive(Debug)]
pub(crate) struct Instance {
    path: PathBuf,
    _lock: File,
    /// The rooms that have a mark already.
    marked: Mutex<Set<String>>,
}

impl Instances {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, own: Mutex::default() }
    }

    /// Our own directory, made now if it is not there. Blocks for a few file operations.
    pub(crate) fn open(&self) -> io::Result<Arc<Instance>> {
        let mut own = lock(&self.own);
        if let Some(instance) = &*own {
            return Ok(Arc::clone(instance));
        }
        let made = Arc::new(self.move_in()?);
        *own = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Our own directory, if it was needed so far.
    pub(crate) fn own(&self) -> Option<Arc<Instance>> {
        lock(&self.own).clone()
    }

    /// Removes what dead gateways left, and says how many it were; the rooms that they marked are given to `bury` before.
    /// Blocks for a few file operations. One that cannot be removed stays for the next time, and its error is told at the
    /// end.
    pub(crate) fn sweep(&self, mut bury: impl FnMut(&str) -> io::Result<()>) -> io::Result<usize> {
        let guard = match File::options().write(true).open(self.root.join(LOCK)) {
            Ok(guard) => guard,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        guard.lock()?;
        let (mut removed, mut outcome) = (0, Ok(()));
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            if !path.is_dir() || is_alive(&path) {
                continue;
            }
            let buried = marks(&path).iter().try_for_each(|room| bury(room));
            let gone = buried.and_then(|()| fs::remove_dir_all(&path));
            removed += usize::from(gone.is_ok());
            outcome = outcome.and(gone);
        }
        outcome.map(|()| removed)
    }

    /// Lets go of our own directory.
    pub(crate) fn close(&self) {
        *lock(&self.own) = None;
    }

    fn move_in(&self) -> io::Result<Instance> {
        let create = |path: &Path| DirBuilder::new().recursive(true).mode(PRIVATE).create(path);
        create(&self.root)?;
        // Held until our own lock is, so that no sweep takes us for dead.
        let guard = File::options().write(true).create(true).truncate(false).open(self.root.join(LOCK))?;
        guard.lock()?;
        let path = self.root.join(crate::random_name());
        create(&path)?;
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        create(&path.join(ROOMS))?;
        Ok(Instance { path, _lock: lock, marked: Mutex::default() })
    }
}

/// Whether somebody holds the lock in this directory. One without a lock was being removed when its remover ended.
fn is_alive(directory: &Path) -> bool {
    let lock = File::options().write(true).open(directory.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

/// The rooms that have a mark in this directory of a gateway.
fn marks(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory.join(ROOMS)).into_iter().flatten().flatten();
    entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

impl Instance {
    /// A directory for the output of the process `id`.
    pub(crate) fn directory(&self, id: &str) -> io::Result<PathBuf> {
        let path = self.path.join(id);
        DirBuilder::new().mode(PRIVATE).create(&path)?;
        Ok(path)
    }

    /// Notes that `room` goes with this gateway at the latest.
    pub(crate) fn mark(&self, room: &str) -> io::Result<()> {
        let mut marked = lock(&self.marked);
        if !marked.contains(room) {
            File::create(self.mark_of(room))?;
            marked.insert(room.to_owned());
        }
        Ok(())
    }

    /// Forgets a room that is gone.
    pub(crate) fn unmark(&self, room: &str) {
        let mut marked = lock(&self.marked);
        if marked.remove(room) {
            // A mark without a room does no harm.
            let _stays = fs::remove_file(self.mark_of(room)).is_err();
        }
    }

    /// The rooms that go with this gateway.
    pub(crate) fn marked(&self) -> Vec<String> {
        lock(&self.marked).iter().cloned().collect()
    }

    fn mark_of(&self, room: &str) -> PathBuf {
        self.path.join(ROOMS).join(room)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What stays is taken for a leftover by the next who starts.
        let _stays = fs::remove_dir_all(&self.path).is_err();
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leftovers_of_the_dead_go_and_those_of_the_living_stay() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("output");
        let sweep = |bury: &mut dyn FnMut(&str) -> io::Result<()>| Instances::new(root.clone()).sweep(bury);
        assert_eq!(sweep(&mut |_| unreachable!()).unwrap(), 0, "there is nothing");
        let living = Instances::new(root.clone());
        let kept = living.open().unwrap().directory("p").unwrap();
        living.open().unwrap().mark("theirs").unwrap();
        fs::create_dir_all(root.join("dead/p")).unwrap();
        fs::create_dir_all(root.join("dead/rooms")).unwrap();
        fs::write(root.join("dead/lock"), "").unwrap();
        fs::write(root.join("dead/rooms/room"), "").unwrap();
        fs::create_dir_all(root.join("half")).unwrap();
        // Whose room cannot be taken away stays, so that somebody else tries again.
        assert!(sweep(&mut |_| Err(io::ErrorKind::PermissionDenied.into())).is_err());
        assert!(root.join("dead").exists() && !root.join("half").exists());
        let mut buried = Vec::new();
        let removed = sweep(&mut |room| {
            buried.push(room.to_owned());
            Ok(())
        });
        assert_eq!((removed.unwrap(), buried), (1, vec!["room".to_owned()]));
        assert!(kept.is_dir() && !root.join("dead").exists());
        living.close();
        assert!(!kept.exists());
    }

    #[test]
    fn a_room_is_marked_until_it_is_gone() {
        let root = tempfile::tempdir().unwrap();
        let instances = Instances::new(root.path().to_owned());
        assert!(instances.own().is_none());
        let own = instances.open().unwrap();
        for room in ["one", "two", "one"] {
            own.mark(room).unwrap();
        }
        own.unmark("two");
        own.unmark("never");
        assert_eq!((own.marked(), marks(&own.path)), (vec!["one".to_owned()], vec!["one".to_owned()]));
    }
}
