//! What a planning tool can refuse, in words for the model.

use moongate_core::builtin::ToolError;
use moongate_storage as storage;
use serde_json::json;

use crate::plan::MAX_TEXT;

/// Why a tool did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("Error: {0} is required")]
    Missing(&'static str),
    #[error("Error: {0} is too long: at most {MAX_TEXT} bytes are kept")]
    TooLong(&'static str),
    #[error("No active goal. Create one with create_goal")]
    NoGoal,
    #[error("{what} {id} not found. {}", available(.ids))]
    NotFound { what: &'static str, id: String, ids: Vec<u64> },
    #[error("Error: todo {0} cannot depend on itself")]
    OwnDependency(u64),
    #[error("At most {limit} {what} are kept. Make room with {tool}")]
    Full { what: &'static str, limit: usize, tool: &'static str },
    #[error(transparent)]
    Storage(#[from] storage::Error),
}

fn available(ids: &[u64]) -> String {
    if ids.is_empty() {
        return "There are none".to_owned();
    }
    let ids: Vec<String> = ids.iter().map(u64::to_string).collect();
    format!("Available ids: {}", ids.join(", "))
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Storage(storage::Error::TooLarge { limit, .. }) => Self::denied(format!(
                "This planning state is full: at most {limit} bytes are kept. \
                 Make room with clear_todos, clear_memo or clear_session"
            ))
            .with_details(json!({"success": false})),
            Error::Storage(error) => Self::Call(error.into()),
            Error::Full { .. } => Self::denied(message).with_details(json!({"success": false})),
            Error::NotFound { ids, .. } => {
                Self::invalid(message).with_details(json!({"success": false, "availableIds": ids}))
            }
            Error::Missing(_) | Error::TooLong(_) | Error::NoGoal | Error::OwnDependency(_) => {
                Self::invalid(message).with_details(json!({"success": false}))
            }
        }
    }
}
