//! Bodies by the letter, in every cut, and those that are refused.

use proptest::prelude::*;

use super::*;

/// A body, and what stood behind it; `None` when it was cut off.
type Read = Result<Option<(Vec<u8>, Vec<u8>)>, Garbled>;

/// Reads a body that comes in `pieces` and is then closed.
fn read(mut decoder: Decoder, pieces: &[&[u8]]) -> Read {
    let (mut buffer, mut body) = (BytesMut::new(), Vec::new());
    let mut pieces = pieces.iter();
    loop {
        match decoder.next(&mut buffer)? {
            Step::Data(data) => body.extend_from_slice(&data),
            Step::End => break,
            Step::More => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None if decoder.close() => return Ok(None),
                None => break,
            },
        }
    }
    pieces.for_each(|piece| buffer.extend_from_slice(piece));
    Ok(Some((body, buffer.to_vec())))
}

#[expect(clippy::unnecessary_wraps, reason = "it is compared with what is read")]
fn whole(body: &str, behind: &str) -> Read {
    Ok(Some((body.into(), behind.into())))
}

#[test]
fn a_body_ends_where_it_says_and_what_follows_is_left() {
    assert_eq!(read(Decoder::of_length(2), &[b"{}POST"]), whole("{}", "POST"));
    assert_eq!(read(Decoder::of_length(0), &[b"POST"]), whole("", "POST"));
    assert_eq!(read(Decoder::until_closed(), &[b"{", b"}"]), whole("{}", ""));
    for (text, body, behind) in [
        ("2\r\n{}\r\n0\r\n\r\nPOST", "{}", "POST"),
        ("1;x=y\r\n{\r\n01 \t;z\r\n}\r\n0 \r\na: b\r\n\r\n", "{}", ""),
        ("0\r\n\r\n0\r\n", "", "0\r\n"),
        ("A\r\n0123456789\r\n0\r\n\r\n", "0123456789", ""),
    ] {
        assert_eq!(read(Decoder::chunked(), &[text.as_bytes()]), whole(body, behind), "{text:?}");
    }
}

#[test]
fn what_is_doubtful_is_refused_and_what_is_cut_off_is_not_taken_for_whole() {
    assert_eq!(read(Decoder::of_length(3), &[b"{}"]), Ok(None));
    assert_eq!(read(Decoder::chunked(), &[b"2\r\n{}\r\n"]), Ok(None));
    for (text, expected) in [
        ("2 2\r\n{}\r\n", Garbled::Size),
        (" 2\r\n{}\r\n", Garbled::Size),
        ("\u{c}2\r\n{}\r\n", Garbled::Size),
        ("2\u{c}\r\n{}\r\n", Garbled::Size),
        ("2\r\r\n{}\r\n", Garbled::LineEnd),
        ("2;a\rb\r\n{}\r\n", Garbled::LineEnd),
        ("0\r\nGET /x HTTP/1.1\r\nHost: a\r\n\r\n", Garbled::Trailer),
        ("0\r\n: a\r\n\r\n", Garbled::Trailer),
        ("0\r\n a: b\r\n\r\n", Garbled::Trailer),
        ("-1\r\n", Garbled::Size),
        ("+1\r\n", Garbled::Size),
        ("\r\n", Garbled::Size),
        ("0x1\r\n", Garbled::Size),
        ("11111111111111111\r\n", Garbled::Size),
        ("1\r\n{}\r\n0\r\n\r\n", Garbled::LongChunk),
        ("2\n{}\r\n", Garbled::LineEnd),
    ] {
        assert_eq!(read(Decoder::chunked(), &[text.as_bytes()]), Err(expected), "{text:?}");
    }
    let long = "x".repeat(MAX_SIZE_LINE);
    assert_eq!(read(Decoder::chunked(), &[format!("1;{long}").as_bytes()]), Err(Garbled::LongLine));
    let extended = format!("1;{}\r\nx\r\n", &long[2..]).repeat(MAX_EXTENSIONS / MAX_SIZE_LINE + 1);
    assert_eq!(read(Decoder::chunked(), &[extended.as_bytes()]), Err(Garbled::Extensions));
    let trailers = format!("0\r\n{}\r\n", "a: b\r\n".repeat(MAX_TRAILERS / 6 + 2));
    assert!(read(Decoder::chunked(), &[trailers.as_bytes()]).is_err());
}

#[test]
fn a_length_is_digits_and_nothing_else() {
    assert_eq!(length(b"0"), Some(0));
    assert_eq!(length(b"18446744073709551615"), Some(u64::MAX));
    for text in ["", "+2", "-1", "2, 2", " 2", "0x2", "18446744073709551616"] {
        assert_eq!(length(text.as_bytes()), None, "{text:?}");
    }
}

proptest! {
    #[test]
    fn the_same_bytes_are_the_same_body_in_whatever_pieces(
        chunks in prop::collection::vec("[a-z\r\n]{1,9}", 0..5),
        cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..6),
    ) {
        let body = chunks.concat();
        let framed: Vec<_> = chunks.iter().map(|chunk| format!("{:x}\r\n{chunk}\r\n", chunk.len())).collect();
        let text = format!("{}0\r\n\r\n", framed.concat());
        let mut cuts: Vec<_> = cuts.iter().map(|cut| cut.index(text.len())).chain([0, text.len()]).collect();
        cuts.sort_unstable();
        let pieces: Vec<_> = cuts.windows(2).map(|cut| &text.as_bytes()[cut[0]..cut[1]]).collect();
        prop_assert_eq!(read(Decoder::chunked(), &pieces), whole(&body, ""));
    }

    #[test]
    fn no_bytes_make_it_panic(text in prop::collection::vec(any::<u8>(), 0..200)) {
        let _read = read(Decoder::chunked(), &[&text]).is_ok();
    }
}
