//! Words of scripts with spaces: accents, case, compounds, English stems.

use std::sync::LazyLock;

use rust_stemmers::{Algorithm, Stemmer};
use unicode_normalization::UnicodeNormalization;

use super::{Role, Run, irregular, is_mark};

/// A longer word is no word: its beginning is its term, and its parts are not looked at.
const LONGEST: usize = 40;

static ENGLISH: LazyLock<Stemmer> = LazyLock::new(|| Stemmer::create(Algorithm::English));

/// Words that hyphens hold together: each is a term, and so is the whole.
#[derive(Debug, Default)]
pub(super) struct Hyphens {
    whole: String,
}

impl Hyphens {
    /// Adds a word and answers with the whole, where the word goes on with one before it.
    fn join(&mut self, run: &Run<'_>) -> Option<&str> {
        let goes_on = !self.whole.is_empty() && matches!(run.gap, "-" | "\u{2010}" | "\u{2011}");
        if !goes_on {
            self.whole.clear();
        }
        let fits = self.whole.len() + run.text.len() <= LONGEST;
        if !fits {
            self.whole.clear();
            return None;
        }
        self.whole.push_str(run.text);
        goes_on.then_some(self.whole.as_str())
    }
}

/// The terms of one word, and of the hyphenated word it may end.
pub(super) fn word(run: Run<'_>, hyphens: &mut Hyphens, emit: &mut impl FnMut(&str, Role)) {
    let end = run.text.char_indices().nth(LONGEST).map(|(at, _)| at);
    if let Some(end) = end {
        hyphens.whole.clear();
        return emit(&stem(run.text.get(..end).unwrap_or_default()), Role::Word);
    }
    let mut parts = parts(run.text);
    match (parts.next(), parts.next()) {
        (Some(first), Some(second)) => {
            for part in [first, second].into_iter().chain(parts) {
                emit_written(part, emit);
            }
            emit(&stem(run.text), Role::Part);
        }
        _ => emit_written(run.text, emit),
    }
    if let Some(whole) = hyphens.join(&run) {
        emit(&stem(whole), Role::Part);
    }
}

/// A word by its stem. What is grammar is seen before stemming: `can` is, and the `cans` that share its stem are not.
fn emit_written(word: &str, emit: &mut impl FnMut(&str, Role)) {
    let written = written(word);
    let role = if irregular::is_common(&written) { Role::Common } else { Role::Word };
    emit(&stem_written(written), role);
}

/// The parts of `camelCase`, `HTTPServer` and `sha256`.
fn parts(word: &str) -> impl Iterator<Item = &str> {
    let mut rest = word;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let (part, after) = rest.split_at(part_end(rest));
        rest = after;
        Some(part)
    })
}

fn part_end(word: &str) -> usize {
    let mut chars = word.char_indices().peekable();
    let mut before = None;
    while let Some((at, char)) = chars.next() {
        let next_is_lower = chars.peek().is_some_and(|(_, next)| next.is_lowercase());
        let begins = before.is_some_and(|before: char| {
            let hump =
                char.is_uppercase() && (before.is_lowercase() || (before.is_uppercase() && next_is_lower));
            hump || before.is_numeric() != char.is_numeric()
        });
        if begins && !is_mark(char) {
            return at;
        }
        before = Some(char);
    }
    word.len()
}

/// The form a word is indexed by: lower case, without accents, an English stem where it is written in ASCII.
fn stem(word: &str) -> String {
    stem_written(written(word))
}

/// A word in lower case, without accents and possession.
fn written(word: &str) -> String {
    let plain = plain(word);
    plain.strip_suffix("'s").map_or_else(|| plain.replace('\'', ""), str::to_owned)
}

fn stem_written(plain: String) -> String {
    if !plain.is_ascii() || plain.len() < 3 {
        return plain;
    }
    if let Some(regular) = irregular::regular(&plain) {
        return ENGLISH.stem(regular).into_owned();
    }
    ENGLISH.stem(&american(plain)).into_owned()
}

fn plain(word: &str) -> String {
    if word.is_ascii() {
        return word.to_ascii_lowercase();
    }
    let mut plain = String::with_capacity(word.len());
    for char in word.nfd().filter(|char| !is_mark(*char)).flat_map(char::to_lowercase) {
        match char {
            'ß' => plain.push_str("ss"),
            'æ' => plain.push_str("ae"),
            'œ' => plain.push_str("oe"),
            'ø' => plain.push('o'),
            'ł' => plain.push('l'),
            '’' => plain.push('\''),
            _ => plain.push(char),
        }
    }
    plain
}

/// British endings as American ones. Words that only look British change on both sides alike.
fn american(word: String) -> String {
    const ENDINGS: [(&str, &str); 12] = [
        ("isation", "ization"),
        ("isations", "izations"),
        ("ise", "ize"),
        ("ised", "ized"),
        ("ises", "izes"),
        ("ising", "izing"),
        ("our", "or"),
        ("ours", "ors"),
        ("oured", "ored"),
        ("ouring", "oring"),
        ("yse", "yze"),
        ("ysed", "yzed"),
    ];
    let ending =
        ENDINGS.iter().find(|(british, _)| word.len() >= british.len() + 3 && word.ends_with(british));
    match ending {
        Some((british, american)) => {
            word.strip_suffix(british).map(|stem| format!("{stem}{american}")).unwrap_or(word)
        }
        None => word,
    }
}
