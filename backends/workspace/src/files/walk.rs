//! What lies in a directory and below it, in order and within bounds.
//!
//! A walk goes from descriptor to descriptor and follows no symbolic link, so it neither leaves nor runs in circles.

use std::{
    ffi::OsString,
    ops::ControlFlow,
    os::{fd::OwnedFd, unix::ffi::OsStringExt},
};

use rustix::{
    fs::{AtFlags, Dir, FileType, Mode, OFlags},
    io::Errno,
};
use serde::Serialize;

use super::{beneath, file};

/// The deepest directories that a walk looks into; also how many it keeps open.
pub(crate) const MAX_DEPTH: usize = 32;
/// Entries that one walk or one listing looks at.
pub(crate) const MAX_ENTRIES: usize = 20_000;

/// What an entry is. Symbolic links are `other`: what they lead to has an entry of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Kind {
    Directory,
    File,
    Other,
}

/// An entry of a directory.
#[derive(Debug)]
pub(crate) struct Entry {
    pub(crate) name: OsString,
    pub(crate) kind: Kind,
    pub(crate) size: u64,
}

/// An entry that a walk came by.
#[derive(Debug)]
pub(crate) struct Step<'a> {
    /// The directory it lies in.
    pub(crate) directory: &'a OwnedFd,
    /// Its path from where the walk began; what is not UTF-8 is shown as replacement characters.
    pub(crate) path: &'a str,
    pub(crate) entry: &'a Entry,
}

/// What is left of a walk's bounds.
#[derive(Debug)]
pub(crate) struct Walk {
    left: usize,
    deepest: usize,
    /// Whether something was left out: too much, too deep or not readable.
    pub(crate) cut: bool,
}

impl Entry {
    /// The name for people and models.
    pub(crate) fn shown(&self) -> String {
        self.name.to_string_lossy().into_owned()
    }
}

impl Walk {
    /// A walk that looks `depth` directories deep, 1 being the first one alone.
    pub(crate) fn new(depth: usize) -> Self {
        Self { left: MAX_ENTRIES, deepest: depth.min(MAX_DEPTH), cut: false }
    }

    /// Shows `visit` everything below `directory`, each directory before what lies in it, until it breaks off.
    pub(crate) fn run(
        &mut self,
        directory: &OwnedFd,
        visit: &mut dyn FnMut(&Step<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        self.descend(directory, "", 1, visit)
    }

    fn descend(
        &mut self,
        directory: &OwnedFd,
        prefix: &str,
        depth: usize,
        visit: &mut dyn FnMut(&Step<'_>) -> ControlFlow<()>,
    ) -> ControlFlow<()> {
        let Ok((entries, cut)) = entries(directory, self.left) else {
            self.cut = true;
            return ControlFlow::Continue(());
        };
        self.left -= entries.len();
        self.cut |= cut;
        for entry in &entries {
            let path = format!("{prefix}{}", entry.name.to_string_lossy());
            visit(&Step { directory, path: &path, entry })?;
            if entry.kind != Kind::Directory || depth == self.deepest {
                // Who asked for less gets what was asked for.
                self.cut |= entry.kind == Kind::Directory && depth == MAX_DEPTH;
                continue;
            }
            let flags = OFlags::RDONLY | OFlags::DIRECTORY;
            match beneath::entry(directory, &entry.name, flags, Mode::empty()) {
                Ok(inner) => self.descend(&inner, &format!("{path}/"), depth + 1, visit)?,
                Err(_) => self.cut = true,
            }
        }
        ControlFlow::Continue(())
    }
}

/// The entries of `directory`, directories first and by name, at most `limit`; and whether there are more.
pub(crate) fn entries(directory: &OwnedFd, limit: usize) -> Result<(Vec<Entry>, bool), Errno> {
    let mut entries = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        if matches!(entry.file_name().to_bytes(), b"." | b"..") {
            continue;
        }
        if entries.len() == limit {
            return Ok((sorted(entries), true));
        }
        // It may be gone already.
        let Ok(stat) = rustix::fs::statat(directory, entry.file_name(), AtFlags::SYMLINK_NOFOLLOW) else {
            continue;
        };
        let kind = match FileType::from_raw_mode(stat.st_mode) {
            FileType::Directory => Kind::Directory,
            FileType::RegularFile => Kind::File,
            _ => Kind::Other,
        };
        let size = if kind == Kind::File { file::size(&stat) } else { 0 };
        entries.push(Entry { name: OsString::from_vec(entry.file_name().to_bytes().to_vec()), kind, size });
    }
    Ok((sorted(entries), false))
}

fn sorted(mut entries: Vec<Entry>) -> Vec<Entry> {
    let rank = |entry: &Entry| entry.kind != Kind::Directory;
    entries.sort_by(|one, other| (rank(one), &one.name).cmp(&(rank(other), &other.name)));
    entries
}
