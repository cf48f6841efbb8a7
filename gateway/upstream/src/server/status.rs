//! How a server is, for people: `doctor`, readiness, and later the console.

use std::sync::Arc;

use moongate_wire::Version;
use serde::Serialize;

use super::{
    remembered::Known,
    slot::{Phase, Slot},
};

/// How a server is.
#[derive(Clone, Debug, Serialize)]
pub struct Status {
    /// Its name.
    pub name: Arc<str>,
    /// Whether it can be called.
    pub state: State,
    /// The version spoken, while connected.
    pub version: Option<Version>,
    /// What it calls itself, with its version, while connected.
    pub server: Option<String>,
    /// `modern` or `legacy`, as found out or configured.
    pub era: Option<&'static str>,
    /// Connections that are open, one for each that shares one.
    pub connections: usize,
    /// Connections made since the start.
    pub starts: u64,
    /// Its processes.
    pub pids: Vec<u32>,
    /// Tools, prompts, resources and templates it offers, as last listed.
    pub offers: Option<[usize; 4]>,
    /// The names of those tools.
    pub tools: Vec<Arc<str>>,
    /// Definitions that are not offered, and why.
    pub left_out: Vec<String>,
    /// The last thing that went wrong.
    pub last_error: Option<String>,
    /// The last lines of its standard error.
    pub stderr: Vec<String>,
    /// How limits are enforced.
    pub notes: Vec<String>,
}

impl State {
    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Idle => "idle",
            Self::Starting => "starting",
            Self::Up => "up",
            Self::Down => "down",
        }
    }
}

/// Whether a server can be called.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// Not started; the next call does that.
    Idle,
    /// Being started.
    Starting,
    /// Connected.
    Up,
    /// It failed, and is left alone for a moment.
    Down,
}

pub(super) fn state(slots: &[Arc<Slot>]) -> State {
    let has = |wanted: fn(&Phase) -> bool| slots.iter().any(|slot| wanted(&slot.phase()));
    if has(|phase| matches!(phase, Phase::Ready { .. })) {
        State::Up
    } else if has(|phase| matches!(phase, Phase::Starting)) {
        State::Starting
    } else if has(|phase| matches!(phase, Phase::Failed(..))) {
        State::Down
    } else {
        State::Idle
    }
}

pub(super) fn of(name: &Arc<str>, known: Option<&Known>, slots: &[Arc<Slot>]) -> Status {
    let connections: Vec<_> = slots.iter().filter_map(|slot| slot.present()).collect();
    let kept = slots.iter().flat_map(|slot| slot.all_listed()).filter_map(|listed| listed.kept());
    let kept = kept.max_by_key(|kept| kept.offer.tools.len());
    let diagnoses: Vec<_> = connections.iter().map(|connection| connection.diagnosis()).collect();
    Status {
        name: Arc::clone(name),
        state: state(slots),
        version: connections.first().map(|connection| connection.version()),
        server: connections.first().and_then(|connection| connection.greeting().name()),
        era: known.map(|known| if known.verdict.modern { "modern" } else { "legacy" }),
        connections: connections.len(),
        starts: slots.iter().map(|slot| slot.starts()).sum(),
        pids: diagnoses.iter().filter_map(|diagnosis| diagnosis.pid).collect(),
        offers: kept.as_ref().map(|kept| {
            let offer = &kept.offer;
            [offer.tools.len(), offer.prompts.len(), offer.resources.len(), offer.templates.len()]
        }),
        tools: kept
            .iter()
            .flat_map(|kept| kept.offer.tools.iter().map(|tool| Arc::clone(&tool.name)))
            .collect(),
        left_out: kept.map(|kept| kept.left_out.to_vec()).unwrap_or_default(),
        last_error: slots
            .iter()
            .filter_map(|slot| slot.trouble())
            .max_by_key(|(when, _)| *when)
            .map(|(_, fault)| fault.to_string()),
        stderr: diagnoses.iter().flat_map(|diagnosis| diagnosis.stderr.iter().cloned()).collect(),
        notes: diagnoses.into_iter().flat_map(|diagnosis| diagnosis.notes).collect(),
    }
}
