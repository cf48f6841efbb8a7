//! How a view is made of offers: routes, profile and policy applied to each definition.
//!
//! Names are the ones clients see; the first of two equal names wins, in configuration order. Who has no prefix takes
//! neither what an earlier member's tool is also called, nor what begins like the names of another upstream: rules that
//! allow those mean that one. Only a route may give such a name.

use std::sync::{Arc, atomic::AtomicBool};

use moongate_config::{Config, Profile, Route};
use moongate_core::{CallError, Prompt, Raw, Scope, Tool, hash::Map};
use moongate_security::{
    gate::Admitted,
    policy::{self, Decision, Rules, Target},
};
use moongate_storage::Quota;
use moongate_telemetry::{Metrics, Transport};
use moongate_wire::Method;

use super::{
    Found, LIST_TTL, Offered, PromptEntry, ToolEntry, View, missing_scope,
    render::{definition, instructions, renamed, reserved_properties},
};
use crate::{
    downgrade::definition::wraps,
    extras::RouteExtras,
    list::{FacedList, List},
    member::Member,
    naming::{self, Naming},
};

/// Names of a clash that are logged; a server may offer thousands.
const MAX_LOGGED: usize = 8;

type Tools = Map<Arc<str>, Found<Arc<ToolEntry>>>;

/// What views are made with.
#[derive(Debug)]
pub struct Builder<'a> {
    /// Routes, profiles and limits.
    pub config: &'a Config,
    /// Who may do what.
    pub rules: &'a Rules,
    /// Where durations go.
    pub metrics: &'a Metrics,
    /// Who sees it.
    pub admitted: &'a Admitted,
    /// The profile's name; it must exist.
    pub profile: Option<&'a str>,
}

/// Definitions that are not shown, told once for all of them.
#[derive(Default)]
struct LeftOut {
    taken: Vec<String>,
    /// Names that begin like those of another upstream.
    foreign: Vec<String>,
    unusable: usize,
}

impl Builder<'_> {
    /// The view on `offers`.
    pub fn build(&self, offers: &[Offered]) -> View {
        let profile = self.profile.and_then(|name| self.config.profiles.get(name));
        let is_there = |offered: &&Offered| {
            in_profile(profile, &offered.member) && offered.member.callers.include(self.admitted.principal())
        };
        let offers: Vec<&Offered> = offers.iter().filter(is_there).collect();
        let mut left_out = LeftOut::default();
        let (tools, tool_list) = self.tools(&offers, profile, &mut left_out);
        let (mut prompts, mut prompt_list) = (Map::default(), Vec::new());
        let (mut resources, mut resource_list) = (Map::default(), Vec::new());
        let (mut templates, mut template_list) = (Vec::new(), Vec::new());
        let mut owners = Vec::new();
        for Offered { member, offer } in &offers {
            for prompt in &offer.prompts {
                let Some(entry) = self.prompt(prompt, member, profile) else { continue };
                if self.is_anothers(&entry.shown, member) {
                    left_out.foreign.push(format!("prompt {} of {}", entry.shown, member.name));
                    continue;
                }
                if prompts.contains_key(&entry.shown) {
                    left_out.taken.push(format!("prompt {} of {}", entry.shown, member.name));
                    continue;
                }
                prompt_list.push(renamed(&prompt.definition, &prompt.name, &entry.shown));
                prompts.insert(Arc::clone(&entry.shown), entry);
            }
            for resource in &offer.resources {
                let uri = &resource.uri;
                if self.shows_address(uri, member, profile) && !resources.contains_key(uri) {
                    resource_list.push(&resource.definition);
                    resources.insert(Arc::clone(uri), Arc::clone(member));
                }
            }
            for template in &offer.templates {
                let uri = &template.uri_template;
                if self.shows_address(uri, member, profile) {
                    template_list.push(&template.definition);
                    templates.push((Arc::clone(template), Arc::clone(member)));
                }
            }
            // Their addresses are formed by templates, so who may not see those has none of them.
            let shows_some = templates.last().is_some_and(|(_, last)| Arc::ptr_eq(last, member));
            if offer.has_own_resources && shows_some {
                owners.push(Arc::clone(member));
            }
        }
        left_out.tell();
        let upstreams = offers.iter().map(|offered| &offered.member).filter(|member| member.is_upstream);
        View {
            tools,
            tool_list,
            prompt_list: List::new("prompts", &prompt_list),
            resource_list: List::new("resources", resource_list),
            template_list: List::new("resourceTemplates", template_list),
            prompts,
            resources,
            templates,
            owners,
            upstreams: upstreams.cloned().collect(),
            patterns: profile.map(|profile| profile.resources.clone()),
            instructions: instructions(&offers),
            ttl: LIST_TTL,
            late: Vec::new(),
            missing: Vec::new(),
            generation: 0,
            outdated: AtomicBool::new(false),
            valid_until: None,
        }
    }

    /// Whether this caller sees the resource or template at `uri` of `member`.
    fn shows_address(&self, uri: &str, member: &Member, profile: Option<&Profile>) -> bool {
        profile.is_none_or(|profile| profile.resources.matches(uri))
            && !(member.is_upstream && naming::is_reserved(uri))
            && self.allows(policy::Kind::Resource, uri, uri, member)
    }

    /// Whether this caller may read `uri`, which `member` owns and nobody lists.
    pub fn allows_resource(&self, uri: &str, member: &Member) -> bool {
        self.allows(policy::Kind::Resource, uri, uri, member)
    }

    fn tools(
        &self,
        offers: &[&Offered],
        profile: Option<&Profile>,
        left_out: &mut LeftOut,
    ) -> (Tools, FacedList) {
        let (mut tools, mut listed) = (Map::default(), Vec::new());
        let mut aliases: Vec<(Arc<str>, Found<Arc<ToolEntry>>)> = Vec::new();
        for Offered { member, offer } in offers {
            // Of the members before this one; among its own, a name goes before an alias.
            let reserved = aliases.len();
            for tool in &offer.tools {
                if !naming::is_usable(&tool.name) {
                    left_out.unusable += 1;
                    continue;
                }
                let Some((shown, route)) = self.route(tool, member) else { continue };
                if !profile.is_none_or(|profile| profile.tools.matches(&shown)) {
                    continue;
                }
                let Some(found) = self.find(&shown, member, tool, route) else { continue };
                let given = route.is_some_and(|route| route.rename.is_some());
                if !given && self.is_anothers(&shown, member) {
                    left_out.foreign.push(format!("tool {shown} of {}", member.name));
                    continue;
                }
                let mut before = aliases.iter().take(reserved);
                if tools.contains_key(&shown) || (!given && before.any(|(alias, _)| *alias == shown)) {
                    left_out.taken.push(format!("tool {shown} of {}", member.name));
                    continue;
                }
                if let Found::Yes(entry) = &found {
                    listed.push(definition(entry, route));
                }
                aliases.extend(tool.aliases.iter().map(|alias| (Arc::clone(alias), found.clone())));
                tools.insert(shown, found);
            }
        }
        // An alias calls its tool under whatever name that is shown, unless a tool got the alias for a name.
        for (alias, found) in aliases {
            tools.entry(alias).or_insert(found);
        }
        (tools, FacedList::new("tools", listed))
    }

    /// What the caller finds under a tool's name; `None` when it is hidden.
    fn find(
        &self,
        shown: &Arc<str>,
        member: &Arc<Member>,
        tool: &Arc<Tool>,
        route: Option<&Route>,
    ) -> Option<Found<Arc<ToolEntry>>> {
        let by_route = route.and_then(|route| route.scope.as_deref());
        let scope = by_route.map_or_else(|| tool.scope.clone(), Scope::new);
        let hidden = route.is_some_and(|route| route.hide);
        match self.decide(policy::Kind::Tool, shown, member, &tool.name, &scope, hidden) {
            Decision::Hidden => None,
            Decision::NeedsScope(scope) => Some(Found::NeedsScope(scope)),
            Decision::Allow => Some(Found::Yes(Arc::new(self.entry(shown, shown, member, tool, route)))),
        }
    }

    /// What the caller finds under a name that nobody lists, if `member` takes such calls.
    ///
    /// # Errors
    /// `MissingScope` when the caller only lacks a scope.
    pub fn unlisted(&self, name: &str, member: &Arc<Member>) -> Option<Result<ToolEntry, CallError>> {
        let profile = self.profile.and_then(|name| self.config.profiles.get(name));
        let scope = member.unlisted.clone().filter(|_| in_profile(profile, member))?;
        if !naming::is_usable(name) || !profile.is_none_or(|profile| profile.tools.matches(name)) {
            return None;
        }
        let definition = Raw::empty_object();
        let (name, aliases, header_params): (Arc<str>, _, _) = (name.into(), Vec::new(), Vec::new());
        let tool = Arc::new(Tool { name: Arc::clone(&name), aliases, definition, scope, header_params });
        // A route may have given the name to another tool, or the tool another name.
        let (shown, route) = self.route(&tool, member).filter(|(shown, _)| *shown == name)?;
        if self.is_anothers(&shown, member) {
            return None;
        }
        let by_route = route.and_then(|route| route.scope.as_deref());
        let scope = by_route.map_or_else(|| tool.scope.clone(), Scope::new);
        let hidden = route.is_some_and(|route| route.hide);
        match self.decide(policy::Kind::Tool, &shown, member, &name, &scope, hidden) {
            Decision::Hidden => None,
            Decision::NeedsScope(scope) => Some(Err(missing_scope(&scope))),
            // Measured without its name: a caller could make up as many as it likes.
            Decision::Allow => Some(Ok(self.entry(&shown, Metrics::UNKNOWN_TOOL, member, &tool, route))),
        }
    }

    /// Whether `shown`, a name that `member` shows as it is, begins like the names of another upstream, there or not.
    fn is_anothers(&self, shown: &str, member: &Member) -> bool {
        let own = !member.is_upstream || member.naming != Naming::Bare || !shown.contains(naming::SEPARATOR);
        let mut others =
            self.config.upstreams.iter().filter(|other| other.enabled && *other.name != *member.name);
        !own && others.any(|other| {
            // Rules know a tool by both.
            let mut beginnings = other.prefix.as_str().into_iter().chain([&*other.name]);
            beginnings.any(|beginning| naming::is_behind(beginning, shown))
        })
    }

    /// The name clients see and the route that applies, if any. `None` when a rename took the tool's own name away.
    fn route(&self, tool: &Tool, member: &Member) -> Option<(Arc<str>, Option<&Route>)> {
        let routes = || {
            self.config
                .routes
                .iter()
                .filter(|route| route.upstream.as_deref().is_none_or(|name| *name == *member.name))
        };
        let renamed =
            routes().find(|route| route.rename.as_deref() == Some(&*tool.name) && route.upstream.is_some());
        if let Some(route) = renamed {
            return Some((route.pattern.exact()?.into(), Some(route)));
        }
        let shown = member.naming.shown(&tool.name);
        let route = routes().find(|route| route.rename.is_none() && route.pattern.matches(&shown));
        Some((shown, route))
    }

    fn entry(
        &self,
        shown: &Arc<str>,
        measured: &str,
        member: &Arc<Member>,
        tool: &Arc<Tool>,
        route: Option<&Route>,
    ) -> ToolEntry {
        let limits = &self.config.security.limits;
        let rate = route.and_then(|route| route.limit).unwrap_or_else(|| limits.of_tool(shown));
        let operation = |transport| self.metrics.operation(Method::CallTool.as_str(), measured, transport);
        ToolEntry {
            shown: Arc::clone(shown),
            canonical: canonical(member, &tool.name).into(),
            member: Arc::clone(member),
            tool: Arc::clone(tool),
            extras: RouteExtras::of(route),
            wraps: wraps(&tool.definition),
            timeout: route.and_then(|route| route.timeout).or(member.timeout),
            limit: rate.map(|rate| Quota { count: rate.count, per: rate.per.duration() }),
            declared: reserved_properties(&tool.definition),
            tcp: operation(Transport::Tcp),
            pipe: operation(Transport::Pipe),
        }
    }

    /// A prompt as the caller sees it, unless it does not.
    fn prompt(
        &self,
        prompt: &Arc<Prompt>,
        member: &Arc<Member>,
        profile: Option<&Profile>,
    ) -> Option<PromptEntry> {
        let shown = member.naming.shown(&prompt.name);
        let visible = profile.is_none_or(|profile| profile.prompts.matches(&shown))
            && self.allows(policy::Kind::Prompt, &shown, &prompt.name, member);
        visible.then(|| PromptEntry { shown, member: Arc::clone(member), prompt: Arc::clone(prompt) })
    }

    fn allows(&self, kind: policy::Kind, shown: &str, name: &str, member: &Member) -> bool {
        matches!(self.decide(kind, shown, member, name, &member.callers.scope(), false), Decision::Allow)
    }

    fn decide(
        &self,
        kind: policy::Kind,
        shown: &str,
        member: &Member,
        name: &str,
        scope: &Scope,
        hidden: bool,
    ) -> Decision {
        let canonical = canonical(member, name);
        let target = Target {
            kind,
            profile: self.profile,
            shown,
            canonical: &canonical,
            upstream: &member.name,
            scope,
            hidden,
        };
        policy::decide(self.admitted, &target, self.rules)
    }
}

impl LeftOut {
    fn tell(&self) {
        if self.unusable > 0 {
            let count = self.unusable;
            tracing::warn!(count, "tools whose names are empty or have blanks in them are left out");
        }
        if !self.foreign.is_empty() {
            let (count, first) =
                (self.foreign.len(), self.foreign.get(..MAX_LOGGED).unwrap_or(&self.foreign));
            tracing::warn!(count, names = ?first, "names that begin like those of another upstream are left out");
        }
        if !self.taken.is_empty() {
            let (count, first) = (self.taken.len(), self.taken.get(..MAX_LOGGED).unwrap_or(&self.taken));
            tracing::warn!(count, names = ?first, "names that are already offered are left out; the first is kept");
        }
    }
}

/// Whether `profile`, if there is one, reaches `member`.
pub(crate) fn in_profile(profile: Option<&Profile>, member: &Member) -> bool {
    profile.is_none_or(|profile| profile.upstreams.matches(&member.name))
}

/// `<backend>__<tool>`: the name that no route and no shortening changes.
fn canonical(member: &Member, name: &str) -> String {
    format!("{}{}{name}", member.name, naming::SEPARATOR)
}

#[cfg(test)]
mod tests;
