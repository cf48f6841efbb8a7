//! JSON text that was checked once and is carried unchanged.
//!
//! Arguments and results travel from edge to backend as [`Raw`], so that unknown members, big numbers and member
//! order survive, and nothing is built that nobody reads. A `Raw` cut out of a body shares the body's memory.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

/// Room for most values that are serialised here, so that they are written without growing.
const ROOM: usize = 256;

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
        let mut text = Vec::with_capacity(ROOM);
        serde_json::to_writer(&mut text, value).expect("a plain data type always serialises");
        Self(text.into())
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
        serde_json::from_str(self.as_str())
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
        let own = |(key, value)| (name(key).into_owned(), Raw::slice_of(&self.0, value));
        self.spans().into_iter().map(own).collect()
    }

    /// The value of one member of this object.
    pub fn member(&self, wanted: &str) -> Option<Raw> {
        let (_, value) = self.spans().into_iter().find(|(key, _)| name(key) == wanted)?;
        Some(Raw::slice_of(&self.0, value))
    }

    /// The object's members as they are written. Empty when this is not an object.
    pub(crate) fn spans(&self) -> Vec<(&RawValue, &RawValue)> {
        self.parse::<Spans<'_>>().map(|Spans(spans)| spans).unwrap_or_default()
    }
}

/// A member's name, decoded. One that is not Unicode is given as it is written; no frame that was scanned has one.
pub(crate) fn name(key: &RawValue) -> Cow<'_, str> {
    let text = key.get();
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"')).unwrap_or(text);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner);
    }
    serde_json::from_str(text).map_or(Cow::Borrowed(inner), Cow::Owned)
}

/// For `deserialize_with`: tells `null` from absent, which an `Option` does not.
pub(crate) fn present<'de, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'de RawValue>, D::Error> {
    <&RawValue>::deserialize(deserializer).map(Some)
}

/// Names and values of an object, both borrowed from its text.
struct Spans<'a>(Vec<(&'a RawValue, &'a RawValue)>);

impl<'de> Deserialize<'de> for Spans<'de> {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Visitor;
        impl<'de> serde::de::Visitor<'de> for Visitor {
            type Value = Vec<(&'de RawValue, &'de RawValue)>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: serde::de::MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut spans = Vec::new();
                while let Some(span) = map.next_entry()? {
                    spans.push(span);
                }
                Ok(spans)
            }
        }
        deserializer.deserialize_map(Visitor).map(Self)
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
        Ok(Self(Bytes::from(Box::<str>::from(value).into_string())))
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
        #[derive(Deserialize)]
        struct Outer<'a> {
            #[serde(borrow)]
            a: &'a RawValue,
        }
        let body = Bytes::from_static(br#"{"a": {"x": 1}}"#);
        let outer: Outer<'_> = serde_json::from_slice(&body).unwrap();
        let raw = Raw::slice_of(&body, outer.a);
        assert!(body.as_ptr_range().contains(&raw.as_bytes().as_ptr()));
        assert_eq!(raw.as_str(), r#"{"x": 1}"#);
    }

    #[test]
    fn members_are_found_by_their_decoded_names() {
        let raw = Raw::from_text(r#"{"\u0061":1,"b":{"a":2},"\ud800":3}"#).unwrap();
        assert_eq!(raw.member("a"), Some(Raw::of(&1)));
        assert_eq!(raw.member("b").unwrap().member("a"), Some(Raw::of(&2)));
        assert_eq!(raw.member("c"), None);
        assert_eq!(raw.members().len(), 3);
        assert_eq!(Raw::of(&[1]).members(), []);
        assert_eq!(Raw::null().member("a"), None);
    }

    #[test]
    fn a_value_inside_another_type_keeps_its_text() {
        #[derive(Serialize, Deserialize)]
        struct Outer {
            inner: Raw,
        }
        let text = r#"{"inner":{"b" : 1e400,"a":[]}}"#;
        let outer: Outer = serde_json::from_str(text).unwrap();
        assert_eq!(serde_json::to_string(&outer).unwrap(), text);
    }

    #[test]
    fn text_that_is_not_json_is_refused() {
        assert!(Raw::from_text("{").is_err());
        assert!(Raw::from_text("{} {}").is_err());
    }
}
