//! Calls that ask nothing: envelopes, reports, logs, ends.

use std::time::Duration;

use moongate_core::{Kind, Level, peer::Note};
use moongate_wire::RpcError;

use super::*;
use crate::{
    testing::{Says, note},
    transport::Fault,
};

const PROTOCOL: &str = "io.modelcontextprotocol/";

fn tool() -> Request<'static> {
    Request::own("tools/call", Raw::of(&json!({"name": "t", "arguments": {"x": 1}})))
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_gets_what_the_client_wrote_and_a_modern_one_our_envelope_around_it() {
    let caller = Caller::willing();
    let meta: &'static Raw = Box::leak(Box::new(Raw::of(
        &json!({"progressToken": "theirs", "traceparent": "00-1-2-01", format!("{PROTOCOL}logLevel"): "debug"}),
    )));
    let ask = Request {
        meta: Some(meta),
        progress: true,
        name: Some("t".into()),
        param_headers: vec![("Region".into(), "eu".to_owned())],
        capabilities: Some(Raw::of(&json!({"roots": {}}))),
        log_level: Some(Level::Error),
        ..tool()
    };
    let line = Line::to(legacy(Way::Http)).await;
    let call = line.request(ask.clone(), &legacy_client(&caller));
    let held = line.fake.held("tools/call").await;
    let expected = json!({
        "name": "t", "arguments": {"x": 1}, "_meta": {"progressToken": held.got.id, "traceparent": "00-1-2-01"},
    });
    assert_eq!(held.got.params, expected);
    assert_eq!((held.got.outgoing.name.clone(), held.got.outgoing.param_headers.len()), (None, 0));
    held.answer(json!({"content": []}));
    assert_eq!(call.result().await, json!({"content": []}));

    let line = Line::to(modern(Way::Http, json!({}))).await;
    let call = line.request(ask, &legacy_client(&caller));
    let held = line.fake.held("tools/call").await;
    let meta = &held.got.params["_meta"];
    assert_eq!(meta["progressToken"], held.got.id);
    assert_eq!(meta["traceparent"], "00-1-2-01");
    assert_eq!(meta[format!("{PROTOCOL}protocolVersion")], "2026-07-28");
    assert_eq!(meta[format!("{PROTOCOL}clientCapabilities")], json!({"roots": {}}));
    assert_eq!(meta[format!("{PROTOCOL}logLevel")], "error");
    assert_eq!(held.got.outgoing.name.as_deref(), Some("t"));
    assert_eq!(held.got.outgoing.param_headers, [("Region".into(), "eu".to_owned())]);
    held.answer(json!({"resultType": "complete", "content": []}));
    assert_eq!(call.result().await, json!({"content": []}));
}

#[tokio::test(start_paused = true)]
async fn without_a_token_of_the_client_no_progress_is_asked_for() {
    let caller = Caller::willing();
    for fake in [legacy(Way::Pipe), modern(Way::Pipe, json!({}))] {
        let line = Line::to(fake).await;
        let _call = line.call(&legacy_client(&caller));
        let held = line.fake.held("tools/call").await;
        assert!(held.got.params["_meta"].get("progressToken").is_none());
    }
}

#[tokio::test(start_paused = true)]
async fn progress_and_logs_reach_the_client_before_the_answer_with_the_servers_name() {
    for (fake, way) in [
        (legacy(Way::Http), Way::Http),
        (modern(Way::Http, json!({})), Way::Http),
        (legacy(Way::Pipe), Way::Pipe),
    ] {
        let (line, caller) = (Line::to(fake).await, Caller::willing());
        let call = line.call(&legacy_client(&caller));
        let held = line.fake.held("tools/call").await;
        held.say(note(
            "notifications/progress",
            json!({"progressToken": 1, "progress": 1, "total": 2, "message": "m"}),
        ));
        for logger in [
            json!({"level": "info", "logger": "db", "data": {"a": 1}}),
            json!({"level": "error", "data": "x"}),
        ] {
            match way {
                Way::Http => held.say(note("notifications/message", logger)),
                Way::Pipe => line.fake.say(0, note("notifications/message", logger)),
            }
        }
        held.say(note("notifications/unheard/of", json!({})));
        held.answer(json!({}));
        call.result().await;
        let log = |level, logger: &str, data: Value| Note::Log {
            level,
            logger: Some(logger.to_owned()),
            data: Raw::of(&data),
        };
        let progress = Note::Progress { progress: 1.0, total: Some(2.0), message: Some("m".to_owned()) };
        let (one, other) =
            (log(Level::Info, "git/db", json!({"a": 1})), log(Level::Error, "git", json!("x")));
        let notes = caller.notes();
        assert_eq!(notes.len(), 3);
        assert!([progress, one, other].iter().all(|note| notes.contains(note)), "{notes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_legacy_server_is_told_the_lowest_level_that_anybody_wants_and_each_only_once() {
    let (line, caller) = (Line::to(legacy(Way::Pipe)).await, Caller::willing());
    for level in [None, Some(Level::Warning), Some(Level::Error), Some(Level::Debug), Some(Level::Info)] {
        let call = line.request(Request { log_level: level, ..tool() }, &legacy_client(&caller));
        line.fake.held("tools/call").await.answer(json!({}));
        call.result().await;
    }
    let told: Vec<_> =
        of_method(&line.fake, "logging/setLevel").iter().map(|got| got.params["level"].clone()).collect();
    assert_eq!(told, ["warning", "debug"]);

    let mute = Line::to(legacy_with(Way::Pipe, json!({"tools": {}}))).await;
    let call = mute.request(Request { log_level: Some(Level::Debug), ..tool() }, &legacy_client(&caller));
    mute.fake.held("tools/call").await.answer(json!({}));
    call.result().await;
    assert_eq!(mute.fake.count("logging/setLevel"), 0, "it said that it does not log");
}

#[tokio::test(start_paused = true)]
async fn a_server_that_refuses_the_level_is_not_asked_with_every_call() {
    let fake = Fake::new(Way::Pipe, |got| match got.method {
        "initialize" => greeting("2025-06-18", json!({"logging": {}})),
        "tools/call" => React::Result(json!({})),
        _ => refused(-32601, "no such method"),
    });
    let (line, caller) = (Line::to(fake).await, Caller::willing());
    for _ in 0..3 {
        line.request(Request { log_level: Some(Level::Debug), ..tool() }, &legacy_client(&caller))
            .result()
            .await;
    }
    assert_eq!(line.fake.count("logging/setLevel"), 1);
}

#[tokio::test(start_paused = true)]
async fn logs_that_might_be_somebody_elses_are_dropped() {
    let (line, ours, theirs) = (Line::to(legacy(Way::Pipe)).await, Caller::willing(), Caller::willing());
    let other = Context { principal: moongate_core::Principal::anonymous(), ..legacy_client(&theirs) };
    let (_one, _two) = (line.call(&legacy_client(&ours)), line.call(&other));
    let (first, _second) = (line.fake.held("tools/call").await, line.fake.held("tools/call").await);
    line.fake.say(0, note("notifications/message", json!({"level": "info", "data": "secret"})));
    crate::testing::settle().await;
    assert!(ours.notes().is_empty() && theirs.notes().is_empty());
    first.say(note("notifications/message", json!({"level": "info", "data": "own"})));
    let own = |caller: &Caller| caller.notes().len() == 1;
    tokio::select! { () = ours.until(own) => {}, () = theirs.until(own) => {} }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_is_dropped_gives_its_exchange_up() {
    let caller = Caller::willing();
    for fake in [legacy(Way::Pipe), modern(Way::Http, json!({}))] {
        let line = Line::to(fake).await;
        let call = line.call(&legacy_client(&caller));
        let held = line.fake.held("tools/call").await;
        call.cancel();
        line.fake.given_up(held.got.id).await;
        soon(line.connection.quiet()).await;
        assert!(!line.connection.is_busy());
    }
}

#[tokio::test(start_paused = true)]
async fn errors_and_lost_answers_are_told_as_what_they_are() {
    let caller = Caller::willing();
    let broken = || Fault::Lost("the process exited".into());
    for (react, kind, text) in [
        (React::Lost(broken()), Kind::Unavailable, "The upstream git failed: the process exited"),
        (refused(-32601, "no such method"), Kind::Unsupported, "no such method"),
        (refused(-32099, "own"), Kind::Rpc { error: RpcError::new(-32099, "own") }, "own"),
    ] {
        for fake in [legacy(Way::Http), modern(Way::Http, json!({}))] {
            let line = Line::to(fake).await;
            let call = line.call(&legacy_client(&caller));
            line.fake.held("tools/call").await.react(react.clone());
            let error = call.error().await;
            assert_eq!((error.kind, &*error.public), (kind.clone(), text));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn lists_are_drained_page_by_page() {
    let fake = Fake::new(Way::Pipe, |got| match (got.method, got.params["cursor"].as_str()) {
        ("initialize", _) => greeting("2025-06-18", json!({"tools": {}})),
        ("tools/list", None) => React::Result(json!({"tools": [{"name": "a"}], "nextCursor": ""})),
        ("tools/list", Some("")) => React::Result(json!({"tools": [{"name": "b"}], "nextCursor": "2"})),
        ("tools/list", Some("2")) => React::Result(json!({"tools": [{"name": "c"}], "nextCursor": null})),
        _ => refused(-32601, "no such method"),
    });
    let line = Line::to(fake).await;
    let (entries, _) =
        line.connection.list(Request::own("tools/list", Raw::empty_object()), "tools").await.unwrap();
    let names: Vec<_> = entries.iter().map(|entry| value(entry)["name"].clone()).collect();
    assert_eq!(names, ["a", "b", "c"]);
}

#[tokio::test(start_paused = true)]
async fn cursors_that_lead_in_a_circle_end() {
    let fake = Fake::new(Way::Pipe, |got| match (got.method, got.params["cursor"].as_str()) {
        ("initialize", _) => greeting("2025-06-18", json!({"tools": {}})),
        ("tools/list", Some("a")) => React::Result(json!({"tools": [{"name": "t"}], "nextCursor": "b"})),
        ("tools/list", _) => React::Result(json!({"tools": [{"name": "t"}], "nextCursor": "a"})),
        _ => refused(-32601, "no such method"),
    });
    let line = Line::to(fake).await;
    let (entries, _) =
        line.connection.list(Request::own("tools/list", Raw::empty_object()), "tools").await.unwrap();
    assert_eq!((entries.len(), line.fake.count("tools/list")), (3, 3));
}

#[tokio::test(start_paused = true)]
async fn a_list_that_grows_and_grows_is_cut_before_it_fills_the_memory() {
    // Five pages of 15 MiB, as large as a message may be, would go beyond 64 MiB.
    let filler = "x".repeat(15 << 20);
    let fake = Fake::new(Way::Pipe, move |got| match got.method {
        "initialize" => greeting("2025-06-18", json!({"tools": {}})),
        "tools/list" => {
            let next = got.params["cursor"].as_str().map_or(1, |at| at.parse::<u32>().unwrap() + 1);
            let next = (next < 8).then(|| next.to_string());
            React::Result(json!({"tools": [{"name": filler}], "nextCursor": next}))
        }
        _ => refused(-32601, "no such method"),
    });
    let line = Line::to(fake).await;
    let (entries, _) =
        line.connection.list(Request::own("tools/list", Raw::empty_object()), "tools").await.unwrap();
    assert_eq!((entries.len(), line.fake.count("tools/list")), (4, 5));
}

#[tokio::test(start_paused = true)]
async fn ten_thousand_entries_in_one_page_are_no_trouble() {
    let fake = Fake::new(Way::Pipe, |got| match got.method {
        "initialize" => greeting("2025-06-18", json!({"tools": {}})),
        "tools/list" => {
            let tools: Vec<_> =
                (0..10_000).map(|n| json!({"name": format!("t{n}"), "inputSchema": {}})).collect();
            React::Result(json!({"tools": tools}))
        }
        _ => refused(-32601, "no such method"),
    });
    let line = Line::to(fake).await;
    let (entries, _) =
        line.connection.list(Request::own("tools/list", Raw::empty_object()), "tools").await.unwrap();
    assert_eq!(entries.len(), 10_000);
}

#[tokio::test(start_paused = true)]
async fn a_call_is_under_way_while_its_client_thinks_and_while_its_task_is_asked_after() {
    let parked = async |line: &Line| {
        let early = tokio::time::timeout(Duration::from_millis(1), line.connection.quiet()).await;
        assert!(early.is_err() && line.connection.is_busy());
    };
    let caller = Caller::new(|_| Says::Nothing);
    let line = Line::to(modern(Way::Http, json!({}))).await;
    let call = line.call(&legacy_client(&caller));
    let question = json!({"r": {"method": "roots/list"}});
    let asks = json!({"resultType": "input_required", "inputRequests": question});
    line.fake.held("tools/call").await.answer(asks);
    caller.until(|caller| caller.rounds().len() == 1).await;
    parked(&line).await;
    call.cancel();
    soon(line.connection.quiet()).await;
    assert!(!line.connection.is_busy());

    let call = line.call(&legacy_client(&caller));
    let tasks = json!({"requiredCapabilities": {"extensions": {"io.modelcontextprotocol/tasks": {}}}});
    let refused = RpcError::new(-32021, "as a task").with_data(tasks);
    line.fake.held("tools/call").await.react(React::Error(refused));
    let task = json!({"resultType": "task", "taskId": "1", "status": "working"});
    line.fake.held("tools/call").await.answer(task);
    crate::testing::settle().await;
    parked(&line).await;
    assert_eq!(line.fake.count("tasks/get"), 0, "it waits between two requests");
    let done = json!({"resultType": "complete", "taskId": "1", "status": "completed", "result": {}});
    line.fake.held("tasks/get").await.answer(done);
    assert_eq!(call.result().await, json!({}));
    soon(line.connection.quiet()).await;
}

#[tokio::test(start_paused = true)]
async fn a_connection_is_quiet_when_its_last_call_ends() {
    let (line, caller) = (Line::to(legacy(Way::Pipe)).await, Caller::willing());
    let (one, two) = (line.call(&legacy_client(&caller)), line.call(&legacy_client(&caller)));
    let (first, second) = (line.fake.held("tools/call").await, line.fake.held("tools/call").await);
    first.answer(json!({}));
    let early = tokio::time::timeout(Duration::from_secs(1), line.connection.quiet()).await;
    assert!(early.is_err() && line.connection.is_busy());
    second.answer(json!({}));
    soon(line.connection.quiet()).await;
    tokio::join!(one.result(), two.result());
}
