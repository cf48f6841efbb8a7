//! Names for things with secrets in them, from which nobody reads the secrets back.

use std::fmt::Write as _;

use aws_lc_rs::digest::{Context, SHA256};

/// How much of the digest a name has: enough that no two things ever share one.
const BYTES: usize = 16;

/// A name for `parts` in this order; no two lists of parts have the same one.
pub fn name_of(parts: &[&[u8]]) -> String {
    let mut digest = Context::new(&SHA256);
    for part in parts {
        // The length first, so that what ends one part cannot begin the next.
        digest.update(&(part.len() as u64).to_be_bytes());
        digest.update(part);
    }
    let mut name = String::with_capacity(2 * BYTES);
    for byte in digest.finish().as_ref().iter().take(BYTES) {
        // Writing to a string cannot fail.
        let _written = write!(name, "{byte:02x}").is_ok();
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_are_told_apart_by_where_they_end() {
        let names = [
            name_of(&[]),
            name_of(&[b""]),
            name_of(&[b"ab"]),
            name_of(&[b"a", b"b"]),
            name_of(&[b"", b"ab"]),
        ];
        for (at, name) in names.iter().enumerate() {
            assert_eq!(name.len(), 2 * BYTES);
            assert!(!names.iter().skip(at + 1).any(|other| other == name), "{at}");
        }
        assert_eq!(name_of(&[b"a", b"b"]), names[3]);
    }
}
