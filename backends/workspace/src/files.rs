//! The file tools: they read, write, search and hand out what lies in a session's room.
//!
//! Every path is opened by `beneath`, below the room's directory and nowhere else. File systems block, so a call runs on a
//! thread for that; it is bounded by size, count and time, because it goes on when its caller has left.

use std::{
    path::PathBuf,
    sync::{Arc, PoisonError},
};

use moongate_core::{
    CallError, Clock, Kind, Raw,
    arguments::parse,
    builtin::{ToolError, ToolOutput, ToolSpec},
};

use crate::room::Room;

pub(crate) mod address;
pub(crate) mod beneath;
pub(crate) mod error;
mod export;
pub(crate) mod file;
mod glob;
mod grep;
mod import;
mod list;
pub(crate) mod path;
mod text;
mod tools;
mod walk;
mod zip;

/// What an operator can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FileOptions {
    /// The largest file that is read or written, in bytes.
    pub max_file_size: u64,
    /// Directories that `import_file` may copy from; none by default.
    pub import_roots: Vec<PathBuf>,
}

/// Runs the file tools. Clones are the same.
#[derive(Clone, Debug)]
pub struct Files(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    options: FileOptions,
    clock: Clock,
}

impl Default for FileOptions {
    fn default() -> Self {
        Self { max_file_size: 10 * 1024 * 1024, import_roots: Vec::new() }
    }
}

/// The tools, in the order they are listed.
pub fn specs() -> Vec<ToolSpec> {
    tools::all()
}

impl Files {
    /// File tools that follow `options` and date exports by `clock`.
    pub fn new(options: FileOptions, clock: Clock) -> Self {
        Self(Arc::new(Shared { options, clock }))
    }

    /// Whether a tool puts something into a room that may not be there yet. The others take an empty one.
    pub fn makes(tool: &str) -> bool {
        matches!(tool, "write_file" | "import_file")
    }

    /// Runs one of [`specs`] in `room`.
    ///
    /// # Cancel safety
    /// Dropping the future leaves what was begun to end by itself.
    pub async fn call(&self, tool: &str, arguments: &Raw, room: &Room) -> Result<ToolOutput, ToolError> {
        let (shared, room) = (Arc::clone(&self.0), room.clone());
        let (tool, arguments) = (tool.to_owned(), arguments.clone());
        let run = tokio::task::spawn_blocking(move || shared.run(&tool, &arguments, &room));
        run.await.unwrap_or_else(|error| Err(CallError::internal("The file tool broke off", error).into()))
    }
}

impl Shared {
    fn run(&self, tool: &str, arguments: &Raw, room: &Room) -> Result<ToolOutput, ToolError> {
        let (directory, limit) = (room.directory(), self.options.max_file_size);
        let now = || self.clock.now();
        let edit = || room.edits().lock().unwrap_or_else(PoisonError::into_inner);
        let output = match tool {
            "read_file" => text::read(directory, &parse(arguments)?, limit),
            "write_file" => {
                let _alone = edit();
                text::write(directory, &parse(arguments)?, limit)
            }
            "replace_lines_in_file" => {
                let _alone = edit();
                text::replace_lines(directory, &parse(arguments)?, limit)
            }
            "list_directory" => list::list(directory, &parse(arguments)?),
            "search_files" => list::search(directory, &parse(arguments)?),
            "grep" => grep::grep(directory, &parse(arguments)?, limit),
            "import_file" => {
                let _alone = edit();
                import::import(directory, &parse(arguments)?, &self.options)
            }
            "export_file" => export::file(directory, &parse(arguments)?, limit, now()),
            "export_zip" => export::zip(directory, &parse(arguments)?, limit, now()),
            _ => return Err(CallError::client(Kind::Unknown, format!("Unknown tool: {tool}")).into()),
        };
        Ok(output?)
    }
}

#[cfg(test)]
mod tests;
