//! What is there: a directory's entries, and whatever fits a pattern below it.

use std::{fmt::Write, ops::ControlFlow, os::fd::OwnedFd};

use moongate_core::{arguments::Whole, builtin::ToolOutput};
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::{
    beneath,
    error::Error,
    glob::Glob,
    path::RelativePath,
    walk::{self, Kind, MAX_DEPTH, Walk},
};

/// Entries that one listing shows.
const MAX_LISTED: usize = 5000;
/// Finds that one search shows.
const MAX_FOUND: usize = 1000;

#[derive(Deserialize)]
pub(crate) struct List {
    path: Option<String>,
}

#[derive(Deserialize)]
pub(crate) struct Search {
    pattern: String,
    path: Option<String>,
    max_depth: Option<Whole>,
    #[serde(default)]
    file_type: Wanted,
}

#[derive(Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Wanted {
    File,
    Dir,
    #[default]
    Both,
}

#[derive(Serialize)]
struct Listed {
    name: String,
    #[serde(rename = "type")]
    kind: Kind,
    size: u64,
}

#[derive(Serialize)]
struct Found {
    path: String,
    #[serde(flatten)]
    entry: Listed,
}

pub(crate) fn list(root: &OwnedFd, arguments: &List) -> Result<ToolOutput, Error> {
    let path = RelativePath::parse(arguments.path.as_deref().unwrap_or("."))?;
    let failed = |error| Error::of(path.as_str(), error);
    let directory = beneath::directory(root, path.as_path()).map_err(failed)?;
    let (entries, cut) = walk::entries(&directory, MAX_LISTED).map_err(failed)?;
    let entries: Vec<Listed> = entries.iter().map(Listed::of).collect();
    let mut text = match entries.len() {
        0 => format!("{} is empty.", path.as_str()),
        _ => lines(entries.iter().map(|entry| (&*entry.name, entry))),
    };
    if cut {
        writeln!(text, "(Only {MAX_LISTED} entries are shown.)").expect("writing to a string cannot fail");
    }
    let told = json!({"path": path.as_str(), "entries": entries, "total": entries.len(), "truncated": cut});
    Ok(ToolOutput::new(text, told))
}

pub(crate) fn search(root: &OwnedFd, arguments: &Search) -> Result<ToolOutput, Error> {
    let glob = Glob::parse(&arguments.pattern)?;
    let path = RelativePath::parse(arguments.path.as_deref().unwrap_or("."))?;
    let directory =
        beneath::directory(root, path.as_path()).map_err(|error| Error::of(path.as_str(), error))?;
    let depth = arguments.max_depth.map_or(MAX_DEPTH, |depth| usize::try_from(depth.0).unwrap_or(1).max(1));
    let mut found = Vec::new();
    let mut walk = Walk::new(depth);
    let full = walk.run(&directory, &mut |step| {
        let entry = Listed::of(step.entry);
        if arguments.file_type.takes(entry.kind) && glob.matches(step.path, &entry.name) {
            if found.len() == MAX_FOUND {
                return ControlFlow::Break(());
            }
            found.push(Found { path: path.join(step.path).as_str().to_owned(), entry });
        }
        ControlFlow::Continue(())
    });
    let cut = walk.cut || full.is_break();
    let mut text = match found.len() {
        0 => "Nothing fits the pattern.".to_owned(),
        _ => lines(found.iter().map(|found| (&*found.path, &found.entry))),
    };
    if cut {
        text.push_str("(Not everything was searched or shown. Search a smaller directory.)\n");
    }
    Ok(ToolOutput::new(text, json!({"files": found, "total": found.len(), "truncated": cut})))
}

impl Listed {
    fn of(entry: &walk::Entry) -> Self {
        Self { name: entry.shown(), kind: entry.kind, size: entry.size }
    }
}

impl Wanted {
    fn takes(self, kind: Kind) -> bool {
        match self {
            Self::File => kind == Kind::File,
            Self::Dir => kind == Kind::Directory,
            Self::Both => true,
        }
    }
}

fn lines<'a>(entries: impl Iterator<Item = (&'a str, &'a Listed)>) -> String {
    entries.fold(String::new(), |mut out, (shown, entry)| {
        let written = match entry.kind {
            Kind::Directory => writeln!(out, "{shown}/"),
            Kind::File => writeln!(out, "{shown} ({} bytes)", entry.size),
            Kind::Other => writeln!(out, "{shown} (other)"),
        };
        written.expect("writing to a string cannot fail");
        out
    })
}
