//! The bytes of messages we send, by joining checked parts: no tree is built for an answer.

use std::{borrow::Cow, fmt};

use bytes::Bytes;
use serde::Serialize;

use crate::{
    Id, Raw, RpcError,
    scan::{plain_length, seems_plain},
};

/// `{"jsonrpc":"2.0","id":…,"result":…}`
pub fn result(id: &Id, result: &Raw) -> Raw {
    result_with(id, result, &[])
}

/// As [`result`], with `members` put before the result's own, as by [`with_members`].
pub fn result_with(id: &Id, result: &Raw, members: &[(&str, Raw)]) -> Raw {
    const AROUND: usize = r#"{"jsonrpc":"2.0","id":,"result":}"#.len();
    // Exactly: what has room to spare costs an allocation more on its way to `Bytes`.
    let mut out = Vec::with_capacity(AROUND + id_room(id) + result.len() + room(members));
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    push(&mut out, id);
    out.extend_from_slice(br#","result":"#);
    push_with_members(&mut out, result, members);
    out.push(b'}');
    Raw::trusted(out)
}

/// As [`result_with`], in pieces of which the second is memory of `result` itself: what is large is not copied.
pub fn result_pieces(id: &Id, result: &Raw, members: &[(&str, Raw)]) -> [Bytes; 3] {
    let mut out = Vec::with_capacity(64 + id_room(id) + room(members));
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    push(&mut out, id);
    out.extend_from_slice(br#","result":"#);
    let rest = match push_members(&mut out, result, members) {
        Some(rest) => result.clone().into_bytes().slice_ref(rest),
        None => Bytes::from_static(b"}"),
    };
    [out.into(), rest, Bytes::from_static(b"}")]
}

/// How an error answers a request whose id could not be read: older schemas require `null`, newer ones forbid it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NoId {
    /// Leave `id` out (2025-11-25 and later, and whenever the version is unknown).
    Omit,
    /// Write `"id":null` (before 2025-11-25).
    Null,
}

/// `{"jsonrpc":"2.0","id":…,"error":…}`
pub fn error(id: Option<&Id>, no_id: NoId, error: &RpcError) -> Raw {
    let mut out = Vec::with_capacity(192);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","#);
    match (id, no_id) {
        (Some(id), _) => {
            out.extend_from_slice(br#""id":"#);
            push(&mut out, id);
            out.push(b',');
        }
        (None, NoId::Null) => out.extend_from_slice(br#""id":null,"#),
        (None, NoId::Omit) => {}
    }
    out.extend_from_slice(br#""error":"#);
    push(&mut out, error);
    out.push(b'}');
    Raw::trusted(out)
}

/// `{"jsonrpc":"2.0","id":…,"method":…,"params":…}`
pub fn request(id: &Id, method: &str, params: &Raw) -> Raw {
    request_written(id, method, params.len(), |out| {
        out.raw(params.as_bytes());
    })
}

/// As [`request`], with the params that `params` writes in about `room` bytes.
pub fn request_written(id: &Id, method: &str, room: usize, params: impl FnOnce(&mut Fragment)) -> Raw {
    let mut out = Fragment::with_room(room + 96);
    out.raw(r#"{"jsonrpc":"2.0","id":"#).value(id).raw(r#","method":"#).string(method).raw(r#","params":"#);
    params(&mut out);
    out.raw("}");
    Raw::trusted(out.into_bytes())
}

/// `{"jsonrpc":"2.0","method":…,"params":…}`
pub fn notification(method: &str, params: &Raw) -> Raw {
    let mut out = Vec::with_capacity(params.len() + 80);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","method":"#);
    push_string(&mut out, method);
    out.extend_from_slice(br#","params":"#);
    out.extend_from_slice(params.as_bytes());
    out.push(b'}');
    Raw::trusted(out)
}

/// `{"name":…,"arguments":…}`
pub fn named(name: &str, arguments: &Raw) -> Raw {
    const AROUND: usize = r#"{"name":"","arguments":}"#.len();
    // Exactly, as for a result.
    let mut out = Vec::with_capacity(AROUND + name.len() + arguments.len());
    out.extend_from_slice(br#"{"name":"#);
    push_string(&mut out, name);
    out.extend_from_slice(br#","arguments":"#);
    out.extend_from_slice(arguments.as_bytes());
    out.push(b'}');
    Raw::trusted(out)
}

/// `[…,…]`
pub fn array<'a>(items: impl IntoIterator<Item = &'a Raw, IntoIter: Clone>) -> Raw {
    let items = items.into_iter();
    let mut out = Vec::with_capacity(2 + items.clone().map(|item| item.len() + 1).sum::<usize>());
    out.push(b'[');
    for item in items {
        if out.len() > 1 {
            out.push(b',');
        }
        out.extend_from_slice(item.as_bytes());
    }
    out.push(b']');
    Raw::trusted(out)
}

/// `object` with `members` put before its own, which must not repeat any of them. Every value is JSON already.
pub fn with_members(object: &Raw, members: &[(&str, Raw)]) -> Raw {
    let mut out = Vec::with_capacity(object.len() + room(members));
    push_with_members(&mut out, object, members);
    Raw::trusted(out)
}

/// How many bytes an id takes, unless something in it is escaped.
fn id_room(id: &Id) -> usize {
    match id {
        Id::Integer(number) => {
            let digits = number.unsigned_abs().checked_ilog10().map_or(1, |most| most as usize + 1);
            digits + usize::from(*number < 0)
        }
        Id::Text(text) => text.len() + 2,
    }
}

/// How many bytes `members` take, their commas and colons with them.
fn room(members: &[(&str, Raw)]) -> usize {
    members.iter().map(|(key, value)| key.len() + value.len() + 4).sum()
}

fn push_with_members(out: &mut Vec<u8>, object: &Raw, members: &[(&str, Raw)]) {
    let rest = push_members(out, object, members).unwrap_or(b"}");
    out.extend_from_slice(rest);
}

/// Appends what goes before an object's own members; what is to follow then, `None` for the end of an object where
/// `object` is none.
fn push_members<'a>(out: &mut Vec<u8>, object: &'a Raw, members: &[(&str, Raw)]) -> Option<&'a [u8]> {
    if members.is_empty() {
        return Some(object.as_bytes());
    }
    let inner = object.as_bytes().get(1..).filter(|_| object.is_object());
    for (index, (key, value)) in members.iter().enumerate() {
        out.push(if index == 0 { b'{' } else { b',' });
        push_string(out, key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    let first = inner.and_then(|inner| inner.iter().find(|byte| !byte.is_ascii_whitespace()));
    if first.is_some_and(|first| *first != b'}') {
        out.push(b',');
    }
    inner
}

/// Room for data beside a text, so that most results are written without growing.
const ROOM: usize = 160;
/// What a tool's result takes beside its text and data.
const FRAME: usize = r#"{"content":[{"type":"text","text":""}],"structuredContent":,"isError":false}"#.len();

/// The result of a tool, `{"content":[…],"structuredContent":…,"isError":…}`, written part by part into one piece of
/// memory.
#[derive(Clone)]
pub struct ToolResult {
    out: Vec<u8>,
    /// Where the next content block goes.
    content_end: usize,
}

impl ToolResult {
    /// A result whose first content block is `text`.
    pub fn text(text: &str) -> Self {
        // Most results say the same again as data, in somewhat more bytes.
        Self::written(text.len() * 5 / 2 + ROOM, |out| {
            out.text(text);
        })
    }

    /// A result whose first content block is the text that `text` writes, as it stands between the quotes of a JSON
    /// string. `room` is how many bytes text and data will take, as far as that is known.
    pub fn written(room: usize, text: impl FnOnce(&mut Fragment)) -> Self {
        let mut out = Fragment::with_room(room + FRAME);
        out.raw(r#"{"content":[{"type":"text","text":""#);
        text(&mut out);
        out.raw(r#""}]"#);
        let Fragment(out) = out;
        Self { content_end: out.len() - 1, out }
    }

    /// The same with one more content block, which must be an object.
    #[must_use]
    pub fn block(mut self, block: &(impl Serialize + ?Sized)) -> Self {
        let mut more = vec![b','];
        push(&mut more, block);
        let place = self.content_end..self.content_end;
        self.content_end += more.len();
        self.out.splice(place, more);
        self
    }

    /// The same with data, which must be an object.
    #[must_use]
    pub fn structured(self, value: &(impl Serialize + ?Sized)) -> Self {
        self.structured_written(|out| {
            out.value(value);
        })
    }

    /// The same with the data that `data` writes, which must be an object.
    #[must_use]
    pub fn structured_written(self, data: impl FnOnce(&mut Fragment)) -> Self {
        let mut out = Fragment(self.out);
        out.raw(r#","structuredContent":"#);
        data(&mut out);
        Self { out: out.0, content_end: self.content_end }
    }

    /// The finished result.
    pub fn finish(mut self, is_error: bool) -> Raw {
        let end: &[u8] = if is_error { br#","isError":true}"# } else { br#","isError":false}"# };
        self.out.extend_from_slice(end);
        Raw::trusted(self.out)
    }
}

impl fmt::Debug for ToolResult {
    /// Only the size, as for a [`Raw`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ToolResult({} bytes)", self.out.len())
    }
}

/// A stretch of JSON text, for what is written too often to go through a tree or through serde name by name. Whoever
/// joins the pieces answers for the whole.
#[derive(Clone, Default)]
pub struct Fragment(Vec<u8>);

impl Fragment {
    /// Nothing yet, with room for so many bytes.
    #[inline]
    pub fn with_room(room: usize) -> Self {
        Self(Vec::with_capacity(room))
    }

    /// Appends what is JSON already: punctuation and names, a kept [`Fragment`], or text that needs no escaping.
    pub fn raw(&mut self, json: impl AsRef<[u8]>) -> &mut Self {
        self.0.extend_from_slice(json.as_ref());
        self
    }

    /// Appends text as it stands between the quotes of a JSON string.
    #[inline]
    pub fn text(&mut self, text: &str) -> &mut Self {
        push_text(&mut self.0, text);
        self
    }

    /// Appends text as a JSON string.
    pub fn string(&mut self, text: &str) -> &mut Self {
        push_string(&mut self.0, text);
        self
    }

    /// Appends the members of `object` and its end, with a comma before them if there are any: what was written so far is an
    /// object that has members and no end.
    pub fn rest_of(&mut self, object: &Raw) -> &mut Self {
        let inner = object.as_bytes().get(1..).filter(|_| object.is_object()).unwrap_or(b"}");
        if inner.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'}') {
            self.raw(",");
        }
        self.raw(inner)
    }

    /// What was written.
    pub(crate) fn into_bytes(self) -> Vec<u8> {
        self.0
    }

    /// Appends a value.
    pub fn value(&mut self, value: &(impl Serialize + ?Sized)) -> &mut Self {
        push(&mut self.0, value);
        self
    }
}

impl AsRef<[u8]> for Fragment {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl fmt::Debug for Fragment {
    /// Only the size, as for a [`Raw`].
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Fragment({} bytes)", self.0.len())
    }
}

/// `text` as it stands between the quotes of a JSON string.
pub fn escape(text: &str) -> Cow<'_, str> {
    if plain_length(text.as_bytes()) == text.len() {
        return Cow::Borrowed(text);
    }
    let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 8);
    push_text(&mut out, text);
    Cow::Owned(String::from_utf8(out).expect("only ASCII was put in the place of ASCII"))
}

/// A JSON string.
pub fn string(text: &str) -> Raw {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 2);
    push_string(&mut out, text);
    Raw::trusted(out)
}

/// Appends a JSON string, byte for byte as serde would write it.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    push_text(out, text);
    out.push(b'"');
}

/// A text up to this length is copied whole if nothing in it is escaped, which is so for nearly all ids and names.
const SHORT: usize = 64;

/// Appends what is between the quotes.
#[inline]
fn push_text(out: &mut Vec<u8>, text: &str) {
    if text.len() <= SHORT && seems_plain(text.as_bytes()) {
        return out.extend_from_slice(text.as_bytes());
    }
    push_stretches(out, text);
}

/// Stretches without anything to escape are copied whole.
fn push_stretches(out: &mut Vec<u8>, text: &str) {
    let mut rest = text.as_bytes();
    loop {
        let (plain, from_special) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let Some((special, after)) = from_special.split_first() else { break };
        push_escaped(out, *special);
        rest = after;
    }
}

/// Appends a quote, a backslash or a control character.
fn push_escaped(out: &mut Vec<u8>, special: u8) {
    const HEX: [u8; 16] = *b"0123456789abcdef";
    let digit = |value: u8| HEX.get(usize::from(value)).copied().unwrap_or(b'0');
    let short = match special {
        b'"' | b'\\' => special,
        b'\n' => b'n',
        b'\t' => b't',
        b'\r' => b'r',
        0x08 => b'b',
        0x0c => b'f',
        _ => {
            out.extend_from_slice(&[b'\\', b'u', b'0', b'0', digit(special >> 4), digit(special & 0xf)]);
            return;
        }
    };
    out.extend_from_slice(&[b'\\', short]);
}

/// An object of `members`, in order.
pub fn object<'a>(members: impl IntoIterator<Item = (&'a str, &'a Raw), IntoIter: Clone>) -> Raw {
    let members = members.into_iter();
    let room: usize = members.clone().map(|(key, value)| key.len() + value.len() + 4).sum();
    let mut out = Vec::with_capacity(2 + room);
    out.push(b'{');
    for (key, value) in members {
        if out.len() > 1 {
            out.push(b',');
        }
        push_string(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    out.push(b'}');
    Raw::trusted(out)
}

pub(crate) fn push(out: &mut Vec<u8>, value: &(impl Serialize + ?Sized)) {
    serde_json::to_writer(out, value).expect("writing plain data to memory cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_room_for_an_answer_is_its_length() {
        let members = [("b", Raw::of(&2)), ("c", Raw::of("x"))];
        for id in [Id::from(0), Id::from(9), Id::from(10), Id::from(-987), Id::from(i64::MIN), Id::from("x")]
        {
            for members in [&[][..], &members] {
                let result = Raw::from_text(r#"{"a":1}"#).unwrap();
                let room = 33 + id_room(&id) + result.len() + room(members);
                assert_eq!(result_with(&id, &result, members).len(), room, "{id}");
            }
        }
    }

    #[test]
    fn a_name_comes_with_its_arguments() {
        let arguments = Raw::from_text(r#"{"a":1}"#).unwrap();
        let named = |name: &str| super::named(name, &arguments).as_str().to_owned();
        assert_eq!(named("x"), r#"{"name":"x","arguments":{"a":1}}"#);
        assert_eq!(named("\"\n"), r#"{"name":"\"\n","arguments":{"a":1}}"#);
    }

    #[test]
    fn members_go_before_the_objects_own() {
        let object = Raw::from_text(r#"{"a":1}"#).unwrap();
        let members = [("b", Raw::of(&2)), ("c", Raw::of("x"))];
        assert_eq!(with_members(&object, &members).as_str(), r#"{"b":2,"c":"x","a":1}"#);
        assert_eq!(with_members(&Raw::from_text("{ }").unwrap(), &members).as_str(), r#"{"b":2,"c":"x" }"#);
    }

    #[test]
    fn pieces_are_the_same_text_and_the_result_stays_where_it_is() {
        let members = [("b", Raw::of(&2)), ("c", Raw::of("x"))];
        for text in [r#"{"a":1}"#, "{}", "{ }", "[1]", "null"] {
            let result = Raw::from_text(text).unwrap();
            for members in [&[][..], &members] {
                let pieces = result_pieces(&Id::from(7), &result, members);
                assert_eq!(pieces.concat(), result_with(&Id::from(7), &result, members).as_bytes(), "{text}");
                let skipped = usize::from(!members.is_empty());
                let shares = pieces[1].as_ptr() == result.as_bytes()[skipped..].as_ptr();
                assert!(shares || !result.is_object(), "{text}");
            }
        }
    }

    #[test]
    fn a_string_is_written_as_serde_would() {
        for text in [
            "",
            "plain",
            "a \"quoted\" \\ text",
            "tab\tnew\nline\u{1}",
            "한국어 🌙",
            &"x".repeat(1000),
            &format!("{}\n", "y".repeat(SHORT - 1)),
            &format!("{}\n", "y".repeat(SHORT)),
        ] {
            assert_eq!(string(text), Raw::of(text));
            assert_eq!(format!("\"{}\"", escape(text)), Raw::of(text).as_str());
        }
    }

    #[test]
    fn the_result_of_a_tool_is_written_as_its_parts() {
        let empty = serde_json::json!({});
        let result = ToolResult::text("a \"b\"\n").structured(&empty).block(&empty).finish(false);
        assert_eq!(
            result.as_str(),
            r#"{"content":[{"type":"text","text":"a \"b\"\n"},{}],"structuredContent":{},"isError":false}"#
        );
        assert_eq!(format!("{:?}", ToolResult::text("secret")), "ToolResult(44 bytes)");
        assert_eq!(
            ToolResult::text("").finish(true).as_str(),
            r#"{"content":[{"type":"text","text":""}],"isError":true}"#
        );
    }

    #[test]
    fn a_result_written_in_pieces_is_the_same() {
        let pieces = ToolResult::written(0, |text| {
            text.raw("a ").text("\"b\"").raw(r"\n");
        });
        let pieces = pieces.structured_written(|data| {
            data.raw(r#"{"a":"#).value(&Some("\"")).raw("}");
        });
        let whole = ToolResult::text("a \"b\"\n").structured(&serde_json::json!({"a": "\""}));
        assert_eq!(pieces.block(&[1]).finish(false), whole.block(&[1]).finish(false));
        let mut secret = Fragment::default();
        assert_eq!(format!("{:?}", secret.raw("secret")), "Fragment(6 bytes)");
    }

    #[test]
    fn a_result_gets_its_members_and_its_envelope_at_once() {
        let members = [("a", Raw::of(&1))];
        let own = Raw::from_text(r#"{"b":2}"#).unwrap();
        assert_eq!(
            result_with(&Id::from(7), &own, &members),
            result(&Id::from(7), &with_members(&own, &members))
        );
        assert_eq!(result(&Id::from("x"), &own).as_str(), r#"{"jsonrpc":"2.0","id":"x","result":{"b":2}}"#);
    }

    #[test]
    fn an_error_without_an_id_is_written_as_its_version_wants() {
        let parse = RpcError::new(-32700, "Parse error");
        assert!(!error(None, NoId::Omit, &parse).as_str().contains("id"));
        assert!(error(None, NoId::Null, &parse).as_str().contains(r#""id":null"#));
    }
}
