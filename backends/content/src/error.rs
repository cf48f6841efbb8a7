//! What a content tool can refuse, in words for the model.

use moongate_core::builtin::ToolError;
use moongate_storage as storage;

use crate::extract::ExtractError;

/// Why a tool did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("{0} is required")]
    Missing(&'static str),
    #[error("content and file_url exclude each other: send one of them")]
    TwoSources,
    #[error("Invalid arguments: {0} must be a time such as 2026-01-31T12:00:00Z")]
    Time(&'static str),
    #[error("file_url {0}")]
    Url(&'static str),
    #[error("from_line must not be greater than to_line")]
    Backwards,
    #[error("from_line is {from}, but the content has {lines} lines")]
    BeyondEnd { from: usize, lines: usize },
    #[error("Content not found: {0}")]
    NotFound(String),
    #[error(
        "No file may be read: the configuration lists no directories for it under backends.content.roots. Send the text \
         as content instead"
    )]
    NoRoots,
    #[error("file_url names no file in the directories listed under backends.content.roots")]
    NoFile,
    #[error("file_url must name a regular file")]
    NotRegular,
    #[error("The file cannot be read")]
    Unreadable(#[source] std::io::Error),
    #[error("The text of the file cannot be had: {0}")]
    NoText(#[from] ExtractError),
    #[error("Parsing the file took too long")]
    TooSlow,
    #[error("{what} is too large: at most {limit} bytes are taken")]
    TooLarge { what: &'static str, limit: u64 },
    #[error("At most {0} contents are kept in a session. Make room with delete_content")]
    TooMany(usize),
    #[error("The contents of a session take at most {0} bytes together. Make room with delete_content")]
    Full(u64),
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        match error {
            Error::Storage(error) => Self::Call(error.into()),
            Error::Missing(_)
            | Error::TwoSources
            | Error::Time(_)
            | Error::Url(_)
            | Error::Backwards
            | Error::BeyondEnd { .. }
            | Error::NotRegular
            | Error::TooLarge { .. } => Self::invalid(error.to_string()),
            Error::NotFound(_)
            | Error::NoRoots
            | Error::NoFile
            | Error::Unreadable(_)
            | Error::NoText(_)
            | Error::TooSlow
            | Error::TooMany(_)
            | Error::Full(_) => Self::denied(error.to_string()),
        }
    }
}
