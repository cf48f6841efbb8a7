//! The same request gives the same result on every transport, in both eras and both framings.
//!
//! Every built-in tool is called with arguments that work and with some that do not. Generated ids and times aside, all
//! answers have to be equal; a tool that is listed and has no entry in the table fails the test.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::collections::BTreeSet;

use anyhow::{Context as _, Result};
use moongate_test_integration::pipe::ModernPipe;
use moongate_test_support::{Framing, Gateway, LegacySession, ModernClient, Outcome, Stdio};
use serde_json::{Value, json};

/// The version with a handshake that is compared with the one without.
const LEGACY: &str = "2025-11-25";

/// A gateway and one way to speak to it.
enum Way {
    HttpLegacy { session: LegacySession, _gateway: Gateway },
    HttpModern { client: ModernClient, _gateway: Gateway },
    PipeLegacy(Stdio),
    PipeModern(ModernPipe),
}

impl Way {
    async fn all() -> Result<Vec<(&'static str, Self)>> {
        let gateway = Gateway::start("").await?;
        let session = LegacySession::open(&gateway.client(), LEGACY).await?;
        let mut ways = vec![("HTTP, legacy", Self::HttpLegacy { session, _gateway: gateway })];
        let gateway = Gateway::start("").await?;
        let client = ModernClient::new(&gateway.client());
        ways.push(("HTTP, modern", Self::HttpModern { client, _gateway: gateway }));
        for (legacy, modern, framing) in [
            ("lines, legacy", "lines, modern", Framing::Line),
            ("Content-Length, legacy", "Content-Length, modern", Framing::ContentLength),
        ] {
            let mut pipe = Stdio::start("")?.with_framing(framing);
            pipe.initialize(LEGACY, &json!({})).await?;
            ways.push((legacy, Self::PipeLegacy(pipe)));
            let pipe = ModernPipe::new(Stdio::start("")?.with_framing(framing));
            ways.push((modern, Self::PipeModern(pipe)));
        }
        Ok(ways)
    }

    async fn request(&mut self, method: &str, params: &Value) -> Result<Outcome> {
        match self {
            Self::HttpLegacy { session, .. } => session.request(method, params).await,
            Self::HttpModern { client, .. } => client.request(method, params).await,
            Self::PipeLegacy(pipe) => pipe.request(method, params).await,
            Self::PipeModern(pipe) => pipe.request(method, params).await,
        }
    }

    /// The result or the error of a request, without what only the modern era has.
    async fn answer(&mut self, method: &str, params: &Value) -> Result<Value> {
        let outcome = self.request(method, params).await?;
        // A legacy pipe hears at any time that its resources are others now: new texts are such.
        let mut unasked = outcome.notifications.iter().map(|message| &message["method"]);
        let expected = unasked.all(|method| method == "notifications/resources/list_changed");
        anyhow::ensure!(expected, "nobody asked for these: {outcome:?}");
        let mut response = outcome.response;
        let members = response.as_object_mut().context("a response is an object")?;
        anyhow::ensure!(members.remove("id").is_some(), "a response has the id of its request");
        let result = members.get_mut("result").and_then(Value::as_object_mut);
        if let (Self::HttpModern { .. } | Self::PipeModern(_), Some(result)) = (self, result) {
            let kind = result.remove("resultType");
            anyhow::ensure!(kind == Some(json!("complete")), "a modern result says what it is: {result:?}");
            for only_modern in ["_meta", "ttlMs", "cacheScope"] {
                result.remove(only_modern);
            }
        }
        Ok(response)
    }
}

/// Calls that follow each other in a session of their own. A text that begins with `$/` points into the structured
/// content of the call before.
type Story = Vec<(&'static str, Value)>;

/// The arguments of every built-in tool, by its name.
fn stories() -> Vec<Story> {
    let step = json!({
        "description": "Look around",
        "action": {"toolName": "list_goals", "purpose": "to know what is wanted"},
        "requiredData": ["nothing"],
        "outputVariable": "goals",
    });
    let playbook = json!({"name": "Orientation", "goal": "Know the {{what}}", "workflow": [step],
        "inputs": [{"name": "what", "description": "What to know"}],
        "successCriteria": {"description": "Somebody knows", "requiredArtifacts": ["a list"]}});
    let thought = |number: u64| {
        json!({"thought": "Hm", "nextThoughtNeeded": true, "thoughtNumber": number, "totalThoughts": 2,
            "branchFromThought": 1, "branchId": "b"})
    };
    let with_playbook = |tool, arguments| vec![("create_playbook", playbook.clone()), (tool, arguments)];
    let by_id = json!({"id": "$/playbook/id"});
    let text = json!({"filename": "größer.txt", "content": "First 목표\nsecond <b>\"line\"</b>\nthird"});
    let with_text = |tool, arguments| vec![("add_content", text.clone()), (tool, arguments)];
    vec![
        vec![
            ("create_goal", json!({"goal": "Größer 목표 <b>&\"quoted\"</b>"})),
            ("create_goal", json!({"goal": "Another"})),
            ("update_goal", json!({"goal": "Yet another"})),
            ("list_goals", json!({})),
            ("clear_goal", json!({})),
            ("clear_goal", json!({})),
            ("clear_goal", json!({})),
        ],
        vec![
            ("add_todo", json!({"name": "First", "priority": "high"})),
            ("add_todo", json!({"name": "Second", "dependsOn": [1]})),
            ("mark_todo", json!({"id": 1, "summary": "Done so"})),
            ("mark_todo", json!({"todo_id": "2", "completed": false})),
            ("mark_todo", json!({"id": 99})),
            ("update_todo", json!({"id": 2, "status": "blocked"})),
            ("clear_todos", json!({"ids": [1]})),
            ("get_planning_state", json!({})),
            ("clear_todos", json!({})),
        ],
        vec![
            ("add_memo", json!({"memo": "Remember", "source": "me"})),
            ("clear_memo", json!({"id": 0})),
            ("clear_memo", json!({"id": 0})),
        ],
        vec![
            ("sequentialthinking", thought(1)),
            ("sequentialthinking", thought(3)),
            ("critiqueAndReflection", json!({"critique": "c", "reflection": "r", "nextAction": "n"})),
            ("get_planning_state", json!({"include_completed": false, "include_scratchpad": false})),
            ("clear_session", json!({})),
            ("get_planning_state", json!({})),
        ],
        vec![("list_playbooks", json!({})), ("create_playbook", playbook.clone())],
        with_playbook("select_playbook", json!({"id": "$/playbook/id", "inputs": {"what": "goals"}})),
        with_playbook("get_playbook", by_id.clone()),
        with_playbook("update_playbook", json!({"id": "$/playbook/id", "playbook": {"goal": "Less"}})),
        with_playbook("delete_playbook", by_id),
        with_playbook("list_playbooks", json!({"page": 1, "pageSize": 1})),
        with_playbook("show_playbooks", json!({})),
        with_playbook("get_playbook_page", json!({"page": 1, "pageSize": 5})),
        vec![("list_contents", json!({})), ("add_content", text.clone()), ("list_contents", json!({}))],
        with_text("read_content", json!({"content_id": "$/contentId", "from_line": 2, "to_line": 2})),
        with_text("read_content", json!({"contentId": "$/contentId", "from_line": 4})),
        with_text("search_content", json!({"query": "목표 second"})),
        with_text("delete_content", json!({"content_id": "$/contentId"})),
        vec![
            ("prompt_user", json!({"prompt": "<which?>", "type": "select", "options": ["a", "b"]})),
            ("reply_prompt", json!({"messageId": "$/messageId", "answer": "a"})),
            ("reply_prompt", json!({"messageId": "$/messageId", "answer": "a"})),
        ],
        vec![(
            "visualize_data",
            json!({"type": "bar", "title": "T", "data": [
            {"label": "a", "value": 1}, {"label": "b", "value": 2.5}]}),
        )],
        vec![("wait_for_user_resume", json!({"message": "m", "resumeInstruction": "go on"}))],
        vec![(
            "resume_from_wait",
            json!({"resumeInstruction": "go on", "startedAt": "2020-01-01T00:00:00Z"}),
        )],
        vec![
            ("execute_shell", json!({"command": "echo \"out's\"; echo err >&2; exit 3"})),
            ("execute_shell", json!({"command": "true", "timeout": 31})),
            ("execute_command", json!({"command": "sleep 1000"})),
            ("poll_process", json!({"processId": "$/processId"})),
            ("read_process_output", json!({"process_id": "$/processId", "stream": "stdout"})),
            ("terminate_process", json!({"processId": "$/process_id"})),
            ("list_processes", json!({"status_filter": "finished"})),
            ("terminate_process", json!({"processId": "unknown"})),
            ("poll_process", json!({})),
        ],
        vec![
            ("write_file", json!({"path": "a/b.txt", "content": "one\ntwo\nthree\n"})),
            ("read_file", json!({"path": "a/b.txt", "start_line": 2})),
            ("read_file", json!({"path": "../b.txt"})),
            (
                "replace_lines_in_file",
                json!({"path": "a/b.txt", "replacements": [{"start_line": 2, "new_content": "zwei"}]}),
            ),
            ("list_directory", json!({"path": "a"})),
            ("search_files", json!({"pattern": "**/*.txt"})),
            ("grep", json!({"pattern": "z.ei", "path": "a/b.txt", "line_numbers": true})),
            ("import_file", json!({"src_abs_path": "/etc/hostname", "dest_rel_path": "c"})),
            ("export_file", json!({"path": "nothing"})),
            ("export_zip", json!({"files": ["nothing"]})),
            ("export_file", json!({"path": "a/b.txt", "description": "<b>"})),
            ("export_zip", json!({"files": ["a/b.txt", "nothing"], "package_name": "package"})),
        ],
    ]
}

/// Replaces pointers by what they point to.
fn resolved(arguments: &Value, before: &Value) -> Result<Value> {
    let mut arguments = arguments.clone();
    for (name, value) in arguments.as_object_mut().context("arguments are an object")? {
        if let Some(pointer) = value.as_str().and_then(|text| text.strip_prefix('$')) {
            let found = before.pointer(pointer).cloned();
            *value = found.with_context(|| format!("nothing at {pointer} for {name} in {before}"))?;
        }
    }
    Ok(arguments)
}

/// What each call of a story was answered with, in the session `name`.
async fn tell(way: &mut Way, story: &Story, name: &str) -> Result<Vec<Value>> {
    let mut answers: Vec<Value> = Vec::new();
    for (tool, arguments) in story {
        let before =
            answers.last().map_or(Value::Null, |answer| answer["result"]["structuredContent"].clone());
        let arguments = resolved(arguments, &before)?;
        let meta = json!({"dev.moongate/sessionId": name});
        let params = json!({"name": tool, "arguments": arguments, "_meta": meta});
        answers.push(way.answer("tools/call", &params).await.context(*tool)?);
    }
    Ok(answers)
}

/// Shorter ones count something; the gateway makes ids that nobody guesses.
const SHORTEST_ID: usize = 12;

/// The answers with every generated id and time replaced by a word.
fn normal(answers: &[Value]) -> Result<Vec<Value>> {
    let mut ids = BTreeSet::new();
    for answer in answers {
        collect_ids(answer, &mut ids);
    }
    let mut text = Value::from(answers).to_string();
    // The longest first: one id may begin like another.
    let mut ids: Vec<_> = ids.into_iter().filter(|id| id.len() >= SHORTEST_ID).collect();
    ids.sort_by_key(|id| std::cmp::Reverse(id.len()));
    for id in ids {
        text = text.replace(&id, "ID");
    }
    let mut answers: Vec<Value> = serde_json::from_str(&without_times(&text))?;
    answers.iter_mut().for_each(forget_durations);
    answers.iter_mut().for_each(forget_pids);
    Ok(answers)
}

/// Ids that the gateway made: texts called so, and the last part of the address of a page.
fn collect_ids(value: &Value, ids: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| collect_ids(item, ids)),
        Value::Object(members) => {
            for (name, member) in members {
                match (name.as_str(), member) {
                    (
                        "id" | "messageId" | "stepId" | "contentId" | "processId" | "process_id",
                        Value::String(id),
                    ) => {
                        ids.insert(id.clone());
                    }
                    ("uri", Value::String(uri)) => {
                        ids.extend(uri.rsplit('/').next().map(str::to_owned));
                    }
                    _ => collect_ids(member, ids),
                }
            }
        }
        _ => {}
    }
}

/// The text with each `2026-01-01T00:00:00…Z` replaced, and the fraction of a second with it.
fn without_times(text: &str) -> String {
    const SHAPE: &str = "dddd-dd-ddTdd:dd:dd";
    let fits = |bytes: &[u8]| {
        bytes.len() == SHAPE.len()
            && bytes.iter().zip(SHAPE.bytes()).all(|(byte, shape)| match shape {
                b'd' => byte.is_ascii_digit(),
                other => *byte == other,
            })
    };
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(next) = rest.chars().next() {
        match rest.as_bytes().get(..SHAPE.len()) {
            Some(head) if fits(head) => {
                out.push_str("TIME");
                rest = rest.split_at(SHAPE.len()).1;
                rest = rest.trim_start_matches(|c: char| c == '.' || c.is_ascii_digit());
            }
            _ => {
                out.push(next);
                rest = rest.split_at(next.len_utf8()).1;
            }
        }
    }
    out
}

/// The system's own numbers of processes.
fn forget_pids(value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(forget_pids),
        Value::Object(members) => {
            for (name, member) in members {
                if name == "pid" && member.is_i64() {
                    *member = "PID".into();
                }
                forget_pids(member);
            }
        }
        _ => {}
    }
}

/// How long somebody waited depends on when that was asked.
fn forget_durations(value: &mut Value) {
    let Some(duration) = value.pointer("/result/structuredContent/duration").and_then(Value::as_str) else {
        return;
    };
    let duration = duration.to_owned();
    let text = value.to_string().replace(&duration, "DURATION");
    *value = serde_json::from_str(&text).expect("a duration has no quotes");
}

/// Does the same on every way and compares the outcomes with the first.
async fn agree<T: PartialEq + std::fmt::Debug>(
    ways: &mut [(&'static str, Way)],
    what: &str,
    mut on: impl AsyncFnMut(&mut Way) -> Result<T>,
) -> Result<T> {
    let mut expected = None;
    for (name, way) in ways {
        let seen = on(way).await.with_context(|| format!("{what} over {name}"))?;
        match &expected {
            None => expected = Some(seen),
            Some(expected) => assert_eq!(&seen, expected, "{what} over {name}"),
        }
    }
    expected.context("there is at least one way")
}

/// The names of all tools that the gateway lists.
async fn listed(way: &mut Way) -> Result<BTreeSet<String>> {
    let answer = way.answer("tools/list", &json!({})).await?;
    let tools = answer["result"]["tools"].as_array().context("a list of tools")?;
    tools.iter().map(|tool| Ok(tool["name"].as_str().context("a name")?.to_owned())).collect()
}

#[tokio::test]
async fn every_built_in_tool_answers_alike_on_every_way() -> Result<()> {
    let mut ways = Way::all().await?;
    let tools = agree(&mut ways, "tools/list", listed).await?;
    let stories = stories();
    let told: BTreeSet<_> = stories.iter().flatten().map(|(tool, _)| (*tool).to_owned()).collect();
    assert_eq!(tools, told, "every tool has an entry, and every entry is a tool");
    for (number, story) in stories.iter().enumerate() {
        let name = format!("story {number}");
        let answers = agree(&mut ways, &name, async |way| normal(&tell(way, story, &name).await?)).await?;
        for ((tool, _), answer) in story.iter().zip(answers) {
            assert!(answer["result"]["isError"].is_boolean(), "{tool} says how it ended: {answer}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn every_built_in_tool_refuses_alike_on_every_way() -> Result<()> {
    let mut ways = Way::all().await?;
    for tool in agree(&mut ways, "tools/list", listed).await? {
        for arguments in [json!({"no_such_argument": 1}), json!({"id": [], "goal": 5, "prompt": {}})] {
            let params = json!({"name": tool, "arguments": arguments});
            let answer = agree(&mut ways, &tool, async |way| way.answer("tools/call", &params).await).await?;
            assert_eq!(answer["result"]["isError"], json!(true), "{tool}: {answer}");
        }
        let params = json!({"name": tool, "arguments": "not an object"});
        let answer = agree(&mut ways, &tool, async |way| way.answer("tools/call", &params).await).await?;
        assert_eq!(answer["error"]["code"], json!(-32602), "{tool}: {answer}");
    }
    Ok(())
}

#[tokio::test]
async fn lists_and_errors_are_alike_on_every_way() -> Result<()> {
    let mut ways = Way::all().await?;
    for method in ["tools/list", "prompts/list", "resources/list", "resources/templates/list"] {
        let answer = agree(&mut ways, method, async |way| way.answer(method, &json!({})).await).await?;
        assert!(answer["result"].is_object(), "{method}: {answer}");
    }
    for (method, params, code) in [
        ("tools/call", json!({"name": "no_such_tool", "arguments": {}}), -32602),
        ("prompts/get", json!({"name": "no_such_prompt"}), -32602),
        ("tools/list", json!({"cursor": "no such cursor"}), -32602),
        ("no/such/method", json!({}), -32601),
    ] {
        let answer = agree(&mut ways, method, async |way| way.answer(method, &params).await).await?;
        assert_eq!(answer["error"]["code"], json!(code), "{method} {params}: {answer}");
    }
    Ok(())
}

#[test]
fn times_are_found_and_nothing_else() {
    for (text, expected) in [
        ("at 2026-01-02T03:04:05Z!", "at TIMEZ!"),
        ("2026-01-02T03:04:05.678Z", "TIMEZ"),
        ("목표 2026-01-02 T03:04:05", "목표 2026-01-02 T03:04:05"),
        ("", ""),
    ] {
        assert_eq!(without_times(text), expected);
    }
}
