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
    /// The session ended or expired while something was still going on in it.
    #[error("the session is not there any more")]
    NoSession,
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
        // The only failure the caller can do something about, and its text names nothing but a limit.
        if let Error::TooLarge { .. } = error {
            return Self::client(moongate_core::Kind::InvalidParams, error.to_string());
        }
        Self::internal("storage failed; the gateway's log says why", error)
    }
}

#[cfg(test)]
mod tests {
    use moongate_core::{CallError, Kind, Side};

    use super::*;

    #[test]
    fn a_caller_learns_its_limit_and_nothing_else() {
        let too_large = CallError::from(Error::TooLarge { what: "the plan", limit: 10 });
        assert_eq!((too_large.kind, too_large.side), (Kind::InvalidParams, Side::Client));
        assert_eq!(too_large.public, "the plan is too large: at most 10 bytes are kept");

        let failed = CallError::from(Error::Backend { doing: "reading", source: "/secret/path".into() });
        assert_eq!((failed.kind, failed.side), (Kind::Internal, Side::Gateway));
        assert!(!failed.public.contains("secret"));
    }
}
