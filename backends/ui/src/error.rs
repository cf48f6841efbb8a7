//! What a ui tool can refuse, in words for the model.

use moongate_core::builtin::ToolError;
use moongate_storage as storage;

/// Why a tool did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Error: {0} is required")]
    Missing(&'static str),
    #[error("Error: options are required for prompts of type select and multiselect")]
    NoOptions,
    #[error("Prompt {0} not found: it has expired or was already answered")]
    NoPrompt(String),
    #[error("Error: the answer must be {0}")]
    WrongAnswer(&'static str),
    #[error("Error: startedAt must be an RFC 3339 time such as 2026-01-31T12:00:00Z")]
    NotATime,
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        match error {
            Error::Storage(storage::Error::TooLarge { limit, .. }) => {
                Self::denied(format!("The prompt is too large: at most {limit} bytes are kept"))
            }
            Error::Storage(error) => Self::Call(error.into()),
            other => Self::invalid(other.to_string()),
        }
    }
}

/// Checks a text that must say something.
pub(crate) fn required(name: &'static str, text: &str) -> Result<(), Error> {
    if text.trim().is_empty() { Err(Error::Missing(name)) } else { Ok(()) }
}
