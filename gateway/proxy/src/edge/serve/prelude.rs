//! What may come before the first request: a PROXY v2 preface, the HTTP/2 preface.
//!
//! What was read and belongs to something else is handed back as a prefix, and [`Prefixed`] replays it. Who may send a
//! PROXY preface is decided by the caller.

use std::{
    io,
    net::SocketAddr,
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes, BytesMut};
use moongate_security::proxy::{self, ProxyError};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

use super::presence::Presence;

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// Enough for a preface with both addresses and some extensions; it grows for more.
const PROXY_ROOM: usize = 128;

/// Which protocol a cleartext client speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Http1,
    Http2,
}

/// Reads until it is clear whether the client speaks HTTP/2, and returns what was read.
pub(super) async fn protocol(stream: &mut (impl AsyncRead + Unpin)) -> io::Result<(Protocol, Bytes)> {
    let read = read_while_prefix(stream, PREFACE).await?;
    let protocol = if read == PREFACE { Protocol::Http2 } else { Protocol::Http1 };
    Ok((protocol, read))
}

/// Reads a PROXY v2 preface, if the connection begins with one: the client's address (none when the proxy speaks for
/// itself), and what was read beyond or instead of the preface.
pub(super) async fn proxied(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<(Option<SocketAddr>, Bytes)> {
    let mut read = BytesMut::with_capacity(PROXY_ROOM);
    loop {
        match proxy::parse(&read) {
            Ok(Some(preface)) => {
                read.advance(preface.consumed);
                return Ok((preface.client, read.freeze()));
            }
            Err(ProxyError::Signature) => return Ok((None, read.freeze())),
            Err(error) => return Err(io::Error::new(io::ErrorKind::InvalidData, error)),
            Ok(None) if stream.read_buf(&mut read).await? > 0 => {}
            Ok(None) => return Err(io::ErrorKind::UnexpectedEof.into()),
        }
    }
}

/// Reads no more than `expected.len()` bytes and stops at the first that differs, or at the end of input.
async fn read_while_prefix(stream: &mut (impl AsyncRead + Unpin), expected: &[u8]) -> io::Result<Bytes> {
    let mut read = BytesMut::with_capacity(expected.len());
    while read.len() < expected.len() && expected.starts_with(&read) {
        let room = expected.len() - read.len();
        if (&mut *stream).take(room as u64).read_buf(&mut read).await? == 0 {
            break;
        }
    }
    Ok(read.freeze())
}

/// A stream that first yields what was already read from it.
#[derive(Debug)]
pub(super) struct Prefixed<S> {
    prefix: Bytes,
    stream: S,
}

impl<S> Prefixed<S> {
    pub(super) fn new(prefix: Bytes, stream: S) -> Self {
        Self { prefix, stream }
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Prefixed<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if self.prefix.is_empty() {
            return Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        let length = self.prefix.len().min(buf.remaining());
        buf.put_slice(&self.prefix.split_to(length));
        if self.prefix.is_empty() && buf.remaining() > 0 {
            // With what came right behind it: a reader that got the prefix alone would make room for a second read, and
            // keep twice the room for as long as the connection lasts. An end is told by the next read.
            let _next = Pin::new(&mut self.stream).poll_read(cx, buf);
        }
        Poll::Ready(Ok(()))
    }
}

impl<S: Presence> Presence for Prefixed<S> {
    const TELLS: bool = S::TELLS;

    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_gone(cx)
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Prefixed<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(cx, buf)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_preface_alone_means_http2() {
        for (sent, expected, read) in [
            (&b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0"[..], Protocol::Http2, 24),
            (b"POST /mcp HTTP/1.1\r\n", Protocol::Http1, 20),
            (b"PRI * HTTP/2.0\r\n\r\nXX\r\n\r\n", Protocol::Http1, 24),
            (b"P", Protocol::Http1, 1),
            (b"", Protocol::Http1, 0),
        ] {
            let (protocol, prefix) = protocol(&mut &*sent).await.unwrap();
            assert_eq!((protocol, prefix.as_ref()), (expected, &sent[..read]));
        }
    }

    #[tokio::test]
    async fn a_stream_that_arrives_byte_by_byte_is_read_until_it_differs() {
        let mut stream =
            tokio::io::AsyncReadExt::chain(&b"P"[..], &b"R"[..]).chain(&b"X"[..]).chain(&b"more"[..]);
        let (protocol, prefix) = protocol(&mut stream).await.unwrap();
        assert_eq!((protocol, prefix.as_ref()), (Protocol::Http1, &b"PRX"[..]));
    }

    /// PROXY, TCP over IPv4, from 192.0.2.7:8080.
    const PROXIED: &[u8] =
        b"\r\n\r\n\0\r\nQUIT\n\x21\x11\x00\x0c\xc0\x00\x02\x07\x7f\x00\x00\x01\x1f\x90\x00\x50";

    #[tokio::test]
    async fn a_preface_names_the_client_and_what_follows_is_kept() {
        let whole = [PROXIED, b"GET"].concat();
        let (address, prefix) = proxied(&mut &*whole).await.unwrap();
        assert_eq!((address, prefix.as_ref()), (Some("192.0.2.7:8080".parse().unwrap()), &b"GET"[..]));
        let (first, second) = whole.split_at(5);
        let mut torn = tokio::io::AsyncReadExt::chain(first, second);
        assert_eq!(proxied(&mut torn).await.unwrap().0, address);
    }

    #[tokio::test]
    async fn what_is_no_preface_is_handed_back() {
        let mut stream: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
        let (address, prefix) = proxied(&mut stream).await.unwrap();
        assert_eq!(address, None);
        let mut whole = Vec::new();
        Prefixed::new(prefix, stream).read_to_end(&mut whole).await.unwrap();
        assert_eq!(whole, b"GET / HTTP/1.1\r\n\r\n");
    }

    #[tokio::test]
    async fn the_prefix_comes_with_what_follows_it_and_before_the_end() {
        let mut read = [0; 8];
        let mut stream = Prefixed::new(Bytes::from_static(b"ab"), &b"cdef"[..]);
        assert_eq!(stream.read(&mut read).await.unwrap(), 6);
        assert_eq!(&read[..6], b"abcdef");

        let mut small = [0; 1];
        let mut stream = Prefixed::new(Bytes::from_static(b"ab"), &b"c"[..]);
        for expected in [b"a", b"b", b"c"] {
            assert_eq!((stream.read(&mut small).await.unwrap(), &small), (1, expected));
        }

        let (near, far) = tokio::io::duplex(8);
        drop(far);
        let mut stream = Prefixed::new(Bytes::from_static(b"ab"), near);
        assert_eq!(stream.read(&mut read).await.unwrap(), 2);
        assert_eq!(stream.read(&mut read).await.unwrap(), 0);
    }

    #[tokio::test]
    async fn a_broken_or_torn_preface_is_an_error() {
        for bytes in [&b"\r\n\r\n\0\r\nQUIT\n\x31\x11\x00\x00"[..], &PROXIED[..20], b"\r\n\r\n", b""] {
            assert!(proxied(&mut &*bytes).await.is_err(), "{bytes:?}");
        }
    }
}
