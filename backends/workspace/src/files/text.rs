//! Text files: read by lines, written whole, and edited by line numbers.
//!
//! A line is what ends with a line feed, and what follows the last one. Edits work on bytes, so that files in other encodings
//! keep every byte that is not replaced.

use std::os::fd::OwnedFd;

use moongate_core::{arguments::Whole, builtin::ToolOutput};
use serde::Deserialize;
use serde_json::json;

use super::{address, error::Error, file, path::RelativePath};

/// Edits in one call.
pub(crate) const MAX_REPLACEMENTS: usize = 1000;

#[derive(Deserialize)]
pub(crate) struct Read {
    path: String,
    start_line: Option<Whole>,
    end_line: Option<Whole>,
}

#[derive(Deserialize)]
pub(crate) struct Write {
    path: String,
    content: String,
    #[serde(default)]
    mode: Mode,
}

#[derive(Clone, Copy, Default, Deserialize)]
enum Mode {
    #[default]
    #[serde(rename = "w")]
    Overwrite,
    #[serde(rename = "a")]
    Append,
}

#[derive(Deserialize)]
pub(crate) struct ReplaceLines {
    path: String,
    replacements: Vec<Replacement>,
}

#[derive(Deserialize)]
struct Replacement {
    start_line: Option<Whole>,
    line_number: Option<Whole>,
    end_line: Option<Whole>,
    #[serde(default)]
    new_content: String,
}

/// Lines to replace, both ends from 1 and included.
#[derive(Debug)]
struct Edit<'a> {
    start: usize,
    end: usize,
    content: &'a str,
}

pub(crate) fn read(root: &OwnedFd, arguments: &Read, limit: u64) -> Result<ToolOutput, Error> {
    let path = RelativePath::parse(&arguments.path)?;
    let start = arguments.start_line.map_or(Ok(1), |line| number("start_line", line))?;
    let end = arguments.end_line.map(|line| number("end_line", line)).transpose()?;
    if end.is_some_and(|end| start > end) {
        return Err(Error::Invalid("start_line must not be greater than end_line".to_owned()));
    }
    let contents = file::read(root, &path, limit)?;
    let text = String::from_utf8(contents)
        .map_err(|_| Error::NotText { path: path.as_str().to_owned(), uri: address::of(path.as_str()) })?;
    let total = text.split_inclusive('\n').count();
    if start > total.max(1) {
        return Err(Error::Invalid(format!("start_line is {start}, but the file has {total} lines")));
    }
    let end = end.unwrap_or(total).min(total);
    let count = (end + 1).saturating_sub(start);
    let chosen: String = text.split_inclusive('\n').skip(start - 1).take(count).collect();
    let told = json!({"path": path.as_str(), "size": text.len(), "start_line": start, "end_line": end,
        "total_lines": total});
    Ok(ToolOutput::new(chosen, told))
}

pub(crate) fn write(root: &OwnedFd, arguments: &Write, limit: u64) -> Result<ToolOutput, Error> {
    let path = RelativePath::parse(&arguments.path)?;
    let content = arguments.content.as_bytes();
    let done = match arguments.mode {
        Mode::Overwrite => {
            file::replace(root, &path, content, limit)?;
            "Wrote"
        }
        Mode::Append => {
            file::append(root, &path, content, limit)?;
            "Appended"
        }
    };
    let told = json!({"path": path.as_str(), "bytes_written": content.len()});
    Ok(ToolOutput::new(format!("{done} {} bytes: {}", content.len(), path.as_str()), told))
}

pub(crate) fn replace_lines(
    root: &OwnedFd,
    arguments: &ReplaceLines,
    limit: u64,
) -> Result<ToolOutput, Error> {
    let path = RelativePath::parse(&arguments.path)?;
    let edits = arguments.replacements.iter().map(edit).collect::<Result<Vec<_>, _>>()?;
    let count = edits.len();
    let contents = file::read(root, &path, limit)?;
    let edited = edited(&contents, edits)?;
    file::replace(root, &path, &edited, limit)?;
    let total = edited.split_inclusive(|byte| *byte == b'\n').count();
    let told =
        json!({"path": path.as_str(), "replacements": count, "size": edited.len(), "total_lines": total});
    let text = format!("Made {count} replacements in {}, which has {total} lines now.", path.as_str());
    Ok(ToolOutput::new(text, told))
}

fn edit(replacement: &Replacement) -> Result<Edit<'_>, Error> {
    let start = match (replacement.start_line, replacement.line_number) {
        (Some(start), Some(same)) if start != same => {
            return Err(Error::Invalid(
                "start_line and line_number are the same, but they differ".to_owned(),
            ));
        }
        (Some(start), _) | (None, Some(start)) => number("start_line", start)?,
        (None, None) => return Err(Error::Invalid("start_line is required".to_owned())),
    };
    let end = replacement.end_line.map_or(Ok(start), |line| number("end_line", line))?;
    if start > end {
        return Err(Error::Invalid(format!("start_line {start} must not be greater than end_line {end}")));
    }
    Ok(Edit { start, end, content: &replacement.new_content })
}

/// `contents` after all `edits`, whose numbers are those of the lines before any of them.
fn edited(contents: &[u8], mut edits: Vec<Edit<'_>>) -> Result<Vec<u8>, Error> {
    let mut lines: Vec<&[u8]> = contents.split_inclusive(|byte| *byte == b'\n').collect();
    edits.sort_by_key(|edit| edit.start);
    for pair in edits.windows(2) {
        if let [one, next] = pair
            && next.start <= one.end
        {
            return Err(Error::Invalid(format!(
                "the replacements of lines {}-{} and {}-{} overlap",
                one.start, one.end, next.start, next.end
            )));
        }
    }
    if let Some(beyond) = edits.iter().find(|edit| edit.end > lines.len()) {
        let (end, total) = (beyond.end, lines.len());
        return Err(Error::Invalid(format!("line {end} is out of range: the file has {total} lines")));
    }
    let usual = lines.first().map(|line| ending(line)).filter(|ending| !ending.is_empty()).unwrap_or("\n");
    let texts: Vec<Vec<u8>> = edits
        .iter()
        .map(|edit| lines.get(edit.end - 1).map_or(Vec::new(), |last| new_lines(edit.content, last, usual)))
        .collect();
    // From the bottom up, so that no edit moves the lines of another.
    for (edit, text) in edits.iter().zip(&texts).rev() {
        lines.splice(edit.start - 1..edit.end, [&**text]);
    }
    Ok(lines.concat())
}

/// `content` with the file's line endings. It ends as `last`, the line that it replaces the end of, ended.
fn new_lines(content: &str, last: &[u8], usual: &str) -> Vec<u8> {
    if content.is_empty() {
        return Vec::new();
    }
    let own = ending(last);
    let between = if own.is_empty() { usual } else { own };
    let plain = content.strip_suffix('\n').unwrap_or(content);
    let lines: Vec<&str> = plain.split('\n').map(|line| line.strip_suffix('\r').unwrap_or(line)).collect();
    (lines.join(between) + own).into_bytes()
}

fn ending(line: &[u8]) -> &'static str {
    if line.ends_with(b"\r\n") {
        "\r\n"
    } else if line.ends_with(b"\n") {
        "\n"
    } else {
        ""
    }
}

fn number(name: &str, line: Whole) -> Result<usize, Error> {
    let line = usize::try_from(line.0).ok().filter(|line| *line > 0);
    line.ok_or_else(|| Error::Invalid(format!("{name} must be 1 or more")))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn edit(start: usize, end: usize, content: &str) -> Edit<'_> {
        Edit { start, end, content }
    }

    #[test]
    fn lines_are_replaced_by_the_numbers_they_had() {
        for (before, edits, after) in [
            ("a\nb\nc\n", vec![edit(2, 2, "B")], "a\nB\nc\n"),
            ("a\nb\nc\n", vec![edit(2, 2, "B\n")], "a\nB\nc\n"),
            ("a\nb\nc\n", vec![edit(1, 1, "1\n2\n3"), edit(3, 3, "C")], "1\n2\n3\nb\nC\n"),
            ("a\nb\nc\n", vec![edit(3, 3, "C"), edit(1, 1, "")], "b\nC\n"),
            ("a\nb\nc\n", vec![edit(1, 3, "")], ""),
            ("a\nb\nc\n", vec![edit(1, 2, "x")], "x\nc\n"),
            ("a\nb\nc\n", vec![edit(1, 2, "x"), edit(3, 3, "C")], "x\nC\n"),
            ("a\nb\n", vec![edit(1, 1, "\n")], "\nb\n"),
            ("a\nb", vec![edit(2, 2, "B")], "a\nB"),
            ("a\nb", vec![edit(2, 2, "B\nC\n")], "a\nB\nC"),
            ("a", vec![edit(1, 1, "x\ny")], "x\ny"),
            ("a\r\nb\r\n", vec![edit(1, 1, "x\ny")], "x\r\ny\r\nb\r\n"),
            ("a\r\nb", vec![edit(2, 2, "x\ny\n")], "a\r\nx\r\ny"),
            ("a\r\nb\r\n", vec![edit(2, 2, "x\r\ny\r\n")], "a\r\nx\r\ny\r\n"),
            ("a\nb\r\n", vec![edit(1, 1, "x"), edit(2, 2, "y")], "x\ny\r\n"),
        ] {
            let told = format!("{before:?} {edits:?}");
            let edited = edited(before.as_bytes(), edits).unwrap();
            assert_eq!(String::from_utf8(edited).unwrap(), after, "{told}");
        }
    }

    #[test]
    fn bytes_of_other_lines_are_kept_whatever_they_are() {
        assert_eq!(edited(b"\xff\xfe\nb\n\x80", vec![edit(2, 2, "x")]).unwrap(), b"\xff\xfe\nx\n\x80");
    }

    #[test]
    fn overlapping_replacements_are_refused() {
        for edits in [
            vec![edit(1, 2, "x"), edit(2, 3, "y")],
            vec![edit(2, 2, "x"), edit(1, 3, "y")],
            vec![edit(1, 1, "x"), edit(1, 1, "x")],
        ] {
            let Err(Error::Invalid(message)) = edited(b"a\nb\nc\n", edits) else { panic!("they overlap") };
            assert!(message.contains("overlap"), "{message}");
        }
    }

    #[test]
    fn a_line_beyond_the_end_is_refused() {
        for (before, edits) in
            [("", vec![edit(1, 1, "x")]), ("a\n", vec![edit(2, 2, "x")]), ("a\nb", vec![edit(1, 3, "x")])]
        {
            let Err(Error::Invalid(message)) = edited(before.as_bytes(), edits) else { panic!("{before:?}") };
            assert!(message.contains("out of range"), "{message}");
        }
    }
}
