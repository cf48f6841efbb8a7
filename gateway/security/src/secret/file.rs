//! Files that only their owner may read.
//!
//! Written whole or not at all: a new file is filled under another name first and then put in place, so no reader and
//! no crash ever sees half of it. Read with suspicion: what is no regular file, or was chosen by another user, is
//! refused; what others could read is closed to them, with a warning.

use std::{
    fmt, fs,
    io::{self, Read as _, Write as _},
    os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt, PermissionsExt},
    path::{Path, PathBuf},
};

use rustix::fs::OFlags;
use zeroize::Zeroizing;

use crate::{Error, secret::random};

/// Far more than a token or a key needs; a mistaken path does not fill the memory.
const MAX_BYTES: u64 = 64 * 1024;

/// Something about a secret's file that its owner should know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Warning {
    /// Others could read the file; now they cannot.
    ModeRepaired {
        /// The file.
        path: PathBuf,
        /// The mode it had.
        mode: u32,
    },
    /// Others can read the file, and it is not ours to change.
    Exposed {
        /// The file.
        path: PathBuf,
        /// The mode it has.
        mode: u32,
    },
    /// The path is a symbolic link, which was followed.
    Link {
        /// The link.
        path: PathBuf,
    },
    /// Other users may put files into the directory.
    OpenDirectory {
        /// The directory.
        path: PathBuf,
        /// The mode it has.
        mode: u32,
    },
    /// The token is short enough to be guessed.
    ShortToken {
        /// The file.
        path: PathBuf,
    },
}

impl fmt::Display for Warning {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ModeRepaired { path, mode } => write!(
                f,
                "{} had mode {mode:04o} and could be read by others: it has 0600 now; rotate it if somebody may have",
                path.display()
            ),
            Self::Exposed { path, mode } => {
                write!(
                    f,
                    "{} has mode {mode:04o}: others can read it, and only its owner can change that",
                    path.display()
                )
            }
            Self::Link { path } => write!(f, "{} is a symbolic link", path.display()),
            Self::OpenDirectory { path, mode } => {
                write!(f, "other users may replace files in {} (mode {mode:04o})", path.display())
            }
            Self::ShortToken { path } => {
                write!(
                    f,
                    "the token in {} is short; `moongate token rotate` writes a safe one",
                    path.display()
                )
            }
        }
    }
}

/// Tells one version of a file from the next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    device: u64,
    inode: u64,
    modified: (i64, i64),
    changed: (i64, i64),
    size: u64,
}

impl Stamp {
    fn of(metadata: &fs::Metadata) -> Self {
        Self {
            device: metadata.dev(),
            inode: metadata.ino(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
            changed: (metadata.ctime(), metadata.ctime_nsec()),
            size: metadata.size(),
        }
    }
}

/// What was read, and from which version of the file.
pub(super) struct Contents {
    pub(super) text: Zeroizing<String>,
    pub(super) stamp: Stamp,
}

/// The version that is at `path` now.
pub(super) fn stamp(path: &Path) -> io::Result<Stamp> {
    fs::metadata(path).map(|metadata| Stamp::of(&metadata))
}

/// Reads the secret at `path`, closing it to others; `None` when there is no such file.
pub(super) fn read(path: &Path, warnings: &mut Vec<Warning>) -> Result<Option<Contents>, Error> {
    let unreadable = |source| Error::Unreadable { path: path.to_owned(), source };
    match fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(unreadable(error)),
        Ok(found) => check_link(path, &found, warnings)?,
    }
    let file = open(path).map_err(unreadable)?;
    let metadata = file.metadata().map_err(unreadable)?;
    if !metadata.is_file() {
        return Err(Error::NotAFile { path: path.to_owned() });
    }
    check_owner(path, &metadata)?;
    warnings.extend(close_to_others(path, &file, &metadata));
    let mut text = Zeroizing::new(String::new());
    (&file).take(MAX_BYTES).read_to_string(&mut text).map_err(unreadable)?;
    // Only now: closing the file to others changed its stamp.
    let stamp = Stamp::of(&file.metadata().map_err(unreadable)?);
    Ok(Some(Contents { text, stamp }))
}

/// Follows a link that this user or root made, with a warning. Somebody else's could lead anywhere.
fn check_link(path: &Path, found: &fs::Metadata, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    if found.is_symlink() {
        check_owner(path, found)?;
        warnings.push(Warning::Link { path: path.to_owned() });
    }
    Ok(())
}

/// Without `NONBLOCK`, opening a pipe that somebody put there would wait for a writer.
fn open(path: &Path) -> io::Result<fs::File> {
    let flags = i32::try_from(OFlags::NONBLOCK.bits()).unwrap_or_default();
    fs::OpenOptions::new().read(true).custom_flags(flags).open(path)
}

/// Root may own it too: that is how secrets are mounted into containers.
fn check_owner(path: &Path, metadata: &fs::Metadata) -> Result<(), Error> {
    let owner = metadata.uid();
    if owner == ourselves() || owner == 0 {
        return Ok(());
    }
    Err(Error::ForeignOwner { path: path.to_owned(), owner })
}

fn ourselves() -> u32 {
    rustix::process::geteuid().as_raw()
}

fn close_to_others(path: &Path, file: &fs::File, metadata: &fs::Metadata) -> Option<Warning> {
    let mode = metadata.mode() & 0o7777;
    let for_others = mode & 0o077;
    if for_others == 0 {
        return None;
    }
    let path = path.to_owned();
    match file.set_permissions(fs::Permissions::from_mode(0o600)) {
        Ok(()) => Some(Warning::ModeRepaired { path, mode }),
        Err(_) => Some(Warning::Exposed { path, mode }),
    }
}

/// Makes the directory of `path`, for its owner only, if it is missing. An existing one is left as it is, because it
/// may be a home directory; it is worth a warning when others may write to it.
pub(super) fn prepare_directory(path: &Path, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    let directory = directory(path);
    let unwritable = |source| Error::Unwritable { path: directory.to_owned(), source };
    fs::DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(unwritable)?;
    let mode = fs::metadata(directory).map_err(unwritable)?.mode() & 0o7777;
    let sticky = mode & 0o1000 != 0;
    if mode & 0o022 != 0 && !sticky {
        warnings.push(Warning::OpenDirectory { path: directory.to_owned(), mode });
    }
    Ok(())
}

/// Puts a new file in place. False when somebody else was faster: theirs stays.
pub(super) fn create(path: &Path, text: &str) -> Result<bool, Error> {
    let unwritable = |source| Error::Unwritable { path: path.to_owned(), source };
    let draft = Draft::write(path, text).map_err(unwritable)?;
    match fs::hard_link(&draft.path, path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => return Ok(false),
        Err(error) => return Err(unwritable(error)),
    }
    sync_directory(path).map_err(unwritable)?;
    Ok(true)
}

/// Replaces the file, or the file that a link at `path` points to.
pub(super) fn replace(path: &Path, text: &str, warnings: &mut Vec<Warning>) -> Result<(), Error> {
    if let Ok(found) = fs::symlink_metadata(path) {
        check_link(path, &found, warnings)?;
    }
    let target = fs::canonicalize(path).unwrap_or_else(|_| path.to_owned());
    let unwritable = |source| Error::Unwritable { path: target.clone(), source };
    let draft = Draft::write(&target, text).map_err(unwritable)?;
    fs::rename(&draft.path, &target).map_err(unwritable)?;
    sync_directory(&target).map_err(unwritable)
}

/// A finished file under a name nobody looks for; removed again unless it was renamed.
struct Draft {
    path: PathBuf,
}

impl Draft {
    fn write(beside: &Path, text: &str) -> io::Result<Self> {
        let name = beside.file_name().unwrap_or_default().to_string_lossy();
        let draft = Self { path: beside.with_file_name(format!(".{name}.{}", hex(&*random::<8>()))) };
        let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(&draft.path)?;
        file.write_all(text.as_bytes())?;
        file.sync_all()?;
        Ok(draft)
    }
}

impl Drop for Draft {
    fn drop(&mut self) {
        // After a rename there is nothing left to remove; otherwise nothing better can be done.
        drop(fs::remove_file(&self.path));
    }
}

fn sync_directory(path: &Path) -> io::Result<()> {
    fs::File::open(directory(path))?.sync_all()
}

fn directory(path: &Path) -> &Path {
    path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// Bytes as lower-case hexadecimal text.
pub(crate) fn hex(bytes: &[u8]) -> String {
    use fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        write!(text, "{byte:02x}").expect("writing to a string succeeds");
        text
    })
}
