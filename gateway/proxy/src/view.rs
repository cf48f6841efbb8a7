//! What one caller sees: names resolved to backends, lists rendered.
//!
//! A pure function of offers, configuration and identity. Names are the ones clients see; the first of two equal names
//! wins, in configuration order. What a rule hides is unknown here; what only lacks a scope is known but refused, so that
//! a client can ask for the scope.

use std::{sync::Arc, time::Duration};

use moongate_config::{Config, Patterns, Profile, Route};
use moongate_core::{CallError, Kind, Offer, Prompt, Scope, Template, Tool, hash::Map};
use moongate_security::{
    gate::Admitted,
    policy::{self, Decision, Rules, Target},
};
use moongate_storage::Quota;
use moongate_telemetry::{Metrics, Operation, Transport};
use moongate_wire::{Method, Raw, write};
use tokio::time::Instant;

use crate::{catalog::Member, list::List};

/// How long a list is good when its backends do not say and announce changes.
const LIST_TTL: Duration = Duration::from_mins(1);

/// A backend and what it offers this caller.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Who.
    pub member: Member,
    /// What.
    pub offer: Arc<Offer>,
}

/// A tool as this caller sees and reaches it.
#[derive(Debug)]
pub struct ToolEntry {
    /// The name clients see.
    pub shown: Arc<str>,
    /// `<backend>__<tool>`: the name that stays when a route renames the tool.
    pub canonical: Arc<str>,
    /// The backend.
    pub member: Member,
    /// The tool there.
    pub tool: Arc<Tool>,
    /// The longest a call may take, if a route says.
    pub timeout: Option<Duration>,
    /// How often it may be called by one principal.
    pub limit: Option<Quota>,
    /// `__*` properties that the tool's own schema declares; such arguments stay.
    declared: Vec<String>,
    /// Where its durations go, by transport.
    tcp: Operation,
    pipe: Operation,
}

impl ToolEntry {
    /// Whether the tool's own schema declares the argument `name`.
    pub fn declares(&self, name: &str) -> bool {
        self.declared.iter().any(|declared| declared == name)
    }

    /// Where this tool's durations go.
    pub fn operation(&self, transport: Transport) -> &Operation {
        match transport {
            Transport::Tcp => &self.tcp,
            Transport::Pipe => &self.pipe,
        }
    }
}

/// What a name stands for, for this caller.
#[derive(Clone, Debug)]
enum Found<T> {
    Yes(T),
    NeedsScope(Scope),
}

/// What one caller sees.
#[derive(Debug)]
pub struct View {
    tools: Map<Arc<str>, Found<Arc<ToolEntry>>>,
    prompts: Map<Arc<str>, (Member, Arc<Prompt>)>,
    resources: Map<Arc<str>, Member>,
    templates: Vec<(Arc<Template>, Member)>,
    /// The resources the profile shows, if there is one.
    patterns: Option<Patterns>,
    /// `tools/list`
    pub tool_list: List,
    /// `prompts/list`
    pub prompt_list: List,
    /// `resources/list`
    pub resource_list: List,
    /// `resources/templates/list`
    pub template_list: List,
    /// What `initialize` and `server/discover` tell the model.
    pub instructions: Option<String>,
    /// How long the lists stay good.
    pub ttl: Duration,
    generation: u64,
    valid_until: Option<Instant>,
}

impl View {
    /// The view of `admitted` on `offers` under `profile`, which must exist in `config`.
    pub fn build(
        offers: &[Offered],
        config: &Config,
        rules: &Rules,
        admitted: &Admitted,
        profile: Option<&Arc<str>>,
        metrics: &Metrics,
    ) -> Self {
        let builder = Builder { config, rules, admitted, profile_name: profile.map(|name| &**name), metrics };
        let profile = profile.and_then(|name| config.profiles.get(&**name));
        builder.build(offers, profile)
    }

    /// The same view, good until the catalog's generation changes or an offer's time is up.
    #[must_use]
    pub fn valid_for(mut self, generation: u64, offers: &[Offered]) -> Self {
        let ttl = offers.iter().filter_map(|offered| offered.offer.ttl).min();
        self.generation = generation;
        self.valid_until = ttl.map(|ttl| Instant::now() + ttl);
        self
    }

    /// Whether it may still be used.
    pub fn is_valid(&self, generation: u64, now: impl FnOnce() -> Instant) -> bool {
        self.generation == generation && self.valid_until.is_none_or(|until| now() < until)
    }

    /// The tool called `name`, by its shown name or an alias.
    ///
    /// # Errors
    /// `Unknown`, or `MissingScope` when the caller only lacks a scope.
    pub fn tool(&self, name: &str) -> Result<&Arc<ToolEntry>, CallError> {
        match self.tools.get(name) {
            Some(Found::Yes(entry)) => Ok(entry),
            Some(Found::NeedsScope(scope)) => Err(missing_scope(scope)),
            None => Err(CallError::client(Kind::Unknown, format!("Unknown tool: {name}"))),
        }
    }

    /// The names of the tools this caller may call.
    pub fn shown(&self) -> impl Iterator<Item = &str> {
        self.tools.values().filter_map(|found| match found {
            Found::Yes(entry) => Some(&*entry.shown),
            Found::NeedsScope(_) => None,
        })
    }

    /// The prompt called `name`.
    ///
    /// # Errors
    /// `Unknown`.
    pub fn prompt(&self, name: &str) -> Result<&(Member, Arc<Prompt>), CallError> {
        let unknown = || CallError::client(Kind::Unknown, format!("Unknown prompt: {name}"));
        self.prompts.get(name).ok_or_else(unknown)
    }

    /// The backend that owns `uri`: the one that lists it, else the first with a template for it.
    ///
    /// # Errors
    /// `UnknownResource`.
    pub fn resource(&self, uri: &str) -> Result<&Member, CallError> {
        // What the profile keeps from the list must not come in through a template.
        let shown = self.patterns.as_ref().is_none_or(|patterns| patterns.matches(uri));
        let by_template = || {
            let mut templates = self.templates.iter().filter(|_| shown);
            templates.find(|(template, _)| template.matches(uri)).map(|(_, member)| member)
        };
        self.resources.get(uri).or_else(by_template).ok_or_else(|| CallError::unknown_resource(uri))
    }

    /// The backend that owns a template.
    pub fn template(&self, uri_template: &str) -> Option<&Member> {
        self.templates
            .iter()
            .find(|(known, _)| *known.uri_template == *uri_template)
            .map(|(_, member)| member)
    }
}

/// The error for a caller that lacks `scope`.
pub fn missing_scope(scope: &Scope) -> CallError {
    CallError::client(
        Kind::MissingScope { scope: scope.clone() },
        format!("Forbidden: insufficient scope; this needs {scope}"),
    )
}

struct Builder<'a> {
    config: &'a Config,
    rules: &'a Rules,
    admitted: &'a Admitted,
    profile_name: Option<&'a str>,
    metrics: &'a Metrics,
}

impl Builder<'_> {
    fn build(&self, offers: &[Offered], profile: Option<&Profile>) -> View {
        let in_profile = |offered: &&Offered| {
            profile.is_none_or(|profile| profile.upstreams.matches(&offered.member.name))
        };
        let offers: Vec<&Offered> = offers.iter().filter(in_profile).collect();
        let (tools, tool_list) = self.tools(&offers, profile);
        let (mut prompts, mut prompt_list) = (Map::default(), Vec::new());
        let (mut resources, mut resource_list) = (Map::default(), Vec::new());
        let (mut templates, mut template_list) = (Vec::new(), Vec::new());
        for Offered { member, offer } in &offers {
            for prompt in &offer.prompts {
                let shown = profile.is_none_or(|profile| profile.prompts.matches(&prompt.name));
                if shown
                    && self.allows(policy::Kind::Prompt, &prompt.name, member)
                    && !prompts.contains_key(&prompt.name)
                {
                    prompt_list.push(&prompt.definition);
                    prompts.insert(Arc::clone(&prompt.name), (member.clone(), Arc::clone(prompt)));
                }
            }
            for resource in &offer.resources {
                let shown = profile.is_none_or(|profile| profile.resources.matches(&resource.uri));
                if shown
                    && self.allows(policy::Kind::Resource, &resource.uri, member)
                    && !resources.contains_key(&resource.uri)
                {
                    resource_list.push(&resource.definition);
                    resources.insert(Arc::clone(&resource.uri), member.clone());
                }
            }
            for template in &offer.templates {
                let shown = profile.is_none_or(|profile| profile.resources.matches(&template.uri_template));
                if shown && self.allows(policy::Kind::Resource, &template.uri_template, member) {
                    template_list.push(&template.definition);
                    templates.push((Arc::clone(template), member.clone()));
                }
            }
        }
        View {
            tools,
            tool_list,
            prompt_list: List::new("prompts", prompt_list),
            resource_list: List::new("resources", resource_list),
            template_list: List::new("resourceTemplates", template_list),
            prompts,
            resources,
            templates,
            patterns: profile.map(|profile| profile.resources.clone()),
            instructions: instructions(&offers),
            ttl: offers.iter().filter_map(|offered| offered.offer.ttl).min().unwrap_or(LIST_TTL),
            generation: 0,
            valid_until: None,
        }
    }

    fn tools(
        &self,
        offers: &[&Offered],
        profile: Option<&Profile>,
    ) -> (Map<Arc<str>, Found<Arc<ToolEntry>>>, List) {
        let (mut tools, mut listed, mut aliases) = (Map::default(), Vec::new(), Vec::new());
        for offered in offers {
            for tool in &offered.offer.tools {
                let Some((shown, route)) = self.route(tool, &offered.member) else { continue };
                if !profile.is_none_or(|profile| profile.tools.matches(&shown)) {
                    continue;
                }
                let Some(found) = self.find(&shown, &offered.member, tool, route) else { continue };
                if tools.contains_key(&shown) {
                    let upstream = &*offered.member.name;
                    tracing::warn!(tool = %shown, upstream, "a tool of that name is already offered; the first is kept");
                    continue;
                }
                if matches!(found, Found::Yes(_)) {
                    listed.push(definition(tool, &shown, route));
                }
                aliases.extend(tool.aliases.iter().map(|alias| (Arc::clone(alias), found.clone())));
                tools.insert(shown, found);
            }
        }
        // An alias calls its tool under whatever name that is shown, unless a tool has the alias for a name.
        for (alias, found) in aliases {
            tools.entry(alias).or_insert(found);
        }
        let list = List::new("tools", &listed);
        (tools, list)
    }

    /// What the caller finds under a tool's name; `None` when it is hidden.
    fn find(
        &self,
        shown: &Arc<str>,
        member: &Member,
        tool: &Arc<Tool>,
        route: Option<&Route>,
    ) -> Option<Found<Arc<ToolEntry>>> {
        let by_route = route.and_then(|route| route.scope.as_deref());
        let scope = by_route.map_or_else(|| tool.scope.clone(), Scope::new);
        let hidden = route.is_some_and(|route| route.hide);
        match self.decide(policy::Kind::Tool, shown, member, &tool.name, &scope, hidden) {
            Decision::Hidden => None,
            Decision::NeedsScope(scope) => Some(Found::NeedsScope(scope)),
            Decision::Allow => Some(Found::Yes(Arc::new(self.entry(shown, member, tool, route)))),
        }
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
        let route = routes().find(|route| route.rename.is_none() && route.pattern.matches(&tool.name));
        Some((Arc::clone(&tool.name), route))
    }

    fn entry(&self, shown: &Arc<str>, member: &Member, tool: &Arc<Tool>, route: Option<&Route>) -> ToolEntry {
        let limits = &self.config.security.limits;
        let rate = route.and_then(|route| route.limit).unwrap_or_else(|| limits.of_tool(shown));
        let operation = |transport| self.metrics.operation(Method::CallTool.as_str(), shown, transport);
        ToolEntry {
            shown: Arc::clone(shown),
            canonical: format!("{}__{}", member.name, tool.name).into(),
            member: member.clone(),
            tool: Arc::clone(tool),
            timeout: route.and_then(|route| route.timeout),
            limit: rate.map(|rate| Quota { count: rate.count, per: rate.per.duration() }),
            declared: reserved_properties(&tool.definition),
            tcp: operation(Transport::Tcp),
            pipe: operation(Transport::Pipe),
        }
    }

    fn allows(&self, kind: policy::Kind, name: &str, member: &Member) -> bool {
        matches!(self.decide(kind, name, member, name, &Scope::read(), false), Decision::Allow)
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
        let canonical = format!("{}__{name}", member.name);
        let target = Target {
            kind,
            profile: self.profile_name,
            shown,
            canonical: &canonical,
            upstream: &member.name,
            scope,
            hidden,
        };
        policy::decide(self.admitted, &target, self.rules)
    }
}

/// The definition as it is listed: byte for byte the backend's, unless a route changes name or description.
fn definition(tool: &Tool, shown: &Arc<str>, route: Option<&Route>) -> Raw {
    let clean = crate::context::clean_schema(&tool.definition);
    let description = route.and_then(|route| route.description.as_deref());
    if *shown == tool.name && description.is_none() {
        return clean;
    }
    let members = clean.members();
    let described = members.iter().any(|(key, _)| key == "description");
    let added = description.filter(|_| !described).map(|text| ("description".to_owned(), Raw::of(text)));
    let replaced: Vec<(String, Raw)> = members
        .into_iter()
        .map(|(key, value)| match (key.as_str(), description) {
            ("name", _) => (key, Raw::of(&**shown)),
            ("description", Some(description)) => (key, Raw::of(description)),
            _ => (key, value),
        })
        .chain(added)
        .collect();
    write::object(replaced.iter().map(|(key, value)| (key.as_str(), value)))
}

/// Top-level arguments with a leading `__` that a tool declares for itself, the gateway's own excepted.
fn reserved_properties(definition: &Raw) -> Vec<String> {
    let properties = definition.member("inputSchema").and_then(|schema| schema.member("properties"));
    let names = properties
        .map(|properties| properties.members())
        .unwrap_or_default()
        .into_iter()
        .map(|(name, _)| name);
    names
        .filter(|name| name.starts_with("__") && !crate::context::RESERVED.contains(&name.as_str()))
        .collect()
}

fn instructions(offers: &[&Offered]) -> Option<String> {
    let parts: Vec<String> = offers
        .iter()
        .filter_map(|offered| {
            offered.offer.instructions.as_ref().map(|text| format!("## {}\n{text}", offered.member.name))
        })
        .collect();
    (!parts.is_empty()).then(|| parts.join("\n\n"))
}
