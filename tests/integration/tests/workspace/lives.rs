//! That nothing stays behind, and that what shall stay does.

use std::{
    path::{Path, PathBuf},
    time::Duration,
};

use anyhow::{Context as _, Result};
use moongate_test_integration::{caller, waiting::eventually};
use moongate_test_support::{Gateway, Home, LegacySession, ModernClient, PATIENCE};
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

/// The room of a session that comes and goes with its client, and the client.
async fn passing(gateway: &Gateway) -> Result<(LegacySession, PathBuf)> {
    let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    let result = session.call("execute_shell", json!({"command": "mkdir -p a/b; touch a/b/c; pwd"})).await?;
    let room = result["structuredContent"]["stdout"].as_str().context("it says where it is")?.into();
    Ok((session, room))
}

/// One room that was named and one that was not, each with something in it.
async fn lived_in(gateway: &Gateway) -> Result<[PathBuf; 2]> {
    let mut rooms = Vec::new();
    for caller in [session(gateway, "named"), Caller(ModernClient::new(&gateway.client()))] {
        rooms.push(caller.output("touch kept; pwd").await?.into());
    }
    rooms.try_into().map_err(|_| anyhow::anyhow!("two rooms"))
}

#[tokio::test]
async fn rooms_that_nobody_can_name_again_go_with_the_gateway() -> Result<()> {
    let mut gateway = start("").await?;
    let (_client, room) = passing(&gateway).await?;
    let kept = lived_in(&gateway).await?;
    gateway.stop().await?;
    assert!(!room.exists(), "nobody can reach it");
    assert!(kept.iter().all(|room| room.join("kept").exists()), "somebody can reach them");
    let site = room.parent().context("it lies beside others")?;
    let left = std::fs::read_dir(site)?.flatten().filter(|entry| entry.path().extension().is_some());
    assert_eq!(left.count(), 0, "nothing waits for its removal");
    Ok(())
}

#[tokio::test]
async fn rooms_that_a_killed_gateway_left_go_with_the_next_and_those_of_a_living_one_stay() -> Result<()> {
    let mut killed = start("").await?;
    let living = Gateway::builder().config(&yaml("")).home(killed.home()).start().await?;
    let ((_first, left), (_second, used)) = (passing(&killed).await?, passing(&living).await?);
    let kept = lived_in(&killed).await?;
    killed.signal(Signal::KILL)?;
    killed.wait(Duration::from_secs(5)).await?;
    assert!(left.exists());
    let _next = Gateway::builder().config(&yaml("")).home(killed.home()).start().await?;
    eventually("what was left to go", async || Ok((!left.exists()).then_some(()))).await?;
    assert!(used.join("a/b/c").exists(), "its session is not over");
    assert!(kept.iter().all(|room| room.join("kept").exists()), "somebody can reach them");
    Ok(())
}

#[tokio::test]
async fn a_gateway_that_hands_over_takes_the_rooms_along_that_nobody_can_name_again() -> Result<()> {
    let mut old = start("").await?;
    let (client, room) = passing(&old).await?;
    let kept = lived_in(&old).await?;
    let new = Gateway::builder().config(&yaml("")).home(old.home()).arg("--upgrade").start().await?;
    assert!(old.wait(PATIENCE).await?.success(), "the old gateway ends well");
    assert!(!room.exists(), "its session is over");
    assert_eq!(client.client().delete().send().await?.status, 404);
    // Only now: who came before may have been let in by either of them.
    let (_second, used) = passing(&new).await?;
    assert!(used.join("a/b/c").exists());
    assert!(kept.iter().all(|room| room.join("kept").exists()), "somebody can reach them");
    Ok(())
}

#[tokio::test]
async fn who_is_no_longer_admitted_keeps_no_processes() -> Result<()> {
    let gateway = start("callers: scope").await?;
    let (mine, theirs) = (
        session(&gateway, "mine"),
        Caller(ModernClient::new(&caller::issued(&gateway, "ann", "control").await?)),
    );
    let own = mine.start("sleep 1000").await?;
    let (_, pids) = family(&theirs).await?;
    gateway.write_config(&yaml("callers: local"))?;
    all_gone(&pids).await?;
    mine.becomes(&own, "running").await?;
    Ok(())
}

#[tokio::test]
async fn a_session_that_ends_while_the_workspace_is_switched_off_takes_its_room_along() -> Result<()> {
    let gateway = start("").await?;
    let (client, room) = passing(&gateway).await?;
    let kept = lived_in(&gateway).await?;
    gateway.write_config(&yaml("enabled: false"))?;
    eventually("the workspace to be gone", async || {
        let listed = client.list("tools/list").await?.to_string();
        Ok((!listed.contains("execute_shell")).then_some(()))
    })
    .await?;
    assert!(room.join("a/b/c").exists(), "its session is not over");
    assert_eq!(client.delete().await?.status, 204);
    eventually("the end of the room", async || Ok((!room.exists()).then_some(()))).await?;
    assert!(kept.iter().all(|room| room.join("kept").exists()));
    Ok(())
}

/// The only room there is.
fn directory_of(gateway: &Gateway) -> Result<PathBuf> {
    let root = gateway.home().path().join("data/moongate/workspace");
    let is_room = |path: &Path| path.file_name().is_some_and(|name| name.len() == 64);
    let rooms = std::fs::read_dir(&root)?.flatten().map(|entry| entry.path());
    rooms.into_iter().find(|path| is_room(path)).context("there is a room")
}
