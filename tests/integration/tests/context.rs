//! Which session, assistant and thread a call is for: who may say so, and that no two of them ever mix (CTX-T…).
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{collections::BTreeSet, sync::Arc};

use anyhow::{Context as _, Result};
use moongate_test_integration::{UNLIMITED, caller, fixture, pipe::ModernPipe, waiting};
use moongate_test_support::{Client, Gateway, LegacySession, ModernClient, Stdio, patiently};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const SESSION: &str = "x-session-id";
const ASSISTANT: &str = "x-assistant-id";
const THREAD: &str = "x-thread-id";

/// A modern client whose requests carry these headers.
fn acting(client: &Client, headers: &[(&str, &str)]) -> ModernClient {
    let client = headers.iter().fold(client.clone(), |client, (name, value)| client.with_header(name, value));
    ModernClient::new(&client)
}

/// The names in the result of `list_goals`.
fn names(listed: &Value) -> Vec<String> {
    let goals = listed["structuredContent"]["goals"].as_array().cloned().unwrap_or_default();
    goals.iter().map(|goal| goal["name"].as_str().unwrap_or("a goal without a name").to_owned()).collect()
}

async fn create(client: &ModernClient, goal: &str) -> Result<()> {
    let created = client.call("create_goal", json!({"goal": goal})).await?;
    anyhow::ensure!(created["isError"] == false, "{created}");
    Ok(())
}

async fn goals(client: &ModernClient) -> Result<Vec<String>> {
    Ok(names(&client.call("list_goals", json!({})).await?))
}

#[tokio::test]
async fn ctx_t1_goals_of_two_sessions_do_not_mix() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let first = acting(&gateway.client(), &[(SESSION, "sess_1")]);
    let second = acting(&gateway.client(), &[(SESSION, "sess_2")]);
    for (client, goal) in [(&first, "Session 1 Goal"), (&second, "Session 2 Goal")] {
        let created = client.call("create_goal", json!({"goal": goal})).await?;
        assert_eq!(created["isError"], json!(false));
    }
    let listed = first.call("list_goals", json!({})).await?;
    let text = listed["content"][0]["text"].as_str().context("a text")?;
    assert!(text.contains("Session 1 Goal") && !text.contains("Session 2 Goal"), "{text}");
    Ok(())
}

#[tokio::test]
async fn ctx_t1_legacy_sessions_do_not_mix() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let first = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    let second = LegacySession::open(&gateway.client(), "2024-11-05").await?;
    first.call("create_goal", json!({"goal": "first"})).await?;
    second.call("create_goal", json!({"goal": "second"})).await?;
    assert_eq!(names(&first.call("list_goals", json!({})).await?), ["first"]);
    assert_eq!(names(&second.call("list_goals", json!({})).await?), ["second"]);
    Ok(())
}

#[tokio::test]
async fn ctx_t1_sessions_of_one_pipe_do_not_mix() -> Result<()> {
    let mut pipe = ModernPipe::new(Stdio::start("")?);
    let params = |tool: &str, arguments: Value, session: &str| json!({"name": tool, "arguments": arguments, "_meta": {"dev.moongate/sessionId": session}});
    for session in ["sess_1", "sess_2"] {
        let create = params("create_goal", json!({"goal": format!("Goal of {session}")}), session);
        pipe.request("tools/call", &create).await?.result()?;
    }
    pipe.call("create_goal", json!({"goal": "Goal of the pipe"})).await?;
    for session in ["sess_1", "sess_2"] {
        let listed = pipe.request("tools/call", &params("list_goals", json!({}), session)).await?.result()?;
        assert_eq!(names(&listed), [format!("Goal of {session}")]);
    }
    assert_eq!(names(&pipe.call("list_goals", json!({})).await?), ["Goal of the pipe"]);
    Ok(())
}

#[tokio::test]
async fn ctx_t2_goals_of_two_assistants_in_one_session_do_not_mix() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let first = acting(&gateway.client(), &[(SESSION, "sess_1"), (ASSISTANT, "asst_1")]);
    let second = acting(&gateway.client(), &[(SESSION, "sess_1"), (ASSISTANT, "asst_2")]);
    let nobody = acting(&gateway.client(), &[(SESSION, "sess_1")]);
    create(&first, "of the first").await?;
    create(&second, "of the second").await?;
    assert_eq!(goals(&first).await?, ["of the first"]);
    assert_eq!(goals(&second).await?, ["of the second"]);
    assert!(goals(&nobody).await?.is_empty());
    Ok(())
}

#[tokio::test]
async fn ctx_t3_three_sessions_at_once_each_see_their_own() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let clients = ["sess_1", "sess_2", "sess_3"].map(|id| (id, acting(&gateway.client(), &[(SESSION, id)])));
    let [(_, a), (_, b), (_, c)] = &clients;
    let created = tokio::join!(create(a, "sess_1"), create(b, "sess_2"), create(c, "sess_3"));
    created.0.and(created.1).and(created.2)?;
    for (id, client) in &clients {
        assert_eq!(goals(client).await?, [*id]);
    }
    Ok(())
}

/// Creates a playbook and returns its id.
async fn playbook(client: &ModernClient, name: &str) -> Result<String> {
    let step = json!({
        "description": "Look around",
        "action": {"toolName": "list_goals", "purpose": "to know what is wanted"},
        "requiredData": [],
        "outputVariable": "goals",
    });
    let record = json!({"name": name, "goal": "Know the goals", "workflow": [step]});
    let created = client.call("create_playbook", record).await?;
    anyhow::ensure!(created["isError"] == false, "{created}");
    let id = created["structuredContent"]["playbook"]["id"].as_str();
    Ok(id.with_context(|| format!("no id: {created}"))?.to_owned())
}

async fn playbooks(client: &ModernClient) -> Result<Vec<String>> {
    let listed = client.call("list_playbooks", json!({})).await?;
    let playbooks = listed["structuredContent"]["playbooks"].as_array().cloned();
    let playbooks = playbooks.with_context(|| format!("no list: {listed}"))?;
    Ok(playbooks.iter().map(|playbook| playbook["name"].as_str().unwrap_or_default().to_owned()).collect())
}

#[tokio::test]
async fn ctx_t4_a_playbook_is_selected_by_its_owner() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let owner = acting(&gateway.client(), &[(SESSION, "sess_1"), (ASSISTANT, "asst_1")]);
    let id = playbook(&owner, "Orientation").await?;
    let selected = owner.call("select_playbook", json!({"id": id})).await?;
    assert_eq!(selected["isError"], json!(false), "{selected}");
    assert_eq!(selected["structuredContent"]["selected"], json!(id));
    Ok(())
}

/// What another assistant of the same session gets when it selects a playbook.
async fn select_as_another() -> Result<Value> {
    let gateway = Gateway::start("").await?;
    let owner = acting(&gateway.client(), &[(SESSION, "sess_1"), (ASSISTANT, "asst_1")]);
    let other = acting(&gateway.client(), &[(SESSION, "sess_1"), (ASSISTANT, "asst_2")]);
    let id = playbook(&owner, "Orientation").await?;
    other.call("select_playbook", json!({"id": id})).await
}

#[tokio::test]
async fn ctx_t5_a_playbook_of_another_assistant_is_denied() -> Result<()> {
    let refused = select_as_another().await?;
    assert_eq!(refused["isError"], json!(true));
    let text = refused["content"][0]["text"].as_str().context("a text")?;
    assert!(text.contains("Permission denied"), "{text}");
    Ok(())
}

#[tokio::test]
async fn ctx_t6_the_denial_says_whose_the_playbook_is_not() -> Result<()> {
    let refused = select_as_another().await?;
    let error = &refused["structuredContent"]["error"];
    assert_eq!(error["code"], json!(-32603));
    let message = error["message"].as_str().context("a message")?;
    assert!(message.contains("not belong to assistant asst_2"), "{message}");
    Ok(())
}

#[tokio::test]
async fn ctx_t12_goals_are_objects_of_their_session_only() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let first = acting(&gateway.client(), &[(SESSION, "sess_1")]);
    let second = acting(&gateway.client(), &[(SESSION, "sess_2")]);
    create(&first, "Goal A").await?;
    create(&second, "Goal B").await?;
    for (client, own, foreign) in [(&first, "Goal A", "Goal B"), (&second, "Goal B", "Goal A")] {
        let listed = client.call("list_goals", json!({})).await?;
        let goals = listed["structuredContent"]["goals"].as_array().context("a list of goals")?;
        assert!(goals.iter().any(|goal| goal["name"] == own), "{listed}");
        assert!(!goals.iter().any(|goal| goal["name"] == foreign), "{listed}");
    }
    Ok(())
}

/// The paths of all members under `properties` whose name begins with `__`.
fn context_fields(schema: &Value, path: &str) -> Vec<String> {
    match schema {
        Value::Object(members) => {
            let nested = members.iter().flat_map(|(name, value)| {
                let path = format!("{path}/{name}");
                let own = name.starts_with("__").then(|| path.clone());
                own.into_iter().chain(context_fields(value, &path))
            });
            nested.collect()
        }
        Value::Array(items) => items.iter().flat_map(|item| context_fields(item, path)).collect(),
        Value::String(text) if text.starts_with("__") => vec![format!("{path} says {text}")],
        _ => Vec::new(),
    }
}

#[tokio::test]
async fn ctx_t13_no_schema_shows_a_context_field() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let modern = ModernClient::new(&gateway.client()).list("tools/list").await?;
    let legacy = LegacySession::open(&gateway.client(), "2025-06-18").await?.list("tools/list").await?;
    for listed in [modern, legacy] {
        let tools = listed["tools"].as_array().context("a list of tools")?;
        assert!(tools.iter().any(|tool| tool["name"] == "create_goal"), "the built-in tools are there too");
        for tool in tools {
            assert_eq!(context_fields(&tool["inputSchema"], ""), Vec::<String>::new(), "{}", tool["name"]);
            let told = tool["description"].as_str().context("a description")?;
            assert!(!told.contains("__"), "{told}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn ctx_t15_a_call_without_a_session_runs_in_default_and_is_warned_about_once() -> Result<()> {
    let mut gateway = Gateway::start("").await?;
    let nobody = ModernClient::new(&gateway.client());
    create(&nobody, "in default").await?;
    let warning = gateway.logged("calls that name no session share this one").await?;
    for told in ["WARN", "local", "default"] {
        assert!(warning.contains(told), "{warning}");
    }
    let named = acting(&gateway.client(), &[(SESSION, "default")]);
    assert_eq!(goals(&named).await?, ["in default"]);
    assert_eq!(goals(&nobody).await?, ["in default"]);
    let warnings = gateway.process().stderr().text().matches("calls that name no session").count();
    assert_eq!(warnings, 1, "once for each principal, not for each call");
    Ok(())
}

/// Uses the state of `client` again and again, for as long as it is polled.
async fn keep_using(client: &ModernClient) -> Result<String> {
    let used = waiting::eventually("nothing", async || {
        let found = goals(client).await?;
        anyhow::ensure!(found == ["kept"], "state in use is gone: {found:?}");
        Ok(None)
    });
    used.await
}

#[tokio::test]
async fn ctx_t16_idle_state_goes_with_a_sweep_and_used_state_stays() -> Result<()> {
    let yaml = format!(
        "{UNLIMITED}context: {{state_ttl: 2s, sweep_interval: 50ms}}\ntelemetry: {{log_level: debug}}"
    );
    let mut gateway = Gateway::start(&yaml).await?;
    let idle = acting(&gateway.client(), &[(SESSION, "idle_session")]);
    let used = acting(&gateway.client(), &[(SESSION, "used_session")]);
    create(&idle, "forgotten").await?;
    create(&used, "kept").await?;
    let swept = gateway.process().stderr();
    let swept = swept.line(|line| line.contains("state expired") && line.contains("idle_session"));
    tokio::select! {
        line = patiently("the sweep of idle state", swept) => line??,
        stopped = keep_using(&used) => stopped?,
    };
    assert!(goals(&idle).await?.is_empty());
    assert_eq!(goals(&used).await?, ["kept"]);
    Ok(())
}

#[tokio::test]
async fn ctx_t16_the_least_recently_used_state_goes_when_there_are_too_many() -> Result<()> {
    let gateway = Gateway::start("context: {eviction: lru, lru_max: 2}").await?;
    let [a, b, c] = ["a", "b", "c"].map(|id| acting(&gateway.client(), &[(SESSION, id)]));
    create(&a, "a").await?;
    create(&b, "b").await?;
    assert_eq!(goals(&a).await?, ["a"]);
    create(&c, "c").await?;
    assert_eq!(goals(&a).await?, ["a"]);
    assert_eq!(goals(&c).await?, ["c"]);
    assert!(goals(&b).await?.is_empty());
    Ok(())
}

/// One of a hundred callers: half of them sessions of their own, half named by a header.
enum Caller {
    Legacy(LegacySession),
    Modern(ModernClient),
}

impl Caller {
    async fn nth(gateway: &Gateway, number: usize) -> Result<Self> {
        let client = gateway.client();
        if number.is_multiple_of(2) {
            return LegacySession::open(&client, "2025-11-25").await.map(Self::Legacy);
        }
        Ok(Self::Modern(acting(&client, &[(SESSION, &format!("named_{number}"))])))
    }

    async fn call(&self, tool: &str, arguments: Value) -> Result<Value> {
        match self {
            Self::Legacy(session) => session.call(tool, arguments).await,
            Self::Modern(client) => client.call(tool, arguments).await,
        }
    }
}

#[tokio::test]
async fn ctx_t17_two_hundred_calls_at_once_over_a_hundred_sessions_never_mix() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let mut callers = Vec::new();
    for number in 0..100 {
        callers.push(Arc::new(Caller::nth(&gateway, number).await?));
    }
    let mut calls = JoinSet::new();
    for (number, caller) in callers.iter().enumerate() {
        for half in ["left", "right"] {
            let caller = Arc::clone(caller);
            calls.spawn(async move {
                let goal = format!("{half} of {number}");
                let created = caller.call("create_goal", json!({"goal": goal})).await?;
                anyhow::ensure!(created["structuredContent"]["goal"] == goal, "{goal} got {created}");
                anyhow::Ok(())
            });
        }
    }
    assert_eq!(calls.len(), 200);
    while let Some(called) = calls.join_next().await {
        called??;
    }
    for (number, caller) in callers.iter().enumerate() {
        let mut found = names(&caller.call("list_goals", json!({})).await?);
        found.sort();
        assert_eq!(found, [format!("left of {number}"), format!("right of {number}")]);
    }
    Ok(())
}

/// Opens sessions until there are `count`, each with a goal.
async fn grow(client: &Client, sessions: &mut Vec<LegacySession>, count: usize) -> Result<()> {
    while sessions.len() < count {
        let session = LegacySession::open(client, "2025-11-25").await?;
        session.call("create_goal", json!({"goal": "take some memory"})).await?;
        sessions.push(session);
    }
    Ok(())
}

#[tokio::test]
async fn ctx_t18_memory_grows_with_sessions_by_little_and_with_calls_not_at_all() -> Result<()> {
    const KIB: u64 = 1024;
    let gateway = Gateway::start(UNLIMITED).await?;
    // All over one connection: it is sessions that are weighed here.
    let (client, mut sessions) = (gateway.client(), Vec::new());
    grow(&client, &mut sessions, 100).await?;
    let hundred = gateway.resident()?;
    grow(&client, &mut sessions, 1000).await?;
    let thousand = gateway.resident()?;
    let each = thousand.saturating_sub(hundred) / 900;
    // A session may take 6 KiB when it is idle; here each has a goal, too, and nothing is optimised.
    assert!(each <= 12 * KIB, "{each} bytes for each session: {hundred} with 100, {thousand} with 1000");
    for session in sessions.iter().cycle().take(5000) {
        session.call("get_planning_state", json!({})).await?;
    }
    let later = gateway.resident()?;
    assert!(later <= thousand + thousand / 20 + 1024 * KIB, "{thousand} grew to {later} by calls alone");
    for session in &sessions {
        assert_eq!(session.delete().await?.status, 204);
    }
    waiting::metric(&gateway, "moongate_sessions", 0.0).await?;
    sessions.clear();
    grow(&client, &mut sessions, 1000).await?;
    let again = gateway.resident()?;
    assert!(
        again <= later + later / 20 + 1024 * KIB,
        "ended sessions left memory behind: {later} to {again}"
    );
    Ok(())
}

#[tokio::test]
async fn ctx_t20_work_handed_from_one_assistant_to_another_does_not_leak() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let a = acting(&gateway.client(), &[(SESSION, "team"), (ASSISTANT, "a"), (THREAD, "t")]);
    let b = acting(&gateway.client(), &[(SESSION, "team"), (ASSISTANT, "b"), (THREAD, "t")]);
    create(&a, "research").await?;
    let asked = a.call("prompt_user", json!({"prompt": "Shall b go on?", "type": "text"})).await?;
    assert!(goals(&b).await?.is_empty());
    create(&b, "write").await?;
    let message = &asked["structuredContent"]["messageId"];
    let stolen = b.call("reply_prompt", json!({"messageId": message, "answer": "yes"})).await?;
    assert_eq!(stolen["isError"], json!(true), "a prompt is answered where it was asked: {stolen}");
    let answered = a.call("reply_prompt", json!({"messageId": message, "answer": "yes"})).await?;
    assert_eq!(answered["isError"], json!(false), "{answered}");
    assert_eq!(goals(&a).await?, ["research"]);
    assert_eq!(goals(&b).await?, ["write"]);
    let elsewhere = acting(&gateway.client(), &[(SESSION, "team"), (ASSISTANT, "a"), (THREAD, "u")]);
    assert!(goals(&elsewhere).await?.is_empty(), "threads are told apart, too");
    Ok(())
}

#[tokio::test]
async fn ctx_t21_concurrent_adds_into_one_session_lose_nothing() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let session = Arc::new(LegacySession::open(&gateway.client(), "2025-11-25").await?);
    let mut calls = JoinSet::new();
    for number in 0..100 {
        let session = Arc::clone(&session);
        calls.spawn(async move { session.call("add_todo", json!({"name": format!("todo {number}")})).await });
    }
    while let Some(called) = calls.join_next().await {
        let added = called??;
        assert_eq!(added["isError"], json!(false), "{added}");
    }
    let state = session.call("get_planning_state", json!({})).await?;
    let todos = state["structuredContent"]["todos"].as_array().context("a list of todos")?;
    let ids: BTreeSet<_> = todos.iter().filter_map(|todo| todo["id"].as_u64()).collect();
    let kept: BTreeSet<_> = todos.iter().filter_map(|todo| todo["name"].as_str()).collect();
    assert_eq!((todos.len(), ids, kept.len()), (100, (1..=100).collect(), 100));
    Ok(())
}

#[tokio::test]
async fn ctx_t22_a_session_that_the_model_names_is_ignored() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let victim = acting(&gateway.client(), &[(SESSION, "victim")]);
    let forger = acting(&gateway.client(), &[(SESSION, "forger")]);
    create(&victim, "secret plan").await?;
    for field in ["__sessionId", "__session_id"] {
        let listed = forger.call("list_goals", json!({field: "victim"})).await?;
        assert_eq!(listed["isError"], json!(false), "{listed}");
        assert!(!listed.to_string().contains("secret plan"), "{listed}");
        forger.call("create_goal", json!({"goal": "mischief", field: "victim", "__threadId": "t"})).await?;
    }
    assert_eq!(goals(&victim).await?, ["secret plan"]);
    assert_eq!(goals(&forger).await?, ["mischief", "mischief"]);
    Ok(())
}

/// What callers may write into `arguments`, and what of it a backend may see. `None`: all of it, byte for byte.
const FORGERIES: [(&str, Option<&str>); 8] = [
    (
        r#"{"__sessionId":"s","__session_id":"s","__assistantId":"a","__assistant_id":"a","__threadId":"t","__thread_id":"t","name":"x"}"#,
        Some(r#"{"name":"x"}"#),
    ),
    (
        r#"{"name":"x","\u005f_sessionId":"s","_\u005fsession_id":"s","\u005F\u005fassistantId":"a","__assistant\u005fid":"a","__\u0074hreadId":"t","\u005f_thread_id":"t"}"#,
        Some(r#"{"name":"x"}"#),
    ),
    (r#"{ "__anything" : 1 , "__":2, "name" : "x", "__more":[{"__sessionId":1}] }"#, Some(r#"{"name":"x"}"#)),
    (r#"{"__sessionId":{"deep":["x"]},"__threadId":null,"__assistantId":7}"#, Some("{}")),
    (r#"{"name":"x","address":{"__sessionId":"kept","\u005f_threadId":["kept"]},"n":1.50}"#, None),
    (r#"{"name":"__sessionId","_sessionId":"kept","sessionId":"kept"}"#, None),
    (r#"{"list":[{"__sessionId":"kept"}],"text":"\"__sessionId\":\"kept\""}"#, None),
    ("{}", None),
];

/// A tool of the fixture that says with which arguments it was called.
const TELLTALE: &str = "json_schema_2020_12_tool";

/// Compares what the tool said it got with what it was to get.
fn judge(result: &Value, sent: &str, seen: Option<&str>) -> Result<()> {
    let text = result["content"][0]["text"].as_str().with_context(|| format!("{sent}: {result}"))?;
    let got = text.strip_prefix("Called with ").with_context(|| format!("{sent}: {text}"))?;
    match seen {
        None => assert_eq!(got, sent, "left as it was"),
        Some(seen) => {
            assert_eq!(serde_json::from_str::<Value>(got)?, serde_json::from_str::<Value>(seen)?, "{sent}");
        }
    }
    Ok(())
}

/// The text of a message with `arguments` exactly as written.
fn with_arguments(message: &Value, arguments: &str) -> String {
    message.to_string().replace("\"ARGUMENTS\"", arguments)
}

#[tokio::test]
async fn forged_fields_never_reach_a_backend_over_http() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let front_end = caller::issued(&gateway, "front-end", "read,context.write").await?;
    for client in [gateway.client(), front_end] {
        let modern = ModernClient::new(&client);
        let session = LegacySession::open(&client, "2025-11-25").await?;
        for (sent, seen) in FORGERIES {
            let params = json!({"name": TELLTALE, "arguments": "ARGUMENTS"});
            let request = modern.prepare("tools/call", &params);
            let body = with_arguments(&request.message(), sent);
            let answer = request.over(&client).body(body).send().await?.json()?;
            judge(&answer["result"], sent, seen)?;
            let message = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": params});
            let answer = session.client().post_text(with_arguments(&message, sent)).send().await?.json()?;
            judge(&answer["result"], sent, seen)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn forged_fields_never_reach_a_backend_over_stdio() -> Result<()> {
    let mut pipe = ModernPipe::new(fixture::pipe("")?);
    pipe.stdio.initialize("2025-11-25", &json!({})).await?;
    for (sent, seen) in FORGERIES {
        let params = json!({"name": TELLTALE, "arguments": "ARGUMENTS"});
        for params in [pipe.enveloped(&params), params] {
            let message = json!({"jsonrpc": "2.0", "id": "forged", "method": "tools/call", "params": params});
            pipe.stdio.send_raw(with_arguments(&message, sent) + "\n").await?;
            judge(&pipe.stdio.outcome(&json!("forged")).await?.result()?, sent, seen)?;
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_field_that_is_written_twice_is_refused_in_any_spelling() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = gateway.client();
    let modern = ModernClient::new(&client);
    for twice in [
        r#"{"__sessionId":"a","__sessionId":"b"}"#,
        r#"{"__sessionId":"a","\u005f_sessionId":"b"}"#,
        r#"{"x":{"__threadId":"a","_\u005fthreadId":"b"}}"#,
    ] {
        let request = modern.prepare("tools/call", &json!({"name": TELLTALE, "arguments": "ARGUMENTS"}));
        let body = with_arguments(&request.message(), twice);
        let answer = request.over(&client).body(body).send().await?;
        assert_eq!(answer.json()?["error"]["code"], json!(-32602), "{twice}");
    }
    assert!(gateway.metric(&fixture::calls(TELLTALE, "")).await? < 1.0, "nothing was executed");
    Ok(())
}

#[tokio::test]
async fn two_principals_with_the_same_session_id_never_share_state() -> Result<()> {
    let gateway = Gateway::start("context: {trust: {issued: [headers, meta]}}").await?;
    let ids = [(SESSION, "shared"), (ASSISTANT, "asst"), (THREAD, "thread")];
    let alice = acting(&caller::issued(&gateway, "alice", "read,write").await?, &ids);
    let bob = acting(&caller::issued(&gateway, "bob", "read,write").await?, &ids);
    let local = acting(&gateway.client(), &ids);
    create(&alice, "of alice").await?;
    let id = playbook(&alice, "of alice").await?;
    let asked = alice.call("prompt_user", json!({"prompt": "Who?", "type": "text"})).await?;
    for other in [&bob, &local] {
        assert!(goals(other).await?.is_empty());
        assert!(playbooks(other).await?.is_empty());
        for tool in ["select_playbook", "get_playbook", "delete_playbook"] {
            let refused = other.call(tool, json!({"id": id})).await?;
            let text = refused["content"][0]["text"].as_str().unwrap_or_default();
            assert_eq!(refused["isError"], json!(true), "{tool}: {refused}");
            assert!(text.contains("not found"), "{tool} must not tell that it exists: {text}");
        }
        let reply = json!({"messageId": asked["structuredContent"]["messageId"], "answer": "me"});
        assert_eq!(other.call("reply_prompt", reply).await?["isError"], json!(true));
    }
    assert_eq!(goals(&alice).await?, ["of alice"]);
    assert_eq!(playbooks(&alice).await?, ["of alice"]);
    Ok(())
}

#[tokio::test]
async fn only_a_holder_of_context_write_may_set_the_fields() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let front_end =
        ModernClient::new(&caller::issued(&gateway, "front-end", "read,write,context.write").await?);
    let administrator = ModernClient::new(&caller::issued(&gateway, "administrator", "admin").await?);
    for (session, alias) in [("__sessionId", "__session_id"), ("__session_id", "__sessionId")] {
        let goal = format!("by {session}");
        front_end.call("create_goal", json!({"goal": goal, session: "sess_1"})).await?;
        let listed = front_end.call("list_goals", json!({alias: "sess_1"})).await?;
        assert!(names(&listed).contains(&goal), "{listed}");
    }
    let both =
        front_end.call("list_goals", json!({"__sessionId": "sess_2", "__session_id": "sess_1"})).await?;
    assert!(names(&both).is_empty(), "the first spelling wins: {both}");
    let blank =
        front_end.call("list_goals", json!({"__sessionId": "  ", "__session_id": " sess_1 "})).await?;
    assert_eq!(names(&blank).len(), 2, "what is blank names nobody: {blank}");
    let assistant = json!({"__sessionId": "sess_1", "__assistantId": "asst", "__thread_id": "t"});
    assert!(names(&front_end.call("list_goals", assistant).await?).is_empty());
    assert!(goals(&front_end).await?.is_empty(), "the default session has none");
    // All scopes but that one are not enough.
    administrator.call("create_goal", json!({"goal": "mine", "__sessionId": "sess_1"})).await?;
    assert_eq!(goals(&administrator).await?, ["mine"]);
    Ok(())
}

#[tokio::test]
async fn arguments_win_over_headers_and_headers_over_meta() -> Result<()> {
    let gateway = Gateway::start("context: {trust: {issued: [headers, meta]}}").await?;
    let client = caller::issued(&gateway, "front-end", "read,write,context.write").await?;
    let [argument, header, meta] =
        ["argument", "header", "meta"].map(|name| acting(&client, &[(SESSION, name)]));
    let with_meta = |arguments: Value| json!({"name": "create_goal", "arguments": arguments, "_meta": {"dev.moongate/sessionId": "meta"}});
    let all = with_meta(json!({"goal": "argument", "__sessionId": "argument"}));
    header.request("tools/call", &all).await?.result()?;
    header.request("tools/call", &with_meta(json!({"goal": "header"}))).await?.result()?;
    ModernClient::new(&client).request("tools/call", &with_meta(json!({"goal": "meta"}))).await?.result()?;
    assert_eq!(goals(&argument).await?, ["argument"]);
    assert_eq!(goals(&header).await?, ["header"]);
    assert_eq!(goals(&meta).await?, ["meta"]);
    Ok(())
}

/// Whether headers and `_meta` of this client are believed.
async fn believed(client: &Client) -> Result<(bool, bool)> {
    let by_header = acting(client, &[(SESSION, "by_header")]);
    create(&by_header, "header").await?;
    let meta = json!({"dev.moongate/sessionId": "by_meta"});
    let params = json!({"name": "create_goal", "arguments": {"goal": "meta"}, "_meta": meta});
    let nobody = ModernClient::new(client);
    nobody.request("tools/call", &params).await?.result()?;
    // What was not believed went to the default session.
    let default = goals(&nobody).await?;
    Ok((!default.contains(&"header".to_owned()), !default.contains(&"meta".to_owned())))
}

#[tokio::test]
async fn only_trusted_callers_name_their_session() -> Result<()> {
    const OPEN: &str = "security: {anonymous: true, anonymous_scopes: [read, write]}\n";
    for (trust, local, issued, anonymous) in [
        ("", (true, true), (false, false), (false, false)),
        (
            "context: {trust: {local: [], issued: [headers], anonymous: [meta]}}",
            (false, false),
            (true, false),
            (false, true),
        ),
        (
            "context: {trust: {local: [meta], issued: [headers, meta], anonymous: [headers]}}",
            (false, true),
            (true, true),
            (true, false),
        ),
    ] {
        let gateway = Gateway::start(&format!("{OPEN}{trust}")).await?;
        assert_eq!(believed(&gateway.client()).await?, local, "local: {trust}");
        let holder = caller::issued(&gateway, "holder", "read,write").await?;
        assert_eq!(believed(&holder).await?, issued, "issued: {trust}");
        assert_eq!(believed(&gateway.anonymous_client()).await?, anonymous, "anonymous: {trust}");
    }
    Ok(())
}

#[tokio::test]
async fn durable_data_outlives_a_transport_session_and_volatile_data_does_not() -> Result<()> {
    let step = json!({
        "description": "Look", "action": {"toolName": "list_goals", "purpose": "p"},
        "requiredData": [], "outputVariable": "v",
    });
    let record = json!({"name": "Kept", "goal": "g", "workflow": [step]});
    for (yaml, found) in [("", true), ("context: {durable_session: transport}", false)] {
        let gateway = Gateway::start(yaml).await?;
        let first = LegacySession::open(&gateway.client(), "2025-11-25").await?;
        first.call("create_goal", json!({"goal": "gone"})).await?;
        let created = first.call("create_playbook", record.clone()).await?;
        assert_eq!(created["isError"], json!(false), "{created}");
        assert_eq!(first.delete().await?.status, 204);
        let second = LegacySession::open(&gateway.client(), "2025-11-25").await?;
        assert!(names(&second.call("list_goals", json!({})).await?).is_empty());
        let listed = second.call("list_playbooks", json!({})).await?;
        assert_eq!(listed.to_string().contains("Kept"), found, "{yaml:?}: {listed}");
    }
    Ok(())
}

#[tokio::test]
async fn every_call_line_of_the_log_names_the_three_ids() -> Result<()> {
    let gateway = Gateway::start("telemetry: {log_level: debug, log_format: json}").await?;
    let ids = [(SESSION, "sess_7"), (ASSISTANT, "asst_7"), (THREAD, "thread_7")];
    create(&acting(&gateway.client(), &ids), "be seen").await?;
    let line = gateway.logged("sess_7").await?;
    for id in ["asst_7", "thread_7", "local"] {
        assert!(line.contains(id), "{line}");
    }
    assert!(!line.contains("be seen"), "what was called with is nobody's business: {line}");
    Ok(())
}
