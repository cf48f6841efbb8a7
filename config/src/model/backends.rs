//! The built-in backends and where their durable data lies.

pub(crate) mod content;
pub(crate) mod workspace;

use std::path::PathBuf;

use self::{
    content::{Content, RawContent},
    workspace::{RawWorkspace, Workspace},
};
use super::server::Directories;
use crate::load::{
    declare::{section, words},
    node::Node,
    read::{FromNode, Reader},
};

/// The names that belong to built-in backends, of this version and of later ones: an upstream that took one would be in
/// the way of an upgrade.
pub(crate) const NAMES: [&str; 8] =
    ["planning", "playbook", "ui", "content", "workspace", "memory", "inspect", "debug"];

section! {
    /// The built-in backends.
    #[schemars(rename = "Backends")]
    struct RawBackends {
        /// Goals, todos, memos and thoughts of a session.
        planning: RawBackend,
        /// Recorded ways of doing things.
        playbook: RawBackend,
        /// Questions to the person at the client.
        ui: RawBackend,
        /// Texts of a session, kept and searched.
        content: RawContent,
        /// The directory of a session: its files, and the commands that run in it.
        workspace: RawWorkspace,
    }
    later: ["memory", "inspect", "debug"]
}

section! {
    /// One built-in backend.
    #[schemars(rename = "Backend")]
    struct RawBackend {
        /// Whether it is there.
        #[schemars(extend("default" = true))]
        enabled: bool,
        /// How its tools report failure: as a result, which the model sees, or as a JSON-RPC error, which the client sees.
        #[schemars(extend("default" = "result"))]
        tool_errors: ToolErrors,
    }
    later: ["retention"]
}

section! {
    /// Where durable data lies.
    #[schemars(rename = "Storage")]
    struct RawStorage {
        /// The SQLite database: a path, or `sqlite:///path`. Absent: `moongate.db` in the data directory.
        url: Database,
        /// When a write is acknowledged: on the disk, or with the system, which may lose the last writes with the power.
        #[schemars(extend("default" = "full"))]
        durability: Durability,
    }
}

/// The database in the file.
#[derive(Clone, Debug)]
pub(crate) struct Database(pub(crate) PathBuf);

words!(ToolErrors { "result" => Result, "jsonrpc" => Jsonrpc });
words!(Durability { "full" => Full, "relaxed" => Relaxed });

impl FromNode for Database {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        const EXPECTED: &str = "a path or `sqlite:///path`";
        let text = reader.text(node, EXPECTED)?.value;
        let path = match text.split_once(':') {
            Some(("postgres" | "postgresql", _)) => return reader.not_available(node, "PostgreSQL"),
            Some(("sqlite", ":memory:")) => return reader.not_available(node, "a database in memory"),
            Some(("sqlite", rest)) => match rest.strip_prefix("//") {
                Some(path) if !path.starts_with('/') => return reader.wrong(node, EXPECTED),
                path => path.unwrap_or(rest),
            },
            Some((_, rest)) if rest.starts_with("//") => return reader.wrong(node, EXPECTED),
            _ => text.as_str(),
        };
        if path.is_empty() {
            return reader.wrong(node, EXPECTED);
        }
        Some(Self(reader.expander.directories.resolve(path, &reader.expander.base)))
    }
}

impl schemars::JsonSchema for Database {
    fn inline_schema() -> bool {
        true
    }

    fn schema_name() -> std::borrow::Cow<'static, str> {
        "Database".into()
    }

    fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
        schemars::json_schema!({ "type": "string", "minLength": 1 })
    }
}

/// The built-in backends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Backends {
    /// Goals, todos, memos and thoughts of a session.
    pub planning: Backend,
    /// Recorded ways of doing things.
    pub playbook: Backend,
    /// Questions to the person at the client.
    pub ui: Backend,
    /// Texts of a session, kept and searched.
    pub content: Content,
    /// The directory of a session: its files, and the commands that run in it.
    pub workspace: Workspace,
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
    pub(super) fn defaults(directories: &Directories) -> Self {
        Self {
            planning: Backend::default(),
            playbook: Backend::default(),
            ui: Backend::default(),
            content: Content::default(),
            workspace: Workspace::defaults(directories),
        }
    }

    /// The backends by name, in the order their tools are listed.
    pub fn iter(&self) -> impl Iterator<Item = (&'static str, &Backend)> {
        let Self { planning, playbook, ui, content, workspace } = self;
        let plain = [("planning", planning), ("playbook", playbook), ("ui", ui)];
        plain.into_iter().chain([("content", &content.backend), ("workspace", &workspace.backend)])
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
