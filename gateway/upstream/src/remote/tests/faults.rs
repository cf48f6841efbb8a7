//! What goes wrong, and what is said then.

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
};

use super::*;

async fn refused(status: u16, headers: &[(&str, &str)], body: &str) -> String {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    asked.reply(status, headers, body.to_owned());
    let text = told(exchange).await.remove(0);
    text.replace(&server.address.to_string(), "HOST")
}

#[tokio::test]
async fn refusals_say_what_helps() {
    let json = ("content-type", "application/json");
    let said = "the server answered with HTTP status";
    let error = |id: &str| format!(r#"{{"jsonrpc":"2.0",{id}"error":{{"code":-32022,"message":"No"}}}}"#);
    for (status, headers, body, expected) in [
        (401, &[("www-authenticate", "Bearer")][..], "secret page".to_owned(), format!("{said} 401 (credentials are missing or wrong; check headers:)")),
        (403, &[], String::new(), format!("{said} 403 (these credentials may not do that; check headers:)")),
        (500, &[], "secret trace".to_owned(), format!("{said} 500 (Internal Server Error)")),
        (502, &[], String::new(), format!("{said} 502 (Bad Gateway)")),
        (599, &[], String::new(), format!("{said} 599")),
        (307, &[("location", "https://other.test/x/y?token=secret")], String::new(), format!("{said} 307 (a redirect to https://other.test/x/y, which is not followed; correct url:)")),
        (308, &[("location", "/mcp/?token=secret")], String::new(), format!("{said} 308 (a redirect to http://HOST/mcp/, which is not followed; correct url:)")),
        (302, &[], String::new(), format!("{said} 302 (a redirect, which is not followed; correct url:)")),
        (400, &[json], error(r#""id":1,"#), "Some(400) No (-32022)".to_owned()),
        (400, &[json], error(r#""id":null,"#), "Some(400) No (-32022)".to_owned()),
        (400, &[], error(""), "Some(400) No (-32022)".to_owned()),
        (400, &[json], error(r#""id":2,"#), format!("{said} 400 (Bad Request)")),
        (400, &[json], r#"{"error":"other"}"#.to_owned(), format!("{said} 400 (Bad Request)")),
        (202, &[json], answer(1).to_string(), "the server accepted the request and did not answer it".to_owned()),
        (200, &[("content-type", "text/html; charset=utf-8")], "<secret>".to_owned(), "the server answered with content of the type \"text/html; charset=utf-8\", which is not MCP".to_owned()),
        (200, &[], String::new(), "the server answered without saying which type of content it sends".to_owned()),
        (200, &[json], answer(2).to_string(), "the server answered another request than was asked".to_owned()),
        (200, &[json], "{".to_owned(), "the server's answer is not JSON-RPC: Parse error: EOF while parsing an object at line 1 column 1".to_owned()),
        (200, &[json], note("a").to_string(), "the server answered another request than was asked".to_owned()),
    ] {
        assert_eq!(refused(status, headers, &body).await, expected);
    }
}

#[tokio::test]
async fn what_is_too_long_is_not_taken_in() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let long = "x".repeat(100_001);
    let text = "the server's answer is longer than 100000 bytes";

    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    asked.reply(200, &[("content-type", "application/json")], long.clone());
    assert_eq!(told(exchange).await, [text], "it says so beforehand");

    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    let writer = asked.stream(200, &[("content-type", "application/json")]);
    let serve = async { while writer.write("x".repeat(1000)).await {} };
    assert_eq!(tokio::join!(told(exchange), serve).0, [text], "it does not end");

    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    let writer = asked.events();
    let serve = async {
        writer.write("data: ").await;
        while writer.write("x".repeat(1000)).await {}
    };
    assert_eq!(tokio::join!(told(exchange), serve).0, ["the server sent an event longer than 100000 bytes"]);
}

#[tokio::test]
async fn an_answer_that_trickles_is_waited_for() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
    let writer = asked.stream(200, &[("content-type", "application/json")]);
    let serve = async move {
        for byte in answer(1).to_string().into_bytes() {
            assert!(writer.write(vec![byte]).await);
        }
    };
    assert_eq!(tokio::join!(told(exchange), serve).0, [r#"Some(200) {"ok":1}"#]);
}

#[tokio::test]
async fn a_connection_that_breaks_in_the_answer_is_lost() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    for kind in ["application/json", "text/event-stream"] {
        let (mut exchange, asked) = connected.ask(&mut server, call(1, MODERN)).await;
        let writer = asked.stream(200, &[("content-type", kind)]);
        let serve = async {
            writer.write("data: {\"js").await;
            writer.cut().await;
        };
        let (event, ()) = tokio::join!(exchange.next(), serve);
        assert!(matches!(event, Some(Event::Lost(Fault::Lost(_)))), "{kind}: {event:?}");
    }
}

/// A connection of a client, of which a whole request was read.
async fn accept(listener: &TcpListener) -> TcpStream {
    let (mut stream, _) = listener.accept().await.unwrap();
    read_request(&mut stream).await;
    stream
}

async fn read_request(stream: &mut TcpStream) {
    let mut text = Vec::new();
    while !text.ends_with(b"}}") {
        let mut byte = [0];
        stream.read_exact(&mut byte).await.unwrap();
        text.push(byte[0]);
    }
}

#[tokio::test]
async fn a_connection_that_breaks_before_the_answer_is_lost() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connected = connect_with(Spec::new("test", url.parse().unwrap())).await;
    let serve = async { drop(accept(&listener).await) };
    let mut exchange = connected.transport.request(call(1, MODERN));
    let (event, ()) = tokio::join!(exchange.next(), serve);
    assert!(matches!(event, Some(Event::Lost(Fault::Lost(_)))), "{event:?}");

    // Reset in the middle of a body of known length.
    let serve = async {
        let mut stream = accept(&listener).await;
        let head = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{";
        stream.write_all(head).await.unwrap();
        rustix::net::sockopt::set_socket_linger(&stream, Some(Duration::ZERO)).unwrap();
    };
    let mut exchange = connected.transport.request(call(2, MODERN));
    let (event, ()) = tokio::join!(exchange.next(), serve);
    assert!(matches!(event, Some(Event::Lost(Fault::Lost(_)))), "{event:?}");
}

#[tokio::test]
async fn a_request_that_a_closed_connection_never_took_is_sent_on_a_new_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connected = connect_with(Spec::new("test", url.parse().unwrap())).await;
    let body = answer(1).to_string();
    let whole = format!(
        "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    for _ in 0..3 {
        let serve = async {
            let mut stream = accept(&listener).await;
            stream.write_all(whole.as_bytes()).await.unwrap();
            // Closed without a word, while it is idle.
        };
        let (events, ()) = tokio::join!(told(connected.transport.request(call(1, MODERN))), serve);
        assert_eq!(events, [r#"Some(200) {"ok":1}"#]);
        // When this connection is there, we have heard of the end of the other: the network's news come in order.
        let (mine, theirs) =
            tokio::join!(TcpStream::connect(listener.local_addr().unwrap()), listener.accept());
        assert!(mine.is_ok() && theirs.is_ok());
    }
}

#[tokio::test(start_paused = true)]
async fn a_connection_that_nobody_uses_is_closed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let idle = Duration::from_secs(50);
    let spec = Spec { idle, connect_timeout: EVER, ..Spec::new("test", url.parse().unwrap()) };
    let connected = connect_with(spec).await;
    let body = answer(1).to_string();
    let serve = async {
        let mut stream = accept(&listener).await;
        let head =
            format!("HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {}", body.len());
        stream.write_all(format!("{head}\r\n\r\n{body}").as_bytes()).await.unwrap();
        let answered = tokio::time::Instant::now();
        assert_eq!(stream.read(&mut [0; 16]).await.unwrap(), 0);
        answered.elapsed()
    };
    let (events, kept) = tokio::join!(told(connected.transport.request(call(1, MODERN))), serve);
    assert_eq!(events, [r#"Some(200) {"ok":1}"#]);
    assert!((idle..=2 * idle).contains(&kept), "{kept:?}");
}

#[tokio::test]
async fn a_chunk_that_claims_to_be_huge_takes_no_memory() {
    for size in ["ffffffffff", "7fffffffffffffff"] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}/", listener.local_addr().unwrap());
        let connected = connect_with(Spec::new("test", url.parse().unwrap())).await;
        let serve = async {
            let mut stream = accept(&listener).await;
            let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ntransfer-encoding: chunked";
            let first = format!("{head}\r\n\r\n2\r\n{{ \r\n{size}\r\n \"id\": 1");
            stream.write_all(first.as_bytes()).await.unwrap();
            stream.write_all(b", ").await.unwrap();
        };
        let (events, ()) = tokio::join!(told(connected.transport.request(call(1, MODERN))), serve);
        assert!(events[0].contains("was lost before the answer"), "{events:?}");
    }
}

fn large(length: usize) -> Outgoing {
    let message =
        json!({"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "x".repeat(length)}});
    Outgoing { message: Raw::of(&message), ..call(1, MODERN) }
}

#[tokio::test]
async fn a_large_request_arrives_whole() {
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    let (exchange, asked) = connected.ask(&mut server, large(1 << 20)).await;
    assert_eq!(asked.json()["params"]["name"].as_str().map(str::len), Some(1 << 20));
    asked.json_reply(200, &answer(1));
    assert_eq!(told(exchange).await, [r#"Some(200) {"ok":1}"#]);
}

#[tokio::test]
async fn a_refusal_in_the_middle_of_a_request_is_heard() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connected = connect_with(Spec::new("test", url.parse().unwrap())).await;
    for stays in [false, true] {
        let serve = async {
            let mut stream = listener.accept().await.unwrap().0;
            stream.read_exact(&mut [0; 1024]).await.unwrap();
            let refusal =
                "HTTP/1.1 103 Early Hints\r\n\r\nHTTP/1.1 413 Content Too Large\r\ncontent-length: 0\r\n\r\n";
            stream.write_all(refusal.as_bytes()).await.unwrap();
            // It takes nothing of the rest, so that closing resets the connection.
            stays.then_some(stream)
        };
        // More than the system keeps for a server that does not read.
        let (events, _stream) = tokio::join!(told(connected.transport.request(large(32 << 20))), serve);
        assert_eq!(events, ["the server answered with HTTP status 413 (Payload Too Large)"]);
    }
}

#[tokio::test]
async fn a_request_goes_on_behind_an_answer_that_has_begun() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let connected = connect_with(Spec::new("test", url.parse().unwrap())).await;
    let serve = async {
        let mut stream = listener.accept().await.unwrap().0;
        stream.read_exact(&mut [0; 1024]).await.unwrap();
        let body = answer(1).to_string();
        let head = "HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n";
        stream.write_all(format!("{head}content-length: {}\r\n\r\n", body.len()).as_bytes()).await.unwrap();
        let mut piece = vec![0; 1 << 20];
        while !piece.ends_with(b"}}") {
            piece.resize(1 << 20, 0);
            let read = stream.read(&mut piece).await.unwrap();
            assert!(read > 0, "the request broke off");
            piece.truncate(read);
        }
        stream.write_all(body.as_bytes()).await.unwrap();
        stream
    };
    let (events, _stream) = tokio::join!(told(connected.transport.request(large(32 << 20))), serve);
    assert_eq!(events, [r#"Some(200) {"ok":1}"#]);
}

#[tokio::test]
async fn a_server_that_cannot_be_reached_never_got_the_request() {
    let address = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let url = format!("http://{address}/?key=hidden").parse().unwrap();
    let connected = connect_with(Spec::new("test", url)).await;
    let Some(Event::Lost(Fault::Unreached(text))) = connected.transport.request(call(1, LEGACY)).next().await
    else {
        panic!("it was reached");
    };
    assert!(text.starts_with(&format!("cannot connect to {address}: Connection refused")), "{text}");
    let send =
        connected.transport.send(Outward { message: Raw::of(&note("a")), version: Version::V2025_11_25 });
    assert!(matches!(send.await, Err(Fault::Unreached(_))));

    let url = Uri::from_static("http://moongate.invalid/");
    let connected = connect_with(Spec::new("test", url)).await;
    let Some(Event::Lost(Fault::Unreached(text))) = connected.transport.request(call(1, MODERN)).next().await
    else {
        panic!("it was reached");
    };
    assert!(text.starts_with("cannot connect to moongate.invalid:80: "), "{text}");
}

#[tokio::test]
async fn a_server_that_takes_too_long_to_connect_to_never_got_the_request() {
    // It accepts no TLS: the handshake waits for an answer.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let dir = tempfile::TempDir::new().unwrap();
    let ca_file = dir.path().join("ca.pem");
    std::fs::write(
        &ca_file,
        rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap().cert.pem(),
    )
    .unwrap();
    let spec = Spec::new("test", format!("https://{address}/").parse().unwrap());
    let connected =
        connect_with(Spec { ca_files: vec![ca_file], connect_timeout: Duration::from_secs(7), ..spec }).await;
    let mut exchange = connected.transport.request(call(1, MODERN));
    let mut stream = tokio::select! {
        accepted = listener.accept() => accepted.unwrap().0,
        event = exchange.next() => panic!("{event:?}"),
    };
    tokio::time::pause();
    let Some(Event::Lost(Fault::Unreached(text))) = exchange.next().await else { panic!("it was reached") };
    assert_eq!(text, format!("cannot connect to {address}: no answer within 7s"));
    let mut hello = Vec::new();
    stream.read_to_end(&mut hello).await.unwrap();
    assert!(!hello.is_empty(), "the connection was closed");
}
