//! What is found, where, and in what order.

use super::*;

#[tokio::test]
async fn the_best_passage_comes_first_with_its_real_lines() {
    let desk = Desk::new();
    let mut lines: Vec<String> = (1..=35).map(|line| format!("line {line} about nothing")).collect();
    lines[22] = "line 23: the turbine needs oil, and the turbine turns".to_owned();
    let id = desk.add(&me(), "long.txt", &lines.join("\n")).await;
    desk.add(&me(), "other.txt", &format!("a turbine, once, {}", "and many other words ".repeat(40))).await;
    let found = desk.ok(&me(), "search_content", json!({"query": "turbines"})).await;
    assert_eq!(found["count"], json!(2), "{found}");
    let first = &found["results"][0];
    assert_eq!(first["contentId"], json!(id));
    assert_eq!(first["chunkId"], json!(format!("chunk_{id}_2")));
    assert_eq!((&first["filename"], &first["lineRange"]), (&json!("long.txt"), &json!([21, 30])));
    assert!(first["matchedText"].as_str().unwrap().contains("turbine"), "{first}");
    let score = |number: usize| found["results"][number]["score"].as_f64().unwrap();
    assert!(1.0 > score(0) && score(0) > score(1) && score(1) > 0.0, "{found}");
    let range = json!({"content_id": id, "from_line": 21, "to_line": 30});
    let read = desk.ok(&me(), "read_content", range).await;
    assert!(read["content"].as_str().unwrap().contains("line 23: the turbine"), "{read}");
}

#[tokio::test]
async fn options_bound_what_is_returned() {
    let desk = Desk::new();
    for number in 0..12 {
        desk.add(&me(), &format!("{number}.txt"), "turbine").await;
    }
    let count = async |arguments: Value| desk.ok(&me(), "search_content", arguments).await["count"].clone();
    assert_eq!(count(json!({"query": "turbine"})).await, json!(10));
    assert_eq!(count(json!({"query": "turbine", "options": {"top_n": 3}})).await, json!(3));
    assert_eq!(count(json!({"query": "turbine", "options": {"topN": "100"}})).await, json!(12));
    assert_eq!(count(json!({"query": "turbine", "options": {"threshold": 0.99}})).await, json!(0));
    for options in [json!({"top_n": 0}), json!({"top_n": 101}), json!({"threshold": 2}), json!({"depth": 1})]
    {
        assert_eq!(
            desk.err(&me(), "search_content", json!({"query": "x", "options": options})).await.0,
            -32602
        );
    }
    assert_eq!(desk.err(&me(), "search_content", json!({"query": "x".repeat(5000)})).await.0, -32602);
}

#[tokio::test]
async fn nothing_is_found_without_words_and_that_is_no_error() {
    let desk = Desk::new();
    assert_eq!(desk.ok(&me(), "search_content", json!({})).await, json!({"results": [], "count": 0}));
    desk.add(&me(), "a.txt", "turbine").await;
    for query in ["", "   ", "zebra", "?!"] {
        let found = desk.ok(&me(), "keywordSimilaritySearch", json!({"query": query})).await;
        assert_eq!(found, json!({"results": [], "count": 0}), "{query:?}");
    }
}

#[tokio::test]
async fn letters_inside_words_and_names_are_found_last_and_without_a_score() {
    let desk = Desk::new();
    desk.add(&me(), "urbane.txt", "nothing of the kind").await;
    desk.add(&me(), "a.txt", "the turbines").await;
    let found = desk.ok(&me(), "search_content", json!({"query": "urb"})).await;
    assert_eq!(found["count"], json!(2), "{found}");
    assert!(found["results"].as_array().unwrap().iter().all(|one| one["score"] == json!(0.0)), "{found}");
    let cut = json!({"query": "urb", "options": {"threshold": 0.01}});
    assert_eq!(desk.ok(&me(), "search_content", cut).await["count"], json!(0));
}

#[tokio::test]
async fn passages_are_cut_between_characters() {
    let desk = Desk::new();
    let text = format!("{}터빈 수리{}", "가나다라마바사 ".repeat(40), " é😀語".repeat(60));
    desk.add(&me(), "한글.txt", &text).await;
    let found = desk.ok(&me(), "search_content", json!({"query": "터빈"})).await;
    let shown = found["results"][0]["matchedText"].as_str().unwrap();
    assert!(shown.contains("터빈") && text.contains(shown), "{shown}");
    assert!(shown.chars().count() <= 210, "{}", shown.chars().count());
}

#[tokio::test]
async fn a_small_session_is_not_starved_by_a_large_one() {
    let desk = Desk::new();
    for number in 0..60 {
        desk.add(&cx("large"), &format!("{number}.txt"), "turbine turbine turbine").await;
    }
    desk.add(&cx("small"), "mine.txt", "one turbine among many other words").await;
    assert_eq!(desk.found(&cx("small"), "turbine").await, ["mine.txt"]);
}

#[tokio::test]
async fn a_search_that_may_miss_something_says_so() {
    let desk = Desk::with_index_budget(20_000);
    for name in ["qqq", "www", "zzz"] {
        let words = ('a'..='z').flat_map(|one| ('a'..='z').map(move |two| format!("{name}{one}{two} ")));
        desk.add(&me(), name, &words.collect::<String>()).await;
    }
    for (query, count) in [("qqqxy", 1), ("zzzxy", 1), ("turbine", 0)] {
        let result = desk.result(&me(), "search_content", json!({"query": query})).await;
        let (found, text) = (&result["structuredContent"], result["content"][0]["text"].as_str().unwrap());
        assert_eq!(found["count"], json!(count), "{found}");
        let note = found["note"].as_str().unwrap();
        assert!(note.contains("the words of 2 of its 3 texts") && text.ends_with(note), "{query}: {text}");
    }
    let others = desk.ok(&cx("other"), "search_content", json!({"query": "x"})).await;
    assert_eq!(others.get("note"), None, "another session has room");
    let listed = desk.ok(&me(), "list_contents", json!({})).await;
    for newest in [0, 1] {
        desk.ok(&me(), "delete_content", json!({"content_id": listed["contents"][newest]["contentId"]}))
            .await;
    }
    let whole = desk.ok(&me(), "search_content", json!({"query": "qqqxy"})).await;
    assert_eq!(whole.get("note"), None, "nothing is left out any more");
}

#[tokio::test]
async fn a_search_sees_what_was_added_and_removed_before_it() {
    let desk = Desk::new();
    let mut ids = Vec::new();
    for number in 0..20 {
        ids.push(desk.add(&me(), &format!("{number:02}.txt"), "turbine").await);
        let expected = (number + 1).min(10);
        assert_eq!(desk.found(&me(), "turbine").await.len(), expected);
    }
    for id in ids.iter().take(9) {
        desk.ok(&me(), "delete_content", json!({"content_id": id})).await;
    }
    let all = json!({"query": "turbine", "options": {"top_n": 100}});
    assert_eq!(desk.ok(&me(), "search_content", all.clone()).await["count"], json!(11), "many are gone");
    desk.ok(&me(), "delete_content", json!({"content_id": ids[9]})).await;
    desk.add(&me(), "new.txt", "turbine").await;
    let found = desk.ok(&me(), "search_content", all).await;
    let names: BTreeSet<&str> =
        found["results"].as_array().unwrap().iter().map(|one| one["filename"].as_str().unwrap()).collect();
    let left: Vec<String> = (10..20).map(|number| format!("{number:02}.txt")).collect();
    assert_eq!(names, left.iter().map(String::as_str).chain(["new.txt"]).collect());
}

#[tokio::test]
async fn a_search_sees_what_another_process_did() {
    let desk = Desk::new();
    let other = Desk::at(&desk.folder, options());
    let id = desk.add(&me(), "a.txt", "turbine").await;
    assert_eq!(other.found(&me(), "turbine").await, ["a.txt"]);
    other.add(&me(), "b.txt", "another turbine").await;
    assert_eq!(desk.found(&me(), "another").await, ["b.txt"]);
    desk.ok(&me(), "delete_content", json!({"content_id": id})).await;
    assert_eq!(other.found(&me(), "turbine").await, ["b.txt"]);
}
