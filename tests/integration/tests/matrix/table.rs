//! The matrix as people read it: a row for each client version, a column for each upstream version.

use std::fmt::Write as _;

use crate::{expected::Expected, version::VERSIONS};

/// For a terminal.
pub(crate) fn plain(expected: &Expected) -> String {
    let mut text = format!("{:<12}", "client");
    for upstream in VERSIONS {
        write!(text, "  {upstream:<10}").expect("a string takes everything");
    }
    for client in VERSIONS {
        write!(text, "\n{client:<12}").expect("a string takes everything");
        for upstream in VERSIONS {
            write!(text, "  {:<10}", mark(expected, client, upstream)).expect("a string takes everything");
        }
    }
    text.lines().map(str::trim_end).collect::<Vec<_>>().join("\n") + "\n" + &notes(expected)
}

/// For the README.
pub(crate) fn markdown(expected: &Expected) -> String {
    let mut text = format!("| client \\ upstream | {} |\n|{}\n", VERSIONS.join(" | "), " --- |".repeat(6));
    for client in VERSIONS {
        let marks = VERSIONS.map(|upstream| mark(expected, client, upstream));
        writeln!(text, "| **{client}** | {} |", marks.join(" | ")).expect("a string takes everything");
    }
    text + "\n" + &notes(expected)
}

fn mark(expected: &Expected, client: &str, upstream: &str) -> String {
    let notes: Vec<String> = expected.notes_of(client, upstream).iter().map(usize::to_string).collect();
    format!("\u{2713} {}", notes.join(" ")).trim_end().to_owned()
}

fn notes(expected: &Expected) -> String {
    let lines = expected.notes.iter().enumerate().map(|(index, (_, note))| format!("{}. {note}", index + 1));
    lines.collect::<Vec<_>>().join("\n")
}
