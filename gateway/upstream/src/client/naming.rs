//! The keys under which a modern client is asked what a legacy server wants to know.
//!
//! A legacy server cannot name its questions in the protocol's own words, so it may in ours; whatever has no name of its
//! server's gets a numbered one. With a name that is always the same, a client can answer before it is asked.

use std::collections::HashSet;

use moongate_wire::{
    Raw,
    edit::{self, Edit},
};

/// Where in `_meta` a server names its question.
const INPUT_KEY: &str = "dev.moongate/inputKey";

/// What numbered keys begin with; no server may use it.
const NUMBERED: &str = "question_";

/// The longest name.
const MAX_LENGTH: usize = 64;

/// The name that a question was given, if it is one that can be used, and its parameters without it.
pub(super) fn take_name(params: &Raw) -> (Option<Box<str>>, Raw) {
    let given = params.member("_meta").and_then(|meta| meta.member(INPUT_KEY));
    let Some(given) = given else { return (None, params.clone()) };
    let name = given.text().filter(|name| is_name(name)).map(Box::from);
    let rest = edit::members(params, |member, value| match member {
        "_meta" => {
            let others = edit::remove(value, |key, _| key == INPUT_KEY);
            if others.members().is_empty() { Edit::Drop } else { Edit::Replace(others) }
        }
        _ => Edit::Keep,
    });
    (name, rest)
}

fn is_name(name: &str) -> bool {
    let letter = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-' | b'.');
    (1..=MAX_LENGTH).contains(&name.len()) && name.bytes().all(letter) && !name.starts_with(NUMBERED)
}

/// A key for each question of a round, which together are all different: its name unless an earlier one has it, else a
/// number, of which `first` is the first that no earlier round has used.
pub(super) fn keys<'a>(names: impl IntoIterator<Item = Option<&'a str>>, first: usize) -> Vec<String> {
    let mut used = HashSet::new();
    let key = |(number, name): (usize, Option<&'a str>)| match name.filter(|name| used.insert(*name)) {
        Some(name) => name.to_owned(),
        None => format!("{NUMBERED}{number}"),
    };
    (first..).zip(names).map(key).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn taken(params: &Value) -> (Option<Box<str>>, Value) {
        let (name, rest) = take_name(&Raw::of(params));
        (name, rest.parse().unwrap())
    }

    #[test]
    fn a_name_is_read_and_does_not_stay() {
        let named = json!({"message": "?", "_meta": {INPUT_KEY: "user.name-1", "other": 1}});
        assert_eq!(
            taken(&named),
            (Some("user.name-1".into()), json!({"message": "?", "_meta": {"other": 1}}))
        );
        assert_eq!(taken(&json!({"_meta": {INPUT_KEY: "roots"}})), (Some("roots".into()), json!({})));
        for unnamed in [json!({"message": "?"}), json!({"_meta": {"other": 1}}), json!({"_meta": 1})] {
            assert_eq!(taken(&unnamed), (None, unnamed));
        }
    }

    #[test]
    fn what_is_no_short_name_names_nothing() {
        let (longest, longer) = ("n".repeat(MAX_LENGTH), "n".repeat(MAX_LENGTH + 1));
        assert!(is_name(&longest));
        for bad in
            [json!(""), json!(longer), json!("a b"), json!("ä"), json!("question_1"), json!(1), json!(null)]
        {
            assert_eq!(taken(&json!({"_meta": {INPUT_KEY: bad}})), (None, json!({})), "{bad}");
        }
    }

    #[test]
    fn keys_of_a_round_are_the_names_as_far_as_they_differ() {
        let names = [None, Some("a"), Some("b"), Some("a"), None];
        assert_eq!(keys(names, 3), ["question_3", "a", "b", "question_6", "question_7"]);
    }
}
