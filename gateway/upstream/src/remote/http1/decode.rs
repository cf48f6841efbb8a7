//! What the bytes of an answer mean in HTTP/1.1: its head, and where its body ends. Pure.
//!
//! Anything doubtful is refused rather than guessed: two lengths, a coding that is not known, a size that is no number.
//! Whoever reads past an answer would take what follows it for the next one.

use std::io;

use bytes::{Buf as _, Bytes, BytesMut};
use http::{HeaderName, StatusCode, header};

use crate::remote::head::Head;

/// How many bytes a head may have, trailers alike.
const MAX_HEAD: usize = 64 * 1024;
/// How many headers.
const MAX_HEADERS: usize = 100;
/// How long the line may be that says how large a chunk is.
const MAX_SIZE_LINE: usize = 4096;
/// A smaller piece of a body is copied, so that the buffer can be used again.
const COPIED: usize = 16 * 1024;

/// Reads a body.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    rest: Rest,
    /// The server keeps the connection.
    kept: bool,
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
pub(super) enum Step {
    /// A piece of the body.
    Data(Bytes),
    /// More must be read from the connection.
    More,
    /// The body has ended.
    End,
}

/// Takes a whole head from the front of `buffer`, if there is one. Interim answers are skipped.
pub(super) fn head(buffer: &mut BytesMut) -> io::Result<Option<(Head, Decoder)>> {
    loop {
        let mut room = [const { std::mem::MaybeUninit::uninit() }; MAX_HEADERS];
        let mut parsed = httparse::Response::new(&mut []);
        let config = httparse::ParserConfig::default();
        let read = config
            .parse_response_with_uninit_headers(&mut parsed, buffer, &mut room)
            .map_err(|error| garbled(&format!("the head of the answer cannot be read: {error}")))?;
        let httparse::Status::Complete(length) = read else {
            return if buffer.len() > MAX_HEAD {
                Err(garbled("the head of the answer is too long"))
            } else {
                Ok(None)
            };
        };
        let status = parsed.code.and_then(|code| StatusCode::from_u16(code).ok());
        let status = status.ok_or_else(|| garbled("the answer has no status"))?;
        if status == StatusCode::SWITCHING_PROTOCOLS {
            return Err(garbled("the server switched to another protocol, which nobody asked for"));
        }
        if status.is_informational() {
            buffer.advance(length);
            continue;
        }
        let read = read_headers(parsed.headers, parsed.version == Some(1), status)?;
        buffer.advance(length);
        return Ok(Some(read));
    }
}

fn read_headers(
    lines: &[httparse::Header<'_>],
    current: bool,
    status: StatusCode,
) -> io::Result<(Head, Decoder)> {
    let mut head = Head::new(status);
    let (mut length, mut chunked, mut kept, mut closes) = (None, false, current, false);
    for line in lines {
        let is = |name: &HeaderName| line.name.eq_ignore_ascii_case(name.as_str());
        if is(&header::CONTENT_LENGTH) {
            let value = number(line.value).ok_or_else(|| garbled("the length of the answer is no number"))?;
            if length.replace(value).is_some_and(|other| other != value) {
                return Err(garbled("the answer has two lengths"));
            }
        } else if is(&header::TRANSFER_ENCODING) {
            if chunked || !line.value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                return Err(garbled("the answer comes in a coding that is not known"));
            }
            chunked = true;
        } else if is(&header::CONNECTION) {
            for word in line.value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                closes |= word.eq_ignore_ascii_case(b"close");
                kept |= word.eq_ignore_ascii_case(b"keep-alive");
            }
        } else {
            head.note(line.name, line.value);
        }
    }
    let rest = match (chunked, length) {
        _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => Rest::Nothing,
        // Some of those on the way may have believed the length instead; and 1.0 knows no chunks.
        (true, length) => {
            kept &= length.is_none() && current;
            Rest::Size
        }
        (false, Some(0)) => Rest::Nothing,
        (false, Some(length)) => Rest::Bytes(length),
        (false, None) => {
            kept = false;
            Rest::UntilClosed
        }
    };
    Ok((head, Decoder { rest, kept: kept && !closes }))
}

impl Decoder {
    /// Takes what there is of the body from the front of `buffer`.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> io::Result<Step> {
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
                        return Err(garbled("a chunk is longer than it said"));
                    }
                    self.rest = Rest::Size;
                }
                Rest::Size => {
                    let Some(line) = line(buffer, MAX_SIZE_LINE)? else { return Ok(Step::More) };
                    let size = line.as_ref().split(|byte| *byte == b';').next().unwrap_or_default();
                    let size = hexadecimal(size.trim_ascii());
                    self.rest = match size.ok_or_else(|| garbled("the size of a chunk is no number"))? {
                        0 => Rest::Trailers(0),
                        size => Rest::Chunk(size),
                    };
                }
                Rest::Trailers(read) => {
                    let room = MAX_HEAD.saturating_sub(read);
                    let Some(line) = line(buffer, room)? else { return Ok(Step::More) };
                    self.rest =
                        if line.is_empty() { Rest::Nothing } else { Rest::Trailers(read + line.len() + 2) };
                }
            }
        }
    }

    /// The connection was closed. True when the body is not whole.
    pub(super) fn close(&mut self) -> bool {
        self.kept = false;
        !matches!(std::mem::take(&mut self.rest), Rest::UntilClosed | Rest::Nothing)
    }

    /// Nothing follows this answer.
    pub(super) fn give_up_connection(&mut self) {
        self.kept = false;
    }

    pub(super) fn left(&self) -> u64 {
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

    pub(super) fn has_ended(&self) -> bool {
        self.rest == Rest::Nothing
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.kept && self.has_ended()
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
fn line(buffer: &mut BytesMut, most: usize) -> io::Result<Option<BytesMut>> {
    let Some(end) = memchr::memchr(b'\n', buffer) else {
        return if buffer.len() > most { Err(garbled("a line of the answer is too long")) } else { Ok(None) };
    };
    let mut line = buffer.split_to(end + 1);
    if line.len() > most.saturating_add(2) || !line.ends_with(b"\r\n") {
        return Err(garbled("a line of the answer has no proper end"));
    }
    line.truncate(end - 1);
    Ok(Some(line))
}

fn number(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_digit);
    std::str::from_utf8(text).ok().filter(|_| digits)?.parse().ok()
}

fn hexadecimal(text: &[u8]) -> Option<u64> {
    let digits = !text.is_empty() && text.iter().all(u8::is_ascii_hexdigit);
    u64::from_str_radix(std::str::from_utf8(text).ok().filter(|_| digits)?, 16).ok()
}

fn garbled(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
