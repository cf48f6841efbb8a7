//! The stream for what a legacy server says outside requests.

use http::Method;

use super::*;

#[tokio::test]
async fn what_is_said_on_the_stream_is_heard_also_after_it_broke_off() {
    let mut server = Server::start().await;
    let mut connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    let listen = connected.transport.listen(Version::V2025_11_25);
    let serve = async {
        let asked = server.next().await;
        assert_eq!((&asked.method, asked.header("accept")), (&Method::GET, "text/event-stream"));
        assert_eq!((asked.header("mcp-session-id"), asked.header("last-event-id")), ("s-1", ""));
        asked.events()
    };
    let (listening, writer) = tokio::join!(listen, serve);
    assert!(listening);
    writer.write(format!("id: 1\ndata: {}\n\n", note("a"))).await;
    writer.message(&answer(9)).await;
    writer.write("data: garbage\n\n").await;
    assert_eq!(heard(&connected.heard.recv().await.unwrap()), "\"a\"");
    // From here on there is waiting: a second, then twice that.
    tokio::time::pause();
    drop(writer);
    let asked = server.next().await;
    assert_eq!((asked.header("mcp-session-id"), asked.header("last-event-id")), ("s-1", "1"));
    asked.reply(503, &[], "");
    let asked = server.next().await;
    assert_eq!(asked.header("last-event-id"), "1");
    let writer = asked.events();
    writer.message(&note("b")).await;
    assert_eq!(heard(&connected.heard.recv().await.unwrap()), "\"b\"");
    assert!(connected.transport.diagnosis().notes[1].starts_with("2 messages"));
    writer.cut().await;
    server.next().await.reply(404, &[], "");
    assert_eq!(connected.transport.closed().await, Fault::SessionGone);
}

#[tokio::test]
async fn a_server_without_a_stream_is_not_asked_again() {
    for status in [400, 404, 405, 501] {
        let mut server = Server::start().await;
        let connected = connect(&server).await;
        connected.initialize(&mut server, Some("s-1")).await;
        let listen = connected.transport.listen(Version::V2025_11_25);
        let (listening, ()) = tokio::join!(listen, async { server.next().await.reply(status, &[], "") });
        assert!(!listening, "{status}");
        assert_eq!(
            connected.transport.closed().now_or_never(),
            None,
            "{status} is not the end of the session"
        );
    }
    let mut server = Server::start().await;
    let connected = connect(&server).await;
    assert!(!connected.transport.listen(Version::V2026_07_28).await);
    assert!(server.is_quiet());
}

#[tokio::test]
async fn a_stream_that_begins_late_is_listened_to() {
    let mut server = Server::start().await;
    let mut connected = connect(&server).await;
    connected.initialize(&mut server, Some("s-1")).await;
    tokio::time::pause();
    assert!(connected.transport.listen(Version::V2025_11_25).await);
    server.next().await.events().message(&note("a")).await;
    assert_eq!(heard(&connected.heard.recv().await.unwrap()), "\"a\"");
}

#[tokio::test]
async fn closing_or_dropping_the_transport_ends_the_stream() {
    for closing in [true, false] {
        let mut server = Server::start().await;
        let mut connected = connect(&server).await;
        connected.initialize(&mut server, None).await;
        let listen = connected.transport.listen(Version::V2025_11_25);
        let (listening, writer) = tokio::join!(listen, async { server.next().await.events() });
        assert!(listening);
        if closing {
            connected.transport.close(EVER).await;
        } else {
            let other = connect(&server).await;
            connected.transport = Arc::clone(&other.transport);
        }
        writer.abandoned().await;
    }
}
