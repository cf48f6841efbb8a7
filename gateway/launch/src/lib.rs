//! Runs commands of which none outlives the gateway.
//!
//! ```text
//! gateway ─start→ supervise (our program again) ─exec→ the same once more, which becomes the command
//!    ↑               │ stays beside it; kills the whole tree when the command or the gateway ends
//!    └── stderr: the report, then what the command says
//! ```
//!
//! In: a [`Launch`], which says what to run and what it may use. Out: [`Started`], the pipes of the command and its
//! [`Supervisor`]. What the pipes are for is left to whoever starts it.

mod confine;
mod fence;
mod start;
mod supervise;
#[cfg_attr(not(target_os = "linux"), path = "blind.rs")]
mod tree;

use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use confine::{Confinement, Network};
pub use start::{Error, Input, Launch, Started, Supervisor};
pub use supervise::{Notice, Report, launched};

/// What shells add to the number of a signal, and so does a supervisor.
pub const SIGNALLED: i32 = 128;

/// What a command and all that it starts may use. How each is enforced is in the [`Report`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Bytes of memory, all processes together.
    pub memory: Option<u64>,
    /// Processor time of each process.
    pub cpu: Option<Duration>,
    /// Open files of each process.
    pub open_files: Option<u64>,
    /// Processes, and with control groups threads too.
    pub processes: Option<u64>,
    /// Bytes of each file that it writes.
    pub file_size: Option<u64>,
}
