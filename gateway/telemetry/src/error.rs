//! What can go wrong when the log is set up or changed.

/// A log that could not be set up or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The level is none of those that exist.
    #[error("unknown log level `{level}`, expected off, error, warn, info, debug or trace")]
    UnknownLevel {
        /// What was given.
        level: String,
    },
    /// `RUST_LOG` cannot be read as a filter.
    #[error("the filter in RUST_LOG is not valid")]
    InvalidFilter(#[source] tracing_subscriber::filter::ParseError),
    /// A log was set up before in this process.
    #[error("the log of this process is set up already")]
    AlreadySetUp,
    /// The log this handle belonged to no longer exists.
    #[error("the log is gone")]
    Gone(#[source] tracing_subscriber::reload::Error),
}
