//! Memory stays flat: the short form of what `./bench million` shows on the release build.

use std::time::Duration;

use moongate_test_bench::{
    load::Limit,
    subject::{self, Extra, Subject},
    template::Era,
};

/// Both eras together, before memory is looked at for the first time.
const WARM: u64 = 5_000;
/// And before it is looked at again.
const ALL: u64 = 20_000;

#[tokio::test]
async fn memory_is_flat_over_twenty_thousand_calls() {
    let subject = Subject::start().await.unwrap();
    let mut loads = Vec::new();
    for era in Era::ALL {
        loads.push(subject::calls(&subject.caller, era, Extra::Plain).await.unwrap().with_connections(16));
    }
    let mut sizes = Vec::new();
    for calls in [WARM, ALL - WARM] {
        for load in &loads {
            let limit = Limit { time: Duration::from_mins(1), calls: calls / 2 };
            let round = load.run(limit).await.unwrap();
            assert_eq!(round.calls, limit.calls, "not all calls were made in time");
        }
        sizes.push(subject.gateway.resident().unwrap());
    }
    let (before, after) = (sizes[0], sizes[1]);
    assert!(after * 100 <= before * 105, "memory grew from {before} to {after} bytes");
}
