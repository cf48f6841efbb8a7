//! Answers by the letter, in every cut, and those that are refused.

use proptest::prelude::*;

use super::*;

/// Reads an answer that comes in `pieces` and is then closed: its status, its body, and whether another may follow.
fn read(pieces: &[&[u8]]) -> io::Result<(u16, Vec<u8>, bool)> {
    let mut pieces = pieces.iter();
    let mut buffer = BytesMut::new();
    let (head, mut decoder) = loop {
        if let Some(read) = head(&mut buffer)? {
            break read;
        }
        buffer.extend_from_slice(pieces.next().ok_or_else(|| garbled("no head"))?);
    };
    let mut body = Vec::new();
    loop {
        match decoder.next(&mut buffer)? {
            Step::Data(data) => body.extend_from_slice(&data),
            Step::End => break,
            Step::More => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None if decoder.close() => return Err(garbled("cut off")),
                None => break,
            },
        }
    }
    Ok((head.status.as_u16(), body, decoder.is_reusable() && buffer.is_empty()))
}

fn said(text: &str) -> String {
    match read(&[text.as_bytes()]) {
        Ok((status, body, reusable)) => {
            let next = if reusable { "kept" } else { "closed" };
            format!("{status} {} {next}", String::from_utf8_lossy(&body))
        }
        Err(error) => error.to_string(),
    }
}

#[test]
fn a_body_ends_where_its_head_says() {
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "200 {} kept"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: Close\r\n\r\n{}", "200 {} closed"),
        ("HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: close, keep-alive\r\n\r\n{}", "200 {} closed"),
        (
            "HTTP/1.1 200 OK\r\nContent-Length: 2\r\nConnection: keep-alive\r\nConnection: close\r\n\r\n{}",
            "200 {} closed",
        ),
        (
            "HTTP/1.0 200 OK\r\nconnection: keep-alive\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            "200 {} closed",
        ),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\n{}", "200 {} closed"),
        ("HTTP/1.0 200 OK\r\ncontent-length: 2\r\nconnection: keep-alive\r\n\r\n{}", "200 {} kept"),
        ("HTTP/1.1 200 OK\r\n\r\n{}", "200 {} closed"),
        ("HTTP/1.1 202\r\ncontent-length: 0\r\n\r\n", "202  kept"),
        ("HTTP/1.1 204 No Content\r\n\r\n", "204  kept"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n{}", "200 {} kept"),
        ("HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}", "200 {} kept"),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", "200 {} kept"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: Chunked\r\n\r\n1;x=y\r\n{\r\n01\r\n}\r\n0\r\na: b\r\n\r\n",
            "200 {} kept",
        ),
        // Who believes the length sees another end.
        (
            "HTTP/1.1 200 OK\r\ncontent-length: 9\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            "200 {} closed",
        ),
        // What nobody asked for.
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}HTTP/1.1 200 OK\r\n", "200 {} closed"),
    ] {
        assert_eq!(said(text), expected, "{text:?}");
    }
}

#[test]
fn what_is_doubtful_is_refused() {
    for (text, expected) in [
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\n{}", "the answer has two lengths"),
        ("HTTP/1.1 200 OK\r\ncontent-length: +2\r\n\r\n{}", "the length of the answer is no number"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2, 2\r\n\r\n{}", "the length of the answer is no number"),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip\r\n\r\n",
            "the answer comes in a coding that is not known",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: gzip, chunked\r\n\r\n",
            "the answer comes in a coding that is not known",
        ),
        (
            "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2 2\r\n{}\r\n",
            "the size of a chunk is no number",
        ),
        ("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n", "cut off"),
        ("HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}", "cut off"),
        (
            "HTTP/1.1 101 Switching Protocols\r\n\r\n",
            "the server switched to another protocol, which nobody asked for",
        ),
        ("SSH-2.0-OpenSSH\r\n\r\n", "the head of the answer cannot be read: invalid HTTP version"),
    ] {
        assert_eq!(said(text), expected, "{text:?}");
    }
}

#[test]
fn nothing_makes_a_head_grow_for_ever() {
    let long = "x".repeat(MAX_HEAD);
    for (text, expected) in [
        (format!("HTTP/1.1 200 OK\r\na: {long}"), "the head of the answer is too long"),
        (
            format!("HTTP/1.1 200 OK\r\n{}\r\n", "a: b\r\n".repeat(MAX_HEADERS + 1)),
            "cannot be read: too many headers",
        ),
    ] {
        let said = said(&text);
        assert!(said.contains(expected), "{said}");
    }
}

#[test]
fn what_is_read_here_is_kept_of_a_head() {
    let text = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nX-Other: 1\r\nMcp-Session-Id: s\r\ncontent-length: 0\r\n\r\n";
    let (head, _) = head(&mut BytesMut::from(text)).unwrap().unwrap();
    assert_eq!(head.content_type.unwrap(), "text/event-stream");
    assert_eq!((head.session.unwrap(), head.location), ("s".parse().unwrap(), None));
}

proptest! {
    #[test]
    fn the_same_bytes_give_the_same_answer_in_whatever_pieces(
        chunks in prop::collection::vec("[a-z\r\n]{1,9}", 0..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
        chunked in any::<bool>(),
    ) {
        let body = chunks.concat();
        let text = if chunked {
            let chunks: Vec<_> = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
            let chunks = chunks.concat();
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n{chunks}0\r\n\r\n")
        } else {
            format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        };
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len())).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(&pieces).unwrap(), (200, body.into_bytes(), true));
    }

    #[test]
    fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let head: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        let _read = read(&[&text]).is_ok();
        let _read = read(&[head, &text]).is_ok();
    }
}
