//! Text in Unicode, with or without a byte order mark.

use super::ExtractError;

/// Control characters that no text has; a file with them is something else.
const NEVER_IN_TEXT: [char; 6] = ['\0', '\u{1}', '\u{2}', '\u{3}', '\u{4}', '\u{5}'];

pub(super) fn read(bytes: &[u8]) -> Result<String, ExtractError> {
    let text = match bytes {
        [0xff, 0xfe, units @ ..] => utf16(units, u16::from_le_bytes)?,
        [0xfe, 0xff, units @ ..] => utf16(units, u16::from_be_bytes)?,
        text => utf8(text.strip_prefix("\u{feff}".as_bytes()).unwrap_or(text))?,
    };
    if text.contains(NEVER_IN_TEXT) { Err(ExtractError::Binary) } else { Ok(text) }
}

fn utf8(bytes: &[u8]) -> Result<String, ExtractError> {
    std::str::from_utf8(bytes).map(str::to_owned).map_err(|_| ExtractError::Binary)
}

fn utf16(bytes: &[u8], unit: fn([u8; 2]) -> u16) -> Result<String, ExtractError> {
    let (units, rest) = bytes.as_chunks::<2>();
    let text = char::decode_utf16(units.iter().map(|bytes| unit(*bytes))).collect::<Result<String, _>>();
    text.ok().filter(|_| rest.is_empty()).ok_or(ExtractError::Binary)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_read_with_and_without_a_byte_order_mark() {
        let utf16 = |mark: [u8; 2], unit: fn(u16) -> [u8; 2]| {
            mark.into_iter().chain("한글 🌙".encode_utf16().flat_map(unit)).collect::<Vec<_>>()
        };
        for bytes in [
            "한글 🌙".as_bytes().to_vec(),
            "\u{feff}한글 🌙".as_bytes().to_vec(),
            utf16([0xff, 0xfe], u16::to_le_bytes),
            utf16([0xfe, 0xff], u16::to_be_bytes),
        ] {
            assert_eq!(read(&bytes).as_deref(), Ok("한글 🌙"));
        }
        assert_eq!(read(b"").as_deref(), Ok(""));
        assert_eq!(read(b"a\tb\r\n\x0c\x1b[0m").as_deref(), Ok("a\tb\r\n\x0c\x1b[0m"));
    }

    #[test]
    fn what_is_no_text_is_refused() {
        for bytes in [
            &b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR"[..],
            b"\x7fELF\x02\x01\x01\0",
            b"plain, then \0",
            b"\xff\xfe\x00",
            b"\xff\xfe\x00\xd8",
            b"caf\xe9",
        ] {
            assert_eq!(read(bytes), Err(ExtractError::Binary), "{bytes:?}");
        }
    }
}
