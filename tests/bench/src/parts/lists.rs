//! How many lists of a thousand tools per second, next to a server that answers the same bytes as a constant.

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::Value;

use super::Settings;
use crate::{
    bare::Bare,
    load::{Connection, Ids, Load},
    report::{Section, Table, bytes},
    rounds::{Measured, Side, compare, interleave, latencies, middle},
    subject::{self, Subject},
    template::{Caller, Era, Template},
    upstream::{Options, configured_child},
};

/// Of the bare server's requests per second.
const RATE: f64 = 0.8;
/// CPU time of a list, of the bare server's.
const COST: f64 = 1.5;
const CONNECTIONS: usize = 64;
const UPSTREAMS: usize = 20;
const TOOLS_EACH: usize = 50;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let cores = &settings.cores;
    let mut section = Section::new();
    let mut table = Table::new([
        "version",
        "size",
        "bare req/s",
        "gateway req/s",
        "ratio",
        "bare p50 / p99 µs",
        "gateway p50 / p99 µs",
        "CPU µs per list: bare, gateway",
        "core busy: bare, gateway",
    ]);
    for era in Era::ALL {
        let child = configured_child(Options::new(era, TOOLS_EACH, cores))?;
        let upstreams: Vec<_> =
            (0..UPSTREAMS).map(|number| (format!("server{number:02}"), child.clone())).collect();
        let mut subject = cores.start(Subject::start_before(&upstreams)).await?;
        let pid = subject.pid();
        let lister = Lister::of(&subject.caller, era).await?;
        lister.check_all().await?;
        let constant = lister.first_page().await?;
        let bare = cores.start(Bare::start(&constant)).await?;
        let load = Load {
            address: subject.caller.address,
            sessions: vec![vec![lister.template(None)]].into(),
            connections: CONNECTIONS,
            ids: Ids::Echoed,
            shares_core: false,
        };
        let sides = [Side { load: load.to_bare(bare.address), pid: bare.pid()? }, Side { load, pid }];
        let found = interleave(&[&sides[0], &sides[1]], settings.plan()).await?;
        let [bare, gateway] = found.as_slice() else { bail!("two sides") };
        ensure!(lister.first_page().await? == constant, "the list changed while it was measured");
        let rates = compare(gateway, bare, Measured::rate);
        let what = format!("{}, {CONNECTIONS} connections: req/s of bare hyper", era.name());
        section.at_least(what, rates.median, rates.to_string(), RATE, "");
        let costs = compare(gateway, bare, |measured| measured.cost);
        let what = format!("{}, {CONNECTIONS} connections: CPU per list of bare hyper", era.name());
        section.at_most(what, costs.median, format!("{costs} ×"), COST, " ×");
        let both = |value: fn(&Measured) -> f64| (middle(bare, value), middle(gateway, value));
        let (cost, busy) = (both(|measured| measured.cost), both(|measured| 100.0 * measured.busy));
        table.push([
            era.name().to_owned(),
            bytes(constant.len() as u64),
            format!("{:.0}", middle(bare, Measured::rate)),
            format!("{:.0}", middle(gateway, Measured::rate)),
            rates.to_string(),
            latencies(bare),
            latencies(gateway),
            format!("{:.1}, {:.1}", cost.0, cost.1),
            format!("{:.0} %, {:.0} %", busy.0, busy.1),
        ]);
    }
    section.table(table);
    section.note(format!(
        "{UPSTREAMS} child processes with {TOOLS_EACH} tools each, beside the gateway's own; what is measured is the first page, \
         which has a thousand tools. The bare server answers the very same bytes. Where a core is not busy, the load generator \
         was the limit: it has as much to copy as the server.",
    ));
    section.note(cores.describe());
    Ok(section)
}

/// Asks for the tools as a client of one era.
struct Lister<'a> {
    caller: &'a Caller,
    /// Of the legacy era.
    session: Option<String>,
}

impl<'a> Lister<'a> {
    async fn of(caller: &'a Caller, era: Era) -> Result<Self> {
        let session = match era {
            Era::Legacy => subject::open_sessions(caller, 1).await?.pop(),
            Era::Modern => None,
        };
        Ok(Self { caller, session })
    }

    fn template(&self, cursor: Option<&str>) -> Template {
        match &self.session {
            Some(session) => self.caller.legacy_list(session, cursor),
            None => self.caller.modern_list(cursor),
        }
    }

    async fn first_page(&self) -> Result<Vec<u8>> {
        let mut connection = Connection::open(self.caller.address).await?;
        let answer = connection.send(self.template(None).bytes()).await?;
        ensure!(answer.status == 200, "tools/list got status {}", answer.status);
        Ok(answer.body.to_owned())
    }

    /// Makes sure that every tool of every upstream is there.
    async fn check_all(&self) -> Result<()> {
        let mut connection = Connection::open(self.caller.address).await?;
        let (mut theirs, mut cursor) = (0, None);
        loop {
            let answer = connection.send(self.template(cursor.as_deref()).bytes()).await?;
            let page: Value = serde_json::from_slice(answer.body)?;
            let result = page.get("result").with_context(|| format!("no list: {page}"))?;
            theirs += count(result);
            cursor = result.get("nextCursor").and_then(Value::as_str).map(str::to_owned);
            if cursor.is_none() {
                break;
            }
        }
        ensure!(theirs == UPSTREAMS * TOOLS_EACH, "{theirs} tools of upstreams are listed");
        Ok(())
    }
}

/// How many tools of upstreams a page has.
fn count(page: &Value) -> usize {
    let tools = page.get("tools").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let of_an_upstream = |tool: &&Value| {
        tool.get("name").and_then(Value::as_str).is_some_and(|name| name.starts_with("server"))
    };
    tools.iter().filter(of_an_upstream).count()
}
