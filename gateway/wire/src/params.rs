//! The members of `params` that the gateway itself reads; everything else stays text.

use bytes::Bytes;

use crate::{
    Raw,
    walk::{self, Member},
};

/// The prefix of the protocol's own `_meta` keys.
pub const PREFIX: &str = "io.modelcontextprotocol/";

/// What the gateway reads of a request's `params`.
#[derive(Clone, Debug, Default)]
pub struct Params {
    /// Tool or prompt name.
    pub name: Option<Box<str>>,
    /// Resource.
    pub uri: Option<Box<str>>,
    /// Arguments of a tool or prompt, when present and not `null`.
    pub arguments: Option<Raw>,
    /// A list's cursor.
    pub cursor: Option<Box<str>>,
    /// Answers to an earlier `input_required`.
    pub input_responses: Option<Raw>,
    /// The state an earlier `input_required` gave.
    pub request_state: Option<Raw>,
    /// `_meta`, read.
    pub meta: Meta,
}

/// What the gateway reads of `_meta`. Except for the claim, a member that is `null` counts as absent.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// The whole object as it came, for those who pass it on.
    pub raw: Option<Raw>,
    /// `io.modelcontextprotocol/protocolVersion`: the claim that makes a request modern, even if it is `null`.
    pub protocol_version: Option<Raw>,
    /// `io.modelcontextprotocol/clientCapabilities`
    pub client_capabilities: Option<Raw>,
    /// `io.modelcontextprotocol/clientInfo`
    pub client_info: Option<Raw>,
    /// `io.modelcontextprotocol/logLevel`
    pub log_level: Option<Raw>,
    /// `progressToken`
    pub progress_token: Option<Raw>,
    /// `traceparent`
    pub traceparent: Option<Raw>,
    /// `dev.moongate/sessionId`
    pub session_id: Option<Raw>,
    /// `dev.moongate/assistantId`
    pub assistant_id: Option<Raw>,
    /// `dev.moongate/threadId`
    pub thread_id: Option<Raw>,
}

impl Params {
    /// Reads the known members. A known member of the wrong type is an error whose text says which.
    pub fn read(params: Option<&Raw>) -> Result<Self, serde_json::Error> {
        let mut read = Self::default();
        let Some(params) = params else { return Ok(read) };
        let body: Bytes = params.clone().into_bytes();
        for member in walk::members(&body) {
            match &*member.bytes() {
                b"name" => read.name = text(&member)?,
                b"uri" => read.uri = text(&member)?,
                b"cursor" => read.cursor = text(&member)?,
                b"arguments" => read.arguments = present(&member, &body),
                b"inputResponses" => read.input_responses = present(&member, &body),
                b"requestState" => read.request_state = present(&member, &body),
                b"_meta" => read.meta = Meta::read(present(&member, &body)),
                _ => {}
            }
        }
        Ok(read)
    }
}

impl Meta {
    fn read(meta: Option<Raw>) -> Self {
        let mut read = Self { raw: meta, ..Self::default() };
        let Some(body) = read.raw.clone().map(Raw::into_bytes) else { return read };
        for member in walk::members(&body) {
            let name = member.bytes();
            let slot = match name.strip_prefix(PREFIX.as_bytes()) {
                Some(b"protocolVersion") => {
                    read.protocol_version = Some(member.raw(&body));
                    continue;
                }
                Some(b"clientCapabilities") => &mut read.client_capabilities,
                Some(b"clientInfo") => &mut read.client_info,
                Some(b"logLevel") => &mut read.log_level,
                _ => match &*name {
                    b"progressToken" => &mut read.progress_token,
                    b"traceparent" => &mut read.traceparent,
                    b"dev.moongate/sessionId" => &mut read.session_id,
                    b"dev.moongate/assistantId" => &mut read.assistant_id,
                    b"dev.moongate/threadId" => &mut read.thread_id,
                    _ => continue,
                },
            };
            *slot = present(&member, &body);
        }
        read
    }
}

fn present(member: &Member<'_>, body: &Bytes) -> Option<Raw> {
    member.present().map(|_| member.raw(body))
}

/// The text of a member that must be a string, if it is there.
fn text(member: &Member<'_>) -> Result<Option<Box<str>>, serde_json::Error> {
    let Some(value) = member.present() else { return Ok(None) };
    let wrong = || serde::de::Error::custom(format_args!("{} must be a string", member.name()));
    walk::text(value).map(|text| Some(text.into())).ok_or_else(wrong)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Params, serde_json::Error> {
        Params::read(Some(&Raw::from_text(text.to_owned()).unwrap()))
    }

    #[test]
    fn known_members_are_read_and_share_the_bodys_memory() {
        let raw = Raw::from_text(
            r#"{"name":"\u0061dd","x":[],"arguments":{"n": 1},"cursor":"c","_meta":{"progressToken":7,"dev.moongate/threadId":"t"}}"#,
        )
        .unwrap();
        let params = Params::read(Some(&raw)).unwrap();
        assert_eq!(params.name.as_deref(), Some("add"));
        assert_eq!(params.cursor.as_deref(), Some("c"));
        assert_eq!(params.uri, None);
        let arguments = params.arguments.unwrap();
        assert_eq!(arguments.as_str(), r#"{"n": 1}"#);
        assert!(raw.as_bytes().as_ptr_range().contains(&arguments.as_bytes().as_ptr()));
        assert_eq!(params.meta.progress_token, Some(Raw::of(&7)));
        assert_eq!(params.meta.thread_id, Some(Raw::of("t")));
        assert_eq!(params.meta.raw.unwrap().members().len(), 2);
    }

    #[test]
    fn null_counts_as_absent_except_for_the_claim() {
        let params = read(
            r#"{"name":null,"arguments":null,"_meta":{"io.modelcontextprotocol/protocolVersion":null,"progressToken":null}}"#,
        )
        .unwrap();
        assert_eq!(params.name, None);
        assert_eq!(params.arguments, None);
        assert_eq!(params.meta.progress_token, None);
        assert_eq!(params.meta.protocol_version, Some(Raw::null()));
        assert!(Params::read(None).unwrap().meta.raw.is_none());
    }

    #[test]
    fn a_known_member_of_the_wrong_type_is_an_error() {
        for text in [r#"{"name":1}"#, r#"{"uri":{}}"#, r#"{"cursor":[]}"#] {
            assert!(read(text).is_err(), "{text}");
        }
        assert!(read(r#"{"_meta":[1]}"#).unwrap().meta.raw.is_some());
    }
}
