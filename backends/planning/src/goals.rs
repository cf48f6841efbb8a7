//! Goals: what the agent is working towards. The current one is the last that was created and not cleared.

use std::sync::Arc;

use moongate_core::{
    Clock, Scope,
    builtin::{Effect, ToolError, ToolOutput, ToolSpec},
    schema,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    error::Error,
    plan::{MAX_ITEMS, Plan, Plans, change, read, required},
    shelf::{ITEM_OVERHEAD, Shelf, Weigh},
};

/// Something to reach.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Goal {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) status: GoalStatus,
    pub(crate) created_at: Arc<str>,
}

/// Whether a goal is still pursued.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum GoalStatus {
    Active,
    Cleared,
}

impl Weigh for Goal {
    fn weight(&self) -> usize {
        self.name.len() + self.created_at.len() + ITEM_OVERHEAD
    }
}

impl GoalStatus {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Cleared => "cleared",
        }
    }
}

#[derive(Deserialize)]
pub(crate) struct GoalText {
    goal: Arc<str>,
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let goal = |description| schema::object(json!({"goal": schema::text(description)}), &["goal"]);
    let nothing = || schema::object(json!({}), &[]);
    vec![
        ToolSpec {
            name: "create_goal",
            title: "Create goal",
            description: "Creates a goal and makes it the current one. Earlier goals stay in the list.",
            input_schema: goal("What is to be reached"),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
        ToolSpec {
            name: "list_goals",
            title: "List goals",
            description: "Lists all goals with their ids and whether they are active or cleared.",
            input_schema: nothing(),
            aliases: &[],
            scope: Scope::READ,
            effect: Effect::Reads,
        },
        ToolSpec {
            name: "update_goal",
            title: "Update goal",
            description: "Replaces the text of the current goal. Todos and notes stay as they are.",
            input_schema: goal("The new text of the current goal"),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Overwrites,
        },
        ToolSpec {
            name: "clear_goal",
            title: "Clear goal",
            description: "Clears the current goal and remembers it as the last cleared one. Todos stay.",
            input_schema: nothing(),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Overwrites,
        },
    ]
}

pub(crate) async fn create(
    plans: &Plans<'_>,
    args: GoalText,
    clock: &Clock,
) -> Result<ToolOutput, ToolError> {
    let now = humantime::format_rfc3339_millis(clock.now()).to_string();
    let (goal, previous) = change(plans, |plan| plan.create_goal(&args.goal, &now)).await?;
    let mut text = format!("Goal created: \"{}\" (id {}).", goal.name, goal.id);
    if let Some((previous, todos)) = previous {
        let noun = if todos == 1 { "todo" } else { "todos" };
        let told = format!(
            " The previous goal \"{}\" (id {}) stays active, with {todos} {noun}.",
            previous.name, previous.id
        );
        text.push_str(&told);
    }
    Ok(ToolOutput::new(text, json!({"success": true, "goal": goal.name, "goalId": goal.id})))
}

pub(crate) async fn list(plans: &Plans<'_>) -> Result<ToolOutput, ToolError> {
    #[derive(Serialize)]
    struct Goals<'a> {
        goals: &'a Shelf<Goal>,
    }
    let plan = read(plans).await?;
    let lines: Vec<String> = plan
        .goals
        .iter()
        .map(|goal| format!("- {}: {} ({})", goal.id, goal.name, goal.status.as_str()))
        .collect();
    let text =
        if lines.is_empty() { "No goals.".to_owned() } else { format!("Goals:\n{}", lines.join("\n")) };
    Ok(ToolOutput::new(text, Goals { goals: &plan.goals }))
}

pub(crate) async fn update(plans: &Plans<'_>, args: GoalText) -> Result<ToolOutput, ToolError> {
    let (before, after) = change(plans, |plan| plan.update_goal(&args.goal)).await?;
    let text = format!("Goal {} updated: \"{}\" (was \"{}\").", after.id, after.name, before.name);
    Ok(ToolOutput::new(text, json!({"success": true, "goal": after.name, "goalId": after.id})))
}

pub(crate) async fn clear(plans: &Plans<'_>) -> Result<ToolOutput, ToolError> {
    let goal = change(plans, Plan::clear_goal).await?;
    let text = format!("Goal cleared: \"{}\" (id {}). Todos stay.", goal.name, goal.id);
    Ok(ToolOutput::new(text, json!({"success": true, "lastClearedGoal": goal.name, "goalId": goal.id})))
}

/// A goal that is still active, and how many todos belong to it.
type Previous = Option<(Arc<Goal>, usize)>;

impl Plan {
    /// The current goal.
    pub(crate) fn goal(&self) -> Option<&Arc<Goal>> {
        self.current().and_then(|at| self.goals.get(at))
    }

    pub(crate) fn create_goal(&mut self, name: &Arc<str>, now: &str) -> Result<(Arc<Goal>, Previous), Error> {
        required("goal", name)?;
        self.make_room_for_goal()?;
        let previous = self.goal().map(|goal| {
            let todos = self.todos.iter().filter(|todo| todo.goal_id == Some(goal.id)).count();
            (Arc::clone(goal), todos)
        });
        self.goals_made += 1;
        let goal = Goal {
            id: self.goals_made,
            name: Arc::clone(name),
            status: GoalStatus::Active,
            created_at: now.into(),
        };
        Ok((self.goals.push(goal), previous))
    }

    fn update_goal(&mut self, name: &Arc<str>) -> Result<(Arc<Goal>, Arc<Goal>), Error> {
        required("goal", name)?;
        self.change_goal(|goal| goal.name = Arc::clone(name))
    }

    fn clear_goal(&mut self) -> Result<Arc<Goal>, Error> {
        let (_, cleared) = self.change_goal(|goal| goal.status = GoalStatus::Cleared)?;
        self.last_cleared_goal = Some(Arc::clone(&cleared.name));
        Ok(cleared)
    }

    /// Changes the current goal; answers it as it was and as it is.
    fn change_goal(&mut self, change: impl FnOnce(&mut Goal)) -> Result<(Arc<Goal>, Arc<Goal>), Error> {
        let at = self.current().ok_or(Error::NoGoal)?;
        let before = self.goals.get(at).map(Arc::clone).ok_or(Error::NoGoal)?;
        let mut after = Goal::clone(&before);
        change(&mut after);
        Ok((before, self.goals.replace(at, after)))
    }

    fn current(&self) -> Option<usize> {
        self.goals.iter().rposition(|goal| goal.status == GoalStatus::Active)
    }

    /// Cleared goals are history: when the list is full, the oldest of them makes room.
    fn make_room_for_goal(&mut self) -> Result<(), Error> {
        if self.goals.len() < MAX_ITEMS {
            return Ok(());
        }
        let oldest = self.goals.iter().find(|goal| goal.status == GoalStatus::Cleared).map(|goal| goal.id);
        let oldest = oldest.ok_or(Error::Full { what: "goals", limit: MAX_ITEMS, tool: "clear_goal" })?;
        self.goals.retain(|goal| goal.id != oldest);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: &str = "2026-01-01T00:00:00Z";

    #[test]
    fn the_current_goal_is_the_last_that_was_not_cleared() {
        let mut plan = Plan::default();
        for name in ["a", "b", "c"] {
            plan.create_goal(&name.into(), NOW).unwrap();
        }
        plan.clear_goal().unwrap();
        assert_eq!(&*plan.goal().unwrap().name, "b");
        plan.update_goal(&"B".into()).unwrap();
        assert_eq!(&*plan.goal().unwrap().name, "B");
        assert_eq!(plan.last_cleared_goal.as_deref(), Some("c"));
    }

    #[test]
    fn a_full_list_takes_a_goal_only_in_the_place_of_a_cleared_one() {
        let mut plan = Plan::default();
        for number in 0..MAX_ITEMS {
            plan.create_goal(&number.to_string().into(), NOW).unwrap();
        }
        let error = plan.create_goal(&"one more".into(), NOW).unwrap_err().to_string();
        assert!(error.contains("clear_goal"), "{error}");
        plan.clear_goal().unwrap();
        let (goal, _) = plan.create_goal(&"one more".into(), NOW).unwrap();
        assert_eq!((goal.id, plan.goals.len()), (1001, MAX_ITEMS));
        assert!(plan.goals.iter().all(|goal| goal.id != 1000), "the cleared goal made room");
    }
}
