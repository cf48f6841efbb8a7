//! The one object behind every edge: what is configured now, what is going on, and the housekeeping of both.

use std::{
    collections::{BTreeSet, HashSet},
    net::IpAddr,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use moongate_config::Config;
use moongate_core::{Announcement, Change, Changes, Clock, Principal, SessionKey, hash::Map, task::Group};
use moongate_security::{Headers, address, gate::Gate, keyring::Keyring};
use moongate_storage::{Note, State, To};
use moongate_telemetry::{Metrics, Operation, Transport};
use moongate_wire::Method;
use tokio::sync::Notify;

use crate::{
    catalog::Catalog,
    edge::body::OpenStream,
    hub::Hub,
    learnt::Learnt,
    parked::Parked,
    session::Sessions,
    tally::{Counted, Tally},
    tasks::TaskIds,
};

/// What a [`Gateway`] is made of.
#[derive(Debug)]
pub struct Parts {
    /// What is configured.
    pub snapshot: Snapshot,
    /// Sessions, event logs, rates, documents.
    pub state: StateHandle,
    /// Seals parked states and the ids of tasks.
    pub keyring: Arc<Keyring>,
    /// Where durations and counts go.
    pub metrics: Arc<Metrics>,
    /// Tells the time.
    pub clock: Clock,
    /// What backends announce, made before them.
    pub announced: Announced,
}

/// A `State` that can be printed.
#[derive(Clone)]
pub struct StateHandle(pub Arc<dyn State>);

impl std::fmt::Debug for StateHandle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("State")
    }
}

/// What is configured: immutable, read once as a call enters, replaced as a whole by a reload.
#[derive(Debug)]
pub struct Snapshot {
    /// The configuration itself.
    pub config: Arc<Config>,
    /// Who gets in.
    pub gate: Gate,
    /// What there is.
    pub catalog: Catalog,
}

/// What backends announced and nobody was told yet.
#[derive(Clone, Debug, Default)]
pub struct Announced(Arc<(Mutex<BTreeSet<Announcement>>, Notify)>);

impl Announced {
    /// Nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// The sender that backends get.
    pub fn sender(&self) -> Changes {
        let shared = Arc::clone(&self.0);
        Changes::new(move |announcement| {
            let mut changes = shared.0.lock().unwrap_or_else(PoisonError::into_inner);
            // Only a task can be, and others are many.
            if matches!(announcement.change, Change::Task { .. }) {
                changes.retain(|older| !older.change.is_outdone_by(&announcement.change));
            }
            changes.insert(announcement);
            drop(changes);
            shared.1.notify_one();
        })
    }

    async fn next(&self) -> BTreeSet<Announcement> {
        loop {
            let changes = std::mem::take(&mut *self.0.0.lock().unwrap_or_else(PoisonError::into_inner));
            if !changes.is_empty() {
                return changes;
            }
            self.0.1.notified().await;
        }
    }
}

/// The gateway.
#[derive(Debug)]
pub struct Gateway {
    snapshot: ArcSwap<Snapshot>,
    state: StateHandle,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) sessions: Arc<Sessions>,
    pub(crate) parked: Parked,
    pub(crate) task_ids: TaskIds,
    pub(crate) hub: Arc<Hub>,
    pub(crate) learnt: Arc<Learnt>,
    pub(crate) tasks: Group,
    announced: Announced,
    pub(crate) calls: Tally,
    created: Tally,
    streams: AtomicU64,
    operations: Map<(Method, bool), Operation>,
    warned: Mutex<HashSet<Principal>>,
    reloaded: Notify,
}

impl Gateway {
    /// Puts the parts together. Nothing runs until [`Gateway::run`] does.
    pub fn new(parts: Parts) -> Arc<Self> {
        let Parts { snapshot, state, keyring, metrics, clock, announced } = parts;
        let instance: Arc<str> = format!("mg{}", random_id().simple()).get(..14).unwrap_or("mg").into();
        let hub = Arc::new(Hub::default());
        let tasks = Group::new();
        let operation =
            |method: Method, transport| metrics.operation(method.as_str(), unnamed(method), transport);
        let operations = Method::ALL
            .into_iter()
            .flat_map(|method| {
                [
                    ((method, true), operation(method, Transport::Tcp)),
                    ((method, false), operation(method, Transport::Pipe)),
                ]
            })
            .collect();
        Arc::new(Self {
            snapshot: ArcSwap::from_pointee(snapshot),
            sessions: Arc::new(Sessions::new(Arc::clone(&instance), Arc::clone(&hub))),
            task_ids: TaskIds::new(Arc::clone(&keyring)),
            parked: Parked::new(instance, keyring, clock, tasks.clone()),
            state,
            metrics,
            hub,
            learnt: Arc::default(),
            tasks,
            announced,
            calls: Tally::default(),
            created: Tally::default(),
            streams: AtomicU64::new(1),
            operations,
            warned: Mutex::default(),
            reloaded: Notify::new(),
        })
    }

    /// What is configured now.
    pub fn snapshot(&self) -> Arc<Snapshot> {
        self.snapshot.load_full()
    }

    /// Where a request on a connection from `peer` really comes from, as far as proxies are trusted now.
    pub fn client_address(&self, peer: IpAddr, headers: &Headers) -> IpAddr {
        address::client_address(peer, headers, &self.snapshot.load().config.server.trusted_proxies)
    }

    /// Replaces what is configured; calls that are running keep what they entered with. Clients are told that lists may
    /// have changed.
    pub fn reload(&self, snapshot: Snapshot) {
        let old = self.snapshot.swap(Arc::new(snapshot));
        // Tools may be gone or changed; those that are still offered begin their series anew with their next call.
        old.catalog.forget_metrics();
        self.reloaded.notify_one();
        let changes = self.announced.sender();
        for change in [Change::Tools, Change::Prompts, Change::Resources] {
            changes.send(change);
        }
    }

    /// Sweeps, delivers notes and tells changes, until the tasks are shut down.
    pub async fn run(self: Arc<Self>) {
        let inbox = self.state.0.inbox();
        let notes = Arc::clone(&self);
        self.tasks.spawn(async move {
            let Some(mut inbox) = inbox else { return };
            while let Some((_, note)) = inbox.recv().await {
                notes.hear(note).await;
            }
        });
        let announcer = Arc::clone(&self);
        self.tasks.spawn(async move {
            loop {
                for announcement in announcer.announced.next().await {
                    let sent = announcer.state.0.send(To::All, Note::Changed(announcement)).await;
                    if let Err(error) = sent {
                        tracing::warn!(%error, "a change could not be announced");
                    }
                }
            }
        });
        let sweeper = Arc::clone(&self);
        self.tasks.spawn(async move { sweeper.sweep_forever().await });
        self.tasks.cancelled().await;
    }

    /// Ends running and parked calls and the housekeeping.
    pub async fn shut_down(&self, grace: Duration) -> bool {
        self.tasks.shut_down(grace).await
    }

    pub(crate) async fn hear(self: &Arc<Self>, note: Note) {
        match note {
            Note::Changed(announcement) => {
                self.snapshot().catalog.changed(&announcement);
                self.hub.publish(&announcement);
            }
            Note::SessionEnded { id, record } => {
                let live = self.sessions.ended(&id);
                let Some(principal) = record.principal.parse::<Principal>().ok() else { return };
                let key = SessionKey { principal, session: id };
                let Some(live) = live.filter(|live| live.is_watching()) else {
                    return self.session_ended(&key).await;
                };
                // Before backends forget the session, by which some of them know who watches. Other notes do not wait.
                let gateway = Arc::clone(self);
                self.tasks.spawn(async move {
                    gateway.release(&live).await;
                    gateway.session_ended(&key).await;
                });
            }
        }
    }

    /// A transport session is over, HTTP's or a pipe's.
    pub(crate) async fn session_ended(&self, key: &SessionKey) {
        tracing::debug!(principal = %key.principal, session = %key.session, "session ended");
        self.snapshot().catalog.session_ended(key);
        if let Err(error) = self.state.0.forget(key).await {
            tracing::warn!(%error, "documents of an ended session were not removed");
        }
        self.count_sessions().await;
    }

    async fn sweep_forever(&self) {
        loop {
            let config = Arc::clone(&self.snapshot().config);
            tokio::select! {
                () = tokio::time::sleep(sweep_interval(&config)) => {}
                // The beat may have changed.
                () = self.reloaded.notified() => continue,
            }
            // What is in use must not look idle, so it is touched first.
            let used = [self.sessions.in_use(), self.snapshot().catalog.busy()].concat();
            let swept = match self.state.0.touch(&used).await {
                Ok(()) => self.state.0.sweep().await,
                Err(error) => Err(error),
            };
            if let Err(error) = swept {
                tracing::warn!(%error, "sweep failed; the next one tries again");
            }
            self.metrics.parked_calls().set(self.parked.len());
            self.count_sessions().await;
        }
    }

    pub(crate) async fn count_sessions(&self) {
        if let Ok(count) = self.state.0.sessions().await {
            self.metrics.sessions().set(count);
        }
    }

    pub(crate) fn state(&self) -> &Arc<dyn State> {
        &self.state.0
    }

    pub(crate) fn count_session(&self, principal: &Principal, limit: usize) -> Option<Counted> {
        self.created.count(principal, limit)
    }

    pub(crate) fn next_stream(&self) -> u64 {
        self.streams.fetch_add(1, Ordering::Relaxed)
    }

    pub(crate) fn operation(&self, method: Method, transport: Transport) -> &Operation {
        self.operations
            .get(&(method, transport == Transport::Tcp))
            .expect("every method has an operation on both transports")
    }

    /// Counts an open stream for as long as it is.
    pub(crate) fn open_stream(&self) -> OpenStream {
        let held = self.metrics.open_streams().hold();
        let mut held = Some(held);
        OpenStream::new(move || drop(held.take()))
    }

    /// Warns once per principal that its calls name no session.
    pub(crate) fn warn_default_session(&self, principal: &Principal, session: &str) {
        let mut warned = self.warned.lock().unwrap_or_else(PoisonError::into_inner);
        if warned.len() < 10_000 && warned.insert(principal.clone()) {
            tracing::warn!(
                principal = principal.as_str(),
                session,
                "calls that name no session share this one"
            );
        }
    }
}

/// How long to wait between two sweeps. One beat serves sessions and documents. However rare sweeps are to be, a session
/// in use must be touched before it looks idle, and must not look idle right after its use.
fn sweep_interval(config: &Config) -> Duration {
    let asked_for = config.sessions.sweep_interval.min(config.context.sweep_interval);
    asked_for.min(config.sessions.idle_timeout / 2)
}

/// The tool label of operations that name no tool of the catalog.
fn unnamed(method: Method) -> &'static str {
    if method == Method::CallTool { Metrics::UNKNOWN_TOOL } else { "" }
}

/// A random UUID (version 4).
pub(crate) fn random_id() -> uuid::Uuid {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system's random source works");
    uuid::Builder::from_random_bytes(bytes).into_uuid()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        Member,
        fake::{Fake, catalog, gateway, record, tools},
    };

    #[tokio::test(start_paused = true)]
    async fn a_session_that_a_member_is_busy_for_does_not_expire() {
        let busy: Arc<Mutex<Vec<Arc<str>>>> = Arc::new(Mutex::new(vec!["busy".into()]));
        let told = Arc::clone(&busy);
        let member = Member::builtin("worker", Arc::new(Fake::new(tools(&[]))))
            .with_busy(Arc::new(move || told.lock().unwrap().clone()));
        let gateway = gateway(catalog(vec![member], Config::default()), Config::default());
        for id in ["busy", "idle"] {
            gateway.state().put(id, record()).await.unwrap();
        }
        let running = Group::new();
        running.spawn(Arc::clone(&gateway).run());
        let left = async || {
            tokio::time::sleep(3 * gateway.snapshot().config.sessions.idle_timeout).await;
            gateway.state().sessions().await.unwrap()
        };
        assert_eq!(left().await, 1);
        busy.lock().unwrap().clear();
        assert_eq!(left().await, 0, "it expires like any other once there is nothing to do");
    }
}
