//! A day's work for a build that counts what runs: its counts guide the build of a release.
//!
//! The requests are not those of one benchmark: both eras, with and without context, and what a client asks before it
//! calls anything.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum as _;
use serde_json::json;

use crate::{
    driver::{self, Step},
    load::{Connection, Limit},
    subject::{self, Extra, Subject},
    template::Era,
};

const CALLS: u64 = 20_000;
const LISTS: usize = 500;
const CONNECTIONS: usize = 16;
/// Far more than it takes; the run fails then.
const PATIENCE: Duration = Duration::from_mins(10);

/// Makes the gateway beside this program work, and stops it so that it writes down what it counted.
pub async fn run() -> Result<()> {
    let mut subject = Subject::start().await?;
    for era in Era::ALL {
        for extra in [Extra::Plain, Extra::Headers, Extra::Fields] {
            let load = subject::calls(&subject.caller, era, extra).await?.with_connections(CONNECTIONS);
            let round = load.run(Limit { time: PATIENCE, calls: CALLS }).await?;
            ensure!(round.calls == CALLS, "only {} of {CALLS} calls were made in time", round.calls);
        }
    }
    lists(&subject).await?;
    let status = subject.gateway.stop().await?;
    ensure!(status.success(), "the gateway ended with {status}");
    steps()
}

/// Runs the steps of the driver here, in the same counting build: no call of the gateway reaches `inject`, which would
/// otherwise be built as code that never runs. So these steps are measured with the very work that guided their build.
fn steps() -> Result<()> {
    Step::value_variants().iter().try_for_each(|step| driver::main(*step, CALLS))
}

async fn lists(subject: &Subject) -> Result<()> {
    let caller = &subject.caller;
    let mut connection = Connection::open(caller.address).await?;
    let session = subject::open_session(&mut connection, caller).await?;
    let headers = [("mcp-session-id", &*session)];
    for method in ["tools/list", "prompts/list", "resources/list", "ping"] {
        let list = caller.post(&headers, &json!({"jsonrpc": "2.0", "id": 1, "method": method}));
        for _ in 0..LISTS {
            let status = connection.send(list.bytes()).await?.status;
            ensure!(status == 200, "{method} got status {status}");
        }
    }
    Ok(())
}
