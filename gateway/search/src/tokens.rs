//! Turns a text into the terms it is found by. Queries and documents go through the same function, so that what differs
//! only in form (plural, tense, particle, width, compound) meets in the same terms.
//!
//! | Script | Terms |
//! | --- | --- |
//! | Latin | the English stem of each word without accents; irregular forms by a table; the parts of `camelCase` and `hy-phens` |
//! | Hangul | pairs of syllables without particles and endings; the verb's stem with contractions undone (`~`) |
//! | Han | pairs, and each character for itself; pairs across okurigana |
//! | Kana | pairs, hiragana as katakana, small as large, without a last long vowel |
//! | scripts without spaces | pairs |
//! | other letters | the word in lower case |

use unicode_normalization::UnicodeNormalization;

mod hangul;
mod irregular;
mod japanese;
mod latin;

/// How many terms of a query are looked up; what comes after them is not read.
pub const MAX_QUERY_TERMS: usize = 128;
/// How many bytes of a query are read.
const MAX_QUERY: usize = 4096;

/// How much a term says about what its text is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// A word or a pair: counts towards the length of a text.
    Word,
    /// A word as well, but grammar: it says nothing by itself in an English question.
    Common,
    /// Another form or a piece of a word that is there as well: found by, but worth less.
    Part,
}

/// Calls `emit` for each term of `text`, in order.
pub fn terms(text: &str, emit: &mut impl FnMut(&str, Role)) {
    let normal;
    let text = if text.is_ascii() {
        text
    } else {
        normal = text.nfkc().filter(|char| !is_ignored(*char)).collect::<String>();
        &normal
    };
    // A word may be nothing but accents, which are not looked at.
    let emit = &mut |term: &str, role| {
        if !term.is_empty() {
            emit(term, role);
        }
    };
    let mut runs = Runs { text, previous: None }.peekable();
    let mut joined = latin::Hyphens::default();
    let mut okurigana = japanese::Okurigana::default();
    while let Some(run) = runs.next() {
        let alone = run.alone && runs.peek().is_none_or(|next| next.alone);
        match run.script {
            Script::Word => latin::word(run, &mut joined, emit),
            Script::Hangul => hangul::word(run.text, emit),
            Script::Han => {
                okurigana.han(&run, emit);
                han(run.text, emit);
            }
            Script::Hiragana => {
                okurigana.hiragana(&run);
                japanese::hiragana(run.text, alone, emit);
            }
            Script::Katakana => japanese::katakana(run.text, emit),
            Script::Unspaced => pairs(run.text, Role::Word, emit),
        }
    }
}

/// The part of a query that is read.
pub fn bounded(query: &str) -> &str {
    query.get(..query.floor_char_boundary(MAX_QUERY)).unwrap_or(query)
}

/// Whether a word, as it is written, says nothing by itself in an English question.
pub fn is_common(word: &str) -> bool {
    irregular::is_common(word)
}

/// Whether one Chinese, Japanese or Korean character is all a query says: too little to rank by.
pub(crate) fn is_one_character(query: &str) -> bool {
    let mut scripts = query.nfkc().filter_map(Script::of);
    let alone = scripts.next().filter(|_| scripts.next().is_none());
    matches!(alone, Some(Script::Hangul | Script::Han | Script::Hiragana | Script::Katakana))
}

/// Characters that are written but not meant: soft hyphens and zero-width marks.
fn is_ignored(char: char) -> bool {
    matches!(char, '\u{ad}' | '\u{200b}'..='\u{200d}' | '\u{2060}' | '\u{feff}' | '\u{fe00}'..='\u{fe0f}')
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Script {
    /// Letters and digits of scripts that part words by spaces.
    Word,
    Hangul,
    Han,
    Hiragana,
    Katakana,
    /// Scripts that are written without spaces and without a rule of their own here.
    Unspaced,
}

impl Script {
    fn of(char: char) -> Option<Script> {
        match char {
            '0'..='9' | 'A'..='Z' | 'a'..='z' => Some(Script::Word),
            '\0'..='\u{7f}' => None,
            '가'..='힣' | '\u{1100}'..='\u{11ff}' | '\u{3131}'..='\u{318e}' => Some(Script::Hangul),
            '\u{3041}'..='\u{3096}' | 'ゝ' | 'ゞ' => Some(Script::Hiragana),
            '\u{30a1}'..='\u{30fa}' | 'ー' | 'ヽ' | 'ヾ' => Some(Script::Katakana),
            '々'
            | '〇'
            | '\u{3400}'..='\u{4dbf}'
            | '\u{4e00}'..='\u{9fff}'
            | '\u{f900}'..='\u{faff}'
            | '\u{20000}'..='\u{3ffff}' => Some(Script::Han),
            // Thai, Lao, Tibetan, Myanmar, Khmer.
            '\u{e00}'..='\u{fff}' | '\u{1000}'..='\u{109f}' | '\u{1780}'..='\u{17ff}' => {
                Some(Script::Unspaced)
            }
            _ if char.is_alphanumeric() || is_mark(char) => Some(Script::Word),
            _ => None,
        }
    }
}

fn is_mark(char: char) -> bool {
    unicode_normalization::char::is_combining_mark(char)
}

/// A stretch of one script.
#[derive(Debug, Clone, Copy)]
struct Run<'a> {
    text: &'a str,
    script: Script,
    /// What stands between it and the run before it.
    gap: &'a str,
    /// Whether something stands between, or nothing was before it.
    alone: bool,
}

struct Runs<'a> {
    text: &'a str,
    previous: Option<Script>,
}

impl<'a> Iterator for Runs<'a> {
    type Item = Run<'a>;

    fn next(&mut self) -> Option<Run<'a>> {
        let start = self.text.find(|char| Script::of(char).is_some())?;
        let (gap, rest) = self.text.split_at(start);
        let script = rest.chars().next().and_then(Script::of)?;
        let end = run_end(rest, script);
        let (text, after) = rest.split_at(end);
        self.text = after;
        let alone = !gap.is_empty() || self.previous.is_none();
        self.previous = Some(script);
        Some(Run { text, script, gap, alone })
    }
}

/// Where the run that `text` begins with ends.
fn run_end(text: &str, script: Script) -> usize {
    let mut chars = text.char_indices().peekable();
    while let Some((at, char)) = chars.next() {
        let goes_on = if let Some(own) = Script::of(char) {
            // An accent belongs to whatever it stands on; a long vowel mark to the kana before it.
            own == script || is_mark(char) || (char == 'ー' && script == Script::Hiragana)
        } else {
            let next = chars.peek().and_then(|(_, next)| Script::of(*next));
            matches!(char, '\'' | '’') && script == Script::Word && next == Some(Script::Word)
        };
        if !goes_on {
            return at;
        }
    }
    text.len()
}

fn han(run: &str, emit: &mut impl FnMut(&str, Role)) {
    pairs(run, Role::Word, emit);
    if run.chars().nth(1).is_some() {
        each(run, emit);
    }
}

/// Every character for itself.
fn each(run: &str, emit: &mut impl FnMut(&str, Role)) {
    let mut buffer = [0; 4];
    run.chars().for_each(|char| emit(char.encode_utf8(&mut buffer), Role::Part));
}

/// The overlapping pairs of a run; a single character stays.
fn pairs(run: &str, role: Role, emit: &mut impl FnMut(&str, Role)) {
    let mut starts = run.char_indices().map(|(at, _)| at).chain([run.len()]);
    let Some(mut start) = starts.next() else { return };
    let Some(mut middle) = starts.next() else { return };
    let mut any = false;
    for end in starts {
        emit(run.get(start..end).unwrap_or_default(), role);
        (start, middle) = (middle, end);
        any = true;
    }
    if !any {
        emit(run.get(start..middle).unwrap_or_default(), role);
    }
}

#[cfg(test)]
mod tests;
