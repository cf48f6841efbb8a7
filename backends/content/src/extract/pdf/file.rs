//! Where the objects of a file are, and what they are.
//!
//! The file is scanned once for `12 0 obj`; the last object of a number counts, as an updated file has it. Objects in
//! object streams are found where their stream stands.

use std::{collections::HashMap, rc::Rc};

use super::{
    super::{ExtractError, Limits, inflate::Budget},
    damaged, filter,
    object::{Dictionary, Lexer, Object, is_space},
};

/// How many objects may be made of one file, arrays' items included: bounds time and memory.
const MOST_OBJECTS: usize = 20_000_000;
/// How many operators and operands all pages may have together.
const MOST_DRAWN: usize = 40_000_000;
/// How many bytes may be read for one object of the budget: a string is one object, however long.
const BYTES_OF_OBJECT: usize = 16;
/// How many objects may be made at once.
const MOST_AT_ONCE: usize = 300_000;
/// A stream is packed in two ways at the most; some more are for the curious.
const MOST_FILTERS: usize = 4;
/// A reference to a reference to a reference.
const LONGEST_CHAIN: usize = 8;

#[derive(Debug)]
pub(super) struct File<'a> {
    bytes: &'a [u8],
    places: HashMap<u32, Place>,
    /// The object streams that were unpacked, by their number.
    packs: HashMap<u32, Vec<u8>>,
    budget: Budget,
    left: usize,
    pub(super) root: Option<Object>,
    /// How many operators and operands its pages may still have.
    pub(super) drawing_left: usize,
    limits: &'a Limits,
    /// How many bytes of text were shown so far.
    shown: usize,
}

#[derive(Debug, Clone, Copy)]
enum Place {
    /// Here in the file.
    Here(usize),
    /// Here in an unpacked stream.
    Packed(u32, usize),
}

/// A stream: its dictionary, and where its bytes are.
#[derive(Debug)]
struct Stream {
    dictionary: Rc<Dictionary>,
    from: usize,
    to: usize,
}

/// The dictionary of a stream and its unpacked bytes.
pub(super) type Unpacked = (Rc<Dictionary>, Vec<u8>);

impl<'a> File<'a> {
    pub(super) fn open(bytes: &'a [u8], limits: &'a Limits) -> Result<File<'a>, ExtractError> {
        let mut file = File {
            bytes,
            places: HashMap::new(),
            packs: HashMap::new(),
            budget: Budget::new(limits.unpacked),
            left: MOST_OBJECTS,
            root: None,
            drawing_left: MOST_DRAWN,
            limits,
            shown: 0,
        };
        file.scan()?;
        file.read_trailers()?;
        if file.places.is_empty() {
            return Err(damaged("it holds no objects"));
        }
        Ok(file)
    }

    /// Whether the file was so large inside that the rest of it was not read.
    pub(super) fn is_exhausted(&self) -> bool {
        self.left == 0
    }

    /// Counts text that a page shows.
    pub(super) fn count_shown(&mut self, bytes: usize) -> Result<(), ExtractError> {
        self.shown = self.shown.saturating_add(bytes);
        let limit = self.limits.text;
        if self.shown > limit { Err(ExtractError::TooLong { limit }) } else { Ok(()) }
    }

    /// Fails once nobody waits for the text any more.
    pub(super) fn go_on(&self) -> Result<(), ExtractError> {
        self.limits.patience.go_on()
    }

    /// What an object is, references followed.
    pub(super) fn resolve(&mut self, object: &Object) -> Object {
        let mut object = object.clone();
        for _ in 0..LONGEST_CHAIN {
            let Object::Reference(number) = object else { return object };
            object = self.object(number).unwrap_or(Object::Null);
        }
        Object::Null
    }

    /// What stands under `name` in a dictionary, references followed.
    pub(super) fn get(&mut self, dictionary: &Dictionary, name: &[u8]) -> Object {
        dictionary.get(name).map_or(Object::Null, |object| self.resolve(object))
    }

    /// The dictionary that stands under `name`.
    pub(super) fn get_dictionary(&mut self, dictionary: &Dictionary, name: &[u8]) -> Option<Rc<Dictionary>> {
        if let Object::Dictionary(found) = self.get(dictionary, name) { Some(found) } else { None }
    }

    /// The dictionary and the unpacked bytes of a stream.
    pub(super) fn stream(&mut self, object: &Object) -> Result<Option<Unpacked>, ExtractError> {
        let Object::Reference(number) = object else { return Ok(None) };
        let Some(Place::Here(at)) = self.places.get(number).copied() else { return Ok(None) };
        let Some(stream) = self.stream_at(at) else { return Ok(None) };
        let bytes = self.unpack(&stream)?;
        Ok(bytes.map(|bytes| (stream.dictionary, bytes)))
    }

    /// The numbers of all objects, in order.
    pub(super) fn numbers(&self) -> Vec<u32> {
        let mut numbers = self.places.keys().copied().collect::<Vec<_>>();
        numbers.sort_unstable();
        numbers
    }

    fn object(&mut self, number: u32) -> Option<Object> {
        match *self.places.get(&number)? {
            Place::Here(at) => self.parse(at),
            Place::Packed(pack, at) => {
                let (object, _, cost) = read(self.packs.get(&pack)?, at, self.left);
                self.left = self.left.saturating_sub(cost);
                object
            }
        }
    }

    fn parse(&mut self, at: usize) -> Option<Object> {
        self.parse_up_to(at).map(|(object, _)| object)
    }

    /// The object at a place of the file, and where it ends.
    fn parse_up_to(&mut self, at: usize) -> Option<(Object, usize)> {
        let (object, end, cost) = read(self.bytes, at, self.left);
        self.left = self.left.saturating_sub(cost);
        object.map(|object| (object, end))
    }

    fn scan(&mut self) -> Result<(), ExtractError> {
        let (mut ends, mut streams) = (Finder::new(b"endobj"), Finder::new(b"stream"));
        let mut at = 0;
        while let Some(found) = find(self.bytes, b"obj", at) {
            self.go_on()?;
            at = found + 3;
            let Some(number) = number_before(self.bytes, found) else { continue };
            self.places.insert(number, Place::Here(at));
            let end = ends.from(self.bytes, at);
            if streams.from(self.bytes, at) > end {
                at = end;
            } else if let Some(stream) = self.stream_at(at) {
                // What a stream holds is not looked at: it may contain anything.
                at = stream.to;
                self.note_stream(number, &stream)?;
            }
        }
        Ok(())
    }

    /// Takes in what a stream says about the file: the objects in it, the root, a password.
    fn note_stream(&mut self, number: u32, stream: &Stream) -> Result<(), ExtractError> {
        match stream.dictionary.get(b"Type".as_slice()).and_then(Object::name) {
            Some(b"ObjStm") => self.open_pack(number, stream),
            Some(b"XRef") => self.note_trailer(&stream.dictionary),
            _ => Ok(()),
        }
    }

    fn open_pack(&mut self, number: u32, stream: &Stream) -> Result<(), ExtractError> {
        let Some(pack) = self.unpack(stream)? else { return Ok(()) };
        let first = stream.dictionary.get(b"First".as_slice()).and_then(Object::index).unwrap_or(0);
        let mut lexer = Lexer::new(&pack, 0, MOST_AT_ONCE.min(self.left));
        while lexer.at < first {
            let pair = (lexer.next(), lexer.next());
            let (Some(Object::Number(_)), Some(offset)) = &pair else { break };
            let inner = pair.0.as_ref().and_then(Object::index).and_then(|inner| u32::try_from(inner).ok());
            if let (Some(inner), Some(offset)) = (inner, offset.index()) {
                self.places.insert(inner, Place::Packed(number, first.saturating_add(offset)));
            }
        }
        self.packs.insert(number, pack);
        Ok(())
    }

    fn read_trailers(&mut self) -> Result<(), ExtractError> {
        let mut at = 0;
        while let Some(found) = find(self.bytes, b"trailer", at) {
            at = found + b"trailer".len();
            if let Some(Object::Dictionary(trailer)) = self.parse(at) {
                self.note_trailer(&trailer)?;
            }
        }
        Ok(())
    }

    fn note_trailer(&mut self, trailer: &Dictionary) -> Result<(), ExtractError> {
        if trailer.get(b"Encrypt".as_slice()).is_some_and(|encrypt| *encrypt != Object::Null) {
            return Err(ExtractError::Encrypted);
        }
        if let Some(root) = trailer.get(b"Root".as_slice()) {
            self.root = Some(root.clone());
        }
        Ok(())
    }

    fn stream_at(&mut self, at: usize) -> Option<Stream> {
        let (Object::Dictionary(dictionary), end) = self.parse_up_to(at)? else { return None };
        let mut lexer = Lexer::new(self.bytes, end, 1);
        lexer.skip_space();
        if !self.bytes.get(lexer.at..)?.starts_with(b"stream") {
            return None;
        }
        let mut from = lexer.at + b"stream".len();
        from += match self.bytes.get(from..)? {
            [b'\r', b'\n', ..] => 2,
            [b'\r' | b'\n', ..] => 1,
            _ => 0,
        };
        let stated = dictionary.get(b"Length".as_slice()).and_then(Object::index).map(|length| from + length);
        let is_end = |to: usize| {
            let rest = self.bytes.get(to..).unwrap_or_default();
            let spaces = rest.iter().take(4).take_while(|byte| is_space(**byte)).count();
            rest.get(spaces..).is_some_and(|rest| rest.starts_with(b"endstream"))
        };
        let to = stated.filter(|to| is_end(*to)).or_else(|| find(self.bytes, b"endstream", from));
        Some(Stream { dictionary, from, to: to.unwrap_or(self.bytes.len()) })
    }

    fn unpack(&mut self, stream: &Stream) -> Result<Option<Vec<u8>>, ExtractError> {
        let listed = |object: Object| match object {
            Object::Array(array) => Rc::unwrap_or_clone(array),
            Object::Null => Vec::new(),
            one => vec![one],
        };
        let filter =
            stream.dictionary.get(b"Filter".as_slice()).or_else(|| stream.dictionary.get(b"F".as_slice()));
        let filters = filter.map_or(Object::Null, |filter| self.resolve(filter));
        let parameters = listed(self.get(&stream.dictionary, b"DecodeParms"));
        let packed = self.bytes.get(stream.from..stream.to).unwrap_or_default();
        let filters = listed(filters);
        if filters.len() > MOST_FILTERS {
            return Ok(None);
        }
        self.budget.take(packed.len())?;
        let mut bytes = packed.to_vec();
        for (at, filter) in filters.iter().enumerate() {
            let filter = self.resolve(filter);
            let parameters = parameters.get(at).map(|parameters| self.resolve(parameters));
            let parameters = parameters.as_ref().and_then(Object::dictionary);
            let Some(name) = filter.name() else { return Ok(None) };
            match filter::unpack(name, &bytes, parameters, &mut self.budget)? {
                Some(unpacked) => bytes = unpacked,
                None => return Ok(None),
            }
        }
        Ok(Some(bytes))
    }
}

/// The object at a place, where it ends, and what reading it cost.
fn read(bytes: &[u8], at: usize, left: usize) -> (Option<Object>, usize, usize) {
    let most = MOST_AT_ONCE.min(left);
    let mut lexer = Lexer::new(bytes, at, most);
    let object = lexer.next_with_references();
    let cost = most - lexer.left() + lexer.at.saturating_sub(at) / BYTES_OF_OBJECT;
    (object, lexer.at, cost)
}

/// Finds the next of a kind, and remembers it: looking again from before it costs nothing.
struct Finder {
    needle: &'static [u8],
    next: Option<usize>,
}

impl Finder {
    fn new(needle: &'static [u8]) -> Finder {
        Finder { needle, next: None }
    }

    /// The first place from `at` on, else the end of `bytes`.
    fn from(&mut self, bytes: &[u8], at: usize) -> usize {
        let known = self.next.filter(|next| *next >= at);
        let next = known.unwrap_or_else(|| find(bytes, self.needle, at).unwrap_or(bytes.len()));
        self.next = Some(next);
        next
    }
}

fn find(bytes: &[u8], needle: &[u8], from: usize) -> Option<usize> {
    let rest = bytes.get(from..)?;
    let (first, others) = needle.split_first()?;
    let mut at = 0;
    while let Some(next) = rest.get(at..)?.iter().position(|byte| byte == first) {
        at += next + 1;
        if rest.get(at..)?.starts_with(others) {
            return Some(from + at - 1);
        }
    }
    None
}

/// The 12 of `12 0 obj`, given where `obj` stands.
fn number_before(bytes: &[u8], at: usize) -> Option<u32> {
    let before = bytes.get(at.saturating_sub(32)..at)?;
    let generation = before.trim_ascii_end();
    let rest = generation.trim_end_matches_digits();
    let number = rest.trim_ascii_end();
    let digits = number.trim_end_matches_digits();
    if generation.len() == rest.len() || rest.len() == number.len() {
        return None;
    }
    std::str::from_utf8(number.get(digits.len()..)?).ok()?.parse().ok()
}

trait TrimDigits {
    fn trim_end_matches_digits(&self) -> &[u8];
}

impl TrimDigits for [u8] {
    fn trim_end_matches_digits(&self) -> &[u8] {
        let digits = self.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        self.get(..self.len() - digits).unwrap_or_default()
    }
}
