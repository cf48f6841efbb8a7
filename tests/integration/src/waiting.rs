//! Waiting for something that can only be looked at, not listened to.

use std::time::Duration;

use anyhow::Result;
use moongate_test_support::{Gateway, PATIENCE};
use tokio::time::Instant;

/// Between two looks: often enough for no test to be slow, seldom enough to leave the machine to the others.
const BEAT: Duration = Duration::from_millis(20);

/// Looks again and again until `look` finds something; fails naming `what` when it takes too long.
pub async fn eventually<T>(what: &str, mut look: impl AsyncFnMut() -> Result<Option<T>>) -> Result<T> {
    let (deadline, mut beat) = (Instant::now() + PATIENCE, tokio::time::interval(BEAT));
    loop {
        beat.tick().await;
        if let Some(found) = look().await? {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
    }
}

/// Waits until the metric `sample` is `value`.
pub async fn metric(gateway: &Gateway, sample: &str, value: f64) -> Result<()> {
    let reached = async || {
        let now = gateway.metric(sample).await?;
        Ok(((now - value).abs() < f64::EPSILON).then_some(()))
    };
    eventually(&format!("{sample} to be {value}"), reached).await
}
