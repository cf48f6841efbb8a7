//! Where the output of processes is kept: a directory of this gateway, beside those of others.
//!
//! Each gateway holds a lock in its own for as long as it lives, so that whoever starts next can tell the leftovers of the
//! dead from what the living still write. None of it is in a session's directory: a command can neither reach nor fake it.

use std::{
    fs::{self, DirBuilder, File, TryLockError},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
    sync::{Arc, Mutex, PoisonError},
};

const PRIVATE: u32 = 0o700;
/// The file whose lock says that somebody lives. The same name guards the whole directory while one moves in.
const LOCK: &str = "lock";

/// See the module. Nothing is made before it is needed.
#[derive(Debug)]
pub(crate) struct Spool {
    root: PathBuf,
    instance: Mutex<Option<Arc<Instance>>>,
}

/// The directory of this gateway. It goes with the last who holds it.
#[derive(Debug)]
pub(crate) struct Instance {
    path: PathBuf,
    _lock: File,
}

impl Spool {
    pub(crate) fn new(root: PathBuf) -> Self {
        Self { root, instance: Mutex::default() }
    }

    /// Our own directory, made now if it is not there. Blocks for a few file operations.
    pub(crate) fn open(&self) -> io::Result<Arc<Instance>> {
        let mut instance = self.instance.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(instance) = &*instance {
            return Ok(Arc::clone(instance));
        }
        let made = Arc::new(self.move_in()?);
        *instance = Some(Arc::clone(&made));
        Ok(made)
    }

    /// Removes what dead gateways left, and says how many it were. Blocks for a few file operations.
    pub(crate) fn sweep(&self) -> io::Result<usize> {
        let guard = match File::options().write(true).open(self.root.join(LOCK)) {
            Ok(guard) => guard,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(0),
            Err(error) => return Err(error),
        };
        guard.lock()?;
        let mut removed = 0;
        for entry in fs::read_dir(&self.root)? {
            let path = entry?.path();
            if path.is_dir() && !is_alive(&path) {
                fs::remove_dir_all(&path)?;
                removed += 1;
            }
        }
        Ok(removed)
    }

    /// Lets go of our own directory.
    pub(crate) fn close(&self) {
        *self.instance.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    fn move_in(&self) -> io::Result<Instance> {
        let create = |path: &Path| DirBuilder::new().recursive(true).mode(PRIVATE).create(path);
        create(&self.root)?;
        // Held until our own lock is, so that no sweep takes us for dead.
        let guard = File::options().write(true).create(true).truncate(false).open(self.root.join(LOCK))?;
        guard.lock()?;
        let path = self.root.join(super::random_name());
        create(&path)?;
        let lock = File::create(path.join(LOCK))?;
        lock.lock()?;
        Ok(Instance { path, _lock: lock })
    }
}

/// Whether somebody holds the lock in this directory. One without a lock was being removed when its remover ended.
fn is_alive(directory: &Path) -> bool {
    let lock = File::options().write(true).open(directory.join(LOCK));
    lock.is_ok_and(|lock| matches!(lock.try_lock(), Err(TryLockError::WouldBlock)))
}

impl Instance {
    /// A directory for the output of the process `id`.
    pub(crate) fn directory(&self, id: &str) -> io::Result<PathBuf> {
        let path = self.path.join(id);
        DirBuilder::new().mode(PRIVATE).create(&path)?;
        Ok(path)
    }
}

impl Drop for Instance {
    fn drop(&mut self) {
        // What stays is taken for a leftover by the next who starts.
        let _stays = fs::remove_dir_all(&self.path).is_err();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_leftovers_of_the_dead_go_and_those_of_the_living_stay() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().join("output");
        assert_eq!(Spool::new(root.clone()).sweep().unwrap(), 0, "there is nothing");
        let living = Spool::new(root.clone());
        let kept = living.open().unwrap().directory("p").unwrap();
        fs::create_dir_all(root.join("dead/p")).unwrap();
        fs::write(root.join("dead/lock"), "").unwrap();
        fs::create_dir_all(root.join("half")).unwrap();
        assert_eq!(Spool::new(root.clone()).sweep().unwrap(), 2);
        assert!(kept.is_dir() && !root.join("dead").exists() && !root.join("half").exists());
        living.close();
        assert!(!kept.exists());
    }
}
