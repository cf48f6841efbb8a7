//! Connections to the file, and the file itself.

use std::{
    fs::{self, DirBuilder, File, OpenOptions},
    hash::{BuildHasher, Hasher, RandomState},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    time::Duration,
};

use moongate_storage::Error;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{
    Durability,
    error::{At, NoLog, failed},
    migrate,
};

/// How long to wait for another process that is writing.
const BUSY: Duration = Duration::from_secs(5);

/// The log is cut back to this size after it was written into the database.
const LOG_SIZE: i64 = 8 << 20;

/// Kibibytes of pages each connection keeps; the operating system keeps the rest.
const CACHE_KIB: i64 = 512;

/// How often to try to turn the log on while other processes are doing the same.
const LOG_TRIES: usize = 20;

const OPENING: &str = "opening the database";
const MAKING: &str = "making the database file";

/// Where the database is and how it is opened.
#[derive(Clone, Debug)]
pub(crate) struct Database {
    path: PathBuf,
    durability: Durability,
}

impl Database {
    /// An absolute path, because readers open it later, when the working directory may have changed.
    pub(crate) fn at(path: &Path, durability: Durability) -> Result<Self, Error> {
        match std::path::absolute(path) {
            Ok(path) => Ok(Self { path, durability }),
            Err(error) => Err(Error::Backend { doing: "finding the database", source: error.into() }),
        }
    }

    /// The connection of the writer. Makes the file if there is none, and brings an older one up to date.
    pub(crate) fn writer(&self) -> Result<Connection, Error> {
        self.make().map_err(|error| self.explain(error))?;
        let mut connection = self.connect().map_err(|error| self.explain(failed(OPENING, error)))?;
        prepare(&mut connection).map_err(|error| self.explain(error))?;
        Ok(connection)
    }

    /// A connection that only reads.
    pub(crate) fn reader(&self) -> Result<Connection, Error> {
        let connection = self.connect().and_then(|connection| {
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        });
        connection.map_err(|error| self.explain(failed(OPENING, error)))
    }

    /// Adds the name of the file to what went wrong with it.
    fn explain(&self, error: Error) -> Error {
        let at = |source| At { path: self.path.clone(), source }.into();
        match error {
            Error::Backend { doing, source } => Error::Backend { doing, source: at(source) },
            Error::Corrupt(source) => Error::Corrupt(at(source)),
            other => other,
        }
    }

    /// Makes the file, and the directories above it, for this user only; SQLite gives its own files beside it the same
    /// mode. Leaves alone what is there.
    ///
    /// The new file is filled under another name and then linked to its own: nobody sees it half made, it takes one
    /// fsync instead of eight, and of several processes that start together one wins.
    fn make(&self) -> Result<(), Error> {
        if self.path.try_exists().map_err(not_made)? {
            return Ok(());
        }
        if let Some(directory) = self.path.parent() {
            DirBuilder::new().recursive(true).mode(0o700).create(directory).map_err(not_made)?;
        }
        let new =
            Self { path: self.path.with_added_extension(format!("{:016x}.new", random())), ..self.clone() };
        let made = new.fill().and_then(|()| publish(&new.path, &self.path).map_err(not_made));
        let removed = fs::remove_file(&new.path).map_err(not_made);
        made.and(removed)
    }

    /// Makes this file, with all tables in it, and waits until it is on disk.
    fn fill(&self) -> Result<(), Error> {
        let sqlite = |error| failed(MAKING, error);
        make_private(&self.path).map_err(not_made)?;
        let mut connection = self.connect().map_err(sqlite)?;
        connection.pragma_update(None, "synchronous", "OFF").map_err(sqlite)?; // there is nothing to lose yet
        prepare(&mut connection)?;
        connection.close().map_err(|(_, error)| sqlite(error))?;
        File::open(&self.path).and_then(|file| file.sync_all()).map_err(not_made)
    }

    fn connect(&self) -> rusqlite::Result<Connection> {
        let flags = OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX; // one thread per connection
        let connection = Connection::open_with_flags(&self.path, flags)?;
        connection.busy_timeout(BUSY)?;
        connection.pragma_update(None, "cache_size", -CACHE_KIB)?;
        connection.pragma_update(None, "synchronous", self.synchronous())?;
        connection.pragma_update_and_check(None, "journal_size_limit", LOG_SIZE, |_| Ok(()))?;
        Ok(connection)
    }

    fn synchronous(&self) -> &'static str {
        match self.durability {
            Durability::Full => "FULL",
            Durability::Relaxed => "NORMAL",
        }
    }
}

fn not_made(error: io::Error) -> Error {
    Error::Backend { doing: MAKING, source: error.into() }
}

/// An empty file for this user only, where there was none.
fn make_private(path: &Path) -> io::Result<()> {
    OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map(drop)
}

/// Gives the file its name, unless something has that name meanwhile. The name is on disk with the first commit, when
/// SQLite syncs the directory for its log.
fn publish(new: &Path, path: &Path) -> io::Result<()> {
    // On a file system without links an empty file will do, and is filled in its place.
    let made = fs::hard_link(new, path).or_else(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => Err(error),
        _ => make_private(path),
    });
    match made {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made,
    }
}

/// Not even processes in different containers, which may have the same id, choose the same.
fn random() -> u64 {
    RandomState::new().build_hasher().finish()
}

/// Makes a database of whatever was opened: log on, all tables there.
fn prepare(connection: &mut Connection) -> Result<(), Error> {
    log_ahead(connection)?;
    migrate::run(connection, migrate::MIGRATIONS)
}

/// Turns the write-ahead log on, which stays on in the file.
fn log_ahead(connection: &Connection) -> Result<(), Error> {
    const DOING: &str = "turning on the write-ahead log";
    for _ in 0..LOG_TRIES {
        match connection.pragma_update_and_check(None, "journal_mode", "WAL", |row| row.get::<_, String>(0)) {
            Ok(mode) if mode == "wal" => return Ok(()),
            Ok(mode) => return Err(Error::Backend { doing: DOING, source: NoLog { mode }.into() }),
            Err(error) if error.sqlite_error_code() != Some(ErrorCode::DatabaseBusy) => {
                return Err(failed(DOING, error));
            }
            // Another process is writing, probably this very setting, and SQLite does not wait for it here. It does
            // wait to begin a transaction.
            Err(_) => {
                let waited = connection.execute_batch("BEGIN IMMEDIATE; ROLLBACK");
                waited.map_err(|error| failed(DOING, error))?;
            }
        }
    }
    let busy = rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY);
    Err(failed(DOING, rusqlite::Error::SqliteFailure(busy, None)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_how_sqlite_syncs() {
        let directory = tempfile::tempdir().unwrap();
        for (durability, expected) in [(Durability::Full, 2), (Durability::Relaxed, 1)] {
            let database = Database::at(&directory.path().join("db"), durability).unwrap();
            let connection = database.writer().unwrap();
            let pragma =
                |name| connection.pragma_query_value(None, name, |row| row.get::<_, i64>(0)).unwrap();
            assert_eq!(pragma("synchronous"), expected);
            assert_eq!(pragma("busy_timeout"), 5000);
            assert_eq!(pragma("journal_size_limit"), LOG_SIZE);
            let mode = connection.pragma_query_value(None, "journal_mode", |row| row.get::<_, String>(0));
            assert_eq!(mode.unwrap(), "wal");
        }
    }

    #[test]
    fn a_new_file_never_replaces_one_and_needs_no_links() {
        let directory = tempfile::tempdir().unwrap();
        let (new, path) = (directory.path().join("new"), directory.path().join("db"));
        publish(&new, &path).expect("what cannot be linked is made empty");
        assert_eq!(fs::read(&path).unwrap(), b"");
        fs::write(&path, "somebody was faster").unwrap();
        fs::write(&new, "too late").unwrap();
        publish(&new, &path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"somebody was faster");
    }

    #[test]
    fn a_reader_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::at(&directory.path().join("db"), Durability::Full).unwrap();
        database.writer().unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        let refused = database.reader().unwrap().execute("INSERT INTO t VALUES (1)", []).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly));
    }
}
