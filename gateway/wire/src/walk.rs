//! The members of an object, or the items of an array, whose text was checked before.
//!
//! Only the ends of names and values are looked for and nothing is decoded, so a walk costs little more than a look at
//! each byte. Text that is not JSON gives some members or none, never a panic.

use std::borrow::Cow;

use bytes::Bytes;

use crate::{Raw, scan::plain_length};

/// One member as it is written.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Member<'a> {
    /// The name, with its quotes.
    pub(crate) key: &'a [u8],
    /// The value, without blanks around it.
    pub(crate) value: &'a [u8],
}

impl<'a> Member<'a> {
    /// The name, decoded. One that is not Unicode is given as it is written; no frame that was scanned has one.
    pub(crate) fn name(&self) -> Cow<'a, str> {
        let inner = self.written();
        let written = || Cow::Owned(String::from_utf8_lossy(inner).into_owned());
        if inner.contains(&b'\\') {
            return serde_json::from_slice(self.key).map_or_else(|_| written(), Cow::Owned);
        }
        std::str::from_utf8(inner).map_or_else(|_| written(), Cow::Borrowed)
    }

    /// The name as it is written, without its quotes.
    fn written(&self) -> &'a [u8] {
        self.key.get(1..self.key.len().saturating_sub(1)).unwrap_or_default()
    }

    /// The value as a `Raw` that shares the memory of `body`, from which this member must be.
    pub(crate) fn raw(&self, body: &Bytes) -> Raw {
        Raw::trusted(body.slice_ref(self.value))
    }
}

/// The text of a JSON string; `None` when the value is no string.
pub(crate) fn text(value: &[u8]) -> Option<Cow<'_, str>> {
    let inner = value.strip_prefix(b"\"")?.strip_suffix(b"\"")?;
    if inner.contains(&b'\\') {
        return serde_json::from_slice(value).ok().map(Cow::Owned);
    }
    std::str::from_utf8(inner).ok().map(Cow::Borrowed)
}

/// The members of an object, in order. None when `text` is no object.
pub(crate) fn members(text: &[u8]) -> Members<'_> {
    let at = if text.first() == Some(&b'{') { 1 } else { text.len() };
    Members { text, at }
}

/// See [`members`].
#[derive(Clone, Debug)]
pub(crate) struct Members<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Members<'a> {
    type Item = Member<'a>;

    fn next(&mut self) -> Option<Member<'a>> {
        let text = self.text;
        let mut start = skip_blanks(text, self.at);
        if text.get(start) == Some(&b',') {
            start = skip_blanks(text, start + 1);
        }
        if text.get(start) != Some(&b'"') {
            return None;
        }
        let end = string_end(text, start)?;
        let colon = skip_blanks(text, end);
        if text.get(colon) != Some(&b':') {
            return None;
        }
        let value = skip_blanks(text, colon + 1);
        self.at = value_end(text, value)?;
        Some(Member { key: text.get(start..end)?, value: text.get(value..self.at)? })
    }
}

/// The items of an array, in order. None when `text` is no array.
pub(crate) fn items(text: &[u8]) -> Items<'_> {
    let at = if text.first() == Some(&b'[') { 1 } else { text.len() };
    Items { text, at }
}

/// See [`items`].
#[derive(Clone, Debug)]
pub(crate) struct Items<'a> {
    text: &'a [u8],
    at: usize,
}

impl<'a> Iterator for Items<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let text = self.text;
        let mut start = skip_blanks(text, self.at);
        if text.get(start) == Some(&b',') {
            start = skip_blanks(text, start + 1);
        }
        if matches!(text.get(start), None | Some(b']' | b'}' | b',')) {
            return None;
        }
        self.at = value_end(text, start)?;
        text.get(start..self.at)
    }
}

fn skip_blanks(text: &[u8], mut at: usize) -> usize {
    while matches!(text.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// Where the value that begins at `at` ends.
fn value_end(text: &[u8], at: usize) -> Option<usize> {
    match text.get(at)? {
        b'"' => string_end(text, at),
        b'{' | b'[' => container_end(text, at),
        _ => {
            let rest = text.get(at..)?;
            let ends = |byte: &u8| matches!(byte, b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t');
            Some(at + rest.iter().position(ends).unwrap_or(rest.len()))
        }
    }
}

/// Where the string whose opening quote is at `at` ends, behind its closing one.
fn string_end(text: &[u8], mut at: usize) -> Option<usize> {
    loop {
        at += 1;
        at += plain_length(text.get(at..)?);
        match text.get(at)? {
            b'"' => return Some(at + 1),
            // Whatever is escaped, its first character does not end the string.
            b'\\' => at += 1,
            _ => return None,
        }
    }
}

/// Where the array or object that begins at `at` ends. A counter will do: what was checked is well formed.
fn container_end(text: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0_usize;
    loop {
        match text.get(at)? {
            b'"' => {
                at = string_end(text, at)?;
                continue;
            }
            b'{' | b'[' => depth += 1,
            b'}' | b']' => depth = depth.checked_sub(1)?,
            _ => {}
        }
        at += 1;
        if depth == 0 {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::Value;

    use super::*;

    fn walk(text: &str) -> Vec<(String, String)> {
        let shown = |member: Member<'_>| {
            (member.name().into_owned(), String::from_utf8(member.value.to_vec()).unwrap())
        };
        members(text.as_bytes()).map(shown).collect()
    }

    fn pairs(expected: &[(&str, &str)]) -> Vec<(String, String)> {
        expected.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn members_are_cut_out_as_they_are_written() {
        for (text, expected) in [
            ("{}", &[][..]),
            ("{ }", &[]),
            ("[1]", &[]),
            ("\"{\"", &[]),
            (r#"{"a":1}"#, &[("a", "1")]),
            ("{ \"a\" : [1, {\"b\":\"]\"}]\n,\t\"c\":-1e5 }", &[("a", r#"[1, {"b":"]"}]"#), ("c", "-1e5")]),
            (r#"{"\u0061\"":"x\\","":null,"b":{}}"#, &[("a\"", r#""x\\""#), ("", "null"), ("b", "{}")]),
            (r#"{"달":"🌙","\ud800":true}"#, &[("달", "\"🌙\""), ("\\ud800", "true")]),
        ] {
            assert_eq!(walk(text), pairs(expected), "{text}");
        }
    }

    #[test]
    fn texts_are_decoded_and_other_values_are_none() {
        assert_eq!(text(br#""a b""#).as_deref(), Some("a b"));
        assert_eq!(text(br#""\u0061\n""#).as_deref(), Some("a\n"));
        for other in ["1", "null", "{}", "\"", r#""\ud800""#] {
            assert_eq!(text(other.as_bytes()), None, "{other}");
        }
    }

    #[test]
    fn what_is_no_json_neither_panics_nor_goes_on_for_ever() {
        for text in [
            "{",
            "{\"",
            "{\"a",
            "{\"a\"",
            "{\"a\":",
            "{\"a\":[",
            "{\"a\":]",
            "{\"\\",
            "{\"a\":\"\n\"}",
            "{,,}",
        ] {
            assert!(walk(text).len() <= 1, "{text}");
        }
    }

    fn value() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            Just(Value::Null),
            any::<bool>().prop_map(Value::from),
            any::<i64>().prop_map(Value::from),
            ".{0,12}".prop_map(Value::from),
        ];
        leaf.prop_recursive(3, 24, 4, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
                prop::collection::btree_map(".{0,4}", inner, 0..4)
                    .prop_map(|members| Value::Object(members.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn a_walk_finds_what_a_parser_does(members in prop::collection::btree_map(".{0,6}", value(), 0..6)) {
            let object = Value::Object(members.clone().into_iter().collect());
            for text in [serde_json::to_string(&object).unwrap(), serde_json::to_string_pretty(&object).unwrap()] {
                let found: Vec<(String, Value)> = walk(&text)
                    .into_iter()
                    .map(|(name, value)| (name, serde_json::from_str(&value).unwrap()))
                    .collect();
                prop_assert_eq!(found, members.clone().into_iter().collect::<Vec<_>>());
            }
        }

        #[test]
        fn a_walk_over_an_array_finds_what_a_parser_does(items in prop::collection::vec(value(), 0..6)) {
            let array = Value::from(items.clone());
            for text in [serde_json::to_string(&array).unwrap(), serde_json::to_string_pretty(&array).unwrap()] {
                let found: Vec<Value> =
                    super::items(text.as_bytes()).map(|item| serde_json::from_slice(item).unwrap()).collect();
                prop_assert_eq!(&found, &items);
            }
        }

        #[test]
        fn no_bytes_make_it_panic(text in prop::collection::vec(prop::sample::select(br#"{}[]",:\a1 "#.to_vec()), 0..40)) {
            prop_assert!(super::members(&text).count() <= text.len());
            prop_assert!(super::items(&text).count() <= text.len());
        }
    }
}
