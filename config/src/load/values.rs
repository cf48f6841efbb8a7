//! How each kind of value is read: texts, numbers, paths, lists and mappings.

use std::{num::NonZeroUsize, path::PathBuf};

use super::{
    expand::Expander,
    node::{Node, Value},
    read::{At, Entries, FromNode, Given, Hidden, Json, NonEmpty, OneOrMore, OrOff, Reader},
};

impl<T: FromNode> FromNode for At<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let place = reader.place(node);
        T::read(node, reader).map(|value| Self { value, place })
    }
}

impl FromNode for String {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let expected = match node.value {
            Value::Bool(_) | Value::Int(_) | Value::Float(_) => "text (put it in quotes)",
            _ => "text",
        };
        reader.text(node, expected).map(|text| text.value)
    }
}

/// A path: `~` is the home, and what is relative begins where the file lies.
impl FromNode for PathBuf {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let text = reader.text(node, "a path")?.value;
        if text.is_empty() {
            return reader.wrong(node, "a path");
        }
        Some(reader.expander.directories.resolve(&text, &reader.expander.base))
    }
}

impl FromNode for bool {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        const EXPECTED: &str = "`true` or `false`";
        match &node.value {
            Value::Bool(value) => Some(*value),
            Value::Text(text) if Expander::applies(text) => {
                reader.parse(node, EXPECTED, |text| text.trim().parse::<bool>())
            }
            _ => reader.wrong(node, EXPECTED),
        }
    }
}

impl FromNode for NonZeroUsize {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        const EXPECTED: &str = "a whole number from 1";
        match &node.value {
            Value::Int(value) => {
                let number = usize::try_from(*value).ok().and_then(NonZeroUsize::new);
                number.or_else(|| reader.wrong(node, EXPECTED))
            }
            Value::Text(text) if Expander::applies(text) => {
                reader.parse(node, EXPECTED, |text| text.trim().parse::<NonZeroUsize>())
            }
            _ => reader.wrong(node, EXPECTED),
        }
    }
}

impl<T: FromNode> FromNode for Vec<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let Value::List(items) = &node.value else { return reader.wrong(node, "a list") };
        let read = |(index, item): (usize, &Node)| {
            reader.inside(&format!("[{index}]"), |reader| T::read(item, reader))
        };
        Some(items.iter().enumerate().filter_map(read).collect())
    }
}

impl<T: FromNode> FromNode for NonEmpty<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::List(items) if items.is_empty() => reader.unfit(
                node,
                "an empty list matches nothing".to_owned(),
                "at least one entry, or no list at all",
            ),
            _ => Vec::read(node, reader).map(Self),
        }
    }
}

impl<T: FromNode> FromNode for Entries<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let mut read = Vec::new();
        reader.entries(node, "a mapping", |reader, key, value| {
            let place = reader.place_of_key(key);
            let key = At { value: key.text.clone(), place };
            read.extend(At::read(value, reader).map(|value| (key, value)));
        })?;
        Some(Self(read))
    }
}

impl<T: FromNode> FromNode for OrOff<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        let off = match &node.value {
            Value::Text(text) if Expander::applies(text) => {
                reader.text(node, "a limit or `off`")?.value == "off"
            }
            Value::Text(text) => text == "off",
            _ => false,
        };
        if off { Some(Self(None)) } else { T::read(node, reader).map(|value| Self(Some(value))) }
    }
}

impl<T: FromNode> FromNode for Given<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        Some(Self(T::read(node, reader)))
    }
}

impl<T: FromNode> FromNode for OneOrMore<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        match &node.value {
            Value::List(items) if items.is_empty() => reader.wrong(node, "at least one entry"),
            Value::List(_) => Vec::read(node, reader).map(Self),
            _ => T::read(node, reader).map(|value| Self(vec![value])),
        }
    }
}

impl<T: FromNode> FromNode for Hidden<T> {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        node.scalars(&mut reader.report.masked);
        let Value::Map(_) = node.value else {
            return reader.bare_secret(
                node,
                &format!("found {}", node.kind()),
                "a mapping of names to texts",
            );
        };
        let mut read = Vec::new();
        reader.entries(node, "a mapping", |reader, key, value| {
            let name = At { value: key.text.clone(), place: reader.place_of_key(key) };
            read.extend(T::read(value, reader).map(|value| (name, value)));
        })?;
        Some(Self(read))
    }
}

impl FromNode for Json {
    fn read(node: &Node, reader: &mut Reader<'_>) -> Option<Self> {
        json(node, reader).map(Self)
    }
}

/// Texts have their placeholders resolved, as everywhere.
fn json(node: &Node, reader: &mut Reader<'_>) -> Option<serde_json::Value> {
    use serde_json::{Map, Number, Value as Out};
    match &node.value {
        Value::Null => Some(Out::Null),
        Value::Bool(value) => Some(Out::Bool(*value)),
        Value::Int(value) => match Number::from_i128(*value) {
            Some(number) => Some(Out::Number(number)),
            None => reader.wrong(node, "a number of at most 64 bits"),
        },
        Value::Float(value) => match Number::from_f64(*value) {
            Some(number) => Some(Out::Number(number)),
            None => reader.wrong(node, "a number that JSON has"),
        },
        Value::Text(_) => reader.text(node, "text").map(|text| Out::String(text.value)),
        Value::List(_) => {
            let items = Vec::<Json>::read(node, reader)?;
            Some(items.into_iter().map(|item| item.0).collect())
        }
        Value::Map(_) => {
            let mut members = Map::new();
            reader.entries(node, "a mapping", |reader, key, value| {
                members.extend(json(value, reader).map(|value| (key.text.clone(), value)));
            })?;
            Some(Out::Object(members))
        }
    }
}
