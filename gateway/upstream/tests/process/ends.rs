//! How processes end, and that none is left over.

use std::{
    fs,
    process::{Command, Stdio},
    time::Duration,
};

use moongate_upstream::transport::Fault;
use tempfile::tempdir;

use crate::support::{FAMILY, FAMILY_SIZE, Lives, Server, fault, launcher, next, python, result, shell};

/// Long enough for whoever does as told.
const GRACE: Duration = Duration::from_secs(20);
/// For whoever does not, and has to be killed.
const SHORT: Duration = Duration::from_millis(300);

#[tokio::test]
async fn a_process_that_dies_says_so_to_those_who_wait() {
    let server = Server::start(shell("read -r line; echo >&2 'out of ink'; exit 3", &[])).await;
    let (mut first, mut second) = (server.ask(1, "tools/call"), server.ask(2, "tools/call"));
    let lost = tokio::join!(fault(&mut first), fault(&mut second));
    let told = "the process exited with status 3; its last words: out of ink";
    assert_eq!(lost.0, Fault::Lost(told.into()));
    assert_eq!(lost.1.to_string(), told);
    assert_eq!(server.closed().await, Fault::Lost(told.into()));
    assert_eq!(fault(&mut server.ask(3, "tools/call")).await, Fault::Unreached(told.into()));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_answer_given_with_the_last_breath_is_heard() {
    let script = r#"read -r line; echo >&2 goodbye; echo '{"jsonrpc":"2.0","id":1,"result":{}}'"#;
    for _ in 0..20 {
        let server = Server::start(shell(script, &[])).await;
        result(&mut server.ask(1, "tools/call")).await;
        let told = "the process exited with status 0; its last words: goodbye";
        assert_eq!(server.closed().await, Fault::Lost(told.into()));
    }
}

#[tokio::test]
async fn a_process_killed_by_a_signal_is_told_as_such() {
    let server = Server::start(shell("kill -SEGV $$", &[])).await;
    assert_eq!(server.closed().await, Fault::Lost("the process was ended by signal 11".into()));
}

#[tokio::test]
async fn a_process_that_closes_its_output_is_of_no_use() {
    let directory = tempdir().unwrap();
    let mut lives = Lives::new(directory.path());
    let script = r#"exec 9>"$1"; printf x >&9; exec >&-; while :; do sleep 1000; done"#;
    let server = Server::start(shell(script, &[lives.path()])).await;
    lives.begin(1).await;
    assert_eq!(server.closed().await, Fault::Lost("the process closed its standard output".into()));
    lives.end().await;
}

#[tokio::test]
async fn the_end_is_asked_for_in_order() {
    let directory = tempdir().unwrap();
    let tricks = r#"
def hold(message):
    pass
def told(*_):
    sys.stderr.write("TERM\n")
    sys.stderr.flush()
signal.signal(signal.SIGTERM, told)
serve()
sys.stderr.write("end of input\n")
sys.stderr.flush()
while True:
    time.sleep(1000)
"#;
    let server = Server::start(python(&directory, tricks)).await;
    result(&mut server.ask(1, "ping")).await;
    let mut exchange = server.ask(2, "hold");
    tokio::select! {
        event = next(&mut exchange) => panic!("{event:?}"),
        _answer = async { result(&mut server.ask(3, "ping")).await } => {}
    }
    let pid = server.connection.diagnosis().pid.unwrap();
    server.close(Duration::from_millis(1500)).await;
    assert_eq!(fault(&mut exchange).await, Fault::Lost("the connection was closed".into()));
    assert_eq!(server.connection.diagnosis().stderr, ["end of input", "TERM"]);
    assert!(!std::path::Path::new(&format!("/proc/{pid}")).exists(), "not even a zombie is left");
    assert!(server.tasks.shut_down(GRACE).await);
}

#[tokio::test]
async fn a_process_that_ends_with_its_input_is_not_signalled() {
    let script = "trap 'echo TERM >&2' TERM; while read -r line; do :; done; echo done >&2";
    let server = Server::start(shell(script, &[])).await;
    server.close(GRACE).await;
    assert_eq!(server.connection.diagnosis().stderr, ["done"]);
    assert_eq!(server.closed().await, Fault::Lost("the connection was closed".into()));
}

#[tokio::test]
async fn no_descendant_survives_a_close() {
    let directory = tempdir().unwrap();
    let mut lives = Lives::new(directory.path());
    let server = Server::start(shell(FAMILY, &[lives.path()])).await;
    lives.begin(FAMILY_SIZE).await;
    result(&mut server.ask(1, "ping")).await;
    server.close(SHORT).await;
    lives.end().await;
}

#[tokio::test]
async fn no_descendant_survives_the_command() {
    let directory = tempdir().unwrap();
    let mut lives = Lives::new(directory.path());
    let server = Server::start(shell(FAMILY, &[lives.path()])).await;
    lives.begin(FAMILY_SIZE).await;
    let pid = server.connection.diagnosis().pid.unwrap();
    signal(&pid.to_string(), "KILL");
    assert_eq!(server.closed().await, Fault::Lost("the process was ended by signal 9".into()));
    lives.end().await;
}

#[tokio::test]
async fn no_descendant_survives_the_connection_or_its_tasks() {
    let directory = tempdir().unwrap();
    let mut lives = Lives::new(directory.path());
    let server = Server::start(shell(FAMILY, &[lives.path()])).await;
    lives.begin(FAMILY_SIZE).await;
    let mut exchange = server.ask(2, "tools/call");
    tokio::select! {
        event = next(&mut exchange) => panic!("{event:?}"),
        () = tokio::task::yield_now() => {}
    }
    let Server { connection, tasks, .. } = server;
    drop(connection);
    assert!(matches!(fault(&mut exchange).await, Fault::Lost(_) | Fault::Unreached(_)));
    lives.end().await;
    assert!(tasks.shut_down(GRACE).await);

    fs::remove_file(&lives.path).unwrap();
    let mut lives = Lives::new(directory.path());
    let server = Server::start(shell(FAMILY, &[lives.path()])).await;
    lives.begin(FAMILY_SIZE).await;
    assert!(server.tasks.shut_down(GRACE).await);
    lives.end().await;
    assert_eq!(server.closed().await, Fault::Lost("the connection was closed".into()));
}

#[tokio::test]
async fn whoever_runs_from_one_process_to_the_next_is_caught() {
    let directory = tempdir().unwrap();
    let mut lives = Lives::new(directory.path());
    let script = r#"
exec 9>"$1"
run='echo >&9; sh -c "$0" "$0" &'
for _ in 1 2 3; do setsid sh -c "$run" "$run" & done
while read -r line; do :; done
"#;
    let server = Server::start(shell(script, &[lives.path()])).await;
    lives.begin(30).await;
    drop(server.connection);
    lives.end().await;
}

#[tokio::test]
async fn no_descendant_survives_a_gateway_that_is_killed() {
    let directory = tempdir().unwrap();
    let mut lives = Lives::new(directory.path());
    let mut gateway = Command::new(launcher())
        .args(["sh", "-c", FAMILY, "sh", lives.path()])
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    lives.begin(FAMILY_SIZE).await;
    gateway.kill().unwrap();
    gateway.wait().unwrap();
    tokio::time::timeout(Duration::from_secs(2), lives.end()).await.expect("all are gone after two seconds");
}

#[tokio::test]
async fn a_supervisor_that_is_killed_takes_its_group_with_it() {
    let directory = tempdir().unwrap();
    let mut lives = Lives::new(directory.path());
    let script = r#"exec 9>"$1"; sh -c 'echo >&9; sleep 1000' & printf x >&9; wait"#;
    let server = Server::start(shell(script, &[lives.path()])).await;
    lives.begin(2).await;
    signal(&server.supervisor(), "KILL");
    let told = server.closed().await;
    assert_eq!(told, Fault::Lost("the process was ended with its supervisor".into()));
    lives.end().await;
}

#[tokio::test]
async fn orphans_are_reaped_while_the_command_runs() {
    let directory = tempdir().unwrap();
    let tricks = r#"
def orphan(message):
    reading, writing = os.pipe()
    if os.fork() == 0:
        if os.fork() == 0:
            os.close(reading)
            os.write(writing, str(os.getpid()).encode())
        os._exit(0)
    os.wait()
    os.close(writing)
    answer(message["id"], int(os.read(reading, 100)))
"#;
    let server = Server::start(python(&directory, tricks)).await;
    let orphan = result(&mut server.ask(1, "orphan")).await;
    let path = std::path::PathBuf::from(format!("/proc/{orphan}"));
    // Nobody tells when a process is reaped; each look takes a round trip to the server.
    for id in 2.. {
        result(&mut server.ask(id, "ping")).await;
        if !path.exists() {
            return;
        }
    }
}

fn signal(pid: &str, name: &str) {
    let sent = Command::new("kill").args([&format!("-{name}"), pid]).status().unwrap();
    assert!(sent.success());
}
