//! The files of a workspace over the wire: written and read by tools, read and watched as resources, and each to its own.
#![cfg(target_os = "linux")]
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use moongate_test_integration::{caller, waiting::eventually};
use moongate_test_support::{EventStream, Gateway, LegacySession, ModernClient, Stdio};
use serde_json::{Value, json};

const LATEST: &str = "2025-11-25";
const UPDATED: &str = "notifications/resources/updated";
const FILE: &str = "workspace:///a%20b/note.md";

/// The local user in the session called `name`.
fn session(gateway: &Gateway, name: &str) -> ModernClient {
    ModernClient::new(&gateway.client().with_header("x-session-id", name))
}

fn note(content: &str) -> Value {
    json!({"path": "a b/note.md", "content": content})
}

/// Waits for the next update that a stream tells, past whatever else it tells.
async fn next_updated(stream: &mut EventStream) -> Result<Value> {
    loop {
        let message = stream.message().await?.context("the stream ended")?;
        if message["method"] == UPDATED {
            return Ok(message["params"]["uri"].clone());
        }
    }
}

/// How many rooms there are.
fn rooms(gateway: &Gateway) -> Result<usize> {
    let mut left = vec![gateway.home().path().to_owned()];
    while let Some(directory) = left.pop() {
        for entry in std::fs::read_dir(&directory)? {
            let entry = entry?;
            if entry.file_name() == "workspace" {
                let is_room = |name: &str| name.len() == 64;
                let names = std::fs::read_dir(entry.path())?.filter_map(Result::ok);
                return Ok(names.filter(|name| name.file_name().to_str().is_some_and(is_room)).count());
            }
            if entry.file_type()?.is_dir() {
                left.push(entry.path());
            }
        }
    }
    Ok(0)
}

#[tokio::test]
async fn a_file_is_the_same_by_tool_and_by_address_in_every_era() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let modern = session(&gateway, "named");
    let written = modern.call("write_file", note("# Hi\n")).await?;
    assert_eq!(written["structuredContent"]["bytes_written"], 5);
    let legacy = LegacySession::open(&gateway.client().with_header("x-session-id", "named"), LATEST).await?;
    let read = legacy.call("read_file", json!({"path": "a b/note.md"})).await?;
    assert_eq!((&read["content"][0]["text"], &read["isError"]), (&json!("# Hi\n"), &json!(false)));
    let expected = json!([{"uri": FILE, "mimeType": "text/markdown", "text": "# Hi\n"}]);
    for outcome in [
        modern.request("resources/read", &json!({"uri": FILE})).await?,
        legacy.request("resources/read", &json!({"uri": FILE})).await?,
    ] {
        assert_eq!(outcome.result()?["contents"], expected);
    }
    let templates = legacy.list("resources/templates/list").await?;
    let templates = templates["resourceTemplates"].as_array().context("a list")?;
    assert!(
        templates.iter().any(|template| template["uriTemplate"] == "workspace:///{+path}"),
        "{templates:?}"
    );
    let listed = legacy.list("resources/list").await?["resources"].to_string();
    assert!(!listed.contains("workspace://"), "{listed}");
    Ok(())
}

#[tokio::test]
async fn another_session_has_other_files() -> Result<()> {
    let gateway = Gateway::start("").await?;
    session(&gateway, "one").call("write_file", note("mine")).await?;
    let other = session(&gateway, "two");
    let read = other.call("read_file", json!({"path": "a b/note.md"})).await?;
    assert_eq!(
        (&read["isError"], &read["structuredContent"]["error"]["code"]),
        (&json!(true), &json!(-32602))
    );
    assert_eq!(other.request("resources/read", &json!({"uri": FILE})).await?.code()?, -32602);
    let legacy = LegacySession::open(&gateway.client(), LATEST).await?;
    assert_eq!(legacy.request("resources/read", &json!({"uri": FILE})).await?.code()?, -32002);
    Ok(())
}

#[tokio::test]
async fn files_are_open_to_the_local_user_and_to_others_only_where_configured() -> Result<()> {
    let closed = Gateway::start("").await?;
    let stranger = ModernClient::new(&caller::issued(&closed, "ann", "admin").await?);
    let listed = stranger.list("tools/list").await?.to_string();
    assert!(!listed.contains("write_file"), "{listed}");
    assert!(stranger.call("write_file", note("x")).await.is_err());
    assert!(stranger.request("resources/read", &json!({"uri": FILE})).await?.result().is_err());

    let open = Gateway::start("backends: {workspace: {callers: scope}}").await?;
    let ann = ModernClient::new(&caller::issued(&open, "ann", "control").await?);
    let bob = ModernClient::new(&caller::issued(&open, "bob", "read,write").await?);
    ann.call("write_file", note("ann's")).await?;
    let read = ann.request("resources/read", &json!({"uri": FILE})).await?.result()?;
    assert_eq!(read["contents"][0]["text"], "ann's");
    assert!(bob.call("write_file", note("x")).await.is_err());
    assert!(bob.request("resources/read", &json!({"uri": FILE})).await?.result().is_err());
    let local = ModernClient::new(&open.client()).request("resources/read", &json!({"uri": FILE})).await?;
    assert!(local.result().is_err(), "also the local user has a room of their own");
    Ok(())
}

#[tokio::test]
async fn a_legacy_session_hears_of_its_own_file_only() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let mine = LegacySession::open(&gateway.client(), LATEST).await?;
    let other = LegacySession::open(&gateway.client(), LATEST).await?;
    let (mut stream, mut heard) = (mine.listen(None).await?, other.listen(None).await?);
    for uri in ["workspace:///first", FILE] {
        mine.request("resources/subscribe", &json!({"uri": uri})).await?.result()?;
        other.request("resources/subscribe", &json!({"uri": uri})).await?.result()?;
    }
    other.call("write_file", json!({"path": "first", "content": "x"})).await?;
    assert_eq!(next_updated(&mut heard).await?, "workspace:///first");
    mine.call("write_file", note("1")).await?;
    assert_eq!(next_updated(&mut stream).await?, FILE);
    mine.call("write_file", json!({"path": "first", "content": "x"})).await?;
    // The directory that was made for it may still be told of once more.
    while next_updated(&mut stream).await? != "workspace:///first" {}
    mine.request("resources/unsubscribe", &json!({"uri": "workspace:///first"})).await?.result()?;
    mine.call("write_file", json!({"path": "first", "content": "y"})).await?;
    mine.call(
        "replace_lines_in_file",
        json!({"path": "a b/note.md", "replacements": [{"start_line": 1, "new_content": "2"}]}),
    )
    .await?;
    assert_eq!(next_updated(&mut stream).await?, FILE, "nobody watches the first any more");
    Ok(())
}

#[tokio::test]
async fn a_modern_listener_hears_of_a_file_of_its_session() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = session(&gateway, "named");
    let watched = json!({"resourceSubscriptions": [FILE, "workspace:///theirs"]});
    let mut stream = client.listen(&watched).await?;
    let acknowledged = stream.message().await?.context("the stream ended")?;
    assert_eq!(acknowledged["method"], "notifications/subscriptions/acknowledged");
    assert_eq!(acknowledged["params"]["notifications"], watched);
    let other = session(&gateway, "other");
    // The other one watches it, too: when it has heard, the update was told to everybody whom it concerns.
    let mut heard = other.listen(&watched).await?;
    other.call("write_file", json!({"path": "theirs", "content": "x"})).await?;
    assert_eq!(next_updated(&mut heard).await?, "workspace:///theirs");
    client.call("write_file", note("mine")).await?;
    assert_eq!(next_updated(&mut stream).await?, FILE);
    Ok(())
}

#[tokio::test]
async fn a_session_takes_its_room_along_and_a_named_one_leaves_it() -> Result<()> {
    let gateway = Gateway::start("").await?;
    session(&gateway, "named").call("write_file", note("kept")).await?;
    let passing = LegacySession::open(&gateway.client(), LATEST).await?;
    passing.call("write_file", note("gone")).await?;
    assert_eq!(rooms(&gateway)?, 2);
    assert_eq!(passing.delete().await?.status, 204);
    eventually("one room less", async || Ok((rooms(&gateway)? == 1).then_some(()))).await?;
    let read = session(&gateway, "named").call("read_file", json!({"path": "a b/note.md"})).await?;
    assert_eq!(read["content"][0]["text"], "kept");
    Ok(())
}

#[tokio::test]
async fn the_size_of_files_and_the_time_to_wait_are_the_operators_choice() -> Result<()> {
    let gateway = Gateway::start("backends: {workspace: {limits: {file: 1KiB, wait: 2s}}}").await?;
    let client = session(&gateway, "named");
    let refused = client.call("write_file", note(&"x".repeat(1025))).await?;
    assert_eq!(refused["isError"], true, "{refused}");
    let command = "head -c 1025 /dev/zero > large; head -c 1024 /dev/zero > fits";
    client.call("execute_shell", json!({"command": command, "timeout": 2})).await?;
    let read = async |uri| client.request("resources/read", &json!({"uri": uri})).await;
    read("workspace:///fits").await?.result()?;
    assert_eq!(read("workspace:///large").await?.code()?, -32602);
    let refused = client.call("execute_shell", json!({"command": "true", "timeout": 3})).await?;
    let said = refused["content"][0]["text"].as_str().context("it says why")?;
    assert!(said.contains("may take 2 seconds at most"), "{said}");
    Ok(())
}

#[tokio::test]
async fn a_pipe_that_ends_takes_its_processes_and_its_room_along() -> Result<()> {
    let mut pipe = Stdio::start("")?;
    pipe.initialize(LATEST, &json!({})).await?;
    let shown = pipe.call("execute_shell", json!({"command": "pwd"})).await?;
    let room = shown["structuredContent"]["stdout"].as_str().context("it writes where it is")?.to_owned();
    // One ends when it is asked to, the other has to be killed.
    for command in ["exec sleep 1000", "trap '' TERM; echo $$ > pid; while :; do sleep 1000; done"] {
        pipe.call("execute_command", json!({"command": command})).await?;
    }
    let shown =
        pipe.call("execute_shell", json!({"command": "until [ -s pid ]; do :; done; cat pid"})).await?;
    let pid = shown["structuredContent"]["stdout"].as_str().context("it has a number")?.to_owned();
    let process = Path::new("/proc").join(pid);
    assert!(Path::new(&room).is_dir() && process.exists());
    pipe.close_stdin();
    pipe.wait(Duration::from_secs(6)).await?;
    assert!(!Path::new(&room).exists(), "the room is left");
    assert!(!process.exists(), "the process is left");
    Ok(())
}

#[tokio::test]
async fn an_export_is_shown_on_a_page_and_read_by_its_address() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = session(&gateway, "named");
    client.call("write_file", note("# <b>")).await?;
    let exported = client.call("export_zip", json!({"files": ["a b/note.md"], "description": "<b>"})).await?;
    let (told, block) = (&exported["structuredContent"], &exported["content"][1]);
    assert_eq!(block["annotations"]["download_path"], told["download_path"]);
    assert_eq!((&block["type"], &block["resource"]["mimeType"]), (&json!("resource"), &json!("text/html")));
    assert!(block["resource"]["text"].as_str().is_some_and(|page| page.contains("&lt;b&gt;")), "{block}");
    let read = client.request("resources/read", &json!({"uri": told["uri"]})).await?.result()?;
    assert_eq!(read["contents"][0]["mimeType"], "application/zip");
    Ok(())
}

#[tokio::test]
async fn a_file_is_imported_from_a_directory_that_is_open_for_that() -> Result<()> {
    let open = tempfile::tempdir()?;
    std::fs::write(open.path().join("data"), b"\xff data")?;
    let roots = json!([open.path()]);
    let gateway = Gateway::start(&format!("backends: {{workspace: {{import_roots: {roots}}}}}")).await?;
    let client = session(&gateway, "named");
    let arguments = json!({"src_abs_path": open.path().join("data"), "dest_rel_path": "new/copy.bin"});
    let imported = client.call("import_file", arguments).await?;
    assert_eq!(imported["structuredContent"]["size"], 6, "{imported}");
    let read =
        client.request("resources/read", &json!({"uri": "workspace:///new/copy.bin"})).await?.result()?;
    assert_eq!(read["contents"][0]["blob"], "/yBkYXRh");
    let elsewhere = json!({"src_abs_path": "/etc/hostname", "dest_rel_path": "x"});
    let refused = client.call("import_file", elsewhere).await?;
    assert_eq!(refused["structuredContent"]["error"]["code"], -32603, "{refused}");
    Ok(())
}

/// The trap of edits that shift each other.
#[tokio::test]
async fn lines_are_replaced_by_the_numbers_they_had() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = session(&gateway, "named");
    client.call("write_file", json!({"path": "f", "content": "1\n2\n3\n4\n"})).await?;
    let replacements = json!([
        {"start_line": 1, "new_content": "a\nb\nc"},
        {"start_line": 4, "new_content": "d"},
        {"start_line": 2, "end_line": 3},
    ]);
    client.call("replace_lines_in_file", json!({"path": "f", "replacements": replacements})).await?;
    let read = client.call("read_file", json!({"path": "f"})).await?;
    assert_eq!(read["content"][0]["text"], "a\nb\nc\nd\n");
    Ok(())
}

/// The trap of commands that are made right.
#[tokio::test]
async fn a_command_with_a_quote_too_few_is_left_as_it_is() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = session(&gateway, "named");
    let ran = client.call("execute_shell", json!({"command": "echo 'made right"})).await?;
    let text = ran["content"][0]["text"].as_str().context("a text")?;
    assert!(!text.contains("exit code 0") && !text.contains("\nmade right"), "{ran}");
    Ok(())
}
