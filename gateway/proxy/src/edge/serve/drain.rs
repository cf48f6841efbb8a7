//! Ends a server without losing a request: draining first, closing afterwards.
//!
//! While *draining* the listeners still accept and every request is still answered, but answers tell HTTP/1.1 clients to
//! close, HTTP/2 clients get a GOAWAY, open streams end, and a connection that stays quiet is closed. While *closing* no
//! new connection is accepted and what is left may finish. When it is *over*, the rest is cut.
//!
//! In: the signal to end, from whoever owns the process. Out: the phase, seen by listeners, connections and streams.

use std::{sync::Arc, time::Duration};

use moongate_core::task::Signal;
use tokio::{sync::watch, time};

/// How far the end has come. The order matters: it never goes back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Phase {
    Serving,
    Draining,
    Closing(Backlog),
    Over,
}

/// What becomes of connections that the kernel has completed and nobody has accepted yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Backlog {
    /// A successor listens on the same socket and will accept them.
    Leave,
    /// Nobody else will: accept them before the socket is closed, or they are reset.
    Adopt,
}

/// What is still alive.
#[derive(Clone, Copy, Debug, Default)]
struct Alive {
    listeners: usize,
    connections: usize,
}

/// The handle to one drain; clones share it.
#[derive(Clone, Debug)]
pub struct Drain(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    phase: watch::Sender<Phase>,
    /// Given as soon as the phase is not `Serving` any more: every answer asks.
    begun: Signal,
    alive: watch::Sender<Alive>,
}

/// How long each part of a drain may take.
#[derive(Clone, Copy, Debug)]
pub struct Patience {
    /// How long new connections are accepted while others are open, so that a balancer that lags is still served.
    pub draining: Duration,
    /// How long the remaining connections have to finish once no new one is accepted.
    pub closing: Duration,
}

impl Default for Patience {
    /// Four seconds altogether: the whole process must end within five.
    fn default() -> Self {
        Self { draining: Duration::from_millis(1500), closing: Duration::from_millis(2500) }
    }
}

impl Default for Drain {
    fn default() -> Self {
        Self::new()
    }
}

impl Drain {
    /// A drain that has not begun.
    pub fn new() -> Self {
        Self(Arc::new(Shared {
            phase: watch::Sender::new(Phase::Serving),
            begun: Signal::default(),
            alive: watch::Sender::new(Alive::default()),
        }))
    }

    /// Whether the server is about to end: streams should, and `/readyz` should say so.
    pub fn is_draining(&self) -> bool {
        self.0.begun.is_given()
    }

    /// Resolves when the server is about to end.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn begun(&self) {
        self.0.begun.given().await;
    }

    /// Resolves when no new connection is accepted.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn closed(&self) {
        self.closing().await;
    }

    /// Resolves when no connection may go on.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub async fn over(&self) {
        self.reached(Phase::Over).await;
    }

    /// How many connections are open on all listeners.
    pub fn connections(&self) -> usize {
        self.0.alive.borrow().connections
    }

    /// Ends everything: drains, stops accepting, waits for the rest. Returns how many connections had to be cut.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped drain stays in the phase it had reached.
    pub async fn finish(&self, patience: Patience) -> usize {
        self.advance(Phase::Draining);
        self.wait(patience.draining, |alive| alive.connections == 0).await;
        self.close(Backlog::Adopt, patience.closing).await
    }

    /// Leaves the listening sockets to a successor and ends the connections that are open here. Returns how many had to
    /// be cut.
    ///
    /// # Cancel safety
    /// Not cancel safe: a dropped drain stays in the phase it had reached.
    pub async fn hand_over(&self, grace: Duration) -> usize {
        self.close(Backlog::Leave, grace).await
    }

    async fn close(&self, backlog: Backlog, grace: Duration) -> usize {
        self.advance(Phase::Closing(backlog));
        // The listeners count too: until they are closed they may still add a connection.
        self.wait(grace, |alive| alive.connections == 0 && alive.listeners == 0).await;
        let cut = self.connections();
        self.advance(Phase::Over);
        cut
    }

    fn advance(&self, to: Phase) {
        self.0.phase.send_if_modified(|phase| {
            let forward = *phase < to;
            if forward {
                *phase = to;
            }
            forward
        });
        // After the phase, so that whoever is woken finds it.
        if to > Phase::Serving {
            self.0.begun.give();
        }
    }

    async fn reached(&self, wanted: Phase) {
        let mut phase = self.0.phase.subscribe();
        // The sender lives as long as this handle, so the channel cannot close here.
        if phase.wait_for(|phase| *phase >= wanted).await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    async fn wait(&self, at_most: Duration, until: impl FnMut(&Alive) -> bool) {
        let mut alive = self.0.alive.subscribe();
        // Both outcomes are fine: the caller looks at what is left.
        let _elapsed = time::timeout(at_most, alive.wait_for(until)).await.is_err();
    }

    /// Resolves when no new connection may be accepted, with what to do about the waiting ones.
    pub(super) async fn closing(&self) -> Backlog {
        self.reached(Phase::Closing(Backlog::Leave)).await;
        match *self.0.phase.borrow() {
            Phase::Closing(backlog) => backlog,
            Phase::Serving | Phase::Draining | Phase::Over => Backlog::Leave,
        }
    }

    /// Counts a listener for as long as the guard lives.
    pub(super) fn listener(&self) -> Counted {
        Counted::new(self, |alive| &mut alive.listeners)
    }

    /// Counts a connection for as long as the guard lives.
    pub(super) fn connection(&self) -> Counted {
        Counted::new(self, |alive| &mut alive.connections)
    }
}

/// One listener or connection that is alive.
#[derive(Debug)]
pub(super) struct Counted {
    drain: Drain,
    which: fn(&mut Alive) -> &mut usize,
}

impl Counted {
    fn new(drain: &Drain, which: fn(&mut Alive) -> &mut usize) -> Self {
        drain.0.alive.send_modify(|alive| *which(alive) += 1);
        Self { drain: drain.clone(), which }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.drain.0.alive.send_modify(|alive| *(self.which)(alive) -= 1);
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use tokio::time::Instant;

    use super::*;

    #[tokio::test(start_paused = true)]
    async fn nothing_open_ends_at_once() {
        let start = Instant::now();
        assert_eq!(Drain::new().finish(Patience::default()).await, 0);
        assert_eq!(start.elapsed(), Duration::ZERO);
    }

    #[tokio::test(start_paused = true)]
    async fn a_connection_that_stays_is_cut_when_patience_ends() {
        let (drain, start, patience) = (Drain::new(), Instant::now(), Patience::default());
        let _open = drain.connection();
        assert_eq!(drain.finish(patience).await, 1);
        assert_eq!(start.elapsed(), patience.draining + patience.closing);
        assert!(drain.over().now_or_never().is_some());
    }

    #[tokio::test(start_paused = true)]
    async fn closing_waits_for_listeners_because_they_may_add_a_connection() {
        let drain = Drain::new();
        let listener = drain.listener();
        let mut finish = std::pin::pin!(drain.finish(Patience::default()));
        assert!(finish.as_mut().now_or_never().is_none());
        assert_eq!(drain.closing().now_or_never(), Some(Backlog::Adopt));
        assert!(drain.over().now_or_never().is_none());
        drop(listener);
        assert_eq!(finish.await, 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_hand_over_leaves_the_backlog_to_the_successor() {
        let drain = Drain::new();
        let _listener = drain.listener();
        let mut hand_over = std::pin::pin!(drain.hand_over(Duration::from_secs(1)));
        assert!(hand_over.as_mut().now_or_never().is_none());
        assert!(drain.is_draining());
        assert_eq!(drain.closing().now_or_never(), Some(Backlog::Leave));
    }

    #[tokio::test(start_paused = true)]
    async fn a_drain_never_goes_back() {
        let drain = Drain::new();
        drain.finish(Patience::default()).await;
        drain.advance(Phase::Draining);
        assert!(drain.over().now_or_never().is_some());
    }
}
