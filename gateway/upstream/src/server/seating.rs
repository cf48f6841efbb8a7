//! Which connection a call is made on.
//!
//! ```text
//! call ─ share, what the client can do ─→ slot
//!           ├─ the server asks for roots: one for each set of them, for which the client of a session is asked once
//!           ├─ the server asks questions: one for each session
//!           └─ either, and the call has no session: it leases a process
//! ```
//! Both are only known of legacy servers, and remembered. What a modern one asks comes with the answer to the call.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use moongate_core::{Answer, Ask, CallError, Context, Kind, Operation, Raw};
use tokio::time::Instant;

use super::{GRACE, Inner, Share, key::Key, lock, pool::Taken, slot::Slot};
use crate::{
    client::{Book, Declared, Failure, Roots},
    transport::Way,
};

/// Where a call is made.
pub(super) struct Seat {
    pub(super) slot: Arc<Slot>,
    /// The slot that lists what is offered to its caller.
    pub(super) lists: Arc<Slot>,
    /// What the client can do, as far as the server is told.
    pub(super) abilities: Declared,
    lease: Option<Lease>,
}

/// A process that one call has for itself, as long as the call lasts: also while it waits for its client.
struct Lease {
    inner: Arc<Inner>,
    slot: Arc<Slot>,
    _taken: Taken,
    /// The process may still be at the call, and ask for it.
    begun: AtomicBool,
}

/// What is known of the way a server goes about things.
#[derive(Clone, Copy, Debug, Default)]
struct Manners {
    modern: bool,
    /// It asks without saying whose call that is about.
    asks: bool,
    /// It keeps to the roots of its client.
    keeps_to_roots: bool,
}

impl Inner {
    /// The slot that lists for a caller whose client can do this.
    pub(super) async fn slot(&self, cx: &Context, abilities: &Declared) -> Arc<Slot> {
        self.listing_slot(cx, abilities, self.manners().await)
    }

    /// Where a call is made. Waits for its turn where the processes of the server are for one call each.
    ///
    /// # Errors
    /// There was no turn in time, or the client did not say what its roots are.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn seat(
        self: &Arc<Self>,
        operation: &Operation,
        cx: &Context,
    ) -> Result<Seat, CallError> {
        let abilities = self.abilities(cx);
        let manners = self.manners().await;
        if manners.keeps_to_roots && self.depends_on_roots(&abilities) && Book::knows(cx) {
            self.ask_for_roots(operation, cx).await?;
        }
        let lists = self.listing_slot(cx, &abilities, manners);
        let mut seat = Seat { slot: Arc::clone(&lists), lists, abilities, lease: None };
        // What is watched is watched for longer than a call.
        let lasting = matches!(operation, Operation::Subscribe { .. } | Operation::Unsubscribe { .. });
        if !lasting && self.leases(cx, &seat.abilities, manners) {
            self.lease(&mut seat, cx.deadline).await?;
        }
        Ok(seat)
    }

    /// Whether calls of clients that can do this need a connection of their own, which nobody can make before they call.
    pub(super) async fn keeps_apart(&self, abilities: &Declared) -> bool {
        self.manners().await.keeps_to_roots && self.depends_on_roots(abilities)
    }

    /// Whether what the server is told of roots is what a client that can do this says.
    fn depends_on_roots(&self, abilities: &Declared) -> bool {
        abilities.roots && self.roots.is_none()
    }

    async fn manners(&self) -> Manners {
        let known = self.known().await;
        let found = lock(known).as_ref().map_or_else(Manners::default, |known| Manners {
            modern: known.verdict.modern,
            asks: known.asks,
            keeps_to_roots: known.asks_roots,
        });
        let modern = self.configured_verdict().map_or(found.modern, |configured| configured.modern);
        if modern { Manners { modern, ..Manners::default() } } else { Manners { modern, ..found } }
    }

    fn listing_slot(&self, cx: &Context, abilities: &Declared, manners: Manners) -> Arc<Slot> {
        let share = match self.settings().share {
            Share::Principal if manners.asks && cx.session_named => Share::Session,
            Share::Session if self.leases(cx, abilities, manners) => Share::Principal,
            share => share,
        };
        // A modern server is told with each request.
        let told_once = if manners.modern { &Declared::default() } else { abilities };
        if manners.modern
            && let Some(slot) = self.running_legacy(cx, share, abilities)
        {
            return slot;
        }
        let key = Key::of(cx, share, told_once);
        let apart = manners.keeps_to_roots && self.depends_on_roots(abilities);
        match apart.then(|| self.book.kept(cx)).flatten() {
            Some(roots) => self.slot_at(Key { roots: Some(roots.hash), ..key }, told_once, Some(&roots.told)),
            None => self.slot_at(key, told_once, None),
        }
    }

    /// The connection that a caller has had since before the server was found to have become modern: it goes on with that.
    fn running_legacy(&self, cx: &Context, share: Share, abilities: &Declared) -> Option<Arc<Slot>> {
        if !self.became_modern.load(Ordering::Relaxed) {
            return None;
        }
        let slots = lock(&self.slots);
        let slot = slots.get(&Key::of(cx, share, abilities))?;
        slot.is_running().then(|| Arc::clone(slot))
    }

    fn slot_at(&self, key: Key, declared: &Declared, roots: Option<&Raw>) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let (declared, up) = (declared.clone(), self.metrics.up().clone());
        let slot = Arc::new(Slot::new(key.clone(), declared, roots.cloned(), up));
        slots.insert(key, Arc::clone(&slot));
        slot
    }

    /// The slot that lists for those who use this one.
    pub(super) fn lists_of(&self, slot: &Arc<Slot>) -> Arc<Slot> {
        if slot.key.lists() {
            return Arc::clone(slot);
        }
        self.slot_at(slot.key.of_lists(), &slot.declared, slot.roots.as_ref())
    }

    /// The slot by which it is best listed what `lists` offers: one that is connected, if there is one.
    pub(super) fn best_to_list(&self, lists: &Arc<Slot>) -> Arc<Slot> {
        if lists.is_running() {
            return Arc::clone(lists);
        }
        let slots = lock(&self.slots);
        let mut others = slots.values().filter(|slot| slot.is_running());
        let other = others.find(|slot| !slot.key.lists() && slot.key.of_lists() == lists.key);
        Arc::clone(other.unwrap_or(lists))
    }

    /// Asks the client of a session for its roots, unless it has said them or cannot be asked now.
    async fn ask_for_roots(&self, operation: &Operation, cx: &Context) -> Result<(), CallError> {
        // A modern client is asked by the answer to a call, which only these may have.
        let asks = matches!(
            operation,
            Operation::CallTool { .. } | Operation::GetPrompt { .. } | Operation::ReadResource { .. }
        );
        if !asks || self.book.kept(cx).is_some() {
            return Ok(());
        }
        let roots = match cx.peer.ask_one("roots", Ask::Roots).await? {
            Answer::Result(told) => Roots::read(&told),
            Answer::Refused(_) => None,
        };
        // A client that does not say has none that a server could use.
        self.book.keep(cx, &roots.unwrap_or_else(Roots::none));
        Ok(())
    }

    /// Whether a call of `cx` has a process for itself: its client cannot be told from others, and a question from a pipe
    /// does not say whose it is.
    fn leases(&self, cx: &Context, abilities: &Declared, manners: Manners) -> bool {
        (manners.asks || manners.keeps_to_roots && self.depends_on_roots(abilities))
            && !Book::knows(cx)
            && self.settings().share != Share::Gateway
            && self.reach.main.way() == Way::Pipe
    }

    /// Gives a call a process for itself, as soon as there is one.
    async fn lease(self: &Arc<Self>, seat: &mut Seat, deadline: Instant) -> Result<(), CallError> {
        let key = seat.slot.key.clone();
        let Some(principal) = &key.principal else { return Ok(()) };
        let size = self.settings().max_processes;
        let pool = self.pools.of(principal, size);
        let turn = tokio::select! {
            biased;
            turn = pool.turn() => turn,
            () = tokio::time::sleep_until(deadline) => {
                let name = &self.name;
                let text = format!(
                    "The upstream {name} failed: it asks questions, so that each call without a session has a process of \
                     its own, and all of them were busy ({size}) until the call's time was up; raise \
                     upstreams.{name}.max_processes, or name a session"
                );
                return Err(CallError::upstream(Kind::Timeout, text));
            }
            () = self.stopping.given() => {
                let fault = crate::transport::Fault::Unreached("it is being removed".into());
                return Err(Failure::from(fault).into_call_error(&self.name));
            }
        };
        let (taken, before) = turn.take(&key, |number, place| {
            let running = |key: &Key| lock(&self.slots).get(key).filter(|slot| slot.is_running()).cloned();
            let own = running(&Key { place: number, ..key.clone() });
            let other = place.last.as_ref().filter(|last| Key { place: 0, ..(*last).clone() } != key);
            match (own, other.and_then(running)) {
                // A call that began before the server was known to ask may still be under way.
                (Some(own), _) if own.present().is_some_and(|connection| connection.is_called()) => 3,
                (Some(_), _) => 0,
                (None, None) => 1,
                (None, Some(_)) => 2,
            }
        });
        let key = Key { place: taken.number, ..key };
        if let Some(before) = before.filter(|before| *before != key) {
            self.clear(&before);
        }
        seat.slot = self.slot_at(key, &seat.lists.declared, None);
        let (inner, slot) = (Arc::clone(self), Arc::clone(&seat.slot));
        seat.lease = Some(Lease { inner, slot, _taken: taken, begun: AtomicBool::new(false) });
        Ok(())
    }

    /// Stops the process that somebody else left in a place.
    fn clear(self: &Arc<Self>, key: &Key) {
        let slot = lock(&self.slots).get(key).cloned();
        let idle = slot.and_then(|slot| slot.take_idle(std::time::Duration::ZERO));
        if let Some(connection) = idle {
            self.tasks.spawn(async move { connection.close(GRACE).await });
        }
    }
}

impl Seat {
    /// The call is made now.
    pub(super) fn begin(&self) {
        if let Some(lease) = &self.lease {
            lease.begun.store(true, Ordering::Relaxed);
        }
    }

    /// The server has said how the call ended, or never heard of it.
    pub(super) fn answered(&self) {
        if let Some(lease) = &self.lease {
            lease.begun.store(false, Ordering::Relaxed);
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What it asks now would be taken for a question of the next call.
        if self.begun.load(Ordering::Relaxed) {
            self.inner.retire(&self.slot);
        }
    }
}
