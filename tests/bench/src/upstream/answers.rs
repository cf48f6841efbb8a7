//! What the upstream answers, written once but for the ids. Pure.
//!
//! A message is not parsed: its method and its id are looked for before its parameters, where the gateway and the load
//! generator write them.

use serde_json::{Value, json};

use crate::template::{Era, LEGACY, MODERN};

/// The tool that is called.
pub const ECHO: &str = "echo";

/// As long as what a usual tool says.
const TEXT: &str = "3 open issues match: #1712 rounding of totals per line (bug, billing), #1698 export of the ledger \
                    as CSV (feature), #1655 time zone of due dates (bug)";
/// How long lists are good, in milliseconds: longer than any run.
const DAY: u32 = 86_400_000;
const BEGIN: &[u8] = br#"{"jsonrpc":"2.0","id":"#;
const UNKNOWN: &[u8] = br#","error":{"code":-32601,"message":"Method not found"}}"#;

/// The answers of a server of one era.
#[derive(Clone, Debug)]
pub struct Answers {
    era: Era,
    greeting: Box<[u8]>,
    list: Box<[u8]>,
    call: Box<[u8]>,
}

/// What is said to one message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Said {
    /// The answer to a handshake.
    Greeting(Vec<u8>),
    /// The answer to anything else.
    Result(Vec<u8>),
    /// There is no such method.
    Unknown(Vec<u8>),
    /// Nothing: it was a notification.
    Nothing,
}

impl Answers {
    /// Those of a server with so many tools, of which [`ECHO`] is the first.
    pub fn new(era: Era, tools: usize) -> Self {
        let info = json!({"name": "moongate-bench-upstream", "version": "1.0.0"});
        let content = json!([{"type": "text", "text": TEXT}]);
        let tools: Vec<Value> = (0..tools).map(tool).collect();
        let results = match era {
            Era::Legacy => [
                json!({
                    "protocolVersion": LEGACY,
                    "capabilities": {"tools": {"listChanged": true}},
                    "serverInfo": info,
                }),
                json!({"tools": tools}),
                json!({"content": content, "isError": false}),
            ],
            Era::Modern => [
                json!({
                    "resultType": "complete",
                    "supportedVersions": [MODERN],
                    "capabilities": {"tools": {}},
                    "ttlMs": DAY,
                    "cacheScope": "public",
                    "_meta": {"io.modelcontextprotocol/serverInfo": info},
                }),
                json!({"resultType": "complete", "tools": tools, "ttlMs": DAY, "cacheScope": "public"}),
                json!({"resultType": "complete", "content": content, "isError": false}),
            ],
        };
        let [greeting, list, call] =
            results.map(|result| format!(",\"result\":{result}}}").into_bytes().into());
        Self { era, greeting, list, call }
    }

    /// Which era it speaks.
    pub fn era(&self) -> Era {
        self.era
    }

    /// What is said to `message`.
    pub fn answer(&self, message: &[u8]) -> Said {
        let (method, id) = read(message);
        let (Some(method), Some(id)) = (method, id) else { return Said::Nothing };
        let with = |rest: &[u8]| [BEGIN, id, rest].concat();
        match (self.era, method) {
            (_, b"tools/call") => Said::Result(with(&self.call)),
            (_, b"tools/list") => Said::Result(with(&self.list)),
            (Era::Legacy, b"initialize") | (Era::Modern, b"server/discover") => {
                Said::Greeting(with(&self.greeting))
            }
            (Era::Legacy, b"ping") => Said::Result(with(br#","result":{}}"#)),
            _ => Said::Unknown(with(UNKNOWN)),
        }
    }
}

/// The method and the id of a message, if it has them.
fn read(message: &[u8]) -> (Option<&[u8]>, Option<&[u8]>) {
    // Whatever is called so in the parameters is not meant.
    let head = find(message, br#""params":"#).and_then(|at| message.get(..at)).unwrap_or(message);
    let behind = |mark: &[u8]| find(head, mark).and_then(|at| head.get(at + mark.len()..));
    let until = |rest: &'_ [u8], ends: &[u8]| rest.iter().position(|byte| ends.contains(byte));
    let method = behind(br#""method":""#).and_then(|rest| rest.get(..until(rest, b"\"")?));
    let id = behind(br#""id":"#).and_then(|rest| rest.get(..until(rest, b",}")?));
    (method, id)
}

fn find(text: &[u8], mark: &[u8]) -> Option<usize> {
    text.windows(mark.len()).position(|window| window == mark)
}

/// A definition as servers write them, about 600 bytes.
fn tool(number: usize) -> Value {
    let name = if number == 0 { ECHO.to_owned() } else { format!("search_records_{number:02}") };
    json!({
        "name": name,
        "title": "Search records",
        "description": "Searches the records of a collection and returns those that match, newest first. Words are matched \
                        without regard to case; put a phrase in quotes to match it as it is.",
        "inputSchema": {
            "type": "object",
            "properties": {
                "text": {"type": "string", "description": "What to search for"},
                "limit": {"type": "integer", "description": "At most so many", "minimum": 1, "maximum": 100},
                "state": {"type": "string", "enum": ["open", "closed", "all"], "description": "Only in this state"},
            },
            "required": ["text"],
        },
        "annotations": {"readOnlyHint": true},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn result(said: Said) -> Value {
        match said {
            Said::Greeting(text) | Said::Result(text) | Said::Unknown(text) => {
                serde_json::from_slice(&text).unwrap()
            }
            Said::Nothing => Value::Null,
        }
    }

    #[test]
    fn a_call_gets_the_id_it_came_with_and_nothing_of_its_parameters() {
        for message in [
            r#"{"jsonrpc":"2.0","id":17,"method":"tools/call","params":{"id":5,"method":"ping"}}"#,
            r#"{"id":17,"jsonrpc":"2.0","method":"tools/call","params":{}}"#,
            r#"{"method":"tools/call","id":17}"#,
        ] {
            for era in Era::ALL {
                let said = Answers::new(era, 1).answer(message.as_bytes());
                assert!(matches!(said, Said::Result(_)), "{message}");
                let said = result(said);
                assert_eq!((&said["id"], &said["result"]["isError"]), (&json!(17), &json!(false)));
                let complete = said["result"].get("resultType").is_some();
                assert_eq!(complete, era == Era::Modern);
            }
        }
    }

    #[test]
    fn each_era_has_its_own_handshake_and_knows_no_other() {
        let ask = |era, method: &str| {
            Answers::new(era, 1).answer(json!({"id": "x", "method": method}).to_string().as_bytes())
        };
        let legacy = ask(Era::Legacy, "initialize");
        assert!(matches!(legacy, Said::Greeting(_)));
        assert_eq!(result(legacy)["result"]["protocolVersion"], LEGACY);
        let modern = ask(Era::Modern, "server/discover");
        assert!(matches!(modern, Said::Greeting(_)));
        assert_eq!(result(modern)["result"]["supportedVersions"], json!([MODERN]));
        for (era, method) in [
            (Era::Legacy, "server/discover"),
            (Era::Modern, "initialize"),
            (Era::Modern, "subscriptions/listen"),
            (Era::Modern, "ping"),
        ] {
            let said = ask(era, method);
            assert!(matches!(said, Said::Unknown(_)), "{method}");
            let said = result(said);
            assert_eq!((&said["id"], &said["error"]["code"]), (&json!("x"), &json!(-32601)));
        }
    }

    #[test]
    fn a_notification_is_not_answered() {
        let cancelled = br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"id":1}}"#;
        assert_eq!(Answers::new(Era::Legacy, 1).answer(cancelled), Said::Nothing);
    }

    #[test]
    fn tools_have_names_of_their_own_and_usual_sizes() {
        let said = result(Answers::new(Era::Modern, 50).answer(br#"{"id":1,"method":"tools/list"}"#));
        let tools = said["result"]["tools"].as_array().unwrap();
        let mut names: Vec<_> = tools.iter().map(|tool| tool["name"].as_str().unwrap()).collect();
        assert_eq!((names.len(), names[0]), (50, ECHO));
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), 50);
        let size = tools.iter().map(|tool| tool.to_string().len()).sum::<usize>() / tools.len();
        assert!((550..650).contains(&size), "{size}");
    }
}
