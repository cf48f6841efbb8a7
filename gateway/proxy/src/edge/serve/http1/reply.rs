//! The head of an answer in HTTP/1.1, as bytes.

use std::{cell::RefCell, io::Write as _, time::SystemTime};

use http::{StatusCode, response::Parts};

/// How the body of an answer is told apart from what follows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Framing {
    /// There is none, and nothing is said about it.
    None,
    /// It has so many bytes.
    Length(u64),
    /// It comes in chunks.
    Chunks,
    /// It ends with the connection.
    UntilClosed,
}

/// Appends a head. `keeps` says whether another request may follow, where the client cannot take that for granted.
pub(super) fn write_head(out: &mut Vec<u8>, parts: &Parts, framing: Framing, keeps: Keeps) {
    write_status(out, parts.status);
    for (name, value) in &parts.headers {
        write_line(out, name.as_str().as_bytes(), value.as_bytes());
    }
    match framing {
        Framing::None | Framing::UntilClosed => {}
        Framing::Length(length) => {
            out.extend_from_slice(b"content-length: ");
            write_number(out, length);
            out.extend_from_slice(b"\r\n");
        }
        Framing::Chunks => out.extend_from_slice(b"transfer-encoding: chunked\r\n"),
    }
    match keeps {
        Keeps::Silently => {}
        Keeps::Says => out.extend_from_slice(b"connection: keep-alive\r\n"),
        Keeps::Not => out.extend_from_slice(b"connection: close\r\n"),
    }
    write_date(out);
    out.extend_from_slice(b"\r\n");
}

/// Whether another request may follow an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Keeps {
    /// As the version has it.
    Silently,
    /// A client of 1.0 has to be told.
    Says,
    /// It may not.
    Not,
}

/// The whole answer to what is no request.
pub(super) fn refusal(out: &mut Vec<u8>, status: StatusCode) {
    write_status(out, status);
    out.extend_from_slice(b"content-length: 0\r\nconnection: close\r\n");
    write_date(out);
    out.extend_from_slice(b"\r\n");
}

/// Begins a chunk of so many bytes, which is not empty: that would be the last.
pub(super) fn write_size(out: &mut Vec<u8>, size: usize) {
    write!(out, "{size:x}\r\n").expect("memory takes what is written");
}

fn write_status(out: &mut Vec<u8>, status: StatusCode) {
    if status == StatusCode::OK {
        return out.extend_from_slice(b"HTTP/1.1 200 OK\r\n");
    }
    out.extend_from_slice(b"HTTP/1.1 ");
    out.extend_from_slice(status.as_str().as_bytes());
    out.push(b' ');
    out.extend_from_slice(status.canonical_reason().unwrap_or_default().as_bytes());
    out.extend_from_slice(b"\r\n");
}

fn write_line(out: &mut Vec<u8>, name: &[u8], value: &[u8]) {
    out.reserve(name.len() + value.len() + 4);
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

fn write_number(out: &mut Vec<u8>, number: u64) {
    write!(out, "{number}").expect("memory takes what is written");
}

/// Appends the time, which is the same line for a whole second.
fn write_date(out: &mut Vec<u8>) {
    thread_local! {
        static LINE: RefCell<(u64, Vec<u8>)> = const { RefCell::new((0, Vec::new())) };
    }
    let now = SystemTime::now();
    let second = now.duration_since(SystemTime::UNIX_EPOCH).map_or(0, |since| since.as_secs());
    LINE.with_borrow_mut(|(written, line)| {
        if *written != second || line.is_empty() {
            *written = second;
            line.clear();
            write!(line, "date: {}\r\n", httpdate::HttpDate::from(now))
                .expect("memory takes what is written");
        }
        out.extend_from_slice(line);
    });
}

#[cfg(test)]
mod tests {
    use http::{HeaderValue, Response, header};

    use super::*;

    fn head(status: u16, framing: Framing, keeps: Keeps) -> String {
        let mut response = Response::new(());
        *response.status_mut() = StatusCode::from_u16(status).unwrap();
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("a/b"));
        let mut out = Vec::new();
        write_head(&mut out, &response.into_parts().0, framing, keeps);
        let text = String::from_utf8(out).unwrap();
        let (rest, date) = text.split_once("date: ").unwrap();
        let time = httpdate::parse_http_date(date.strip_suffix("\r\n\r\n").unwrap()).unwrap();
        assert!(time.elapsed().unwrap().as_secs() < 60, "{date}");
        rest.to_owned()
    }

    #[test]
    fn a_head_says_where_its_body_ends_and_whether_more_may_follow() {
        for (status, framing, keeps, expected) in [
            (
                200,
                Framing::Length(17),
                Keeps::Silently,
                "HTTP/1.1 200 OK\r\ncontent-type: a/b\r\ncontent-length: 17\r\n",
            ),
            (
                429,
                Framing::Chunks,
                Keeps::Not,
                "HTTP/1.1 429 Too Many Requests\r\ncontent-type: a/b\r\ntransfer-encoding: chunked\r\nconnection: close\r\n",
            ),
            (
                204,
                Framing::None,
                Keeps::Says,
                "HTTP/1.1 204 No Content\r\ncontent-type: a/b\r\nconnection: keep-alive\r\n",
            ),
            (
                799,
                Framing::UntilClosed,
                Keeps::Not,
                "HTTP/1.1 799 \r\ncontent-type: a/b\r\nconnection: close\r\n",
            ),
        ] {
            assert_eq!(head(status, framing, keeps), expected);
        }
    }

    #[test]
    fn a_refusal_is_an_answer_without_a_body() {
        let mut out = Vec::new();
        refusal(&mut out, StatusCode::REQUEST_HEADER_FIELDS_TOO_LARGE);
        let text = String::from_utf8(out).unwrap();
        let start = "HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\nconnection: close\r\ndate: ";
        assert!(text.starts_with(start) && text.ends_with("\r\n\r\n"), "{text}");
    }

    #[test]
    fn sizes_of_chunks_are_hexadecimal() {
        let mut out = Vec::new();
        write_size(&mut out, 4095);
        assert_eq!(out, b"fff\r\n");
    }
}
