//! One look at every byte of a frame before anything is read from it.
//!
//! In: a body or a line. Out: whether it is JSON, not too deep and free of repeated member names, and where the members
//! are that [`crate::frame`] reads. Names are compared decoded, so `"a"` and `"\u0061"` are the same member: two
//! parsers that pick different ones of two equal names are how a check is passed with one value and a call made with
//! another. Every string must be Unicode (no lone surrogates), so that whoever decodes a name later cannot fail.
//!
//! There is no recursion: depth is a counter, never the stack of the thread.

use std::{borrow::Cow, collections::HashSet, ops::Range};

/// How deep arrays and objects may nest. A frame that is exactly this deep passes.
pub const MAX_DEPTH: usize = 128;

/// Objects up to this size compare names one by one; bigger ones hash them, so that no object costs quadratic time.
const FEW_NAMES: usize = 16;

/// A name in an error message is cut after this many characters.
const SHOWN_NAME: usize = 64;

/// Why a frame is refused. Text that is not JSON is [`Problem::NotJson`] whatever else is wrong with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Problem {
    /// Not one JSON text in UTF-8.
    NotJson,
    /// Deeper than [`MAX_DEPTH`]; the rest was not looked at.
    TooDeep,
    /// An object outside `params.arguments` has this member twice.
    Duplicate {
        /// The decoded name, shortened.
        name: String,
    },
    /// An object in `params.arguments` has this member twice.
    DuplicateArgument {
        /// The decoded name, shortened.
        name: String,
    },
}

/// Looks over `body` once; the same as text.
pub fn scan(body: &[u8]) -> Result<&str, Problem> {
    outline(body, Place::Frame, |_, _, _| {})
}

/// As [`scan`], for text that sits at `place`; and tells `note` the members of each [`Place::is_noted`] object: where that
/// sits, their decoded names, and where their values begin and end. A member is told when its value is over, so those
/// inside it come first.
pub(crate) fn outline(
    body: &[u8],
    place: Place,
    note: impl FnMut(Place, &[u8], Range<usize>),
) -> Result<&str, Problem> {
    let text = std::str::from_utf8(body).map_err(|_| Problem::NotJson)?;
    let mut scanner = Scanner {
        body,
        at: 0,
        levels: Vec::with_capacity(8),
        names: Vec::with_capacity(16),
        decoded: Vec::new(),
        duplicate: None,
        note,
    };
    scanner.run(place)?;
    scanner.duplicate.map_or(Ok(text), Err)
}

/// Where a value sits, as far as it matters here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// The frame itself.
    Frame,
    /// An element of the frame's array.
    Element,
    /// A message's `params`.
    Params,
    /// `params._meta`
    Meta,
    /// `params.arguments` itself.
    Arguments,
    /// Somewhere inside the arguments.
    Inside,
    /// Anywhere else.
    Other,
}

impl Place {
    /// The place of the value under `name` in an object at this place.
    fn member(self, name: &[u8]) -> Self {
        match (self, name) {
            (Self::Frame | Self::Element, b"params") => Self::Params,
            (Self::Params, b"arguments") => Self::Arguments,
            (Self::Params, b"_meta") => Self::Meta,
            (Self::Arguments | Self::Inside, _) => Self::Inside,
            _ => Self::Other,
        }
    }

    /// The place of a value in an array at this place.
    fn element(self) -> Self {
        match self {
            Self::Frame => Self::Element,
            Self::Arguments | Self::Inside => Self::Inside,
            Self::Element | Self::Params | Self::Meta | Self::Other => Self::Other,
        }
    }

    /// Whether somebody wants to know the members of an object here.
    fn is_noted(self) -> bool {
        matches!(self, Self::Frame | Self::Params | Self::Meta | Self::Arguments)
    }
}

/// An array or object that is still open.
struct Level<'a> {
    place: Place,
    object: bool,
    /// Where this object's names begin in [`Scanner::names`].
    first_name: usize,
    /// One bit for each [`fingerprint`] among this object's names, so that most new names need no comparison.
    fingerprints: u64,
    /// Where the value of the last name begins.
    value: usize,
    /// All names of this object, once there are more than a few.
    many: Option<HashSet<Cow<'a, [u8]>>>,
}

/// A decoded name: where it is in the body, or in [`Scanner::decoded`] if it was escaped.
#[derive(Clone, Copy)]
struct Name {
    start: usize,
    end: usize,
    escaped: bool,
}

struct Scanner<'a, N> {
    body: &'a [u8],
    /// How far the scan has come.
    at: usize,
    levels: Vec<Level<'a>>,
    /// The names of all open objects, innermost last.
    names: Vec<Name>,
    /// The decoded text of all names that were escaped.
    decoded: Vec<u8>,
    /// The first repeated name. It is reported only at the end, when the text is known to be JSON.
    duplicate: Option<Problem>,
    note: N,
}

/// Why a scan ends early. Small, because every step of the scan answers with it.
#[derive(Clone, Copy)]
enum Lost {
    NotJson,
    TooDeep,
}

impl From<Lost> for Problem {
    fn from(lost: Lost) -> Self {
        match lost {
            Lost::NotJson => Self::NotJson,
            Lost::TooDeep => Self::TooDeep,
        }
    }
}

impl<N: FnMut(Place, &[u8], Range<usize>)> Scanner<'_, N> {
    fn run(&mut self, mut place: Place) -> Result<(), Lost> {
        loop {
            if let Some(inner) = self.value(place)? {
                place = inner;
                continue;
            }
            match self.after_value()? {
                Some(next) => place = next,
                None => return Ok(()),
            }
        }
    }

    /// Takes a scalar or an empty container whole; of any other container only the start, and says where its first
    /// value sits.
    fn value(&mut self, place: Place) -> Result<Option<Place>, Lost> {
        self.skip_blanks();
        match self.next() {
            Some(b'{') => self.open(place, true),
            Some(b'[') => self.open(place, false),
            Some(b'"') => self.string().map(|_| None),
            Some(b't') => self.expect(b"rue").map(|()| None),
            Some(b'f') => self.expect(b"alse").map(|()| None),
            Some(b'n') => self.expect(b"ull").map(|()| None),
            Some(first @ (b'-' | b'0'..=b'9')) => self.number(first).map(|()| None),
            _ => Err(Lost::NotJson),
        }
    }

    fn open(&mut self, place: Place, object: bool) -> Result<Option<Place>, Lost> {
        if self.levels.len() == MAX_DEPTH {
            return Err(Lost::TooDeep);
        }
        self.skip_blanks();
        if self.take(if object { b'}' } else { b']' }) {
            return Ok(None);
        }
        let first_name = self.names.len();
        self.levels.push(Level { place, object, first_name, fingerprints: 0, value: 0, many: None });
        if object { self.name().map(Some) } else { Ok(Some(place.element())) }
    }

    /// Closes what ends here. Returns the place of the next value, or nothing when the text is over.
    fn after_value(&mut self) -> Result<Option<Place>, Lost> {
        loop {
            let Some(level) = self.levels.last() else {
                self.skip_blanks();
                return if self.at == self.body.len() { Ok(None) } else { Err(Lost::NotJson) };
            };
            let (place, object) = (level.place, level.object);
            if object && place.is_noted() {
                let value = level.value..self.at;
                let name = self.names.last().map(|name| name.text(self.body, &self.decoded));
                (self.note)(place, name.unwrap_or_default(), value);
            }
            self.skip_blanks();
            match self.next() {
                Some(b',') if object => return self.name().map(Some),
                Some(b',') => return Ok(Some(place.element())),
                Some(b'}') if object => {}
                Some(b']') if !object => {}
                _ => return Err(Lost::NotJson),
            }
            if let Some(closed) = self.levels.pop() {
                self.names.truncate(closed.first_name);
            }
        }
    }

    /// Takes `"name" :` and says where the value under it sits.
    fn name(&mut self) -> Result<Place, Lost> {
        self.skip_blanks();
        self.require(b'"')?;
        let start = self.at;
        let escaped = self.string()?;
        let mut name = Name { start, end: self.at - 1, escaped };
        if escaped {
            let quoted = self.body.get(start - 1..=name.end);
            let text: Option<String> = quoted.and_then(|quoted| serde_json::from_slice(quoted).ok());
            name.start = self.decoded.len();
            self.decoded.extend_from_slice(text.ok_or(Lost::NotJson)?.as_bytes());
            name.end = self.decoded.len();
        }
        self.skip_blanks();
        self.require(b':')?;
        self.skip_blanks();
        Ok(self.remember(name))
    }

    /// Takes note of a name whose value begins here.
    fn remember(&mut self, name: Name) -> Place {
        let Some(level) = self.levels.last_mut() else { return Place::Other };
        let text = name.text(self.body, &self.decoded);
        let place = level.place.member(text);
        level.value = self.at;
        let others = self.names.get(level.first_name..).unwrap_or_default();
        let kept = |name: &Name| {
            if name.escaped {
                Cow::Owned(name.text(&[], &self.decoded).to_vec())
            } else {
                Cow::Borrowed(name.text(self.body, &[]))
            }
        };
        if level.many.is_none() && others.len() == FEW_NAMES {
            level.many = Some(others.iter().map(kept).collect());
        }
        let bit = 1_u64 << fingerprint(text);
        let known = level.fingerprints & bit != 0;
        level.fingerprints |= bit;
        let repeated = match &mut level.many {
            Some(names) => !names.insert(kept(&name)),
            None => known && others.iter().any(|other| other.text(self.body, &self.decoded) == text),
        };
        if repeated {
            let inside = matches!(level.place, Place::Arguments | Place::Inside);
            self.duplicate.get_or_insert_with(|| duplicate(text, inside));
        }
        // Many names are kept in their set; here is only the one whose value comes next.
        if level.many.is_some() {
            self.names.truncate(level.first_name);
        }
        self.names.push(name);
        place
    }

    /// Takes the rest of a string whose opening quote is gone, and says whether anything in it is escaped.
    fn string(&mut self) -> Result<bool, Lost> {
        let mut escaped = false;
        loop {
            self.at += plain_length(self.rest());
            match self.next() {
                Some(b'"') => return Ok(escaped),
                Some(b'\\') => {
                    escaped = true;
                    self.escape()?;
                }
                _ => return Err(Lost::NotJson),
            }
        }
    }

    fn escape(&mut self) -> Result<(), Lost> {
        match self.next() {
            Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => Ok(()),
            Some(b'u') => match self.hex()? {
                0xD800..=0xDBFF => {
                    self.expect(b"\\u")?;
                    if matches!(self.hex()?, 0xDC00..=0xDFFF) { Ok(()) } else { Err(Lost::NotJson) }
                }
                0xDC00..=0xDFFF => Err(Lost::NotJson),
                _ => Ok(()),
            },
            _ => Err(Lost::NotJson),
        }
    }

    fn hex(&mut self) -> Result<u32, Lost> {
        let mut unit = 0;
        for _ in 0..4 {
            let digit = self.next().and_then(|byte| char::from(byte).to_digit(16)).ok_or(Lost::NotJson)?;
            unit = unit << 4 | digit;
        }
        Ok(unit)
    }

    fn number(&mut self, first: u8) -> Result<(), Lost> {
        let leading = if first == b'-' { self.next() } else { Some(first) };
        match leading {
            Some(b'0') => {}
            Some(b'1'..=b'9') => self.at += digits(self.rest()),
            _ => return Err(Lost::NotJson),
        }
        if self.take(b'.') {
            self.some_digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            self.some_digits()?;
        }
        Ok(())
    }

    fn some_digits(&mut self) -> Result<(), Lost> {
        let count = digits(self.rest());
        self.at += count;
        if count == 0 { Err(Lost::NotJson) } else { Ok(()) }
    }

    fn skip_blanks(&mut self) {
        while let Some(b' ' | b'\n' | b'\r' | b'\t') = self.body.get(self.at) {
            self.at += 1;
        }
    }

    fn next(&mut self) -> Option<u8> {
        let next = *self.body.get(self.at)?;
        self.at += 1;
        Some(next)
    }

    fn take(&mut self, byte: u8) -> bool {
        let found = self.body.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    fn require(&mut self, byte: u8) -> Result<(), Lost> {
        if self.take(byte) { Ok(()) } else { Err(Lost::NotJson) }
    }

    fn expect(&mut self, text: &[u8]) -> Result<(), Lost> {
        let found = self.rest().starts_with(text);
        self.at += text.len();
        if found { Ok(()) } else { Err(Lost::NotJson) }
    }

    fn rest(&self) -> &[u8] {
        self.body.get(self.at..).unwrap_or_default()
    }
}

impl Name {
    fn text<'b>(self, body: &'b [u8], decoded: &'b [u8]) -> &'b [u8] {
        let from = if self.escaped { decoded } else { body };
        from.get(self.start..self.end).unwrap_or_default()
    }
}

/// A number below 64 that equal names share and different ones often do not.
fn fingerprint(name: &[u8]) -> usize {
    let end = |byte: Option<&u8>| byte.copied().map_or(0, usize::from);
    (end(name.first()) * 7 + end(name.last()) * 13 + name.len()) % 64
}

fn duplicate(name: &[u8], inside_arguments: bool) -> Problem {
    let name = String::from_utf8_lossy(name).chars().take(SHOWN_NAME).collect();
    if inside_arguments { Problem::DuplicateArgument { name } } else { Problem::Duplicate { name } }
}

/// How many bytes at the start of `bytes` are ordinary characters of a string: neither quote, backslash nor control.
pub(crate) fn plain_length(bytes: &[u8]) -> usize {
    const WORD: usize = 8;
    let (words, tail) = bytes.as_chunks::<WORD>();
    for (index, word) in words.iter().enumerate() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return index * WORD + special.trailing_zeros() as usize / WORD;
        }
    }
    let plain =
        tail.iter().position(|&byte| byte == b'"' || byte == b'\\' || byte < b' ').unwrap_or(tail.len());
    words.len() * WORD + plain
}

/// Sets the top bit of the first byte that needs attention, and of no byte before it; zero if there is none. A borrow
/// may run into the bytes behind, which is why only the first counts.
fn special_bytes(word: u64) -> u64 {
    const ONES: u64 = 0x0101_0101_0101_0101;
    const TOPS: u64 = 0x8080_8080_8080_8080;
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit)) & !word;
    let equal = |byte: u8| below(word ^ (ONES * u64::from(byte)), 1);
    (below(word, b' ') | equal(b'"') | equal(b'\\')) & TOPS
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests;
