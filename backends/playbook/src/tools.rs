//! The tools and the shapes of their arguments.

use moongate_core::{
    Scope,
    builtin::{Effect, ToolSpec},
    schema,
};
use serde_json::{Value, json};

/// Steps of one playbook. Its size in bytes is bounded as well.
const MAX_STEPS: usize = 200;
const MAX_INPUTS: usize = 100;

pub(crate) fn all() -> Vec<ToolSpec> {
    let mut tools = writing();
    tools.extend(reading());
    tools
}

fn writing() -> Vec<ToolSpec> {
    let tool = |name, title, description, input_schema, effect| ToolSpec {
        name,
        title,
        description,
        input_schema,
        aliases: &[],
        scope: Scope::WRITE,
        effect,
    };
    vec![
        tool(
            "create_playbook",
            "Create playbook",
            "Stores a reusable workflow: a goal, steps with their tools, and how to tell that it worked. Texts may use \
             {{name}} for values that inputs declare.",
            schema::object(content(), &["name"]),
            Effect::Adds,
        ),
        tool(
            "update_playbook",
            "Update playbook",
            "Changes the given parts of a playbook. A given list of steps replaces the old one.",
            schema::object(json!({"id": id(), "playbook": changes()}), &["id"]),
            Effect::Overwrites,
        ),
        tool(
            "delete_playbook",
            "Delete playbook",
            "Removes a playbook for good.",
            schema::object(json!({"id": id()}), &["id"]),
            Effect::Overwrites,
        ),
    ]
}

fn reading() -> Vec<ToolSpec> {
    let tool = |name, title, description, input_schema| ToolSpec {
        name,
        title,
        description,
        input_schema,
        aliases: &[],
        scope: Scope::READ,
        effect: Effect::Reads,
    };
    let value = json!({"type": ["string", "number", "boolean"]});
    let inputs = json!({"type": "object", "additionalProperties": value, "maxProperties": MAX_INPUTS,
        "description": "Values for the playbook's inputs, by name"});
    let pages = || json!({"page": schema::number(1, "The page, from 1"), "pageSize": page_size()});
    vec![
        tool(
            "select_playbook",
            "Select playbook",
            "Selects a playbook to carry out now and returns instructions for it, with its inputs filled in.",
            schema::object(json!({"id": id(), "inputs": inputs}), &["id"]),
        ),
        tool(
            "list_playbooks",
            "List playbooks",
            "Lists the playbooks with their ids. All of them unless pageSize says how many.",
            schema::object(pages(), &[]),
        ),
        tool(
            "get_playbook",
            "Get playbook",
            "Shows one playbook in full.",
            schema::object(json!({"id": id()}), &["id"]),
        ),
        tool(
            "show_playbooks",
            "Show playbooks",
            "Shows the user the playbooks on a page with buttons to select and delete them.",
            schema::object(pages(), &[]),
        ),
        tool(
            "get_playbook_page",
            "Get playbook page",
            "Shows the user another page of playbooks.",
            schema::object(pages(), &["page"]),
        ),
    ]
}

fn id() -> Value {
    json!({"type": "string", "minLength": 1, "maxLength": 128, "description": "The id of the playbook"})
}

fn page_size() -> Value {
    json!({"type": ["integer", "string"], "minimum": -1, "maximum": 1000, "pattern": "^(-1|[1-9][0-9]*)$",
        "description": "How many on a page; -1 for all"})
}

/// What an author writes.
fn content() -> Value {
    let short = |description: &str| json!({"type": "string", "maxLength": 512, "description": description});
    json!({
        "name": {"type": "string", "minLength": 1, "maxLength": 512, "description": "What it is called"},
        "title": short("A heading for people"),
        "goal": schema::optional_text("What it achieves"),
        "initialCommand": schema::optional_text("What the user says to start it"),
        "inputs": {"type": "array", "items": input(), "maxItems": MAX_INPUTS,
            "description": "Values that are asked for when it is selected"},
        "workflow": {"type": "array", "items": step(), "maxItems": MAX_STEPS, "description": "The steps in order"},
        "steps": {"type": "array", "items": step(), "maxItems": MAX_STEPS, "description": "The same as workflow"},
        "successCriteria": {"type": "object", "additionalProperties": false, "required": ["description"],
            "description": "How to tell that it worked", "properties": {
                "description": schema::optional_text("In words"),
                "requiredArtifacts": strings("What must exist at the end"),
            }},
    })
}

/// What an author changes. What a playbook is shown with may be sent back whole; the rest of it is not taken over.
fn changes() -> Value {
    let mut properties = content();
    if let Some(properties) = properties.as_object_mut() {
        for name in ["id", "agentId", "createdAt", "updatedAt"] {
            properties.insert(name.to_owned(), schema::optional_text("Not changed, whatever is given"));
        }
    }
    json!({"type": "object", "additionalProperties": false, "properties": properties,
        "description": "The parts to change"})
}

fn step() -> Value {
    let action = json!({"type": "object", "additionalProperties": false, "required": ["toolName", "purpose"],
    "description": "The tool to use", "properties": {
        "toolName": schema::optional_text("Its name"),
        "purpose": schema::optional_text("What it is used for"),
    }});
    json!({"type": "object", "additionalProperties": false,
    "required": ["description", "action", "requiredData", "outputVariable"], "properties": {
        "stepId": {"type": "string", "minLength": 1, "maxLength": 256, "description": "Made up if absent"},
        "description": schema::optional_text("What is done"),
        "action": action,
        "requiredData": strings("What it needs: inputs and results of earlier steps"),
        "outputVariable": schema::optional_text("The name of its result"),
    }})
}

fn input() -> Value {
    json!({"type": "object", "additionalProperties": false, "required": ["name", "description"], "properties": {
        "name": {"type": "string", "minLength": 1, "maxLength": 128, "description": "The name between {{ and }}"},
        "description": schema::optional_text("What it is"),
        "type": schema::choice(&["string", "number", "boolean"], "The type of its value; string if absent"),
        "defaultValue": {"type": ["string", "number", "boolean"], "description": "Used when no value is given"},
    }})
}

fn strings(description: &str) -> Value {
    json!({"type": "array", "items": {"type": "string"}, "maxItems": 200, "description": description})
}
