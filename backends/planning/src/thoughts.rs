//! Thoughts in sequence, with revisions and branches, and reflections on the work. The oldest fall out.

use std::{collections::HashSet, sync::Arc};

use moongate_core::{
    Scope,
    arguments::Whole,
    builtin::{Effect, ToolError, ToolOutput, ToolSpec},
    schema,
};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::{
    error::Error,
    plan::{
        MAX_ITEMS, MAX_REFLECTION_BYTES, MAX_THOUGHT_BYTES, Plan, Plans, bounded, change, length, required,
    },
    shelf::{ITEM_OVERHEAD, Shelf, Weigh},
};

/// One thought, as it was sent. It belongs to a branch when it says both where it branches from and the branch's id.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Thought {
    #[serde(rename = "thought")]
    text: Arc<str>,
    next_thought_needed: bool,
    #[serde(rename = "thoughtNumber")]
    number: Whole,
    total_thoughts: Whole,
    #[serde(skip_serializing_if = "Option::is_none")]
    is_revision: Option<bool>,
    #[serde(rename = "revisesThought", skip_serializing_if = "Option::is_none")]
    revises: Option<Whole>,
    #[serde(rename = "branchFromThought", skip_serializing_if = "Option::is_none")]
    branch_from: Option<Whole>,
    #[serde(skip_serializing_if = "Option::is_none")]
    branch_id: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    needs_more_thoughts: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    category: Option<Arc<str>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    related_todo_id: Option<Whole>,
    #[serde(skip_serializing_if = "Option::is_none")]
    next_action: Option<Arc<str>>,
}

/// A look back at the work.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reflection {
    pub(crate) critique: Arc<str>,
    #[serde(rename = "reflection")]
    pub(crate) insight: Arc<str>,
    pub(crate) next_action: Arc<str>,
}

impl Weigh for Thought {
    fn weight(&self) -> usize {
        let texts = [self.branch_id.as_deref(), self.category.as_deref(), self.next_action.as_deref()];
        self.text.len() + texts.into_iter().map(length).sum::<usize>() + ITEM_OVERHEAD
    }
}

impl Weigh for Reflection {
    fn weight(&self) -> usize {
        self.critique.len() + self.insight.len() + self.next_action.len() + ITEM_OVERHEAD
    }
}

impl Thought {
    fn branch(&self) -> Option<&str> {
        self.branch_from.and(self.branch_id.as_deref())
    }
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    vec![
        ToolSpec {
            name: "sequentialthinking",
            title: "Sequential thinking",
            description: "Thinks a problem through step by step. A thought may revise an earlier one or start a branch; \
                          the total may be raised on the way.",
            input_schema: schema::object(
                json!({
                    "thought": schema::text("This step of thinking"),
                    "nextThoughtNeeded": schema::flag("Whether another thought follows"),
                    "thoughtNumber": schema::number(1, "The number of this thought"),
                    "totalThoughts": schema::number(1, "How many thoughts are expected in all"),
                    "isRevision": schema::flag("Whether it revises an earlier thought"),
                    "revisesThought": schema::number(1, "The thought it revises"),
                    "branchFromThought": schema::number(1, "The thought it branches from"),
                    "branchId": schema::optional_text("The name of the branch"),
                    "needsMoreThoughts": schema::flag("Whether more thoughts are needed than expected"),
                    "category": schema::optional_text("What kind of thought it is"),
                    "relatedTodoId": schema::number(1, "The todo it is about"),
                    "nextAction": schema::optional_text("What to do next"),
                }),
                &["thought", "nextThoughtNeeded", "thoughtNumber", "totalThoughts"],
            ),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
        ToolSpec {
            name: "critiqueAndReflection",
            title: "Critique and reflection",
            description: "Records a critique of the work so far, what follows from it, and the next action.",
            input_schema: schema::object(
                json!({
                    "critique": schema::text("What is good and what is not"),
                    "reflection": schema::text("What follows from it"),
                    "nextAction": schema::text("What to do next"),
                }),
                &["critique", "reflection", "nextAction"],
            ),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
    ]
}

pub(crate) async fn think(plans: &Plans<'_>, mut thought: Thought) -> Result<ToolOutput, ToolError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Progress<'a> {
        thought_number: Whole,
        total_thoughts: Whole,
        next_thought_needed: bool,
        branches: Vec<&'a str>,
        thought_history_length: usize,
    }
    thought.total_thoughts = thought.total_thoughts.max(thought.number);
    let thoughts = change(plans, |plan| plan.think(&thought)).await?;
    let progress = Progress {
        thought_number: thought.number,
        total_thoughts: thought.total_thoughts,
        next_thought_needed: thought.next_thought_needed,
        branches: branches(&thoughts),
        thought_history_length: thoughts.len(),
    };
    let next =
        if thought.next_thought_needed { "Go on with the next one." } else { "The thinking is complete." };
    let text = format!("Thought {} of {} noted. {next}", thought.number.0, thought.total_thoughts.0);
    Ok(ToolOutput::new(text, progress))
}

pub(crate) async fn reflect(plans: &Plans<'_>, reflection: Reflection) -> Result<ToolOutput, ToolError> {
    let count = change(plans, |plan| plan.reflect(&reflection)).await?;
    let text = format!("Reflection {count} recorded. Next: {}", reflection.next_action);
    let structured = json!({"success": true, "nextAction": reflection.next_action, "reflections": count});
    Ok(ToolOutput::new(text, structured))
}

/// The ids of the branches, in the order they began.
fn branches(thoughts: &Shelf<Thought>) -> Vec<&str> {
    let mut seen = HashSet::new();
    thoughts.iter().filter_map(|thought| thought.branch()).filter(|branch| seen.insert(*branch)).collect()
}

impl Plan {
    fn think(&mut self, thought: &Thought) -> Result<Shelf<Thought>, Error> {
        required("thought", &thought.text)?;
        bounded("branchId", thought.branch_id.as_deref())?;
        bounded("category", thought.category.as_deref())?;
        bounded("nextAction", thought.next_action.as_deref())?;
        self.thoughts.push(thought.clone());
        self.thoughts.trim(MAX_ITEMS, MAX_THOUGHT_BYTES);
        Ok(self.thoughts.clone())
    }

    fn reflect(&mut self, reflection: &Reflection) -> Result<usize, Error> {
        required("critique", &reflection.critique)?;
        required("reflection", &reflection.insight)?;
        required("nextAction", &reflection.next_action)?;
        self.reflections.push(reflection.clone());
        self.reflections.trim(MAX_ITEMS, MAX_REFLECTION_BYTES);
        Ok(self.reflections.len())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::MAX_TEXT;

    fn thought(text: &str) -> Thought {
        let thought = json!({"thought": text, "nextThoughtNeeded": true, "thoughtNumber": 1, "totalThoughts": 1,
            "branchId": text, "category": text, "nextAction": text});
        serde_json::from_value(thought).unwrap()
    }

    #[test]
    fn the_oldest_thought_falls_out() {
        let mut plan = Plan::default();
        for number in 0..=MAX_ITEMS {
            plan.think(&thought(&number.to_string())).unwrap();
        }
        assert_eq!(plan.thoughts.len(), MAX_ITEMS);
        assert_eq!(&*plan.thoughts.get(0).unwrap().text, "1");
    }

    #[test]
    fn the_longest_thought_is_kept_and_pushes_out_the_rest() {
        let mut plan = Plan::default();
        for _ in 0..3 {
            plan.think(&thought(&"x".repeat(MAX_TEXT))).unwrap();
            assert_eq!(plan.thoughts.len(), 1);
        }
    }
}
