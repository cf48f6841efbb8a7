//! How long a caller waits, and what it hears meanwhile, where time stands still.

use std::sync::{Mutex, mpsc};

use moongate_core::{BoxFuture, Client, Principal, Version, peer};
use serde_json::{Value, json};
use tokio::time::sleep;

use super::{output::Output, run::State, *};

/// A process that runs, as far as anybody can tell.
struct Scene {
    process: Arc<Process>,
    _directory: tempfile::TempDir,
}

impl Scene {
    fn set() -> Self {
        let directory = tempfile::tempdir().unwrap();
        let output = directory.path().join("p");
        std::fs::create_dir(&output).unwrap();
        let session = Context::for_test(Principal::local(), "s", None, None).session_key();
        let output = Output::new(output);
        let process = Process::new("p".to_owned(), session, "x".to_owned(), output, std::time::UNIX_EPOCH);
        process.begin(1);
        Self { process: Arc::new(process), _directory: directory }
    }

    async fn ends_after(&self, time: Duration, exit_code: i32) {
        sleep(time).await;
        let status = if exit_code == 0 { Status::Finished } else { Status::Failed };
        self.process.finish(State { status, exit_code: Some(exit_code), ..self.process.state() });
    }
}

fn told(output: Result<ToolOutput, ToolError>) -> Value {
    let result: Value = output.unwrap().into_result().parse().unwrap();
    result["structuredContent"].clone()
}

#[tokio::test(start_paused = true)]
async fn a_command_that_fails_within_the_first_look_is_told_so_and_a_later_one_was_started() {
    for (time, code, status, output) in [
        (FIRST_LOOK / 2, 7, "failed", json!("oh")),
        (FIRST_LOOK / 2, 0, "started", Value::Null),
        (FIRST_LOOK * 2, 7, "started", Value::Null),
    ] {
        let scene = Scene::set();
        scene.process.output.stream(Source::Stderr).keep(&b"oh\n"[..], 100).await;
        let (looked, ()) = tokio::join!(look(Arc::clone(&scene.process)), scene.ends_after(time, code));
        let told = told(looked);
        assert_eq!((&told["status"], &told["output"]), (&json!(status), &output), "{time:?} {code}: {told}");
    }
}

/// Hears what a backend says on the way.
struct Ear(Mutex<mpsc::Sender<peer::Note>>);

impl peer::Link for Ear {
    fn notify(&self, note: peer::Note) {
        self.0.lock().unwrap().send(note).unwrap();
    }

    fn ask(&self, _questions: Vec<(Box<str>, peer::Ask)>) -> BoxFuture<'_, peer::Answers> {
        unreachable!("nobody is asked")
    }

    fn hang_up(&self) {}
}

#[tokio::test(start_paused = true)]
async fn who_waits_long_hears_that_the_command_runs() {
    let scene = Scene::set();
    let (sender, heard) = mpsc::channel();
    let client = Arc::new(Client::bare(Version::LATEST_LEGACY));
    let peer = Peer::new(client, Arc::new(Ear(Mutex::new(sender))));
    let (ended, ()) = tokio::join!(
        wait(Arc::clone(&scene.process), &peer),
        scene.ends_after(2 * TOLD_EVERY + Duration::from_secs(1), 0)
    );
    assert_eq!(told(ended)["status"], "finished");
    let notes: Vec<_> = heard.try_iter().collect();
    let expected = |seconds: u32| peer::Note::Progress {
        progress: seconds.into(),
        total: None,
        message: Some(format!("running for {seconds} s, 0 bytes of output")),
    };
    assert_eq!(notes, [expected(5), expected(10)]);
}
