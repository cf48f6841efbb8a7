//! Requests and answers byte by byte, on a pipe in memory with a plain application behind it.

use std::{
    convert::Infallible,
    sync::{
        Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use http_body::Frame;
use http_body_util::{BodyExt as _, Empty, Full, StreamBody, combinators::UnsyncBoxBody};
use moongate_security::Head;
use tokio::{
    io::DuplexStream,
    net::{TcpListener, TcpStream},
    sync::Notify,
    task::JoinSet,
};

use super::{
    super::{Drain, activity::Watched},
    *,
};

type TestBody = UnsyncBoxBody<Bytes, Infallible>;

/// Answers by the path of a request.
#[derive(Default)]
struct Site {
    /// What was read of bodies.
    read: Mutex<Vec<String>>,
    arrived: Notify,
    /// Requests that were dropped before they were answered.
    dropped: Arc<AtomicUsize>,
}

struct Unanswered(Arc<AtomicUsize>);

impl Drop for Unanswered {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::AcqRel);
    }
}

fn full(bytes: impl Into<Bytes>) -> TestBody {
    Full::new(bytes.into()).boxed_unsync()
}

impl App for Site {
    type Body = TestBody;

    fn handle(
        self: Arc<Self>,
        head: Head,
        body: Received,
        _conn: Arc<Conn>,
    ) -> BoxFuture<'static, Response<TestBody>> {
        Box::pin(async move {
            let body = match head.uri.path() {
                "/unread" => full("unread"),
                "/large" => full(vec![b'x'; 3 * WHOLE]),
                "/lies" => Lying(full("2")).boxed_unsync(),
                "/none" => {
                    let mut response = Response::new(Empty::new().boxed_unsync());
                    *response.status_mut() = StatusCode::NO_CONTENT;
                    return response;
                }
                "/stream" => {
                    let pieces =
                        ["one", "", "two"].map(|piece| Ok(Frame::data(Bytes::from_static(piece.as_bytes()))));
                    StreamBody::new(futures_util::stream::iter(pieces)).boxed_unsync()
                }
                "/silent" => {
                    let unanswered = Unanswered(Arc::clone(&self.dropped));
                    self.arrived.notify_one();
                    let silence = futures_util::stream::once(async move {
                        let _unanswered = unanswered;
                        std::future::pending().await
                    });
                    StreamBody::new(silence).boxed_unsync()
                }
                "/wait" => {
                    let _unanswered = Unanswered(Arc::clone(&self.dropped));
                    self.arrived.notify_one();
                    std::future::pending().await
                }
                _ => {
                    let text = match body.collect().await {
                        Ok(body) => String::from_utf8_lossy(&body.to_bytes()).into_owned(),
                        Err(error) => format!("{:?}", error.kind()),
                    };
                    self.read.lock().unwrap().push(text.clone());
                    full(text)
                }
            };
            Response::new(body)
        })
    }
}

/// A body that is shorter than it says.
struct Lying<B>(B);

impl<B: http_body::Body + Unpin> http_body::Body for Lying<B> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<B::Data>, B::Error>>> {
        Pin::new(&mut self.0).poll_frame(cx)
    }

    fn size_hint(&self) -> http_body::SizeHint {
        http_body::SizeHint::with_exact(2)
    }
}

/// A client on one end of a pipe; the other end is served.
struct Client {
    far: DuplexStream,
    site: Arc<Site>,
    served: JoinSet<io::Result<()>>,
}

fn served<S>(near: S, site: &Arc<Site>) -> JoinSet<io::Result<()>>
where
    S: AsyncRead + AsyncWrite + Presence + Unpin + Send + 'static,
{
    let address = ([127, 0, 0, 1], 1).into();
    let gate = moongate_security::Conn { address: [127, 0, 0, 1].into(), loopback_listener: true };
    let conn = Conn { address, peer: address, gate, tls: false, drain: Drain::new() };
    let activity = Arc::new(Activity::new());
    let near = Watched::new(near, Arc::clone(&activity));
    let mut served = JoinSet::new();
    served.spawn(Http1::new(near, Arc::clone(site), Arc::new(conn), activity, 16 * 1024).serve());
    served
}

impl Client {
    fn new() -> Self {
        let (near, far) = tokio::io::duplex(4 * WHOLE);
        let site = Arc::new(Site::default());
        Self { far, served: served(near, &site), site }
    }

    /// Everything that is answered to `requests`, which are all that is sent, without the dates.
    async fn ask(mut self, requests: &str) -> String {
        self.far.write_all(requests.as_bytes()).await.unwrap();
        self.far.shutdown().await.unwrap();
        self.rest().await
    }

    async fn rest(&mut self) -> String {
        let mut said = Vec::new();
        self.far.read_to_end(&mut said).await.unwrap();
        without_dates(&String::from_utf8(said).unwrap())
    }

    /// Reads until `end` has come.
    async fn until(&mut self, end: &str) -> String {
        let mut said = Vec::new();
        while !without_dates(&String::from_utf8_lossy(&said)).ends_with(end) {
            let read = self.far.read_buf(&mut said).await.unwrap();
            assert!(read > 0, "only {:?}", String::from_utf8_lossy(&said));
        }
        without_dates(&String::from_utf8(said).unwrap())
    }
}

fn without_dates(text: &str) -> String {
    text.split_inclusive("\r\n").filter(|line| !line.starts_with("date: ")).collect()
}

fn post(path: &str, body: &str) -> String {
    format!("POST {path} HTTP/1.1\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

fn ok(body: &str) -> String {
    format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len())
}

#[tokio::test]
async fn requests_on_one_connection_are_answered_in_order() {
    let requests =
        [post("/", "one"), post("/unread", "skipped"), "GET / HTTP/1.1\r\n\r\n".to_owned(), post("/", "two")];
    let mut client = Client::new();
    client.far.write_all(requests.concat().as_bytes()).await.unwrap();
    let expected = [ok("one"), ok("unread"), ok(""), ok("two")].concat();
    assert_eq!(client.until("two").await, expected);
    client.far.shutdown().await.unwrap();
    assert_eq!(client.rest().await, "");
    assert!(client.served.join_next().await.unwrap().unwrap().is_ok());
}

#[tokio::test]
async fn a_body_may_come_in_any_pieces_and_what_nobody_wants_is_skipped() {
    let chunked = |path| {
        format!("POST {path} HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n")
    };
    let long = "x".repeat(100_000);
    let requests =
        [chunked("/"), chunked("/unread"), post("/", "body"), post("/unread", &long), post("/", "last")]
            .concat();
    let expected = [ok("onetwo"), ok("unread"), ok("body"), ok("unread"), ok("last")].concat();
    for size in [1, 7, 60_000] {
        let mut client = Client::new();
        let (mut said, mut far) = tokio::io::split(client.far);
        let writing = async {
            for piece in requests.as_bytes().chunks(size) {
                far.write_all(piece).await.unwrap();
                tokio::task::yield_now().await;
            }
        };
        let reading = async {
            let mut all = Vec::new();
            while !String::from_utf8_lossy(&all).ends_with("last") {
                all.push(said.read_u8().await.unwrap());
            }
            without_dates(&String::from_utf8(all).unwrap())
        };
        let ((), said) = tokio::join!(writing, reading);
        assert_eq!(said, expected, "in pieces of {size}");
        client.served.abort_all();
    }
}

#[tokio::test]
async fn a_client_that_waits_is_told_to_go_on_when_its_body_is_wanted() {
    let head = |path| format!("POST {path} HTTP/1.1\r\nexpect: 100-continue\r\ncontent-length: 4\r\n\r\n");
    let mut client = Client::new();
    client.far.write_all(head("/").as_bytes()).await.unwrap();
    assert_eq!(client.until("\r\n\r\n").await, "HTTP/1.1 100 Continue\r\n\r\n");
    client.far.write_all(b"body").await.unwrap();
    assert_eq!(client.until("body").await, ok("body"));
    // Whether the body comes after all nobody knows.
    client.far.write_all(head("/unread").as_bytes()).await.unwrap();
    let last = "HTTP/1.1 200 OK\r\ncontent-length: 6\r\nconnection: close\r\n\r\nunread";
    assert_eq!(client.rest().await, last);
    // One that does not wait is not told.
    assert_eq!(Client::new().ask(&format!("{}body", head("/unread"))).await, ok("unread"));
}

#[tokio::test]
async fn what_is_no_request_is_refused_and_nothing_after_it_is_believed() {
    let refused = |status| format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
    let good = post("/", "good");
    for (bad, status) in [
        ("POST / HTTP/1.1\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n", "400 Bad Request"),
        ("nonsense\r\n\r\n", "400 Bad Request"),
        (&*format!("GET / HTTP/1.1\r\na: {}", "x".repeat(17_000)), "431 Request Header Fields Too Large"),
    ] {
        let client = Client::new();
        let site = Arc::clone(&client.site);
        assert_eq!(client.ask(&format!("{bad}{good}")).await, refused(status), "{bad:?}");
        assert!(site.read.lock().unwrap().is_empty());
        let after = format!("{}{}", ok("good"), refused(status));
        assert_eq!(Client::new().ask(&format!("{good}{bad}{good}")).await, after, "{bad:?}");
    }
}

#[tokio::test]
async fn a_body_that_is_no_body_ends_the_connection() {
    let closed = |body: &str| {
        format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len())
    };
    for (body, said) in [("zz\r\n", "InvalidData"), ("3\r\none\r\n", "UnexpectedEof")] {
        let request = format!("POST / HTTP/1.1\r\ntransfer-encoding: chunked\r\n\r\n{body}");
        assert_eq!(Client::new().ask(&request).await, closed(said), "{body:?}");
    }
    assert_eq!(
        Client::new().ask("POST / HTTP/1.1\r\ncontent-length: 9\r\n\r\nbody").await,
        closed("UnexpectedEof")
    );
}

#[tokio::test]
async fn answers_are_framed_as_their_client_understands() {
    let chunks = "3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n";
    let large = "x".repeat(3 * WHOLE);
    let last = "connection: close\r\n\r\n";
    for (request, expected) in [
        (
            "GET /stream HTTP/1.1\r\nconnection: close\r\n\r\n",
            format!("HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n{last}{chunks}"),
        ),
        (
            "GET /stream HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
            format!("HTTP/1.1 200 OK\r\n{last}onetwo"),
        ),
        (
            "GET /none HTTP/1.0\r\nconnection: keep-alive\r\n\r\n",
            "HTTP/1.1 204 No Content\r\nconnection: keep-alive\r\n\r\n".to_owned(),
        ),
        ("GET /none HTTP/1.1\r\n\r\n", "HTTP/1.1 204 No Content\r\n\r\n".to_owned()),
        ("HEAD /unread HTTP/1.1\r\n\r\n", "HTTP/1.1 200 OK\r\ncontent-length: 6\r\n\r\n".to_owned()),
        ("GET /large HTTP/1.1\r\n\r\n", ok(&large)),
    ] {
        // The client has not left before its answer.
        let mut client = Client::new();
        client.far.write_all(request.as_bytes()).await.unwrap();
        assert_eq!(client.until(&expected).await, expected, "{request:?}");
    }
}

#[tokio::test]
async fn an_answer_that_is_shorter_than_it_said_ends_with_its_connection() {
    let mut client = Client::new();
    client.far.write_all(b"GET /lies HTTP/1.1\r\n\r\n").await.unwrap();
    assert!(client.rest().await.ends_with("\r\n\r\n2"));
    assert!(client.served.join_next().await.unwrap().unwrap().is_err());
}

/// One end of a connection, and the other, served.
async fn connected() -> (TcpStream, Arc<Site>, JoinSet<io::Result<()>>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let far = TcpStream::connect(listener.local_addr().unwrap()).await.unwrap();
    let site = Arc::new(Site::default());
    let served = served(listener.accept().await.unwrap().0, &site);
    (far, site, served)
}

#[tokio::test]
async fn a_request_is_dropped_when_its_client_leaves() {
    for path in ["/wait", "/silent"] {
        let request = format!("GET {path} HTTP/1.1\r\n\r\n");
        // One that has to be read to be noticed, and one that can be asked.
        let mut client = Client::new();
        client.far.write_all(request.as_bytes()).await.unwrap();
        client.site.arrived.notified().await;
        assert_eq!(client.site.dropped.load(Ordering::Acquire), 0);
        drop(client.far);
        assert!(client.served.join_next().await.unwrap().unwrap().is_err());
        assert_eq!(client.site.dropped.load(Ordering::Acquire), 1, "{path}");

        let (mut far, site, mut served) = connected().await;
        far.write_all(request.as_bytes()).await.unwrap();
        site.arrived.notified().await;
        assert_eq!(site.dropped.load(Ordering::Acquire), 0);
        drop(far);
        assert!(served.join_next().await.unwrap().unwrap().is_err());
        assert_eq!(site.dropped.load(Ordering::Acquire), 1, "{path}");
    }
}

#[tokio::test]
async fn the_last_answer_is_not_lost_to_what_its_client_still_sends() {
    // More than the buffers of both sockets hold.
    let long = "x".repeat(32 << 20);
    for head in [
        "nonsense\r\n\r\n".to_owned(),
        format!("POST /unread HTTP/1.1\r\nconnection: close\r\ncontent-length: {}\r\n\r\n", long.len()),
    ] {
        let (mut far, _site, mut served) = connected().await;
        far.write_all(head.as_bytes()).await.unwrap();
        // Whoever closes with unread bytes resets, and then neither of these succeeds.
        far.write_all(long.as_bytes()).await.unwrap();
        far.shutdown().await.unwrap();
        let mut said = String::new();
        far.read_to_string(&mut said).await.unwrap();
        assert!(said.starts_with("HTTP/1.1 ") && said.contains("connection: close"), "{said}");
        assert!(served.join_next().await.unwrap().unwrap().is_ok());
    }
}
