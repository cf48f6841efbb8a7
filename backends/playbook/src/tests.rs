//! The tools as a client meets them, over the embedded store.

use std::time::Duration;

use moongate_core::{Backend, BoxFuture, Call, Operation, Principal, StoreScope, clock::ClockHandle};
use moongate_storage::{
    self as storage,
    store::{Batch, Kind, Put, Revision, Row, Rows, Store, Summary},
};
use moongate_storage_sqlite::{Durability, Options, SqliteStore};
use moongate_upstream::{BuiltinBackend, ToolErrors};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::library::MAX_PLAYBOOKS;

struct Desk {
    backend: BuiltinBackend<Playbook>,
    clock: ClockHandle,
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self::with(PlaybookOptions::default())
    }

    fn with(options: PlaybookOptions) -> Self {
        Self::at(tempfile::tempdir().unwrap(), options)
    }

    fn at(folder: tempfile::TempDir, options: PlaybookOptions) -> Self {
        let (clock, handle) = Clock::settable(humantime::parse_rfc3339("2026-01-01T00:00:00Z").unwrap());
        let storage = Options { durability: Durability::Relaxed, clock: clock.clone() };
        let stores = Arc::new(SqliteStore::open(&folder.path().join("test.db"), storage).unwrap());
        let playbook = Playbook::new(stores, clock, options);
        Self { backend: BuiltinBackend::new(playbook, ToolErrors::Result), clock: handle, folder }
    }

    async fn result(&self, cx: &Context, tool: &str, arguments: Value) -> Value {
        let operation = Operation::CallTool { name: tool.into(), arguments: arguments.into() };
        let reply = self.backend.call(Call::new(operation), cx).await.unwrap();
        reply.result.parse().unwrap()
    }

    /// The structured result and the text of a call that must succeed.
    async fn ok(&self, cx: &Context, tool: &str, arguments: Value) -> (Value, String) {
        let result = self.result(cx, tool, arguments).await;
        assert_eq!(result["isError"], json!(false), "{tool}: {result}");
        (result["structuredContent"].clone(), result["content"][0]["text"].as_str().unwrap().to_owned())
    }

    /// The structured result and the text of a call that must fail.
    async fn err(&self, cx: &Context, tool: &str, arguments: Value) -> (Value, String) {
        let result = self.result(cx, tool, arguments).await;
        assert_eq!(result["isError"], json!(true), "{tool}: {result}");
        (result["structuredContent"].clone(), result["content"][0]["text"].as_str().unwrap().to_owned())
    }

    async fn create(&self, cx: &Context, name: &str) -> String {
        let (created, _) = self.ok(cx, "create_playbook", json!({"name": name})).await;
        created["id"].as_str().unwrap().to_owned()
    }

    async fn names(&self, cx: &Context) -> Vec<String> {
        let (listed, _) = self.ok(cx, "list_playbooks", json!({})).await;
        listed["playbooks"]
            .as_array()
            .unwrap()
            .iter()
            .map(|one| one["name"].as_str().unwrap().to_owned())
            .collect()
    }
}

fn cx(session: &str, assistant: Option<&str>) -> Context {
    Context::for_test(Principal::local(), session, assistant, None)
}

fn me() -> Context {
    cx("s", Some("asst_1"))
}

fn trip() -> Value {
    json!({
        "name": "Trip",
        "goal": "A trip to {{city}} for {{days}} days",
        "initialCommand": "plan {{city}}",
        "inputs": [
            {"name": "city", "description": "Where to go"},
            {"name": "days", "description": "How long", "type": "number", "defaultValue": 3},
        ],
        "workflow": [{"description": "Find flights to {{city}}", "action": {"toolName": "search", "purpose": "flights"},
            "requiredData": ["city"], "outputVariable": "flights"}],
        "successCriteria": {"description": "All is booked", "requiredArtifacts": ["ticket"]},
    })
}

#[tokio::test]
async fn ctx_t4_the_owner_selects_its_playbook() {
    let desk = Desk::new();
    let id = desk.create(&me(), "mine").await;
    let (selected, _) = desk.ok(&me(), "select_playbook", json!({"id": id})).await;
    assert_eq!(selected["selected"], json!(id));
}

#[tokio::test]
async fn ctx_t5_and_t6_another_assistant_is_denied_everywhere() {
    let desk = Desk::new();
    let (owner, other) = (me(), cx("s", Some("asst_2")));
    let id = desk.create(&owner, "mine").await;
    for (tool, arguments) in [
        ("select_playbook", json!({"id": id})),
        ("get_playbook", json!({"id": id})),
        ("update_playbook", json!({"id": id, "playbook": {"name": "stolen", "agentId": "asst_2"}})),
        ("delete_playbook", json!({"id": id})),
    ] {
        let (told, text) = desk.err(&other, tool, arguments).await;
        let expected = format!("Permission denied: Playbook {id} does not belong to assistant asst_2");
        assert_eq!(text, expected, "{tool}");
        assert_eq!(told["error"], json!({"code": -32603, "message": expected}));
    }
    assert_eq!(desk.names(&other).await, [""; 0]);
    assert_eq!(desk.names(&owner).await, ["mine"]);
}

#[tokio::test]
async fn ctx_t20_assistants_share_a_session_but_not_their_playbooks() {
    let desk = Desk::new();
    let (a, b) = (cx("s", Some("a")), cx("s", Some("b")));
    desk.create(&a, "of a").await;
    desk.create(&b, "of b").await;
    assert_eq!(desk.names(&a).await, ["of a"]);
    assert_eq!(desk.names(&b).await, ["of b"]);
    assert_eq!(desk.names(&cx("s", None)).await, ["of a", "of b"], "without an assistant all are seen");
    assert_eq!(desk.names(&cx("t", None)).await, [""; 0], "another session has its own");
    let stranger = Context::for_test(Principal::anonymous(), "s", None, None);
    assert_eq!(desk.names(&stranger).await, [""; 0], "and so has another principal");
}

#[tokio::test]
async fn a_caller_without_an_assistant_creates_for_unknown() {
    let desk = Desk::new();
    let (created, _) = desk.ok(&cx("s", None), "create_playbook", json!({"name": "n"})).await;
    assert_eq!(created["agentId"], json!("unknown"));
    let id = &created["id"];
    desk.ok(&cx("s", None), "select_playbook", json!({"id": id})).await;
    desk.err(&me(), "select_playbook", json!({"id": id})).await;
}

#[tokio::test]
async fn an_assistant_can_be_required() {
    let desk = Desk::with(PlaybookOptions { require_assistant: true });
    for tool in ["create_playbook", "list_playbooks", "show_playbooks"] {
        let arguments = if tool == "create_playbook" { json!({"name": "n"}) } else { json!({}) };
        let (told, text) = desk.err(&cx("s", None), tool, arguments).await;
        assert!(text.starts_with("Permission denied") && !text.contains("__"), "{text}");
        assert_eq!(told["error"]["code"], json!(-32603));
    }
    desk.create(&me(), "n").await;
}

#[tokio::test]
async fn a_playbook_is_stored_whole_and_survives_a_restart() {
    let desk = Desk::new();
    let (created, text) = desk.ok(&me(), "create_playbook", trip()).await;
    let id = created["id"].as_str().unwrap();
    assert!(text.contains(id) && text.contains("Trip"));
    let playbook = &created["playbook"];
    assert_eq!(playbook["steps"], playbook["workflow"]);
    assert_eq!(created["steps"], playbook["steps"]);
    assert_eq!(playbook["steps"][0]["stepId"], json!(format!("{id}-step-1")));
    assert_eq!(
        (&playbook["agentId"], &playbook["createdAt"]),
        (&json!("asst_1"), &json!("2026-01-01T00:00:00.000Z"))
    );

    let Desk { backend, folder, .. } = desk;
    drop(backend);
    let desk = Desk::at(folder, PlaybookOptions::default());
    let (read, text) = desk.ok(&me(), "get_playbook", json!({"id": id})).await;
    assert_eq!(read["playbook"], *playbook);
    for part in
        ["# Trip", "1. Find flights to {{city}}", "tool: search (flights)", "All is booked", "- ticket"]
    {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
}

#[tokio::test]
async fn selecting_fills_in_the_inputs() {
    let desk = Desk::new();
    let (created, _) = desk.ok(&me(), "create_playbook", trip()).await;
    let id = &created["id"];
    let (selected, text) =
        desk.ok(&me(), "select_playbook", json!({"id": id, "inputs": {"city": "Rome"}})).await;
    assert_eq!(selected["inputs"], json!({"city": "Rome", "days": 3}));
    assert_eq!(selected["playbook"], created["playbook"], "the record itself stays a template");
    assert_eq!(selected["prompt"], json!(text));
    for part in [
        "Find flights to Rome",
        "A trip to Rome for 3 days",
        "- city = Rome",
        "Derive todos",
        "success criteria",
    ] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let (_, text) = desk.ok(&me(), "select_playbook", json!({"id": id})).await;
    assert!(
        text.contains("{{city}}") && text.contains("city (string) is not given; ask the user: Where to go"),
        "{text}"
    );
    for (inputs, expected) in [
        (json!({"town": "Rome"}), "Error: unknown inputs: town (known: city, days)"),
        (json!({"city": 7}), "Error: input city must be a string"),
        (json!({"days": "long"}), "Error: input days must be a number"),
        (json!({"city": []}), "Error: inputs.city must be true or false or a number or a string"),
    ] {
        assert_eq!(desk.err(&me(), "select_playbook", json!({"id": id, "inputs": inputs})).await.1, expected);
    }
}

#[tokio::test]
async fn an_update_merges_and_keeps_what_is_not_the_authors() {
    let desk = Desk::new();
    let (created, _) = desk.ok(&me(), "create_playbook", trip()).await;
    let (id, before) = (&created["id"], &created["playbook"]);
    desk.clock.advance(Duration::from_secs(1));
    let mut changed = before.clone();
    for (name, value) in [("agentId", "asst_2"), ("id", "other"), ("createdAt", "never"), ("goal", "less")] {
        changed[name] = json!(value);
    }
    let (updated, _) = desk.ok(&me(), "update_playbook", json!({"id": id, "playbook": changed})).await;
    let mut expected = before.clone();
    expected["goal"] = json!("less");
    expected["updatedAt"] = json!("2026-01-01T00:00:01.000Z");
    assert_eq!(updated["playbook"], expected);

    let step = json!({"description": "d", "action": {"toolName": "t", "purpose": "p"}, "requiredData": [], "outputVariable": "v"});
    let (updated, _) =
        desk.ok(&me(), "update_playbook", json!({"id": id, "playbook": {"steps": [step, step]}})).await;
    assert_eq!(updated["playbook"]["workflow"].as_array().unwrap().len(), 2);
    assert_eq!(updated["playbook"]["goal"], json!("less"));
    desk.ok(&me(), "update_playbook", json!({"id": id})).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ctx_t21_concurrent_updates_of_one_playbook_are_all_kept() {
    let desk = Arc::new(Desk::new());
    let id = desk.create(&me(), "n").await;
    let group = moongate_core::task::Group::new();
    let fields = ["title", "goal", "initialCommand"];
    let (done, mut finished) = tokio::sync::mpsc::channel(16);
    for field in fields {
        let (desk, id, done) = (Arc::clone(&desk), id.clone(), done.clone());
        group.spawn(async move {
            for round in 0..5 {
                let change = json!({"id": id, "playbook": {field: format!("{field} {round}")}});
                desk.ok(&me(), "update_playbook", change).await;
                desk.create(&me(), field).await;
            }
            done.send(()).await.unwrap();
        });
    }
    drop(done);
    for _ in fields {
        finished.recv().await.expect("a call failed");
    }
    let (read, _) = desk.ok(&me(), "get_playbook", json!({"id": id})).await;
    for field in fields {
        assert_eq!(read["playbook"][field], json!(format!("{field} 4")));
    }
    assert_eq!(desk.names(&me()).await.len(), 16);
}

#[tokio::test]
async fn lists_come_in_pages() {
    let desk = Desk::new();
    let (listed, text) = desk.ok(&me(), "list_playbooks", json!({})).await;
    assert_eq!((text.as_str(), &listed["playbooks"]), ("No playbooks found", &json!([])));
    for number in 0..25 {
        desk.create(&me(), &format!("p{number:02}")).await;
    }
    desk.create(&cx("s", Some("asst_2")), "not mine").await;
    let (listed, _) = desk.ok(&me(), "list_playbooks", json!({})).await;
    assert_eq!(listed["playbooks"].as_array().unwrap().len(), 25);
    let page = &listed["page"];
    assert_eq!((&page["page"], &page["pageSize"]), (&json!(1), &json!(-1)));
    assert_eq!((&page["totalItems"], &page["totalPages"]), (&json!(25), &json!(1)));
    let (listed, text) = desk.ok(&me(), "list_playbooks", json!({"page": "3", "pageSize": 10})).await;
    let names: Vec<&Value> =
        listed["page"]["items"].as_array().unwrap().iter().map(|item| &item["name"]).collect();
    assert_eq!(names, ["p20", "p21", "p22", "p23", "p24"]);
    assert_eq!(listed["page"]["totalPages"], json!(3));
    assert!(text.contains("page 3 of 3") && text.contains("p24"), "{text}");
    let (listed, _) = desk.ok(&me(), "list_playbooks", json!({"page": 9, "pageSize": 10})).await;
    assert_eq!(listed["playbooks"], json!([]));
    for (arguments, expected) in [
        (json!({"page": 0}), "Error: page must be at least 1"),
        (json!({"pageSize": 0}), "Error: pageSize must be -1 (all) or from 1 to 1000"),
        (json!({"pageSize": "9999"}), "Error: pageSize must be -1 (all) or from 1 to 1000"),
        (json!({"pageSize": -2}), "Error: pageSize must be at least -1"),
    ] {
        assert_eq!(desk.err(&me(), "list_playbooks", arguments).await.1, expected);
    }
}

#[tokio::test]
async fn a_person_sees_cards_with_buttons() {
    let desk = Desk::new();
    let shown = desk.result(&me(), "show_playbooks", json!({})).await;
    assert_eq!(shown["content"][0]["text"], json!("No playbooks found"));
    assert!(page(&shown).contains("No playbooks found"));
    for number in 0..12 {
        desk.create(&me(), &format!("p{number:02}")).await;
    }
    let shown = desk.result(&me(), "show_playbooks", json!({})).await;
    let html = page(&shown);
    assert_eq!((html.matches(">Select<").count(), html.matches(">Delete<").count()), (10, 10));
    assert!(html.contains(">Next<") && !html.contains(">Previous<"));
    let shown = desk.result(&me(), "get_playbook_page", json!({"page": 2})).await;
    let html = page(&shown);
    assert_eq!(html.matches(">Select<").count(), 2);
    assert!(!html.contains(">Next<") && html.contains(">Previous<"));
    assert_eq!(shown["structuredContent"]["page"]["items"].as_array().unwrap().len(), 2);
    assert_eq!(desk.err(&me(), "get_playbook_page", json!({})).await.1, "Error: page is required");
}

#[tokio::test]
async fn a_deleted_playbook_is_gone() {
    let desk = Desk::new();
    let id = desk.create(&me(), "n").await;
    let (deleted, _) = desk.ok(&me(), "delete_playbook", json!({"id": id})).await;
    assert_eq!(deleted, json!({"success": true, "id": id}));
    for tool in ["select_playbook", "get_playbook", "update_playbook", "delete_playbook"] {
        let (told, text) = desk.err(&me(), tool, json!({"id": id})).await;
        assert_eq!(
            (text.as_str(), &told["error"]["code"]),
            (format!("Playbook not found: {id}").as_str(), &json!(-32602))
        );
    }
}

#[tokio::test]
async fn arguments_are_checked() {
    let desk = Desk::new();
    for (tool, arguments, expected) in [
        ("create_playbook", json!({}), "Error: name is required"),
        ("create_playbook", Value::Null, "Error: name is required"),
        ("create_playbook", json!({"name": " "}), "Error: name is required"),
        (
            "create_playbook",
            json!({"name": "n", "workflow": [{"description": "d", "action": {"toolName": "t", "purpose": "p"},
            "requiredData": []}]}),
            "Error: workflow[0].outputVariable is required",
        ),
        (
            "create_playbook",
            json!({"name": "n", "workflow": ["do it"]}),
            "Error: workflow[0] must be an object",
        ),
        ("select_playbook", json!({}), "Error: id is required"),
        ("get_playbook", json!({"id": 7}), "Error: id must be a string"),
        (
            "update_playbook",
            json!({"id": "x", "playbook": {"owner": "me"}}),
            "Error: playbook has unknown members: owner",
        ),
    ] {
        assert_eq!(desk.err(&me(), tool, arguments).await.1, expected);
    }
    let (_, text) =
        desk.err(&me(), "create_playbook", json!({"name": "n", "goal": "g".repeat(300_000)})).await;
    assert!(text.contains("at most 262144 bytes"), "{text}");
    assert_eq!(desk.names(&me()).await, [""; 0]);
}

#[tokio::test]
async fn a_full_session_names_the_tool_that_makes_room() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Relaxed, clock: Clock::system() };
    let stores = Arc::new(SqliteStore::open(&folder.path().join("test.db"), options).unwrap());
    let playbook = Playbook::new(stores.clone(), Clock::system(), PlaybookOptions::default());
    let backend = BuiltinBackend::new(playbook, ToolErrors::Result);
    let (_, clock) = Clock::settable(std::time::UNIX_EPOCH);
    let desk = Desk { backend, clock, folder };
    let puts = (0..MAX_PLAYBOOKS).map(|number| Put {
        kind: Kind("playbook"),
        key: format!("{number:04}"),
        body: json!({"id": format!("{number:04}"), "name": "n", "agentId": "asst_1", "createdAt": "", "updatedAt": ""})
            .to_string()
            .into(),
        expires: None,
        expected: None,
    });
    let batch = Batch { puts: puts.collect(), ..Batch::default() };
    stores.open(&me().store_scope()).commit(batch).await.unwrap();
    let (told, text) = desk.err(&me(), "create_playbook", json!({"name": "one more"})).await;
    assert_eq!(text, "At most 1000 playbooks are kept. Make room with delete_playbook");
    assert_eq!(told["error"]["code"], json!(-32603));
    desk.ok(&me(), "delete_playbook", json!({"id": "0000"})).await;
    desk.create(&me(), "one more").await;
}

/// A store whose rows may be counted and written, and not read.
struct Sealed(Arc<dyn Store>);

impl Store for Sealed {
    fn get<'a>(&'a self, _: Kind, key: &'a str) -> BoxFuture<'a, Result<Option<Row>, storage::Error>> {
        panic!("{key} was read")
    }

    fn scan<'a>(&'a self, _: Kind, rows: Rows<'a>) -> BoxFuture<'a, Result<Vec<Row>, storage::Error>> {
        panic!("{rows:?} were read")
    }

    fn summary(&self, kind: Kind) -> BoxFuture<'_, Result<Summary, storage::Error>> {
        self.0.summary(kind)
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, storage::Error>> {
        self.0.commit(batch)
    }
}

impl Stores for Sealed {
    fn open(&self, _: &StoreScope) -> Arc<dyn Store> {
        Arc::new(Self(Arc::clone(&self.0)))
    }

    fn own(&self) -> Arc<dyn Store> {
        Arc::clone(&self.0)
    }

    fn purge(&self, _: u64) -> BoxFuture<'_, Result<u64, storage::Error>> {
        Box::pin(async { Ok(0) })
    }
}

#[tokio::test]
async fn a_new_playbook_does_not_read_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let options = Options { durability: Durability::Relaxed, clock: Clock::system() };
    let stores = SqliteStore::open(&folder.path().join("test.db"), options).unwrap();
    let sealed = Arc::new(Sealed(stores.open(&me().store_scope())));
    let playbook = Playbook::new(sealed, Clock::system(), PlaybookOptions::default());
    let backend = BuiltinBackend::new(playbook, ToolErrors::Result);
    let (_, clock) = Clock::settable(std::time::UNIX_EPOCH);
    let desk = Desk { backend, clock, folder };
    desk.create(&me(), "one").await;
    desk.create(&me(), "two").await;
}

#[tokio::test]
async fn a_list_that_is_too_long_asks_for_pages() {
    let desk = Desk::new();
    for _ in 0..18 {
        desk.ok(&me(), "create_playbook", json!({"name": "n", "goal": "g".repeat(250_000)})).await;
    }
    let (_, text) = desk.err(&me(), "list_playbooks", json!({})).await;
    assert!(text.contains("pageSize"), "{text}");
    desk.ok(&me(), "list_playbooks", json!({"pageSize": 10})).await;
}

#[tokio::test]
async fn no_schema_shows_a_context_field_and_every_tool_is_described() {
    let offer = Desk::new().backend.offer(&me()).await;
    assert_eq!(offer.tools.len(), 8);
    for tool in &offer.tools {
        let definition: Value = tool.definition.parse().unwrap();
        assert!(definition["description"].as_str().unwrap().len() > 20, "{}", tool.name);
        assert!(!tool.definition.as_str().contains("\"__"), "{}", tool.name);
    }
}

fn page(result: &Value) -> &str {
    let resource = &result["content"][1]["resource"];
    assert_eq!(resource["mimeType"], json!("text/html"), "{result}");
    assert!(resource["uri"].as_str().unwrap().starts_with("ui://playbooks/"));
    resource["text"].as_str().unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(16))]

    /// The page of a text full of markup has the tags and quotes of the page of a harmless one.
    #[test]
    fn no_text_adds_markup_to_a_page(text in "x(</script>|<b onclick=\"x\">|[<>&\"'\\\\{}]|[a-z é]){1,12}") {
        let structure = |html: &str| ['<', '>', '"', '\''].map(|special| html.matches(special).count());
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let shown = |text: String| runtime.block_on(async {
            let desk = Desk::new();
            desk.ok(&me(), "create_playbook", json!({"name": text, "goal": text})).await;
            let result = desk.result(&me(), "show_playbooks", json!({})).await;
            structure(page(&result))
        });
        prop_assert_eq!(shown(text.clone()), shown(text.replace(['<', '>', '"', '\'', '&', '\\'], "x")));
    }
}
