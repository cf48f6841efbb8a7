//! Lines that match a regular expression.
//!
//! The expression's engine takes time in proportion to expression and text, with neither look-around nor back-references.
//! What both may be is bounded, and so is the time, looked at between lines: a search goes on when its caller has left.

use std::{fmt::Write, ops::ControlFlow, os::fd::OwnedFd, path::Path, time::Duration};

use moongate_core::builtin::ToolOutput;
use regex::bytes::{Regex, RegexBuilder};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::time::Instant;

use super::{
    beneath,
    error::Error,
    file,
    path::RelativePath,
    walk::{Kind, MAX_DEPTH, Walk},
};

/// The longest pattern in characters.
pub(crate) const MAX_PATTERN: usize = 1000;
/// What a compiled expression may take, and its cache, in bytes.
const MAX_COMPILED: usize = 256 * 1024;
const MAX_CACHE: usize = 2 * 1024 * 1024;
/// Lines that one search shows, and how much of each.
const MAX_MATCHES: usize = 1000;
const MAX_SHOWN: usize = 500;
/// How much of a line is searched: programs write longer ones, people do not.
const MAX_LINE: usize = 64 * 1024;
/// What one search of a directory reads, in bytes.
const MAX_READ: usize = 64 * 1024 * 1024;
/// How long one search takes.
const MAX_TIME: Duration = Duration::from_secs(5);

#[derive(Deserialize)]
pub(crate) struct Grep {
    pattern: String,
    path: Option<String>,
    input: Option<String>,
    #[serde(default)]
    ignore_case: bool,
    #[serde(default)]
    line_numbers: bool,
}

#[derive(Serialize)]
struct Match {
    #[serde(skip_serializing_if = "Option::is_none")]
    path: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    line: Option<usize>,
    text: String,
}

/// A search under way.
struct Searching {
    regex: Regex,
    numbered: bool,
    until: Instant,
    left: usize,
    matches: Vec<Match>,
    /// Whether something was not searched or not shown.
    cut: bool,
}

pub(crate) fn grep(root: &OwnedFd, arguments: &Grep, limit: u64) -> Result<ToolOutput, Error> {
    let mut searching = Searching::new(arguments)?;
    let ended = match (&arguments.path, &arguments.input) {
        (None, Some(input)) => searching.text(input.as_bytes()),
        (Some(path), None) => searching.path(root, &RelativePath::parse(path)?, limit)?,
        _ => return Err(Error::Invalid("give either path or input".to_owned())),
    };
    searching.cut |= ended.is_break();
    let Searching { matches, cut, .. } = searching;
    let mut text = if matches.is_empty() { "No line matches.\n".to_owned() } else { lines(&matches) };
    if cut {
        text.push_str("(Not everything was searched or shown. Search less, or for something rarer.)\n");
    }
    Ok(ToolOutput::new(text, json!({"matches": matches, "total": matches.len(), "truncated": cut})))
}

impl Searching {
    fn new(arguments: &Grep) -> Result<Self, Error> {
        let regex = RegexBuilder::new(&arguments.pattern)
            .case_insensitive(arguments.ignore_case)
            .size_limit(MAX_COMPILED)
            .dfa_size_limit(MAX_CACHE)
            .build();
        let regex =
            regex.map_err(|error| Error::Invalid(format!("the pattern cannot be searched for: {error}")))?;
        let (numbered, until) = (arguments.line_numbers, Instant::now() + MAX_TIME);
        Ok(Self { regex, numbered, until, left: MAX_READ, matches: Vec::new(), cut: false })
    }

    /// Searches the file or the directory at `path`.
    fn path(&mut self, root: &OwnedFd, path: &RelativePath, limit: u64) -> Result<ControlFlow<()>, Error> {
        match beneath::directory(root, path.as_path()) {
            Ok(directory) => Ok(self.directory(&directory, path, limit)),
            Err(Errno::NOTDIR) => Ok(self.text(&file::read(root, path, limit)?)),
            Err(error) => Err(Error::of(path.as_str(), error)),
        }
    }

    fn directory(&mut self, directory: &OwnedFd, path: &RelativePath, limit: u64) -> ControlFlow<()> {
        let mut walk = Walk::new(MAX_DEPTH);
        let ended = walk.run(directory, &mut |step| {
            // Before anything is opened: what is neither text nor readable takes time, too.
            if Instant::now() > self.until {
                return ControlFlow::Break(());
            }
            if step.entry.kind != Kind::File {
                return ControlFlow::Continue(());
            }
            let shown = path.join(step.path);
            let read = file::read_entry(step.directory, &step.entry.name, shown.as_str(), limit);
            let Ok(contents) = read else {
                self.cut = true;
                return ControlFlow::Continue(());
            };
            self.spend(contents.len())?;
            // What has a NUL is not text, and its lines help nobody.
            if contents.contains(&0) {
                return ControlFlow::Continue(());
            }
            self.lines(&contents, Some(shown.as_path()))
        });
        self.cut |= walk.cut;
        ended
    }

    /// Searches all that there is to search.
    fn text(&mut self, text: &[u8]) -> ControlFlow<()> {
        self.spend(text.len())?;
        self.lines(text, None)
    }

    /// Counts what was read, whatever it turns out to be, and breaks off when that is more than may be.
    fn spend(&mut self, read: usize) -> ControlFlow<()> {
        let Some(left) = self.left.checked_sub(read) else { return ControlFlow::Break(()) };
        self.left = left;
        ControlFlow::Continue(())
    }

    /// Searches `text`, line by line, until a bound is reached.
    fn lines(&mut self, text: &[u8], path: Option<&Path>) -> ControlFlow<()> {
        for (index, line) in text.split_inclusive(|byte| *byte == b'\n').enumerate() {
            if Instant::now() > self.until {
                return ControlFlow::Break(());
            }
            let line = line.strip_suffix(b"\n").unwrap_or(line);
            let line = line.strip_suffix(b"\r").unwrap_or(line);
            let searched = line.get(..MAX_LINE).unwrap_or(line);
            self.cut |= searched.len() < line.len();
            if !self.regex.is_match(searched) {
                continue;
            }
            if self.matches.len() == MAX_MATCHES {
                return ControlFlow::Break(());
            }
            let path = path.map(|path| path.display().to_string());
            let line = self.numbered.then_some(index + 1);
            self.matches.push(Match { path, line, text: shown(searched) });
        }
        ControlFlow::Continue(())
    }
}

fn shown(line: &[u8]) -> String {
    // Four bytes make a character at most, so that no more is read than is shown.
    let start = line.get(..4 * MAX_SHOWN).unwrap_or(line);
    let text = String::from_utf8_lossy(start);
    match text.char_indices().nth(MAX_SHOWN) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.into_owned(),
    }
}

fn lines(matches: &[Match]) -> String {
    matches.iter().fold(String::new(), |mut out, found| {
        let path = found.path.as_ref().map(|path| format!("{path}:")).unwrap_or_default();
        let line = found.line.map(|line| format!("{line}:")).unwrap_or_default();
        writeln!(out, "{path}{line}{}", found.text).expect("writing to a string cannot fail");
        out
    })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    #[test]
    fn a_search_whose_time_is_up_looks_at_nothing_more() {
        let directory = tempfile::tempdir().unwrap();
        // None of them has a line between which the time would be looked at.
        fs::write(directory.path().join("binary"), "\0").unwrap();
        fs::create_dir(directory.path().join("directory")).unwrap();
        let opened = OwnedFd::from(fs::File::open(directory.path()).unwrap());
        let arguments: Grep = serde_json::from_value(json!({"pattern": ".", "path": "."})).unwrap();
        let mut searching = Searching::new(&arguments).unwrap();
        let here = RelativePath::parse(".").unwrap();
        assert!(searching.directory(&opened, &here, 10).is_continue());
        searching.until = Instant::now() - Duration::from_secs(1);
        assert!(searching.directory(&opened, &here, 10).is_break());
    }
}
