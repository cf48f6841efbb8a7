//! Whether a caller may see and use a thing.
//!
//! One pure function for lists, calls, reads, completions and subscriptions alike, asked before any cache: what is not
//! allowed is not listed, and what is not listed cannot be called under any of its names.

use std::{fmt, sync::Arc};

use moongate_core::{Principal, Scope};

use crate::Admitted;

/// What sort of thing is asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// A tool.
    Tool,
    /// A prompt.
    Prompt,
    /// A resource or a template.
    Resource,
    /// A completion for a prompt or a template.
    Completion,
    /// A subscription to a resource.
    Subscription,
}

/// The thing that is asked for.
#[derive(Clone, Copy, Debug)]
pub struct Target<'a> {
    /// What sort of thing.
    pub kind: Kind,
    /// The profile of the path it is asked for on.
    pub profile: Option<&'a str>,
    /// Its name, or a resource's URI, as this client sees it.
    pub shown: &'a str,
    /// Its name whatever routes and profiles make of it: `<upstream>__<tool>`.
    pub canonical: &'a str,
    /// Who offers it.
    pub upstream: &'a str,
    /// The scope it needs.
    pub scope: &'a Scope,
    /// Whether a route hides it.
    pub hidden: bool,
}

/// What [`decide`] says.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// Go on.
    Allow,
    /// Answer as if it did not exist.
    Hidden,
    /// It would be allowed to a caller with this scope: say so, so that the client can ask for it.
    NeedsScope(Scope),
}

/// The configured rules.
#[derive(Clone, Debug)]
pub struct Rules {
    /// In order: the first that matches a name decides about it.
    pub rules: Vec<Rule>,
    /// What holds when none matches.
    pub default: Effect,
}

/// One rule. It matches when everything it names does.
#[derive(Clone, Debug)]
pub struct Rule {
    /// What follows from a match.
    pub effect: Effect,
    /// Principals by their text; none named means all.
    pub principals: Vec<Pattern>,
    /// Tools by name; none named means everything, prompts and resources included.
    pub tools: Vec<Pattern>,
    /// Only for callers with this scope.
    pub scope: Option<Scope>,
    /// Only for callers without this scope.
    pub unless_scope: Option<Scope>,
}

/// What a rule does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Lets pass; the thing's own scope is still needed.
    Allow,
    /// Hides.
    Deny,
}

/// A test for names. The configuration's globs become these; this crate knows no syntax.
#[derive(Clone)]
pub struct Pattern {
    text: Arc<str>,
    matches: Arc<dyn Fn(&str) -> bool + Send + Sync>,
}

impl Pattern {
    /// A test written as `text`.
    pub fn new(text: &str, matches: impl Fn(&str) -> bool + Send + Sync + 'static) -> Self {
        Self { text: text.into(), matches: Arc::new(matches) }
    }

    /// Exactly this name.
    pub fn exact(name: &str) -> Self {
        let expected: Arc<str> = name.into();
        Self { text: Arc::clone(&expected), matches: Arc::new(move |given| *given == *expected) }
    }

    /// Whether `name` passes.
    pub fn matches(&self, name: &str) -> bool {
        (self.matches)(name)
    }
}

impl fmt::Debug for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&self.text, f)
    }
}

impl Default for Rules {
    /// No rules: scopes alone decide.
    fn default() -> Self {
        Self { rules: Vec::new(), default: Effect::Allow }
    }
}

/// Whether this caller may see and use `target`.
pub fn decide(admitted: &Admitted, target: &Target<'_>, rules: &Rules) -> Decision {
    if target.hidden || rules.effect(admitted, target) == Effect::Deny {
        return Decision::Hidden;
    }
    if admitted.scopes().allow(target.scope) {
        Decision::Allow
    } else {
        Decision::NeedsScope(target.scope.clone())
    }
}

impl Rules {
    /// Each of the two names finds its first rule. A deny on either denies, so no alias leads around a rule; an allow on
    /// either is enough otherwise, so a rename does not fall out of one.
    fn effect(&self, admitted: &Admitted, target: &Target<'_>) -> Effect {
        let first = |name| self.rules.iter().find(|rule| rule.matches(admitted, target.kind, name));
        let effects = [target.shown, target.canonical].map(|name| first(name).map(|rule| rule.effect));
        if effects.contains(&Some(Effect::Deny)) {
            return Effect::Deny;
        }
        if effects.contains(&Some(Effect::Allow)) { Effect::Allow } else { self.default }
    }
}

impl Rule {
    fn matches(&self, admitted: &Admitted, kind: Kind, name: &str) -> bool {
        let held = |scope: &Scope| admitted.scopes().allow(scope);
        self.names(admitted.principal())
            && self.scope.as_ref().is_none_or(held)
            && !self.unless_scope.as_ref().is_some_and(held)
            && (self.tools.is_empty()
                || kind == Kind::Tool && self.tools.iter().any(|tool| tool.matches(name)))
    }

    fn names(&self, principal: &Principal) -> bool {
        self.principals.is_empty()
            || self.principals.iter().any(|pattern| pattern.matches(principal.as_str()))
    }
}

#[cfg(test)]
mod tests;
