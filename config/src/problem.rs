//! What is wrong with a configuration, where, and what would be right.
//!
//! A problem repeats only what the file says; what a placeholder stands for never gets here. The lines that are shown
//! with it have the values of unknown keys blackened, since those may be secrets with a misspelt name.

use std::{fmt, ops::Range, path::PathBuf};

use serde::Serialize;

mod render;

/// More are counted, not listed: the first hundred are enough to see what went wrong.
const MAX_PROBLEMS: usize = 100;

/// One problem.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// The key it is about, such as `security.limits.per_address`; empty for the file as a whole.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// The column in characters, from 1.
    pub column: usize,
    /// What kind of problem it is.
    pub kind: ProblemKind,
    /// What is wrong, in one clause.
    pub message: String,
    /// What stands there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub found: Option<String>,
    /// What should stand there.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expected: Option<String>,
    /// The valid key or name that looks most like the one found.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub nearest: Option<String>,
    /// The bytes of the source it is about.
    #[serde(skip)]
    span: Range<usize>,
}

/// The kinds of problems.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum ProblemKind {
    /// The file cannot be read as YAML at all.
    Syntax,
    /// A key that no version knows.
    UnknownKey,
    /// The same key twice.
    DuplicateKey,
    /// A key that has to be there.
    MissingKey,
    /// A key or value of a feature that this version does not have.
    NotAvailable,
    /// A value of the wrong type or form.
    InvalidValue,
    /// A name of something that does not exist.
    UnknownName,
    /// A placeholder that stands for nothing.
    Unresolved,
    /// Values that do not go together.
    Conflict,
}

/// All problems of one file, in its order.
#[derive(Clone)]
pub struct Problems {
    origin: String,
    source: String,
    list: Vec<Problem>,
    more: usize,
    files: Vec<PathBuf>,
}

impl Problem {
    pub(crate) fn new(kind: ProblemKind, path: &str, span: Range<usize>, message: impl Into<String>) -> Self {
        let (path, message) = (path.to_owned(), message.into());
        Self { path, line: 1, column: 1, kind, message, found: None, expected: None, nearest: None, span }
    }

    pub(crate) fn found(self, found: impl Into<String>) -> Self {
        Self { found: Some(found.into()), ..self }
    }

    pub(crate) fn expected(self, expected: impl Into<String>) -> Self {
        Self { expected: Some(expected.into()), ..self }
    }

    /// Names the one of `known` that looks most like `name`, if one does.
    pub(crate) fn near<'a>(self, name: &str, known: impl IntoIterator<Item = &'a str>) -> Self {
        Self { nearest: nearest(name, known).map(str::to_owned), ..self }
    }
}

/// The one of `known` that a person who wrote `name` may well have meant.
pub fn nearest<'a>(name: &str, known: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    /// Below this, suggestions confuse more than they help.
    const LIKENESS: f64 = 0.8;
    let name = name.to_ascii_lowercase();
    // A short word with two letters swapped looks unlike itself to the usual measure.
    let likeness = |known: &str| match strsim::osa_distance(&name, known) {
        0 | 1 if name.len() > 2 => 1.0,
        _ => strsim::jaro_winkler(&name, known),
    };
    known
        .into_iter()
        .map(|known| (likeness(known), known))
        .filter(|(likeness, _)| *likeness >= LIKENESS)
        .max_by(|a, b| a.0.total_cmp(&b.0))
        .map(|(_, known)| known)
}

impl Problems {
    pub(crate) fn new(
        origin: String,
        source: &str,
        mut list: Vec<Problem>,
        masked: &[Range<usize>],
        files: Vec<PathBuf>,
    ) -> Self {
        list.sort_by_key(|problem| problem.span.start);
        let more = list.len().saturating_sub(MAX_PROBLEMS);
        list.truncate(MAX_PROBLEMS);
        for problem in &mut list {
            (problem.line, problem.column) = position(source, problem.span.start);
        }
        Self { origin, source: mask(source, masked), list, more, files }
    }

    /// The problems in the order of the file, at most a hundred.
    pub fn iter(&self) -> impl Iterator<Item = &Problem> {
        self.list.iter()
    }

    /// How many problems there are, those beyond the first hundred included.
    pub fn count(&self) -> usize {
        self.list.len().saturating_add(self.more)
    }

    /// The files that `${file:…}` named: once one of them changes, the outcome may be another.
    pub fn files(&self) -> &[PathBuf] {
        &self.files
    }

    /// All problems for a person, each with its line of the file; with ANSI colours if asked.
    pub fn render(&self, colours: bool) -> String {
        render::all(self, colours)
    }

    /// All problems for a program: `{"file", "count", "problems": […]}`.
    pub fn to_json(&self) -> String {
        serde_json::to_string_pretty(self).expect("text and numbers always serialise")
    }
}

impl Serialize for Problems {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        use serde::ser::SerializeStruct;
        let mut object = serializer.serialize_struct("Problems", 3)?;
        object.serialize_field("file", &self.origin)?;
        object.serialize_field("count", &self.count())?;
        object.serialize_field("problems", &self.list)?;
        object.end()
    }
}

/// The text for a person, without colours.
impl fmt::Display for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.render(false))
    }
}

/// Without the text of the file, which belongs in no log.
impl fmt::Debug for Problems {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Problems")
            .field("origin", &self.origin)
            .field("list", &self.list)
            .finish_non_exhaustive()
    }
}

impl std::error::Error for Problems {}

/// Line and column, from 1, of a byte of `source`.
fn position(source: &str, at: usize) -> (usize, usize) {
    let before = source.get(..source.floor_char_boundary(at)).unwrap_or(source);
    let line = before.rsplit('\n').next().unwrap_or_default();
    (before.matches('\n').count().saturating_add(1), line.chars().count().saturating_add(1))
}

/// The byte of `source` at a line and column, both from 1.
pub(crate) fn offset(source: &str, line: usize, column: usize) -> usize {
    let mut lines = source.split_inclusive('\n');
    let before: usize = lines.by_ref().take(line.saturating_sub(1)).map(str::len).sum();
    let rest = lines.next().unwrap_or_default().trim_end_matches(['\n', '\r']);
    before + rest.char_indices().nth(column.saturating_sub(1)).map_or(rest.len(), |(at, _)| at)
}

/// `source` with stars for every character in `spans` and for user and password of every URL. Stars have one byte and
/// may replace more, so lines keep their columns but offsets move: rendering goes by line and column.
pub(crate) fn mask(source: &str, spans: &[Range<usize>]) -> String {
    let mut spans = [spans, &userinfo(source)].concat();
    spans.sort_by_key(|span| span.start);
    let mut spans = spans.into_iter().peekable();
    let mut hidden_until = 0;
    let star = |(at, c)| {
        while let Some(span) = spans.next_if(|span| span.start <= at) {
            hidden_until = hidden_until.max(span.end);
        }
        if at < hidden_until && c != '\n' && c != '\r' { '*' } else { c }
    };
    source.char_indices().map(star).collect()
}

/// The spans of `user:password` in all of `scheme://user:password@host`.
fn userinfo(source: &str) -> Vec<Range<usize>> {
    let end = |c: char| c.is_whitespace() || matches!(c, '/' | '"' | '\'' | '?' | '#');
    let authority = |(at, _): (usize, &str)| {
        let start = at + "://".len();
        let rest = source.get(start..)?;
        let authority = rest.get(..rest.find(end).unwrap_or(rest.len()))?;
        authority.rfind('@').map(|length| start..start + length)
    };
    source.match_indices("://").filter_map(authority).collect()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn nearest_is_what_a_person_meant() {
        let keys = ["listen", "public_url", "trusted_proxies", "state_ttl", "per_principal"];
        for (typed, meant) in [
            ("lisen", Some("listen")),
            ("Listen", Some("listen")),
            ("publicUrl", Some("public_url")),
            ("state_ttl_secs", Some("state_ttl")),
            ("per_principle", Some("per_principal")),
            ("lsiten", Some("listen")),
            ("colour", None),
        ] {
            assert_eq!(nearest(typed, keys), meant, "{typed}");
        }
    }

    #[test]
    fn passwords_in_urls_are_starred() {
        let source = "url: postgres://user:pass@host/db # see http://host/@x\n";
        assert_eq!(mask(source, &[]), "url: postgres://*********@host/db # see http://host/@x\n");
        assert_eq!(mask("a: grün\n", std::slice::from_ref(&(3..8))), "a: ****\n");
    }

    proptest! {
        #[test]
        fn positions_and_offsets_agree(source in "[aé\n]{0,30}", at in 0_usize..40) {
            let at = source.floor_char_boundary(at);
            let (line, column) = position(&source, at);
            prop_assert_eq!(offset(&source, line, column), at);
        }
    }
}
