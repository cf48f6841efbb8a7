//! How sections and values of the file are declared: once, for reading and for the JSON Schema.

use super::{
    node::{Node, Value},
    read::{At, FromNode, Reader},
};

/// Declares a section of the file: a struct with an optional, placed value for each key, and how it is read. The
/// documentation becomes the JSON Schema's; `later` are the keys of features that this version does not have.
macro_rules! section {
    (
        $(#[$attr:meta])*
        struct $name:ident {
            $( $(#[$field_attr:meta])* $field:ident: $type:ty, )*
        }
        $(later: [$($later:literal),* $(,)?])?
    ) => {
        #[derive(Debug, Default, schemars::JsonSchema)]
        #[schemars(deny_unknown_fields)]
        $(#[$attr])*
        pub(crate) struct $name {
            $( $(#[$field_attr])* pub(crate) $field: Option<$crate::load::read::At<$type>>, )*
        }

        impl $crate::load::read::FromNode for $name {
            fn read(
                node: &$crate::load::node::Node,
                reader: &mut $crate::load::read::Reader<'_>,
            ) -> Option<Self> {
                use $crate::load::declare::{key_of, optional};
                let known = [$( key_of(stringify!($field)) ),*];
                let later = [$( $($later),* )?];
                let mut section = Self::default();
                reader.section(node, &known, &later, |reader, key, node| {
                    $( if key == key_of(stringify!($field)) { section.$field = optional(node, reader); } )*
                })?;
                Some(section)
            }
        }
    };
}

/// Declares how the words of a closed set are spelled.
macro_rules! words {
    ($type:ident { $( $word:literal => $variant:ident ),* $(,)? }) => {
        impl $crate::load::read::FromNode for $type {
            fn read(
                node: &$crate::load::node::Node,
                reader: &mut $crate::load::read::Reader<'_>,
            ) -> Option<Self> {
                reader.word(node, &[$( ($word, Self::$variant) ),*])
            }
        }

        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "enum": [$($word),*] })
            }
        }
    };
}

/// Declares how a value is read from text: what it is called in messages, its parser, and its form as a regular
/// expression for the schema, which always admits a placeholder too.
macro_rules! text {
    ($type:ty, $expected:expr, $pattern:literal, $parse:expr) => {
        impl $crate::load::read::FromNode for $type {
            fn read(
                node: &$crate::load::node::Node,
                reader: &mut $crate::load::read::Reader<'_>,
            ) -> Option<Self> {
                reader.parse(node, $expected, $parse)
            }
        }

        impl schemars::JsonSchema for $type {
            fn inline_schema() -> bool {
                true
            }

            fn schema_name() -> std::borrow::Cow<'static, str> {
                stringify!($type).into()
            }

            fn json_schema(_: &mut schemars::SchemaGenerator) -> schemars::Schema {
                schemars::json_schema!({ "type": "string", "pattern": concat!("^(?:", $pattern, "|.*\\$\\{.+\\}.*)$") })
            }
        }
    };
}

pub(crate) use {section, text, words};

/// The key of a field: its name, without the mark of a Rust keyword.
pub(crate) fn key_of(field: &'static str) -> &'static str {
    field.strip_prefix("r#").unwrap_or(field)
}

/// A value that may be left out: a key with nothing behind it counts as absent.
pub(crate) fn optional<T: FromNode>(node: &Node, reader: &mut Reader<'_>) -> Option<At<T>> {
    match node.value {
        Value::Null => None,
        _ => At::read(node, reader),
    }
}
