//! Whether memory stays flat over a million calls.

use std::time::Duration;

use anyhow::{Result, ensure};

use super::Settings;
use crate::{
    load::Limit,
    report::{Section, bytes},
    subject::{self, Extra, Subject},
    template::Era,
};

const GROWTH: f64 = 1.05;
const CONNECTIONS: usize = 64;
/// Far more than it takes; the run fails then.
const PATIENCE: Duration = Duration::from_mins(20);

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let (warm, all): (u64, u64) = settings.choose((100_000, 1_000_000), (5_000, 50_000));
    let subject = settings.cores.start(Subject::start()).await?;
    let mut loads = Vec::new();
    for era in Era::ALL {
        loads.push(subject::calls(&subject.caller, era, Extra::Plain).await?.with_connections(CONNECTIONS));
    }
    let mut section = Section::new();
    let mut sizes = Vec::new();
    let mut made = 0;
    for goal in [warm, all] {
        // Both eras alike, so that neither hides behind the other.
        for (load, part) in loads.iter().zip([2, 1]) {
            let calls = (goal - made) / part;
            let round = load.run(Limit { time: PATIENCE, calls }).await?;
            ensure!(round.calls == calls, "only {} of {calls} calls were made in time", round.calls);
            made += calls;
        }
        let resident = subject.gateway.resident()?;
        section.value(format!("resident after {made} calls"), bytes(resident));
        sizes.push(resident);
    }
    #[expect(clippy::cast_precision_loss, reason = "sizes far below 2^52")]
    let growth =
        sizes.last().zip(sizes.first()).map_or(f64::NAN, |(after, before)| *after as f64 / *before as f64);
    section.at_most(
        format!("growth from {warm} to {all} calls"),
        growth,
        format!("{growth:.3} ×"),
        GROWTH,
        " ×",
    );
    Ok(section)
}
