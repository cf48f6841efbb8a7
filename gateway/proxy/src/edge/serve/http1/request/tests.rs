//! Heads by the letter, in every cut, and those that are refused.

use proptest::prelude::*;

use super::*;

const MOST: usize = 16 * 1024;

fn parse(text: &str) -> Result<Option<(Asked, BytesMut)>, u16> {
    let mut buffer = BytesMut::from(text);
    let read = read(&mut buffer, 0, MOST).map_err(|status| status.as_u16())?;
    Ok(read.map(|asked| (asked, buffer)))
}

fn parsed(text: &str) -> (Asked, BytesMut) {
    parse(text).unwrap().expect("all of it is there")
}

#[test]
fn a_head_is_taken_from_the_front_and_its_names_are_in_lower_case() {
    let (asked, rest) = parsed(
        "POST /mcp/a?b=c HTTP/1.1\r\nHost: localhost\r\nX-Session-ID:  A b \r\nx-session-id: 2\r\nContent-Length: 2\r\n\r\n{}GET",
    );
    assert_eq!((asked.head.method, asked.head.version), (Method::POST, Version::HTTP_11));
    assert_eq!(asked.head.uri, "/mcp/a?b=c");
    let headers: Vec<_> = asked.head.headers.iter().collect();
    let expected: [(&[u8], &[u8]); 4] = [
        (b"host", b"localhost"),
        (b"x-session-id", b"A b"),
        (b"x-session-id", b"2"),
        (b"content-length", b"2"),
    ];
    assert_eq!(headers, expected);
    assert_eq!((asked.body.left(), asked.keeps, asked.waits), (2, true, false));
    assert_eq!(rest, "{}GET");
    assert_eq!(parsed("GET /mcp HTTP/1.1\r\n\r\n").0.head.uri, "/mcp");
    assert_eq!(parsed("\r\n\r\nGET / HTTP/1.1\n\n").0.head.uri, "/");
    assert_eq!(parsed("GET http://a:1/b HTTP/1.1\r\n\r\n").0.head.uri.authority().unwrap(), "a:1");
    assert_eq!(parsed("OPTIONS * HTTP/1.1\r\n\r\n").0.head.uri, "*");
}

#[test]
fn whether_another_request_may_follow_is_said_by_version_and_header() {
    for (version, connection, keeps) in [
        ("1.1", "", true),
        ("1.1", "connection: close\r\n", false),
        ("1.1", "Connection: x, CLOSE\r\n", false),
        ("1.1", "connection: keep-alive, close\r\n", false),
        ("1.0", "", false),
        ("1.0", "connection: Keep-Alive\r\n", true),
        ("1.0", "connection: keep-alive\r\nconnection: close\r\n", false),
    ] {
        let text = format!("GET / HTTP/{version}\r\n{connection}\r\n");
        assert_eq!(parsed(&text).0.keeps, keeps, "{text:?}");
    }
}

#[test]
fn a_client_may_wait_to_be_told_to_go_on() {
    for (version, expected) in [("1.1", true), ("1.0", false)] {
        let text = format!("POST / HTTP/{version}\r\nExpect: 100-Continue\r\ncontent-length: 1\r\n\r\n");
        assert_eq!(parsed(&text).0.waits, expected);
    }
    assert!(!parsed("POST / HTTP/1.1\r\nexpect: else\r\ncontent-length: 1\r\n\r\n").0.waits);
}

#[test]
fn what_is_doubtful_is_refused() {
    for (text, status) in [
        ("content-length: 2\r\ncontent-length: 3\r\n", 400),
        ("content-length: 2, 2\r\n", 400),
        ("content-length: +2\r\n", 400),
        ("content-length: -2\r\n", 400),
        ("content-length: \r\n", 400),
        ("content-length: 18446744073709551616\r\n", 400),
        ("content-length: 2\r\ntransfer-encoding: chunked\r\n", 400),
        ("transfer-encoding: chunked\r\ncontent-length: 2\r\n", 400),
        ("transfer-encoding: gzip\r\n", 400),
        ("transfer-encoding: gzip, chunked\r\n", 400),
        ("transfer-encoding: chunked, identity\r\n", 400),
        ("transfer-encoding: xchunked\r\n", 400),
        ("transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n", 400),
        ("content-length : 2\r\n", 400),
        (" content-length: 2\r\n", 400),
        ("a: b\r\n c\r\n", 400),
        ("a: b\rc: d\r\n", 400),
        ("a: \0\r\n", 400),
        ("a\u{e4}: b\r\n", 400),
        ("no colon\r\n", 400),
    ] {
        let text = format!("POST / HTTP/1.1\r\n{text}\r\n");
        assert_eq!(parse(&text).err(), Some(status), "{text:?}");
    }
    for text in [
        "POST / HTTP/1.0\r\ntransfer-encoding: chunked\r\n\r\n",
        "POST /a b HTTP/1.1\r\n\r\n",
        "POST  / HTTP/1.1\r\n\r\n",
        "POST / HTTP/2.0\r\n\r\n",
        "POST / HTTP/1.1 \r\n\r\n",
        "POST / \r\n\r\n",
        "PO(ST / HTTP/1.1\r\n\r\n",
        "\0",
        "\u{16}\u{3}\u{1}",
    ] {
        assert_eq!(parse(text).err(), Some(400), "{text:?}");
    }
    let twice = parsed("POST / HTTP/1.1\r\ncontent-length: 2\r\ncontent-length: 2\r\n\r\n");
    assert_eq!(twice.0.body.left(), 2);
}

#[test]
fn a_head_is_not_read_again_before_it_may_have_ended() {
    for text in ["GET / HTTP/1.1\r\na: b\r\n\r\n", "GET / HTTP/1.1\na: b\n\n", "GET / HTTP/1.1\r\na: b\n\r\n"]
    {
        let mut buffer = BytesMut::new();
        for (seen, byte) in text.bytes().enumerate() {
            assert!(read(&mut buffer, seen.saturating_sub(1), MOST).unwrap().is_none(), "{text:?} at {seen}");
            buffer.extend_from_slice(&[byte]);
        }
        assert!(read(&mut buffer, text.len() - 1, MOST).unwrap().is_some(), "{text:?}");
    }
    // Nobody looks: this is no head, and would be refused.
    let mut buffer = BytesMut::from("GET / HTTP/1.1\r\na: \0");
    assert!(read(&mut buffer, 10, MOST).unwrap().is_none());
    buffer.extend_from_slice(b"\r\n\r\n");
    assert_eq!(read(&mut buffer, 20, MOST).err(), Some(StatusCode::BAD_REQUEST));
}

#[test]
fn a_head_does_not_grow_for_ever() {
    let long = "x".repeat(MOST);
    assert_eq!(parse(&format!("GET / HTTP/1.1\r\na: {long}")).err(), Some(431));
    assert_eq!(parse(&format!("GET / HTTP/1.1\r\na: {long}\r\n\r\n")).err(), Some(431));
    assert_eq!(parse(&format!("GET /{long} HTTP/1.1\r\n\r\n")).err(), Some(431));
    let many = "a: b\r\n".repeat(MAX_HEADERS + 1);
    assert_eq!(parse(&format!("GET / HTTP/1.1\r\n{many}\r\n")).err(), Some(431));
    let many = "a: b\r\n".repeat(MAX_HEADERS);
    assert!(parse(&format!("GET / HTTP/1.1\r\n{many}\r\n")).unwrap().is_some());
}

proptest! {
    #[test]
    fn the_same_bytes_are_the_same_head_in_whatever_pieces(
        names in prop::collection::vec("[A-Za-z-]{1,9}", 0..5),
        value in "[ -~]{0,20}",
        cut in any::<prop::sample::Index>(),
    ) {
        let lines: Vec<_> = names.iter().map(|name| format!("x-{name}: {value}\r\n")).collect();
        let text = format!("GET / HTTP/1.1\r\n{}\r\n", lines.concat());
        let (first, second) = text.split_at(cut.index(text.len()));
        let mut buffer = BytesMut::from(first);
        prop_assert!(read(&mut buffer, 0, MOST).unwrap().is_none());
        let seen = buffer.len();
        buffer.extend_from_slice(second.as_bytes());
        let asked = read(&mut buffer, seen, MOST).unwrap().unwrap();
        let said: Vec<_> = asked.head.headers.iter().map(|(name, said)| (name.to_vec(), said.to_vec())).collect();
        let expected: Vec<_> = names
            .iter()
            .map(|name| (format!("x-{name}").to_ascii_lowercase().into_bytes(), value.trim().as_bytes().to_vec()))
            .collect();
        prop_assert_eq!(said, expected);
    }

    #[test]
    fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        for start in ["", "POST / HTTP/1.1\r\n", "POST / HTTP/1.1\r\na: b\r\n"] {
            let mut buffer = BytesMut::from(start);
            buffer.extend_from_slice(&text);
            buffer.extend_from_slice(b"\r\n\r\n");
            let _read = read(&mut buffer, 0, MOST).is_ok();
        }
    }
}
