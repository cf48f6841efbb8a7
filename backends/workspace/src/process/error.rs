//! What a process tool can refuse, in words for the model.

use std::io;

use moongate_core::builtin::ToolError;

/// Why a tool did not do it.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("processId is required")]
    NoId,
    #[error("No processes in this session")]
    NoProcesses,
    #[error("Process not found")]
    NotFound,
    #[error("Access denied: process belongs to different session")]
    NotYours,
    #[error("a null character cannot be part of a command")]
    Null,
    #[error(
        "A command that is waited for may take {0} seconds at most. Use run_mode \"async\" for longer ones and follow \
         them with poll_process"
    )]
    TooLong(u64),
    #[error(
        "{0} processes are running in this session, which is the most there may be. Wait for one to end, or end one with \
         terminate_process"
    )]
    TooMany(usize),
    #[error("The session is over")]
    Over,
    #[error("The workspace is not open to this caller any more")]
    NotAdmitted,
    #[error("Too many processes are running in this gateway. Try again later")]
    Crowded,
    #[error(
        "The command did not end within {0} seconds and was killed. Use run_mode \"async\" for commands that take longer"
    )]
    TimedOut(u64),
    #[error("The command was not started: {0}")]
    NotStarted(#[from] moongate_launch::Error),
    #[error("The directory of the session cannot be used: {0}")]
    NoRoom(io::Error),
    #[error("The output of the process cannot be kept or read: {0}")]
    NoOutput(io::Error),
}

impl From<Error> for ToolError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::NoId | Error::NoProcesses | Error::NotFound | Error::Null | Error::TooLong(_) => {
                Self::invalid(message)
            }
            Error::NotYours
            | Error::TooMany(_)
            | Error::Over
            | Error::NotAdmitted
            | Error::Crowded
            | Error::TimedOut(_)
            | Error::NotStarted(_)
            | Error::NoRoom(_)
            | Error::NoOutput(_) => Self::denied(message),
        }
    }
}
