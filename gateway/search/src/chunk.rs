//! Cuts a text into chunks of ten lines, each knowing the lines it covers.
//!
//! A line ends with `\n` (so also with `\r\n`). The last line may lack its end, and an empty text is one empty line. Chunks are slices
//! of the text with their line ends: put together they are the text again.

/// How many lines one chunk covers.
pub const LINES: usize = 10;

/// Lines of a text: counted from 1, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LineRange {
    /// The first line.
    pub first: usize,
    /// The last line.
    pub last: usize,
}

/// A piece of a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Chunk<'a> {
    /// Its place among the chunks of its text, from 0.
    pub number: usize,
    /// The lines it covers.
    pub lines: LineRange,
    /// What it says, line ends included.
    pub text: &'a str,
}

/// The chunks of `text`, in order. There is always at least one.
pub fn chunks(text: &str) -> impl Iterator<Item = Chunk<'_>> {
    let mut rest = Some(text);
    let mut number = 0;
    std::iter::from_fn(move || {
        let (text, lines, after) = first_lines(rest?);
        rest = after;
        let first = number * LINES + 1;
        let chunk = Chunk { number, lines: LineRange { first, last: first + lines - 1 }, text };
        number += 1;
        Some(chunk)
    })
}

/// The chunk `number` of `text`, where there is one.
pub fn chunk(text: &str, number: usize) -> Option<Chunk<'_>> {
    chunks(text).nth(number)
}

/// How many lines `text` has: at least one.
pub fn count_lines(text: &str) -> usize {
    text.split_inclusive('\n').count().max(1)
}

/// How many chunks a text of so many lines has.
pub fn count_chunks(lines: usize) -> usize {
    lines.div_ceil(LINES)
}

/// The first [`LINES`] lines of `text`, how many they are, and what comes after them.
fn first_lines(text: &str) -> (&str, usize, Option<&str>) {
    let ends = text.bytes().enumerate().filter(|(_, byte)| *byte == b'\n').map(|(at, _)| at + 1);
    let mut lines = 0;
    for end in ends {
        lines += 1;
        if end == text.len() {
            return (text, lines, None);
        }
        if lines == LINES {
            let (chunk, rest) = text.split_at(end);
            return (chunk, lines, Some(rest));
        }
    }
    (text, lines + 1, None)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lines_are_counted_as_a_reader_counts_them() {
        let cases = [
            ("", 1),
            ("one", 1),
            ("one\n", 1),
            ("\n", 1),
            ("one\ntwo", 2),
            ("one\r\ntwo\r\n", 2),
            ("one\n\n", 2),
            ("\n\n\n", 3),
        ];
        for (text, expected) in cases {
            assert_eq!(count_lines(text), expected, "{text:?}");
            assert_eq!(chunks(text).last().unwrap().lines.last, expected, "{text:?}");
        }
    }

    #[test]
    fn a_chunk_ends_after_ten_lines() {
        let text = (1..=25).map(|line| format!("line {line}\r\n")).collect::<Vec<_>>().concat();
        let ranges = chunks(&text).map(|chunk| (chunk.lines.first, chunk.lines.last)).collect::<Vec<_>>();
        assert_eq!(ranges, [(1, 10), (11, 20), (21, 25)]);
        assert!(chunk(&text, 1).unwrap().text.starts_with("line 11\r\n"));
        assert!(chunk(&text, 1).unwrap().text.ends_with("line 20\r\n"));
        assert_eq!(chunk(&text, 3), None);
    }

    #[test]
    fn twenty_lines_are_two_chunks_whether_the_last_is_ended_or_not() {
        for end in ["", "\n"] {
            let text = vec!["x"; 20].join("\n") + end;
            assert_eq!(chunks(&text).count(), 2);
        }
    }

    #[test]
    fn a_line_of_four_megabytes_is_one_chunk() {
        let text = "word ".repeat(800_000);
        assert_eq!(chunks(&text).count(), 1);
    }

    proptest! {
        #[test]
        fn chunks_cover_the_text_exactly(text in "([a-z한语 ]{0,3}(\r\n|\n)?){0,60}") {
            let all = chunks(&text).collect::<Vec<_>>();
            prop_assert_eq!(all.iter().map(|chunk| chunk.text).collect::<String>(), text.clone());
            let mut next = 1;
            for chunk in &all {
                prop_assert_eq!(chunk.lines.first, next);
                prop_assert_eq!(count_lines(chunk.text), chunk.lines.last - chunk.lines.first + 1);
                next = chunk.lines.last + 1;
            }
            prop_assert_eq!(next - 1, count_lines(&text));
            prop_assert_eq!(all.len(), count_chunks(count_lines(&text)));
        }
    }
}
