//! The arguments of a built-in tool as a typed struct.
//!
//! They have been checked against the tool's schema before they get here, so reading them fails only where a schema
//! says less than a type can: an integer that fits no machine word, say.

use std::fmt;

use moongate_wire::Raw;
use serde::{Deserialize, Deserializer, Serialize, de};

use crate::builtin::ToolError;

/// Whole numbers that a JSON number of any spelling holds exactly.
const EXACT: f64 = 9_007_199_254_740_992.0;

/// Reads a tool's arguments. The error names no value: arguments are the caller's own business.
pub fn parse<'a, T: Deserialize<'a>>(arguments: &'a Raw) -> Result<T, ToolError> {
    arguments
        .parse()
        .map_err(|_| ToolError::invalid("Error: the arguments do not fit the tool's input schema"))
}

/// A whole number, written as a number (`3`, `3.0`, `3e0`) or as a string of digits: models send all of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Whole(pub i64);

impl<'de> Deserialize<'de> for Whole {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl de::Visitor<'_> for Visitor {
            type Value = Whole;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a whole number")
            }

            fn visit_i64<E: de::Error>(self, value: i64) -> Result<Whole, E> {
                Ok(Whole(value))
            }

            fn visit_u64<E: de::Error>(self, value: u64) -> Result<Whole, E> {
                i64::try_from(value).map(Whole).map_err(|_| E::custom("too large"))
            }

            fn visit_f64<E: de::Error>(self, value: f64) -> Result<Whole, E> {
                if value.fract() != 0.0 || value.abs() > EXACT {
                    return Err(E::custom("not a whole number"));
                }
                #[expect(
                    clippy::cast_possible_truncation,
                    reason = "whole and within 2^53, as checked above"
                )]
                Ok(Whole(value as i64))
            }

            fn visit_str<E: de::Error>(self, value: &str) -> Result<Whole, E> {
                value.trim().parse().map(Whole).map_err(|_| E::custom("not a whole number"))
            }
        }
        deserializer.deserialize_any(Visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whole_numbers_come_in_every_spelling() {
        for (text, expected) in [
            ("3", Some(3)),
            ("-1", Some(-1)),
            ("3.0", Some(3)),
            ("3e2", Some(300)),
            (r#""12""#, Some(12)),
            (r#"" 12 ""#, Some(12)),
            ("3.5", None),
            ("1e300", None),
            ("18446744073709551615", None),
            (r#""x""#, None),
            ("true", None),
        ] {
            let parsed = serde_json::from_str::<Whole>(text).ok();
            assert_eq!(parsed, expected.map(Whole), "{text}");
        }
    }

    #[test]
    fn an_unreadable_argument_is_not_quoted() {
        let arguments = Raw::from_text(r#""secret""#).unwrap();
        let Err(ToolError::Failed(failure)) = parse::<Vec<u8>>(&arguments) else { panic!("it fits nothing") };
        assert!(!failure.message.contains("secret"));
    }
}
