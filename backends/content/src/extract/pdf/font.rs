//! Fonts: which characters the codes of a string stand for, and how wide they are.

use std::{borrow::Cow, collections::HashMap, rc::Rc};

use super::{
    super::ExtractError,
    damaged, encoding,
    file::File,
    object::{Dictionary, Object},
    tounicode::ToUnicode,
};

/// How wide a glyph is taken to be where the font does not say: in thousandths of its size.
const GUESSED_WIDTH: f64 = 500.0;
/// How wide a glyph of a font with many characters is by default.
const DEFAULT_WIDTH: f64 = 1000.0;
/// No font has more glyphs.
const MOST_WIDTHS: usize = 65_536;

/// How many bytes the tables of all fonts together may take.
const MOST_WEIGHT: usize = 128 << 20;
/// About what the table of a font takes whose codes are bytes, and what a width takes.
const SIMPLE: usize = 8 << 10;
const WIDTH: usize = 32;

/// The fonts of a file that were used so far.
#[derive(Debug, Default)]
pub(super) struct Fonts {
    known: HashMap<u32, Rc<Font>>,
    /// What all that were read took.
    weight: usize,
}

impl Fonts {
    pub(super) fn get(&mut self, font: &Object, file: &mut File<'_>) -> Result<Rc<Font>, ExtractError> {
        if let Object::Reference(number) = font
            && let Some(known) = self.known.get(number)
        {
            return Ok(known.clone());
        }
        let dictionary = file.resolve(font);
        let read = Rc::new(Font::read(dictionary.dictionary().unwrap_or(&Dictionary::new()), file)?);
        self.weight += read.weight();
        if self.weight > MOST_WEIGHT {
            return Err(damaged("its fonts are too large"));
        }
        if let Object::Reference(number) = font {
            self.known.insert(*number, read.clone());
        }
        Ok(read)
    }
}

#[derive(Debug)]
pub(super) struct Font {
    codes: Codes,
    /// What a code stands for; where it is not in here, `codes` says it.
    unicode: Option<ToUnicode>,
    widths: HashMap<u32, f64>,
    default_width: Option<f64>,
}

/// How the bytes of a string are codes, and what these are without a table of the font's own.
#[derive(Debug)]
enum Codes {
    /// One byte each.
    Simple(Box<[String; 256]>),
    /// Two bytes each, with a meaning only the font knows.
    Double,
    /// UTF-16, as the predefined encodings of East Asian fonts named `Uni…` have it.
    Utf16,
}

/// One glyph of a string.
#[derive(Debug)]
pub(super) struct Glyph<'a> {
    pub(super) text: Cow<'a, str>,
    /// In thousandths of the font's size.
    pub(super) width: f64,
    /// Whether word spacing applies to it.
    pub(super) is_space: bool,
}

impl Font {
    fn read(font: &Dictionary, file: &mut File<'_>) -> Result<Font, ExtractError> {
        let unicode = match font.get(b"ToUnicode".as_slice()) {
            Some(stream) => file.stream(stream)?.map(|(_, bytes)| ToUnicode::read(&bytes)),
            None => None,
        };
        if file.get(font, b"Subtype").name() == Some(b"Type0") {
            return Ok(Font::composite(font, unicode, file));
        }
        let (widths, default_width) = simple_widths(font, file);
        let codes = Codes::Simple(Box::new(encoding::characters(font, file)));
        Ok(Font { codes, unicode, widths, default_width })
    }

    fn composite(font: &Dictionary, unicode: Option<ToUnicode>, file: &mut File<'_>) -> Font {
        let encoding = file.get(font, b"Encoding");
        let name = encoding.name().unwrap_or_default();
        let is_utf16 = name.starts_with(b"Uni") && (contains(name, b"UCS2") || contains(name, b"UTF16"));
        let descendants = file.get(font, b"DescendantFonts");
        let descendant = descendants.array().and_then(|fonts| fonts.first()).map(|font| file.resolve(font));
        let descendant = descendant.as_ref().and_then(Object::dictionary).cloned().unwrap_or_default();
        // The widths are by glyph, which is the code only in Identity encodings.
        let widths = if is_utf16 { HashMap::new() } else { composite_widths(&descendant, file) };
        let default_width = file.get(&descendant, b"DW").number().unwrap_or(DEFAULT_WIDTH);
        let codes = if is_utf16 { Codes::Utf16 } else { Codes::Double };
        Font { codes, unicode, widths, default_width: Some(default_width) }
    }

    /// About how many bytes its tables take.
    fn weight(&self) -> usize {
        let codes = if matches!(self.codes, Codes::Simple(_)) { SIMPLE } else { 0 };
        codes + self.unicode.as_ref().map_or(0, ToUnicode::weight) + self.widths.len() * WIDTH
    }

    /// Whether the places of what it shows are certain.
    pub(super) fn knows_widths(&self) -> bool {
        self.default_width.is_some() && !matches!(self.codes, Codes::Utf16)
    }

    pub(super) fn glyphs<'a>(&'a self, string: &'a [u8]) -> impl Iterator<Item = Glyph<'a>> {
        let length = match &self.codes {
            Codes::Simple(_) => 1,
            Codes::Double => self.unicode.as_ref().map_or(2, ToUnicode::code_length),
            Codes::Utf16 => 2,
        };
        let mut high = None;
        string.chunks(length).map(move |bytes| {
            let code = bytes.iter().fold(0, |code, byte| code << 8 | u32::from(*byte));
            let own = self.unicode.as_ref().and_then(|unicode| unicode.get(code));
            let text = own.map_or_else(
                || match &self.codes {
                    Codes::Simple(characters) => {
                        characters.get(code as usize).map_or("", String::as_str).into()
                    }
                    Codes::Double => Cow::Borrowed(""),
                    Codes::Utf16 => utf16(code, &mut high).into(),
                },
                Cow::Borrowed,
            );
            let width = self.widths.get(&code).copied().or(self.default_width).unwrap_or(GUESSED_WIDTH);
            Glyph { text, width, is_space: length == 1 && code == 32 }
        })
    }
}

/// The character that a unit of UTF-16 ends; `high` keeps the first half of a pair.
fn utf16(unit: u32, high: &mut Option<u16>) -> String {
    let Ok(unit) = u16::try_from(unit) else { return String::new() };
    if (0xd800..0xdc00).contains(&unit) {
        *high = Some(unit);
        return String::new();
    }
    char::decode_utf16(high.take().into_iter().chain([unit])).flatten().collect()
}

fn contains(name: &[u8], part: &[u8]) -> bool {
    name.windows(part.len()).any(|window| window == part)
}

/// The widths of a font whose codes are bytes, and that of codes without one.
fn simple_widths(font: &Dictionary, file: &mut File<'_>) -> (HashMap<u32, f64>, Option<f64>) {
    let first = file.get(font, b"FirstChar").index().unwrap_or(0);
    let Object::Array(listed) = file.get(font, b"Widths") else { return (HashMap::new(), None) };
    // The glyphs of Type 3 fonts are measured in units of their own.
    let unit = match file.get(font, b"FontMatrix") {
        Object::Array(matrix) => matrix.first().and_then(Object::number).map_or(1.0, |scale| scale * 1000.0),
        _ => 1.0,
    };
    let mut widths = HashMap::new();
    for (at, width) in listed.iter().take(256).enumerate() {
        if let (Ok(code), Some(width)) = (u32::try_from(first + at), file.resolve(width).number()) {
            widths.insert(code, width * unit);
        }
    }
    let descriptor = file.get_dictionary(font, b"FontDescriptor").unwrap_or_default();
    let missing = file.get(&descriptor, b"MissingWidth").number().unwrap_or(0.0);
    (widths, Some(missing))
}

/// The widths of a font with many characters: `first [width …]` or `first last width`, over and over.
fn composite_widths(font: &Dictionary, file: &mut File<'_>) -> HashMap<u32, f64> {
    let mut widths = HashMap::new();
    let Object::Array(listed) = file.get(font, b"W") else { return widths };
    let (mut items, mut said) = (listed.iter(), 0);
    while let (Some(first), Some(second)) = (items.next(), items.next()) {
        let Some(first) = first.index().and_then(|first| u32::try_from(first).ok()) else { break };
        match file.resolve(second) {
            Object::Array(each) => {
                let numbers = each.iter().map(|width| width.number().unwrap_or(DEFAULT_WIDTH));
                said += each.len();
                widths.extend((first..).zip(numbers.take(MOST_WIDTHS)));
            }
            last => {
                let (Some(last), Some(width)) = (last.index(), items.next().and_then(Object::number)) else {
                    break;
                };
                let last = u32::try_from(last.min(MOST_WIDTHS)).unwrap_or(0);
                said += last.saturating_sub(first) as usize;
                widths.extend((first..=last).map(|code| (code, width)));
            }
        }
        // Those said again count as well.
        if said > MOST_WIDTHS {
            break;
        }
    }
    widths
}
