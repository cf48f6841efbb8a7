//! Kept texts over the wire: whose they are, what is found in them, and what is not let in.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

use std::{collections::BTreeSet, fs, os::unix::fs::symlink, path::PathBuf};

use anyhow::{Context as _, Result};
use moongate_test_integration::{UNLIMITED, caller, pipe::ModernPipe};
use moongate_test_support::{Client, Gateway, Home, LegacySession, ModernClient, Stdio, patiently};
use nix::{
    fcntl::{FcntlArg, fcntl},
    libc,
};
use serde_json::{Value, json};
use tokio::task::JoinSet;

/// A client of the named session.
fn of_session(client: &Client, session: &str) -> ModernClient {
    ModernClient::new(&client.clone().with_header("x-session-id", session))
}

async fn ok(client: &ModernClient, tool: &str, arguments: Value) -> Result<Value> {
    let result = client.call(tool, arguments).await?;
    anyhow::ensure!(result["isError"] == false, "{tool}: {result}");
    Ok(result["structuredContent"].clone())
}

/// The code and the message of a call that must fail.
async fn refused(client: &ModernClient, tool: &str, arguments: Value) -> Result<(i64, String)> {
    let result = client.call(tool, arguments).await?;
    anyhow::ensure!(result["isError"] == true, "{tool}: {result}");
    let error = &result["structuredContent"]["error"];
    let message = error["message"].as_str().context("a failure says why")?;
    Ok((error["code"].as_i64().context("a failure has a code")?, message.to_owned()))
}

/// Adds a text and returns its id.
async fn add(client: &ModernClient, filename: &str, text: &str) -> Result<String> {
    let added = ok(client, "add_content", json!({"filename": filename, "content": text})).await?;
    Ok(added["contentId"].as_str().context("a text has an id")?.to_owned())
}

async fn filenames(client: &ModernClient) -> Result<Vec<String>> {
    let listed = ok(client, "list_contents", json!({"pagination": {"limit": 1000}})).await?;
    names(&listed["contents"])
}

async fn found(client: &ModernClient, query: &str) -> Result<Vec<String>> {
    names(&ok(client, "search_content", json!({"query": query})).await?["results"])
}

fn names(list: &Value) -> Result<Vec<String>> {
    let list = list.as_array().context("a list")?;
    list.iter().map(|one| Ok(one["filename"].as_str().context("a name")?.to_owned())).collect()
}

#[tokio::test]
async fn ctx_t7_texts_of_two_sessions_do_not_mix() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let first = of_session(&gateway.client(), "sess_1");
    let second = of_session(&gateway.client(), "sess_2");
    add(&first, "test1.txt", "of the first").await?;
    add(&second, "test2.txt", "of the second").await?;
    for (client, mine, other) in [(&first, "test1.txt", "test2.txt"), (&second, "test2.txt", "test1.txt")] {
        let listed = client.call("list_contents", json!({})).await?;
        let text = listed["content"][0]["text"].as_str().context("a text")?;
        assert!(text.contains(mine) && !text.contains(other), "{text}");
        assert_eq!(names(&listed["structuredContent"]["contents"])?, [mine]);
    }
    Ok(())
}

#[tokio::test]
async fn ctx_t8_three_sessions_at_once_hold_one_text_each() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let clients = ["sess_1", "sess_2", "sess_3"].map(|id| (id, of_session(&gateway.client(), id)));
    let [(_, a), (_, b), (_, c)] = &clients;
    let added = tokio::join!(add(a, "sess_1", "x"), add(b, "sess_2", "x"), add(c, "sess_3", "x"));
    added.0.and(added.1).and(added.2)?;
    for (id, client) in &clients {
        assert_eq!(filenames(client).await?, [*id]);
    }
    Ok(())
}

/// CTX-T21 and the first trap: whoever hands out copies of a session's store loses some of these.
#[tokio::test]
async fn ctx_t21_texts_that_come_at_once_into_one_session_are_all_kept() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let client = of_session(&gateway.client(), "one");
    let mut tasks = JoinSet::new();
    for number in 0..64 {
        let client = client.clone();
        tasks.spawn(async move {
            let name = format!("{number}.txt");
            // No two of these begin alike.
            let word = format!(
                "{}{}",
                ['b', 'c', 'd', 'f', 'g', 'h', 'j', 'k'][number / 8],
                ["xa", "xe", "xi", "xo", "xu", "va", "ve", "vi"][number % 8]
            );
            add(&client, &name, &format!("turbine {}", word.repeat(3))).await?;
            let found = found(&client, &word.repeat(3)).await?;
            anyhow::ensure!(found == [name], "found {found:?}");
            Ok(())
        });
    }
    while let Some(outcome) = tasks.join_next().await {
        outcome??;
    }
    assert_eq!(filenames(&client).await?.into_iter().collect::<BTreeSet<_>>().len(), 64);
    Ok(())
}

#[tokio::test]
async fn another_session_can_neither_read_nor_find_nor_delete_a_text() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let owner = of_session(&gateway.client(), "mine");
    let id = add(&owner, "secret.txt", "the turbine is broken").await?;
    let issued = ModernClient::new(&caller::issued(&gateway, "mallory", "write").await?);
    for stranger in [of_session(&gateway.client(), "other"), ModernClient::new(&gateway.client()), issued] {
        let not_found = (-32603, format!("Content not found: {id}"));
        assert_eq!(refused(&stranger, "read_content", json!({"content_id": id})).await?, not_found);
        assert_eq!(refused(&stranger, "delete_content", json!({"content_id": id})).await?, not_found);
        assert!(found(&stranger, "turbine").await?.is_empty());
        let resource = stranger.request("resources/read", &json!({"uri": format!("content://{id}")})).await?;
        assert!(resource.response["error"]["code"].is_i64(), "{resource:?}");
        assert_eq!(ok(&stranger, "list_contents", json!({})).await?["total"], json!(0));
    }
    assert_eq!(found(&owner, "turbine").await?, ["secret.txt"]);
    ok(&owner, "delete_content", json!({"content_id": id})).await?;
    assert_eq!(ok(&owner, "list_contents", json!({})).await?["total"], json!(0));
    Ok(())
}

#[tokio::test]
async fn what_is_wrong_with_a_call_is_said_with_its_code() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = ModernClient::new(&gateway.client());
    assert_eq!(
        ok(&client, "list_contents", json!({})).await?["total"],
        json!(0),
        "an empty list is no error"
    );
    assert_eq!(
        ok(&client, "search_content", json!({"query": "x"})).await?,
        json!({"results": [], "count": 0})
    );
    for (tool, arguments, code, message) in [
        ("add_content", json!({"content": "x"}), -32602, "filename is required"),
        ("add_content", json!({"filename": "x"}), -32602, "content is required"),
        (
            "add_content",
            json!({"filename": "x", "content": "x", "file_url": "file:///x"}),
            -32602,
            "exclude each other",
        ),
        (
            "add_content",
            json!({"filename": "x", "file_url": "https://x/"}),
            -32602,
            "must begin with file://",
        ),
        (
            "add_content",
            json!({"filename": "x", "content": "x", "metadata": {"uploaded_at": "9999-12-31T23:59:59-00:01"}}),
            -32602,
            "uploaded_at must be a time",
        ),
        ("add_content", json!({"file_url": "file:///x"}), -32603, "backends.content.roots"),
        ("read_content", json!({"content_id": "content_0"}), -32603, "not found"),
        ("delete_content", json!({"content_id": "content_0"}), -32603, "not found"),
        ("delete_content", json!({}), -32602, "content_id is required"),
        ("search_content", json!({"query": "x", "options": {"top_n": 101}}), -32602, "at most 100"),
    ] {
        let (found, text) = refused(&client, tool, arguments.clone()).await?;
        assert!(found == code && text.contains(message), "{tool} {arguments}: {found} {text}");
    }
    assert_eq!(ok(&client, "list_contents", json!({})).await?["total"], json!(0), "nothing was written");
    Ok(())
}

#[tokio::test]
async fn aliases_call_the_tools_and_are_not_listed() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = ModernClient::new(&gateway.client());
    let listed = client.list("tools/list").await?;
    let names: BTreeSet<&str> = listed["tools"]
        .as_array()
        .context("tools")?
        .iter()
        .filter_map(|tool| tool["name"].as_str())
        .collect();
    let aliases = [
        "addContent",
        "listContent",
        "list_content",
        "readContent",
        "keywordSimilaritySearch",
        "deleteContent",
    ];
    assert!(aliases.iter().all(|alias| !names.contains(alias)), "{names:?}");

    let added = ok(&client, "addContent", json!({"content": "the turbine"})).await?;
    assert_eq!(added["filename"], json!("direct_content"), "only the alias gives a name");
    let id = &added["contentId"];
    for list in ["listContent", "list_content"] {
        assert_eq!(ok(&client, list, json!({})).await?["contents"][0]["contentId"], *id);
    }
    assert_eq!(ok(&client, "readContent", json!({"contentId": id})).await?["content"], json!("the turbine"));
    let search = json!({"query": "turbine", "options": {"topN": 1}});
    assert_eq!(ok(&client, "keywordSimilaritySearch", search).await?["count"], json!(1));
    ok(&client, "deleteContent", json!({"contentId": id})).await?;
    Ok(())
}

#[tokio::test]
async fn texts_outlive_sessions_and_gateways() -> Result<()> {
    let mut gateway = Gateway::start("").await?;
    let first = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    first.call("add_content", json!({"filename": "a.txt", "content": "the turbine"})).await?;
    first.delete().await?;
    let second = LegacySession::open(&gateway.client(), "2024-11-05").await?;
    let listed = second.call("list_contents", json!({})).await?;
    assert_eq!(names(&listed["structuredContent"]["contents"])?, ["a.txt"], "a client that reconnects");
    gateway.stop().await?;
    let gateway = Gateway::builder().home(gateway.home()).start().await?;
    assert_eq!(found(&ModernClient::new(&gateway.client()), "turbine").await?, ["a.txt"]);
    Ok(())
}

#[tokio::test]
async fn two_gateways_on_one_database_find_what_the_other_keeps() -> Result<()> {
    let one = Gateway::start("").await?;
    let other = Gateway::builder().home(one.home()).start().await?;
    let (a, b) = (ModernClient::new(&one.client()), ModernClient::new(&other.client()));
    let id = add(&a, "a.txt", "the turbine").await?;
    assert_eq!(found(&b, "turbine").await?, ["a.txt"]);
    add(&b, "b.txt", "one more turbine").await?;
    assert_eq!(found(&a, "more").await?, ["b.txt"]);
    ok(&b, "delete_content", json!({"content_id": id})).await?;
    assert_eq!(found(&a, "turbine").await?, ["b.txt"]);
    Ok(())
}

/// The fourth trap: a search that only looks for the letters of its query ranks nothing.
#[tokio::test]
async fn passages_are_ranked_and_their_lines_are_real() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = ModernClient::new(&gateway.client());
    let mut lines: Vec<String> =
        (1..=45).map(|line| format!("{line}: nothing to see 여기는 아무것도 없다")).collect();
    lines[31] = "32: turbine 터빈 turbine 터빈 수리 turbine".to_owned();
    let id = add(&client, "long.txt", &lines.join("\n")).await?;
    add(&client, "passing.txt", &format!("{} turbine {}", "words ".repeat(90), "and words ".repeat(90)))
        .await?;
    for query in ["turbines repaired", "터빈을 수리"] {
        let found = ok(&client, "search_content", json!({"query": query})).await?;
        let best = &found["results"][0];
        assert_eq!(
            (&best["contentId"], &best["lineRange"]),
            (&json!(id), &json!([31, 40])),
            "{query}: {found}"
        );
        let shown = best["matchedText"].as_str().context("a text")?;
        assert!(shown.contains("turbine 터빈"), "{shown}");
    }
    let range = json!({"content_id": id, "from_line": 32, "to_line": 33});
    let read = ok(&client, "read_content", range).await?;
    assert_eq!(read["content"], json!(format!("{}\n{}", lines[31], lines[32])));
    assert_eq!(read["lineRange"], json!([32, 33]));
    Ok(())
}

#[tokio::test]
async fn letters_inside_names_and_texts_are_found_last_and_without_a_score() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = ModernClient::new(&gateway.client());
    add(&client, "urbane.txt", "nothing of the kind").await?;
    add(&client, "inside.txt", "the turbines").await?;
    add(&client, "word.txt", "an URB is a request block").await?;
    let found = ok(&client, "search_content", json!({"query": "urb"})).await?;
    assert_eq!(names(&found["results"])?, ["word.txt", "urbane.txt", "inside.txt"]);
    let scores: Vec<Option<f64>> = (0..3).map(|place| found["results"][place]["score"].as_f64()).collect();
    assert!(scores[0] > Some(0.0) && scores[1..] == [Some(0.0), Some(0.0)], "{scores:?}");
    let above = json!({"query": "urb", "options": {"threshold": 0.001}});
    assert_eq!(names(&ok(&client, "search_content", above).await?["results"])?, ["word.txt"]);
    Ok(())
}

/// The fifth trap: whoever holds one lock for all sessions while a tool runs answers none of the others meanwhile.
///
/// The tool that runs is an addition whose row cannot be written. On a pipe requests begin in the order they are sent, so
/// an answer to a later one that comes first has not waited for it.
#[tokio::test]
async fn a_session_whose_text_waits_to_be_written_holds_up_no_other() -> Result<()> {
    let mut pipe = ModernPipe::new(Stdio::start("")?);
    let of = |session: &str, tool: &str, arguments: Value| json!({"name": tool, "arguments": arguments, "_meta": {"dev.moongate/sessionId": session}});
    let text = json!({"filename": "a.txt", "content": "the turbine"});
    let added = pipe.request("tools/call", &of("other", "add_content", text.clone())).await?.result()?;
    let id = &added["structuredContent"]["contentId"];

    let held = hold_writes(pipe.stdio.home())?;
    let waiting = pipe.send("tools/call", &of("mine", "add_content", text)).await?;
    for (tool, arguments, expected) in [
        ("list_contents", json!({}), "a.txt"),
        ("search_content", json!({"query": "turbines"}), "a.txt"),
        ("read_content", json!({"content_id": id}), "the turbine"),
        ("create_goal", json!({"goal": "answer"}), "answer"),
    ] {
        let answer = pipe.request("tools/call", &of("other", tool, arguments)).await?.result()?;
        assert!(answer["structuredContent"].to_string().contains(expected), "{tool}: {answer}");
    }
    drop(held);
    let added = pipe.stdio.outcome(&waiting).await?.result()?;
    assert_eq!(added["structuredContent"]["status"], json!("added"), "{added}");
    Ok(())
}

/// Holds the lock of the one who writes to a home's database, for as long as the file is open; others may read. It is byte 120
/// of the shared memory file (`WAL_WRITE_LOCK`, <https://sqlite.org/walformat.html>). Who wants to write waits five seconds.
fn hold_writes(home: &Home) -> Result<fs::File> {
    let path = home.path().join("data/moongate/moongate.db-shm");
    let file = fs::File::options().read(true).write(true).open(path)?;
    let lock = libc::flock {
        l_type: libc::F_WRLCK.try_into()?,
        l_whence: libc::SEEK_SET.try_into()?,
        l_start: 120,
        l_len: 1,
        l_pid: 0,
    };
    fcntl(&file, FcntlArg::F_SETLKW(&lock))?;
    Ok(file)
}

/// The trap of one index for all, whose best hits are those of whoever has most.
#[tokio::test]
async fn a_small_session_is_not_starved_by_a_large_one() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let (large, small) = (of_session(&gateway.client(), "large"), of_session(&gateway.client(), "small"));
    for number in 0..60 {
        add(&large, &format!("{number}.txt"), "turbine turbine turbine").await?;
    }
    add(&small, "mine.txt", "somewhere in a long story there is a word about a turbine").await?;
    let options = json!({"query": "turbine", "options": {"top_n": 1}});
    let found = ok(&small, "search_content", options).await?;
    assert_eq!((names(&found["results"])?, &found["count"]), (vec!["mine.txt".to_owned()], &json!(1)));
    Ok(())
}

/// The trap of cutting bytes: every character here has three or four of them.
#[tokio::test]
async fn snippets_are_cut_between_characters() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = ModernClient::new(&gateway.client());
    let around = "가🐝".repeat(300);
    add(&client, "long.txt", &format!("{around} 터빈 {around}")).await?;
    let found = ok(&client, "search_content", json!({"query": "터빈"})).await?;
    let shown = found["results"][0]["matchedText"].as_str().context("a snippet")?;
    assert!(shown.contains("터빈") && (100..=260).contains(&shown.chars().count()), "{shown}");
    assert!(shown.chars().all(|c| "가🐝 터빈…".contains(c)), "{shown}");
    Ok(())
}

#[tokio::test]
async fn a_caller_that_may_only_read_adds_and_deletes_nothing() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let reader = ModernClient::new(&caller::issued(&gateway, "reader", "read").await?);
    let listed = reader.list("tools/list").await?.to_string();
    assert!(listed.contains("read_content") && !listed.contains("add_content"), "{listed}");
    for tool in ["add_content", "addContent", "delete_content", "deleteContent"] {
        let outcome = reader.request("tools/call", &json!({"name": tool, "arguments": {}})).await?;
        assert_eq!(outcome.status, 403, "{tool}: {outcome:?}");
    }
    ok(&reader, "search_content", json!({"query": "x"})).await?;
    Ok(())
}

#[tokio::test]
async fn kept_texts_are_resources_that_can_be_watched() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let client = of_session(&gateway.client(), "mine");
    let id = add(&client, "a.md", "# A").await?;
    let uri = format!("content://{id}");
    let filter = json!({"resourcesListChanged": true, "resourceSubscriptions": [uri]});
    let mut stream = client.listen(&filter).await?;
    let acknowledged = stream.message().await?.context("a first message")?;
    assert_eq!(
        acknowledged["params"]["notifications"]["resourceSubscriptions"],
        json!([uri]),
        "{acknowledged}"
    );

    let templates = client.list("resources/templates/list").await?.to_string();
    assert!(templates.contains("content://{contentId}"), "{templates}");
    let listed = client.list("resources/list").await?;
    assert_eq!(
        (&listed["resources"][0]["uri"], &listed["resources"][0]["name"]),
        (&json!(uri), &json!("a.md"))
    );
    let read = client.request("resources/read", &json!({"uri": uri})).await?.result()?;
    assert_eq!(read["contents"][0], json!({"uri": uri, "mimeType": "text/plain", "text": "# A"}));

    ok(&client, "delete_content", json!({"content_id": id})).await?;
    let mut awaited =
        BTreeSet::from(["notifications/resources/updated", "notifications/resources/list_changed"]);
    while !awaited.is_empty() {
        let message =
            patiently("what was announced", stream.message()).await??.context("the stream ended")?;
        awaited.remove(message["method"].as_str().unwrap_or_default());
    }
    assert_eq!(client.list("resources/list").await?["resources"], json!([]));
    Ok(())
}

#[tokio::test]
async fn a_session_of_an_older_version_hears_of_the_texts_it_watches_and_no_others() -> Result<()> {
    let gateway = Gateway::start("").await?;
    let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
    let mut stream = session.listen(None).await?;
    let mut uris = Vec::new();
    for name in ["left.txt", "watched.txt"] {
        let added = session.call("add_content", json!({"filename": name, "content": "x"})).await?;
        uris.push(format!(
            "content://{}",
            added["structuredContent"]["contentId"].as_str().context("an id")?
        ));
    }
    let mut told = async |method: &str| {
        patiently(method, stream.message_where(|message| message["method"] == method)).await?
    };
    told("notifications/resources/list_changed").await?;
    for uri in &uris {
        session.request("resources/subscribe", &json!({"uri": uri})).await?.result()?;
    }
    session.request("resources/unsubscribe", &json!({"uri": uris[0]})).await?.result()?;
    for uri in &uris {
        let id = uri.trim_start_matches("content://");
        session.call("delete_content", json!({"content_id": id})).await?;
    }
    // The older one would have been told before or together with the newer one, and then first.
    let updated = told("notifications/resources/updated").await?;
    assert_eq!(updated["params"], json!({"uri": uris[1]}));
    let gone = session.request("resources/subscribe", &json!({"uri": uris[0]})).await?;
    assert!(gone.response["error"]["code"].is_i64(), "{gone:?}");
    session.request("resources/unsubscribe", &json!({"uri": uris[1]})).await?.result()?;
    Ok(())
}

#[tokio::test]
async fn resources_of_a_session_come_in_pages() -> Result<()> {
    let gateway = Gateway::start(UNLIMITED).await?;
    let client = of_session(&gateway.client(), "many");
    let mut expected = BTreeSet::new();
    for number in 0..205 {
        expected.insert(format!("content://{}", add(&client, &format!("{number}.txt"), "x").await?));
    }
    add(&of_session(&gateway.client(), "other"), "other.txt", "x").await?;
    let (mut seen, mut params) = (BTreeSet::new(), json!({}));
    loop {
        let page = client.request("resources/list", &params).await?.result()?;
        let resources = page["resources"].as_array().context("a list")?;
        assert!(resources.len() <= 100, "{}", resources.len());
        seen.extend(resources.iter().filter_map(|one| Some(one["uri"].as_str()?.to_owned())));
        match page.get("nextCursor") {
            Some(cursor) => params = json!({"cursor": cursor}),
            None => break,
        }
    }
    assert_eq!(seen, expected);
    Ok(())
}

/// A gateway that may read the files in a folder of its home, and the folder.
async fn with_files() -> Result<(Gateway, PathBuf)> {
    let gateway = Gateway::start("").await?;
    let folder = gateway.home().path().join("files");
    fs::create_dir(&folder)?;
    gateway.write_config("backends: {content: {roots: [files], limits: {file: 1MiB}}}\n")?;
    gateway.logged("reloaded").await?;
    Ok((gateway, folder))
}

#[tokio::test]
async fn documents_of_every_kind_are_read_and_found() -> Result<()> {
    let (gateway, folder) = with_files().await?;
    let client = ModernClient::new(&gateway.client());
    for name in ["pump.pdf", "service.docx", "stock.xlsx"] {
        fs::copy(format!("../fixtures/documents/{name}"), folder.join(name))?;
    }
    fs::write(folder.join("prices.csv"), "part,price\ngasket,12\n")?;
    for (name, mime_type, query, line) in [
        ("pump.pdf", "application/pdf", "펌프가 점검", "펌프 점검 보고서"),
        (
            "service.docx",
            "application/vnd.openxmlformats-officedocument.wordprocessingml.document",
            "bearing replacing",
            "The bearings were replaced on Friday.",
        ),
        (
            "stock.xlsx",
            "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
            "나사",
            "나사 M4\t1200\t0.05\tTRUE",
        ),
        ("prices.csv", "text/csv", "gaskets", "gasket,12"),
    ] {
        let url = format!("file://{}/{name}", folder.display());
        let added = ok(&client, "add_content", json!({"file_url": url})).await?;
        assert_eq!((&added["filename"], &added["mimeType"]), (&json!(name), &json!(mime_type)));
        let read = ok(&client, "read_content", json!({"content_id": added["contentId"]})).await?;
        let text = read["content"].as_str().context("a text")?;
        assert!(text.lines().any(|read| read == line), "{name}: {text}");
        assert_eq!(found(&client, query).await?.first().map(String::as_str), Some(name));
    }
    Ok(())
}

#[tokio::test]
async fn arguments_may_be_spelt_in_camel_case() -> Result<()> {
    let (gateway, folder) = with_files().await?;
    let client = ModernClient::new(&gateway.client());
    fs::write(folder.join("a.txt"), "one\ntwo\nthree")?;
    let metadata = json!({"mimeType": "text/x-notes", "uploadedAt": "2025-05-05T05:05:05+09:00"});
    let url = format!("file://{}/a.txt", folder.display());
    let added = ok(&client, "add_content", json!({"fileUrl": url, "metadata": metadata})).await?;
    assert_eq!(added["filename"], json!("a.txt"));
    assert_eq!(added["mimeType"], metadata["mimeType"]);
    assert_eq!(added["uploadedAt"], json!("2025-05-04T20:05:05.000Z"));
    let id = &added["contentId"];
    let lines = json!({"contentId": id, "fromLine": 2, "toLine": 2});
    assert_eq!(ok(&client, "read_content", lines).await?["content"], json!("two"));
    let found = ok(&client, "search_content", json!({"query": "two", "options": {"topN": 1}})).await?;
    assert_eq!(found["results"][0]["contentId"], *id);
    assert_eq!(ok(&client, "delete_content", json!({"contentId": id})).await?["contentId"], *id);
    Ok(())
}

#[tokio::test]
async fn files_are_read_under_the_roots_only() -> Result<()> {
    let (gateway, folder) = with_files().await?;
    let client = ModernClient::new(&gateway.client());
    fs::write(folder.join("inside.md"), "# The turbine")?;
    fs::write(gateway.home().path().join("secret.txt"), "secret")?;
    symlink("../secret.txt", folder.join("link.txt"))?;
    symlink("..", folder.join("up"))?;
    symlink("inside.md", folder.join("also.md"))?;
    fs::File::create(folder.join("sparse"))?.set_len(1 << 30)?;
    fs::write(folder.join("binary"), [0_u8, 255, 254, 0, 1, 2, 3, 159])?;
    let fifo = std::process::Command::new("mkfifo").arg(folder.join("pipe")).status()?;
    anyhow::ensure!(fifo.success(), "no pipe was made");
    let url = |path: &str| format!("file://{}/{path}", folder.display());

    for (path, name) in [("inside.md", "inside.md"), ("also.md", "inside.md"), ("%69nside.md", "inside.md")] {
        let added = ok(&client, "add_content", json!({"file_url": url(path)})).await?;
        assert_eq!((&added["filename"], &added["mimeType"]), (&json!(name), &json!("text/markdown")));
    }
    let long = url(&"x".repeat(5000));
    for (url, code) in [
        (url("link.txt"), -32603),
        (url("up/secret.txt"), -32603),
        (url("../secret.txt"), -32603),
        (url("%2e%2e/secret.txt"), -32603),
        (url("..%2fsecret.txt"), -32603),
        (url("absent"), -32603),
        (url("%ff%fe"), -32603),
        (url("binary"), -32603),
        ("file:///etc/passwd".to_owned(), -32603),
        (url("inside.md%00"), -32602),
        (url("inside.md?x"), -32602),
        (url("pipe"), -32602),
        (url("sparse"), -32602),
        (url(""), -32602),
        (long, -32602),
        ("file://example.com/etc/passwd".to_owned(), -32602),
        ("/etc/passwd".to_owned(), -32602),
    ] {
        let answer = refused(&client, "add_content", json!({"file_url": url}));
        let (found, message) = patiently(&url, answer).await??;
        assert!(found == code && !message.contains("secret"), "{url}: {found} {message}");
    }
    assert_eq!(filenames(&client).await?.len(), 3, "nothing else was written");
    assert_eq!(found(&client, "turbine").await?.len(), 3);
    Ok(())
}
