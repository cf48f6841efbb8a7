//! Requests of the modern era, and what answers look like in both.

use std::fmt::Write as _;

use http::{Method, header};

use super::*;

#[tokio::test]
async fn a_modern_request_carries_its_headers_and_no_session() {
    let mut server = Server::start().await;
    let secret = HeaderValue::from_static("Bearer secret");
    let connected =
        connect_with(Spec { headers: vec![(header::AUTHORIZATION, secret)], ..spec(&server) }).await;
    connected.initialize(&mut server, Some("a-session")).await;
    let request = Outgoing {
        name: Some("größe".into()),
        param_headers: vec![("Region".into(), "eu west".to_owned()), ("Text".into(), " x".to_owned())],
        undeclared: vec![("x".into(), "=?base64?!?=".into()), ("x".into(), "two".into())],
        ..call(7, MODERN)
    };
    let (exchange, asked) = connected.ask(&mut server, request).await;
    assert_eq!((&asked.method, asked.uri.as_str()), (&Method::POST, "/mcp?key=hidden"));
    let mut headers: Vec<_> =
        asked.headers.iter().map(|(name, value)| (name.as_str(), value.to_str().unwrap())).collect();
    headers.sort_unstable();
    let host = server.address.to_string();
    let length = asked.body.len().to_string();
    assert_eq!(
        headers,
        [
            ("accept", "application/json, text/event-stream"),
            ("authorization", "Bearer secret"),
            ("content-length", &length),
            ("content-type", "application/json"),
            ("host", &host),
            ("mcp-method", "tools/call"),
            ("mcp-name", "=?base64?Z3LDtsOfZQ==?="),
            ("mcp-param-region", "eu west"),
            ("mcp-param-text", "=?base64?IHg=?="),
            ("mcp-param-x", "=?base64?!?="),
            ("mcp-param-x", "two"),
            ("mcp-protocol-version", "2026-07-28"),
        ]
    );
    assert_eq!(
        asked.json(),
        json!({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": {"name": "x"}})
    );
    asked.json_reply(200, &answer(7));
    assert_eq!(told(exchange).await, [r#"Some(200) {"ok":7}"#]);
}

#[tokio::test]
async fn messages_before_the_answer_come_in_order_and_the_connection_is_used_again() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    for (round, version) in [(1, MODERN), (2, LEGACY), (3, MODERN)] {
        let (exchange, asked) = connected.ask(&mut server, call(round, version)).await;
        let serve = async {
            let writer = asked.events();
            let question = json!({"jsonrpc": "2.0", "id": "q", "method": "ping", "params": {"data": "b"}});
            for message in [&note("a"), &question, &answer(round)] {
                assert!(writer.message(message).await);
            }
            writer
        };
        let (events, writer) = tokio::join!(told(exchange), serve);
        assert_eq!(events, ["\"a\"", "\"b\"", &format!("Some(200) {{\"ok\":{round}}}")]);
        // The stream ends a little after the answer, and a task takes that in.
        tokio::task::yield_now().await;
        drop(writer);
        for _ in 0..1000 {
            tokio::task::yield_now().await;
        }
    }
    assert_eq!(server.connections(), 1);
}

#[tokio::test]
async fn a_stream_may_come_in_pieces_with_comments_and_strange_ends() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    let serve = async {
        let writer = asked.events();
        let text = format!(
            ": hello\r\n\r\nevent: ping\r\ndata: {{}}\r\n\r\ndata: {}\r\ndata:\r\n\r\nid: 1\ndata:\n\ndata: {}\n\n",
            note("a"),
            answer(1)
        );
        for byte in text.into_bytes() {
            assert!(writer.write(vec![byte]).await);
        }
    };
    let (events, ()) = tokio::join!(told(exchange), serve);
    assert_eq!(events, ["\"a\"", r#"Some(200) {"ok":1}"#]);
}

#[tokio::test]
async fn a_batch_gives_its_messages_first_and_the_answer_last() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let batch = json!([answer(1), note("a"), answer(2), {"jsonrpc": "2.0"}, note("b")]);
    let expected = ["\"a\"", "\"b\"", r#"Some(200) {"ok":1}"#];
    let version = Some(Version::V2025_03_26);
    let (exchange, asked) = connected.ask(&mut server, call(1, version)).await;
    assert_eq!(asked.header("mcp-protocol-version"), "", "servers of that time do not know it");
    asked.json_reply(200, &batch);
    assert_eq!(told(exchange).await, expected);
    let (exchange, asked) = connected.ask(&mut server, call(1, version)).await;
    let writer = asked.events();
    let (events, _) = tokio::join!(told(exchange), writer.message(&batch));
    assert_eq!(events, expected);
    assert!(connected.transport.diagnosis().notes[1].starts_with("4 messages"));
}

#[tokio::test]
async fn what_belongs_to_another_request_is_dropped_and_counted() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    let serve = async {
        let writer = asked.events();
        let text = json!({"jsonrpc": "2.0", "id": "1", "result": {}});
        let unasked = json!({"jsonrpc": "2.0", "id": null, "result": {}});
        for message in [&answer(2), &text, &unasked, &json!("garbage"), &json!({"id": 1})] {
            writer.message(message).await;
        }
        writer.write("data: {not json\n\n").await;
        writer.message(&answer(1)).await;
        // The second answer is after the end.
        writer.message(&answer(1)).await;
    };
    let (events, ()) = tokio::join!(told(exchange), serve);
    assert_eq!(events, ["the server's answer is not JSON-RPC: Invalid Request: jsonrpc must be \"2.0\""]);
    assert!(connected.transport.diagnosis().notes[1].starts_with("4 messages"));

    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    let serve = async {
        let writer = asked.events();
        writer.write("data: {not json\n\n").await;
        writer.message(&answer(1)).await;
        writer.message(&answer(1)).await;
    };
    let (events, ()) = tokio::join!(told(exchange), serve);
    assert_eq!(events, [r#"Some(200) {"ok":1}"#]);
    assert!(connected.transport.diagnosis().notes[1].starts_with("5 messages"));
}

#[tokio::test]
async fn an_error_without_an_id_answers_what_was_asked() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let error = json!({"jsonrpc": "2.0", "id": null, "error": {"code": -32600, "message": "No"}});
    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    asked.json_reply(200, &error);
    assert_eq!(told(exchange).await, ["Some(200) No (-32600)"]);
}

#[tokio::test]
async fn a_reader_that_does_not_keep_up_stops_the_server() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let (mut exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    let writer = asked.events();
    let mut text = String::new();
    write!(text, "data: {}\n\n", note(&"x".repeat(50_000))).unwrap();
    let chunk = bytes::Bytes::from(text);
    let mut written = 0_usize;
    // Until the server could not write for as long as others had something to do.
    let mut stuck = 0;
    while stuck < 1000 {
        tokio::select! {
            biased;
            sent = writer.write(chunk.clone()) => {
                assert!(sent);
                (written, stuck) = (written + chunk.len(), 0);
            }
            () = tokio::task::yield_now() => stuck += 1,
        }
        assert!(written < 64 * 1024 * 1024, "the client takes in what nobody reads");
    }
    for _ in 0..3 {
        assert!(matches!(exchange.next().await, Some(Event::Message(_))));
    }
}

#[tokio::test]
async fn dropping_a_modern_exchange_closes_its_stream() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    drop(exchange);
    asked.abandoned().await;

    let (mut exchange, asked) = connected.ask(&mut server, call(2, MODERN)).await;
    let writer = asked.events();
    let message = note("a");
    let (event, _) = tokio::join!(exchange.next(), writer.message(&message));
    assert!(matches!(event, Some(Event::Message(_))));
    drop(exchange);
    writer.abandoned().await;
    assert!(server.is_quiet(), "a modern server is told nothing");
}

#[tokio::test]
async fn nothing_is_sent_before_the_exchange_is_polled() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    drop(connected.transport.request(call(1, LEGACY)));
    connected.tasks.settle(EVER).await;
    assert!(server.is_quiet());
    assert_eq!(server.connections(), 0);
}
