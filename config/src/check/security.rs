//! Scopes, limits and rules.

use std::{cell::RefCell, collections::BTreeSet};

use super::{Check, context::period, set};
use crate::{
    glob::{Glob, Patterns},
    load::read::{At, Entries, NonEmpty, OrOff, Place},
    model::security::{
        Effect, Limits, RawCondition, RawLimits, RawRule, RawSecurity, Rule, SCOPES, Security, ToolLimit,
        names::ScopeName,
    },
    units::Rate,
};

/// The scopes that exist.
pub(super) struct Scopes {
    known: RefCell<BTreeSet<String>>,
    /// Those that a message may list: a placeholder stands behind none of them.
    listed: BTreeSet<String>,
    /// Whether the file lists its own, so that any other name is a mistake.
    pub(super) closed: bool,
}

impl Scopes {
    pub(super) fn of(security: Option<&At<RawSecurity>>) -> Self {
        let defined = security.and_then(|security| security.value.scopes.as_ref());
        let names = || defined.iter().flat_map(|list| &list.value);
        let with = |names: &mut dyn Iterator<Item = &At<ScopeName>>| {
            SCOPES.into_iter().map(str::to_owned).chain(names.map(|name| name.value.0.clone())).collect()
        };
        Self {
            known: RefCell::new(with(&mut names())),
            listed: with(&mut names().filter(|name| !name.place.secret)),
            closed: defined.is_some(),
        }
    }

    /// The scope called `name`, which from now on exists, unless the file's own list says otherwise.
    pub(super) fn named(&self, name: At<ScopeName>, check: &mut Check<'_>) -> Option<String> {
        let name = At { value: name.value.0, place: name.place };
        let mut known = self.known.borrow_mut();
        if self.closed && !known.contains(&name.value) {
            check.unknown(&name, "scope", self.listed.iter().map(String::as_str));
            return None;
        }
        known.insert(name.value.clone());
        Some(name.value)
    }

    pub(super) fn into_known(self) -> BTreeSet<String> {
        self.known.into_inner()
    }
}

pub(super) fn security(raw: RawSecurity, scopes: &Scopes, security: &mut Security, check: &mut Check<'_>) {
    security.hosts = raw.hosts.into_iter().flat_map(|list| list.value).map(|host| host.value.0).collect();
    security.origins =
        raw.origins.into_iter().flat_map(|list| list.value).map(|origin| origin.value.0).collect();
    set(&mut security.token_file, raw.token_file);
    set(&mut security.key, raw.key);
    set(&mut security.anonymous, raw.anonymous);
    if let Some(list) = raw.anonymous_scopes {
        security.anonymous_scopes =
            list.value.into_iter().filter_map(|name| scopes.named(name, check)).collect();
    }
    check.section(raw.limits, |check, raw| limits(raw, &mut security.limits, check));
    check.section(raw.rules, |check, raw| security.rules = rules(raw, scopes, check));
    set(&mut security.default, raw.default);
}

fn limits(raw: RawLimits, limits: &mut Limits, check: &mut Check<'_>) {
    or_off(&mut limits.per_address, raw.per_address);
    or_off(&mut limits.per_principal, raw.per_principal);
    or_off(&mut limits.flood, raw.flood);
    or_off(&mut limits.connections, raw.connections);
    or_off(&mut limits.calls, raw.calls);
    or_off(&mut limits.sessions, raw.sessions);
    or_off(&mut limits.parked, raw.parked);
    check.section(raw.per_tool, |check, raw| limits.per_tool = per_tool(raw, check));
    let places = [&raw.call_timeout, &raw.max_timeout].map(|given| given.as_ref().map(|at| at.place.clone()));
    period(&mut limits.call_timeout, raw.call_timeout, check);
    period(&mut limits.max_timeout, raw.max_timeout, check);
    if limits.call_timeout > limits.max_timeout
        && let Some(place) = places.iter().flatten().next()
    {
        check.conflict(
            place,
            "`call_timeout` is longer than `max_timeout`",
            "a `call_timeout` up to `max_timeout`",
        );
    }
}

fn or_off<T>(target: &mut Option<T>, given: Option<At<OrOff<T>>>) {
    if let Some(given) = given {
        *target = given.value.0;
    }
}

fn per_tool(raw: Entries<OrOff<Rate>>, check: &mut Check<'_>) -> Vec<ToolLimit> {
    let limit = |(key, rate): (At<String>, At<OrOff<Rate>>)| match Glob::new(&key.value) {
        Ok(tools) => Some(ToolLimit { tools, rate: rate.value.0 }),
        Err(error) => {
            check.conflict(
                &key.place,
                format!("{} is not a pattern: {error}", key.place.found),
                "a pattern of tools",
            );
            None
        }
    };
    raw.0.into_iter().filter_map(limit).collect()
}

fn rules(raw: Vec<At<RawRule>>, scopes: &Scopes, check: &mut Check<'_>) -> Vec<Rule> {
    let mut rules = Vec::new();
    // The place of a rule that matches always: what comes after it never counts.
    let mut last: Option<Place> = None;
    for At { value, place } in raw {
        if let Some(last) = &last {
            check.conflict(
                &place,
                format!("this rule is never reached: {} always matches", last.path),
                "no rule here",
            );
        }
        if let Some(rule) = rule(value, &place, scopes, check) {
            let always = rule.scope.is_none() && rule.unless_scope.is_none();
            if always && rule.tools == Patterns::any() && rule.principals == Patterns::any() {
                last.get_or_insert(place);
            }
            rules.push(rule);
        }
    }
    rules
}

fn rule(raw: RawRule, place: &Place, scopes: &Scopes, check: &mut Check<'_>) -> Option<Rule> {
    let (effect, condition) = match (raw.allow, raw.deny) {
        (Some(condition), None) => (Effect::Allow, condition.value),
        (None, Some(condition)) => (Effect::Deny, condition.value),
        (None, None) => {
            check.conflict(place, "this rule neither allows nor denies", "`allow: {…}` or `deny: {…}`");
            return None;
        }
        (Some(_), Some(_)) => {
            check.conflict(place, "this rule both allows and denies", "two rules, one after the other");
            return None;
        }
    };
    Some(when(effect, condition, scopes, check))
}

fn when(effect: Effect, raw: RawCondition, scopes: &Scopes, check: &mut Check<'_>) -> Rule {
    Rule {
        effect,
        tools: patterns(raw.tools, check),
        principals: patterns(raw.principals, check),
        scope: raw.scope.and_then(|name| scopes.named(name, check)),
        unless_scope: raw.unless_scope.and_then(|name| scopes.named(name, check)),
    }
}

/// Patterns of which one has to match; without any, everything does.
pub(super) fn patterns(given: Option<At<NonEmpty<Glob>>>, check: &mut Check<'_>) -> Patterns {
    let Some(At { value: NonEmpty(globs), .. }) = given else { return Patterns::any() };
    let mut seen = BTreeSet::new();
    for glob in &globs {
        if !seen.insert(glob.value.as_str()) {
            check.conflict(&glob.place, format!("{} is listed twice", glob.place.found), "each pattern once");
        }
    }
    globs.into_iter().map(|glob| glob.value).collect()
}
