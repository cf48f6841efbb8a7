//! What a server offers: from memory, from the last list or from a new one, and what is announced of it.

use std::sync::Arc;

use moongate_core::{Audience, Change, Context, Offer, SessionKey, address::is_reserved};
use tokio::time::Instant;

use super::{
    ABSENT, Inner, START_LIMIT, Settings,
    listing::{self, Callable, Kept, Listed},
    offering::{self, Lists},
    remembered::RENEWED_AFTER,
    slot::Slot,
};
use crate::{
    client::{News, quoted},
    transport::Fault,
};

impl Inner {
    /// What a caller is offered: at once where it is known, else as soon as the server has said it.
    pub(super) async fn offer(self: &Arc<Self>, cx: &Context) -> Arc<Offer> {
        let abilities = self.abilities(cx);
        let slot = self.slot(cx, &abilities).await;
        let listed = slot.listed(&abilities);
        if let Some(kept) = listed.kept() {
            if !kept.is_current() {
                self.refresh(&slot, &listed, &[]);
            }
            return kept.offer;
        }
        if let Some(lists) = self.remembered.lists(slot.key.principal.as_ref(), &listed.abilities).await {
            // Current until the server runs and says otherwise.
            let offer = self.keep(&listed, lists, None).offer;
            listed.remembered();
            if self.best_to_list(&slot).is_running() {
                self.refresh(&slot, &listed, &[]);
            }
            return offer;
        }
        self.refresh(&slot, &listed, &[]);
        let late = cx.deadline.min(Instant::now() + self.settings().list_timeout);
        // Whether it was in time shows in what is there.
        drop(tokio::time::timeout_at(late, listed.offered()).await);
        listed.kept().map_or_else(|| Arc::new(absent(&slot)), |kept| kept.offer)
    }

    /// What happened at the server outside any call.
    pub(super) fn heard(self: &Arc<Self>, slot: &Arc<Slot>, news: News) {
        match news {
            News::Tools => self.refresh_all(&self.lists_of(slot), &[Change::Tools]),
            News::Prompts => self.refresh_all(&self.lists_of(slot), &[Change::Prompts]),
            News::Resources => {
                self.readings.clear();
                self.refresh_all(&self.lists_of(slot), &[Change::Resources]);
            }
            // It has nothing there, and would make callers believe that something of their own has changed.
            News::Updated(uri) if is_reserved(&uri) => {}
            News::Updated(uri) => {
                // Before anybody is told: whoever reads then reads anew.
                self.readings.updated(&uri);
                self.changes.send_to(slot.audience(), Change::Updated { uri });
            }
            News::Task { id, task } => {
                let backend = Arc::clone(&self.name);
                let task = task.as_str().into();
                self.changes.send_to(slot.audience(), Change::Task { backend, id, task });
            }
            News::AskedUnbound => {
                let this = Arc::clone(self);
                self.tasks.spawn(async move { this.learn(|known| known.asks = true).await });
            }
            News::AskedRoots => {
                // Before it is told those of the first: nobody else may come to a process that keeps to them.
                self.retire(slot);
                let this = Arc::clone(self);
                self.tasks.spawn(async move { this.learn(|known| known.asks_roots = true).await });
            }
        }
    }

    /// Lists anew what anybody was offered.
    pub(super) fn refresh_all(self: &Arc<Self>, slot: &Arc<Slot>, said: &[Change]) {
        let all = slot.all_listed();
        if all.is_empty() {
            // Nobody has seen a list that could have changed, but a change was announced.
            for change in said {
                self.changes.send_to(slot.list_audience(), change.clone());
            }
        }
        for listed in all {
            self.refresh(slot, &listed, said);
        }
    }

    /// Lists anew in a task, and announces `said` and whatever else turns out to be different.
    pub(super) fn refresh(self: &Arc<Self>, slot: &Arc<Slot>, listed: &Arc<Listed>, said: &[Change]) {
        let Some(mut claim) = listed.outdate(said) else { return };
        let (this, slot, listed) = (Arc::clone(self), Arc::clone(slot), Arc::clone(listed));
        self.tasks.spawn(async move {
            while let Some(said) = claim.next().await {
                let different = this.relist(&slot, &listed).await;
                for change in [Change::Tools, Change::Prompts, Change::Resources] {
                    if said.contains(&change) || different.contains(&change) {
                        this.changes.send_to(slot.list_audience(), change);
                    }
                }
            }
        });
    }

    /// Lists anew; what is different from before.
    async fn relist(self: &Arc<Self>, slot: &Arc<Slot>, listed: &Listed) -> Vec<Change> {
        let before = listed.kept().map(|kept| kept.lists);
        let fetched = async {
            let connection = self.connection(&self.best_to_list(slot)).await?;
            let nothing = Lists::default();
            let fetch = listing::fetch(&connection, &listed.abilities, before.as_deref().unwrap_or(&nothing));
            let limit = self.settings().list_timeout.max(START_LIMIT);
            tokio::time::timeout(limit, fetch).await.unwrap_or_else(|_| {
                let why = format!("it did not list what it offers within {} s", limit.as_secs());
                let fault = Fault::Unreached(why.into());
                slot.troubled(&fault);
                Err(fault.into())
            })
        };
        let (lists, ttl) = match fetched.await {
            Ok(fetched) => fetched,
            Err(error) => {
                tracing::debug!(upstream = &*self.name, %error, "cannot be listed");
                let refused =
                    || Fault::Garbled(format!("it cannot be listed: {}", quoted(&error.to_string())).into());
                slot.troubled(&error.blame().unwrap_or_else(refused));
                return Vec::new();
            }
        };
        let until = ttl.map(|ttl| Instant::now() + ttl);
        let lists = self.keep(listed, lists, until).lists;
        let old = before.as_deref();
        let same = old == Some(&*lists);
        if !same || listed.was_remembered_before(RENEWED_AFTER) {
            let principal = slot.key.principal.as_ref();
            self.remembered.remember_lists(principal, &listed.abilities, &lists).await;
            listed.remembered();
        }
        if same {
            return Vec::new();
        }
        let empty = Lists::default();
        let old = old.unwrap_or(&empty);
        let mut different = Vec::new();
        different.extend((old.tools != lists.tools).then_some(Change::Tools));
        different.extend((old.prompts != lists.prompts).then_some(Change::Prompts));
        let resources = old.resources != lists.resources || old.templates != lists.templates;
        different.extend(resources.then_some(Change::Resources));
        different
    }

    fn keep(&self, listed: &Listed, lists: Lists, until: Option<Instant>) -> Kept {
        let lists = Arc::new(lists);
        loop {
            let settings = self.settings();
            let kept = self.make(&settings, Arc::clone(&lists), until);
            listed.keep(kept.clone());
            // Settings that came meanwhile may have found the lists before these.
            if Arc::ptr_eq(&settings, &self.settings()) {
                for left_out in &*kept.left_out {
                    tracing::warn!(upstream = &*self.name, "not offered: {left_out}");
                }
                return kept;
            }
        }
    }

    /// Offers what is known by the settings of now.
    pub(super) fn offer_anew(&self, slot: &Slot) {
        let settings = self.settings();
        for listed in slot.all_listed() {
            listed.alter(|kept| self.make(&settings, Arc::clone(&kept.lists), kept.until));
        }
    }

    fn make(&self, settings: &Settings, lists: Arc<Lists>, until: Option<Instant>) -> Kept {
        let ttl = until.map(|until| until.saturating_duration_since(Instant::now()));
        let mut made = offering::make(&lists, &settings.scope, self.reach.main.way(), ttl);
        if !settings.instructions {
            made.offer.instructions = None;
        }
        let callable = Arc::new(Callable::all(&made.offer));
        Kept { offer: Arc::new(made.offer), callable, lists, left_out: made.left_out.into(), until }
    }
}

impl Slot {
    /// Whom it concerns what happens at the server behind it.
    pub(super) fn audience(&self) -> Audience {
        match (&self.key.principal, &self.key.session) {
            (None, _) => Audience::Everybody,
            (Some(principal), None) => Audience::Principal(principal.clone()),
            (Some(principal), Some(session)) => {
                let (principal, session) = (principal.clone(), Arc::clone(session));
                Audience::Session(SessionKey { principal, session })
            }
        }
    }

    /// Whom it concerns what the server lists: lists are the same in all sessions of a principal.
    fn list_audience(&self) -> Audience {
        self.key.principal.clone().map_or(Audience::Everybody, Audience::Principal)
    }
}

/// The offer of a server that has not said what it offers.
fn absent(slot: &Slot) -> Offer {
    let trouble = slot.trouble().map(|(_, fault)| fault.to_string());
    let why = trouble.unwrap_or_else(|| "it has not answered yet".to_owned());
    Offer { ttl: Some(ABSENT), missing: Some(why.into()), ..Offer::default() }
}
