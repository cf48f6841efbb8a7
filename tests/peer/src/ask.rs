//! What tools ask of the client, in the words of each version, and what they make of the answers.

use serde_json::{Value, json};

use crate::{Version, answers};

/// One question.
#[derive(Clone, Debug)]
pub(crate) enum Ask {
    Form(String),
    Model(String),
    Roots,
    Ping,
}

/// What `tool` asks, in order; nothing when it asks nothing.
pub(crate) fn asked_by(tool: &str, arguments: &Value) -> Option<Vec<Ask>> {
    let text = |name: &str| arguments[name].as_str().unwrap_or_default().to_owned();
    Some(match tool {
        "ask_form" => vec![Ask::Form(text("message"))],
        "ask_model" => vec![Ask::Model(text("prompt"))],
        "ask_roots" => vec![Ask::Roots],
        "ask_twice" => vec![Ask::Form("first".to_owned()), Ask::Model("second".to_owned())],
        "ping_client" => vec![Ask::Ping],
        _ => return None,
    })
}

impl Ask {
    pub(crate) fn method(&self) -> &'static str {
        match self {
            Self::Form(_) => "elicitation/create",
            Self::Model(_) => "sampling/createMessage",
            Self::Roots => "roots/list",
            Self::Ping => "ping",
        }
    }

    /// The key under which a modern client answers, and the name of the question.
    pub(crate) fn key(&self) -> &'static str {
        match self {
            Self::Form(_) => "form",
            Self::Model(_) => "model",
            Self::Roots => "roots",
            Self::Ping => "ping",
        }
    }

    pub(crate) fn params(&self, version: Version) -> Value {
        match self {
            Self::Form(message) => {
                let schema = json!({"type": "object", "properties": {"answer": {"type": "string"}}});
                let mut params = json!({"message": message, "requestedSchema": schema});
                if version >= Version::November2025 {
                    params["mode"] = json!("form");
                }
                params
            }
            Self::Model(prompt) => {
                let content = json!({"type": "text", "text": prompt});
                json!({"messages": [{"role": "user", "content": content}], "maxTokens": 100})
            }
            Self::Roots | Self::Ping => json!({}),
        }
    }

    /// The capability the client needs, unless it has declared it.
    pub(crate) fn lacks(&self, capabilities: &Value) -> Option<Value> {
        let (name, whole) = match self {
            Self::Form(_) => ("elicitation", json!({"elicitation": {"form": {}}})),
            Self::Model(_) => ("sampling", json!({"sampling": {}})),
            Self::Roots => ("roots", json!({"roots": {}})),
            Self::Ping => return None,
        };
        let declared = &capabilities[name];
        // An empty object means forms, as it did before there was anything else.
        let only_urls = declared.get("url").is_some() && declared.get("form").is_none();
        (!declared.is_object() || only_urls).then_some(whole)
    }

    /// What is wrong with the answer.
    pub(crate) fn judge(&self, version: Version, answer: &Value) -> Vec<String> {
        let mut wrong = match self {
            Self::Form(_) => answers::elicitation(version, answer),
            Self::Model(_) => answers::sampling(version, answer),
            Self::Roots => answers::roots(answer),
            Self::Ping => Vec::new(),
        };
        if !version.is_modern() && answer.get("resultType").is_some() {
            wrong.push(format!("{} answered with resultType", self.method()));
        }
        wrong
    }
}
