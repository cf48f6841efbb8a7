//! Kept texts: what adding and searching take, and whether a session's search minds how many other sessions there are.
//!
//! Two gateways are filled, one with few sessions and one with many, and then asked the same of the same ten sessions,
//! by turns: after a restart (cold, the index has to be made) and again (warm).

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use moongate_test_support::{Gateway, Home};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

use super::Settings;
use crate::{
    load::Connection,
    report::{Section, Table, bytes},
    statistics::{Spread, percentile},
    subject::CONFIG,
    template::{Caller, Template, ToolCall},
};

/// Sessions that are asked.
const PROBES: usize = 10;
/// Texts of each session.
const TEXTS: usize = 5;
/// Connections that fill a gateway.
const CONNECTIONS: usize = 32;
/// Searches of each probe while its index is there.
const AGAIN: usize = 20;
/// A search among many sessions may take so many times one among few.
const RATIO: f64 = 1.5;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let many = settings.choose(10_000, 300);
    let (few, full) = (Filled::new(PROBES).await?, Filled::new(many).await?);
    let mut section = Section::new();
    section.value(format!("add, p50 and p99, {CONNECTIONS} connections"), latencies(&full.added));
    section.value(format!("resident with {many} sessions of {TEXTS} texts"), bytes(full.resident));
    let (mut cold, mut warm) = (Ratios::default(), Ratios::default());
    for round in 0..settings.choose(9, 3) {
        let mut sides = [few.start().await?, full.start().await?];
        if round % 2 == 1 {
            sides.reverse();
        }
        let found = probe(&mut sides, 1).await?;
        cold.push(round, found);
        let found = probe(&mut sides, AGAIN).await?;
        warm.push(round, found);
    }
    for (what, ratios) in [("cold", &cold), ("warm", &warm)] {
        let spread = Spread::of(ratios.each.iter().copied());
        let what = format!("{what} search, {many} sessions next to {PROBES}");
        section.at_most(what, spread.median, format!("{spread}"), RATIO, "");
    }
    let mut table = Table::new(["search", "few sessions, p50 / p99", "many sessions, p50 / p99"]);
    for (what, ratios) in [("cold", &cold), ("warm", &warm)] {
        table.push([what.to_owned(), latencies(&ratios.few), latencies(&ratios.many)]);
    }
    section.table(table);
    let mut side = full.start().await?;
    let mut all = Vec::new();
    for number in 0..many {
        all.push(side.search(number).await?);
    }
    section.value(format!("first search of each of {many} sessions, p50 and p99"), latencies(&all));
    section.value("resident after that", bytes(side.gateway.resident()?));
    Ok(section)
}

/// The home of a gateway with some sessions, and what it took to fill it.
struct Filled {
    home: Arc<Home>,
    added: Vec<u32>,
    resident: u64,
}

/// A gateway that is asked.
struct Side {
    gateway: Gateway,
    caller: Caller,
    connection: Connection,
}

impl Filled {
    async fn new(sessions: usize) -> Result<Self> {
        let home = Arc::new(Home::create()?);
        let Side { gateway, caller, .. } = Side::start(&home).await?;
        let mut tasks = JoinSet::new();
        for worker in 0..CONNECTIONS {
            tasks.spawn(fill(caller.clone(), (worker..sessions).step_by(CONNECTIONS)));
        }
        let mut added = Vec::new();
        while let Some(latencies) = tasks.join_next().await {
            added.append(&mut latencies??);
        }
        ensure!(added.len() == sessions * TEXTS, "{} texts were added", added.len());
        Ok(Self { home, added, resident: gateway.resident()? })
    }

    async fn start(&self) -> Result<Side> {
        let mut side = Side::start(&self.home).await?;
        // What a first search of all brings along, such as the way to the database, is not what is measured.
        side.ask(&search(&side.caller, "empty"), 0).await?;
        Ok(side)
    }
}

impl Side {
    async fn start(home: &Arc<Home>) -> Result<Self> {
        let gateway = Gateway::builder().home(home).config(CONFIG).start().await?;
        let caller = Caller { address: gateway.address()?, token: gateway.token()? };
        let connection = Connection::open(caller.address).await?;
        Ok(Self { gateway, caller, connection })
    }

    /// Nanoseconds of a search in a session that was filled.
    async fn search(&mut self, session: usize) -> Result<u32> {
        let request = search(&self.caller, &name(session));
        self.ask(&request, TEXTS).await
    }

    /// Nanoseconds of a search that finds so much.
    async fn ask(&mut self, request: &Template, count: usize) -> Result<u32> {
        timed(&mut self.connection, request, &format!("\"count\":{count}")).await
    }
}

/// The latencies of the probes on both sides, by turns; the order of the sides is that of `sides`.
async fn probe(sides: &mut [Side; 2], times: usize) -> Result<[Vec<u32>; 2]> {
    let mut found = [Vec::new(), Vec::new()];
    for _ in 0..times {
        for session in 0..PROBES {
            for (side, found) in sides.iter_mut().zip(&mut found) {
                found.push(side.search(session).await?);
            }
        }
    }
    Ok(found)
}

/// The latencies of all rounds, and how those of each round compare.
#[derive(Default)]
struct Ratios {
    each: Vec<f64>,
    few: Vec<u32>,
    many: Vec<u32>,
}

impl Ratios {
    /// In odd rounds the gateway with many sessions comes first.
    fn push(&mut self, round: usize, found: [Vec<u32>; 2]) {
        let [mut few, mut many] = found;
        if round % 2 == 1 {
            std::mem::swap(&mut few, &mut many);
        }
        let middle = |latencies: &[u32]| Spread::of(latencies.iter().copied().map(f64::from)).median;
        self.each.push(middle(&many) / middle(&few));
        self.few.append(&mut few);
        self.many.append(&mut many);
    }
}

fn name(session: usize) -> String {
    format!("bench-{session:05}")
}

async fn fill(caller: Caller, sessions: impl Iterator<Item = usize>) -> Result<Vec<u32>> {
    let mut connection = Connection::open(caller.address).await?;
    let mut latencies = Vec::new();
    for session in sessions {
        for text in 0..TEXTS {
            let request = addition(&caller, session, text);
            latencies.push(timed(&mut connection, &request, "\"status\":\"added\"").await?);
        }
    }
    Ok(latencies)
}

fn addition(caller: &Caller, session: usize, text: usize) -> Template {
    let content = format!(
        "Report {text} of site {session}.\nThe turbine was inspected and its bearings were oiled.\n\
         Pressure and temperature stayed within their bounds.\nNext visit in {} weeks.\n",
        session % 50 + text
    );
    call(
        caller,
        "add_content",
        json!({"filename": format!("report-{text}.txt"), "content": content}),
        &name(session),
    )
}

fn search(caller: &Caller, session: &str) -> Template {
    call(caller, "search_content", json!({"query": "turbine bearings"}), session)
}

fn call(caller: &Caller, tool: &str, arguments: Value, session: &str) -> Template {
    caller.modern_call(&ToolCall { name: tool, arguments, headers: &[("x-session-id", session)] })
}

/// Nanoseconds of a request whose answer must contain `expected`.
async fn timed(connection: &mut Connection, request: &Template, expected: &str) -> Result<u32> {
    let begun = Instant::now();
    let answer = connection.send(request.bytes()).await?;
    let taken = begun.elapsed().as_nanos();
    let text = std::str::from_utf8(answer.body)?;
    ensure!(answer.status == 200 && text.contains(expected), "not {expected}: {text}");
    u32::try_from(taken).context("it took more than four seconds")
}

/// `120 / 450 µs`
fn latencies(nanoseconds: &[u32]) -> String {
    let mut sorted = nanoseconds.to_vec();
    sorted.sort_unstable();
    format!("{:.0} / {:.0} µs", percentile(&sorted, 50), percentile(&sorted, 99))
}
