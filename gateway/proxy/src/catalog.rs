//! Everything that is offered, by whom, and what each caller gets to see of it.
//!
//! Backends offer; routes, profiles and policy decide. The outcome for one caller is a [`View`], which is kept until
//! something changes, so that a call costs one look-up and a list costs nothing but its bytes.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use moongate_config::Config;
use moongate_core::{Backend, Change, Context, Principal, Scopes, SessionKey, hash::Map};
use moongate_security::{gate::Admitted, policy::Rules};
use moongate_telemetry::Metrics;
use tokio::time::Instant;

use crate::view::{Offered, View};

/// Views that are kept; beyond that all are dropped and rebuilt as they are asked for.
const MAX_VIEWS: usize = 1024;

/// A backend under the name it has in configuration, metrics and logs.
#[derive(Clone)]
pub struct Member {
    /// Its name.
    pub name: Arc<str>,
    /// What answers.
    pub backend: Arc<dyn Backend>,
}

impl std::fmt::Debug for Member {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Member({})", self.name)
    }
}

/// All backends in their order, with the rules about them.
#[derive(Debug)]
pub struct Catalog {
    members: Vec<Member>,
    config: Arc<Config>,
    rules: Rules,
    metrics: Arc<Metrics>,
    generation: AtomicU64,
    views: Mutex<Map<ViewKey, Arc<View>>>,
}

/// What a view depends on: path and identity, never connection or history.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct ViewKey {
    profile: Option<Arc<str>>,
    principal: Principal,
    scopes: Arc<Scopes>,
}

impl Catalog {
    /// A catalog of `members` under `config`.
    pub fn new(members: Vec<Member>, config: Arc<Config>, rules: Rules, metrics: Arc<Metrics>) -> Self {
        Self { members, config, rules, metrics, generation: AtomicU64::new(1), views: Mutex::default() }
    }

    /// The backends.
    pub fn members(&self) -> &[Member] {
        &self.members
    }

    /// What `admitted` sees under `profile`.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn view(
        &self,
        admitted: &Admitted,
        profile: Option<&Arc<str>>,
        cx: impl FnOnce() -> Context,
    ) -> Arc<View> {
        let key = ViewKey {
            profile: profile.cloned(),
            principal: admitted.principal().clone(),
            scopes: Arc::clone(admitted.scopes()),
        };
        let generation = self.generation.load(Ordering::Acquire);
        match self.kept(&key, generation) {
            Some(view) => view,
            // On the heap: nearly every call finds its view.
            None => Box::pin(self.build(key, generation, admitted, cx())).await,
        }
    }

    async fn build(&self, key: ViewKey, generation: u64, admitted: &Admitted, cx: Context) -> Arc<View> {
        let mut offers = Vec::with_capacity(self.members.len());
        for member in &self.members {
            offers.push(Offered { member: member.clone(), offer: member.backend.offer(&cx).await });
        }
        let view =
            View::build(&offers, &self.config, &self.rules, admitted, key.profile.as_ref(), &self.metrics);
        let view = Arc::new(view.valid_for(generation, &offers));
        let mut views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        if views.len() >= MAX_VIEWS {
            views.clear();
        }
        views.insert(key, Arc::clone(&view));
        view
    }

    fn kept(&self, key: &ViewKey, generation: u64) -> Option<Arc<View>> {
        let views = self.views.lock().unwrap_or_else(PoisonError::into_inner);
        views.get(key).filter(|view| view.is_valid(generation, Instant::now)).cloned()
    }

    /// Something changed: what was derived from the old lists is not used any more.
    pub fn changed(&self, change: &Change) {
        if !matches!(change, Change::Updated { .. }) {
            self.generation.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Removes the metrics of every tool anybody was shown.
    pub fn forget_metrics(&self) {
        for view in self.views.lock().unwrap_or_else(PoisonError::into_inner).values() {
            for tool in view.shown() {
                self.metrics.forget_tool(tool);
            }
        }
    }

    /// Tells every backend that a session is over.
    pub fn session_ended(&self, session: &SessionKey) {
        for member in &self.members {
            member.backend.session_ended(session);
        }
    }
}
