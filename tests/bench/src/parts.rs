//! The questions that are asked, each in a file of its own.

use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::{cores::Cores, report::Section};

mod calls;
mod context;
mod fuzz;
mod memory;
mod million;
mod start;

/// One question.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Part {
    /// Calls per second at 1, 64 and 256 connections next to a bare hyper server
    Calls,
    /// Resident memory: idle, per session, per open stream
    Memory,
    /// Time from exec to the first answer, and the size of the binary
    Start,
    /// Resident memory after a million calls
    Million,
    /// What context fields cost: instructions and latency
    Context,
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
}

impl Part {
    /// What runs when nothing is named.
    pub const USUAL: [Self; 5] = [Self::Calls, Self::Memory, Self::Start, Self::Million, Self::Context];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Calls => "calls",
            Self::Memory => "memory",
            Self::Start => "start",
            Self::Million => "million",
            Self::Context => "context",
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
            Self::Memory => memory::run(settings).await,
            Self::Start => start::run(settings).await,
            Self::Million => million::run(settings).await,
            Self::Context => context::run(settings).await,
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
