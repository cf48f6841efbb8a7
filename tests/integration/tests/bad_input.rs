//! Whatever is sent, the answer is clear, nothing is executed, and the connection or the process stays usable.
//!
//! Torn, oversize, deep, ambiguous, forged, slow: one test for each, over HTTP and over a pipe. That nothing was executed
//! is read from the state afterwards: a goal that should not exist would be listed.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use moongate_test_integration::{UNLIMITED, fixture};
use moongate_test_support::{
    Answer, Client, Framing, Gateway, LegacySession, ModernClient, RawTcp, Stdio, patiently,
};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::Instant,
};

const LATEST_LEGACY: &str = "2025-11-25";
const MODERN: &str = "2026-07-28";
const META: &str = r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","io.modelcontextprotocol/clientCapabilities":{}}"#;
/// The default of `server.max_body`.
const MAX_BODY: usize = 4 << 20;

/// The text of a modern call of `create_goal`; `arguments` is text, because JSON values cannot hold what is tested here.
fn create_goal(arguments: &str) -> String {
    format!(
        r#"{{"jsonrpc":"2.0","id":"goal","method":"tools/call","params":{{"name":"create_goal","arguments":{arguments},{META}}}}}"#
    )
}

/// Sends the text of a modern `tools/call` for the named session.
async fn post_call(
    client: &Client,
    session: &str,
    tool: &str,
    body: impl Into<bytes::Bytes>,
) -> Result<Answer> {
    client
        .post_text(body)
        .header("mcp-protocol-version", MODERN)
        .header("mcp-method", "tools/call")
        .header("mcp-name", tool)
        .header("x-session-id", session)
        .send()
        .await
}

/// The names of the goals in a named session of the local user.
async fn goals(client: &Client, session: &str) -> Result<Vec<String>> {
    let named = client.clone().with_header("x-session-id", session);
    names_of(&ModernClient::new(&named).call("list_goals", json!({})).await?)
}

fn names_of(result: &Value) -> Result<Vec<String>> {
    let goals = result["structuredContent"]["goals"].as_array().with_context(|| result.to_string())?;
    goals.iter().map(|goal| Ok(goal["name"].as_str().context("a goal has a name")?.to_owned())).collect()
}

/// The bytes of an HTTP/1.1 request that a raw connection can send.
fn raw_post(token: &str, more: &str, body: &str) -> String {
    format!(
        "POST /mcp HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         accept: application/json\r\n{more}content-length: {}\r\n\r\n{body}",
        body.len()
    )
}

const MODERN_HEADERS: &str = "mcp-protocol-version: 2026-07-28\r\nmcp-method: tools/call\r\nmcp-name: create_goal\r\nx-session-id: raw\r\n";

fn error_code(answer: &Answer) -> Result<i64> {
    let said = answer.json()?;
    ensure!(said["jsonrpc"] == "2.0" && said.get("result").is_none(), "{said}");
    said["error"]["code"].as_i64().with_context(|| format!("no code: {said}"))
}

// Torn frames.

#[tokio::test]
async fn a_request_torn_anywhere_executes_nothing_and_hurts_nobody() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let token = gateway.token()?;
    let whole = raw_post(&token, MODERN_HEADERS, &create_goal(r#"{"goal":"torn"}"#));
    let head = whole.find("\r\n\r\n").context("a head ends")? + 4;
    for cut in [1, 5, 20, head - 3, head, head + 1, head + 40, whole.len() - 1] {
        let mut tcp = gateway.tcp().await?;
        tcp.write(&whole.as_bytes()[..cut]).await?;
        tcp.finish().await?;
        let said = tcp.read_to_end().await?;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "cut at {cut}: {said:?}");
        // Torn without a word: the other direction is gone too.
        let mut tcp = gateway.tcp().await?;
        tcp.write(&whole.as_bytes()[..cut]).await?;
        drop(tcp);
    }
    assert_eq!(goals(&gateway.client(), "raw").await?, [""; 0]);
    let mut tcp = gateway.tcp().await?;
    for byte in whole.as_bytes().chunks(1) {
        tcp.write(byte).await?;
    }
    let (status, _, body) = tcp.read_answer().await?;
    assert_eq!(status, 200, "byte by byte it is the same request: {body}");
    assert_eq!(goals(&gateway.client(), "raw").await?, ["torn"]);
    Ok(())
}

#[tokio::test]
async fn a_body_whose_length_is_unclear_is_refused() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let token = gateway.token()?;
    let body = create_goal(r#"{"goal":"smuggled"}"#);
    let length = body.len();
    let chunk = format!("{length:x}\r\n{body}\r\n0\r\n\r\n");
    for (what, framing, sent) in [
        ("two lengths", format!("content-length: {length}\r\ncontent-length: 3\r\n"), &body),
        ("a length that is no number", "content-length: many\r\n".to_owned(), &body),
        ("a negative length", "content-length: -1\r\n".to_owned(), &body),
        ("an unknown coding", "transfer-encoding: gzip\r\n".to_owned(), &body),
        (
            "a chunk of no size",
            "transfer-encoding: chunked\r\n".to_owned(),
            &format!("zz\r\n{body}\r\n0\r\n\r\n"),
        ),
        (
            "a chunk that is cut off",
            "transfer-encoding: chunked\r\n".to_owned(),
            &chunk[..chunk.len() - 9].to_owned(),
        ),
    ] {
        let mut tcp = gateway.tcp().await?;
        let head = raw_post(&token, MODERN_HEADERS, "").replace("content-length: 0\r\n", &framing);
        tcp.write(head).await?;
        tcp.write(sent).await?;
        tcp.finish().await?;
        let said = tcp.read_to_end().await?;
        assert!(said.is_empty() || said.starts_with("HTTP/1.1 4"), "{what}: {said:?}");
    }
    assert_eq!(goals(&gateway.client(), "raw").await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_torn_line_is_answered_before_the_pipe_ends() -> Result<()> {
    let whole = create_goal(r#"{"goal":"torn"}"#);
    let mut pipe = Stdio::start("")?;
    pipe.send_raw(&whole.as_bytes()[..whole.len() - 2]).await?;
    pipe.close_stdin();
    let said = pipe.receive().await?.context("a torn line is answered")?;
    assert_eq!(said["error"]["code"], -32700, "{said}");
    assert_eq!(pipe.receive().await?, None);
    assert!(pipe.wait(moongate_test_support::PATIENCE).await?.success());

    let mut pipe = Stdio::start("")?.with_framing(Framing::ContentLength);
    pipe.send_raw(format!("Content-Length: {}\r\n\r\n{}", whole.len() + 1, whole)).await?;
    pipe.close_stdin();
    let said = pipe.receive().await?.context("a torn frame is answered")?;
    assert_eq!(said["error"]["code"], -32700, "{said}");
    assert_eq!(pipe.receive().await?, None);
    assert!(pipe.wait(moongate_test_support::PATIENCE).await?.success());
    Ok(())
}

// Oversize bodies.

/// A good `tools/list` that is exactly `size` bytes long.
fn list_of_size(size: usize) -> String {
    let body = format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{META}}}}}"#);
    format!("{body}{}", " ".repeat(size - body.len()))
}

fn post_list(client: &Client, body: String) -> moongate_test_support::Request {
    client.post_text(body).header("mcp-protocol-version", MODERN).header("mcp-method", "tools/list")
}

#[tokio::test]
async fn a_body_may_have_the_whole_limit_and_not_a_byte_more() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for client in [gateway.client(), gateway.http2_client()] {
        assert_eq!(post_list(&client, list_of_size(MAX_BODY)).send().await?.status, 200);
        for size in [MAX_BODY + 1, 2 * MAX_BODY] {
            let answer = post_list(&client, list_of_size(size)).send().await?;
            assert_eq!((answer.status, error_code(&answer)?), (413, -32600), "{size}");
            assert_eq!(post_list(&client, list_of_size(1000)).send().await?.status, 200, "after {size}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn an_http2_connection_outlives_an_oversize_body() -> Result<()> {
    let gateway = Gateway::start("server: {max_body: 64KiB}").await?;
    let client = gateway.http2_client();
    let mut connection = client.connect().await?;
    for (size, status) in [(64 << 10, 200), ((64 << 10) + 1, 413), (1 << 20, 413), (1000, 200)] {
        let request = post_list(&client, list_of_size(size));
        let answer = patiently("an answer", request.send_over(&mut connection)).await??;
        assert_eq!(answer.status, status, "{size}");
    }
    Ok(())
}

/// The announced length alone is enough to refuse, before a byte of the body is sent.
#[tokio::test]
async fn an_announced_oversize_body_is_not_waited_for() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let mut tcp = gateway.tcp().await?;
    let head =
        raw_post(&gateway.token()?, "", "").replace("content-length: 0", "content-length: 10000000000");
    tcp.write(head).await?;
    let (status, _, body) = tcp.read_answer().await?;
    assert_eq!(status, 413, "{body}");
    assert_eq!(serde_json::from_str::<Value>(&body)?["error"]["code"], -32600);
    Ok(())
}

#[tokio::test]
async fn an_oversize_body_without_a_length_is_stopped_at_the_limit() -> Result<()> {
    let gateway = Gateway::start("server: {max_body: 64KiB}").await?;
    let mut tcp = gateway.tcp().await?;
    let head = raw_post(&gateway.token()?, "", "").replace("content-length: 0", "transfer-encoding: chunked");
    tcp.write(head).await?;
    let chunk = format!("4000\r\n{}\r\n", " ".repeat(0x4000));
    for _ in 0..5 {
        tcp.write(&chunk).await?;
    }
    let (status, _, body) = tcp.read_answer().await?;
    assert_eq!(status, 413, "{body}");
    assert_eq!(serde_json::from_str::<Value>(&body)?["error"]["code"], -32600);
    assert_eq!(post_list(&gateway.client(), list_of_size(1000)).send().await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn an_oversize_message_on_a_pipe_is_answered_and_the_next_one_served() -> Result<()> {
    for framing in [Framing::Line, Framing::ContentLength] {
        let mut pipe = Stdio::start("server: {max_body: 64KiB}")?.with_framing(framing);
        pipe.initialize(LATEST_LEGACY, &json!({})).await?;
        for size in [(64 << 10) + 1, 1 << 20] {
            let body = list_of_size(size);
            let frame = match framing {
                Framing::Line => format!("{body}\n"),
                Framing::ContentLength => format!("Content-Length: {size}\r\n\r\n{body}"),
            };
            pipe.send_raw(frame).await?;
            let said = pipe.receive().await?.context("an answer")?;
            assert_eq!(said["error"]["code"], -32600, "{framing:?} {size}: {said}");
            assert!(said.get("id").is_none(), "{said}");
            assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}), "{framing:?} {size}");
        }
    }
    Ok(())
}

// Depth.

/// A `tools/list` that nests exactly `depth` arrays and objects, the message itself included.
fn list_of_depth(depth: usize) -> String {
    let inner = depth - 3;
    let arrays = format!("{}{}", "[".repeat(inner), "]".repeat(inner));
    let meta = META.replacen('{', &format!(r#"{{"deep":{arrays},"#), 1);
    format!(r#"{{"jsonrpc":"2.0","id":1,"method":"tools/list","params":{{{meta}}}}}"#)
}

#[tokio::test]
async fn json_may_nest_128_levels_and_not_one_more() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for client in [gateway.client(), gateway.http2_client()] {
        assert_eq!(post_list(&client, list_of_depth(128)).send().await?.status, 200);
        for depth in [129, 1000, 1_000_000] {
            let answer = post_list(&client, list_of_depth(depth)).send().await?;
            assert_eq!((answer.status, error_code(&answer)?), (400, -32600), "{depth}");
        }
        // Never closed, so that whoever counts on the stack runs out of it before the end.
        let open = post_list(&client, "[".repeat(1_000_000)).send().await?;
        assert_eq!(open.status, 400);
    }
    let deep = format!(r#"{{"goal":"deep","x":{}{}}}"#, "[".repeat(126), "]".repeat(126));
    let answer = post_call(&gateway.client(), "deep", "create_goal", create_goal(&deep)).await?;
    assert_eq!((answer.status, error_code(&answer)?), (400, -32600));
    assert_eq!(goals(&gateway.client(), "deep").await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn a_pipe_survives_deep_json() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    pipe.send_raw(format!("{}\n", list_of_depth(128))).await?;
    assert!(pipe.outcome(&json!(1)).await?.result()?["tools"].is_array());
    for bad in [list_of_depth(129), list_of_depth(1_000_000), "[".repeat(1_000_000)] {
        pipe.send_raw(format!("{bad}\n")).await?;
        let code = pipe.receive().await?.context("an answer")?["error"]["code"].take();
        assert!([-32600, -32700].map(Value::from).contains(&code), "{code}");
    }
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    Ok(())
}

// What is no JSON, and what is no message.

#[tokio::test]
async fn what_is_no_json_is_a_parse_error() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let good = r#"{"jsonrpc":"2.0","id":1,"method":"ping"}"#.as_bytes();
    let texts: [&[u8]; 16] = [
        b"",
        b" ",
        b"{",
        b"hello",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",}",
        b"{'jsonrpc':'2.0','id':1,'method':'ping'}",
        b"{\"jsonrpc\":\"2.0\",\"id\":NaN,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":01,\"method\":\"ping\"}",
        b"\xef\xbb\xbf{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"pi\xffng\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"\xc3\x28\":1}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\xed\xa0\x80\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"\\ud800\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\",\"x\":\"a\tb\"}",
        b"{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"} {\"jsonrpc\":\"2.0\",\"id\":2,\"method\":\"ping\"}",
    ];
    for text in texts {
        let shown = String::from_utf8_lossy(text);
        let answer = session.client().post_text(text.to_vec()).send().await?;
        assert_eq!((answer.status, error_code(&answer)?), (400, -32700), "{shown}");
        assert!(answer.json()?.get("id").is_none(), "{shown}");
    }
    assert_eq!(session.client().post_text(good.to_vec()).send().await?.status, 200);

    let mut pipe = Stdio::start("")?;
    for text in texts.into_iter().filter(|text| !text.trim_ascii().is_empty()) {
        pipe.send_raw([text, b"\n"].concat()).await?;
        let said = pipe.receive().await?.context("an answer")?;
        assert_eq!(said["error"]["code"], -32700, "{:?}: {said}", String::from_utf8_lossy(text));
    }
    pipe.send_raw([good, b"\n"].concat()).await?;
    assert_eq!(pipe.outcome(&json!(1)).await?.result()?, json!({}));
    Ok(())
}

#[tokio::test]
async fn json_that_is_no_message_is_an_invalid_request() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let mut pipe = Stdio::start("")?;
    // text, and the id that can still be read from it
    for (text, id) in [
        ("7", None),
        ("null", None),
        (r#""ping""#, None),
        ("[]", None),
        ("{}", None),
        (r#"{"id":1,"method":"ping"}"#, Some(json!(1))),
        (r#"{"jsonrpc":"1.0","id":1,"method":"ping"}"#, Some(json!(1))),
        (r#"{"jsonrpc":2.0,"id":"a","method":"ping"}"#, Some(json!("a"))),
        (r#"{"jsonrpc":"2.0","id":1}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1,"method":7}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":[]}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","params":"x"}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1,"method":"ping","result":{}}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1.5,"method":"ping"}"#, None),
        (r#"{"jsonrpc":"2.0","id":{},"method":"ping"}"#, None),
        (r#"{"jsonrpc":"2.0","id":null,"method":"ping"}"#, None),
        (r#"{"jsonrpc":"2.0","id":1,"result":{},"error":{"code":1,"message":"x"}}"#, Some(json!(1))),
        (r#"{"jsonrpc":"2.0","id":1,"error":{"code":"one","message":"x"}}"#, Some(json!(1))),
    ] {
        let answer = session.client().post_text(text).send().await?;
        assert_eq!((answer.status, error_code(&answer)?), (400, -32600), "{text}: {:?}", answer.body);
        assert_eq!(answer.json()?.get("id"), id.as_ref(), "{text}");
        pipe.send_raw(format!("{text}\n")).await?;
        let said = pipe.receive().await?.context("an answer")?;
        assert_eq!(
            (said["error"]["code"].as_i64(), said.get("id")),
            (Some(-32600), id.as_ref()),
            "{text}: {said}"
        );
    }
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}));
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    Ok(())
}

// Members that appear twice.

/// Messages with a member twice outside the arguments.
fn duplicates_in_the_envelope() -> Vec<String> {
    let arguments = r#"{"goal":"twice"}"#;
    let good = create_goal(arguments);
    let with = |from: &str, to: &str| {
        let changed = good.replacen(from, to, 1);
        assert_ne!(changed, good, "{from} is there");
        changed
    };
    vec![
        with(r#""jsonrpc":"2.0""#, r#""jsonrpc":"2.0","jsonrpc":"2.0""#),
        with(r#""id":"goal""#, r#""id":"goal","id":"goal""#),
        with(r#""id":"goal""#, r#""id":"goal","\u0069d":"other""#),
        with(r#""method":"tools/call""#, r#""method":"tools/call","method":"tools/list""#),
        with(r#""method":"tools/call""#, r#""method":"tools/list","meth\u006Fd":"tools/call""#),
        with(r#""name":"create_goal""#, r#""name":"list_goals","name":"create_goal""#),
        with(r#""name":"create_goal""#, r#""name":"create_goal","n\u0061me":"list_goals""#),
        with(r#""arguments":"#, r#""arguments":{},"arguments":"#),
        with(r#""arguments":"#, r#""argument\u0073":{},"arguments":"#),
        with(r#""params":"#, r#""params":{},"params":"#),
        with(r#""_meta":{"#, r#""_meta":{"a":{"b":1,"b":2},"#),
        with(r#""_meta":{"#, r#""_meta":{"io.modelcontextprotocol/protocolVersion":"2026-07-28","#),
        with(r#""_meta":{"#, r#""_meta":{"io.modelcontextprotocol\/protocolVersion":"2026-07-28","#),
        with(r#","method""#, r#","unknown":[{"x":1,"x":1}],"method""#),
    ]
}

/// Arguments with a member twice, at every depth and in every spelling.
const DUPLICATES_IN_ARGUMENTS: [&str; 9] = [
    r#"{"goal":"one","goal":"two"}"#,
    r#"{"goal":"one","goal":"one"}"#,
    r#"{"goal":"one","g\u006fal":"two"}"#,
    r#"{"\u0067\u006F\u0061\u006C":"one","goal":"two"}"#,
    r#"{"goal":"one","x":{"y":1,"y":2}}"#,
    r#"{"goal":"one","x":[[{"y":[{"z":null,"\u007a":null}]}]]}"#,
    r#"{"goal":"one","":1,"":2}"#,
    r#"{"goal":"one","\ud83d\ude00":1,"😀":2}"#,
    r#"{"goal":"one","__sessionId":"a","__sessionId":"b"}"#,
];

#[tokio::test]
async fn a_repeated_member_is_refused_and_nothing_executed() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    for client in [gateway.client(), gateway.http2_client()] {
        for body in duplicates_in_the_envelope() {
            let answer = post_call(&client, "twice", "create_goal", body.clone()).await?;
            assert_eq!((answer.status, error_code(&answer)?), (400, -32600), "{body}");
        }
        for arguments in DUPLICATES_IN_ARGUMENTS {
            let answer = post_call(&client, "twice", "create_goal", create_goal(arguments)).await?;
            assert_eq!((answer.status, error_code(&answer)?), (400, -32602), "{arguments}");
            assert_eq!(answer.json()?["id"], "goal", "{arguments}");
        }
        assert_eq!(goals(&client, "twice").await?, [""; 0]);
    }
    // Equal names in different objects are no repetition: the same tests would pass if everything were refused.
    let fine = r#"{"goal":"once"}"#;
    assert_eq!(post_call(&gateway.client(), "twice", "create_goal", create_goal(fine)).await?.status, 200);
    assert_eq!(goals(&gateway.client(), "twice").await?, ["once"]);
    Ok(())
}

/// The same message without the modern envelope.
fn as_legacy(message: &str) -> String {
    message.replace(&format!(",{META}"), "")
}

#[tokio::test]
async fn a_repeated_member_is_refused_in_sessions_batches_and_pipes_too() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let session = LegacySession::open(&gateway.client(), "2025-03-26").await?;
    let mut pipe = Stdio::start(UNLIMITED)?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    for arguments in DUPLICATES_IN_ARGUMENTS {
        let modern = create_goal(arguments);
        let message = as_legacy(&modern);
        assert!(!message.contains("_meta"), "{message}");
        let answer = session.client().post_text(message.clone()).send().await?;
        assert_eq!((answer.status, error_code(&answer)?), (400, -32602), "{message}");
        let good = as_legacy(&create_goal(r#"{"goal":"in the same batch"}"#));
        let answer = session.client().post_text(format!("[{good},{message}]")).send().await?;
        assert_eq!((answer.status, error_code(&answer)?), (400, -32602), "{message}");
        for line in [modern, message] {
            pipe.send_raw(format!("{line}\n")).await?;
            let outcome = pipe.outcome(&json!("goal")).await?;
            assert_eq!(outcome.code()?, -32602, "{line}");
        }
    }
    assert_eq!(names_of(&session.call("list_goals", json!({})).await?)?, [""; 0]);
    assert_eq!(names_of(&pipe.call("list_goals", json!({})).await?)?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn objects_with_100_000_members_are_looked_through_in_time() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let members = |last: &str| {
        let many: Vec<_> = (0..100_000).map(|number| format!(r#""member {number}":{number}"#)).collect();
        format!(r#"{{"goal":"many",{},"{last}":0}}"#, many.join(","))
    };
    let started = Instant::now();
    let answer =
        post_call(&gateway.client(), "many", "create_goal", create_goal(&members("member 77777"))).await?;
    assert_eq!((answer.status, error_code(&answer)?), (400, -32602));
    assert_eq!(goals(&gateway.client(), "many").await?, [""; 0]);
    let answer = post_call(&gateway.client(), "many", "create_goal", create_goal(&members("last"))).await?;
    assert_eq!(answer.status, 200, "{:?}", answer.body);
    // Two such bodies compared name by name would be ten thousand million comparisons.
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(10), "{elapsed:?}");
    Ok(())
}

// Ids and sessions.

#[tokio::test]
async fn an_id_that_is_still_running_is_refused_and_the_first_call_goes_on() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let (capabilities, answers) = (fixture::talkative(), fixture::person("Ada"));
    let session =
        LegacySession::open_with(&gateway.client(), LATEST_LEGACY, &capabilities, answers.clone()).await?;
    let call = |tool: &str| {
        let params = json!({"name": tool, "arguments": {}});
        session
            .client()
            .post(&json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call", "params": params}))
    };
    // A call that has asked its client runs for as long as the client takes.
    let mut first = call("test_ask_twice").open().await?;
    let question = first.message_where(|message| message["method"] == "elicitation/create").await?;
    let second = call("test_simple_text").send().await?;
    assert_eq!((second.status, error_code(&second)?), (200, -32602), "{:?}", second.body);
    assert_eq!(second.json()?["id"], "same");
    assert_eq!(session.respond(&answers.respond(&question)).await?.status, 202);
    let done = session.outcome(first).await?;
    assert!(done.result()?.to_string().contains("Hello, Ada!"), "{}", done.response);
    let again = call("test_simple_text").send().await?;
    assert!(again.json()?["result"].is_object(), "once it has ended, an id may come again: {:?}", again.body);
    Ok(())
}

#[tokio::test]
async fn modern_requests_stand_alone_whatever_their_id() -> Result<()> {
    let gateway = fixture::gateway("").await?;
    let client = ModernClient::new(&gateway.client());
    let mut request =
        client.prepare("tools/call", &json!({"name": "test_slow", "arguments": {"milliseconds": 300}}));
    request.id = json!(1);
    let (first, second) = tokio::join!(client.once(&request), client.once(&request));
    assert_eq!((first?.result()?["isError"].as_bool(), second?.result()?["isError"].as_bool()), (None, None));
    Ok(())
}

#[tokio::test]
async fn a_session_nobody_gave_out_is_unknown_whatever_it_looks_like() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let session = LegacySession::open(&gateway.client(), LATEST_LEGACY).await?;
    let ping = json!({"jsonrpc": "2.0", "id": 1, "method": "ping"});
    let own = session.id();
    let shortened = &own[..own.len() - 1];
    let longer = format!("{own}0");
    let capitals = own.to_uppercase();
    let long = "x".repeat(8000);
    let mut ids = vec!["x", "' OR 1=1 --", "../../etc/passwd", "default", "local", shortened, &longer, &long];
    if capitals != own {
        ids.push(&capitals);
    }
    for id in ids {
        let answer = session.client().post(&ping).header("mcp-session-id", id).send().await?;
        assert_eq!((answer.status, error_code(&answer)?), (404, -32001), "{id}");
        assert!(!answer.text()?.contains(own), "nothing is told about other sessions");
    }
    let empty = session.client().post(&ping).header("mcp-session-id", "").send().await?;
    assert!([400, 404].contains(&empty.status), "{:?}", empty.body);
    assert_eq!(session.client().post(&ping).send().await?.status, 200);
    Ok(())
}

// Forged context.

const FORGED: [&str; 8] = [
    "__sessionId",
    "__session_id",
    "__assistantId",
    "__assistant_id",
    "__threadId",
    "__thread_id",
    "__proto__",
    "__anything",
];

/// `arguments` with every reserved field naming a victim.
fn forged(mut arguments: Value, victim: &str) -> Value {
    for name in FORGED {
        arguments[name] = json!(victim);
    }
    arguments
}

#[tokio::test]
async fn forged_fields_move_nothing_over_http() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let client = gateway.client();
    let victim = LegacySession::open(&client, LATEST_LEGACY).await?;
    let caller = LegacySession::open(&client, LATEST_LEGACY).await?;
    victim.call("create_goal", json!({"goal": "the victim's"})).await?;
    let result = caller.call("create_goal", forged(json!({"goal": "the caller's"}), victim.id())).await?;
    assert_ne!(result["isError"], true, "forged fields are removed, not refused: {result}");
    let listed = caller.call("list_goals", forged(json!({}), victim.id())).await?;
    assert_eq!(names_of(&listed)?, ["the caller's"]);
    assert_eq!(names_of(&victim.call("list_goals", json!({})).await?)?, ["the victim's"]);
    // Written with escapes, which a check of the plain bytes would miss.
    let body = create_goal(r#"{"goal":"escaped","\u005f_sessionId":"victim","_\u005fsession_id":"victim"}"#);
    assert_eq!(post_call(&client, "caller", "create_goal", body).await?.status, 200);
    assert_eq!(goals(&client, "caller").await?, ["escaped"]);
    assert_eq!(goals(&client, "victim").await?, [""; 0]);
    Ok(())
}

#[tokio::test]
async fn forged_fields_move_nothing_on_a_pipe() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    pipe.call("create_goal", forged(json!({"goal": "mine"}), "victim")).await?;
    assert_eq!(names_of(&pipe.call("list_goals", json!({})).await?)?, ["mine"]);
    assert_eq!(names_of(&pipe.call("list_goals", forged(json!({}), "victim")).await?)?, ["mine"]);
    Ok(())
}

#[tokio::test]
async fn schemas_never_show_the_fields() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let listed = ModernClient::new(&gateway.client()).list("tools/list").await?.to_string();
    assert!(listed.contains("create_goal") && !listed.contains("\"__"), "{listed}");
    Ok(())
}

// Host and Origin.

/// Sends a head as it is and reads the status; the body is a call that would make a goal.
async fn knock(gateway: &Gateway, line: &str, hosts: &[&str]) -> Result<(u16, String)> {
    let body = create_goal(r#"{"goal":"rebound"}"#);
    let hosts = hosts.iter().map(|host| format!("host: {host}\r\n")).collect::<Vec<_>>().concat();
    let mut tcp = gateway.tcp().await?;
    let token = gateway.token()?;
    tcp.write(format!(
        "POST {line}\r\n{hosts}authorization: Bearer {token}\r\ncontent-type: application/json\r\n\
         {MODERN_HEADERS}content-length: {}\r\n\r\n{body}",
        body.len()
    ))
    .await?;
    let (status, _, body) = tcp.read_answer().await?;
    Ok((status, body))
}

#[tokio::test]
async fn only_one_host_and_only_ours_is_answered() -> Result<()> {
    let gateway = Gateway::start(
        &format!("{UNLIMITED}\n")
            .replace("security: {", "security: {hosts: [gate.example.com, \"port.example.com:8443\"], "),
    )
    .await?;
    let good = "/mcp HTTP/1.1";
    for (line, hosts, status) in [
        (good, &["evil.example.com"][..], 403),
        (good, &["localhost.evil.com"], 403),
        (good, &["127.0.0.1.evil.com"], 403),
        (good, &["127.0.0.2"], 403),
        (good, &["[::2]"], 403),
        (good, &["0.0.0.0"], 403),
        (good, &["2130706433"], 403),
        (good, &["0x7f.1"], 403),
        (good, &["localhost:port"], 403),
        (good, &["localhost:"], 403),
        (good, &["localhost:99999"], 403),
        (good, &["user@localhost"], 403),
        (good, &["localhost/x"], 403),
        (good, &["gate.example.com.evil.com"], 403),
        (good, &["port.example.com"], 403),
        (good, &["port.example.com:8444"], 403),
        (good, &[""], 403),
        (good, &[], 400),
        ("/mcp HTTP/1.0", &[], 400),
        (good, &["localhost", "localhost"], 400),
        (good, &["localhost", "evil.example.com"], 400),
        (good, &["evil.example.com", "localhost"], 400),
        ("http://evil.example.com/mcp HTTP/1.1", &["localhost"], 400),
        ("http://localhost/mcp HTTP/1.1", &["evil.example.com"], 400),
        ("http://localhost/mcp HTTP/1.1", &[], 400),
    ] {
        let (got, body) = knock(&gateway, line, hosts).await?;
        assert_eq!(got, status, "{line} {hosts:?}: {body}");
        let said: Value = serde_json::from_str(&body)?;
        assert_eq!(said["error"]["code"], -32600, "{line} {hosts:?}: {said}");
    }
    assert_eq!(goals(&gateway.client(), "raw").await?, [""; 0]);
    for (line, host) in [
        (good, "localhost"),
        (good, "LOCALHOST:3847"),
        (good, "127.0.0.1:1"),
        (good, "[::1]:3847"),
        (good, "gate.example.com"),
        (good, "Gate.Example.com:9"),
        (good, "port.example.com:8443"),
        ("/mcp HTTP/1.0", "localhost"),
        ("http://localhost/mcp HTTP/1.1", "localhost"),
    ] {
        let (got, body) = knock(&gateway, line, &[host]).await?;
        assert_eq!(got, 200, "{line} {host}: {body}");
    }
    Ok(())
}

#[tokio::test]
async fn the_authority_of_http2_is_checked_like_a_host() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let client = gateway.http2_client();
    for (authority, status) in [
        ("evil.example.com", 403),
        ("localhost.evil.com", 403),
        ("127.0.0.1.evil.com:3847", 403),
        ("localhost", 200),
        ("127.0.0.1:3847", 200),
        ("[::1]", 200),
    ] {
        for request in [post_list(&client, list_of_size(300)), client.get("/healthz")] {
            let answer = request.header("host", authority).send().await?;
            assert_eq!(answer.status, status, "{authority}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_foreign_origin_executes_nothing() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for client in [gateway.client(), gateway.http2_client()] {
        let foreign = client.clone().with_header("origin", "https://evil.example.com");
        let body = create_goal(r#"{"goal":"from a page"}"#);
        let answer = post_call(&foreign, "page", "create_goal", body.clone()).await?;
        assert_eq!((answer.status, error_code(&answer)?), (403, -32600));
        assert_eq!(goals(&client, "page").await?, [""; 0]);
    }
    Ok(())
}

// Heads.

#[tokio::test]
async fn a_head_that_is_too_large_is_refused() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for more in [
        format!("x-large: {}\r\n", "x".repeat(17 << 10)),
        (0..300).map(|number| format!("x-{number}: {}\r\n", "x".repeat(60))).collect::<Vec<_>>().concat(),
        format!("authorization: {}\r\n", "x".repeat(100_000)),
    ] {
        let mut tcp = gateway.tcp().await?;
        // The answer may come before all of it is sent.
        tcp.write(raw_post("none", &more, "{}")).await.ok();
        let (status, _) = tcp.read_head().await?;
        assert_eq!(status, 431);
    }
    // A path counts too; which of the two codes names it is a matter of taste.
    let mut tcp = gateway.tcp().await?;
    tcp.write(format!("GET /{} HTTP/1.1\r\nhost: localhost\r\n\r\n", "x".repeat(100_000))).await.ok();
    assert!([414, 431].contains(&tcp.read_head().await?.0));
    let list = ModernClient::new(&gateway.client()).list("tools/list").await?;
    assert!(list["tools"].is_array());
    Ok(())
}

#[tokio::test]
async fn an_http2_head_that_is_too_large_is_refused_and_the_connection_goes_on() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = gateway.http2_client();
    let mut connection = client.connect().await?;
    let large = client.get("/healthz").header("x-large", &"x".repeat(20 << 10));
    match patiently("an answer", large.send_over(&mut connection)).await? {
        Ok(answer) => assert_eq!(answer.status, 431),
        // The client may keep to the limit the server announced, and not send it at all.
        Err(error) => assert!(format!("{error:#}").contains("header"), "{error:#}"),
    }
    let mut fresh = if connection.is_usable().await { connection } else { client.connect().await? };
    assert_eq!(client.get("/healthz").send_over(&mut fresh).await?.status, 200);
    Ok(())
}

#[tokio::test]
async fn bytes_that_are_no_http_are_refused() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let garbage: [&[u8]; 6] = [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x7f\x00\x00\x01\x1f\x90\x00\x50GET / HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\nnot a frame at all, but long enough to be taken for one",
        b"GET /mcp HTTP/3.0\r\nhost: localhost\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nbad header\r\n\r\n",
        b"GET /mcp HTTP/1.1\r\nhost: localhost\r\nx: a\0b\r\n\r\n",
    ];
    for bytes in garbage {
        let mut tcp = gateway.tcp().await?;
        tcp.write(bytes).await?;
        tcp.finish().await?;
        let said = tcp.read_to_end().await?;
        assert!(!said.contains("HTTP/1.1 2"), "{:?}: {said:?}", String::from_utf8_lossy(bytes));
    }
    assert_eq!(gateway.client().get("/healthz").send().await?.status, 200);
    Ok(())
}

// One connection, many requests.

#[tokio::test]
async fn pipelined_requests_are_answered_in_order_and_bad_ones_spoil_none() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let token = gateway.token()?;
    let call = |number: u32| {
        let body = create_goal(&format!(r#"{{"goal":"goal {number}"}}"#))
            .replace(r#""goal","method""#, &format!(r#"{number},"method""#));
        raw_post(&token, MODERN_HEADERS, &body)
    };
    let mut tcp = gateway.tcp().await?;
    let requests = [
        call(1),
        raw_post(&token, MODERN_HEADERS, "{"),
        call(2),
        raw_post(&token, "", "{}").replace("application/json", "text/plain"),
        raw_post("wrong", MODERN_HEADERS, "{}"),
        call(3),
    ];
    tcp.write(requests.concat()).await?;
    let mut answers = Vec::new();
    for _ in &requests {
        let (status, _, body) = tcp.read_answer().await?;
        answers.push((status, serde_json::from_str::<Value>(&body)?["id"].clone()));
    }
    let none = Value::Null;
    let expected = [
        (200, json!(1)),
        (400, none.clone()),
        (200, json!(2)),
        (415, none.clone()),
        (401, none),
        (200, json!(3)),
    ];
    assert_eq!(answers, expected);
    assert_eq!(goals(&gateway.client(), "raw").await?, ["goal 1", "goal 2", "goal 3"]);
    Ok(())
}

#[tokio::test]
async fn a_refused_request_leaves_its_connection_open() -> Result<()> {
    let gateway = Gateway::start("").await?;
    for client in [gateway.client(), gateway.http2_client()] {
        let mut connection = client.connect().await?;
        let good = || post_list(&client, list_of_size(300));
        let plain = |kind: &str| good().header("content-type", kind);
        for (what, request, status) in [
            ("good", good(), 200),
            ("text", plain("text/plain"), 415),
            ("a form", plain("application/x-www-form-urlencoded"), 415),
            ("JSON lines", plain("application/jsonl"), 415),
            ("no type", good().without("content-type"), 415),
            ("JSON with a character set", plain("application/json; charset=utf-8"), 200),
            ("nothing acceptable", good().header("accept", "text/html"), 406),
            ("no JSON", post_list(&client, "{".to_owned()), 400),
            ("no such path", client.get("/nowhere"), 404),
            ("no such verb", client.request(http::Method::PUT, "/mcp"), 405),
            ("no token", good().without("authorization"), 401),
            ("a foreign origin", good().header("origin", "https://evil.example.com"), 403),
            ("good again", good(), 200),
        ] {
            let answer = patiently(what, request.send_over(&mut connection)).await??;
            assert_eq!(answer.status, status, "{what}: {:?}", answer.body);
            if status >= 400 {
                assert!(error_code(&answer)? < 0, "{what}");
                assert_eq!(answer.header("content-type"), "application/json", "{what}");
            }
            assert!(connection.is_usable().await, "after {what}");
        }
    }
    Ok(())
}

// Slow clients.

/// How long a head may take, from its first byte.
const HEAD_TIME: Duration = Duration::from_secs(15);
/// How long a body may take, and how long a client may leave its answer unread.
const BODY_TIME: Duration = Duration::from_secs(30);
/// A timer that runs late on a busy machine is no failure.
const LATE: Duration = Duration::from_secs(8);

/// Reads to the end, and says what came and how long it took.
async fn until_closed(mut tcp: TcpStream, started: Instant) -> Result<(Duration, String)> {
    let mut said = Vec::new();
    let limit = BODY_TIME + LATE + LATE;
    match tokio::time::timeout(limit, tcp.read_to_end(&mut said)).await.context("never closed")? {
        Err(error) if error.kind() != std::io::ErrorKind::ConnectionReset => Err(error.into()),
        _ => Ok((started.elapsed(), String::from_utf8_lossy(&said).into_owned())),
    }
}

fn within(what: &str, elapsed: Duration, limit: Duration) -> Result<()> {
    let early = limit.saturating_sub(Duration::from_secs(1));
    ensure!((early..limit + LATE).contains(&elapsed), "{what}: {elapsed:?}, documented is {limit:?}");
    Ok(())
}

/// A head that comes a byte a second is never complete.
async fn a_head_in_drops(gateway: &Gateway) -> Result<()> {
    let mut tcp = TcpStream::connect(gateway.address()?).await?;
    let started = Instant::now();
    let mut beat = tokio::time::interval(Duration::from_secs(1));
    let (mut reader, mut writer) = tcp.split();
    let mut said = Vec::new();
    let drops = async {
        for byte in b"POST /mcp HTTP/1.1\r\nhost: localhost\r\nx-long: xxxxxxxxxxxxxxxxxxxxxxxxxxxx".chunks(1)
        {
            beat.tick().await;
            if writer.write_all(byte).await.is_err() {
                break;
            }
        }
        std::future::pending::<()>().await;
    };
    tokio::select! {
        () = drops => {}
        read = tokio::time::timeout(HEAD_TIME + LATE + LATE, reader.read_to_end(&mut said)) => {
            drop(read.context("a head in drops was waited for")?);
        }
    }
    within("a head in drops", started.elapsed(), HEAD_TIME)
}

/// A head that stops.
async fn half_a_head(gateway: &Gateway) -> Result<()> {
    let mut tcp = TcpStream::connect(gateway.address()?).await?;
    let started = Instant::now();
    tcp.write_all(b"POST /mcp HTTP/1.1\r\nhost: localhost\r\n").await?;
    let (elapsed, _) = until_closed(tcp, started).await?;
    within("half a head", elapsed, HEAD_TIME)
}

/// A second head that stops, on a connection that has been good once.
async fn half_a_second_head(gateway: &Gateway) -> Result<()> {
    let mut tcp = TcpStream::connect(gateway.address()?).await?;
    tcp.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n").await?;
    let mut answer = [0; 12];
    tcp.read_exact(&mut answer).await?;
    assert_eq!(&answer, b"HTTP/1.1 200");
    let started = Instant::now();
    tcp.write_all(b"GET /health").await?;
    let (elapsed, _) = until_closed(tcp, started).await?;
    within("half a second head", elapsed, HEAD_TIME)
}

/// The beginning of an HTTP/2 preface, and no more.
async fn half_a_preface(gateway: &Gateway) -> Result<()> {
    let mut tcp = TcpStream::connect(gateway.address()?).await?;
    let started = Instant::now();
    tcp.write_all(b"PRI * HTTP/2.0\r\n").await?;
    let (elapsed, _) = until_closed(tcp, started).await?;
    within("half a preface", elapsed, HEAD_TIME)
}

/// A body that was announced and never comes.
async fn a_body_that_never_comes(gateway: &Gateway) -> Result<()> {
    let mut tcp = TcpStream::connect(gateway.address()?).await?;
    let started = Instant::now();
    let head =
        raw_post(&gateway.token()?, MODERN_HEADERS, "").replace("content-length: 0", "content-length: 1000");
    tcp.write_all(head.as_bytes()).await?;
    tcp.write_all(b"{").await?;
    let (elapsed, said) = until_closed(tcp, started).await?;
    ensure!(said.starts_with("HTTP/1.1 408"), "{said:?}");
    within("a body that never comes", elapsed, BODY_TIME)
}

/// A client that asks for much and reads none of it.
async fn an_answer_that_is_not_read(gateway: &Gateway) -> Result<()> {
    let text = "x".repeat(3 << 20);
    let body = format!(
        r#"{{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{{"name":"test_echo","arguments":{{"text":"{text}"}},{META}}}}}"#
    );
    let headers = MODERN_HEADERS.replace("create_goal", "test_echo");
    let request = raw_post(&gateway.token()?, &headers, &body);
    let mut tcp = RawTcp::connect_with_buffer(gateway.address()?, 4096).await?;
    let before = gateway.metric("moongate_connections").await?;
    tcp.write(request).await?;
    let started = Instant::now();
    // Nothing is read here, so only the gateway's own count tells when it has let the client go.
    let mut beat = tokio::time::interval(Duration::from_millis(500));
    while gateway.metric("moongate_connections").await? >= before {
        beat.tick().await;
        ensure!(started.elapsed() < BODY_TIME + LATE, "a client that does not read is kept");
    }
    ensure!(started.elapsed() > BODY_TIME / 2, "let go after {:?}", started.elapsed());
    drop(tcp);
    Ok(())
}

/// The slowest test of this file, about 35 s of waiting: the times are not configurable, so they are waited for, all at
/// the same time.
#[tokio::test]
async fn slow_clients_are_let_go_and_nobody_waits_for_them() -> Result<()> {
    let gateway = fixture::gateway(UNLIMITED).await?;
    let others = async {
        let client = ModernClient::new(&gateway.client());
        let mut beat = tokio::time::interval(Duration::from_millis(250));
        for _ in 0..120 {
            beat.tick().await;
            let asked = Instant::now();
            client.call("test_echo", json!({"text": "still here"})).await?;
            ensure!(asked.elapsed() < Duration::from_secs(5), "others wait {:?}", asked.elapsed());
        }
        Ok(())
    };
    tokio::try_join!(
        a_head_in_drops(&gateway),
        half_a_head(&gateway),
        half_a_second_head(&gateway),
        half_a_preface(&gateway),
        a_body_that_never_comes(&gateway),
        others,
    )?;
    Ok(())
}

/// Apart from the other slow clients, because it counts connections.
#[tokio::test]
async fn slow_readers_are_let_go() -> Result<()> {
    let gateway = fixture::gateway(UNLIMITED).await?;
    an_answer_that_is_not_read(&gateway).await
}
