//! Several callers at a time: nothing is lost, nothing is mixed, and nobody waits for another session.

use super::*;
use crate::indexes::IDLE;

#[tokio::test]
async fn sessions_and_principals_never_see_each_others_texts() {
    let desk = Desk::new();
    let id = desk.add(&me(), "secret.txt", "the turbine").await;
    let strangers =
        [cx("other"), Context::for_test(Principal::issued("local"), "s", None, None), cx("s\u{1f}"), cx("")];
    for stranger in &strangers {
        assert!(desk.filenames(stranger).await.is_empty());
        assert!(desk.found(stranger, "turbine").await.is_empty());
        for tool in ["read_content", "delete_content"] {
            let refused = desk.err(stranger, tool, json!({"content_id": id})).await;
            assert_eq!(refused, (-32603, format!("Content not found: {id}")));
        }
    }
    assert_eq!(desk.found(&me(), "turbine").await, ["secret.txt"], "what the owner has is untouched");
    desk.ok(&me(), "delete_content", json!({"content_id": id})).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn texts_that_come_at_once_are_all_kept_and_found() {
    let desk = Arc::new(Desk::new());
    let tasks = Group::new();
    for number in 0..50 {
        let desk = Arc::clone(&desk);
        tasks.spawn(async move {
            desk.add(&me(), &format!("{number}.txt"), &format!("turbine number{number}")).await;
            assert_eq!(desk.found(&me(), &format!("number{number}")).await, [format!("{number}.txt")]);
        });
    }
    tasks.settle(Duration::from_mins(1)).await;
    assert_eq!(desk.filenames(&me()).await.into_iter().collect::<BTreeSet<_>>().len(), 50);
    let found =
        desk.ok(&me(), "search_content", json!({"query": "turbine", "options": {"top_n": 100}})).await;
    assert_eq!(found["count"], json!(50));
}

#[tokio::test]
async fn a_session_whose_index_is_being_made_holds_up_nobody_else() {
    let desk = Desk::new();
    desk.add(&me(), "mine.txt", "turbine").await;
    desk.add(&cx("other"), "theirs.txt", "turbine").await;
    let indexes = &desk.content.0.indexes;
    let texts = desk.content.shelf(&me());
    let held = indexes.current(&me().store_scope(), &texts).await.unwrap();
    // Somebody wants to change the index that is in use, and waits.
    desk.add(&me(), "more.txt", "turbine").await;
    let (operation, me) = (json!({"query": "turbine"}), me());
    let mut waiting = std::pin::pin!(desk.ok(&me, "search_content", operation));
    tokio::select! {
        found = &mut waiting => panic!("{found} in spite of the lock"),
        found = async { desk.found(&cx("other"), "turbine").await } => assert_eq!(found, ["theirs.txt"]),
    }
    drop(held);
    assert_eq!(waiting.await["count"], json!(2));
}

#[tokio::test]
async fn a_search_that_is_given_up_leaves_an_index_for_the_next() {
    let desk = Desk::new();
    for number in 0..20 {
        desk.add(&me(), &format!("{number}.txt"), &"turbine ".repeat(100)).await;
    }
    for polls in 0..30 {
        let me = me();
        let mut search = std::pin::pin!(desk.found(&me, "turbine"));
        for _ in 0..polls {
            if tokio::time::timeout(Duration::ZERO, &mut search).await.is_ok() {
                break;
            }
        }
    }
    assert_eq!(desk.found(&me(), "turbine").await.len(), 10);
    let index =
        desk.content.0.indexes.current(&me().store_scope(), &desk.content.shelf(&me())).await.unwrap();
    assert_eq!(index.library.len(), 20);
}

#[tokio::test]
async fn an_index_that_nobody_asks_is_dropped_and_made_again() {
    let desk = Desk::new();
    desk.add(&me(), "a.txt", "turbine").await;
    let indexes = &desk.content.0.indexes;
    assert_eq!(indexes.load().0, 0, "adding needs none");
    desk.found(&me(), "turbine").await;
    assert_eq!(indexes.load().0, 1);
    // Only now, because time that stands still leaps ahead while the store is waited for.
    tokio::time::pause();
    tokio::time::advance(IDLE * 9 / 10).await;
    tokio::task::yield_now().await;
    assert_eq!(indexes.load().0, 1, "not before its time");
    tokio::time::advance(IDLE).await;
    tokio::task::yield_now().await;
    assert_eq!(indexes.load(), (0, 0));
    tokio::time::resume();
    assert_eq!(desk.found(&me(), "turbine").await, ["a.txt"]);
    assert_eq!(indexes.load().0, 1);
}

#[tokio::test]
async fn the_end_of_a_session_drops_its_index_and_no_other() {
    let desk = Desk::new();
    for session in ["a", "b"] {
        desk.found(&cx(session), "turbine").await;
    }
    let indexes = &desk.content.0.indexes;
    let stranger = SessionKey { principal: Principal::issued("x"), session: "a".into() };
    desk.backend.session_ended(&stranger);
    assert_eq!(indexes.load().0, 2);
    desk.backend.session_ended(&cx("a").session_key());
    assert!(!indexes.has(&cx("a").store_scope()) && indexes.has(&cx("b").store_scope()));
}

#[tokio::test]
async fn the_index_that_was_not_used_for_longest_makes_room() {
    let desk = Desk::new();
    for session in ["a", "b", "c"] {
        desk.add(&cx(session), "a.txt", &"turbine number one ".repeat(50)).await;
    }
    let scope = |session: &str| cx(session).store_scope();
    let ask = async |indexes: &Arc<Indexes>, session: &str| {
        indexes.current(&scope(session), &desk.content.shelf(&cx(session))).await.unwrap().memory()
    };
    let one = ask(&Indexes::new(), "a").await;
    let indexes = Indexes::with_budget(2 * one + one / 2);
    for session in ["a", "b", "a", "c"] {
        ask(&indexes, session).await;
    }
    assert!(indexes.has(&scope("a")) && !indexes.has(&scope("b")) && indexes.has(&scope("c")));
    assert_eq!(indexes.load(), (2, 2 * one));
    let narrow = Indexes::with_budget(1);
    assert_eq!((ask(&narrow, "a").await, ask(&narrow, "b").await), (one, one));
    assert!(!narrow.has(&scope("a")) && narrow.has(&scope("b")), "one is there for its own search at least");
}

#[tokio::test]
async fn one_session_has_its_part_of_the_budget_and_the_rest_is_found_literally() {
    let desk = Desk::new();
    let mut texts = hash::Map::default();
    // No word is like one of another text.
    let letters = |word: u32| [word / 25, word % 25].map(|digit| char::from_digit(digit + 10, 36).unwrap());
    for name in ["aaa", "bbb", "ccc", "ddd"] {
        let text =
            (0..500).map(|word| format!("{name}{} ", String::from_iter(letters(word)))).collect::<Vec<_>>();
        let text = text.concat();
        texts.insert(desk.add(&me(), name, &text).await, text);
    }
    let indexes = Indexes::with_budget(100_000);
    let current = async || indexes.current(&me().store_scope(), &desk.content.shelf(&me())).await.unwrap();
    let scores = async |query: &str| {
        let hits = current().await.library.search(query, 10, 0.0, |one| texts.get(one.id()).cloned());
        hits.into_iter().map(|hit| (hit.document.filename().to_owned(), hit.score > 0.0)).collect::<Vec<_>>()
    };
    assert_eq!(scores("aaabc").await, [("aaa".to_owned(), true)]);
    assert_eq!(scores("dddbc").await, [("ddd".to_owned(), false)]);
    let whole =
        Indexes::new().current(&me().store_scope(), &desk.content.shelf(&me())).await.unwrap().memory();
    assert!(current().await.memory() < 100_000 && whole > 150_000, "{whole}");
    let listed = desk.ok(&me(), "list_contents", json!({})).await;
    for older in [1, 2, 3] {
        desk.ok(&me(), "delete_content", json!({"content_id": listed["contents"][older]["contentId"]})).await;
    }
    assert_eq!(scores("dddbc").await, [("ddd".to_owned(), true)], "there is room for its words now");
}

#[tokio::test]
async fn a_text_is_deleted_once() {
    let desk = Arc::new(Desk::new());
    for _ in 0..20 {
        let id = desk.add(&me(), "a.txt", "x").await;
        let delete = async || {
            let result = desk.result(&me(), "delete_content", json!({"content_id": id})).await;
            result["isError"] == json!(false)
        };
        let deleted = tokio::join!(delete(), delete(), delete());
        assert_eq!(u8::from(deleted.0) + u8::from(deleted.1) + u8::from(deleted.2), 1, "{deleted:?}");
    }
}
