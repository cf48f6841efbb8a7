//! The names under which clients see a server's tools, told from the configuration alone.
//!
//! The gateway decides that in its views, for each caller; this is for people who ask which tool is whose.

use std::sync::Arc;

use moongate_config::{Config, Route, Upstream};
use moongate_proxy::Naming;

use crate::find;

/// A tool of a server as clients see it, unless something hides it.
#[derive(Clone, Debug)]
pub(crate) struct Shown<'a> {
    /// The server.
    pub upstream: &'a str,
    /// What the server calls it.
    pub tool: &'a str,
    /// What clients call it.
    pub name: Arc<str>,
    /// What they would call it without a route that renames it.
    pub usual: Arc<str>,
    /// The route that applies.
    pub route: Option<&'a Route>,
}

/// Every tool that `upstreams` offer under `config`, in the order in which the first of two equal names wins.
pub(crate) fn all<'a>(config: &'a Config, upstreams: &'a [find::Upstream]) -> Vec<Shown<'a>> {
    let enabled = config.upstreams.iter().filter(|upstream| upstream.enabled);
    let known = enabled.filter_map(|upstream| {
        let seen = upstreams.iter().find(|seen| seen.name == upstream.name)?;
        Some((upstream, seen))
    });
    known.flat_map(|(upstream, seen)| seen.tools.iter().map(|tool| one(config, upstream, tool))).collect()
}

/// What clients call `tool` of `upstream`.
pub(crate) fn one<'a>(config: &'a Config, upstream: &'a Upstream, tool: &'a str) -> Shown<'a> {
    let usual = usual(upstream, tool);
    let mut routes = config
        .routes
        .iter()
        .filter(|route| route.upstream.as_deref().is_none_or(|name| name == upstream.name));
    let renamed = routes
        .clone()
        .find(|route| route.upstream.is_some() && route.rename.as_deref() == Some(tool))
        .and_then(|route| Some((route, route.pattern.exact()?)));
    let (name, route) = match renamed {
        Some((route, name)) => (name.into(), Some(route)),
        None => {
            (Arc::clone(&usual), routes.find(|route| route.rename.is_none() && route.pattern.matches(&usual)))
        }
    };
    Shown { upstream: &upstream.name, tool, name, usual, route }
}

fn usual(upstream: &Upstream, tool: &str) -> Arc<str> {
    let naming = upstream.prefix.as_str().map_or(Naming::Bare, |prefix| Naming::Prefixed(prefix.into()));
    naming.shown(&tool.into())
}
