//! Todos: the steps towards a goal, numbered from 1 and never renumbered.

use std::{fmt::Write, sync::Arc};

use moongate_core::{
    Scope,
    arguments::Whole,
    builtin::{Effect, ToolError, ToolOutput, ToolSpec},
    schema,
};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::{
    plan::{Plans, change, length},
    shelf::{ITEM_OVERHEAD, Shelf, Weigh},
};

mod list;

/// Something to do.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Todo {
    pub(crate) id: u64,
    pub(crate) name: Arc<str>,
    pub(crate) status: TodoStatus,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal_id: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) summary: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) priority: Option<Priority>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) depends_on: Vec<u64>,
}

/// How far a todo is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum TodoStatus {
    Pending,
    Completed,
    Blocked,
}

/// How much a todo matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Priority {
    Low,
    Medium,
    High,
}

impl Weigh for Todo {
    fn weight(&self) -> usize {
        self.name.len() + length(self.summary.as_deref()) + 8 * self.depends_on.len() + ITEM_OVERHEAD
    }
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Add {
    name: Arc<str>,
    #[serde(rename = "goal_id")]
    goal_id: Option<Whole>,
    priority: Option<Priority>,
    #[serde(default)]
    depends_on: Vec<Whole>,
}

#[derive(Deserialize)]
pub(crate) struct Mark {
    id: Option<Whole>,
    todo_id: Option<Whole>,
    completed: Option<bool>,
    summary: Option<Arc<str>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Update {
    id: Option<Whole>,
    index: Option<Whole>,
    name: Option<Arc<str>>,
    status: Option<TodoStatus>,
    priority: Option<Priority>,
    depends_on: Option<Vec<Whole>>,
}

#[derive(Deserialize)]
pub(crate) struct Clear {
    #[serde(default)]
    ids: Vec<Whole>,
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    vec![
        ToolSpec {
            name: "add_todo",
            title: "Add todo",
            description: "Adds a todo to the list. Without goal_id it belongs to the current goal, if there is one.",
            input_schema: schema::object(
                json!({
                    "name": schema::text("What is to be done"),
                    "goal_id": schema::number(1, "The id of the goal it belongs to"),
                    "priority": priority(),
                    "dependsOn": ids("Todos that must be done first"),
                }),
                &["name"],
            ),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
        ToolSpec {
            name: "mark_todo",
            title: "Mark todo",
            description: "Marks a todo as completed, or as pending again, and can note a summary of what was done. \
                          Name the todo by id or by todo_id.",
            input_schema: schema::object(
                json!({
                    "id": schema::number(1, "The id of the todo"),
                    "todo_id": schema::number(1, "The id of the todo, instead of id"),
                    "completed": schema::flag("Whether it is done; true when absent"),
                    "summary": schema::optional_text("What was done; an empty text removes the summary"),
                }),
                &[],
            ),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
        ToolSpec {
            name: "update_todo",
            title: "Update todo",
            description: "Changes the name, status, priority or dependencies of a todo, named by id or by its position.",
            input_schema: schema::object(
                json!({
                    "id": schema::number(1, "The id of the todo"),
                    "index": schema::number(0, "Its position in the list from 0, instead of id"),
                    "name": schema::text("The new name"),
                    "status": schema::choice(&["pending", "completed", "blocked"], "The new status"),
                    "priority": priority(),
                    "dependsOn": ids("The todos that must be done first, all of them"),
                }),
                &[],
            ),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Overwrites,
        },
        ToolSpec {
            name: "clear_todos",
            title: "Clear todos",
            description: "Removes the todos with the given ids, or all todos when no ids are given.",
            input_schema: schema::object(json!({"ids": ids("The todos to remove; empty means all")}), &[]),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Overwrites,
        },
    ]
}

fn priority() -> Value {
    schema::choice(&["low", "medium", "high"], "How much it matters")
}

fn ids(description: &str) -> Value {
    json!({"type": "array", "items": schema::number(1, "The id of a todo"), "maxItems": 1000, "description": description})
}

#[derive(Serialize)]
struct Changed<'a> {
    success: bool,
    todo: &'a Todo,
    todos: &'a Shelf<Todo>,
}

impl<'a> Changed<'a> {
    fn output(text: String, todo: &'a Todo, todos: &'a Shelf<Todo>) -> ToolOutput {
        ToolOutput::new(text, Self { success: true, todo, todos })
    }
}

pub(crate) async fn add(plans: &Plans<'_>, args: Add) -> Result<ToolOutput, ToolError> {
    let (todo, goal, todos) = change(plans, |plan| {
        let todo = plan.add_todo(&args)?;
        let goal =
            plan.goals.iter().find(|goal| Some(goal.id) == todo.goal_id).map(|goal| Arc::clone(&goal.name));
        Ok((todo, goal, plan.todos.clone()))
    })
    .await?;
    let goal = goal.map_or_else(String::new, |goal| format!(" for the goal \"{goal}\""));
    let text = format!("Todo {} added: \"{}\"{goal}. {} in the list.", todo.id, todo.name, todos.len());
    Ok(Changed::output(text, &todo, &todos))
}

pub(crate) async fn mark(plans: &Plans<'_>, args: Mark) -> Result<ToolOutput, ToolError> {
    let (todo, todos) = change(plans, |plan| Ok((plan.mark_todo(&args)?, plan.todos.clone()))).await?;
    let state = if todo.status == TodoStatus::Completed { "completed" } else { "pending" };
    Ok(Changed::output(format!("Todo {} \"{}\" is {state}.", todo.id, todo.name), &todo, &todos))
}

pub(crate) async fn update(plans: &Plans<'_>, args: Update) -> Result<ToolOutput, ToolError> {
    let (todo, todos) = change(plans, |plan| Ok((plan.update_todo(&args)?, plan.todos.clone()))).await?;
    Ok(Changed::output(format!("Todo updated.\n{}", line(&todo)), &todo, &todos))
}

pub(crate) async fn clear(plans: &Plans<'_>, args: Clear) -> Result<ToolOutput, ToolError> {
    #[derive(Serialize)]
    struct Left<'a> {
        success: bool,
        cleared: usize,
        todos: &'a Shelf<Todo>,
    }
    let (cleared, todos) =
        change(plans, |plan| Ok((plan.clear_todos(&args.ids)?, plan.todos.clone()))).await?;
    let text = format!("{cleared} cleared, {} left.", todos.len());
    Ok(ToolOutput::new(text, Left { success: true, cleared, todos: &todos }))
}

/// One todo as a line of Markdown.
pub(crate) fn line(todo: &Todo) -> String {
    let mark = if todo.status == TodoStatus::Completed { 'x' } else { ' ' };
    let mut line = format!("- [{mark}] {}. {}", todo.id, todo.name);
    let priority = todo.priority.map(|priority| match priority {
        Priority::Low => "low priority",
        Priority::Medium => "medium priority",
        Priority::High => "high priority",
    });
    let blocked = (todo.status == TodoStatus::Blocked).then_some("blocked");
    let depends: Vec<String> = todo.depends_on.iter().map(u64::to_string).collect();
    let depends = (!depends.is_empty()).then(|| format!("after {}", depends.join(", ")));
    let notes: Vec<&str> = priority.into_iter().chain(blocked).chain(depends.as_deref()).collect();
    if !notes.is_empty() {
        write!(line, " ({})", notes.join("; ")).expect("writing to a string cannot fail");
    }
    if let Some(summary) = &todo.summary {
        write!(line, ": {summary}").expect("writing to a string cannot fail");
    }
    line
}
