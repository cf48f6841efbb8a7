//! The parts of a ZIP archive, as the office formats use it.
//!
//! Only the directory at the end is believed: it says where each part is and how it is packed. How large a part becomes is
//! counted while it is unpacked, whatever the directory claims.

use std::collections::HashMap;

use super::{
    ExtractError, Kind, Limits,
    inflate::{Budget, Header, inflate},
};

/// More parts than any document has.
const MOST_PARTS: usize = 20_000;
/// How far from the end of the file its last record may stand: the record and the longest comment.
const LONGEST_TAIL: usize = 22 + 0xffff;

/// An archive whose directory was read.
#[derive(Debug)]
pub(super) struct Archive<'a> {
    bytes: &'a [u8],
    /// By their names in lower case.
    parts: HashMap<Vec<u8>, Part<'a>>,
    budget: Budget,
    kind: Kind,
}

#[derive(Debug)]
struct Part<'a> {
    name: &'a [u8],
    at: usize,
    packed: usize,
    method: u16,
    encrypted: bool,
}

impl<'a> Archive<'a> {
    pub(super) fn open(bytes: &'a [u8], kind: Kind, limits: &Limits) -> Result<Archive<'a>, ExtractError> {
        // What Office makes of a document with a password is no ZIP but a container of its own.
        if bytes.starts_with(&[0xd0, 0xcf, 0x11, 0xe0]) {
            return Err(ExtractError::Encrypted);
        }
        let parts =
            directory(bytes).ok_or_else(|| kind.damaged("it is no ZIP archive, or not all of it is here"))?;
        if parts.is_empty() {
            return Err(kind.damaged("the archive is empty"));
        }
        // The first of a name counts.
        let by_name = parts.into_iter().rev().map(|part| (part.name.to_ascii_lowercase(), part));
        Ok(Archive { bytes, parts: by_name.collect(), budget: Budget::new(limits.unpacked), kind })
    }

    /// The content of a part, where the archive has it.
    pub(super) fn part(&mut self, name: &str) -> Result<Option<Vec<u8>>, ExtractError> {
        let Some(part) = self.parts.get(name.to_ascii_lowercase().as_bytes()) else { return Ok(None) };
        if part.encrypted {
            return Err(ExtractError::Encrypted);
        }
        let damaged = |reason: &str| self.kind.damaged(format!("{name} {reason}"));
        let packed = content(self.bytes, part).ok_or_else(|| damaged("is not all here"))?;
        let content = match part.method {
            0 => self.budget.take(packed.len()).map(|()| packed.to_vec())?,
            8 => inflate(packed, Header::None, &mut self.budget)?
                .whole
                .ok_or_else(|| damaged("cannot be unpacked"))?,
            _ => return Err(damaged("is packed in a way that is not known here")),
        };
        Ok(Some(content))
    }

    /// A part that must be there.
    pub(super) fn require(&mut self, name: &str) -> Result<Vec<u8>, ExtractError> {
        self.part(name)?.ok_or_else(|| self.kind.damaged(format!("{name} is missing")))
    }
}

/// Whether an archive is one of the office documents, by the parts it has.
pub(super) fn office_kind(bytes: &[u8]) -> Option<Kind> {
    if !bytes.starts_with(b"PK\x03\x04") {
        return None;
    }
    let parts = directory(bytes)?;
    let has = |name: &[u8]| parts.iter().any(|part| part.name == name);
    match () {
        () if has(b"word/document.xml") => Some(Kind::Docx),
        () if has(b"xl/workbook.xml") => Some(Kind::Xlsx),
        () => None,
    }
}

fn directory(bytes: &[u8]) -> Option<Vec<Part<'_>>> {
    let tail = bytes.len().saturating_sub(LONGEST_TAIL);
    let end = tail + bytes.get(tail..)?.windows(4).rposition(|window| window == b"PK\x05\x06")?;
    let mut at = number(bytes, end + 16, 4)?;
    let mut parts = Vec::new();
    while parts.len() < MOST_PARTS && bytes.get(at..at + 4) == Some(b"PK\x01\x02") {
        let [name, extra, comment] = [28, 30, 32].map(|offset| number(bytes, at + offset, 2));
        let (name, extra, comment) = (name?, extra?, comment?);
        parts.push(Part {
            name: bytes.get(at + 46..at + 46 + name)?,
            at: number(bytes, at + 42, 4)?,
            packed: number(bytes, at + 20, 4)?,
            method: u16::try_from(number(bytes, at + 10, 2)?).ok()?,
            encrypted: number(bytes, at + 8, 2)? & 1 != 0,
        });
        at += 46 + name + extra + comment;
    }
    Some(parts)
}

/// The packed bytes of a part: after its own header, whose lengths may differ from the directory's.
fn content<'a>(bytes: &'a [u8], part: &Part<'_>) -> Option<&'a [u8]> {
    let header = bytes.get(part.at..)?;
    if !header.starts_with(b"PK\x03\x04") {
        return None;
    }
    let start = 30 + number(header, 26, 2)? + number(header, 28, 2)?;
    header.get(start..start.checked_add(part.packed)?)
}

/// A little-endian number of up to four bytes.
fn number(bytes: &[u8], at: usize, length: usize) -> Option<usize> {
    let bytes = bytes.get(at..at.checked_add(length)?)?;
    Some(bytes.iter().rev().fold(0, |number, byte| number << 8 | usize::from(*byte)))
}
