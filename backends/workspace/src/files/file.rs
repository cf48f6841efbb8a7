//! Regular files, read and written whole and within a size.
//!
//! A file is replaced by renaming a finished one over it, so that nobody ever reads half of it. Whatever is not a regular
//! file is refused after opening it in a way that does not wait: a pipe would keep a caller forever.

use std::{
    ffi::OsStr,
    fs::File,
    io::{self, Read, Write},
    os::fd::OwnedFd,
    sync::atomic::{AtomicU64, Ordering},
};

use rustix::{
    fs::{AtFlags, FileType, Mode, OFlags, Stat},
    io::Errno,
};

use super::{
    beneath::{self, Place},
    error::Error,
    path::RelativePath,
};

/// How a new file may be used. The room keeps others out.
const NEW: u32 = 0o644;
/// Opening waits for nobody, and a terminal does not become ours.
const AT_ONCE: OFlags = OFlags::NONBLOCK.union(OFlags::NOCTTY);

/// What `path` below `root` holds, at most `limit` bytes.
pub(crate) fn read(root: &OwnedFd, path: &RelativePath, limit: u64) -> Result<Vec<u8>, Error> {
    let opened = beneath::open(root, path.as_path(), OFlags::RDONLY | AT_ONCE, Mode::empty());
    contents(opened, path.as_str(), limit)
}

/// What `name` in `directory` holds, unless it is a symbolic link; `path` is what it is called in errors.
pub(crate) fn read_entry(
    directory: &OwnedFd,
    name: &OsStr,
    path: &str,
    limit: u64,
) -> Result<Vec<u8>, Error> {
    contents(beneath::entry(directory, name, OFlags::RDONLY | AT_ONCE, Mode::empty()), path, limit)
}

fn contents(opened: Result<OwnedFd, Errno>, path: &str, limit: u64) -> Result<Vec<u8>, Error> {
    let file = File::from(opened.map_err(|error| Error::of(path, error))?);
    let too_large = || Error::TooLarge { path: path.to_owned(), limit };
    if size(&regular(&file, path)?) > limit {
        return Err(too_large());
    }
    let mut contents = Vec::new();
    // It may grow while it is read.
    file.take(limit.saturating_add(1)).read_to_end(&mut contents).map_err(|error| Error::of(path, error))?;
    if contents.len() as u64 > limit { Err(too_large()) } else { Ok(contents) }
}

/// Makes `contents` all that `path` holds, at once. Directories on the way are made.
pub(crate) fn replace(root: &OwnedFd, path: &RelativePath, contents: &[u8], limit: u64) -> Result<(), Error> {
    fits(path, contents.len() as u64, limit)?;
    make_parent(root, path)?;
    let failed = |error: Errno| Error::of(path.as_str(), error);
    let Place { directory, name } = beneath::place(root, path.as_path()).map_err(failed)?;
    let mode = match rustix::fs::statat(&directory, &*name, AtFlags::SYMLINK_NOFOLLOW) {
        Ok(old) => Mode::from_raw_mode(check_regular(&old, path.as_str())?.st_mode & 0o777),
        Err(Errno::NOENT) => Mode::from_raw_mode(NEW),
        Err(error) => return Err(failed(error)),
    };
    let renamed = draft(&directory, contents, mode).and_then(|draft| {
        let renamed = rustix::fs::renameat(&directory, &draft, &directory, &*name);
        if renamed.is_err() {
            discard(&directory, &draft);
        }
        Ok(renamed?)
    });
    renamed.map_err(|error| Error::of(path.as_str(), error))
}

/// Adds `contents` to the end of `path`, which is made if it is not there.
pub(crate) fn append(root: &OwnedFd, path: &RelativePath, contents: &[u8], limit: u64) -> Result<(), Error> {
    fits(path, contents.len() as u64, limit)?;
    make_parent(root, path)?;
    let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE | AT_ONCE;
    let opened = beneath::open(root, path.as_path(), flags, Mode::from_raw_mode(NEW));
    let mut file = File::from(opened.map_err(|error| Error::of(path.as_str(), error))?);
    let old = size(&regular(&file, path.as_str())?);
    fits(path, old.saturating_add(contents.len() as u64), limit)?;
    file.write_all(contents).map_err(|error| Error::of(path.as_str(), error))
}

/// Makes a file called `name` that was not there before.
pub(crate) fn create_new(directory: &OwnedFd, name: &str, contents: &[u8]) -> io::Result<()> {
    create(directory, name, contents, Mode::from_raw_mode(NEW))
}

/// The size in bytes that the system tells.
pub(crate) fn size(stat: &Stat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

fn create(directory: &OwnedFd, name: &str, contents: &[u8], mode: Mode) -> io::Result<()> {
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL;
    let mut file = File::from(beneath::entry(directory, OsStr::new(name), flags, mode)?);
    // What the file before it had, also where a new one would get less.
    let written = rustix::fs::fchmod(&file, mode).map_err(io::Error::from);
    let written = written.and_then(|()| file.write_all(contents));
    if written.is_err() {
        discard(directory, name);
    }
    written
}

/// Writes `contents` to a new file beside the one that it is to replace.
fn draft(directory: &OwnedFd, contents: &[u8], mode: Mode) -> io::Result<String> {
    static DRAFTS: AtomicU64 = AtomicU64::new(0);
    loop {
        let number = DRAFTS.fetch_add(1, Ordering::Relaxed);
        let name = format!(".moongate-{}-{number}.draft", std::process::id());
        match create(directory, &name, contents, mode) {
            Ok(()) => return Ok(name),
            // Left by a process that had our number and was killed.
            Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
            Err(error) => return Err(error),
        }
    }
}

/// Removes what is not to be seen. Where that fails, too, it stays as a hidden file.
fn discard(directory: &OwnedFd, name: &str) {
    rustix::fs::unlinkat(directory, name, AtFlags::empty()).ok();
}

fn regular(file: &File, path: &str) -> Result<Stat, Error> {
    check_regular(&rustix::fs::fstat(file).map_err(|error| Error::of(path, error))?, path).copied()
}

fn check_regular<'a>(stat: &'a Stat, path: &str) -> Result<&'a Stat, Error> {
    match FileType::from_raw_mode(stat.st_mode) {
        FileType::RegularFile => Ok(stat),
        FileType::Directory => Err(Error::IsDirectory(path.to_owned())),
        _ => Err(Error::NotRegular(path.to_owned())),
    }
}

fn fits(path: &RelativePath, size: u64, limit: u64) -> Result<(), Error> {
    if size > limit { Err(Error::TooLarge { path: path.as_str().to_owned(), limit }) } else { Ok(()) }
}

fn make_parent(root: &OwnedFd, path: &RelativePath) -> Result<(), Error> {
    match path.as_path().parent() {
        Some(parent) if !path.is_room() => {
            beneath::make_directories(root, parent).map(drop).map_err(|error| Error::of(path.as_str(), error))
        }
        _ => Err(Error::IsDirectory(path.as_str().to_owned())),
    }
}
