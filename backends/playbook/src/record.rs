//! A playbook as it is stored and shown, and as callers write it.

use std::collections::HashSet;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::Error;

/// Bytes of one stored playbook: dozens of detailed steps.
pub(crate) const MAX_SIZE: usize = 256 * 1024;

/// The owner of what was created by a call without an assistant.
pub(crate) const NO_OWNER: &str = "unknown";

/// A stored playbook. Rows of older builds may lack what has a default; unknown members are ignored.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Record {
    pub(crate) id: String,
    pub(crate) name: String,
    pub(crate) agent_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) title: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) goal: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) initial_command: Option<String>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) inputs: Vec<Input>,
    #[serde(default)]
    pub(crate) workflow: Vec<Step>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) success_criteria: Option<Criteria>,
    pub(crate) created_at: String,
    pub(crate) updated_at: String,
}

/// One step, with its id.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Step {
    pub(crate) step_id: String,
    #[serde(flatten)]
    pub(crate) work: Work,
}

/// What a step does.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Work {
    pub(crate) description: String,
    pub(crate) action: Action,
    pub(crate) required_data: Vec<String>,
    pub(crate) output_variable: String,
}

/// The tool a step uses, and what for.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Action {
    pub(crate) tool_name: String,
    pub(crate) purpose: String,
}

/// How to tell that it worked.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Criteria {
    pub(crate) description: String,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub(crate) required_artifacts: Vec<String>,
}

/// A value that is asked for when the playbook is selected, and replaces `{{name}}` in its texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Input {
    pub(crate) name: String,
    pub(crate) description: String,
    #[serde(rename = "type", default)]
    pub(crate) kind: InputKind,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) default_value: Option<Value>,
}

/// What sort of value an input takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum InputKind {
    #[default]
    String,
    Number,
    Boolean,
}

/// A playbook as a caller writes it: whole for a new one, the changed parts for an update. What only the gateway sets
/// (id, owner, times) is not here, so no caller can change it.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Draft {
    name: Option<String>,
    title: Option<String>,
    goal: Option<String>,
    initial_command: Option<String>,
    inputs: Option<Vec<Input>>,
    workflow: Option<Vec<StepDraft>>,
    steps: Option<Vec<StepDraft>>,
    success_criteria: Option<Criteria>,
}

#[derive(Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "camelCase")]
struct StepDraft {
    step_id: Option<String>,
    #[serde(flatten)]
    work: Work,
}

/// A playbook as it is shown: its steps under both names they go by.
#[derive(Serialize)]
pub(crate) struct Shown<'a> {
    #[serde(flatten)]
    record: &'a Record,
    steps: &'a [Step],
}

impl<'a> From<&'a Record> for Shown<'a> {
    fn from(record: &'a Record) -> Self {
        Self { record, steps: &record.workflow }
    }
}

impl Record {
    /// A new playbook from what its author wrote.
    pub(crate) fn new(id: String, owner: Option<&str>, draft: &Draft, now: &str) -> Result<Self, Error> {
        let mut record = Self {
            id,
            name: String::new(),
            agent_id: owner.unwrap_or(NO_OWNER).to_owned(),
            title: None,
            goal: None,
            initial_command: None,
            inputs: Vec::new(),
            workflow: Vec::new(),
            success_criteria: None,
            created_at: now.to_owned(),
            updated_at: now.to_owned(),
        };
        record.merge(draft, now)?;
        Ok(record)
    }

    /// Takes over what `draft` says. A given list of steps replaces the old one.
    pub(crate) fn merge(&mut self, draft: &Draft, now: &str) -> Result<(), Error> {
        if let Some(name) = &draft.name {
            name.clone_into(&mut self.name);
        }
        if self.name.trim().is_empty() {
            return Err(Error::Missing("name"));
        }
        take(&mut self.title, draft.title.as_ref());
        take(&mut self.goal, draft.goal.as_ref());
        take(&mut self.initial_command, draft.initial_command.as_ref());
        take(&mut self.success_criteria, draft.success_criteria.as_ref());
        if let Some(inputs) = &draft.inputs {
            self.inputs = checked(inputs)?;
        }
        if let Some(steps) = draft.steps()? {
            self.workflow = numbered(&self.id, steps)?;
        }
        now.clone_into(&mut self.updated_at);
        Ok(())
    }

    /// The row's body.
    pub(crate) fn encode(&self) -> Result<Vec<u8>, Error> {
        let body = serde_json::to_vec(self).expect("a playbook has string keys only");
        if body.len() > MAX_SIZE { Err(Error::TooLarge(body.len())) } else { Ok(body) }
    }
}

impl Draft {
    /// The steps, under whichever name they came. Sending back a record as it was shown has them under both.
    fn steps(&self) -> Result<Option<&[StepDraft]>, Error> {
        match (&self.workflow, &self.steps) {
            (Some(workflow), Some(steps)) if workflow != steps => Err(Error::TwoWorkflows),
            (workflow, steps) => Ok(workflow.as_deref().or(steps.as_deref())),
        }
    }
}

fn take<T: Clone>(slot: &mut Option<T>, given: Option<&T>) {
    if let Some(given) = given {
        *slot = Some(given.clone());
    }
}

/// Steps with an id each: their own, or `<playbook>-step-<n>`.
fn numbered(id: &str, drafts: &[StepDraft]) -> Result<Vec<Step>, Error> {
    let mut taken = HashSet::new();
    for own in drafts.iter().filter_map(|draft| draft.step_id.as_deref()) {
        if !taken.insert(own) {
            return Err(Error::Repeated("steps"));
        }
    }
    let mut free =
        (1_usize..).map(|number| format!("{id}-step-{number}")).filter(|name| !taken.contains(name.as_str()));
    let step = |draft: &StepDraft| {
        let step_id = draft.step_id.clone().or_else(|| free.next()).unwrap_or_default();
        Step { step_id, work: draft.work.clone() }
    };
    Ok(drafts.iter().map(step).collect())
}

fn checked(inputs: &[Input]) -> Result<Vec<Input>, Error> {
    let mut names = HashSet::new();
    for input in inputs {
        if !names.insert(&input.name) {
            return Err(Error::Repeated("inputs"));
        }
        if let Some(value) = &input.default_value {
            input.check(value)?;
        }
    }
    Ok(inputs.to_vec())
}

impl Input {
    /// Whether `value` is of this input's type.
    pub(crate) fn check(&self, value: &Value) -> Result<(), Error> {
        let (fits, expected) = match self.kind {
            InputKind::String => (value.is_string(), "string"),
            InputKind::Number => (value.is_number(), "number"),
            InputKind::Boolean => (value.is_boolean(), "boolean"),
        };
        if fits { Ok(()) } else { Err(Error::WrongInput { name: self.name.clone(), expected }) }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn step(id: Option<&str>) -> Value {
        let mut step = json!({"description": "d", "action": {"toolName": "t", "purpose": "p"}, "requiredData": [],
            "outputVariable": "v"});
        if let Some(id) = id {
            step["stepId"] = json!(id);
        }
        step
    }

    fn draft(value: Value) -> Draft {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn steps_without_an_id_get_a_free_one() {
        let steps = json!([step(None), step(Some("p-step-2")), step(None), step(Some("own"))]);
        let record =
            Record::new("p".into(), None, &draft(json!({"name": "n", "steps": steps})), "now").unwrap();
        let ids: Vec<&str> = record.workflow.iter().map(|step| step.step_id.as_str()).collect();
        assert_eq!(ids, ["p-step-1", "p-step-2", "p-step-3", "own"]);
    }

    #[test]
    fn a_record_sent_back_as_it_was_shown_changes_nothing_but_the_time() {
        let first = json!({"name": "n", "goal": "g", "workflow": [step(None)], "inputs": [
            {"name": "i", "description": "d", "type": "number", "defaultValue": 3}]});
        let record = Record::new("p".into(), Some("a"), &draft(first), "then").unwrap();
        let shown = serde_json::to_value(Shown::from(&record)).unwrap();
        let mut merged = record.clone();
        merged.merge(&draft(shown), "now").unwrap();
        assert_eq!(merged, Record { updated_at: "now".into(), ..record });
    }

    #[test]
    fn contradictions_are_refused() {
        for (value, expected) in [
            (json!({}), "name is required"),
            (json!({"name": " "}), "name is required"),
            (json!({"name": "n", "steps": [], "workflow": [step(None)]}), "send one of them"),
            (json!({"name": "n", "steps": [step(Some("x")), step(Some("x"))]}), "two steps"),
            (
                json!({"name": "n", "inputs": [{"name": "i", "description": ""}, {"name": "i", "description": ""}]}),
                "two inputs",
            ),
            (
                json!({"name": "n", "inputs": [{"name": "i", "description": "", "defaultValue": 1}]}),
                "must be a string",
            ),
        ] {
            let error = Record::new("p".into(), None, &draft(value), "now").unwrap_err().to_string();
            assert!(error.contains(expected), "{error}");
        }
    }

    #[test]
    fn the_size_is_bounded() {
        let long = draft(json!({"name": "n", "goal": "g".repeat(MAX_SIZE)}));
        let record = Record::new("p".into(), None, &long, "now").unwrap();
        assert!(matches!(record.encode(), Err(Error::TooLarge(size)) if size > MAX_SIZE));
    }
}
