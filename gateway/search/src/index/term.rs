//! A term as the index keeps it: 24 bytes, however long the word is.

use std::hash::{BuildHasher, Hasher};

const SIZE: usize = 24;
/// The bytes of a longer word that are kept as they are; a hash of the whole takes the rest.
const HEAD: usize = 15;

/// The bytes of a term and, in the last one, how many they are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Term([u8; SIZE]);

impl Term {
    pub(super) fn new(text: &str) -> Term {
        let mut bytes = [0; SIZE];
        let text = text.as_bytes();
        match bytes.get_mut(..text.len()) {
            Some(own) if text.len() < SIZE => own.copy_from_slice(text),
            _ => {
                let hash = hash(text).to_le_bytes();
                bytes
                    .iter_mut()
                    .zip(text.iter().take(HEAD).chain(&hash))
                    .for_each(|(own, byte)| *own = *byte);
            }
        }
        if let (Some(last), Ok(length)) = (bytes.last_mut(), u8::try_from(text.len().min(SIZE))) {
            *last = length;
        }
        Term(bytes)
    }

    /// The word, or as much of it as is kept.
    pub(super) fn bytes(&self) -> &[u8] {
        let length = self.0.last().map_or(0, |length| usize::from(*length));
        self.0.get(..if length < SIZE { length } else { HEAD }).unwrap_or_default()
    }

    /// Whether it is a word of a script with spaces, rather than a pair of characters.
    pub(super) fn is_word(&self) -> bool {
        // Hangul, Han, Kana and the scripts without spaces begin with a byte from 0xE0 on in UTF-8; roots begin with `~`.
        self.bytes().first().is_some_and(|first| *first < 0xe0 && *first != b'~')
    }
}

fn hash(text: &[u8]) -> u64 {
    // Keyed alike in every process, so that equal texts make equal indexes.
    let mut hasher = ahash::RandomState::with_seeds(1, 2, 3, 4).build_hasher();
    hasher.write(text);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_any_length_keep_apart() {
        for length in [1, 14, 15, 16, 22, 23, 24, 25, 1000] {
            let word = "a".repeat(length);
            assert_eq!(Term::new(&word), Term::new(&word));
            assert_ne!(Term::new(&word), Term::new(&format!("{word}a")));
            assert_ne!(Term::new(&word), Term::new(&format!("{word}b")));
        }
        assert_eq!(size_of::<Term>(), SIZE);
        assert_eq!(Term::new("short").bytes(), b"short");
        assert_eq!(Term::new(&"x".repeat(30)).bytes(), "x".repeat(HEAD).as_bytes());
    }

    #[test]
    fn pairs_and_roots_are_no_words() {
        for (text, expected) in
            [("deploy", true), ("слово", true), ("서버", false), ("~달리", false), ("走", false)]
        {
            assert_eq!(Term::new(text).is_word(), expected, "{text}");
        }
    }
}
