//! Results of tools and prompts as an older version can read them.

use std::borrow::Cow;

use moongate_wire::{
    Method, Raw, Version,
    edit::{self, Edit},
    raw::Needle,
    write,
};
use serde_json::json;

use super::objects_only;

static LINK: Needle = Needle::new("resource_link");
static AUDIO: Needle = Needle::new("audio");
static STRUCTURED: Needle = Needle::new("structuredContent");

/// The result of `method` with the blocks that a client of `version` does not know as text.
pub fn blocks(result: Raw, method: Method, version: Version) -> Raw {
    if !matches!(method, Method::CallTool | Method::GetPrompt) || !has_foreign(&result, version) {
        return result;
    }
    match method {
        Method::CallTool => edit::members(&result, |name, value| match name {
            "content" => Edit::Replace(edit::items(value, |old| block(old, version).map(|new| vec![new]))),
            _ => Edit::Keep,
        }),
        Method::GetPrompt => edit::members(&result, |name, value| match name {
            "messages" => Edit::Replace(edit::items(value, |message| Some(vec![said(message, version)]))),
            _ => Edit::Keep,
        }),
        _ => result,
    }
}

/// Whether there may be a block that `version` does not know.
fn has_foreign(result: &Raw, version: Version) -> bool {
    (version < Version::V2025_06_18 && LINK.may_be_in(result))
        || (version < Version::V2025_03_26 && AUDIO.may_be_in(result))
}

/// The result of a tool with structured output that a client of `version` can read; `wrapped` says whether the tool's
/// output is listed wrapped.
pub fn structured(result: Raw, version: Version, wrapped: bool) -> Raw {
    const NAME: &str = "structuredContent";
    if !objects_only(version) || !STRUCTURED.may_be_in(&result) {
        return result;
    }
    if version < Version::V2025_06_18 {
        return edit::remove(&result, |name, _| name == NAME);
    }
    edit::members(&result, |name, value| match name {
        NAME if wrapped => Edit::Replace(write::object([("result", value)])),
        // Nothing was listed that it could fit, so its text has to do.
        NAME if !value.is_object() => Edit::Drop,
        _ => Edit::Keep,
    })
}

/// A message of a prompt; its content is one block.
fn said(message: &Raw, version: Version) -> Raw {
    edit::members(message, |name, value| match (name, block(value, version)) {
        ("content", Some(other)) => Edit::Replace(other),
        _ => Edit::Keep,
    })
}

/// What takes the place of a block that `version` does not know.
pub(super) fn block(block: &Raw, version: Version) -> Option<Raw> {
    let kind = block.member("type")?;
    let word = |name: &str| block.member(name).and_then(|value| value.text().map(Cow::into_owned));
    match &*kind.text()? {
        "resource_link" if version < Version::V2025_06_18 => {
            let uri = word("uri").unwrap_or_default();
            let name = word("title").or_else(|| word("name")).filter(|name| *name != uri);
            Some(text(&name.map_or_else(|| uri.clone(), |name| format!("{name}: {uri}"))))
        }
        "audio" if version < Version::V2025_03_26 => {
            let kind = word("mimeType").unwrap_or_else(|| "unknown type".to_owned());
            Some(text(&format!("[audio of {kind}, which this client cannot play]")))
        }
        _ => None,
    }
}

/// A block of text.
pub(super) fn text(text: &str) -> Raw {
    Raw::of(&json!({"type": "text", "text": text}))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn shaped(value: &Value, method: Method, version: Version, wrapped: bool) -> Value {
        let value = structured(Raw::of(value), version, wrapped);
        blocks(value, method, version).parse().unwrap()
    }

    #[test]
    fn blocks_a_version_does_not_know_become_text() {
        let link = json!({"type": "resource_link", "uri": "x://1", "name": "one"});
        let audio = json!({"type": "audio", "data": "AAAA", "mimeType": "audio/wav"});
        let words = json!({"type": "text", "text": "resource_link and audio"});
        let linked = json!({"type": "text", "text": "one: x://1"});
        let noted = json!({"type": "text", "text": "[audio of audio/wav, which this client cannot play]"});
        for (version, first, second) in [
            (Version::V2024_11_05, &linked, &noted),
            (Version::V2025_03_26, &linked, &audio),
            (Version::V2025_06_18, &link, &audio),
            (Version::V2026_07_28, &link, &audio),
        ] {
            let called = json!({"content": [link, words, audio], "isError": false});
            let expected = json!({"content": [first, words, second], "isError": false});
            assert_eq!(shaped(&called, Method::CallTool, version, false), expected, "{version}");
            let got =
                json!({"messages": [{"role": "user", "content": link}, {"role": "user", "content": audio}]});
            let expected = json!({"messages": [{"role": "user", "content": first}, {"role": "user", "content": second}]});
            assert_eq!(shaped(&got, Method::GetPrompt, version, false), expected, "{version}");
        }
    }

    #[test]
    fn structured_content_is_what_the_listed_schema_says() {
        let (object, array) = (json!({"a": 1}), json!([1]));
        let (modern, old) = (Version::V2026_07_28, Version::V2025_11_25);
        for (content, version, wrapped, expected) in [
            (&object, Version::V2025_03_26, false, None),
            (&array, Version::V2024_11_05, true, None),
            (&object, old, false, Some(object.clone())),
            (&object, old, true, Some(json!({"result": {"a": 1}}))),
            (&array, old, true, Some(json!({"result": [1]}))),
            (&array, old, false, None),
            (&json!(null), Version::V2025_06_18, true, Some(json!({"result": null}))),
            (&array, modern, true, Some(array.clone())),
        ] {
            let called = json!({"content": [], "structuredContent": content});
            let given = shaped(&called, Method::CallTool, version, wrapped);
            assert_eq!(given.get("structuredContent").cloned(), expected, "{content} {version} {wrapped}");
        }
    }

    #[test]
    fn what_needs_no_change_is_not_copied() {
        let plain =
            Raw::from_text(r#"{"content":[ {"type":"text","text":"x"}], "structuredContent":{"a":1}}"#)
                .unwrap();
        for version in [Version::V2025_06_18, Version::V2025_11_25, Version::V2026_07_28] {
            let given = blocks(structured(plain.clone(), version, false), Method::CallTool, version);
            assert_eq!(given.as_bytes().as_ptr(), plain.as_bytes().as_ptr(), "{version}");
        }
        let read = Raw::of(&json!({"contents": [{"uri": "x", "text": "audio resource_link"}]}));
        assert_eq!(blocks(read.clone(), Method::ReadResource, Version::V2024_11_05), read);
    }
}
