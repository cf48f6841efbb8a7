//! Routes, profiles, scopes and rules over the built-in tools: what a caller sees is what it can use.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::sync::Arc;

use anyhow::{Context as _, Result};
use moongate_test_integration::{caller, fixture, pipe::ModernPipe};
use moongate_test_support::{Client, Gateway, Home, LegacySession, ModernClient, PATIENCE, Stdio};
use serde_json::{Value, json};

const LEGACY: &str = "2025-11-25";

/// The definitions of all tools that `client` is shown.
async fn tools(client: &Client) -> Result<Vec<Value>> {
    let modern = ModernClient::new(client).list("tools/list").await?;
    let legacy = LegacySession::open(client, LEGACY).await?.list("tools/list").await?;
    anyhow::ensure!(modern["tools"] == legacy["tools"], "both eras are shown the same");
    Ok(modern["tools"].as_array().context("a list of tools")?.clone())
}

/// The names of all tools that `client` is shown.
async fn names(client: &Client) -> Result<Vec<String>> {
    let tools = tools(client).await?;
    Ok(tools.iter().map(|tool| tool["name"].as_str().unwrap_or_default().to_owned()).collect())
}

async fn shows(client: &Client, tool: &str) -> Result<bool> {
    Ok(names(client).await?.iter().any(|name| name == tool))
}

/// Calls `tool` in both eras and expects it to be unknown, as one that never was.
async fn assert_unknown(client: &Client, tool: &str, arguments: Value) -> Result<()> {
    let session = LegacySession::open(client, LEGACY).await?;
    let modern = ModernClient::new(client);
    for name in [tool, "never_was"] {
        let params = json!({"name": name, "arguments": arguments});
        let (legacy, modern) =
            (session.request("tools/call", &params).await?, modern.request("tools/call", &params).await?);
        for outcome in [legacy, modern] {
            assert_eq!((outcome.status, outcome.code()?), (200, -32602), "{name}");
            assert_eq!(outcome.error_message(), format!("Unknown tool: {name}"));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_hidden_tool_is_neither_listed_nor_callable() -> Result<()> {
    let gateway = Gateway::start("routes: [{match: \"clear_*\", hide: true}]").await?;
    let client = gateway.client();
    let shown = names(&client).await?;
    assert!(
        shown.contains(&"create_goal".to_owned()) && !shown.iter().any(|name| name.starts_with("clear_"))
    );
    assert_unknown(&client, "clear_goal", json!({})).await?;
    assert_unknown(&client, "clear_session", json!({})).await?;
    // Nor by another name of it.
    assert_unknown(&client, "clear_scratchpad", json!({"id": 0})).await
}

const RENAMED: &str = "routes:
  - {match: remember, upstream: planning, rename: add_memo, description: Keeps a note., scope: read}
";

#[tokio::test]
async fn a_renamed_tool_has_its_new_name_description_and_scope() -> Result<()> {
    let gateway = Gateway::start(RENAMED).await?;
    let client = gateway.client();
    let plain = Gateway::start("").await?;
    let original = tools(&plain.client()).await?;
    let original = original.iter().find(|tool| tool["name"] == "add_memo").context("the tool itself")?;
    let shown = tools(&client).await?;
    let renamed = shown.iter().find(|tool| tool["name"] == "remember").context("the new name")?;
    assert_eq!(renamed["description"], "Keeps a note.");
    assert_eq!(renamed["inputSchema"], original["inputSchema"]);
    assert!(!shown.iter().any(|tool| tool["name"] == "add_memo"), "the old name is not listed any more");
    let reader = ModernClient::new(&caller::issued(&gateway, "reader", "read").await?);
    let kept = reader.call("remember", json!({"memo": "by its new name"})).await?;
    assert_eq!(kept["isError"], json!(false), "{kept}");
    let state = reader.call("get_planning_state", json!({})).await?;
    assert_eq!(state["structuredContent"]["memos"][0]["content"], "by its new name");
    assert_unknown(&client, "add_memo", json!({"memo": "x"})).await
}

#[tokio::test]
async fn an_alias_is_callable_and_not_listed() -> Result<()> {
    let gateway = Gateway::start("").await?;
    assert!(!shows(&gateway.client(), "add_note").await?);
    let client = ModernClient::new(&gateway.client());
    let added = client.call("add_note", json!({"memo": "by an older name"})).await?;
    assert_eq!(added["isError"], json!(false), "{added}");
    Ok(())
}

#[tokio::test]
async fn a_route_can_ask_for_another_scope() -> Result<()> {
    let gateway =
        Gateway::start("routes: [{match: list_goals, scope: auditing}, {match: create_goal, scope: read}]")
            .await?;
    let reader = caller::issued(&gateway, "reader", "read").await?;
    let auditor = caller::issued(&gateway, "auditor", "auditing").await?;
    assert!(shows(&reader, "create_goal").await? && !shows(&reader, "list_goals").await?);
    assert!(shows(&auditor, "list_goals").await? && !shows(&auditor, "create_goal").await?);
    assert_needs(&gateway, &reader, "list_goals", json!({}), "auditing").await?;
    assert_eq!(ModernClient::new(&auditor).call("list_goals", json!({})).await?["isError"], json!(false));
    let created = ModernClient::new(&reader).call("create_goal", json!({"goal": "x"})).await?;
    assert_eq!(created["isError"], json!(false), "{created}");
    Ok(())
}

#[tokio::test]
async fn a_route_can_shorten_the_time_a_call_may_take() -> Result<()> {
    let gateway = fixture::gateway("routes: [{match: test_slow, timeout: 200ms}]").await?;
    let modern = ModernClient::new(&gateway.client());
    let session = LegacySession::open(&gateway.client(), LEGACY).await?;
    let endless = json!({"name": "test_slow", "arguments": {"milliseconds": 600_000}});
    for outcome in
        [modern.request("tools/call", &endless).await?, session.request("tools/call", &endless).await?]
    {
        assert_eq!(outcome.code()?, -32603);
        assert!(outcome.error_message().contains("0.2 s"), "{}", outcome.error_message());
    }
    assert!((gateway.metric(&fixture::calls("test_slow", "timeout")).await? - 2.0).abs() < f64::EPSILON);
    let quick = modern.call("test_slow", json!({"milliseconds": 1})).await?;
    assert_eq!(quick["content"][0]["text"], "Waited for 1 ms");
    Ok(())
}

#[tokio::test]
async fn a_route_can_limit_how_often_a_principal_calls() -> Result<()> {
    let gateway = Gateway::start("routes: [{match: \"list_*\", limit: 2/min}]").await?;
    let client = ModernClient::new(&gateway.client());
    let params = json!({"name": "list_goals", "arguments": {}});
    for _ in 0..2 {
        client.request("tools/call", &params).await?.result()?;
    }
    let answer = client.prepare("tools/call", &params).over(client.http()).send().await?;
    assert_eq!(answer.status, 429);
    let seconds: u64 = answer.header("retry-after").parse().context("Retry-After")?;
    assert!((2..=60).contains(&seconds), "two a minute are one every 30 s: {seconds}");
    let session = LegacySession::open(&gateway.client(), LEGACY).await?;
    let outcome = session.request("tools/call", &params).await?;
    assert_eq!((outcome.status, outcome.code()?), (429, -32000), "in the other era, too");
    client.call("create_goal", json!({"goal": "others are not limited"})).await?;
    client.call("list_playbooks", json!({})).await.context("each tool has its own count")?;
    let other = ModernClient::new(&caller::issued(&gateway, "other", "read").await?);
    other.call("list_goals", json!({})).await.context("each principal has its own count")?;
    Ok(())
}

const PROFILES: &str = "profiles:
  review: {upstreams: [planning, playbook], tools: [\"list_*\", get_planning_state]}
  ui: {upstreams: [ui]}
  everything: {}
";

#[tokio::test]
async fn a_profile_is_a_subset_with_a_path_of_its_own() -> Result<()> {
    let gateway = Gateway::start(PROFILES).await?;
    let client = gateway.client();
    let all = names(&client).await?;
    let review = client.clone().with_path("/mcp/review");
    assert_eq!(names(&review).await?, ["list_goals", "get_planning_state", "list_playbooks"]);
    assert_unknown(&review, "create_goal", json!({"goal": "x"})).await?;
    assert_unknown(&review, "prompt_user", json!({"prompt": "x", "type": "text"})).await?;
    let ui = names(&client.clone().with_path("/mcp/ui")).await?;
    assert_eq!(ui.len(), 5);
    assert!(ui.iter().all(|name| all.contains(name)), "{ui:?}");
    assert_eq!(names(&client.clone().with_path("/mcp/everything")).await?, all);
    // What is done on one path is seen on another: a profile hides tools, not data.
    let session = client.clone().with_header("x-session-id", "shared");
    ModernClient::new(&session).call("create_goal", json!({"goal": "seen"})).await?;
    let listed = ModernClient::new(&session.with_path("/mcp/review")).call("list_goals", json!({})).await?;
    assert_eq!(listed["structuredContent"]["goals"][0]["name"], "seen");
    Ok(())
}

#[tokio::test]
async fn lists_keep_their_order() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client();
    let first = names(&client).await?;
    for _ in 0..5 {
        assert_eq!(names(&client).await?, first);
    }
    let again = Gateway::start("").await?;
    assert_eq!(names(&again.client()).await?, first, "also after a restart");
    Ok(())
}

#[tokio::test]
async fn an_unknown_profile_is_not_found() -> Result<()> {
    let gateway = Gateway::start(PROFILES).await?;
    for path in ["/mcp/nosuch", "/mcp/", "/mcp/review/more", "/mcp/REVIEW", "/mcp/review/", "/mcpreview"] {
        let client = gateway.client().with_path(path);
        let modern = ModernClient::new(&client);
        let listed = modern.prepare("tools/list", &json!({})).over(&client).send().await?;
        assert_eq!(listed.status, 404, "{path}");
        assert!(listed.json()?["error"]["code"].is_i64(), "{path}: {:?}", listed.body);
        assert!(LegacySession::open(&client, LEGACY).await.is_err(), "{path}");
    }
    let nameless = gateway.anonymous_client().with_path("/mcp/nosuch");
    let listed =
        ModernClient::new(&nameless).prepare("tools/list", &json!({})).over(&nameless).send().await?;
    assert_eq!(listed.status, 401, "who has no token does not learn which profiles there are");
    Ok(())
}

#[tokio::test]
async fn a_pipe_can_serve_one_profile() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let mut pipe = ModernPipe::new(Stdio::start_in(&home, PROFILES, &["--profile", "review"])?);
    let listed = pipe.request("tools/list", &json!({})).await?.result()?;
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(3), "{listed}");
    let params = json!({"name": "create_goal", "arguments": {"goal": "x"}});
    assert_eq!(pipe.request("tools/call", &params).await?.code()?, -32602);
    pipe.stdio.initialize(LEGACY, &json!({})).await?;
    let listed = pipe.stdio.request("tools/list", &json!({})).await?.result()?;
    assert_eq!(listed["tools"].as_array().map(Vec::len), Some(3), "{listed}");

    let mut pipe = Stdio::start_in(&home, PROFILES, &["--profile", "nosuch"])?;
    assert_eq!(pipe.wait(PATIENCE).await?.code(), Some(1));
    pipe.process().stderr().line(|line| line.contains("nosuch")).await.context("it says what is missing")?;
    Ok(())
}

/// Calls `tool` in both eras and expects a refusal that names the missing scope.
async fn assert_needs(
    gateway: &Gateway,
    client: &Client,
    tool: &str,
    arguments: Value,
    scope: &str,
) -> Result<()> {
    const REFUSED: &str = "moongate_refused_total{reason=\"scope\"}";
    let before = gateway.metric(REFUSED).await?;
    let params = json!({"name": tool, "arguments": arguments});
    let session = LegacySession::open(client, LEGACY).await?;
    let modern = ModernClient::new(client);
    for (request, code) in [
        (session.prepare("tools/call", &params), -32001),
        (modern.prepare("tools/call", &params).over(client), -32602),
    ] {
        let answer = request.send().await?;
        assert_eq!(answer.status, 403, "{tool}");
        let challenge = answer.header("www-authenticate");
        assert!(challenge.starts_with("Bearer "), "{challenge}");
        assert!(challenge.contains("error=\"insufficient_scope\""), "{challenge}");
        assert!(challenge.contains(&format!("scope=\"{scope}\"")), "{challenge}");
        let error = answer.json()?["error"].clone();
        assert_eq!(
            (&error["code"], &error["data"]["requiredScope"]),
            (&json!(code), &json!(scope)),
            "{error}"
        );
    }
    let counted = gateway.metric(REFUSED).await? - before;
    assert!((counted - 2.0).abs() < f64::EPSILON, "two refusals, {counted} counted");
    Ok(())
}

#[tokio::test]
async fn a_tool_whose_scope_is_missing_is_not_listed_and_says_what_it_needs() -> Result<()> {
    // Without the one that is not for everybody who may write.
    let gateway = Gateway::start("backends: {workspace: {enabled: false}}").await?;
    let reader = caller::issued(&gateway, "reader", "read").await?;
    let shown = names(&reader).await?;
    assert!(
        shown.contains(&"list_goals".to_owned()) && !shown.contains(&"create_goal".to_owned()),
        "{shown:?}"
    );
    assert_needs(&gateway, &reader, "create_goal", json!({"goal": "x"}), "write").await?;
    assert_needs(&gateway, &reader, "add_note", json!({"memo": "by an alias"}), "write").await?;
    let listed = ModernClient::new(&reader).call("list_goals", json!({})).await?;
    assert_eq!(listed["structuredContent"]["goals"], json!([]), "nothing was executed");
    let writer = caller::issued(&gateway, "writer", "write").await?;
    assert_eq!(names(&writer).await?, names(&gateway.client()).await?, "who may write may read");
    Ok(())
}

#[tokio::test]
async fn a_pipe_serves_the_caller_whose_token_it_was_given() -> Result<()> {
    let home = Arc::new(Home::create()?);
    home.write_config("")?;
    let token = caller::token(&home, "reader", "read").await?;
    let pipe = Stdio::start_with_env(&home, "", &[], &[("MOONGATE_TOKEN", &token)])?;
    let mut pipe = ModernPipe::new(pipe);
    let params = json!({"name": "create_goal", "arguments": {"goal": "x"}});
    let outcome = pipe.request("tools/call", &params).await?;
    assert_eq!(outcome.code()?, -32602);
    assert_eq!(outcome.response["error"]["data"]["requiredScope"], "write", "{}", outcome.response);
    let mut refused = Stdio::start_with_env(&home, "", &[], &[("MOONGATE_TOKEN", "forged")])?;
    assert_eq!(refused.wait(PATIENCE).await?.code(), Some(1));
    let told = refused.process().stderr();
    told.line(|line| line.contains("MOONGATE_TOKEN")).await.context("it says what is wrong")?;
    assert!(!told.text().contains("forged"), "a token is never told");
    Ok(())
}

const RULES: &str = "security:
  rules:
    - deny: {tools: [\"delete_*\"], unless_scope: admin}
    - deny: {principals: [\"issued:ci-*\"], tools: [\"create_*\", add_todo]}
    - allow: {scope: dev, tools: [planning__add_memo]}
    - deny: {tools: [planning__add_memo]}
  scopes: [dev]
";

#[tokio::test]
async fn the_first_rule_that_matches_decides() -> Result<()> {
    let gateway = Gateway::start(RULES).await?;
    let administrator = caller::issued(&gateway, "root", "admin").await?;
    let robot = caller::issued(&gateway, "ci-robot", "read,write").await?;
    let developer = caller::issued(&gateway, "dev", "read,write,dev").await?;
    for (client, tool, shown) in [
        (&administrator, "delete_playbook", true),
        (&robot, "delete_playbook", false),
        (&robot, "create_goal", false),
        (&robot, "add_todo", false),
        (&robot, "list_goals", true),
        (&developer, "create_goal", true),
        (&developer, "delete_playbook", false),
        (&developer, "add_memo", true),
        (&robot, "add_memo", false),
    ] {
        assert_eq!(shows(client, tool).await?, shown, "{tool}");
        if !shown {
            assert_unknown(client, tool, json!({"goal": "x", "memo": "x", "name": "x", "id": "x"})).await?;
        }
    }
    assert_unknown(&robot, "add_note", json!({"memo": "by an alias"})).await
}

#[tokio::test]
async fn a_rule_about_the_canonical_name_holds_for_a_renamed_tool() -> Result<()> {
    let yaml = format!("{RENAMED}security: {{rules: [{{deny: {{tools: [planning__add_memo]}}}}]}}\n");
    let gateway = Gateway::start(&yaml).await?;
    assert!(!shows(&gateway.client(), "remember").await?);
    assert_unknown(&gateway.client(), "remember", json!({"memo": "x"})).await
}

#[tokio::test]
async fn what_no_rule_allows_can_be_denied_by_default() -> Result<()> {
    let yaml =
        "security: {default: deny, rules: [{allow: {tools: [\"list_*\"]}}, {allow: {principals: [local]}}]}";
    let gateway = Gateway::start(yaml).await?;
    let writer = caller::issued(&gateway, "writer", "read,write").await?;
    assert_eq!(names(&writer).await?, ["list_goals", "list_playbooks", "list_contents"]);
    assert_unknown(&writer, "create_goal", json!({"goal": "x"})).await?;
    assert!(shows(&gateway.client(), "create_goal").await?);
    Ok(())
}

#[tokio::test]
async fn a_caller_without_a_token_has_the_scopes_it_was_given() -> Result<()> {
    let gateway = Gateway::start("security: {anonymous: true}").await?;
    let nameless = gateway.anonymous_client();
    assert!(shows(&nameless, "list_goals").await? && !shows(&nameless, "create_goal").await?);
    assert_needs(&gateway, &nameless, "create_goal", json!({"goal": "x"}), "write").await?;
    let refused = nameless.clone().with_token("forged");
    let listed = ModernClient::new(&refused).prepare("tools/list", &json!({})).over(&refused).send().await?;
    assert_eq!(listed.status, 401, "a bad token is not as good as none");
    Ok(())
}
