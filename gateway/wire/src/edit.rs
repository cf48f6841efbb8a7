//! Changes to an object's text that leave every other byte as it was: no tree is built, no member reordered, no number
//! rewritten.

use std::{borrow::Cow, ops::Range};

use bytes::Bytes;

use crate::{
    Raw, walk,
    write::{self, Fragment},
};

/// What becomes of a member.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Edit {
    /// It stays.
    Keep,
    /// It goes, with one comma.
    Drop,
    /// Its value becomes another.
    Replace(Raw),
}

/// `object` with each member, shown with its decoded name, kept, dropped or given another value.
///
/// When all are kept this is the same `Raw`, sharing its memory. What is not an object is returned as it is.
pub fn members(object: &Raw, mut decide: impl FnMut(&str, &Raw) -> Edit) -> Raw {
    let bytes = object.clone().into_bytes();
    let walk = walk::members(&bytes);
    let edits: Vec<_> = walk.clone().map(|member| decide(&member.name(), &member.raw(&bytes))).collect();
    if edits.iter().all(|edit| *edit == Edit::Keep) {
        return object.clone();
    }
    let base = bytes.as_ptr().addr();
    let range = |part: &[u8]| {
        let start = part.as_ptr().addr() - base;
        start..start + part.len()
    };
    let places = walk.map(|member| (range(member.key), range(member.value)));
    splice(&bytes, places.zip(&edits))
}

/// `array` with each item kept, dropped or replaced by any number of others.
///
/// When `change` gives `None` for all, this is the same `Raw`, sharing its memory. What is not an array is returned as it
/// is. An array that changes is written anew, its items byte for byte.
pub fn items(array: &Raw, mut change: impl FnMut(&Raw) -> Option<Vec<Raw>>) -> Raw {
    let items = array.items();
    let changed: Vec<Option<Vec<Raw>>> = items.iter().map(&mut change).collect();
    if changed.iter().all(Option::is_none) {
        return array.clone();
    }
    let kept = items.into_iter().zip(changed);
    let all: Vec<Raw> = kept.flat_map(|(item, others)| others.unwrap_or_else(|| vec![item])).collect();
    write::array(&all)
}

/// Copies `bytes`, an object with at least one member, with each edit done at its member's name and value.
fn splice<'a>(bytes: &Bytes, edits: impl Iterator<Item = ((Range<usize>, Range<usize>), &'a Edit)>) -> Raw {
    let part = |range: Range<usize>| bytes.get(range).unwrap_or_default();
    let mut out = Vec::with_capacity(bytes.len());
    let mut end = 0;
    let mut kept_one = false;
    for ((key, value), edit) in edits {
        // The comma and the blanks before a member go with it, except that the blanks after the opening brace stay, and
        // that the first member kept leaves its comma behind.
        let opening = end == 0;
        if opening || (kept_one && *edit != Edit::Drop) {
            out.extend_from_slice(part(end..key.start));
        }
        end = value.end;
        match edit {
            Edit::Drop => continue,
            Edit::Keep => out.extend_from_slice(part(key.start..value.end)),
            Edit::Replace(other) => {
                out.extend_from_slice(part(key.start..value.start));
                out.extend_from_slice(other.as_bytes());
            }
        }
        kept_one = true;
    }
    out.extend_from_slice(part(end..bytes.len()));
    Raw::trusted(out)
}

/// `object` without the members that `goes` picks by their decoded names.
///
/// In one pass; when none goes this is the same `Raw`, sharing its memory. What is not an object is returned as it is.
pub fn remove<'a>(object: &'a Raw, mut goes: impl FnMut(&str, Value<'a>) -> bool) -> Raw {
    let bytes = object.as_bytes();
    let part = |range: Range<usize>| bytes.get(range).unwrap_or_default();
    // Where members and values begin and end is their address behind that of the object.
    let place = |part: &[u8]| part.as_ptr().addr() - bytes.as_ptr().addr();
    let mut out = None;
    let mut end = 0;
    let mut kept_one = false;
    for member in walk::members(bytes) {
        let (start, last) = (place(member.key), place(member.value) + member.value.len());
        // Commas and blanks as in `splice`.
        if goes(&member.name(), Value(member.value)) {
            let kept = if end == 0 { start } else { end };
            out.get_or_insert_with(|| {
                let mut out = Vec::with_capacity(bytes.len());
                out.extend_from_slice(part(0..kept));
                out
            });
        } else {
            if let Some(out) = &mut out {
                out.extend_from_slice(part(if kept_one { end } else { start }..last));
            }
            kept_one = true;
        }
        end = last;
    }
    let Some(mut out) = out else { return object.clone() };
    out.extend_from_slice(part(end..bytes.len()));
    Raw::trusted(out)
}

/// A member's value as [`remove`] shows it.
#[derive(Clone, Copy, Debug)]
pub struct Value<'a>(&'a [u8]);

impl<'a> Value<'a> {
    /// The text, if the value is a string.
    pub fn text(self) -> Option<Cow<'a, str>> {
        walk::text(self.0)
    }

    /// The number, if the value is one.
    pub fn number(self) -> Option<f64> {
        std::str::from_utf8(self.0).ok()?.parse().ok()
    }

    /// The decoded names of its members, if the value is an object.
    pub fn names(self) -> impl Iterator<Item = Cow<'a, str>> {
        walk::members(self.0).map(|member| member.name())
    }
}

/// `object` with texts put after its own members, whose names must not repeat any of them. What is not an object counts
/// as an empty one.
pub fn append<'a>(
    object: &Raw,
    members: impl IntoIterator<Item = (&'a str, &'a str), IntoIter: Clone>,
) -> Raw {
    let members = members.into_iter();
    // Four quotes, a colon and a comma each.
    let room = members.clone().map(|(name, value)| name.len() + value.len() + 6).sum();
    append_written(object, room, |out| {
        for (name, value) in members {
            out.raw(",\"").text(name).raw("\":\"").text(value).raw("\"");
        }
    })
}

/// As [`append`], with the members that `members` writes, each behind a comma. `room` is how many bytes they take.
#[inline]
pub fn append_written(object: &Raw, room: usize, members: impl FnOnce(&mut Fragment)) -> Raw {
    let text = if object.is_object() { object.as_bytes() } else { b"{}" };
    // Right after the last value, so that dropping the new members again gives back the same bytes.
    let (own, end) = text.split_at(text.strip_suffix(b"}").unwrap_or(text).trim_ascii_end().len());
    // The brace of an object without members goes where the comma before the first is. So the room is exact, without
    // which an allocation more is made on the way to `Bytes`.
    let is_empty = own.len() <= 1;
    let mut out = Fragment::with_room(text.len() + room - usize::from(is_empty && room > 0));
    if !is_empty {
        out.raw(own);
    }
    members(&mut out);
    let mut out = out.into_bytes();
    match out.first_mut() {
        Some(comma) if is_empty => {
            debug_assert_eq!(*comma, b',', "each member is written behind one");
            *comma = b'{';
        }
        Some(_) => {}
        None => out.push(b'{'),
    }
    // Hardly any object has blanks there, and one byte is pushed for less than any number of them is copied.
    match end {
        [brace] => out.push(*brace),
        _ => out.extend_from_slice(end),
    }
    Raw::trusted(out)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn raw(text: &str) -> Raw {
        Raw::from_text(text.to_owned()).unwrap()
    }

    fn drop_x(text: &str) -> String {
        let edit = |name: &str, _: &Raw| if name.starts_with('x') { Edit::Drop } else { Edit::Keep };
        let dropped = members(&raw(text), edit);
        assert_eq!(remove(&raw(text), |name, _| name.starts_with('x')), dropped, "{text}");
        dropped.as_str().to_owned()
    }

    #[test]
    fn dropped_members_take_one_comma_with_them() {
        for (text, expected) in [
            ("{}", "{}"),
            ("{ }", "{ }"),
            (r#"{"a":1}"#, r#"{"a":1}"#),
            (r#"{"x":1}"#, "{}"),
            (r#"{ "x":1 , "x2":2 }"#, "{  }"),
            (r#"{"x":1,"a":2}"#, r#"{"a":2}"#),
            (r#"{ "x":1, "a" : 2 }"#, r#"{ "a" : 2 }"#),
            (r#"{"a":1,"x":2}"#, r#"{"a":1}"#),
            ("{\"a\":1 ,\n \"x\":2\n}", "{\"a\":1\n}"),
            (r#"{"a":1, "x":2,"x2":3,  "b":4}"#, r#"{"a":1,  "b":4}"#),
            (r#"{"x":1,"a":2,"x2":3,"b":4,"x3":5}"#, r#"{"a":2,"b":4}"#),
            (r#"{"\u0078":1,"a":1e400}"#, r#"{"a":1e400}"#),
            (r#"{"a":{"x":1}}"#, r#"{"a":{"x":1}}"#),
            (r#"["x"]"#, r#"["x"]"#),
        ] {
            assert_eq!(drop_x(text), expected, "{text}");
        }
    }

    #[test]
    fn items_are_kept_dropped_and_replaced() {
        let change = |item: &Raw| match item.as_str() {
            "1" => Some(vec![]),
            "2" => Some(vec![raw("3"), raw("4")]),
            _ => None,
        };
        assert_eq!(items(&raw(r#"[ 1, {"a": 1e400} ,2]"#), change).as_str(), r#"[{"a": 1e400},3,4]"#);
        let same = raw("[ 5 ]");
        assert_eq!(items(&same, change).as_bytes().as_ptr(), same.as_bytes().as_ptr());
        assert_eq!(items(&raw("[1]"), change).as_str(), "[]");
        assert_eq!(items(&raw("{}"), change).as_str(), "{}");
    }

    #[test]
    fn a_value_is_replaced_in_place() {
        let edit =
            |_: &str, value: &Raw| if value.is_object() { Edit::Replace(Raw::null()) } else { Edit::Keep };
        let object = raw(r#"{ "a" : {"b":1} , "c":2, "d":{}}"#);
        assert_eq!(members(&object, edit).as_str(), r#"{ "a" : null , "c":2, "d":null}"#);
    }

    #[test]
    fn an_object_that_keeps_everything_is_not_copied() {
        let object = raw(r#"{"a":1,"b":2}"#);
        for same in [members(&object, |_, _| Edit::Keep), remove(&object, |_, _| false)] {
            assert_eq!(same.as_bytes().as_ptr(), object.as_bytes().as_ptr());
        }
    }

    #[test]
    fn a_name_that_is_not_unicode_does_not_hide_the_others() {
        assert_eq!(drop_x(r#"{"\ud800":1,"x":2}"#), r#"{"\ud800":1}"#);
    }

    #[test]
    fn appended_members_follow_the_objects_own() {
        let added = || [("b", "\"2\""), ("c\n", "x")];
        for (text, expected) in [
            ("{}", r#"{"b":"\"2\"","c\n":"x"}"#),
            ("{ }", r#"{"b":"\"2\"","c\n":"x" }"#),
            (r#"{ "a":1 }"#, r#"{ "a":1,"b":"\"2\"","c\n":"x" }"#),
            ("null", r#"{"b":"\"2\"","c\n":"x"}"#),
        ] {
            assert_eq!(append(&raw(text), added()).as_str(), expected, "{text}");
        }
        for (text, expected) in [(r#"{"a":1 }"#, r#"{"a":1 }"#), ("{ }", "{ }"), ("{}", "{}"), ("[1]", "{}")]
        {
            assert_eq!(append(&raw(text), []).as_str(), expected, "{text}");
        }
    }

    proptest! {
        #[test]
        fn an_edited_object_has_exactly_the_members_that_were_kept(
            names in prop::collection::vec("[a-z\"\\\\]{0,3}", 0..8),
            keep in prop::collection::vec(any::<bool>(), 8),
            blank in "[ \n\t]{0,2}",
        ) {
            let member = |(index, name): (usize, &String)| {
                format!("{blank}{}{blank}:{blank}[{index}]{blank}", serde_json::to_string(name).unwrap())
            };
            let object = raw(&format!("{{{blank}{}}}", names.iter().enumerate().map(member).collect::<Vec<_>>().join(",")));
            let mut kept = keep.iter();
            let edited = members(&object, |_, _| if *kept.next().unwrap() { Edit::Keep } else { Edit::Drop });
            let expected: Vec<_> =
                object.members().into_iter().zip(&keep).filter_map(|(member, keep)| keep.then_some(member)).collect();
            prop_assert!(Raw::from_text(edited.clone().into_bytes()).is_ok());
            prop_assert_eq!(edited.members(), expected);
            let mut kept = keep.iter();
            prop_assert_eq!(remove(&object, |_, _| !*kept.next().unwrap()), edited);
        }
    }
}
