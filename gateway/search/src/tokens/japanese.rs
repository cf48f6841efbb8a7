//! Kana, and the Han characters of Japanese verbs.
//!
//! Inflection lives in the hiragana after a Han character, so the character is found without it; a compound verb is found
//! with and without the kana between its characters (申し込み, 申込).

use super::{Role, Run, Script, pairs};

/// Kana that part two words instead of holding one together.
const PARTICLES: [&str; 13] =
    ["の", "を", "が", "に", "は", "で", "と", "も", "へ", "や", "から", "まで", "など"];
/// Okurigana inside a compound is short.
const LONGEST_OKURIGANA: usize = 2;

/// Follows Han, hiragana, Han to find compounds with okurigana inside.
#[derive(Debug, Default)]
pub(super) struct Okurigana {
    before: Option<char>,
    between: bool,
}

impl Okurigana {
    /// A Han run: ends a compound, and may begin one.
    pub(super) fn han(&mut self, run: &Run<'_>, emit: &mut impl FnMut(&str, Role)) {
        let first = run.text.chars().next();
        if let (Some(before), true, false, Some(first)) = (self.before, self.between, run.alone, first) {
            emit(&String::from_iter([before, first]), Role::Part);
        }
        *self = Okurigana { before: run.text.chars().next_back(), between: false };
    }

    /// A hiragana run: may be inside one.
    pub(super) fn hiragana(&mut self, run: &Run<'_>) {
        let short = run.text.chars().count() <= LONGEST_OKURIGANA;
        self.between =
            !run.alone && short && run.script == Script::Hiragana && !PARTICLES.contains(&run.text);
    }
}

/// Hiragana: words of their own where they stand alone, else mostly grammar.
pub(super) fn hiragana(run: &str, alone: bool, emit: &mut impl FnMut(&str, Role)) {
    let single = run.chars().nth(1).is_none();
    if single && !alone {
        return;
    }
    let role = if alone { Role::Word } else { Role::Part };
    pairs(&folded(run), role, emit);
}

/// Katakana: words, mostly borrowed ones.
pub(super) fn katakana(run: &str, emit: &mut impl FnMut(&str, Role)) {
    let folded = folded(run);
    // サーバ and サーバー are one word; キー is not キ.
    let word = match folded.strip_suffix('ー') {
        Some(short) if short.chars().nth(1).is_some() => short,
        _ => &folded,
    };
    pairs(word, Role::Word, emit);
}

/// One spelling of kana: katakana, large, without the sounds that are written in two ways.
fn folded(run: &str) -> String {
    let mut folded = String::with_capacity(run.len());
    for char in run.chars() {
        let char = match char {
            '\u{3041}'..='\u{3096}' => char::from_u32(u32::from(char) + 0x60).unwrap_or(char),
            _ => char,
        };
        let large = match char {
            'ァ' => 'ア',
            'ィ' => 'イ',
            'ゥ' => 'ウ',
            'ェ' => 'エ',
            'ォ' => 'オ',
            'ッ' => 'ツ',
            'ャ' => 'ヤ',
            'ュ' => 'ユ',
            'ョ' => 'ヨ',
            'ヮ' => 'ワ',
            'ヂ' => 'ジ',
            'ヅ' => 'ズ',
            _ => char,
        };
        // ヴァ is バ, ヴィ is ビ, and so on; ヴ by itself is ブ.
        let voiced = folded.ends_with('ヴ').then_some(large).and_then(|vowel| match vowel {
            'ア' => Some('バ'),
            'イ' => Some('ビ'),
            'エ' => Some('ベ'),
            'オ' => Some('ボ'),
            _ => None,
        });
        match voiced {
            Some(voiced) => {
                folded.pop();
                folded.push(voiced);
            }
            None => folded.push(large),
        }
    }
    folded.replace('ヴ', "ブ")
}
