//! What each process tool takes and answers, row by row.

use anyhow::Result;
use moongate_test_support::Gateway;
use serde_json::{Value, json};

use crate::support::{Caller, session, start};

const INVALID: i64 = -32602;
const INTERNAL: i64 = -32603;

async fn alone() -> Result<(Gateway, Caller)> {
    let gateway = start("").await?;
    let caller = session(&gateway, "alone");
    Ok((gateway, caller))
}

#[tokio::test]
async fn a_command_is_started_and_followed_to_its_end() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let command = "echo out; echo err >&2; until [ -e go ]; do sleep 0.05; done; read x";
    let started = caller.data("execute_command", json!({"command": command})).await?;
    assert_eq!(started["status"], "started");
    let id = started["processId"].as_str().unwrap();
    caller.output("touch go").await?;
    let ended = caller.becomes(id, "failed").await?;
    assert_eq!(
        (&ended["exit_code"], &ended["output"]),
        (&json!(1), &json!("out")),
        "read has nothing to read"
    );
    assert_eq!((&ended["stdout_size"], &ended["stderr_size"]), (&json!(4), &json!(4)));
    assert_eq!(ended["command"], command);
    assert!(ended["pid"].is_i64() && ended["started_at"].is_string() && ended["finished_at"].is_string());
    assert_eq!(ended.get("tail"), None);
    let tail = json!({"process_id": id, "tail": {"src": "stderr", "n": "1"}});
    let polled = caller.data("poll_process", tail).await?;
    assert_eq!((&polled["output"], &polled["tail"]["lines"]), (&json!("err"), &json!(["err"])));
    Ok(())
}

#[tokio::test]
async fn a_shell_command_is_waited_for() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let result =
        caller.call("execute_shell", json!({"command": "echo \"it's\"; echo no >&2; exit 3"})).await?;
    assert_eq!(result["isError"], json!(false));
    let data = &result["structuredContent"];
    assert_eq!((&data["status"], &data["exit_code"]), (&json!("failed"), &json!(3)));
    assert_eq!((&data["stdout"], &data["stderr"]), (&json!("it's"), &json!("no")));
    assert_eq!(result["content"][0]["text"], "failed, exit code 3\nstdout:\nit's\nstderr:\nno");
    // Commands are not repaired.
    let broken = caller.run("echo \"unbalanced").await?;
    assert_eq!(broken["status"], "failed");
    let started = caller.data("execute_shell", json!({"command": "true", "run_mode": "async"})).await?;
    assert_eq!(started["status"], "started");
    let waited = caller.data("execute_command", json!({"command": "echo x", "run_mode": "sync"})).await?;
    assert_eq!(waited["stdout"], "x");
    Ok(())
}

#[tokio::test]
async fn a_command_that_fails_at_once_is_told_so() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let started = caller.data("execute_command", json!({"command": "echo oh >&2; exit 7"})).await?;
    let id = started["processId"].as_str().unwrap();
    // Whether it had failed by then depends on the machine; that it is looked at is tested where time stands still.
    match started["status"].as_str().unwrap() {
        "failed" => assert_eq!((&started["exit_code"], &started["output"]), (&json!(7), &json!("oh"))),
        status => assert_eq!(status, "started"),
    }
    let ended = caller.becomes(id, "failed").await?;
    assert_eq!((&ended["exit_code"], &ended["stderr_size"]), (&json!(7), &json!(3)));
    Ok(())
}

#[tokio::test]
async fn arguments_that_are_wrong_are_refused_with_their_codes() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let long = "x".repeat(1001);
    for (tool, arguments, code, text) in [
        ("execute_command", json!({}), INVALID, "command is required"),
        ("execute_command", json!({"command": ""}), INVALID, "command is required"),
        ("execute_command", json!({"command": "a\u{0}b"}), INVALID, "null character"),
        ("execute_command", json!({"command": "true", "run_mode": "later"}), INVALID, "run_mode"),
        ("execute_shell", json!({}), INVALID, "command is required"),
        ("execute_shell", json!({"command": long}), INVALID, "1000"),
        ("execute_shell", json!({"command": "true", "timeout": 0}), INVALID, "at least 1"),
        ("execute_shell", json!({"command": "true", "timeout": 301}), INVALID, "at most 300"),
        ("execute_shell", json!({"command": "true", "timeout": 31}), INVALID, "Use run_mode \"async\""),
        ("poll_process", json!({}), INVALID, "processId is required"),
        ("poll_process", json!({"processId": ""}), INVALID, "processId is required"),
        ("poll_process", json!({"processId": "x"}), INVALID, "No processes in this session"),
        ("read_process_output", json!({"stream": "stdout"}), INVALID, "processId is required"),
        ("read_process_output", json!({"process_id": "x"}), INVALID, "stream is required"),
        ("terminate_process", json!({"processId": "x"}), INVALID, "No processes in this session"),
    ] {
        let refusal = caller.refusal(tool, arguments.clone()).await?;
        assert!(refusal.0 == code && refusal.1.contains(text), "{tool} {arguments}: {refusal:?}");
    }
    assert_eq!(caller.output(&format!("true {}", "x".repeat(995))).await?, "", "1000 characters are fine");
    for (tool, arguments) in [
        ("poll_process", json!({"process_id": "x"})),
        ("read_process_output", json!({"processId": "x", "stream": "stderr"})),
        ("terminate_process", json!({"process_id": "x"})),
    ] {
        assert_eq!(caller.refusal(tool, arguments).await?, (INVALID, "Process not found".to_owned()));
    }
    Ok(())
}

#[tokio::test]
async fn output_is_read_from_either_end() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let id = caller.start("seq 1 300; printf 'no \\377 text' >&2").await?;
    caller.becomes(&id, "finished").await?;
    let read = async |arguments: Value| {
        let mut all = json!({"process_id": id});
        all.as_object_mut().unwrap().extend(arguments.as_object().unwrap().clone());
        caller.data("read_process_output", all).await
    };
    let tail = read(json!({"stream": "stdout"})).await?;
    assert_eq!(
        (&tail["mode"], &tail["lines_requested"], &tail["lines_returned"]),
        (&json!("tail"), &json!(20), &json!(20))
    );
    assert_eq!((&tail["content"][0], &tail["content"][19]), (&json!("281"), &json!("300")));
    assert_eq!(tail["total_size"], 9 + 2 * 90 + 3 * 201 + 300);
    let head = read(json!({"stream": "stdout", "mode": "head", "lines": 2})).await?;
    assert_eq!(head["content"], json!(["1", "2"]));
    let stderr = read(json!({"stream": "stderr", "lines": 100})).await?;
    assert_eq!(stderr["content"], json!(["no \u{fffd} text"]));
    let refused = caller
        .refusal("read_process_output", json!({"process_id": id, "stream": "stdout", "lines": 101}))
        .await?;
    assert_eq!(refused.0, INVALID);
    Ok(())
}

#[tokio::test]
async fn processes_are_listed_the_newest_first() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let done = caller.start("true").await?;
    caller.becomes(&done, "finished").await?;
    let running = caller.start("sleep 1000").await?;
    let ids = async |filter: &str| {
        let listed = caller.data("list_processes", json!({"status_filter": filter})).await?;
        assert_eq!(
            (&listed["total"], &listed["running"], &listed["finished"]),
            (&json!(2), &json!(1), &json!(1))
        );
        let ids = listed["processes"].as_array().unwrap().iter();
        anyhow::Ok(ids.map(|item| item["process_id"].as_str().unwrap().to_owned()).collect::<Vec<_>>())
    };
    assert_eq!(ids("all").await?, [running.clone(), done.clone()]);
    assert_eq!(ids("running").await?, [running]);
    assert_eq!(ids("finished").await?, [done]);
    Ok(())
}

#[tokio::test]
async fn who_asks_too_often_is_told_to_wait() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let id = caller.start("sleep 1000").await?;
    for poll in 1..=6 {
        let polled = caller.data("poll_process", json!({"processId": id})).await?;
        assert_eq!(polled.get("advice").is_some(), poll >= 5, "poll {poll}: {polled}");
    }
    Ok(())
}

#[tokio::test]
async fn a_process_is_asked_to_end_or_killed() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let polite =
        caller.start("trap 'echo bye; exit 0' TERM; echo ready; while :; do sleep 0.05; done").await?;
    caller.says(&polite, "ready").await?;
    let ended = caller.data("terminate_process", json!({"processId": polite})).await?;
    assert_eq!(ended, json!({"processId": polite, "status": "killed"}));
    assert_eq!(caller.becomes(&polite, "killed").await?["output"], "ready\nbye");
    let deaf = caller.start("trap '' TERM; echo ready; while :; do sleep 1000; done").await?;
    caller.says(&deaf, "ready").await?;
    let ended = caller.data("terminate_process", json!({"process_id": deaf, "force": true})).await?;
    assert_eq!(ended["status"], "killed");
    Ok(())
}

#[tokio::test]
async fn what_takes_too_long_is_killed() -> Result<()> {
    let (_gateway, caller) = alone().await?;
    let (code, text) =
        caller.refusal("execute_shell", json!({"command": "sleep 1000", "timeout": 1})).await?;
    assert_eq!(code, INTERNAL);
    assert!(text.contains("did not end within 1 seconds and was killed"), "{text}");
    let started = caller.data("execute_command", json!({"command": "sleep 1000", "timeout": 1})).await?;
    caller.becomes(started["processId"].as_str().unwrap(), "killed").await?;
    Ok(())
}

#[tokio::test]
async fn no_more_than_twenty_run_in_a_session() -> Result<()> {
    let (gateway, caller) = alone().await?;
    for _ in 0..20 {
        caller.start("sleep 1000").await?;
    }
    let (code, text) = caller.refusal("execute_command", json!({"command": "true"})).await?;
    assert!(code == INTERNAL && text.contains("20 processes are running in this session"), "{text}");
    assert_eq!(session(&gateway, "another").output("echo free").await?, "free");
    let listed = caller.data("list_processes", json!({})).await?;
    assert_eq!(listed["total"], 20, "a refused one is not listed");
    Ok(())
}
