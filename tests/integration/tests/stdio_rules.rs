//! The rules of a pipe: two framings, two eras, nothing but protocol on standard output, and an end that is an end.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{process::Stdio as Pipe, sync::Arc, time::Duration};

use anyhow::{Context as _, Result};
use moongate_test_integration::{caller, fixture, pipe::ModernPipe};
use moongate_test_support::{
    Client, Framing, Gateway, Home, LegacySession, ModernClient, PATIENCE, Process, Protocol, Stdio,
    patiently,
};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, ChildStdout},
    time::Instant,
};

const LATEST_LEGACY: &str = "2025-11-25";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
/// A signal ends the process by then.
const END: Duration = Duration::from_secs(5);

fn ping(id: impl Into<Value>) -> Value {
    json!({"jsonrpc": "2.0", "id": id.into(), "method": "ping"})
}

/// The names of the goals of whoever calls.
fn names_of(result: &Value) -> Vec<&str> {
    let goals = result["structuredContent"]["goals"].as_array().into_iter().flatten();
    goals.filter_map(|goal| goal["name"].as_str()).collect()
}

// Framing.

#[tokio::test]
async fn each_framing_is_answered_in_kind() -> Result<()> {
    for framing in [Framing::Line, Framing::ContentLength] {
        let mut pipe = Stdio::start("")?.with_framing(framing);
        pipe.initialize(LATEST_LEGACY, &json!({})).await?;
        let goal = "line one\nline two \u{e9} \u{1f331}";
        pipe.call("create_goal", json!({"goal": goal})).await?;
        let listed = pipe.call("list_goals", json!({})).await?;
        assert_eq!(names_of(&listed), [goal], "{framing:?}");
    }
    Ok(())
}

#[tokio::test]
async fn a_client_may_change_its_framing_between_messages() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    for (number, framing) in
        [Framing::Line, Framing::ContentLength, Framing::Line, Framing::ContentLength].into_iter().enumerate()
    {
        pipe = pipe.with_framing(framing);
        pipe.send(&ping(number)).await?;
        assert_eq!(pipe.outcome(&json!(number)).await?.result()?, json!({}), "{number} {framing:?}");
    }
    Ok(())
}

#[tokio::test]
async fn every_spelling_of_a_frame_is_understood() -> Result<()> {
    let body = ping("x").to_string();
    let length = body.len();
    let framed = [
        format!("Content-Length: {length}\r\n\r\n{body}"),
        format!("content-length:{length}\r\n\r\n{body}"),
        format!("CONTENT-LENGTH: {length}\n\n{body}"),
        format!(
            "Content-Type: application/vscode-jsonrpc; charset=utf-8\r\nContent-Length: {length}\r\n\r\n{body}"
        ),
        format!("Content-Length: {length}\r\nX-Other: 1\r\n\r\n{body}"),
        format!("\r\n\r\nContent-Length: {length}\r\n\r\n{body}"),
    ];
    let mut pipe = Stdio::start("")?.with_framing(Framing::ContentLength);
    for frame in framed {
        pipe.send_raw(&frame).await?;
        assert_eq!(pipe.outcome(&json!("x")).await?.result()?, json!({}), "{frame:?}");
    }
    let mut pipe = Stdio::start("")?;
    for line in [format!("{body}\n"), format!("{body}\r\n"), format!("\n\r\n  \t{body}  \n")] {
        pipe.send_raw(&line).await?;
        assert_eq!(pipe.outcome(&json!("x")).await?.result()?, json!({}), "{line:?}");
    }
    Ok(())
}

#[tokio::test]
async fn frames_may_come_in_pieces_and_many_at_once() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    for byte in format!("{}\n", ping("slow")).as_bytes().chunks(1) {
        pipe.send_raw(byte).await?;
    }
    assert_eq!(pipe.outcome(&json!("slow")).await?.result()?, json!({}));
    let many: Vec<_> = (0..100).map(|number| format!("{}\n", ping(number))).collect();
    pipe.send_raw(many.concat()).await?;
    let mut answered = std::collections::BTreeSet::new();
    for _ in 0..100 {
        let said = pipe.receive().await?.context("an answer")?;
        assert_eq!(said["result"], json!({}), "{said}");
        answered.insert(said["id"].as_u64().context("a number")?);
    }
    assert_eq!(answered.len(), 100, "each was answered once");
    Ok(())
}

#[tokio::test]
async fn a_bad_line_is_answered_and_the_pipe_goes_on() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    for (line, code) in [
        ("hello", -32700),
        ("{\"jsonrpc\":", -32700),
        ("{\"jsonrpc\":\"2.0\",\"id\":1,\"method\":\"ping\"}}", -32700),
        ("7", -32600),
        ("{}", -32600),
        ("Content-Lenght: 5", -32700),
        ("GET / HTTP/1.1", -32700),
    ] {
        pipe.send_raw(format!("{line}\n")).await?;
        let said = pipe.receive().await?.context("an answer")?;
        assert_eq!((said["error"]["code"].as_i64(), said.get("id")), (Some(code), None), "{line}: {said}");
        assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}), "after {line}");
    }
    // A frame whose body is bad has a good length: the next one is found.
    let mut pipe = pipe.with_framing(Framing::ContentLength);
    pipe.send_raw("Content-Length: 5\r\n\r\nhello").await?;
    assert_eq!(pipe.receive().await?.context("an answer")?["error"]["code"], -32700);
    assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}));
    Ok(())
}

#[tokio::test]
async fn a_broken_length_ends_the_pipe_after_saying_so() -> Result<()> {
    for head in [
        "Content-Length: many",
        "Content-Length: -5",
        "Content-Length:",
        "Content-Type: text/plain",
        "Content-Length: 99999999999999999999999",
    ] {
        let mut pipe = Stdio::start("")?.with_framing(Framing::ContentLength);
        pipe.initialize(LATEST_LEGACY, &json!({})).await?;
        pipe.send_raw(format!("{head}\r\n\r\n{}", ping(1))).await?;
        let said = pipe.receive().await?.context("an answer")?;
        assert_eq!(said["error"]["code"], -32700, "{head}: {said}");
        // Standard input is still open: it is the gateway that ends.
        assert_eq!(pipe.receive().await?, None, "{head}");
        assert!(pipe.wait(PATIENCE).await?.success(), "{head}");
    }
    Ok(())
}

// Eras.

#[tokio::test]
async fn both_eras_share_one_pipe() -> Result<()> {
    let mut pipe = ModernPipe::new(Stdio::start("")?);
    let discovered = pipe.once("server/discover", &json!({})).await?.result()?;
    assert_eq!(discovered["supportedVersions"], json!(["2026-07-28"]));
    pipe.call("create_goal", json!({"goal": "modern"})).await?;
    // A probe pins no era: the handshake still works, and neither era shuts the other out.
    let welcome = pipe.stdio.initialize("2025-06-18", &json!({})).await?;
    assert_eq!(welcome["protocolVersion"], "2025-06-18");
    pipe.stdio.call("create_goal", json!({"goal": "legacy"})).await?;
    let modern = pipe.call("list_goals", json!({})).await?;
    assert_eq!(modern["resultType"], "complete");
    let legacy = pipe.stdio.call("list_goals", json!({})).await?;
    assert!(legacy.get("resultType").is_none(), "{legacy}");
    assert_eq!(names_of(&modern), ["modern", "legacy"], "one pipe is one caller");
    assert_eq!(names_of(&legacy), ["modern", "legacy"]);
    Ok(())
}

#[tokio::test]
async fn the_ladder_without_headers_holds_on_a_pipe() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    let good = || json!({VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}});
    let rows = [
        ("no claim and no handshake", "tools/list", json!({}), -32602),
        ("no capabilities", "tools/list", json!({"_meta": {VERSION_KEY: "2026-07-28"}}), -32602),
        (
            "a version that is no text",
            "tools/list",
            json!({"_meta": {VERSION_KEY: 7, CAPABILITIES_KEY: {}}}),
            -32602,
        ),
        (
            "a version of the future",
            "tools/list",
            json!({"_meta": {VERSION_KEY: "2031-01-01", CAPABILITIES_KEY: {}}}),
            -32022,
        ),
        (
            "a legacy version",
            "tools/list",
            json!({"_meta": {VERSION_KEY: "2025-11-25", CAPABILITIES_KEY: {}}}),
            -32022,
        ),
        ("a method of the other era", "ping", json!({"_meta": good()}), -32601),
        ("a claimed handshake", "initialize", json!({"_meta": good()}), -32601),
        ("an unknown method", "tools/destroy", json!({"_meta": good()}), -32601),
        ("an unknown tool", "tools/call", json!({"name": "no_such_tool", "_meta": good()}), -32602),
        ("an unknown resource", "resources/read", json!({"uri": "x://y", "_meta": good()}), -32602),
    ];
    for (what, method, params, code) in &rows {
        let outcome = pipe.request(method, params).await?;
        assert_eq!(outcome.code()?, *code, "{what}: {}", outcome.response);
    }
    let unsupported = pipe.request("tools/list", &rows[3].2).await?.response;
    assert_eq!(unsupported["error"]["data"], json!({"supported": ["2026-07-28"], "requested": "2031-01-01"}));
    assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}), "ping needs no handshake");
    Ok(())
}

#[tokio::test]
async fn the_handshake_is_made_once_and_negotiates() -> Result<()> {
    for (asked, given) in [
        ("2024-11-05", "2024-11-05"),
        ("2025-03-26", "2025-03-26"),
        ("2026-07-28", LATEST_LEGACY),
        ("later", LATEST_LEGACY),
    ] {
        let mut pipe = Stdio::start("")?;
        let welcome = pipe.initialize(asked, &json!({})).await?;
        assert_eq!(welcome["protocolVersion"], given);
        let again = json!({"protocolVersion": asked, "capabilities": {}, "clientInfo": {"name": "t", "version": "1"}});
        assert_eq!(pipe.request("initialize", &again).await?.code()?, -32600, "{asked}");
        assert_eq!(pipe.request("tools/destroy", &json!({})).await?.code()?, -32601);
        assert!(pipe.request("tools/list", &json!({})).await?.result()?["tools"].is_array());
    }
    Ok(())
}

#[tokio::test]
async fn a_batch_is_answered_where_the_version_has_batches() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    pipe.initialize("2025-03-26", &json!({})).await?;
    let note = json!({"jsonrpc": "2.0", "method": "notifications/x"});
    pipe.send(&json!([ping("a"), note, {"jsonrpc": "2.0", "id": "b", "method": "tools/destroy"}])).await?;
    let said = pipe.receive().await?.context("an answer")?;
    let answers = said.as_array().context("an array")?;
    assert_eq!(answers.len(), 2, "{said}");
    let of = |id: &str| answers.iter().find(|answer| answer["id"] == id).with_context(|| said.to_string());
    assert_eq!(of("a")?["result"], json!({}));
    assert_eq!(of("b")?["error"]["code"], -32601);
    pipe.send(&json!([note])).await?;
    assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}), "notifications get no answer");
    let mut other = Stdio::start("")?;
    other.initialize("2025-06-18", &json!({})).await?;
    other.send(&json!([ping("a")])).await?;
    assert_eq!(other.receive().await?.context("an answer")?["error"]["code"], -32600);
    Ok(())
}

#[tokio::test]
async fn an_id_that_is_still_running_is_refused_on_a_pipe_too() -> Result<()> {
    let mut pipe = fixture::pipe("")?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    let slow = |milliseconds: u32| {
        json!({"jsonrpc": "2.0", "id": "same", "method": "tools/call",
               "params": {"name": "test_slow", "arguments": {"milliseconds": milliseconds}}})
    };
    pipe.send(&slow(1000)).await?;
    pipe.send(&slow(0)).await?;
    let mut said = [pipe.receive().await?.context("one")?, pipe.receive().await?.context("two")?];
    said.sort_by_key(|answer| answer.get("error").is_none());
    assert_eq!((&said[0]["id"], &said[0]["error"]["code"]), (&json!("same"), &json!(-32602)), "{said:?}");
    assert!(said[1]["result"].is_object(), "{said:?}");
    Ok(())
}

#[tokio::test]
async fn a_slow_call_holds_up_nothing_and_can_be_cancelled() -> Result<()> {
    let mut pipe = fixture::pipe("")?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    let call = json!({"jsonrpc": "2.0", "id": "slow", "method": "tools/call",
                      "params": {"name": "test_slow", "arguments": {"milliseconds": 600_000}}});
    pipe.send(&call).await?;
    assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}), "others are served meanwhile");
    pipe.notify("notifications/cancelled", &json!({"requestId": "slow", "reason": "enough"})).await?;
    assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}));
    pipe.close_stdin();
    assert_eq!(pipe.receive().await?, None, "a cancelled call says nothing more");
    let status = pipe.wait(END).await?;
    assert!(status.success(), "nothing is left to wait for: {status}");
    Ok(())
}

// Standard output and the end.

#[tokio::test]
async fn nothing_but_protocol_is_on_standard_output() -> Result<()> {
    for format in ["text", "json"] {
        let home = Arc::new(Home::create()?);
        let yaml = "telemetry: {log_level: trace}";
        let mut pipe = Stdio::start_in(&home, yaml, &["--log-format", format])?;
        pipe.initialize(LATEST_LEGACY, &json!({})).await?;
        pipe.call("create_goal", json!({"goal": "x"})).await?;
        pipe.call("no_such_tool", json!({})).await.unwrap_err();
        pipe.send_raw("not a message\n").await?;
        assert_eq!(pipe.receive().await?.context("an answer")?["error"]["code"], -32700);
        pipe.close_stdin();
        // `receive` fails on anything that is no message.
        assert_eq!(pipe.receive().await?, None);
        assert!(pipe.wait(PATIENCE).await?.success());
        let log = pipe.process().stderr().text();
        assert!(log.contains("serving standard input and output"), "logs are on standard error: {log}");
        if format == "json" {
            for line in log.lines() {
                serde_json::from_str::<Value>(line).with_context(|| format!("no JSON: {line}"))?;
            }
        }
    }
    Ok(())
}

#[tokio::test]
async fn the_end_of_input_ends_the_gateway_after_its_last_answer() -> Result<()> {
    let mut pipe = fixture::pipe("")?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    let slow = json!({"jsonrpc": "2.0", "id": "last", "method": "tools/call",
                      "params": {"name": "test_slow", "arguments": {"milliseconds": 700}}});
    pipe.send(&slow).await?;
    pipe.send_raw(ping("no newline").to_string()).await?;
    pipe.close_stdin();
    let first = pipe.receive().await?.context("the ping")?;
    assert_eq!((&first["id"], &first["result"]), (&json!("no newline"), &json!({})));
    let last = pipe.receive().await?.context("the slow call")?;
    assert_eq!(last["id"], "last");
    assert!(last["result"].is_object(), "{last}");
    assert_eq!(pipe.receive().await?, None);
    assert!(pipe.wait(PATIENCE).await?.success());
    Ok(())
}

#[tokio::test]
async fn an_empty_input_is_a_good_end() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    pipe.close_stdin();
    assert_eq!(pipe.receive().await?, None);
    assert_eq!(pipe.wait(PATIENCE).await?.code(), Some(0));
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_a_gateway_whose_input_stays_silent() -> Result<()> {
    for signal in [Signal::TERM, Signal::INT] {
        let mut pipe = fixture::pipe("")?;
        pipe.initialize(LATEST_LEGACY, &json!({})).await?;
        let slow = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                          "params": {"name": "test_slow", "arguments": {"milliseconds": 600_000}}});
        pipe.send(&slow).await?;
        pipe.request("ping", &Value::Null).await?;
        let asked = Instant::now();
        pipe.process().signal(signal)?;
        let status = pipe.wait(END).await?;
        assert_eq!(status.code(), Some(0), "{signal:?} after {:?}", asked.elapsed());
    }
    Ok(())
}

#[tokio::test]
async fn a_client_that_reads_no_more_ends_the_gateway() -> Result<()> {
    let home = Home::create()?;
    let config = home.write_config("")?;
    let mut command = home.command("moongate")?;
    command.arg("stdio").arg("--config").arg(config).stdin(Pipe::piped()).stdout(Pipe::piped());
    let mut process = Process::spawn(&mut command)?;
    let mut stdin = process.take_stdin().context("stdin")?;
    drop(process.take_stdout());
    stdin.write_all(format!("{}\n", ping(1)).as_bytes()).await?;
    let status = process.wait(PATIENCE).await?;
    assert!(status.code().is_some(), "it ends by itself, not by a signal: {status}");
    Ok(())
}

// Who is calling.

#[tokio::test]
async fn a_pipe_is_the_user_or_whoever_its_token_names() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let params = json!({"name": "create_goal", "arguments": {"goal": "x"}});
    let mut own = Stdio::start_in(&home, "", &[])?;
    own.initialize(LATEST_LEGACY, &json!({})).await?;
    own.request("tools/call", &params).await?.result()?;
    let local = std::fs::read_to_string(home.path().join("state/moongate/token"))?.trim().to_owned();
    let reader = caller::token(&home, "reader", "read").await?;
    for (token, may_write) in [(local, true), (reader, false)] {
        let mut pipe = Stdio::start_with_env(&home, "", &[], &[("MOONGATE_TOKEN", &token)])?;
        pipe.initialize(LATEST_LEGACY, &json!({})).await?;
        let listed = pipe.request("tools/list", &json!({})).await?.result()?.to_string();
        assert_eq!(listed.contains("\"create_goal\""), may_write);
        assert!(listed.contains("\"list_goals\""));
        let legacy = pipe.request("tools/call", &params).await?;
        let mut modern = ModernPipe::new(pipe);
        let modern = modern.once("tools/call", &params).await?;
        if may_write {
            legacy.result()?;
            modern.result()?;
        } else {
            assert_eq!((legacy.code()?, modern.code()?), (-32001, -32602));
            assert_eq!(modern.response["error"]["data"], json!({"requiredScope": "write"}));
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_token_that_is_refused_refuses_the_pipe_without_being_shown() -> Result<()> {
    let home = Arc::new(Home::create()?);
    let revoked =
        home.run(&["token", "issue", "--subject", "x", "--scopes", "read", "--ttl", "1h", "--json"]).await?;
    let revoked: Value = serde_json::from_slice(&revoked.stdout)?;
    home.run(&["token", "revoke", revoked["id"].as_str().context("an id")?]).await?;
    let empty = Stdio::start_with_env(&home, "", &[], &[("MOONGATE_TOKEN", "")])?.wait(PATIENCE).await?;
    assert_eq!(empty.code(), Some(1), "a variable that is set was meant to name somebody");
    for token in ["hunter2-hunter2-hunter2", revoked["token"].as_str().context("a token")?] {
        let mut pipe = Stdio::start_with_env(&home, "", &[], &[("MOONGATE_TOKEN", token)])?;
        assert_eq!(pipe.receive().await?, None, "nothing is said on standard output");
        assert_eq!(pipe.wait(PATIENCE).await?.code(), Some(1));
        let said = pipe.process().stderr().text();
        assert!(said.contains("MOONGATE_TOKEN") && !said.contains(token), "{said}");
    }
    Ok(())
}

#[tokio::test]
async fn anonymous_callers_of_a_port_do_not_make_the_pipe_anonymous() -> Result<()> {
    let mut pipe = Stdio::start("security: {anonymous: true, anonymous_scopes: [read]}")?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    let made = pipe.call("create_goal", json!({"goal": "mine"})).await?;
    assert_ne!(made["isError"], true, "{made}");
    Ok(())
}

#[tokio::test]
async fn a_profile_is_all_a_pipe_offers() -> Result<()> {
    let yaml = "profiles: {review: {tools: [list_goals]}}";
    let home = Arc::new(Home::create()?);
    let mut pipe = Stdio::start_in(&home, yaml, &["--profile", "review"])?;
    pipe.initialize(LATEST_LEGACY, &json!({})).await?;
    let listed = pipe.request("tools/list", &json!({})).await?.result()?;
    let names: Vec<_> =
        listed["tools"].as_array().context("tools")?.iter().map(|tool| &tool["name"]).collect();
    assert_eq!(names, [&json!("list_goals")]);
    let outside = json!({"name": "create_goal", "arguments": {"goal": "x"}});
    assert_eq!(pipe.request("tools/call", &outside).await?.code()?, -32602, "the rest is unknown");
    assert!(pipe.call("list_goals", json!({})).await?["structuredContent"]["goals"].is_array());
    let mut unknown = Stdio::start_in(&home, yaml, &["--profile", "absent"])?;
    assert_eq!(unknown.receive().await?, None);
    assert_eq!(unknown.wait(PATIENCE).await?.code(), Some(1));
    assert!(unknown.process().stderr().text().contains("absent"), "the profile is named");
    Ok(())
}

#[tokio::test]
async fn a_pipe_is_limited_like_any_caller() -> Result<()> {
    let mut pipe = Stdio::start("security: {limits: {per_principal: 3/h}}")?;
    for _ in 0..3 {
        assert_eq!(pipe.request("ping", &Value::Null).await?.result()?, json!({}));
    }
    let refused = pipe.request("ping", &Value::Null).await?;
    assert!(refused.error_message().contains("rate limit exceeded"), "{}", refused.response);
    Ok(())
}

// Both transports in one process.

/// `serve --transport both`: a port and a pipe.
struct Both {
    process: Process,
    home: Arc<Home>,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    client: Client,
}

impl Both {
    async fn start(yaml: &str) -> Result<Self> {
        let home = Arc::new(Home::create()?);
        let config = home.write_config(yaml)?;
        let mut command = home.command("moongate")?;
        command.args(["serve", "--transport", "both", "--http-port", "0"]).arg("--config").arg(config);
        let mut process = Process::spawn(command.stdin(Pipe::piped()).stdout(Pipe::piped()))?;
        let stdin = process.take_stdin();
        let stdout = BufReader::new(process.take_stdout().context("stdout")?);
        let ready = process.stderr().line(|line| line.starts_with("moongate ready"));
        let ready = patiently("the ready line", ready).await??;
        let field = |key: &str| ready.split_whitespace().find_map(|word| word.strip_prefix(key));
        let address =
            field("endpoint=http://").and_then(|url| url.strip_suffix("/mcp")).context("an endpoint")?;
        let token = std::fs::read_to_string(field("token=").context("a token file")?)?;
        let client = Client::new(address.parse()?, Protocol::Http1).with_token(token.trim());
        Ok(Self { process, home, stdin, stdout, client })
    }

    async fn say(&mut self, message: &Value) -> Result<Value> {
        let stdin = self.stdin.as_mut().context("stdin is open")?;
        stdin.write_all(format!("{message}\n").as_bytes()).await?;
        let mut line = String::new();
        patiently("an answer on the pipe", self.stdout.read_line(&mut line)).await??;
        serde_json::from_str(&line).with_context(|| format!("not a message: {line:?}"))
    }
}

#[tokio::test]
async fn a_port_and_a_pipe_are_served_by_one_process() -> Result<()> {
    let mut both = Both::start("").await?;
    assert_eq!(both.say(&ping("pipe")).await?["result"], json!({}));
    let meta = json!({VERSION_KEY: "2026-07-28", CAPABILITIES_KEY: {}, "dev.moongate/sessionId": "shared"});
    let create = json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call",
                        "params": {"name": "create_goal", "arguments": {"goal": "from the pipe"}, "_meta": meta}});
    assert!(both.say(&create).await?["result"].is_object());
    // One core: the user's named session is the same from either side.
    let named = both.client.clone().with_header("x-session-id", "shared");
    let listed = ModernClient::new(&named).call("list_goals", json!({})).await?;
    assert_eq!(names_of(&listed), ["from the pipe"]);
    Ok(())
}

#[tokio::test]
async fn the_end_of_the_pipe_is_not_the_end_of_the_port() -> Result<()> {
    let mut both = Both::start("").await?;
    let session = LegacySession::open(&both.client, LATEST_LEGACY).await?;
    assert_eq!(both.say(&ping(1)).await?["result"], json!({}));
    both.stdin = None;
    let noted = both.process.stderr().line(|line| line.contains("the port stays open"));
    patiently("the note about it", noted).await??;
    assert_eq!(session.request("ping", &json!({})).await?.result()?, json!({}));
    both.process.signal(Signal::TERM)?;
    assert_eq!(both.process.wait(END).await?.code(), Some(0));
    let mut rest = String::new();
    patiently("the end of standard output", both.stdout.read_to_string(&mut rest)).await??;
    assert_eq!(rest, "", "nothing but protocol");
    Ok(())
}

#[tokio::test]
async fn a_signal_ends_both_within_five_seconds_while_input_is_silent() -> Result<()> {
    let mut both = Both::start("").await?;
    let session = LegacySession::open(&both.client, LATEST_LEGACY).await?;
    let mut stream = session.listen(None).await?;
    assert_eq!(both.say(&ping(1)).await?["result"], json!({}));
    both.process.signal(Signal::TERM)?;
    assert_eq!(both.process.wait(END).await?.code(), Some(0), "{}", both.process.stderr().text());
    stream.rest().await.context("a stream ends, it is not cut")?;
    drop(both.home);
    Ok(())
}

#[tokio::test]
async fn a_port_that_is_taken_ends_both() -> Result<()> {
    let taken = Gateway::start("").await?;
    let port = taken.address()?.port().to_string();
    let home = Home::create()?;
    let output = home.run(&["serve", "--transport", "both", "--http-port", &port]).await?;
    assert_eq!(output.status.code(), Some(1));
    assert!(output.stdout.is_empty());
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(said.contains("port in use"), "{said}");
    Ok(())
}
