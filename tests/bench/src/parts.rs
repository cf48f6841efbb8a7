//! The questions that are asked, each in a file of its own.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::{cores::Cores, report::Section, rounds::Plan};

mod calls;
mod contents;
mod context;
mod fuzz;
mod lists;
mod memory;
mod million;
mod start;
mod upstreams;

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Calls per second at 1, 64 and 256 connections next to a bare hyper server
    Calls,
    /// Calls through to a remote server and to a child process, next to that server itself and to nginx
    Upstreams,
    /// A list of 1,000 tools of 20 child processes, next to a bare hyper server
    Lists,
    /// Resident memory: idle, per session, per open stream
    Memory,
    /// Time from exec to the first answer, and the size of the binary
    Start,
    /// Resident memory after a million calls
    Million,
    /// What context fields cost: instructions and latency
    Context,
    /// Adding and searching texts, and whether many sessions slow the search in one
    Contents,
    /// Every fuzz target for some minutes; runs only when it is named
    Fuzz,
}

/// How much to measure.
#[derive(Clone, Debug)]
pub struct Settings {
    /// A smoke run: everything happens, nothing is precise.
    pub quick: bool,
    /// How long each fuzz target runs.
    pub fuzzing: Duration,
    /// Where servers and load run.
    pub cores: Cores,
}

impl Settings {
    /// `full`, or `quick` in a quick run.
    fn choose<T>(&self, full: T, quick: T) -> T {
        if self.quick { quick } else { full }
    }

    /// Rounds of servers next to each other.
    fn plan(&self) -> Plan {
        self.choose(
            Plan { rounds: 9, time: Duration::from_secs(2) },
            Plan { rounds: 3, time: Duration::from_millis(300) },
        )
    }
}

impl Part {
    /// What runs when nothing is named.
    pub const USUAL: [Self; 8] = [
        Self::Calls,
        Self::Upstreams,
        Self::Lists,
        Self::Memory,
        Self::Start,
        Self::Million,
        Self::Context,
        Self::Contents,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Upstreams => "upstreams",
            Self::Lists => "lists",
            Self::Memory => "memory",
            Self::Start => "start",
            Self::Million => "million",
            Self::Context => "context",
            Self::Contents => "contents",
            Self::Fuzz => "fuzz",
        }
    }

    /// What it asks.
    pub fn about(self) -> String {
        let value = self.to_possible_value();
        value.and_then(|value| value.get_help().map(ToString::to_string)).unwrap_or_default()
    }

    /// Finds the answer.
    pub async fn run(self, settings: &Settings) -> Result<Section> {
        let found = match self {
            Self::Calls => calls::run(settings).await,
            Self::Upstreams => upstreams::run(settings).await,
            Self::Lists => lists::run(settings).await,
            Self::Memory => memory::run(settings).await,
            Self::Start => start::run(settings).await,
            Self::Million => million::run(settings).await,
            Self::Context => context::run(settings).await,
            Self::Contents => contents::run(settings).await,
            Self::Fuzz => fuzz::run(settings).await,
        };
        settings.cores.release()?;
        found
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_named_on_the_command_line_as_in_the_results() {
        for part in Part::value_variants() {
            assert_eq!(part.to_possible_value().unwrap().get_name(), part.name());
            assert!(!part.about().is_empty());
        }
    }
}
