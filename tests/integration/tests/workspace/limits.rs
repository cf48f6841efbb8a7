//! What a command may take, and that others do not notice when it wants more.

use std::{os::unix::fs::MetadataExt as _, path::Path, time::Duration};

use anyhow::Result;
use moongate_test_integration::waiting::eventually;
use serde_json::{Value, json};
use tokio::time::{Instant, timeout};

use crate::support::{Caller, session, start};

/// An answer that takes longer is none.
const PROMPT: Duration = Duration::from_secs(10);

/// Each in a directory that is not its supervisor's, so that its processes can be told. The bomb goes off in waves, which
/// are over as fast as they come; the crowd stays as large as it can get.
const BOMB: &str = "mkdir bomb && cd bomb; bomb() { bomb | bomb & }; bomb; while :; do :; done";
const CROWD: &str = "mkdir crowd && cd crowd && yes | xargs -P 1000 -n 1 sh -c 'sleep 1000'";
/// tail keeps the last line, and there is no end of it.
const HOG: &str = "head -c 1000000000 /dev/zero | tail -n 1 | wc -c";

/// How many processes work in a directory.
fn working_in(directory: &Path) -> usize {
    let identity = |path: &Path| std::fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
    let Some(wanted) = identity(directory) else { return 0 };
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    processes.filter(|process| identity(&process.path().join("cwd")) == Some(wanted)).count()
}

/// Waits until a process has ended in whatever way.
async fn over(caller: &Caller, id: &str) -> Result<Value> {
    eventually(&format!("the end of {id}"), async || {
        let polled = caller.data("poll_process", json!({"processId": id})).await?;
        Ok((polled["status"] != "running").then_some(polled))
    })
    .await
}

#[tokio::test]
async fn a_fork_bomb_and_a_memory_hog_of_one_session_are_contained_and_others_go_on() -> Result<()> {
    let gateway = start("limits: {processes: 50, memory: 64MiB}").await?;
    let bad = session(&gateway, "bad");
    let good = [session(&gateway, "good"), session(&gateway, "better")];
    let directory = bad.directory().await?;
    let count = |name: &str| working_in(&directory.join(name));
    let doctor = gateway.home().run(&["doctor"]).await?;
    let exact = String::from_utf8_lossy(&doctor.stdout).contains("processes: 50, by cgroup");
    let hog = bad.start(HOG).await?;
    let (bomb, crowd) = (bad.start(BOMB).await?, bad.start(CROWD).await?);
    let mut most = 0;
    for _ in 0..10 {
        for good in &good {
            assert_eq!(timeout(PROMPT, good.output("echo fine")).await??, "fine");
            most = most.max(count("bomb")).max(count("crowd"));
        }
    }
    if exact {
        eventually("a crowd", async || Ok((count("crowd") > 40).then_some(()))).await?;
        most = most.max(count("crowd"));
        assert!(most <= 50, "{most} processes");
    } else {
        // Nothing holds it; it is killed at the next count.
        over(&bad, &crowd).await?;
    }
    for id in [&bomb, &crowd] {
        let ended = bad.data("terminate_process", json!({"processId": id, "force": true})).await?;
        assert!(["killed", "failed"].contains(&ended["status"].as_str().unwrap()), "{ended}");
    }
    eventually("the end of both", async || Ok((count("bomb") + count("crowd") == 0).then_some(()))).await?;
    let ended = over(&bad, &hog).await?;
    assert_ne!(ended["output"], "1000000000", "it got all it wanted: {ended}");
    assert_eq!(timeout(PROMPT, bad.output("echo again")).await??, "again");
    Ok(())
}

#[tokio::test]
async fn a_flood_of_output_is_cut() -> Result<()> {
    let gateway = start("limits: {output: 1MiB}").await?;
    let caller = session(&gateway, "flood");
    let ended = caller.run("yes | head -c 50000000; echo end >&2").await?;
    assert_eq!((&ended["exit_code"], &ended["stderr"]), (&json!(0), &json!("end")), "it is not held up");
    assert!(ended["stdout_size"].as_u64().unwrap() < (1 << 20) + 100, "{}", ended["stdout_size"]);
    let stdout = ended["stdout"].as_str().unwrap();
    assert!(stdout.ends_with("[truncated: only the first 1048576 bytes are kept]"), "{stdout}");
    Ok(())
}

#[tokio::test]
async fn files_time_and_descriptors_are_limited() -> Result<()> {
    let yaml = "limits: {file_size: 1MiB, cpu: 1s, open_files: 64}";
    let gateway = start(yaml).await?;
    let caller = session(&gateway, "limits");
    let written = caller.run("head -c 3000000 /dev/zero > big; wc -c < big").await?;
    assert_eq!(written["stdout"].as_str().unwrap().lines().last().unwrap().trim(), "1048576");
    assert_eq!(caller.output("ulimit -n").await?, "64");
    let begun = Instant::now();
    let ended = caller.run("while :; do :; done").await?;
    assert_eq!(ended["status"], "failed", "{ended}");
    assert!(begun.elapsed() < Duration::from_secs(20), "it was ended by its processor time");
    Ok(())
}
