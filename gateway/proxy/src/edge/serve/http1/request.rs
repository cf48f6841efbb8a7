//! What the head of a request says in HTTP/1.1, and where its body ends. Pure.
//!
//! Anything doubtful is refused rather than guessed: two lengths, a length beside a coding, a coding that is not known. A
//! proxy before us may have guessed otherwise, and then what one takes for a body is another's next request.

use std::{mem::MaybeUninit, ops::Range};

use bytes::{Buf as _, BytesMut};
use http::{Method, StatusCode, Uri, Version};
use moongate_security::{Head, Headers, headers::Line};
use moongate_wire::body::{self, Decoder};

/// How many headers a request may have.
const MAX_HEADERS: usize = 100;

/// A request whose head was read.
#[derive(Debug)]
pub(super) struct Asked {
    pub(super) head: Head,
    /// Where its body ends.
    pub(super) body: Decoder,
    /// Whether another request may follow on the connection.
    pub(super) keeps: bool,
    /// Whether the client waits to be told before it sends the body.
    pub(super) waits: bool,
}

/// What the head says about the message that it begins.
#[derive(Default)]
#[expect(clippy::struct_excessive_bools, reason = "each is a matter of its own")]
struct Framing {
    length: Option<u64>,
    chunked: bool,
    closes: bool,
    keeps: bool,
    waits: bool,
}

/// Takes a head of at most `most` bytes from the front of `buffer`, if all of it has come. Of what is there, the first
/// `seen` bytes were looked at before.
///
/// # Errors
/// The status to refuse it with. Nothing that follows can be understood then.
pub(super) fn read(buffer: &mut BytesMut, seen: usize, most: usize) -> Result<Option<Asked>, StatusCode> {
    // What is no head is known from its first bytes; after those it is not read again before there is an end in it.
    if seen > 0 && buffer.len() <= most && !has_end(buffer.get(seen.saturating_sub(3)..).unwrap_or_default())
    {
        return Ok(None);
    }
    let mut room = [const { MaybeUninit::uninit() }; MAX_HEADERS];
    let mut parsed = httparse::Request::new(&mut []);
    let length = match parsed.parse_with_uninit_headers(buffer, &mut room) {
        Ok(httparse::Status::Complete(length)) if length <= most => length,
        Ok(httparse::Status::Partial) if buffer.len() <= most => return Ok(None),
        Ok(_) | Err(httparse::Error::TooManyHeaders) => {
            return Err(StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        }
        Err(_) => return Err(StatusCode::BAD_REQUEST),
    };
    let method = Method::from_bytes(parsed.method.unwrap_or_default().as_bytes()).map_err(bad)?;
    let uri = match parsed.path.unwrap_or_default() {
        // What nearly every request is for needs no closer look.
        "/mcp" => Uri::from_static("/mcp"),
        path => Uri::try_from(path).map_err(bad)?,
    };
    let version = if parsed.version == Some(1) { Version::HTTP_11 } else { Version::HTTP_10 };
    let mut framing = Framing { keeps: version == Version::HTTP_11, ..Framing::default() };
    let mut lines = Vec::with_capacity(parsed.headers.len());
    for header in &*parsed.headers {
        framing.note(header.name.as_bytes(), header.value)?;
        lines.push(Line::new(place(buffer, header.name.as_bytes()), place(buffer, header.value)));
    }
    let body = framing.body(version)?;
    let head = Head { method, uri, version, headers: Headers::of(buffer.split_to(length), lines) };
    let keeps = framing.keeps && !framing.closes;
    Ok(Some(Asked { head, body, keeps, waits: framing.waits && version == Version::HTTP_11 }))
}

/// Whether there is an empty line behind another.
fn has_end(text: &[u8]) -> bool {
    let mut ends = memchr::memchr_iter(b'\n', text);
    ends.any(|at| {
        let rest = text.get(at + 1..).unwrap_or_default();
        rest.starts_with(b"\n") || rest.starts_with(b"\r\n")
    })
}

/// What may stand before a request: an empty line, which some clients send behind a body. True if there was one.
pub(super) fn skip_empty_lines(buffer: &mut BytesMut) -> bool {
    let empty = buffer.iter().take_while(|byte| matches!(byte, b'\r' | b'\n')).count();
    buffer.advance(empty);
    empty > 0
}

fn bad<E>(_: E) -> StatusCode {
    StatusCode::BAD_REQUEST
}

/// Where in `whole` its part is.
fn place(whole: &[u8], part: &[u8]) -> Range<usize> {
    let start = part.as_ptr().addr().saturating_sub(whole.as_ptr().addr());
    start..start + part.len()
}

impl Framing {
    fn note(&mut self, name: &[u8], value: &[u8]) -> Result<(), StatusCode> {
        // Told apart by their lengths first: most headers say nothing here.
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                let length = body::length(value.trim_ascii()).ok_or(StatusCode::BAD_REQUEST)?;
                if self.length.replace(length).is_some_and(|other| other != length) {
                    return Err(StatusCode::BAD_REQUEST);
                }
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.chunked || !value.trim_ascii().eq_ignore_ascii_case(b"chunked") {
                    return Err(StatusCode::BAD_REQUEST);
                }
                self.chunked = true;
            }
            10 if name.eq_ignore_ascii_case(b"connection") => {
                for word in value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii) {
                    self.closes |= word.eq_ignore_ascii_case(b"close");
                    self.keeps |= word.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            6 if name.eq_ignore_ascii_case(b"expect") => {
                self.waits |= value.trim_ascii().eq_ignore_ascii_case(b"100-continue");
            }
            _ => {}
        }
        Ok(())
    }

    fn body(&self, version: Version) -> Result<Decoder, StatusCode> {
        match (self.chunked, self.length) {
            (true, None) if version == Version::HTTP_11 => Ok(Decoder::chunked()),
            // Who believes the one sees another end than who believes the other; and 1.0 knows no chunks.
            (true, _) => Err(StatusCode::BAD_REQUEST),
            (false, length) => Ok(Decoder::of_length(length.unwrap_or(0))),
        }
    }
}

#[cfg(test)]
mod tests;
