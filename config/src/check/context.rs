//! Sessions and context.

use std::time::Duration;

use super::{Check, set};
use crate::{
    load::read::{At, Place},
    model::context::{Context, RawContext, RawSessions, RawTrust, Sessions, Source, Trust},
    units::Period,
};

pub(super) fn sessions(raw: RawSessions, check: &mut Check<'_>) -> Sessions {
    let mut sessions = Sessions::default();
    period(&mut sessions.idle_timeout, raw.idle_timeout, check);
    period(&mut sessions.sweep_interval, raw.sweep_interval, check);
    set(&mut sessions.expired_status, raw.expired_status);
    if let Some(At { value, place }) = raw.poll_after {
        sessions.poll_after = value.0.and_then(|period| more_than_zero(period, &place, check));
    }
    sessions
}

pub(super) fn context(raw: RawContext, check: &mut Check<'_>) -> Context {
    let mut context = Context::default();
    period(&mut context.state_ttl, raw.state_ttl, check);
    period(&mut context.sweep_interval, raw.sweep_interval, check);
    set(&mut context.eviction, raw.eviction);
    set(&mut context.lru_max, raw.lru_max);
    set(&mut context.require_assistant, raw.require_assistant);
    set(&mut context.durable_session, raw.durable_session);
    if let Some(name) = raw.default_session {
        context.default_session = name.value.0.into();
    }
    if let Some(raw) = raw.trust {
        context.trust = trust(raw.value);
    }
    context
}

/// A duration that must not be zero, if one is given.
pub(super) fn period(target: &mut Duration, given: Option<At<Period>>, check: &mut Check<'_>) {
    if let Some(At { value, place }) = given {
        *target = more_than_zero(value, &place, check).unwrap_or(*target);
    }
}

/// A duration that must not be zero: timers would never rest, and everything would be over as it begins.
pub(super) fn more_than_zero(
    Period(given): Period,
    place: &Place,
    check: &mut Check<'_>,
) -> Option<Duration> {
    if given.is_zero() {
        check.conflict(place, format!("{} is no time at all", place.found), "more than zero");
        return None;
    }
    Some(given)
}

/// How long calls may take: more than no time, and no longer than `max`, that of any call.
pub(super) fn call_timeout(given: &At<Period>, max: Duration, check: &mut Check<'_>) -> Option<Duration> {
    let place = &given.place;
    let timeout = more_than_zero(given.value, place, check)?;
    if timeout > max {
        let message = format!("{} is longer than `security.limits.max_timeout`", place.found);
        check.conflict(place, message, "a shorter time, or a longer `max_timeout`");
    }
    Some(timeout)
}

fn trust(raw: RawTrust) -> Trust {
    let mut trust = Trust::default();
    let sources = |list: At<Vec<At<Source>>>| list.value.into_iter().map(|source| source.value).collect();
    for (target, given) in [
        (&mut trust.local, raw.local),
        (&mut trust.issued, raw.issued),
        (&mut trust.anonymous, raw.anonymous),
    ] {
        if let Some(list) = given {
            *target = sources(list);
        }
    }
    trust
}
