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

    /// What a scan of a kind would find, without reading it.
    fn summary(&self, kind: Kind) -> BoxFuture<'_, Result<Summary, Error>>;

    /// Applies all of `batch` or nothing. Answers once it is durable.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, Error>>;
}

/// What sort of thing a row is: `playbook`, `revocation`, …
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Kind(pub &'static str);

/// Grows with every commit to the database; a row carries that of its last change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
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

/// The rows of a kind without their bodies.
///
/// Equal summaries mean the same rows, whoever changed them and whatever expired meanwhile: a row that is put has a greater
/// revision than every row before it, and without a put there are only fewer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Summary {
    /// How many there are.
    pub rows: usize,
    /// How many bytes their bodies take.
    pub bytes: u64,
    /// The revision of the last one that was put; 0 when there are none.
    pub newest: Revision,
}

/// Changes that happen together.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    /// Rows to write.
    pub puts: Vec<Put>,
    /// Rows to remove, by kind and key.
    pub deletes: Vec<(Kind, String)>,
    /// Rows that are to go at another time; those that are not there any more stay away.
    pub renewals: Vec<Renewal>,
}

/// Another end for a row, whose body and revision stay.
#[derive(Clone, Debug)]
pub struct Renewal {
    /// What sort of thing.
    pub kind: Kind,
    /// Unique in its scope and kind.
    pub key: String,
    /// When it goes by itself, in milliseconds since 1970.
    pub expires: Option<u64>,
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
