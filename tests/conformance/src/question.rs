//! The questions that tools and prompts put to the client, and how their answers read.

use moongate_core::{Answer, Ask, CallError, Context, Kind, Raw};
use serde::Deserialize;
use serde_json::{Value, json};

/// What a person answered to a form.
#[derive(Debug, Deserialize)]
pub(crate) struct Filled {
    /// `accept`, `decline` or `cancel`.
    pub(crate) action: String,
    /// The fields, when accepted.
    pub(crate) content: Option<Value>,
}

impl Filled {
    /// The text in `field`, when there is one.
    pub(crate) fn text(&self, field: &str) -> Option<&str> {
        self.content.as_ref()?.get(field)?.as_str()
    }

    /// `action=…, content=…`
    pub(crate) fn described(&self) -> String {
        let content = self.content.as_ref().map_or_else(|| "{}".into(), Value::to_string);
        format!("action={}, content={content}", self.action)
    }
}

/// A form with these properties, of which `required` must be filled in.
pub(crate) fn form(message: &str, properties: &Value, required: &[&str]) -> Ask {
    let mut schema = json!({"type": "object", "properties": properties});
    if let (false, Some(schema)) = (required.is_empty(), schema.as_object_mut()) {
        schema.insert("required".into(), json!(required));
    }
    Ask::form(message, &Raw::of(&schema))
}

/// A form with one required text.
pub(crate) fn line(message: &str, field: &str) -> Ask {
    form(message, &json!({field: {"type": "string"}}), &[field])
}

/// A form with one required yes or no.
pub(crate) fn confirm(message: &str) -> Ask {
    form(message, &json!({"ok": {"type": "boolean"}}), &["ok"])
}

/// A prompt for the client's model.
pub(crate) fn sample(prompt: &str, max_tokens: u32) -> Ask {
    let message = json!({"role": "user", "content": {"type": "text", "text": prompt}});
    Ask::Sample { params: Raw::of(&json!({"messages": [message], "maxTokens": max_tokens})) }
}

/// Asks for a form and reads what came back.
pub(crate) async fn fill(cx: &Context, key: &str, form: Ask) -> Result<Filled, CallError> {
    filled(cx.peer.ask_one(key, form).await?)
}

/// Asks the client's model and reads what it said.
pub(crate) async fn generate(cx: &Context, key: &str, question: Ask) -> Result<String, CallError> {
    generated(cx.peer.ask_one(key, question).await?)
}

pub(crate) fn filled(answer: Answer) -> Result<Filled, CallError> {
    given(answer)?.parse().map_err(CallError::invalid_params)
}

/// The text of a sampling result, whose content is one block or a list of them.
pub(crate) fn generated(answer: Answer) -> Result<String, CallError> {
    let result: Value = given(answer)?.parse().map_err(CallError::invalid_params)?;
    let content = result.get("content").cloned().unwrap_or_default();
    let blocks = if let Value::Array(blocks) = content { blocks } else { vec![content] };
    Ok(blocks.iter().filter_map(|block| block.get("text")?.as_str()).collect::<Vec<_>>().join(" "))
}

/// The URIs of the directories the client has open.
pub(crate) fn rooted(answer: Answer) -> Result<Vec<String>, CallError> {
    #[derive(Deserialize)]
    struct Roots {
        roots: Vec<Root>,
    }
    #[derive(Deserialize)]
    struct Root {
        uri: String,
    }
    let Roots { roots } = given(answer)?.parse().map_err(CallError::invalid_params)?;
    Ok(roots.into_iter().map(|root| root.uri).collect())
}

/// A client that refuses gets its own error back.
fn given(answer: Answer) -> Result<Raw, CallError> {
    match answer {
        Answer::Result(result) => Ok(result),
        Answer::Refused(error) => {
            let public = format!("The client refused the question: {error}");
            Err(CallError::client(Kind::Rpc { error }, public))
        }
    }
}
