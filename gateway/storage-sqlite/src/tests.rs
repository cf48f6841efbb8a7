//! The embedded store through its trait: durability, conflicts, isolation, damage.

use std::{
    io::{BufRead, BufReader, Read as _},
    os::unix::fs::PermissionsExt,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, SystemTime},
};

use moongate_core::{Context, Principal, clock::ClockHandle, task::Group};
use moongate_storage::store::{Put, Renewal};
use tempfile::TempDir;

use super::*;

const KIND: Kind = Kind("playbook");

/// A directory with a database in it; made anew by `open`, as a restarted process would.
struct Place(TempDir);

impl Place {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> PathBuf {
        self.0.path().join("moongate.db")
    }

    fn open(&self) -> SqliteStore {
        SqliteStore::open(&self.path(), Options::default()).unwrap()
    }

    fn open_with_clock(&self) -> (SqliteStore, ClockHandle) {
        let (clock, handle) = Clock::settable(SystemTime::UNIX_EPOCH + Duration::from_secs(1000));
        (SqliteStore::open(&self.path(), Options { clock, ..Options::default() }).unwrap(), handle)
    }
}

fn scope(principal: Principal, session: &str) -> StoreScope {
    Context::for_test(principal, session, None, None).store_scope()
}

fn local(stores: &SqliteStore) -> Arc<dyn Store> {
    Stores::open(stores, &scope(Principal::local(), "default"))
}

fn put(key: &str, body: &str) -> Put {
    Put { kind: KIND, key: key.into(), body: body.into(), expires: None, expected: None }
}

fn expecting(key: &str, body: &str, revision: u64) -> Put {
    Put { expected: Some(Revision(revision)), ..put(key, body) }
}

fn batch(puts: impl IntoIterator<Item = Put>) -> Batch {
    Batch { puts: puts.into_iter().collect(), ..Batch::default() }
}

fn deleting<const N: usize>(keys: [&str; N]) -> Batch {
    Batch { deletes: keys.map(|key| (KIND, key.to_owned())).into(), ..Batch::default() }
}

async fn body(store: &dyn Store, key: &str) -> Option<String> {
    store.get(KIND, key).await.unwrap().map(|row| String::from_utf8(row.body).unwrap())
}

async fn keys(store: &dyn Store, after: Option<&str>, limit: usize) -> Vec<String> {
    store.scan(KIND, Rows { after, limit }).await.unwrap().into_iter().map(|row| row.key).collect()
}

/// The whole chain of causes, as a log line would have it.
fn chain(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = std::error::Error::source(error);
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    text
}

#[tokio::test]
async fn rows_survive_reopening() {
    let place = Place::new();
    let first = local(&place.open()).commit(batch([put("a", "one"), put("b", "two")])).await.unwrap();
    let store = local(&place.open());
    let row = store.get(KIND, "a").await.unwrap().unwrap();
    assert_eq!(row, Row { key: "a".into(), revision: first, expires: None, body: b"one".into() });
    let second = store.commit(batch([put("a", "three")])).await.unwrap();
    assert!(second > first, "revisions go on after a restart");
    assert_eq!(store.get(KIND, "a").await.unwrap().unwrap().revision, second);
    assert_eq!(store.get(KIND, "b").await.unwrap().unwrap().revision, first);
}

#[tokio::test]
async fn a_summary_is_about_what_a_scan_would_find() {
    let place = Place::new();
    let (stores, clock) = place.open_with_clock();
    let store = local(&stores);
    assert_eq!(store.summary(KIND).await.unwrap(), Summary::default());
    let fleeting = Put { expires: Some(1_001_000), ..put("c", "three") };
    let other = Put { kind: Kind("revocation"), ..put("d", "four") };
    let rows = [put("a", "one"), put("b", &"two".repeat(100_000)), fleeting, other];
    let first = store.commit(batch(rows)).await.unwrap();
    stores.own().commit(batch([put("e", "five")])).await.unwrap();
    assert_eq!(store.summary(KIND).await.unwrap(), Summary { rows: 3, bytes: 300_008, newest: first });
    clock.advance(Duration::from_secs(1));
    let left = Summary { rows: 2, bytes: 300_003, newest: first };
    assert_eq!(store.summary(KIND).await.unwrap(), left, "an expired row does not count");
    assert_eq!(keys(&*store, None, 100).await.len(), 2);
}

#[tokio::test]
async fn a_summary_differs_whenever_the_rows_do() {
    let place = Place::new();
    let (stores, clock) = place.open_with_clock();
    let (store, another) = (local(&stores), place.open());
    let fleeting = Put { expires: Some(1_001_000), ..put("d", "1") };
    store.commit(batch([put("a", "1"), put("b", "1"), put("c", "1"), fleeting])).await.unwrap();
    let mut seen = vec![store.summary(KIND).await.unwrap()];
    let mut differs = async |what: &str| {
        let summary = store.summary(KIND).await.unwrap();
        assert!(!seen.contains(&summary), "{what}: {summary:?} was seen before");
        seen.push(summary);
    };
    store.commit(batch([put("a", "2")])).await.unwrap();
    differs("a row that was replaced by one as long").await;
    store.commit(deleting(["c"])).await.unwrap();
    differs("a row less").await;
    store.commit(Batch { puts: vec![put("e", "1")], ..deleting(["b"]) }).await.unwrap();
    differs("one for another").await;
    local(&another).commit(batch([put("e", "2")])).await.unwrap();
    differs("by another process").await;
    clock.advance(Duration::from_secs(1));
    differs("a row that expired").await;
    let before = store.summary(KIND).await.unwrap();
    assert_eq!(stores.purge(u64::MAX).await.unwrap(), 1);
    assert_eq!(store.summary(KIND).await.unwrap(), before, "what had expired was gone already");
}

#[tokio::test]
async fn a_renewed_row_goes_later_and_stays_what_it_is() {
    let place = Place::new();
    let (stores, clock) = place.open_with_clock();
    let store = local(&stores);
    let until = |key: &str| Put { expires: Some(1_001_000), ..put(key, key) };
    store.commit(batch([until("a"), until("b"), until("c")])).await.unwrap();
    let before = store.summary(KIND).await.unwrap();
    let renewal = |key: &str, expires| Renewal { kind: KIND, key: key.to_owned(), expires };
    let renewals = vec![renewal("a", Some(1_002_000)), renewal("b", None), renewal("unknown", None)];
    store.commit(Batch { renewals, ..Batch::default() }).await.unwrap();
    assert_eq!(store.summary(KIND).await.unwrap(), before, "neither bodies nor revisions changed");
    clock.advance(Duration::from_secs(1));
    assert_eq!(keys(&*store, None, 10).await, ["a", "b"]);
    store.commit(Batch { renewals: vec![renewal("c", None)], ..Batch::default() }).await.unwrap();
    assert_eq!(keys(&*store, None, 10).await, ["a", "b"], "what has expired is not there any more");
    clock.advance(Duration::from_secs(1));
    assert_eq!(keys(&*store, None, 10).await, ["b"]);
}

#[tokio::test]
async fn what_was_queued_is_written_before_the_threads_end() {
    let place = Place::new();
    let store = local(&place.open());
    for n in 0..20 {
        let mut commit = std::pin::pin!(store.commit(batch([put(&format!("{n:02}"), "")])));
        let mut poller = std::task::Context::from_waker(std::task::Waker::noop());
        // Queued by the first poll, then abandoned.
        drop(commit.as_mut().poll(&mut poller));
    }
    drop(store);
    assert_eq!(keys(&*local(&place.open()), None, 100).await.len(), 20);
}

#[tokio::test]
async fn the_last_handle_closes_the_file_cleanly() {
    let place = Place::new();
    let stores = place.open();
    let store = local(&stores);
    drop(stores);
    store.commit(batch([put("a", "one")])).await.unwrap();
    assert_eq!(body(&*store, "a").await.as_deref(), Some("one"), "a handle is enough");
    drop(store);
    let files: Vec<_> =
        std::fs::read_dir(place.0.path()).unwrap().map(|file| file.unwrap().file_name()).collect();
    assert_eq!(files, ["moongate.db"], "the log was written into the database");
}

#[tokio::test]
async fn a_put_happens_only_on_the_revision_it_expects() {
    let place = Place::new();
    let store = local(&place.open());
    let commit = async |put| store.commit(batch([put])).await;
    assert!(matches!(commit(expecting("a", "x", 7)).await, Err(Error::Conflict)), "there is none");
    let first = commit(expecting("a", "one", 0)).await.unwrap();
    assert!(matches!(commit(expecting("a", "x", 0)).await, Err(Error::Conflict)), "there is one");
    let second = commit(expecting("a", "two", first.0)).await.unwrap();
    assert!(matches!(commit(expecting("a", "x", first.0)).await, Err(Error::Conflict)), "it is newer");
    assert_eq!(body(&*store, "a").await.as_deref(), Some("two"));
    assert!(commit(put("a", "three")).await.unwrap() > second, "whatever it is");
}

#[tokio::test]
async fn a_batch_happens_whole_or_not_at_all() {
    let place = Place::new();
    let store = local(&place.open());
    store.commit(batch([put("old", "1"), put("kept", "1")])).await.unwrap();
    let refused = Batch {
        puts: vec![put("new", "2"), expecting("kept", "2", 99), put("newer", "2")],
        ..deleting(["old"])
    };
    assert!(matches!(store.commit(refused).await, Err(Error::Conflict)));
    assert_eq!(keys(&*store, None, 10).await, ["kept", "old"]);
    assert_eq!(body(&*store, "kept").await.as_deref(), Some("1"));

    let rename = Batch { puts: vec![expecting("new", "2", 0), put("old", "3")], ..deleting(["old"]) };
    store.commit(rename).await.unwrap();
    assert_eq!(keys(&*store, None, 10).await, ["kept", "new", "old"]);
    assert_eq!(body(&*store, "old").await.as_deref(), Some("3"), "deleted, then put");
    store.commit(deleting(["old", "unknown"])).await.unwrap();
    assert_eq!(body(&*store, "old").await, None);
}

#[tokio::test]
async fn scans_go_by_key_in_pages() {
    let place = Place::new();
    let store = local(&place.open());
    let unsorted = ["b", "a", "", "á", "Z", "a\0b", "ab"];
    store.commit(batch(unsorted.map(|key| put(key, "")))).await.unwrap();
    let mut sorted = unsorted;
    sorted.sort_unstable();
    assert_eq!(keys(&*store, None, 100).await, sorted);
    assert_eq!(keys(&*store, None, 2).await, sorted[..2]);
    assert_eq!(keys(&*store, Some(sorted[1]), 3).await, sorted[2..5]);
    assert_eq!(keys(&*store, Some("zzzz"), 3).await, ["á"]);
    assert!(keys(&*store, Some("á"), 3).await.is_empty());
    assert!(keys(&*store, None, 0).await.is_empty());
    assert_eq!(keys(&*store, None, usize::MAX).await.len(), 7);
    let other = store.scan(Kind("revocation"), Rows { after: None, limit: 9 }).await.unwrap();
    assert!(other.is_empty(), "another kind");
}

#[tokio::test]
async fn expired_rows_are_not_seen_and_go_with_a_purge() {
    let place = Place::new();
    let (stores, clock) = place.open_with_clock();
    let store = local(&stores);
    let until = |key: &str, expires| Put { expires: Some(expires), ..put(key, key) };
    let first =
        store.commit(batch([until("a", 1_001_000), until("b", 1_002_000), put("c", "c")])).await.unwrap();
    clock.advance(Duration::from_millis(999));
    assert_eq!(keys(&*store, None, 10).await, ["a", "b", "c"]);
    clock.advance(Duration::from_millis(1));
    assert_eq!(keys(&*store, None, 10).await, ["b", "c"]);
    assert_eq!(body(&*store, "a").await, None);

    let refused = store.commit(batch([expecting("a", "x", first.0)])).await;
    assert!(matches!(refused, Err(Error::Conflict)), "an expired row has no revision");
    store.commit(batch([expecting("a", "again", 0)])).await.unwrap();
    assert_eq!(body(&*store, "a").await.as_deref(), Some("again"));

    assert_eq!(stores.purge(1_001_999).await.unwrap(), 0);
    assert_eq!(stores.purge(1_002_000).await.unwrap(), 1, "of every scope, by the given time");
    assert_eq!(stores.purge(u64::MAX).await.unwrap(), 0, "what has no end stays");
    assert_eq!(keys(&*store, None, 10).await, ["a", "c"]);
    let far = store.commit(batch([until("far", u64::MAX)])).await;
    assert!(far.is_ok());
    assert_eq!(body(&*store, "far").await.as_deref(), Some("far"));
}

#[tokio::test]
async fn scopes_never_meet() {
    let place = Place::new();
    let stores = place.open();
    let handles = [
        stores.own(),
        Stores::open(&stores, &scope(Principal::local(), "s")),
        Stores::open(&stores, &scope(Principal::local(), "")),
        Stores::open(&stores, &scope(Principal::local(), "\u{1f}s")),
        Stores::open(&stores, &scope(Principal::issued("local"), "s")),
        Stores::open(&stores, &scope(Principal::issued("a"), "b\u{1f}s")),
        Stores::open(&stores, &scope(Principal::issued("a\u{1f}b"), "s")),
        Stores::open(&stores, &scope(Principal::anonymous(), "s")),
        Stores::open(&stores, &scope(Principal::jwt("a", "b"), "s")),
    ];
    for (n, store) in handles.iter().enumerate() {
        store.commit(batch([expecting("key", &n.to_string(), 0), put(&n.to_string(), "")])).await.unwrap();
    }
    for (n, store) in handles.iter().enumerate() {
        assert_eq!(body(&**store, "key").await, Some(n.to_string()));
        assert_eq!(keys(&**store, None, 100).await, [n.to_string(), "key".into()]);
    }
    handles[1].commit(deleting(["key"])).await.unwrap();
    for (n, store) in handles.iter().enumerate() {
        assert_eq!(body(&**store, "key").await.is_some(), n != 1);
    }
}

/// Counts `key` up by `times`, again and again when somebody was faster.
async fn count_up(store: &dyn Store, key: &str, times: usize) {
    for _ in 0..times {
        loop {
            let now = store.get(KIND, key).await.unwrap();
            let (revision, count) = now.map_or((0, 0), |row| {
                (row.revision.0, String::from_utf8(row.body).unwrap().parse::<usize>().unwrap())
            });
            match store.commit(batch([expecting(key, &(count + 1).to_string(), revision)])).await {
                Ok(_) => break,
                Err(Error::Conflict) => {}
                Err(error) => panic!("{}", chain(&error)),
            }
        }
    }
}

/// Runs `work` as tasks and waits for all of them.
async fn at_once<F: Future<Output = ()> + Send + 'static>(work: impl IntoIterator<Item = F>) {
    let group = Group::new();
    let (done, mut finished) = tokio::sync::mpsc::channel::<()>(1);
    let mut started = 0;
    for work in work {
        let done = done.clone();
        started += 1;
        group.spawn(async move {
            work.await;
            done.send(()).await.unwrap();
        });
    }
    drop(done);
    for _ in 0..started {
        finished.recv().await.expect("a task failed");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn many_concurrent_writers_lose_nothing() {
    let place = Place::new();
    let stores = Arc::new(place.open());
    at_once((0..64).map(|writer| {
        let store = local(&stores);
        async move {
            for n in 0..20 {
                store.commit(batch([put(&format!("{writer:02}-{n:02}"), "")])).await.unwrap();
            }
            count_up(&*store, "count", 2).await;
        }
    }))
    .await;
    let store = local(&stores);
    assert_eq!(body(&*store, "count").await.as_deref(), Some("128"));
    assert_eq!(keys(&*store, None, 10_000).await.len(), 64 * 20 + 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stores_share_one_file() {
    let place = Place::new();
    let opened: Vec<_> = (0..4).map(|_| place.path()).collect();
    // All at the same time, on a file that is not there yet.
    let opened: Vec<_> = opened
        .into_iter()
        .map(|path| thread::spawn(move || SqliteStore::open(&path, Options::default()).unwrap()))
        .collect();
    let stores: Vec<_> = opened.into_iter().map(|thread| thread.join().unwrap()).collect();
    let handles: Vec<_> = stores.iter().map(local).collect();
    at_once(handles.iter().cloned().map(|store| async move { count_up(&*store, "count", 25).await })).await;
    for store in &handles {
        assert_eq!(body(&**store, "count").await.as_deref(), Some("100"), "each sees what the others wrote");
    }
}

#[tokio::test]
async fn only_this_user_can_read_the_file() {
    let place = Place::new();
    let path = place.0.path().join("share/moongate/moongate.db");
    let stores = SqliteStore::open(&path, Options::default()).unwrap();
    local(&stores).commit(batch([put("a", "secret")])).await.unwrap();
    let mode = |path: PathBuf| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(mode(place.0.path().join("share")), 0o700);
    assert_eq!(mode(place.0.path().join("share/moongate")), 0o700);
    for file in ["moongate.db", "moongate.db-wal", "moongate.db-shm"] {
        assert_eq!(mode(path.with_file_name(file)), 0o600, "{file}");
    }
}

#[test]
fn a_file_that_cannot_be_used_is_named() {
    let place = Place::new();
    std::fs::write(place.path(), b"version: 1\nupstreams: {}\n".repeat(400)).unwrap();
    let error = SqliteStore::open(&place.path(), Options::default()).unwrap_err();
    assert!(matches!(error, Error::Corrupt(_)));
    let text = chain(&error);
    assert!(text.contains("moongate.db: ") && text.contains("file is not a database"), "{text}");
    assert!(std::fs::read(place.path()).unwrap().starts_with(b"version"), "and left alone");

    let error = SqliteStore::open(&place.path().join("x"), Options::default()).unwrap_err();
    assert!(matches!(error, Error::Backend { doing: "making the database file", .. }), "{error:?}");
    assert!(chain(&error).contains("moongate.db/x"));
}

#[tokio::test]
async fn a_damaged_file_answers_with_an_error_and_not_with_rows() {
    let place = Place::new();
    let many = (0..200).map(|n| put(&format!("{n:03}"), &"x".repeat(500)));
    local(&place.open()).commit(batch(many)).await.unwrap();
    let mut bytes = std::fs::read(place.path()).unwrap();
    bytes[8192..].fill(0xA5); // all but the schema
    std::fs::write(place.path(), bytes).unwrap();
    let refused = match SqliteStore::open(&place.path(), Options::default()) {
        Ok(stores) => local(&stores).scan(KIND, Rows { after: None, limit: 1000 }).await.unwrap_err(),
        Err(error) => error,
    };
    assert!(matches!(refused, Error::Corrupt(_)), "{refused:?}");
}

#[test]
fn a_database_that_needs_a_newer_build_is_refused() {
    let place = Place::new();
    drop(place.open());
    let newer = rusqlite::Connection::open(place.path()).unwrap();
    newer.execute("UPDATE meta SET schema = 9, min_reader = 8", []).unwrap();
    drop(newer);
    let error = SqliteStore::open(&place.path(), Options::default()).unwrap_err();
    assert!(matches!(error, Error::TooOld { needed: 8, known: 1 }), "{error:?}");
}

/// The file for [`child`]; the test that starts it sets this.
const CHILD_PATH: &str = "STORE_TEST_PATH";
/// What [`child`] does.
const CHILD_WORK: &str = "STORE_TEST_WORK";

fn start_child(place: &Place, work: &str) -> Child {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "tests::child", "--ignored", "--nocapture"])
        .envs([(CHILD_PATH, place.path().as_os_str()), (CHILD_WORK, work.as_ref())])
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[ignore = "other tests run it, in a process of its own"]
async fn child() {
    let Some(path) = std::env::var_os(CHILD_PATH) else { return };
    let stores = SqliteStore::open(path.as_ref(), Options::default()).unwrap();
    let store = local(&stores);
    if std::env::var(CHILD_WORK).unwrap() == "count" {
        return count_up(&*store, "count", 50).await;
    }
    at_once((0..8).map(|task| {
        let store = Arc::clone(&store);
        async move {
            for n in 0..u64::MAX {
                let key = format!("{task}-{n}");
                store.commit(batch([put(&key, &key)])).await.unwrap();
                println!("acknowledged {key}");
            }
        }
    }))
    .await;
}

#[tokio::test]
async fn no_acknowledged_commit_is_lost_by_kill_9() {
    let place = Place::new();
    let mut child = start_child(&place, "write");
    let mut output = BufReader::new(child.stdout.take().unwrap());
    let mut text = String::new();
    for _ in 0..300 {
        assert_ne!(output.read_line(&mut text).unwrap(), 0, "the child ended early: {text}");
    }
    child.kill().unwrap();
    child.wait().unwrap();
    output.read_to_string(&mut text).unwrap();

    // A line cut off by the kill was never acknowledged as far as anybody can tell.
    let acknowledged: Vec<_> = text
        .split_inclusive('\n')
        .filter_map(|line| line.strip_suffix('\n')?.split_once("acknowledged "))
        .collect();
    assert!(acknowledged.len() > 250, "{}", acknowledged.len());
    let store = local(&place.open());
    for (_, key) in acknowledged {
        assert_eq!(body(&*store, key).await.as_deref(), Some(key));
    }
}

#[tokio::test]
async fn several_processes_share_one_file() {
    let place = Place::new();
    let mut children: Vec<_> = (0..3).map(|_| start_child(&place, "count")).collect();
    let store = local(&place.open());
    count_up(&*store, "count", 50).await;
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    assert_eq!(body(&*store, "count").await.as_deref(), Some("200"));
}

#[test]
fn an_empty_file_or_one_with_another_journal_becomes_a_database() {
    let place = Place::new();
    std::fs::write(place.path(), b"").unwrap();
    drop(place.open());
    let other = rusqlite::Connection::open(place.path()).unwrap();
    other.pragma_update_and_check(None, "journal_mode", "DELETE", |_| Ok(())).unwrap();
    drop(other);
    drop(place.open());
    let again = rusqlite::Connection::open(place.path()).unwrap();
    let mode: String = again.pragma_query_value(None, "journal_mode", |row| row.get(0)).unwrap();
    assert_eq!(mode, "wal");
}
