//! One shared connection: there is one, there is none, one is being made, or it failed and is tried again later.
//!
//! Making a connection is a task of its own: a caller that stops waiting does not stop it. A connection that ends by
//! itself is made anew when it is needed, at once if somebody watches resources through it. Failures to make one are
//! spaced out, and after several in a row callers are told at once for a while.

use std::{
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moongate_core::{
    Raw, SessionKey,
    hash::{Map, Set},
    task::Group,
};
use moongate_telemetry::{Gauge, Held};
use tokio::{sync::watch, time::Instant};

use super::{
    GRACE,
    key::{Key, alike},
    listing::Listed,
};
use crate::{
    client::{Connection, Declared},
    transport::Fault,
};

/// The pause after the first failure; it doubles with each.
const FIRST_PAUSE: Duration = Duration::from_millis(500);
/// The longest pause, reached after several failures.
const LONGEST_PAUSE: Duration = Duration::from_mins(1);

/// How long it is known of a connection that many shared what it offered and what went wrong.
const SHOWN_FOR: Duration = Duration::from_hours(1);

/// What there is of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Phase {
    /// Nothing; the next call makes one.
    Empty,
    /// Somebody is making one.
    Starting,
    /// There is one, which is counted for as long.
    Ready { connection: Arc<Connection>, _up: Arc<Held> },
    /// It could not be made, and is not tried again before this time.
    Failed(Fault, Instant),
    /// There will be none any more.
    Over,
}

/// One shared connection, or the place for it.
#[derive(Debug)]
pub(crate) struct Slot {
    pub(crate) key: Key,
    /// What the server is told in the handshake: as the first of its clients declared it.
    pub(crate) declared: Declared,
    /// What it is told when it asks for roots, where the key says so: as the first of its clients wrote it.
    pub(crate) roots: Option<Raw>,
    phase: watch::Sender<Phase>,
    failures: AtomicU64,
    starts: AtomicU64,
    last_used: Mutex<Instant>,
    /// Transport sessions that have called through it and may call again.
    sessions: Mutex<Set<SessionKey>>,
    /// What the server offered those who share it, by what they can do.
    listed: Mutex<Map<Declared, Arc<Listed>>>,
    /// What was watched through a connection that is lost, and how often.
    watched: Mutex<Vec<(Arc<str>, usize)>>,
    /// The last thing that went wrong and when, for people.
    trouble: Mutex<Option<(Instant, Fault)>>,
    /// Counts connections.
    up: Gauge,
}

impl Slot {
    pub(crate) fn new(key: Key, declared: Declared, roots: Option<Raw>, up: Gauge) -> Self {
        Self {
            key,
            declared,
            roots,
            phase: watch::Sender::new(Phase::Empty),
            failures: AtomicU64::new(0),
            starts: AtomicU64::new(0),
            last_used: Mutex::new(Instant::now()),
            sessions: Mutex::default(),
            listed: Mutex::default(),
            watched: Mutex::default(),
            trouble: Mutex::default(),
            up,
        }
    }

    /// The connection, made by `start` if there is none. `start` runs as a task and must not hold the slot back.
    ///
    /// # Errors
    /// Why there is none.
    ///
    /// # Cancel safety
    /// Cancel safe: what was started goes on.
    pub(crate) async fn connection<F>(
        self: &Arc<Self>,
        tasks: &Group,
        start: impl Fn(Arc<Self>) -> F + Send + Sync,
    ) -> Result<Arc<Connection>, Fault>
    where
        F: Future<Output = Result<Arc<Connection>, Fault>> + Send + 'static,
    {
        let mut phases = self.phase.subscribe();
        // Before looking, so that what is found is not taken for idle meanwhile.
        self.touch();
        loop {
            if tasks.is_cancelled() {
                return Err(Fault::Unreached("it is being removed".into()));
            }
            let phase = phases.borrow_and_update().clone();
            match phase {
                Phase::Ready { connection, .. } => return Ok(connection),
                Phase::Over => return Err(Fault::Unreached("it is being removed".into())),
                Phase::Failed(fault, until) if Instant::now() < until => return Err(fault),
                Phase::Empty | Phase::Failed(..) => self.start(tasks, start(Arc::clone(self))),
                Phase::Starting => {
                    if phases.changed().await.is_err() {
                        return Err(Fault::Unreached("it is being removed".into()));
                    }
                }
            }
        }
    }

    /// Makes a connection in a task, unless somebody else began to.
    pub(crate) fn start(
        self: &Arc<Self>,
        tasks: &Group,
        make: impl Future<Output = Result<Arc<Connection>, Fault>> + Send + 'static,
    ) {
        let ours = self.phase.send_if_modified(|phase| {
            let startable = match phase {
                Phase::Empty => true,
                Phase::Failed(_, until) => Instant::now() >= *until,
                Phase::Starting | Phase::Ready { .. } | Phase::Over => false,
            };
            if startable {
                *phase = Phase::Starting;
            }
            startable
        });
        if !ours {
            return;
        }
        // However the making ends, also by being dropped before it begins, nobody is left waiting.
        let unfinished = Unfinished(Arc::clone(self));
        tasks.spawn(async move {
            let outcome = make.await;
            let connection = outcome.as_ref().ok().cloned();
            if let (false, Some(unwanted)) = (unfinished.0.made(outcome), connection) {
                unwanted.close(GRACE).await;
            }
        });
    }

    /// False when nobody wants the connection any more.
    fn made(&self, outcome: Result<Arc<Connection>, Fault>) -> bool {
        let phase = match outcome {
            Ok(connection) => {
                self.failures.store(0, Ordering::Relaxed);
                self.starts.fetch_add(1, Ordering::Relaxed);
                self.touch();
                Phase::Ready { connection, _up: Arc::new(self.up.hold()) }
            }
            Err(fault) => {
                let failures = self.failures.fetch_add(1, Ordering::Relaxed);
                self.troubled(&fault);
                Phase::Failed(fault, Instant::now() + pause(failures))
            }
        };
        self.finish(phase)
    }

    /// The making of a connection has ended, unless it was decided meanwhile that there is to be none.
    fn finish(&self, next: Phase) -> bool {
        self.phase.send_if_modified(|phase| {
            let waiting = matches!(phase, Phase::Starting);
            if waiting {
                *phase = next;
            }
            waiting
        })
    }

    /// Resolves when no connection is being made.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn settled(&self) {
        let mut phases = self.phase.subscribe();
        // It fails only when the slot is gone, and then there is nothing to wait for.
        let _seen = phases.wait_for(|phase| !matches!(phase, Phase::Starting)).await.is_ok();
    }

    /// The connection, through which so much was watched, is of no use any more. False when it is not the present one.
    pub(crate) fn lost(
        &self,
        connection: &Arc<Connection>,
        watched: Vec<(Arc<str>, usize)>,
        fault: &Fault,
    ) -> bool {
        let was_present = self.phase.send_if_modified(|phase| {
            let same =
                matches!(phase, Phase::Ready { connection: current, .. } if Arc::ptr_eq(current, connection));
            if same {
                *phase = Phase::Empty;
                *lock(&self.watched) = watched;
            }
            same
        });
        if was_present {
            self.troubled(fault);
        }
        was_present
    }

    /// What the next connection has to watch.
    pub(crate) fn to_watch(&self) -> Vec<(Arc<str>, usize)> {
        lock(&self.watched).clone()
    }

    /// The next connection watches it.
    pub(crate) fn watching(&self) {
        lock(&self.watched).clear();
    }

    /// Ends one watch of a resource that only waits for a connection. False when there is one, or one is being made.
    pub(crate) fn watch_no_more(&self, uri: &Arc<str>) -> bool {
        let phase = self.phase.borrow();
        if !matches!(*phase, Phase::Empty | Phase::Failed(..)) {
            return false;
        }
        let mut watched = lock(&self.watched);
        if let Some((_, count)) = watched.iter_mut().find(|(watched, _)| watched == uri) {
            *count = count.saturating_sub(1);
        }
        watched.retain(|(_, count)| *count > 0);
        true
    }

    /// When it is worth trying again, after a failure.
    pub(crate) fn retry_at(&self) -> Option<Instant> {
        match &*self.phase.borrow() {
            Phase::Failed(_, until) => Some(*until),
            _ => None,
        }
    }

    /// Takes the connection away, to be closed, if nobody has used it for `patience` or is likely to notice.
    pub(crate) fn take_idle(&self, patience: Duration) -> Option<Arc<Connection>> {
        let mut taken = None;
        self.phase.send_if_modified(|phase| {
            match phase {
                Phase::Ready { connection, .. } if self.is_idle(connection, patience) => {
                    taken = Some(Arc::clone(connection));
                    *phase = Phase::Empty;
                }
                _ => {}
            }
            taken.is_some()
        });
        taken
    }

    /// Takes the connection away, whoever uses it; the next call makes another.
    pub(crate) fn take(&self) -> Option<Arc<Connection>> {
        let mut taken = None;
        self.phase.send_if_modified(|phase| {
            if let Phase::Ready { connection, .. } = phase {
                taken = Some(Arc::clone(connection));
                *phase = Phase::Empty;
            }
            taken.is_some()
        });
        taken
    }

    /// What was watched through a connection that was taken away; the next one has to.
    pub(crate) fn watch_later(&self, watched: Vec<(Arc<str>, usize)>) {
        lock(&self.watched).extend(watched);
    }

    /// Takes the connection away, to be closed. None will follow.
    pub(crate) fn end(&self) -> Option<Arc<Connection>> {
        match self.phase.send_replace(Phase::Over) {
            Phase::Ready { connection, .. } => Some(connection),
            _ => None,
        }
    }

    /// Whether there is nothing but the place for a connection, which nobody has wanted lately.
    pub(crate) fn is_unused(&self) -> bool {
        let empty = match &*self.phase.borrow() {
            Phase::Empty => true,
            // Who comes back soon after is still told to wait longer each time.
            Phase::Failed(_, until) => Instant::now() >= *until + LONGEST_PAUSE,
            Phase::Starting | Phase::Ready { .. } | Phase::Over => false,
        };
        // What many share is shown to people as well; a session rarely comes back.
        let of_few = self.key.session.is_some() || self.key.roots.is_some() || !self.key.lists();
        let patience = if of_few { Duration::ZERO } else { SHOWN_FOR };
        empty && lock(&self.watched).is_empty() && lock(&self.last_used).elapsed() >= patience
    }

    /// What is offered to those who can do this.
    pub(crate) fn listed(&self, abilities: &Declared) -> Arc<Listed> {
        let mut listed = lock(&self.listed);
        let new = || Arc::new(Listed::new(abilities.clone()));
        Arc::clone(listed.entry(alike(abilities)).or_insert_with(new))
    }

    /// Everything that is offered to somebody.
    pub(crate) fn all_listed(&self) -> Vec<Arc<Listed>> {
        lock(&self.listed).values().cloned().collect()
    }

    /// The present connection.
    pub(crate) fn present(&self) -> Option<Arc<Connection>> {
        match &*self.phase.borrow() {
            Phase::Ready { connection, .. } => Some(Arc::clone(connection)),
            _ => None,
        }
    }

    /// Whether there is a connection, or is about to be.
    pub(crate) fn is_running(&self) -> bool {
        matches!(*self.phase.borrow(), Phase::Starting | Phase::Ready { .. })
    }

    /// What there is.
    pub(crate) fn phase(&self) -> Phase {
        self.phase.borrow().clone()
    }

    /// The last thing that went wrong, and when.
    pub(crate) fn trouble(&self) -> Option<(Instant, Fault)> {
        lock(&self.trouble).clone()
    }

    /// Something went wrong beside the making of a connection.
    pub(crate) fn troubled(&self, fault: &Fault) {
        *lock(&self.trouble) = Some((Instant::now(), fault.clone()));
    }

    /// How often a connection was made.
    pub(crate) fn starts(&self) -> u64 {
        self.starts.load(Ordering::Relaxed)
    }

    /// It is used now, by a call of this transport session if it has one.
    pub(crate) fn used(&self, session: Option<SessionKey>) {
        self.touch();
        if let Some(session) = session {
            let mut sessions = lock(&self.sessions);
            if !sessions.contains(&session) {
                sessions.insert(session);
            }
        }
    }

    fn touch(&self) {
        *lock(&self.last_used) = Instant::now();
    }

    /// A session that may have called through it is over.
    pub(crate) fn forget(&self, session: &SessionKey) {
        lock(&self.sessions).remove(session);
    }

    fn is_idle(&self, connection: &Connection, patience: Duration) -> bool {
        let quiet = lock(&self.last_used).elapsed() >= patience;
        quiet && lock(&self.sessions).is_empty() && !connection.is_busy()
    }
}

/// A connection that is being made.
struct Unfinished(Arc<Slot>);

impl Drop for Unfinished {
    fn drop(&mut self) {
        self.0.finish(Phase::Empty);
    }
}

/// How long to leave a server alone that failed `failures` times before, with some jitter so that many do not come back
/// in one moment.
fn pause(failures: u64) -> Duration {
    let doubled = FIRST_PAUSE.saturating_mul(1 << failures.min(10));
    // A new hasher is keyed at random.
    let sixteenths = u32::try_from(RandomState::new().hash_one(0) % 16).unwrap_or(0);
    doubled.min(LONGEST_PAUSE).mul_f64(0.75 + f64::from(sixteenths) / 64.0)
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The slots of a server.
pub(crate) type Slots = Mutex<Map<Key, Arc<Slot>>>;

#[cfg(test)]
mod tests {
    use moongate_telemetry::{Metrics, Transport};

    use super::*;

    fn gauge() -> Gauge {
        Metrics::new().upstream("test", Transport::Pipe).up().clone()
    }

    #[test]
    fn pauses_grow_and_stay_bounded() {
        let pauses: Vec<_> = (0..20).map(pause).collect();
        assert!(pauses[..7].is_sorted() && pauses[0] < Duration::from_secs(1), "{pauses:?}");
        assert!(pauses[7..].iter().all(|pause| (LONGEST_PAUSE / 2..=LONGEST_PAUSE).contains(pause)));
        assert!((0..100).map(|_| pause(0)).any(|other| other != pauses[0]), "not all at the same moment");
    }

    #[tokio::test(start_paused = true)]
    async fn one_failure_is_told_to_all_who_wait_and_tried_again_after_a_pause() {
        let slot = Arc::new(Slot::new(Key::default(), Declared::default(), None, gauge()));
        let tasks = Group::new();
        let tried = Arc::new(AtomicU64::new(0));
        let fail = |_| {
            let tried = Arc::clone(&tried);
            async move {
                tried.fetch_add(1, Ordering::Relaxed);
                tokio::time::sleep(Duration::from_secs(1)).await;
                Err(Fault::Unreached("no".into()))
            }
        };
        let (first, second) = tokio::join!(slot.connection(&tasks, fail), slot.connection(&tasks, fail));
        assert_eq!(
            (first.err(), second.err()),
            (Some(Fault::Unreached("no".into())), Some(Fault::Unreached("no".into())))
        );
        assert!(slot.connection(&tasks, fail).await.is_err());
        assert_eq!(tried.load(Ordering::Relaxed), 1, "not tried again at once");
        tokio::time::sleep(FIRST_PAUSE).await;
        assert!(slot.connection(&tasks, fail).await.is_err());
        assert_eq!(tried.load(Ordering::Relaxed), 2);
        assert_eq!(slot.trouble().map(|(_, fault)| fault), Some(Fault::Unreached("no".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_start_that_is_dropped_leaves_nobody_waiting() {
        let slot = Arc::new(Slot::new(Key::default(), Declared::default(), None, gauge()));
        let tasks = Group::new();
        slot.start(&tasks, std::future::pending());
        assert!(matches!(slot.phase(), Phase::Starting));
        tasks.shut_down(Duration::from_secs(1)).await;
        assert!(matches!(slot.phase(), Phase::Empty));
        assert!(slot.end().is_none());
        let over = slot.connection(&tasks, |_| std::future::pending()).await;
        assert!(matches!(over, Err(Fault::Unreached(_))));
    }
}
