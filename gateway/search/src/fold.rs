//! Texts made comparable (NFKC, lower case), and the way back from a place in the folded text to the original.
//!
//! A text is folded cluster by cluster: a character with all that may compose with it. So the folded text of a text is that
//! of its clusters, one after the other, and a place in it is found again by folding once more and counting.

use unicode_normalization::{UnicodeNormalization, char::canonical_combining_class};

/// `text` in NFKC and lower case.
pub(crate) fn fold(text: &str) -> String {
    if text.is_ascii() {
        return text.to_ascii_lowercase();
    }
    let mut folded = String::with_capacity(text.len());
    for cluster in clusters(text) {
        push_folded(cluster, &mut folded);
    }
    folded
}

/// Where in `text` the bytes `from..to` of its folded form stand: whole clusters, as `(start, end)`.
pub(crate) fn unfold(text: &str, from: usize, to: usize) -> (usize, usize) {
    let (mut start, mut end) = (0, 0);
    let (mut folded, mut scratch) = (0, String::new());
    for cluster in clusters(text) {
        scratch.clear();
        push_folded(cluster, &mut scratch);
        if folded <= from {
            start = end;
        }
        folded += scratch.len();
        end += cluster.len();
        if folded >= to {
            return (start, end);
        }
    }
    (start, end)
}

/// The clusters of `text`: each begins with a character that composes with none before it.
pub(crate) fn clusters(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut chars = rest.char_indices();
        chars.next()?;
        let end = chars.find(|(_, next)| !composes(*next)).map_or(rest.len(), |(at, _)| at);
        let (cluster, after) = rest.split_at(end);
        rest = after;
        Some(cluster)
    })
}

/// Whether a character may become one with the character before it, or is shown as a part of it.
fn composes(next: char) -> bool {
    match next {
        '\0'..='\u{2ff}' => false,
        // Vowels and finals of Korean syllables; the voicing marks of half-width kana; joiners and variation selectors.
        '\u{1160}'..='\u{11ff}' | '\u{ff9e}' | '\u{ff9f}' | '\u{200d}' | '\u{fe00}'..='\u{fe0f}' => true,
        _ => canonical_combining_class(next) != 0,
    }
}

fn push_folded(cluster: &str, folded: &mut String) {
    if cluster.is_ascii() {
        folded.extend(cluster.chars().map(|char| char.to_ascii_lowercase()));
    } else {
        folded.extend(cluster.nfkc().flat_map(char::to_lowercase));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn forms_of_the_same_text_fold_alike() {
        for (left, right) in [
            ("Ｍｏｏｎ１２", "moon12"),
            ("ｶﾞｲﾄﾞ", "ガイド"),
            ("\u{1112}\u{1161}\u{11ab}글", "한글"),
            ("E\u{301}t\u{e9}", "été"),
            ("ﬁle", "file"),
        ] {
            assert_eq!(fold(left), fold(right));
        }
    }

    #[test]
    fn a_place_in_the_folded_text_leads_back_to_whole_clusters() {
        let text = "ab ｶﾞｲﾄﾞ ﬁn";
        let folded = fold(text);
        let at = folded.find("イド").unwrap();
        let (start, end) = unfold(text, at, at + "イド".len());
        assert_eq!(&text[start..end], "ｲﾄﾞ");
        let at = folded.find("in").unwrap();
        let (start, end) = unfold(text, at, at + 2);
        assert_eq!(&text[start..end], "ﬁn");
    }

    proptest! {
        #[test]
        fn every_place_unfolds_to_characters_of_the_text(text in "\\PC{0,40}", from in 0_usize..80, length in 0_usize..20) {
            let (start, end) = unfold(&text, from, from + length);
            prop_assert!(text.get(start..end).is_some());
        }
    }
}
