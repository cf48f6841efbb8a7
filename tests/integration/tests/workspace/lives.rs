//! That nothing stays behind, and that what shall stay does.

use std::{path::Path, time::Duration};

use anyhow::{Context as _, Result};
use moongate_test_integration::waiting::eventually;
use moongate_test_support::{Gateway, Home};
use rustix::process::Signal;
use serde_json::json;
use tokio::time::Instant;

use crate::support::{Caller, session, start, yaml};

/// A child, one in a session of its own, one whose parent has ended, and one that cannot be asked to end; each writes its
/// id.
const FAMILY: &str = r#"
hold='echo $$ >> pids; while :; do sleep 1000; done'
sh -c "$hold" &
setsid sh -c "$hold" &
(setsid sh -c "$hold" &)
sh -c "trap '' TERM HUP INT; $hold" &
echo $$ >> pids
until [ $(wc -l < pids) = 5 ]; do sleep 0.05; done
echo all
while :; do sleep 1000; done
"#;

/// Whether a process runs; one that has ended and was not asked about does not.
pub(crate) fn is_alive(pid: &str) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// Starts the family, and tells its id and those of its processes.
async fn family(caller: &Caller) -> Result<(String, Vec<String>)> {
    let id = caller.start(FAMILY).await?;
    caller.says(&id, "all").await?;
    let pids: Vec<String> = caller.output("cat pids").await?.lines().map(str::to_owned).collect();
    anyhow::ensure!(pids.len() == 5 && pids.iter().all(|pid| is_alive(pid)), "{pids:?}");
    Ok((id, pids))
}

pub(crate) async fn all_gone(pids: &[String]) -> Result<()> {
    eventually("the end of all", async || Ok((!pids.iter().any(|pid| is_alive(pid))).then_some(()))).await
}

/// The directories with output that lie in a home.
fn outputs(home: &Home) -> Result<usize> {
    let path = home.path().join("data/moongate/workspace/output");
    let entries = std::fs::read_dir(&path).with_context(|| path.display().to_string())?;
    Ok(entries.flatten().filter(|entry| entry.path().is_dir()).count())
}

#[tokio::test]
async fn nothing_survives_a_gateway_that_is_killed() -> Result<()> {
    let mut gateway = start("").await?;
    let (_, pids) = family(&session(&gateway, "family")).await?;
    gateway.signal(Signal::KILL)?;
    let killed = Instant::now();
    gateway.wait(Duration::from_secs(5)).await?;
    all_gone(&pids).await?;
    assert!(killed.elapsed() < Duration::from_secs(2), "it took {:?}", killed.elapsed());
    // The next gateway removes what the dead one left, and not what a living one has.
    assert_eq!(outputs(gateway.home())?, 1);
    let living = Gateway::builder().config(&yaml("")).home(gateway.home()).start().await?;
    session(&living, "living").start("sleep 1000").await?;
    let third = Gateway::builder().config(&yaml("")).home(gateway.home()).start().await?;
    let third = session(&third, "third");
    third.start("sleep 1000").await?;
    eventually("the leftovers to go", async || Ok((outputs(gateway.home())? == 2).then_some(()))).await
}

#[tokio::test]
async fn nothing_survives_a_gateway_that_ends() -> Result<()> {
    let mut gateway = start("").await?;
    let (_, pids) = family(&session(&gateway, "family")).await?;
    gateway.stop().await?;
    all_gone(&pids).await?;
    assert_eq!(outputs(gateway.home())?, 0);
    Ok(())
}

#[tokio::test]
async fn a_process_takes_all_that_it_started_along() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "family");
    let (id, pids) = family(&caller).await?;
    caller.data("terminate_process", json!({"processId": id})).await?;
    all_gone(&pids).await
}

/// A server is not confined, so it can do to its supervisor what a command of the workspace cannot.
#[tokio::test]
async fn nothing_survives_a_supervisor_that_can_open_nothing() -> Result<()> {
    let directory = tempfile::tempdir()?;
    let pids = directory.path().join("pids");
    let script = format!(
        "prlimit --pid $PPID --nofile=0:0 || exit; setsid sleep 1000 & echo $! >> {0}; \
         (setsid sh -c 'sleep 1000 & echo $! >> {0}; wait' &); until [ $(wc -l < {0}) -ge 2 ]; do sleep 0.05; done",
        pids.display()
    );
    let server = json!({"command": "/bin/sh", "args": ["-c", script]});
    let gateway = Gateway::start(&format!("upstreams: {}\n", json!({"blinding": server}))).await?;
    // Which starts it, for what it has to offer.
    gateway.home().run(&["tools", "list"]).await?;
    eventually("the end of all", async || {
        let text = std::fs::read_to_string(&pids).unwrap_or_default();
        Ok((text.lines().count() >= 2 && !text.lines().any(is_alive)).then_some(()))
    })
    .await
}

#[tokio::test]
async fn a_time_limit_takes_all_that_it_started_along() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "family");
    let started = caller.data("execute_command", json!({"command": FAMILY, "timeout": 2})).await?;
    let id = started["processId"].as_str().context("it has an id")?;
    caller.says(id, "all").await?;
    let pids: Vec<String> = caller.output("cat pids").await?.lines().map(str::to_owned).collect();
    caller.becomes(id, "killed").await?;
    all_gone(&pids).await
}

#[tokio::test]
async fn a_caller_who_leaves_ends_what_it_waits_for() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "leaver");
    let waiting = caller.run("echo $$ > pid; while :; do sleep 1000; done");
    let other = caller.clone();
    let pid = tokio::select! {
        ended = waiting => anyhow::bail!("it does not end: {ended:?}"),
        pid = async { other.output("until [ -s pid ]; do sleep 0.05; done; cat pid").await } => pid?,
    };
    // The request was dropped with the `select!`, and with it the connection.
    eventually("its end", async || Ok((!is_alive(&pid)).then_some(()))).await
}

#[tokio::test]
async fn processes_survive_a_reload() -> Result<()> {
    let gateway = start("").await?;
    let caller = session(&gateway, "reload");
    let id = caller.start("echo before; while [ ! -e go ]; do sleep 0.05; done; echo after").await?;
    caller.says(&id, "before").await?;
    gateway.write_config(&yaml("limits: {running: 1}"))?;
    eventually("the new limit", async || {
        let result = caller.call("execute_command", json!({"command": "true"})).await?;
        Ok((result["isError"] == json!(true)).then_some(()))
    })
    .await?;
    caller.becomes(&id, "running").await?;
    std::fs::write(directory_of(&gateway)?.join("go"), "")?;
    let ended = caller.becomes(&id, "finished").await?;
    assert_eq!(ended["output"], "before\nafter");
    Ok(())
}

/// The only room there is.
fn directory_of(gateway: &Gateway) -> Result<std::path::PathBuf> {
    let root = gateway.home().path().join("data/moongate/workspace");
    let is_room = |path: &Path| path.file_name().is_some_and(|name| name.len() == 64);
    let rooms = std::fs::read_dir(&root)?.flatten().map(|entry| entry.path());
    rooms.into_iter().find(|path| is_room(path)).context("there is a room")
}
