//! Tests of `tokens`: which forms of a word meet in a term, and which words keep apart.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn all(text: &str) -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    terms(text, &mut |term, _| _ = found.insert(term.to_owned()));
    found
}

fn words(text: &str) -> Vec<String> {
    let mut found = Vec::new();
    terms(text, &mut |term, role| {
        if role != Role::Part {
            found.push(term.to_owned());
        }
    });
    found
}

#[test]
fn forms_of_a_word_meet() {
    let cases = [
        // English: plural, tense, irregular forms, derivation, spelling, possession, accents.
        ("deployments", "deployed"),
        ("studies", "studying"),
        ("mice", "mouse"),
        ("wrote", "writing"),
        ("analyses", "analysis"),
        ("analysing", "analyzed"),
        ("colour", "colors"),
        ("organisation", "organized"),
        ("user's", "users"),
        ("café", "CAFES"),
        ("Straße", "strasse"),
        // Compounds.
        ("rateLimiter", "limiting rates"),
        ("HTTPServer", "http servers"),
        ("e-mail", "email"),
        ("snake_case_name", "names"),
        ("sha256", "SHA"),
        // Widths.
        ("ＡＢＣ１２３", "abc123"),
        ("ｶﾞｲﾄﾞ", "ガイド"),
        // Korean: particles, endings, contraction, irregular verbs, derived verbs, plural.
        ("서버를", "서버에서는"),
        ("달렸습니다", "달리는"),
        ("달려서", "달린"),
        ("마셨다", "마시면"),
        ("도왔다", "돕는"),
        ("들었다", "듣고"),
        ("지은", "짓다"),
        ("흘러", "흐르는"),
        ("올랐다", "오르면"),
        ("바빠서", "바쁜"),
        ("썼다", "쓰는"),
        ("어려웠다", "어려운"),
        ("배포했습니다", "배포를"),
        ("먹었다", "먹는"),
        ("사람들이", "사람은"),
        ("배포자동화", "배포 자동화"),
        // Japanese: inflection, okurigana, long vowels, kana, Chinese: compounds, separable verbs.
        ("走った", "走る"),
        ("申し込み", "申込"),
        ("サーバー", "サーバ"),
        ("りんご", "リンゴ"),
        ("ヴァイオリン", "バイオリン"),
        ("ウィンドウ", "ウインドウ"),
        ("数据库", "数据"),
        ("见了面", "见面"),
        ("слово", "Слово"),
        ("ภาษาไทย", "ภาษา"),
    ];
    for (left, right) in cases {
        let shared = all(left).intersection(&all(right)).cloned().collect::<Vec<_>>();
        assert!(!shared.is_empty(), "{left} {:?} and {right} {:?}", all(left), all(right));
    }
}

#[test]
fn other_words_keep_apart() {
    for (left, right) in [
        ("house", "mouse"),
        ("general", "generous"),
        ("ground", "grind"),
        ("left", "leave"),
        ("package", "pack"),
        ("food", "feed"),
        ("서버", "회의"),
        ("走る", "歩く"),
        ("数据", "服务"),
        ("12", "21"),
    ] {
        assert!(all(left).is_disjoint(&all(right)), "{left} {:?} and {right} {:?}", all(left), all(right));
    }
}

#[test]
fn words_of_a_text_are_counted_once_each() {
    assert_eq!(words("The pumps' seals, re-checked."), ["the", "pump", "seal", "re", "check"]);
    assert_eq!(words("서버를 점검했다"), ["서버", "점검"]);
    assert_eq!(words("図書館"), ["図書", "書館"]);
    assert_eq!(words("本"), ["本"]);
    assert_eq!(words(" \n-_'.,!? …"), Vec::<String>::new());
}

#[test]
fn grammar_is_seen_in_the_word_as_it_is_written() {
    let common = |text: &str| {
        let mut roles = Vec::new();
        terms(text, &mut |_, role| roles.push(role));
        roles == [Role::Common]
    };
    for word in ["can", "Does", "it's", "the", "WILL"] {
        assert!(common(word), "{word}");
    }
    for word in
        ["cans", "willing", "mining", "mines", "mine", "found", "findings", "shown", "telling", "others"]
    {
        assert!(!common(word), "{word}");
    }
}

#[test]
fn particles_that_only_look_so_stay() {
    for noun in ["가을", "마을", "보고서", "사용자", "사과", "경로", "온도"] {
        let first_pair = noun.chars().take(2).collect::<String>();
        assert!(all(noun).contains(&first_pair), "{noun} {:?}", all(noun));
    }
}

#[test]
fn a_word_without_end_is_one_short_term() {
    let found = words(&"a".repeat(1 << 20));
    assert_eq!(found.len(), 1);
    assert!(found[0].len() <= 40);
}

#[test]
fn a_query_is_read_up_to_its_limit_and_no_character_is_cut() {
    let query = "한".repeat(10_000);
    assert!(bounded(&query).len() <= MAX_QUERY);
    assert!(bounded(&query).chars().all(|char| char == '한'));
}

proptest! {
    #[test]
    fn any_text_has_terms_and_none_is_empty(text in any::<String>()) {
        terms(&text, &mut |term, _| assert!(!term.is_empty(), "{text:?}"));
    }

    #[test]
    fn texts_of_these_scripts_have_terms(text in "[a-zA-Z0-9'’\\-가-힣ㄱ-ㅎぁ-んァ-ヶー々一-龥ก-๛\u{300}-\u{36f}ｦ-ﾟ \n]{0,60}") {
        terms(&text, &mut |term, _| assert!(!term.is_empty() && term.len() < 200, "{text:?}"));
    }

    #[test]
    fn forms_of_unicode_make_no_difference(text in "[가-힣a-zéüガ-ゴ]{1,12}") {
        let decomposed = text.nfd().collect::<String>();
        prop_assert_eq!(all(&text), all(&decomposed));
    }
}
