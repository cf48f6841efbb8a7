//! Texts of a session, kept and searched.
//!
//! Texts are rows of the caller's durable session, so they survive restarts; a call is answered after they are on disk. What
//! searches need is built in memory from those rows, for a session that searches, and goes when nobody does.
//!
//! ```text
//! add ─ file, extract ─→ shelf (rows of one session) ─→ indexes (one for each session) ─→ search
//! ```

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moongate_core::{
    Audience, Builtin, CallError, Change, Changes, Clock, Context, Kind, Raw, SessionKey,
    arguments::parse,
    builtin::{ToolError, ToolOutput, ToolSpec},
    hash,
};
use moongate_storage::store::Stores;

pub mod extract;

mod add;
mod error;
mod file;
mod indexes;
mod item;
mod lines;
mod read;
mod resources;
mod search;
mod shelf;
mod tools;

use indexes::Indexes;
use shelf::Shelf;

/// The content backend: its tools and its resources. Clones are the same backend.
#[derive(Clone)]
pub struct Content(Arc<Inner>);

struct Inner {
    stores: Arc<dyn Stores>,
    changes: Changes,
    clock: Clock,
    options: ContentOptions,
    indexes: Arc<Indexes>,
    files: add::Files,
    /// Tells the ids of this process from those of others that use the same rows.
    process: u64,
    made: AtomicU64,
}

/// What an operator can choose.
#[derive(Clone, Debug)]
pub struct ContentOptions {
    /// The directories whose files may be read.
    pub roots: Vec<PathBuf>,
    /// How long a text stays that nobody uses; `None` for ever.
    pub retention: Option<Duration>,
    /// How much is taken.
    pub limits: ContentLimits,
}

/// How much is taken.
#[derive(Clone, Copy, Debug)]
pub struct ContentLimits {
    /// Bytes of a text.
    pub text: u64,
    /// Bytes of a file.
    pub file: u64,
    /// Texts of a session.
    pub contents: usize,
    /// Bytes of all texts of a session together.
    pub total: u64,
}

impl Content {
    /// A backend that keeps its rows in `stores`, dates them by `clock` and announces new resources through `changes`.
    pub fn new(stores: Arc<dyn Stores>, changes: Changes, clock: Clock, options: ContentOptions) -> Self {
        Self::with_indexes(stores, changes, clock, options, Indexes::new())
    }

    fn with_indexes(
        stores: Arc<dyn Stores>,
        changes: Changes,
        clock: Clock,
        options: ContentOptions,
        indexes: Arc<Indexes>,
    ) -> Self {
        let process = hash::Hasher::new().hash_one("process") & 0xffff_ffff;
        Self(Arc::new(Inner {
            stores,
            changes,
            clock,
            options,
            indexes,
            files: add::Files::new(),
            process,
            made: AtomicU64::new(0),
        }))
    }

    /// The texts of the caller's session.
    fn shelf(&self, cx: &Context) -> Shelf<'_> {
        let Inner { stores, options, clock, .. } = &*self.0;
        Shelf::open(&**stores, &cx.store_scope(), options, clock.millis())
    }

    /// The time and a running number, so that rows are in the order they were made.
    fn next_id(&self) -> String {
        let number = self.0.made.fetch_add(1, Ordering::Relaxed) & 0xff_ffff;
        format!("content_{:011x}{number:06x}{:08x}", self.0.clock.millis(), self.0.process)
    }

    /// Tells the caller's clients.
    fn announce(&self, change: Change, cx: &Context) {
        self.0.changes.send_to(Audience::Principal(cx.principal.clone()), change);
    }
}

impl Builtin for Content {
    fn name(&self) -> &'static str {
        "content"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        tools::all()
    }

    fn told_aliases(&self) -> &'static [&'static str] {
        &[tools::ADD_UNNAMED]
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
        match tool {
            "add_content" => self.add(parse(&arguments)?, None, cx).await,
            tools::ADD_UNNAMED => self.add(parse(&arguments)?, Some(add::UNNAMED), cx).await,
            "list_contents" => self.list(parse(&arguments)?, cx).await,
            "read_content" => self.read(parse(&arguments)?, cx).await,
            "search_content" => self.search(parse(&arguments)?, cx).await,
            "delete_content" => self.delete(parse(&arguments)?, cx).await,
            _ => Err(CallError::client(Kind::Unknown, format!("Unknown tool: {tool}")).into()),
        }
    }

    fn session_ended(&self, session: &SessionKey) {
        self.0.indexes.forget(session);
    }
}

impl fmt::Debug for Content {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Content")
    }
}

#[cfg(test)]
mod tests;
