//! A bare TCP connection, for bytes that no HTTP client would send: torn frames, bad heads, slow readers and writers.

use std::net::SocketAddr;

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpSocket, TcpStream},
};

use crate::patiently;

/// An open socket. What was read and not asked for is kept for the next read.
#[derive(Debug)]
pub struct RawTcp {
    stream: TcpStream,
    read: Vec<u8>,
}

impl RawTcp {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Result<Self> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream, read: Vec::new() })
    }

    /// Connects with a receive buffer of about `size` bytes, so that a reader who stops is soon felt by the writer.
    pub async fn connect_with_buffer(address: SocketAddr, size: u32) -> Result<Self> {
        let socket = if address.is_ipv4() { TcpSocket::new_v4()? } else { TcpSocket::new_v6()? };
        socket.set_recv_buffer_size(size)?;
        Ok(Self { stream: socket.connect(address).await?, read: Vec::new() })
    }

    /// Writes all of `bytes`.
    pub async fn write(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        patiently("a write to be taken", self.stream.write_all(bytes.as_ref())).await??;
        Ok(())
    }

    /// Ends our direction; the other stays open.
    pub async fn finish(&mut self) -> Result<()> {
        self.stream.shutdown().await.map_err(Into::into)
    }

    /// Reads up to and including `end`.
    pub async fn read_until(&mut self, end: &str) -> Result<String> {
        loop {
            let found = self.read.windows(end.len()).position(|window| window == end.as_bytes());
            if let Some(at) = found {
                let part: Vec<u8> = self.read.drain(..at + end.len()).collect();
                return Ok(String::from_utf8_lossy(&part).into_owned());
            }
            let count = patiently(&format!("{end:?}"), self.stream.read_buf(&mut self.read)).await??;
            let shown = || format!("closed before {end:?}, after {:?}", String::from_utf8_lossy(&self.read));
            anyhow::ensure!(count > 0, shown());
        }
    }

    /// Reads one answer head and returns its status and text.
    pub async fn read_head(&mut self) -> Result<(u16, String)> {
        let head = self.read_until("\r\n\r\n").await?;
        let status = head.split(' ').nth(1).context("no status line")?.parse()?;
        Ok((status, head))
    }

    /// Reads exactly `count` bytes.
    pub async fn read_exact(&mut self, count: usize) -> Result<Vec<u8>> {
        while self.read.len() < count {
            let got = patiently("more bytes", self.stream.read_buf(&mut self.read)).await??;
            anyhow::ensure!(got > 0, "closed after {} of {count} bytes", self.read.len());
        }
        Ok(self.read.drain(..count).collect())
    }

    /// Reads one answer with `Content-Length`: status, head, body.
    pub async fn read_answer(&mut self) -> Result<(u16, String, String)> {
        let (status, head) = self.read_head().await?;
        let length = head.lines().find_map(|line| {
            let (name, value) = line.split_once(':')?;
            name.eq_ignore_ascii_case("content-length").then(|| value.trim().parse::<usize>())
        });
        let body = self.read_exact(length.transpose()?.unwrap_or(0)).await?;
        Ok((status, head, String::from_utf8(body)?))
    }

    /// Reads until the peer closes. A reset counts as closing.
    pub async fn read_to_end(&mut self) -> Result<String> {
        loop {
            match patiently("the connection to be closed", self.stream.read_buf(&mut self.read)).await? {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => break,
                Err(error) => return Err(error.into()),
            }
        }
        Ok(String::from_utf8_lossy(&std::mem::take(&mut self.read)).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use tokio::net::TcpListener;

    use super::*;

    #[tokio::test]
    async fn answers_are_cut_out_of_the_stream() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let mut client = RawTcp::connect(listener.local_addr().unwrap()).await.unwrap();
        let (mut server, _) = listener.accept().await.unwrap();
        let answers = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokHTTP/1.1 404 No\r\n\r\nrest";
        server.write_all(answers.as_bytes()).await.unwrap();
        drop(server);
        let (status, _, body) = client.read_answer().await.unwrap();
        assert_eq!((status, body.as_str()), (200, "ok"));
        assert_eq!(client.read_answer().await.unwrap().0, 404);
        assert_eq!(client.read_to_end().await.unwrap(), "rest");
        assert!(client.read_until("\n").await.is_err());
    }
}
