//! What may come before the first request: a PROXY v2 header, the HTTP/2 preface.
//!
//! Both are read byte-exactly: what turns out to belong to something else is handed back as a prefix, and [`Prefixed`]
//! replays it. Who may send a PROXY header is decided by the caller.

use std::{
    io,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    pin::Pin,
    task::{Context, Poll},
};

use bytes::{Buf as _, Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// The first bytes of every HTTP/2 connection.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";
/// The first bytes of a PROXY v2 header; no other protocol begins so.
const SIGNATURE: &[u8] = b"\r\n\r\n\0\r\nQUIT\n";
/// Signature, version and command, family, length.
const HEADER: usize = 16;
/// Addresses take 36 bytes at most; the rest is extensions, which a sender may add but hardly beyond this.
const MAX_ADDRESSES: usize = 1024;

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

/// Reads a PROXY v2 header, if the connection begins with one: the client's address (none for a health check of the
/// proxy itself), and what was read beyond or instead of the header.
pub(super) async fn proxied(
    stream: &mut (impl AsyncRead + Unpin),
) -> io::Result<(Option<SocketAddr>, Bytes)> {
    let read = read_while_prefix(stream, SIGNATURE).await?;
    if read != SIGNATURE {
        return Ok((None, read));
    }
    let mut rest = [0; HEADER - SIGNATURE.len()];
    stream.read_exact(&mut rest).await?;
    let [command, family, high, low] = rest;
    let length = usize::from(u16::from_be_bytes([high, low]));
    if length > MAX_ADDRESSES {
        return Err(invalid("a PROXY header that long is not accepted"));
    }
    let mut addresses = vec![0; length];
    stream.read_exact(&mut addresses).await?;
    match command {
        // LOCAL: the proxy speaks for itself.
        0x20 => Ok((None, Bytes::new())),
        0x21 => Ok((source(family, &addresses)?, Bytes::new())),
        _ => Err(invalid("unknown PROXY version or command")),
    }
}

/// The source address of a PROXY command; none for families that have no IP address.
fn source(family: u8, mut addresses: &[u8]) -> io::Result<Option<SocketAddr>> {
    const TCP4: u8 = 0x11;
    const TCP6: u8 = 0x21;
    let address: IpAddr = match family {
        TCP4 if addresses.len() >= 12 => {
            let source = Ipv4Addr::from_bits(addresses.get_u32());
            addresses.advance(4);
            source.into()
        }
        TCP6 if addresses.len() >= 36 => {
            let source = Ipv6Addr::from_bits(addresses.get_u128());
            addresses.advance(16);
            source.into()
        }
        TCP4 | TCP6 => return Err(invalid("a PROXY header too short for its addresses")),
        _ => return Ok(None),
    };
    Ok(Some(SocketAddr::new(address, addresses.get_u16())))
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

fn invalid(reason: &'static str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, reason)
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
        Poll::Ready(Ok(()))
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

    fn header(command: u8, family: u8, addresses: &[u8]) -> Vec<u8> {
        let mut header = SIGNATURE.to_vec();
        header.extend([command, family]);
        header.extend(u16::try_from(addresses.len()).unwrap().to_be_bytes());
        header.extend(addresses);
        header
    }

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

    #[tokio::test]
    async fn a_proxy_header_names_the_client() {
        let four = [192, 0, 2, 7, 10, 0, 0, 1, 0x1F, 0x90, 0, 80];
        let mut six = vec![0; 36];
        six[..16].copy_from_slice(&Ipv6Addr::new(0x2001, 0xdb8, 0, 0, 0, 0, 0, 9).octets());
        six[32..34].copy_from_slice(&443_u16.to_be_bytes());
        for (bytes, expected) in [
            (header(0x21, 0x11, &four), Some("192.0.2.7:8080")),
            (header(0x21, 0x21, &six), Some("[2001:db8::9]:443")),
            (header(0x20, 0x00, &[]), None),
            (header(0x21, 0x31, &[0; 216]), None),
        ] {
            let mut stream: &[u8] = &bytes;
            let (address, prefix) = proxied(&mut stream).await.unwrap();
            assert_eq!(address, expected.map(|text| text.parse().unwrap()));
            assert!(prefix.is_empty() && stream.is_empty());
        }
    }

    #[tokio::test]
    async fn what_is_no_proxy_header_is_handed_back() {
        let mut stream: &[u8] = b"GET / HTTP/1.1\r\n\r\n";
        let (address, prefix) = proxied(&mut stream).await.unwrap();
        assert_eq!(address, None);
        let mut whole = Vec::new();
        Prefixed::new(prefix, stream).read_to_end(&mut whole).await.unwrap();
        assert_eq!(whole, b"GET / HTTP/1.1\r\n\r\n");
    }

    #[tokio::test]
    async fn broken_proxy_headers_are_refused() {
        for bytes in [
            header(0x31, 0x11, &[0; 12]),
            header(0x21, 0x11, &[0; 11]),
            header(0x21, 0x21, &[0; 35]),
            header(0x21, 0x11, &[0; 1025]),
            header(0x21, 0x11, &[0; 12])[..20].to_vec(),
        ] {
            assert!(proxied(&mut &*bytes).await.is_err(), "{bytes:?}");
        }
    }
}
