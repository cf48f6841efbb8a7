//! A YAML document as a tree in which every value knows where it stands.
//!
//! Nothing is judged here but the syntax: keys are kept as they come, unknown and repeated ones included, so that the
//! reader can report all of them at once.

use std::{fmt, ops::Range};

use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_saphyr::{DuplicateKeyPolicy, Location, MergeKeyPolicy, NonFiniteFloatPolicy, Options, Spanned};

use crate::problem::mask;

/// Deeper than any key of ours by far, and shallow enough for every stack.
const MAX_DEPTH: usize = 32;
/// Far more than a configuration of hundreds of routes has.
const MAX_NODES: usize = 50_000;
/// Anchors and aliases are a convenience for a handful of repetitions.
const MAX_ALIASES: usize = 100;
/// What all aliases together may expand to.
const MAX_REPLAYED: usize = 10_000;
/// How much of a value is repeated in a message.
const SHOWN: usize = 60;

/// A value and the bytes of the source it stands for; those of a block collection are empty.
#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) value: Value,
    pub(crate) span: Range<usize>,
}

#[derive(Debug)]
pub(crate) enum Value {
    Null,
    Bool(bool),
    Int(i128),
    Float(f64),
    Text(String),
    List(Vec<Node>),
    Map(Vec<(Key, Node)>),
}

/// A key of a mapping; what is no text became some.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) text: String,
    pub(crate) span: Range<usize>,
}

/// Why a text is no YAML document that we read.
#[derive(Debug)]
pub(crate) struct SyntaxError {
    pub(crate) message: String,
    pub(crate) line: usize,
    pub(crate) column: usize,
}

impl Node {
    /// Parses one document; an empty text is `Null`.
    pub(crate) fn parse(text: &str) -> Result<Self, SyntaxError> {
        let parsed = serde_saphyr::from_str_with_options::<Spanned<Value>>(text, options());
        parsed.map(Self::from).map_err(|error| SyntaxError::new(&error))
    }

    /// What a message calls this value. Placeholders are shown unresolved: this is the text of the file.
    pub(crate) fn describe(&self) -> String {
        match &self.value {
            Value::Null => "nothing".to_owned(),
            Value::Bool(value) => format!("`{value}`"),
            Value::Int(value) => format!("`{value}`"),
            Value::Float(value) => format!("`{value}`"),
            Value::Text(text) => quote(text),
            Value::List(_) => "a list".to_owned(),
            Value::Map(_) => "a mapping".to_owned(),
        }
    }

    /// What a message calls this value when it must not repeat it.
    pub(crate) fn kind(&self) -> &'static str {
        match self.value {
            Value::Null => "nothing",
            Value::Bool(_) => "`true` or `false`",
            Value::Int(_) | Value::Float(_) => "a number",
            Value::Text(_) => "text",
            Value::List(_) => "a list",
            Value::Map(_) => "a mapping",
        }
    }

    /// The spans of all scalars in this value.
    pub(crate) fn scalars(&self, found: &mut Vec<Range<usize>>) {
        match &self.value {
            Value::List(items) => items.iter().for_each(|item| item.scalars(found)),
            Value::Map(entries) => entries.iter().for_each(|(_, value)| value.scalars(found)),
            _ => found.push(self.span.clone()),
        }
    }
}

/// A piece of the file for a message: short, on one line, between backticks, without passwords in URLs.
pub(crate) fn quote(text: &str) -> String {
    let mut shown = String::new();
    for c in mask(text, &[]).chars().take(SHOWN) {
        if c.is_control() { shown.extend(c.escape_default()) } else { shown.push(c) }
    }
    let more = if text.chars().nth(SHOWN).is_some() { "…" } else { "" };
    format!("`{shown}{more}`")
}

fn options() -> Options {
    serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_depth: MAX_DEPTH,
            flow_nesting_limit: MAX_DEPTH,
            max_events: 4 * MAX_NODES,
            max_nodes: MAX_NODES,
            max_aliases: MAX_ALIASES,
            max_anchors: MAX_ALIASES,
            max_documents: 2,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: MAX_REPLAYED,
            max_replay_stack_depth: 8,
        },
        // Lets repeated keys through to the reader, which reports each of them.
        duplicate_keys: DuplicateKeyPolicy::LastWins,
        merge_keys: MergeKeyPolicy::AsOrdinary,
        // `off` is a value of ours, not a boolean.
        strict_booleans: true,
        reject_unsupported_tags: true,
        non_finite_float_policy: NonFiniteFloatPolicy::AsString,
        with_snippet: false,
    }
}

impl SyntaxError {
    fn new(error: &serde_saphyr::Error) -> Self {
        use serde_saphyr::Error;
        let message = match error {
            Error::MultipleDocuments { .. } => "the file holds more than one document".to_owned(),
            Error::Budget { .. }
            | Error::AliasReplayLimitExceeded { .. }
            | Error::AliasExpansionLimitExceeded { .. }
            | Error::AliasReplayStackDepthExceeded { .. } => {
                "too large or too deep for a configuration".to_owned()
            }
            _ => without_location(error),
        };
        let at = error.location().filter(|location| location.line() > 0);
        let number =
            |of: fn(&Location) -> u64| at.as_ref().map_or(1, |at| usize::try_from(of(at)).unwrap_or(1));
        Self { message, line: number(Location::line), column: number(Location::column) }
    }
}

/// The parser's message without its "at line 1, column 2", which we write our own way.
fn without_location(error: &serde_saphyr::Error) -> String {
    let text = error.to_string();
    let line = text.lines().next().unwrap_or_default();
    line.rfind(" at line ").and_then(|at| line.get(..at)).unwrap_or(line).to_owned()
}

fn span(location: &Location) -> Range<usize> {
    let number = |value: Option<u64>| value.and_then(|value| usize::try_from(value).ok()).unwrap_or(0);
    let start = number(location.span().byte_offset());
    start..start.saturating_add(number(location.span().byte_len()))
}

impl From<Spanned<Value>> for Node {
    fn from(spanned: Spanned<Value>) -> Self {
        Self { span: span(&spanned.referenced), value: spanned.value }
    }
}

impl From<Spanned<Value>> for Key {
    fn from(spanned: Spanned<Value>) -> Self {
        let node = Node::from(spanned);
        let text = match node.value {
            Value::Text(text) => text,
            _ => node.describe().trim_matches('`').to_owned(),
        };
        Self { text, span: node.span }
    }
}

impl<'de> Deserialize<'de> for Value {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(AnyValue)
    }
}

struct AnyValue;

impl<'de> Visitor<'de> for AnyValue {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("any value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_none<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_some<D: Deserializer<'de>>(self, deserializer: D) -> Result<Value, D::Error> {
        Value::deserialize(deserializer)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Value, E> {
        Ok(Value::Bool(value))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Value, E> {
        Ok(Value::Int(value.into()))
    }

    fn visit_f64<E>(self, value: f64) -> Result<Value, E> {
        Ok(Value::Float(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Value, E> {
        Ok(Value::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Value, E> {
        Ok(Value::Text(value))
    }

    /// `!!binary`, which nothing here asks for.
    fn visit_bytes<E>(self, _: &[u8]) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut items = Vec::new();
        while let Some(item) = access.next_element::<Spanned<Value>>()? {
            items.push(item.into());
        }
        Ok(Value::List(items))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut access: A) -> Result<Value, A::Error> {
        let mut entries = Vec::new();
        while let Some((key, value)) = access.next_entry::<Spanned<Value>, Spanned<Value>>()? {
            entries.push((key.into(), value.into()));
        }
        Ok(Value::Map(entries))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(text: &str) -> Vec<(Key, Node)> {
        match Node::parse(text).unwrap().value {
            Value::Map(entries) => entries,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn keys_and_values_know_where_they_stand() {
        let text = "é: {b: off}\nc: 1\n";
        let entries = map(text);
        assert_eq!(&text[entries[0].0.span.clone()], "é");
        let Value::Map(inner) = &entries[0].1.value else { panic!("{entries:?}") };
        assert_eq!(&text[inner[0].1.span.clone()], "off");
        assert!(matches!(&inner[0].1.value, Value::Text(off) if off == "off"));
        assert!(matches!(entries[1].1.value, Value::Int(1)));
    }

    #[test]
    fn repeated_keys_and_odd_keys_reach_the_reader() {
        let keys =
            map("a: 1\nb: 2\na: 3\n<<: {c: 1}\n").into_iter().map(|(key, _)| key.text).collect::<Vec<_>>();
        assert_eq!(keys, ["a", "b", "a", "<<"]);
        let keys =
            map("~: 1\ntrue: 2\n7: 3\n[x]: 4\n").into_iter().map(|(key, _)| key.text).collect::<Vec<_>>();
        assert_eq!(keys, ["nothing", "true", "7", "a list"]);
    }

    #[test]
    fn an_empty_text_is_null() {
        for text in ["", "# only a comment\n", "---\n", "~"] {
            assert!(matches!(Node::parse(text).unwrap().value, Value::Null), "{text:?}");
        }
    }

    #[test]
    fn bombs_are_refused() {
        let line = |i: usize| {
            format!("a{i}: &a{i} [{}]", [format!("*a{}", i.wrapping_sub(1)).as_str(); 9].join(","))
        };
        let first = "a0: &a0 [x,x,x,x,x,x,x,x,x]".to_owned();
        let billion = std::iter::once(first).chain((1..9).map(line)).collect::<Vec<_>>().join("\n");
        let deep = "[".repeat(10_000);
        let wide = "- x\n".repeat(MAX_NODES + 1);
        for text in [&billion, &deep, &wide] {
            let error = Node::parse(text).unwrap_err();
            assert!(error.line >= 1 && error.column >= 1, "{error:?}");
        }
    }

    #[test]
    fn messages_stay_short_and_on_one_line() {
        assert_eq!(quote("a\nb"), "`a\\nb`");
        assert_eq!(quote(&"x".repeat(100)).chars().count(), SHOWN + 3);
    }
}
