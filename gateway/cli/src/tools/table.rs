//! A table on a terminal: columns aligned, the last one cut where the terminal ends.

use std::io::{self, IsTerminal as _};

/// How many characters a line of the terminal has; `None` where the output goes elsewhere.
pub(crate) fn width() -> Option<usize> {
    let stdout = io::stdout();
    let size = stdout.is_terminal().then(|| rustix::termios::tcgetwinsize(&stdout))?.ok()?;
    Some(usize::from(size.ws_col)).filter(|columns| *columns > 0)
}

/// The table. What goes elsewhere is complete and has no heading, so that programs can read it.
pub(crate) fn render<'a>(
    heading: [&'a str; 3],
    rows: impl Iterator<Item = [&'a str; 3]>,
    width: Option<usize>,
) -> String {
    let rows: Vec<[&str; 3]> = width.map(|_| heading).into_iter().chain(rows).collect();
    let widest = |column: fn(&[&'a str; 3]) -> &'a str| {
        rows.iter().map(|row| column(row).chars().count()).max().unwrap_or_default()
    };
    let (first, second) = (widest(|row| row[0]), widest(|row| row[1]));
    let room = width.map(|width| width.saturating_sub(first + second + 4).max(1));
    let mut text = String::new();
    for [name, owner, rest] in rows {
        let line = format!("{name:first$}  {owner:second$}  {}", cut(rest, room));
        text.push_str(line.trim_end());
        text.push('\n');
    }
    text
}

/// As much as there is room for, without what would command the terminal: servers write what they like.
fn cut(text: &str, room: Option<usize>) -> String {
    let mut safe = text.chars().filter(|c| !c.is_control());
    match room {
        Some(room) if text.chars().count() > room => safe.by_ref().take(room - 1).chain(['…']).collect(),
        _ => safe.collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROWS: [[&str; 3]; 2] = [["add", "calculator", "Adds two numbers."], ["echo_it", "x", "\u{1b}"]];

    #[test]
    fn a_terminal_sees_a_heading_and_no_line_that_wraps() {
        let text = render(["NAME", "OF", "DOES"], ROWS.into_iter(), Some(30));
        let expected = "NAME     OF          DOES\nadd      calculator  Adds two…\necho_it  x\n";
        assert_eq!(text, expected);
        assert!(text.lines().all(|line| line.chars().count() <= 30), "{text}");
        render(["NAME", "OF", "DOES"], ROWS.into_iter(), Some(1));
    }

    #[test]
    fn a_program_sees_everything() {
        let text = render(["NAME", "OF", "DOES"], ROWS.into_iter(), None);
        assert_eq!(text, "add      calculator  Adds two numbers.\necho_it  x\n");
    }
}
