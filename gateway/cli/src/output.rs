//! What commands print: data on standard output, whole or an error; what else there is to say on standard error.

use std::io::{self, Write as _};

use anyhow::Context as _;
use serde::Serialize;

/// Prints `text` and a line end. A reader that has gone away is no error: it has seen enough.
pub(crate) fn line(text: &str) -> anyhow::Result<()> {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to standard output"),
    }
}

/// Says on standard error what is not as it should be, under our name.
pub(crate) fn complain(text: &str) {
    let _written = writeln!(anstream::stderr(), "moongate: {text}").is_ok();
}

/// Prints `value` as JSON for programs and people.
pub(crate) fn json(value: &impl Serialize) -> anyhow::Result<()> {
    line(&serde_json::to_string_pretty(value)?)
}
