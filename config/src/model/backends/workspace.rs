//! The backend that runs commands: who may use it, and what of the machine they get.

use std::{num::NonZeroUsize, path::PathBuf, time::Duration};

use super::{Backend, ToolErrors};
use crate::{
    load::{
        declare::{section, words},
        read::At,
    },
    model::server::Directories,
    units::{Period, Size},
};

/// A month, as for other things of a session that nobody uses.
const RETENTION: Duration = Duration::from_hours(30 * 24);

section! {
    /// The directory of a session: its files, and the commands that run in it.
    #[schemars(rename = "Workspace")]
    struct RawWorkspace {
        /// Whether it is there.
        #[schemars(extend("default" = true))]
        enabled: bool,
        /// How its tools report failure: as a result, which the model sees, or as a JSON-RPC error, which the client sees.
        #[schemars(extend("default" = "result"))]
        tool_errors: ToolErrors,
        /// Who may use it: whoever has the local token, or whoever has the scope `control`. Never `anonymous`.
        #[schemars(extend("default" = "local"))]
        callers: Callers,
        /// Whom commands may speak to: nobody, or whom they like over IP, this machine included.
        #[schemars(extend("default" = "none"))]
        network: Network,
        /// What happens where commands cannot be confined completely: they run nevertheless, or not at all.
        #[schemars(extend("default" = "best_effort"))]
        confine: Confine,
        /// Where the directories of sessions lie. Absent: `workspace` in the data directory.
        root: PathBuf,
        /// What commands may read and run beside the programs and libraries of the system.
        #[schemars(extend("default" = []))]
        readable: Vec<At<PathBuf>>,
        /// The directories whose files may be imported.
        #[schemars(extend("default" = []))]
        import_roots: Vec<At<PathBuf>>,
        /// How long the directory of a session stays that nobody uses.
        #[schemars(extend("default" = "30d"))]
        retention: Period,
        /// What commands may take of the machine.
        limits: RawWorkspaceLimits,
    }
}

section! {
    /// What a command may take of the machine, with all that it starts.
    #[schemars(rename = "WorkspaceLimits")]
    struct RawWorkspaceLimits {
        /// Memory, of all together.
        #[schemars(extend("default" = "512MiB"))]
        memory: Size,
        /// Time on a processor, of each.
        #[schemars(extend("default" = "5m"))]
        cpu: Period,
        /// Open files, of each.
        #[schemars(extend("default" = 1024))]
        open_files: NonZeroUsize,
        /// Processes and threads, of all together.
        #[schemars(extend("default" = 256))]
        processes: NonZeroUsize,
        /// Bytes that are kept of each of its two streams.
        #[schemars(extend("default" = "100MiB"))]
        output: Size,
        /// The size of each file that it writes.
        #[schemars(extend("default" = "1GiB"))]
        file_size: Size,
        /// Commands that run in a session at a time.
        #[schemars(extend("default" = 20))]
        running: NonZeroUsize,
        /// How long a command may take that is waited for.
        #[schemars(extend("default" = "30s"))]
        wait: Period,
        /// The size of each file that tools read or write, or that is read by its address.
        #[schemars(extend("default" = "10MiB"))]
        file: Size,
    }
}

words!(Callers { "local" => Local, "scope" => Scope });
words!(Network { "none" => None, "outbound" => Outbound });
words!(Confine { "required" => Required, "best_effort" => BestEffort });

/// The directory of a session: its files, and the commands that run in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Workspace {
    /// What every backend has.
    pub backend: Backend,
    /// Who may use it.
    pub callers: Callers,
    /// Whom commands may speak to.
    pub network: Network,
    /// What happens where commands cannot be confined completely.
    pub confine: Confine,
    /// Where the directories of sessions lie.
    pub root: PathBuf,
    /// What commands may read beside the programs of the system.
    pub readable: Vec<PathBuf>,
    /// The directories whose files may be imported.
    pub import_roots: Vec<PathBuf>,
    /// How long the directory of a session stays that nobody uses; never zero.
    pub retention: Duration,
    /// What commands may take of the machine.
    pub limits: WorkspaceLimits,
}

/// What a command may take of the machine, with all that it starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkspaceLimits {
    /// Memory of all together.
    pub memory: Size,
    /// Time on a processor, of each; never zero.
    pub cpu: Duration,
    /// Open files, of each.
    pub open_files: NonZeroUsize,
    /// Processes and threads, of all together.
    pub processes: NonZeroUsize,
    /// Bytes that are kept of each of its two streams.
    pub output: Size,
    /// The size of each file that it writes.
    pub file_size: Size,
    /// Commands that run in a session at a time.
    pub running: NonZeroUsize,
    /// How long a command may take that is waited for; never zero.
    pub wait: Duration,
    /// The size of each file that tools read or write.
    pub file: Size,
}

/// Who may use a backend that runs commands.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Callers {
    /// Whoever has the local token.
    #[default]
    Local,
    /// Whoever has the scope `control`, but for `anonymous`.
    Scope,
}

/// Whom commands may speak to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Network {
    /// Nobody.
    #[default]
    None,
    /// Whom they like over IP, this machine included.
    Outbound,
}

/// What happens where commands cannot be confined completely.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Confine {
    /// They do not run.
    Required,
    /// They run with what there is, and it is said so.
    #[default]
    BestEffort,
}

impl Workspace {
    pub(super) fn defaults(directories: &Directories) -> Self {
        Self {
            backend: Backend::default(),
            callers: Callers::default(),
            network: Network::default(),
            confine: Confine::default(),
            root: directories.data.join("workspace"),
            readable: Vec::new(),
            import_roots: Vec::new(),
            retention: RETENTION,
            limits: WorkspaceLimits::default(),
        }
    }
}

impl Default for WorkspaceLimits {
    fn default() -> Self {
        const fn count(count: usize) -> NonZeroUsize {
            NonZeroUsize::new(count).expect("it is not zero")
        }
        Self {
            memory: Size(512 << 20),
            cpu: Duration::from_mins(5),
            open_files: count(1024),
            processes: count(256),
            output: Size(100 << 20),
            file_size: Size(1 << 30),
            running: count(20),
            wait: Duration::from_secs(30),
            file: Size(10 << 20),
        }
    }
}
