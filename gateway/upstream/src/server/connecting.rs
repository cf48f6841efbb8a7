//! Makes connections for slots, takes note when they end, and watches again what was watched through them.

use std::sync::Arc;

use moongate_core::{Change, Principal};

use super::{GRACE, Inner, MAX_CONNECTIONS, START_LIMIT, key::Key, lock, slot::Slot};
use crate::{
    client::{self, Connection, Declared, Failure, Hearing, Open, Verdict, Ways},
    transport::{Fault, Way},
};

impl Inner {
    /// The connection of a slot, made if there is none.
    pub(super) async fn connection(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<Arc<Connection>, Fault> {
        if self.stopping.is_given() {
            return Err(Fault::Unreached("it is being removed".into()));
        }
        self.begin(slot)?;
        slot.connection(&self.tasks, |slot| Arc::clone(self).start(slot)).await
    }

    /// Begins to make a connection if there is none, unless the caller has too many. Under the lock, so that they are
    /// counted one after another.
    fn begin(self: &Arc<Self>, slot: &Arc<Slot>) -> Result<(), Fault> {
        if slot.is_running() {
            return Ok(());
        }
        let slots = lock(&self.slots);
        let open = slots.iter().filter(|(key, other)| {
            // One may be there for several keys.
            **key == other.key && key.principal == slot.key.principal && other.is_running()
        });
        if open.count() >= MAX_CONNECTIONS {
            let fault = Fault::Unreached(
                format!(
                    "too many connections of this caller to the upstream {} are open; end sessions that are not needed, \
                     or try again later",
                    self.name
                )
                .into(),
            );
            slot.troubled(&fault);
            return Err(fault);
        }
        slot.start(&self.tasks, Arc::clone(self).start(Arc::clone(slot)));
        Ok(())
    }

    /// Makes a connection, and watches again what was watched through the one before.
    async fn start(self: Arc<Self>, slot: Arc<Slot>) -> Result<Arc<Connection>, Fault> {
        let name = &*self.name;
        let known = self.verdict().await;
        let mut found_out = known.is_none();
        let mut connected = self.connect(&slot, known.as_ref()).await;
        // What was believed about the server does not hold: look again, once.
        let doubtful = known.is_some() && known != self.configured_verdict();
        if let (true, Err(fault)) = (doubtful, &connected)
            && client::contradicts(fault, self.reach.main.way())
        {
            self.doubt().await;
            found_out = true;
            connected = self.connect(&slot, self.configured_verdict().as_ref()).await;
        }
        let (connection, verdict) =
            connected.inspect_err(|fault| tracing::warn!(upstream = name, %fault, "cannot be reached"))?;
        tracing::info!(upstream = name, version = %connection.version(), "connected");
        self.learn_of_connection(&slot, &connection, &verdict, found_out).await;
        self.share_if_modern(&slot, &verdict);
        if let Err(fault) = self.watch_again(&slot, &connection).await {
            connection.close(GRACE).await;
            return Err(fault);
        }
        self.follow(&slot, &connection);
        // What was remembered, or heard from the one before, may not hold any more.
        let lists = self.lists_of(&slot);
        for listed in lists.all_listed().iter().filter(|listed| listed.kept().is_some()) {
            self.refresh(&lists, listed, &[]);
        }
        Ok(connection)
    }

    /// Takes note of what a new connection says about the server.
    async fn learn_of_connection(
        self: &Arc<Self>,
        slot: &Slot,
        connection: &Connection,
        verdict: &Verdict,
        found_out: bool,
    ) {
        let now = self.clock.millis();
        let server = connection.greeting().name();
        let mut other_server = false;
        // What warming starts for; sessions have processes that nobody else can use.
        let usual = !verdict.modern
            && slot.key.session.is_none()
            && slot.key.principal.as_ref().is_none_or(|principal| *principal == Principal::local());
        self.learn(|known| {
            other_server = known.server.is_some() && known.server != server;
            if found_out || known.at == 0 || known.verdict != *verdict {
                known.at = now;
            }
            known.verdict = verdict.clone();
            known.server = server;
            known.tasks = connection.greeting().offers_tasks();
            if usual {
                known.declared = Some(slot.declared.capabilities());
            }
        })
        .await;
        self.probe_if_due(other_server && !found_out).await;
    }

    /// Watches what was watched through the connection before.
    async fn watch_again(&self, slot: &Slot, connection: &Connection) -> Result<(), Fault> {
        let name = &*self.name;
        let watched = slot.to_watch();
        let watching = async {
            for (uri, count) in &watched {
                for _ in 0..*count {
                    match connection.subscribe(uri).await {
                        Ok(()) => {}
                        // The next connection tries again.
                        Err(Failure::Fault(fault)) => return Err(fault),
                        Err(error) => {
                            tracing::warn!(upstream = name, %uri, %error, "a resource is not watched any more");
                            break;
                        }
                    }
                }
            }
            Ok(())
        };
        if let Ok(outcome) = tokio::time::timeout(START_LIMIT, watching).await {
            outcome?;
        } else {
            tracing::warn!(upstream = name, "resources are not watched any more: no answer");
        }
        slot.watching();
        // It may have changed while nobody watched.
        for (uri, _) in watched {
            self.readings.updated(&uri);
            self.changes.send_to(slot.audience(), Change::Updated { uri });
        }
        Ok(())
    }

    async fn connect(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        known: Option<&Verdict>,
    ) -> Result<(Arc<Connection>, Verdict), Fault> {
        let abilities = &slot.declared;
        let hearing = || {
            let (this, place) = (Arc::downgrade(self), Arc::downgrade(slot));
            let news = move |news| {
                if let (Some(this), Some(slot)) = (this.upgrade(), place.upgrade()) {
                    this.heard(&slot, news);
                }
            };
            let fixed = self.roots.clone().or_else(|| slot.roots.clone());
            let open = Open { fixed, asked: abilities.roots, book: Arc::clone(&self.book) };
            let hearing = Hearing::new(Arc::clone(&self.name), open, self.tasks.clone(), news);
            match self.reach.main.way() {
                Way::Http => hearing.at(self.remembered.fingerprint()),
                // A process takes its tasks along when it ends.
                Way::Pipe => hearing,
            }
        };
        let ways = Ways { main: &*self.reach.main, old: self.reach.old.as_deref() };
        let connecting = client::connect(ways, known, abilities, hearing, &self.tasks);
        if let Ok(connected) = tokio::time::timeout(START_LIMIT, connecting).await {
            return connected;
        }
        // Some legacy servers never answer what they do not know, and may have taken the place of a modern one.
        self.doubt().await;
        Err(Fault::Unreached(format!("it did not start within {} s", START_LIMIT.as_secs()).into()))
    }

    /// A modern server hears of capabilities with each request, so that clients of all kinds share a connection: the one
    /// that was made before this was known becomes that one.
    fn share_if_modern(&self, slot: &Arc<Slot>, verdict: &Verdict) {
        if verdict.modern {
            let key = Key { abilities: Declared::default(), ..slot.key.clone() };
            lock(&self.slots).entry(key).or_insert_with(|| Arc::clone(slot));
        }
    }

    /// Takes note when a connection ends by itself.
    fn follow(self: &Arc<Self>, slot: &Arc<Slot>, connection: &Arc<Connection>) {
        let (this, slot) = (Arc::downgrade(self), Arc::downgrade(slot));
        let connection = Arc::downgrade(connection);
        self.tasks.spawn(async move {
            let Some(alive) = connection.upgrade() else { return };
            let fault = alive.closed().await;
            if let Some(slot) = slot.upgrade() {
                // It may have ended before anybody had it.
                slot.settled().await;
            }
            if let (Some(this), Some(slot)) = (this.upgrade(), slot.upgrade()) {
                this.lost(&slot, &alive, &fault).await;
            }
        });
    }

    pub(super) async fn lost(
        self: &Arc<Self>,
        slot: &Arc<Slot>,
        connection: &Arc<Connection>,
        fault: &Fault,
    ) {
        let watched = connection.watched().await;
        let anything = !watched.is_empty();
        if !slot.lost(connection, watched, fault) {
            return;
        }
        tracing::warn!(upstream = &*self.name, %fault, "connection lost");
        self.metrics.restarts().increment();
        if anything {
            self.keep_trying(slot);
        }
        self.let_end(Arc::clone(connection));
    }

    /// Closes a connection that is of no use for new calls when those under way have ended: they may yet be answered.
    fn let_end(self: &Arc<Self>, connection: Arc<Connection>) {
        let mut leaving = lock(&self.leaving);
        leaving.retain(|other| other.strong_count() > 0);
        leaving.push(Arc::downgrade(&connection));
        drop(leaving);
        self.tasks.spawn(async move {
            connection.quiet().await;
            connection.close(GRACE).await;
        });
    }

    /// Takes the connection of a slot out of use: who calls next gets another, which watches what this one did.
    pub(super) fn retire(self: &Arc<Self>, slot: &Arc<Slot>) {
        let Some(connection) = slot.take() else { return };
        let (this, slot, old) = (Arc::clone(self), Arc::clone(slot), Arc::clone(&connection));
        self.tasks.spawn(async move {
            let watched = old.watched().await;
            if watched.is_empty() {
                return;
            }
            slot.watch_later(watched);
            match this.connection(&slot).await {
                // It may have been made before there was anything to watch.
                Ok(new) => drop(this.watch_again(&slot, &new).await),
                Err(_) => this.keep_trying(&slot),
            }
        });
        self.let_end(connection);
    }

    /// Makes a connection without being asked to: something is watched.
    fn keep_trying(self: &Arc<Self>, slot: &Arc<Slot>) {
        let (this, slot) = (Arc::clone(self), Arc::clone(slot));
        self.tasks.spawn(async move {
            while !slot.to_watch().is_empty() && this.connection(&slot).await.is_err() {
                let Some(at) = slot.retry_at() else { return };
                tokio::time::sleep_until(at).await;
            }
        });
    }
}
