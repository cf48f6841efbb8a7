//! `list_contents`, `read_content`, `delete_content`: texts that are there already.

use moongate_core::{
    Change, Context,
    arguments::Whole,
    builtin::{ToolError, ToolOutput},
};
use serde::Deserialize;
use serde_json::json;

use crate::{Content, error::Error, item::Shown, lines, resources, shelf::Stored};

/// How many are listed unless the caller says.
const LISTED: usize = 100;
const MOST_LISTED: usize = 1000;

#[derive(Debug, Default, Deserialize)]
pub(crate) struct List {
    #[serde(default)]
    pagination: Pagination,
}

#[derive(Debug, Default, Deserialize)]
struct Pagination {
    offset: Option<Whole>,
    limit: Option<Whole>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Read {
    #[serde(alias = "contentId")]
    content_id: Option<String>,
    #[serde(alias = "fromLine")]
    from_line: Option<Whole>,
    #[serde(alias = "toLine")]
    to_line: Option<Whole>,
}

#[derive(Debug, Deserialize)]
pub(crate) struct Delete {
    #[serde(alias = "contentId")]
    content_id: Option<String>,
}

impl Content {
    pub(crate) async fn list(&self, wanted: List, cx: &Context) -> Result<ToolOutput, ToolError> {
        let Pagination { offset, limit } = wanted.pagination;
        let (offset, limit) = (offset.map_or(0, count), limit.map_or(LISTED, count).min(MOST_LISTED));
        let all = self.shelf(cx).all().await?;
        let page: Vec<&Stored> = all.iter().rev().skip(offset).take(limit).collect();
        let session = &*cx.ids.durable_session;
        let contents: Vec<Shown<'_>> = page
            .iter()
            .map(|stored| Shown { content_id: &stored.id, session_id: session, item: &stored.item })
            .collect();
        let has_more = offset.saturating_add(page.len()) < all.len();
        let shown =
            json!({"sessionId": session, "contents": contents, "total": all.len(), "hasMore": has_more});
        Ok(ToolOutput::new(listing(&page, all.len()), shown))
    }

    pub(crate) async fn read(&self, wanted: Read, cx: &Context) -> Result<ToolOutput, ToolError> {
        let id = required(wanted.content_id)?;
        let (_, text) = self.shelf(cx).read(&id).await?;
        let (content, range) =
            lines::cut(&text, wanted.from_line.map_or(1, count), wanted.to_line.map(count))?;
        Ok(ToolOutput::new(content, json!({"content": content, "lineRange": [range.first, range.last]})))
    }

    pub(crate) async fn delete(&self, wanted: Delete, cx: &Context) -> Result<ToolOutput, ToolError> {
        let id = required(wanted.content_id)?;
        self.shelf(cx).delete(&id).await?;
        self.announce(Change::OwnResources, cx);
        self.announce(Change::Updated { uri: resources::uri_of(&id).into() }, cx);
        let told = json!({"contentId": id, "sessionId": &*cx.ids.durable_session});
        Ok(ToolOutput::new(format!("Deleted {id}"), told))
    }
}

/// The id under either of its names.
fn required(id: Option<String>) -> Result<String, Error> {
    id.filter(|id| !id.is_empty()).ok_or(Error::Missing("content_id"))
}

/// A number that the schema has found not to be negative.
pub(crate) fn count(number: Whole) -> usize {
    usize::try_from(number.0).unwrap_or_default()
}

fn listing(page: &[&Stored], total: usize) -> String {
    if total == 0 {
        return "No contents are kept in this session".to_owned();
    }
    let lines = page.iter().map(|Stored { id, item, .. }| {
        format!("\n- {} ({id}): {} lines, {} bytes", item.filename, item.line_count, item.size)
    });
    format!("{} of {total} contents, the newest first{}", page.len(), lines.collect::<String>())
}
