//! `moongate check`, `schema` and `completions`: what needs no gateway.

use std::io::{self, IsTerminal as _};

use anyhow::bail;
use clap::CommandFactory as _;
use clap_complete::Shell;

use crate::{
    args::{Check, Cli},
    output,
    settings::{Settings, Unusable},
};

/// Says everything that is wrong with a configuration. The outcome is an error if something is.
pub(crate) fn check(check: Check) -> anyhow::Result<Verdict> {
    let settings = Settings::of(check.file);
    let name = settings.file().map_or_else(|| "the defaults".to_owned(), |file| file.display().to_string());
    match settings.load() {
        Ok(_) if check.json => {
            output::json(&serde_json::json!({ "file": settings.file(), "count": 0, "problems": [] }))?;
        }
        Ok(_) => output::line(&format!("{name}: no problems"))?,
        Err(Unusable::Wrong(problems)) => {
            let text =
                if check.json { problems.to_json() } else { problems.render(io::stdout().is_terminal()) };
            output::line(text.trim_end())?;
            return Ok(Verdict::Wrong);
        }
        Err(error) => bail!(error),
    }
    Ok(Verdict::Right)
}

/// Whether a configuration may be used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// It may.
    Right,
    /// It may not; why has been said.
    Wrong,
}

/// Prints the JSON Schema of the configuration.
pub(crate) fn schema() -> anyhow::Result<()> {
    output::line(moongate_config::json_schema().trim_end())
}

/// Prints a completion script.
pub(crate) fn completions(shell: Shell) -> anyhow::Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Cli::command(), "moongate", &mut script);
    output::line(String::from_utf8(script)?.trim_end())
}
