//! From the configuration's words to those of the guard: who gets in, how often, and what is allowed.
//!
//! Plain translation. The configuration was checked before, so what cannot be translated is an error of the program,
//! told with the value that caused it.

use std::sync::Arc;

use anyhow::Context as _;
use moongate_config::{Config, Effect, Patterns};
use moongate_core::{Scope, Scopes};
use moongate_security::{
    Authenticator, Authority, Gate, Settings,
    policy::{self, Pattern, Rule, Rules},
};
use moongate_storage::{Quota, State};

/// The gate of `config`.
pub(crate) fn gate(
    config: &Config,
    authenticators: Vec<Arc<dyn Authenticator>>,
    state: Arc<dyn State>,
) -> anyhow::Result<Gate> {
    let (security, server) = (&config.security, &config.server);
    let hosts = security.hosts.iter().map(|host| host.parse().with_context(|| format!("host {host:?}")));
    // Every address of 127.0.0.0/8 is this machine; one that the listener was put on by name is called by it.
    let own = server.listen.is_loopback().then(|| Authority::from(server.listen.address));
    let origins =
        security.origins.iter().map(|origin| origin.parse().with_context(|| format!("origin {origin:?}")));
    let public_host = server.public_url.as_ref().map(|url| url.authority.parse::<Authority>()).transpose()?;
    let settings = Settings {
        hosts: hosts.chain(own.map(Ok)).collect::<anyhow::Result<_>>()?,
        origins: origins.collect::<anyhow::Result<_>>()?,
        public_host,
        anonymous: security.anonymous.then(|| scopes(&security.anonymous_scopes)),
        per_address: security.limits.per_address.map(quota),
        per_principal: security.limits.per_principal.map(quota),
        trusted_proxies: server.trusted_proxies.clone(),
    };
    Ok(Gate::new(settings, authenticators, state))
}

/// The rules of `config`, in their order.
pub(crate) fn rules(config: &Config) -> Rules {
    let security = &config.security;
    let rule = |rule: &moongate_config::Rule| Rule {
        effect: effect(rule.effect),
        principals: patterns(&rule.principals),
        tools: patterns(&rule.tools),
        scope: rule.scope.as_deref().map(Scope::new),
        unless_scope: rule.unless_scope.as_deref().map(Scope::new),
    };
    Rules { rules: security.rules.iter().map(rule).collect(), default: effect(security.default) }
}

fn scopes(names: impl IntoIterator<Item = impl AsRef<str>>) -> Scopes {
    names.into_iter().map(|name| Scope::new(name.as_ref())).collect()
}

fn effect(effect: Effect) -> policy::Effect {
    match effect {
        Effect::Allow => policy::Effect::Allow,
        Effect::Deny => policy::Effect::Deny,
    }
}

/// None for "everything", which to the guard means prompts and resources too.
fn patterns(patterns: &Patterns) -> Vec<Pattern> {
    if *patterns == Patterns::any() {
        return Vec::new();
    }
    let pattern = |glob: &moongate_config::Glob| {
        let glob = glob.clone();
        Pattern::new(glob.clone().as_str(), move |name| glob.matches(name))
    };
    patterns.iter().map(pattern).collect()
}

fn quota(rate: moongate_config::Rate) -> Quota {
    Quota { count: rate.count, per: rate.per.duration() }
}

#[cfg(test)]
mod tests {
    use moongate_storage::{MemoryOptions, MemoryState};

    use super::*;

    fn config(yaml: &str) -> Config {
        let absent = |_: &std::path::Path| Err(std::io::ErrorKind::NotFound.into());
        moongate_config::load(yaml, "moongate.yaml".as_ref(), &|_| None, &absent).unwrap().config
    }

    #[test]
    fn every_checked_host_and_origin_is_one_for_the_gate() {
        let config = config(
            "server: {public_url: \"https://mcp.example.com/x\", trusted_proxies: [10.0.0.0/8]}\n\
             security: {hosts: [gate.example.com, \"gate.example.com:8443\"], origins: [\"https://ide.example.com\"]}\n",
        );
        let state = Arc::new(MemoryState::new(MemoryOptions::default()));
        let gate = format!("{:?}", gate(&config, Vec::new(), state).unwrap());
        for part in ["gate.example.com", "8443", "ide.example.com", "mcp.example.com", "10.0.0.0/8"] {
            assert!(gate.contains(part), "{part} is missing in {gate}");
        }
    }

    #[test]
    fn a_loopback_listener_may_be_called_by_its_address() {
        let state = Arc::new(MemoryState::new(MemoryOptions::default()));
        for (yaml, named) in [
            ("server: {listen: 127.0.0.5:1}", "127.0.0.5"),
            ("server: {listen: 10.0.0.5:1, allow_insecure: true}", ""),
        ] {
            let gate = format!("{:?}", gate(&config(yaml), Vec::new(), state.clone()).unwrap());
            assert!(gate.contains(named) && !gate.contains("10.0.0.5"), "{gate}");
        }
    }

    #[test]
    fn rules_keep_order_and_patterns() {
        let config = config(
            "security:\n  default: deny\n  rules:\n\
             \x20   - deny: {tools: [\"*_delete_*\"], unless_scope: admin}\n\
             \x20   - allow: {scope: read}\n",
        );
        let rules = rules(&config);
        assert_eq!(rules.default, policy::Effect::Deny);
        let [first, second] = &rules.rules[..] else { panic!("{rules:?}") };
        assert_eq!(first.effect, policy::Effect::Deny);
        assert!(first.tools[0].matches("a_delete_b") && !first.tools[0].matches("delete"));
        assert_eq!(first.unless_scope, Some(Scope::new("admin")));
        assert!(second.tools.is_empty() && second.principals.is_empty(), "not named means everything");
    }
}
