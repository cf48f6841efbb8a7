//! The rules of Streamable HTTP over the wire: every row of both eras' tables, CORS, and both versions of HTTP.
//!
//! The tables are data: one row is one request that differs from a good one in one thing (or in two, to show which is
//! looked at first), and what it must be answered with.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use anyhow::{Context as _, Result, ensure};
use moongate_test_integration::{UNLIMITED, fixture};
use moongate_test_support::{Answer, Client, Gateway, LegacySession, ModernClient};
use serde_json::{Value, json};

const MODERN: &str = "2026-07-28";
const LATEST_LEGACY: &str = "2025-11-25";
const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const LOG_LEVEL_KEY: &str = "io.modelcontextprotocol/logLevel";

/// A request in the making: a good modern one, until a row changes something.
#[derive(Clone)]
struct Draft {
    method: &'static str,
    params: Value,
    headers: Vec<(&'static str, String)>,
}

impl Draft {
    /// A good request.
    fn good(method: &'static str, params: Value) -> Self {
        let mut params = params;
        params["_meta"] = json!({VERSION_KEY: MODERN, CAPABILITIES_KEY: {}});
        let name = ["name", "uri", "taskId"].into_iter().find_map(|key| params[key].as_str());
        let mut headers =
            vec![("mcp-protocol-version", MODERN.to_owned()), ("mcp-method", method.to_owned())];
        headers.extend(name.map(|name| ("mcp-name", name.to_owned())));
        Self { method, params, headers }
    }

    /// With another header.
    fn header(mut self, name: &'static str, value: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self.headers.push((name, value.to_owned()));
        self
    }

    /// Without a header.
    fn without(mut self, name: &str) -> Self {
        self.headers.retain(|(known, _)| *known != name);
        self
    }

    /// With another `_meta`.
    fn meta(mut self, meta: Value) -> Self {
        self.params["_meta"] = meta;
        self
    }

    /// Claiming another version, in body and header alike.
    fn claiming(self, version: &str) -> Self {
        self.meta(json!({VERSION_KEY: version, CAPABILITIES_KEY: {}})).header("mcp-protocol-version", version)
    }

    async fn send(&self, client: &Client, id: &Value) -> Result<Answer> {
        let body = json!({"jsonrpc": "2.0", "id": id, "method": self.method, "params": self.params});
        let request = self
            .headers
            .iter()
            .fold(client.post(&body), |request, (name, value)| request.header(name, value));
        request.send().await
    }
}

/// What a row must be answered with.
struct Expected {
    status: u16,
    code: i64,
    data: Option<Value>,
}

fn refused(status: u16, code: i64) -> Expected {
    Expected { status, code, data: None }
}

fn list() -> Draft {
    Draft::good("tools/list", json!({}))
}

fn call() -> Draft {
    Draft::good("tools/call", json!({"name": "list_goals", "arguments": {}}))
}

/// Sends every row and compares all of its answer; an error names the row.
async fn hold(client: &Client, rows: Vec<Row>) -> Result<()> {
    for (number, (what, draft, expected)) in rows.into_iter().enumerate() {
        // Both JSON types of ids, so that an echo is an echo.
        let id = if number % 2 == 0 { json!(number) } else { json!(format!("row {number}")) };
        let answer = draft.send(client, &id).await.with_context(|| what.to_owned())?;
        judge(&answer, &id, &expected).with_context(|| what.to_owned())?;
    }
    Ok(())
}

fn judge(answer: &Answer, id: &Value, expected: &Expected) -> Result<()> {
    ensure!(answer.status == expected.status, "status {}, body {:?}", answer.status, answer.body);
    ensure!(answer.header("content-type") == "application/json", "{:?}", answer.headers);
    ensure!(answer.header("mcp-session-id").is_empty(), "a modern request never gets a session");
    let body = answer.json()?;
    ensure!(body["jsonrpc"] == "2.0" && body["id"] == *id && body.get("result").is_none(), "{body}");
    ensure!(body["error"]["code"] == expected.code, "{body}");
    ensure!(body["error"]["message"].as_str().is_some_and(|text| !text.is_empty()), "{body}");
    ensure!(expected.data.is_none() || body["error"].get("data") == expected.data.as_ref(), "{body}");
    Ok(())
}

type Row = (&'static str, Draft, Expected);

/// Rungs 1 to 3: the envelope and its version.
fn envelopes() -> Vec<Row> {
    let mut bare = list();
    bare.params = json!({});
    let unsupported = |requested: &str| {
        let data = json!({"supported": [MODERN], "requested": requested});
        Expected { data: Some(data), ..refused(400, -32022) }
    };
    let version = |version: Value| list().meta(json!({VERSION_KEY: version, CAPABILITIES_KEY: {}}));
    let capabilities = |value: Value| list().meta(json!({VERSION_KEY: MODERN, CAPABILITIES_KEY: value}));
    let header = |value: &str| list().header("mcp-protocol-version", value);
    let mismatch = list().claiming("2031-01-01").header("mcp-protocol-version", MODERN);
    vec![
        ("1 no _meta", bare, refused(400, -32602)),
        ("1 _meta is no object", list().meta(json!(7)), refused(400, -32602)),
        ("1 _meta is empty", list().meta(json!({})), refused(400, -32602)),
        ("1 no version", list().meta(json!({CAPABILITIES_KEY: {}})), refused(400, -32602)),
        ("1 version is a number", version(json!(7)), refused(400, -32602)),
        ("1 version is null", version(json!(null)), refused(400, -32602)),
        ("1 no capabilities", list().meta(json!({VERSION_KEY: MODERN})), refused(400, -32602)),
        ("1 capabilities are an array", capabilities(json!([])), refused(400, -32602)),
        ("1 capabilities are null", capabilities(json!(null)), refused(400, -32602)),
        ("2 no version header", list().without("mcp-protocol-version"), refused(400, -32020)),
        ("2 another legacy version", header("2025-06-18"), refused(400, -32020)),
        ("2 another unknown version", header("2031-01-01"), refused(400, -32020)),
        ("2 a mismatch wins over an unsupported version", mismatch, refused(400, -32020)),
        ("3 a version of the future", list().claiming("2031-01-01"), unsupported("2031-01-01")),
        ("3 a legacy version", list().claiming(LATEST_LEGACY), unsupported(LATEST_LEGACY)),
        ("3 no version at all", list().claiming("nonsense"), unsupported("nonsense")),
    ]
}

/// Rungs 4 and 5: headers that repeat the body.
fn repetitions() -> Vec<Row> {
    let read = || Draft::good("resources/read", json!({"uri": "moongate://no-such-thing"}));
    let prompt = Draft::good("prompts/get", json!({"name": "no_such_prompt"}));
    let method = |value: &str| list().header("mcp-method", value);
    let name = |value: &str| call().header("mcp-name", value);
    let bad = || refused(400, -32020);
    vec![
        ("4 no method header", list().without("mcp-method"), bad()),
        ("4 another method", method("prompts/list"), bad()),
        ("4 the method in another case", method("Tools/List"), bad()),
        ("5 no name of a tool", call().without("mcp-name"), bad()),
        ("5 another tool", name("create_goal"), bad()),
        ("5 the tool in another case", name("List_Goals"), bad()),
        ("5 base64 of another tool", name("=?base64?YWRk?="), bad()),
        ("5 base64 without padding", name("=?base64?bGlzdF9nb2Fscw?="), bad()),
        ("5 no base64", name("=?base64?list goals?="), bad()),
        ("5 markers in capitals are text", name("=?BASE64?bGlzdF9nb2Fscw==?="), bad()),
        ("5 no name of a prompt", prompt.without("mcp-name"), bad()),
        ("5 no name of a resource", read().without("mcp-name"), bad()),
        ("5 another resource", read().header("mcp-name", "moongate://other"), bad()),
    ]
}

/// Rung 6: methods that this version does not have, or that nothing here offers.
fn methods() -> Vec<Row> {
    let task = || json!({"taskId": "t"});
    let resource = || json!({"uri": "x://y"});
    let gone =
        |method: &'static str, params: Value| (method, Draft::good(method, params), refused(404, -32601));
    vec![
        gone("tools/destroy", json!({})),
        gone("initialize", json!({"protocolVersion": MODERN})),
        gone("ping", json!({})),
        gone("logging/setLevel", json!({"level": "info"})),
        gone("resources/subscribe", resource()),
        gone("resources/unsubscribe", resource()),
        gone("tasks/get", task()),
        gone("tasks/update", task()),
        gone("tasks/cancel", task()),
        gone("tasks/result", task()),
        gone("tasks/list", json!({})),
    ]
}

/// Two things are wrong: the earlier rung answers.
fn order() -> Vec<Row> {
    let no_capabilities = json!({VERSION_KEY: MODERN});
    let ping = || Draft::good("ping", json!({}));
    let unknown = Draft::good("tools/call", json!({"name": "no_such_tool"}));
    let future = || list().claiming("2031-01-01");
    vec![
        (
            "1 before 2",
            list().meta(no_capabilities.clone()).header("mcp-protocol-version", "2031-01-01"),
            refused(400, -32602),
        ),
        ("1 before 6", ping().meta(no_capabilities), refused(400, -32602)),
        ("2 before 3", future().without("mcp-protocol-version"), refused(400, -32020)),
        ("3 before 4", future().without("mcp-method"), refused(400, -32022)),
        ("4 before 6", ping().without("mcp-method"), refused(400, -32020)),
        ("5 before 7", unknown.without("mcp-name"), refused(400, -32020)),
    ]
}

/// Rung 7: the request is understood, and what it asks for is wrong.
fn wrong_params() -> Vec<Row> {
    let level = |level: Value| {
        let mut draft = call();
        draft.params["_meta"][LOG_LEVEL_KEY] = level;
        draft
    };
    let arguments =
        |arguments: Value| Draft::good("tools/call", json!({"name": "list_goals", "arguments": arguments}));
    let mut nameless = call();
    nameless.params["name"] = json!(7);
    let draft = Draft::good;
    vec![
        ("7 an unknown log level", level(json!("loud")), refused(200, -32602)),
        ("7 a log level that is no text", level(json!(3)), refused(200, -32602)),
        ("7 a foreign cursor", draft("tools/list", json!({"cursor": "not-ours"})), refused(200, -32602)),
        ("7 an unknown tool", draft("tools/call", json!({"name": "no_such_tool"})), refused(200, -32602)),
        (
            "7 an unknown prompt",
            draft("prompts/get", json!({"name": "no_such_prompt"})),
            refused(200, -32602),
        ),
        (
            "7 an unknown resource",
            draft("resources/read", json!({"uri": "x://no-such"})),
            refused(200, -32602),
        ),
        ("7 arguments are an array", arguments(json!([])), refused(200, -32602)),
        ("7 arguments are text", arguments(json!("x")), refused(200, -32602)),
        ("7 completion of nothing", draft("completion/complete", json!({})), refused(200, -32602)),
        (
            "7 completion of an unknown prompt",
            draft(
                "completion/complete",
                json!({"ref": {"type": "ref/prompt", "name": "no_such"}, "argument": {"name": "a", "value": ""}}),
            ),
            refused(200, -32602),
        ),
    ]
}

async fn climb(client: &Client) -> Result<()> {
    for rows in [envelopes(), repetitions(), methods(), order(), wrong_params()] {
        hold(client, rows).await?;
    }
    Ok(())
}

#[tokio::test]
async fn every_rung_of_the_modern_ladder_answers_first_over_http_1() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    climb(&gateway.client()).await
}

#[tokio::test]
async fn every_rung_of_the_modern_ladder_answers_first_over_http_2() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    climb(&gateway.http2_client()).await
}

#[tokio::test]
async fn headers_that_say_the_same_in_another_way_are_good() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for (what, draft) in [
        ("as they are", call()),
        ("blanks around the version", call().header("mcp-protocol-version", "  2026-07-28 ")),
        ("blanks around the method", call().header("mcp-method", "\ttools/call ")),
        ("the name as base64", call().header("mcp-name", "=?base64?bGlzdF9nb2Fscw==?=")),
        ("a session id, which means nothing", call().header("mcp-session-id", "no-such-session")),
        ("an event id, which means nothing", call().header("last-event-id", "no-such-event")),
        ("a parameter header nobody declared", call().header("mcp-param-nobody", "x")),
    ] {
        let answer = draft.send(&gateway.client(), &json!("good")).await?;
        assert_eq!(answer.status, 200, "{what}: {:?}", answer.body);
        assert!(answer.header("mcp-session-id").is_empty(), "{what}");
        assert_eq!(answer.json()?["result"]["resultType"], "complete", "{what}");
    }
    Ok(())
}

/// Rungs 8 and 9 need tools that the product does not have; the fixture's do.
#[tokio::test]
async fn parameter_headers_and_capabilities_are_checked_for_the_named_tool() -> Result<()> {
    let gateway = fixture::gateway(UNLIMITED).await?;
    let region = |value: Value| {
        Draft::good("tools/call", json!({"name": "test_header_param", "arguments": {"region": value}}))
    };
    let eu = || region(json!("eu"));
    let needs_model =
        || Draft::good("tools/call", json!({"name": "test_missing_capability", "arguments": {}}));
    let missing =
        Expected { data: Some(json!({"requiredCapabilities": {"sampling": {}}})), ..refused(400, -32021) };
    let rows = vec![
        ("8 no parameter header", eu(), refused(400, -32020)),
        ("8 another value", eu().header("mcp-param-region", "us"), refused(400, -32020)),
        ("8 bad base64", eu().header("mcp-param-region", "=?base64?ZXU?="), refused(400, -32020)),
        ("9 no capability", needs_model(), missing),
    ];
    hold(&gateway.client(), rows).await?;
    for (what, draft) in [
        ("plain", eu().header("mcp-param-region", "eu")),
        ("base64", eu().header("mcp-param-region", "=?base64?ZXU=?=")),
        ("not ASCII", region(json!("é")).header("mcp-param-region", "=?base64?w6k=?=")),
    ] {
        let answer = draft.send(&gateway.client(), &json!(1)).await?;
        assert_eq!(answer.status, 200, "{what}: {:?}", answer.body);
        assert!(answer.text()?.contains("Region: "), "{what}: {:?}", answer.body);
    }
    Ok(())
}

#[tokio::test]
async fn every_modern_result_is_complete_and_says_who_and_how_long() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let cacheable =
        ["server/discover", "tools/list", "prompts/list", "resources/list", "resources/templates/list"];
    for method in cacheable {
        let answer = Draft::good(method, json!({})).send(&gateway.client(), &json!(method)).await?;
        let result = answer.json()?["result"].take();
        assert_eq!(result["resultType"], "complete", "{method}: {result}");
        assert_eq!(result["_meta"]["io.modelcontextprotocol/serverInfo"]["name"], "moongate", "{method}");
        assert!(result["ttlMs"].as_u64().is_some(), "{method}: {result}");
        assert!(
            ["private", "public"].contains(&result["cacheScope"].as_str().unwrap_or("")),
            "{method}: {result}"
        );
    }
    let called = call().send(&gateway.client(), &json!(1)).await?.json()?["result"].take();
    assert_eq!(called["resultType"], "complete");
    assert!(called.get("ttlMs").is_none() && called.get("cacheScope").is_none(), "{called}");
    let discovered =
        Draft::good("server/discover", json!({})).send(&gateway.client(), &json!(1)).await?.json()?;
    assert_eq!(discovered["result"]["supportedVersions"], json!([MODERN]));
    Ok(())
}

/// How the era is found when body and header disagree.
#[tokio::test]
async fn the_body_decides_the_era_and_the_header_only_cross_checks() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let client = gateway.client();
    let session = LegacySession::open(&client, LATEST_LEGACY).await?;
    let claim = json!({VERSION_KEY: MODERN, CAPABILITIES_KEY: {}});
    let request = |method: &str| json!({"jsonrpc": "2.0", "id": "e", "method": method, "params": {}});
    let claiming = |method: &str| json!({"jsonrpc": "2.0", "id": "e", "method": method, "params": {"_meta": claim.clone()}});
    let hello =
        json!({"jsonrpc": "2.0", "id": "e", "method": "initialize", "params": hello_params(LATEST_LEGACY)});
    let response = json!({"jsonrpc": "2.0", "id": "e", "result": {}});
    let array = |elements: &[Value]| Value::from(elements.to_vec());
    // what, body, version header, in a session?, status, code, id echoed?
    for (what, body, version, in_session, status, code, echoed) in [
        ("an array with a claim", array(&[claiming("tools/list")]), None, false, 400, -32600, false),
        (
            "an array with a claim in a session",
            array(&[request("ping"), claiming("tools/list")]),
            None,
            true,
            400,
            -32600,
            false,
        ),
        ("a response to nobody", response.clone(), None, false, 400, -32600, false),
        ("a response of a modern client", response, Some(MODERN), true, 400, -32600, false),
        ("a modern header without a claim", request("tools/list"), Some(MODERN), false, 400, -32602, true),
        ("the same inside a session", request("tools/list"), Some(MODERN), true, 400, -32602, true),
        ("a modern header on initialize", hello, Some(MODERN), false, 400, -32020, true),
        (
            "an unknown version and no session",
            request("tools/list"),
            Some("2031-01-01"),
            false,
            400,
            -32022,
            true,
        ),
        (
            "an unknown version in a session",
            request("tools/list"),
            Some("2031-01-01"),
            true,
            400,
            -32000,
            true,
        ),
        ("an unreadable version in a session", request("tools/list"), Some("later"), true, 400, -32000, true),
        (
            "a claim inside a session still needs its headers",
            claiming("tools/list"),
            None,
            true,
            400,
            -32020,
            true,
        ),
    ] {
        let from = if in_session { session.client() } else { &client };
        let post = from.post(&body).without("mcp-protocol-version");
        let post = match version {
            Some(version) => post.header("mcp-protocol-version", version),
            None => post,
        };
        let answer = post.send().await?;
        let said = answer.json()?;
        assert_eq!((answer.status, said["error"]["code"].as_i64()), (status, Some(code)), "{what}: {said}");
        assert_eq!(said["id"] == "e", echoed, "{what}: {said}");
    }
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}), "the session is unharmed");
    Ok(())
}

#[tokio::test]
async fn modern_notifications_are_taken_with_and_without_headers() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let note = json!({
        "jsonrpc": "2.0",
        "method": "notifications/cancelled",
        "params": {"requestId": 1, "_meta": {VERSION_KEY: MODERN, CAPABILITIES_KEY: {}}},
    });
    let plain = json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}});
    let client = gateway.client();
    for post in [
        client.post(&note),
        client
            .post(&note)
            .header("mcp-protocol-version", MODERN)
            .header("mcp-method", "notifications/cancelled"),
        client.post(&plain).header("mcp-protocol-version", MODERN),
    ] {
        let answer = post.send().await?;
        assert_eq!((answer.status, answer.body.len()), (202, 0), "{:?}", answer.body);
    }
    Ok(())
}

#[tokio::test]
async fn a_modern_client_has_post_only() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client().with_header("mcp-protocol-version", MODERN);
    for request in [client.listen(), client.delete()] {
        let answer = request.send().await?;
        assert_eq!((answer.status, answer.header("allow")), (405, "POST"), "{:?}", answer.body);
        assert_eq!(answer.json()?["error"]["code"], -32600);
    }
    Ok(())
}

fn hello_params(version: &str) -> Value {
    json!({"protocolVersion": version, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}})
}

fn hello(version: &str) -> Value {
    json!({"jsonrpc": "2.0", "id": "hello", "method": "initialize", "params": hello_params(version)})
}

#[tokio::test]
async fn initialize_negotiates_and_gives_a_session() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    for client in [gateway.client(), gateway.http2_client()] {
        let mut ids = std::collections::BTreeSet::new();
        let rows = LEGACY.map(|version| (version, version)).into_iter();
        let others = [(MODERN, LATEST_LEGACY), ("2031-01-01", LATEST_LEGACY), ("1999-01-01", LATEST_LEGACY)];
        for (asked, given) in rows.chain(others) {
            let answer = client.post(&hello(asked)).send().await?;
            let said = answer.json()?;
            assert_eq!((answer.status, &said["id"]), (200, &json!("hello")), "{asked}: {said}");
            assert_eq!(said["result"]["protocolVersion"], given, "{asked}: {said}");
            assert_eq!(said["result"]["serverInfo"]["name"], "moongate");
            for part in ["tools", "prompts", "resources", "completions", "logging"] {
                assert!(said["result"]["capabilities"][part].is_object(), "{part}: {said}");
            }
            let id = answer.header("mcp-session-id").to_owned();
            assert!(id.len() >= 32 && id.bytes().all(|byte| (0x21..=0x7e).contains(&byte)), "{id:?}");
            assert!(ids.insert(id), "every session has an id of its own");
        }
    }
    Ok(())
}

#[tokio::test]
async fn what_else_initialize_carries_in_headers_is_ignored() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for (version, method) in
        [(Some("2025-11-25"), Some("initialize")), (Some("2031-01-01"), None), (None, Some("x"))]
    {
        let mut post = gateway.client().post(&hello("2025-06-18"));
        for (name, value) in [("mcp-protocol-version", version), ("mcp-method", method)] {
            if let Some(value) = value {
                post = post.header(name, value);
            }
        }
        let answer = post.send().await?;
        assert_eq!(answer.json()?["result"]["protocolVersion"], "2025-06-18", "{version:?} {method:?}");
    }
    Ok(())
}

/// One row of the legacy table: a message, what is changed about its headers, and its answer.
struct Situation {
    what: &'static str,
    body: Value,
    headers: Vec<(&'static str, Option<&'static str>)>,
    status: u16,
    /// None: the body is empty.
    code: Option<i64>,
}

fn situation(
    what: &'static str,
    body: &Value,
    headers: &[(&'static str, Option<&'static str>)],
    status: u16,
    code: Option<i64>,
) -> Situation {
    Situation { what, body: body.clone(), headers: headers.to_vec(), status, code }
}

fn legacy_table() -> Vec<Situation> {
    const NO_SESSION: &[(&str, Option<&str>)] = &[("mcp-session-id", None)];
    const UNKNOWN: &[(&str, Option<&str>)] =
        &[("mcp-session-id", Some("00000000-0000-4000-8000-000000000000"))];
    let list = json!({"jsonrpc": "2.0", "id": "x", "method": "tools/list"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    let response = json!({"jsonrpc": "2.0", "id": "nobody asked", "result": {}});
    let odd_version = [("mcp-protocol-version", Some("2031-01-01"))];
    let batch = json!([{"jsonrpc": "2.0", "id": "x", "method": "ping"}]);
    vec![
        situation("a second initialize", &hello("2025-11-25"), &[], 400, Some(-32600)),
        situation("a request without a session", &list, NO_SESSION, 400, Some(-32000)),
        situation("a notification without a session", &note, NO_SESSION, 400, Some(-32000)),
        situation("a response without a session", &response, NO_SESSION, 400, Some(-32600)),
        situation("a batch without a session", &batch, NO_SESSION, 400, Some(-32000)),
        situation("a request in an unknown session", &list, UNKNOWN, 404, Some(-32001)),
        situation("a notification in an unknown session", &note, UNKNOWN, 404, Some(-32001)),
        situation("a response in an unknown session", &response, UNKNOWN, 404, Some(-32001)),
        situation("a version nobody speaks", &list, &odd_version, 400, Some(-32000)),
        situation("a notification", &note, &[], 202, None),
        situation("a response", &response, &[], 202, None),
        situation(
            "a notification nobody knows",
            &json!({"jsonrpc": "2.0", "method": "notifications/x"}),
            &[],
            202,
            None,
        ),
        situation(
            "an unknown method",
            &json!({"jsonrpc": "2.0", "id": "x", "method": "tools/destroy"}),
            &[],
            200,
            Some(-32601),
        ),
        situation(
            "a modern method",
            &json!({"jsonrpc": "2.0", "id": "x", "method": "server/discover"}),
            &[],
            200,
            Some(-32601),
        ),
        situation(
            "an unknown tool",
            &json!({"jsonrpc": "2.0", "id": "x", "method": "tools/call", "params": {"name": "no_such_tool"}}),
            &[],
            200,
            Some(-32602),
        ),
        situation(
            "an unknown prompt",
            &json!({"jsonrpc": "2.0", "id": "x", "method": "prompts/get", "params": {"name": "no_such"}}),
            &[],
            200,
            Some(-32602),
        ),
        situation(
            "an unknown resource",
            &json!({"jsonrpc": "2.0", "id": "x", "method": "resources/read", "params": {"uri": "x://y"}}),
            &[],
            200,
            Some(-32002),
        ),
        situation(
            "an unknown log level",
            &json!({"jsonrpc": "2.0", "id": "x", "method": "logging/setLevel", "params": {"level": "loud"}}),
            &[],
            200,
            Some(-32602),
        ),
    ]
}

#[tokio::test]
async fn every_row_of_the_legacy_table_holds_over_both_versions_of_http() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    for client in [gateway.client(), gateway.http2_client()] {
        let session = LegacySession::open(&client, LATEST_LEGACY).await?;
        for row in legacy_table() {
            hold_legacy(&session, &row).await.with_context(|| row.what)?;
        }
        assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}));
    }
    Ok(())
}

async fn hold_legacy(session: &LegacySession, row: &Situation) -> Result<()> {
    let mut post = session.client().post(&row.body);
    for (name, value) in &row.headers {
        post = match value {
            Some(value) => post.header(name, value),
            None => post.without(name),
        };
    }
    let answer = post.send().await?;
    ensure!(answer.status == row.status, "status {}, body {:?}", answer.status, answer.body);
    let Some(code) = row.code else {
        ensure!(answer.body.is_empty(), "{:?}", answer.body);
        return Ok(());
    };
    let said = answer.json()?;
    ensure!(said["jsonrpc"] == "2.0" && said["error"]["code"] == code, "{said}");
    // A request's id is echoed whatever is wrong; what has none, or is an answer itself, is answered without.
    let id = row.body.get("method").and(row.body.get("id"));
    ensure!(said.get("id") == id, "{said}");
    Ok(())
}

#[tokio::test]
async fn any_legacy_version_header_is_good_and_the_sessions_own_version_rules() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    for negotiated in LEGACY {
        let session = LegacySession::open(&gateway.client(), negotiated).await?;
        for header in LEGACY.into_iter().map(Some).chain([None]) {
            let list = session.client().post(&json!({"jsonrpc": "2.0", "id": 1, "method": "tools/list"}));
            let list = list.without("mcp-protocol-version");
            let answer = match header {
                Some(version) => list.header("mcp-protocol-version", version),
                None => list,
            };
            let answer = answer.send().await?;
            assert_eq!(answer.status, 200, "{negotiated} with {header:?}: {:?}", answer.body);
        }
    }
    Ok(())
}

#[tokio::test]
async fn ids_keep_their_type_and_what_is_no_id_is_refused() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    for id in ["0", "1", "-7", "9007199254740993", r#""""#, r#""1""#, r#""id with \u00e9 and \"quotes\"""#] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let answer = session.client().post_text(body).send().await?;
        let expected: Value = serde_json::from_str(id)?;
        assert_eq!((answer.status, &answer.json()?["id"]), (200, &expected), "{id}");
    }
    for id in ["null", "1.5", "true", "[]", "{}", "1e400"] {
        let body = format!(r#"{{"jsonrpc":"2.0","id":{id},"method":"ping"}}"#);
        let answer = session.client().post_text(body).send().await?;
        let said = answer.json()?;
        assert_eq!((answer.status, said["error"]["code"].as_i64()), (400, Some(-32600)), "{id}: {said}");
        assert!(said.get("id").is_none(), "{id}: {said}");
    }
    Ok(())
}

/// From 2025-11-25 on an answer to what has no readable id has no id; before, it has a null one.
#[tokio::test]
async fn an_error_without_an_id_has_the_form_the_version_knows() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for (version, is_null) in [("2025-03-26", true), ("2025-06-18", true), ("2025-11-25", false)] {
        let session = LegacySession::open(&gateway.client(), version).await?;
        let said = session.client().post_text("{").send().await?.json()?;
        assert_eq!(said["error"]["code"], -32700);
        assert_eq!(said.get("id"), is_null.then_some(&Value::Null), "{version}: {said}");
    }
    let modern =
        gateway.client().post_text("{").header("mcp-protocol-version", MODERN).send().await?.json()?;
    assert!(modern.get("id").is_none(), "{modern}");
    Ok(())
}

#[tokio::test]
async fn the_get_stream_needs_a_session_and_a_client_that_takes_events() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let client = session.client();
    for (what, request, status, code) in [
        ("no events", client.listen().header("accept", "application/json"), 406, -32600),
        ("no session", client.listen().without("mcp-session-id"), 400, -32000),
        ("an unknown session", client.listen().header("mcp-session-id", "nobody"), 404, -32001),
        ("an event id that is none", client.listen().header("last-event-id", "?"), 400, -32600),
    ] {
        let answer = request.send().await?;
        assert_eq!((answer.status, &answer.json()?["error"]["code"]), (status, &json!(code)), "{what}");
    }
    let mut first = session.listen(None).await?;
    assert_eq!(first.status, 200);
    assert_eq!(first.headers["content-type"], "text/event-stream");
    assert_eq!(first.headers["cache-control"], "no-cache");
    assert_eq!(first.headers["x-accel-buffering"], "no");
    let second = session.listen(None).await?;
    assert_eq!(second.status, 200);
    first.rest().await?;
    drop(second);
    Ok(())
}

#[tokio::test]
async fn a_deleted_session_is_gone_for_everything() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.client();
    let session = LegacySession::open(&client, LATEST_LEGACY).await?;
    let missing = client.delete().send().await?;
    assert_eq!((missing.status, &missing.json()?["error"]["code"]), (400, &json!(-32000)));
    let deleted = session.delete().await?;
    assert_eq!((deleted.status, deleted.body.len()), (204, 0));
    let list = session.prepare("tools/list", &json!({})).send().await?;
    let said = list.json()?;
    assert_eq!((list.status, &said["error"]["code"]), (404, &json!(-32001)), "{said}");
    assert_eq!(said["error"]["message"], "session expired");
    assert_eq!(session.delete().await?.status, 404);
    assert_eq!(session.client().listen().send().await?.status, 404);
    Ok(())
}

#[tokio::test]
async fn a_session_belongs_to_its_path() -> Result<()> {
    let yaml = "profiles: {review: {tools: [\"list_*\"]}, other: {tools: [\"list_*\"]}}";
    let gateway = Gateway::start(yaml).await?;
    let review = gateway.client().with_path("/mcp/review");
    let session = LegacySession::open(&review, LATEST_LEGACY).await?;
    assert!(!session.list("tools/list").await?["tools"].as_array().context("tools")?.is_empty());
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for (path, status) in [("/mcp/review", 200), ("/mcp", 404), ("/mcp/other", 404), ("/mcp/absent", 404)] {
        let answer = session.client().clone().with_path(path).post(&ping).send().await?;
        assert_eq!(answer.status, status, "{path}: {:?}", answer.body);
    }
    Ok(())
}

#[tokio::test]
async fn batches_exist_in_one_version_only() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let ping = |id: Value| json!({"jsonrpc": "2.0", "id": id, "method": "ping"});
    let note = json!({"jsonrpc": "2.0", "method": "notifications/initialized"});
    for version in ["2024-11-05", "2025-06-18", "2025-11-25"] {
        let session = LegacySession::open(&gateway.client(), version).await?;
        let answer = session.client().post(&json!([ping(json!(1))])).send().await?;
        assert_eq!((answer.status, &answer.json()?["error"]["code"]), (400, &json!(-32600)), "{version}");
    }
    let session = LegacySession::open(&gateway.client(), "2025-03-26").await?;
    let post = |body: Value| session.client().post(&body).send();
    let quiet = post(json!([note, {"jsonrpc": "2.0", "id": 9, "result": {}}])).await?;
    assert_eq!((quiet.status, quiet.body.len()), (202, 0));
    let empty = post(json!([])).await?;
    assert_eq!((empty.status, &empty.json()?["error"]["code"]), (400, &json!(-32600)));
    let mixed = post(json!([
        ping(json!("a")),
        note,
        {"jsonrpc": "2.0", "id": "b", "method": "tools/destroy"},
        7,
        {"jsonrpc": "2.0", "id": "c", "method": "tools/call", "params": {"name": "list_goals"}},
    ]))
    .await?;
    assert_eq!(mixed.status, 200);
    let said = mixed.json()?;
    let answers = said.as_array().context("an array is answered with an array")?;
    let of =
        |id: Value| answers.iter().find(|answer| answer["id"] == id).with_context(|| format!("{id}: {said}"));
    assert_eq!(answers.len(), 4, "{said}");
    assert_eq!(of(json!("a"))?["result"], json!({}));
    assert_eq!(of(json!("b"))?["error"]["code"], -32601);
    assert_eq!(of(Value::Null)?["error"]["code"], -32600);
    assert!(of(json!("c"))?["result"]["content"].is_array(), "{said}");
    let goal = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                      "params": {"name": "create_goal", "arguments": {"goal": "beside a handshake"}}});
    let handshake = post(json!([goal, hello("2025-03-26")])).await?;
    assert_eq!((handshake.status, &handshake.json()?["error"]["code"]), (400, &json!(-32600)));
    let goals = session.call("list_goals", json!({})).await?;
    assert_eq!(goals["structuredContent"]["goals"], json!([]), "nothing of it was executed");
    Ok(())
}

#[tokio::test]
async fn the_answer_has_the_type_the_client_takes() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let legacy = |accept: &str| session.client().post(&ping).header("accept", accept);
    let modern = |accept: &str| {
        let request = ModernClient::new(&gateway.client()).prepare("tools/list", &json!({}));
        request.over(&gateway.client()).header("accept", accept)
    };
    for (accept, kind) in [
        ("application/json, text/event-stream", Some("application/json")),
        ("*/*", Some("application/json")),
        ("application/json", Some("application/json")),
        ("application/*", Some("application/json")),
        ("text/event-stream", Some("text/event-stream")),
        ("text/*", Some("text/event-stream")),
        ("application/json;q=0, text/event-stream", Some("text/event-stream")),
        ("text/html", None),
        ("application/xml, text/plain", None),
        ("application/json;q=0", None),
    ] {
        for (era, request) in [("legacy", legacy(accept)), ("modern", modern(accept))] {
            let answer = request.send().await?;
            if let Some(kind) = kind {
                assert_eq!((answer.status, answer.header("content-type")), (200, kind), "{era} {accept}");
                assert_eq!(answer.messages()?.len(), 1, "{era} {accept}");
            } else {
                assert_eq!(
                    (answer.status, &answer.json()?["error"]["code"]),
                    (406, &json!(-32600)),
                    "{era} {accept}"
                );
            }
        }
    }
    let without = session.client().post(&ping).without("accept").send().await?;
    assert_eq!((without.status, without.header("content-type")), (200, "application/json"));
    Ok(())
}

#[tokio::test]
async fn other_paths_and_verbs_are_told_so() -> Result<()> {
    let gateway = Gateway::start("profiles: {review: {tools: [list_goals]}}").await?;
    for client in [gateway.client(), gateway.http2_client()] {
        for path in
            ["/", "/mcp/", "/mcpx", "/mcp/absent", "/mcp/review/deeper", "/memory", "/MCP", "/metrics"]
        {
            let answer = client.get(path).send().await?;
            assert_eq!((answer.status, &answer.json()?["error"]["code"]), (404, &json!(-32600)), "{path}");
        }
        for (path, verbs, allow) in [
            ("/mcp", &["PUT", "PATCH", "HEAD", "TRACE", "BREW"][..], "POST, GET, DELETE, OPTIONS"),
            ("/mcp/review", &["PUT"][..], "POST, GET, DELETE, OPTIONS"),
            ("/healthz", &["POST", "DELETE"][..], "GET, HEAD"),
            ("/readyz", &["PUT"][..], "GET, HEAD"),
        ] {
            for verb in verbs {
                let answer = client.request(verb.parse()?, path).send().await?;
                assert_eq!((answer.status, answer.header("allow")), (405, allow), "{verb} {path}");
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn health_needs_no_token_and_says_nothing_more() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for (path, body) in [
        ("/healthz", json!({"status": "ok"})),
        ("/health", json!({"status": "ok"})),
        ("/readyz", json!({"status": "ready"})),
    ] {
        let client = gateway.anonymous_client();
        let answer = client.get(path).send().await?;
        assert_eq!((answer.status, answer.json()?), (200, body), "{path}");
        for client in [client, gateway.http2_client()] {
            let head = client.request(http::Method::HEAD, path).send().await?;
            assert_eq!((head.status, head.body.len()), (200, 0), "{path}");
            // Left out, or that of the same GET.
            let length = head.header("content-length");
            assert!(length.is_empty() || length == answer.header("content-length"), "{path}: {length}");
        }
    }
    Ok(())
}

const LISTED: &str = "https://ide.example.com";

/// The headers of an answer that tell a browser something.
fn cors(answer: &Answer) -> [&str; 2] {
    [answer.header("access-control-allow-origin"), answer.header("access-control-expose-headers")]
}

#[tokio::test]
async fn a_page_that_may_call_can_read_every_answer() -> Result<()> {
    let gateway = Gateway::start(&format!("security: {{origins: [\"{LISTED}\"]}}")).await?;
    let exposed = "Mcp-Session-Id, WWW-Authenticate, Retry-After";
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    for client in [gateway.client(), gateway.http2_client()] {
        let stranger = client.clone().with_token("wrong");
        for origin in [
            LISTED,
            "http://localhost",
            "http://localhost:5173",
            "https://127.0.0.1:8443",
            "http://[::1]:3000",
        ] {
            for (what, request, status) in [
                ("initialize", client.post(&hello(LATEST_LEGACY)), 200),
                ("no session", client.post(&ping), 400),
                ("no token", stranger.post(&ping), 401),
                ("no JSON", client.post_text("{"), 400),
                ("no such path", client.get("/nowhere"), 404),
                ("health", client.get("/healthz"), 200),
                ("no such verb", client.request(http::Method::PUT, "/mcp"), 405),
            ] {
                let answer = request.header("origin", origin).send().await?;
                assert_eq!(answer.status, status, "{what} from {origin}: {:?}", answer.body);
                assert_eq!(cors(&answer), [origin, exposed], "{what} from {origin}");
                assert!(answer.header("vary").contains("Origin"), "{what}: {:?}", answer.headers);
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_preflight_is_answered_without_a_token_and_lists_what_may_be_sent() -> Result<()> {
    let gateway = Gateway::start(&format!("security: {{origins: [\"{LISTED}\"]}}")).await?;
    let client = gateway.anonymous_client();
    for (path, origin) in [("/mcp", LISTED), ("/mcp", "http://localhost:5173")] {
        let answer = client
            .request(http::Method::OPTIONS, path)
            .header("origin", origin)
            .header("access-control-request-method", "POST")
            .header("access-control-request-headers", "authorization, mcp-param-region, x-evil")
            .send()
            .await?;
        assert_eq!((answer.status, answer.body.len()), (204, 0));
        assert_eq!(answer.header("access-control-allow-origin"), origin);
        assert_eq!(answer.header("access-control-max-age"), "86400");
        assert!(answer.header("vary").contains("Origin"), "{:?}", answer.headers);
        let methods = answer.header("access-control-allow-methods");
        for method in ["POST", "GET", "DELETE", "OPTIONS"] {
            assert!(methods.contains(method), "{method}: {methods}");
        }
        let allowed = answer.header("access-control-allow-headers").to_ascii_lowercase();
        let allowed: Vec<_> = allowed.split(',').map(str::trim).collect();
        for name in [
            "authorization",
            "content-type",
            "mcp-session-id",
            "mcp-protocol-version",
            "mcp-method",
            "mcp-name",
            "last-event-id",
            "x-session-id",
            "x-assistant-id",
            "x-thread-id",
            "mcp-param-region",
        ] {
            assert!(allowed.contains(&name), "{name}: {allowed:?}");
        }
        assert!(!allowed.contains(&"x-evil"), "{allowed:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_page_that_may_not_call_is_refused_and_no_answer_is_for_everybody() -> Result<()> {
    let gateway = Gateway::start(&format!("security: {{origins: [\"{LISTED}\"]}}")).await?;
    for client in [gateway.client(), gateway.http2_client()] {
        for origin in [
            "https://evil.example.com",
            "https://ide.example.com.evil.com",
            "https://ide.example.com:444",
            "http://ide.example.com",
            "http://localhost.evil.com",
            "http://127.0.0.1.evil.com",
            "http://127.0.0.2",
            "file://",
            "null",
            "*",
            "",
        ] {
            let options =
                client.request(http::Method::OPTIONS, "/mcp").header("access-control-request-method", "POST");
            for (what, request) in [
                ("preflight", options),
                ("initialize", client.post(&hello(LATEST_LEGACY))),
                ("health", client.get("/healthz")),
            ] {
                let answer = request.header("origin", origin).send().await?;
                assert_eq!(answer.status, 403, "{what} from {origin:?}");
                assert_eq!(answer.json()?["error"]["message"], "origin not allowed");
                assert_eq!(cors(&answer), ["", ""], "{what} from {origin:?}");
            }
        }
        let two = client
            .post(&hello(LATEST_LEGACY))
            .header("origin", LISTED)
            .also("origin", "https://evil.example.com");
        assert_eq!(two.send().await?.status, 403);
    }
    let plain = gateway.client().request(http::Method::OPTIONS, "/mcp").send().await?;
    assert_eq!((plain.status, cors(&plain)), (204, ["", ""]), "without an origin nothing is told");
    Ok(())
}

#[tokio::test]
async fn many_requests_share_one_http2_connection() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.http2_client();
    let mut connection = client.connect().await?;
    let mut sharers = Vec::new();
    for number in 0..50 {
        let mut shared = connection.share().context("HTTP/2 is shared")?;
        let draft = Draft::good(
            "tools/call",
            json!({"name": "add_memo", "arguments": {"memo": format!("note {number}")}}),
        );
        let body = json!({"jsonrpc": "2.0", "id": number, "method": draft.method, "params": draft.params});
        let request = draft
            .headers
            .iter()
            .fold(client.post(&body), |request, (name, value)| request.header(name, value));
        sharers.push(async move {
            let answer = request.send_over(&mut shared).await?;
            let said = answer.json()?;
            ensure!(answer.status == 200 && said["id"] == number, "{said}");
            ensure!(said.to_string().contains(&format!("note {number}")), "{said}");
            Ok(())
        });
    }
    let mut all = tokio::task::JoinSet::new();
    for sharer in sharers {
        all.spawn(sharer);
    }
    for outcome in all.join_all().await {
        outcome?;
    }
    assert!(connection.is_usable().await);
    Ok(())
}
