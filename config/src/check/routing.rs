//! Routes and profiles: whether what they name is there.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Check,
    security::{Scopes, patterns},
};
use crate::{
    glob::Glob,
    load::read::{At, Entries, NonEmpty, Place},
    model::{
        Config,
        routing::{Profile, RawProfile, RawRoute, Route},
    },
    units::Period,
};

/// What routes and profiles are checked against.
pub(super) struct Routing<'a> {
    pub(super) scopes: &'a Scopes,
    pub(super) config: &'a mut Config,
}

impl Routing<'_> {
    pub(super) fn routes(&mut self, raw: Vec<At<RawRoute>>, check: &mut Check<'_>) {
        let mut seen: BTreeMap<String, Place> = BTreeMap::new();
        for At { mut value, place } in raw {
            let Some(pattern) = value.r#match.take() else {
                check.missing(&place, "match");
                continue;
            };
            if let Some(first) = seen.get(pattern.value.as_str()) {
                let message = format!("this route is never reached: {} matches the same", first.path);
                check.conflict(&pattern.place, message, "one route for each pattern");
            }
            seen.entry(pattern.value.as_str().to_owned()).or_insert_with(|| place.clone());
            let route = self.route(pattern, value, &place, check);
            self.config.routes.push(route);
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
        Route {
            upstream: raw.upstream.and_then(|name| self.backend(name, check)),
            rename: raw.rename.map(|name| name.value.0),
            description: raw.description.map(|text| text.value),
            scope: raw.scope.and_then(|name| self.scopes.named(name, check)),
            limit: raw.limit.map(|limit| limit.value.0),
            timeout: raw.timeout.and_then(|timeout| self.timeout(&timeout, check)),
            hide: raw.hide.is_some_and(|hide| hide.value),
            pattern: pattern.value,
        }
    }

    fn timeout(&self, given: &At<Period>, check: &mut Check<'_>) -> Option<Duration> {
        let (Period(timeout), place) = (given.value, &given.place);
        let max = self.config.security.limits.max_timeout;
        if timeout.is_zero() {
            check.conflict(place, format!("{} is no time at all", place.found), "more than zero");
            return None;
        }
        if timeout > max {
            let message = format!("{} is longer than `security.limits.max_timeout`", place.found);
            check.conflict(place, message, "a shorter time, or a longer `max_timeout`");
        }
        Some(timeout)
    }

    /// The name of a backend that is there.
    fn backend(&self, name: At<String>, check: &mut Check<'_>) -> Option<String> {
        let backends = &self.config.backends;
        match backends.get(&name.value) {
            Some(backend) if backend.enabled => Some(name.value),
            Some(_) => {
                let message = format!("the backend {} is not enabled", name.place.found);
                check.conflict(&name.place, message, "a backend that is enabled");
                None
            }
            None => {
                let known = backends.iter().map(|(name, _)| name).collect::<Vec<_>>();
                check.unknown(&name, "backend", known.into_iter());
                None
            }
        }
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
        let name = self.backend(name, check)?;
        Glob::new(&name).ok().map(|value| At { value, place })
    }
}

fn is_segment(name: &str) -> bool {
    let good = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_';
    (1..=64).contains(&name.len()) && name.bytes().all(good)
}
