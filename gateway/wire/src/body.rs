//! Where a body of HTTP/1.1 ends: after so many bytes, after its last chunk, or with the connection.
//!
//! In: what has come of a connection. Out: pieces of the body, and whether it has ended. Anything doubtful is refused rather
//! than guessed: whoever reads past a body takes what follows it for the next message.

use bytes::{Buf as _, Bytes, BytesMut};

/// How many bytes the lines behind the last chunk may have.
const MAX_TRAILERS: usize = 64 * 1024;
/// How long the line may be that says how large a chunk is.
const MAX_SIZE_LINE: usize = 4096;
/// How many bytes all of those lines may have that say more than that.
const MAX_EXTENSIONS: usize = 16 * 1024;
/// A smaller piece of a body is copied, so that the buffer can be used again.
const COPIED: usize = 16 * 1024;

/// Reads a body.
#[derive(Debug, Default)]
pub struct Decoder {
    rest: Rest,
    /// How much was said of chunks beside their sizes.
    extensions: usize,
}

/// What is left of a body.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Rest {
    #[default]
    Nothing,
    /// So many bytes.
    Bytes(u64),
    /// Chunks, beginning with the size of one.
    Size,
    /// So many bytes of a chunk.
    Chunk(u64),
    /// The end of a chunk's line.
    ChunkEnd,
    /// Lines behind the last chunk, of which so many bytes were read.
    Trailers(usize),
    /// Everything until the connection is closed.
    UntilClosed,
}

/// What reading comes to.
#[derive(Debug, PartialEq, Eq)]
pub enum Step {
    /// A piece of the body.
    Data(Bytes),
    /// More must be read from the connection.
    More,
    /// The body has ended.
    End,
}

/// What cannot be the framing of a body.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Garbled {
    /// Its line end is not where its size says.
    #[error("a chunk is longer than it said")]
    LongChunk,
    /// Not hexadecimal, or beyond 64 bits.
    #[error("the size of a chunk is no number")]
    Size,
    /// More is said about chunks than is in them.
    #[error("too much is said about chunks")]
    Extensions,
    /// Who does not expect lines there would take them for the next message.
    #[error("what follows the last chunk is no header")]
    Trailer,
    /// It goes on and on.
    #[error("a line of the body is too long")]
    LongLine,
    /// A line feed or a carriage return alone.
    #[error("a line of the body has no proper end")]
    LineEnd,
}

impl Decoder {
    /// A body of so many bytes.
    pub fn of_length(length: u64) -> Self {
        Self::of(if length == 0 { Rest::Nothing } else { Rest::Bytes(length) })
    }

    /// A body in chunks.
    pub fn chunked() -> Self {
        Self::of(Rest::Size)
    }

    /// A body that ends with the connection.
    pub fn until_closed() -> Self {
        Self::of(Rest::UntilClosed)
    }

    fn of(rest: Rest) -> Self {
        Self { rest, extensions: 0 }
    }

    /// Takes what there is of the body from the front of `buffer`.
    ///
    /// # Errors
    /// What came is not a body of its kind.
    pub fn next(&mut self, buffer: &mut BytesMut) -> Result<Step, Garbled> {
        loop {
            match self.rest {
                Rest::Nothing => return Ok(Step::End),
                _ if buffer.is_empty() => return Ok(Step::More),
                Rest::UntilClosed => return Ok(Step::Data(take(buffer, u64::MAX))),
                Rest::Bytes(left) => {
                    let data = take(buffer, left);
                    let left = left - data.len() as u64;
                    self.rest = if left == 0 { Rest::Nothing } else { Rest::Bytes(left) };
                    return Ok(Step::Data(data));
                }
                Rest::Chunk(left) => {
                    let data = take(buffer, left);
                    let left = left - data.len() as u64;
                    self.rest = if left == 0 { Rest::ChunkEnd } else { Rest::Chunk(left) };
                    return Ok(Step::Data(data));
                }
                Rest::ChunkEnd => {
                    let Some(line) = line(buffer, 2)? else { return Ok(Step::More) };
                    if !line.is_empty() {
                        return Err(Garbled::LongChunk);
                    }
                    self.rest = Rest::Size;
                }
                Rest::Size => {
                    let Some(line) = line(buffer, MAX_SIZE_LINE)? else { return Ok(Step::More) };
                    let (size, more) =
                        line.split_at(line.iter().take_while(|byte| byte.is_ascii_hexdigit()).count());
                    if !more.is_empty() {
                        self.extensions += more.len();
                        let blank = |byte: &&u8| matches!(byte, b' ' | b'\t');
                        match more.iter().find(|byte| !blank(byte)) {
                            None | Some(b';') if self.extensions <= MAX_EXTENSIONS => {}
                            None | Some(b';') => return Err(Garbled::Extensions),
                            Some(_) => return Err(Garbled::Size),
                        }
                    }
                    self.rest = match hexadecimal(size).ok_or(Garbled::Size)? {
                        0 => Rest::Trailers(0),
                        size => Rest::Chunk(size),
                    };
                }
                Rest::Trailers(read) => {
                    let room = MAX_TRAILERS.saturating_sub(read);
                    let Some(line) = line(buffer, room)? else { return Ok(Step::More) };
                    if !line.is_empty() && !is_header(&line) {
                        return Err(Garbled::Trailer);
                    }
                    self.rest =
                        if line.is_empty() { Rest::Nothing } else { Rest::Trailers(read + line.len() + 2) };
                }
            }
        }
    }

    /// The connection was closed. True when the body is not whole.
    pub fn close(&mut self) -> bool {
        !matches!(std::mem::take(&mut self.rest), Rest::UntilClosed | Rest::Nothing)
    }

    /// How many bytes are to come, as far as that was said.
    pub fn left(&self) -> u64 {
        match self.rest {
            Rest::Bytes(left) => left,
            // What a chunk says of itself is checked by nobody.
            Rest::Chunk(_)
            | Rest::Nothing
            | Rest::Size
            | Rest::ChunkEnd
            | Rest::Trailers(_)
            | Rest::UntilClosed => 0,
        }
    }

    /// Whether the body has ended.
    pub fn has_ended(&self) -> bool {
        self.rest == Rest::Nothing
    }
}

/// Up to `most` bytes from the front.
fn take(buffer: &mut BytesMut, most: u64) -> Bytes {
    let length = usize::try_from(most).unwrap_or(usize::MAX).min(buffer.len());
    if length > COPIED {
        return buffer.split_to(length).freeze();
    }
    let data = Bytes::copy_from_slice(buffer.get(..length).unwrap_or_default());
    buffer.advance(length);
    data
}

/// A line from the front without its end, if it has come.
fn line(buffer: &mut BytesMut, most: usize) -> Result<Option<BytesMut>, Garbled> {
    let Some(end) = memchr::memchr(b'\n', buffer) else {
        // The carriage return of a line of just that length may be there.
        return if buffer.len() > most.saturating_add(1) { Err(Garbled::LongLine) } else { Ok(None) };
    };
    let mut line = buffer.split_to(end + 1);
    if line.len() > most.saturating_add(2) || !line.ends_with(b"\r\n") {
        return Err(Garbled::LineEnd);
    }
    line.truncate(end - 1);
    if memchr::memchr(b'\r', &line).is_some() {
        return Err(Garbled::LineEnd);
    }
    Ok(Some(line))
}

/// Whether a line has a name before a colon.
fn is_header(line: &[u8]) -> bool {
    let name = line.split(|byte| *byte == b':').next().unwrap_or_default();
    let in_names = |byte: &u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(byte);
    name.len() < line.len() && !name.is_empty() && name.iter().all(in_names)
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(std::str::from_utf8(text).ok().filter(|_| digits)?, 16).ok()
}

/// The number that a length in a head is.
pub fn length(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

#[cfg(test)]
mod tests;
