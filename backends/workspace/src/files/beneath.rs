//! Opens things below a directory and nowhere else, whatever symbolic links say and whoever moves them meanwhile.
//!
//! The kernel resolves a path and refuses it in the same step (`openat2` with `RESOLVE_BENEATH`), so there is no moment
//! between a check and its use. A symbolic link is followed as long as it stays below; an absolute one never does. Kernels
//! without `openat2`, and systems that never had it, get a walk that follows no link at all. Nothing below a directory is
//! reached by its full path again: other calls get the descriptor of a parent and a single name.
//!
//! A hard link cannot be told from the file it shares, so one that leads to a file outside is followed like any file. Making
//! one takes somebody who can write to the room and already reaches that file.

use std::{
    ffi::{OsStr, OsString},
    os::{
        fd::{AsFd, OwnedFd},
        unix::ffi::OsStrExt,
    },
    path::{Component, Path},
};

use rustix::{
    fs::{Mode, OFlags},
    io::Errno,
};

/// Symbolic links that one path may have at its end, as many as Linux follows.
const MAX_LINKS: u8 = 40;
/// How often a path is tried whose directories are being moved.
#[cfg(target_os = "linux")]
const ATTEMPTS: u8 = 64;

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) directory: OwnedFd,
    pub(crate) name: OsString,
}

/// Opens `path` below `root`.
#[cfg(target_os = "linux")]
pub(crate) fn open(root: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    use rustix::fs::ResolveFlags;

    let flags = flags | OFlags::CLOEXEC;
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    for _ in 0..ATTEMPTS {
        match rustix::fs::openat2(root, path, flags, mode, resolve) {
            // A directory was moved while a `..` of a link was resolved, so the kernel could not tell where it leads.
            Err(Errno::AGAIN) => {}
            Err(Errno::NOSYS) => return walk(root, path, flags, mode),
            outcome => return outcome,
        }
    }
    Err(Errno::AGAIN)
}

/// Opens `path` below `root`.
#[cfg(not(target_os = "linux"))]
pub(crate) fn open(root: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    walk(root, path, flags, mode)
}

/// Opens the directory `path` below `root`.
pub(crate) fn directory(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    open(root, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())
}

/// Opens what is called `name` in `directory`, unless it is a symbolic link.
pub(crate) fn entry(directory: impl AsFd, name: &OsStr, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    debug_assert!(!name.as_bytes().contains(&b'/'), "a name is one component");
    rustix::fs::openat(directory, name, flags | OFlags::NOFOLLOW | OFlags::CLOEXEC, mode)
}

/// Where `path` really ends: the directory and the name behind symbolic links. Nothing needs to be there yet.
pub(crate) fn place(root: &OwnedFd, path: &Path) -> Result<Place, Errno> {
    let mut path = path.to_owned();
    for _ in 0..MAX_LINKS {
        let Some(name) = path.file_name().map(OsStr::to_owned) else { return Err(Errno::ISDIR) };
        let parent = match path.parent() {
            Some(parent) if !parent.as_os_str().is_empty() => parent,
            _ => Path::new("."),
        };
        let directory = directory(root, parent)?;
        match rustix::fs::readlinkat(&directory, &*name, Vec::new()) {
            // An absolute target replaces the path, and is refused when its parent is opened.
            Ok(target) => path = parent.join(OsStr::from_bytes(target.to_bytes())),
            Err(Errno::INVAL | Errno::NOENT) => return Ok(Place { directory, name }),
            Err(error) => return Err(error),
        }
    }
    Err(Errno::LOOP)
}

/// Makes the directories of `path` below `root` that are not there, and opens the last one.
pub(crate) fn make_directories(root: &OwnedFd, path: &Path) -> Result<OwnedFd, Errno> {
    let mut opened = directory(root, Path::new("."))?;
    let mut prefix = Path::new(".").to_owned();
    for component in path {
        prefix.push(component);
        opened = match directory(root, &prefix) {
            Err(Errno::NOENT) => match rustix::fs::mkdirat(&opened, component, Mode::from_raw_mode(0o755)) {
                Ok(()) | Err(Errno::EXIST) => directory(root, &prefix)?,
                Err(error) => return Err(error),
            },
            outcome => outcome?,
        };
    }
    Ok(opened)
}

/// Opens `path` one component after the other and follows no symbolic link.
fn walk(root: &OwnedFd, path: &Path, flags: OFlags, mode: Mode) -> Result<OwnedFd, Errno> {
    let mut names = Vec::new();
    for component in path.components() {
        match component {
            Component::Normal(name) => names.push(name),
            Component::CurDir => {}
            Component::ParentDir | Component::RootDir | Component::Prefix(_) => return Err(Errno::XDEV),
        }
    }
    let Some((last, parents)) = names.split_last() else {
        return entry(root, OsStr::new("."), flags, mode);
    };
    let mut directory = None;
    for name in parents {
        let from = directory.as_ref().unwrap_or(root);
        directory = Some(entry(from, name, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty())?);
    }
    entry(directory.as_ref().unwrap_or(root), last, flags, mode)
}

#[cfg(test)]
mod tests;
