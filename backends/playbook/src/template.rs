//! `{{name}}` in a playbook's texts, replaced by the values it is selected with.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::{error::Error, record::Input};

/// Values by input name.
pub(crate) type Values = BTreeMap<String, Value>;

/// The values of a playbook's inputs: the given ones, else their defaults. An input without either is left out.
pub(crate) fn resolve(inputs: &[Input], given: &Values) -> Result<Values, Error> {
    let unknown: Vec<&str> = given
        .keys()
        .map(String::as_str)
        .filter(|name| !inputs.iter().any(|input| input.name == *name))
        .collect();
    if !unknown.is_empty() {
        let known: Vec<&str> = inputs.iter().map(|input| input.name.as_str()).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        return Err(Error::UnknownInputs { unknown: unknown.join(", "), known });
    }
    let mut values = Values::new();
    for input in inputs {
        if let Some(value) = given.get(&input.name) {
            input.check(value)?;
        }
        if let Some(value) = given.get(&input.name).or(input.default_value.as_ref()) {
            values.insert(input.name.clone(), value.clone());
        }
    }
    Ok(values)
}

/// `text` with every `{{name}}` that has a value replaced. Others stay: they may name the output of a step. Values are
/// put in as they are, so a value cannot bring in another.
pub(crate) fn fill(text: &str, values: &Values) -> String {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("{{") {
        out.push_str(before);
        let value = after.split_once("}}").and_then(|(name, tail)| Some((values.get(name.trim())?, tail)));
        if let Some((value, tail)) = value {
            out.push_str(&plain(value));
            rest = tail;
        } else {
            out.push_str("{{");
            rest = after;
        }
    }
    out.push_str(rest);
    out
}

/// A value as text: a string without quotes.
pub(crate) fn plain(value: &Value) -> String {
    value.as_str().map_or_else(|| value.to_string(), str::to_owned)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn values() -> Values {
        [("city", json!("Berlin")), ("days", json!(3)), ("tricky", json!("{{city}}"))]
            .map(|(name, value)| (name.to_owned(), value))
            .into()
    }

    #[test]
    fn known_names_are_replaced_once() {
        for (text, expected) in [
            ("to {{city}} for {{ days }} days", "to Berlin for 3 days"),
            ("{{tricky}} {{city}}", "{{city}} Berlin"),
            ("{{unknown}} {{city}}", "{{unknown}} Berlin"),
            ("{{ {{city}}", "{{ Berlin"),
            ("{{city", "{{city"),
            ("}} {{", "}} {{"),
            ("", ""),
        ] {
            assert_eq!(fill(text, &values()), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn text_without_values_stays_as_it_is(text in "[{}a ]{0,24}") {
            prop_assert_eq!(fill(&text, &Values::new()), text);
        }
    }
}
