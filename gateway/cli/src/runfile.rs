//! The record of the running gateway, for other commands of the same user.
//!
//! The file is locked for as long as its gateway lives, so a record left behind by a crash is told from a living one
//! without trusting process ids, which the system uses again.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    io::{self, Read as _, Write as _},
    net::SocketAddr,
    os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _},
    path::{Path, PathBuf},
};

use anyhow::{Context as _, ensure};
use rustix::fs::{FlockOperation, flock};
use serde::{Deserialize, Serialize};

/// What is recorded.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Record {
    /// The gateway's process.
    pub pid: u32,
    /// Its MCP endpoint.
    pub endpoint: String,
    /// The address of its gateway listener.
    pub address: SocketAddr,
    /// The address of its admin listener, if it has one.
    pub admin: Option<SocketAddr>,
    /// Whether its gateway listener speaks TLS.
    pub tls: bool,
    /// What other commands of its user need beside that; nothing in a record of an older gateway.
    #[serde(default)]
    pub own: Own,
}

/// How a user's own commands use the gateway.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Own {
    /// The URL of its listener without any path, past whatever balancer the endpoint names.
    pub url: Option<String>,
    /// The file with its local token.
    pub token_file: Option<PathBuf>,
    /// Its configuration file, if it has one.
    pub config_file: Option<PathBuf>,
}

/// Where a user's running gateway is recorded.
#[derive(Clone, Debug)]
pub(crate) struct RunDirectory(PathBuf);

/// This gateway's record; gone when dropped, unless another gateway has replaced it.
#[derive(Debug)]
pub(crate) struct Recorded {
    path: PathBuf,
    file: File,
}

impl RunDirectory {
    /// The user's directory, made if absent: `$XDG_RUNTIME_DIR/moongate`, else `run` in the state directory.
    pub(crate) fn open(runtime: Option<PathBuf>, state: &Path) -> anyhow::Result<Self> {
        let directory = runtime.map_or_else(|| state.join("run"), |runtime| runtime.join("moongate"));
        DirBuilder::new()
            .recursive(true)
            .mode(0o700)
            .create(&directory)
            .with_context(|| format!("cannot make {}", directory.display()))?;
        let found = fs::metadata(&directory)?;
        // Whoever can write here could take the listeners over.
        ensure!(
            found.uid() == rustix::process::geteuid().as_raw(),
            "{} belongs to another user",
            directory.display()
        );
        if found.permissions().mode() & 0o077 != 0 {
            fs::set_permissions(&directory, fs::Permissions::from_mode(0o700))?;
        }
        Ok(Self(directory))
    }

    /// The socket on which a successor waits for the listeners.
    pub(crate) fn upgrade_socket(&self) -> PathBuf {
        self.0.join("upgrade.sock")
    }

    fn path(&self) -> PathBuf {
        self.0.join("gateway.json")
    }

    /// The gateway that runs, if one does.
    pub(crate) fn running(&self) -> io::Result<Option<Record>> {
        let mut file = match File::open(self.path()) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        // A lock that can be had means that the gateway which held it is gone.
        if flock(&file, FlockOperation::NonBlockingLockShared).is_ok() {
            return Ok(None);
        }
        let mut text = String::new();
        file.read_to_string(&mut text)?;
        Ok(serde_json::from_str(&text).ok())
    }

    /// Records this gateway in place of any other.
    pub(crate) fn record(&self, record: &Record) -> io::Result<Recorded> {
        let path = self.path();
        let partial = self.0.join(format!("gateway.json.{}", record.pid));
        let mut file =
            OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&partial)?;
        flock(&file, FlockOperation::NonBlockingLockExclusive)?;
        file.write_all(&serde_json::to_vec(record)?)?;
        // Readers see the old record or this one, locked, never a part of it.
        fs::rename(&partial, &path)?;
        Ok(Recorded { path, file })
    }
}

impl Recorded {
    /// Whether this gateway is still the recorded one.
    pub(crate) fn is_current(&self) -> bool {
        let same =
            |ours: fs::Metadata, there: fs::Metadata| (ours.dev(), ours.ino()) == (there.dev(), there.ino());
        self.file
            .metadata()
            .ok()
            .zip(fs::metadata(&self.path).ok())
            .is_some_and(|(ours, there)| same(ours, there))
    }
}

impl Drop for Recorded {
    fn drop(&mut self) {
        if self.is_current()
            && let Err(error) = fs::remove_file(&self.path)
        {
            tracing::debug!(%error, "the run file stays");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory() -> (tempfile::TempDir, RunDirectory) {
        let home = tempfile::tempdir().unwrap();
        let directory = RunDirectory::open(None, home.path()).unwrap();
        (home, directory)
    }

    fn record(pid: u32) -> Record {
        let address = SocketAddr::from(([127, 0, 0, 1], 3847));
        let endpoint = format!("http://{address}/mcp");
        Record { pid, endpoint, address, admin: None, tls: false, own: Own::default() }
    }

    #[test]
    fn a_record_lives_as_long_as_its_gateway() {
        let (_home, directory) = directory();
        assert_eq!(directory.running().unwrap(), None);
        let recorded = directory.record(&record(1)).unwrap();
        assert_eq!(directory.running().unwrap(), Some(record(1)));
        assert_eq!(fs::metadata(directory.path()).unwrap().permissions().mode() & 0o777, 0o600);
        drop(recorded);
        assert!(!directory.path().exists());
    }

    #[test]
    fn a_record_left_by_a_crash_does_not_count() {
        let (_home, directory) = directory();
        fs::write(directory.path(), serde_json::to_vec(&record(1)).unwrap()).unwrap();
        assert_eq!(directory.running().unwrap(), None);
    }

    #[test]
    fn a_successor_replaces_the_record_and_keeps_it() {
        let (_home, directory) = directory();
        let old = directory.record(&record(1)).unwrap();
        assert!(old.is_current());
        let new = directory.record(&record(2)).unwrap();
        assert!(!old.is_current() && new.is_current());
        drop(old);
        assert_eq!(directory.running().unwrap(), Some(record(2)));
    }

    #[test]
    fn the_directory_is_its_users_alone() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("moongate");
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        RunDirectory::open(Some(home.path().into()), Path::new("/nowhere")).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o700);
    }
}
