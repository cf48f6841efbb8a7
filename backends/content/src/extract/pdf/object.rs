//! The objects of PDF, read from bytes.

use std::{collections::HashMap, rc::Rc};

/// Deeper nesting than any program writes.
const DEEPEST: usize = 64;

#[derive(Debug, Clone, PartialEq)]
pub(super) enum Object {
    Null,
    Boolean(bool),
    Number(f64),
    Name(Vec<u8>),
    String(Vec<u8>),
    // Shared, because whoever looks something up gets a copy, and a file may hold large ones and look them up often.
    Array(Rc<Vec<Object>>),
    Dictionary(Rc<Dictionary>),
    /// The number of another object.
    Reference(u32),
    /// A word that is none of these: an operator, or the end of something.
    Word(Vec<u8>),
}

pub(super) type Dictionary = HashMap<Vec<u8>, Object>;

impl Object {
    pub(super) fn number(&self) -> Option<f64> {
        if let Object::Number(number) = self { Some(*number) } else { None }
    }

    /// A number that counts or names something.
    pub(super) fn index(&self) -> Option<usize> {
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked to be in range")]
        self.number().filter(|number| (0.0..=1e9).contains(number)).map(|number| number as usize)
    }

    pub(super) fn name(&self) -> Option<&[u8]> {
        if let Object::Name(name) = self { Some(name) } else { None }
    }

    pub(super) fn array(&self) -> Option<&[Object]> {
        if let Object::Array(array) = self { Some(array) } else { None }
    }

    pub(super) fn dictionary(&self) -> Option<&Dictionary> {
        if let Object::Dictionary(dictionary) = self { Some(dictionary) } else { None }
    }
}

/// Reads objects one after the other.
#[derive(Debug)]
pub(super) struct Lexer<'a> {
    bytes: &'a [u8],
    pub(super) at: usize,
    /// How many objects it may still make.
    left: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize, most: usize) -> Lexer<'a> {
        Lexer { bytes, at, left: most }
    }

    /// How many objects it may still make: what it used up is its caller's to count.
    pub(super) fn left(&self) -> usize {
        self.left
    }

    /// Lets it make no more than `most` further objects.
    pub(super) fn limit(&mut self, most: usize) {
        self.left = self.left.min(most);
    }

    /// The next object, where there is one.
    pub(super) fn next(&mut self) -> Option<Object> {
        self.object(0)
    }

    /// The next object, with `12 0 R` as a reference.
    pub(super) fn next_with_references(&mut self) -> Option<Object> {
        let first = self.object(0)?;
        Some(self.reference(&first).unwrap_or(first))
    }

    fn peek(&self) -> Option<u8> {
        self.bytes.get(self.at).copied()
    }

    fn object(&mut self, depth: usize) -> Option<Object> {
        self.left = self.left.checked_sub(1)?;
        self.skip_space();
        let first = self.peek()?;
        match first {
            b'/' => {
                self.at += 1;
                Some(Object::Name(self.name()))
            }
            b'(' => Some(Object::String(self.literal())),
            b'<' if self.bytes.get(self.at + 1) == Some(&b'<') => {
                self.at += 2;
                self.dictionary(depth)
            }
            b'<' => Some(Object::String(self.hexadecimal())),
            b'[' => {
                self.at += 1;
                self.array(depth)
            }
            b']' | b'{' | b'}' | b')' => {
                self.at += 1;
                Some(Object::Word(vec![first]))
            }
            b'>' => {
                self.at += if self.bytes.get(self.at + 1) == Some(&b'>') { 2 } else { 1 };
                Some(Object::Word(b">>".to_vec()))
            }
            _ => Some(self.word()),
        }
    }

    fn array(&mut self, depth: usize) -> Option<Object> {
        let mut array = Vec::new();
        loop {
            match self.item(depth)? {
                Object::Word(word) if word == b"]" => return Some(Object::Array(Rc::new(array))),
                Object::Word(word) if word == b"endobj" || word == b"stream" => return None,
                // `12 0 R` is read backwards: only its end says that the numbers belong together.
                Object::Word(word) if word == b"R" => {
                    array.pop();
                    let number = array.pop()?.index()?;
                    array.push(Object::Reference(u32::try_from(number).ok()?));
                }
                object => array.push(object),
            }
        }
    }

    fn dictionary(&mut self, depth: usize) -> Option<Object> {
        let mut dictionary = Dictionary::new();
        loop {
            let key = match self.item(depth)? {
                Object::Name(key) => key,
                Object::Word(word) if word == b">>" => return Some(Object::Dictionary(Rc::new(dictionary))),
                Object::Word(word) if word == b"endobj" || word == b"stream" => return None,
                _ => continue,
            };
            let value = self.item(depth)?;
            if value == Object::Word(b">>".to_vec()) {
                return Some(Object::Dictionary(Rc::new(dictionary)));
            }
            let value = self.reference(&value).unwrap_or(value);
            dictionary.insert(key, value);
        }
    }

    fn item(&mut self, depth: usize) -> Option<Object> {
        if depth < DEEPEST { self.object(depth + 1) } else { None }
    }

    /// The reference that `first` begins, if `0 R` follows.
    fn reference(&mut self, first: &Object) -> Option<Object> {
        let number = u32::try_from(first.index()?).ok()?;
        let start = self.at;
        let generation = {
            self.skip_space();
            self.word()
        };
        if generation.index().is_some() {
            self.skip_space();
            if self.word() == Object::Word(b"R".to_vec()) {
                return Some(Object::Reference(number));
            }
        }
        self.at = start;
        None
    }

    pub(super) fn skip_space(&mut self) {
        while let Some(byte) = self.peek() {
            if byte == b'%' {
                let rest = self.bytes.get(self.at..).unwrap_or_default();
                self.at += rest.iter().position(|byte| matches!(byte, b'\r' | b'\n')).unwrap_or(rest.len());
            } else if is_space(byte) {
                self.at += 1;
            } else {
                return;
            }
        }
    }

    fn name(&mut self) -> Vec<u8> {
        let raw = self.regular();
        let mut name = Vec::with_capacity(raw.len());
        let mut bytes = raw.iter();
        while let Some(byte) = bytes.next() {
            let escaped = (*byte == b'#')
                .then_some(bytes.as_slice())
                .and_then(|rest| Some(digit(*rest.first()?)? << 4 | digit(*rest.get(1)?)?));
            if escaped.is_some() {
                bytes.nth(1);
            }
            name.push(escaped.unwrap_or(*byte));
        }
        name
    }

    /// The bytes up to the next space or delimiter.
    fn regular(&mut self) -> &'a [u8] {
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| is_space(*byte) || is_delimiter(*byte)).unwrap_or(rest.len());
        self.at += end;
        rest.get(..end).unwrap_or_default()
    }

    fn word(&mut self) -> Object {
        let word = self.regular();
        if word.is_empty() {
            // A delimiter where none can be: stepped over, so that reading always goes on.
            self.at += 1;
            return Object::Null;
        }
        match word {
            b"true" => Object::Boolean(true),
            b"false" => Object::Boolean(false),
            b"null" => Object::Null,
            _ => number(word).map_or_else(|| Object::Word(word.to_vec()), Object::Number),
        }
    }

    fn literal(&mut self) -> Vec<u8> {
        self.at += 1;
        let (mut string, mut open) = (Vec::new(), 1);
        while let Some(byte) = self.peek() {
            self.at += 1;
            match byte {
                b'\\' => self.escape(&mut string),
                b'(' => open += 1,
                b')' => open -= 1,
                _ => {}
            }
            if open == 0 {
                break;
            }
            if byte != b'\\' {
                string.push(byte);
            }
        }
        string
    }

    fn escape(&mut self, string: &mut Vec<u8>) {
        let Some(byte) = self.peek() else { return };
        self.at += 1;
        let char = match byte {
            b'n' => b'\n',
            b'r' => b'\r',
            b't' => b'\t',
            b'b' => 8,
            b'f' => 12,
            b'\n' => return,
            b'\r' => {
                self.at += usize::from(self.peek() == Some(b'\n'));
                return;
            }
            b'0'..=b'7' => {
                let mut code = u32::from(byte - b'0');
                for _ in 0..2 {
                    let Some(next @ b'0'..=b'7') = self.peek() else { break };
                    code = code * 8 + u32::from(next - b'0');
                    self.at += 1;
                }
                code.to_le_bytes()[0]
            }
            other => other,
        };
        string.push(char);
    }

    fn hexadecimal(&mut self) -> Vec<u8> {
        self.at += 1;
        let rest = self.bytes.get(self.at..).unwrap_or_default();
        let end = rest.iter().position(|byte| *byte == b'>').unwrap_or(rest.len());
        self.at += (end + 1).min(rest.len());
        from_hexadecimal(rest.get(..end).unwrap_or_default())
    }
}

/// The bytes that hexadecimal digits stand for; what is no digit is passed over, and a last digit alone counts sixteenfold.
pub(super) fn from_hexadecimal(text: &[u8]) -> Vec<u8> {
    let digits = text.iter().filter_map(|byte| digit(*byte)).collect::<Vec<_>>();
    let byte =
        |pair: &[u8]| pair.iter().fold(0_u8, |byte, digit| byte << 4 | digit) << (4 * (2 - pair.len()));
    digits.chunks(2).map(byte).collect()
}

pub(super) fn is_space(byte: u8) -> bool {
    matches!(byte, b'\0' | b'\t' | b'\n' | b'\x0c' | b'\r' | b' ')
}

fn is_delimiter(byte: u8) -> bool {
    matches!(byte, b'(' | b')' | b'<' | b'>' | b'[' | b']' | b'{' | b'}' | b'/' | b'%')
}

fn digit(byte: u8) -> Option<u8> {
    char::from(byte).to_digit(16).and_then(|digit| u8::try_from(digit).ok())
}

fn number(word: &[u8]) -> Option<f64> {
    if !word.iter().all(|byte| matches!(byte, b'0'..=b'9' | b'+' | b'-' | b'.')) {
        return None;
    }
    let text = std::str::from_utf8(word).ok()?;
    // Some programs write `--5` and `5-`: the first is read as -5, the second as 5.
    let text = text.trim_end_matches('-');
    let digits = text.trim_start_matches(['-', '+']);
    let magnitude = if digits == "." || digits.is_empty() { 0.0 } else { digits.parse::<f64>().ok()? };
    Some(if text.starts_with('-') { -magnitude } else { magnitude })
}
