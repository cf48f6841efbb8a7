//! Why a server did not do what it was asked, and what the client is told of it.

use std::borrow::Cow;

use moongate_core::{CallError, Kind, Raw};
use moongate_telemetry::ErrorType;
use moongate_wire::{RpcError, code};
use serde::Deserialize;

use crate::transport::Fault;

/// A server of 2025-11-25 wants its user to visit an address first.
pub(crate) const URL_ELICITATION_REQUIRED: i64 = -32042;

/// Characters of what a server says that are quoted where we say it.
const QUOTED: usize = 200;

/// What a server says, as far as it is quoted: who reads it did not ask for a book.
pub(crate) fn quoted(words: &str) -> String {
    words.chars().take(QUOTED).collect()
}

/// No answer to a request, or a refusal.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The way to the server failed.
    #[error(transparent)]
    Fault(#[from] Fault),
    /// The server said no.
    #[error(transparent)]
    Rpc(#[from] RpcError),
    /// The client could not be asked, or its answer ends the call.
    #[error(transparent)]
    Call(#[from] CallError),
    /// The server broke the protocol.
    #[error("{0}")]
    Invalid(Cow<'static, str>),
}

impl Failure {
    pub(crate) fn invalid(what: impl Into<Cow<'static, str>>) -> Self {
        Self::Invalid(what.into())
    }

    pub(crate) fn unknown_result(what: &str) -> Self {
        let what: String = what.chars().take(64).collect();
        Self::Invalid(format!("its result is of a kind that was not asked for: {what}").into())
    }

    /// The same where the call has begun at the server: what did not reach it now is no reason to begin again, which would
    /// execute the call twice.
    pub(crate) fn once_begun(self) -> Self {
        match self {
            Self::Fault(Fault::Unreached(why)) => Fault::Lost(why).into(),
            Self::Fault(fault @ Fault::SessionGone) => Fault::Lost(fault.to_string().into()).into(),
            Self::Rpc(error) if matches!(error.code, code::UNSUPPORTED_VERSION | code::HEADER_MISMATCH) => {
                Self::Invalid(format!("it refused to go on with the call: {}", quoted(&error.message)).into())
            }
            other => other,
        }
    }

    /// What it counts as.
    pub(crate) fn kind(&self) -> ErrorType {
        match self {
            Self::Fault(_) => ErrorType::Unavailable,
            Self::Rpc(error) => ErrorType::of_code(error.code),
            Self::Call(error) => match error.kind {
                Kind::Timeout => ErrorType::Timeout,
                Kind::Unavailable => ErrorType::Unavailable,
                Kind::MissingCapability { .. } => ErrorType::MissingCapability,
                _ => ErrorType::Cancelled,
            },
            Self::Invalid(_) => ErrorType::Other,
        }
    }

    /// What is wrong with the server or the way to it, if that is why; what a server refuses is no fault of its own.
    pub(crate) fn blame(&self) -> Option<Fault> {
        match self {
            Self::Fault(fault) => Some(fault.clone()),
            Self::Invalid(what) => Some(Fault::Garbled(what.clone())),
            Self::Rpc(_) | Self::Call(_) => None,
        }
    }

    /// The server does not have the method.
    pub(crate) fn is_unsupported(&self) -> bool {
        matches!(self, Self::Rpc(error) if error.code == code::METHOD_NOT_FOUND)
    }

    /// What the client of `upstream` is told. That a resource is missing, which each era says in its own words, is left to
    /// whoever knows the client's.
    pub(crate) fn into_call_error(self, upstream: &str) -> CallError {
        match self {
            Self::Call(error) => error,
            Self::Fault(fault) => {
                CallError::upstream(Kind::Unavailable, format!("The upstream {upstream} failed: {fault}"))
            }
            Self::Invalid(what) => CallError::upstream(
                Kind::Unavailable,
                format!("The upstream {upstream} gave no valid answer: {what}"),
            ),
            Self::Rpc(error) => refused(error, upstream),
        }
    }
}

fn refused(error: RpcError, upstream: &str) -> CallError {
    let message = error.message.clone();
    let kind = match error.code {
        code::METHOD_NOT_FOUND => Kind::Unsupported,
        code::MISSING_CAPABILITY => Kind::MissingCapability { required: required(&error) },
        // About our envelope, which the client did not write.
        code::HEADER_MISMATCH | code::UNSUPPORTED_VERSION => {
            let text = format!("The upstream {upstream} refused the gateway's request: {message}");
            return CallError::upstream(Kind::Unavailable, text);
        }
        _ => Kind::Rpc { error },
    };
    CallError::upstream(kind, message)
}

fn required(error: &RpcError) -> Raw {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Data {
        required_capabilities: Raw,
    }
    let data = error.data.as_ref().and_then(|data| data.parse::<Data>().ok());
    data.map(|data| data.required_capabilities).filter(Raw::is_object).unwrap_or_else(Raw::empty_object)
}

#[cfg(test)]
mod tests {
    use super::*;
    use moongate_core::Side;
    use serde_json::json;

    #[test]
    fn an_error_says_whose_it_is_and_keeps_what_it_means() {
        let rpc = |code: i64, data: serde_json::Value| Failure::Rpc(RpcError::new(code, "m").with_data(data));
        let sampling = Raw::of(&json!({"sampling": {}}));
        for (failure, kind) in [
            (rpc(-32601, json!(null)), Kind::Unsupported),
            (
                rpc(-32021, json!({"requiredCapabilities": {"sampling": {}}})),
                Kind::MissingCapability { required: sampling },
            ),
            (rpc(-32020, json!(null)), Kind::Unavailable),
            (rpc(-32022, json!(null)), Kind::Unavailable),
            (Fault::SessionGone.into(), Kind::Unavailable),
            (Failure::invalid("x"), Kind::Unavailable),
        ] {
            let error = failure.into_call_error("git");
            assert_eq!((error.kind, error.side), (kind, Side::Upstream));
        }
        let other = rpc(-32602, json!({"uri": "x://2"})).into_call_error("git");
        assert!(matches!(other.kind, Kind::Rpc { error } if error.code == -32602));
        let text = Failure::from(Fault::Lost("the process exited".into())).into_call_error("git");
        assert_eq!(text.to_string(), "The upstream git failed: the process exited");
    }
}
