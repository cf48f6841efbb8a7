//! Limits, by whatever this machine has: control groups where they can be written, and without them.

use std::{
    fs,
    os::unix::fs::PermissionsExt,
    path::{Path, PathBuf},
    process::Command,
    time::Duration,
};

use moongate_upstream::{process::Spec, transport::Fault};
use serde_json::json;
use tempfile::{TempDir, tempdir};

use crate::support::{Server, fault, launcher, next, python, result, shell};

const MEBIBYTE: u64 = 1 << 20;

/// Takes so much memory as it is told to, in one process or in several.
const EATER: &str = r#"
def eat(message):
    kept = bytearray(os.urandom(1)) * (message["params"]["mebibytes"] << 20)
    answer(message["id"], len(kept))
def share(message):
    for _ in range(message["params"]["processes"]):
        if os.fork() == 0:
            kept = bytearray(os.urandom(1)) * (message["params"]["mebibytes"] << 20)
            time.sleep(1000)
def crowd(message):
    started = 0
    try:
        for _ in range(message["params"]["processes"]):
            if os.fork() == 0:
                time.sleep(1000)
            started += 1
    except BlockingIOError:
        pass
    answer(message["id"], started)
"#;

/// The launcher where no control group can be reached: in a view of the file system that has none. Whoever may not make
/// such a view may not write to control groups either.
fn without_groups(directory: &TempDir) -> PathBuf {
    let hide = "mount -t tmpfs none /sys/fs/cgroup";
    let tried = Command::new("unshare").args(["--mount", "sh", "-c", hide]).output();
    if !tried.is_ok_and(|tried| tried.status.success()) {
        return launcher();
    }
    let path = directory.path().join("launcher");
    let start = format!(r#"{hide} && exec "$0" "$@""#);
    let script =
        format!("#!/bin/sh\nexec unshare --mount sh -c '{start}' '{}' \"$@\"\n", launcher().display());
    fs::write(&path, script).unwrap();
    fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    path
}

fn eater(directory: &TempDir) -> Spec {
    let mut spec = python(directory, EATER);
    spec.limits.memory = Some(100 * MEBIBYTE);
    spec
}

fn note(server: &Server, about: &str) -> String {
    let notes = server.connection.diagnosis().notes;
    notes.into_iter().find(|note| note.starts_with(about)).unwrap_or_else(|| panic!("no note about {about}"))
}

#[tokio::test]
async fn memory_is_limited_by_what_this_machine_has() {
    let directory = tempdir().unwrap();
    let server = Server::start(eater(&directory)).await;
    let note = note(&server, "memory: 104857600 bytes, by ");
    assert_eq!(result(&mut server.ask_with(1, "eat", &json!({"mebibytes": 20}))).await, 20 * MEBIBYTE);
    let lost = fault(&mut server.ask_with(2, "eat", &json!({"mebibytes": 300}))).await;
    if note.contains("cgroup") {
        assert!(lost.to_string().contains("its memory limit is 104857600 bytes"), "{lost}");
    } else {
        assert!(lost.to_string().contains("MemoryError"), "{lost}");
    }
}

#[tokio::test]
async fn memory_is_limited_without_control_groups() {
    let directory = tempdir().unwrap();
    let mut spec = eater(&directory);
    spec.launcher = without_groups(&directory);
    let server = Server::start(spec.clone()).await;
    assert!(note(&server, "memory: ").contains("RLIMIT_DATA"));
    let lost = fault(&mut server.ask_with(1, "eat", &json!({"mebibytes": 300}))).await;
    assert!(matches!(&lost, Fault::Lost(text) if text.contains("MemoryError")), "{lost}");

    let server = Server::start(spec).await;
    let shares = json!({"mebibytes": 50, "processes": 4});
    let lost = fault(&mut server.ask_with(1, "share", &shares)).await;
    assert!(lost.to_string().contains("its memory limit is 104857600 bytes"), "{lost}");
}

#[tokio::test]
async fn processes_are_limited_by_what_this_machine_has() {
    let directory = tempdir().unwrap();
    let mut spec = python(&directory, EATER);
    spec.limits.processes = Some(10);
    let server = Server::start(spec).await;
    let note = note(&server, "processes: 10, by ");
    let mut exchange = server.ask_with(1, "crowd", &json!({"processes": 30}));
    if note.contains("cgroup") {
        assert_eq!(result(&mut exchange).await, json!(9), "and the server itself");
    } else {
        // It may be faster than the count.
        drop(next(&mut exchange).await);
        let lost = server.closed().await;
        assert!(lost.to_string().contains("it may start 10 processes at most"), "{lost}");
    }
}

#[tokio::test]
async fn processes_are_limited_without_control_groups() {
    let directory = tempdir().unwrap();
    let mut spec = python(&directory, EATER);
    spec.limits.processes = Some(10);
    spec.launcher = without_groups(&directory);
    let server = Server::start(spec).await;
    assert_eq!(note(&server, "processes"), "processes: 10, by a count every 100 ms");
    result(&mut server.ask_with(1, "crowd", &json!({"processes": 5}))).await;
    result(&mut server.ask_with(2, "crowd", &json!({"processes": 6}))).await;
    let lost = server.closed().await;
    assert!(lost.to_string().contains("it may start 10 processes at most"), "{lost}");
}

#[tokio::test]
async fn time_and_files_are_limited_for_each_process() {
    let mut spec = shell("ulimit -n >&2; ulimit -t >&2; while :; do :; done", &[]);
    spec.limits.open_files = Some(64);
    spec.limits.cpu = Some(Duration::from_millis(500));
    let server = Server::start(spec).await;
    let lost = server.closed().await;
    let diagnosis = server.connection.diagnosis();
    assert_eq!(diagnosis.stderr, ["64", "1"], "whole seconds, rounded up");
    // The soft limit sends one signal and the hard one another, and they are the same here.
    assert!(lost.to_string().starts_with("the process was ended by signal"), "{lost}");
    assert_eq!(diagnosis.notes.len(), 2, "{:?}", diagnosis.notes);
}

#[tokio::test]
async fn control_groups_are_gone_with_their_processes() {
    let directory = tempdir().unwrap();
    let mut spec = eater(&directory);
    spec.limits.processes = Some(50);
    let server = Server::start(spec).await;
    let pid = server.connection.diagnosis().pid.unwrap();
    let groups = fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    let ours: Vec<_> = groups.lines().filter(|line| line.contains("/moongate-")).collect();
    let enforced =
        server.connection.diagnosis().notes.iter().filter(|note| note.contains("cgroup v1")).count();
    assert_eq!(ours.len(), enforced, "{groups}");
    server.close(Duration::from_secs(3)).await;
    for line in ours {
        let mut parts = line.split(':').skip(1);
        let (controller, path) = (parts.next().unwrap(), parts.next().unwrap());
        let group = Path::new("/sys/fs/cgroup").join(controller).join(path.trim_start_matches('/'));
        assert!(group.parent().unwrap().exists() && !group.exists(), "{}", group.display());
    }
}
