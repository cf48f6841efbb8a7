//! What one caller sees: names resolved to backends, lists rendered.
//!
//! A pure function of offers, configuration and identity, made by a [`Builder`]. What a rule hides is unknown here; what only
//! lacks a scope is known but refused, so that a client can ask for the scope.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use moongate_config::Patterns;
use moongate_core::{CallError, Kind, Offer, Prompt, Scope, Template, Tool, hash::Map};
use moongate_storage::Quota;
use moongate_telemetry::{Operation, Transport};
use tokio::time::Instant;

use crate::{
    extras::RouteExtras,
    list::{FacedList, List},
    member::Member,
    naming,
};

mod build;
mod render;

pub use build::Builder;
pub(crate) use build::in_profile;

/// How long a list is good when its backends do not say and announce changes.
const LIST_TTL: Duration = Duration::from_mins(1);

/// How long a view is good that lacks what a member did not offer in time.
pub(crate) const INCOMPLETE_TTL: Duration = Duration::from_secs(1);

/// A backend and what it offers this caller.
#[derive(Clone, Debug)]
pub struct Offered {
    /// Who.
    pub member: Arc<Member>,
    /// What.
    pub offer: Arc<Offer>,
}

/// A member that did not offer anything in time.
#[derive(Clone, Debug)]
pub struct Late {
    /// Who.
    pub member: Arc<Member>,
    /// Until when it is not waited for as long again.
    pub until: Instant,
}

/// A tool as this caller sees and reaches it.
#[derive(Debug)]
pub struct ToolEntry {
    /// The name clients see.
    pub shown: Arc<str>,
    /// `<backend>__<tool>`: the name that stays when a route renames the tool.
    pub canonical: Arc<str>,
    /// The backend.
    pub member: Arc<Member>,
    /// The tool there.
    pub tool: Arc<Tool>,
    /// What the route adds to its calls.
    pub extras: RouteExtras,
    /// Whether its output is listed wrapped for versions that take objects only, and so must be its results.
    pub wraps: bool,
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

/// A prompt as this caller sees and reaches it.
#[derive(Clone, Debug)]
pub struct PromptEntry {
    /// The name clients see.
    pub shown: Arc<str>,
    /// The backend.
    pub member: Arc<Member>,
    /// The prompt there.
    pub prompt: Arc<Prompt>,
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
    prompts: Map<Arc<str>, PromptEntry>,
    resources: Map<Arc<str>, Arc<Member>>,
    templates: Vec<(Arc<Template>, Arc<Member>)>,
    /// Those with resources that are each caller's own, in order.
    owners: Vec<Arc<Member>>,
    /// The other servers among the members this caller reaches, in order.
    upstreams: Vec<Arc<Member>>,
    /// The resources the profile shows, if there is one.
    patterns: Option<Patterns>,
    /// `tools/list`
    pub tool_list: FacedList,
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
    /// Who is missing, because it was not waited for any longer.
    pub late: Vec<Late>,
    /// Who is missing, and why.
    missing: Vec<(Arc<Member>, Arc<str>)>,
    generation: u64,
    /// Something changed for those who see this, and for nobody else.
    outdated: AtomicBool,
    valid_until: Option<Instant>,
}

impl View {
    /// The same view, good until the catalog's generation changes, an offer's time is up, or those that are `late` may have
    /// something to offer.
    #[must_use]
    pub fn valid_for(mut self, generation: u64, offers: &[Offered], late: Vec<Late>) -> Self {
        let incomplete = (!late.is_empty()).then_some(INCOMPLETE_TTL);
        let ttl = offers.iter().filter_map(|offered| offered.offer.ttl).chain(incomplete).min();
        self.generation = generation;
        self.valid_until = ttl.map(|ttl| Instant::now() + ttl);
        self.ttl = ttl.unwrap_or(LIST_TTL);
        let told =
            offers.iter().filter_map(|offered| Some((&offered.member, offered.offer.missing.clone()?)));
        let slow = late.iter().map(|late| (&late.member, "it has not answered yet".into()));
        self.missing = told.chain(slow).map(|(member, why)| (Arc::clone(member), why)).collect();
        self.late = late;
        self
    }

    /// Whether it may still be used.
    pub fn is_valid(&self, generation: u64, now: impl FnOnce() -> Instant) -> bool {
        self.generation == generation
            && !self.outdated.load(Ordering::Relaxed)
            && self.valid_until.is_none_or(|until| now() < until)
    }

    /// It is not good any more: something changed for those who see it.
    pub fn outdate(&self) {
        self.outdated.store(true, Ordering::Relaxed);
    }

    /// The tool called `name`, by its shown name or an alias.
    ///
    /// # Errors
    /// `Unknown`, `MissingScope` when the caller only lacks a scope, or `Unavailable` when nobody can tell because the
    /// server whose name it has does not answer.
    pub fn tool(&self, name: &str) -> Result<&Arc<ToolEntry>, CallError> {
        match self.tools.get(name) {
            Some(Found::Yes(entry)) => Ok(entry),
            Some(Found::NeedsScope(scope)) => Err(missing_scope(scope)),
            None => Err(self.unknown("tool", name)),
        }
    }

    fn unknown(&self, what: &str, name: &str) -> CallError {
        match self.missing.iter().find(|(member, _)| member.naming.claims(name)) {
            Some((member, why)) => {
                CallError::upstream(Kind::Unavailable, format!("The upstream {} failed: {why}", member.name))
            }
            None => CallError::client(Kind::Unknown, format!("Unknown {what}: {name}")),
        }
    }

    /// Whether nobody is missing in it.
    pub fn is_complete(&self) -> bool {
        self.late.is_empty() && self.missing.is_empty()
    }

    /// Whether this caller may call a tool of `member`.
    pub fn shows_tools_of(&self, member: &Member) -> bool {
        let is_of = |found: &Found<Arc<ToolEntry>>| matches!(found, Found::Yes(entry) if entry.member.name == member.name);
        self.tools.values().any(is_of)
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
    /// `Unknown`, or `Unavailable` as for tools.
    pub fn prompt(&self, name: &str) -> Result<&PromptEntry, CallError> {
        self.prompts.get(name).ok_or_else(|| self.unknown("prompt", name))
    }

    /// The backend that owns `uri`: the one that lists it, else the first with a template for it.
    ///
    /// # Errors
    /// `UnknownResource`.
    pub fn resource(&self, uri: &str) -> Result<&Arc<Member>, CallError> {
        let by_template = || {
            // What the profile keeps from the list must not come in through a template.
            let shown = self.shows_resource(uri);
            let reserved = naming::is_reserved(uri);
            let mut templates =
                self.templates.iter().filter(|(_, member)| shown && !(reserved && member.is_upstream));
            templates.find(|(template, _)| template.matches(uri)).map(|(_, member)| member)
        };
        self.resources.get(uri).or_else(by_template).ok_or_else(|| CallError::unknown_resource(uri))
    }

    /// Whether the profile shows `uri`.
    pub fn shows_resource(&self, uri: &str) -> bool {
        self.patterns.as_ref().is_none_or(|patterns| patterns.matches(uri))
    }

    /// Those with resources that are each caller's own, in order.
    pub fn owners(&self) -> &[Arc<Member>] {
        &self.owners
    }

    /// The other servers that may own a resource nobody lists.
    pub fn upstreams(&self, uri: &str) -> impl Iterator<Item = &Arc<Member>> {
        self.upstreams.iter().filter(|_| self.shows_resource(uri) && !naming::is_reserved(uri))
    }

    /// The backend that owns a template.
    pub fn template(&self, uri_template: &str) -> Option<&Arc<Member>> {
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
