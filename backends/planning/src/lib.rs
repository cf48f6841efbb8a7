//! Goals, todos, notes and thoughts for an agent.
//!
//! Everything is one document per session, assistant and thread, kept by the [`State`]: it is lost on a restart, and
//! goes when nobody has used it for a while. Nothing here remembers a caller, so calls of any mix of callers may overlap.

use std::sync::Arc;

use moongate_core::{
    Builtin, CallError, Clock, Context, Kind, Raw, SessionKey,
    arguments::parse,
    builtin::{ToolError, ToolOutput, ToolSpec},
};
use moongate_storage::{Documents, State};

mod error;
mod goals;
mod memos;
mod overview;
mod plan;
mod shelf;
mod thoughts;
mod todos;

use plan::Plan;

/// The kind of document this backend keeps.
const KIND: &str = "planning";

/// The planning backend.
pub struct Planning {
    state: Arc<dyn State>,
    clock: Clock,
}

impl Planning {
    /// A backend that keeps its documents in `state` and dates them by `clock`.
    pub fn new(state: Arc<dyn State>, clock: Clock) -> Self {
        Self { state, clock }
    }
}

impl Builtin for Planning {
    fn name(&self) -> &'static str {
        KIND
    }

    fn tools(&self) -> Vec<ToolSpec> {
        [goals::tools(), todos::tools(), memos::tools(), overview::tools(), thoughts::tools()].concat()
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
        let plan = Documents::<Plan>::open(&*self.state, KIND, cx.state_key());
        match tool {
            "create_goal" => goals::create(&plan, parse(&arguments)?, &self.clock).await,
            "list_goals" => goals::list(&plan).await,
            "update_goal" => goals::update(&plan, parse(&arguments)?).await,
            "clear_goal" => goals::clear(&plan).await,
            "add_todo" => todos::add(&plan, parse(&arguments)?).await,
            "mark_todo" => todos::mark(&plan, parse(&arguments)?).await,
            "update_todo" => todos::update(&plan, parse(&arguments)?).await,
            "clear_todos" => todos::clear(&plan, parse(&arguments)?).await,
            "add_memo" => memos::add(&plan, parse(&arguments)?).await,
            "clear_memo" => memos::clear(&plan, parse(&arguments)?).await,
            "get_planning_state" => overview::show(&plan, parse(&arguments)?).await,
            "clear_session" => overview::clear(&plan).await,
            "sequentialthinking" => thoughts::think(&plan, parse(&arguments)?).await,
            "critiqueAndReflection" => thoughts::reflect(&plan, parse(&arguments)?).await,
            _ => Err(CallError::client(Kind::Unknown, format!("Unknown tool: {tool}")).into()),
        }
    }

    /// Nothing is kept outside the documents, which the State forgets by itself when a session ends.
    fn session_ended(&self, _session: &SessionKey) {}
}

impl std::fmt::Debug for Planning {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Planning")
    }
}

#[cfg(test)]
mod tests;
