//! What a file tool can refuse, in words for the model.

use std::io;

use moongate_core::builtin::ToolError;
use rustix::io::Errno;

/// Why a tool did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Error: a path {0}")]
    Path(&'static str),
    #[error("Error: no such file or directory: {0}")]
    NotFound(String),
    #[error("Error: {0} is a directory. Name a file in it; list_directory shows them")]
    IsDirectory(String),
    #[error("Error: {0} is not a directory")]
    NotDirectory(String),
    #[error("Error: {0} is not a regular file")]
    NotRegular(String),
    #[error("Access denied: {0} leads out of the workspace")]
    Outside(String),
    #[error("Error: the symbolic links of {0} lead in a circle, or are too many")]
    Circle(String),
    #[error("Error: {path} would take more than the {limit} bytes that a file may have here")]
    TooLarge { path: String, limit: u64 },
    #[error("Error: {path} is not UTF-8 text. Read it as the resource {uri}")]
    NotText { path: String, uri: String },
    #[error("Error: {0}")]
    Invalid(String),
    #[error("Access denied: {0}")]
    Denied(String),
    #[error("Error: none of the files could be added: {0}")]
    NothingPacked(String),
    #[error("Error: {path}: {error}")]
    System { path: String, error: io::Error },
}

impl Error {
    /// What the system said about `path`.
    pub(crate) fn of(path: &str, error: impl Into<io::Error>) -> Self {
        let (path, error) = (path.to_owned(), error.into());
        match Errno::from_io_error(&error) {
            Some(Errno::NOENT) => Self::NotFound(path),
            Some(Errno::ISDIR) => Self::IsDirectory(path),
            Some(Errno::NOTDIR) => Self::NotDirectory(path),
            // A pipe that nobody reads, a socket, a device without a driver.
            Some(Errno::NXIO | Errno::NODEV) => Self::NotRegular(path),
            Some(Errno::XDEV) => Self::Outside(path),
            Some(Errno::LOOP) => Self::Circle(path),
            Some(Errno::NAMETOOLONG) => Self::Path("has names of at most 255 bytes"),
            _ => Self::System { path, error },
        }
    }
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Path(_)
            | Error::NotFound(_)
            | Error::IsDirectory(_)
            | Error::NotDirectory(_)
            | Error::NotRegular(_)
            | Error::Circle(_)
            | Error::Invalid(_) => Self::invalid(message),
            Error::Outside(_)
            | Error::TooLarge { .. }
            | Error::NotText { .. }
            | Error::Denied(_)
            | Error::NothingPacked(_)
            | Error::System { .. } => Self::denied(message),
        }
    }
}
