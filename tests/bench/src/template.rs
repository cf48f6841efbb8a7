//! Requests as bytes, ready to be sent but for their ids.
//!
//! The load generator must cost next to nothing, so a request is written once; a call copies it and fills in its number.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use serde_json::{Value, json};

/// Ids have nine digits, so that every request of a template has the same length.
pub const FIRST_ID: u32 = 100_000_000;
const DIGITS: usize = 9;

/// The legacy version that is measured.
pub const LEGACY: &str = "2025-11-25";
/// The modern one.
pub const MODERN: &str = "2026-07-28";

/// Which protocol a request speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Era {
    /// With a handshake and sessions.
    Legacy,
    /// Every request on its own.
    Modern,
}

impl Era {
    /// Both, the older first.
    pub const ALL: [Self; 2] = [Self::Legacy, Self::Modern];

    /// The name on a command line.
    pub fn word(self) -> &'static str {
        match self {
            Self::Legacy => "legacy",
            Self::Modern => "modern",
        }
    }

    /// The name in the results.
    pub fn name(self) -> &'static str {
        match self {
            Self::Legacy => LEGACY,
            Self::Modern => MODERN,
        }
    }
}

/// One HTTP/1.1 request with a place for its id.
#[derive(Clone, Debug)]
pub struct Template {
    bytes: Box<[u8]>,
    id_at: Option<usize>,
}

impl Template {
    /// Writes the request with this id into `out`, replacing what was there.
    pub fn write(&self, id: u32, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.bytes);
        let place = self.id_at.and_then(|at| out.get_mut(at..at + DIGITS));
        if let Some(place) = place {
            digits(id, place);
        }
    }

    /// The request as it is, with its first id.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }
}

/// Writes `id` in decimal, filling `place`.
pub fn digits(mut id: u32, place: &mut [u8]) {
    for digit in place.iter_mut().rev() {
        *digit = b'0' + (id % 10) as u8;
        id /= 10;
    }
}

/// Whether a JSON-RPC message carries this id. Looks only where every server of this project writes it.
pub fn has_id(body: &[u8], id: u32) -> bool {
    const MARK: &[u8] = br#""id":"#;
    let mut expected = [0; DIGITS];
    digits(id, &mut expected);
    let start = body.get(..64).unwrap_or(body);
    let found = start.windows(MARK.len()).position(|window| window == MARK);
    found.and_then(|at| body.get(at + MARK.len()..)).is_some_and(|rest| rest.starts_with(&expected))
}

/// Whom requests go to, and as whom.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The MCP listener.
    pub address: SocketAddr,
    /// The local token.
    pub token: String,
}

/// One tool call, before it is a request.
#[derive(Clone, Debug)]
pub struct ToolCall<'a> {
    /// The tool.
    pub name: &'a str,
    /// What it is given.
    pub arguments: Value,
    /// Headers beyond those of the era.
    pub headers: &'a [(&'a str, &'a str)],
}

impl Caller {
    /// Any request with a body.
    pub fn post(&self, headers: &[(&str, &str)], body: &Value) -> Template {
        let body = body.to_string();
        let mut head = self.head("POST", "application/json, text/event-stream", headers);
        head.push_str("content-type: application/json\r\n");
        let head = format!("{head}content-length: {}\r\n\r\n", body.len());
        let id_at = body.find(&format!("\"id\":{FIRST_ID}")).map(|at| head.len() + at + "\"id\":".len());
        Template { bytes: format!("{head}{body}").into_bytes().into(), id_at }
    }

    /// The request for a legacy session's stream.
    pub fn get_stream(&self, session: &str) -> Template {
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", LEGACY)];
        let head = self.head("GET", "text/event-stream", &headers);
        Template { bytes: format!("{head}\r\n").into_bytes().into(), id_at: None }
    }

    /// `initialize`
    pub fn initialize(&self) -> Template {
        let params = json!({
            "protocolVersion": LEGACY,
            "capabilities": {"roots": {"listChanged": true}, "sampling": {}, "elicitation": {}},
            "clientInfo": client(),
        });
        self.post(&[], &request("initialize", &params))
    }

    /// `notifications/initialized`
    pub fn initialized(&self, session: &str) -> Template {
        let body = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
        self.post(&[("mcp-session-id", session), ("mcp-protocol-version", LEGACY)], &body)
    }

    /// `tools/call` in a legacy session.
    pub fn legacy_call(&self, session: &str, call: &ToolCall<'_>) -> Template {
        let mut headers = vec![("mcp-session-id", session), ("mcp-protocol-version", LEGACY)];
        headers.extend_from_slice(call.headers);
        let params = json!({"name": call.name, "arguments": call.arguments});
        self.post(&headers, &request("tools/call", &params))
    }

    /// `tools/call` of the modern version.
    pub fn modern_call(&self, call: &ToolCall<'_>) -> Template {
        let mut headers = modern("tools/call");
        headers.push(("mcp-name", call.name));
        headers.extend_from_slice(call.headers);
        let params = json!({"name": call.name, "arguments": call.arguments, "_meta": envelope()});
        self.post(&headers, &request("tools/call", &params))
    }

    /// `tools/list` in a legacy session; `cursor` is where it goes on.
    pub fn legacy_list(&self, session: &str, cursor: Option<&str>) -> Template {
        let headers = [("mcp-session-id", session), ("mcp-protocol-version", LEGACY)];
        let params = cursor.map_or_else(|| json!({}), |cursor| json!({"cursor": cursor}));
        self.post(&headers, &request("tools/list", &params))
    }

    /// `tools/list` of the modern version.
    pub fn modern_list(&self, cursor: Option<&str>) -> Template {
        let params = match cursor {
            Some(cursor) => json!({"cursor": cursor, "_meta": envelope()}),
            None => json!({"_meta": envelope()}),
        };
        self.post(&modern("tools/list"), &request("tools/list", &params))
    }

    /// `subscriptions/listen` for every list.
    pub fn listen(&self) -> Template {
        let wanted =
            json!({"toolsListChanged": true, "promptsListChanged": true, "resourcesListChanged": true});
        let params = json!({"notifications": wanted, "_meta": envelope()});
        self.post(&modern("subscriptions/listen"), &request("subscriptions/listen", &params))
    }

    fn head(&self, method: &str, accept: &str, headers: &[(&str, &str)]) -> String {
        let (address, token) = (self.address, &self.token);
        let mut head = format!(
            "{method} /mcp HTTP/1.1\r\nhost: {address}\r\nauthorization: Bearer {token}\r\naccept: {accept}\r\n"
        );
        for (name, value) in headers {
            head.push_str(name);
            head.push_str(": ");
            head.push_str(value);
            head.push_str("\r\n");
        }
        head
    }
}

fn request(method: &str, params: &Value) -> Value {
    json!({"jsonrpc": "2.0", "id": FIRST_ID, "method": method, "params": params})
}

fn client() -> Value {
    json!({"name": "moongate-bench", "version": "1.0.0"})
}

fn modern(method: &str) -> Vec<(&str, &str)> {
    vec![("mcp-protocol-version", MODERN), ("mcp-method", method)]
}

fn envelope() -> Value {
    json!({
        "io.modelcontextprotocol/protocolVersion": MODERN,
        "io.modelcontextprotocol/clientCapabilities": {},
        "io.modelcontextprotocol/clientInfo": client(),
    })
}

/// The status of an answer's head.
pub fn status(head: &[u8]) -> Result<u16> {
    let digits =
        head.strip_prefix(b"HTTP/1.1 ").and_then(|rest| rest.get(..3)).context("no HTTP/1.1 answer")?;
    std::str::from_utf8(digits)?.parse().context("no status")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caller() -> Caller {
        Caller { address: "127.0.0.1:1".parse().unwrap(), token: "t".to_owned() }
    }

    #[test]
    fn only_the_id_of_a_template_changes() {
        let call = ToolCall { name: "add_memo", arguments: json!({"memo": "x"}), headers: &[("x-a", "b")] };
        for template in [caller().legacy_call("s", &call), caller().modern_call(&call)] {
            let mut sent = Vec::new();
            template.write(123_456_789, &mut sent);
            let text = String::from_utf8(sent.clone()).unwrap();
            assert!(text.contains("x-a: b\r\n"), "{text}");
            let (head, body) = text.split_once("\r\n\r\n").unwrap();
            assert!(head.contains(&format!("content-length: {}", body.len())), "{head}");
            let body: Value = serde_json::from_str(body).unwrap();
            assert_eq!(body["id"], 123_456_789);
            assert!(has_id(text.split_once("\r\n\r\n").unwrap().1.as_bytes(), 123_456_789));
            template.write(FIRST_ID, &mut sent);
            assert_eq!(sent, template.bytes());
        }
    }

    #[test]
    fn another_id_is_noticed() {
        let body = br#"{"jsonrpc":"2.0","id":123456789,"result":{}}"#;
        assert!(has_id(body, 123_456_789));
        assert!(!has_id(body, 123_456_780));
        assert!(!has_id(br#"{"jsonrpc":"2.0","error":{}}"#, 123_456_789));
    }

    #[test]
    fn a_status_is_read() {
        assert_eq!(status(b"HTTP/1.1 429 Too Many\r\n").unwrap(), 429);
        assert!(status(b"nonsense").is_err());
    }
}
