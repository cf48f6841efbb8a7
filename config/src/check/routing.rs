//! Routes and profiles: whether what they name is there.

use std::collections::BTreeMap;

use super::{
    Check,
    context::call_timeout,
    security::{Scopes, patterns},
    upstreams::Known,
};
use crate::{
    glob::Glob,
    load::read::{At, Entries, Json, NonEmpty, Place},
    model::{
        Config,
        routing::{Cache, Profile, RawProfile, RawRoute, RawRouteArgs, Route, RouteArgs},
    },
    units::Period,
};

/// What routes and profiles are checked against.
pub(super) struct Routing<'a> {
    pub(super) scopes: &'a Scopes,
    pub(super) upstreams: &'a [Known],
    pub(super) config: &'a mut Config,
}

impl Routing<'_> {
    pub(super) fn routes(&mut self, raw: Vec<At<RawRoute>>, check: &mut Check<'_>) {
        let mut seen: BTreeMap<(Option<String>, String), Place> = BTreeMap::new();
        for At { mut value, place } in raw {
            let Some(pattern) = value.r#match.take() else {
                check.missing(&place, "match");
                continue;
            };
            // Tools and resources are matched apart, and resources of each upstream too.
            let upstream = value.upstream.as_ref().map_or("", |name| &name.value);
            let of = value.cache.as_ref().map(|_| upstream.to_owned());
            let key = (of, pattern.value.as_str().to_owned());
            if let Some(first) = seen.get(&key) {
                let message = format!("this route is never reached: {} matches the same", first.path);
                check.conflict(&pattern.place, message, "one route for each pattern");
            }
            seen.entry(key).or_insert_with(|| place.clone());
            if let Some(period) = value.cache.take() {
                let cache = self.cache(pattern, &period, value, check);
                self.config.caches.push(cache);
            } else {
                let route = self.route(pattern, value, &place, check);
                self.config.routes.push(route);
            }
        }
    }

    fn route(&self, pattern: At<Glob>, raw: RawRoute, place: &Place, check: &mut Check<'_>) -> Route {
        if let Some(rename) = &raw.rename {
            if pattern.value.exact().is_none() {
                let message =
                    format!("`rename` needs an exact `match`, and {} is a pattern", pattern.place.found);
                check.conflict(&rename.place, message, "a `match` without `*` and `?`");
            }
            if raw.upstream.is_none() {
                check.missing(place, "upstream");
            }
        }
        let max_timeout = self.config.security.limits.max_timeout;
        Route {
            upstream: raw.upstream.and_then(|name| self.named(name, check)),
            rename: raw.rename.map(|name| name.value.0),
            description: raw.description.map(|text| text.value),
            scope: raw.scope.and_then(|name| self.scopes.named(name, check)),
            limit: raw.limit.map(|limit| limit.value.0),
            timeout: raw.timeout.and_then(|timeout| call_timeout(&timeout, max_timeout, check)),
            args: raw.args.map(|raw| Self::arguments(raw.value, check)).unwrap_or_default(),
            context: raw.context.map(|context| context.value).unwrap_or_default(),
            hide: raw.hide.is_some_and(|hide| hide.value),
            pattern: pattern.value,
        }
    }

    /// A route for resources: nothing that is said about tools fits it.
    fn cache(&self, pattern: At<Glob>, period: &At<Period>, raw: RawRoute, check: &mut Check<'_>) -> Cache {
        if period.value.0.is_zero() {
            let message = format!("{} keeps nothing", period.place.found);
            check.conflict(&period.place, message, "a longer duration, or a route without `cache`");
        }
        let RawRoute {
            r#match: _,
            upstream,
            rename,
            description,
            scope,
            limit,
            timeout,
            args,
            context,
            hide,
            cache: _,
        } = raw;
        let others = [
            ("rename", rename.map(|given| given.place)),
            ("description", description.map(|given| given.place)),
            ("scope", scope.map(|given| given.place)),
            ("limit", limit.map(|given| given.place)),
            ("timeout", timeout.map(|given| given.place)),
            ("args", args.map(|given| given.place)),
            ("context", context.map(|given| given.place)),
            ("hide", hide.map(|given| given.place)),
        ];
        for (key, place) in others {
            let Some(place) = place else { continue };
            let message = format!("`{key}` is about tools, and with `cache` a route is about resources");
            check.conflict(&place, message, "a route of its own for the tools");
        }
        let upstream = upstream.and_then(|name| {
            let place = name.place.clone();
            let name = self.named(name, check)?;
            if !self.upstreams.iter().any(|known| known.name.value == name) {
                let message = format!("{} is built in, and what is read there is never kept", place.found);
                check.conflict(&place, message, "one of `upstreams`");
            }
            Some(name)
        });
        Cache { pattern: pattern.value, upstream, keep: period.value.0 }
    }

    /// The name of an upstream or a built-in backend that is there.
    fn named(&self, name: At<String>, check: &mut Check<'_>) -> Option<String> {
        let backends = self.config.backends.iter().map(|(name, backend)| (name, backend.enabled));
        let upstreams = self.upstreams.iter().map(|known| (known.name.value.as_str(), known.enabled));
        let all = backends.chain(upstreams).collect::<Vec<_>>();
        match all.iter().find(|(known, _)| *known == name.value) {
            Some((_, true)) => Some(name.value),
            Some((_, false)) => {
                let message = format!("{} is not enabled", name.place.found);
                check.conflict(&name.place, message, "an upstream or a backend that is enabled");
                None
            }
            None => {
                check.unknown(&name, "upstream", all.iter().map(|(known, _)| *known));
                None
            }
        }
    }

    /// What is done to the arguments of a call: at most one thing to each.
    fn arguments(raw: RawRouteArgs, check: &mut Check<'_>) -> RouteArgs {
        let mut seen: BTreeMap<String, String> = BTreeMap::new();
        let mut fits = |name: &str, place: &Place| {
            if name.starts_with("__") {
                let message = format!("{} is reserved for context fields", place.found);
                check.conflict(place, message, "a name that does not begin with `__`");
            }
            if let Some(first) = seen.insert(name.to_owned(), place.path.clone()) {
                let message = format!("{} is at {first} already", place.found);
                check.conflict(place, message, "each name in one of `set`, `default` and `remove`");
            }
        };
        let mut members = |given: Option<At<Entries<Json>>>| {
            let entries = given.into_iter().flat_map(|entries| entries.value.0);
            let member = |(name, value): (At<String>, At<Json>)| {
                fits(&name.value, &name.place);
                (name.value, value.value.0)
            };
            entries.map(member).collect()
        };
        let (set, default) = (members(raw.set), members(raw.default));
        let remove = raw.remove.into_iter().flat_map(|names| names.value);
        let name = |name: At<String>| {
            fits(&name.value, &name.place);
            name.value
        };
        RouteArgs { set, default, remove: remove.map(name).collect() }
    }

    pub(super) fn profiles(&mut self, raw: Entries<RawProfile>, check: &mut Check<'_>) {
        for (name, profile) in raw.0 {
            if !is_segment(&name.value) {
                let message = format!("{} cannot be part of a path", name.place.found);
                check.conflict(&name.place, message, "1 to 64 letters, digits, `-` and `_`");
            }
            let profile = self.profile(profile.value, check);
            self.config.profiles.insert(name.value, profile);
        }
    }

    fn profile(&self, raw: RawProfile, check: &mut Check<'_>) -> Profile {
        let upstreams = raw.upstreams.map(|At { value, place }| At {
            value: NonEmpty(value.0.into_iter().filter_map(|name| self.upstream(name, check)).collect()),
            place,
        });
        Profile {
            upstreams: patterns(upstreams, check),
            tools: patterns(raw.tools, check),
            prompts: patterns(raw.prompts, check),
            resources: patterns(raw.resources, check),
        }
    }

    fn upstream(&self, name: At<String>, check: &mut Check<'_>) -> Option<At<Glob>> {
        let place = name.place.clone();
        let name = self.named(name, check)?;
        Glob::new(&name).ok().map(|value| At { value, place })
    }
}

fn is_segment(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(good)
}
