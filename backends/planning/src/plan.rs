//! The document: everything one session, assistant and thread has planned.
//!
//! The modules of the tools add the operations; this one holds what is kept and how much of it.

use std::{any::Any, sync::Arc};

use moongate_core::builtin::ToolError;
use moongate_storage::{Document, Documents};
use serde::{Deserialize, Serialize};

use crate::{
    error::Error,
    goals::Goal,
    memos::Memos,
    shelf::Shelf,
    thoughts::{Reflection, Thought},
    todos::Todo,
};

/// Goals, todos and thoughts each: far more than a model can follow, little enough to list.
pub(crate) const MAX_ITEMS: usize = 1000;
/// Notes are what must not be forgotten now; more would not be read.
pub(crate) const MAX_MEMOS: usize = 10;
/// Bytes of one text.
pub(crate) const MAX_TEXT: usize = 64 * 1024;
/// Thoughts fall out beyond this, oldest first, so that they never take the room of goals and todos. One thought with
/// all its texts fits.
pub(crate) const MAX_THOUGHT_BYTES: usize = 5 * MAX_TEXT;
/// The same for reflections.
pub(crate) const MAX_REFLECTION_BYTES: usize = 4 * MAX_TEXT;
/// What an empty document takes.
const BASE_SIZE: usize = 256;

/// What is planned.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Plan {
    pub(crate) goals: Shelf<Goal>,
    pub(crate) last_cleared_goal: Option<Arc<str>>,
    pub(crate) todos: Shelf<Todo>,
    pub(crate) memos: Memos,
    pub(crate) thoughts: Shelf<Thought>,
    pub(crate) reflections: Shelf<Reflection>,
    /// How many of each were ever made: ids are never used twice.
    pub(crate) goals_made: u64,
    pub(crate) todos_made: u64,
    pub(crate) memos_made: u64,
}

impl Document for Plan {
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a plan has string keys only")
    }

    fn size(&self) -> usize {
        BASE_SIZE
            + length(self.last_cleared_goal.as_deref())
            + self.goals.weight()
            + self.todos.weight()
            + self.memos.weight()
            + self.thoughts.weight()
            + self.reflections.weight()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

/// The caller's plan, opened.
pub(crate) type Plans<'a> = Documents<'a, Plan>;

/// Changes the caller's plan, and turns a refusal into words for the model.
pub(crate) async fn change<R>(
    plans: &Plans<'_>,
    mut change: impl FnMut(&mut Plan) -> Result<R, Error>,
) -> Result<R, ToolError> {
    plans.update(|plan| change(plan)).await.map_err(|error: Error| error.into())
}

/// Reads the caller's plan.
pub(crate) async fn read(plans: &Plans<'_>) -> Result<Arc<Plan>, ToolError> {
    plans.read().await.map_err(|error| Error::from(error).into())
}

/// Checks a text that must say something.
pub(crate) fn required(name: &'static str, text: &str) -> Result<(), Error> {
    if text.trim_start().is_empty() { Err(Error::Missing(name)) } else { bounded(name, Some(text)) }
}

/// Checks the length of a text that may be absent.
pub(crate) fn bounded(name: &'static str, text: Option<&str>) -> Result<(), Error> {
    if text.is_some_and(|text| text.len() > MAX_TEXT) { Err(Error::TooLong(name)) } else { Ok(()) }
}

/// The length of a text that may be absent.
pub(crate) fn length(text: Option<&str>) -> usize {
    text.map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_survives_its_encoding() {
        let mut plan = Plan::default();
        plan.create_goal(&"a goal".into(), "2026-01-01T00:00:00Z").unwrap();
        plan.add_memo("a memo", None).unwrap();
        let back: Plan = serde_json::from_slice(&plan.encode()).unwrap();
        assert_eq!(back.size(), plan.size());
        assert_eq!(back.encode(), plan.encode());
    }
}
