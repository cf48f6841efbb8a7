//! Small servers as scripts, and what the tests ask of them.

use std::{
    path::{Path, PathBuf},
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::StreamExt as _;
use moongate_core::task::Group;
use moongate_upstream::{
    process::{Launcher, Spec},
    transport::{Dial as _, Event, Exchange, Fault, Inbound, Outgoing, Transport},
};
use moongate_wire::{Message, Raw, Version, write};
use serde_json::Value;
use tempfile::TempDir;
use tokio::{io::AsyncReadExt as _, net::unix::pipe, sync::Notify};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(30);

/// A server in Python that answers each request with what it was sent, and has a few tricks.
const ECHO: &str = r#"
import json, os, signal, sys, time
def say(message):
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()
def answer(id, result):
    say({"jsonrpc": "2.0", "id": id, "result": result})
def serve():
    for line in sys.stdin:
        message = json.loads(line)
        trick = globals().get(message.get("method", "").replace("/", "_"))
        if trick:
            trick(message)
        elif "id" in message:
            answer(message["id"], message)
"#;

/// Keeps what a server says outside exchanges.
#[derive(Default)]
pub(crate) struct Ear {
    heard: Mutex<Vec<Message>>,
    more: Notify,
}

impl Inbound for Ear {
    fn hear(&self, message: Message) {
        self.heard.lock().unwrap().push(message);
        self.more.notify_one();
    }
}

impl Ear {
    /// The next message.
    pub(crate) async fn next(&self) -> Message {
        within(async {
            loop {
                let first = {
                    let mut heard = self.heard.lock().unwrap();
                    (!heard.is_empty()).then(|| heard.remove(0))
                };
                match first {
                    Some(message) => return message,
                    None => self.more.notified().await,
                }
            }
        })
        .await
    }
}

/// A server that runs.
pub(crate) struct Server {
    pub(crate) connection: Arc<dyn Transport>,
    pub(crate) ear: Arc<Ear>,
    pub(crate) tasks: Group,
}

impl Server {
    pub(crate) async fn start(spec: Spec) -> Self {
        Self::try_start(spec).await.unwrap()
    }

    pub(crate) async fn try_start(spec: Spec) -> Result<Self, Fault> {
        let (ear, tasks) = (Arc::new(Ear::default()), Group::new());
        let inbound: Arc<dyn Inbound> = Arc::<Ear>::clone(&ear);
        let connection = within(Launcher::new(spec, tasks.clone()).dial(inbound)).await?;
        Ok(Self { connection, ear, tasks })
    }

    pub(crate) fn ask(&self, id: i64, method: &'static str) -> Exchange {
        self.ask_with(id, method, &serde_json::json!({}))
    }

    pub(crate) fn ask_with(&self, id: i64, method: &'static str, params: &Value) -> Exchange {
        let version = Some(Version::LATEST_LEGACY);
        let params = Raw::of(params);
        self.connection.request(Outgoing {
            id,
            method,
            message: write::request(&id.into(), method, &params),
            version,
            name: None,
            param_headers: Vec::new(),
            undeclared: Vec::new(),
        })
    }

    /// The process between us and the command.
    pub(crate) fn supervisor(&self) -> String {
        let pid = self.connection.diagnosis().pid.unwrap();
        let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        status.lines().find_map(|line| line.strip_prefix("PPid:")).unwrap().trim().to_owned()
    }

    pub(crate) async fn closed(&self) -> Fault {
        within(self.connection.closed()).await
    }

    pub(crate) async fn close(&self, grace: Duration) {
        within(self.connection.close(grace)).await;
    }
}

/// Fails the test if it takes too long.
pub(crate) async fn within<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(PATIENCE, work).await.expect("it takes too long")
}

/// The next event of an exchange.
pub(crate) async fn next(exchange: &mut Exchange) -> Event {
    within(exchange.next()).await.expect("an exchange has an end")
}

/// The result of an exchange, which is its next event.
pub(crate) async fn result(exchange: &mut Exchange) -> Value {
    match next(exchange).await {
        Event::Answer(answer) => answer.outcome.unwrap().parse().unwrap(),
        event => panic!("{event:?}"),
    }
}

/// Why there was no answer, which is the next event.
pub(crate) async fn fault(exchange: &mut Exchange) -> Fault {
    match next(exchange).await {
        Event::Lost(fault) => fault,
        event => panic!("{event:?}"),
    }
}

/// The program with the supervisor, which cargo builds beside the tests.
pub(crate) fn launcher() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    let path = test.ancestors().nth(2).unwrap().join("examples/launch");
    assert!(path.is_file(), "{} is missing: build all targets of the package", path.display());
    path
}

/// A directory with a server in Python whose tricks are `tricks`, and how to run it.
pub(crate) fn python(directory: &TempDir, tricks: &str) -> Spec {
    let path = directory.path().join("server.py");
    let start = if tricks.contains("serve()") { "" } else { "serve()" };
    std::fs::write(&path, format!("{ECHO}\n{tricks}\n{start}\n")).unwrap();
    program("python3", &["-u", path.to_str().unwrap()])
}

/// The same in sh.
pub(crate) fn shell(script: &str, arguments: &[&str]) -> Spec {
    program("sh", &[&["-c", script, "sh"], arguments].concat())
}

fn program(command: &str, arguments: &[&str]) -> Spec {
    let mut spec = Spec::new("test", command, launcher());
    spec.args = arguments.iter().map(|argument| (*argument).to_owned()).collect();
    spec
}

/// Tells whether anybody is alive: a pipe that every process of a tree holds open, and whose end is the end of the last.
pub(crate) struct Lives {
    pub(crate) path: PathBuf,
    pipe: pipe::Receiver,
}

impl Lives {
    pub(crate) fn new(directory: &Path) -> Self {
        let path = directory.join("lives");
        let made = std::process::Command::new("mkfifo").arg(&path).status().unwrap();
        assert!(made.success());
        let pipe = pipe::OpenOptions::new().open_receiver(&path).unwrap();
        Self { path, pipe }
    }

    pub(crate) fn path(&self) -> &str {
        self.path.to_str().unwrap()
    }

    /// Waits until `count` processes have written a byte each.
    pub(crate) async fn begin(&mut self, count: usize) {
        within(async {
            for _ in 0..count {
                self.pipe.readable().await.unwrap();
                // Until somebody opens the other end, there is an end already.
                while self.pipe.read_u8().await.is_err() {
                    tokio::task::yield_now().await;
                }
            }
        })
        .await;
    }

    /// Waits until none is left.
    pub(crate) async fn end(&mut self) {
        let mut rest = Vec::new();
        within(self.pipe.read_to_end(&mut rest)).await.unwrap();
    }
}

/// A server in sh with descendants of every kind, each of which writes a byte to the pipe of its argument: a child, one
/// in a session of its own, one whose parent has ended, and one that cannot be asked to end. With itself there are five.
pub(crate) const FAMILY: &str = r#"
exec 9>"$1"
hold='echo >&9; while :; do sleep 1000; done'
sh -c "$hold" &
setsid sh -c "$hold" &
(setsid sh -c "$hold" &)
sh -c "trap '' TERM HUP INT; $hold" &
printf x >&9
while read -r line; do echo '{"jsonrpc":"2.0","id":1,"result":{}}'; done
trap '' TERM
while :; do sleep 1000; done
"#;
pub(crate) const FAMILY_SIZE: usize = 5;
