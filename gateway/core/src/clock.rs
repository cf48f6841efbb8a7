//! Wall-clock time behind one handle, so that tests can set it.
//!
//! Waiting uses `tokio::time`, which tests pause; this is for timestamps people read and for stored expiry.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// Tells the time.
#[derive(Clone)]
pub struct Clock(Arc<dyn Fn() -> SystemTime + Send + Sync>);

/// The handle that moves a clock made by [`Clock::settable`].
#[derive(Clone, Debug)]
pub struct ClockHandle(Arc<AtomicU64>);

impl Clock {
    /// The machine's clock.
    pub fn system() -> Self {
        Self(Arc::new(SystemTime::now))
    }

    /// A clock that stands still at `start` until its handle moves it.
    pub fn settable(start: SystemTime) -> (Self, ClockHandle) {
        let since = start.duration_since(UNIX_EPOCH).unwrap_or_default();
        let millis = Arc::new(AtomicU64::new(u64::try_from(since.as_millis()).unwrap_or(u64::MAX)));
        let handle = ClockHandle(Arc::clone(&millis));
        (Self(Arc::new(move || UNIX_EPOCH + Duration::from_millis(millis.load(Ordering::Acquire)))), handle)
    }

    /// Now.
    pub fn now(&self) -> SystemTime {
        (self.0)()
    }

    /// Milliseconds since 1970.
    pub fn millis(&self) -> u64 {
        let since = self.now().duration_since(UNIX_EPOCH).unwrap_or_default();
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }
}

impl ClockHandle {
    /// Moves the clock forward.
    pub fn advance(&self, by: Duration) {
        self.0.fetch_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX), Ordering::AcqRel);
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clock")
    }
}
