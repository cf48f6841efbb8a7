//! Kept texts as resources: `content://{contentId}`.

use moongate_core::{
    CallError, Context, Raw, Resource, ResourcePage, Resources,
    builtin::{ResourceContents, ResourceData, TemplateSpec},
};
use serde_json::json;

use crate::{
    Content,
    error::Error,
    item::{Item, PLAIN},
    shelf::Stored,
};

const SCHEME: &str = "content://";
/// Resources on one page.
const PAGE: usize = 100;

/// The address of a text.
pub(crate) fn uri_of(id: &str) -> String {
    format!("{SCHEME}{id}")
}

impl Resources for Content {
    fn templates(&self) -> Vec<TemplateSpec> {
        vec![TemplateSpec {
            uri_template: "content://{contentId}",
            name: "content",
            title: "Kept text",
            description: "A text that add_content has kept in this session, by its id.",
        }]
    }

    fn lists(&self) -> bool {
        true
    }

    async fn list(&self, after: Option<&str>, cx: &Context) -> Result<ResourcePage, CallError> {
        let mut stored = self.shelf(cx).page(after, PAGE + 1).await.map_err(|error| failed(error, ""))?;
        let more = stored.len() > PAGE;
        stored.truncate(PAGE);
        let next = stored.last().filter(|_| more).map(|last| last.id.clone());
        Ok(ResourcePage { resources: stored.iter().map(resource).collect(), next })
    }

    async fn read(&self, uri: &str, cx: &Context) -> Result<Vec<ResourceContents>, CallError> {
        let read = self.shelf(cx).read(id_of(uri)?).await;
        let (stored, text) = read.map_err(|error| failed(error, uri))?;
        let mime_type = mime_type_of_text(&stored.item).to_owned();
        Ok(vec![ResourceContents { uri: uri.to_owned(), mime_type, data: ResourceData::Text(text) }])
    }

    /// Nothing is kept for it: whoever watches a text hears of its end, which is announced in any case.
    async fn subscribe(&self, uri: &str, cx: &Context) -> Result<(), CallError> {
        let found = self.shelf(cx).item(id_of(uri)?).await;
        found.map(drop).map_err(|error| failed(error, uri))
    }

    /// Also of a text that is gone meanwhile.
    async fn unsubscribe(&self, uri: &str, _cx: &Context) -> Result<(), CallError> {
        id_of(uri).map(drop)
    }
}

fn id_of(uri: &str) -> Result<&str, CallError> {
    uri.strip_prefix(SCHEME).ok_or_else(|| CallError::unknown_resource(uri))
}

fn resource(stored: &Stored) -> Resource {
    let Stored { id, item, .. } = stored;
    let uri = uri_of(id);
    let definition = json!({"uri": uri, "name": item.filename, "mimeType": mime_type_of_text(item), "size": item.size,
        "description": format!("{} lines, added {}", item.line_count, item.uploaded_at)});
    Resource { uri: uri.into(), definition: Raw::of(&definition) }
}

/// Of what kind the text is: that of a document is not the document any more.
fn mime_type_of_text(item: &Item) -> &str {
    let document = ["application/pdf", "application/vnd."];
    if document.iter().any(|kind| item.mime_type.starts_with(kind)) { PLAIN } else { &item.mime_type }
}

fn failed(error: Error, uri: &str) -> CallError {
    match error {
        Error::Storage(error) => error.into(),
        _ => CallError::unknown_resource(uri),
    }
}
