//! `add_content`: takes a text in, from the call or from a file.

use std::{path::PathBuf, sync::Arc, time::Duration};

use moongate_core::{
    Change, Context,
    builtin::{ToolError, ToolOutput},
};
use moongate_search::chunk::{count_chunks, count_lines};
use serde::{Deserialize, Serialize};
use tokio::{sync::Semaphore, task::spawn_blocking, time::timeout};

use crate::{
    Content,
    error::Error,
    extract, file,
    item::{Item, Moment, PLAIN, Shown, preview},
};

/// What a text is called that comes without a name, where that is allowed.
pub(crate) const UNNAMED: &str = "direct_content";

/// Files that are read and parsed at a time; each may take many times its size in memory.
const FILES_AT_ONCE: usize = 2;
/// How long reading and parsing a file may take.
const FILE_TIME: Duration = Duration::from_secs(20);

#[derive(Debug, Deserialize)]
pub(crate) struct Addition {
    filename: Option<String>,
    content: Option<String>,
    #[serde(alias = "fileUrl")]
    file_url: Option<String>,
    #[serde(default)]
    metadata: Metadata,
}

#[derive(Debug, Default, Deserialize)]
struct Metadata {
    filename: Option<String>,
    #[serde(alias = "mimeType")]
    mime_type: Option<String>,
    #[serde(alias = "uploadedAt")]
    uploaded_at: Option<String>,
}

/// Where a text comes from.
enum Source {
    Call(String),
    File(String),
}

/// A text, and what its source says of it.
struct Taken {
    text: String,
    filename: Option<String>,
    mime_type: &'static str,
}

/// Turns to read files.
#[derive(Debug)]
pub(crate) struct Files(Arc<Semaphore>);

impl Content {
    /// Takes a text in. One that nobody names is called `unnamed`, or refused.
    pub(crate) async fn add(
        &self,
        addition: Addition,
        unnamed: Option<&str>,
        cx: &Context,
    ) -> Result<ToolOutput, ToolError> {
        let Addition { filename, content, file_url, metadata } = addition;
        let mut given = [filename, metadata.filename].into_iter().flatten();
        let named = given.find(|name| !name.trim().is_empty());
        let source = match (content, file_url) {
            (Some(_), Some(_)) => return Err(Error::TwoSources.into()),
            (None, Some(url)) => Source::File(url),
            // A file has a name; a text needs one, and is told so first.
            _ if named.is_none() && unnamed.is_none() => return Err(Error::Missing("filename").into()),
            (Some(text), None) => Source::Call(text),
            (None, None) => return Err(Error::Missing("content").into()),
        };
        let now = Moment(self.0.clock.millis());
        let uploaded_at = match metadata.uploaded_at {
            Some(text) => Moment::parse(&text).ok_or(Error::Time("uploaded_at"))?,
            None => now,
        };
        let Taken { text, filename, mime_type } = self.take(source).await?;
        let filename = named.or(filename).or(unnamed.map(str::to_owned)).ok_or(Error::Missing("filename"))?;
        let line_count = count_lines(&text);
        let item = Item {
            filename,
            mime_type: metadata.mime_type.unwrap_or_else(|| mime_type.to_owned()),
            size: text.len(),
            line_count,
            chunk_count: count_chunks(line_count),
            preview: preview(&text),
            uploaded_at,
            last_accessed_at: now,
        };
        let id = self.next_id();
        self.shelf(cx).add(&id, &item, text).await?;
        self.announce(Change::OwnResources, cx);
        Ok(added(&id, &item, &cx.ids.durable_session))
    }

    async fn take(&self, source: Source) -> Result<Taken, Error> {
        let limits = &self.0.options.limits;
        match source {
            Source::Call(text) if text.len() as u64 > limits.text => {
                Err(Error::TooLarge { what: "content", limit: limits.text })
            }
            Source::Call(text) => Ok(Taken { text, filename: None, mime_type: PLAIN }),
            Source::File(url) => self.0.files.take(url, self.0.options.roots.clone(), limits.file).await,
        }
    }
}

impl Files {
    pub(crate) fn new() -> Self {
        Self(Arc::new(Semaphore::new(FILES_AT_ONCE)))
    }

    /// Reads a file and finds its text, unless that takes too long, the wait for a turn included. What is given up ends soon, and its turn
    /// with it.
    async fn take(&self, url: String, roots: Vec<PathBuf>, limit: u64) -> Result<Taken, Error> {
        let patience = Waiting(extract::Patience::default());
        let reader = patience.0.clone();
        let work = async {
            let turn = Arc::clone(&self.0).acquire_owned().await.expect("the turns are never closed");
            let read = move || {
                let _turn = turn;
                parse(&file::read(&url, &roots, limit)?, limit, reader)
            };
            spawn_blocking(read).await
        };
        match timeout(FILE_TIME, work).await {
            Ok(Ok(taken)) => taken,
            Ok(Err(ended)) => Err(Error::Unreadable(ended.into())),
            Err(_) => Err(Error::TooSlow),
        }
    }
}

/// Somebody who waits for a file, until they get it or go.
struct Waiting(extract::Patience);

impl Drop for Waiting {
    fn drop(&mut self) {
        self.0.end();
    }
}

fn parse(found: &file::Found, limit: u64, patience: extract::Patience) -> Result<Taken, Error> {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let limits = extract::Limits { file: limit, text: limit, patience, ..extract::Limits::default() };
    let extract::Extracted { text, mime_type } = extract::extract(&found.name, &found.bytes, &limits)?;
    Ok(Taken { text, filename: Some(found.name.clone()), mime_type })
}

fn added(id: &str, item: &Item, session: &str) -> ToolOutput {
    #[derive(Serialize)]
    struct Added<'a> {
        status: &'static str,
        #[serde(flatten)]
        shown: Shown<'a>,
    }
    let text = format!("Added {} as {id}: {} lines, {} bytes", item.filename, item.line_count, item.size);
    ToolOutput::new(
        text,
        Added { status: "added", shown: Shown { content_id: id, session_id: session, item } },
    )
}
