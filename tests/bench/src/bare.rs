//! The server that cannot be beaten: hyper reads the body and answers a constant.
//!
//! It runs in a process of its own, which is this program again with another flag, on the same kind of runtime as the
//! gateway: one worker thread for each core it may use.

use std::{convert::Infallible, net::SocketAddr, process::Stdio};

use anyhow::{Context as _, Result};
use bytes::Bytes;
use http::{HeaderValue, Request, Response, header};
use http_body_util::{BodyExt as _, Full};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::TcpListener,
    process::{Child, Command},
    task::JoinSet,
};

/// The flag that makes this program a bare server.
pub const FLAG: &str = "--as=bare-server";

/// A running bare server; killed when dropped.
#[derive(Debug)]
pub struct Bare {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Bare {
    /// Starts one that answers `constant`.
    pub async fn start(constant: &[u8]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .arg(FLAG)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the bare server does not start")?;
        let mut input = child.stdin.take().context("stdin was asked for")?;
        input.write_all(constant).await?;
        drop(input);
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout was asked for")?).read_line(&mut line).await?;
        let address = line.trim().parse().context("the bare server did not say where it listens")?;
        Ok(Self { child, address })
    }

    /// Its process id.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the bare server has ended")
    }
}

/// What the process does: reads the constant from standard input, says where it listens, serves until it is killed.
pub fn main() -> Result<()> {
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(threads).enable_all().build()?;
    runtime.block_on(async {
        let mut constant = Vec::new();
        tokio::io::stdin().read_to_end(&mut constant).await?;
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let mut output = tokio::io::stdout();
        output.write_all(format!("{}\n", listener.local_addr()?).as_bytes()).await?;
        output.flush().await?;
        serve(listener, constant.into()).await;
        Ok(())
    })
}

/// Answers `constant` to everything, for ever.
pub async fn serve(listener: TcpListener, constant: Bytes) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        if stream.set_nodelay(true).is_err() {
            continue;
        }
        let constant = constant.clone();
        connections.spawn(async move {
            let service = service_fn(move |request| answer(request, constant.clone()));
            drop(http1::Builder::new().serve_connection(TokioIo::new(stream), service).await);
        });
        while connections.try_join_next().is_some() {}
    }
}

async fn answer(request: Request<Incoming>, constant: Bytes) -> Result<Response<Full<Bytes>>, Infallible> {
    drop(request.into_body().collect().await);
    let mut response = Response::new(Full::new(constant));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}
