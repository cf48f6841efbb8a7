//! Asks a person something or shows something, through HTML resources embedded in tool results.
//!
//! Open prompts are one document per session, assistant and thread, kept by the [`State`]: a prompt can be answered only
//! where it was asked. Charts and pauses keep nothing.

use std::{
    fmt,
    hash::{BuildHasher, RandomState},
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
use moongate_storage::{Documents, State};

mod chart;
mod error;
mod pause;
mod prompt;

use prompt::Prompts;

/// The kind of document this backend keeps.
const KIND: &str = "ui";

/// The ui backend.
pub struct Ui {
    state: Arc<dyn State>,
    clock: Clock,
    ids: Ids,
}

impl Ui {
    /// A backend that keeps open prompts in `state` and dates them by `clock`.
    pub fn new(state: Arc<dyn State>, clock: Clock) -> Self {
        let instance = RandomState::new().hash_one(clock.millis());
        Self { state, clock, ids: Ids { instance, next: AtomicU64::new(0) } }
    }
}

impl Builtin for Ui {
    fn name(&self) -> &'static str {
        KIND
    }

    fn tools(&self) -> Vec<ToolSpec> {
        [prompt::tools(), chart::tools(), pause::tools()].concat()
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
        let prompts = Documents::<Prompts>::open(&*self.state, KIND, cx.state_key());
        match tool {
            "prompt_user" => prompt::ask(&prompts, parse(&arguments)?, self.ids.next()).await,
            "reply_prompt" => prompt::reply(&prompts, parse(&arguments)?, &self.clock).await,
            "visualize_data" => chart::draw(&parse(&arguments)?, &self.ids.next()),
            "wait_for_user_resume" => pause::wait(&parse(&arguments)?, &self.ids.next(), &self.clock),
            "resume_from_wait" => pause::resume(&parse(&arguments)?, &self.clock),
            _ => Err(CallError::client(Kind::Unknown, format!("Unknown tool: {tool}")).into()),
        }
    }

    /// Nothing is kept outside the documents, which the State forgets by itself when a session ends.
    fn session_ended(&self, _session: &SessionKey) {}
}

impl fmt::Debug for Ui {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Ui")
    }
}

/// Names for prompts and pages: a number of this process, and the process told apart from others that share the State.
struct Ids {
    instance: u64,
    next: AtomicU64,
}

impl Ids {
    fn next(&self) -> String {
        format!("{:016x}-{}", self.instance, self.next.fetch_add(1, Ordering::Relaxed) + 1)
    }
}

#[cfg(test)]
mod tests;
