//! Rows that must survive.
//!
//! A [`Store`] handle is opened for one scope (a principal's session) and cannot name another. A commit is atomic and
//! is answered after it is durable.

use moongate_core::{BoxFuture, StoreScope};

use crate::Error;

/// Opens stores for scopes. One per process.
pub trait Stores: Send + Sync {
    /// The rows of one scope.
    fn open(&self, scope: &StoreScope) -> std::sync::Arc<dyn Store>;

    /// The gateway's own rows, which belong to no caller: revocations, remembered definitions.
    fn own(&self) -> std::sync::Arc<dyn Store>;

    /// Removes rows of every scope that expired before `now` (milliseconds since 1970). Answers how many.
    fn purge(&self, now: u64) -> BoxFuture<'_, Result<u64, Error>>;
}

/// The rows of one scope.
pub trait Store: Send + Sync {
    /// One row, unless it is absent or expired.
    fn get<'a>(&'a self, kind: Kind, key: &'a str) -> BoxFuture<'a, Result<Option<Row>, Error>>;

    /// Rows of a kind in key order.
    fn scan<'a>(&'a self, kind: Kind, rows: Rows<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>>;

    /// How many rows of a kind a scan would find, without reading them.
    fn count(&self, kind: Kind) -> BoxFuture<'_, Result<usize, Error>>;

    /// Applies all of `batch` or nothing. Answers once it is durable.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, Error>>;
}

/// What sort of thing a row is: `playbook`, `revocation`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub &'static str);

/// Grows with every commit to the database; a row carries that of its last change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Revision(pub u64);

/// One stored row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Row {
    /// Unique in its scope and kind.
    pub key: String,
    /// Of its last change.
    pub revision: Revision,
    /// When it goes by itself, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The value, as its backend encodes it.
    pub body: Vec<u8>,
}

/// Which rows a scan wants.
#[derive(Clone, Copy, Debug)]
pub struct Rows<'a> {
    /// Only keys greater than this one.
    pub after: Option<&'a str>,
    /// At most so many.
    pub limit: usize,
}

/// Changes that happen together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Rows to write.
    pub puts: Vec<Put>,
    /// Rows to remove, by kind and key.
    pub deletes: Vec<(Kind, String)>,
}

/// A row to write.
#[derive(Clone, Debug)]
pub struct Put {
    /// What sort of thing.
    pub kind: Kind,
    /// Unique in its scope and kind.
    pub key: String,
    /// The value.
    pub body: Vec<u8>,
    /// When it goes by itself, in milliseconds since 1970.
    pub expires: Option<u64>,
    /// The revision it must have now: `None` whatever, `Some(Revision(0))` must not exist.
    pub expected: Option<Revision>,
}
