//! The tools as a client meets them: through the schema check, with results as they go out.

use moongate_core::{Backend, Call, Operation, Principal};
use moongate_storage::{MemoryState, memory::MemoryOptions};
use moongate_upstream::{BuiltinBackend, ToolErrors};
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;
use crate::plan::MAX_TEXT;

struct Desk {
    backend: BuiltinBackend<Planning>,
}

impl Desk {
    fn new() -> Self {
        let state = Arc::new(MemoryState::new(MemoryOptions::default()));
        let (clock, _) = Clock::settable(humantime::parse_rfc3339("2026-01-01T00:00:00Z").unwrap());
        Self { backend: BuiltinBackend::new(Planning::new(state, clock), ToolErrors::Result) }
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
}

fn cx(session: &str, assistant: Option<&str>, thread: Option<&str>) -> Context {
    Context::for_test(Principal::local(), session, assistant, thread)
}

fn me() -> Context {
    cx("s", None, None)
}

#[tokio::test]
async fn ctx_t1_sessions_do_not_see_each_others_goals() {
    let desk = Desk::new();
    let (first, second) = (cx("sess_1", None, None), cx("sess_2", None, None));
    desk.ok(&first, "create_goal", json!({"goal": "Session 1 Goal"})).await;
    desk.ok(&second, "create_goal", json!({"goal": "Session 2 Goal"})).await;
    let (_, text) = desk.ok(&first, "list_goals", json!({})).await;
    assert!(text.contains("Session 1 Goal") && !text.contains("Session 2 Goal"), "{text}");
}

#[tokio::test]
async fn ctx_t2_assistants_of_one_session_do_not_see_each_others_goals() {
    let desk = Desk::new();
    for assistant in ["asst_1", "asst_2"] {
        desk.ok(&cx("s", Some(assistant), None), "create_goal", json!({"goal": assistant})).await;
    }
    let (goals, _) = desk.ok(&cx("s", Some("asst_1"), None), "list_goals", json!({})).await;
    let names: Vec<&Value> = goals["goals"].as_array().unwrap().iter().map(|goal| &goal["name"]).collect();
    assert_eq!(names, [&json!("asst_1")]);
}

#[tokio::test]
async fn ctx_t3_concurrent_creates_in_three_sessions_stay_apart() {
    let desk = Desk::new();
    let contexts = ["sess_1", "sess_2", "sess_3"].map(|session| cx(session, None, None));
    let create = |at: usize| desk.ok(&contexts[at], "create_goal", json!({"goal": format!("goal {at}")}));
    tokio::join!(create(0), create(1), create(2));
    for (at, context) in contexts.iter().enumerate() {
        let (goals, _) = desk.ok(context, "list_goals", json!({})).await;
        assert_eq!(goals["goals"].as_array().unwrap().len(), 1);
        assert_eq!(goals["goals"][0]["name"], json!(format!("goal {at}")));
    }
}

#[tokio::test]
async fn ctx_t12_goals_are_objects_with_a_name() {
    let desk = Desk::new();
    let (first, second) = (cx("sess_1", None, None), cx("sess_2", None, None));
    desk.ok(&first, "create_goal", json!({"goal": "Goal A"})).await;
    desk.ok(&second, "create_goal", json!({"goal": "Goal B"})).await;
    for (context, own, other) in [(&first, "Goal A", "Goal B"), (&second, "Goal B", "Goal A")] {
        let (goals, _) = desk.ok(context, "list_goals", json!({})).await;
        let has = |name: &str| goals["goals"].as_array().unwrap().iter().any(|goal| goal["name"] == name);
        assert!(has(own) && !has(other));
    }
}

#[tokio::test]
async fn ctx_t20_a_hand_over_between_assistants_leaks_nothing() {
    let desk = Desk::new();
    let (a, b) = (cx("s", Some("a"), Some("t")), cx("s", Some("b"), Some("t")));
    desk.ok(&a, "add_memo", json!({"memo": "only for a"})).await;
    desk.ok(&b, "add_memo", json!({"memo": "only for b"})).await;
    let (state, text) = desk.ok(&b, "get_planning_state", json!({})).await;
    assert_eq!(state["memos"], json!([{"id": 0, "content": "only for b"}]));
    assert!(!text.contains("only for a"));
    let (state, _) = desk.ok(&cx("s", Some("a"), Some("other")), "get_planning_state", json!({})).await;
    assert_eq!(state["memos"], json!([]), "threads are apart, too");
    let stranger = Context::for_test(Principal::anonymous(), "s", Some("a"), Some("t"));
    let (state, _) = desk.ok(&stranger, "get_planning_state", json!({})).await;
    assert_eq!(state["memos"], json!([]), "and so are principals");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn ctx_t21_no_update_is_lost_among_concurrent_adds() {
    let desk = Arc::new(Desk::new());
    let group = moongate_core::task::Group::new();
    let (done, mut finished) = tokio::sync::mpsc::channel(64);
    for number in 0..64 {
        let (desk, done) = (Arc::clone(&desk), done.clone());
        group.spawn(async move {
            desk.ok(&me(), "add_todo", json!({"name": format!("todo {number}")})).await;
            done.send(()).await.unwrap();
        });
    }
    drop(done);
    for _ in 0..64 {
        finished.recv().await.expect("a call failed");
    }
    let (state, _) = desk.ok(&me(), "get_planning_state", json!({})).await;
    let ids: std::collections::BTreeSet<u64> =
        state["todos"].as_array().unwrap().iter().map(|todo| todo["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=64).collect());
}

#[tokio::test]
async fn goals_are_created_listed_updated_and_cleared() {
    let desk = Desk::new();
    let (created, text) = desk.ok(&me(), "create_goal", json!({"goal": "Learn Rust"})).await;
    assert_eq!(created, json!({"success": true, "goal": "Learn Rust", "goalId": 1}));
    assert!(text.contains("Learn Rust"));
    desk.ok(&me(), "add_todo", json!({"name": "read"})).await;
    let (_, text) = desk.ok(&me(), "create_goal", json!({"goal": "Ship it"})).await;
    assert!(
        text.contains("Learn Rust") && text.contains("1 todo."),
        "the previous goal is mentioned: {text}"
    );
    desk.ok(&me(), "update_goal", json!({"goal": "Ship it twice"})).await;
    let (goals, text) = desk.ok(&me(), "list_goals", json!({})).await;
    assert!(text.contains("Learn Rust") && text.contains("Ship it twice"));
    let expected = json!({"id": 2, "name": "Ship it twice", "status": "active", "createdAt": "2026-01-01T00:00:00.000Z"});
    assert_eq!(goals["goals"][1], expected);
    let (cleared, _) = desk.ok(&me(), "clear_goal", json!({})).await;
    assert_eq!(cleared["lastClearedGoal"], json!("Ship it twice"));
    let (state, _) = desk.ok(&me(), "get_current_state", json!({})).await;
    assert_eq!((&state["goal"], &state["lastClearedGoal"]), (&json!("Learn Rust"), &json!("Ship it twice")));
    assert_eq!(state["todos"].as_array().unwrap().len(), 1, "todos stay");
    desk.ok(&me(), "clear_goal", json!({})).await;
    for tool in ["clear_goal", "update_goal"] {
        let arguments = if tool == "clear_goal" { json!({}) } else { json!({"goal": "x"}) };
        let (told, text) = desk.err(&me(), tool, arguments).await;
        assert_eq!(told["success"], json!(false));
        assert!(text.contains("create_goal"), "{text}");
    }
}

#[tokio::test]
async fn a_goal_needs_a_text() {
    let desk = Desk::new();
    for arguments in [json!({}), json!({"goal": ""}), json!({"goal": "  "}), Value::Null] {
        let (told, text) = desk.err(&me(), "create_goal", arguments).await;
        assert_eq!(text, "Error: goal is required");
        assert_eq!(told["error"]["code"], json!(-32602));
    }
    let (_, text) = desk.err(&me(), "create_goal", json!({"goal": 7})).await;
    assert_eq!(text, "Error: goal must be a string");
}

#[tokio::test]
async fn todos_are_added_marked_updated_and_cleared() {
    let desk = Desk::new();
    desk.ok(&me(), "create_goal", json!({"goal": "g"})).await;
    desk.ok(&me(), "add_todo", json!({"name": "first", "priority": "high"})).await;
    let (added, text) =
        desk.ok(&me(), "add_todo", json!({"name": "second", "goal_id": "1", "dependsOn": [1, "1"]})).await;
    assert_eq!(
        added["todo"],
        json!({"id": 2, "name": "second", "status": "pending", "goalId": 1, "dependsOn": [1]})
    );
    assert_eq!(added["todos"].as_array().unwrap().len(), 2);
    assert!(text.contains('2') && text.contains("second") && text.contains("\"g\""), "{text}");

    let (marked, _) = desk.ok(&me(), "mark_todo", json!({"todo_id": "1", "summary": "went well"})).await;
    let expected = json!({"id": 1, "name": "first", "status": "completed", "goalId": 1, "priority": "high", "summary": "went well"});
    assert_eq!(marked["todo"], expected);
    let (marked, _) = desk.ok(&me(), "mark_todo", json!({"id": 1, "completed": false, "summary": ""})).await;
    assert_eq!((&marked["todo"]["status"], &marked["todo"]["summary"]), (&json!("pending"), &Value::Null));

    let update = json!({"index": 1, "name": "2nd", "status": "blocked", "priority": "low", "dependsOn": []});
    let (updated, text) = desk.ok(&me(), "update_todo", update).await;
    let expected = json!({"id": 2, "name": "2nd", "status": "blocked", "goalId": 1, "priority": "low"});
    assert_eq!(updated["todo"], expected);
    assert!(text.contains("2nd (low priority; blocked)"), "{text}");

    desk.ok(&me(), "update_todo", json!({"id": 2, "dependsOn": [1]})).await;
    let (cleared, _) = desk.ok(&me(), "clear_todos", json!({"ids": [1, 99]})).await;
    assert_eq!((&cleared["success"], &cleared["cleared"]), (&json!(true), &json!(1)));
    assert_eq!(cleared["todos"][0]["dependsOn"], Value::Null, "nothing depends on what is gone");
    let (cleared, _) = desk.ok(&me(), "clear_todos", json!({})).await;
    assert_eq!(cleared["todos"], json!([]));
    let (added, _) = desk.ok(&me(), "add_todo", json!({"name": "third"})).await;
    assert_eq!(added["todo"]["id"], json!(3), "ids are never used twice");
}

#[tokio::test]
async fn todos_that_do_not_exist_are_told_with_those_that_do() {
    let desk = Desk::new();
    desk.ok(&me(), "add_todo", json!({"name": "only"})).await;
    for (tool, arguments) in [
        ("mark_todo", json!({"id": 5})),
        ("update_todo", json!({"id": 5, "name": "x"})),
        ("update_todo", json!({"index": 5, "name": "x"})),
        ("clear_todos", json!({"ids": [5, 6]})),
        ("add_todo", json!({"name": "x", "dependsOn": [5]})),
    ] {
        let (told, text) = desk.err(&me(), tool, arguments).await;
        assert_eq!((&told["success"], &told["availableIds"]), (&json!(false), &json!([1])), "{tool}");
        assert!(text.contains('5') && text.contains("Available ids: 1"), "{text}");
    }
    let (_, text) = desk.err(&me(), "add_todo", json!({"name": "x", "goal_id": 9})).await;
    assert_eq!(text, "Goal 9 not found. There are none");
    let (state, _) = desk.ok(&me(), "get_planning_state", json!({})).await;
    assert_eq!(state["todos"].as_array().unwrap().len(), 1, "a refused call changes nothing");
}

#[tokio::test]
async fn todo_arguments_are_checked() {
    let desk = Desk::new();
    desk.ok(&me(), "add_todo", json!({"name": "only"})).await;
    for (tool, arguments, expected) in [
        ("add_todo", json!({}), "Error: name is required"),
        (
            "add_todo",
            json!({"name": "x", "priority": "urgent"}),
            "Error: priority must be one of low, medium, high",
        ),
        ("mark_todo", json!({}), "Error: id is required"),
        ("mark_todo", json!({"id": 0}), "Error: id must be at least 1"),
        ("mark_todo", json!({"id": -1}), "Error: id must be at least 1"),
        ("mark_todo", json!({"id": 1.5}), "Error: id must be an integer or a string"),
        ("mark_todo", json!({"id": "first"}), "Error: id must match ^[1-9][0-9]*$"),
        ("update_todo", json!({"name": "x"}), "Error: id is required"),
        ("update_todo", json!({"id": 1, "dependsOn": [1]}), "Error: todo 1 cannot depend on itself"),
        ("update_todo", json!({"id": 1, "name": " "}), "Error: name is required"),
        (
            "update_todo",
            json!({"id": 1, "status": "done"}),
            "Error: status must be one of pending, completed, blocked",
        ),
        ("clear_todos", json!({"ids": ["x"]}), "Error: ids[0] must match ^[1-9][0-9]*$"),
    ] {
        assert_eq!(desk.err(&me(), tool, arguments).await.1, expected, "{tool}");
    }
    desk.ok(&me(), "mark_todo", json!({"id": 1.0})).await;
}

#[tokio::test]
async fn ten_memos_are_kept_and_the_oldest_falls_out() {
    let desk = Desk::new();
    for (number, tool) in
        ["add_memo", "add_note", "add_observation", "add_scratchpad"].into_iter().enumerate()
    {
        let (added, _) = desk.ok(&me(), tool, json!({"memo": format!("memo {number}")})).await;
        assert_eq!(added["memos"].as_array().unwrap().len(), number + 1);
    }
    for number in 4..10 {
        let (_, text) =
            desk.ok(&me(), "add_memo", json!({"memo": format!("memo {number}"), "source": "me"})).await;
        assert_eq!(text.contains("full"), number == 9, "{text}");
    }
    let (added, _) = desk.ok(&me(), "add_memo", json!({"memo": "memo 10"})).await;
    let ids: Vec<u64> =
        added["memos"].as_array().unwrap().iter().map(|memo| memo["id"].as_u64().unwrap()).collect();
    assert_eq!(ids, (1..=10).collect::<Vec<_>>());
    let (cleared, _) = desk.ok(&me(), "clear_memo", json!({"id": "5"})).await;
    assert_eq!(cleared["memos"].as_array().unwrap().len(), 9);
    let (told, _) = desk.err(&me(), "clear_scratchpad", json!({"id": 5})).await;
    assert_eq!(told["availableIds"], json!([1, 2, 3, 4, 6, 7, 8, 9, 10]));
    assert_eq!(desk.err(&me(), "add_memo", json!({"memo": ""})).await.1, "Error: memo is required");
}

#[tokio::test]
async fn the_overview_shows_what_is_asked_for() {
    let desk = Desk::new();
    let (_, text) = desk.ok(&me(), "get_planning_state", json!({})).await;
    assert!(text.contains("No active goal"), "{text}");
    desk.ok(&me(), "create_goal", json!({"goal": "g"})).await;
    desk.ok(&me(), "add_todo", json!({"name": "done"})).await;
    desk.ok(&me(), "add_todo", json!({"name": "open"})).await;
    desk.ok(&me(), "mark_todo", json!({"id": 1, "summary": "it was easy"})).await;
    desk.ok(&me(), "add_memo", json!({"memo": "a memo"})).await;
    let (state, text) = desk.ok(&me(), "get_planning_state", json!({})).await;
    assert_eq!(state["todos"].as_array().unwrap().len(), 2);
    for part in ["Goal: g", "1 of 2 completed", "[x] 1. done: it was easy", "[ ] 2. open", "0: a memo"] {
        assert!(text.contains(part), "{part} is missing in {text}");
    }
    let hide = json!({"include_completed": false, "include_scratchpad": false});
    let (state, text) = desk.ok(&me(), "get_planning_state", hide).await;
    assert_eq!((state["todos"].as_array().unwrap().len(), &state["memos"]), (1, &json!([])));
    assert!(!text.contains("[x]") && !text.contains("a memo"), "{text}");
}

#[tokio::test]
async fn a_cleared_session_starts_from_the_beginning() {
    let desk = Desk::new();
    for _ in 0..2 {
        let (created, _) = desk.ok(&me(), "create_goal", json!({"goal": "g"})).await;
        assert_eq!(created["goalId"], json!(1));
        let (added, _) = desk.ok(&me(), "add_todo", json!({"name": "t"})).await;
        assert_eq!(added["todo"]["id"], json!(1));
        desk.ok(&me(), "clear_goal", json!({})).await;
        desk.ok(&me(), "clear_session", json!({})).await;
        let (state, _) = desk.ok(&me(), "get_planning_state", json!({})).await;
        let empty = json!({"goal": null, "goals": [], "lastClearedGoal": null, "todos": [], "memos": []});
        assert_eq!(state, empty);
    }
}

#[tokio::test]
async fn thoughts_are_counted_with_their_branches() {
    let desk = Desk::new();
    let first = json!({"thought": "a", "nextThoughtNeeded": true, "thoughtNumber": 5, "totalThoughts": 3});
    let (progress, _) = desk.ok(&me(), "sequentialthinking", first).await;
    let expected = json!({"thoughtNumber": 5, "totalThoughts": 5, "nextThoughtNeeded": true, "branches": [],
        "thoughtHistoryLength": 1});
    assert_eq!(progress, expected, "the total is raised to the number");
    for branch in ["y", "x", "y"] {
        let thought = json!({"thought": "b", "nextThoughtNeeded": false, "thoughtNumber": "2", "totalThoughts": 3,
            "branchFromThought": 1, "branchId": branch});
        desk.ok(&me(), "sequentialthinking", thought).await;
    }
    let loose = json!({"thought": "c", "nextThoughtNeeded": false, "thoughtNumber": 1, "totalThoughts": 1, "branchId": "z"});
    let (progress, _) = desk.ok(&me(), "sequentialthinking", loose).await;
    assert_eq!(progress["branches"], json!(["y", "x"]), "a branch needs the thought it starts from");
    assert_eq!(progress["thoughtHistoryLength"], json!(5));
    let (told, text) =
        desk.err(&me(), "sequentialthinking", json!({"thought": 1, "nextThoughtNeeded": "yes"})).await;
    assert_eq!(told["status"], json!("failed"));
    for problem in ["thoughtNumber is required", "totalThoughts is required", "thought must be a string"] {
        assert!(text.contains(problem), "{problem} is missing in {text}");
    }
}

#[tokio::test]
async fn reflections_are_recorded_and_shown() {
    let desk = Desk::new();
    let reflection = json!({"critique": "slow", "reflection": "measure first", "nextAction": "profile"});
    let (recorded, text) = desk.ok(&me(), "critiqueAndReflection", reflection.clone()).await;
    assert_eq!(recorded["reflections"], json!(1));
    assert!(text.contains("profile"));
    let (state, text) = desk.ok(&me(), "get_planning_state", json!({})).await;
    assert_eq!(state["reflections"], json!([reflection]));
    assert!(text.contains("measure first"));
    desk.err(&me(), "critiqueAndReflection", json!({"critique": "x"})).await;
}

#[tokio::test]
async fn a_full_document_names_the_tools_that_clear_it() {
    let desk = Desk::new();
    let long = "x".repeat(MAX_TEXT);
    let mut kept = 0;
    let text = loop {
        let result = desk.result(&me(), "add_todo", json!({"name": long})).await;
        if result["isError"] == json!(true) {
            break result["content"][0]["text"].as_str().unwrap().to_owned();
        }
        kept += 1;
    };
    assert_eq!(kept, 15, "a mebibyte holds fifteen of them");
    assert!(text.contains("clear_todos") && text.contains("clear_session"), "{text}");
    desk.ok(&me(), "clear_todos", json!({})).await;
    desk.ok(&me(), "add_todo", json!({"name": long})).await;
}

#[tokio::test]
async fn a_text_over_64_kib_is_refused_wherever_it_is() {
    let desk = Desk::new();
    desk.ok(&me(), "create_goal", json!({"goal": "g"})).await;
    desk.ok(&me(), "add_todo", json!({"name": "t"})).await;
    let long = "é".repeat(MAX_TEXT / 2 + 1);
    for (tool, arguments) in [
        ("create_goal", json!({"goal": long})),
        ("update_goal", json!({"goal": long})),
        ("add_todo", json!({"name": long})),
        ("update_todo", json!({"id": 1, "name": long})),
        ("mark_todo", json!({"id": 1, "summary": long})),
        ("add_memo", json!({"memo": long})),
        ("add_memo", json!({"memo": "m", "source": long})),
        ("critiqueAndReflection", json!({"critique": "c", "reflection": "r", "nextAction": long})),
        (
            "sequentialthinking",
            json!({"thought": "t", "nextThoughtNeeded": true, "thoughtNumber": 1, "totalThoughts": 1,
            "branchId": long}),
        ),
    ] {
        let (_, text) = desk.err(&me(), tool, arguments).await;
        assert!(text.contains("too long") && text.len() < 200, "{tool}: {text}");
    }
}

#[tokio::test]
async fn no_schema_shows_a_context_field_and_every_tool_is_described() {
    fn names(schema: &Value, found: &mut Vec<String>) {
        match schema {
            Value::Object(members) => {
                for (name, value) in members {
                    found.push(name.clone());
                    names(value, found);
                }
            }
            Value::Array(items) => items.iter().for_each(|item| names(item, found)),
            Value::String(text) => found.push(text.clone()),
            _ => {}
        }
    }
    let desk = Desk::new();
    let offer = desk.backend.offer(&me()).await;
    assert_eq!(offer.tools.len(), 14);
    for tool in &offer.tools {
        let definition: Value = tool.definition.parse().unwrap();
        assert!(definition["description"].as_str().unwrap().len() > 20, "{}", tool.name);
        let mut found = Vec::new();
        names(&definition, &mut found);
        assert!(found.iter().all(|name| !name.starts_with("__")), "{}", tool.name);
        assert_eq!(definition["inputSchema"]["type"], json!("object"));
        assert_eq!(definition["annotations"]["readOnlyHint"], json!(tool.scope.as_str() == "read"));
    }
}

#[tokio::test]
async fn an_unknown_tool_is_refused_by_the_backend_itself() {
    let state = Arc::new(MemoryState::new(MemoryOptions::default()));
    let planning = Planning::new(state, Clock::system());
    let error = planning.call_tool("toggle_todo", Raw::empty_object(), &me()).await.unwrap_err();
    let ToolError::Call(error) = error else { panic!("{error:?}") };
    assert_eq!(error.public, "Unknown tool: toggle_todo");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    /// Whatever is asked for, in whatever order: calls answer, and the limits hold.
    #[test]
    fn no_sequence_of_calls_breaks_the_limits(calls in prop::collection::vec(
        (0..10_u8, 0..6_u64, prop::sample::select(vec![0, 9, 30_000, MAX_TEXT, MAX_TEXT + 1])), 1..40,
    )) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::new();
            for (kind, id, length) in calls {
                let text = "t".repeat(length);
                let (tool, arguments) = match kind {
                    0 => ("create_goal", json!({"goal": text})),
                    1 => ("clear_goal", json!({})),
                    2 | 3 => ("add_todo", json!({"name": text})),
                    4 => ("mark_todo", json!({"id": id, "summary": text})),
                    5 => ("clear_todos", json!({"ids": [id + 1]})),
                    6 => ("add_memo", json!({"memo": text})),
                    7 => ("clear_memo", json!({"id": id})),
                    8 => ("sequentialthinking", json!({"thought": text, "nextThoughtNeeded": true, "thoughtNumber": 1,
                        "totalThoughts": 1, "branchFromThought": 1, "branchId": id.to_string()})),
                    _ => ("critiqueAndReflection", json!({"critique": text, "reflection": "r", "nextAction": "n"})),
                };
                let result = desk.result(&me(), tool, arguments).await;
                assert!(result["isError"].is_boolean());
                assert!(length <= MAX_TEXT || result["isError"] == json!(true) || matches!(kind, 1 | 5 | 7));
            }
            let state = desk.ok(&me(), "get_planning_state", json!({})).await.0;
            assert!(state["memos"].as_array().unwrap().len() <= 10);
            assert!(serde_json::to_vec(&state).unwrap().len() <= 1 << 20);
        });
    }
}
