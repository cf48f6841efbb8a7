//! Cuts what comes out of a pipe into lines, of which each byte is looked at once.
//!
//! In: whatever a read gave. Out: whole lines without their end. What is longer than allowed is never kept whole.

use bytes::{Bytes, BytesMut};
use memchr::memchr;
use tokio::io::{AsyncRead, AsyncReadExt as _};

/// How much is asked for at once; a pipe holds no more.
const CHUNK: usize = 64 << 10;
/// Shorter lines are copied: a few bytes that somebody keeps would keep all that was read with them.
const SHORT: usize = 16 << 10;

/// The lines of `source`.
#[derive(Debug)]
pub(super) struct Lines<R> {
    source: R,
    longest: usize,
    buffer: BytesMut,
    /// So much of the buffer holds no end of a line.
    seen: usize,
}

/// What comes out of a pipe next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Line {
    Whole(Bytes),
    TooLong,
    /// The other side has closed it; what came after the last line's end was cut off.
    End,
}

impl<R: AsyncRead + Unpin> Lines<R> {
    pub(super) fn new(source: R, longest: usize) -> Self {
        Self { source, longest, buffer: BytesMut::new(), seen: 0 }
    }

    /// The next line. After [`Line::TooLong`] nothing can be read any more: where the next one begins is not known.
    ///
    /// # Cancel safety
    /// Cancel safe: what was read is kept.
    pub(super) async fn next(&mut self) -> Line {
        loop {
            if let Some(line) = self.cut() {
                return if line.len() > self.longest { Line::TooLong } else { Line::Whole(line) };
            }
            if self.buffer.len() > self.longest {
                return Line::TooLong;
            }
            // One more than allowed, for its end.
            let room = (self.longest + 1 - self.buffer.len()).min(CHUNK);
            self.buffer.reserve(room);
            let mut source = (&mut self.source).take(room as u64);
            // A pipe that fails has no more to say than one that is closed.
            if !matches!(source.read_buf(&mut self.buffer).await, Ok(1..)) {
                return Line::End;
            }
        }
    }

    fn cut(&mut self) -> Option<Bytes> {
        let rest = self.buffer.get(self.seen..).unwrap_or_default();
        let Some(length) = memchr(b'\n', rest) else {
            self.seen = self.buffer.len();
            return None;
        };
        let line = self.buffer.split_to(self.seen + length);
        let _end = self.buffer.split_to(1);
        self.seen = 0;
        Some(if line.len() < SHORT { Bytes::copy_from_slice(&line) } else { line.freeze() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn lines(text: &[u8], longest: usize) -> Vec<Line> {
        let mut lines = Lines::new(text, longest);
        let mut found = Vec::new();
        loop {
            found.push(lines.next().await);
            if !matches!(found.last(), Some(Line::Whole(_))) {
                return found;
            }
        }
    }

    fn whole(text: &str) -> Line {
        Line::Whole(Bytes::copy_from_slice(text.as_bytes()))
    }

    #[tokio::test]
    async fn lines_are_cut_at_their_ends() {
        let expected = [whole("a"), whole(""), whole("bc\r"), Line::End];
        assert_eq!(lines(b"a\n\nbc\r\nunfinished", 100).await, expected);
        assert_eq!(lines(b"", 100).await, [Line::End]);
    }

    #[tokio::test]
    async fn the_limit_is_the_longest_line() {
        assert_eq!(lines(b"abcd\nabcde\n", 4).await, [whole("abcd"), Line::TooLong]);
        assert_eq!(lines(b"abcde", 4).await, [Line::TooLong]);
        assert_eq!(lines(b"abcd", 4).await, [Line::End]);
    }

    #[tokio::test]
    async fn long_lines_come_through_many_reads() {
        let long = "x".repeat(5 * CHUNK);
        let text = format!("{long}\nshort\n{long}\n");
        let expected = [whole(&long), whole("short"), whole(&long), Line::End];
        assert_eq!(lines(text.as_bytes(), long.len()).await, expected);
    }

    #[tokio::test]
    async fn no_more_than_the_limit_is_kept() {
        let endless = tokio::io::repeat(b'x');
        let mut lines = Lines::new(endless, 1 << 20);
        assert_eq!(lines.next().await, Line::TooLong);
        assert_eq!(lines.buffer.len(), (1 << 20) + 1);
    }
}
