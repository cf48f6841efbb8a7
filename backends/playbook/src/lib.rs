//! Reusable workflows that an assistant owns: written once, selected when needed.
//!
//! Playbooks are rows of the caller's durable session, so they survive restarts and are shared by the assistants of that
//! session; an assistant sees and changes only its own. A call is answered after the row is on disk.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use moongate_core::{
    Builtin, CallError, Clock, Context, Kind, Raw, SessionKey,
    arguments::parse,
    builtin::{ToolError, ToolOutput, ToolSpec},
};
use moongate_storage::store::Stores;

mod error;
mod library;
mod record;
mod run;
mod show;
mod template;
mod tools;

use library::Library;

/// The playbook backend.
pub struct Playbook {
    stores: Arc<dyn Stores>,
    clock: Clock,
    options: PlaybookOptions,
    made: AtomicU64,
}

/// What an operator can choose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PlaybookOptions {
    /// Whether a call that says no assistant is denied. Otherwise it sees the playbooks of every assistant.
    pub require_assistant: bool,
}

impl Playbook {
    /// A backend that keeps its rows in `stores` and dates them by `clock`.
    pub fn new(stores: Arc<dyn Stores>, clock: Clock, options: PlaybookOptions) -> Self {
        Self { stores, clock, options, made: AtomicU64::new(0) }
    }

    fn now(&self) -> String {
        humantime::format_rfc3339_millis(self.clock.now()).to_string()
    }

    /// The time and a running number, so that rows are in the order they were made.
    fn next_id(&self) -> String {
        format!("{}-{:04}", self.clock.millis(), self.made.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

impl Builtin for Playbook {
    fn name(&self) -> &'static str {
        "playbook"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        tools::all()
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
        let assistant = cx.ids.assistant.as_deref();
        let library = Library::open(&*self.stores, cx, assistant, self.options.require_assistant)?;
        match tool {
            "create_playbook" => {
                run::create(&library, parse(&arguments)?, || self.next_id(), &self.now()).await
            }
            "select_playbook" => run::select(&library, parse(&arguments)?).await,
            "get_playbook" => run::get(&library, parse(&arguments)?).await,
            "update_playbook" => run::update(&library, parse(&arguments)?, &self.now()).await,
            "delete_playbook" => run::delete(&library, parse(&arguments)?).await,
            "list_playbooks" => run::list(&library, parse(&arguments)?).await,
            "show_playbooks" | "get_playbook_page" => run::show(&library, parse(&arguments)?).await,
            _ => Err(CallError::client(Kind::Unknown, format!("Unknown tool: {tool}")).into()),
        }
    }

    /// Nothing is kept in memory, and stored rows stay.
    fn session_ended(&self, _session: &SessionKey) {}
}

impl fmt::Debug for Playbook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Playbook")
    }
}

#[cfg(test)]
mod tests;
