//! One connection of HTTP/1.1 with one request at a time on it.
//!
//! A request is written in one piece and its answer read into one buffer, both by whoever asks: there is no task for the
//! connection and no channel to it, which is most of what a general client costs. What bytes mean is left to `decode`.

use std::{
    future::{Future as _, poll_fn},
    io::{self, Write as _},
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Bytes, BytesMut};
use http::Uri;
use moongate_wire::body::Step;
use tokio::io::{AsyncRead as _, AsyncReadExt as _, AsyncWrite as _, AsyncWriteExt as _, ReadBuf};

use self::decode::Decoder;
use super::{connect::Stream, head::Head, outbound::Outbound};

mod decode;

/// Room for an answer of usual size, kept with the connection.
const BUFFER: usize = 8 * 1024;
/// A larger body is written by itself rather than copied behind its head.
const JOINED: usize = 16 * 1024;

/// A connection.
pub(super) struct Http1 {
    stream: Stream,
    /// What came and was not read yet.
    buffer: BytesMut,
    /// How the body ends that is being read; none before the first answer.
    decoder: Decoder,
}

/// Why there is no answer.
pub(super) enum Failed {
    /// The connection ended before the server can have had the whole request.
    Unsent(io::Error),
    /// It ended later.
    Lost(io::Error),
}

impl Http1 {
    pub(super) fn new(stream: Stream) -> Self {
        Self { stream, buffer: BytesMut::new(), decoder: Decoder::default() }
    }

    /// Sends a request to `url` with the lines `common` in its head, and reads the head of the answer.
    pub(super) async fn ask(&mut self, url: &Uri, common: &[u8], request: &Outbound) -> Result<Head, Failed> {
        // A server that has not taken all of it does nothing with a part; it may have said why.
        let head = match self.send(url, common, request).await {
            Ok(None) => return self.head().await.map_err(Failed::Lost),
            Ok(Some(head)) => head,
            Err(unsent) => self.head().await.map_err(|_| Failed::Unsent(unsent))?,
        };
        self.decoder.give_up_connection();
        Ok(head)
    }

    /// Sends a request. Gives the head of the answer if that came before the end of the request was taken.
    async fn send(&mut self, url: &Uri, common: &[u8], request: &Outbound) -> io::Result<Option<Head>> {
        let mut out = head(url, common, request);
        let joined = request.body.len() <= JOINED;
        if joined {
            out.extend_from_slice(&request.body);
        }
        self.stream.write_all(&out).await?;
        let mut early = None;
        if !joined {
            let mut rest = &*request.body;
            poll_fn(|cx| self.poll_send(cx, &mut rest, &mut early)).await?;
            if !rest.is_empty() {
                return Ok(early);
            }
        }
        self.stream.flush().await?;
        Ok(early)
    }

    /// Writes `rest`, unless the server refuses it meanwhile; an `early` head of any other answer does not end that.
    fn poll_send(
        &mut self,
        cx: &mut Context<'_>,
        rest: &mut &[u8],
        early: &mut Option<Head>,
    ) -> Poll<io::Result<()>> {
        while !rest.is_empty() {
            if let Poll::Ready(written) = Pin::new(&mut self.stream).poll_write(cx, rest)? {
                if written == 0 {
                    return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
                }
                *rest = rest.get(written..).unwrap_or_default();
                continue;
            }
            if early.is_some() {
                return Poll::Pending;
            }
            self.buffer.reserve(BUFFER);
            if ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(cx))? == 0 {
                return Poll::Ready(Err(closed()));
            }
            if let Some((head, decoder)) = decode::head(&mut self.buffer)? {
                self.decoder = decoder;
                if early.insert(head).status.is_success() {
                    continue;
                }
                break;
            }
        }
        Poll::Ready(Ok(()))
    }

    async fn head(&mut self) -> io::Result<Head> {
        loop {
            self.buffer.reserve(BUFFER);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return Err(closed());
            }
            if let Some((head, decoder)) = decode::head(&mut self.buffer)? {
                self.decoder = decoder;
                return Ok(head);
            }
        }
    }

    /// The next piece of the body; `None` when it has ended.
    pub(super) fn poll_body(&mut self, cx: &mut Context<'_>) -> Poll<Option<io::Result<Bytes>>> {
        loop {
            match self.decoder.next(&mut self.buffer) {
                Ok(Step::Data(data)) => return Poll::Ready(Some(Ok(data))),
                Ok(Step::End) => return Poll::Ready(None),
                Ok(Step::More) => {}
                Err(error) => return Poll::Ready(Some(Err(error))),
            }
            self.buffer.reserve(BUFFER);
            match pin!(self.stream.read_buf(&mut self.buffer)).poll(cx) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Err(error)) => return Poll::Ready(Some(Err(error))),
                Poll::Ready(Ok(0)) => {
                    return Poll::Ready(self.decoder.close().then_some(Err(closed())));
                }
                Poll::Ready(Ok(_)) => {}
            }
        }
    }

    /// How many bytes of the body are to come, as far as that was said.
    pub(super) fn left(&self) -> u64 {
        self.decoder.left()
    }

    /// Whether the body has ended.
    pub(super) fn has_ended(&self) -> bool {
        self.decoder.has_ended()
    }

    /// Whether another request may follow: the answer was read, and the server keeps the connection.
    pub(super) fn is_reusable(&self) -> bool {
        self.decoder.is_reusable() && self.buffer.is_empty()
    }

    /// Whether it is still open while nobody uses it. What a server says unasked is not for us.
    pub(super) fn is_open(&mut self, cx: &mut Context<'_>) -> bool {
        let mut byte = [0; 1];
        let mut buffer = ReadBuf::new(&mut byte);
        // A look, which must not be put off because the task has used up its turn.
        let look = poll_fn(|cx| Pin::new(&mut self.stream).poll_read(cx, &mut buffer));
        pin!(tokio::task::coop::unconstrained(look)).poll(cx).is_pending()
    }

    /// Keeps no more memory than the next answer is likely to need.
    pub(super) fn rest(&mut self) {
        if self.buffer.capacity() > 2 * BUFFER {
            self.buffer = BytesMut::new();
        }
    }
}

fn closed() -> io::Error {
    io::Error::new(io::ErrorKind::UnexpectedEof, "the server closed the connection")
}

/// The head of a request, with room for its body where that follows in the same piece.
fn head(url: &Uri, common: &[u8], request: &Outbound) -> Vec<u8> {
    let path = url.path_and_query().map_or("/", |path| path.as_str());
    // An address without a path may have a query.
    let root = if path.starts_with('/') { "" } else { "/" };
    let mut lines = 0;
    request.headers(|name, value| lines += name.len() + value.len() + 4);
    let body = if request.body.len() <= JOINED { request.body.len() } else { 0 };
    let mut out = Vec::with_capacity(64 + path.len() + common.len() + lines + body);
    for part in [request.method.as_str(), " ", root, path, " HTTP/1.1\r\n"] {
        out.extend_from_slice(part.as_bytes());
    }
    out.extend_from_slice(common);
    request.headers(|name, value| line(&mut out, name, value));
    if !request.body.is_empty() {
        write!(out, "content-length: {}\r\n", request.body.len()).expect("memory takes what is written");
    }
    out.extend_from_slice(b"\r\n");
    out
}

/// Appends one line of a head.
pub(super) fn line(out: &mut Vec<u8>, name: &str, value: &[u8]) {
    out.extend_from_slice(name.as_bytes());
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue};
    use moongate_wire::Version;

    use super::*;

    #[test]
    fn a_head_names_the_path_and_how_much_follows() {
        let url = Uri::from_static("https://example.com:8443/mcp?key=1");
        let mut post = Outbound::post(Some(Version::V2026_07_28), Bytes::from_static(b"{}"));
        post.more.push((HeaderName::from_static("mcp-method"), HeaderValue::from_static("tools/call")));
        let expected = "POST /mcp?key=1 HTTP/1.1\r\nhost: x\r\ncontent-type: application/json\r\n\
                        accept: application/json, text/event-stream\r\nmcp-protocol-version: 2026-07-28\r\n\
                        mcp-method: tools/call\r\ncontent-length: 2\r\n\r\n";
        assert_eq!(String::from_utf8(head(&url, b"host: x\r\n", &post)).unwrap(), expected);
        let bare = String::from_utf8(head(&Uri::from_static("http://x?key=1"), b"", &post)).unwrap();
        assert!(bare.starts_with("POST /?key=1 HTTP/1.1\r\n"), "{bare}");
        let mut get = Outbound::get(Some(Version::V2024_11_05));
        (get.session, get.last_event) =
            (Some(HeaderValue::from_static("s")), Some(HeaderValue::from_static("7")));
        let expected = "GET / HTTP/1.1\r\nhost: x\r\naccept: text/event-stream\r\nmcp-session-id: s\r\n\
                        last-event-id: 7\r\n\r\n";
        assert_eq!(
            String::from_utf8(head(&Uri::from_static("http://x"), b"host: x\r\n", &get)).unwrap(),
            expected
        );
    }
}
