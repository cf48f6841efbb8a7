//! JSON text that was checked once and is carried unchanged.
//!
//! Arguments and results travel from edge to backend as [`Raw`], so that unknown members, big numbers and member
//! order survive, and nothing is built that nobody reads. A `Raw` cut out of a body shares the body's memory.

use std::{borrow::Cow, fmt, sync::OnceLock};

use bytes::Bytes;
use memchr::memmem::Finder;
use serde::{Deserialize, Serialize, Serializer};
use serde_json::value::RawValue;

use crate::walk;

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

    /// The same text in memory of its own. A `Raw` cut out of a body keeps all of that body, and all that was read with it;
    /// whoever keeps one for longer than the request keeps this instead.
    #[must_use]
    pub fn detached(&self) -> Self {
        Self(Bytes::copy_from_slice(&self.0))
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

    /// Whether a name with `part` in it, which must be printable ASCII, may be somewhere in the text, however it is
    /// escaped. False is certain: a quick look that spares reading what cannot be there.
    pub fn may_name(&self, part: &str) -> bool {
        // Names that begin so are rare: a search that prepares itself first would take longer.
        let has = |text: &str| {
            let (Some(first), text) = (text.bytes().next(), text.as_bytes()) else { return true };
            let mut starts = memchr::memchr_iter(first, &self.0);
            starts.any(|at| self.0.get(at..).is_some_and(|rest| rest.starts_with(text)))
        };
        has(part) || self.may_escape(part)
    }

    /// Whether a name with `part` in it may be somewhere in the text, escaped.
    fn may_escape(&self, part: &str) -> bool {
        static ANY: Needle = Needle::new("\\u");
        static SLASH: Needle = Needle::new("\\/");
        let has = |escape: &Needle| escape.finder().find(&self.0).is_some();
        let escaped = memchr::memchr(b'\\', &self.0).is_some();
        escaped && (has(&ANY) || (part.contains('/') && has(&SLASH)))
    }

    /// Whether the value is an object.
    pub fn is_object(&self) -> bool {
        self.0.first() == Some(&b'{')
    }

    /// Whether the value is an array.
    pub fn is_array(&self) -> bool {
        self.0.first() == Some(&b'[')
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
        walk::members(&self.0).map(|member| (member.name().into_owned(), member.raw(&self.0))).collect()
    }

    /// The decoded names of the object's members in order. None when this is not an object.
    pub fn names(&self) -> impl Iterator<Item = Cow<'_, str>> {
        walk::members(&self.0).map(|member| member.name())
    }

    /// The value of one member of this object.
    pub fn member(&self, wanted: &str) -> Option<Raw> {
        let found = walk::members(&self.0).find(|member| member.name() == wanted)?;
        Some(found.raw(&self.0))
    }

    /// The array's items in order. Empty when this is not an array.
    pub fn items(&self) -> Vec<Raw> {
        walk::items(&self.0).map(|item| Self(self.0.slice_ref(item))).collect()
    }

    /// The text of a JSON string; `None` when this is not one.
    pub fn text(&self) -> Option<Cow<'_, str>> {
        walk::text(&self.0)
    }

    /// Whether this is the string `text`.
    pub fn is_text(&self, text: &str) -> bool {
        self.text().is_some_and(|own| own == text)
    }
}

/// A part of a name that is looked for in many texts, prepared for it once: unlike [`Raw::may_name`] it is as quick where
/// the part begins like half of all words.
#[derive(Debug)]
pub struct Needle {
    part: &'static str,
    finder: OnceLock<Finder<'static>>,
}

impl Needle {
    /// `part` must be printable ASCII.
    pub const fn new(part: &'static str) -> Self {
        Self { part, finder: OnceLock::new() }
    }

    /// Whether a name with it in may be somewhere in `text`, however it is escaped. False is certain.
    pub fn may_be_in(&self, text: &Raw) -> bool {
        self.finder().find(&text.0).is_some() || text.may_escape(self.part)
    }

    fn finder(&self) -> &Finder<'static> {
        self.finder.get_or_init(|| Finder::new(self.part))
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
    fn a_member_shares_its_objects_memory() {
        let object = Raw::from_text(r#"{"a": {"x": 1}}"#).unwrap();
        let member = object.member("a").unwrap();
        assert!(object.as_bytes().as_ptr_range().contains(&member.as_bytes().as_ptr()));
        assert_eq!(member.as_str(), r#"{"x": 1}"#);
        let detached = member.detached();
        assert!(!object.as_bytes().as_ptr_range().contains(&detached.as_bytes().as_ptr()));
        assert_eq!(detached, member);
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
    fn items_share_their_arrays_memory_and_texts_are_decoded() {
        let array = Raw::from_text(r#"[ {"a":[1]} ,"\u0062", 3]"#).unwrap();
        let items = array.items();
        assert_eq!(items.iter().map(Raw::as_str).collect::<Vec<_>>(), [r#"{"a":[1]}"#, r#""\u0062""#, "3"]);
        assert!(array.as_bytes().as_ptr_range().contains(&items[0].as_bytes().as_ptr()));
        assert!(items[1].is_text("b") && !items[2].is_text("3"));
        assert!(Raw::empty_object().items().is_empty());
    }

    #[test]
    fn a_name_is_seen_however_it_is_written() {
        for (text, expected) in [
            (r#"{"a/b":1}"#, true),
            (r#"{"a\/b":1}"#, true),
            (r#"{"\u0061/b":1}"#, true),
            (r#"{"a":"b","c":"x\ny"}"#, false),
        ] {
            let raw = Raw::from_text(text).unwrap();
            assert_eq!(raw.may_name("a/b"), expected, "{text}");
            assert_eq!(Needle::new("a/b").may_be_in(&raw), expected, "{text}");
        }
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
