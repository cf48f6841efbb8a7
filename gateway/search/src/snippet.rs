//! The part of a chunk that shows why it was found.

use crate::{fold, tokens};

/// How many characters are shown either side of a match.
const AROUND: usize = 100;
/// How many characters are shown where no word of the query stands literally.
const OPENING: usize = 200;

/// What to look for in a text: made once for a query, used on every hit.
#[derive(Debug, Clone)]
pub struct Needles {
    /// Better ones first; within one level the place that comes first in the text wins.
    levels: Vec<Vec<String>>,
}

impl Needles {
    /// The whole query, else its words, else the terms they are indexed by.
    pub fn new(query: &str) -> Needles {
        let whole = fold::fold(tokens::bounded(query).trim());
        let words =
            whole.split_whitespace().filter(|word| !tokens::is_common(word)).map(str::to_owned).collect();
        let mut terms = Vec::new();
        tokens::terms(&whole, &mut |term, role| {
            if terms.len() < tokens::MAX_QUERY_TERMS && role != tokens::Role::Common {
                terms.push(term.to_owned());
            }
        });
        Needles { levels: vec![vec![whole], words, terms] }
    }

    /// Whether there is nothing to look for.
    pub fn is_empty(&self) -> bool {
        self.whole().is_empty()
    }

    /// Whether the whole query stands in a folded text. An empty query stands nowhere.
    pub(crate) fn whole_in_folded(&self, folded: &str) -> bool {
        !self.is_empty() && folded.contains(self.whole())
    }

    /// The query, folded.
    pub(crate) fn whole(&self) -> &str {
        self.levels.first().and_then(|level| level.first()).map_or("", String::as_str)
    }

    /// The bytes of the first match in `text`.
    fn first_in(&self, text: &str) -> Option<(usize, usize)> {
        let folded = fold::fold(text);
        let earliest = |level: &Vec<String>| {
            let places = level.iter().filter(|needle| !needle.is_empty());
            places.filter_map(|needle| Some((folded.find(needle.as_str())?, needle.len()))).min()
        };
        let (at, length) = self.levels.iter().find_map(earliest)?;
        Some(fold::unfold(text, at, at + length))
    }
}

/// About 100 characters either side of the first match in `text`, else its first 200: always a slice of `text`.
pub fn snippet<'a>(text: &'a str, needles: &Needles) -> &'a str {
    match needles.first_in(text) {
        Some((start, end)) => around(text, start, end),
        None => opening(text),
    }
}

/// What is shown of `text` for a match in the bytes `from..to` of its folded form, which may end after it.
pub(crate) fn snippet_at(text: &str, from: usize, to: usize) -> &str {
    let (start, end) = fold::unfold(text, from, to);
    around(text, start, end)
}

/// The first 200 characters of `text`.
pub fn opening(text: &str) -> &str {
    text.get(..forward(text, 0, OPENING)).unwrap_or(text)
}

fn around(text: &str, start: usize, end: usize) -> &str {
    // A match that is itself a page is shown as far as an opening would be.
    let end = end.min(forward(text, start, OPENING));
    text.get(backward(text, start, AROUND)..forward(text, end, AROUND)).unwrap_or(text)
}

/// The place `count` characters after `from`, not inside a cluster.
fn forward(text: &str, from: usize, count: usize) -> usize {
    let rest = text.get(from..).unwrap_or_default();
    let mut chars = 0;
    let whole = fold::clusters(rest).take_while(|cluster| {
        chars += cluster.chars().count();
        chars <= count
    });
    from + whole.map(str::len).sum::<usize>()
}

/// The place `count` characters before `to`, not inside a cluster.
fn backward(text: &str, to: usize, count: usize) -> usize {
    let before = text.get(..to).unwrap_or_default();
    // One more than wanted, so that a cluster that was cut in half is seen and left out.
    let Some((from, _)) = before.char_indices().rev().nth(count) else { return 0 };
    let window = before.get(from..).unwrap_or_default();
    from + fold::clusters(window).next().map_or(0, str::len)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn shown<'a>(text: &'a str, query: &str) -> &'a str {
        snippet(text, &Needles::new(query))
    }

    #[test]
    fn a_match_is_shown_with_a_hundred_characters_either_side() {
        let text = format!("{}needle{}", "가".repeat(300), "나".repeat(300));
        assert_eq!(shown(&text, "NEEDLE"), format!("{}needle{}", "가".repeat(100), "나".repeat(100)));
        assert_eq!(shown("a needle", "needle"), "a needle");
    }

    #[test]
    fn without_a_match_the_beginning_is_shown() {
        let text = "語".repeat(500);
        assert_eq!(shown(&text, "zebra"), "語".repeat(200));
        assert_eq!(shown(&text, ""), "語".repeat(200));
        assert_eq!(shown("", "zebra"), "");
    }

    #[test]
    fn the_whole_query_is_preferred_to_its_words_and_words_to_their_stems() {
        let far = "x ".repeat(200);
        let text = format!("red {far} kites fly {far} red kite");
        assert!(shown(&text, "red kite").ends_with("red kite"));
        assert!(shown(&text, "green kite").contains("kites fly"));
        assert!(shown(&text, "flying of kiting").contains("kites fly"));
    }

    #[test]
    fn other_widths_and_forms_are_found() {
        let text = format!("{}ｶﾞｲﾄﾞ", "あ".repeat(200));
        assert_eq!(shown(&text, "ガイド"), format!("{}ｶﾞｲﾄﾞ", "あ".repeat(100)));
    }

    #[test]
    fn no_accent_is_parted_from_its_letter() {
        let text = format!("{}needle{}", "e\u{301}".repeat(150), "e\u{301}".repeat(150));
        let shown = shown(&text, "needle");
        assert_eq!(shown, format!("{}needle{}", "e\u{301}".repeat(50), "e\u{301}".repeat(50)));
    }

    #[test]
    fn a_match_of_a_whole_page_is_cut() {
        let text = "lorem ".repeat(1000);
        assert!(shown(&text, &text).chars().count() <= OPENING + 2 * AROUND);
    }

    proptest! {
        #[test]
        fn a_snippet_is_a_bounded_slice_of_the_text(text in "\\PC{0,400}", query in "\\PC{0,10}") {
            let shown = shown(&text, &query);
            prop_assert!(text.contains(shown));
            prop_assert!(shown.chars().count() <= OPENING + 2 * AROUND + 64);
        }
    }
}
