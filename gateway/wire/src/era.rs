//! Which machine serves a message: the modern one, where each request stands alone, or the legacy one with its session.
//!
//! The body decides and the header only cross-checks. Refusals that follow from the era alone are here; what is wrong
//! *within* the modern era is said by [`crate::ladder`], so a message with a claim goes there however bad the claim is.

use crate::{Message, Method, Refusal, RpcError, Version, code, header, ladder, version::Era};

/// The parts of an HTTP request that take part in the decision.
#[derive(Clone, Copy, Debug, Default)]
pub struct Facts<'a> {
    /// `MCP-Protocol-Version`, if sent. A value that is not text must not be left out: pass an empty one.
    pub version: Option<&'a str>,
    /// Whether `Mcp-Session-Id` was sent.
    pub session: bool,
}

/// Who serves the message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The modern machine: [`crate::ladder`] comes next.
    Modern,
    /// The legacy handshake.
    Initialize,
    /// The legacy session it belongs to. Whether there is one, and a live one, is not decided here.
    Legacy,
}

/// What the version header says.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Header {
    Absent,
    Legacy,
    Modern,
    Unknown,
}

/// Decides for a message that came by HTTP.
pub fn decide(message: &Message, facts: Facts<'_>) -> Result<Verdict, Refusal> {
    if matches!(message, Message::Response(_)) && !facts.session {
        let text = "Invalid Request: a response belongs to a session, and none was named";
        return Err(Refusal::new(400, code::INVALID_REQUEST, text));
    }
    if claims(message) {
        return Ok(Verdict::Modern);
    }
    match (read(facts.version), message) {
        (Header::Modern, Message::Response(_)) => {
            let text = "Invalid Request: clients of this version send no responses";
            Err(Refusal::new(400, code::INVALID_REQUEST, text))
        }
        (Header::Modern, _) if is_initialize(message) => {
            let error =
                header::mismatch(format_args!("this version of MCP-Protocol-Version has no initialize"));
            Err(Refusal { status: 400, error })
        }
        // The ladder's first rung says what the envelope lacks.
        (Header::Modern, _) => Ok(Verdict::Modern),
        // Its body negotiates the version, so whatever else the header holds is ignored.
        _ if is_initialize(message) => Ok(Verdict::Initialize),
        (Header::Absent | Header::Legacy, _) => Ok(Verdict::Legacy),
        (Header::Unknown, _) => Err(unknown_version(facts)),
    }
}

/// Decides for a message that came by stdio, where `initialized` says whether a handshake was made on this pipe.
pub fn decide_stdio(message: &Message, initialized: bool) -> Result<Verdict, RpcError> {
    if claims(message) {
        return Ok(Verdict::Modern);
    }
    match message {
        Message::Response(_) | Message::Notification(_) => Ok(Verdict::Legacy),
        Message::Request(_) if is_initialize(message) => Ok(Verdict::Initialize),
        Message::Request(request) if initialized || &*request.method == Method::Ping.as_str() => {
            Ok(Verdict::Legacy)
        }
        // Legacy clients begin with initialize, so this one means to be modern.
        Message::Request(request) => Err(ladder::incomplete(request.params.meta())),
    }
}

/// Whether the message says, in its own envelope, that it is modern. A claim that cannot be read is still one.
fn claims(message: &Message) -> bool {
    message.params().is_some_and(|params| params.meta().claims())
}

fn is_initialize(message: &Message) -> bool {
    matches!(message, Message::Request(request) if &*request.method == Method::Initialize.as_str())
}

fn read(version: Option<&str>) -> Header {
    match version.map(|text| Version::parse(text.trim_matches([' ', '\t'])).map(Version::era)) {
        None => Header::Absent,
        Some(Some(Era::Legacy)) => Header::Legacy,
        Some(Some(Era::Modern)) => Header::Modern,
        Some(None) => Header::Unknown,
    }
}

fn unknown_version(facts: Facts<'_>) -> Refusal {
    if facts.session {
        return Refusal::new(
            400,
            code::SERVER,
            "Bad Request: unsupported protocol version in MCP-Protocol-Version",
        );
    }
    Refusal { status: 400, error: ladder::unsupported(facts.version.unwrap_or_default()) }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;

    use super::*;
    use crate::Frame;

    const CLAIM: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"#;

    fn message(method: &str, id: bool, claim: Option<&str>) -> Message {
        let id = if id { r#""id":1,"# } else { "" };
        let meta = claim.map(|claim| format!("{CLAIM}{claim}}}")).unwrap_or_default();
        read_message(&format!(r#"{{"jsonrpc":"2.0",{id}"method":"{method}","params":{{{meta}}}}}"#))
    }

    fn read_message(text: &str) -> Message {
        let Ok(Frame::One(message)) = Frame::parse(&Bytes::from(text.to_owned())) else { panic!("{text}") };
        message
    }

    type Row<'a> = (&'a str, bool, Option<&'a str>, Option<&'a str>, bool, Result<Verdict, (u16, i64)>);

    #[test]
    fn http_requests_and_notifications_find_their_machine() {
        use Verdict::{Initialize, Legacy, Modern};
        const NEW: Option<&str> = Some(r#""2026-07-28""#);
        const OLD_HEADER: Option<&str> = Some("2025-06-18");
        const NEW_HEADER: Option<&str> = Some("2026-07-28");
        const ODD_HEADER: Option<&str> = Some("2031-01-01");
        // method, id?, claim, header, session?, verdict
        let table: &[Row<'_>] = &[
            ("tools/list", true, NEW, NEW_HEADER, false, Ok(Modern)),
            ("tools/list", true, NEW, None, false, Ok(Modern)),
            ("tools/list", true, NEW, OLD_HEADER, true, Ok(Modern)),
            ("initialize", true, NEW, None, false, Ok(Modern)),
            ("tools/list", true, Some(r#""2025-06-18""#), None, true, Ok(Modern)),
            ("tools/list", true, Some("7"), None, true, Ok(Modern)),
            ("tools/list", true, Some("null"), None, true, Ok(Modern)),
            ("tools/list", true, None, NEW_HEADER, false, Ok(Modern)),
            ("tools/list", true, None, Some(" 2026-07-28\t"), true, Ok(Modern)),
            ("initialize", true, None, NEW_HEADER, false, Err((400, code::HEADER_MISMATCH))),
            ("initialize", true, None, None, false, Ok(Initialize)),
            ("initialize", true, None, Some("2025-11-25"), false, Ok(Initialize)),
            ("initialize", true, None, ODD_HEADER, false, Ok(Initialize)),
            ("initialize", true, None, None, true, Ok(Initialize)),
            ("tools/list", true, None, None, true, Ok(Legacy)),
            ("tools/list", true, None, OLD_HEADER, true, Ok(Legacy)),
            ("tools/list", true, None, None, false, Ok(Legacy)),
            ("tools/list", true, None, ODD_HEADER, true, Err((400, code::SERVER))),
            ("tools/list", true, None, ODD_HEADER, false, Err((400, code::UNSUPPORTED_VERSION))),
            ("tools/list", true, None, Some(""), false, Err((400, code::UNSUPPORTED_VERSION))),
            ("notifications/cancelled", false, NEW, None, false, Ok(Modern)),
            ("notifications/cancelled", false, None, NEW_HEADER, false, Ok(Modern)),
            ("notifications/initialized", false, None, OLD_HEADER, true, Ok(Legacy)),
            ("notifications/initialized", false, None, None, false, Ok(Legacy)),
            ("initialize", false, None, None, false, Ok(Legacy)),
        ];
        for &(method, id, claim, version, session, expected) in table {
            let message = message(method, id, claim);
            let verdict = decide(&message, Facts { version, session });
            let verdict = verdict.map_err(|refusal| (refusal.status, refusal.error.code));
            assert_eq!(verdict, expected, "{method} {id} {claim:?} {version:?} {session}");
        }
    }

    #[test]
    fn a_response_needs_a_session() {
        let response = read_message(r#"{"jsonrpc":"2.0","id":"x","result":{}}"#);
        let decide = |version, session| {
            decide(&response, Facts { version, session })
                .map_err(|refusal| (refusal.status, refusal.error.code))
        };
        assert_eq!(decide(None, true), Ok(Verdict::Legacy));
        assert_eq!(decide(Some("2025-11-25"), true), Ok(Verdict::Legacy));
        assert_eq!(decide(None, false), Err((400, code::INVALID_REQUEST)));
        assert_eq!(decide(Some("2026-07-28"), true), Err((400, code::INVALID_REQUEST)));
    }

    #[test]
    fn an_unknown_version_is_told_what_is_supported() {
        let message = message("tools/list", true, None);
        let facts = Facts { version: Some("1999-01-01"), session: false };
        let data = decide(&message, facts).unwrap_err().error.data.unwrap();
        assert_eq!(data.as_str(), r#"{"supported":["2026-07-28"],"requested":"1999-01-01"}"#);
    }

    #[test]
    fn stdio_messages_find_their_machine() {
        use Verdict::{Initialize, Legacy, Modern};
        let new = Some(r#""2026-07-28""#);
        for (method, id, claim, initialized, expected) in [
            ("server/discover", true, new, false, Ok(Modern)),
            ("tools/list", true, new, true, Ok(Modern)),
            ("initialize", true, new, false, Ok(Modern)),
            ("initialize", true, None, false, Ok(Initialize)),
            ("initialize", true, None, true, Ok(Initialize)),
            ("tools/list", true, None, true, Ok(Legacy)),
            ("ping", true, None, false, Ok(Legacy)),
            ("tools/list", true, None, false, Err(code::INVALID_PARAMS)),
            ("server/discover", true, None, false, Err(code::INVALID_PARAMS)),
            ("notifications/cancelled", false, None, false, Ok(Legacy)),
            ("notifications/cancelled", false, new, false, Ok(Modern)),
        ] {
            let message = message(method, id, claim);
            let verdict = decide_stdio(&message, initialized).map_err(|error| error.code);
            assert_eq!(verdict, expected, "{method} {claim:?} {initialized}");
        }
        let response = read_message(r#"{"jsonrpc":"2.0","id":"x","result":{}}"#);
        assert_eq!(decide_stdio(&response, false), Ok(Legacy));
    }

    proptest! {
        /// Every message gets a verdict or a 400, and a claim or a modern header never ends up in a session.
        #[test]
        fn every_message_is_decided(
            method in prop_oneof![Just("initialize".to_owned()), Just("ping".to_owned()), "[a-z/]{0,12}"],
            id in any::<bool>(),
            claim in prop::option::of(prop_oneof![Just("null"), Just("{}"), Just(r#""2026-07-28""#), Just(r#""2024-11-05""#)]),
            version in prop::option::of(prop_oneof![Just("2026-07-28".to_owned()), Just("2024-11-05".to_owned()), any::<String>()]),
            session in any::<bool>(),
        ) {
            let message = message(&method, id, claim);
            match decide(&message, Facts { version: version.as_deref(), session }) {
                Ok(verdict) => {
                    let modern = claim.is_some() || version.as_deref() == Some("2026-07-28");
                    prop_assert_eq!(verdict == Verdict::Modern, modern);
                    prop_assert!(verdict != Verdict::Initialize || (id && method == "initialize"));
                }
                Err(refusal) => prop_assert_eq!(refusal.status, 400),
            }
            if let Err(error) = decide_stdio(&message, session) {
                prop_assert_eq!(error.code, code::INVALID_PARAMS);
            }
        }
    }
}
