//! The whole plan at a glance, and its end.

use std::{fmt::Write, sync::Arc};

use moongate_core::{
    Scope,
    builtin::{ToolError, ToolOutput, ToolSpec},
    schema,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    goals::Goal,
    memos::Memo,
    plan::{MAX_MEMOS, Plan, Plans, change, read},
    shelf::Shelf,
    thoughts::Reflection,
    todos::{self, Todo, TodoStatus},
};

#[derive(Deserialize)]
pub(crate) struct Show {
    include_completed: Option<bool>,
    include_scratchpad: Option<bool>,
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    vec![
        ToolSpec {
            name: "get_planning_state",
            title: "Get planning state",
            description: "Shows the current goal, all goals, todos and memos.",
            input_schema: schema::object(
                json!({
                    "include_completed": schema::flag("Whether to show completed todos; true when absent"),
                    "include_scratchpad": schema::flag("Whether to show memos; true when absent"),
                }),
                &[],
            ),
            aliases: &["get_current_state"],
            scope: Scope::READ,
            destructive: false,
        },
        ToolSpec {
            name: "clear_session",
            title: "Clear session",
            description: "Removes all goals, todos, memos, thoughts and reflections; ids start from the beginning.",
            input_schema: schema::object(json!({}), &[]),
            aliases: &[],
            scope: Scope::WRITE,
            destructive: true,
        },
    ]
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Overview<'a> {
    goal: Option<&'a str>,
    goals: &'a Shelf<Goal>,
    last_cleared_goal: Option<&'a str>,
    todos: Vec<&'a Todo>,
    memos: &'a Shelf<Memo>,
    #[serde(skip_serializing_if = "Shelf::is_empty")]
    reflections: &'a Shelf<Reflection>,
}

pub(crate) async fn show(plans: &Plans<'_>, args: Show) -> Result<ToolOutput, ToolError> {
    let plan = read(plans).await?;
    let (completed, scratchpad) =
        (args.include_completed.unwrap_or(true), args.include_scratchpad.unwrap_or(true));
    let none = (!scratchpad).then(Shelf::default);
    let shown = |todo: &&Arc<Todo>| completed || todo.status != TodoStatus::Completed;
    let overview = Overview {
        goal: plan.goal().map(|goal| &*goal.name),
        goals: &plan.goals,
        last_cleared_goal: plan.last_cleared_goal.as_deref(),
        todos: plan.todos.iter().filter(shown).map(|todo| &**todo).collect(),
        memos: none.as_ref().unwrap_or(&plan.memos),
        reflections: &plan.reflections,
    };
    Ok(ToolOutput::new(overview.markdown(&plan), &overview))
}

pub(crate) async fn clear(plans: &Plans<'_>) -> Result<ToolOutput, ToolError> {
    change(plans, |plan| {
        *plan = Plan::default();
        Ok(())
    })
    .await?;
    Ok(ToolOutput::new(
        "Session cleared: no goals, todos, memos or thoughts are left.",
        json!({"success": true}),
    ))
}

impl Overview<'_> {
    fn markdown(&self, plan: &Plan) -> String {
        // Room for everything, or nearly: texts are most of it.
        let mut out = String::with_capacity(128 + self.memos.weight() + plan.todos.weight());
        out.push_str("# Planning state\n");
        self.write(&mut out, plan).expect("writing to a string cannot fail");
        out
    }

    fn write(&self, out: &mut String, plan: &Plan) -> std::fmt::Result {
        match self.goal {
            Some(goal) => writeln!(out, "Goal: {goal}")?,
            None => writeln!(out, "No active goal")?,
        }
        if let Some(goal) = self.last_cleared_goal {
            writeln!(out, "Last cleared goal: {goal}")?;
        }
        if !plan.todos.is_empty() {
            let done = plan.todos.iter().filter(|todo| todo.status == TodoStatus::Completed).count();
            writeln!(out, "\n## Todos ({done} of {} completed)", plan.todos.len())?;
            for todo in &self.todos {
                writeln!(out, "{}", todos::line(todo))?;
            }
        }
        if !self.memos.is_empty() {
            writeln!(out, "\n## Memos ({} of {MAX_MEMOS})", self.memos.len())?;
            for memo in self.memos.iter() {
                out.push_str(&memo.line);
            }
        }
        if let Some(reflection) = self.reflections.get(self.reflections.len().wrapping_sub(1)) {
            writeln!(out, "\n## Last reflection\n{}\nNext: {}", reflection.insight, reflection.next_action)?;
        }
        Ok(())
    }
}
