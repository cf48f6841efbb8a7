//! The tools and the shapes of their arguments.
//!
//! Where an argument has two spellings, no schema can say that one of them is required; the tools say it themselves.

use moongate_core::{
    Scope,
    builtin::{Effect, ToolSpec},
    schema,
};
use serde_json::{Value, json};

/// Characters of a name, longer than any file system allows.
const MAX_NAME: usize = 1024;
/// Characters of the words of a search.
const MAX_QUERY: usize = 4096;

/// The name under which a text may come without a name of its own.
pub(crate) const ADD_UNNAMED: &str = "addContent";

pub(crate) fn all() -> Vec<ToolSpec> {
    vec![
        ToolSpec {
            name: "add_content",
            title: "Add content",
            description: "Keeps a text, given as content, or the text of a local file (text, PDF, DOCX, XLSX), given as \
                          file_url, so that it can be read by lines and searched later. Give it a filename.",
            input_schema: schema::object(addition(), &[]),
            aliases: &[ADD_UNNAMED],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
        reading(
            "list_contents",
            "List contents",
            "Lists the kept texts with their ids, the newest first.",
            json!({"pagination": pagination()}),
            &["listContent", "list_content"],
        ),
        reading(
            "read_content",
            "Read content",
            "Returns a kept text, or some of its lines.",
            json!({
                "content_id": id("The id of the text"),
                "contentId": id("The same as content_id"),
                "from_line": schema::number(1, "The first line, from 1"),
                "fromLine": schema::number(1, "The same as from_line"),
                "to_line": schema::number(1, "The last line; the end of the text if absent"),
                "toLine": schema::number(1, "The same as to_line"),
            }),
            &["readContent"],
        ),
        reading(
            "search_content",
            "Search content",
            "Finds the passages of the kept texts that fit some words best, with their lines.",
            json!({
                "query": {"type": "string", "maxLength": MAX_QUERY, "description": "The words to look for"},
                "options": search_options(),
            }),
            &["keywordSimilaritySearch"],
        ),
        ToolSpec {
            name: "delete_content",
            title: "Delete content",
            description: "Removes a kept text for good.",
            input_schema: schema::object(
                json!({"content_id": id("The id of the text"), "contentId": id("The same as content_id")}),
                &[],
            ),
            aliases: &["deleteContent"],
            scope: Scope::WRITE,
            effect: Effect::Overwrites,
        },
    ]
}

fn reading(
    name: &'static str,
    title: &'static str,
    description: &'static str,
    properties: Value,
    aliases: &'static [&'static str],
) -> ToolSpec {
    let input_schema = schema::object(properties, &[]);
    ToolSpec { name, title, description, input_schema, aliases, scope: Scope::READ, effect: Effect::Reads }
}

fn addition() -> Value {
    let name =
        |description: &str| json!({"type": "string", "maxLength": MAX_NAME, "description": description});
    json!({
        "filename": name("What the text is called"),
        "content": schema::optional_text("The text"),
        "file_url": schema::optional_text("A file:// address, instead of content"),
        "fileUrl": schema::optional_text("The same as file_url"),
        "metadata": {"type": "object", "additionalProperties": false, "description": "What is known of the text",
            "properties": {
                "filename": name("What the text is called, where filename does not say"),
                "mime_type": name("Of what kind it is; text/plain if absent"),
                "mimeType": name("The same as mime_type"),
                "size": {"type": "integer", "minimum": 0, "description": "Not used: it is measured"},
                "uploaded_at": schema::optional_text("Since when there is this text; now if absent"),
                "uploadedAt": schema::optional_text("The same as uploaded_at"),
            }},
    })
}

fn pagination() -> Value {
    json!({"type": "object", "additionalProperties": false, "description": "Which part of the list", "properties": {
        "offset": schema::number(0, "How many to skip; none if absent"),
        "limit": up_to(1000, "At most so many; 100 if absent"),
    }})
}

fn search_options() -> Value {
    json!({"type": "object", "additionalProperties": false, "description": "How much to return", "properties": {
        "top_n": up_to(100, "At most so many passages; 10 if absent"),
        "topN": up_to(100, "The same as top_n"),
        "threshold": {"type": "number", "minimum": 0, "maximum": 1, "description": "The least score of a passage"},
    }})
}

fn id(description: &str) -> Value {
    json!({"type": "string", "maxLength": 128, "description": description})
}

/// A whole number from 1 to `most`. Digits in a string may say more; what takes them cuts them.
fn up_to(most: usize, description: &str) -> Value {
    json!({"type": ["integer", "string"], "minimum": 1, "maximum": most, "pattern": "^[1-9][0-9]*$",
        "description": description})
}
