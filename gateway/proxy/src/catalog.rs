//! Everything that is offered, by whom, and what each caller gets to see of it.
//!
//! Backends offer; routes, profiles and policy decide. The outcome for one caller is a [`View`], which is kept until
//! something changes, so that a call costs one look-up and a list costs nothing but its bytes. A view that must be built
//! is built once, however many wait for it, and no member holds it up for longer than it may.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use moongate_config::Config;
use moongate_core::{
    Abilities, Announcement, Audience, CallError, Change, Client, Context, Principal, Scopes, SessionKey,
    hash::Map,
};
use moongate_security::{gate::Admitted, policy::Rules};
use moongate_telemetry::Metrics;
use tokio::time::Instant;

use crate::{
    member::Member,
    view::{Builder, Late, Offered, ToolEntry, View, in_profile},
};

/// Views that are kept; beyond that all are dropped and rebuilt as they are asked for.
const MAX_VIEWS: usize = 1024;

/// How long a member that was late is waited for when a view is built again: enough for what it has at hand.
const BRIEFLY: Duration = Duration::from_millis(50);
/// How long it is waited for only so briefly. What it offers meanwhile it announces.
const LATE_FOR: Duration = Duration::from_secs(30);

/// All backends in their order, with the rules about them.
#[derive(Debug)]
pub struct Catalog {
    members: Vec<Arc<Member>>,
    /// Whether some member's offer depends on what the client can do.
    cares: bool,
    config: Arc<Config>,
    rules: Rules,
    metrics: Arc<Metrics>,
    generation: AtomicU64,
    views: Mutex<Map<ViewKey, Arc<View>>>,
    /// Whose turn it is to build a view that several want.
    turns: Mutex<Map<ViewKey, Turn>>,
}

type Turn = Arc<Building>;

/// A view that is being built.
#[derive(Debug, Default)]
struct Building {
    turn: tokio::sync::Mutex<()>,
    /// How often something changed meanwhile for those who will see it, and for nobody else.
    changes: AtomicU64,
}

/// What a view depends on: path and identity, and what the client can do where a member cares; never connection or
/// history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ViewKey {
    profile: Option<Arc<str>>,
    principal: Principal,
    scopes: Arc<Scopes>,
    abilities: Option<Abilities>,
}

impl Catalog {
    /// A catalog of `members`, in this order, under `config`.
    pub fn new(members: Vec<Member>, config: Arc<Config>, rules: Rules, metrics: Arc<Metrics>) -> Self {
        let cares = members.iter().any(|member| member.cares);
        Self {
            members: members.into_iter().map(Arc::new).collect(),
            cares,
            config,
            rules,
            metrics,
            generation: AtomicU64::new(1),
            views: Mutex::default(),
            turns: Mutex::default(),
        }
    }

    /// The backends, in the order their tools are listed.
    pub fn members(&self) -> &[Arc<Member>] {
        &self.members
    }

    /// What `admitted`, calling by `client`, sees under `profile`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn view(
        &self,
        admitted: &Admitted,
        profile: Option<&Arc<str>>,
        client: &Client,
        cx: impl FnOnce() -> Context,
    ) -> Arc<View> {
        let key = ViewKey {
            profile: profile.cloned(),
            principal: admitted.principal().clone(),
            scopes: Arc::clone(admitted.scopes()),
            abilities: self.cares.then(|| client.abilities()),
        };
        match self.kept(&key) {
            Some(view) => view,
            // On the heap: nearly every call finds its view.
            None => Box::pin(self.build(key, admitted, cx())).await,
        }
    }

    /// Whether somebody under `profile` is known to make tasks for clients that know them, and shows some tool in `view`, if
    /// there is one.
    pub fn offers_tasks(&self, profile: Option<&str>, view: Option<&View>) -> bool {
        let profile = profile.and_then(|name| self.config.profiles.get(name));
        let mut members = self.members.iter().filter(|member| in_profile(profile, member));
        members.any(|member| {
            let shown = |view: &View| member.unlisted.is_some() || view.shows_tools_of(member);
            member.offers_tasks() && view.is_none_or(shown)
        })
    }

    /// Whether `admitted` may read `uri`, which `member` owns and nobody lists.
    pub fn allows_resource(
        &self,
        admitted: &Admitted,
        profile: Option<&str>,
        uri: &str,
        member: &Member,
    ) -> bool {
        self.builder(admitted, profile).allows_resource(uri, member)
    }

    /// What `admitted` calls by a name that nobody lists, if a member takes such calls.
    ///
    /// # Errors
    /// `MissingScope` when the caller only lacks a scope.
    pub fn unlisted(
        &self,
        admitted: &Admitted,
        profile: Option<&str>,
        name: &str,
    ) -> Option<Result<ToolEntry, CallError>> {
        let builder = self.builder(admitted, profile);
        self.members.iter().find_map(|member| builder.unlisted(name, member))
    }

    async fn build(&self, key: ViewKey, admitted: &Admitted, cx: Context) -> Arc<View> {
        let waiting = Waiting::new(&self.turns, &key);
        let _turn = waiting.turn().await;
        // Somebody may have built it meanwhile.
        if let Some(view) = self.kept(&key) {
            return view;
        }
        let generation = self.generation.load(Ordering::Acquire);
        let changes = waiting.changes();
        let before = lock(&self.views).get(&key).map(|view| view.late.clone()).unwrap_or_default();
        let (offers, late) = self.offers(key.profile.as_deref(), &before, &cx).await;
        let view = self.builder(admitted, key.profile.as_deref()).build(&offers);
        let view = Arc::new(view.valid_for(generation, &offers, late));
        let mut views = lock(&self.views);
        if views.len() >= MAX_VIEWS {
            views.clear();
        }
        // What changed while it was built may be missing in it: then it is of a generation that is over or outdated, good
        // for this call and for nobody after it but whoever builds the next, who learns from it who was late. Looked at
        // under the lock, which `changed` takes after it has counted.
        if waiting.changes() != changes {
            view.outdate();
        }
        views.insert(key.clone(), Arc::clone(&view));
        view
    }

    fn builder<'a>(&'a self, admitted: &'a Admitted, profile: Option<&'a str>) -> Builder<'a> {
        Builder { config: &self.config, rules: &self.rules, metrics: &self.metrics, admitted, profile }
    }

    /// Asks all members that `profile` reaches, side by side. Those that are late are named; `before` says who was.
    async fn offers(
        &self,
        profile: Option<&str>,
        before: &[Late],
        cx: &Context,
    ) -> (Vec<Offered>, Vec<Late>) {
        let profile = profile.and_then(|name| self.config.profiles.get(name));
        let asked = self
            .members
            .iter()
            .filter(|member| in_profile(profile, member))
            .map(|member| offer(member, before, cx));
        let (mut offers, mut late) = (Vec::new(), Vec::new());
        for (offered, missing) in join_all(asked).await {
            offers.extend(offered);
            late.extend(missing);
        }
        (offers, late)
    }

    fn kept(&self, key: &ViewKey) -> Option<Arc<View>> {
        let generation = self.generation.load(Ordering::Acquire);
        lock(&self.views).get(key).filter(|view| view.is_valid(generation, Instant::now)).cloned()
    }

    /// Something changed: what was derived from the old lists is not used any more. What changed for one principal costs
    /// others nothing.
    pub fn changed(&self, Announcement { change, audience }: &Announcement) {
        if matches!(change, Change::OwnResources | Change::Updated { .. } | Change::Task { .. }) {
            return;
        }
        if *audience == Audience::Everybody {
            self.generation.fetch_add(1, Ordering::AcqRel);
            return;
        }
        for (_, building) in lock(&self.turns).iter().filter(|(key, _)| audience.has(&key.principal)) {
            building.changes.fetch_add(1, Ordering::AcqRel);
        }
        for (_, view) in lock(&self.views).iter().filter(|(key, _)| audience.has(&key.principal)) {
            view.outdate();
        }
    }

    /// Removes the metrics of every tool anybody was shown.
    pub fn forget_metrics(&self) {
        for view in lock(&self.views).values() {
            for tool in view.shown() {
                self.metrics.forget_tool(tool);
            }
        }
    }

    /// Tells every backend that a session's client has other roots now.
    pub fn roots_changed(&self, session: &SessionKey) {
        for member in &self.members {
            member.backend.roots_changed(session);
        }
    }

    /// The sessions that some backend does something for, although none of their calls runs.
    pub fn busy(&self) -> Vec<Arc<str>> {
        self.members.iter().filter_map(|member| member.busy.as_ref()).flat_map(|busy| busy()).collect()
    }

    /// Tells every backend that a session is over.
    pub fn session_ended(&self, session: &SessionKey) {
        for member in &self.members {
            member.backend.session_ended(session);
        }
    }
}

/// Asks one member, for as long as it may take and the caller waits. One that knows its own patience says why it offers
/// nothing when that is over, and was late all the same.
async fn offer(member: &Arc<Member>, before: &[Late], cx: &Context) -> (Option<Offered>, Option<Late>) {
    let now = Instant::now();
    let late = before.iter().find(|late| late.member.name == member.name && now < late.until);
    let patience = late.map_or(member.list_timeout, |_| member.list_timeout.min(BRIEFLY));
    let cx = Context { deadline: cx.deadline.min(now + patience), ..cx.clone() };
    let offer = tokio::time::timeout_at(cx.deadline, member.backend.offer(&cx)).await.ok();
    let was_late = match &offer {
        // Who was late and has failed since is late again when it is tried again.
        Some(offer) => offer.missing.is_some() && (late.is_some() || Instant::now() >= cx.deadline),
        None => true,
    };
    let late = was_late.then(|| {
        late.cloned().unwrap_or_else(|| {
            tracing::warn!(upstream = &*member.name, "what it offers is not known yet; listing without it");
            Late { member: Arc::clone(member), until: Instant::now() + LATE_FOR }
        })
    });
    (offer.map(|offer| Offered { member: Arc::clone(member), offer }), late)
}

/// One of those who want the same view; the last of them takes the turn off the list.
struct Waiting<'a> {
    turns: &'a Mutex<Map<ViewKey, Turn>>,
    key: &'a ViewKey,
    turn: Option<Turn>,
}

impl<'a> Waiting<'a> {
    fn new(turns: &'a Mutex<Map<ViewKey, Turn>>, key: &'a ViewKey) -> Self {
        let turn = Arc::clone(lock(turns).entry(key.clone()).or_default());
        Self { turns, key, turn: Some(turn) }
    }

    async fn turn(&self) -> Option<tokio::sync::MutexGuard<'_, ()>> {
        match &self.turn {
            Some(building) => Some(building.turn.lock().await),
            None => None,
        }
    }

    /// How often something changed for those who want this view.
    fn changes(&self) -> u64 {
        self.turn.as_ref().map_or(0, |building| building.changes.load(Ordering::Acquire))
    }
}

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        // Let go of under the lock: who comes second then sees that nobody is left.
        let mut turns = lock(self.turns);
        self.turn = None;
        if turns.get(self.key).is_some_and(|turn| Arc::strong_count(turn) == 1) {
            turns.remove(self.key);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
