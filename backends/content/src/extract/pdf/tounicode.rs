//! The table of a font that says which characters its codes stand for.

use std::collections::HashMap;

use super::object::{Lexer, Object};

/// No font has more codes.
const MOST_CODES: usize = 65_536;
/// How many tokens are read of a table.
const MOST_TOKENS: usize = 400_000;

/// About what a code takes beside its text.
const ENTRY: usize = 48;

#[derive(Debug)]
pub(super) struct ToUnicode {
    texts: HashMap<u32, String>,
    code_length: usize,
    /// How many codes may still be said, those said again included.
    left: usize,
}

impl ToUnicode {
    pub(super) fn read(bytes: &[u8]) -> ToUnicode {
        let mut table = ToUnicode { texts: HashMap::new(), code_length: 2, left: MOST_CODES };
        let mut lexer = Lexer::new(bytes, 0, MOST_TOKENS);
        while let Some(object) = lexer.next() {
            let Object::Word(word) = object else { continue };
            match word.as_slice() {
                b"begincodespacerange" => table.read_lengths(&mut lexer),
                b"beginbfchar" => table.read_chars(&mut lexer),
                b"beginbfrange" => table.read_ranges(&mut lexer),
                _ => {}
            }
        }
        table
    }

    pub(super) fn get(&self, code: u32) -> Option<&str> {
        self.texts.get(&code).map(String::as_str)
    }

    /// About how many bytes it takes.
    pub(super) fn weight(&self) -> usize {
        self.texts.values().map(|text| ENTRY + text.capacity()).sum()
    }

    /// How many bytes a code has.
    pub(super) fn code_length(&self) -> usize {
        self.code_length
    }

    fn read_lengths(&mut self, lexer: &mut Lexer<'_>) {
        while let Some(Object::String(low)) = lexer.next() {
            self.code_length = low.len().clamp(1, 2);
            lexer.next();
        }
    }

    fn read_chars(&mut self, lexer: &mut Lexer<'_>) {
        while let Some(Object::String(code)) = lexer.next() {
            match lexer.next() {
                Some(Object::String(text)) => self.insert(number(&code), &utf16(&text)),
                Some(_) => {}
                None => return,
            }
        }
    }

    fn read_ranges(&mut self, lexer: &mut Lexer<'_>) {
        while let Some(Object::String(first)) = lexer.next() {
            let Some(Object::String(last)) = lexer.next() else { return };
            let (first, last) = (number(&first), number(&last).min(0xffff));
            match lexer.next() {
                Some(Object::String(text)) => self.insert_range(first, last, &text),
                Some(Object::Array(texts)) => {
                    for (code, text) in (first..=last).zip(texts.iter()) {
                        if let Object::String(text) = text {
                            self.insert(code, &utf16(text));
                        }
                    }
                }
                _ => return,
            }
        }
    }

    /// Codes one after the other, whose last characters follow one another, too.
    fn insert_range(&mut self, first: u32, last: u32, text: &[u8]) {
        let start = utf16(text);
        let mut head = start.chars();
        let Some(end) = head.next_back() else { return };
        for (step, code) in (first..=last).enumerate() {
            if self.left == 0 {
                return;
            }
            let char =
                u32::try_from(step).ok().and_then(|step| char::from_u32(u32::from(end).checked_add(step)?));
            let text = head.clone().chain(char).collect::<String>();
            self.insert(code, &text);
        }
    }

    fn insert(&mut self, code: u32, text: &str) {
        if let Some(left) = self.left.checked_sub(1) {
            self.left = left;
            // Some tables answer codes without a character with a zero.
            self.texts.insert(code, text.replace('\0', ""));
        }
    }
}

fn number(code: &[u8]) -> u32 {
    code.iter().fold(0, |number, byte| number << 8 | u32::from(*byte))
}

fn utf16(bytes: &[u8]) -> String {
    // A ligature has some letters, a page of text in the place of one glyph is an attack.
    let bytes = bytes.get(..bytes.len().min(64)).unwrap_or_default();
    if let [byte] = bytes {
        return char::from(*byte).to_string();
    }
    let units =
        bytes.chunks_exact(2).map(|unit| unit.iter().fold(0, |unit, byte| unit << 8 | u16::from(*byte)));
    char::decode_utf16(units).flatten().collect()
}
