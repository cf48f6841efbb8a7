//! A day's work for a build that counts what runs: its counts guide the build of a release.
//!
//! The requests are not those of one benchmark: both eras, with and without context, of the gateway's own tools and of
//! those behind it, and what a client asks before it calls anything.

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::ValueEnum as _;
use serde_json::json;

use crate::{
    driver::{self, Step},
    load::{Connection, Limit, Load},
    subject::{self, Extra, Subject},
    template::Era,
    upstream::{ECHO, Options, Remote, configured_child},
};

const CALLS: u64 = 20_000;
const LISTS: usize = 500;
const CONNECTIONS: usize = 16;
/// How servers behind the gateway are reached.
const WAYS: [&str; 2] = ["remote", "child"];
/// How many tools each of them has.
const TOOLS: usize = 10;
/// Far more than it takes; the run fails then.
const PATIENCE: Duration = Duration::from_mins(10);

/// Makes the gateway beside this program work, and stops it so that it writes down what it counted.
pub async fn run() -> Result<()> {
    let upstreams = Upstreams::start().await?;
    let mut subject = Subject::start_before(&upstreams.configured).await?;
    for era in Era::ALL {
        for extra in [Extra::Plain, Extra::Headers, Extra::Fields] {
            let load = subject::calls(&subject.caller, era, extra).await?.with_connections(CONNECTIONS);
            make_calls(&load).await?;
        }
        for way in WAYS {
            let tool = format!("{}__{ECHO}", name(way, era));
            let load = subject::upstream_calls(&subject.caller, era, &tool).await?;
            make_calls(&load.with_connections(CONNECTIONS)).await?;
        }
    }
    lists(&subject).await?;
    let status = subject.gateway.stop().await?;
    ensure!(status.success(), "the gateway ended with {status}");
    steps()
}

async fn make_calls(load: &Load) -> Result<()> {
    let round = load.run(Limit { time: PATIENCE, calls: CALLS }).await?;
    ensure!(round.calls == CALLS, "only {} of {CALLS} calls were made in time", round.calls);
    Ok(())
}

/// Servers behind the gateway: over HTTP and as child processes, of both eras.
struct Upstreams {
    configured: Vec<(String, String)>,
    _remotes: Vec<Remote>,
}

impl Upstreams {
    async fn start() -> Result<Self> {
        let (mut configured, mut remotes) = (Vec::new(), Vec::new());
        for era in Era::ALL {
            let options = Options { era, tools: TOOLS, core: None };
            let remote = Remote::start(options).await?;
            let [over_http, child] = WAYS.map(|way| name(way, era));
            configured.extend([(over_http, remote.configured()), (child, configured_child(options)?)]);
            remotes.push(remote);
        }
        Ok(Self { configured, _remotes: remotes })
    }
}

fn name(way: &str, era: Era) -> String {
    format!("{way}_{}", era.word())
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
