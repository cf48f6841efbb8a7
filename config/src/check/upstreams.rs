//! Upstreams: whether an entry is one thing, and whether all of them go together.

use std::collections::BTreeMap;

use super::{
    Check,
    context::{call_timeout, period},
    security::Scopes,
};
use crate::{
    load::read::{At, Entries, Given, Place},
    model::{
        Config,
        upstreams::{LIST_TIMEOUT, MAX_MESSAGE, NAME, Prefix, RawUpstream, SCOPE, Upstream, check_name},
    },
    units::Size,
};

mod reach;

/// Less could not hold a list of tools; more could not be held in memory for many callers.
const MESSAGE: std::ops::RangeInclusive<Size> = Size(64 << 10)..=Size(256 << 20);

/// What other upstreams, routes and profiles have to know of an upstream, even of one with problems.
pub(super) struct Known {
    pub(super) name: At<String>,
    pub(super) enabled: bool,
    prefix: At<Prefix>,
    /// Where it says that it takes what is unlisted, if it does.
    forwards: Option<Place>,
}

/// Checks every upstream, then all of them together.
pub(super) fn upstreams(
    raw: Entries<Given<RawUpstream>>,
    scopes: &Scopes,
    config: &mut Config,
    check: &mut Check<'_>,
) -> Vec<Known> {
    let mut all = Vec::new();
    for (name, At { value: Given(raw), .. }) in raw.0 {
        if let Err(why) = check_name(&name.value) {
            check.conflict(&name.place, format!("{} {why}", name.place.found), NAME);
        }
        let known = Known::of(name, raw.as_ref().unwrap_or(&RawUpstream::default()));
        let upstream = raw.and_then(|raw| upstream(raw, &known, scopes, config, check));
        config.upstreams.extend(upstream);
        all.push(known);
    }
    together(&all, check);
    all
}

impl Known {
    fn of(name: At<String>, raw: &RawUpstream) -> Self {
        let own = || At { value: Prefix::Name(name.value.clone()), place: name.place.clone() };
        Self {
            enabled: raw.enabled.as_ref().is_none_or(|enabled| enabled.value),
            prefix: raw.prefix.clone().unwrap_or_else(own),
            forwards: raw.forward_unlisted.as_ref().filter(|at| at.value).map(|at| at.place.clone()),
            name,
        }
    }
}

/// Those that are enabled, one against the other.
fn together(all: &[Known], check: &mut Check<'_>) {
    let enabled = || all.iter().filter(|known| known.enabled);
    let mut prefixes: BTreeMap<&str, &Known> = BTreeMap::new();
    let mut forwards: Option<&Known> = None;
    for known in enabled() {
        let place = &known.prefix.place;
        if let Some(prefix) = known.prefix.value.as_str() {
            if let Some(first) = prefixes.get(prefix) {
                let message = format!("{} is the prefix of {} too", place.found, first.name.place.found);
                check.conflict(place, message, "a prefix of its own for each upstream");
            } else if prefix != known.name.value
                && enabled()
                    .any(|other| other.name.value == prefix && other.prefix.value.as_str() != Some(prefix))
            {
                // Rules look at shown and at canonical names: one name would mean two tools.
                let message = format!("{} is the name of another upstream", place.found);
                check.conflict(place, message, "a prefix that names no other upstream");
            }
            prefixes.entry(prefix).or_insert(known);
        }
        if let Some(place) = &known.forwards {
            if known.prefix.value != Prefix::None {
                check.conflict(place, "`forward_unlisted` needs bare names", "`prefix: none` beside it");
            } else if let Some(first) = forwards {
                let message = format!("{} forwards what is unlisted already", first.name.place.found);
                check.conflict(place, message, "at most one upstream with `forward_unlisted`");
            } else {
                forwards = Some(known);
            }
        }
    }
}

fn upstream(
    mut raw: RawUpstream,
    known: &Known,
    scopes: &Scopes,
    config: &Config,
    check: &mut Check<'_>,
) -> Option<Upstream> {
    let reach = reach::reach(&mut raw, &known.name, check);
    let max_timeout = config.security.limits.max_timeout;
    let mut list_timeout = LIST_TIMEOUT;
    period(&mut list_timeout, raw.list_timeout, check);
    let scope = raw.scope.and_then(|name| scopes.named(name, check));
    let timeout = raw.timeout.and_then(|timeout| call_timeout(&timeout, max_timeout, check));
    let max_message = max_message(raw.max_message, check);
    Some(Upstream {
        name: known.name.value.clone(),
        enabled: known.enabled,
        reach: reach?,
        era: raw.era.map(|era| era.value).unwrap_or_default(),
        prefix: known.prefix.value.clone(),
        scope: scope.unwrap_or_else(|| SCOPE.to_owned()),
        timeout,
        list_timeout,
        roots: raw.roots.map(|list| list.value.into_iter().map(|root| root.value.0).collect()),
        forward_unlisted: known.forwards.is_some(),
        max_message,
        instructions: raw.instructions.is_none_or(|instructions| instructions.value),
    })
}

fn max_message(given: Option<At<Size>>, check: &mut Check<'_>) -> usize {
    let Some(At { value, place }) = given else { return MAX_MESSAGE };
    match usize::try_from(value.0) {
        Ok(bytes) if MESSAGE.contains(&value) => bytes,
        _ => {
            let expected = format!("a size from {} to {}", MESSAGE.start(), MESSAGE.end());
            check.conflict(&place, format!("{} is too small or too large", place.found), expected);
            MAX_MESSAGE
        }
    }
}
