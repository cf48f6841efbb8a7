//! SQLite's errors as those of storage.

use std::{path::PathBuf, sync::Arc};

use moongate_storage::Error;
use rusqlite::ErrorCode;

/// Why a file cannot be used, with the file's name.
#[derive(Debug, thiserror::Error)]
#[error("{}", path.display())]
pub(crate) struct At {
    pub(crate) path: PathBuf,
    #[source]
    pub(crate) source: Box<dyn std::error::Error + Send + Sync>,
}

/// A database of another program: it has tables, and none of them is ours.
#[derive(Debug, thiserror::Error)]
#[error("this is a database of another program")]
pub(crate) struct Foreign;

/// Where the log cannot be shared between connections.
#[derive(Debug, thiserror::Error)]
#[error(
    "the file system does not support a write-ahead log, is it a network file system? (SQLite chose {mode:?})"
)]
pub(crate) struct NoLog {
    pub(crate) mode: String,
}

/// Says what was being done. Shared, because one failed transaction answers many callers.
pub(crate) fn failed(doing: &'static str, source: impl Into<Arc<rusqlite::Error>>) -> Error {
    let source = source.into();
    match source.sqlite_error_code() {
        Some(ErrorCode::NotADatabase | ErrorCode::DatabaseCorrupt) => Error::Corrupt(source.into()),
        _ => Error::Backend { doing, source: source.into() },
    }
}
