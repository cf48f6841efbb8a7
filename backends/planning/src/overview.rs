//! The whole plan at a glance, and its end.

use std::sync::Arc;

use moongate_core::{
    Scope,
    builtin::{Effect, Fragment, ToolError, ToolOutput, ToolSpec},
    schema,
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    memos::Memos,
    plan::{MAX_MEMOS, Plan, Plans, change, read},
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
            effect: Effect::Reads,
        },
        ToolSpec {
            name: "clear_session",
            title: "Clear session",
            description: "Removes all goals, todos, memos, thoughts and reflections; ids start from the beginning.",
            input_schema: schema::object(json!({}), &[]),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Overwrites,
        },
    ]
}

pub(crate) async fn show(plans: &Plans<'_>, args: Show) -> Result<ToolOutput, ToolError> {
    let plan = read(plans).await?;
    let none = (!args.include_scratchpad.unwrap_or(true)).then(Memos::default);
    let completed = args.include_completed.unwrap_or(true);
    let shown = |todo: &&Arc<Todo>| completed || todo.status != TodoStatus::Completed;
    let overview = Overview {
        plan: &plan,
        todos: plan.todos.iter().filter(shown).collect(),
        memos: none.as_ref().unwrap_or(&plan.memos),
    };
    Ok(ToolOutput::written(overview.room(), |text| overview.text(text), |data| overview.data(data)))
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

/// What is shown of a plan. Written piece by piece, since nothing is asked for as often and most of it is memos, which
/// are written already.
struct Overview<'a> {
    plan: &'a Plan,
    todos: Vec<&'a Arc<Todo>>,
    memos: &'a Memos,
}

impl Overview<'_> {
    /// Room for everything, or nearly: texts are most of it, and are there twice.
    fn room(&self) -> usize {
        let items = self.plan.goals.weight() + self.plan.todos.weight() + self.plan.reflections.weight();
        256 + self.memos.lines().len() + self.memos.data().len() + 2 * items
    }

    fn text(&self, out: &mut Fragment) {
        out.raw(r"# Planning state\n");
        match self.plan.goal() {
            Some(goal) => out.raw("Goal: ").text(&goal.name).raw(r"\n"),
            None => out.raw(r"No active goal\n"),
        };
        if let Some(goal) = &self.plan.last_cleared_goal {
            out.raw("Last cleared goal: ").text(goal).raw(r"\n");
        }
        let todos = &self.plan.todos;
        if !todos.is_empty() {
            let done = todos.iter().filter(|todo| todo.status == TodoStatus::Completed).count();
            out.raw(r"\n## Todos (").value(&done).raw(" of ").value(&todos.len()).raw(r" completed)\n");
            for todo in &self.todos {
                out.text(&todos::line(todo)).raw(r"\n");
            }
        }
        if self.memos.len() > 0 {
            out.raw(r"\n## Memos (").value(&self.memos.len()).raw(" of ").value(&MAX_MEMOS).raw(r")\n");
            out.raw(self.memos.lines());
        }
        if let Some(last) = self.plan.reflections.iter().last() {
            out.raw(r"\n## Last reflection\n").text(&last.insight).raw(r"\nNext: ").text(&last.next_action);
            out.raw(r"\n");
        }
    }

    fn data(&self, out: &mut Fragment) {
        let Plan { goals, last_cleared_goal, reflections, .. } = self.plan;
        out.raw(r#"{"goal":"#).value(&self.plan.goal().map(|goal| &goal.name));
        out.raw(r#","goals":"#).value(goals);
        out.raw(r#","lastClearedGoal":"#).value(last_cleared_goal);
        out.raw(r#","todos":"#).value(&self.todos);
        out.raw(r#","memos":["#).raw(self.memos.data()).raw("]");
        if !reflections.is_empty() {
            out.raw(r#","reflections":"#).value(reflections);
        }
        out.raw("}");
    }
}

#[cfg(test)]
mod tests {
    use serde::Serialize;

    use super::*;
    use crate::{goals::Goal, shelf::Shelf, thoughts::Reflection};

    const SPECIAL: &str = "a \"b\"\\\tc\n\u{1}달🌙";

    fn overview(plan: &Plan) -> String {
        let (memos, todos) = (&plan.memos, plan.todos.iter().collect());
        let overview = Overview { plan, todos, memos };
        let output =
            ToolOutput::written(overview.room(), |text| overview.text(text), |data| overview.data(data));
        output.into_result().as_str().to_owned()
    }

    #[test]
    fn the_pieces_are_what_serde_would_write() {
        #[derive(Serialize)]
        #[serde(rename_all = "camelCase")]
        struct Data<'a> {
            goal: Option<&'a str>,
            goals: &'a Shelf<Goal>,
            last_cleared_goal: Option<&'a str>,
            todos: &'a Shelf<Todo>,
            memos: &'a Memos,
            reflections: &'a Shelf<Reflection>,
        }
        let mut plan = Plan::default();
        for number in 0..2 {
            plan.create_goal(&format!("{SPECIAL}{number}").into(), "2026-01-01T00:00:00Z").unwrap();
            plan.add_memo(SPECIAL, Some(SPECIAL)).unwrap();
            plan.reflections.push(Reflection {
                critique: SPECIAL.into(),
                insight: SPECIAL.into(),
                next_action: "next\n".into(),
            });
        }
        plan.last_cleared_goal = Some(SPECIAL.into());
        let todo = json!({"id": 7, "name": SPECIAL, "status": "completed", "summary": SPECIAL});
        plan.todos.push(serde_json::from_value(todo).unwrap());

        let (goal, text) = (
            format!("{SPECIAL}1"),
            format!(
                "# Planning state\nGoal: {SPECIAL}1\nLast cleared goal: {SPECIAL}\n\n## Todos (1 of 1 completed)\n\
                 - [x] 7. {SPECIAL}: {SPECIAL}\n\n## Memos (2 of 10)\n- 0: {SPECIAL}\n- 1: {SPECIAL}\n\n\
                 ## Last reflection\n{SPECIAL}\nNext: next\n\n"
            ),
        );
        let data = Data {
            goal: Some(&goal),
            goals: &plan.goals,
            last_cleared_goal: Some(SPECIAL),
            todos: &plan.todos,
            memos: &plan.memos,
            reflections: &plan.reflections,
        };
        assert_eq!(overview(&plan), ToolOutput::new(text, data).into_result().as_str());
    }

    #[test]
    fn an_empty_plan_says_so() {
        assert_eq!(
            overview(&Plan::default()),
            r##"{"content":[{"type":"text","text":"# Planning state\nNo active goal\n"}],"structuredContent":{"goal":null,"goals":[],"lastClearedGoal":null,"todos":[],"memos":[]},"isError":false}"##
        );
    }
}
