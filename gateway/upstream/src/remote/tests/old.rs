//! HTTP+SSE.

use http::Method;

use super::*;

/// A connection to a server that wants messages at `/post`, and the stream of the server.
async fn connect_old(server: &mut Server) -> (Connected, server::Writer) {
    let tasks = Group::new();
    let old = OldSse::new(spec(server), tasks.clone());
    assert_eq!(old.way(), Way::Pipe);
    let serve = async {
        let asked = server.next().await;
        assert_eq!((&asked.method, asked.header("accept")), (&Method::GET, "text/event-stream"));
        let writer = asked.events();
        writer.write("event: endpoint\ndata: /post?session=1\n\n").await;
        writer
    };
    tokio::join!(dial(&old, tasks), serve)
}

#[tokio::test]
async fn answers_come_on_the_stream_whatever_their_order() {
    let mut server = Server::start().await;
    let (mut connected, writer) = connect_old(&mut server).await;
    let version = Some(Version::V2024_11_05);
    let (one, asked) = connected.ask(&mut server, call(1, version)).await;
    assert_eq!((&asked.method, asked.uri.as_str()), (&Method::POST, "/post?session=1"));
    assert_eq!(asked.json()["id"], 1);
    asked.reply(202, &[], "Accepted");
    let (two, asked) = connected.ask(&mut server, call(2, version)).await;
    writer.message(&note("a")).await;
    writer.message(&answer(2)).await;
    writer.message(&answer(3)).await;
    writer.message(&answer(1)).await;
    assert_eq!(told(one).await, [r#"None {"ok":1}"#]);
    assert_eq!(told(two).await, [r#"None {"ok":2}"#], "before its POST is answered");
    asked.reply(202, &[], "");
    assert_eq!(heard(&connected.heard.recv().await.unwrap()), "\"a\"");
    assert!(connected.transport.diagnosis().notes[1].starts_with("1 messages"));
    assert!(connected.transport.listen(Version::V2024_11_05).await);

    let send =
        connected.transport.send(Outward { message: Raw::of(&note("b")), version: Version::V2024_11_05 });
    let serve = async {
        let asked = server.next().await;
        assert_eq!(asked.json(), note("b"));
        asked.reply(202, &[], "");
    };
    assert_eq!(tokio::join!(send, serve).0, Ok(()));
}

#[tokio::test]
async fn dropping_an_exchange_tells_the_server() {
    let mut server = Server::start().await;
    let (connected, _writer) = connect_old(&mut server).await;
    let (exchange, asked) = connected.ask(&mut server, call(5, Some(Version::V2024_11_05))).await;
    asked.reply(202, &[], "");
    drop(exchange);
    let asked = server.next().await;
    assert_eq!(
        (&asked.json()["method"], &asked.json()["params"]["requestId"]),
        (&json!("notifications/cancelled"), &json!(5))
    );
}

#[tokio::test]
async fn when_the_stream_ends_all_ends() {
    let mut server = Server::start().await;
    let (connected, writer) = connect_old(&mut server).await;
    let (exchange, asked) = connected.ask(&mut server, call(1, Some(Version::V2024_11_05))).await;
    asked.reply(202, &[], "");
    drop(writer);
    let ended = format!("{} ended its stream", server.address);
    assert_eq!(told(exchange).await, [ended.as_str()]);
    assert_eq!(connected.transport.closed().await, Fault::Lost(ended.clone().into()));
    let mut exchange = connected.transport.request(call(2, Some(Version::V2024_11_05)));
    let Some(Event::Lost(fault)) = exchange.next().await else { panic!("it was answered") };
    assert_eq!(fault, Fault::Unreached(ended.into()), "nothing was sent");
}

#[tokio::test]
async fn closing_ends_the_stream() {
    let mut server = Server::start().await;
    let (connected, writer) = connect_old(&mut server).await;
    connected.transport.close(EVER).await;
    writer.abandoned().await;
    assert_eq!(connected.transport.closed().await, Fault::Lost("the connection was closed".into()));
    let (mut connected, writer) = connect_old(&mut server).await;
    connected.transport = connect(&server).await.transport.clone();
    writer.abandoned().await;
}

#[tokio::test]
async fn a_stream_of_another_kind_is_refused() {
    let mut server = Server::start().await;
    let address = server.address;
    for (kind, text, expected) in [
        (
            "text/event-stream",
            "data: {}\n\n",
            "the server's stream does not begin with an address to post to",
        ),
        (
            "text/event-stream",
            "event: endpoint\ndata: http://evil.test/\n\n",
            "the server wants messages posted to another server, which is refused",
        ),
        ("text/event-stream", "", &format!("{address} ended its stream")),
        ("text/html", "", "the server answered with content of the type \"text/html\", which is not MCP"),
    ] {
        let old = OldSse::new(spec(&server), Group::new());
        let (sender, _heard) = mpsc::channel(1);
        let serve = async { server.next().await.reply(200, &[("content-type", kind)], text) };
        let (dialled, ()) = tokio::join!(old.dial(Arc::new(Ears(sender))), serve);
        assert_eq!(dialled.err().unwrap().to_string(), expected);
    }
}

#[tokio::test]
async fn a_server_that_never_says_where_to_post_is_not_waited_for() {
    let mut server = Server::start().await;
    let old = OldSse::new(Spec { connect_timeout: Duration::from_secs(9), ..spec(&server) }, Group::new());
    let (sender, _heard) = mpsc::channel(1);
    let serve = async {
        let writer = server.next().await.events();
        tokio::time::pause();
        writer
    };
    let (dialled, writer) = tokio::join!(old.dial(Arc::new(Ears(sender))), serve);
    let expected = format!("{} did not say where to post within 9s", server.address);
    assert_eq!(dialled.err(), Some(Fault::Unreached(expected.into())));
    writer.abandoned().await;
}
