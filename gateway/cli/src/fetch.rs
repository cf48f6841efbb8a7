//! Small pages of the running gateway: its health, and what its admin listener tells administrators.

use std::{net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};
use bytes::Bytes;
use http::{Request, StatusCode, header};
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use moongate_security::Secret;
use tokio::{net::TcpStream, time::timeout};

/// A gateway of this machine that is well answers such a page in a millisecond.
const PATIENCE: Duration = Duration::from_secs(5);
/// The largest page that is read: a hundred servers with the ends of what they print.
const LARGEST: usize = 16 << 20;

/// The body of `path` at `address`, in plain HTTP. The token is shown to nobody but that address.
///
/// # Cancel safety
/// Cancel safe.
pub(crate) async fn page(address: SocketAddr, path: &str, token: Option<&Secret>) -> anyhow::Result<Bytes> {
    let answer = timeout(PATIENCE, ask(address, path, token)).await;
    answer.with_context(|| format!("{address} did not answer within {} s", PATIENCE.as_secs()))?
}

async fn ask(address: SocketAddr, path: &str, token: Option<&Secret>) -> anyhow::Result<Bytes> {
    let stream = TcpStream::connect(address).await.with_context(|| format!("cannot connect to {address}"))?;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await?;
    let mut request = Request::get(path).header(header::HOST, address.to_string());
    if let Some(token) = token {
        request = request.header(header::AUTHORIZATION, format!("Bearer {}", token.expose()));
    }
    let request = request.body(Empty::<Bytes>::new())?;
    let exchange = async {
        let response = sender.send_request(request).await?;
        let status = response.status();
        let body = Limited::new(response.into_body(), LARGEST).collect().await;
        let body = body.map_err(|error| anyhow::anyhow!("{error}"))?.to_bytes();
        ensure!(status == StatusCode::OK, "{address}{path} answered {status}");
        Ok(body)
    };
    // The answer comes over the connection, which ends with it: whichever is first, the page is what counts.
    tokio::pin!(exchange);
    tokio::select! {
        page = &mut exchange => page,
        _ended = connection => exchange.await,
    }
}
