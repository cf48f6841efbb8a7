//! The tools as a client meets them, over the embedded store.

use std::{collections::BTreeSet, sync::Mutex};

use moongate_core::{
    Announcement, Backend, Call, Operation, Principal, Reply, clock::ClockHandle, task::Group,
};
use moongate_storage_sqlite::{Durability, Options, SqliteStore};
use moongate_upstream::{BuiltinBackend, ToolErrors};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;

mod adding;
mod finding;
mod sharing;

const HOUR: Duration = Duration::from_hours(1);
const DAY: Duration = Duration::from_hours(24);

/// One gateway's content backend; several may lie on the same folder.
struct Desk {
    backend: BuiltinBackend<Content, Content>,
    content: Content,
    stores: Arc<dyn Stores>,
    clock: ClockHandle,
    folder: Arc<TempDir>,
    heard: Arc<Mutex<Vec<Announcement>>>,
}

fn options() -> ContentOptions {
    let limits = ContentLimits { text: 10_000, file: 20_000, contents: 100, total: 100_000 };
    ContentOptions { roots: Vec::new(), retention: Some(30 * DAY), limits }
}

impl Desk {
    fn new() -> Self {
        Self::with(options())
    }

    fn with(options: ContentOptions) -> Self {
        Self::at(&Arc::new(tempfile::tempdir().unwrap()), options)
    }

    fn at(folder: &Arc<TempDir>, options: ContentOptions) -> Self {
        Self::open(folder, options, Indexes::new())
    }

    /// A desk whose indexes may take so many bytes together.
    fn with_index_budget(bytes: usize) -> Self {
        Self::open(&Arc::new(tempfile::tempdir().unwrap()), options(), Indexes::with_budget(bytes))
    }

    fn open(folder: &Arc<TempDir>, options: ContentOptions, indexes: Arc<Indexes>) -> Self {
        let (clock, handle) = Clock::settable(humantime::parse_rfc3339("2026-01-01T00:00:00Z").unwrap());
        let storage = Options { durability: Durability::Relaxed, clock: clock.clone() };
        let stores: Arc<dyn Stores> =
            Arc::new(SqliteStore::open(&folder.path().join("test.db"), storage).unwrap());
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hearing = Arc::clone(&heard);
        let changes = Changes::new(move |announcement| hearing.lock().unwrap().push(announcement));
        let content = Content::with_indexes(Arc::clone(&stores), changes, clock, options, indexes);
        Self {
            backend: BuiltinBackend::with_resources(content.clone(), content.clone(), ToolErrors::Result),
            content,
            stores,
            clock: handle,
            folder: Arc::clone(folder),
            heard,
        }
    }

    async fn call(&self, operation: Operation, cx: &Context) -> Result<Reply, CallError> {
        self.backend.call(Call::new(operation), cx).await
    }

    async fn result(&self, cx: &Context, tool: &str, arguments: Value) -> Value {
        let operation = Operation::CallTool { name: tool.into(), arguments: arguments.into() };
        self.call(operation, cx).await.unwrap().result.parse().unwrap()
    }

    /// The structured result of a call that must succeed.
    async fn ok(&self, cx: &Context, tool: &str, arguments: Value) -> Value {
        let result = self.result(cx, tool, arguments).await;
        assert_eq!(result["isError"], json!(false), "{tool}: {result}");
        result["structuredContent"].clone()
    }

    /// The code and the message of a call that must fail.
    async fn err(&self, cx: &Context, tool: &str, arguments: Value) -> (i64, String) {
        let result = self.result(cx, tool, arguments).await;
        assert_eq!(result["isError"], json!(true), "{tool}: {result}");
        let error = &result["structuredContent"]["error"];
        assert_eq!(result["content"][0]["text"], error["message"]);
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    /// Adds a text and returns its id.
    async fn add(&self, cx: &Context, filename: &str, text: &str) -> String {
        let added = self.ok(cx, "add_content", json!({"filename": filename, "content": text})).await;
        added["contentId"].as_str().unwrap().to_owned()
    }

    async fn filenames(&self, cx: &Context) -> Vec<String> {
        let listed = self.ok(cx, "list_contents", json!({})).await;
        let names = listed["contents"].as_array().unwrap().iter();
        names.map(|one| one["filename"].as_str().unwrap().to_owned()).collect()
    }

    /// The names of the files in which something was found, in order.
    async fn found(&self, cx: &Context, query: &str) -> Vec<String> {
        let found = self.ok(cx, "search_content", json!({"query": query})).await;
        let results = found["results"].as_array().unwrap();
        assert_eq!(found["count"], json!(results.len()));
        results.iter().map(|one| one["filename"].as_str().unwrap().to_owned()).collect()
    }
}

fn cx(session: &str) -> Context {
    Context::for_test(Principal::local(), session, None, None)
}

fn me() -> Context {
    cx("s")
}

#[tokio::test]
async fn a_text_is_added_listed_read_and_deleted() {
    let desk = Desk::new();
    let text = "first\nsecond\nthird\n";
    let added = desk.ok(&me(), "add_content", json!({"filename": "a.txt", "content": text})).await;
    let id = added["contentId"].as_str().unwrap();
    assert!(id.starts_with("content_"), "{id}");
    let expected = json!({"status": "added", "filename": "a.txt", "contentId": id, "sessionId": "s",
        "mimeType": "text/plain", "size": 19, "lineCount": 3, "chunkCount": 1, "preview": text,
        "uploadedAt": "2026-01-01T00:00:00.000Z", "lastAccessedAt": "2026-01-01T00:00:00.000Z"});
    assert_eq!(added, expected);
    let listed = desk.ok(&me(), "list_contents", json!({})).await;
    let item = json!({"contentId": id, "sessionId": "s", "filename": "a.txt", "mimeType": "text/plain", "size": 19,
        "lineCount": 3, "chunkCount": 1, "preview": text, "uploadedAt": "2026-01-01T00:00:00.000Z",
        "lastAccessedAt": "2026-01-01T00:00:00.000Z"});
    assert_eq!(listed, json!({"sessionId": "s", "contents": [item], "total": 1, "hasMore": false}));
    let read = desk.ok(&me(), "read_content", json!({"content_id": id, "from_line": 2, "to_line": 2})).await;
    assert_eq!(read, json!({"content": "second", "lineRange": [2, 2]}));
    let read = desk.ok(&me(), "readContent", json!({"contentId": id, "fromLine": "2"})).await;
    assert_eq!(read, json!({"content": "second\nthird\n", "lineRange": [2, 3]}));
    let deleted = desk.ok(&me(), "delete_content", json!({"content_id": id})).await;
    assert_eq!(deleted, json!({"contentId": id, "sessionId": "s"}));
    let listed = desk.ok(&me(), "list_contents", json!({})).await;
    assert_eq!(listed, json!({"sessionId": "s", "contents": [], "total": 0, "hasMore": false}));
    let gone = (-32603, format!("Content not found: {id}"));
    assert_eq!(desk.err(&me(), "read_content", json!({"content_id": id})).await, gone);
    assert_eq!(desk.err(&me(), "deleteContent", json!({"contentId": id})).await, gone);
}

#[tokio::test]
async fn reading_says_what_is_wrong_with_the_lines() {
    let desk = Desk::new();
    let id = desk.add(&me(), "a.txt", "1\n2\n3").await;
    for (arguments, message) in [
        (json!({}), "content_id is required"),
        (json!({"content_id": ""}), "content_id is required"),
        (json!({"content_id": id, "from_line": 4}), "from_line is 4, but the content has 3 lines"),
        (
            json!({"content_id": id, "from_line": 3, "to_line": 2}),
            "from_line must not be greater than to_line",
        ),
        (json!({"content_id": id, "from_line": 0}), "Error: from_line must be at least 1"),
    ] {
        assert_eq!(desk.err(&me(), "read_content", arguments).await, (-32602, message.to_owned()));
    }
    assert_eq!(
        desk.err(&me(), "delete_content", json!({})).await,
        (-32602, "content_id is required".to_owned())
    );
}

#[tokio::test]
async fn lists_come_in_pages_the_newest_first() {
    let desk = Desk::new();
    for number in 0..7 {
        desk.add(&me(), &format!("{number}.txt"), "x").await;
        // Some come in the same millisecond.
        desk.clock.advance(Duration::from_millis(number / 4));
    }
    let page = async |pagination: Value| {
        let listed = desk.ok(&me(), "list_content", json!({"pagination": pagination})).await;
        let names = listed["contents"].as_array().unwrap().iter().map(|one| one["filename"].clone());
        (names.collect::<Vec<_>>(), listed["total"].clone(), listed["hasMore"].clone())
    };
    let names = |numbers: &[u64]| numbers.iter().map(|n| json!(format!("{n}.txt"))).collect::<Vec<_>>();
    assert_eq!(page(json!({})).await, (names(&[6, 5, 4, 3, 2, 1, 0]), json!(7), json!(false)));
    assert_eq!(page(json!({"limit": 2})).await, (names(&[6, 5]), json!(7), json!(true)));
    assert_eq!(page(json!({"offset": 5, "limit": "2"})).await, (names(&[1, 0]), json!(7), json!(false)));
    assert_eq!(page(json!({"offset": 99})).await, (names(&[]), json!(7), json!(false)));
    let (code, _) = desk.err(&me(), "list_contents", json!({"pagination": {"limit": 1001}})).await;
    assert_eq!(code, -32602);
    let text = desk.result(&me(), "listContent", json!({})).await["content"][0]["text"].clone();
    assert!((0..7).all(|n| text.as_str().unwrap().contains(&format!("{n}.txt"))), "{text}");
}

#[tokio::test]
async fn texts_survive_a_restart_and_are_found_again() {
    let desk = Desk::new();
    let id = desk.add(&me(), "a.txt", "the pumps were repaired").await;
    let again = Desk::at(&desk.folder, options());
    drop(desk);
    assert_eq!(again.found(&me(), "repair").await, ["a.txt"]);
    let read = again.ok(&me(), "read_content", json!({"content_id": id})).await;
    assert_eq!(read["content"], json!("the pumps were repaired"));
}

#[tokio::test]
async fn what_nobody_uses_goes_and_what_is_used_stays() {
    let desk = Desk::new();
    let read = desk.add(&me(), "read.txt", "one").await;
    desk.add(&me(), "searched.txt", "searched").await;
    desk.add(&me(), "forgotten.txt", "forgotten").await;
    for _ in 0..3 {
        desk.clock.advance(20 * DAY);
        desk.ok(&me(), "read_content", json!({"content_id": read})).await;
        assert_eq!(desk.found(&me(), "searched").await, ["searched.txt"]);
    }
    assert_eq!(desk.filenames(&me()).await, ["searched.txt", "read.txt"]);
    let listed = desk.ok(&me(), "list_contents", json!({})).await;
    assert_eq!(listed["contents"][1]["lastAccessedAt"], json!("2026-03-02T00:00:00.000Z"));
    assert_eq!(desk.found(&me(), "forgotten").await, [""; 0], "what has gone is not found either");
    let purged = desk.stores.purge(desk.content.0.clock.millis()).await.unwrap();
    assert_eq!(purged, 2, "the text and what is known of it go together");
    assert_eq!(desk.filenames(&me()).await.len(), 2);
}

#[tokio::test]
async fn reading_again_and_again_does_not_write() {
    let desk = Desk::new();
    let id = desk.add(&me(), "a.txt", "one").await;
    let store = desk.stores.open(&me().store_scope());
    let written = async || store.summary(moongate_storage::Kind("content")).await.unwrap().newest;
    let before = written().await;
    for _ in 0..3 {
        desk.clock.advance(HOUR / 4);
        desk.ok(&me(), "read_content", json!({"content_id": id})).await;
        desk.found(&me(), "one").await;
    }
    assert_eq!(written().await, before);
    desk.clock.advance(HOUR / 2);
    desk.ok(&me(), "read_content", json!({"content_id": id})).await;
    assert!(written().await > before);
}

#[tokio::test]
async fn texts_that_are_kept_for_ever_stay() {
    let desk = Desk::with(ContentOptions { retention: None, ..options() });
    desk.add(&me(), "a.txt", "one").await;
    desk.clock.advance(10_000 * DAY);
    assert_eq!(desk.stores.purge(u64::MAX).await.unwrap(), 0);
    assert_eq!(desk.filenames(&me()).await, ["a.txt"]);
}

#[tokio::test]
async fn kept_texts_are_resources_of_their_session() {
    let desk = Desk::with(ContentOptions {
        limits: ContentLimits { contents: 1000, ..options().limits },
        ..options()
    });
    let mut ids = Vec::new();
    for number in 0..201 {
        ids.push(desk.add(&me(), &format!("{number}.txt"), "one\ntwo").await);
    }
    let (mut uris, mut after, mut pages) = (Vec::new(), None, 0);
    loop {
        let page = moongate_core::Resources::list(&desk.content, after.as_deref(), &me()).await.unwrap();
        assert!(page.resources.len() <= 100);
        uris.extend(page.resources.iter().map(|resource| resource.uri.to_string()));
        pages += 1;
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    assert_eq!((pages, &uris), (3, &ids.iter().map(|id| format!("content://{id}")).collect()));
    let uri: Arc<str> = uris[7].as_str().into();
    let read = desk.call(Operation::ReadResource { uri: uri.clone() }, &me()).await.unwrap();
    let expected = json!({"contents": [{"uri": &*uri, "mimeType": "text/plain", "text": "one\ntwo"}]});
    assert_eq!(read.result.parse::<Value>().unwrap(), expected);
    desk.call(Operation::Subscribe { uri: uri.clone() }, &me()).await.unwrap();
    let strangers = [cx("other"), Context::for_test(Principal::issued("me"), "s", None, None)];
    for (uri, whose) in [
        (uri.clone(), &strangers[0]),
        (uri.clone(), &strangers[1]),
        ("content://nothing".into(), &me()),
        ("content://".into(), &me()),
        ("file:///etc/passwd".into(), &me()),
    ] {
        for operation in
            [Operation::ReadResource { uri: uri.clone() }, Operation::Subscribe { uri: uri.clone() }]
        {
            let refused = desk.call(operation, whose).await.unwrap_err();
            assert_eq!(refused.kind, Kind::UnknownResource { uri: uri.clone() });
        }
    }
    desk.ok(&me(), "delete_content", json!({"content_id": ids[7]})).await;
    desk.call(Operation::Unsubscribe { uri }, &me()).await.unwrap();
}

/// Announced as what it is, the change of a caller's own resources makes nobody ask the other servers again.
#[tokio::test]
async fn a_text_that_comes_or_goes_changes_nothing_but_its_owners_resources() {
    let desk = Desk::new();
    let told = || std::mem::take(&mut *desk.heard.lock().unwrap());
    let mine = |change| Announcement { change, audience: Audience::Principal(Principal::local()) };
    let id = desk.add(&me(), "a.txt", "one").await;
    assert_eq!(told(), [mine(Change::OwnResources)]);
    desk.ok(&me(), "read_content", json!({"content_id": id})).await;
    desk.found(&me(), "one").await;
    assert_eq!(told(), []);
    desk.ok(&me(), "delete_content", json!({"content_id": id})).await;
    let gone = Change::Updated { uri: format!("content://{id}").into() };
    assert_eq!(told(), [mine(Change::OwnResources), mine(gone)]);
}

#[tokio::test]
async fn unknown_tools_are_refused() {
    let desk = Desk::new();
    let operation = Operation::CallTool { name: "no_such_tool".into(), arguments: Raw::empty_object() };
    assert_eq!(desk.call(operation, &me()).await.unwrap_err().kind, Kind::Unknown);
}
