//! What is taken in, from where, and how much of it.

use std::fs;

use super::*;

/// A desk that may read the files in a folder, and the folder's `file://` address.
fn desk_with_files() -> (Desk, String) {
    let folder = Arc::new(tempfile::tempdir().unwrap());
    let root = folder.path().join("files");
    fs::create_dir(&root).unwrap();
    let url = format!("file://{}", root.display());
    (Desk::at(&folder, ContentOptions { roots: vec![root], ..options() }), url)
}

#[tokio::test]
async fn what_is_missing_is_named() {
    let desk = Desk::new();
    for (arguments, message) in [
        (json!({}), "filename is required"),
        (json!({"content": "x"}), "filename is required"),
        (json!({"content": "x", "filename": " "}), "filename is required"),
        (json!({"filename": "a.txt"}), "content is required"),
        (
            json!({"filename": "a.txt", "content": "x", "file_url": "file:///a"}),
            "content and file_url exclude each other: send one of them",
        ),
        (
            json!({"content": "x", "fileUrl": "file:///a"}),
            "content and file_url exclude each other: send one of them",
        ),
        (json!({"filename": "a.txt", "content": 5}), "Error: content must be a string"),
        (
            json!({"filename": "a", "content": "x", "metadata": {"uploaded_at": "yesterday"}}),
            "Invalid arguments: uploaded_at must be a time such as 2026-01-31T12:00:00Z",
        ),
        (json!({"file_url": "http://example.com/"}), "file_url must begin with file://"),
    ] {
        assert_eq!(desk.err(&me(), "add_content", arguments).await, (-32602, message.to_owned()));
    }
    let long = json!({"filename": "x".repeat(1025), "content": "x"});
    assert_eq!(desk.err(&me(), "add_content", long).await.0, -32602);
    let (code, message) = desk.err(&me(), "add_content", json!({"file_url": "file:///etc/passwd"})).await;
    assert!(code == -32603 && message.contains("backends.content.roots"), "{message}");
    assert!(desk.filenames(&me()).await.is_empty(), "nothing was written");
}

#[tokio::test]
async fn a_time_that_cannot_be_written_is_refused() {
    let desk = Desk::new();
    for time in ["9999-12-31T23:59:59-00:01", "1970-01-01T00:00:00+00:01", "1969-12-31T23:59:59Z"] {
        for spelling in ["uploaded_at", "uploadedAt"] {
            let dated = json!({"filename": "a", "content": "x", "metadata": {spelling: time}});
            let (code, message) = desk.err(&me(), "add_content", dated).await;
            assert!(
                code == -32602 && message.contains("uploaded_at must be a time"),
                "{time}: {code} {message}"
            );
        }
    }
    assert!(desk.filenames(&me()).await.is_empty(), "nothing was written");
}

#[tokio::test]
async fn only_the_alias_takes_a_text_without_a_name() {
    let desk = Desk::new();
    let added = desk.ok(&me(), "addContent", json!({"content": "x"})).await;
    assert_eq!(added["filename"], json!("direct_content"));
    let added =
        desk.ok(&me(), "addContent", json!({"content": "x", "metadata": {"filename": "m.txt"}})).await;
    assert_eq!(added["filename"], json!("m.txt"));
    let neither = desk.err(&me(), "addContent", json!({"filename": "x"})).await;
    assert_eq!(neither, (-32602, "content is required".to_owned()));
    assert_eq!(desk.err(&me(), "addContent", json!({})).await, neither);
}

#[tokio::test]
async fn what_is_known_of_a_text_is_kept_with_it() {
    let desk = Desk::new();
    for metadata in [
        json!({"filename": "m.md", "mime_type": "text/markdown", "size": 7, "uploaded_at": "2025-05-05T05:05:05Z"}),
        json!({"filename": "m.md", "mimeType": "text/markdown", "uploadedAt": "2025-05-05T05:05:05Z"}),
    ] {
        let added = desk.ok(&me(), "add_content", json!({"content": "# é", "metadata": metadata})).await;
        assert_eq!(added["filename"], json!("m.md"));
        assert_eq!(added["mimeType"], json!("text/markdown"));
        assert_eq!(added["uploadedAt"], json!("2025-05-05T05:05:05.000Z"));
        assert_eq!(added["size"], json!(4), "measured, in bytes");
    }
    let blank = json!({"filename": "", "content": "", "metadata": {"filename": "m.md"}});
    assert_eq!(desk.ok(&me(), "add_content", blank).await["filename"], json!("m.md"));
    let both = json!({"filename": "f.md", "content": "", "metadata": {"filename": "m.md"}});
    let added = desk.ok(&me(), "add_content", both).await;
    assert_eq!((&added["filename"], &added["lineCount"]), (&json!("f.md"), &json!(1)));
    let id = desk.add(&me(), "odd", "a\0b\u{feff}\r\n\u{1F600}").await;
    let read = desk.ok(&me(), "read_content", json!({"content_id": id})).await;
    assert_eq!(read["content"], json!("a\0b\u{feff}\r\n\u{1F600}"), "a text comes back as it is");
}

#[tokio::test]
async fn a_preview_ends_between_characters() {
    let desk = Desk::new();
    let added = desk.ok(&me(), "add_content", json!({"filename": "a", "content": "한".repeat(300)})).await;
    assert_eq!(added["preview"], json!("한".repeat(200)));
}

#[tokio::test]
async fn limits_say_how_to_make_room() {
    let desk = Desk::new();
    let add = async |size: usize| {
        let text = json!({"filename": "a", "content": "x".repeat(size)});
        desk.result(&me(), "add_content", text).await
    };
    let refused = add(10_001).await;
    assert_eq!(refused["structuredContent"]["error"]["code"], json!(-32602));
    assert_eq!(refused["content"][0]["text"], json!("content is too large: at most 10000 bytes are taken"));
    for _ in 0..10 {
        assert_eq!(add(10_000).await["isError"], json!(false));
    }
    let full = "The contents of a session take at most 100000 bytes together. Make room with delete_content";
    let refused = add(1).await;
    assert_eq!(refused["structuredContent"]["error"], json!({"code": -32603, "message": full}));
    let listed = desk.ok(&me(), "list_contents", json!({})).await;
    desk.ok(&me(), "delete_content", json!({"content_id": listed["contents"][0]["contentId"]})).await;
    for _ in 0..91 {
        assert_eq!(add(1).await["isError"], json!(false));
    }
    let (code, message) = desk.err(&me(), "add_content", json!({"filename": "a", "content": ""})).await;
    assert_eq!(message, "At most 100 contents are kept in a session. Make room with delete_content");
    assert_eq!(code, -32603);
    assert_eq!(desk.add(&cx("other"), "a", "x").await.len(), 33, "another session has its own room");
}

#[tokio::test]
async fn files_are_taken_by_their_names() {
    let (desk, root) = desk_with_files();
    let folder = desk.folder.path().join("files");
    fs::write(folder.join("notes é.md"), "# Notes\n\nof the turbine\n").unwrap();
    let url = format!("{root}/notes%20%C3%A9.md");
    let added = desk.ok(&me(), "add_content", json!({"file_url": url})).await;
    assert_eq!((&added["filename"], &added["mimeType"]), (&json!("notes é.md"), &json!("text/markdown")));
    let named = desk.ok(&me(), "addContent", json!({"fileUrl": url, "filename": "other.md"})).await;
    assert_eq!(named["filename"], json!("other.md"));
    let name: std::ffi::OsString = std::os::unix::ffi::OsStringExt::from_vec(b"\xff.txt".to_vec());
    fs::write(folder.join(name), "not text by name").unwrap();
    let added = desk.ok(&me(), "add_content", json!({"file_url": format!("{root}/%FF.txt")})).await;
    assert_eq!(added["filename"], json!("\u{fffd}.txt"));
    assert_eq!(desk.found(&me(), "turbine").await.len(), 2);
}

#[tokio::test]
async fn files_that_have_no_text_are_refused_and_nothing_is_written() {
    let (desk, root) = desk_with_files();
    let folder = desk.folder.path().join("files");
    fs::write(folder.join("binary"), [0_u8, 159, 146, 150, 0, 1, 2, 3]).unwrap();
    fs::write(folder.join("large"), vec![b'x'; 20_001]).unwrap();
    fs::write(folder.join("broken.docx"), "this is no archive").unwrap();
    fs::File::create(folder.join("sparse")).unwrap().set_len(1 << 30).unwrap();
    for (name, code) in [
        ("binary", -32603),
        ("broken.docx", -32603),
        ("absent", -32603),
        ("large", -32602),
        ("sparse", -32602),
        ("", -32602),
    ] {
        let refused = desk.err(&me(), "add_content", json!({"file_url": format!("{root}/{name}")})).await;
        assert_eq!(refused.0, code, "{name}: {}", refused.1);
    }
    assert!(desk.filenames(&me()).await.is_empty());
}
