//! Korean words without their particles and endings.
//!
//! Two steps, because an ending can look like the end of a noun. What surely is an ending is cut off, and the pairs of the
//! rest are terms. What may be one is cut off as well, but only for one more term, the *root* (marked `~`): its last two
//! syllables with the vowels and finals undone that contraction and inflection change, so that 달리다, 달려서, 달렸습니다
//! and 달린 all have ~달리.

use super::{Role, pairs};

/// Endings that are cut off wherever they stand after at least one syllable, longest first within a length.
const SURE: &[&str] = &[
    "으로부터",
    "로부터",
    "에서부터",
    "이었습니다",
    "었습니다",
    "았습니다",
    "였습니다",
    "겠습니다",
    "습니다",
    "습니까",
    "입니다",
    "입니까",
    "십시오",
    "으세요",
    "세요",
    "에게서",
    "한테서",
    "으로서",
    "으로써",
    "에게",
    "한테",
    "에서",
    "께서",
    "으로",
    "까지",
    "부터",
    "마다",
    "조차",
    "마저",
    "밖에",
    "보다",
    "처럼",
    "만큼",
    "대로",
    "라도",
    "이라도",
    "든지",
    "이든지",
    "라고",
    "이라고",
    "라는",
    "이라는",
    "이라면",
    "이지만",
    "이며",
    "이란",
    "이랑",
    "이나",
    "인데",
    "면서",
    "으면서",
    "지만",
    "는데",
    "은데",
    "니까",
    "으니까",
    "으니",
    "으면",
    "으며",
    "으려고",
    "려고",
    "으려면",
    "려면",
    "어서",
    "아서",
    "어요",
    "아요",
    "어도",
    "아도",
    "어야",
    "아야",
    "었다",
    "았다",
    "였다",
    "었던",
    "았던",
    "였던",
    "었고",
    "았고",
    "었으",
    "았으",
    "거나",
    "도록",
    "자마자",
    "수록",
    "을수록",
    "는지",
    "을지",
    "을까",
    "네요",
    "군요",
    "지요",
    "는다",
    "어라",
    "아라",
    "기로",
    "었을",
    "았을",
    "어진",
    "아진",
    "어졌",
    "아졌",
    "어질",
    "아질",
    "어지",
    "아지",
    "하여",
    "하게",
    "하며",
    "하고",
    "하지",
    "었",
    "았",
    "였",
    "겠",
    "를",
    "는",
    "에",
];

/// Endings that nouns may end with, too: cut off only for the root.
const MAYBE: &[&str] = &[
    "이", "가", "은", "을", "의", "와", "과", "로", "도", "만", "나", "들", "고", "며", "면", "지", "기",
    "게", "다", "서", "요", "죠", "니", "자", "라", "야", "랑", "던", "든", "음", "어", "아", "여", "워",
    "운", "울", "움", "웠", "왔", "러", "들이", "네", "께", "뿐", "적", "인",
];

/// Verbs that make a verb of a noun; what stands before them is the word.
const LIGHT: [&str; 24] = [
    "하", "해", "했", "한", "할", "함", "합", "되", "돼", "됐", "된", "될", "됨", "됩", "시키", "시켜",
    "시켰", "시킨", "시킬", "시킴", "시킵", "받은", "받았", "받는",
];

/// Endings are cut off one after the other, but not without end.
const MOST_ENDINGS: usize = 5;

/// The terms of one word of Hangul.
pub(super) fn word(run: &str, emit: &mut impl FnMut(&str, Role)) {
    let bare = bare(run);
    pairs(bare, Role::Word, emit);
    // Each step may already be the root: 나왔 is 나오, but 도왔 is 돕.
    let mut step = Some(bare);
    for _ in 0..MOST_ENDINGS {
        let Some(root) = step else { break };
        if root.len() < bare.len() && root.chars().nth(1).is_none() {
            emit(root, Role::Part);
        }
        emit_root(root, emit);
        step = shorter(root);
    }
}

fn emit_root(root: &str, emit: &mut impl FnMut(&str, Role)) {
    let mut backwards = root.chars().rev();
    match (backwards.next(), backwards.next()) {
        (Some(second), Some(first)) => {
            let [first, second] = undone(first, second);
            emit(&format!("~{first}{second}"), Role::Part);
        }
        (Some(only), None) => emit(&format!("~{}", opened(only)), Role::Part),
        _ => {}
    }
}

/// The word without what surely is an ending.
fn bare(word: &str) -> &str {
    let mut bare = word;
    for _ in 0..MOST_ENDINGS {
        match without_ending(bare) {
            Some(shorter) => bare = shorter,
            None => break,
        }
    }
    bare
}

fn without_ending(word: &str) -> Option<&str> {
    let longest = SURE.iter().filter_map(|ending| word.strip_suffix(ending)).filter(|rest| !rest.is_empty());
    if let Some(rest) = longest.min_by_key(|rest| rest.len()) {
        return Some(rest);
    }
    // A noun of two syllables and more; the final of its last syllable says which particle it would have.
    let (at, particle) = word.char_indices().next_back()?;
    let rest = word.get(..at)?;
    let last = rest.chars().next_back()?;
    let noun = rest.chars().nth(1).is_some();
    let closed = final_of(last) != 0;
    let is_particle = match particle {
        '을' | '은' => closed,
        '이' | '과' => closed && noun,
        '가' | '와' => !closed && noun,
        '의' => noun,
        '로' => noun && (!closed || final_of(last) == RIEUL),
        // Only a verb in the past has such a final: 갔다, 했던.
        '다' | '던' | '고' | '지' => final_of(last) == SSANG_SIOT,
        _ => false,
    };
    // ㅂ니다 is written into the syllable before it.
    let polite = || {
        word.strip_suffix("니다")
            .filter(|rest| rest.chars().next_back().is_some_and(|last| final_of(last) == BIEUP))
    };
    let light = || light(word);
    if is_particle { Some(rest) } else { polite().or_else(light) }
}

/// The noun before a verb such as 하다, where it has two syllables and more.
fn light(word: &str) -> Option<&str> {
    LIGHT.iter().filter_map(|verb| word.strip_suffix(verb)).find(|rest| rest.chars().nth(1).is_some())
}

/// The word without one ending more, be it a sure or a possible one.
fn shorter(word: &str) -> Option<&str> {
    let possible =
        MAYBE.iter().filter_map(|ending| word.strip_suffix(ending)).filter(|rest| !rest.is_empty());
    possible.min_by_key(|rest| rest.len()).or_else(|| without_ending(word))
}

const FIRST: u32 = 0xac00;
const VOWELS: u32 = 21;
const FINALS: u32 = 28;
const RIEUL: u32 = 8;
const BIEUP: u32 = 17;
const SSANG_SIOT: u32 = 20;
/// ㄴ ㄷ ㄹ ㅁ ㅂ ㅅ ㅆ ㅎ: finals that inflection adds or takes away.
const MOVING: [u32; 8] = [4, 7, RIEUL, 16, BIEUP, 19, SSANG_SIOT, 27];

fn is_syllable(char: char) -> bool {
    ('가'..='힣').contains(&char)
}

fn final_of(syllable: char) -> u32 {
    if is_syllable(syllable) { (u32::from(syllable) - FIRST) % FINALS } else { 0 }
}

/// The end of a verb's stem with inflection undone.
fn undone(first: char, second: char) -> [char; 2] {
    // 흐르다 becomes 흘러, 오르다 becomes 올랐다.
    if final_of(first) == RIEUL && matches!(second, '라' | '러' | '랐' | '렀') {
        return [without_final(first), '르'];
    }
    [first, opened(second)]
}

fn without_final(syllable: char) -> char {
    if !is_syllable(syllable) {
        return syllable;
    }
    char::from_u32(u32::from(syllable) - final_of(syllable)).unwrap_or(syllable)
}

/// A syllable without a final that inflection may have added, its vowel as it was before contraction.
fn opened(syllable: char) -> char {
    if !is_syllable(syllable) {
        return syllable;
    }
    let code = u32::from(syllable) - FIRST;
    let (initial, vowel, last) = (code / FINALS / VOWELS, code / FINALS % VOWELS, code % FINALS);
    let last = if MOVING.contains(&last) { 0 } else { last };
    // Contractions happen in open syllables only: ㅕ was ㅣ, ㅘ was ㅗ, ㅝ was ㅜ, ㅙ was ㅚ; ㅏ, ㅐ and ㅓ may have been ㅡ.
    let vowel = match (vowel, last) {
        (6, 0) => 20,
        (9, 0) => 8,
        (14, 0) => 13,
        (10, 0) => 11,
        (0 | 1 | 4, 0) => 18,
        (vowel, _) => vowel,
    };
    char::from_u32(FIRST + (initial * VOWELS + vowel) * FINALS + last).unwrap_or(syllable)
}
