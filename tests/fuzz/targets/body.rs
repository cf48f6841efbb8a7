//! Arbitrary bytes as a body in chunks: they are the same body in whatever pieces they come.
#![no_main]

use bytes::BytesMut;
use libfuzzer_sys::fuzz_target;
use moongate_wire::body::{Decoder, Garbled, Step};

fuzz_target!(|data: &[u8]| {
    let Some((size, text)) = data.split_first() else { return };
    let whole = read(&[text]);
    let pieces: Vec<_> = text.chunks(usize::from(*size).max(1)).collect();
    match (whole, read(&pieces)) {
        (Ok(whole), Ok(pieces)) => assert_eq!(whole, pieces),
        (Err(_), Err(_)) => {}
        (whole, pieces) => panic!("{whole:?} in one piece, {pieces:?} in several"),
    }
});

/// The body and what stands behind it; `None` when there is not all of it.
fn read(pieces: &[&[u8]]) -> Result<Option<(Vec<u8>, Vec<u8>)>, Garbled> {
    let (mut buffer, mut body, mut decoder) = (BytesMut::new(), Vec::new(), Decoder::chunked());
    let mut pieces = pieces.iter();
    loop {
        match decoder.next(&mut buffer)? {
            Step::Data(data) => body.extend_from_slice(&data),
            Step::End => break,
            Step::More => match pieces.next() {
                Some(piece) => buffer.extend_from_slice(piece),
                None => return Ok(None),
            },
        }
    }
    pieces.for_each(|piece| buffer.extend_from_slice(piece));
    Ok(Some((body, buffer.to_vec())))
}
