//! The bytes of messages we send, by joining checked parts: no tree is built for an answer.

use serde::Serialize;

use crate::{Id, Raw, RpcError, scan::plain_length};

/// `{"jsonrpc":"2.0","id":…,"result":…}`
pub fn result(id: &Id, result: &Raw) -> Raw {
    let mut out = Vec::with_capacity(result.len() + 64);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    push(&mut out, id);
    out.extend_from_slice(br#","result":"#);
    out.extend_from_slice(result.as_bytes());
    out.push(b'}');
    Raw::trusted(out)
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
    let mut out = Vec::with_capacity(params.len() + 96);
    out.extend_from_slice(br#"{"jsonrpc":"2.0","id":"#);
    push(&mut out, id);
    out.extend_from_slice(br#","method":"#);
    push_string(&mut out, method);
    out.extend_from_slice(br#","params":"#);
    out.extend_from_slice(params.as_bytes());
    out.push(b'}');
    Raw::trusted(out)
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
    let inner = object.as_bytes().get(1..).filter(|_| object.is_object()).unwrap_or(b"}");
    if members.is_empty() {
        return object.clone();
    }
    let added: usize = members.iter().map(|(key, value)| key.len() + value.len() + 4).sum();
    let mut out = Vec::with_capacity(inner.len() + added + 1);
    out.push(b'{');
    for (index, (key, value)) in members.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        push_string(&mut out, key);
        out.push(b':');
        out.extend_from_slice(value.as_bytes());
    }
    if inner.iter().find(|byte| !byte.is_ascii_whitespace()) != Some(&b'}') {
        out.push(b',');
    }
    out.extend_from_slice(inner);
    Raw::trusted(out)
}

/// `{"type":"text","text":…}`
pub fn text_block(text: &str) -> Raw {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 32);
    out.extend_from_slice(br#"{"type":"text","text":"#);
    push_string(&mut out, text);
    out.push(b'}');
    Raw::trusted(out)
}

/// `{"content":[…],"structuredContent":…,"isError":…}`, the result of a tool.
pub fn tool_result(content: &[Raw], structured: Option<&Raw>, is_error: bool) -> Raw {
    let room: usize = content.iter().chain(structured).map(|part| part.len() + 1).sum();
    let mut out = Vec::with_capacity(room + 64);
    out.extend_from_slice(br#"{"content":["#);
    for (index, block) in content.iter().enumerate() {
        if index > 0 {
            out.push(b',');
        }
        out.extend_from_slice(block.as_bytes());
    }
    out.push(b']');
    if let Some(structured) = structured {
        out.extend_from_slice(br#","structuredContent":"#);
        out.extend_from_slice(structured.as_bytes());
    }
    out.extend_from_slice(if is_error { br#","isError":true}"# } else { br#","isError":false}"# });
    Raw::trusted(out)
}

/// A JSON string.
pub fn string(text: &str) -> Raw {
    let mut out = Vec::with_capacity(text.len() + text.len() / 8 + 2);
    push_string(&mut out, text);
    Raw::trusted(out)
}

/// Appends a JSON string, byte for byte as serde would write it. Stretches without anything to escape are copied whole.
pub(crate) fn push_string(out: &mut Vec<u8>, text: &str) {
    out.push(b'"');
    let mut rest = text.as_bytes();
    loop {
        let (plain, from_special) = rest.split_at(plain_length(rest));
        out.extend_from_slice(plain);
        let Some((special, after)) = from_special.split_first() else { break };
        push_escaped(out, *special);
        rest = after;
    }
    out.push(b'"');
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
    fn members_go_before_the_objects_own() {
        let object = Raw::from_text(r#"{"a":1}"#).unwrap();
        let members = [("b", Raw::of(&2)), ("c", Raw::of("x"))];
        assert_eq!(with_members(&object, &members).as_str(), r#"{"b":2,"c":"x","a":1}"#);
        assert_eq!(with_members(&Raw::from_text("{ }").unwrap(), &members).as_str(), r#"{"b":2,"c":"x" }"#);
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
            &format!("{}\n", "y".repeat(63)),
        ] {
            assert_eq!(string(text), Raw::of(text));
        }
    }

    #[test]
    fn the_result_of_a_tool_is_written_as_its_parts() {
        let blocks = [text_block("a \"b\"\n"), text_block("")];
        assert_eq!(blocks[0].as_str(), r#"{"type":"text","text":"a \"b\"\n"}"#);
        assert_eq!(
            tool_result(&blocks, Some(&Raw::empty_object()), false).as_str(),
            r#"{"content":[{"type":"text","text":"a \"b\"\n"},{"type":"text","text":""}],"structuredContent":{},"isError":false}"#
        );
        assert_eq!(tool_result(&[], None, true).as_str(), r#"{"content":[],"isError":true}"#);
    }

    #[test]
    fn an_error_without_an_id_is_written_as_its_version_wants() {
        let parse = RpcError::new(-32700, "Parse error");
        assert!(!error(None, NoId::Omit, &parse).as_str().contains("id"));
        assert!(error(None, NoId::Null, &parse).as_str().contains(r#""id":null"#));
    }
}
