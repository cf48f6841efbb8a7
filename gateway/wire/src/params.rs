//! The members of `params` that the gateway itself reads; everything else stays text.

use std::borrow::Cow;

use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;

use crate::Raw;

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

/// What the gateway reads of `_meta`.
#[derive(Clone, Debug, Default)]
pub struct Meta {
    /// The whole object as it came, for those who pass it on.
    pub raw: Option<Raw>,
    /// `io.modelcontextprotocol/protocolVersion`: the claim that makes a request modern.
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
    #[serde(borrow, default)]
    name: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    uri: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    arguments: Option<&'a RawValue>,
    #[serde(borrow, default)]
    cursor: Option<Cow<'a, str>>,
    #[serde(borrow, default)]
    input_responses: Option<&'a RawValue>,
    #[serde(borrow, default)]
    request_state: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "_meta")]
    meta: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct MetaMembers<'a> {
    #[serde(borrow, default, rename = "io.modelcontextprotocol/protocolVersion")]
    protocol_version: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientCapabilities")]
    client_capabilities: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/clientInfo")]
    client_info: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "io.modelcontextprotocol/logLevel")]
    log_level: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "progressToken")]
    progress_token: Option<&'a RawValue>,
    #[serde(borrow, default)]
    traceparent: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.moongate/sessionId")]
    session_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.moongate/assistantId")]
    assistant_id: Option<&'a RawValue>,
    #[serde(borrow, default, rename = "dev.moongate/threadId")]
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
            name: members.name.map(Into::into),
            uri: members.uri.map(Into::into),
            arguments: raw(members.arguments),
            cursor: members.cursor.map(Into::into),
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
