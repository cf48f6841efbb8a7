//! The id of a JSON-RPC request, which keeps its JSON type on the way through.

use std::fmt;

use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// A string or an integer; two clients may both use `1`, and `1` is not `"1"`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Id {
    /// A JSON integer.
    Integer(i64),
    /// A JSON string.
    Text(Box<str>),
}

impl From<&str> for Id {
    fn from(text: &str) -> Self {
        Self::Text(text.into())
    }
}

impl From<i64> for Id {
    fn from(number: i64) -> Self {
        Self::Integer(number)
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Integer(number) => number.fmt(f),
            Self::Text(text) => text.fmt(f),
        }
    }
}

impl Serialize for Id {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Integer(number) => serializer.serialize_i64(*number),
            Self::Text(text) => serializer.serialize_str(text),
        }
    }
}

impl<'de> Deserialize<'de> for Id {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl serde::de::Visitor<'_> for Visitor {
            type Value = Id;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a string or an integer")
            }
            fn visit_i64<E>(self, number: i64) -> Result<Id, E> {
                Ok(Id::Integer(number))
            }
            fn visit_u64<E: serde::de::Error>(self, number: u64) -> Result<Id, E> {
                i64::try_from(number).map(Id::Integer).map_err(|_| E::custom("the integer is too large"))
            }
            fn visit_str<E>(self, text: &str) -> Result<Id, E> {
                Ok(Id::Text(text.into()))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}
