//! The long form of fuzzing: the same as `./test fuzz`, for longer.

use std::process::Stdio;

use anyhow::{Context as _, Result, ensure};
use tokio::process::Command;

use super::Settings;
use crate::report::Section;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let seconds = settings.fuzzing.as_secs();
    let mut command = Command::new("./test");
    // What cannot run is a failure here: whoever asks for an hour of fuzzing wants to know.
    command.arg("fuzz").env("MOONGATE_FUZZ_SECONDS", seconds.to_string()).env("CI", "true");
    let output = command.stdout(Stdio::piped()).stderr(Stdio::inherit()).kill_on_drop(true).output().await;
    let output = output.context("./test cannot be run; start from the root of the repository")?;
    let text = String::from_utf8_lossy(&output.stdout);
    ensure!(output.status.success(), "a fuzz target failed:\n{text}");
    let mut section = Section::new();
    for (target, outcome) in text.lines().filter_map(|line| line.split_once(": Done ")) {
        section.value(format!("target {target}, no finding"), outcome);
    }
    Ok(section)
}
