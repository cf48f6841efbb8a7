//! Which terms of the index may be meant by a word of a query: itself, compounds it is a part of, its own parts, and words
//! that begin alike and so are probably another form.
//!
//! Only words of scripts with spaces need this; pairs of characters do it by themselves. It costs one walk over the terms of the
//! index for a query and no memory, where indexing every part of every word would cost memory for each document.

use super::{Index, query::Query, term::Term};

/// Shorter words are a part of too many others.
const SHORTEST_PART: usize = 4;
/// How many words of a query are compared with every term; the others are looked up as they are.
const MOST_WORDS: usize = 24;
/// What a compound is worth that holds the word, before its length is looked at.
const COMPOUND: f64 = 0.5;
/// What a word that begins alike is worth.
const KIN: f64 = 0.45;
/// How much of the longer word must be the common beginning.
const COMMON_SHARE: f64 = 0.6;

/// A weight, and the forms to look up with their likeness to the word.
pub(super) type Forms = (f64, Vec<(Term, f64)>);

impl<Id: PartialEq> Index<Id> {
    pub(super) fn expand(&self, query: &Query) -> Vec<Forms> {
        let mut groups =
            query.terms.iter().map(|(term, weight)| (*weight, vec![(*term, 1.0)])).collect::<Vec<Forms>>();
        let words = query.terms.iter().enumerate().filter(|(_, (term, weight))| {
            term.is_word() && *weight > 0.1 && term.bytes().len() >= SHORTEST_PART
        });
        let words = words.take(MOST_WORDS).map(|(at, (term, _))| (at, *term)).collect::<Vec<_>>();
        if words.is_empty() {
            return groups;
        }
        for known in self.terms.keys().filter(|term| term.is_word() && term.bytes().len() >= SHORTEST_PART) {
            for (at, word) in &words {
                let likeness = likeness(word.bytes(), known.bytes());
                if likeness > 0.0
                    && let Some((_, forms)) = groups.get_mut(*at)
                    && known != word
                {
                    forms.push((*known, likeness));
                }
            }
        }
        groups
    }
}

/// How probably one word is meant by the other, from 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "lengths of words")]
fn likeness(word: &[u8], other: &[u8]) -> f64 {
    let (short, long) = if word.len() <= other.len() { (word, other) } else { (other, word) };
    let common = short.iter().zip(long).take_while(|(left, right)| left == right).count();
    let share = short.len() as f64 / long.len() as f64;
    if common == short.len() || long.ends_with(short) {
        return COMPOUND * share.sqrt();
    }
    let share = common as f64 / long.len() as f64;
    if common >= SHORTEST_PART && share >= COMMON_SHARE { KIN * share } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_and_kin_are_alike_and_strangers_are_not() {
        let alike = |left: &str, right: &str| likeness(left.as_bytes(), right.as_bytes());
        for (left, right) in
            [("stamp", "timestamp"), ("time", "timestamp"), ("decid", "decis"), ("datenbank", "daten")]
        {
            assert!(alike(left, right) > 0.2, "{left} {right}");
            assert_eq!(alike(left, right).to_bits(), alike(right, left).to_bits());
        }
        for (left, right) in
            [("comput", "compani"), ("server", "service"), ("house", "mouse"), ("cat", "cats")]
        {
            assert!(alike(left, right) < 0.45, "{left} {right}");
        }
        assert!(alike("comput", "compani").abs() < f64::EPSILON);
    }
}
