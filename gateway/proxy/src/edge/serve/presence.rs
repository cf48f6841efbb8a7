//! Whether the client of a request that runs is still there.
//!
//! That can be found out by reading on while the answer is made, which takes another buffer, because the request holds the
//! first. A socket can be asked without reading.

use std::{
    mem::MaybeUninit,
    task::{Context, Poll},
};

use tokio::{io::ReadBuf, net::TcpStream};
use tokio_rustls::server::TlsStream;

/// A stream that may know whether its client has closed it.
pub(super) trait Presence {
    /// Whether it can be asked. If not, somebody has to read.
    const TELLS: bool;

    /// Ready when the client has closed its side of the stream and everything before that was read.
    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()>;
}

impl Presence for TcpStream {
    const TELLS: bool = true;

    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut byte = [MaybeUninit::uninit()];
        match self.poll_peek(cx, &mut ReadBuf::uninit(&mut byte)) {
            Poll::Ready(Ok(0) | Err(_)) => Poll::Ready(()),
            // The next request, which waits for its turn.
            Poll::Ready(Ok(_)) | Poll::Pending => Poll::Pending,
        }
    }
}

impl<S> Presence for TlsStream<S> {
    /// Its end is a record, which only a reader understands.
    const TELLS: bool = false;

    fn poll_gone(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

#[cfg(test)]
impl Presence for tokio::io::DuplexStream {
    const TELLS: bool = false;

    fn poll_gone(&self, _: &mut Context<'_>) -> Poll<()> {
        Poll::Pending
    }
}

#[cfg(test)]
mod tests {
    use std::{future::poll_fn, time::Duration};

    use futures_util::FutureExt as _;
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    #[tokio::test]
    async fn a_client_is_gone_when_it_has_closed_and_all_it_sent_was_read() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (mut far, near) = tokio::join!(TcpStream::connect(address), listener.accept());
        let (far, (mut near, _)) = (far.as_mut().unwrap(), near.unwrap());
        let patience = Duration::from_secs(20);
        let gone = async |near: &TcpStream| poll_fn(|cx| near.poll_gone(cx)).await;
        assert!(gone(&near).now_or_never().is_none(), "it is there and silent");
        far.write_all(b"next").await.unwrap();
        near.readable().await.unwrap();
        assert!(gone(&near).now_or_never().is_none(), "it has more to say");
        far.shutdown().await.unwrap();
        assert!(gone(&near).now_or_never().is_none(), "which nobody has read");
        let mut read = [0; 4];
        near.read_exact(&mut read).await.unwrap();
        tokio::time::timeout(patience, gone(&near)).await.unwrap();
    }
}
