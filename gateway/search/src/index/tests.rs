//! Tests of `index`: ranking, and that a removed document leaves no trace.

use proptest::prelude::*;

use super::*;

fn index(texts: &[&str]) -> Index<usize> {
    let mut index = Index::default();
    for (id, text) in texts.iter().enumerate() {
        index.add(id, text);
    }
    index
}

fn found(index: &Index<usize>, query: &str) -> Vec<usize> {
    index.search(query, 10).iter().map(|ranked| *ranked.document).collect()
}

#[test]
fn a_score_is_bm25() {
    let index = index(&["red kite", "blue kite kite sky", "green sea"]);
    let ranked = index.search("kite", 10);
    // Three chunks, two of them with the word; lengths 2 and 4, on average 8/3.
    let rarity = (1.0_f64 + (3.0 - 2.0 + 0.5) / (2.0 + 0.5)).ln();
    let expected =
        |times: f64, length: f64| rarity * times * 2.2 / (times + 1.2 * (0.25 + 0.75 * length / (8.0 / 3.0)));
    assert_eq!(ranked.len(), 2);
    assert!((ranked[0].bm25 - expected(2.0, 4.0)).abs() < 1e-12);
    assert!((ranked[1].bm25 - expected(1.0, 2.0)).abs() < 1e-12);
    assert_eq!((*ranked[0].document, *ranked[1].document), (1, 0));
}

#[test]
fn rare_words_weigh_more_and_equal_answers_keep_their_order() {
    let index = index(&["pump valve", "pump seal", "pump bolt", "pump bolt"]);
    assert_eq!(found(&index, "pump seal")[0], 1);
    assert_eq!(found(&index, "bolt"), [2, 3]);
    assert_eq!(found(&index, "pump"), [0, 1, 2, 3]);
}

#[test]
fn grammar_does_not_outweigh_a_topic() {
    let index = index(&["how to do this and that with the other", "valves"]);
    assert_eq!(found(&index, "how do I do the valve")[0], 1);
    assert_eq!(found(&index, "how to"), [0]);
}

#[test]
fn a_topic_that_shares_its_stem_with_grammar_is_still_a_topic() {
    let index = index(&["one house in a row of them", "cans"]);
    assert_eq!(found(&index, "can house"), [0, 1]);
    assert_eq!(found(&index, "cans house"), [1, 0]);
}

#[test]
fn chunks_know_their_lines() {
    let text = (1..=23).map(|line| format!("line{line}\n")).collect::<Vec<_>>().concat();
    let index = index(&["first", &text]);
    let ranked = index.search("line23", 1);
    assert_eq!((ranked[0].chunk, ranked[0].lines), (2, LineRange { first: 21, last: 23 }));
}

#[test]
fn parts_of_compounds_are_found_in_both_directions() {
    let index = index(&["the timestamp is wrong", "a stamp on the letter", "Datenschutzerklärung"]);
    assert_eq!(found(&index, "stamp"), [1, 0]);
    assert_eq!(found(&index, "datenschutz"), [2]);
    assert!(found(&index, "timestamps").starts_with(&[0]));
}

#[test]
fn a_document_added_again_replaces_itself() {
    let mut index = index(&["old words"]);
    index.add(0, "new words");
    assert_eq!(found(&index, "old"), Vec::<usize>::new());
    assert_eq!(found(&index, "new"), [0]);
    assert!(index.remove(&0));
    assert!(!index.remove(&0));
    assert_eq!(index, Index::default());
}

#[test]
fn hostile_queries_and_texts_are_survived() {
    let words = (0..20_000).map(|word| format!("w{word}x ")).collect::<Vec<_>>().concat();
    let index = index(&[&words, &"y".repeat(4 << 20), &"한".repeat(1 << 20)]);
    assert!(index.search(&words.repeat(20), 100).len() <= 3);
    assert!(index.search(&"a ".repeat(1 << 20), 100).len() <= 3);
    assert!(index.search(&"\u{301}".repeat(1 << 16), 100).is_empty());
    assert!(index.search("", 100).is_empty());
    assert!(index.search("w1x", 0).is_empty());
}

#[test]
fn ten_short_documents_take_less_than_a_hundred_kilobytes() {
    let english = "The technician replaced two broken valves on the cooling pump before the night shift began. \
                   Invoices above ten thousand need two signatures, and receipts must be kept for ten years.\n";
    let korean = "서버를 재시작하기 전에 캐시를 비웠습니다. 사용자들이 비밀번호를 잊어버리면 이메일로 재설정 링크를 보냅니다.\n";
    let mut index = Index::default();
    for document in 0..10 {
        // Words that occur nowhere else are the expensive ones.
        let own = (0..20).map(|word| format!("own{document}word{word} ")).collect::<Vec<_>>().concat();
        index.add(document, &format!("{english}{korean}{own}"));
    }
    println!("{} bytes for 10 documents, {} for one term", index.memory(), size_of::<(Term, Postings)>());
    assert!(index.memory() < 100_000, "{}", index.memory());
}

proptest! {
    #[test]
    fn a_removed_document_leaves_no_trace(
        texts in proptest::collection::vec("([a-c]{1,2}[ \n]|[가-나]{2}[ \n]){0,30}", 1..6),
        gone in any::<prop::sample::Index>(),
    ) {
        let gone = gone.index(texts.len());
        let (mut removed, mut never) = (Index::default(), Index::default());
        for (id, text) in texts.iter().enumerate() {
            removed.add(id, text);
            if id != gone {
                never.add(id, text);
            }
        }
        prop_assert!(removed.remove(&gone));
        prop_assert_eq!(&removed, &never);
        prop_assert_eq!(removed.search("a b 가나", 9), never.search("a b 가나", 9));
    }

    #[test]
    fn searching_any_text_for_any_query_ends_well(text in any::<String>(), query in any::<String>()) {
        let index = index(&[&text, &query]);
        for ranked in index.search(&query, 5) {
            prop_assert!(ranked.bm25 > 0.0 && ranked.bm25.is_finite());
            prop_assert!(ranked.lines.first <= ranked.lines.last);
        }
    }
}
