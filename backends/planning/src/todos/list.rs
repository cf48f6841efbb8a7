//! What the todo tools do to a plan: pure changes, each whole or not at all.

use std::sync::Arc;

use moongate_core::arguments::Whole;

use super::{Add, Mark, Todo, TodoStatus, Update};
use crate::{
    error::Error,
    plan::{MAX_ITEMS, Plan, bounded, required},
    shelf::Shelf,
};

impl Plan {
    pub(super) fn add_todo(&mut self, args: &Add) -> Result<Arc<Todo>, Error> {
        required("name", &args.name)?;
        if self.todos.len() >= MAX_ITEMS {
            return Err(Error::Full { what: "todos", limit: MAX_ITEMS, tool: "clear_todos" });
        }
        let goal_id = match args.goal_id {
            Some(id) => Some(self.known_goal(id)?),
            None => self.goal().map(|goal| goal.id),
        };
        let depends_on = self.known_todos(&args.depends_on)?;
        self.todos_made += 1;
        Ok(self.todos.push(Todo {
            id: self.todos_made,
            name: Arc::clone(&args.name),
            status: TodoStatus::Pending,
            goal_id,
            summary: None,
            priority: args.priority,
            depends_on,
        }))
    }

    pub(super) fn mark_todo(&mut self, args: &Mark) -> Result<Arc<Todo>, Error> {
        bounded("summary", args.summary.as_deref())?;
        let at = self.todo_at(args.id.or(args.todo_id).ok_or(Error::Missing("id"))?)?;
        let completed = args.completed.unwrap_or(true);
        self.change_todo(at, |todo| {
            todo.status = if completed { TodoStatus::Completed } else { TodoStatus::Pending };
            if let Some(summary) = &args.summary {
                todo.summary = (!summary.is_empty()).then(|| Arc::clone(summary));
            }
        })
    }

    pub(super) fn update_todo(&mut self, args: &Update) -> Result<Arc<Todo>, Error> {
        if let Some(name) = &args.name {
            required("name", name)?;
        }
        let at = match (args.id, args.index) {
            (Some(id), _) => self.todo_at(id)?,
            (None, Some(index)) => {
                let at = usize::try_from(index.0).ok().filter(|&at| at < self.todos.len());
                at.ok_or_else(|| self.no_todo(format!("at position {}", index.0)))?
            }
            (None, None) => return Err(Error::Missing("id")),
        };
        let depends_on = args.depends_on.as_deref().map(|ids| self.known_todos(ids)).transpose()?;
        let own = self.todos.get(at).map(|todo| todo.id);
        if let Some(own) = own.filter(|own| depends_on.as_ref().is_some_and(|ids| ids.contains(own))) {
            return Err(Error::OwnDependency(own));
        }
        self.change_todo(at, |todo| {
            if let Some(name) = &args.name {
                todo.name = Arc::clone(name);
            }
            todo.status = args.status.unwrap_or(todo.status);
            todo.priority = args.priority.or(todo.priority);
            if let Some(ids) = depends_on {
                todo.depends_on = ids;
            }
        })
    }

    /// Removes the todos with these ids, all of them when there are no ids, and what depended on them no longer does.
    pub(super) fn clear_todos(&mut self, ids: &[Whole]) -> Result<usize, Error> {
        let before = self.todos.len();
        if ids.is_empty() {
            self.todos = Shelf::default();
            return Ok(before);
        }
        let gone = |id: u64| ids.iter().any(|wanted| u64::try_from(wanted.0) == Ok(id));
        if !self.todos.iter().any(|todo| gone(todo.id)) {
            let ids: Vec<String> = ids.iter().map(|id| id.0.to_string()).collect();
            return Err(self.no_todo(ids.join(", ")));
        }
        self.todos.retain(|todo| !gone(todo.id));
        for at in 0..self.todos.len() {
            let waits = self.todos.get(at).is_some_and(|todo| todo.depends_on.iter().any(|&id| gone(id)));
            if waits {
                self.change_todo(at, |todo| todo.depends_on.retain(|&id| !gone(id)))?;
            }
        }
        Ok(before - self.todos.len())
    }

    fn change_todo(&mut self, at: usize, change: impl FnOnce(&mut Todo)) -> Result<Arc<Todo>, Error> {
        let mut todo = self.todos.get(at).map(|todo| Todo::clone(todo)).ok_or(Error::Missing("id"))?;
        change(&mut todo);
        Ok(self.todos.replace(at, todo))
    }

    fn todo_at(&self, id: Whole) -> Result<usize, Error> {
        let at = self.todos.iter().position(|todo| u64::try_from(id.0) == Ok(todo.id));
        at.ok_or_else(|| self.no_todo(id.0.to_string()))
    }

    /// Ids of todos, each known, in order and without repeats.
    fn known_todos(&self, ids: &[Whole]) -> Result<Vec<u64>, Error> {
        let known =
            ids.iter().map(|&id| self.todo_at(id).map(|at| self.todos.get(at).map_or(0, |todo| todo.id)));
        let mut known = known.collect::<Result<Vec<u64>, Error>>()?;
        known.sort_unstable();
        known.dedup();
        Ok(known)
    }

    fn known_goal(&self, id: Whole) -> Result<u64, Error> {
        let known = self.goals.iter().map(|goal| goal.id).find(|&known| u64::try_from(id.0) == Ok(known));
        let ids = || self.goals.iter().map(|goal| goal.id).collect();
        known.ok_or_else(|| Error::NotFound { what: "Goal", id: id.0.to_string(), ids: ids() })
    }

    fn no_todo(&self, id: String) -> Error {
        Error::NotFound { what: "Todo", id, ids: self.todos.iter().map(|todo| todo.id).collect() }
    }
}

#[cfg(test)]
mod tests {
    use moongate_core::builtin::ToolError;

    use super::*;

    fn todo(name: &str) -> Add {
        serde_json::from_value(serde_json::json!({"name": name})).unwrap()
    }

    #[test]
    fn a_full_list_names_the_tool_that_makes_room() {
        let mut plan = Plan::default();
        for number in 0..MAX_ITEMS {
            plan.add_todo(&todo(&number.to_string())).unwrap();
        }
        let error = plan.add_todo(&todo("one more")).unwrap_err();
        let ToolError::Failed(failure) = error.into() else { panic!("it is told to the model") };
        assert_eq!(failure.code, -32603);
        assert_eq!(failure.message, "At most 1000 todos are kept. Make room with clear_todos");
        assert_eq!(plan.clear_todos(&[Whole(1)]).unwrap(), 1);
        assert_eq!(plan.add_todo(&todo("one more")).unwrap().id, 1001);
    }
}
