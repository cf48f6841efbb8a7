//! Why a call failed, in words every layer understands.

use std::{borrow::Cow, error::Error, fmt, sync::Arc, time::Duration};

use moongate_wire::{Raw, RpcError};
use serde_json::{Map, Value};

/// A call that did not succeed.
///
/// The edge turns `kind` into a JSON-RPC code and an HTTP status; `public` is what the client may read; the source is
/// for the log only.
#[derive(Debug)]
pub struct CallError {
    /// What went wrong.
    pub kind: Kind,
    /// Whose fault it is: decides blame, metric and retry.
    pub side: Side,
    /// What the client is told.
    pub public: Cow<'static, str>,
    /// What only the log is told.
    source: Option<Box<dyn Error + Send + Sync>>,
}

/// The kinds of failure.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Kind {
    /// No tool, prompt or method of that name is offered to this caller.
    Unknown,
    /// No such resource.
    UnknownResource {
        /// The resource asked for.
        uri: Arc<str>,
    },
    /// The parameters are wrong.
    InvalidParams,
    /// The method exists, but nothing here implements it.
    Unsupported,
    /// The client did not declare a capability the call needs.
    MissingCapability {
        /// A `ClientCapabilities` object with what is missing, such as `{"sampling":{}}`.
        required: Raw,
    },
    /// The caller lacks a scope.
    MissingScope {
        /// The scope that would do.
        scope: crate::Scope,
    },
    /// The deadline passed.
    Timeout,
    /// The client, or the end of its session, cancelled the call.
    Cancelled,
    /// Too much is going on: a limit of the caller was reached.
    Limited {
        /// When it is worth trying again.
        retry_after: Duration,
    },
    /// An upstream cannot be reached or gave up.
    Unavailable,
    /// An error of the backend that is passed on as it is.
    Rpc {
        /// The backend's own error.
        error: RpcError,
    },
    /// Anything else.
    Internal,
}

/// Who is to blame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Side {
    /// The caller.
    Client,
    /// This process.
    Gateway,
    /// Whatever is behind it.
    Upstream,
}

impl CallError {
    /// An error the client caused.
    pub fn client(kind: Kind, public: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, side: Side::Client, public: public.into(), source: None }
    }

    /// An error of an upstream.
    pub fn upstream(kind: Kind, public: impl Into<Cow<'static, str>>) -> Self {
        Self { kind, side: Side::Upstream, public: public.into(), source: None }
    }

    /// An error of our own. The client learns `public`, the log also the source.
    pub fn internal(
        public: impl Into<Cow<'static, str>>,
        source: impl Into<Box<dyn Error + Send + Sync>>,
    ) -> Self {
        Self { kind: Kind::Internal, side: Side::Gateway, public: public.into(), source: Some(source.into()) }
    }

    /// A limit was reached; the client may try again after `retry_after`.
    pub fn limited(retry_after: Duration, public: impl Into<Cow<'static, str>>) -> Self {
        Self::client(Kind::Limited { retry_after }, public)
    }

    /// The parameters are wrong: `Invalid params: <detail>`.
    pub fn invalid_params(detail: impl fmt::Display) -> Self {
        Self::client(Kind::InvalidParams, format!("Invalid params: {detail}"))
    }

    /// The client did not declare `capability`; one inside another is written as `elicitation.url`.
    pub fn missing_capability(capability: &str) -> Self {
        let inside = |inner: Value, name: &str| serde_json::json!({ name: inner });
        let required = Raw::of(&capability.rsplit('.').fold(Value::Object(Map::new()), inside));
        Self::client(
            Kind::MissingCapability { required },
            format!(
                "This call needs a client that supports {capability}, and this client did not declare it"
            ),
        )
    }

    /// The client did not declare the extension `name`.
    pub fn missing_extension(name: &str) -> Self {
        let required = Raw::of(&serde_json::json!({"extensions": {name: {}}}));
        Self::client(
            Kind::MissingCapability { required },
            format!(
                "This needs a client that supports the extension {name}, and this client did not declare it"
            ),
        )
    }

    /// No such resource.
    pub fn unknown_resource(uri: &str) -> Self {
        Self::client(Kind::UnknownResource { uri: uri.into() }, format!("Resource not found: {uri}"))
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.public)
    }
}

impl Error for CallError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn Error + 'static))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_missing_capability_is_named_as_it_would_be_declared() {
        for (name, expected) in
            [("sampling", r#"{"sampling":{}}"#), ("elicitation.url", r#"{"elicitation":{"url":{}}}"#)]
        {
            let error = CallError::missing_capability(name);
            let Kind::MissingCapability { required } = error.kind else { panic!("{error}") };
            assert_eq!(required.as_str(), expected);
        }
        let Kind::MissingCapability { required } = CallError::missing_extension("a/b").kind else { panic!() };
        assert_eq!(required.as_str(), r#"{"extensions":{"a/b":{}}}"#);
    }
}
