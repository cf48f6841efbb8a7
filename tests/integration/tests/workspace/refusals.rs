//! What the tools refuse, each with its code, whoever asks.

use std::{fs::File, path::Path};

use anyhow::{Context as _, Result};
use moongate_test_integration::caller;
use moongate_test_support::{Gateway, ModernClient};
use serde_json::{Value, json};

use crate::support::{Caller, session, start, yaml};

const INVALID: i64 = -32602;
const DENIED: i64 = -32603;

/// Every tool that takes a path, with arguments that name it; `source` is a file that may be imported.
fn all_with(path: &str, source: &Path) -> Vec<(&'static str, Value)> {
    vec![
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "x"})),
        ("write_file", json!({"path": path, "content": "x", "mode": "a"})),
        ("replace_lines_in_file", json!({"path": path, "replacements": [{"start_line": 1}]})),
        ("list_directory", json!({"path": path})),
        ("search_files", json!({"path": path, "pattern": "*"})),
        ("grep", json!({"path": path, "pattern": "secret"})),
        ("import_file", json!({"src_abs_path": source, "dest_rel_path": path})),
        ("export_file", json!({"path": path})),
        ("export_zip", json!({"files": [path]})),
    ]
}

/// A gateway that imports from the directory called `open` in its home, where `file` lies, and a caller of it.
async fn importing() -> Result<(Gateway, Caller, std::path::PathBuf)> {
    let home = std::sync::Arc::new(moongate_test_support::Home::create()?);
    let open = home.path().join("open");
    std::fs::create_dir(&open)?;
    std::fs::write(open.join("file"), "imported")?;
    let roots = json!([open]);
    let gateway =
        Gateway::builder().home(&home).config(&yaml(&format!("import_roots: {roots}"))).start().await?;
    let caller = session(&gateway, "refused");
    Ok((gateway, caller, open.join("file")))
}

/// The trap of tools that check some paths, or the path before it is resolved: each tool, each way out.
#[tokio::test]
async fn no_tool_takes_a_path_that_leads_out() -> Result<()> {
    let (gateway, caller, source) = importing().await?;
    let outside = gateway.home().path().join("outside");
    std::fs::create_dir(&outside)?;
    std::fs::write(outside.join("secret"), "secret")?;
    let here = caller.directory().await?;
    std::os::unix::fs::symlink(&outside, here.join("directory"))?;
    std::os::unix::fs::symlink(outside.join("secret"), here.join("link"))?;
    std::os::unix::fs::symlink("/", here.join("root"))?;
    let absolute = outside.join("secret").display().to_string();
    let to_root = format!("root{absolute}");
    for (path, code) in [
        (absolute.as_str(), INVALID),
        ("../secret", INVALID),
        ("a/../../secret", INVALID),
        ("directory/..", INVALID),
        ("link", DENIED),
        ("directory", DENIED),
        ("directory/secret", DENIED),
        ("directory/new", DENIED),
        (to_root.as_str(), DENIED),
    ] {
        for (tool, arguments) in all_with(path, &source) {
            let (found, text) = caller.refusal(tool, arguments).await?;
            // An archive names what it did not take; that nothing was left to pack is what is refused.
            let expected = if tool == "export_zip" { DENIED } else { code };
            assert_eq!(found, expected, "{tool} {path}: {text}");
        }
    }
    let all: Vec<_> = std::fs::read_dir(&outside)?.flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(all, ["secret"]);
    assert_eq!(std::fs::read_to_string(outside.join("secret"))?, "secret");
    Ok(())
}

#[tokio::test]
async fn no_tool_takes_a_path_with_a_nul_or_one_of_five_thousand_bytes() -> Result<()> {
    let (_gateway, caller, source) = importing().await?;
    let long = "a/".repeat(2500);
    for path in ["a\0b", "\0", &*long] {
        for (tool, arguments) in all_with(path, &source) {
            let (code, text) = caller.refusal(tool, arguments).await?;
            let expected = if tool == "export_zip" && path != long { DENIED } else { INVALID };
            assert_eq!(code, expected, "{tool}: {text}");
        }
    }
    let listed = caller.data("list_directory", json!({})).await?;
    assert_eq!(listed["total"], 0, "{listed}");
    Ok(())
}

#[tokio::test]
async fn replacements_that_overlap_are_refused_and_change_nothing() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "overlap");
    caller.data("write_file", json!({"path": "f", "content": "1\n2\n3\n"})).await?;
    let replacements = json!([
        {"start_line": 2, "end_line": 3, "new_content": "b"},
        {"start_line": 1, "end_line": 2, "new_content": "a"},
    ]);
    let edit = json!({"path": "f", "replacements": replacements});
    let (code, text) = caller.refusal("replace_lines_in_file", edit).await?;
    assert!(code == INVALID && text.contains("overlap"), "{code} {text}");
    assert_eq!(caller.output("cat f").await?, "1\n2\n3");
    Ok(())
}

#[tokio::test]
async fn a_binary_file_is_no_text_but_a_resource() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "binary");
    caller.output("printf 'needle\\0\\377\\n' > b.bin").await?;
    let (code, text) = caller.refusal("read_file", json!({"path": "b.bin"})).await?;
    assert!(code == DENIED && text.contains("Read it as the resource workspace:///b.bin"), "{code} {text}");
    let found = caller.data("grep", json!({"path": ".", "pattern": "needle"})).await?;
    assert_eq!(found["total"], 0, "{found}");
    let read = caller.0.request("resources/read", &json!({"uri": "workspace:///b.bin"})).await?.result()?;
    assert_eq!(read["contents"][0]["blob"], "bmVlZGxlAP8K");
    Ok(())
}

/// What a process has read so far, in bytes, from whatever it was.
fn bytes_read(pid: u32) -> Result<u64> {
    let told = std::fs::read_to_string(format!("/proc/{pid}/io"))?;
    let line = told.lines().find_map(|line| line.strip_prefix("rchar: ")).context("it is told")?;
    Ok(line.parse()?)
}

#[tokio::test]
async fn a_gigabyte_is_refused_without_being_read() -> Result<()> {
    let (mut gateway, caller, source) = importing().await?;
    let pid = gateway.process().pid();
    File::create(caller.directory().await?.join("huge"))?.set_len(1 << 30)?;
    File::create(source.with_file_name("huge"))?.set_len(1 << 30)?;
    let before = bytes_read(pid)?;
    for (tool, arguments) in [
        ("read_file", json!({"path": "huge"})),
        ("read_file", json!({"path": "huge", "start_line": 1, "end_line": 1})),
        ("write_file", json!({"path": "huge", "content": "x", "mode": "a"})),
        ("replace_lines_in_file", json!({"path": "huge", "replacements": [{"start_line": 1}]})),
        ("grep", json!({"path": "huge", "pattern": "x"})),
        ("export_file", json!({"path": "huge"})),
        ("export_zip", json!({"files": ["huge"]})),
        ("import_file", json!({"src_abs_path": source.with_file_name("huge"), "dest_rel_path": "x"})),
    ] {
        let (code, text) = caller.refusal(tool, arguments).await?;
        assert!(code == DENIED && text.contains("would take more than"), "{tool}: {code} {text}");
    }
    let found = caller.data("grep", json!({"path": ".", "pattern": "x"})).await?;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(0), &json!(true)));
    let read = caller.0.request("resources/read", &json!({"uri": "workspace:///huge"})).await?;
    assert_eq!(read.code()?, INVALID);
    let read = bytes_read(pid)? - before;
    assert!(read < 10 << 20, "{read} bytes were read");
    Ok(())
}

#[tokio::test]
async fn patterns_that_make_no_sense_are_refused_with_a_reason() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "patterns");
    for (tool, pattern, reason) in [
        ("grep", "(", "unclosed group"),
        ("grep", "(?=x)", "look-around"),
        ("grep", "(a{1000}){1000}", "size limit"),
        ("search_files", "[", "a [ is not closed"),
        ("search_files", "{a,{b}}", "braces inside braces"),
        ("search_files", "a\\", "ends with a backslash"),
    ] {
        let arguments = match tool {
            "grep" => json!({"pattern": pattern, "input": "x"}),
            _ => json!({"pattern": pattern}),
        };
        let (code, text) = caller.refusal(tool, arguments).await?;
        assert!(code == INVALID && text.contains(reason), "{tool} {pattern}: {code} {text}");
    }
    Ok(())
}

#[tokio::test]
async fn an_archive_of_nothing_is_refused() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "nothing");
    assert_eq!(caller.refusal("export_zip", json!({"files": []})).await?.0, INVALID);
    let (code, text) = caller.refusal("export_zip", json!({"files": ["none", "nor this"]})).await?;
    assert!(code == DENIED && text.contains("none: ") && text.contains("nor this: "), "{code} {text}");
    assert_eq!(caller.data("list_directory", json!({})).await?["total"], 0, "no archive was begun");
    Ok(())
}

/// Every tool that runs or follows a command.
const COMMANDS: [&str; 6] = [
    "execute_command",
    "execute_shell",
    "poll_process",
    "read_process_output",
    "list_processes",
    "terminate_process",
];

fn command(tool: &str) -> Value {
    json!({"name": tool, "arguments": {"command": "touch made", "processId": "x", "stream": "stdout"}})
}

#[tokio::test]
async fn commands_are_refused_to_who_lacks_control() -> Result<()> {
    let gateway = start("callers: scope").await?;
    let writer = ModernClient::new(&caller::issued(&gateway, "bob", "read,write,rules.write").await?);
    let listed = writer.list("tools/list").await?.to_string();
    for tool in COMMANDS {
        assert!(!listed.contains(tool), "{listed}");
        let outcome = writer.request("tools/call", &command(tool)).await?;
        assert_eq!((outcome.status, outcome.code()?), (403, INVALID), "{tool}: {}", outcome.response);
        assert_eq!(outcome.response["error"]["data"]["requiredScope"], "control", "{tool}");
    }
    Ok(())
}

#[tokio::test]
async fn commands_are_unknown_to_anonymous_callers_whatever_they_hold() -> Result<()> {
    let gateway = Gateway::start(
        "security: {anonymous: true, anonymous_scopes: [read, write, control]}\n\
         backends: {workspace: {callers: scope}}\n",
    )
    .await?;
    let nobody = ModernClient::new(&gateway.anonymous_client());
    let listed = nobody.list("tools/list").await?.to_string();
    assert!(listed.contains("create_goal"), "{listed}");
    for tool in COMMANDS {
        assert!(!listed.contains(tool), "{listed}");
        let outcome = nobody.request("tools/call", &command(tool)).await?;
        let never = nobody.request("tools/call", &command("never_was")).await?;
        let as_never = never.error_message().replace("never_was", tool);
        assert_eq!((outcome.code()?, outcome.error_message()), (never.code()?, &*as_never));
    }
    Ok(())
}
