//! Calls a running gateway for a while, so that a profiler has something to watch.
//!
//! ```text
//! load ADDRESS TOKEN legacy|modern CONNECTIONS SECONDS [CALLS]
//! ```

use std::{io::Write as _, time::Duration};

use anyhow::{Context as _, Result, bail};
use moongate_test_bench::{
    load::Limit,
    statistics::percentile,
    subject::{self, Extra},
    template::{Caller, Era},
};

fn main() -> Result<()> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [address, token, era, connections, seconds, calls @ ..] = arguments.as_slice() else {
        bail!("load ADDRESS TOKEN legacy|modern CONNECTIONS SECONDS [CALLS]");
    };
    let caller = Caller { address: address.parse().context("ADDRESS")?, token: token.clone() };
    let era = match era.as_str() {
        "legacy" => Era::Legacy,
        "modern" => Era::Modern,
        other => bail!("{other} is no era"),
    };
    let calls = calls.first().map_or(Ok(u64::MAX), |calls| calls.parse()).context("CALLS")?;
    let limit = Limit { time: Duration::from_secs(seconds.parse().context("SECONDS")?), calls };
    let connections = connections.parse().context("CONNECTIONS")?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let round = runtime.block_on(async {
        let load = subject::calls(&caller, era, Extra::Plain).await?.with_connections(connections);
        load.run(limit).await
    })?;
    let (middle, late) = (percentile(&round.latencies, 50), percentile(&round.latencies, 99));
    writeln!(std::io::stdout(), "{:.0} calls/s, p50 {middle:.0} µs, p99 {late:.0} µs", round.rate())?;
    Ok(())
}
