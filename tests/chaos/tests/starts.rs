//! Servers that cannot be used at all, or not yet.

use anyhow::Result;
use moongate_test_chaos::{
    Bad, EVERYWHERE, LEGACY, PROCESSES, Place, REMOTES, Scene, eventually, play, play_with,
};
use rustix::process::Signal;
use serde_json::json;

/// Calls a server that cannot be used: both callers are told `expected`, and the metrics that nothing is connected.
async fn cannot_be_used(places: &[Place], how: &str, expected: &str) -> Result<()> {
    play(places, &[how], "", async |scene| {
        for told in scene.call_fails("echo", &json!({"text": "hello?"})).await? {
            assert!(told.contains(expected), "{told}");
        }
        assert!(scene.up().await? < 1.0);
        scene.doctor_shows("down", expected).await?;
        let report = scene.doctor(true).await?;
        let line = report.lines().find(|line| line.contains("bad ")).unwrap_or_default();
        assert!(line.contains("down") && line.contains(expected), "{report}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_page_is_not_a_protocol() -> Result<()> {
    cannot_be_used(&REMOTES, "wrong-type", "text/html").await
}

#[tokio::test]
async fn redirects_are_not_followed() -> Result<()> {
    cannot_be_used(&REMOTES, "redirect", "HTTP status 307").await
}

#[tokio::test]
async fn a_server_that_wants_credentials_says_so() -> Result<()> {
    cannot_be_used(&REMOTES, "http-status=401", "HTTP status 401").await
}

#[tokio::test]
async fn a_server_that_is_broken_says_so() -> Result<()> {
    cannot_be_used(&REMOTES, "http-status=503", "HTTP status 503").await
}

#[tokio::test]
async fn a_server_that_hangs_up_after_the_head_is_lost() -> Result<()> {
    cannot_be_used(&REMOTES, "hang-up", "was lost before the answer").await
}

#[tokio::test]
async fn a_server_that_refuses_the_handshake_is_quoted() -> Result<()> {
    let places = [Place::Process(LEGACY), Place::Remote(LEGACY)];
    cannot_be_used(&places, "refuse-initialize", "Unsupported protocol version").await
}

#[tokio::test]
async fn a_process_that_exits_at_what_it_does_not_know_is_started_again_without() -> Result<()> {
    play(&[Place::Process(LEGACY)], &["exit-on-discover"], "", async |scene| {
        scene.echoes().await?;
        assert!((scene.up().await? - 1.0).abs() < f64::EPSILON);
        scene.doctor_shows("up", "").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_command_that_does_not_exist_is_named() -> Result<()> {
    for signal in [Signal::TERM, Signal::KILL] {
        play_with(Bad::command("no-such-server", &[], ""), signal, async |scene| {
            for told in scene.call_fails("echo", &json!({})).await? {
                assert!(told.contains("no-such-server"), "{told}");
            }
            assert!(scene.up().await? < 1.0);
            scene.doctor_shows("down", "no-such-server").await.map(drop)
        })
        .await?;
    }
    Ok(())
}

#[tokio::test]
async fn a_command_that_exits_at_once_leaves_its_last_words() -> Result<()> {
    let script = "echo >&2 'no licence found'; exit 7";
    play_with(Bad::command("sh", &["-c", script], ""), Signal::TERM, async |scene| {
        for told in scene.call_fails("echo", &json!({})).await? {
            assert!(told.contains("exited with status 7") && told.contains("no licence found"), "{told}");
        }
        scene.doctor_shows("down", "no licence found").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn nobody_waits_longer_than_configured_for_a_server_that_says_nothing() -> Result<()> {
    play(&EVERYWHERE, &["silent"], "list_timeout: 300ms", async |scene| {
        for told in scene.call_fails("echo", &json!({})).await? {
            assert_eq!(told, "it has not answered yet");
        }
        assert!(scene.up().await? < 1.0);
        scene.doctor_shows("starting", "").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_server_that_starts_slowly_is_listed_when_it_is_there() -> Result<()> {
    // Longer than the lists wait, and than opening the scene takes.
    let slow = ["slow-start=4000"];
    play(&PROCESSES, &slow, "list_timeout: 100ms", is_listed_later).await
}

async fn is_listed_later(scene: &Scene) -> Result<()> {
    let mut changes = scene.legacy.listen(None).await?;
    for told in scene.call_fails("echo", &json!({})).await? {
        assert_eq!(told, "it has not answered yet");
    }
    scene.doctor_shows("starting", "").await?;
    let announced = changes.message_where(|message| message["method"] == "notifications/tools/list_changed");
    scene.while_others_answer(announced).await??;
    eventually("the tools to be listed", async || {
        let tools = scene.modern.list("tools/list").await?;
        Ok(tools.to_string().contains("bad__echo").then_some(()))
    })
    .await?;
    scene.echoes().await?;
    scene.doctor_shows("up", "").await.map(drop)
}
