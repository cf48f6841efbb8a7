//! An MCP server elsewhere as a backend: a child process or a remote server, of any era.
//!
//! ```text
//! call ─ key ─→ Slot ─→ Connection ─→ the server
//! ```
//! Who shares a connection is a matter of the key; whether there is one, of the slot; what is said on it, of
//! the `client` behind it. What the server offers is listed once for each slot and remembered on disk, so that a gateway that
//! starts knows it before the server does.

use std::{
    collections::BTreeMap,
    fmt,
    num::NonZeroUsize,
    sync::{Arc, Mutex, MutexGuard, PoisonError, Weak, atomic::AtomicBool},
    time::Duration,
};

use moongate_core::{
    Backend, BoxFuture, Call, CallError, Changes, Client, Clock, Context, ContextIds, Offer, Peer, Principal,
    Raw, Reply, ResourcePage, Scope, SessionKey, Version,
    hash::Map,
    task::{Group, Signal},
};
use moongate_storage::Store;
use tokio::sync::watch;

use self::{
    key::Key,
    pool::Pools,
    probing::Probing,
    readings::Readings,
    remembered::{Known, Remembered},
    slot::{Slot, Slots},
};
use crate::{
    client::{self, Book, Connection, Declared},
    transport::Dial,
};

mod calling;
mod connecting;
mod key;
mod listing;
mod offering;
mod offers;
mod pool;
mod probing;
mod readings;
mod remembered;
mod seating;
mod slot;
mod status;
mod timing;

pub use self::{
    key::Share,
    status::{State, Status},
};
pub use crate::client::EraChoice;

/// How long a server may take from its start to the end of the handshake.
const START_LIMIT: Duration = Duration::from_mins(1);
/// How often it is looked for connections that nobody uses, at most.
const SHORTEST_BEAT: Duration = Duration::from_millis(100);
/// How often it is looked for them at least.
const LONGEST_BEAT: Duration = Duration::from_mins(1);
/// How long a server has to end by itself.
const GRACE: Duration = Duration::from_secs(3);
/// How many connections one caller may have at a time: each may be a process.
const MAX_CONNECTIONS: usize = 64;
/// How long lists without this server are good: it may be there in a moment.
const ABSENT: Duration = Duration::from_secs(1);

/// How a server is used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Its name in configuration, metrics and logs.
    pub name: Arc<str>,
    /// Whether its era is known.
    pub era: EraChoice,
    /// Who shares a connection.
    pub share: Share,
    /// What a caller of its tools needs to hold.
    pub scope: Scope,
    /// The addresses it is told to be open; `None`: those of the client.
    pub roots: Option<Vec<String>>,
    /// How long an unused connection is kept; `None`: for ever.
    pub idle_timeout: Option<Duration>,
    /// How many processes serve the calls of one principal without a session, where the server asks questions.
    pub max_processes: NonZeroUsize,
    /// How long a list waits for it.
    pub list_timeout: Duration,
    /// Whether its instructions are told.
    pub instructions: bool,
    /// Whether it is told of extensions that clients declare and the gateway does not know, and may answer by them.
    pub extensions: bool,
}

/// What a server is made with.
#[derive(Debug)]
pub struct Parts {
    /// The ways to it.
    pub reach: Reach,
    /// Where what it offers is remembered.
    pub store: StoreHandle,
    /// Where its changes are announced.
    pub changes: Changes,
    /// Tells the time.
    pub clock: Clock,
    /// Where its requests are counted.
    pub metrics: moongate_telemetry::Upstream,
    /// Names the way it is reached: another command, environment or address is another server.
    pub fingerprint: String,
    /// Owns its tasks, and those of its transports.
    pub tasks: Group,
}

/// A `Store` that can be printed.
#[derive(Clone)]
pub struct StoreHandle(pub Arc<dyn Store>);

impl fmt::Debug for StoreHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Store")
    }
}

/// The ways to a server.
#[derive(Clone)]
pub struct Reach {
    /// The usual one.
    pub main: Arc<dyn Dial>,
    /// HTTP+SSE of 2024-11-05, where it may be tried.
    pub old: Option<Arc<dyn Dial>>,
}

impl fmt::Debug for Reach {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Reach({:?})", self.main.way())
    }
}

/// A server elsewhere.
pub struct Server(Arc<Inner>);

struct Inner {
    name: Arc<str>,
    /// How it is used now. A change wakes whoever waits by an old one.
    settings: watch::Sender<Arc<Settings>>,
    reach: Reach,
    changes: Changes,
    tasks: Group,
    clock: Clock,
    metrics: moongate_telemetry::Upstream,
    remembered: Remembered,
    /// What is known of the server; read from disk with the first use.
    known: tokio::sync::OnceCell<Mutex<Option<Known>>>,
    slots: Slots,
    pools: Pools,
    /// Connections that are not used any more, but for calls that were under way on them.
    leaving: Mutex<Vec<Weak<Connection>>>,
    readings: Readings,
    /// The configured answer to `roots/list`.
    roots: Option<Raw>,
    /// What clients have said about theirs.
    book: Arc<Book>,
    probing: Probing,
    /// It was found to be modern after connections had been made by its legacy ways.
    became_modern: AtomicBool,
    /// No connection is made any more.
    stopping: Signal,
}

impl Server {
    /// A server that nobody has connected to yet.
    pub fn new(settings: Settings, parts: Parts) -> Self {
        let Parts { reach, store, changes, clock, metrics, fingerprint, tasks } = parts;
        let name = Arc::clone(&settings.name);
        let remembered = Remembered::new(store.0, clock.clone(), Arc::clone(&name), fingerprint);
        Self(Arc::new(Inner {
            roots: settings.roots.as_deref().map(client::listed_roots),
            pools: Pools::default(),
            leaving: Mutex::default(),
            book: Arc::default(),
            probing: Probing::default(),
            became_modern: AtomicBool::new(false),
            name,
            settings: watch::Sender::new(Arc::new(settings)),
            reach,
            changes,
            tasks,
            clock,
            metrics,
            remembered,
            known: tokio::sync::OnceCell::new(),
            slots: Slots::default(),
            readings: Readings::default(),
            stopping: Signal::default(),
        }))
    }

    /// Starts it before anybody calls, so that the first call finds it running: for the local user's clients, of a legacy
    /// server for those that can do the same as the one that used it last.
    pub async fn warm(&self) {
        let cx = self.0.usual_client().await;
        let abilities = self.0.abilities(&cx);
        if self.0.keeps_apart(&abilities).await {
            return;
        }
        let slot = self.0.slot(&cx, &abilities).await;
        // Why it failed is logged where it did.
        let _started = self.0.connection(&slot).await.is_ok();
    }

    /// Starts it and lists what it offers, so that [`Server::status`] tells how it is now.
    pub async fn examine(&self) {
        let cx = self.0.usual_client().await;
        let abilities = self.0.abilities(&cx);
        let slot = self.0.slot(&cx, &abilities).await;
        let listed = slot.listed(&abilities);
        self.0.refresh(&slot, &listed, &[]);
        listed.fetched().await;
    }

    /// Uses it by other settings from now on, and keeps its connections: what it offers is offered by them at once. Its
    /// name, era, sharing and roots are part of what a connection is made of; those who differ need another server.
    pub fn reconfigure(&self, settings: Settings) {
        let changed = self.0.settings.send_if_modified(|current| {
            let differs = **current != settings;
            if differs {
                *current = Arc::new(settings);
            }
            differs
        });
        if changed {
            self.0.pools.resize(self.0.settings().max_processes);
            self.0.all_slots().iter().for_each(|slot| self.0.offer_anew(slot));
        }
    }

    /// Whether it is known to make tasks for clients that know them; it may be, before it runs.
    pub fn offers_tasks(&self) -> bool {
        let known = self.0.known.get().and_then(|known| lock(known).clone());
        known.is_some_and(|known| known.tasks) && self.0.settings().share != Share::Gateway
    }

    /// Stops connections that nobody uses and forgets their places, until the server is stopped.
    pub async fn keep_house(&self) {
        // Who asks what there is does not wait for the disk.
        self.0.known().await;
        let mut settings = self.0.settings.subscribe();
        loop {
            let patience = settings.borrow_and_update().idle_timeout;
            let beat =
                patience.map_or(LONGEST_BEAT, |patience| (patience / 4).clamp(SHORTEST_BEAT, LONGEST_BEAT));
            tokio::select! {
                () = tokio::time::sleep(beat) => {}
                // The server has the sender.
                _changed = settings.changed() => continue,
                () = self.0.stopping.given() => return,
            }
            self.0.forget_unused_slots();
            self.0.book.clear_old();
            self.0.probe_if_due(false).await;
            let Some(patience) = patience else { continue };
            for connection in self.0.all_slots().iter().filter_map(|slot| slot.take_idle(patience)) {
                tracing::info!(upstream = &*self.0.name, "stopped, because nobody used it");
                // One that takes its time to end holds up no other.
                self.0.tasks.spawn(async move { connection.close(GRACE).await });
            }
        }
    }

    /// Takes no new call, lets those that run end for at most `patience`, and closes every connection.
    pub async fn stop(&self, patience: Duration) {
        self.0.stopping.give();
        let slots = self.0.all_slots();
        let mut connections: Vec<_> = slots.iter().filter_map(|slot| slot.end()).collect();
        connections.extend(lock(&self.0.leaving).iter().filter_map(Weak::upgrade));
        let end = tokio::time::Instant::now() + patience;
        let closing = connections.iter().map(|connection| async move {
            // It is late either way when the time is up.
            let _quiet = tokio::time::timeout_at(end, connection.quiet()).await.is_ok();
            connection.close(GRACE).await;
        });
        futures_util::future::join_all(closing).await;
        self.0.tasks.shut_down(GRACE).await;
    }

    /// Whether it can be called.
    pub fn state(&self) -> State {
        status::state(&self.0.all_slots())
    }

    /// How it is, for people.
    pub fn status(&self) -> Status {
        let known = self.0.known.get().and_then(|known| lock(known).clone());
        status::of(&self.0.name, known.as_ref(), &self.0.all_slots())
    }
}

/// The circumstances of what is done for no call: the user's own, by a client that can do this and cannot be asked.
fn nobody(client: Client) -> Context {
    let client = Arc::new(client);
    let session: Arc<str> = "default".into();
    Context {
        principal: Principal::local(),
        ids: ContextIds { durable_session: Arc::clone(&session), session, assistant: None, thread: None },
        deadline: tokio::time::Instant::now() + START_LIMIT,
        peer: Peer::silent(Arc::clone(&client)),
        client,
        log_level: None,
        transport_session: None,
        session_named: false,
    }
}

impl Backend for Server {
    fn offer<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Arc<Offer>> {
        Box::pin(self.0.offer(cx))
    }

    fn call<'a>(&'a self, call: Call, cx: &'a Context) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(async move { self.0.call(&call, cx).await })
    }

    // What a server has, it lists for everybody who shares a connection.
    fn resources<'a>(
        &'a self,
        _after: Option<&'a str>,
        _cx: &'a Context,
    ) -> BoxFuture<'a, Result<ResourcePage, CallError>> {
        Box::pin(std::future::ready(Ok(ResourcePage::default())))
    }

    fn roots_changed(&self, session: &SessionKey) {
        self.0.book.forget(session);
        // It need not come back to where it was told the old ones.
        for slot in self.0.all_slots().iter().filter(|slot| slot.key.roots.is_some()) {
            slot.forget(session);
        }
    }

    fn session_ended(&self, session: &SessionKey) {
        self.0.book.forget(session);
        for slot in self.0.all_slots() {
            slot.forget(session);
            if slot.key.is_of(session) {
                lock(&self.0.slots).retain(|_, other| !Arc::ptr_eq(other, &slot));
                if let Some(connection) = slot.end() {
                    self.0.tasks.spawn(async move { connection.close(GRACE).await });
                }
            }
        }
    }
}

impl Inner {
    /// The circumstances of a client like the one that the server was last told of.
    async fn usual_client(&self) -> Context {
        let declared = lock(self.known().await).as_ref().and_then(|known| known.declared.clone());
        let capabilities = declared.unwrap_or_else(Raw::empty_object);
        nobody(Client { capabilities, ..Client::bare(Version::LATEST_LEGACY) })
    }

    /// How it is used now.
    fn settings(&self) -> Arc<Settings> {
        Arc::clone(&self.settings.borrow())
    }

    /// What the server is told that the client of a call can do.
    fn abilities(&self, cx: &Context) -> Declared {
        let mut abilities = match self.settings().share {
            Share::Gateway => Declared::default(),
            Share::Principal | Share::Session => Declared::of(&cx.client),
        };
        // The gateway answers for the client, whatever that can do.
        abilities.roots |= self.roots.is_some();
        abilities
    }

    /// The extensions beyond those the gateway knows that the server is told of with a call.
    fn other_extensions(&self, cx: &Context) -> BTreeMap<String, Raw> {
        let settings = self.settings.borrow();
        let told = settings.extensions && settings.share != Share::Gateway;
        if told { client::other_extensions(&cx.client) } else { BTreeMap::new() }
    }

    /// Every slot once; one may be there for several keys.
    fn all_slots(&self) -> Vec<Arc<Slot>> {
        let mut slots: Vec<_> = lock(&self.slots).values().cloned().collect();
        slots.sort_by_key(Arc::as_ptr);
        slots.dedup_by(|one, other| Arc::ptr_eq(one, other));
        slots
    }

    /// Forgets the places without a connection that nobody uses or is about to use.
    fn forget_unused_slots(&self) {
        let mut slots = lock(&self.slots);
        // One may be there for several keys.
        let mut places = Map::<_, usize>::default();
        for slot in slots.values() {
            *places.entry(Arc::as_ptr(slot)).or_default() += 1;
        }
        slots.retain(|_, slot| {
            let places = places.get(&Arc::as_ptr(slot)).copied().unwrap_or_default();
            Arc::strong_count(slot) > places || !slot.is_unused()
        });
        drop(slots);
        let is_running = |key: &Key| lock(&self.slots).get(key).is_some_and(|slot| slot.is_running());
        self.pools.forget_unused(is_running);
    }
}

impl fmt::Debug for Server {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Server({})", self.0.name)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;
