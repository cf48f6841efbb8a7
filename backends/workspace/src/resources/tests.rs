//! Files as resources, read and watched on a real file system. Tests wait for announcements, which come or the test hangs.

use std::{fs, os::unix::fs::symlink, path::PathBuf, time::Duration};

use moongate_core::{Announcement, Audience, Change, Clock, Principal, Side};
use tempfile::TempDir;
use tokio::sync::mpsc;

use super::*;

struct Desk {
    directory: TempDir,
    resources: WorkspaceResources,
    told: mpsc::Receiver<Announcement>,
    tasks: Group,
}

impl Desk {
    fn new() -> Self {
        let directory = TempDir::new().unwrap();
        let (sender, told) = mpsc::channel(1000);
        let changes = Changes::new(move |announcement| sender.try_send(announcement).unwrap());
        let rooms = Arc::new(Tenants::new(directory.path().join("rooms"), Clock::system()));
        let tasks = Group::new();
        let resources = WorkspaceResources::new(rooms, changes, tasks.clone());
        let resources = WorkspaceResources { max_file_size: 1024, ..resources };
        Self { directory, resources, told, tasks }
    }

    fn room(&self, cx: &Context) -> PathBuf {
        self.resources.rooms.open(&Tenant::of(cx)).unwrap().path().to_owned()
    }

    async fn read(&self, uri: &str) -> Result<ResourceContents, CallError> {
        self.resources.read(uri, &me()).await.map(|mut contents| contents.pop().unwrap())
    }

    async fn watch(&self, uri: &str) {
        self.resources.subscribe(uri, &me()).await.unwrap();
    }

    /// Waits until `uri` is announced to `cx`, and for nothing else before.
    async fn hears(&mut self, cx: &Context, uri: &str) {
        let told = tokio::time::timeout(Duration::from_secs(30), self.told.recv()).await;
        let expected = Announcement {
            change: Change::Updated { uri: uri.into() },
            audience: Audience::Session(cx.session_key()),
        };
        assert_eq!(told.expect("a change is announced").unwrap(), expected);
    }

    /// What is watched: files and directories.
    fn counts(&self) -> (usize, usize) {
        self.resources.watches.counts()
    }
}

fn me() -> Context {
    Context::for_test(Principal::local(), "s", None, None)
}

fn is_unknown(error: &CallError) -> bool {
    matches!(error.kind, Kind::UnknownResource { .. })
}

#[tokio::test]
async fn a_file_is_read_as_text_or_as_a_blob() {
    let desk = Desk::new();
    let room = desk.room(&me());
    fs::create_dir(room.join("a b")).unwrap();
    fs::write(room.join("a b/ü.md"), "# Hi").unwrap();
    fs::write(room.join("x.png"), b"\x89PNG\xff").unwrap();
    fs::write(room.join("plain"), "").unwrap();
    fs::write(room.join("bytes"), b"\xff").unwrap();
    for (uri, kind, data) in [
        ("workspace:///a%20b/%C3%BC.md", "text/markdown", r##"{"text":"# Hi"}"##),
        ("workspace:///x.png", "image/png", r#"{"blob":"iVBOR/8="}"#),
        ("workspace:///plain", "text/plain", r#"{"text":""}"#),
        ("workspace:///bytes", "application/octet-stream", r#"{"blob":"/w=="}"#),
    ] {
        let read = desk.read(uri).await.unwrap();
        assert_eq!((&*read.uri, &*read.mime_type), (uri, kind));
        assert_eq!(serde_json::to_string(&read.data).unwrap(), data);
    }
}

#[tokio::test]
async fn what_is_not_there_or_not_ours_is_unknown() {
    let desk = Desk::new();
    let room = desk.room(&me());
    fs::write(desk.directory.path().join("secret"), "x").unwrap();
    symlink(desk.directory.path().join("secret"), room.join("link")).unwrap();
    fs::create_dir(room.join("directory")).unwrap();
    for path in ["none", "link", "directory", "%2Fetc/passwd", "..%2Fx", "../../secret", "a%00", "%ff", ""] {
        let error = desk.read(&format!("workspace:///{path}")).await.unwrap_err();
        assert!(is_unknown(&error), "{path}: {error:?}");
    }
    for uri in ["workspace:///../x", "content://x", ""] {
        assert!(is_unknown(&desk.resources.subscribe(uri, &me()).await.unwrap_err()), "{uri}");
    }
}

#[tokio::test]
async fn reading_makes_no_room() {
    let desk = Desk::new();
    assert!(is_unknown(&desk.read("workspace:///none").await.unwrap_err()));
    let names = fs::read_dir(desk.directory.path().join("rooms")).unwrap();
    assert_eq!(names.map(|entry| entry.unwrap().file_name()).collect::<Vec<_>>(), ["empty"]);
}

#[test]
fn who_leaves_while_a_watch_begins_leaves_none_behind() {
    // With a single thread for what blocks, everything there happens in the order it was asked for.
    let mut runtime = tokio::runtime::Builder::new_current_thread();
    let runtime = runtime.enable_all().max_blocking_threads(1).build().unwrap();
    runtime.block_on(async {
        let desk = Desk::new();
        let (go_on, busy) = std::sync::mpsc::channel::<()>();
        let first = tokio::task::spawn_blocking(move || busy.recv());
        let cx = me();
        let mut leaving = Box::pin(desk.resources.subscribe("workspace:///file", &cx));
        tokio::select! {
            biased;
            _ = &mut leaving => panic!("nothing is watched yet"),
            () = std::future::ready(()) => drop(leaving),
        }
        drop(go_on);
        first.await.unwrap().unwrap_err();
        for _ in 0..2 {
            tokio::task::spawn_blocking(|| ()).await.unwrap();
        }
        assert_eq!(desk.counts(), (0, 0));
    });
}

#[tokio::test]
async fn a_file_is_read_in_the_callers_own_room_only() {
    let desk = Desk::new();
    fs::write(desk.room(&me()).join("file"), "mine").unwrap();
    for other in [
        Context::for_test(Principal::local(), "other", None, None),
        Context::for_test(Principal::issued("s"), "s", None, None),
    ] {
        let error = desk.resources.read("workspace:///file", &other).await.unwrap_err();
        assert!(is_unknown(&error));
    }
}

#[tokio::test]
async fn a_file_that_is_too_large_is_refused_with_a_reason() {
    let desk = Desk::new();
    fs::write(desk.room(&me()).join("large"), [0; 1025]).unwrap();
    let error = desk.read("workspace:///large").await.unwrap_err();
    assert_eq!((&error.kind, error.side), (&Kind::InvalidParams, Side::Client));
    assert!(error.public.contains("1024 bytes"), "{error}");
}

#[tokio::test]
async fn files_are_not_listed() {
    let desk = Desk::new();
    fs::write(desk.room(&me()).join("file"), "x").unwrap();
    let page = desk.resources.list(None, &me()).await.unwrap();
    assert!(page.resources.is_empty() && page.next.is_none());
    assert_eq!(desk.resources.templates()[0].uri_template, "workspace:///{+path}");
}

#[tokio::test]
async fn a_changed_file_is_announced_to_its_session() {
    let mut desk = Desk::new();
    let room = desk.room(&me());
    fs::write(room.join("file"), "1").unwrap();
    desk.watch("workspace:///file").await;
    fs::write(room.join("file"), "2").unwrap();
    desk.hears(&me(), "workspace:///file").await;
}

#[tokio::test]
async fn a_file_replaced_by_rename_is_announced_again_and_again() {
    let mut desk = Desk::new();
    let room = desk.room(&me());
    desk.watch("workspace:///file").await;
    for _ in 0..3 {
        fs::write(room.join("draft"), "x").unwrap();
        fs::rename(room.join("draft"), room.join("file")).unwrap();
        desk.hears(&me(), "workspace:///file").await;
    }
    fs::remove_file(room.join("file")).unwrap();
    desk.hears(&me(), "workspace:///file").await;
}

#[tokio::test]
async fn a_file_is_announced_whose_directories_come_later() {
    let mut desk = Desk::new();
    let room = desk.room(&me());
    desk.watch("workspace:///a/b/file").await;
    fs::create_dir(room.join("a")).unwrap();
    desk.hears(&me(), "workspace:///a/b/file").await;
    fs::create_dir(room.join("a/b")).unwrap();
    desk.hears(&me(), "workspace:///a/b/file").await;
    fs::write(room.join("a/b/file"), "x").unwrap();
    desk.hears(&me(), "workspace:///a/b/file").await;
    // The directory is another one, and its file is watched as well.
    fs::create_dir(room.join("new")).unwrap();
    fs::rename(room.join("a/b"), room.join("old")).unwrap();
    fs::rename(room.join("new"), room.join("a/b")).unwrap();
    desk.hears(&me(), "workspace:///a/b/file").await;
    fs::write(room.join("a/b/file"), "y").unwrap();
    desk.hears(&me(), "workspace:///a/b/file").await;
}

#[tokio::test]
async fn what_a_link_leads_to_is_watched_as_well() {
    let mut desk = Desk::new();
    let room = desk.room(&me());
    fs::create_dir(room.join("real")).unwrap();
    fs::write(room.join("real/file"), "1").unwrap();
    symlink("real/file", room.join("link")).unwrap();
    desk.watch("workspace:///link").await;
    fs::write(room.join("real/file"), "2").unwrap();
    desk.hears(&me(), "workspace:///link").await;
}

/// Changes of others come first; the session hears of its own file and of nothing else.
#[tokio::test]
async fn nobody_hears_of_files_that_are_not_watched_or_not_inside() {
    let mut desk = Desk::new();
    let other = Context::for_test(Principal::local(), "other", None, None);
    let (room, others) = (desk.room(&me()), desk.room(&other));
    let outside = desk.directory.path().join("outside");
    fs::create_dir(&outside).unwrap();
    symlink(&outside, room.join("out")).unwrap();
    desk.watch("workspace:///out/file").await;
    desk.watch("workspace:///file").await;
    fs::write(outside.join("file"), "x").unwrap();
    fs::write(others.join("file"), "x").unwrap();
    fs::write(room.join("beside"), "x").unwrap();
    fs::read(room.join("beside")).unwrap();
    fs::write(room.join("file"), "x").unwrap();
    desk.hears(&me(), "workspace:///file").await;
    assert!(desk.told.try_recv().is_err());
}

#[tokio::test]
async fn a_watch_ends_when_it_is_taken_back_as_often_as_it_was_asked_for() {
    let desk = Desk::new();
    let uri = "workspace:///a/file";
    fs::create_dir(desk.room(&me()).join("a")).unwrap();
    desk.watch(uri).await;
    desk.watch(uri).await;
    assert_eq!(desk.counts(), (1, 2));
    desk.resources.unsubscribe(uri, &me()).await.unwrap();
    assert_eq!(desk.counts(), (1, 2));
    desk.resources.unsubscribe(uri, &me()).await.unwrap();
    assert_eq!(desk.counts(), (0, 0));
    desk.resources.unsubscribe(uri, &me()).await.unwrap();
    desk.watch(uri).await;
    assert_eq!(desk.counts(), (1, 2));
}

#[tokio::test]
async fn an_ended_session_watches_nothing() {
    let mut desk = Desk::new();
    let other = Context::for_test(Principal::local(), "other", None, None);
    for path in ["a", "b", "c"] {
        desk.watch(&format!("workspace:///{path}")).await;
    }
    desk.resources.subscribe("workspace:///a", &other).await.unwrap();
    desk.resources.session_ended(&me().session_key());
    while desk.counts() != (1, 1) {
        tokio::task::yield_now().await;
    }
    fs::write(desk.room(&me()).join("a"), "x").unwrap();
    fs::write(desk.room(&other).join("a"), "x").unwrap();
    desk.hears(&other, "workspace:///a").await;
    assert!(desk.tasks.shut_down(Duration::from_secs(10)).await);
}

#[tokio::test]
async fn a_session_watches_so_many_files_and_no_more() {
    let desk = Desk::new();
    for number in 0..100 {
        desk.watch(&format!("workspace:///{number}")).await;
    }
    let error = desk.resources.subscribe("workspace:///one-more", &me()).await.unwrap_err();
    assert!(matches!(error.kind, Kind::Limited { .. }), "{error:?}");
    desk.watch("workspace:///0").await;
    let other = Context::for_test(Principal::local(), "other", None, None);
    desk.resources.subscribe("workspace:///0", &other).await.unwrap();
    assert_eq!(desk.counts(), (101, 2));
}

#[tokio::test]
async fn so_many_directories_are_watched_and_no_more() {
    let desk = Desk::new();
    let room = desk.room(&me());
    let deep = |name: &str| format!("{name}{}", "/d".repeat(300));
    for name in ["a", "b"] {
        fs::create_dir_all(room.join(deep(name))).unwrap();
    }
    desk.watch(&format!("workspace:///{}/file", deep("a"))).await;
    let before = desk.counts();
    assert_eq!(before, (1, 302));
    let error =
        desk.resources.subscribe(&format!("workspace:///{}/file", deep("b")), &me()).await.unwrap_err();
    assert!(matches!(error.kind, Kind::Limited { .. }), "{error:?}");
    assert_eq!(desk.counts(), before, "nothing is left of it");
}
