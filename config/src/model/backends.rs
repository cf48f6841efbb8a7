//! The built-in backends and where their durable data lies.

use std::path::PathBuf;

use super::server::Directories;

/// The built-in backends.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Backends {
    /// Goals, todos, memos and thoughts of a session.
    pub planning: Backend,
    /// Recorded ways of doing things.
    pub playbook: Backend,
    /// Questions to the person at the client.
    pub ui: Backend,
}

/// One built-in backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backend {
    /// Whether it is there.
    pub enabled: bool,
    /// How its tools report failure.
    pub tool_errors: ToolErrors,
}

/// How a tool reports that it failed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ToolErrors {
    /// A result with `isError: true`, which the model sees.
    #[default]
    Result,
    /// A JSON-RPC error, which the client sees.
    Jsonrpc,
}

/// Where durable data lies.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Storage {
    /// The `SQLite` database.
    pub path: PathBuf,
    /// When a write is acknowledged.
    pub durability: Durability,
}

/// When a write is acknowledged.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// When it is on the disk.
    #[default]
    Full,
    /// When the system has it: a power failure may lose the last writes.
    Relaxed,
}

impl Backends {
    /// The backends by name, in the order their tools are listed.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Backend)> {
        [("planning", &self.planning), ("playbook", &self.playbook), ("ui", &self.ui)].into_iter()
    }

    /// The backend called `name`.
    pub fn get(&self, name: &str) -> Option<&Backend> {
        self.iter().find_map(|(known, backend)| (known == name).then_some(backend))
    }
}

impl Default for Backend {
    fn default() -> Self {
        Self { enabled: true, tool_errors: ToolErrors::default() }
    }
}

impl Storage {
    pub(super) fn defaults(directories: &Directories) -> Self {
        Self { path: directories.data.join("moongate.db"), durability: Durability::default() }
    }
}
