//! The tools as a client meets them: through the schema check, with results as they go out.

use moongate_core::{Backend, Call, Operation, Principal, clock::ClockHandle};
use moongate_storage::{MemoryState, memory::MemoryOptions};
use moongate_upstream::{BuiltinBackend, ToolErrors};
use proptest::prelude::*;
use serde_json::{Value, json};
use std::{collections::HashSet, time::Duration};

use super::*;
use crate::prompt::MAX_OPEN;

struct Desk {
    backend: BuiltinBackend<Ui>,
    clock: ClockHandle,
}

impl Desk {
    fn new() -> Self {
        let state = Arc::new(MemoryState::new(MemoryOptions::default()));
        let (clock, handle) = Clock::settable(humantime::parse_rfc3339("2026-01-01T00:00:00Z").unwrap());
        let backend = BuiltinBackend::new(Ui::new(state, clock), ToolErrors::Result);
        Self { backend, clock: handle }
    }

    async fn result(&self, cx: &Context, tool: &str, arguments: Value) -> Value {
        let operation = Operation::CallTool { name: tool.into(), arguments: arguments.into() };
        let reply = self.backend.call(Call::new(operation), cx).await.unwrap();
        reply.result.parse().unwrap()
    }

    async fn ok(&self, cx: &Context, tool: &str, arguments: Value) -> Value {
        let result = self.result(cx, tool, arguments).await;
        assert_eq!(result["isError"], json!(false), "{tool}: {result}");
        result
    }

    async fn err(&self, cx: &Context, tool: &str, arguments: Value) -> String {
        let result = self.result(cx, tool, arguments).await;
        assert_eq!(result["isError"], json!(true), "{tool}: {result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    async fn ask(&self, cx: &Context, arguments: Value) -> String {
        let result = self.ok(cx, "prompt_user", arguments).await;
        result["structuredContent"]["messageId"].as_str().unwrap().to_owned()
    }
}

fn cx(session: &str, assistant: Option<&str>) -> Context {
    Context::for_test(Principal::local(), session, assistant, None)
}

fn me() -> Context {
    cx("s", None)
}

fn page(result: &Value) -> &str {
    let resource = &result["content"][1]["resource"];
    assert_eq!(
        (&result["content"][1]["type"], &resource["mimeType"]),
        (&json!("resource"), &json!("text/html"))
    );
    resource["text"].as_str().unwrap()
}

#[tokio::test]
async fn a_text_prompt_is_asked_and_answered_once() {
    let desk = Desk::new();
    let asked = desk.ok(&me(), "prompt_user", json!({"prompt": "Your name?", "type": "text"})).await;
    let id = asked["structuredContent"]["messageId"].as_str().unwrap();
    let expected =
        json!({"messageId": id, "type": "text", "prompt": "Your name?", "status": "awaiting_response"});
    assert_eq!(asked["structuredContent"], expected);
    assert_eq!(asked["content"][1]["resource"]["uri"], json!(format!("ui://prompts/{id}")));
    let html = page(&asked);
    for part in
        [r#"role="dialog""#, "aria-labelledby", "Your name?", "reply_prompt", r#"type="text""#, "Escape"]
    {
        assert!(html.contains(part), "{part} is missing");
    }
    let reply = json!({"messageId": id, "answer": "Ada"});
    let answered = desk.ok(&me(), "reply_prompt", reply.clone()).await;
    let expected = json!({"messageId": id, "prompt": "Your name?", "answer": "Ada", "timestamp": "2026-01-01T00:00:00.000Z"});
    assert_eq!(answered["structuredContent"], expected);
    assert!(answered["content"][0]["text"].as_str().unwrap().contains("Ada"));
    assert!(desk.err(&me(), "reply_prompt", reply).await.contains("expired or was already answered"));
}

#[tokio::test]
async fn choices_are_offered_and_answers_must_be_among_them() {
    let desk = Desk::new();
    let options = json!(["red", "green", "blue"]);
    let asked =
        desk.ok(&me(), "prompt_user", json!({"prompt": "One?", "type": "select", "options": options})).await;
    assert_eq!(asked["structuredContent"]["options"], options);
    assert_eq!(page(&asked).matches(r#"type="radio""#).count(), 3);
    let one = asked["structuredContent"]["messageId"].clone();
    assert_eq!(
        desk.err(&me(), "reply_prompt", json!({"messageId": one, "answer": "pink"})).await,
        "Error: the answer must be one of the options"
    );
    desk.ok(&me(), "reply_prompt", json!({"messageId": one, "answer": "red"})).await;

    let many = desk.ask(&me(), json!({"prompt": "Some?", "type": "multiselect", "options": options})).await;
    let wrong = json!({"messageId": many, "answer": ["red", "pink"]});
    assert_eq!(desk.err(&me(), "reply_prompt", wrong).await, "Error: the answer must be a list of options");
    let answered =
        desk.ok(&me(), "reply_prompt", json!({"messageId": many, "answer": ["red", "blue"]})).await;
    assert_eq!(answered["structuredContent"]["answer"], json!(["red", "blue"]));
    let none = desk.ask(&me(), json!({"prompt": "Some?", "type": "multiselect", "options": options})).await;
    let answered = desk.ok(&me(), "reply_prompt", json!({"messageId": none, "answer": []})).await;
    assert_eq!(answered["content"][0]["text"], json!("Some?\nThe user chose none of the options"));

    let text = desk.ask(&me(), json!({"prompt": "?", "type": "text", "options": ["ignored"]})).await;
    let wrong = json!({"messageId": text, "answer": ["a"]});
    assert_eq!(desk.err(&me(), "reply_prompt", wrong).await, "Error: the answer must be a text");
    let answered = desk.ok(&me(), "reply_prompt", json!({"messageId": text, "answer": null})).await;
    assert_eq!(answered["structuredContent"]["answer"], Value::Null);
}

#[tokio::test]
async fn an_option_is_kept_in_a_form_that_html_leaves_alone() {
    let desk = Desk::new();
    let asked = json!({"prompt": "?", "type": "select", "options": ["a\r\nb\u{0}\"c"]});
    let shown = desk.ok(&me(), "prompt_user", asked).await;
    assert!(page(&shown).contains(r#"value="&quot;a\r\nb\u0000\&quot;c&quot;""#), "{}", page(&shown));
}

#[tokio::test]
async fn a_prompt_can_be_cancelled() {
    let desk = Desk::new();
    let id = desk.ask(&me(), json!({"prompt": "Sure?", "type": "select", "options": ["yes"]})).await;
    let cancelled =
        desk.ok(&me(), "reply_prompt", json!({"messageId": id, "cancelled": true, "answer": "what"})).await;
    let told = &cancelled["structuredContent"];
    assert_eq!((&told["cancelled"], &told["answer"]), (&json!(true), &Value::Null));
}

#[tokio::test]
async fn prompt_arguments_are_checked() {
    let desk = Desk::new();
    for (tool, arguments, expected) in [
        ("prompt_user", json!({"type": "text"}), "Error: prompt is required"),
        ("prompt_user", json!({"prompt": "", "type": "text"}), "Error: prompt is required"),
        ("prompt_user", json!({"prompt": " ", "type": "text"}), "Error: prompt is required"),
        ("prompt_user", json!({"prompt": "?"}), "Error: type is required"),
        (
            "prompt_user",
            json!({"prompt": "?", "type": "date"}),
            "Error: type must be one of text, select, multiselect",
        ),
        (
            "prompt_user",
            json!({"prompt": "?", "type": "select", "options": [1]}),
            "Error: options[0] must be a string",
        ),
        (
            "prompt_user",
            json!({"prompt": "?", "type": "select", "options": ["a", "a"]}),
            "Error: options must not repeat an item",
        ),
        ("reply_prompt", json!({"answer": "x"}), "Error: messageId is required"),
        (
            "reply_prompt",
            json!({"messageId": "x", "answer": 7}),
            "Error: answer must be null or a string or an array",
        ),
    ] {
        assert_eq!(desk.err(&me(), tool, arguments).await, expected);
    }
    for arguments in [
        json!({"prompt": "?", "type": "select"}),
        json!({"prompt": "?", "type": "multiselect", "options": []}),
    ] {
        assert!(desk.err(&me(), "prompt_user", arguments).await.contains("options are required"));
    }
    for tool in ["prompt_user", "reply_prompt", "visualize_data", "wait_for_user_resume", "resume_from_wait"]
    {
        assert!(desk.err(&me(), tool, Value::Null).await.contains("is required"), "{tool}");
    }
}

#[tokio::test]
async fn a_prompt_is_answered_only_where_it_was_asked() {
    let desk = Desk::new();
    let id = desk.ask(&cx("s", Some("a")), json!({"prompt": "?", "type": "text"})).await;
    let reply = json!({"messageId": id, "answer": "x"});
    for other in [
        cx("s", Some("b")),
        cx("s", None),
        cx("t", Some("a")),
        Context::for_test(Principal::anonymous(), "s", Some("a"), None),
    ] {
        assert!(desk.err(&other, "reply_prompt", reply.clone()).await.contains("not found"));
    }
    desk.ok(&cx("s", Some("a")), "reply_prompt", reply).await;
}

#[tokio::test]
async fn open_prompts_are_bounded_and_their_ids_unique() {
    let desk = Desk::new();
    let mut ids = Vec::new();
    for _ in 0..=MAX_OPEN {
        ids.push(desk.ask(&me(), json!({"prompt": "?", "type": "text"})).await);
    }
    assert_eq!(ids.iter().collect::<HashSet<_>>().len(), MAX_OPEN + 1);
    assert!(
        desk.err(&me(), "reply_prompt", json!({"messageId": ids[0], "answer": "x"}))
            .await
            .contains("expired")
    );
    desk.ok(&me(), "reply_prompt", json!({"messageId": ids[1], "answer": "x"})).await;
    for _ in 0..100 {
        ids.push(desk.ask(&me(), json!({"prompt": "é".repeat(16_384), "type": "text"})).await);
    }
    let last = ids.last().unwrap();
    desk.ok(&me(), "reply_prompt", json!({"messageId": last, "answer": "x"})).await;
}

#[tokio::test]
async fn charts_show_every_point() {
    let desk = Desk::new();
    let data = json!([{"label": "a", "value": 1.0}, {"label": "b", "value": -2.5}]);
    for (kind, mark) in [("bar", "<rect"), ("line", "<circle")] {
        let shown = desk.ok(&me(), "visualize_data", json!({"type": kind, "data": data, "title": "T"})).await;
        let expected = json!({"type": kind, "title": "T", "data": data, "dataPoints": 2});
        assert_eq!(shown["structuredContent"], expected);
        assert!(shown["content"][1]["resource"]["uri"].as_str().unwrap().starts_with("ui://visualizations/"));
        let html = page(&shown);
        assert_eq!(html.matches(mark).count(), 2);
        assert!(html.contains(r#"role="img""#) && html.contains("-2.5"));
    }
    for (arguments, expected) in [
        (json!({"type": "bar", "data": []}), "Error: data must not be empty"),
        (json!({"type": "pie", "data": data}), "Error: type must be one of bar, line"),
        (json!({"type": "bar", "data": [{"label": "a"}]}), "Error: data[0].value is required"),
        (
            json!({"type": "bar", "data": [{"label": "a", "value": "1"}]}),
            "Error: data[0].value must be a number",
        ),
        (json!({"type": "bar", "data": data, "title": " "}), "Error: title is required"),
    ] {
        assert_eq!(desk.err(&me(), "visualize_data", arguments).await, expected);
    }
}

#[tokio::test]
async fn a_pause_is_resumed_with_the_time_it_took() {
    let desk = Desk::new();
    let waiting = desk
        .ok(&me(), "wait_for_user_resume", json!({"message": "Log in", "resumeInstruction": "go on"}))
        .await;
    let told = &waiting["structuredContent"];
    assert_eq!((&told["waiting"], &told["startedAt"]), (&json!(true), &json!("2026-01-01T00:00:00.000Z")));
    assert!(waiting["content"][1]["resource"]["uri"].as_str().unwrap().starts_with("ui://wait/"));
    assert!(page(&waiting).contains("resume_from_wait") && page(&waiting).contains("Log in"));
    desk.clock.advance(Duration::from_secs(3725));
    let arguments = json!({"resumeInstruction": "go on", "startedAt": told["startedAt"], "sessionId": "x"});
    let resumed = desk.ok(&me(), "resume_from_wait", arguments).await;
    let expected = json!({"resumed": true, "duration": "1h 2m", "resumeInstruction": "go on",
        "startedAt": "2026-01-01T00:00:00.000Z", "resumedAt": "2026-01-01T01:02:05.000Z"});
    assert_eq!(resumed["structuredContent"], expected);
    let future = json!({"resumeInstruction": "go on", "startedAt": "2027-01-01T00:00:00Z"});
    let resumed = desk.ok(&me(), "resume_from_wait", future).await;
    assert_eq!(resumed["structuredContent"]["duration"], json!("0s"));
    let wrong = json!({"resumeInstruction": "go on", "startedAt": "yesterday"});
    assert!(desk.err(&me(), "resume_from_wait", wrong).await.contains("RFC 3339"));
    for (tool, missing) in [("wait_for_user_resume", "message"), ("resume_from_wait", "startedAt")] {
        let text = desk.err(&me(), tool, json!({"resumeInstruction": "x"})).await;
        assert_eq!(text, format!("Error: {missing} is required"));
    }
}

#[tokio::test]
async fn no_schema_shows_a_context_field_and_every_tool_is_described() {
    let offer = Desk::new().backend.offer(&me()).await;
    assert_eq!(offer.tools.len(), 5);
    for tool in &offer.tools {
        let definition: Value = tool.definition.parse().unwrap();
        assert!(definition["description"].as_str().unwrap().len() > 20, "{}", tool.name);
        assert!(!tool.definition.as_str().contains("\"__"), "{}", tool.name);
    }
}

#[tokio::test]
async fn an_unknown_tool_is_refused_by_the_backend_itself() {
    let ui = Ui::new(Arc::new(MemoryState::new(MemoryOptions::default())), Clock::system());
    assert!(matches!(ui.call_tool("nope", Raw::empty_object(), &me()).await, Err(ToolError::Call(_))));
}

/// Text full of what HTML, scripts and JSON care about.
fn nasty() -> impl Strategy<Value = String> {
    prop::collection::vec(
        prop_oneof![
            Just("</script>".to_owned()),
            Just("<img src=x onerror=alert(1)>".to_owned()),
            Just("\"'&<>`\\".to_owned()),
            Just("]]>\u{2028}".to_owned()),
            "[ -~]{1,8}",
            "\\PC{1,4}",
        ],
        1..5,
    )
    .prop_map(|parts| format!("x{}", parts.concat()))
}

/// The same text with every special made harmless: whatever page it is put on must have the same tags and attributes.
fn harmless(text: &str) -> String {
    text.replace(['<', '>', '"', '\'', '&', '\\'], "x")
}

/// How often the characters occur that open and close tags and attributes.
fn structure(html: &str) -> [usize; 4] {
    ['<', '>', '"', '\''].map(|special| html.matches(special).count())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn no_text_adds_markup_to_a_page(text in nasty()) {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        runtime.block_on(async {
            let desk = Desk::new();
            for (tool, arguments) in [
                ("prompt_user", (|text: &str| json!({"prompt": text, "type": "text"})) as fn(&str) -> Value),
                ("prompt_user", |text| json!({"prompt": text, "type": "multiselect", "options": [text, "o"]})),
                ("visualize_data", |text| json!({"type": "bar", "title": text, "data": [{"label": text, "value": 1}]})),
                ("visualize_data", |text| json!({"type": "line", "data": [{"label": text, "value": 1}]})),
                ("wait_for_user_resume", |text| json!({"message": text, "resumeInstruction": text})),
            ] {
                let shown = desk.ok(&me(), tool, arguments(&text)).await;
                let plain = desk.ok(&me(), tool, arguments(&harmless(&text))).await;
                assert_eq!(structure(page(&shown)), structure(page(&plain)), "{tool}");
            }
        });
    }
}
