//! One HTTP connection, kept alive: HTTP/1.1, or HTTP/2 with prior knowledge, over TCP or TLS.
//!
//! Dropping the last handle closes the socket at once, which is how tests disconnect.

use std::{net::SocketAddr, sync::Arc};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http_body_util::Full;
use hyper::{
    body::Incoming,
    client::conn::{http1, http2},
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls_pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    task::JoinSet,
};

/// Which HTTP a connection speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// HTTP/1.1: one exchange at a time.
    Http1,
    /// HTTP/2 without upgrade: exchanges overlap.
    Http2,
}

/// An open connection.
#[derive(Debug)]
pub struct Connection {
    sender: Sender,
    /// Moves the bytes; aborted when the last handle goes, which closes the socket.
    driver: Arc<JoinSet<()>>,
}

#[derive(Debug)]
enum Sender {
    Http1(http1::SendRequest<Full<Bytes>>),
    Http2(http2::SendRequest<Full<Bytes>>),
}

impl Connection {
    /// Connects without encryption.
    pub async fn open(address: SocketAddr, protocol: Protocol) -> Result<Self> {
        Self::over(dial(address).await?, protocol).await
    }

    /// Connects with TLS, verifying `name`; `config` decides roots, client certificate and ALPN.
    pub async fn open_tls(
        address: SocketAddr,
        protocol: Protocol,
        config: Arc<rustls::ClientConfig>,
        name: ServerName<'static>,
    ) -> Result<Self> {
        let stream = tokio_rustls::TlsConnector::from(config).connect(name, dial(address).await?).await;
        Self::over(stream.context("the TLS handshake failed")?, protocol).await
    }

    /// Speaks HTTP over any stream.
    pub async fn over<S>(stream: S, protocol: Protocol) -> Result<Self>
    where
        S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
    {
        let mut driver = JoinSet::new();
        let sender = match protocol {
            Protocol::Http1 => {
                let (sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
                driver.spawn(async move { drop(connection.await) });
                Sender::Http1(sender)
            }
            Protocol::Http2 => {
                let (sender, connection) =
                    http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await?;
                driver.spawn(async move { drop(connection.await) });
                Sender::Http2(sender)
            }
        };
        Ok(Self { sender, driver: Arc::new(driver) })
    }

    /// Another handle on the same connection, which only HTTP/2 allows.
    pub fn share(&self) -> Option<Self> {
        match &self.sender {
            Sender::Http1(_) => None,
            Sender::Http2(sender) => {
                Some(Self { sender: Sender::Http2(sender.clone()), driver: Arc::clone(&self.driver) })
            }
        }
    }

    /// Waits until another request may be sent; false when the peer has closed the connection.
    pub async fn is_usable(&mut self) -> bool {
        match &mut self.sender {
            Sender::Http1(sender) => sender.ready().await.is_ok(),
            Sender::Http2(sender) => sender.ready().await.is_ok(),
        }
    }

    /// Sends one request and waits for the head of its answer.
    pub async fn send(&mut self, request: http::Request<Full<Bytes>>) -> Result<http::Response<Incoming>> {
        let answer = match &mut self.sender {
            Sender::Http1(sender) => sender.send_request(request).await,
            Sender::Http2(sender) => sender.send_request(request).await,
        };
        answer.context("no answer on this connection")
    }
}

async fn dial(address: SocketAddr) -> Result<TcpStream> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    stream.set_nodelay(true)?;
    Ok(stream)
}
