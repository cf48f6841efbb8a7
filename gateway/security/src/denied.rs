//! Refusals: what a caller that is turned away is told.
//!
//! A refusal is complete: HTTP status, JSON-RPC error, challenge, `Retry-After`, and the label it is counted under. The
//! edge only writes it down.

use std::{borrow::Cow, fmt, time::Duration};

use moongate_core::{RpcError, Scope};
use moongate_wire::{Era, code};

use crate::Flaw;

const TOKEN: &str = "invalid or missing token";
const RATE: &str = "rate limit exceeded";

/// A caller that was turned away.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{reason}: {error}")]
pub struct Denied {
    /// The HTTP status.
    pub status: u16,
    /// What it is counted under.
    pub reason: Reason,
    /// The error in the body.
    pub error: RpcError,
    /// The value of `WWW-Authenticate`.
    pub challenge: Option<String>,
    /// When it is worth trying again.
    pub retry_after: Option<Duration>,
}

/// Why a caller was turned away.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reason {
    /// No `Host`, several, or one that is not ours.
    Host,
    /// A page that may not call.
    Origin,
    /// No token.
    TokenMissing,
    /// A token that is unknown, forged, expired or revoked.
    TokenInvalid,
    /// A token in the query string.
    TokenInQuery,
    /// Two `Authorization` headers.
    TokenAmbiguous,
    /// A scope is missing.
    Scope,
    /// A limit of the address, the principal or the tool was reached.
    RateLimited,
    /// Too much from one address, before anything was looked at.
    Flood,
    /// The gateway could not tell whether the caller may pass.
    Unavailable,
}

impl Reason {
    /// Every reason.
    pub const ALL: [Self; 10] = [
        Self::Host,
        Self::Origin,
        Self::TokenMissing,
        Self::TokenInvalid,
        Self::TokenInQuery,
        Self::TokenAmbiguous,
        Self::Scope,
        Self::RateLimited,
        Self::Flood,
        Self::Unavailable,
    ];

    /// The reason as a metric's label.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Host => "host",
            Self::Origin => "origin",
            Self::TokenMissing => "token_missing",
            Self::TokenInvalid => "token_invalid",
            Self::TokenInQuery => "token_in_query",
            Self::TokenAmbiguous => "token_ambiguous",
            Self::Scope => "scope",
            Self::RateLimited => "rate_limited",
            Self::Flood => "flood",
            Self::Unavailable => "unavailable",
        }
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl Denied {
    fn new(status: u16, reason: Reason, message: impl Into<Cow<'static, str>>) -> Self {
        let error = RpcError::new(code::SERVER, message);
        Self { status, reason, error, challenge: None, retry_after: None }
    }

    fn with_challenge(mut self, parameters: &[(&str, &str)]) -> Self {
        self.challenge = Some(challenge(parameters));
        self
    }

    /// No host, or more than one.
    pub(crate) fn ambiguous_host() -> Self {
        Self::new(400, Reason::Host, "exactly one host must be named")
    }

    /// A host that is not ours.
    pub(crate) fn host() -> Self {
        Self::new(403, Reason::Host, "host not allowed")
    }

    /// A page that may not call.
    pub(crate) fn origin() -> Self {
        Self::new(403, Reason::Origin, "origin not allowed")
    }

    /// No token. Says nothing about an error, so that clients start to authorise instead of giving up.
    pub(crate) fn token_missing() -> Self {
        Self::new(401, Reason::TokenMissing, TOKEN).with_challenge(&[])
    }

    /// A token that does not do. What is wrong is told only to holders of a token that was ours once.
    pub(crate) fn token_invalid(flaw: Flaw) -> Self {
        let denied = Self::new(401, Reason::TokenInvalid, TOKEN);
        match flaw {
            Flaw::Foreign | Flaw::Forged => denied.with_challenge(&[("error", "invalid_token")]),
            Flaw::Expired | Flaw::Revoked => {
                let description = flaw.to_string();
                denied.with_challenge(&[("error", "invalid_token"), ("error_description", &description)])
            }
        }
    }

    /// A token where it ends up in logs.
    pub(crate) fn token_in_query() -> Self {
        let message = "a token in the query string is refused; send it as Authorization: Bearer";
        Self::new(400, Reason::TokenInQuery, message).with_challenge(&[("error", "invalid_request")])
    }

    /// Two tokens.
    pub(crate) fn token_ambiguous() -> Self {
        let message = "more than one Authorization header";
        Self::new(400, Reason::TokenAmbiguous, message).with_challenge(&[("error", "invalid_request")])
    }

    /// Whether the caller may pass cannot be told just now, so it may not.
    pub(crate) fn unavailable() -> Self {
        let mut denied = Self::new(503, Reason::Unavailable, "the token cannot be checked just now");
        denied.error.code = code::INTERNAL;
        denied.retry_after = Some(Duration::from_secs(1));
        denied
    }

    /// A limit was reached.
    pub fn rate_limited(retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(429, Reason::RateLimited, RATE) }
    }

    /// Too much from one address, found before anything else was looked at.
    pub fn flood(retry_after: Duration) -> Self {
        Self { retry_after: Some(retry_after), ..Self::new(429, Reason::Flood, RATE) }
    }

    /// The caller needs `scope` for what it asked.
    pub fn missing_scope(scope: &Scope, era: Era) -> Self {
        let code = match era {
            Era::Legacy => code::FORBIDDEN,
            Era::Modern => code::INVALID_PARAMS,
        };
        let error = RpcError::new(code, "Forbidden: insufficient scope")
            .with_data(serde_json::json!({ "requiredScope": scope.as_str() }));
        let denied = Self { error, ..Self::new(403, Reason::Scope, "") };
        denied.with_challenge(&[("error", "insufficient_scope"), ("scope", scope.as_str())])
    }

    /// The same refusal for a client of `era`: the modern one leaves the code that others share to nobody.
    #[must_use]
    pub fn in_era(mut self, era: Era) -> Self {
        if era == Era::Modern && self.error.code == code::SERVER {
            self.error.code = code::INVALID_REQUEST;
        }
        self
    }

    /// The value of `Retry-After`: whole seconds, at least one.
    pub fn retry_after_seconds(&self) -> Option<u64> {
        let wait = self.retry_after?;
        Some((wait.as_secs() + u64::from(wait.subsec_nanos() > 0)).max(1))
    }
}

/// A challenge; the scheme must be followed by at least one parameter, hence the realm.
fn challenge(parameters: &[(&str, &str)]) -> String {
    // Names of scopes come from the configuration; what would end the quotes or the header is left out.
    let plain = |character: &char| matches!(character, ' '..='~') && !matches!(character, '"' | '\\');
    let mut text = "Bearer realm=\"moongate\"".to_owned();
    for (name, value) in parameters {
        text.extend([", ", name, "=\""]);
        text.extend(value.chars().filter(plain));
        text.push('"');
    }
    text
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use super::*;

    #[test]
    fn every_reason_has_a_label_of_its_own() {
        let labels: HashSet<_> = Reason::ALL.into_iter().map(Reason::as_str).collect();
        assert_eq!(labels.len(), Reason::ALL.len());
        assert!(
            labels.iter().all(|label| label.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_'))
        );
    }

    #[test]
    fn a_missing_scope_is_named_in_both_eras() {
        let scope = Scope::write();
        let legacy = Denied::missing_scope(&scope, Era::Legacy);
        let modern = Denied::missing_scope(&scope, Era::Modern);
        assert_eq!((legacy.status, legacy.error.code), (403, -32001));
        assert_eq!((modern.status, modern.error.code), (403, -32602));
        for denied in [legacy, modern] {
            assert_eq!(denied.error.message, "Forbidden: insufficient scope");
            assert_eq!(denied.error.data.unwrap().as_str(), r#"{"requiredScope":"write"}"#);
            let expected = r#"Bearer realm="moongate", error="insufficient_scope", scope="write""#;
            assert_eq!(denied.challenge.as_deref(), Some(expected));
        }
    }

    #[test]
    fn a_scopes_name_cannot_break_out_of_the_challenge() {
        let denied = Denied::missing_scope(&Scope::new("a\", x=\"b\r\nSet-Cookie: c\\ä"), Era::Legacy);
        let expected = r#"Bearer realm="moongate", error="insufficient_scope", scope="a, x=bSet-Cookie: c""#;
        assert_eq!(denied.challenge.as_deref(), Some(expected));
    }

    #[test]
    fn waits_are_rounded_up_to_whole_seconds() {
        for (millis, seconds) in [(0, 1), (1, 1), (1000, 1), (1001, 2), (59_999, 60)] {
            let denied = Denied::rate_limited(Duration::from_millis(millis));
            assert_eq!(denied.retry_after_seconds(), Some(seconds), "{millis} ms");
        }
        assert_eq!(Denied::origin().retry_after_seconds(), None);
    }

    #[test]
    fn the_modern_era_is_spared_the_shared_code() {
        assert_eq!(Denied::origin().in_era(Era::Legacy).error.code, -32000);
        assert_eq!(Denied::origin().in_era(Era::Modern).error.code, -32600);
        assert_eq!(Denied::unavailable().in_era(Era::Modern).error.code, -32603);
    }
}
