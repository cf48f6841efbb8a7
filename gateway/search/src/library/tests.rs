//! Tests of `library`: what is found, in which order, and which texts are asked for.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// A library and the texts its caller keeps.
#[derive(Default)]
struct Shelf {
    library: Library<&'static str>,
    texts: HashMap<&'static str, String>,
}

impl Shelf {
    fn with(mut self, id: &'static str, name: &str, text: &str) -> Shelf {
        self.library.add(id, name, text);
        self.texts.insert(id, text.to_owned());
        self
    }

    fn search(&self, query: &str, threshold: f64) -> Vec<Hit<&'static str>> {
        self.library.search(query, 10, threshold, |id| self.texts.get(id))
    }

    fn found(&self, query: &str, threshold: f64) -> Vec<&'static str> {
        self.search(query, threshold).iter().map(|hit| hit.document).collect()
    }
}

fn shelf() -> Shelf {
    Shelf::default()
        .with("pump", "maintenance.md", "The pumps were repaired.\nTwo seals were replaced.")
        .with("stock", "QUARTERLY-pump-stock.csv", "part,count\nseal,12\n")
        .with("korean", "회의록.txt", "펌프를 수리했다. 値段は高い。")
}

#[test]
fn words_come_before_what_is_only_found_literally() {
    let hits = shelf().search("pump", 0.0);
    assert_eq!(hits.iter().map(|hit| hit.document).collect::<Vec<_>>(), ["pump", "stock"]);
    assert!(hits[0].score > 0.0 && hits[0].score < 1.0);
    assert!(hits[1].score.abs() < f64::EPSILON);
    assert_eq!(hits[0].text, "The pumps were repaired.\nTwo seals were replaced.");
    assert_eq!(hits[0].lines, LineRange { first: 1, last: 2 });
    assert_eq!(hits[1].text, "part,count\nseal,12\n");
}

#[test]
fn any_threshold_above_zero_cuts_what_is_only_found_literally() {
    assert_eq!(shelf().found("pump", f64::MIN_POSITIVE), ["pump"]);
    assert_eq!(shelf().found("pump", 0.999), Vec::<&str>::new());
    assert_eq!(shelf().found("umps wer", 0.01), Vec::<&str>::new());
}

#[test]
fn a_piece_of_a_word_a_name_and_a_single_character_are_found_literally() {
    for (query, expected) in [
        ("umps wer", "pump"),
        ("UMPS WER", "pump"),
        ("ｓｔｏｃｋ．ｃ", "stock"),
        ("의록", "korean"),
        ("프", "korean"),
        ("値", "korean"),
        ("高", "korean"),
    ] {
        let hits = shelf().search(query, 0.0);
        assert_eq!(hits.iter().map(|hit| hit.document).collect::<Vec<_>>(), [expected], "{query}");
        assert!(hits[0].score.abs() < f64::EPSILON, "{query} {}", hits[0].score);
        assert_eq!(shelf().found(query, f64::MIN_POSITIVE), Vec::<&str>::new(), "{query}");
    }
}

#[test]
fn nothing_is_found_where_nothing_is() {
    for query in ["", "   ", "zebra", "\n", "?!"] {
        assert_eq!(shelf().found(query, 0.0), Vec::<&str>::new(), "{query:?}");
    }
    assert_eq!(Shelf::default().found("pump", 0.0), Vec::<&str>::new());
}

#[test]
fn a_removed_document_is_not_found_and_one_whose_text_is_gone_is_left_out() {
    let mut shelf = shelf();
    shelf.texts.remove("pump");
    assert_eq!(shelf.found("pump", 0.0), ["stock"]);
    assert!(shelf.library.remove(&"stock"));
    assert!(!shelf.library.remove(&"stock"));
    assert_eq!(shelf.found("pump", 0.0), Vec::<&str>::new());
    assert_eq!(shelf.library.len(), 2);
    assert!(shelf.library.contains(&"korean") && !shelf.library.contains(&"stock"));
}

#[test]
fn only_texts_that_are_needed_are_asked_for() {
    let shelf = shelf();
    let asked = |most, threshold| {
        let mut asked = Vec::new();
        shelf.library.search("pump", most, threshold, |id| {
            asked.push(*id);
            shelf.texts.get(id)
        });
        asked
    };
    assert_eq!(asked(1, 0.0), ["pump"]);
    assert_eq!(asked(10, 0.1), ["pump"]);
    assert_eq!(asked(10, 0.0), ["pump", "stock", "korean"]);
    assert_eq!(asked(0, 0.0), Vec::<&str>::new());
}

#[test]
fn an_empty_document_is_found_by_its_name() {
    let shelf = Shelf::default().with("empty", "todo.txt", "");
    let hits = shelf.search("todo", 0.0);
    assert_eq!((hits[0].chunk, hits[0].lines), (0, LineRange { first: 1, last: 1 }));
}

#[test]
fn each_chunk_that_holds_the_query_is_a_hit() {
    let text = (1..=30).map(|line| if line % 10 == 5 { "xabcx\n" } else { "filler\n" }).collect::<String>();
    let hits = Shelf::default().with("long", "long.txt", &text).search("abc", 0.0);
    let lines = hits.iter().map(|hit| (hit.chunk, hit.lines.first, hit.lines.last)).collect::<Vec<_>>();
    assert_eq!(lines, [(0, 1, 10), (1, 11, 20), (2, 21, 30)]);
}

#[test]
fn a_query_across_the_end_of_a_chunk_is_found_where_it_begins() {
    let text = (1..=30).map(|line| format!("row {line} ends\n")).collect::<Vec<_>>().concat();
    let shelf = Shelf::default().with("long", "long.txt", &text);
    for (query, chunk) in [("10 ends\nrow 11", 0), ("NDS\nROW 21 EN", 1), ("nds\nrow 30 ends", 2)] {
        let hits = shelf.search(query, 0.0);
        let literal =
            hits.iter().find(|hit| hit.chunk == chunk).unwrap_or_else(|| panic!("{query} {hits:?}"));
        assert!(chunk::chunk(&text, chunk).unwrap().text.contains(&literal.text));
    }
    let syllables = format!("{}가나\n다라\n", "\n".repeat(9));
    let hits = Shelf::default().with("korean", "korean.txt", &syllables).search("나\n다", 0.0);
    let literal = hits.iter().find(|hit| hit.chunk == 0).unwrap();
    assert_eq!(literal.lines, LineRange { first: 1, last: 10 });
    assert!(literal.text.ends_with("가나\n"), "{:?}", literal.text);
}

#[test]
fn texts_that_no_word_leads_to_are_read_up_to_a_budget_and_named_ones_first() {
    let ids = ["0", "1", "2", "3", "4", "5", "6", "7", "8", "9"];
    let text = "x".repeat(LITERAL_BYTES / 4);
    let mut shelf = ids.into_iter().fold(Shelf::default(), |shelf, id| shelf.with(id, "plain.txt", &text));
    shelf = shelf.with("named", "needle.txt", "nothing here");
    let mut asked = Vec::new();
    let hits = shelf.library.search("needle", 10, 0.0, |id| {
        asked.push(*id);
        shelf.texts.get(id)
    });
    assert_eq!(asked, ["named", "0", "1", "2", "3"]);
    assert_eq!(hits.len(), 1);
}

proptest! {
    #[test]
    fn hits_are_slices_of_their_documents_and_in_order(
        texts in proptest::collection::vec("[a-d가-다 \n]{0,80}", 1..5),
        query in "[a-d가-다 ]{0,5}",
        most in 0_usize..6,
    ) {
        let mut library = Library::default();
        for (id, text) in texts.iter().enumerate() {
            library.add(id, "name", text);
        }
        let hits = library.search(&query, most, 0.0, |id| texts.get(*id));
        prop_assert!(hits.len() <= most);
        prop_assert!(hits.is_sorted_by(|left, right| left.score >= right.score));
        for hit in &hits {
            let chunk = chunk::chunk(&texts[hit.document], hit.chunk).unwrap();
            prop_assert!(chunk.text.contains(&hit.text));
            prop_assert_eq!(chunk.lines, hit.lines);
        }
    }
}
