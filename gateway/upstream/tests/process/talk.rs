//! What is said on the pipes, by both sides.

use futures_util::StreamExt as _;
use moongate_upstream::{
    process::{Secret, Spec},
    transport::{Event, Fault, Outward},
};
use moongate_wire::{Message, Raw, Version, write};
use serde_json::json;
use tempfile::tempdir;

use crate::support::{Server, fault, launcher, next, python, result, shell, within};

#[tokio::test]
async fn a_request_is_answered() {
    let directory = tempdir().unwrap();
    let server = Server::start(python(&directory, "")).await;
    let mut exchange = server.ask_with(7, "tools/call", &json!({"name": "x"}));
    let sent = json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x"}});
    assert_eq!(result(&mut exchange).await, sent);
    assert!(exchange.next().await.is_none(), "an answer is the end");
    assert!(server.connection.listen(Version::LATEST_LEGACY).await);
    assert!(server.connection.diagnosis().pid.is_some());
}

#[tokio::test]
async fn answers_find_their_requests_in_whatever_order_and_only_once() {
    let directory = tempdir().unwrap();
    let tricks = r#"
held = []
def hold(message):
    held.append(message["id"])
def release(message):
    for id in reversed(held):
        answer(id, {"id": id})
        answer(id, {"id": "again"})
        answer(str(id), {"id": "as text"})
    answer(999, {})
    say([{"jsonrpc": "2.0", "id": message["id"], "result": {}}])
"#;
    let server = Server::start(python(&directory, tricks)).await;
    let mut held: Vec<_> = (1..=3).map(|id| server.ask(id, "hold")).collect();
    let release = async {
        // The others are polled first, and only then are they sent.
        tokio::task::yield_now().await;
        result(&mut server.ask(4, "release")).await
    };
    let waiting = futures_util::future::join_all(held.iter_mut().map(result));
    let (results, _) = tokio::join!(waiting, release);
    assert_eq!(results, [json!({"id": 1}), json!({"id": 2}), json!({"id": 3})]);
    let notes = server.connection.diagnosis().notes;
    assert_eq!(notes, ["7 answers that nobody waited for"]);
}

#[tokio::test]
async fn progress_goes_to_its_request_and_the_rest_to_the_ear() {
    let directory = tempdir().unwrap();
    let tricks = r#"
def work(message):
    for step in range(3):
        say({"jsonrpc": "2.0", "method": "notifications/progress", "params": {"progressToken": message["id"], "progress": step}})
        say({"jsonrpc": "2.0", "method": "notifications/message", "params": {"level": "info", "data": step}})
    answer(message["id"], {})
"#;
    let server = Server::start(python(&directory, tricks)).await;
    let mut exchange = server.ask(1, "work");
    for step in 0..3 {
        let Event::Message(Message::Notification(progress)) = next(&mut exchange).await else {
            panic!("{step}")
        };
        assert_eq!(progress.params.raw().unwrap().member("progress"), Some(Raw::of(&step)));
        assert!(matches!(server.ear.next().await, Message::Notification(_)));
    }
    assert_eq!(result(&mut exchange).await, json!({}));
}

#[tokio::test]
async fn a_server_may_ask_and_gets_its_answer() {
    let directory = tempdir().unwrap();
    let tricks = r#"
def work(message):
    say({"jsonrpc": "2.0", "id": "q", "method": "roots/list"})
    reply = json.loads(sys.stdin.readline())
    answer(message["id"], reply["result"])
"#;
    let server = Server::start(python(&directory, tricks)).await;
    let mut exchange = server.ask(1, "work");
    let reply = async {
        let Message::Request(question) = server.ear.next().await else { panic!("a request") };
        let message = write::result(&question.id, &Raw::of(&json!({"roots": []})));
        server.connection.send(Outward { message, version: Version::LATEST_LEGACY }).await
    };
    let (answered, sent) = tokio::join!(result(&mut exchange), reply);
    sent.unwrap();
    assert_eq!(answered, json!({"roots": []}));
}

#[tokio::test]
async fn a_request_that_is_dropped_is_cancelled() {
    let directory = tempdir().unwrap();
    let tricks = r#"
seen = []
def slow(message):
    say({"jsonrpc": "2.0", "method": "notifications/message", "params": {}})
initialize = slow
def notifications_cancelled(message):
    seen.append(message["params"]["requestId"])
    answer(message["params"]["requestId"], {"late": True})
def report(message):
    answer(message["id"], seen)
"#;
    let server = Server::start(python(&directory, tricks)).await;
    for (id, method) in [(1, "slow"), (2, "initialize"), (3, "slow")] {
        let mut exchange = server.ask(id, method);
        tokio::select! {
            event = next(&mut exchange) => panic!("{event:?}"),
            message = server.ear.next() => assert!(matches!(message, Message::Notification(_))),
        }
    }
    drop(server.ask(4, "slow"));
    assert_eq!(result(&mut server.ask(5, "report")).await, json!([1, 3]));
    assert_eq!(server.connection.diagnosis().notes, ["2 answers that nobody waited for"]);
}

#[tokio::test]
async fn banners_are_overlooked_and_a_program_that_prints_nothing_else_is_not() {
    let directory = tempdir().unwrap();
    let server =
        Server::start(python(&directory, "print('Server ready\\n\\n{\"not\": \"a message\"}')")).await;
    result(&mut server.ask(1, "ping")).await;
    assert_eq!(server.connection.diagnosis().notes, ["2 lines on standard output that are not MCP"]);

    let server = Server::start(shell("while echo nothing of interest; do :; done", &[])).await;
    let fault = server.closed().await;
    assert!(matches!(&fault, Fault::Garbled(text) if text.contains("100 lines")), "{fault}");
}

#[tokio::test]
async fn a_line_over_the_limit_ends_the_connection() {
    let directory = tempdir().unwrap();
    let tricks = r#"
def big(message):
    size = message["params"]["size"]
    empty = len(json.dumps({"jsonrpc": "2.0", "id": message["id"], "result": ""}))
    answer(message["id"], "x" * (size - empty))
"#;
    let mut spec = python(&directory, tricks);
    spec.max_message = 100_000;
    let server = Server::start(spec).await;
    let mut fits = server.ask_with(1, "big", &json!({"size": 100_000}));
    assert!(result(&mut fits).await.is_string());
    let mut over = server.ask_with(2, "big", &json!({"size": 100_001}));
    let lost = fault(&mut over).await;
    assert!(matches!(&lost, Fault::Garbled(text) if text.contains("100000 bytes")), "{lost}");
    assert_eq!(server.closed().await, lost);
    let refused = fault(&mut server.ask(3, "ping")).await;
    assert!(matches!(refused, Fault::Unreached(_)), "{refused}");
}

#[tokio::test]
async fn a_line_without_end_takes_no_more_memory_than_the_limit() {
    let directory = tempdir().unwrap();
    let tricks = r#"
def endless(message):
    for _ in range(100):
        sys.stdout.write("x" * 1000000)
"#;
    let server = Server::start(python(&directory, tricks)).await;
    let before = peak();
    let lost = fault(&mut server.ask(1, "endless")).await;
    assert!(matches!(lost, Fault::Garbled(_)), "{lost}");
    // The line is 100 MB, the limit 16 MiB, and a buffer grows by doubling.
    assert!(peak() - before < 50 << 20, "{} bytes more", peak() - before);
}

/// The most memory this process has had, in bytes.
fn peak() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap() << 10
}

#[tokio::test]
async fn a_process_that_does_not_read_blocks_nobody_else() {
    let directory = tempdir().unwrap();
    let deaf = Server::start(shell("sleep 1000 & wait", &[])).await;
    let big = json!({"text": "x".repeat(1 << 16)});
    let mut stuck: Vec<_> = (0..200).map(|id| deaf.ask_with(id, "tools/call", &big)).collect();
    let waiting = futures_util::future::select_all(stuck.iter_mut().map(|exchange| Box::pin(next(exchange))));
    let server = Server::start(python(&directory, "")).await;
    tokio::select! {
        (event, ..) = waiting => panic!("{event:?}"),
        answered = async { result(&mut server.ask(1, "ping")).await } => assert_eq!(answered["id"], 1),
    }
    // Of what is given up, what was never written needs no word; the rest waits with the pipe.
    stuck.truncate(100);
    deaf.close(std::time::Duration::from_millis(30)).await;
    let mut ends = Vec::new();
    for exchange in &mut stuck {
        ends.push(fault(exchange).await);
    }
    assert!(ends.iter().any(|end| matches!(end, Fault::Lost(_))), "the first was written, in part at least");
    assert!(ends.iter().any(|end| matches!(end, Fault::Unreached(_))), "the last was not");
}

#[tokio::test]
async fn the_environment_is_clean_and_secrets_are_masked() {
    let directory = tempdir().unwrap();
    let tricks = r#"
def environment(message):
    sys.stderr.write("my key is " + os.environ["API_KEY"] + "\n")
    sys.stderr.flush()
    answer(message["id"], dict(os.environ))
def fail(message):
    sys.exit("no luck with " + os.environ["API_KEY"] + " and " + sys.argv[-1])
"#;
    let mut spec = python(&directory, tricks);
    spec.args.push("--pin=123456".to_owned());
    spec.secrets = vec![Secret::new("--pin=123456")];
    spec.env = vec![("API_KEY".to_owned(), Secret::new("sesame-open"))];
    spec.inherit_env = vec!["CARGO_MANIFEST_DIR".to_owned()];
    let server = Server::start(spec).await;
    let environment = result(&mut server.ask(1, "environment")).await;
    assert_eq!(environment["API_KEY"], "sesame-open");
    assert!(environment["PATH"].is_string() && environment["CARGO_MANIFEST_DIR"].is_string());
    assert!(environment.get("CARGO_PKG_NAME").is_none(), "{environment}");
    let process = server.connection.diagnosis().pid.unwrap();
    for pid in [server.supervisor(), process.to_string()] {
        let arguments = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap();
        assert!(!String::from_utf8_lossy(&arguments).contains("sesame"));
    }
    let lost = fault(&mut server.ask(2, "fail")).await;
    let told = "the process exited with status 1; its last words: no luck with *** and ***";
    assert_eq!(lost, Fault::Lost(told.into()));
    assert_eq!(server.connection.diagnosis().stderr, ["my key is ***", "no luck with *** and ***"]);
}

#[tokio::test]
async fn what_cannot_be_started_says_why() {
    let refusal = async |spec: Spec| match Server::try_start(spec).await {
        Err(Fault::Unreached(text)) => text,
        Err(fault) => panic!("{fault:?}"),
        Ok(_) => panic!("it started"),
    };
    let mut spec = Spec::new("test", "no-such-command", launcher());
    spec.env = vec![("PATH".to_owned(), Secret::new("/nowhere:/neither"))];
    let expected = "the command no-such-command was not found in PATH=/nowhere:/neither";
    assert_eq!(refusal(spec).await, expected);

    let mut spec = Spec::new("test", "sh", launcher());
    spec.cwd = Some("/nowhere".into());
    assert_eq!(refusal(spec).await, "the working directory /nowhere does not exist");

    let text = refusal(Spec::new("test", "sh", "/nowhere/launcher")).await;
    assert!(text.starts_with("cannot start /nowhere/launcher"), "{text}");
    let text = refusal(Spec::new("test", "sh", "/bin/true")).await;
    assert!(text.starts_with("the supervisor did not start"), "{text}");

    // Only the kernel knows that this is none, and only when it is too late for a refusal.
    let directory = tempdir().unwrap();
    let path = directory.path().join("broken");
    std::fs::write(&path, "#!/nowhere/interpreter\n").unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(&path, mode).unwrap();
    let server = Server::start(Spec::new("test", path.to_str().unwrap(), launcher())).await;
    let lost = fault(&mut server.ask(1, "ping")).await;
    assert!(matches!(&lost, Fault::Unreached(text) if text.contains("cannot run")), "{lost}");
    within(server.connection.closed()).await;
}

#[tokio::test]
async fn a_command_runs_where_it_is_told_to() {
    let directory = tempdir().unwrap();
    let mut spec = shell(
        "read -r line; printf '{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":\"%s\"}\\n' \"$(pwd -P)\"",
        &[],
    );
    spec.cwd = Some(directory.path().to_owned());
    let server = Server::start(spec).await;
    let place = directory.path().canonicalize().unwrap();
    assert_eq!(result(&mut server.ask(1, "ping")).await, json!(place));
}
