//! Rate counts: one limiter per distinct quota, one bucket per key.

use std::{
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use governor::{
    RateLimiter, clock, middleware::NoOpMiddleware, nanos::Nanos, state::keyed::DashMapStateStore,
};
use moongate_core::hash::Hasher;
use tokio::time::Instant;

use crate::{Quota, Rate};

/// Quotas longer than this count as this long; the limiter's arithmetic on nanoseconds would overflow at 584 years.
const LONGEST: Duration = Duration::from_hours(366 * 24);

type Limiter = RateLimiter<u64, DashMapStateStore<u64, Hasher>, Clock, NoOpMiddleware<Nanos>>;

pub(super) struct Rates {
    /// There are as many as quotas in the configuration: few enough to look through.
    limiters: RwLock<Vec<(Quota, Arc<Limiter>)>>,
    start: Instant,
    clock: Clock,
}

/// The latest time that was told, in nanoseconds, so that one look at the real clock is enough for all that a call is
/// counted against.
#[derive(Clone, Debug, Default)]
struct Clock(Arc<AtomicU64>);

impl clock::Clock for Clock {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        Nanos::new(self.0.load(Ordering::Relaxed))
    }
}

impl Default for Rates {
    fn default() -> Self {
        Self { limiters: RwLock::default(), start: Instant::now(), clock: Clock::default() }
    }
}

impl Rates {
    /// Counts `rates` up to the first that is used up; the answer is how long to wait then.
    pub(super) fn count(&self, rates: &[Rate], now: Instant) -> Result<(), Duration> {
        self.tell(now);
        rates.iter().try_for_each(|rate| {
            if rate.cost > rate.quota.count {
                return Err(rate.quota.per); // more than the bucket ever holds
            }
            // The guard lives as long as the count: `sweep` may not drop a limiter somebody is counting on.
            let limiters = self.limiters.read().unwrap_or_else(PoisonError::into_inner);
            if let Some((_, limiter)) = limiters.iter().find(|(quota, _)| *quota == rate.quota) {
                return check(limiter, rate);
            }
            drop(limiters);
            check(&self.limiter(rate.quota), rate)
        })
    }

    /// Forgets the keys that are as good as new, and the limiters without keys (their quota may be configured away).
    pub(super) fn sweep(&self, now: Instant) {
        self.tell(now);
        // Not under the lock: going through many keys takes a while.
        let limiters = self.limiters.read().unwrap_or_else(PoisonError::into_inner).clone();
        for (_, limiter) in limiters {
            limiter.retain_recent();
            limiter.shrink_to_fit();
        }
        let mut limiters = self.limiters.write().unwrap_or_else(PoisonError::into_inner);
        // Whoever has just made one in `count` still holds it, and has yet to count.
        limiters.retain(|(_, limiter)| !limiter.is_empty() || Arc::strong_count(limiter) > 1);
    }

    fn tell(&self, now: Instant) {
        let since = u64::try_from(now.saturating_duration_since(self.start).as_nanos()).unwrap_or(u64::MAX);
        self.clock.0.fetch_max(since, Ordering::Relaxed);
    }

    fn limiter(&self, quota: Quota) -> Arc<Limiter> {
        let mut limiters = self.limiters.write().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, limiter)) = limiters.iter().find(|(known, _)| *known == quota) {
            return Arc::clone(limiter);
        }
        let limiter = Arc::new(limiter_for(quota, self.clock.clone()));
        limiters.push((quota, Arc::clone(&limiter)));
        limiter
    }
}

fn limiter_for(quota: Quota, clock: Clock) -> Limiter {
    let one = (quota.per.min(LONGEST) / quota.count.get()).max(Duration::from_nanos(1));
    let buckets = governor::Quota::with_period(one).expect("at least a nanosecond").allow_burst(quota.count);
    RateLimiter::dashmap_with_clock_and_hasher(buckets, clock, Hasher::new())
}

fn check(limiter: &Limiter, rate: &Rate) -> Result<(), Duration> {
    match limiter.check_key_n(&rate.key, rate.cost) {
        Ok(Ok(())) => Ok(()),
        Ok(Err(not_yet)) => Err(not_yet.wait_time_from(clock::Clock::now(limiter.clock()))),
        // Only by rounding: the cost was compared with the quota before.
        Err(_) => Err(rate.quota.per),
    }
}

#[cfg(test)]
impl Rates {
    fn keys(&self) -> usize {
        self.limiters.read().unwrap().iter().map(|(_, limiter)| limiter.len()).sum()
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU32;

    use tokio::time::advance;

    use super::*;

    fn rate(key: u64, count: u32, per: Duration, cost: u32) -> Rate {
        let quota = Quota { count: NonZeroU32::new(count).unwrap(), per };
        Rate { key, quota, cost: NonZeroU32::new(cost).unwrap() }
    }

    fn count(rates: &Rates, wanted: &[Rate]) -> Result<(), Duration> {
        rates.count(wanted, Instant::now())
    }

    const MINUTE: Duration = Duration::from_mins(1);

    #[tokio::test(start_paused = true)]
    async fn a_burst_is_the_whole_count_and_comes_back_one_by_one() {
        let rates = Rates::default();
        let one = rate(7, 60, MINUTE, 1);
        for _ in 0..60 {
            assert_eq!(count(&rates, &[one]), Ok(()));
        }
        assert_eq!(count(&rates, &[one]), Err(Duration::from_secs(1)));
        advance(Duration::from_millis(400)).await;
        assert_eq!(count(&rates, &[one]), Err(Duration::from_millis(600)));
        advance(Duration::from_millis(600)).await;
        assert_eq!(count(&rates, &[one]), Ok(()));
        assert_eq!(count(&rates, &[one]), Err(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn keys_and_quotas_are_counted_apart() {
        let rates = Rates::default();
        assert_eq!(count(&rates, &[rate(1, 1, MINUTE, 1), rate(2, 1, MINUTE, 1)]), Ok(()));
        assert_eq!(count(&rates, &[rate(1, 2, MINUTE, 1)]), Ok(()), "the same key under another quota");
        assert_eq!(count(&rates, &[rate(2, 1, MINUTE, 1)]), Err(MINUTE));
    }

    #[tokio::test(start_paused = true)]
    async fn cost_counts_and_a_refused_cost_takes_nothing() {
        let rates = Rates::default();
        assert_eq!(count(&rates, &[rate(1, 10, Duration::from_secs(10), 8)]), Ok(()));
        assert_eq!(count(&rates, &[rate(1, 10, Duration::from_secs(10), 4)]), Err(Duration::from_secs(2)));
        assert_eq!(count(&rates, &[rate(1, 10, Duration::from_secs(10), 2)]), Ok(()));
        assert_eq!(count(&rates, &[rate(1, 10, Duration::from_secs(10), 1)]), Err(Duration::from_secs(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn what_can_never_fit_is_limited_without_overflow() {
        let rates = Rates::default();
        assert_eq!(count(&rates, &[rate(1, 10, MINUTE, 11)]), Err(MINUTE));
        assert_eq!(count(&rates, &[rate(1, 1, Duration::MAX, u32::MAX)]), Err(Duration::MAX));
        for per in [Duration::ZERO, Duration::from_nanos(1), Duration::MAX] {
            assert_eq!(count(&rates, &[rate(1, u32::MAX, per, u32::MAX)]), Ok(()), "{per:?}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn rates_after_a_used_up_one_are_not_counted() {
        let rates = Rates::default();
        let (full, other) = (rate(1, 1, MINUTE, 1), rate(2, 5, MINUTE, 5));
        assert_eq!(count(&rates, &[full]), Ok(()));
        assert_eq!(count(&rates, &[full, other]), Err(MINUTE));
        assert_eq!(count(&rates, &[other]), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_sweep_forgets_old_keys_and_keeps_counts() {
        let rates = Rates::default();
        let slow = rate(0, 1, Duration::from_hours(1), 1);
        assert_eq!(count(&rates, &[slow]), Ok(()));
        for key in 0..1000 {
            assert_eq!(count(&rates, &[rate(key, 600, MINUTE, 1)]), Ok(()));
        }
        advance(2 * MINUTE).await;
        rates.sweep(Instant::now());
        assert_eq!(rates.keys(), 1);
        assert_eq!(rates.limiters.read().unwrap().len(), 1, "a limiter without keys goes too");
        assert!(count(&rates, &[slow]).is_err());
        advance(Duration::from_hours(2)).await;
        rates.sweep(Instant::now());
        assert!(rates.limiters.read().unwrap().is_empty());
    }
}
