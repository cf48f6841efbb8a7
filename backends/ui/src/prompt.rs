//! Questions to a person: asked as a form, answered by the tool the form names.
//!
//! When too many are open, the oldest is given up, as if it had expired: a person who left them open will not answer.

use std::{any::Any, fmt::Write, sync::Arc};

use moongate_core::{
    Clock, Raw, Scope,
    builtin::{Effect, ToolError, ToolOutput, ToolSpec},
    html::{self, Escaped},
    schema,
};
use moongate_storage::{Document, Documents};
use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::error::{Error, required};

/// More than a person will have open at once.
pub(crate) const MAX_OPEN: usize = 100;
/// All open prompts together, well under what one document may take.
const MAX_BYTES: usize = 512 * 1024;
/// Characters of a question.
const MAX_PROMPT: usize = 16_384;
const MAX_OPTIONS: usize = 100;
/// Characters of an option.
const MAX_OPTION: usize = 1024;
/// Characters of an answer.
const MAX_ANSWER: usize = 65_536;
/// About what a prompt takes beyond its texts.
const OVERHEAD: usize = 96;

/// The open prompts of one caller, oldest first.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Prompts {
    open: Vec<Arc<Prompt>>,
}

/// A question that waits for its answer.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Prompt {
    message_id: String,
    #[serde(rename = "type")]
    kind: Shape,
    #[serde(rename = "prompt")]
    question: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    options: Option<Vec<String>>,
}

/// What an answer looks like.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Shape {
    Text,
    Select,
    Multiselect,
}

#[derive(Deserialize)]
pub(crate) struct Question {
    prompt: String,
    #[serde(rename = "type")]
    kind: Shape,
    options: Option<Vec<String>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Reply {
    message_id: String,
    answer: Option<Answer>,
    #[serde(default)]
    cancelled: bool,
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(untagged)]
enum Answer {
    One(String),
    Many(Vec<String>),
}

impl Document for Prompts {
    fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("prompts have string keys only")
    }

    fn size(&self) -> usize {
        self.open.iter().map(|prompt| prompt.size()).sum()
    }

    fn into_any(self: Arc<Self>) -> Arc<dyn Any + Send + Sync> {
        self
    }
}

pub(crate) fn tools() -> Vec<ToolSpec> {
    let option = json!({"type": "string", "minLength": 1, "maxLength": MAX_OPTION});
    vec![
        ToolSpec {
            name: "prompt_user",
            title: "Ask the user",
            description: "Shows the user a question: free text, one choice or several choices. Returns at once; the \
                          answer arrives as a call of reply_prompt with the same messageId.",
            input_schema: schema::object(
                json!({
                    "prompt": {"type": "string", "minLength": 1, "maxLength": MAX_PROMPT, "description": "The question"},
                    "type": schema::choice(&["text", "select", "multiselect"], "What kind of answer is wanted"),
                    "options": {"type": "array", "items": option, "maxItems": MAX_OPTIONS, "uniqueItems": true,
                        "description": "What to choose from; required for select and multiselect"},
                }),
                &["prompt", "type"],
            ),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
        ToolSpec {
            name: "reply_prompt",
            title: "Reply to a prompt",
            description: "Delivers the user's answer to a question that prompt_user asked, or says that the user \
                          cancelled it. A question can be answered once.",
            input_schema: schema::object(
                json!({
                    "messageId": {"type": "string", "minLength": 1, "maxLength": 128,
                        "description": "The messageId that prompt_user returned"},
                    "answer": {"type": ["string", "array", "null"], "maxLength": MAX_ANSWER, "maxItems": MAX_OPTIONS,
                        "items": {"type": "string", "maxLength": MAX_OPTION},
                        "description": "A text, or the list of chosen options for multiselect"},
                    "cancelled": schema::flag("Whether the user declined to answer"),
                }),
                &["messageId"],
            ),
            aliases: &[],
            scope: Scope::WRITE,
            effect: Effect::Adds,
        },
    ]
}

pub(crate) async fn ask(
    prompts: &Documents<'_, Prompts>,
    question: Question,
    message_id: String,
) -> Result<ToolOutput, ToolError> {
    #[derive(Serialize)]
    struct Asked<'a> {
        #[serde(flatten)]
        prompt: &'a Prompt,
        status: &'static str,
    }
    let prompt = Arc::new(Prompt::new(question, message_id)?);
    prompts.update(|open| open.add(Arc::clone(&prompt))).await.map_err(ToolError::from)?;
    let output = ToolOutput::new(prompt.text(), Asked { prompt: &prompt, status: "awaiting_response" });
    let uri = format!("ui://prompts/{}", prompt.message_id);
    Ok(output.with_block(html::resource(&uri, &prompt.page())))
}

pub(crate) async fn reply(
    prompts: &Documents<'_, Prompts>,
    reply: Reply,
    clock: &Clock,
) -> Result<ToolOutput, ToolError> {
    #[derive(Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Answered<'a> {
        message_id: &'a str,
        prompt: &'a str,
        answer: Option<&'a Answer>,
        #[serde(skip_serializing_if = "std::ops::Not::not")]
        cancelled: bool,
        timestamp: String,
    }
    let prompt = prompts.update(|open| open.take(&reply)).await.map_err(ToolError::from)?;
    let answer = reply.answer.as_ref().filter(|_| !reply.cancelled);
    let text = match answer {
        _ if reply.cancelled => "The user cancelled".to_owned(),
        None => "The user answered nothing".to_owned(),
        Some(Answer::One(answer)) => format!("The user answered: {answer}"),
        Some(Answer::Many(answers)) if answers.is_empty() => "The user chose none of the options".to_owned(),
        Some(Answer::Many(answers)) => format!("The user answered: {}", answers.join(", ")),
    };
    let told = Answered {
        message_id: &prompt.message_id,
        prompt: &prompt.question,
        answer,
        cancelled: reply.cancelled,
        timestamp: humantime::format_rfc3339_millis(clock.now()).to_string(),
    };
    Ok(ToolOutput::new(format!("{}\n{text}", prompt.question), told))
}

impl Prompts {
    #[expect(clippy::unnecessary_wraps, reason = "the shape of an update")]
    fn add(&mut self, prompt: Arc<Prompt>) -> Result<(), Error> {
        self.open.push(prompt);
        while self.open.len() > MAX_OPEN || (self.open.len() > 1 && self.size() > MAX_BYTES) {
            self.open.remove(0);
        }
        Ok(())
    }

    /// Removes the prompt that `reply` answers; an answer of the wrong shape leaves it open.
    fn take(&mut self, reply: &Reply) -> Result<Arc<Prompt>, Error> {
        let at = self.open.iter().position(|prompt| prompt.message_id == reply.message_id);
        let at = at.ok_or_else(|| Error::NoPrompt(reply.message_id.clone()))?;
        if let (Some(prompt), Some(answer), false) = (self.open.get(at), &reply.answer, reply.cancelled) {
            prompt.check(answer)?;
        }
        Ok(self.open.remove(at))
    }
}

impl Prompt {
    fn new(question: Question, message_id: String) -> Result<Self, Error> {
        required("prompt", &question.prompt)?;
        let options = question.options.filter(|options| !options.is_empty() && question.kind != Shape::Text);
        if question.kind != Shape::Text && options.is_none() {
            return Err(Error::NoOptions);
        }
        Ok(Self { message_id, kind: question.kind, question: question.prompt, options })
    }

    fn check(&self, answer: &Answer) -> Result<(), Error> {
        let offered = |wanted: &String| self.options.iter().flatten().any(|option| option == wanted);
        match (self.kind, answer) {
            (Shape::Text, Answer::One(_)) => Ok(()),
            (Shape::Text, Answer::Many(_)) => Err(Error::WrongAnswer("a text")),
            (Shape::Select | Shape::Multiselect, Answer::One(one)) if offered(one) => Ok(()),
            (Shape::Multiselect, Answer::Many(many)) if many.iter().all(offered) => Ok(()),
            (Shape::Select, _) => Err(Error::WrongAnswer("one of the options")),
            (Shape::Multiselect, _) => Err(Error::WrongAnswer("a list of options")),
        }
    }

    fn size(&self) -> usize {
        let options: usize = self.options.iter().flatten().map(|option| option.len() + 32).sum();
        self.message_id.len() + self.question.len() + options + OVERHEAD
    }

    fn text(&self) -> String {
        let mut text = format!("Waiting for the user's answer to: {}", self.question);
        for option in self.options.iter().flatten() {
            text.push_str("\n- ");
            text.push_str(option);
        }
        text.push_str("\nThe answer arrives through reply_prompt with messageId ");
        text.push_str(&self.message_id);
        text
    }

    fn page(&self) -> String {
        let send = html::action("reply_prompt", &json!({"messageId": self.message_id}));
        let cancel = html::action("reply_prompt", &json!({"messageId": self.message_id, "cancelled": true}));
        let kind = match self.kind {
            Shape::Text => "text",
            Shape::Select => "select",
            Shape::Multiselect => "multiselect",
        };
        let body = format!(
            r#"<section role="dialog" aria-labelledby="question"><h1 id="question">{}</h1>
{}<div class="row"><button class="primary" type="button" data-answer="{kind}" {send}>Send</button>
<button type="button" data-cancel {cancel}>Cancel</button></div></section>"#,
            Escaped(&self.question),
            self.fields()
        );
        html::page("A question", &body)
    }

    fn fields(&self) -> String {
        let input = match self.kind {
            Shape::Text => {
                return r#"<input type="text" name="answer" aria-labelledby="question" autocomplete="off">"#
                    .to_owned();
            }
            Shape::Select => "radio",
            Shape::Multiselect => "checkbox",
        };
        let mut out = String::from(r#"<fieldset aria-labelledby="question">"#);
        for option in self.options.iter().flatten() {
            // As JSON, because HTML changes line ends and cannot write every character, and an answer must be an option.
            let value = Raw::of(option);
            let written = write!(
                out,
                r#"<label><input type="{input}" name="answer" value="{}"><span>{}</span></label>"#,
                Escaped(value.as_str()),
                Escaped(option)
            );
            written.expect("writing to a string cannot fail");
        }
        out.push_str("</fieldset>");
        out
    }
}
