//! Who could reach the gateway, and whether that is too many.
//!
//! Apart from the rest, because the command line may still change the address after the file was checked.

use super::Check;
use crate::{
    load::read::Place,
    model::{Config, RawConfig, upstreams::Reach},
};

/// Why a configuration must not be served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The key it is about.
    pub path: &'static str,
    /// What is wrong, in one clause.
    pub message: &'static str,
    /// What would be right.
    pub expected: &'static str,
}

impl Config {
    /// Why this configuration would let in callers that nobody meant; empty if it may be served.
    ///
    /// [`load`](crate::load) has asked this already. It is to be asked again after an address was changed.
    pub fn refusals(&self) -> Vec<Refusal> {
        let mut refusals = Vec::new();
        let mut refuse = |path, message, expected| refusals.push(Refusal { path, message, expected });
        let local = self.server.listen.is_loopback();
        let insecure = self.server.allow_insecure;
        if !local && self.server.tls.is_none() && !insecure {
            refuse(
                "server.listen",
                "this address can be reached from elsewhere, and tokens would travel in the clear",
                "`server.tls`, a loopback address, or `server.allow_insecure: true`",
            );
        }
        if self.admin.enabled && !self.admin.listen.is_loopback() && !insecure {
            refuse(
                "admin.listen",
                "this address can be reached from elsewhere, and the admin listener has no TLS",
                "a loopback address, or `server.allow_insecure: true`",
            );
        }
        if self.security.anonymous && !local {
            refuse(
                "security.anonymous",
                "`server.listen` can be reached from elsewhere, and callers would need no token",
                "`false`, or a loopback address for `server.listen`",
            );
        }
        if self.security.anonymous && !self.server.trusted_proxies.is_empty() {
            refuse(
                "security.anonymous",
                "callers behind `server.trusted_proxies` come from elsewhere, and would need no token",
                "`false`, or no `server.trusted_proxies`",
            );
        }
        let public = self.server.public_url.as_ref().is_some_and(|url| !url.is_loopback());
        if self.security.anonymous && local && public && !insecure {
            refuse(
                "security.anonymous",
                "callers of `server.public_url` would need no token",
                "`false`, no `server.public_url`, or `server.allow_insecure: true`",
            );
        }
        refusals
    }

    /// What an operator should hear at every start.
    pub fn warnings(&self) -> Vec<String> {
        let mut warnings = Vec::new();
        let exposed = !self.server.listen.is_loopback() && self.server.tls.is_none();
        if exposed {
            warnings
                .push(format!("listening on {} without TLS: tokens travel in the clear", self.server.listen));
        }
        if !self.server.listen.is_loopback() && !self.has_name() {
            warnings.push(format!(
                "every request to {} will be refused: neither `server.public_url` nor `security.hosts` names it",
                self.server.listen
            ));
        }
        if self.admin.enabled && !self.admin.listen.is_loopback() {
            warnings
                .push(format!("the admin listener on {} can be reached from elsewhere", self.admin.listen));
        }
        for upstream in self.upstreams.iter().filter(|upstream| upstream.enabled) {
            if let Reach::Remote(remote) = &upstream.reach
                && remote.url.is_exposed()
            {
                let name = &upstream.name;
                warnings.push(format!(
                    "the upstream `{name}` is reached without TLS: what is sent can be read on the way"
                ));
            }
        }
        if self.security.anonymous {
            let scopes =
                self.security.anonymous_scopes.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
            warnings.push(format!("callers without a token are let in, with the scopes: {scopes}"));
        }
        warnings
    }

    /// Whether there is a `Host` under which others than this machine may call.
    fn has_name(&self) -> bool {
        self.server.public_url.is_some() || !self.security.hosts.is_empty()
    }
}

/// Where the keys stand that a refusal may be about. None of their defaults is ever refused.
pub(super) struct Places {
    listen: Option<Place>,
    admin: Option<Place>,
    anonymous: Option<Place>,
}

impl Places {
    pub(super) fn of(raw: &RawConfig) -> Self {
        let listen = raw.server.as_ref().and_then(|server| server.value.listen.as_ref());
        let admin = raw.admin.as_ref().and_then(|admin| admin.value.listen.as_ref());
        let anonymous = raw.security.as_ref().and_then(|security| security.value.anonymous.as_ref());
        Self {
            listen: listen.map(|at| at.place.clone()),
            admin: admin.map(|at| at.place.clone()),
            anonymous: anonymous.map(|at| at.place.clone()),
        }
    }
}

pub(super) fn report(config: &Config, places: &Places, check: &mut Check<'_>) {
    for refusal in config.refusals() {
        let place = match refusal.path {
            "server.listen" => &places.listen,
            "admin.listen" => &places.admin,
            _ => &places.anonymous,
        };
        if let Some(place) = place {
            check.conflict(place, refusal.message, refusal.expected);
        }
    }
}
