//! The one way in: Host, Origin, token.
//!
//! [`Admitted`] has private fields and is made in this file only. What comes later takes an `&Admitted`, so a route
//! that skips the gate does not compile. The rates of an admitted caller are handed on, not counted here: that happens
//! together with the session's check, in one step. Only a wrong token is counted at once.

use std::{fmt, net::IpAddr, sync::Arc};

use ipnet::IpNet;
use moongate_core::{Principal, Scopes};
use moongate_storage::{Entry, Quota, Rate, State};

use crate::{
    Authenticator, Authority, Credentials, Denied, Flaw, Identity, Knock, Origin, Verdict,
    address::{client_address, is_forwarded},
    knock::Bearer,
    limit,
    origin::{Cors, cors},
};

/// What the configuration says about who gets in.
#[derive(Clone, Debug, Default)]
pub struct Settings {
    /// Names under which this gateway may be called, besides the local ones on a loopback listener.
    pub hosts: Vec<Authority>,
    /// Pages that may call, besides local ones.
    pub origins: Vec<Origin>,
    /// The host of the public address: one more allowed host.
    pub public_host: Option<Authority>,
    /// What callers of this machine may do without a token; `None` when they may not even enter.
    pub anonymous: Option<Scopes>,
    /// How often one address may call.
    pub per_address: Option<Quota>,
    /// How often one principal may call.
    pub per_principal: Option<Quota>,
    /// Proxies that are believed about who is behind them.
    pub trusted_proxies: Vec<IpNet>,
}

/// Decides who gets in. Built anew for a new configuration.
pub struct Gate {
    settings: Settings,
    anonymous: Option<Identity>,
    authenticators: Vec<Arc<dyn Authenticator>>,
    state: Arc<dyn State>,
}

/// A caller that passed the gate.
#[derive(Clone, Debug)]
pub struct Admitted {
    identity: Identity,
    address: IpAddr,
    rates: Rates,
}

/// The rates of one caller. Made for every request, so never more than these, and without an allocation.
#[derive(Clone, Copy, Debug, Default)]
enum Rates {
    #[default]
    None,
    One([Rate; 1]),
    Both([Rate; 2]),
}

impl Admitted {
    /// Who it is.
    pub fn principal(&self) -> &Principal {
        &self.identity.principal
    }

    /// What it may do.
    pub fn scopes(&self) -> &Arc<Scopes> {
        &self.identity.scopes
    }

    /// Where it calls from: behind a trusted proxy the client's own address, for a stdio caller the loopback address.
    pub fn address(&self) -> IpAddr {
        self.address
    }

    /// What its call is to be counted against, once, when it enters.
    pub fn rates(&self) -> &[Rate] {
        match &self.rates {
            Rates::None => &[],
            Rates::One(one) => one,
            Rates::Both(both) => both,
        }
    }
}

impl Gate {
    /// A gate that asks `authenticators` in order and counts wrong tokens in `state`.
    pub fn new(
        settings: Settings,
        authenticators: Vec<Arc<dyn Authenticator>>,
        state: Arc<dyn State>,
    ) -> Self {
        let anonymous = settings
            .anonymous
            .clone()
            .map(|scopes| Identity { principal: Principal::anonymous(), scopes: Arc::new(scopes) });
        Self { settings, anonymous, authenticators, state }
    }

    /// Lets a request in, or says why not: Host, then Origin, then token.
    ///
    /// # Cancel safety
    /// Cancel safe; a wrong token may or may not have been counted.
    pub async fn admit(&self, knock: &Knock<'_>) -> Result<Admitted, Denied> {
        self.check_site(knock)?;
        if knock.token_in_query() {
            return Err(Denied::token_in_query());
        }
        let address = client_address(knock.conn.address, knock.headers, &self.settings.trusted_proxies);
        let identity = match knock.bearer() {
            Bearer::Several => return Err(Denied::token_ambiguous()),
            // Whoever meant to present something is not let in as nobody.
            Bearer::Unusable => return Err(Denied::token_missing()),
            Bearer::Token(token) => {
                let credentials = Credentials { bearer: Some(token), conn: Some(knock.conn) };
                match self.ask(&credentials).await {
                    Err(denied) if denied.reason == crate::Reason::TokenInvalid => {
                        return Err(self.count_failure(address).await.unwrap_or(denied));
                    }
                    other => other?,
                }
            }
            Bearer::Absent => {
                let credentials = Credentials { bearer: None, conn: Some(knock.conn) };
                match self.ask(&credentials).await {
                    Err(denied) if denied.reason == crate::Reason::TokenMissing => {
                        self.nobody(knock, address).ok_or(denied)?
                    }
                    other => other?,
                }
            }
        };
        Ok(self.welcome(identity, Some(address)))
    }

    /// Checks Host and Origin alone, for what needs no token: a preflight, health, metadata. Answers what the request's
    /// Origin means, for [`reflect`](crate::origin::reflect) and [`answer_preflight`](crate::origin::answer_preflight).
    pub fn check_site<'a>(&self, knock: &Knock<'a>) -> Result<Cors<'a>, Denied> {
        let host = knock.host().ok_or_else(Denied::ambiguous_host)?;
        let host: Authority = host.parse().map_err(|_| Denied::host())?;
        let local = knock.conn.loopback_listener && host.is_local();
        let mut listed = self.settings.hosts.iter().chain(&self.settings.public_host);
        if !local && !listed.any(|entry| entry.covers(&host)) {
            return Err(Denied::host());
        }
        match cors(knock.shown.origin, &self.settings.origins) {
            Cors::Refused => Err(Denied::origin()),
            decision => Ok(decision),
        }
    }

    /// Lets the caller on the other end of a pipe in: the user itself, or, with a token, whoever that token names. A
    /// pipe has no address, so only the principal's rate counts.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn admit_local(&self, token: Option<&str>) -> Result<Admitted, Denied> {
        let identity = match token {
            None => Identity::local(),
            Some(token) => self.ask(&Credentials { bearer: Some(token), conn: None }).await?,
        };
        Ok(self.welcome(identity, None))
    }

    async fn ask(&self, credentials: &Credentials<'_>) -> Result<Identity, Denied> {
        for authenticator in &self.authenticators {
            match authenticator.authenticate(credentials).await {
                Verdict::Admit(identity) => return Ok(identity),
                Verdict::Pass => {}
                Verdict::Refuse(flaw) => return Err(Denied::token_invalid(flaw)),
                Verdict::Fail(error) => {
                    let error: &(dyn std::error::Error + 'static) = &error;
                    tracing::error!(error, "a token cannot be checked");
                    return Err(Denied::unavailable());
                }
            }
        }
        match credentials.bearer {
            Some(_) => Err(Denied::token_invalid(Flaw::Foreign)),
            None => Err(Denied::token_missing()),
        }
    }

    /// Who a caller without a token is, where such callers are let in: those of this machine, and nobody who came by way
    /// of a proxy on it. A proxy that nobody told us about gives itself away by what it says of the caller.
    fn nobody(&self, knock: &Knock<'_>, address: IpAddr) -> Option<Identity> {
        let here = address.is_loopback() && !is_forwarded(knock.headers);
        self.anonymous.clone().filter(|_| here)
    }

    /// Counts a wrong token against its address. A refusal when the address has no more tries.
    ///
    /// Only this is counted before a caller is known. Requests without a token, or refused by Host or Origin, are not:
    /// any web page could send those from the user's own machine, and use up the user's rate.
    async fn count_failure(&self, address: IpAddr) -> Option<Denied> {
        let rate = limit::failed_token_rate(address, self.settings.per_address?);
        match self.state.enter(None, &[rate]).await {
            Ok(Entry::Limited { retry_after }) => Some(Denied::rate_limited(retry_after)),
            Ok(Entry::Welcome(_) | Entry::NoSession) => None,
            Err(error) => {
                let error: &(dyn std::error::Error + 'static) = &error;
                tracing::error!(error, "a wrong token could not be counted");
                None
            }
        }
    }

    fn welcome(&self, identity: Identity, address: Option<IpAddr>) -> Admitted {
        let Settings { per_address, per_principal, .. } = &self.settings;
        let by_address = per_address.zip(address).map(|(quota, address)| limit::address_rate(address, quota));
        let by_principal = per_principal.map(|quota| limit::principal_rate(&identity.principal, quota));
        let rates = match (by_address, by_principal) {
            (None, None) => Rates::None,
            (Some(one), None) | (None, Some(one)) => Rates::One([one]),
            (Some(address), Some(principal)) => Rates::Both([address, principal]),
        };
        Admitted { identity, address: address.unwrap_or(IpAddr::from([127, 0, 0, 1])), rates }
    }
}

impl fmt::Debug for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gate").field("settings", &self.settings).finish_non_exhaustive()
    }
}

#[cfg(test)]
pub(crate) mod tests;
