//! The file tools as a client meets them: through the schema check, with results as they go out.

use std::{
    ffi::OsStr,
    fs,
    os::unix::ffi::OsStrExt,
    os::unix::fs::{PermissionsExt, symlink},
    path::Path,
};

use moongate_core::{Backend, Builtin, Call, Context, Operation, Principal, SessionKey};
use moongate_upstream::{BuiltinBackend, ToolErrors};
use rustix::fs::{CWD, FileType, Mode, mknodat};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::*;
use crate::room::Rooms;

const LIMIT: u64 = 64 * 1024;

struct Tools {
    rooms: Rooms,
    files: Files,
}

impl Builtin for Tools {
    fn name(&self) -> &'static str {
        "workspace"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        specs()
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
        self.files.call(tool, &arguments, &self.rooms.open(&cx.session_key()).unwrap()).await
    }

    fn session_ended(&self, _session: &SessionKey) {}
}

struct Desk {
    directory: TempDir,
    room: Room,
    backend: BuiltinBackend<Tools>,
}

impl Desk {
    fn new() -> Self {
        Self::open_to(|_| Vec::new())
    }

    fn open_to(import_roots: impl FnOnce(&Path) -> Vec<PathBuf>) -> Self {
        let directory = TempDir::new().unwrap();
        let (clock, _) = Clock::settable(humantime::parse_rfc3339("2026-01-02T03:04:05Z").unwrap());
        let options = FileOptions { max_file_size: LIMIT, import_roots: import_roots(directory.path()) };
        let rooms = Rooms::new(directory.path().join("rooms"), clock.clone());
        let room = rooms.open(&me().session_key()).unwrap();
        let tools = Tools { rooms, files: Files::new(options, clock) };
        Self { directory, room, backend: BuiltinBackend::new(tools, ToolErrors::Result) }
    }

    async fn result(&self, tool: &str, arguments: Value) -> Value {
        let operation = Operation::CallTool { name: tool.into(), arguments: arguments.into() };
        self.backend.call(Call::new(operation), &me()).await.unwrap().result.parse().unwrap()
    }

    /// The structured result of a call that succeeds.
    async fn ok(&self, tool: &str, arguments: Value) -> Value {
        let mut result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], json!(false), "{tool}: {result}");
        result["structuredContent"].take()
    }

    /// The text of a call that succeeds.
    async fn text(&self, tool: &str, arguments: Value) -> String {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], json!(false), "{tool}: {result}");
        result["content"][0]["text"].as_str().unwrap().to_owned()
    }

    /// The code and the sentence of a call that fails.
    async fn err(&self, tool: &str, arguments: Value) -> (i64, String) {
        let result = self.result(tool, arguments).await;
        assert_eq!(result["isError"], json!(true), "{tool}: {result}");
        let error = &result["structuredContent"]["error"];
        (error["code"].as_i64().unwrap(), error["message"].as_str().unwrap().to_owned())
    }

    fn at(&self, path: impl AsRef<Path>) -> PathBuf {
        self.room.path().join(path)
    }

    fn put(&self, path: &str, contents: impl AsRef<[u8]>) {
        fs::create_dir_all(self.at(path).parent().unwrap()).unwrap();
        fs::write(self.at(path), contents).unwrap();
    }

    fn read(&self, path: &str) -> String {
        fs::read_to_string(self.at(path)).unwrap()
    }

    /// All that lies in the room, with sizes.
    fn listing(&self) -> Vec<(PathBuf, u64)> {
        let (mut found, mut left) = (Vec::new(), vec![self.room.path().to_owned()]);
        while let Some(directory) = left.pop() {
            for entry in fs::read_dir(directory).unwrap().map(Result::unwrap) {
                let metadata = entry.metadata().unwrap();
                found.push((entry.path(), metadata.len()));
                left.extend(metadata.is_dir().then(|| entry.path()));
            }
        }
        found.sort();
        found
    }

    /// A directory beside the rooms with a file in it.
    fn outside(&self) -> PathBuf {
        let outside = self.directory.path().join("outside");
        fs::create_dir_all(&outside).unwrap();
        fs::write(outside.join("secret"), "do not tell").unwrap();
        outside
    }
}

fn me() -> Context {
    Context::for_test(Principal::local(), "s", None, None)
}

/// Every tool that takes a path, with arguments that name it.
fn all_with(path: &str) -> Vec<(&'static str, Value)> {
    vec![
        ("read_file", json!({"path": path})),
        ("write_file", json!({"path": path, "content": "x"})),
        ("write_file", json!({"path": path, "content": "x", "mode": "a"})),
        ("list_directory", json!({"path": path})),
        ("replace_lines_in_file", json!({"path": path, "replacements": [{"start_line": 1}]})),
        ("search_files", json!({"pattern": "*", "path": path})),
        ("grep", json!({"pattern": ".", "path": path})),
        ("export_file", json!({"path": path})),
        ("export_zip", json!({"files": [path]})),
    ]
}

/// Sees every tool refuse `path` with one of `codes`, and nothing appear in the room.
async fn everybody_refuses(desk: &Desk, path: &str, codes: &[i64]) {
    let before = desk.listing();
    for (tool, arguments) in all_with(path) {
        let (code, message) = desk.err(tool, arguments).await;
        assert!(codes.contains(&code), "{tool}: {code} {message}");
        assert!(!message.contains("do not tell"), "{tool}: {message}");
        assert_eq!(desk.listing(), before, "{tool} left something");
    }
}

#[tokio::test]
async fn parent_components_are_refused_by_every_tool() {
    let desk = Desk::new();
    for path in ["..", "../x", "a/../../x"] {
        everybody_refuses(&desk, path, &[-32602, -32603]).await;
    }
}

#[tokio::test]
async fn absolute_paths_are_refused_by_every_tool() {
    let desk = Desk::new();
    let secret = desk.outside().join("secret");
    for path in ["/etc/passwd", secret.to_str().unwrap(), "C:\\x", "\\\\server\\x"] {
        everybody_refuses(&desk, path, &[-32602, -32603]).await;
    }
    assert_eq!(fs::read_to_string(secret).unwrap(), "do not tell");
}

#[tokio::test]
async fn paths_with_nul_are_refused_by_every_tool() {
    everybody_refuses(&Desk::new(), "a\0b", &[-32602, -32603]).await;
}

#[tokio::test]
async fn paths_that_are_too_long_are_refused_by_every_tool() {
    let desk = Desk::new();
    everybody_refuses(&desk, &"x".repeat(1001), &[-32602, -32603]).await;
    for path in ["x".repeat(300), format!("new/{}", "x".repeat(300)), format!("a/{}/b", "x".repeat(300))] {
        everybody_refuses(&desk, &path, &[-32602, -32603]).await;
    }
}

#[tokio::test]
async fn symbolic_links_that_leave_are_refused_by_every_tool() {
    let desk = Desk::new();
    let outside = desk.outside();
    symlink(&outside, desk.at("directory")).unwrap();
    symlink(outside.join("secret"), desk.at("file")).unwrap();
    symlink(outside.join("new"), desk.at("dangling")).unwrap();
    for path in ["file", "dangling", "directory/secret", "directory/new"] {
        everybody_refuses(&desk, path, &[-32602, -32603]).await;
    }
    for (tool, arguments) in [
        ("list_directory", json!({"path": "directory"})),
        ("search_files", json!({"pattern": "*", "path": "directory"})),
        ("grep", json!({"pattern": ".", "path": "directory"})),
    ] {
        let (code, message) = desk.err(tool, arguments).await;
        assert_eq!(
            (code, &*message),
            (-32603, "Access denied: directory leads out of the workspace"),
            "{tool}"
        );
    }
    assert_eq!(fs::read_dir(&outside).unwrap().count(), 1);
    assert_eq!(fs::read_to_string(outside.join("secret")).unwrap(), "do not tell");
}

#[tokio::test]
async fn a_circle_of_links_is_called_one() {
    let desk = Desk::new();
    symlink("b", desk.at("a")).unwrap();
    symlink("a", desk.at("b")).unwrap();
    for (tool, arguments) in [
        ("read_file", json!({"path": "a"})),
        ("write_file", json!({"path": "a", "content": "x"})),
        ("write_file", json!({"path": "a", "content": "x", "mode": "a"})),
    ] {
        let (code, message) = desk.err(tool, arguments).await;
        assert!(code == -32602 && message.contains("lead in a circle"), "{tool}: {code} {message}");
    }
}

#[tokio::test]
async fn an_edit_that_takes_long_keeps_other_sessions_from_nothing() {
    let desk = Desk::new();
    let (release, held) = (std::sync::mpsc::channel::<()>(), tokio::sync::oneshot::channel());
    let room = desk.room.clone();
    let editing = tokio::task::spawn_blocking(move || {
        let _alone = room.edits().lock().unwrap();
        held.0.send(()).unwrap();
        release.1.recv().unwrap();
    });
    held.1.await.unwrap();
    let (mine, other) = (me(), Context::for_test(Principal::local(), "other", None, None));
    let write = |cx| {
        let arguments = json!({"path": "a", "content": "x"});
        let operation = Operation::CallTool { name: "write_file".into(), arguments: arguments.into() };
        desk.backend.call(Call::new(operation), cx)
    };
    let mut own = write(&mine);
    let written: Value = tokio::select! {
        biased;
        _ = &mut own => panic!("somebody else edits"),
        written = write(&other) => written.unwrap().result.parse().unwrap(),
    };
    assert_eq!(written["isError"], json!(false), "{written}");
    assert!(!desk.at("a").exists());
    // Who only looks waits for no edit, not even in the same session.
    for (tool, arguments) in [("list_directory", json!({})), ("grep", json!({"pattern": ".", "path": "."}))] {
        desk.ok(tool, arguments).await;
    }
    release.0.send(()).unwrap();
    editing.await.unwrap();
    own.await.unwrap();
    assert_eq!(desk.read("a"), "x");
}

#[tokio::test]
async fn an_archive_can_be_read_by_its_address() {
    let desk = Desk::new();
    let half = usize::try_from(LIMIT / 2).unwrap();
    for name in ["one", "two", "small"] {
        desk.put(name, vec![b'x'; if name == "small" { 10 } else { half }]);
    }
    let told = desk.ok("export_zip", json!({"files": ["one", "two", "small"]})).await;
    assert_eq!(told["file_count"], json!(2), "{told}");
    assert!(told["skipped"][0].as_str().unwrap().starts_with("two: "), "{told}");
    assert!(told["size"].as_u64().unwrap() <= LIMIT);
    // As large as a file may be, to the byte.
    let rest = usize::try_from(LIMIT).unwrap() - half - 2 * (30 + 46 + 2 * 3) - 22;
    desk.put("fit", vec![b'x'; rest]);
    let told = desk.ok("export_zip", json!({"files": ["one", "fit"]})).await;
    assert_eq!((&told["file_count"], &told["size"]), (&json!(2), &json!(LIMIT)));
}

#[tokio::test]
async fn walks_do_not_follow_links_and_do_not_run_in_circles() {
    let desk = Desk::new();
    desk.put("a/file", "needle");
    symlink(desk.outside(), desk.at("out")).unwrap();
    symlink("..", desk.at("a/up")).unwrap();
    let found = desk.ok("search_files", json!({"pattern": "*"})).await;
    let paths: Vec<_> = found["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
    assert_eq!(json!(paths), json!(["a", "a/file", "a/up", "out"]));
    let found = desk.ok("grep", json!({"pattern": "needle|tell", "path": "."})).await;
    assert_eq!(found["matches"], json!([{"path": "a/file", "text": "needle"}]));
}

#[tokio::test]
async fn links_that_stay_are_followed_and_stay_links() {
    let desk = Desk::new();
    desk.put("real/file", "one\n");
    symlink("real/file", desk.at("link")).unwrap();
    symlink("real", desk.at("directory")).unwrap();
    assert_eq!(desk.text("read_file", json!({"path": "link"})).await, "one\n");
    desk.ok("write_file", json!({"path": "link", "content": "two\n"})).await;
    desk.ok("write_file", json!({"path": "directory/file", "content": "three\n", "mode": "a"})).await;
    assert_eq!(desk.read("real/file"), "two\nthree\n");
    assert!(desk.at("link").symlink_metadata().unwrap().is_symlink());
}

#[tokio::test]
async fn pipes_and_devices_are_refused_without_waiting() {
    let desk = Desk::new();
    mknodat(CWD, desk.at("pipe"), FileType::Fifo, Mode::RWXU, 0).unwrap();
    everybody_refuses(&desk, "pipe", &[-32602, -32603]).await;
    let listed = desk.ok("list_directory", json!({})).await;
    assert_eq!(listed["entries"][0], json!({"name": "pipe", "type": "other", "size": 0}));
    // /dev/zero would never end. Making one takes rights that not every machine gives its tests.
    if mknodat(CWD, desk.at("zero"), FileType::CharacterDevice, Mode::RWXU, rustix::fs::makedev(1, 5)).is_ok()
    {
        everybody_refuses(&desk, "zero", &[-32602, -32603]).await;
    }
    assert_eq!(desk.ok("grep", json!({"pattern": ".", "path": "."})).await["total"], json!(0));
}

#[tokio::test]
async fn a_directory_is_no_file_and_a_file_no_directory() {
    let desk = Desk::new();
    desk.put("directory/file", "x");
    for (tool, arguments) in [
        ("read_file", json!({"path": "directory"})),
        ("write_file", json!({"path": "directory", "content": "x"})),
        ("write_file", json!({"path": ".", "content": "x"})),
        ("write_file", json!({"path": "directory", "content": "x", "mode": "a"})),
        ("export_file", json!({"path": "directory"})),
    ] {
        let (code, message) = desk.err(tool, arguments).await;
        assert!(code == -32602 && message.contains("is a directory"), "{tool}: {message}");
    }
    let (code, message) = desk.err("list_directory", json!({"path": "directory/file"})).await;
    assert_eq!((code, &*message), (-32602, "Error: directory/file is not a directory"));
    let (code, _) = desk.err("write_file", json!({"path": "directory/file/x", "content": ""})).await;
    assert_eq!(code, -32602);
}

#[tokio::test]
async fn a_sparse_gigabyte_is_refused_unread() {
    let desk = Desk::new();
    fs::File::create(desk.at("huge")).unwrap().set_len(1 << 30).unwrap();
    for (tool, arguments) in all_with("huge") {
        match tool {
            "write_file" if arguments.get("mode").is_none() => continue,
            "list_directory" | "search_files" => continue,
            _ => {}
        }
        let (code, message) = desk.err(tool, arguments).await;
        assert_eq!(code, -32603, "{tool}: {message}");
        assert!(message.contains("would take more than the 65536 bytes"), "{tool}: {message}");
    }
    let found = desk.ok("grep", json!({"pattern": ".", "path": "."})).await;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(0), &json!(true)));
    assert_eq!(desk.at("huge").metadata().unwrap().len(), 1 << 30);
}

/// What the calling thread has read so far, in bytes.
#[cfg(target_os = "linux")]
fn bytes_read() -> u64 {
    let told = fs::read_to_string("/proc/thread-self/io").unwrap();
    told.lines().find_map(|line| line.strip_prefix("rchar: ")).unwrap().parse().unwrap()
}

#[cfg(target_os = "linux")]
#[test]
fn an_archive_reads_no_more_than_it_may_hold() {
    let desk = Desk::new();
    let names: Vec<_> = (0..50).map(|number| number.to_string()).collect();
    for name in &names {
        fs::File::create(desk.at(name)).unwrap().set_len(LIMIT - 200).unwrap();
    }
    // Each of them would do alone, and so would the first, again and again.
    let files = names.iter().chain([&names[0]; 50]).collect::<Vec<_>>();
    let arguments = serde_json::from_value(json!({"files": files})).unwrap();
    let before = bytes_read();
    let told = export::zip(desk.room.directory(), &arguments, LIMIT, std::time::UNIX_EPOCH).unwrap();
    let read = bytes_read() - before;
    assert!(read < 2 * LIMIT, "{read} bytes were read");
    let told: Value = told.into_result().parse().unwrap();
    assert_eq!(told["structuredContent"]["file_count"], json!(1));
    assert_eq!(told["structuredContent"]["skipped"].as_array().unwrap().len(), 49);
}

/// 64 MiB of them are as many as a search reads.
#[tokio::test]
async fn files_that_are_no_text_count_as_read() {
    let desk = Desk::new();
    for number in 0..64 * 1024 * 1024 / LIMIT {
        fs::File::create(desk.at(number.to_string())).unwrap().set_len(LIMIT).unwrap();
    }
    desk.put("z", "needle");
    let found = desk.ok("grep", json!({"pattern": "needle", "path": "."})).await;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(0), &json!(true)));
    fs::remove_file(desk.at("0")).unwrap();
    let found = desk.ok("grep", json!({"pattern": "needle", "path": "."})).await;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(1), &json!(false)));
}

#[tokio::test]
async fn names_that_are_not_utf8_are_listed_safely() {
    let desk = Desk::new();
    fs::write(desk.at(OsStr::from_bytes(b"bad-\xff")), "needle").unwrap();
    fs::create_dir(desk.at(OsStr::from_bytes(b"dir-\xfe"))).unwrap();
    let listed = desk.ok("list_directory", json!({})).await;
    assert_eq!(listed["entries"][0]["name"], json!("dir-\u{fffd}"));
    assert_eq!(listed["entries"][1], json!({"name": "bad-\u{fffd}", "type": "file", "size": 6}));
    assert_eq!(desk.ok("search_files", json!({"pattern": "bad*"})).await["total"], json!(1));
    assert_eq!(desk.ok("grep", json!({"pattern": "needle", "path": "."})).await["total"], json!(1));
}

#[tokio::test]
async fn a_file_is_written_read_appended_and_overwritten() {
    let desk = Desk::new();
    let told = desk.ok("write_file", json!({"path": "a/b/ü.txt", "content": "é\n"})).await;
    assert_eq!(told, json!({"path": "a/b/ü.txt", "bytes_written": 3}));
    desk.ok("write_file", json!({"path": "a/b/ü.txt", "content": "two", "mode": "a"})).await;
    assert_eq!(desk.text("read_file", json!({"path": "a/b/ü.txt"})).await, "é\ntwo");
    desk.ok("write_file", json!({"path": "./a//b/ü.txt", "content": "", "mode": "w"})).await;
    assert_eq!(desk.read("a/b/ü.txt"), "");
    assert_eq!(desk.err("write_file", json!({"path": "x", "content": "", "mode": "r"})).await.0, -32602);
    assert_eq!(desk.err("write_file", json!({"path": "x"})).await.0, -32602);
    assert_eq!(fs::read_dir(desk.at("a/b")).unwrap().count(), 1, "no draft is left");
}

#[tokio::test]
async fn an_overwritten_file_keeps_its_mode() {
    let desk = Desk::new();
    desk.put("run.sh", "old");
    fs::set_permissions(desk.at("run.sh"), fs::Permissions::from_mode(0o755)).unwrap();
    desk.ok("write_file", json!({"path": "run.sh", "content": "new"})).await;
    desk.ok(
        "replace_lines_in_file",
        json!({"path": "run.sh", "replacements": [{"start_line": 1, "new_content": "x"}]}),
    )
    .await;
    assert_eq!(desk.at("run.sh").metadata().unwrap().permissions().mode() & 0o777, 0o755);
}

/// Replacing breaks the link; what it led to stays as it is.
#[tokio::test]
async fn overwriting_a_hard_link_leaves_the_other_name_alone() {
    let desk = Desk::new();
    let outside = desk.outside().join("secret");
    fs::hard_link(&outside, desk.at("link")).unwrap();
    desk.ok("write_file", json!({"path": "link", "content": "mine"})).await;
    assert_eq!(fs::read_to_string(outside).unwrap(), "do not tell");
}

#[tokio::test]
async fn files_are_bounded_in_size_however_they_grow() {
    let desk = Desk::new();
    let full = "x".repeat(usize::try_from(LIMIT).unwrap());
    desk.ok("write_file", json!({"path": "full", "content": full})).await;
    assert_eq!(desk.text("read_file", json!({"path": "full"})).await.len(), full.len());
    for (tool, arguments) in [
        ("write_file", json!({"path": "full", "content": "x", "mode": "a"})),
        ("write_file", json!({"path": "more", "content": format!("{full}x")})),
        (
            "replace_lines_in_file",
            json!({"path": "full", "replacements": [{"start_line": 1, "new_content": format!("{full}x")}]}),
        ),
    ] {
        let (code, message) = desk.err(tool, arguments).await;
        assert_eq!(code, -32603, "{tool}: {message}");
    }
    assert_eq!(desk.read("full"), full);
    assert!(!desk.at("more").exists());
}

#[tokio::test]
async fn some_lines_are_read() {
    let desk = Desk::new();
    desk.put("file", "1\n2\r\n3");
    for (range, expected) in [
        (json!({}), "1\n2\r\n3"),
        (json!({"start_line": 2}), "2\r\n3"),
        (json!({"end_line": 2}), "1\n2\r\n"),
        (json!({"start_line": "2", "end_line": 2.0}), "2\r\n"),
        (json!({"start_line": 3, "end_line": 99}), "3"),
    ] {
        let mut arguments = json!({"path": "file"});
        arguments.as_object_mut().unwrap().extend(range.as_object().unwrap().clone());
        assert_eq!(desk.text("read_file", arguments).await, expected, "{range}");
    }
    let told = desk.ok("read_file", json!({"path": "file", "start_line": 2})).await;
    assert_eq!(told, json!({"path": "file", "size": 6, "start_line": 2, "end_line": 3, "total_lines": 3}));
}

#[tokio::test]
async fn impossible_lines_are_refused() {
    let desk = Desk::new();
    desk.put("file", "1\n2\n3");
    for range in [
        json!({"path": "file", "start_line": 3, "end_line": 2}),
        json!({"path": "file", "start_line": 0}),
        json!({"path": "file", "start_line": 4}),
        json!({"path": "file", "start_line": 1e300}),
    ] {
        assert_eq!(desk.err("read_file", range.clone()).await.0, -32602, "{range}");
    }
    for replacements in [
        json!([{"start_line": 3, "end_line": 2, "new_content": "x"}]),
        json!([{"start_line": 4, "new_content": "x"}]),
        json!([{"start_line": 1, "line_number": 2}]),
        json!([{"start_line": 1, "end_line": 2}, {"start_line": 2}]),
        json!([{"new_content": "x"}]),
        json!([]),
    ] {
        let (code, _) =
            desk.err("replace_lines_in_file", json!({"path": "file", "replacements": replacements})).await;
        assert_eq!(code, -32602, "{replacements}");
    }
    assert_eq!(desk.read("file"), "1\n2\n3");
}

#[tokio::test]
async fn an_empty_file_has_no_lines() {
    let desk = Desk::new();
    desk.put("empty", "");
    let told = desk.ok("read_file", json!({"path": "empty"})).await;
    assert_eq!(told["total_lines"], json!(0));
    let replacement = json!({"path": "empty", "replacements": [{"start_line": 1, "new_content": "x"}]});
    let (code, message) = desk.err("replace_lines_in_file", replacement).await;
    assert_eq!((code, &*message), (-32602, "Error: line 1 is out of range: the file has 0 lines"));
    assert_eq!(desk.ok("grep", json!({"pattern": "^$", "path": "empty"})).await["total"], json!(0));
}

#[tokio::test]
async fn lines_are_replaced_in_any_order_and_by_the_old_name() {
    let desk = Desk::new();
    desk.put("file", "1\r\n2\r\n3");
    let replacements = json!([{"line_number": 3, "new_content": "c"}, {"start_line": 1, "end_line": 2, "new_content": "a\nb\nb2\n"}]);
    let told = desk.ok("replace_lines_in_file", json!({"path": "file", "replacements": replacements})).await;
    assert_eq!(told, json!({"path": "file", "replacements": 2, "size": 11, "total_lines": 4}));
    assert_eq!(desk.read("file"), "a\r\nb\r\nb2\r\nc");
}

#[tokio::test]
async fn edits_at_the_same_time_are_all_made() {
    let desk = Desk::new();
    desk.put("file", "\n".repeat(50));
    let mut pending = tokio::task::JoinSet::new();
    let desk = Arc::new(desk);
    for line in 1..=50 {
        let desk = Arc::clone(&desk);
        pending.spawn(async move {
            let edit = json!({"path": "file", "replacements": [{"start_line": line, "new_content": line.to_string()}]});
            desk.ok("replace_lines_in_file", edit).await
        });
    }
    pending.join_all().await;
    assert_eq!(
        desk.read("file"),
        (1..=50).map(|line| line.to_string()).collect::<Vec<_>>().join("\n") + "\n"
    );
}

#[tokio::test]
async fn a_binary_file_is_told_apart_from_text() {
    let desk = Desk::new();
    desk.put("a b.bin", b"\x00\xffneedle");
    let (code, message) = desk.err("read_file", json!({"path": "a b.bin"})).await;
    assert_eq!(code, -32603);
    assert!(message.ends_with("Read it as the resource workspace:///a%20b.bin"), "{message}");
    assert_eq!(desk.ok("grep", json!({"pattern": "needle", "path": "."})).await["total"], json!(0));
}

#[tokio::test]
async fn a_directory_lists_directories_first_and_by_name() {
    let desk = Desk::new();
    for path in ["b", "a", "z/x", "c/x"] {
        desk.put(path, "12");
    }
    let result = desk.result("list_directory", json!({})).await;
    assert_eq!(result["content"][0]["text"], json!("c/\nz/\na (2 bytes)\nb (2 bytes)\n"));
    let directory = |name: &str| json!({"name": name, "type": "directory", "size": 0});
    let file = |name: &str| json!({"name": name, "type": "file", "size": 2});
    let entries = json!([directory("c"), directory("z"), file("a"), file("b")]);
    assert_eq!(
        result["structuredContent"],
        json!({"path": ".", "entries": entries, "total": 4, "truncated": false})
    );
    assert_eq!(desk.err("list_directory", json!({"path": "none"})).await.0, -32602);
}

#[tokio::test]
async fn a_listing_that_is_too_long_is_cut_and_says_so() {
    let desk = Desk::new();
    for number in 0..5001 {
        fs::write(desk.at(number.to_string()), "").unwrap();
    }
    let listed = desk.ok("list_directory", json!({})).await;
    assert_eq!((&listed["total"], &listed["truncated"]), (&json!(5000), &json!(true)));
    let found = desk.ok("search_files", json!({"pattern": "*"})).await;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(1000), &json!(true)));
}

#[tokio::test]
async fn files_are_found_by_pattern_depth_and_type() {
    let desk = Desk::new();
    for path in ["a.rs", "src/b.rs", "src/deep/c.rs", "src/deep/d.txt"] {
        desk.put(path, "x");
    }
    for (arguments, expected) in [
        (json!({"pattern": "*.rs"}), json!(["src/deep/c.rs", "src/b.rs", "a.rs"])),
        (json!({"pattern": "*.rs", "max_depth": 1}), json!(["a.rs"])),
        (json!({"pattern": "*.rs", "max_depth": 2}), json!(["src/b.rs", "a.rs"])),
        (json!({"pattern": "*.rs", "path": "src"}), json!(["src/deep/c.rs", "src/b.rs"])),
        (json!({"pattern": "deep/*", "path": "src"}), json!(["src/deep/c.rs", "src/deep/d.txt"])),
        (json!({"pattern": "*", "file_type": "dir"}), json!(["src", "src/deep"])),
        (json!({"pattern": "d*", "file_type": "file"}), json!(["src/deep/d.txt"])),
        (json!({"pattern": "nothing"}), json!([])),
    ] {
        let found = desk.ok("search_files", arguments.clone()).await;
        let paths: Vec<_> =
            found["files"].as_array().unwrap().iter().map(|file| file["path"].clone()).collect();
        assert_eq!(json!(paths), expected, "{arguments}");
        assert_eq!(found["truncated"], json!(false), "{arguments}");
    }
    let one = desk.ok("search_files", json!({"pattern": "d.txt"})).await;
    assert_eq!(
        one["files"][0],
        json!({"path": "src/deep/d.txt", "name": "d.txt", "type": "file", "size": 1})
    );
    assert_eq!(desk.err("search_files", json!({"pattern": "[z-a]"})).await.0, -32602);
}

#[tokio::test]
async fn a_search_goes_only_so_deep_and_says_so() {
    let desk = Desk::new();
    desk.put(&format!("{}file", "d/".repeat(40)), "x");
    let found = desk.ok("search_files", json!({"pattern": "file"})).await;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(0), &json!(true)));
}

#[tokio::test]
async fn a_search_looks_at_so_many_entries_and_says_so() {
    let desk = Desk::new();
    for directory in ["a", "b"] {
        fs::create_dir(desk.at(directory)).unwrap();
        for number in 0..10_000 {
            rustix::fs::mknodat(
                CWD,
                desk.at(format!("{directory}/{number}")),
                FileType::RegularFile,
                Mode::RWXU,
                0,
            )
            .unwrap();
        }
    }
    let found = desk.ok("search_files", json!({"pattern": "none"})).await;
    assert_eq!(found["truncated"], json!(true), "two directories and what is in them are more");
    let found = desk.ok("search_files", json!({"pattern": "none", "path": "a"})).await;
    assert_eq!(found["truncated"], json!(false));
}

#[tokio::test]
async fn lines_are_found_in_files_directories_and_texts() {
    let desk = Desk::new();
    desk.put("a/one", "apple\nBanana\r\n");
    desk.put("two", "banana\n");
    for (arguments, expected) in [
        (json!({"pattern": "an", "path": "a/one"}), "Banana\n"),
        (json!({"pattern": "b", "path": "a/one"}), "No line matches.\n"),
        (json!({"pattern": "b", "path": "a/one", "ignore_case": true, "line_numbers": true}), "2:Banana\n"),
        (json!({"pattern": "anana$", "path": "."}), "a/one:Banana\ntwo:banana\n"),
        (json!({"pattern": "x", "input": "x1\ny\nx2", "line_numbers": true}), "1:x1\n3:x2\n"),
        (json!({"pattern": r"\d+", "input": ""}), "No line matches.\n"),
    ] {
        assert_eq!(desk.text("grep", arguments.clone()).await, expected, "{arguments}");
    }
    for arguments in [json!({"pattern": "x"}), json!({"pattern": "x", "path": "two", "input": "x"})] {
        let (code, message) = desk.err("grep", arguments).await;
        assert_eq!((code, &*message), (-32602, "Error: give either path or input"));
    }
}

#[tokio::test]
async fn an_invalid_regex_is_refused_with_a_reason() {
    let desk = Desk::new();
    for pattern in ["(", "[a", r"(?=x)", r"(a)\1", "a{1000}{1000}", "(?P<n", &"(".repeat(1000)] {
        let (code, message) = desk.err("grep", json!({"pattern": pattern, "input": "x"})).await;
        assert_eq!(code, -32602, "{pattern}");
        assert!(message.starts_with("Error: the pattern cannot be searched for: "), "{message}");
    }
}

#[tokio::test]
async fn a_catastrophic_regex_takes_no_time() {
    let desk = Desk::new();
    let input = format!("{}!", "a".repeat(60_000));
    for pattern in ["^(a+)+$", "^(a|a)*$", "^(a|aa)+$", "(.*)(.*)(.*)(.*)(.*)[^!a]$", "(?:a?){100}b"] {
        assert_eq!(desk.ok("grep", json!({"pattern": pattern, "input": input})).await["total"], json!(0));
    }
}

#[tokio::test]
async fn a_search_for_everything_is_cut_and_says_so() {
    let desk = Desk::new();
    let found = desk.ok("grep", json!({"pattern": ".", "input": "x\n".repeat(1001)})).await;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(1000), &json!(true)));
    let long = format!("{}needle", "é".repeat(40_000));
    let found = desk.ok("grep", json!({"pattern": "needle", "input": long})).await;
    assert_eq!((&found["total"], &found["truncated"]), (&json!(0), &json!(true)));
    let found = desk.ok("grep", json!({"pattern": "^é", "input": "é".repeat(600)})).await;
    assert_eq!(found["matches"][0]["text"], json!(format!("{}…", "é".repeat(500))));
}

#[tokio::test]
async fn imports_need_an_open_directory() {
    let desk = Desk::new();
    let secret = desk.outside().join("secret");
    let (code, message) =
        desk.err("import_file", json!({"src_abs_path": secret, "dest_rel_path": "x"})).await;
    assert_eq!(code, -32603);
    assert!(message.contains("backends.workspace.import_roots"), "{message}");
}

#[tokio::test]
async fn a_file_is_imported_from_an_open_directory_and_from_nowhere_else() {
    let desk = Desk::open_to(|directory| vec![directory.join("open")]);
    let open = desk.directory.path().join("open");
    fs::create_dir_all(open.join("inner")).unwrap();
    fs::create_dir(desk.directory.path().join("open-not")).unwrap();
    fs::write(desk.directory.path().join("open-not/x"), "do not tell").unwrap();
    fs::write(open.join("inner/file"), b"\xff data").unwrap();
    fs::File::create(open.join("huge")).unwrap().set_len(LIMIT + 1).unwrap();
    symlink(desk.outside(), open.join("link")).unwrap();
    let import = |from: PathBuf| json!({"src_abs_path": from, "dest_rel_path": "new/copy"});
    desk.ok("import_file", import(open.join("inner/file"))).await;
    assert_eq!(fs::read(desk.at("new/copy")).unwrap(), b"\xff data");
    for (from, code) in [
        (open.join("link/secret"), -32603),
        (open.join("../outside/secret"), -32602),
        (desk.outside().join("secret"), -32603),
        (desk.directory.path().join("open-not/x"), -32603),
        (open.join("huge"), -32603),
        (open.join("inner"), -32602),
        (open.join("none"), -32602),
        (PathBuf::from("inner/file"), -32602),
    ] {
        let (told, message) = desk.err("import_file", import(from.clone())).await;
        assert_eq!(told, code, "{}: {message}", from.display());
    }
    let escape = json!({"src_abs_path": open.join("inner/file"), "dest_rel_path": "../x"});
    assert_eq!(desk.err("import_file", escape).await.0, -32602);
    assert_eq!(fs::read(desk.at("new/copy")).unwrap(), b"\xff data");
}

#[tokio::test]
async fn an_exported_file_is_copied_dated_and_shown() {
    let desk = Desk::new();
    desk.put("a/report.tar.gz", b"\x00data");
    let arguments =
        json!({"path": "a/report.tar.gz", "display_name": "<b>Q&A</b>", "description": "'\"<script>"});
    let result = desk.result("export_file", arguments).await;
    let block = &result["content"][1];
    let path = "exports/files/report.tar_20260102_030405.gz";
    assert_eq!(fs::read(desk.at(path)).unwrap(), b"\x00data");
    assert_eq!(
        block["annotations"],
        json!({"export_type": "file", "file_count": 1, "download_path": path,
        "created_at": "2026-01-02T03:04:05Z"})
    );
    assert_eq!(block["resource"]["uri"], json!("ui://export/files/report.tar_20260102_030405.gz"));
    let page = block["resource"]["text"].as_str().unwrap();
    assert!(
        page.contains("&lt;b&gt;Q&amp;A&lt;/b&gt;") && page.contains("&#39;&quot;&lt;script&gt;"),
        "{page}"
    );
    assert!(!page.contains("<b>Q"), "{page}");
    assert_eq!(result["structuredContent"]["uri"], json!(format!("workspace:///{path}")));

    let again = desk.ok("export_file", json!({"path": "a/report.tar.gz"})).await;
    assert_eq!(again["download_path"], json!("exports/files/report.tar_20260102_030405_2.gz"));
}

#[tokio::test]
async fn names_of_exports_stay_names() {
    let desk = Desk::new();
    let long = format!("{}.txt", "é".repeat(120));
    let ending = format!("a.{}", "é".repeat(120));
    for path in [".hidden", "no-ending", "<img src=x>.html", &*long, &*ending] {
        desk.put(path, "x");
        let told = desk.ok("export_file", json!({"path": path})).await;
        assert_eq!(desk.read(told["download_path"].as_str().unwrap()), "x");
    }
    assert_eq!(fs::read_dir(desk.at("exports/files")).unwrap().count(), 5);
}

#[tokio::test]
async fn exports_do_not_leave_through_a_link() {
    let desk = Desk::new();
    desk.put("file", "x");
    let outside = desk.outside();
    symlink(&outside, desk.at("exports")).unwrap();
    assert_eq!(desk.err("export_file", json!({"path": "file"})).await.0, -32603);
    assert_eq!(desk.err("export_zip", json!({"files": ["file"]})).await.0, -32603);
    assert_eq!(fs::read_dir(outside).unwrap().count(), 1);
}

#[tokio::test]
async fn a_zip_holds_what_could_be_read_and_names_the_rest() {
    let desk = Desk::new();
    desk.put("a/one", "1");
    desk.put("two", "2");
    let files = json!(["a/one", "./a/one", "two", "a", "none", "../x"]);
    let result = desk.result("export_zip", json!({"files": files, "package_name": "pack"})).await;
    let told = &result["structuredContent"];
    assert_eq!(told["download_path"], json!("exports/packages/pack_20260102_030405.zip"));
    assert_eq!(told["file_count"], json!(2));
    let skipped: Vec<_> = told["skipped"]
        .as_array()
        .unwrap()
        .iter()
        .map(|s| s.as_str().unwrap().split(':').next().unwrap())
        .collect();
    assert_eq!(skipped, ["a", "none", "../x"]);
    assert_eq!(result["content"][1]["annotations"]["export_type"], json!("zip"));
    let zip = fs::read(desk.at("exports/packages/pack_20260102_030405.zip")).unwrap();
    assert!(zip.starts_with(b"PK\x03\x04") && zip.windows(6).any(|part| part == b"a/one1"));
}

#[tokio::test]
async fn a_zip_of_nothing_is_refused() {
    let desk = Desk::new();
    let (code, message) = desk.err("export_zip", json!({"files": ["none"]})).await;
    assert_eq!(code, -32603);
    assert!(message.contains("none of the files could be added: none: "), "{message}");
    assert_eq!(desk.err("export_zip", json!({"files": []})).await.0, -32602);
    assert!(!desk.at("exports").exists());
    desk.put("file", "x");
    for name in ["a/b", "..", "/x", &*"x".repeat(51), "", "a\0"] {
        let arguments = json!({"files": ["file"], "package_name": name});
        assert_eq!(desk.err("export_zip", arguments).await.0, -32602, "{name:?}");
    }
}

#[tokio::test]
async fn sessions_do_not_see_each_other() {
    let desk = Desk::new();
    desk.put("file", "mine");
    let other = Context::for_test(Principal::issued("s"), "s", None, None);
    let operation =
        Operation::CallTool { name: "read_file".into(), arguments: json!({"path": "file"}).into() };
    let reply = desk.backend.call(Call::new(operation), &other).await.unwrap();
    assert_eq!(reply.result.member("isError").unwrap().as_str(), "true");
}

#[test]
fn every_tool_needs_control_and_tells_what_it_does() {
    use moongate_core::{Scope, builtin::Effect};
    let effects: Vec<_> = specs().iter().map(|spec| (spec.name, spec.effect)).collect();
    assert_eq!(
        effects,
        [
            ("read_file", Effect::Reads),
            ("list_directory", Effect::Reads),
            ("search_files", Effect::Reads),
            ("grep", Effect::Reads),
            ("write_file", Effect::Overwrites),
            ("replace_lines_in_file", Effect::Overwrites),
            ("import_file", Effect::Overwrites),
            ("export_file", Effect::Adds),
            ("export_zip", Effect::Adds),
        ]
    );
    assert!(specs().iter().all(|spec| spec.scope == Scope::CONTROL));
}
