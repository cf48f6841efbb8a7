//! The elements and texts of an XML part, one after the other.
//!
//! Nothing is built in memory and nothing is expanded: of entities only the five of XML and character numbers are known,
//! the others are left out, and a document type is not read.

use std::borrow::Cow;

use quick_xml::{
    Reader,
    events::{BytesStart, Event},
};

use super::{ExtractError, Kind, plain};

/// Deeper elements than any office program writes.
const DEEPEST: usize = 256;

/// One step through a part. Names are without their namespace prefix.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    Open(Tag<'a>),
    Close(String),
    Text(Cow<'a, str>),
}

/// An element that begins.
#[derive(Debug)]
pub(super) struct Tag<'a>(BytesStart<'a>);

impl Tag<'_> {
    pub(super) fn name(&self) -> &str {
        self.0.local_name().into_inner()
    }

    /// The value of an attribute, whatever prefix its name has.
    pub(super) fn attribute(&self, name: &str) -> Option<String> {
        let mut attributes = self.0.attributes();
        let attributes = attributes.with_checks(false).flatten();
        let value = attributes.filter(|attribute| attribute.key.local_name().into_inner() == name);
        value.map(|attribute| unescaped(&attribute.value)).next()
    }
}

/// Walks through a part.
#[derive(Debug)]
pub(super) struct Pieces<'a> {
    reader: Reader<&'a [u8]>,
    depth: usize,
    kind: Kind,
}

/// A part as text, which [`Pieces`] borrows from.
pub(super) fn decode(part: &[u8], kind: Kind) -> Result<String, ExtractError> {
    plain::read(part).map_err(|_| kind.damaged("a part of it is no text"))
}

impl<'a> Pieces<'a> {
    pub(super) fn new(text: &'a str, kind: Kind) -> Pieces<'a> {
        let mut reader = Reader::from_str(text);
        let config = reader.config_mut();
        config.expand_empty_elements = true;
        config.allow_dangling_amp = true;
        Pieces { reader, depth: 0, kind }
    }

    pub(super) fn next(&mut self) -> Result<Option<Piece<'a>>, ExtractError> {
        loop {
            let event = self.reader.read_event().map_err(|error| self.kind.damaged(error.to_string()))?;
            let piece = match event {
                Event::Start(start) => {
                    self.depth += 1;
                    if self.depth > DEEPEST {
                        return Err(self
                            .kind
                            .damaged(format!("its elements are nested more than {DEEPEST} deep")));
                    }
                    Piece::Open(Tag(start))
                }
                Event::End(end) => {
                    self.depth = self.depth.saturating_sub(1);
                    Piece::Close(end.local_name().into_inner().to_owned())
                }
                Event::Text(text) => Piece::Text(text.into_inner()),
                Event::CData(text) => Piece::Text(text.into_inner()),
                Event::GeneralRef(reference) => match reference.resolve_char_ref() {
                    Ok(Some(char)) => Piece::Text(char.to_string().into()),
                    _ => Piece::Text(predefined(&reference.into_inner()).into()),
                },
                Event::Eof if self.depth > 0 => return Err(self.kind.damaged("it ends in the middle")),
                Event::Eof => return Ok(None),
                _ => continue,
            };
            return Ok(Some(piece));
        }
    }
}

fn predefined(name: &str) -> &'static str {
    match name {
        "amp" => "&",
        "lt" => "<",
        "gt" => ">",
        "quot" => "\"",
        "apos" => "'",
        _ => "",
    }
}

fn unescaped(value: &str) -> String {
    quick_xml::escape::unescape(value).map_or_else(|_| value.to_owned(), Cow::into_owned)
}
