//! The headers of a request, and what they must say about its body.

use std::collections::BTreeMap;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use http::HeaderMap;
use serde_json::Value;

use crate::Version;

/// Headers by lower-case name; empty on a pipe.
#[derive(Clone, Debug, Default)]
pub struct Headers(BTreeMap<String, String>);

impl Headers {
    /// Those of an HTTP request. What is no text reads as empty.
    pub fn new(map: &HeaderMap) -> Self {
        let read = |value: &http::HeaderValue| value.to_str().unwrap_or_default().trim().to_owned();
        Self(map.iter().map(|(name, value)| (name.as_str().to_owned(), read(value))).collect())
    }

    /// One value.
    pub fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// All names.
    pub fn names(&self) -> Vec<&str> {
        self.0.keys().map(String::as_str).collect()
    }

    /// What is wrong with how a POST describes itself.
    pub fn judge_post(&self, version: Version) -> Vec<String> {
        let mut wrong = Vec::new();
        let content_type = self.get("content-type").unwrap_or_default();
        if content_type.split(';').next().unwrap_or_default().trim() != "application/json" {
            wrong.push(format!("POST with content type {content_type:?}"));
        }
        let accept = self.get("accept").unwrap_or_default();
        let both = ["application/json", "text/event-stream"].iter().all(|kind| accept.contains(kind));
        if version > Version::November2024 && !both {
            wrong.push(format!("POST accepts {accept:?} and not both JSON and event streams"));
        }
        wrong
    }

    /// What is wrong with the version header of a legacy session. `agreed` is whether the handshake is over.
    pub fn judge_agreed(&self, version: Version, agreed: bool) -> Option<String> {
        match self.get("mcp-protocol-version") {
            None if agreed && version.has_version_header() => {
                Some("MCP-Protocol-Version is missing".to_owned())
            }
            Some(said) if agreed && said != version.name() => {
                Some(format!("MCP-Protocol-Version is {said:?} where {} was agreed", version.name()))
            }
            _ => None,
        }
    }

    /// What is wrong with the headers of a modern request, given its body.
    pub fn judge_modern(&self, message: &Value) -> Vec<String> {
        let params = &message["params"];
        let mut wrong = Vec::new();
        let mut compare = |name: &str, said: Option<&str>, body: &Value| match said {
            None => wrong.push(format!("{name} is missing")),
            Some(said) if body != said => {
                wrong.push(format!("{name} is {said:?} where the body says {body}"));
            }
            Some(_) => {}
        };
        let claimed = &params["_meta"]["io.modelcontextprotocol/protocolVersion"];
        compare("MCP-Protocol-Version", self.get("mcp-protocol-version"), claimed);
        compare("Mcp-Method", self.get("mcp-method"), &message["method"]);
        let named = match message["method"].as_str() {
            Some("tools/call" | "prompts/get") => Some("name"),
            Some("resources/read") => Some("uri"),
            Some("tasks/get" | "tasks/update" | "tasks/cancel") => Some("taskId"),
            _ => None,
        };
        if let Some(member) = named {
            let said = self.get("mcp-name").map(decode);
            compare("Mcp-Name", said.as_deref(), &params[member]);
        }
        // The one tool whose schema asks for a header.
        if params["name"] == "route" {
            let (said, region) = (self.get("mcp-param-region").map(decode), &params["arguments"]["region"]);
            if said.is_some() || !region.is_null() {
                compare("Mcp-Param-Region", said.as_deref(), region);
            }
        }
        wrong
    }

    /// What a client of a version without sessions must not send.
    pub fn judge_stateless(&self) -> Vec<String> {
        let names = ["mcp-session-id", "last-event-id"];
        let sent = names.iter().filter(|name| self.get(name).is_some());
        sent.map(|name| format!("{name} to a server without sessions")).collect()
    }
}

/// What a header value stands for; one that is not encoded, or not well, stands for itself.
fn decode(value: &str) -> String {
    let encoded = value.strip_prefix("=?base64?").and_then(|rest| rest.strip_suffix("?="));
    let bytes = encoded.and_then(|text| STANDARD.decode(text).ok());
    bytes.and_then(|bytes| String::from_utf8(bytes).ok()).unwrap_or_else(|| value.to_owned())
}
