//! A zip archive in memory, with files stored as they are.
//!
//! Uncompressed archives are a page of code and open everywhere; a library for them would bring a compressor and readers that
//! nothing here needs. Sizes stay far below what asks for the format's 64-bit extension.

use moongate_core::hash::Set;

/// The version of the format that knows directories and plain storage, and says who made it: a Unix system.
const VERSION: u16 = 20;
const MADE_BY: u16 = 3 << 8 | VERSION;
/// Names are UTF-8.
const UTF8: u16 = 1 << 11;
/// 1980-01-01: the archive tells no times, and the same files make the same archive.
const DATE: u16 = 1 << 5 | 1;
/// A regular file with mode 0644, in the half that Unix uses.
const ATTRIBUTES: u32 = 0o100_644 << 16;
/// What a file takes beside its name, which is there twice, and its contents; and what the end takes.
const ENTRY: usize = 30 + 46;
const END: usize = 22;

/// An archive being filled.
#[derive(Debug, Default)]
pub(crate) struct Archive {
    body: Vec<u8>,
    directory: Vec<u8>,
    names: Set<String>,
}

impl Archive {
    /// Adds a file; one that is in it already is not added again.
    pub(crate) fn add(&mut self, name: &str, contents: &[u8]) {
        if !self.names.insert(name.to_owned()) {
            return;
        }
        let offset = narrow(self.body.len());
        let entry = entry(name, contents);
        put(&mut self.body, &[b"PK\x03\x04", &VERSION.to_le_bytes(), &entry, name.as_bytes(), contents]);
        // No comment, the first disk, no internal attributes.
        let place = [&[0; 6][..], &ATTRIBUTES.to_le_bytes(), &offset.to_le_bytes()].concat();
        let versions = [MADE_BY.to_le_bytes(), VERSION.to_le_bytes()].concat();
        put(&mut self.directory, &[b"PK\x01\x02", &versions, &entry, &place, name.as_bytes()]);
    }

    pub(crate) fn has(&self, name: &str) -> bool {
        self.names.contains(name)
    }

    pub(crate) fn files(&self) -> usize {
        self.names.len()
    }

    /// What it would take with another file that is called `name` and is empty, in bytes.
    pub(crate) fn size_with(&self, name: &str) -> usize {
        self.body.len() + self.directory.len() + ENTRY + 2 * name.len() + END
    }

    /// The whole archive.
    pub(crate) fn finish(self) -> Vec<u8> {
        let Self { mut body, directory, names } = self;
        let (offset, size) = (narrow(body.len()), narrow(directory.len()));
        let count = u16::try_from(names.len()).unwrap_or(u16::MAX).to_le_bytes();
        let ends =
            [&[0; 4][..], &count, &count, &size.to_le_bytes(), &offset.to_le_bytes(), &[0; 2]].concat();
        put(&mut body, &[&directory, b"PK\x05\x06", &ends]);
        body
    }
}

/// What the header before a file and the archive's directory both say about it.
fn entry(name: &str, contents: &[u8]) -> Vec<u8> {
    let size = narrow(contents.len()).to_le_bytes();
    let name_size = u16::try_from(name.len()).unwrap_or(u16::MAX).to_le_bytes();
    let (stored, midnight, no_extra) = ([0; 2], [0; 2], [0; 2]);
    [
        &UTF8.to_le_bytes()[..],
        &stored,
        &midnight,
        &DATE.to_le_bytes(),
        &crc32fast::hash(contents).to_le_bytes(),
        &size,
        &size,
        &name_size,
        &no_extra,
    ]
    .concat()
}

fn put(out: &mut Vec<u8>, parts: &[&[u8]]) {
    for part in parts {
        out.extend_from_slice(part);
    }
}

/// Callers bound what goes in to far less.
fn narrow(size: usize) -> u32 {
    u32::try_from(size).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_archive_is_laid_out_as_the_format_says() {
        let mut archive = Archive::default();
        archive.add("a/é.txt", b"hello");
        archive.add("a/é.txt", b"again");
        archive.add("b", b"");
        assert_eq!(archive.files(), 2);
        let zip = archive.finish();
        let number = |at: usize| u32::from_le_bytes(zip[at..at + 4].try_into().unwrap());
        let end = zip.len() - 22;
        assert_eq!(&zip[end..end + 12], b"PK\x05\x06\0\0\0\0\x02\0\x02\0");
        let (size, start) = (number(end + 12) as usize, number(end + 16) as usize);
        assert_eq!(start + size, end);
        assert_eq!(&zip[start..start + 4], b"PK\x01\x02");
        assert_eq!(number(start + 16), 0x3610_a686, "the checksum of hello");
        assert_eq!((number(start + 20), number(start + 24)), (5, 5));
        assert_eq!(&zip[start + 46..start + 54], "a/é.txt".as_bytes());
        assert_eq!(&zip[..4], b"PK\x03\x04");
        assert_eq!(&zip[30..43], "a/é.txthello".as_bytes());
        let second = number(start + 46 + 8 + 42) as usize;
        assert_eq!(&zip[second..second + 4], b"PK\x03\x04");
    }
}
