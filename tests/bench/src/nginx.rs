//! nginx as a plain reverse proxy in front of an upstream: what a hop costs that understands nothing.
//!
//! One process that is at once its own only worker, connections kept open on both sides for as long as they are used.

use std::{
    net::{Ipv4Addr, SocketAddr, TcpListener},
    process::Stdio,
};

use anyhow::{Context as _, Result, bail};
use tempfile::TempDir;
use tokio::{
    io::{AsyncBufReadExt as _, BufReader, Lines},
    process::{Child, ChildStderr, Command},
};

/// Where it is looked for: the second is not in everybody's path.
const PROGRAMS: [&str; 2] = ["nginx", "/usr/sbin/nginx"];
/// How many ports are tried.
const ATTEMPTS: usize = 5;
/// In the line that it logs when its socket listens.
const LISTENING: &str = "event method";

/// A running nginx; killed when dropped.
#[derive(Debug)]
pub struct Nginx {
    child: Child,
    _directory: TempDir,
    /// It dies of a log that nobody could read.
    _log: Lines<BufReader<ChildStderr>>,
    /// Where it listens.
    pub address: SocketAddr,
}

/// The program, if it is installed.
pub async fn find() -> Option<&'static str> {
    for program in PROGRAMS {
        let mut command = Command::new(program);
        command.arg("-v").stdout(Stdio::null()).stderr(Stdio::null());
        if command.status().await.is_ok_and(|status| status.success()) {
            return Some(program);
        }
    }
    None
}

impl Nginx {
    /// Starts `program` in front of `upstream`.
    pub async fn start(program: &str, upstream: SocketAddr) -> Result<Self> {
        for _ in 0..ATTEMPTS {
            // It cannot say which port it was given, so it is told one that was free a moment ago.
            let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?.local_addr()?;
            if let Some(started) = Self::start_at(program, address, upstream).await? {
                return Ok(started);
            }
        }
        bail!("nginx does not start")
    }

    /// `None` if it does not stay, because somebody else took the port.
    async fn start_at(program: &str, address: SocketAddr, upstream: SocketAddr) -> Result<Option<Self>> {
        let directory = tempfile::tempdir()?;
        let config = directory.path().join("nginx.conf");
        std::fs::write(&config, configuration(address, upstream))?;
        let mut child = Command::new(program)
            .arg("-p")
            .arg(directory.path())
            .arg("-c")
            .arg(&config)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("nginx does not start")?;
        let mut lines = BufReader::new(child.stderr.take().context("stderr was asked for")?).lines();
        while let Some(line) = lines.next_line().await? {
            if line.contains(LISTENING) {
                return Ok(Some(Self { child, _directory: directory, _log: lines, address }));
            }
        }
        Ok(None)
    }

    /// Its process id.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("nginx has ended")
    }
}

fn configuration(address: SocketAddr, upstream: SocketAddr) -> String {
    // By default a connection ends after a thousand requests, on either side.
    format!(
        "daemon off;
master_process off;
worker_processes 1;
pid nginx.pid;
error_log stderr notice;
events {{ worker_connections 1024; }}
http {{
    access_log off;
    client_body_temp_path body;
    proxy_temp_path proxy;
    fastcgi_temp_path fastcgi;
    scgi_temp_path scgi;
    uwsgi_temp_path uwsgi;
    keepalive_requests 1000000000;
    upstream bench {{
        server {upstream};
        keepalive 512;
        keepalive_requests 1000000000;
    }}
    server {{
        listen {address};
        location / {{
            proxy_pass http://bench;
            proxy_http_version 1.1;
            proxy_set_header Connection \"\";
        }}
    }}
}}
"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        bare,
        load::Connection,
        template::{Caller, FIRST_ID, has_id},
    };

    #[tokio::test]
    async fn what_an_upstream_answers_comes_through() {
        let Some(program) = find().await else { return };
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let upstream = listener.local_addr().unwrap();
        let mut server = tokio::task::JoinSet::new();
        server.spawn(bare::serve(listener, r#"{"id":100000000}"#.into()));
        let nginx = Nginx::start(program, upstream).await.unwrap();
        let caller = Caller { address: nginx.address, token: "t".to_owned() };
        let mut connection = Connection::open(nginx.address).await.unwrap();
        for _ in 0..2 {
            let answer = connection.send(caller.initialize().bytes()).await.unwrap();
            assert_eq!(answer.status, 200);
            assert!(has_id(answer.body, FIRST_ID));
        }
    }
}
