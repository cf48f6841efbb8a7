//! The members of `params` that the gateway itself reads; everything else stays text.

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::{Raw, raw};

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

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Members<'a> {
    name: Option<Box<str>>,
    uri: Option<Box<str>>,
    #[serde(borrow)]
    arguments: Option<&'a RawValue>,
    cursor: Option<Box<str>>,
    #[serde(borrow)]
    input_responses: Option<&'a RawValue>,
    #[serde(borrow)]
    request_state: Option<&'a RawValue>,
    #[serde(borrow, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MetaMembers<'a> {
    #[serde(
        borrow,
        default,
        deserialize_with = "raw::present",
        rename = "io.modelcontextprotocol/protocolVersion"
    )]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientCapabilities")]
    client_capabilities: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/clientInfo")]
    client_info: Option<&'a RawValue>,
    #[serde(borrow, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
    #[serde(borrow, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, rename = "dev.moongate/sessionId")]
    session_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "dev.moongate/assistantId")]
    assistant_id: Option<&'a RawValue>,
    #[serde(borrow, rename = "dev.moongate/threadId")]
    thread_id: Option<&'a RawValue>,
}

impl Params {
    /// Reads the known members. A known member of the wrong type is an error whose text says which.
    pub fn read(params: Option<&Raw>) -> Result<Self, serde_json::Error> {
        let Some(params) = params else { return Ok(Self::default()) };
        let body: Bytes = params.clone().into_bytes();
        let members: Members<'_> = serde_json::from_slice(&body)?;
        let raw = |value: Option<&RawValue>| value.map(|value| Raw::slice_of(&body, value));
        let meta = match members.meta {
            Some(value) if value.get().starts_with('{') => Meta::read(&Raw::slice_of(&body, value))?,
            Some(value) => Meta { raw: Some(Raw::slice_of(&body, value)), ..Meta::default() },
            None => Meta::default(),
        };
        Ok(Self {
            name: members.name,
            uri: members.uri,
            arguments: raw(members.arguments),
            cursor: members.cursor,
            input_responses: raw(members.input_responses),
            request_state: raw(members.request_state),
            meta,
        })
    }
}

impl Meta {
    fn read(meta: &Raw) -> Result<Self, serde_json::Error> {
        let body: Bytes = meta.clone().into_bytes();
        let members: MetaMembers<'_> = serde_json::from_slice(&body)?;
        let raw = |value: Option<&RawValue>| value.map(|value| Raw::slice_of(&body, value));
        Ok(Self {
            protocol_version: raw(members.protocol_version),
            client_capabilities: raw(members.client_capabilities),
            client_info: raw(members.client_info),
            log_level: raw(members.log_level),
            progress_token: raw(members.progress_token),
            traceparent: raw(members.traceparent),
            session_id: raw(members.session_id),
            assistant_id: raw(members.assistant_id),
            thread_id: raw(members.thread_id),
            raw: Some(meta.clone()),
        })
    }
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
