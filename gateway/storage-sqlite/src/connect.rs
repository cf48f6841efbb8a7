//! Connections to the file, and the file itself.

use std::{
    fs::{DirBuilder, OpenOptions},
    io,
    os::unix::fs::{DirBuilderExt, OpenOptionsExt},
    path::{Path, PathBuf},
    sync::{Mutex, PoisonError},
    time::Duration,
};

use moongate_storage::Error;
use rusqlite::{Connection, ErrorCode, OpenFlags};

use crate::{
    Durability,
    error::{At, NoLog, failed},
};

/// How long to wait for another process that is writing.
const BUSY: Duration = Duration::from_secs(5);

/// The log is cut back to this size after it was written into the database.
const LOG_SIZE: i64 = 8 << 20;

/// Kibibytes of pages each connection keeps; the operating system keeps the rest.
const CACHE_KIB: i64 = 512;

/// How often to try to turn the log on while other processes are doing the same.
const LOG_TRIES: usize = 20;

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

    /// The connection of the writer; makes the file if there is none, and turns the log on.
    pub(crate) fn create(&self) -> Result<Connection, Error> {
        // One at a time: closing a file drops all locks that this process holds on it, also those of SQLite. So the
        // file is made here and closed before anybody can have opened it, and one that is there is left alone.
        static MAKING: Mutex<()> = Mutex::new(());
        let _one_at_a_time = MAKING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = make_file(&self.path) {
            return Err(
                self.explain(Error::Backend { doing: "making the database file", source: error.into() })
            );
        }
        let connection =
            self.connect().map_err(|error| self.explain(failed("opening the database", error)))?;
        log_ahead(&connection).map_err(|error| self.explain(error))?;
        Ok(connection)
    }

    /// A connection that only reads.
    pub(crate) fn reader(&self) -> Result<Connection, Error> {
        let connection = self.connect().and_then(|connection| {
            connection.pragma_update(None, "query_only", true)?;
            Ok(connection)
        });
        connection.map_err(|error| self.explain(failed("opening the database", error)))
    }

    /// Adds the name of the file to what went wrong with it.
    pub(crate) fn explain(&self, error: Error) -> Error {
        let at = |source| At { path: self.path.clone(), source }.into();
        match error {
            Error::Backend { doing, source } => Error::Backend { doing, source: at(source) },
            Error::Corrupt(source) => Error::Corrupt(at(source)),
            other => other,
        }
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

/// Makes the file and the directories above it for this user only, unless they are there. SQLite gives its own files
/// beside it the same mode.
fn make_file(path: &Path) -> io::Result<()> {
    if let Some(directory) = path.parent() {
        DirBuilder::new().recursive(true).mode(0o700).create(directory)?;
    }
    match OpenOptions::new().write(true).create_new(true).mode(0o600).open(path) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
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
            // Another process is writing to the new file, probably this very setting, and SQLite does not wait for it
            // here. It does wait to begin a transaction.
            Err(_) => {
                connection
                    .execute_batch("BEGIN IMMEDIATE; ROLLBACK")
                    .map_err(|error| failed(DOING, error))?;
            }
        }
    }
    Err(failed(
        DOING,
        rusqlite::Error::SqliteFailure(rusqlite::ffi::Error::new(rusqlite::ffi::SQLITE_BUSY), None),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durability_is_how_sqlite_syncs() {
        let directory = tempfile::tempdir().unwrap();
        for (durability, expected) in [(Durability::Full, 2), (Durability::Relaxed, 1)] {
            let database = Database::at(&directory.path().join("db"), durability).unwrap();
            let connection = database.create().unwrap();
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
    fn a_reader_cannot_write() {
        let directory = tempfile::tempdir().unwrap();
        let database = Database::at(&directory.path().join("db"), Durability::Full).unwrap();
        database.create().unwrap().execute_batch("CREATE TABLE t (x)").unwrap();
        let refused = database.reader().unwrap().execute("INSERT INTO t VALUES (1)", []).unwrap_err();
        assert_eq!(refused.sqlite_error_code(), Some(ErrorCode::ReadOnly));
    }
}
