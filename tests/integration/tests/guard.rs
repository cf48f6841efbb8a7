//! Who gets in, how often, and what the refused are told: token, scopes, limits, proxies, and no secret anywhere.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{collections::BTreeSet, future::Future, pin::pin, task::Poll};

use anyhow::{Context as _, Result, ensure};
use moongate_test_integration::{caller, fixture, waiting};
use moongate_test_support::{
    Answer, Client, Gateway, LegacySession, ModernClient, RawTcp, Request, Stdio, patiently,
};
use serde_json::{Value, json};

const LATEST_LEGACY: &str = "2025-11-25";
/// A made-up token that must never be seen again.
const WRONG: &str = "wrong-token-hunter2-hunter2-hunter2";

/// A modern call of `tool`.
fn call(client: &Client, tool: &str, arguments: &Value) -> Request {
    let params = json!({"name": tool, "arguments": arguments});
    ModernClient::new(client).prepare("tools/call", &params).over(client)
}

fn list_goals(client: &Client) -> Request {
    call(client, "list_goals", &json!({}))
}

/// A whole number on the Prometheus page; zero when it is not there.
async fn count(gateway: &Gateway, sample: &str) -> Result<u64> {
    let page = gateway.metrics().await?;
    let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
    Ok(value.unwrap_or("0").parse()?)
}

/// How many requests were refused for this reason.
async fn refusals(gateway: &Gateway, reason: &str) -> Result<u64> {
    count(gateway, &format!("moongate_refused_total{{reason=\"{reason}\"}}")).await
}

async fn statuses(requests: impl IntoIterator<Item = Request>) -> Result<Vec<u16>> {
    let mut statuses = Vec::new();
    for request in requests {
        statuses.push(request.send().await?.status);
    }
    Ok(statuses)
}

/// An answer that says: too much, come back in at least one and at most `longest` seconds.
fn is_limited(answer: &Answer, longest: u64) -> Result<()> {
    ensure!(answer.status == 429, "status {}: {:?}", answer.status, answer.body);
    let seconds: u64 = answer.header("retry-after").parse().context("no Retry-After")?;
    ensure!((1..=longest).contains(&seconds), "Retry-After: {seconds}");
    let said = answer.json()?;
    ensure!(said["jsonrpc"] == "2.0" && said["error"]["message"].is_string(), "{said}");
    Ok(())
}

// Tokens.

#[tokio::test]
async fn only_a_good_token_in_the_right_place_lets_in() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let token = gateway.token()?;
    let nobody = gateway.anonymous_client();
    let with = |authorization: &str| list_goals(&nobody).header("authorization", authorization);
    let missing = r#"Bearer realm="moongate""#;
    let invalid = r#"Bearer realm="moongate", error="invalid_token""#;
    let malformed = r#"Bearer realm="moongate", error="invalid_request""#;
    let bearer = format!("Bearer {token}");
    for (what, request, status, challenge) in [
        ("none", list_goals(&nobody), 401, missing),
        ("a wrong one", with(&format!("Bearer {WRONG}")), 401, invalid),
        ("most of it", with(&bearer[..bearer.len() - 1]), 401, invalid),
        ("more than it", with(&format!("{bearer}x")), 401, invalid),
        ("in other letters", with(&format!("Bearer {}", token.to_uppercase())), 401, invalid),
        ("no token after the scheme", with("Bearer"), 401, missing),
        ("the token alone", with(&token), 401, missing),
        ("another scheme", with(&format!("Basic {token}")), 401, missing),
        ("twice", with(&bearer).also("authorization", &bearer), 400, malformed),
        ("a good and a bad one", with(&bearer).also("authorization", "Bearer x"), 400, malformed),
    ] {
        let answer = request.send().await?;
        assert_eq!((answer.status, answer.header("www-authenticate")), (status, challenge), "{what}");
        let said = answer.json()?;
        assert_eq!((said["jsonrpc"].as_str(), said.get("id")), (Some("2.0"), None), "{what}: {said}");
        if status == 401 {
            assert_eq!(said["error"]["message"], "invalid or missing token", "{what}");
        }
    }
    for good in [bearer.clone(), format!("bearer {token}"), format!("Bearer   {token} ")] {
        assert_eq!(with(&good).send().await?.status, 200);
    }
    Ok(())
}

#[tokio::test]
async fn every_verb_needs_the_token() -> Result<()> {
    let gateway = Gateway::start("profiles: {review: {tools: [list_goals]}}").await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let nobody = gateway.anonymous_client().with_header("mcp-session-id", session.id());
    for path in ["/mcp", "/mcp/review", "/mcp/no-such-profile"] {
        let nobody = nobody.clone().with_path(path);
        for request in
            [nobody.listen(), nobody.delete(), nobody.post_text("{"), nobody.request(http::Method::PUT, path)]
        {
            assert_eq!(request.send().await?.status, 401, "{path}");
        }
    }
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}), "nobody ended the session");
    Ok(())
}

#[tokio::test]
async fn a_token_in_the_query_is_refused_even_beside_a_good_one() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let token = gateway.token()?;
    for query in
        [format!("token={token}"), format!("access_token={token}"), format!("a=b&Access%5FToken={token}")]
    {
        for client in [gateway.client(), gateway.anonymous_client()] {
            let client = client.with_path(&format!("/mcp?{query}"));
            let answer = list_goals(&client).send().await?;
            assert_eq!(answer.status, 400, "{query}");
            assert!(answer.header("www-authenticate").contains("invalid_request"), "{:?}", answer.headers);
        }
    }
    let harmless = gateway.client().with_path("/mcp?trace=token");
    assert_eq!(list_goals(&harmless).send().await?.status, 200);
    Ok(())
}

// Anonymous callers and scopes.

async fn tools(client: &Client) -> Result<BTreeSet<String>> {
    let listed = ModernClient::new(client).list("tools/list").await?;
    let tools = listed["tools"].as_array().context("tools")?;
    tools.iter().map(|tool| Ok(tool["name"].as_str().context("a name")?.to_owned())).collect()
}

#[tokio::test]
async fn callers_without_a_token_may_read_if_they_may_enter_at_all() -> Result<()> {
    let closed = Gateway::start("").await?;
    assert_eq!(list_goals(&closed.anonymous_client()).send().await?.status, 401);
    let open = Gateway::start("security: {anonymous: true}").await?;
    open.logged("callers without a token are let in").await?;
    let nobody = open.anonymous_client();
    assert_eq!(list_goals(&nobody).send().await?.status, 200);
    assert_eq!(call(&nobody, "create_goal", &json!({"goal": "x"})).send().await?.status, 403);
    let wrong = nobody.clone().with_token(WRONG);
    assert_eq!(list_goals(&wrong).send().await?.status, 401, "a wrong token is not no token");
    let (theirs, ours) = (tools(&nobody).await?, tools(&open.client()).await?);
    assert!(theirs.contains("list_goals") && !theirs.contains("create_goal"), "{theirs:?}");
    assert!(ours.is_superset(&theirs) && ours.contains("create_goal"), "{ours:?}");
    let wide = Gateway::start("security: {anonymous: true, anonymous_scopes: [write]}").await?;
    assert_eq!(
        call(&wide.anonymous_client(), "create_goal", &json!({"goal": "x"})).send().await?.status,
        200
    );
    Ok(())
}

#[tokio::test]
async fn a_missing_scope_is_named_in_both_eras_and_over_a_pipe() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let reader = caller::issued(&gateway, "reader", "read").await?;
    let challenge = r#"Bearer realm="moongate", error="insufficient_scope", scope="write""#;
    let answer = call(&reader, "create_goal", &json!({"goal": "x"})).send().await?;
    let said = answer.json()?;
    assert_eq!((answer.status, answer.header("www-authenticate")), (403, challenge), "{said}");
    assert_eq!(said["error"]["code"], -32602, "{said}");
    assert_eq!(said["error"]["data"], json!({"requiredScope": "write"}), "{said}");
    assert!(said["id"].is_number(), "{said}");
    let session = LegacySession::open(&reader, LATEST_LEGACY).await?;
    let params = json!({"name": "create_goal", "arguments": {"goal": "x"}});
    let answer = session.prepare("tools/call", &params).send().await?;
    let said = answer.json()?;
    assert_eq!((answer.status, answer.header("www-authenticate")), (403, challenge), "{said}");
    assert_eq!((&said["error"]["code"], &said["id"]), (&json!(-32001), &json!(1)), "{said}");
    assert_eq!(said["error"]["message"], "Forbidden: insufficient scope");
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}), "403 ends no session");
    assert_eq!(refusals(&gateway, "scope").await?, 2);

    let token = caller::token(gateway.home(), "piper", "read").await?;
    let mut pipe = Stdio::start_with_env(gateway.home(), "", &[], &[("MOONGATE_TOKEN", &token)])?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    assert_eq!(pipe.request("tools/call", &params).await?.code()?, -32001);
    assert!(pipe.call("list_goals", json!({})).await?["structuredContent"]["goals"].is_array());
    Ok(())
}

#[tokio::test]
async fn scopes_imply_what_they_should_and_nothing_more() -> Result<()> {
    let yaml = "security: {scopes: [gardener], limits: {per_address: off}}\n\
                routes: [{match: list_goals, scope: gardener}, {match: clear_goal, scope: admin}]";
    let gateway = Gateway::start(yaml).await?;
    // scopes, then whether each of four tools may be called
    for (scopes, may) in [
        ("read", [true, false, false, false]),
        ("write", [true, true, false, false]),
        ("control", [true, false, false, false]),
        ("rules.write", [true, false, false, false]),
        ("gardener", [false, false, true, false]),
        ("read,gardener", [true, false, true, false]),
        ("admin", [true, true, true, true]),
        ("context.write", [false, false, false, false]),
    ] {
        let client = caller::issued(&gateway, "holder", scopes).await?;
        let calls = [
            ("get_planning_state", json!({})),
            ("create_goal", json!({"goal": "x"})),
            ("list_goals", json!({})),
            ("clear_goal", json!({})),
        ];
        let listed = tools(&client).await?;
        for ((tool, arguments), may) in calls.iter().zip(may) {
            let status = call(&client, tool, arguments).send().await?.status;
            assert_eq!(status, if may { 200 } else { 403 }, "{tool} with {scopes}");
            assert_eq!(listed.contains(*tool), may, "{tool} is listed with {scopes}: {listed:?}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn context_is_written_only_by_who_was_allowed_to_by_name() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let goals = async |client: &Client, session: &str| -> Result<usize> {
        let listed = ModernClient::new(client).call("list_goals", json!({"__sessionId": session})).await?;
        Ok(listed["structuredContent"]["goals"].as_array().context("goals")?.len())
    };
    for (scopes, moved) in [("read,write,context.write", true), ("admin", false), ("read,write", false)] {
        let client = caller::issued(&gateway, scopes, scopes).await?;
        let goal = json!({"goal": "x", "__sessionId": "elsewhere"});
        assert_eq!(call(&client, "create_goal", &goal).send().await?.status, 200, "{scopes}");
        let (here, there) = (goals(&client, "here").await?, goals(&client, "elsewhere").await?);
        assert_eq!((here, there), if moved { (0, 1) } else { (1, 1) }, "{scopes}");
    }
    Ok(())
}

#[tokio::test]
async fn hidden_and_denied_tools_look_unknown() -> Result<()> {
    let yaml = "security: {rules: [{deny: {tools: [create_goal], principals: [\"issued:*\"]}}]}\n\
                routes: [{match: clear_goal, hide: true}]";
    let gateway = Gateway::start(yaml).await?;
    let client = caller::issued(&gateway, "denied", "admin").await?;
    let unknown = call(&client, "no_such_tool", &json!({})).send().await?;
    let shape = |answer: &Answer, name: &str| -> Result<(u16, String)> {
        let mut said = answer.json()?;
        said["id"].take();
        Ok((answer.status, said.to_string().replace(name, "TOOL")))
    };
    for tool in ["create_goal", "clear_goal"] {
        let answer = call(&client, tool, &json!({"goal": "x"})).send().await?;
        assert_eq!(shape(&answer, tool)?, shape(&unknown, "no_such_tool")?, "{tool}");
        assert!(!tools(&client).await?.contains(tool), "{tool}");
    }
    assert_eq!(call(&gateway.client(), "create_goal", &json!({"goal": "x"})).send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_session_is_unknown_to_everybody_but_its_owner() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let alice = caller::issued(&gateway, "alice", "read,write").await?;
    let bob = caller::issued(&gateway, "bob", "admin").await?;
    let session = LegacySession::open(&alice, LATEST_LEGACY).await?;
    for other in [bob, gateway.client()] {
        let other = other.with_header("mcp-session-id", session.id());
        let ping = other.post(&json!({"jsonrpc": "2.0", "id": 1, "method": "ping"}));
        for request in [ping, other.listen(), other.delete()] {
            let answer = request.send().await?;
            assert_eq!((answer.status, &answer.json()?["error"]["code"]), (404, &json!(-32001)));
        }
    }
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}));
    Ok(())
}

// Limits.

#[tokio::test]
async fn an_address_over_its_limit_waits_in_both_eras_and_all_sessions() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {per_address: 4/min}}").await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    // The handshake was two requests.
    assert_eq!(statuses([list_goals(&gateway.client()), list_goals(&gateway.client())]).await?, [200, 200]);
    let modern = list_goals(&gateway.client()).send().await?;
    is_limited(&modern, 15)?;
    assert_eq!(modern.json()?["error"]["message"], "rate limit exceeded");
    assert!(modern.json()?["id"].is_number(), "{:?}", modern.body);
    let legacy = session.prepare("tools/list", &json!({})).send().await?;
    is_limited(&legacy, 15)?;
    assert_eq!(legacy.json()?["error"]["code"], -32000);
    is_limited(&session.client().listen().send().await?, 15)?;
    let other = caller::issued(&gateway, "other", "read").await?;
    is_limited(&list_goals(&other).send().await?, 15)?;
    assert_eq!(refusals(&gateway, "rate_limited").await?, 4);
    assert_eq!(gateway.client().get("/healthz").send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn a_principal_over_its_limit_holds_up_no_other() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {per_principal: 2/min}}").await?;
    let alice = caller::issued(&gateway, "alice", "read").await?;
    let bob = caller::issued(&gateway, "bob", "read").await?;
    assert_eq!(statuses([list_goals(&alice), list_goals(&alice)]).await?, [200, 200]);
    is_limited(&list_goals(&alice).send().await?, 30)?;
    assert_eq!(statuses([list_goals(&bob), list_goals(&gateway.client())]).await?, [200, 200]);
    let again = caller::issued(&gateway, "alice", "read,write").await?;
    is_limited(&list_goals(&again).send().await?, 30)?;
    Ok(())
}

#[tokio::test]
async fn a_tool_over_its_limit_leaves_the_others_alone() -> Result<()> {
    let yaml = "security: {limits: {per_tool: {create_goal: 2/min, \"list_*\": off, \"*\": 100/min}}}\n\
                routes: [{match: add_memo, limit: 1/h}]";
    let gateway = Gateway::start(yaml).await?;
    let client = gateway.client();
    let goal = || call(&client, "create_goal", &json!({"goal": "x"}));
    assert_eq!(statuses([goal(), goal()]).await?, [200, 200]);
    let answer = goal().send().await?;
    is_limited(&answer, 30)?;
    let seconds: u64 = answer.header("retry-after").parse()?;
    assert!(seconds > 20, "two a minute come back one by one, not after {seconds} s");
    assert!(answer.json()?["id"].is_number());
    let memo = || call(&client, "add_memo", &json!({"memo": "x"}));
    assert_eq!(memo().send().await?.status, 200);
    is_limited(&memo().send().await?, 3600)?;
    let other = caller::issued(&gateway, "other", "write").await?;
    assert_eq!(call(&other, "create_goal", &json!({"goal": "x"})).send().await?.status, 200);
    assert_eq!(statuses((0..5).map(|_| list_goals(&client))).await?, [200; 5]);
    let session = LegacySession::open(&client, LATEST_LEGACY).await?;
    let params = json!({"name": "create_goal", "arguments": {"goal": "x"}});
    is_limited(&session.prepare("tools/call", &params).send().await?, 30)?;
    assert_eq!(refusals(&gateway, "rate_limited").await?, 3);
    Ok(())
}

#[tokio::test]
async fn a_wrong_token_counts_ten_times() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {per_address: 25/min}}").await?;
    let wrong = gateway.anonymous_client().with_token(WRONG);
    assert_eq!(statuses([list_goals(&wrong), list_goals(&wrong)]).await?, [401, 401]);
    is_limited(&list_goals(&wrong).send().await?, 60).context("a guesser learns nothing more")?;
    // Five are left, for whoever has a token.
    let mut left = Vec::new();
    for _ in 0..8 {
        left.push(list_goals(&gateway.client()).send().await?.status);
    }
    assert_eq!(left.iter().filter(|status| **status == 200).count(), 5, "{left:?}");
    assert_eq!(refusals(&gateway, "token_invalid").await?, 2);
    Ok(())
}

#[tokio::test]
async fn a_flood_is_stopped_before_anything_is_looked_at() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {flood: 5/h}}").await?;
    let client = gateway.client();
    let mut connection = client.connect().await?;
    let mut answers = Vec::new();
    for number in 0..12 {
        // Good, bad and cheap requests count alike.
        let request = match number % 3 {
            0 => list_goals(&client),
            1 => client.get("/healthz"),
            _ => client.get("/nowhere").header("host", "evil.example.com"),
        };
        answers.push(request.send_over(&mut connection).await?);
    }
    let codes: Vec<_> = answers.iter().map(|answer| answer.status).collect();
    assert_eq!(codes[..5], [200, 200, 403, 200, 200], "{codes:?}");
    for answer in &answers[5..] {
        is_limited(answer, 3600)?;
    }
    assert_eq!(refusals(&gateway, "flood").await?, 7);
    // More than twice the limit: a new connection is closed without a word.
    let mut tcp = gateway.tcp().await?;
    tcp.write("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.ok();
    assert_eq!(tcp.read_to_end().await?, "");
    Ok(())
}

// Behind a proxy.

fn forwarded(client: &Client, value: &str) -> Request {
    list_goals(client).header("x-forwarded-for", value)
}

#[tokio::test]
async fn a_trusted_proxy_is_believed_about_its_clients() -> Result<()> {
    let yaml = "server: {trusted_proxies: [127.0.0.0/8, 10.0.0.0/8]}\nsecurity: {limits: {per_address: 2/h}}";
    let gateway = Gateway::start(yaml).await?;
    let client = gateway.client();
    let ask = async |value: &str| anyhow::Ok(forwarded(&client, value).send().await?.status);
    assert_eq!(
        [ask("203.0.113.1").await?, ask("203.0.113.1").await?, ask("203.0.113.1").await?],
        [200, 200, 429]
    );
    assert_eq!(ask("203.0.113.2").await?, 200, "another client");
    assert_eq!(ask("203.0.113.9, 203.0.113.1").await?, 429, "what a client prepends does not count");
    assert_eq!(ask("203.0.113.9, 203.0.113.1, 10.1.1.1").await?, 429, "proxies in a row");
    assert_eq!(ask("203.0.113.1:4711").await?, 429, "with a port");
    assert_eq!(
        [ask("2001:db8::1").await?, ask("2001:db8::2").await?, ask("2001:db8::3").await?],
        [200, 200, 429]
    );
    Ok(())
}

#[tokio::test]
async fn nobody_else_is_believed_about_addresses() -> Result<()> {
    let yaml = "server: {trusted_proxies: [10.0.0.0/8]}\nsecurity: {limits: {per_address: 2/h}}";
    let gateway = Gateway::start(yaml).await?;
    let client = gateway.client();
    let requests = ["203.0.113.1", "203.0.113.2", "203.0.113.3"].map(|address| forwarded(&client, address));
    assert_eq!(statuses(requests).await?, [200, 200, 429]);
    let mut tcp = gateway.tcp().await?;
    tcp.write(preface([203, 0, 113, 4])).await?;
    tcp.write("GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await.ok();
    let said = tcp.read_to_end().await?;
    assert!(!said.contains(" 200 "), "a preface of a stranger is no request: {said:?}");
    Ok(())
}

/// PROXY protocol version 2: a TCP connection from `client` to this machine.
fn preface(client: [u8; 4]) -> Vec<u8> {
    let mut bytes = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c".to_vec();
    bytes.extend(client);
    bytes.extend([127, 0, 0, 1, 0x12, 0x67, 0x0f, 0x07]);
    bytes
}

#[tokio::test]
async fn a_proxy_preface_names_the_client_of_a_connection() -> Result<()> {
    let yaml = "server: {trusted_proxies: [127.0.0.1]}\nsecurity: {limits: {per_address: 2/h}}";
    let gateway = Gateway::start(yaml).await?;
    let token = gateway.token()?;
    let ping = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#;
    let request = format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\
         content-type: application/json\r\nmcp-session-id: none\r\ncontent-length: {}\r\n\r\n{ping}",
        ping.len()
    );
    let ask = async |client: [u8; 4], cut: usize| {
        let mut tcp = gateway.tcp().await?;
        let bytes = [preface(client), request.clone().into_bytes()].concat();
        let (first, second) = bytes.split_at(cut);
        tcp.write(first).await?;
        tcp.write(second).await?;
        anyhow::Ok(tcp.read_answer().await?.0)
    };
    // 404, because the session is unknown: the request came through.
    let one = [203, 0, 113, 1];
    assert_eq!([ask(one, 1).await?, ask(one, 20).await?, ask(one, 28).await?], [404, 404, 429]);
    assert_eq!(ask([203, 0, 113, 2], 40).await?, 404, "another client");
    let mut bare = gateway.tcp().await?;
    bare.write(&request).await?;
    assert_eq!(bare.read_answer().await?.0, 404, "a proxy may speak for itself, without a preface");
    let mut torn = gateway.tcp().await?;
    torn.write(&preface(one)[..20]).await?;
    torn.finish().await?;
    assert_eq!(torn.read_to_end().await?, "");
    Ok(())
}

// Ceilings.

/// Whether `future` is still waiting when looked at now.
async fn is_pending<F: Future + Unpin>(future: &mut F) -> bool {
    std::future::poll_fn(|cx| Poll::Ready(pin!(&mut *future).poll(cx).is_pending())).await
}

#[tokio::test]
async fn connections_beyond_the_ceiling_wait_for_one_to_end() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {connections: 2}}").await?;
    let health = "GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n";
    let mut open = [gateway.tcp().await?, gateway.tcp().await?];
    for tcp in &mut open {
        tcp.write(health).await?;
        assert_eq!(tcp.read_answer().await?.0, 200);
    }
    assert_eq!(count(&gateway, "moongate_connections").await?, 2);
    let mut third: RawTcp = gateway.tcp().await?;
    third.write(health).await?;
    let [first, mut second] = open;
    {
        let mut waiting = Box::pin(third.read_answer());
        for _ in 0..20 {
            // Those inside are served as before, and time passes.
            second.write(health).await?;
            assert_eq!(second.read_answer().await?.0, 200);
            assert!(is_pending(&mut waiting).await, "the third was let in");
        }
        drop(first);
        assert_eq!(patiently("the third connection", waiting).await??.0, 200);
    }
    Ok(())
}

#[tokio::test]
async fn calls_beyond_the_ceiling_are_refused_until_one_ends() -> Result<()> {
    let gateway = fixture::gateway("security: {limits: {calls: 2}}").await?;
    let client = gateway.client();
    let (capabilities, answers) = (fixture::talkative(), fixture::person("Ada"));
    let session = LegacySession::open_with(&client, LATEST_LEGACY, &capabilities, answers).await?;
    let ask = json!({"name": "test_ask_twice", "arguments": {}});
    let mut running = Vec::new();
    for _ in 0..2 {
        // A call that has asked its client runs for as long as the client takes.
        let mut stream = session.prepare("tools/call", &ask).open().await?;
        stream.message_where(|message| message["method"] == "elicitation/create").await?;
        running.push(stream);
    }
    let quick = |client: &Client| call(client, "test_echo", &json!({"text": "hello"}));
    let modern = quick(&client).send().await?;
    is_limited(&modern, 60)?;
    assert!(modern.json()?["id"].is_number());
    let params = json!({"name": "test_echo", "arguments": {"text": "hello"}});
    let legacy = session.prepare("tools/call", &params).send().await?;
    is_limited(&legacy, 60)?;
    assert_eq!(refusals(&gateway, "rate_limited").await?, 2);
    let other = caller::issued(&gateway, "other", "read").await?;
    assert_eq!(quick(&other).send().await?.status, 200, "each principal has its own");
    // The first two requests of the session were these calls; one is cancelled, and what it held is free again.
    session.notify("notifications/cancelled", &json!({"requestId": 1})).await?;
    waiting::eventually("a call to be free", async || {
        Ok((quick(&client).send().await?.status == 200).then_some(()))
    })
    .await
}

#[tokio::test]
async fn sessions_beyond_the_ceiling_are_refused_until_one_ends() -> Result<()> {
    let gateway = Gateway::start("security: {limits: {sessions: 2}}").await?;
    let first = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let _second = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let hello = json!({"jsonrpc": "2.0", "id": "third", "method": "initialize",
                       "params": {"protocolVersion": LATEST_LEGACY, "capabilities": {},
                                  "clientInfo": {"name": "t", "version": "1"}}});
    let answer = gateway.client().post(&hello).send().await?;
    is_limited(&answer, 60)?;
    assert_eq!(answer.json()?["id"], "third");
    assert!(answer.header("mcp-session-id").is_empty());
    assert_eq!(count(&gateway, "moongate_sessions").await?, 2);
    let other = caller::issued(&gateway, "other", "read").await?;
    LegacySession::open(&other, LATEST_LEGACY).await.context("each principal has its own")?;
    assert_eq!(first.delete().await?.status, 204);
    let opened = async || Ok(LegacySession::open(&gateway.client(), LATEST_LEGACY).await.ok().map(drop));
    waiting::eventually("a session to be free", opened).await
}

#[tokio::test]
async fn parked_calls_beyond_the_ceiling_are_refused() -> Result<()> {
    let gateway = fixture::gateway("security: {limits: {parked: 1}}").await?;
    let client =
        ModernClient::new(&gateway.client()).with_answers(&fixture::talkative(), fixture::person("Ada"));
    let params = json!({"name": "test_ask_twice", "arguments": {}});
    let parked = client.once(&client.prepare("tools/call", &params)).await?;
    assert_eq!(parked.response["result"]["resultType"], "input_required", "{:?}", parked.response);
    assert_eq!(count(&gateway, "moongate_parked_calls").await?, 1);
    is_limited(&client.prepare("tools/call", &params).over(client.http()).send().await?, 600)?;
    assert!(refusals(&gateway, "rate_limited").await? >= 1);
    Ok(())
}

// What is counted, and what is never said.

#[tokio::test]
async fn every_refusal_is_counted_under_its_reason() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client();
    let nobody = gateway.anonymous_client();
    let reader = caller::issued(&gateway, "reader", "read").await?;
    let bearer = format!("Bearer {}", gateway.token()?);
    for (reason, times, request, status) in [
        ("host", 1, list_goals(&client).header("host", "evil.example.com"), 403),
        ("origin", 2, list_goals(&client).header("origin", "https://evil.example.com"), 403),
        ("token_missing", 3, list_goals(&nobody), 401),
        ("token_invalid", 4, list_goals(&nobody.clone().with_token(WRONG)), 401),
        ("token_in_query", 5, list_goals(&client.clone().with_path("/mcp?token=x")), 400),
        ("token_ambiguous", 6, list_goals(&client).also("authorization", &bearer), 400),
        ("scope", 7, call(&reader, "create_goal", &json!({"goal": "x"})), 403),
    ] {
        for _ in 0..times {
            assert_eq!(request.clone().send().await?.status, status, "{reason}");
        }
        assert_eq!(refusals(&gateway, reason).await?, times, "{reason}");
        // Scopes belong to a call, the rest to a request.
        gateway.logged(if reason == "scope" { "call refused" } else { reason }).await?;
    }
    let page = gateway.metrics().await?;
    let reasons = page.lines().filter(|line| line.starts_with("moongate_refused_total{"));
    let total: u64 = reasons.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum();
    assert_eq!(total, 28, "nothing is counted twice:\n{page}");
    Ok(())
}

#[tokio::test]
async fn no_secret_is_in_any_log_line_metric_answer_or_error() -> Result<()> {
    let yaml = "security: {anonymous: true, limits: {per_address: off, per_principal: off}}\n\
                telemetry: {log_level: trace}";
    let mut gateway = fixture::gateway(yaml).await?;
    let home = gateway.home().clone();
    let issued = caller::token(&home, "secret-keeper", "read").await?;
    let key = std::fs::read_to_string(home.path().join("state/moongate/key"))?.trim().to_owned();
    let local = gateway.token()?;
    let (client, nobody) = (gateway.client(), gateway.anonymous_client());
    let mut answers = Vec::new();
    for (path, token) in [
        ("/mcp", &*local),
        ("/mcp", &issued),
        ("/mcp", WRONG),
        ("/mcp", &local[1..]),
        ("/mcp/absent", &local),
    ] {
        let client = nobody.clone().with_token(token).with_path(path);
        answers.push(list_goals(&client).send().await?);
        answers.push(call(&client, "create_goal", &json!({"goal": "x"})).send().await?);
        answers.push(client.post_text("{").send().await?);
        answers.push(client.listen().send().await?);
        answers.push(call(&client, "test_error_handling", &json!({})).send().await?);
        answers.push(client.get(&format!("/mcp?access_token={token}")).send().await?);
        answers.push(client.get(&format!("/nowhere?token={token}")).send().await?);
        answers.push(
            client.get("/healthz").header("host", &format!("{}.example.com", &token[..20])).send().await?,
        );
        answers.push(list_goals(&client).header("mcp-session-id", token).send().await?);
    }
    let rotated = home.run(&["token", "rotate"]).await?;
    let fresh = String::from_utf8(rotated.stdout)?.trim().to_owned();
    answers.push(list_goals(&client.clone().with_token(&fresh)).send().await?);
    let mut pipe = Stdio::start_with_env(&home, yaml, &[], &[("MOONGATE_TOKEN", WRONG)])?;
    assert_eq!(pipe.wait(moongate_test_support::PATIENCE).await?.code(), Some(1));
    let mut told = vec![
        ("metrics", gateway.metrics().await?),
        ("readiness", gateway.admin_client()?.get("/readyz").send().await?.text()?),
        ("the log of a refused pipe", pipe.process().stderr().text()),
    ];
    told.extend(
        answers.iter().map(|answer| ("an answer", format!("{:?} {:?}", answer.headers, answer.body))),
    );
    assert!(gateway.stop().await?.success());
    told.push(("the log", gateway.process().stderr().text()));
    let log = &told.last().context("the log")?.1;
    assert!(log.contains("DEBUG") && log.contains("request refused"), "the log says something: {log}");
    for (place, text) in &told {
        for (name, secret) in [
            ("local", &local),
            ("rotated", &fresh),
            ("issued", &issued),
            ("wrong", &WRONG.to_owned()),
            ("key", &key),
        ] {
            assert!(!text.contains(secret.as_str()), "the {name} secret is in {place}: {text}");
        }
        // Half a token is a secret too; its signature is what nobody may have.
        let signature = issued.rsplit('.').next().context("a signature")?;
        assert!(!text.contains(signature), "a signature is in {place}");
    }
    Ok(())
}
