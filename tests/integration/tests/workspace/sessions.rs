//! Whose process is whose.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use futures_util::future::try_join_all;
use moongate_test_integration::{caller, waiting::eventually};
use moongate_test_support::{Gateway, LegacySession, ModernClient};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use crate::{
    lives::{all_gone, is_alive},
    support::{Caller, session, start, yaml},
};

const DENIED: (i64, &str) = (-32603, "Access denied: process belongs to different session");

#[tokio::test]
async fn ctx_t9_a_session_polls_its_own_process() -> Result<()> {
    let gateway = start("").await?;
    let (first, second) = (session(&gateway, "sess_1"), session(&gateway, "sess_2"));
    let id = first.start("echo one; sleep 1000").await?;
    second.start("echo two; sleep 1000").await?;
    let polled = first.says(&id, "one").await?;
    assert_eq!((&polled["processId"], &polled["status"]), (&json!(id), &json!("running")));
    Ok(())
}

#[tokio::test]
async fn ctx_t10_another_session_cannot_poll_it() -> Result<()> {
    let gateway = start("").await?;
    let (first, second) = (session(&gateway, "sess_1"), session(&gateway, "sess_2"));
    let id = first.start("sleep 1000").await?;
    let (code, text) = second.refusal("poll_process", json!({"processId": id})).await?;
    assert_eq!((code, text.as_str()), (-32602, "No processes in this session"));
    second.start("sleep 1000").await?;
    for (tool, arguments) in [
        ("poll_process", json!({"processId": id})),
        ("read_process_output", json!({"processId": id, "stream": "stdout"})),
        ("terminate_process", json!({"processId": id, "force": true})),
    ] {
        let (code, text) = second.refusal(tool, arguments).await?;
        assert_eq!((code, text.as_str()), DENIED, "{tool}");
    }
    let listed = second.data("list_processes", json!({})).await?;
    assert_eq!(listed["total"], 1);
    first.becomes(&id, "running").await?;
    Ok(())
}

#[tokio::test]
async fn the_processes_of_another_principal_are_unknown() -> Result<()> {
    let gateway = start("callers: scope").await?;
    let mine = session(&gateway, "same").start("sleep 1000").await?;
    let other = Caller(ModernClient::new(&caller::issued(&gateway, "ann", "control").await?));
    other.start("sleep 1000").await?;
    let (code, text) = other.refusal("poll_process", json!({"processId": mine})).await?;
    assert_eq!((code, text.as_str()), (-32602, "Process not found"));
    Ok(())
}

#[tokio::test]
async fn a_hundred_processes_of_twenty_sessions_keep_apart_and_end_with_a_killed_gateway() -> Result<()> {
    let mut gateway = start("").await?;
    let sessions: Vec<_> = (0..20).map(|number| session(&gateway, &format!("s{number}"))).collect();
    let starts = sessions.iter().enumerate().flat_map(|(number, caller)| {
        (0..5).map(move |each| async move {
            let command = format!("sleep 1000 & echo $PPID $! $$; echo {number}-{each}; wait");
            let id = caller.start(&command).await?;
            anyhow::Ok((number, each, id))
        })
    });
    let started = try_join_all(starts).await?;
    assert_eq!(started.len(), 100);
    let checks = started.iter().map(|(number, each, id)| {
        let (own, other) = (&sessions[*number], &sessions[(number + 1) % sessions.len()]);
        async move {
            let said = own.says(id, &format!("{number}-{each}")).await?;
            let pids = said["output"].as_str().and_then(|output| output.lines().next()).unwrap_or_default();
            let pids: Vec<_> = pids.split(' ').map(str::to_owned).collect();
            let (code, text) = other.refusal("poll_process", json!({"processId": id})).await?;
            assert_eq!((code, text.as_str()), DENIED);
            anyhow::Ok(pids)
        }
    });
    let pids = try_join_all(checks).await?.concat();
    for caller in &sessions {
        let listed = caller.data("list_processes", json!({})).await?;
        assert_eq!((&listed["total"], &listed["running"]), (&json!(5), &json!(5)));
    }
    // Each with its supervisor and a child.
    assert_eq!(pids.iter().filter(|pid| is_alive(pid)).count(), 300);
    gateway.signal(Signal::KILL)?;
    let killed = Instant::now();
    all_gone(&pids).await?;
    assert!(killed.elapsed() < Duration::from_secs(2), "it took {:?}", killed.elapsed());
    gateway.wait(Duration::from_secs(5)).await?;
    Ok(())
}

#[tokio::test]
async fn the_end_of_a_session_ends_its_processes_and_its_directory() -> Result<()> {
    let gateway = start("").await?;
    let legacy = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    let result = legacy.call("execute_shell", json!({"command": "pwd"})).await?;
    let directory = std::path::PathBuf::from(result["structuredContent"]["stdout"].as_str().unwrap());
    let stubborn = "trap '' TERM; echo $$ > pid; while :; do sleep 1000; done";
    legacy.call("execute_command", json!({"command": stubborn})).await?;
    let result =
        legacy.call("execute_shell", json!({"command": "until [ -s pid ]; do :; done; cat pid"})).await?;
    let pid = result["structuredContent"]["stdout"].as_str().unwrap().to_owned();
    assert!(directory.is_dir() && is_alive(&pid));
    assert_eq!(legacy.delete().await?.status, 204);
    moongate_test_integration::waiting::eventually("the end of the session", async || {
        Ok((!is_alive(&pid) && !directory.exists()).then_some(()))
    })
    .await
}

/// Opens a session, runs `command` in it, and tells where.
async fn passing(gateway: &Gateway, tool: &str, command: &str) -> Result<(LegacySession, PathBuf)> {
    let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    let result = session.call("execute_shell", json!({"command": "pwd"})).await?;
    let directory = result["structuredContent"]["stdout"].as_str().context("it says where it is")?.into();
    session.call(tool, json!({"command": command})).await?;
    Ok((session, directory))
}

async fn gone(directory: &Path) -> Result<()> {
    eventually("the end of the session", async || Ok((!directory.exists()).then_some(()))).await
}

#[tokio::test]
async fn a_session_with_a_running_process_does_not_expire_and_does_once_it_has_ended() -> Result<()> {
    let settings = format!("{}sessions: {{idle_timeout: 1s, sweep_interval: 50ms}}\n", yaml(""));
    let gateway = Gateway::start(&settings).await?;
    let build = "echo $$ > pid; until [ -e go ]; do sleep 0.05; done; echo built > done";
    let (building, directory) = passing(&gateway, "execute_command", build).await?;
    // Each was used after it, and is over: so would it be.
    for _ in 0..2 {
        let (_idle, other) = passing(&gateway, "execute_shell", "true").await?;
        gone(&other).await?;
    }
    let pid = std::fs::read_to_string(directory.join("pid"))?;
    assert!(is_alive(pid.trim()), "it was ended with its session");
    let listed = building.call("list_processes", json!({"status_filter": "running"})).await?;
    assert_eq!(listed["structuredContent"]["running"], 1, "{listed}");
    std::fs::write(directory.join("go"), "")?;
    // Nobody asks again: that the process is over is enough.
    gone(&directory).await
}

/// The trap of one lock for all: the command goes on until everybody else was answered.
#[tokio::test]
async fn nobody_waits_for_a_command_that_takes_long_not_even_in_its_own_session() -> Result<()> {
    let gateway = start("").await?;
    let (busy, other) = (session(&gateway, "busy"), session(&gateway, "other"));
    let long = busy.run("touch begun; until [ -e go ]; do sleep 0.05; done; echo went");
    let meanwhile = async {
        eventually("its beginning", async || {
            let listed = busy.data("search_files", json!({"pattern": "begun"})).await?;
            Ok((listed["total"] == 1).then_some(()))
        })
        .await?;
        for caller in [&other, &busy] {
            caller.data("write_file", json!({"path": "f", "content": "1\n2\n"})).await?;
            let edit = json!({"path": "f", "replacements": [{"start_line": 2, "new_content": "two"}]});
            caller.data("replace_lines_in_file", edit).await?;
            assert_eq!(caller.output("cat f").await?, "1\ntwo");
            let id = caller.start("sleep 1000").await?;
            caller.becomes(&id, "running").await?;
            caller.data("terminate_process", json!({"processId": id, "force": true})).await?;
            caller.data("export_zip", json!({"files": ["f"]})).await?;
        }
        busy.data("write_file", json!({"path": "go", "content": ""})).await
    };
    let (ended, answered) = tokio::join!(long, meanwhile);
    answered?;
    assert_eq!(ended?["stdout"], "went");
    Ok(())
}
