//! One look at every byte of a frame before anything is read from it.
//!
//! In: a body or a line. Out: whether it is JSON, not too deep and free of repeated member names, and where the members
//! are that [`crate::frame`] and [`crate::params`] read. Names are compared decoded, so `"a"` and `"\u0061"` are the
//! same member: two parsers that pick different ones of two equal names are how a check is passed with one value and a
//! call made with another. Every string must be Unicode (no lone surrogates), so that whoever decodes a name later
//! cannot fail.
//!
//! There is no recursion: depth is a counter, never the stack of the thread.

use std::{borrow::Cow, collections::HashSet};

use crate::{
    outline::{Field, Outline, Place},
    stack::Stack,
};

/// How deep arrays and objects may nest. A frame that is exactly this deep passes.
pub const MAX_DEPTH: usize = 128;

/// Objects up to this size compare names one by one; bigger ones hash them, so that no object costs quadratic time.
const FEW_NAMES: usize = 16;

/// So many levels and names are kept without allocating: more than a usual call has open at once.
const USUAL_DEPTH: usize = 6;
const USUAL_NAMES: usize = 16;

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

/// Looks over `body`; the same as text.
pub fn scan(body: &[u8]) -> Result<&str, Problem> {
    outline(body, Place::Frame, &mut Outline::default())?;
    std::str::from_utf8(body).map_err(|_| Problem::NotJson)
}

/// As [`scan`], for text that sits at `place`; and takes note of the members that somebody reads.
pub(crate) fn outline(body: &[u8], place: Place, outline: &mut Outline) -> Result<(), Problem> {
    // Most frames are ASCII, which is seen faster.
    if !is_ascii(body) && std::str::from_utf8(body).is_err() {
        return Err(Problem::NotJson);
    }
    let root = Level { place, ..Level::ROOT };
    let mut scanner = Scanner {
        text: Cursor { body, at: 0 },
        level: root,
        outer: Stack::new(Level::ROOT),
        names: Names::new(body),
        duplicate: None,
        outline,
    };
    scanner.run()?;
    scanner.duplicate.map_or(Ok(()), Err)
}

/// What holds the values that are read.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing: the text is one value.
    Root,
    Array,
    Object,
}

/// An array or object that is still open, and the value in it that is read.
#[derive(Clone, Copy)]
struct Level {
    kind: Kind,
    place: Place,
    /// What the last name of this object stands for.
    field: Field,
    /// Whether the value is a string with something escaped.
    escaped: bool,
    /// How many names of this object are the last in [`Names::few`].
    few: u8,
    /// Whether this object's names are in [`Names::many`] instead.
    many: bool,
    /// Where the value begins.
    value: usize,
    /// One bit for each [`fingerprint`] among this object's names, so that most new names need no comparison.
    fingerprints: u64,
}

impl Level {
    const ROOT: Self = Self {
        kind: Kind::Root,
        place: Place::Other,
        field: Field::Other,
        escaped: false,
        few: 0,
        many: false,
        value: 0,
        fingerprints: 0,
    };

    /// Where the value that is read sits.
    fn inner(&self) -> Place {
        match self.kind {
            Kind::Root => self.place,
            Kind::Array => self.place.element(),
            Kind::Object => self.place.member(self.field),
        }
    }
}

struct Scanner<'a, 'o> {
    text: Cursor<'a>,
    level: Level,
    /// The levels around that one, from the root on.
    outer: Stack<Level, USUAL_DEPTH>,
    names: Names<'a>,
    /// The first repeated name. It is reported only at the end, when the text is known to be JSON.
    duplicate: Option<Problem>,
    outline: &'o mut Outline,
}

/// What follows a value.
enum Rest {
    /// Another one, after a comma.
    Value,
    /// The end of its array or object.
    End,
    /// Nothing more.
    Nothing,
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

impl Scanner<'_, '_> {
    fn run(&mut self) -> Result<(), Lost> {
        loop {
            if self.level.kind == Kind::Object {
                self.name().ok_or(Lost::NotJson)?;
            }
            if self.value()? {
                continue;
            }
            loop {
                match self.rest().ok_or(Lost::NotJson)? {
                    Rest::Value => break,
                    Rest::End => self.close().ok_or(Lost::NotJson)?,
                    Rest::Nothing => return Ok(()),
                }
            }
        }
    }

    /// Takes a scalar or an empty container whole; of any other container only the start, and says that it did.
    fn value(&mut self) -> Result<bool, Lost> {
        // A copy, which stays in registers.
        let mut text = self.text;
        let first = text.token().ok_or(Lost::NotJson)?;
        self.level.value = text.at - 1;
        let taken = match first {
            b'"' => text.string().map(|escaped| self.level.escaped = escaped),
            b'{' | b'[' => return self.open(text, first),
            b't' => text.expect(b"rue"),
            b'f' => text.expect(b"alse"),
            b'n' => text.expect(b"ull"),
            b'-' | b'0'..=b'9' => text.number(first),
            _ => None,
        };
        self.text.at = text.at;
        taken.map(|()| false).ok_or(Lost::NotJson)
    }

    fn open(&mut self, mut text: Cursor<'_>, first: u8) -> Result<bool, Lost> {
        if self.outer.len() == MAX_DEPTH {
            return Err(Lost::TooDeep);
        }
        let (kind, end) = if first == b'{' { (Kind::Object, b'}') } else { (Kind::Array, b']') };
        let empty = text.peek() == Some(end);
        self.text.at = text.at + usize::from(empty);
        if !empty {
            let place = self.level.inner();
            self.outer.push(self.level);
            self.level = Level { kind, place, ..Level::ROOT };
        }
        Ok(!empty)
    }

    /// Takes note of the value that ends here, and takes what follows it. Says whether that is another value.
    fn rest(&mut self) -> Option<Rest> {
        let mut text = self.text;
        let level = &self.level;
        if level.field != Field::Other {
            self.outline.note(level.field, level.value..text.at, level.escaped, text.body);
        }
        let end = match level.kind {
            Kind::Root => return text.peek().is_none().then_some(Rest::Nothing),
            Kind::Array => b']',
            Kind::Object => b'}',
        };
        let next = text.token()?;
        self.text.at = text.at;
        if next == b',' {
            return Some(Rest::Value);
        }
        (next == end).then_some(Rest::End)
    }

    /// Leaves an array or object, which is itself a value of the level around it. Apart from the rest, which it would
    /// keep from using registers.
    #[inline(never)]
    fn close(&mut self) -> Option<()> {
        self.names.leave(&self.level);
        self.level = *self.outer.pop()?;
        Some(())
    }

    /// Takes `"name" :`.
    fn name(&mut self) -> Option<()> {
        let mut text = self.text;
        text.require(b'"')?;
        let start = text.at;
        let escaped = text.string()?;
        let mut name = Name { start, end: text.at - 1 };
        text.require(b':')?;
        self.text.at = text.at;
        let decoded;
        let spelled = if escaped {
            (name, decoded) = self.names.decode(name)?;
            decoded.as_bytes()
        } else {
            text.body.get(start..name.end)?
        };
        self.remember(name, spelled);
        Some(())
    }

    /// Takes note of a name whose value comes next.
    fn remember(&mut self, name: Name, text: &[u8]) {
        let level = &mut self.level;
        level.field = level.place.field(text);
        level.escaped = false;
        let bit = 1 << fingerprint(text);
        let may_repeat = level.fingerprints & bit != 0;
        level.fingerprints |= bit;
        if usize::from(level.few) == FEW_NAMES {
            self.names.make_many(level);
        }
        let repeated = if level.many {
            self.names.insert(name)
        } else {
            let repeated = may_repeat && self.names.has(level.few, text);
            self.names.few.push(name);
            level.few += 1;
            repeated
        };
        if repeated && self.duplicate.is_none() {
            self.duplicate = Some(duplicate(text, level.place.is_inside()));
        }
    }
}

/// A decoded name: where it is in the body, or behind it if it was escaped, counting on into [`Names::decoded`].
#[derive(Clone, Copy)]
struct Name {
    start: usize,
    end: usize,
}

/// The names of all open objects.
struct Names<'a> {
    body: &'a [u8],
    /// Those of objects that have few, innermost last.
    few: Stack<Name, USUAL_NAMES>,
    /// Those of each object that has more, innermost last.
    many: Vec<HashSet<Cow<'a, [u8]>>>,
    /// The decoded text of all names that were escaped.
    decoded: Vec<u8>,
}

impl<'a> Names<'a> {
    fn new(body: &'a [u8]) -> Self {
        let few = Stack::new(Name { start: 0, end: 0 });
        Self { body, few, many: Vec::new(), decoded: Vec::new() }
    }

    fn text(&self, name: Name) -> &[u8] {
        let (from, offset) =
            if name.start < self.body.len() { (self.body, 0) } else { (&*self.decoded, self.body.len()) };
        from.get(name.start - offset..name.end - offset).unwrap_or_default()
    }

    /// Whether one of the last `count` names is this one.
    #[cold]
    fn has(&self, count: u8, text: &[u8]) -> bool {
        self.few.last(count.into()).any(|other| self.text(*other) == text)
    }

    /// The name that is written at `name`, decoded.
    #[cold]
    fn decode(&mut self, name: Name) -> Option<(Name, String)> {
        let text: String = serde_json::from_slice(self.body.get(name.start - 1..=name.end)?).ok()?;
        let start = self.body.len() + self.decoded.len();
        self.decoded.extend_from_slice(text.as_bytes());
        Some((Name { start, end: start + text.len() }, text))
    }

    /// Moves the names of an object that gets too many to compare them one by one.
    #[cold]
    fn make_many(&mut self, level: &mut Level) {
        let names = self.few.last(level.few.into()).map(|name| self.kept(*name)).collect();
        self.many.push(names);
        self.few.drop_last(level.few.into());
        (level.few, level.many) = (0, true);
    }

    /// Adds one of many names, and says whether it was there.
    #[cold]
    fn insert(&mut self, name: Name) -> bool {
        let name = self.kept(name);
        self.many.last_mut().is_some_and(|names| !names.insert(name))
    }

    fn kept(&self, name: Name) -> Cow<'a, [u8]> {
        match self.body.get(name.start..name.end) {
            Some(text) => Cow::Borrowed(text),
            None => Cow::Owned(self.text(name).to_vec()),
        }
    }

    /// Forgets the names of an object that ends.
    fn leave(&mut self, level: &Level) {
        if level.many {
            self.many.pop();
        }
        self.few.drop_last(level.few.into());
    }
}

/// How far the scan has come. Its methods answer with nothing where the text is not JSON; the rare ones take it by value,
/// as what is lent to a function cannot stay in registers.
#[derive(Clone, Copy)]
struct Cursor<'a> {
    body: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    /// Takes the next byte that is not blank.
    fn token(&mut self) -> Option<u8> {
        let byte = self.peek()?;
        self.at += 1;
        Some(byte)
    }

    /// Skips blanks, and shows the byte behind them.
    fn peek(&mut self) -> Option<u8> {
        loop {
            let byte = *self.body.get(self.at)?;
            // One comparison for nearly all.
            if byte > b' ' || !matches!(byte, b' ' | b'\n' | b'\r' | b'\t') {
                return Some(byte);
            }
            self.at += 1;
        }
    }

    fn require(&mut self, byte: u8) -> Option<()> {
        (self.token()? == byte).then_some(())
    }

    /// Takes the rest of a string whose opening quote is gone, and says whether anything in it is escaped.
    #[inline]
    fn string(&mut self) -> Option<bool> {
        self.at = plain_end(self.body, self.at);
        match self.next()? {
            b'"' => Some(false),
            b'\\' => {
                self.at = self.escaped_end()?;
                Some(true)
            }
            _ => None,
        }
    }

    /// Where a string ends whose first backslash was just taken.
    #[cold]
    fn escaped_end(mut self) -> Option<usize> {
        loop {
            self.escape()?;
            self.at = plain_end(self.body, self.at);
            match self.next()? {
                b'"' => return Some(self.at),
                b'\\' => {}
                _ => return None,
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        match self.next()? {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => match self.hex()? {
                0xD800..=0xDBFF => {
                    self.expect(b"\\u")?;
                    matches!(self.hex()?, 0xDC00..=0xDFFF).then_some(())
                }
                0xDC00..=0xDFFF => None,
                _ => Some(()),
            },
            _ => None,
        }
    }

    fn hex(&mut self) -> Option<u32> {
        let mut unit = 0;
        for _ in 0..4 {
            unit = unit << 4 | char::from(self.next()?).to_digit(16)?;
        }
        Some(unit)
    }

    fn number(&mut self, first: u8) -> Option<()> {
        let leading = if first == b'-' { self.next()? } else { first };
        match leading {
            b'0' => {}
            b'1'..=b'9' => self.at += digits(self.rest()),
            _ => return None,
        }
        if matches!(self.body.get(self.at), Some(b'.' | b'e' | b'E')) {
            self.at = self.fraction_end()?;
        }
        Some(())
    }

    /// Where a number ends whose integer part was just taken.
    #[cold]
    fn fraction_end(mut self) -> Option<usize> {
        if self.take(b'.') {
            self.some_digits()?;
        }
        if self.take(b'e') || self.take(b'E') {
            let _signed = self.take(b'+') || self.take(b'-');
            self.some_digits()?;
        }
        Some(self.at)
    }

    fn some_digits(&mut self) -> Option<()> {
        let count = digits(self.rest());
        self.at += count;
        (count > 0).then_some(())
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

    fn expect(&mut self, text: &[u8]) -> Option<()> {
        let found = self.rest().starts_with(text);
        self.at += text.len();
        found.then_some(())
    }

    fn rest(&self) -> &[u8] {
        self.body.get(self.at..).unwrap_or_default()
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
    plain_end(bytes, 0)
}

/// Where the first byte from `at` on is that is no ordinary character of a string.
#[inline]
fn plain_end(bytes: &[u8], at: usize) -> usize {
    let mut rest = bytes.get(at..).unwrap_or_default();
    while let Some((word, after)) = rest.split_first_chunk() {
        let special = special_bytes(u64::from_le_bytes(*word));
        if special != 0 {
            return bytes.len() - rest.len() + special.trailing_zeros() as usize / 8;
        }
        rest = after;
    }
    bytes.len() - rest.len() + plain_tail(rest)
}

/// As [`plain_length`], byte by byte: for the few at the end that make no word.
#[cold]
fn plain_tail(bytes: &[u8]) -> usize {
    let special = |byte: &u8| matches!(byte, b'"' | b'\\' | ..b' ');
    bytes.iter().position(special).unwrap_or(bytes.len())
}

const ONES: u64 = 0x0101_0101_0101_0101;
const TOPS: u64 = 0x8080_8080_8080_8080;

/// Sets the top bit of the first byte that needs attention, and of no byte before it; zero if there is none. A borrow
/// may run into the bytes behind, which is why only the first counts.
fn special_bytes(word: u64) -> u64 {
    // What has its top bit set by itself is no ASCII, and needs none.
    doubtful_tops(word) & !word & TOPS
}

/// As [`special_bytes`], but of what is no ASCII too, and with other bits that mean nothing.
fn doubtful_tops(word: u64) -> u64 {
    let flip = |bits: u8| word ^ (ONES * u64::from(bits));
    let below = |word: u64, limit: u8| word.wrapping_sub(ONES * u64::from(limit));
    // With this bit flipped a quote comes right behind the controls, and nothing else goes there.
    let quote_or_control = below(flip(0x02), b'"' - 1);
    let backslash = below(flip(b'\\'), 1);
    quote_or_control | backslash
}

/// Whether all of `bytes` are ordinary characters of a string, as a first look shows it: of what is no ASCII it may deny
/// that. For short texts: it looks at all of them at any rate.
#[inline]
pub(crate) fn seems_plain(bytes: &[u8]) -> bool {
    has_no_top(bytes, doubtful_tops).unwrap_or_else(|| plain_tail(bytes) == bytes.len())
}

/// As the one of the standard library, but fast also for what is left when that has taken 64 bytes at a time.
fn is_ascii(bytes: &[u8]) -> bool {
    has_no_top(bytes, |word| word).unwrap_or_else(|| bytes.is_ascii())
}

/// Whether `look` sets no byte's top bit in any word of `bytes`, the last of which may overlap the one before. Nothing
/// when they are too short for one.
#[inline]
fn has_no_top(bytes: &[u8], look: impl Fn(u64) -> u64) -> Option<bool> {
    let last = look(u64::from_le_bytes(*bytes.last_chunk()?));
    let (words, _) = bytes.as_chunks();
    let found = words.iter().fold(last, |found, word| found | look(u64::from_le_bytes(*word)));
    Some(found & TOPS == 0)
}

fn digits(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(bytes.len())
}

#[cfg(test)]
mod tests;
