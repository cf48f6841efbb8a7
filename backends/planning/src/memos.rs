//! Memos: a handful of short notes. The oldest falls out when one too many is added.

use std::borrow::Cow;

use moongate_core::{
    Scope,
    arguments::Whole,
    builtin::{Effect, ToolError, ToolOutput, ToolSpec},
    schema,
};
use serde::Deserialize;
use serde_json::json;

use crate::{
    error::Error,
    plan::{MAX_MEMOS, Plan, Plans, bounded, change, required},
};

mod list;

use list::Memo;
pub(crate) use list::Memos;

#[derive(Deserialize)]
pub(crate) struct Add<'a> {
    #[serde(borrow)]
    memo: Cow<'a, str>,
    source: Option<Cow<'a, str>>,
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
            effect: Effect::Adds,
        },
        ToolSpec {
            name: "clear_memo",
            title: "Clear memo",
            description: "Removes the memo with the given id.",
            input_schema: schema::object(json!({"id": schema::number(0, "The id of the memo")}), &["id"]),
            aliases: &["clear_scratchpad"],
            scope: Scope::WRITE,
            effect: Effect::Overwrites,
        },
    ]
}

pub(crate) async fn add(plans: &Plans<'_>, args: Add<'_>) -> Result<ToolOutput, ToolError> {
    let (id, memos) = change(plans, |plan| {
        let id = plan.add_memo(&args.memo, args.source.as_deref())?;
        Ok((id, plan.memos.clone()))
    })
    .await?;
    let full =
        if memos.len() < MAX_MEMOS { "" } else { " Memory is full: the next memo pushes out the oldest." };
    Ok(memos.output(|text| {
        text.raw("Memo ").value(&id).raw(" added (").value(&memos.len()).raw(" of ").value(&MAX_MEMOS);
        text.raw(").").raw(full);
    }))
}

pub(crate) async fn clear(plans: &Plans<'_>, args: Clear) -> Result<ToolOutput, ToolError> {
    let memos = change(plans, |plan| {
        plan.clear_memo(args.id)?;
        Ok(plan.memos.clone())
    })
    .await?;
    Ok(memos.output(|text| {
        text.raw("Memo ").value(&args.id).raw(" cleared, ").value(&memos.len()).raw(" left.");
    }))
}

impl Plan {
    /// Adds a memo; answers its id.
    pub(crate) fn add_memo(&mut self, content: &str, source: Option<&str>) -> Result<u64, Error> {
        required("memo", content)?;
        bounded("source", source)?;
        let id = self.memos_made;
        self.memos.push(&Memo { id, content: content.into(), source: source.map(Into::into) });
        self.memos_made += 1;
        Ok(id)
    }

    fn clear_memo(&mut self, id: Whole) -> Result<(), Error> {
        if u64::try_from(id.0).is_ok_and(|id| self.memos.remove(id)) {
            return Ok(());
        }
        Err(Error::NotFound { what: "Memo", id: id.0.to_string(), ids: self.memos.ids().collect() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_shows_all_memos_as_data() {
        let mut plan = Plan::default();
        plan.add_memo("a \"b\"", None).unwrap();
        let output = plan.memos.output(|text| {
            text.raw("Memo ").value(&0);
        });
        assert_eq!(
            output.into_result().as_str(),
            r#"{"content":[{"type":"text","text":"Memo 0"}],"structuredContent":{"success":true,"memos":[{"id":0,"content":"a \"b\""}]},"isError":false}"#
        );
    }
}
