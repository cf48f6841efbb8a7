//! How many built-in tool calls per second, next to a server that does nothing.

use anyhow::Result;

use super::Settings;
use crate::{
    bare::Bare,
    report::{Section, Table},
    rounds::{Measured, Side, compare, interleave, latencies, middle},
    subject::{self, Extra, Subject},
    template::Era,
};

/// Of the bare server's rate, at [`JUDGED`] connections.
const BUDGET: f64 = 0.70;
const JUDGED: usize = 64;
const CONNECTIONS: [usize; 3] = [1, JUDGED, 256];
/// A server less busy than this was limited by something else: the load generator, or other work on the machine.
const BUSY: f64 = 0.9;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let cores = &settings.cores;
    let mut subject = cores.start(Subject::start()).await?;
    let pid = subject.pid();
    let mut section = Section::new();
    let mut table = Table::new([
        "version",
        "connections",
        "bare req/s",
        "gateway req/s",
        "ratio",
        "bare p50 / p99 µs",
        "gateway p50 / p99 µs",
        "CPU µs per call: bare, gateway",
        "CPU ratio",
        "core busy: bare, gateway",
    ]);
    for era in Era::ALL {
        let load = subject::calls(&subject.caller, era, Extra::Plain).await?;
        let constant = subject::constant(&load).await?;
        let bare = cores.start(Bare::start(&constant)).await?;
        for connections in CONNECTIONS {
            let load = load.with_connections(connections);
            let bare = Side { load: load.to_bare(bare.address), pid: bare.pid()? };
            let gateway = Side { load, pid };
            let found = interleave(&[&bare, &gateway], settings.plan()).await?;
            let [bare, gateway] = found.as_slice() else { anyhow::bail!("two sides") };
            Found { bare, gateway }.report(era, connections, &mut section, &mut table);
        }
    }
    section.table(table);
    section.note(
        "Calls are `add_memo` and `get_planning_state` in turn, over 100 sessions whose state is full. The bare server \
         gets the same requests and answers one of the gateway's own answers as a constant. The load generator checks \
         status and id of every answer and never sleeps, so that no server pays for waking it. CPU times are those of \
         the server's process; their ratio does not depend on how fast the load generator is.",
    );
    section.note(cores.describe());
    Ok(section)
}

struct Found<'a> {
    bare: &'a [Measured],
    gateway: &'a [Measured],
}

impl Found<'_> {
    fn report(&self, era: Era, connections: usize, section: &mut Section, table: &mut Table) {
        let ratio = compare(self.gateway, self.bare, Measured::rate);
        let cost_ratio = compare(self.bare, self.gateway, |measured| measured.cost);
        let busy = [self.bare, self.gateway].map(|side| middle(side, |measured| measured.busy));
        let what = format!("{}, {connections} connections: ratio to bare hyper", era.name());
        if connections == JUDGED {
            section.at_least(what, ratio.median, ratio.to_string(), BUDGET, "");
        } else {
            section.value(what, ratio.to_string());
        }
        let [bare_busy, gateway_busy] = busy.map(|share| 100.0 * share);
        // A single connection never keeps a server busy: it waits for each answer.
        let idle = connections > 1 && busy.iter().any(|share| *share < BUSY);
        let disturbed = if idle { " (disturbed)" } else { "" };
        table.push([
            era.name().to_owned(),
            connections.to_string(),
            format!("{:.0}", middle(self.bare, Measured::rate)),
            format!("{:.0}", middle(self.gateway, Measured::rate)),
            ratio.to_string(),
            latencies(self.bare),
            latencies(self.gateway),
            format!(
                "{:.1}, {:.1}",
                middle(self.bare, |bare| bare.cost),
                middle(self.gateway, |gateway| gateway.cost)
            ),
            cost_ratio.to_string(),
            format!("{bare_busy:.0} %, {gateway_busy:.0} %{disturbed}"),
        ]);
    }
}
