//! What a signal asks for.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What the operator wants.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// TERM or INT: finish and end.
    End,
    /// QUIT: leave the listeners to a successor.
    HandOver,
    /// HUP: read the configuration again.
    Reload,
}

/// The signals of this process, from now on ours.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    quit: Signal,
    hang_up: Signal,
}

impl Signals {
    /// Takes the signals over; none ends the process by itself any more.
    pub(crate) fn install() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            quit: signal(SignalKind::quit())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }

    /// The next order.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn next(&mut self) -> Order {
        tokio::select! {
            _ = self.terminate.recv() => Order::End,
            _ = self.interrupt.recv() => Order::End,
            _ = self.quit.recv() => Order::HandOver,
            _ = self.hang_up.recv() => Order::Reload,
        }
    }

    /// Resolves at the next TERM or INT; other orders are dropped.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn end(&mut self) {
        while self.next().await != Order::End {}
    }
}

#[cfg(test)]
mod tests {
    use rustix::process::{Signal as Kind, getpid, kill_process};

    use super::*;

    #[tokio::test]
    async fn each_signal_has_its_meaning() {
        let mut signals = Signals::install().unwrap();
        for (kind, order) in [
            (Kind::HUP, Order::Reload),
            (Kind::QUIT, Order::HandOver),
            (Kind::INT, Order::End),
            (Kind::TERM, Order::End),
        ] {
            kill_process(getpid(), kind).unwrap();
            assert_eq!(signals.next().await, order);
        }
        kill_process(getpid(), Kind::HUP).unwrap();
        kill_process(getpid(), Kind::TERM).unwrap();
        signals.end().await;
    }
}
