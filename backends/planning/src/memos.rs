//! Memos: a handful of short notes. The oldest falls out when one too many is added.

use std::sync::Arc;

use moongate_core::{
    Scope,
    arguments::Whole,
    builtin::{ToolError, ToolOutput, ToolSpec},
    schema,
};
use serde::{Deserialize, Serialize};
use serde_json::{json, value::RawValue};

use crate::{
    error::Error,
    plan::{MAX_MEMOS, Plan, Plans, bounded, change, length, required},
    shelf::{ITEM_OVERHEAD, Shelf, Weigh},
};

/// A note. Its id counts from 0 and is never used again.
#[derive(Clone, Debug, Deserialize)]
#[serde(from = "Plain")]
pub(crate) struct Memo {
    pub(crate) id: u64,
    weight: usize,
    /// What is shown of it as data and as a line of text, written once: every answer shows all memos, and they do not
    /// change.
    shown: Box<RawValue>,
    pub(crate) line: Box<str>,
}

/// A memo as it is stored and shown.
#[derive(Serialize, Deserialize)]
struct Plain {
    id: u64,
    content: Arc<str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source: Option<Arc<str>>,
}

impl From<Plain> for Memo {
    fn from(plain: Plain) -> Self {
        let shown = serde_json::value::to_raw_value(&plain).expect("plain data always serialises");
        let line = format!("- {}: {}\n", plain.id, plain.content).into();
        let weight = plain.content.len() + length(plain.source.as_ref()) + ITEM_OVERHEAD;
        Self { id: plain.id, weight, shown, line }
    }
}

impl Serialize for Memo {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.shown.serialize(serializer)
    }
}

impl Weigh for Memo {
    fn weight(&self) -> usize {
        self.weight
    }
}

#[derive(Deserialize)]
pub(crate) struct Add {
    memo: Arc<str>,
    source: Option<Arc<str>>,
}

#[derive(Deserialize)]
pub(crate) struct Clear {
    id: Whole,
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    vec![
        ToolSpec {
            name: "add_memo",
            title: "Add memo",
            description: "Notes something to keep in mind. At most 10 memos are kept: the oldest falls out.",
            input_schema: schema::object(
                json!({
                    "memo": schema::text("What to keep in mind"),
                    "source": schema::optional_text("Where it comes from"),
                }),
                &["memo"],
            ),
            aliases: &["add_note", "add_observation", "add_scratchpad"],
            scope: Scope::WRITE,
            destructive: false,
        },
        ToolSpec {
            name: "clear_memo",
            title: "Clear memo",
            description: "Removes the memo with the given id.",
            input_schema: schema::object(json!({"id": schema::number(0, "The id of the memo")}), &["id"]),
            aliases: &["clear_scratchpad"],
            scope: Scope::WRITE,
            destructive: true,
        },
    ]
}

#[derive(Serialize)]
struct Memos<'a> {
    success: bool,
    memos: &'a Shelf<Memo>,
}

pub(crate) async fn add(plans: &Plans<'_>, args: Add) -> Result<ToolOutput, ToolError> {
    let (memo, memos) = change(plans, |plan| {
        let memo = plan.add_memo(&args.memo, args.source.as_ref())?;
        Ok((memo, plan.memos.clone()))
    })
    .await?;
    let full =
        if memos.len() < MAX_MEMOS { "" } else { " Memory is full: the next memo pushes out the oldest." };
    let text = format!("Memo {} added ({} of {MAX_MEMOS}).{full}", memo.id, memos.len());
    Ok(ToolOutput::new(text, Memos { success: true, memos: &memos }))
}

pub(crate) async fn clear(plans: &Plans<'_>, args: Clear) -> Result<ToolOutput, ToolError> {
    let memos = change(plans, |plan| {
        plan.clear_memo(args.id)?;
        Ok(plan.memos.clone())
    })
    .await?;
    let text = format!("Memo {} cleared, {} left.", args.id.0, memos.len());
    Ok(ToolOutput::new(text, Memos { success: true, memos: &memos }))
}

impl Plan {
    pub(crate) fn add_memo(
        &mut self,
        content: &Arc<str>,
        source: Option<&Arc<str>>,
    ) -> Result<Arc<Memo>, Error> {
        required("memo", content)?;
        bounded("source", source)?;
        let plain =
            Plain { id: self.memos_made, content: Arc::clone(content), source: source.map(Arc::clone) };
        self.memos_made += 1;
        let memo = self.memos.push(plain.into());
        self.memos.trim(MAX_MEMOS, usize::MAX);
        Ok(memo)
    }

    fn clear_memo(&mut self, id: Whole) -> Result<(), Error> {
        let before = self.memos.len();
        let ids = self.memos.iter().map(|memo| memo.id).collect();
        self.memos.retain(|memo| u64::try_from(id.0) != Ok(memo.id));
        if self.memos.len() < before {
            return Ok(());
        }
        Err(Error::NotFound { what: "Memo", id: id.0.to_string(), ids })
    }
}
