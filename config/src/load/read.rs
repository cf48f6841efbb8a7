//! From the tree to the `Raw*` structs: keys, types and placeholders.
//!
//! Reading never stops: what cannot be read is reported and left out. What the keys are is declared beside the structs,
//! how each kind of value is read is in `values`.

use std::{collections::BTreeSet, fmt, ops::Range};

use super::{
    expand::{Expanded, Expander},
    node::{Key, Node, Value, quote},
};
use crate::{
    problem::{Problem, ProblemKind},
    secret::Secret,
};

/// What can be read from a node. `None` means that the problem has been reported.
pub(crate) trait FromNode: Sized {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self>;
}

/// A value that was read, and where.
#[derive(Clone, Debug)]
pub(crate) struct At<T> {
    pub(crate) value: T,
    pub(crate) place: Place,
}

/// Where a value stands and what the file says there.
#[derive(Clone, Debug)]
pub(crate) struct Place {
    pub(crate) path: String,
    pub(crate) span: Range<usize>,
    /// The text of the file, for messages: never what a placeholder stands for.
    pub(crate) found: String,
    /// Whether a placeholder stands here, so that the value must not be repeated.
    pub(crate) secret: bool,
}

/// A mapping whose keys are names the file makes up, in its order.
#[derive(Debug)]
pub(crate) struct Entries<T>(pub(crate) Vec<(At<String>, At<T>)>);

/// A list that says something: an empty one is refused.
#[derive(Debug)]
pub(crate) struct NonEmpty<T>(pub(crate) Vec<At<T>>);

/// A value, or `off`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct OrOff<T>(pub(crate) Option<T>);

/// A value that counts as given even when it could not be read, so that nobody is told that it is missing.
#[derive(Debug)]
pub(crate) struct Given<T>(pub(crate) Option<T>);

/// One value, or a list of them.
#[derive(Debug)]
pub(crate) struct OneOrMore<T>(pub(crate) Vec<T>);

/// A mapping whose values no message shows, whatever is wrong with it.
#[derive(Debug)]
pub(crate) struct Hidden<T>(pub(crate) Vec<(At<String>, T)>);

/// Any value that JSON has.
#[derive(Debug)]
pub(crate) struct Json(pub(crate) serde_json::Value);

/// Everything that is found out on the way through the file.
#[derive(Debug, Default)]
pub(crate) struct Report {
    pub(crate) problems: Vec<Problem>,
    /// Parts of the source that must not be shown.
    pub(crate) masked: Vec<Range<usize>>,
}

pub(crate) struct Reader<'a> {
    pub(crate) report: Report,
    pub(crate) expander: Expander<'a>,
    path: String,
}

impl<'a> Reader<'a> {
    pub(crate) fn new(expander: Expander<'a>) -> Self {
        Self { report: Report::default(), expander, path: String::new() }
    }

    /// Calls `each` for every known key of a mapping; reports all others.
    pub(crate) fn section(
        &mut self,
        node: &Node,
        known: &[&str],
        later: &[&str],
        mut each: impl FnMut(&mut Self, &str, &Node),
    ) -> Option<()> {
        self.entries(node, "a mapping", |reader, key, value| {
            if known.contains(&key.text.as_str()) {
                return each(reader, &key.text, value);
            }
            value.scalars(&mut reader.report.masked);
            let problem = reader.stray_key(key, known, later);
            reader.report.problems.push(problem);
        })
    }

    fn stray_key(&self, key: &Key, known: &[&str], later: &[&str]) -> Problem {
        let problem = |kind, message: String| Problem::new(kind, &self.path, key.span.clone(), message);
        if later.contains(&key.text.as_str()) {
            return problem(
                ProblemKind::NotAvailable,
                format!("{} is not available in this version", quote(&key.text)),
            );
        }
        if key.text == "<<" {
            return problem(ProblemKind::UnknownKey, "merge keys are not supported".to_owned())
                .expected("the keys themselves, or an alias for the whole mapping");
        }
        problem(ProblemKind::UnknownKey, format!("unknown key {}", quote(&key.text)))
            .found(quote(&key.text))
            .expected(format!("one of {}", known.join(", ")))
            .near(&key.text, known.iter().chain(later).copied())
    }

    /// Calls `each` for every key of a mapping, with the path extended by it; reports repeated keys.
    pub(super) fn entries(
        &mut self,
        node: &Node,
        expected: &str,
        mut each: impl FnMut(&mut Self, &Key, &Node),
    ) -> Option<()> {
        let Value::Map(entries) = &node.value else { return self.wrong(node, expected) };
        let mut seen = BTreeSet::new();
        for (key, value) in entries {
            self.inside(&segment(&key.text), |reader| {
                if seen.insert(key.text.as_str()) {
                    return each(reader, key, value);
                }
                value.scalars(&mut reader.report.masked);
                let message = format!("the key {} is here a second time", quote(&key.text));
                reader.problem(ProblemKind::DuplicateKey, key.span.clone(), message);
            });
        }
        Some(())
    }

    /// Runs with the path extended by `segment`.
    pub(super) fn inside<T>(&mut self, segment: &str, run: impl FnOnce(&mut Self) -> T) -> T {
        let length = self.path.len();
        let segment = if length == 0 { segment.trim_start_matches('.') } else { segment };
        self.path.push_str(segment);
        let value = run(self);
        self.path.truncate(length);
        value
    }

    pub(super) fn place(&self, node: &Node) -> Place {
        let secret = matches!(&node.value, Value::Text(text) if Expander::applies(text));
        Place { path: self.path.clone(), span: node.span.clone(), found: node.describe(), secret }
    }

    pub(super) fn place_of_key(&self, key: &Key) -> Place {
        Place { path: self.path.clone(), span: key.span.clone(), found: quote(&key.text), secret: false }
    }

    fn problem(&mut self, kind: ProblemKind, span: Range<usize>, message: String) {
        self.report.problems.push(Problem::new(kind, &self.path, span, message));
    }

    /// Reports that something else was expected.
    pub(crate) fn wrong<T>(&mut self, node: &Node, expected: &str) -> Option<T> {
        self.unfit(node, format!("found {}", node.describe()), expected)
    }

    /// Reports a value of a feature that this version does not have, without repeating it.
    pub(crate) fn not_available<T>(&mut self, node: &Node, feature: &str) -> Option<T> {
        let message = format!("{feature} is not available in this version");
        self.problem(ProblemKind::NotAvailable, node.span.clone(), message);
        None
    }

    /// Reports a secret that stands in the file itself, without repeating it.
    pub(crate) fn bare_secret<T>(&mut self, node: &Node, message: &str, expected: &str) -> Option<T> {
        let problem = Problem::new(ProblemKind::InvalidValue, &self.path, node.span.clone(), message);
        self.report.problems.push(problem.expected(expected));
        None
    }

    /// Reports why a value does not fit.
    pub(crate) fn unfit<T>(&mut self, node: &Node, message: String, expected: &str) -> Option<T> {
        let problem = Problem::new(ProblemKind::InvalidValue, &self.path, node.span.clone(), message)
            .found(node.describe())
            .expected(expected);
        self.report.problems.push(problem);
        None
    }

    /// The text of a scalar, its placeholders resolved.
    pub(crate) fn text(&mut self, node: &Node, expected: &str) -> Option<Expanded> {
        let Value::Text(text) = &node.value else { return self.wrong(node, expected) };
        match self.expander.expand(text) {
            Ok(expanded) => Some(expanded),
            Err(error) => {
                self.problem(ProblemKind::Unresolved, node.span.clone(), error.to_string());
                None
            }
        }
    }

    /// The text of a scalar that no message shows, its placeholders resolved, if it `fits`.
    pub(crate) fn hidden(&mut self, node: &Node, expected: &str, fits: fn(&str) -> bool) -> Option<Secret> {
        let Value::Text(_) = node.value else {
            return self.bare_secret(node, &format!("found {}", node.kind()), "text (put it in quotes)");
        };
        let text = Secret::new(self.text(node, expected)?.value);
        if fits(text.expose()) {
            Some(text)
        } else {
            self.bare_secret(node, "this value does not fit", expected)
        }
    }

    /// Parses the text of a scalar. What a placeholder stands for is not repeated, nor what its parser said of it.
    pub(crate) fn parse<T, E: fmt::Display>(
        &mut self,
        node: &Node,
        expected: &str,
        parse: impl FnOnce(&str) -> Result<T, E>,
    ) -> Option<T> {
        if let Value::Int(number) = node.value {
            // Only to say what is missing, such as a unit: a number is not a text.
            let why = parse(&number.to_string()).err().map(|error| format!("{} {error}", node.describe()));
            return self.unfit(
                node,
                why.unwrap_or_else(|| "found a number without quotes".to_owned()),
                expected,
            );
        }
        let text = self.text(node, expected)?;
        match parse(&text.value) {
            Ok(value) => Some(value),
            Err(_) if text.secret => {
                self.unfit(node, format!("the value of {} does not fit", node.describe()), expected)
            }
            Err(error) => self.unfit(node, format!("{} {error}", node.describe()), expected),
        }
    }

    /// One of a closed set of words.
    pub(crate) fn word<T: Copy>(&mut self, node: &Node, words: &[(&str, T)]) -> Option<T> {
        let list = words.iter().map(|(word, _)| format!("`{word}`")).collect::<Vec<_>>().join(", ");
        let expected = format!("one of {list}");
        let text = self.text(node, &expected)?;
        let found = words.iter().find(|(word, _)| *word == text.value).map(|(_, value)| *value);
        if found.is_none() {
            let message = format!("found {}", node.describe());
            let problem = Problem::new(ProblemKind::InvalidValue, &self.path, node.span.clone(), message)
                .found(node.describe())
                .expected(expected);
            let near = if text.secret { "" } else { &text.value };
            self.report.problems.push(problem.near(near, words.iter().map(|(word, _)| *word)));
        }
        found
    }
}

fn segment(key: &str) -> String {
    let plain = !key.is_empty()
        && key.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-');
    if plain { format!(".{key}") } else { format!("[{}]", quote(key).replace('`', "\"")) }
}
