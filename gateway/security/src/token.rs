//! Tokens that this gateway issues: scoped, limited in time, revocable.
//!
//! A token proves itself by its signature; the store only lists what was issued and what was revoked. The command line
//! revokes in another process than the one that serves, so a running gateway asks the store about every token it sees,
//! and remembers each answer for a second.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use moongate_core::{Clock, Principal, Scopes, Soon};
use moongate_storage::{Batch, Kind, Put, Revision, Row, Rows, Store, store::Stores};
use serde::{Deserialize, Serialize};
use tokio::time::Instant;

use crate::{
    Authenticator, Credentials, Error, Flaw, Identity, Keyring, Secret, Verdict,
    secret::{hex, random},
};

/// Longest subject of a token.
pub const MAX_SUBJECT: usize = 256;
/// Longest life of a token.
pub const MAX_YEARS: u64 = 10;

const MAX_LIFETIME: Duration = Duration::from_secs(MAX_YEARS * 366 * 24 * 3600);
/// How long a revocation by another process may stay unnoticed.
const REMEMBERED: Duration = Duration::from_secs(1);
/// So many answers may be out of date before they are cleared away.
const STALE_ANSWERS: usize = 1024;
const PAGE: usize = 500;

const ISSUED: Kind = Kind("issued");
const REVOCATION: Kind = Kind("revocation");

/// What a token says.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Claims {
    /// Whom it was issued to.
    pub sub: String,
    /// What its holder may do.
    pub scopes: Scopes,
    /// When it ends, in seconds since 1970: at that second it is no longer good.
    pub exp: u64,
    /// When it was issued, in seconds since 1970.
    pub iat: u64,
    /// Its id, by which it is revoked.
    pub jti: String,
}

/// A new token.
#[derive(Clone, Debug)]
pub struct Issued {
    /// The token itself. It is not kept anywhere: whoever asked for it must.
    pub token: Secret,
    /// What it says.
    pub claims: Claims,
}

/// A token on the list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Listed {
    /// What it says.
    pub claims: Claims,
    /// Whether it was revoked.
    pub revoked: bool,
}

/// The tokens that this gateway issues and accepts.
pub struct IssuedTokens {
    keyring: Arc<Keyring>,
    store: Arc<dyn Store>,
    clock: Clock,
    /// By token id: when the store was asked, and whether the token is revoked. Only verified tokens get here, so
    /// nobody can fill it with inventions.
    answers: Mutex<HashMap<String, (Instant, bool)>>,
}

impl IssuedTokens {
    /// The tokens signed by `keyring` and listed among the gateway's own rows.
    pub fn new(keyring: Arc<Keyring>, stores: &dyn Stores, clock: Clock) -> Self {
        Self { keyring, store: stores.own(), clock, answers: Mutex::default() }
    }

    /// Signs a token for `subject` and puts it on the list.
    ///
    /// # Cancel safety
    /// A dropped future may leave a token on the list that nobody holds.
    pub async fn issue(&self, subject: &str, scopes: Scopes, lifetime: Duration) -> Result<Issued, Error> {
        if subject.is_empty() || subject.len() > MAX_SUBJECT || subject.chars().any(char::is_control) {
            return Err(Error::BadSubject);
        }
        if lifetime < Duration::from_secs(1) || lifetime > MAX_LIFETIME {
            return Err(Error::BadLifetime);
        }
        let iat = self.now();
        let jti = hex(&*random::<8>());
        let claims = Claims { sub: subject.to_owned(), scopes, exp: iat + lifetime.as_secs(), iat, jti };
        self.put(ISSUED, &claims, encode(&claims), Some(Revision(0))).await?;
        Ok(Issued { token: self.keyring.sign(&claims), claims })
    }

    /// The tokens that were issued and have not ended, by id.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn list(&self) -> Result<Vec<Listed>, Error> {
        let mut listed = Vec::new();
        let mut after: Option<String> = None;
        loop {
            let rows = Rows { after: after.as_deref(), limit: PAGE };
            let page = self.store.scan(ISSUED, rows).await.map_err(Error::Storage)?;
            let full = page.len() == PAGE;
            after = page.last().map(|row| row.key.clone());
            for row in &page {
                let claims = decode(row)?;
                listed.push(Listed { revoked: self.is_revoked_in_store(&row.key).await?, claims });
            }
            if !full {
                return Ok(listed);
            }
        }
    }

    /// Revokes the token with this id, for good. False when no such token is on the list.
    ///
    /// # Cancel safety
    /// Dropping the future leaves the token revoked or not.
    pub async fn revoke(&self, id: &str) -> Result<bool, Error> {
        let Some(row) = self.store.get(ISSUED, id).await.map_err(Error::Storage)? else { return Ok(false) };
        let claims = decode(&row)?;
        let revocation = serde_json::json!({ "at": self.now() }).to_string().into_bytes();
        self.put(REVOCATION, &claims, revocation, None).await?;
        self.answers().remove(id);
        Ok(true)
    }

    /// Both kinds of row go by themselves when the token ends: from then on its age refuses it.
    async fn put(
        &self,
        kind: Kind,
        claims: &Claims,
        body: Vec<u8>,
        expected: Option<Revision>,
    ) -> Result<(), Error> {
        let expires = Some(claims.exp.saturating_mul(1000));
        let put = Put { kind, key: claims.jti.clone(), body, expires, expected };
        self.store.commit(Batch { puts: vec![put], ..Batch::default() }).await.map_err(Error::Storage)?;
        Ok(())
    }

    async fn check(&self, token: &str) -> Verdict {
        let claims: Claims = match self.keyring.verify(token) {
            Ok(claims) => claims,
            Err(Flaw::Foreign) => return Verdict::Pass,
            Err(flaw) => return Verdict::Refuse(flaw),
        };
        if claims.exp <= self.now() {
            return Verdict::Refuse(Flaw::Expired);
        }
        match self.is_revoked(&claims.jti).await {
            Ok(true) => Verdict::Refuse(Flaw::Revoked),
            Ok(false) => Verdict::Admit(Identity {
                principal: Principal::issued(&claims.sub),
                scopes: Arc::new(claims.scopes),
            }),
            Err(error) => Verdict::Fail(error),
        }
    }

    async fn is_revoked(&self, id: &str) -> Result<bool, Error> {
        let remembered = self.answers().get(id).copied();
        if let Some((asked, revoked)) = remembered
            && (revoked || asked.elapsed() < REMEMBERED)
        {
            return Ok(revoked);
        }
        let asked = Instant::now();
        let revoked = self.is_revoked_in_store(id).await?;
        let mut answers = self.answers();
        if answers.len() >= STALE_ANSWERS {
            answers.retain(|_, (asked, _)| asked.elapsed() < REMEMBERED);
        }
        answers.insert(id.to_owned(), (asked, revoked));
        Ok(revoked)
    }

    async fn is_revoked_in_store(&self, id: &str) -> Result<bool, Error> {
        let row = self.store.get(REVOCATION, id).await.map_err(Error::Storage)?;
        Ok(row.is_some())
    }

    fn answers(&self) -> std::sync::MutexGuard<'_, HashMap<String, (Instant, bool)>> {
        self.answers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Seconds since 1970.
    fn now(&self) -> u64 {
        self.clock.millis() / 1000
    }
}

impl Authenticator for IssuedTokens {
    fn authenticate<'a>(&'a self, credentials: &'a Credentials<'a>) -> Soon<'a, Verdict> {
        match credentials.bearer {
            Some(token) => Soon::later(self.check(token)),
            None => Soon::now(Verdict::Pass),
        }
    }
}

impl std::fmt::Debug for IssuedTokens {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("IssuedTokens").field("keyring", &self.keyring).finish_non_exhaustive()
    }
}

fn encode(claims: &Claims) -> Vec<u8> {
    serde_json::to_vec(claims).expect("plain claims always serialise")
}

fn decode(row: &Row) -> Result<Claims, Error> {
    serde_json::from_slice(&row.body)
        .map_err(|error| Error::Storage(moongate_storage::Error::Corrupt(error.into())))
}

#[cfg(test)]
mod tests;
