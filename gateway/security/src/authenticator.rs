//! Ways for a caller to prove who it is.
//!
//! The gate asks its authenticators in order; the first that knows the caller decides. Another way in (tokens of a
//! configured issuer, client certificates) is one more implementation.

use std::{fmt, sync::Arc};

use moongate_core::{Principal, Scopes, Soon};

use crate::{Conn, Error, TokenFile};

/// One way to prove who is calling.
pub trait Authenticator: Send + Sync {
    /// Looks at what the caller presents.
    ///
    /// # Cancel safety
    /// Implementations may be dropped at any point without effect on later calls.
    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> Soon<'a, Verdict>;
}

/// What a caller presents.
#[derive(Clone, Copy)]
pub struct Credentials<'a> {
    /// The token of the `Authorization` header.
    pub bearer: Option<&'a str>,
    /// The connection; `None` for the pipe of a stdio caller.
    pub conn: Option<&'a Conn>,
}

/// What an authenticator says.
#[derive(Debug)]
pub enum Verdict {
    /// I know this caller.
    Admit(Identity),
    /// Not mine; ask the next.
    Pass,
    /// Mine, and not good.
    Refuse(Flaw),
    /// I cannot tell just now.
    Fail(Error),
}

/// A caller that proved itself.
#[derive(Clone, Debug)]
pub struct Identity {
    /// Who.
    pub principal: Principal,
    /// What it may do.
    pub scopes: Arc<Scopes>,
}

/// What is wrong with a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum Flaw {
    /// It is no token that anybody here knows.
    #[error("the token is not known here")]
    Foreign,
    /// It names our key and does not have its signature.
    #[error("the token's signature is not valid")]
    Forged,
    /// Its time is over.
    #[error("the token expired")]
    Expired,
    /// It was revoked.
    #[error("the token was revoked")]
    Revoked,
}

/// The token in the 0600 file: whoever can read that file is the user, and may do everything.
#[derive(Debug)]
pub struct LocalToken {
    file: Arc<TokenFile>,
    identity: Identity,
}

impl LocalToken {
    /// Accepts the token of `file`.
    pub fn new(file: Arc<TokenFile>) -> Self {
        Self { file, identity: Identity::local() }
    }
}

impl Identity {
    /// The user itself, with all scopes.
    pub(crate) fn local() -> Self {
        Self { principal: Principal::local(), scopes: Arc::new(Scopes::all()) }
    }
}

impl Authenticator for LocalToken {
    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> Soon<'a, Verdict> {
        let known = credentials.bearer.is_some_and(|token| self.file.matches(token));
        Soon::now(if known { Verdict::Admit(self.identity.clone()) } else { Verdict::Pass })
    }
}

impl fmt::Debug for Credentials<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bearer = self.bearer.map(|_| "***");
        f.debug_struct("Credentials").field("bearer", &bearer).field("conn", &self.conn).finish()
    }
}
