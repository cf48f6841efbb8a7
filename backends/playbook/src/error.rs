//! What a playbook tool can refuse, in words for the model.

use moongate_core::builtin::ToolError;
use moongate_storage as storage;
use serde_json::json;

use crate::{
    library::{MAX_LISTED, MAX_PLAYBOOKS},
    record::MAX_SIZE,
};

/// Why a tool did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Playbook not found: {0}")]
    NotFound(String),
    #[error("Permission denied: Playbook {id} does not belong to assistant {assistant}")]
    Denied { id: String, assistant: String },
    #[error("Permission denied: playbooks are open to assistants only, and this call comes from none")]
    NoAssistant,
    #[error("Error: {0} is required")]
    Missing(&'static str),
    #[error("Error: steps and workflow are the same list, but they differ; send one of them")]
    TwoWorkflows,
    #[error("Error: two {0} have the same name")]
    Repeated(&'static str),
    #[error("Error: input {name} must be a {expected}")]
    WrongInput { name: String, expected: &'static str },
    #[error("Error: unknown inputs: {unknown} (known: {known})")]
    UnknownInputs { unknown: String, known: String },
    #[error("Error: a playbook takes at most {MAX_SIZE} bytes, and this one takes {0}")]
    TooLarge(usize),
    #[error("Error: pageSize must be -1 (all) or from 1 to 1000")]
    PageSize,
    #[error(
        "These playbooks take more than {MAX_LISTED} bytes together. Ask for fewer with page and pageSize"
    )]
    PageTooLarge,
    #[error("At most {MAX_PLAYBOOKS} playbooks are kept. Make room with delete_playbook")]
    Full,
    #[error("Playbook {0} is being changed by others all the time. Try again")]
    Busy(String),
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        let failed = match error {
            Error::Storage(error) => return Self::Call(error.into()),
            Error::Denied { .. }
            | Error::NoAssistant
            | Error::PageTooLarge
            | Error::Full
            | Error::Busy(_) => Self::denied(message),
            Error::NotFound(_)
            | Error::Missing(_)
            | Error::TwoWorkflows
            | Error::Repeated(_)
            | Error::WrongInput { .. }
            | Error::UnknownInputs { .. }
            | Error::TooLarge(_)
            | Error::PageSize => Self::invalid(message),
        };
        failed.with_details(json!({"success": false}))
    }
}
