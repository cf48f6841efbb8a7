//! `search_content`: the passages of a session's texts that fit some words best.

use std::num::NonZero;

use moongate_core::{
    Context,
    arguments::Whole,
    builtin::{ToolError, ToolOutput},
};
use moongate_search::Hit;
use serde::{Deserialize, Serialize};

use crate::{
    Content,
    indexes::{Document, run_sized},
    read::count,
    shelf::Shelf,
};

/// How many passages are returned unless the caller says.
const FOUND: usize = 10;
const MOST_FOUND: usize = 100;

#[derive(Debug, Deserialize)]
pub(crate) struct Search {
    #[serde(default)]
    query: String,
    #[serde(default)]
    options: Options,
}

#[derive(Debug, Default, Deserialize)]
struct Options {
    #[serde(alias = "topN")]
    top_n: Option<Whole>,
    #[serde(default)]
    threshold: f64,
}

/// What was found, as callers see it.
#[derive(Serialize)]
struct Answer<'a> {
    results: &'a [Passage<'a>],
    count: usize,
    /// Why something may be missing.
    #[serde(skip_serializing_if = "Option::is_none")]
    note: Option<&'a str>,
}

/// One passage as callers see it.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Passage<'a> {
    content_id: &'a str,
    chunk_id: String,
    score: f64,
    matched_text: &'a str,
    line_range: [usize; 2],
    filename: &'a str,
}

impl Content {
    pub(crate) async fn search(&self, wanted: Search, cx: &Context) -> Result<ToolOutput, ToolError> {
        let Search { query, options: Options { top_n, threshold } } = wanted;
        let most = top_n.map_or(FOUND, count).min(MOST_FOUND);
        let texts = self.shelf(cx);
        let index = self.0.indexes.current(&cx.store_scope(), &texts).await?;
        let note = index.left_out().map(|left_out| note(left_out, index.library.len()));
        let size = index.memory();
        let mut finding = run_sized(size, move || index.library.find(&query, most, threshold)).await;
        // The index knows words and no texts; what is shown, and what is found by its letters only, is read.
        while let Some(document) = finding.wanted().cloned() {
            let text = texts.text(document.id()).await?;
            finding = run_sized(text.as_ref().map_or(0, String::len), move || {
                finding.give(text.as_deref());
                finding
            })
            .await;
        }
        let hits = finding.into_hits();
        note_use(&hits, &texts).await;
        let passages: Vec<Passage<'_>> = hits.iter().map(passage).collect();
        let note = note.as_deref();
        let answer = Answer { results: &passages, count: passages.len(), note };
        Ok(ToolOutput::new(listing(&passages, note), answer))
    }
}

/// What is found counts as used. A search that has found something does not fail over it.
async fn note_use(hits: &[Hit<Document>], texts: &Shelf<'_>) {
    let mut due = Vec::new();
    for document in hits.iter().map(|hit| &hit.document) {
        if texts.is_due(document.accessed()) {
            // At once, so that a text with several hits, and whoever searches meanwhile, does not note it again.
            document.set_accessed(texts.now());
            due.extend(texts.item(document.id()).await.ok());
        }
    }
    texts.note_use(&due).await;
}

fn passage(hit: &Hit<Document>) -> Passage<'_> {
    let id = hit.document.id();
    Passage {
        content_id: id,
        chunk_id: format!("chunk_{id}_{}", hit.chunk),
        score: hit.score,
        matched_text: &hit.text,
        line_range: [hit.lines.first, hit.lines.last],
        filename: hit.document.filename(),
    }
}

/// Says that the words of some texts are not known, so that nobody takes what was found for all there is.
fn note(left_out: NonZero<usize>, texts: usize) -> String {
    format!(
        "The search index of this session is full: the words of {left_out} of its {texts} texts are not in it. Those texts are \
         found by the exact query only, without a score, and may be missed. Make room with delete_content"
    )
}

fn listing(passages: &[Passage<'_>], note: Option<&str>) -> String {
    let one = |passage: &Passage<'_>| {
        let Passage { filename, content_id, score, matched_text, line_range: [first, last], .. } = passage;
        format!("{filename} ({content_id}), lines {first}–{last}, score {score:.2}:\n{matched_text}")
    };
    let nothing = passages.is_empty().then(|| "Nothing was found".to_owned());
    let lines = passages.iter().map(one).chain(nothing).chain(note.map(str::to_owned));
    lines.collect::<Vec<_>>().join("\n\n")
}
