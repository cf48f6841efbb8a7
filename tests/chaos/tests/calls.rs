//! Servers that go wrong in the middle of a call.

use anyhow::Result;
use moongate_test_chaos::{EVERYWHERE, PROCESSES, REMOTES, eventually, play};
use serde_json::{Value, json};

#[tokio::test]
async fn a_process_that_dies_in_a_call_fails_that_call_and_is_started_again() -> Result<()> {
    play(&PROCESSES, &[], "", async |scene| {
        for told in scene.call_fails("crash", &json!({})).await? {
            assert_eq!(told, "the process exited with status 1");
        }
        assert!(scene.requests("tools/call", "unavailable").await? >= 2.0);
        assert!(scene.restarts().await? >= 1.0);
        assert!(scene.up().await? < 1.0, "nobody needs it now");
        // Whoever lists the tools starts it again.
        scene.doctor_shows("idle|starting|up", "the process exited with status 1").await?;
        scene.echoes().await?;
        assert!((scene.up().await? - 1.0).abs() < f64::EPSILON);
        let shown = scene.doctor_shows("up", "the process exited with status 1").await?;
        assert!(shown.get("starts").and_then(Value::as_u64) > Some(1), "{shown}");
        let report = scene.doctor(false).await?;
        assert!(report.contains("last error: the process exited with status 1"), "{report}");
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_remote_server_that_dies_in_a_call_is_named_then_and_afterwards() -> Result<()> {
    play(&REMOTES, &[], "", async |scene| {
        scene.call_fails("crash", &json!({})).await?;
        assert!(scene.requests("tools/call", "unavailable").await? >= 1.0);
        for told in scene.call_fails("echo", &json!({"text": "anybody?"})).await? {
            assert!(told.starts_with("cannot connect to 127.0.0.1:"), "{told}");
        }
        assert!(scene.restarts().await? >= 1.0);
        assert!(scene.up().await? < 1.0);
        // What the server's death ended beside the call may be noted after the calls that found it dead.
        eventually("the failure of the last call to be shown", async || {
            scene.call_fails("echo", &json!({"text": "anybody?"})).await?;
            Ok(scene.last_error().await?.contains("cannot connect to 127.0.0.1:").then_some(()))
        })
        .await?;
        scene.doctor_shows("down", "cannot connect to 127.0.0.1:").await?;
        Ok(())
    })
    .await
}

#[tokio::test]
async fn a_server_that_never_answers_is_waited_for_as_long_as_configured() -> Result<()> {
    play(&EVERYWHERE, &[], "timeout: 700ms", async |scene| {
        for told in scene.call_fails("wait", &json!({})).await? {
            assert_eq!(told, "the call took longer than 0.7 s and was cancelled");
        }
        assert!((scene.requests("tools/call", "timeout").await? - 2.0).abs() < f64::EPSILON);
        // It was told, and goes on with what else there is.
        eventually("both calls to be cancelled", async || {
            let [first, _] = scene.call("cancelled", &json!({})).await?;
            Ok((moongate_test_chaos::text_of(&first) == "2").then_some(()))
        })
        .await?;
        scene.doctor_shows("up", "it did not answer tools/call within 0.").await?;
        scene.echoes().await
    })
    .await
}

#[tokio::test]
async fn a_second_answer_is_heard_by_nobody() -> Result<()> {
    play(&EVERYWHERE, &["answer-twice"], "", async |scene| {
        for _ in 0..3 {
            scene.echoes().await?;
        }
        assert!((scene.requests("tools/call", "").await? - 6.0).abs() < f64::EPSILON);
        if scene.is_process() {
            return scene.doctor_notes("up", "", "answers that nobody waited for").await;
        }
        // Over HTTP nobody listens after the first.
        scene.doctor_shows("up", "").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn an_answer_to_something_else_is_no_answer() -> Result<()> {
    play(&PROCESSES, &["wrong-id"], "timeout: 700ms", async |scene| {
        // On a pipe the right one may still come.
        for told in scene.call_fails("echo", &json!({"text": "me?"})).await? {
            assert_eq!(told, "the call took longer than 0.7 s and was cancelled");
        }
        assert!((scene.requests("tools/call", "timeout").await? - 2.0).abs() < f64::EPSILON);
        let error = "it did not answer tools/call within 0.";
        scene.doctor_notes("up", error, "answers that nobody waited for").await
    })
    .await?;
    play(&REMOTES, &["wrong-id"], "", async |scene| {
        for told in scene.call_fails("echo", &json!({"text": "me?"})).await? {
            assert_eq!(told, "the server answered another request than was asked");
        }
        assert!((scene.requests("tools/call", "unavailable").await? - 2.0).abs() < f64::EPSILON);
        scene.doctor_shows("up", "the server answered another request than was asked").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn garbage_before_an_answer_is_overlooked() -> Result<()> {
    play(&EVERYWHERE, &["garbage"], "", async |scene| {
        scene.echoes().await?;
        assert!((scene.up().await? - 1.0).abs() < f64::EPSILON, "and the connection stays");
        let note = if scene.is_process() {
            "lines on standard output that are not MCP"
        } else {
            "messages of the server belonged to no request and were dropped"
        };
        scene.doctor_notes("up", "", note).await
    })
    .await
}

#[tokio::test]
async fn a_message_without_measure_is_not_read_to_its_end() -> Result<()> {
    play(&EVERYWHERE, &["long-line=104857600"], "", async |scene| {
        for told in scene.call_fails("echo", &json!({"text": "briefly"})).await? {
            assert!(told.contains("16 MiB") || told.contains("16777216"), "{told}");
        }
        assert!(scene.requests("tools/call", "unavailable").await? >= 2.0);
        // A pipe is of no use after it; over HTTP that was one connection of many.
        let state = if scene.is_process() { "idle|starting|up" } else { "up" };
        scene.doctor_shows(state, "longer than 16777216 bytes").await.map(drop)
    })
    .await
}

#[tokio::test]
async fn a_flood_of_notifications_drowns_nobody() -> Result<()> {
    play(&EVERYWHERE, &["flood"], "timeout: 1s", async |scene| {
        for told in scene.call_fails("wait", &json!({})).await? {
            assert_eq!(told, "the call took longer than 1 s and was cancelled");
        }
        scene.doctor_shows("up", "it did not answer tools/call within 1.").await.map(drop)
    })
    .await
}
