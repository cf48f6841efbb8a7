//! JSON-RPC errors, their codes, and the HTTP status that goes with a refusal.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};

use crate::Raw;

/// The error codes that appear on the wire.
pub mod code {
    /// The body is not JSON.
    pub const PARSE: i64 = -32700;
    /// JSON, but not a message that is allowed here.
    pub const INVALID_REQUEST: i64 = -32600;
    /// No such method in this version, or not offered.
    pub const METHOD_NOT_FOUND: i64 = -32601;
    /// The method exists and its parameters are wrong; also unknown tools, prompts and, in the modern era, resources.
    pub const INVALID_PARAMS: i64 = -32602;
    /// Something broke that is not the caller's fault.
    pub const INTERNAL: i64 = -32603;
    /// Legacy only: no session, or a refusal before any method ran.
    pub const SERVER: i64 = -32000;
    /// Legacy only: unknown session; also missing scope.
    pub const FORBIDDEN: i64 = -32001;
    /// Legacy only: no such resource.
    pub const RESOURCE_NOT_FOUND: i64 = -32002;
    /// Modern: a header is missing or does not repeat the body.
    pub const HEADER_MISMATCH: i64 = -32020;
    /// Modern: the request needs a client capability that it did not declare.
    pub const MISSING_CAPABILITY: i64 = -32021;
    /// Modern: the claimed version is not spoken here.
    pub const UNSUPPORTED_VERSION: i64 = -32022;
}

/// The `error` member of a JSON-RPC response.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, thiserror::Error)]
#[error("{message} ({code})")]
pub struct RpcError {
    /// One of [`code`], or an upstream's own.
    pub code: i64,
    /// For people; never contains a secret.
    pub message: Cow<'static, str>,
    /// Details a program can use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data: Option<Raw>,
}

impl RpcError {
    /// An error without data.
    pub fn new(code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { code, message: message.into(), data: None }
    }

    /// The same error with `data`.
    #[must_use]
    pub fn with_data(mut self, data: impl Serialize) -> Self {
        self.data = Some(Raw::of(&data));
        self
    }
}

/// An HTTP answer that says no: a status and the error that explains it.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{error} with status {status}")]
pub struct Refusal {
    /// The HTTP status.
    pub status: u16,
    /// What the JSON body says.
    pub error: RpcError,
}

impl Refusal {
    /// A refusal without data.
    pub fn new(status: u16, code: i64, message: impl Into<Cow<'static, str>>) -> Self {
        Self { status, error: RpcError::new(code, message) }
    }
}
