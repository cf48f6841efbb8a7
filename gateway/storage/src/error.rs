//! What can go wrong with storage.

/// A storage failure. The client is told only that storage failed; the source goes to the log.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A put expected another revision than the stored one.
    #[error("the row was changed by somebody else")]
    Conflict,
    /// The file or server behind the trait failed.
    #[error("storage failed while {doing}")]
    Backend {
        /// What was being done.
        doing: &'static str,
        /// Why it failed.
        #[source]
        source: Box<dyn std::error::Error + Send + Sync>,
    },
    /// A row or document that this build cannot read.
    #[error("stored data cannot be read")]
    Corrupt(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// A newer build wrote the database, and says that this one is too old.
    #[error("the database needs a newer moongate (it asks for schema {needed}, this one knows {known})")]
    TooOld {
        /// What the database asks for.
        needed: u32,
        /// What this build knows.
        known: u32,
    },
    /// The storage was shut down.
    #[error("storage is closed")]
    Closed,
    /// Too much is stored under one key.
    #[error("{what} is too large: at most {limit} bytes are kept")]
    TooLarge {
        /// What.
        what: &'static str,
        /// How much is allowed.
        limit: usize,
    },
}

impl From<Error> for moongate_core::CallError {
    fn from(error: Error) -> Self {
        Self::internal("storage failed; the gateway's log says why", error)
    }
}
