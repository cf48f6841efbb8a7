//! Waiting for something that can only be looked at, not listened to.

use anyhow::Result;
use moongate_test_support::Gateway;
pub use moongate_test_support::eventually;

/// Waits until the metric `sample` is `value`.
pub async fn metric(gateway: &Gateway, sample: &str, value: f64) -> Result<()> {
    let reached = async || {
        let now = gateway.metric(sample).await?;
        Ok(((now - value).abs() < f64::EPSILON).then_some(()))
    };
    eventually(&format!("{sample} to be {value}"), reached).await
}
