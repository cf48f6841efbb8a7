//! Questions of a backend as the client's version can be asked them.
//!
//! A question that cannot be put in the client's words is answered for its user: no.

use moongate_core::{Answer, Ask, abilities::is_url};
use moongate_wire::{
    Raw, Version,
    edit::{self, Edit},
    write,
};
use serde_json::json;

use super::content;
use crate::gateway::random_id;

/// The question as a client of `version` is asked it, or the answer it gets without being asked.
pub fn shape(question: Ask, version: Version) -> Result<Ask, Answer> {
    Ok(match question {
        Ask::Elicit { params } => Ask::Elicit { params: elicitation(&params, version)? },
        Ask::Sample { params } => Ask::Sample { params: sampling(&params, version) },
        Ask::Roots => Ask::Roots,
    })
}

/// Parameters without what only the two ends of one connection understand.
fn stripped(params: &Raw, names: &[&str]) -> Raw {
    edit::remove(params, |name, _| names.contains(&name))
}

fn elicitation(params: &Raw, version: Version) -> Result<Raw, Answer> {
    match version {
        Version::V2026_07_28 => {
            let params = stripped(params, &["elicitationId", "task", "_meta"]);
            Ok(if params.member("mode").is_some() {
                params
            } else {
                edit::append(&params, [("mode", "form")])
            })
        }
        Version::V2025_11_25 => {
            let params = stripped(params, &["task"]);
            if !is_url(&params) || params.member("elicitationId").is_some() {
                return Ok(params);
            }
            let id = random_id().to_string();
            Ok(edit::append(&params, [("elicitationId", id.as_str())]))
        }
        Version::V2025_06_18 | Version::V2025_03_26 | Version::V2024_11_05 => {
            let fits =
                !is_url(params) && !params.member("requestedSchema").is_some_and(|form| has_list(&form));
            if !fits {
                return Err(Answer::Result(Raw::of(&json!({"action": "cancel"}))));
            }
            let params = stripped(params, &["mode", "elicitationId", "task"]);
            Ok(within(&params, "requestedSchema", |form| {
                within(form, "properties", |fields| {
                    edit::members(fields, |_, field| replaced(field, choice(field)))
                })
            }))
        }
    }
}

/// Whether a form has a field of several values.
fn has_list(form: &Raw) -> bool {
    let fields = form.member("properties").map(|fields| fields.members()).unwrap_or_default();
    fields.iter().any(|(_, field)| field.member("type").is_some_and(|kind| kind.is_text("array")))
}

/// A choice whose options have titles, in the words of 2025-06-18; any other field as it is.
fn choice(field: &Raw) -> Raw {
    let Some(options) = field.member("oneOf").filter(Raw::is_array) else { return field.clone() };
    let options: Vec<(Raw, Raw)> = options
        .items()
        .iter()
        .filter_map(|option| {
            let value = option.member("const")?;
            let title = option.member("title").unwrap_or_else(|| value.clone());
            Some((value, title))
        })
        .collect();
    let values = write::array(options.iter().map(|(value, _)| value));
    let names = write::array(options.iter().map(|(_, title)| title));
    let others = edit::remove(field, |name, _| matches!(name, "oneOf" | "enum" | "enumNames"));
    write::with_members(&others, &[("enum", values), ("enumNames", names)])
}

fn sampling(params: &Raw, version: Version) -> Raw {
    match version {
        Version::V2026_07_28 => stripped(params, &["task", "_meta"]),
        Version::V2025_11_25 => stripped(params, &["task"]),
        Version::V2025_06_18 | Version::V2025_03_26 | Version::V2024_11_05 => {
            let params = stripped(params, &["tools", "toolChoice", "task"]);
            within(&params, "messages", |messages| {
                edit::items(messages, |message| one_block(message, version))
            })
        }
    }
}

/// A message as one or several of the same role with one block each; `None` when it is such a message.
fn one_block(message: &Raw, version: Version) -> Option<Vec<Raw>> {
    let content = message.member("content")?;
    let with = |block: Raw| within(message, "content", |_| block.clone());
    if content.is_array() {
        let blocks = content.items();
        return Some(blocks.into_iter().map(|block| with(known(&block, version).unwrap_or(block))).collect());
    }
    Some(vec![with(known(&content, version)?)])
}

/// What takes the place of a block that a client before 2025-11-25 does not know.
fn known(block: &Raw, version: Version) -> Option<Raw> {
    let kind = block.member("type")?;
    match &*kind.text()? {
        "tool_use" => {
            let member = |name: &str| block.member(name).unwrap_or_else(Raw::null);
            let name = member("name");
            let name = name.text().unwrap_or_default();
            Some(content::text(&format!("[called the tool {name} with {}]", member("input").as_str())))
        }
        "tool_result" => {
            let results = block.member("content").map(|content| content.items()).unwrap_or_default();
            let texts: Vec<String> = results
                .iter()
                .filter_map(|result| Some(result.member("text")?.text()?.into_owned()))
                .collect();
            Some(content::text(&format!("[result of the tool] {}", texts.join("\n"))))
        }
        _ => content::block(block, version),
    }
}

fn within(object: &Raw, wanted: &str, change: impl Fn(&Raw) -> Raw) -> Raw {
    edit::members(
        object,
        |name, value| if name == wanted { replaced(value, change(value)) } else { Edit::Keep },
    )
}

fn replaced(old: &Raw, new: Raw) -> Edit {
    if new == *old { Edit::Keep } else { Edit::Replace(new) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    fn asked(question: Ask, version: Version) -> Option<Value> {
        match shape(question, version) {
            Ok(question) => Some(question.params().parse().unwrap()),
            Err(Answer::Result(answer)) => {
                assert_eq!(answer.as_str(), r#"{"action":"cancel"}"#);
                None
            }
            Err(Answer::Refused(error)) => panic!("{error}"),
        }
    }

    fn elicited(params: &Value, version: Version) -> Option<Value> {
        asked(Ask::Elicit { params: Raw::of(params) }, version)
    }

    fn form(field: &Value) -> Value {
        json!({"message": "?", "requestedSchema": {"type": "object", "properties": {"f": field}}})
    }

    #[test]
    fn a_choice_with_titles_is_put_in_the_words_of_the_version() {
        let titled =
            json!({"type": "string", "title": "F", "oneOf": [{"const": "a", "title": "A"}, {"const": "b"}]});
        let mut question = form(&titled);
        question["mode"] = json!("form");
        let older = json!({"type": "string", "title": "F", "enum": ["a", "b"], "enumNames": ["A", "b"]});
        assert_eq!(elicited(&question, Version::V2025_06_18), Some(form(&older)));
        assert_eq!(elicited(&question, Version::V2025_11_25), Some(question.clone()));
        assert_eq!(elicited(&question, Version::V2026_07_28), Some(question));
    }

    #[test]
    fn what_an_older_client_cannot_show_is_answered_without_asking() {
        let several = form(&json!({"type": "array", "items": {"enum": ["a"]}}));
        let page = json!({"mode": "url", "url": "https://x", "message": "?"});
        for question in [&several, &page] {
            assert_eq!(elicited(question, Version::V2025_06_18), None);
            assert!(elicited(question, Version::V2025_11_25).is_some());
        }
    }

    #[test]
    fn a_page_has_an_id_in_the_version_that_wants_one_and_in_no_other() {
        let page = json!({"mode": "url", "url": "https://x", "message": "?"});
        let made = elicited(&page, Version::V2025_11_25).unwrap();
        assert!(made["elicitationId"].as_str().is_some_and(|id| id.len() == 36), "{made}");
        let mut named = page.clone();
        named["elicitationId"] = json!("e1");
        assert_eq!(elicited(&named, Version::V2025_11_25), Some(named.clone()));
        named["task"] = json!({"ttl": 1});
        named["_meta"] = json!({"a": 1});
        assert_eq!(elicited(&named, Version::V2026_07_28), Some(page));
    }

    #[test]
    fn a_modern_question_says_its_mode() {
        let plain = form(&json!({"type": "string"}));
        assert_eq!(elicited(&plain, Version::V2026_07_28).unwrap()["mode"], "form");
        assert_eq!(elicited(&plain, Version::V2025_11_25), Some(plain.clone()));
        assert_eq!(elicited(&plain, Version::V2025_06_18), Some(plain));
    }

    #[test]
    fn a_model_of_an_older_client_gets_one_block_a_message_and_no_tools() {
        let words = |text: &str| json!({"type": "text", "text": text});
        let audio = json!({"type": "audio", "data": "", "mimeType": "audio/wav"});
        let question = json!({"maxTokens": 1, "tools": [], "toolChoice": {"mode": "auto"}, "messages": [
            {"role": "user", "content": [words("a"), audio]},
            {"role": "assistant", "content": [{"type": "tool_use", "id": "1", "name": "t", "input": {"x": 1}}]},
            {"role": "user", "content": [{"type": "tool_result", "toolUseId": "1", "content": [words("r")]}]},
            {"role": "user", "content": words("b")},
        ]});
        let sampled = |version| asked(Ask::Sample { params: Raw::of(&question) }, version).unwrap();
        let user = |content: &Value| json!({"role": "user", "content": content});
        let expected = json!({"maxTokens": 1, "messages": [
            user(&words("a")), user(&audio),
            {"role": "assistant", "content": words(r#"[called the tool t with {"x":1}]"#)},
            user(&words("[result of the tool] r")), user(&words("b")),
        ]});
        assert_eq!(sampled(Version::V2025_06_18), expected);
        assert_eq!(sampled(Version::V2024_11_05)["messages"][1]["content"]["type"], "text", "no audio yet");
        assert_eq!(sampled(Version::V2025_11_25), question);
    }
}
