//! JSON text that was checked once and is carried unchanged.
//!
//! Arguments and results travel from edge to backend as [`Raw`], so that unknown members, big numbers and member
//! order survive, and nothing is built that nobody reads. A `Raw` cut out of a body shares the body's memory.

use std::fmt;

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// One JSON value as text, without blanks around it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct Raw(Bytes);

impl Raw {
    /// Checks that `text` is one JSON value.
    pub fn from_text(text: impl Into<Bytes>) -> Result<Self, serde_json::Error> {
        let bytes: Bytes = text.into();
        let value: &RawValue = serde_json::from_slice(&bytes)?;
        Ok(Self(bytes.slice_ref(value.get().as_bytes())))
    }

    /// The part of `body` that `value` was read from, sharing `body`'s memory.
    ///
    /// `value` must have been deserialised by borrowing from `body`; anything else is copied.
    pub fn slice_of(body: &Bytes, value: &RawValue) -> Self {
        let part = value.get().as_bytes();
        let whole = body.as_ptr_range();
        let inside = whole.contains(&part.as_ptr()) && part.as_ptr_range().end <= whole.end;
        Self(if inside { body.slice_ref(part) } else { Bytes::copy_from_slice(part) })
    }

    /// Serialises `value`, which must be something JSON can express (string keys, no failing `Serialize`).
    pub fn of<T: Serialize + ?Sized>(value: &T) -> Self {
        Self(serde_json::to_vec(value).expect("a plain data type always serialises").into())
    }

    /// Bytes that the caller has just written as JSON, such as a splice of checked parts.
    pub(crate) fn trusted(bytes: impl Into<Bytes>) -> Self {
        Self(bytes.into())
    }

    /// `{}`
    pub fn empty_object() -> Self {
        Self(Bytes::from_static(b"{}"))
    }

    /// `null`
    pub fn null() -> Self {
        Self(Bytes::from_static(b"null"))
    }

    /// The text as bytes.
    pub fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    /// The bytes themselves, without copying.
    pub fn into_bytes(self) -> Bytes {
        self.0
    }

    /// The text.
    pub fn as_str(&self) -> &str {
        std::str::from_utf8(&self.0).expect("checked JSON is UTF-8")
    }

    /// Reads the text as `T`, borrowing from it where `T` can.
    pub fn parse<'a, T: Deserialize<'a>>(&'a self) -> Result<T, serde_json::Error> {
        serde_json::from_slice(&self.0)
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Whether the value is `null`.
    pub fn is_null(&self) -> bool {
        self.0.as_ref() == b"null"
    }

    /// Length of the text in bytes.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Never true: the shortest JSON value has one byte.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The object's members in order, keys decoded. Empty when this is not an object.
    pub fn members(&self) -> Vec<(String, Raw)> {
        struct Members<'a>(Vec<(String, &'a RawValue)>);
        impl<'de: 'a, 'a> Deserialize<'de> for Members<'a> {
            fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                struct Visitor<'a>(std::marker::PhantomData<&'a ()>);
                impl<'de: 'a, 'a> serde::de::Visitor<'de> for Visitor<'a> {
                    type Value = Members<'a>;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str("an object")
                    }
                    fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                        let mut members = Vec::new();
                        while let Some(member) = map.next_entry::<String, &RawValue>()? {
                            members.push(member);
                        }
                        Ok(Members(members))
                    }
                }
                deserializer.deserialize_map(Visitor(std::marker::PhantomData))
            }
        }
        let Ok(Members(members)) = self.parse::<Members<'_>>() else { return Vec::new() };
        members.into_iter().map(|(key, value)| (key, Raw::slice_of(&self.0, value))).collect()
    }

    /// The value of one member of this object.
    pub fn member(&self, name: &str) -> Option<Raw> {
        self.members().into_iter().find_map(|(key, value)| (key == name).then_some(value))
    }
}

impl fmt::Debug for Raw {
    /// Only the size: arguments and results are never printed by accident.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Raw({} bytes)", self.0.len())
    }
}

impl Serialize for Raw {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let value: &RawValue = serde_json::from_slice(&self.0).map_err(serde::ser::Error::custom)?;
        value.serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for Raw {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let value = Box::<RawValue>::deserialize(deserializer)?;
        Ok(Self(Bytes::copy_from_slice(value.get().as_bytes())))
    }
}

impl From<serde_json::Value> for Raw {
    fn from(value: serde_json::Value) -> Self {
        Self::of(&value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_keeps_member_order_and_big_numbers() {
        let raw = Raw::from_text(r#" {"b":1,"a":123456789012345678901234567890} "#).unwrap();
        assert_eq!(raw.as_str(), r#"{"b":1,"a":123456789012345678901234567890}"#);
        assert_eq!(raw.members()[0].0, "b");
    }

    #[test]
    fn a_slice_shares_the_bodys_memory() {
        let body = Bytes::from_static(br#"{"a": {"x": 1}}"#);
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow)]
            a: &'a RawValue,
        }
        let outer: Outer<'_> = serde_json::from_slice(&body).unwrap();
        let raw = Raw::slice_of(&body, outer.a);
        assert!(body.as_ptr_range().contains(&raw.as_bytes().as_ptr()));
        assert_eq!(raw.as_str(), r#"{"x": 1}"#);
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        assert!(Raw::from_text("{").is_err());
        assert!(Raw::from_text("{} {}").is_err());
    }
}
