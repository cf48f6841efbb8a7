//! How many built-in tool calls per second, next to a server that does nothing.

use std::time::Duration;

use anyhow::Result;

use super::Settings;
use crate::{
    bare::Bare,
    cpu,
    load::{Limit, Load, Round},
    report::{Section, Table},
    statistics::{Spread, percentile},
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
            let pair = Pair {
                gateway: Side { load: load.clone(), pid },
                bare: Side { load: load.to_bare(bare.address), pid: bare.pid()? },
            };
            let found = pair.measure(settings).await?;
            found.report(era, connections, &mut section, &mut table);
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

/// One server under load.
struct Side {
    load: Load,
    pid: u32,
}

/// One round, and what it took.
struct Measured {
    round: Round,
    /// Microseconds of the server for one call.
    cost: f64,
    /// Which part of its core the server used.
    busy: f64,
}

impl Side {
    async fn measure(&self, limit: Limit) -> Result<Measured> {
        let before = cpu::time_of(self.pid)?;
        let round = self.load.run(limit).await?;
        let used = cpu::time_of(self.pid)?.saturating_sub(before).as_secs_f64();
        let elapsed = round.elapsed.as_secs_f64();
        Ok(Measured { cost: 1e6 * used / (round.rate() * elapsed), busy: used / elapsed, round })
    }
}

struct Pair {
    gateway: Side,
    bare: Side,
}

impl Pair {
    async fn measure(&self, settings: &Settings) -> Result<Found> {
        let limit = Limit {
            time: settings.choose(Duration::from_secs(2), Duration::from_millis(300)),
            calls: u64::MAX,
        };
        let warm = Limit { time: limit.time / 4, ..limit };
        self.bare.measure(warm).await?;
        self.gateway.measure(warm).await?;
        let mut found = Found::default();
        for round in 0..settings.choose(9, 3) {
            // Whoever comes first may find the machine in another mood, so they take turns.
            let (bare, gateway) = if round % 2 == 0 {
                let bare = self.bare.measure(limit).await?;
                (bare, self.gateway.measure(limit).await?)
            } else {
                let gateway = self.gateway.measure(limit).await?;
                (self.bare.measure(limit).await?, gateway)
            };
            found.bare.push(bare);
            found.gateway.push(gateway);
        }
        Ok(found)
    }
}

#[derive(Default)]
struct Found {
    bare: Vec<Measured>,
    gateway: Vec<Measured>,
}

impl Found {
    fn report(&self, era: Era, connections: usize, section: &mut Section, table: &mut Table) {
        let pairs = || self.gateway.iter().zip(&self.bare);
        let ratio = Spread::of(pairs().map(|(gateway, bare)| gateway.round.rate() / bare.round.rate()));
        let cost_ratio = Spread::of(pairs().map(|(gateway, bare)| bare.cost / gateway.cost));
        let busy = [&self.bare, &self.gateway].map(|side| middle(side, |measured| measured.busy));
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
            format!("{:.0}", middle(&self.bare, |bare| bare.round.rate())),
            format!("{:.0}", middle(&self.gateway, |gateway| gateway.round.rate())),
            ratio.to_string(),
            latencies(&self.bare),
            latencies(&self.gateway),
            format!(
                "{:.1}, {:.1}",
                middle(&self.bare, |bare| bare.cost),
                middle(&self.gateway, |gateway| gateway.cost)
            ),
            cost_ratio.to_string(),
            format!("{bare_busy:.0} %, {gateway_busy:.0} %{disturbed}"),
        ]);
    }
}

fn middle(side: &[Measured], value: impl Fn(&Measured) -> f64) -> f64 {
    Spread::of(side.iter().map(value)).median
}

fn latencies(side: &[Measured]) -> String {
    let at = |percent| middle(side, |measured| percentile(&measured.round.latencies, percent));
    format!("{:.0} / {:.0}", at(50), at(99))
}
