//! Tasks, where the command line asks for them: one tool that only runs as a task, and what may be done with its tasks.
//!
//! A task asks for a name and ends when it is told one, or when it is cancelled.

use serde_json::{Value, json};

use crate::{call::Call, rules::PREFIX, script::Script};

/// The methods of the extension.
pub(crate) const METHODS: [&str; 3] = ["tasks/get", "tasks/update", "tasks/cancel"];

/// The one tool.
pub(crate) const TOOL: &str = "job";

/// What became of a task.
#[derive(Debug)]
pub(crate) enum State {
    Asking,
    Named(String),
    Cancelled,
}

/// What is declared for it, by server and client alike.
pub(crate) fn extension() -> Value {
    json!({format!("{PREFIX}tasks"): {}})
}

pub(crate) fn definition() -> Value {
    json!({
        "name": TOOL, "description": "Asks for a name and greets, as a task.",
        "inputSchema": {"type": "object", "properties": {"greeting": {"type": "string"}}},
    })
}

impl Script {
    /// Makes a task for a client that knows what that is.
    pub(crate) fn start_task(&mut self, call: &Call) {
        if !self.knows_tasks(call) {
            return self.lacks_tasks(call);
        }
        let id = format!("task {}", self.tasks.len() + 1);
        self.tasks.push((id.clone(), State::Asking));
        let mut created = self.described(&id);
        created["resultType"] = json!("task");
        self.respond(call, created);
    }

    /// Does what a request wants done with a task.
    pub(crate) fn act_on_task(&mut self, call: &Call) {
        if !self.knows_tasks(call) {
            self.breach(format!("{} of a client that did not declare tasks", call.method));
            return self.lacks_tasks(call);
        }
        let id = call.params["taskId"].as_str().unwrap_or_default().to_owned();
        let Some((_, state)) = self.tasks.iter_mut().find(|(task, _)| *task == id) else {
            return self.fail(call, -32602, "no such task", None);
        };
        let name = call.params["inputResponses"]["name"]["content"]["name"].as_str();
        match (call.method.as_str(), &*state, name) {
            ("tasks/get", ..) => {
                let mut task = self.described(&id);
                task["resultType"] = json!("complete");
                return self.respond(call, task);
            }
            ("tasks/update", State::Asking, Some(name)) => *state = State::Named(name.to_owned()),
            ("tasks/cancel", State::Asking, _) => *state = State::Cancelled,
            _ => {}
        }
        self.respond(call, json!({}));
        let task = self.described(&id);
        self.announce("notifications/tasks", &task, |filter| {
            filter["taskIds"].as_array().is_some_and(|ids| ids.iter().any(|one| *one == *id))
        });
    }

    /// Whether a request may speak of tasks.
    pub(crate) fn knows_tasks(&self, call: &Call) -> bool {
        self.setup.tasks && self.capabilities(call)["extensions"][format!("{PREFIX}tasks")].is_object()
    }

    fn lacks_tasks(&mut self, call: &Call) {
        let required = json!({"requiredCapabilities": {"extensions": extension()}});
        self.deny(call, 400, -32021, "this runs as a task", Some(required));
    }

    fn described(&self, id: &str) -> Value {
        let question = json!({"method": "elicitation/create", "params": {
            "mode": "form", "message": "Who?",
            "requestedSchema": {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]},
        }});
        let time = "2026-07-28T00:00:00Z";
        let mut task = json!({
            "taskId": id, "createdAt": time, "lastUpdatedAt": time, "ttlMs": 60000, "pollIntervalMs": 50,
        });
        let state = self.tasks.iter().find(|(task, _)| task == id).map(|(_, state)| state);
        let (status, name, value) = match state {
            Some(State::Named(name)) => {
                let text = json!({"type": "text", "text": format!("Hello, {name}!")});
                ("completed", "result", json!({"content": [text]}))
            }
            Some(State::Cancelled) => ("cancelled", "statusMessage", json!("cancelled")),
            Some(State::Asking) | None => ("input_required", "inputRequests", json!({"name": question})),
        };
        task["status"] = json!(status);
        task[name] = value;
        task
    }

    /// What tells a listen from one that only knows lists and resources.
    pub(crate) fn judge_watched_tasks(&mut self, call: &Call) {
        if call.params["notifications"].get("taskIds").is_some() && !self.knows_tasks(call) {
            self.breach("taskIds of a client that did not declare tasks".to_owned());
        }
    }
}
