//! What the bytes of simple fonts stand for: the named encodings, and a font's own differences from them.

use super::{
    file::File,
    glyphs,
    object::{Dictionary, Object},
};

// The upper halves of the named encodings, from byte 128 on; a space stands for nothing.
const WIN_ANSI: &str = "€•‚ƒ„…†‡ˆ‰Š‹Œ•Ž••‘’“”•–—˜™š›œ•žŸ\u{a0}¡¢£¤¥¦§¨©ª«¬\u{ad}®¯°±²³´µ¶·¸¹º»¼½¾¿ÀÁÂÃÄÅÆÇÈÉÊËÌÍÎÏÐÑÒÓÔÕÖ×ØÙÚÛÜÝÞßàáâãäåæçèéêëìíîïðñòóôõö÷øùúûüýþÿ";
const MAC_ROMAN: &str = "ÄÅÇÉÑÖÜáàâäãåçéèêëíìîïñóòôöõúùûü†°¢£§•¶ß®©™´¨≠ÆØ∞±≤≥¥µ∂∑∏π∫ªºΩæø¿¡¬√ƒ≈∆«»…\u{a0}ÀÃÕŒœ–—“”‘’÷◊ÿŸ⁄€‹›\u{fb01}\u{fb02}‡·‚„‰ÂÊÁËÈÍÎÏÌÓÔ\u{f8ff}ÒÚÛÙıˆ˜¯˘˙˚¸˝˛ˇ";
const STANDARD: &str = "                                 ¡¢£⁄¥ƒ§¤'“«‹›\u{fb01}\u{fb02} –†‡· ¶•‚„”»…‰ ¿ `´ˆ˜¯˘˙¨ ˚¸ ˝˛ˇ—                Æ ª    ŁØŒº     æ   ı  łøœß    ";

/// The characters of all bytes in a font.
pub(super) fn characters(font: &Dictionary, file: &mut File<'_>) -> [String; 256] {
    let encoding = file.get(font, b"Encoding");
    let (base, differences) = match &encoding {
        Object::Dictionary(own) => (file.get(own, b"BaseEncoding"), file.get(own, b"Differences")),
        named => (named.clone(), Object::Null),
    };
    let mut characters = named(base.name().unwrap_or_default());
    let mut code = 0;
    for item in differences.array().unwrap_or_default() {
        match item {
            Object::Number(_) => code = item.index().unwrap_or(0),
            Object::Name(name) => {
                if let Some(character) = characters.get_mut(code) {
                    *character = glyphs::text(name);
                }
                code += 1;
            }
            _ => {}
        }
    }
    characters
}

fn named(encoding: &[u8]) -> [String; 256] {
    let upper = match encoding {
        b"WinAnsiEncoding" => WIN_ANSI,
        b"MacRomanEncoding" => MAC_ROMAN,
        _ => STANDARD,
    };
    let quotes = encoding.is_empty() || encoding == b"StandardEncoding";
    let lower = (0..128_u8).map(|byte| match byte {
        0x27 if quotes => "’".to_owned(),
        0x60 if quotes => "‘".to_owned(),
        0..0x20 | 0x7f => String::new(),
        _ => char::from(byte).to_string(),
    });
    let upper = upper.chars().map(|char| if char == ' ' { String::new() } else { char.to_string() });
    let mut characters = lower.chain(upper);
    std::array::from_fn(|_| characters.next().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_encoding_has_a_character_for_every_byte() {
        for upper in [WIN_ANSI, MAC_ROMAN, STANDARD] {
            assert_eq!(upper.chars().count(), 128);
        }
    }

    #[test]
    fn known_bytes_are_known_characters() {
        for (encoding, byte, expected) in [
            ("WinAnsiEncoding", 0x80, "€"),
            ("WinAnsiEncoding", 0xe9, "é"),
            ("MacRomanEncoding", 0x8e, "é"),
            ("StandardEncoding", 0xae, "ﬁ"),
            ("StandardEncoding", 0x27, "’"),
            ("", 0x41, "A"),
        ] {
            assert_eq!(named(encoding.as_bytes())[byte], expected);
        }
    }
}
