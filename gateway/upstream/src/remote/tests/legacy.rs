//! Sessions: their ids, their ends, and streams that are resumed.

use http::Method;

use super::*;

#[tokio::test]
async fn a_session_is_remembered_and_deleted() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    for (version, header) in [
        (Version::V2025_03_26, ""),
        (Version::V2025_06_18, "2025-06-18"),
        (Version::V2025_11_25, "2025-11-25"),
    ] {
        let (exchange, asked) = connected.ask(&mut server, call(1, Some(version))).await;
        assert_eq!((asked.header("mcp-session-id"), asked.header("mcp-protocol-version")), ("s-1", header));
        assert_eq!((asked.header("mcp-method"), asked.header("mcp-name")), ("", ""));
        asked.result(&json!({}));
        assert_eq!(told(exchange).await, ["Some(200) {}"]);
    }
    let message = Raw::of(&note("a"));
    let send = connected.transport.send(Outward { message, version: Version::V2025_11_25 });
    let serve = async {
        let asked = server.next().await;
        assert_eq!(asked.header("mcp-session-id"), "s-1");
        assert_eq!(asked.header("accept"), "application/json, text/event-stream");
        assert_eq!(asked.json(), note("a"));
        asked.reply(202, &[], "");
    };
    assert_eq!(tokio::join!(send, serve).0, Ok(()));
    let serve = async {
        let asked = server.next().await;
        assert_eq!((&asked.method, asked.header("mcp-session-id")), (&Method::DELETE, "s-1"));
        assert_eq!(asked.header("mcp-protocol-version"), "2025-11-25");
        asked.reply(405, &[], "");
    };
    tokio::join!(connected.transport.close(EVER), serve);
    assert_eq!(connected.transport.closed().await, Fault::Lost("the connection was closed".into()));
}

#[tokio::test]
async fn closing_ends_what_is_running_and_waits_no_longer_than_told() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, LEGACY)).await;
    let (events, ()) = tokio::join!(told(exchange), connected.transport.close(Duration::ZERO));
    assert_eq!(events, ["the connection was closed"]);
    asked.abandoned().await;
    let event = connected.transport.request(call(2, LEGACY)).next().await;
    assert!(matches!(event, Some(Event::Lost(Fault::Unreached(_)))), "nothing is sent any more: {event:?}");

    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, None).await;
    connected.transport.close(EVER).await;
    assert!(server.is_quiet(), "there is no session to delete");
}

#[tokio::test]
async fn a_forgotten_session_is_told_from_other_refusals() {
    let not_found = |code: i64, message: &str| {
        json!({"jsonrpc": "2.0", "id": null, "error": {"code": code, "message": message}}).to_string()
    };
    let gone = "the server has forgotten the session";
    let nothing_there =
        "the server answered with HTTP status 404 (there is no MCP server at this path; check url:)";
    let python =
        r#"{"jsonrpc":"2.0","id":"server-error","error":{"code":-32600,"message":"Session not found"}}"#;
    for (status, body, session, expected) in [
        (404, String::new(), true, gone),
        (404, "404 page not found".to_owned(), true, gone),
        (404, not_found(-32001, "Session not found"), true, gone),
        (404, python.to_owned(), true, gone),
        (400, not_found(-32000, "Bad Request: No valid session ID provided"), true, gone),
        (
            400,
            not_found(-32000, "Bad Request: something else"),
            true,
            "Some(400) Bad Request: something else (-32000)",
        ),
        (404, not_found(-32601, "Method not found"), true, "Some(404) Method not found (-32601)"),
        (404, not_found(-32001, "Session not found"), false, "Some(404) Session not found (-32001)"),
        (404, String::new(), false, nothing_there),
    ] {
        let mut server = Server::start().await;
        let connected = connect(&server).await;
        connected.initialize(&mut server, session.then_some("s-1")).await;
        let (exchange, asked) = connected.ask(&mut server, call(1, LEGACY)).await;
        asked.reply(status, &[("content-type", "application/json")], body.clone());
        assert_eq!(told(exchange).await, [expected], "{status} {body}");
        if expected == gone {
            assert_eq!(connected.transport.closed().await, Fault::SessionGone);
            connected.transport.close(EVER).await;
            assert!(server.is_quiet(), "what is forgotten is not deleted");
        }
    }
}

#[tokio::test]
async fn a_notification_into_a_forgotten_session_ends_it() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    let send =
        connected.transport.send(Outward { message: Raw::of(&note("a")), version: Version::V2025_11_25 });
    let (outcome, ()) = tokio::join!(send, async { server.next().await.reply(404, &[], "") });
    assert_eq!(outcome, Err(Fault::SessionGone));
    assert_eq!(connected.transport.closed().await, Fault::SessionGone);
}

#[tokio::test]
async fn dropping_a_legacy_exchange_tells_the_server() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    let (exchange, asked) = connected.ask(&mut server, call(41, LEGACY)).await;
    drop(exchange);
    asked.abandoned().await;
    let asked = server.next().await;
    assert_eq!(asked.header("mcp-session-id"), "s-1");
    assert_eq!(
        asked.json(),
        json!({"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 41}})
    );
    asked.reply(202, &[], "");

    let (exchange, asked) = connected.ask(&mut server, outgoing(42, "initialize", None)).await;
    drop(exchange);
    asked.abandoned().await;
    let (exchange, asked) = connected.ask(&mut server, call(43, LEGACY)).await;
    assert_eq!(asked.json()["id"], 43, "initialize is never cancelled");
    asked.json_reply(200, &answer(43));
    told(exchange).await;
    assert!(server.is_quiet(), "nor is what was answered");
}

#[tokio::test]
async fn a_stream_that_breaks_off_is_resumed_after_its_last_event() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, LEGACY)).await;
    let serve = async {
        let writer = asked.events();
        writer.write("id: p-0\nretry: 1\ndata:\n\n").await;
        drop(writer);
        let asked = server.next().await;
        assert_eq!((&asked.method, asked.uri.as_str()), (&Method::GET, "/mcp?key=hidden"));
        assert_eq!((asked.header("accept"), asked.header("content-type")), ("text/event-stream", ""));
        assert_eq!(
            (asked.header("mcp-session-id"), asked.header("mcp-protocol-version")),
            ("s-1", "2025-11-25")
        );
        assert_eq!(asked.header("last-event-id"), "p-0");
        let writer = asked.events();
        writer.write(format!("id: p-1\ndata: {}\n\ndata: half", note("a"))).await;
        writer.cut().await;
        let asked = server.next().await;
        assert_eq!(asked.header("last-event-id"), "p-1");
        asked.reply(503, &[], "");
        let asked = server.next().await;
        assert_eq!(asked.header("last-event-id"), "p-1");
        asked.events().message(&answer(1)).await;
    };
    let (events, ()) = tokio::join!(told(exchange), serve);
    // The first end was meant, for it came in order and with a delay; the second was not.
    assert_eq!(events, ["hung up", "\"a\"", r#"Some(200) {"ok":1}"#]);
}

#[tokio::test]
async fn a_stream_without_anything_new_is_resumed_five_times() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, LEGACY)).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let serve = async {
        // Without a delay of the server it is a second.
        asked.events().write("id: 1\n\n").await;
        for _ in 0..5 {
            let asked = server.next().await;
            assert_eq!(asked.header("last-event-id"), "1");
            drop(asked.events());
        }
    };
    let (events, ()) = tokio::join!(told(exchange), serve);
    assert_eq!(events, [format!("{} ended its stream without an answer", server.address)]);
    assert!(begun.elapsed() >= Duration::from_secs(5), "{:?}", begun.elapsed());
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_server_that_wants_no_pause_is_not_asked_without_one() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, LEGACY)).await;
    tokio::time::pause();
    let begun = tokio::time::Instant::now();
    let serve = async {
        asked.events().write("id: 0\nretry: 0\ndata:\n\n").await;
        // Something new comes each time, so it may go on for as long as the server likes.
        for number in 1..20 {
            server.next().await.events().write(format!("id: {number}\ndata:\n\n")).await;
        }
        server.next().await.events().message(&answer(1)).await;
    };
    let (events, ()) = tokio::join!(told(exchange), serve);
    assert_eq!(events.last().unwrap(), r#"Some(200) {"ok":1}"#);
    assert!(begun.elapsed() >= 20 * Duration::from_millis(100), "{:?}", begun.elapsed());
}

#[tokio::test]
async fn what_cannot_be_resumed_is_lost() {
    for (version, text) in [(LEGACY, "data:\n\n"), (MODERN, "id: 1\nretry: 1\n\n")] {
        let mut server = Server::start().await;
        let connected = connect(&server).await;
        let (exchange, asked) = connected.ask(&mut server, call(1, version)).await;
        let writer = asked.events();
        let (events, ()) = tokio::join!(told(exchange), async move { assert!(writer.write(text).await) });
        assert_eq!(events, [format!("{} ended its stream without an answer", server.address)]);
        assert!(server.is_quiet());
    }
    // Refused by the server, and refused because the session is over.
    for (status, session) in [(405, false), (404, true)] {
        let mut server = Server::start().await;
        let connected = connect(&server).await;
        connected.initialize(&mut server, Some("s-1")).await;
        let (exchange, asked) = connected.ask(&mut server, call(1, LEGACY)).await;
        let serve = async {
            asked.events().write("id: 1\nretry: 1\n\n").await;
            server.next().await.reply(status, &[], "");
        };
        let (events, ()) = tokio::join!(told(exchange), serve);
        let lost = format!("{} ended its stream without an answer", server.address);
        assert_eq!(events, ["hung up", &lost]);
        assert_eq!(connected.transport.closed().now_or_never(), session.then_some(Fault::SessionGone));
    }
}
