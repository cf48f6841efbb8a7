//! Which connection a call is made on.
//!
//! ```text
//! call ─ share, what the client can do ─→ the slot that lists
//!           ├─ the server asks for roots: one for each set of them, for which the client is asked first
//!           └─ the server asks questions: one for each session; calls without one lease a process each
//! ```
//! Both are only known of legacy servers, and remembered. What a modern one asks comes with the answer to the call.

use std::sync::{Arc, atomic::Ordering};

use moongate_core::{Answer, Ask, CallError, Context, Kind, Operation};
use moongate_wire::Era;
use tokio::time::Instant;

use super::{GRACE, Inner, Share, key::Key, lock, pool::Taken, slot::Slot};
use crate::{
    client::{Declared, Failure, Roots},
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
    begun: bool,
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
        let lists = self.listing_slot(cx, &abilities, manners);
        let mut seat = Seat { slot: Arc::clone(&lists), lists, abilities, lease: None };
        // What is watched is watched for longer than a call.
        let lasting = matches!(operation, Operation::Subscribe { .. } | Operation::Unsubscribe { .. });
        if lasting || !(manners.asks || manners.keeps_to_roots) {
            return Ok(seat);
        }
        let began = Instant::now();
        let roots = if manners.keeps_to_roots && seat.abilities.roots && self.roots.is_none() {
            self.roots_of(operation, cx).await?
        } else {
            None
        };
        if let Some(roots) = &roots {
            seat.slot = self.told(&seat.lists, roots);
        }
        if self.leases(cx, manners) {
            // Waiting for a client counts in no deadline.
            self.lease(&mut seat, roots.as_ref(), cx.deadline + began.elapsed()).await?;
        }
        Ok(seat)
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
            Share::Session if self.leases(cx, manners) => Share::Principal,
            share => share,
        };
        // A modern server is told with each request.
        let told_once = if manners.modern { &Declared::default() } else { abilities };
        if manners.modern
            && let Some(slot) = self.running_legacy(cx, share, abilities)
        {
            return slot;
        }
        self.slot_at(Key::of(cx, share, told_once), told_once, None)
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

    fn slot_at(&self, key: Key, declared: &Declared, roots: Option<&Roots>) -> Arc<Slot> {
        let mut slots = lock(&self.slots);
        if let Some(slot) = slots.get(&key) {
            return Arc::clone(slot);
        }
        let told = roots.map(|roots| roots.told.clone());
        let slot = Arc::new(Slot::new(key.clone(), declared.clone(), told, self.metrics.up().clone()));
        slots.insert(key, Arc::clone(&slot));
        slot
    }

    /// The slot beside `lists` whose server is told these roots.
    fn told(&self, lists: &Slot, roots: &Roots) -> Arc<Slot> {
        let key = Key { roots: Some(roots.hash), ..lists.key.clone() };
        self.slot_at(key, &lists.declared, Some(roots))
    }

    /// The slot that lists for those who use this one.
    pub(super) fn lists_of(&self, slot: &Arc<Slot>) -> Arc<Slot> {
        if slot.key.lists() {
            return Arc::clone(slot);
        }
        self.slot_at(slot.key.of_lists(), &slot.declared, None)
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

    /// The roots of a call's client: as it said before, or says now. `None` where it cannot be asked.
    async fn roots_of(&self, operation: &Operation, cx: &Context) -> Result<Option<Roots>, CallError> {
        if let Some(kept) = self.book.kept(cx) {
            return Ok(Some(kept));
        }
        // A modern client is asked by the answer to a call, which only some calls may have.
        let askable =
            cx.client.version.era() == Era::Legacy || !matches!(operation, Operation::Complete { .. });
        if !askable {
            return Ok(None);
        }
        let roots = match cx.peer.ask_one("roots", Ask::Roots).await? {
            Answer::Result(told) => Roots::read(&told),
            Answer::Refused(_) => None,
        };
        // A client that does not say has none that a server could use.
        let roots = roots.unwrap_or_else(Roots::none);
        self.book.keep(cx, &roots);
        Ok(Some(roots))
    }

    /// Whether a call of `cx` has a process for itself: its client cannot be told from others, and a question from a pipe
    /// does not say whose it is.
    fn leases(&self, cx: &Context, manners: Manners) -> bool {
        manners.asks
            && !cx.session_named
            && self.settings().share != Share::Gateway
            && self.reach.main.way() == Way::Pipe
    }

    /// Gives a call a process for itself, as soon as there is one.
    async fn lease(
        self: &Arc<Self>,
        seat: &mut Seat,
        roots: Option<&Roots>,
        deadline: Instant,
    ) -> Result<(), CallError> {
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
        seat.slot = self.slot_at(key, &seat.lists.declared, roots);
        let (inner, slot) = (Arc::clone(self), Arc::clone(&seat.slot));
        seat.lease = Some(Lease { inner, slot, _taken: taken, begun: false });
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
    pub(super) fn begin(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.begun = true;
        }
    }

    /// The server has said how the call ended, or never heard of it.
    pub(super) fn answered(&mut self) {
        if let Some(lease) = &mut self.lease {
            lease.begun = false;
        }
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        // What it asks now would be taken for a question of the next call.
        if self.begun {
            self.inner.retire(&self.slot);
        }
    }
}
