//! What the bytes of an answer mean in HTTP/1.1: its head, and whether another may follow. Pure.
//!
//! Anything doubtful is refused rather than guessed: two lengths, a coding that is not known, a size that is no number.
//! Whoever reads past an answer would take what follows it for the next one. How bodies end is left to [`body`].

use std::io;

use bytes::{Buf as _, BytesMut};
use http::{HeaderName, StatusCode, header};
use moongate_wire::body::{self, Step};

use crate::remote::head::Head;

/// How many bytes a head may have.
const MAX_HEAD: usize = 64 * 1024;
/// How many headers.
const MAX_HEADERS: usize = 100;

/// Reads a body.
#[derive(Debug, Default)]
pub(super) struct Decoder {
    body: body::Decoder,
    /// The server keeps the connection.
    kept: bool,
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
            let value =
                body::length(line.value).ok_or_else(|| garbled("the length of the answer is no number"))?;
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
    let body = match (chunked, length) {
        _ if matches!(status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => body::Decoder::default(),
        // Some of those on the way may have believed the length instead; and 1.0 knows no chunks.
        (true, length) => {
            kept &= length.is_none() && current;
            body::Decoder::chunked()
        }
        (false, Some(length)) => body::Decoder::of_length(length),
        (false, None) => {
            kept = false;
            body::Decoder::until_closed()
        }
    };
    Ok((head, Decoder { body, kept: kept && !closes }))
}

impl Decoder {
    /// Takes what there is of the body from the front of `buffer`.
    pub(super) fn next(&mut self, buffer: &mut BytesMut) -> io::Result<Step> {
        self.body.next(buffer).map_err(|error| garbled(&error.to_string()))
    }

    /// The connection was closed. True when the body is not whole.
    pub(super) fn close(&mut self) -> bool {
        self.kept = false;
        self.body.close()
    }

    /// Nothing follows this answer.
    pub(super) fn give_up_connection(&mut self) {
        self.kept = false;
    }

    pub(super) fn left(&self) -> u64 {
        self.body.left()
    }

    pub(super) fn has_ended(&self) -> bool {
        self.body.has_ended()
    }

    pub(super) fn is_reusable(&self) -> bool {
        self.kept && self.has_ended()
    }
}

fn garbled(why: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, why)
}

#[cfg(test)]
mod tests;
