//! A running gateway: the real binary in a home of its own.

use std::{
    net::SocketAddr,
    path::PathBuf,
    process::{ExitStatus, Stdio as Pipe},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result, bail};
use rustix::process::Signal;

use crate::{Client, Home, PATIENCE, Process, Protocol, RawTcp};

/// How the line begins that says that both listeners accept connections.
const READY: &str = "moongate ready";

/// A gateway that serves HTTP on an ephemeral port. It is killed when dropped.
#[derive(Debug)]
pub struct Gateway {
    process: Process,
    home: Arc<Home>,
    ready: String,
}

/// What to start, when [`Gateway::start`] is not enough.
#[derive(Debug)]
pub struct Builder {
    binary: String,
    home: Option<Arc<Home>>,
    yaml: String,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
}

impl Gateway {
    /// Starts the gateway with the configuration `yaml` and waits until it is ready.
    pub async fn start(yaml: &str) -> Result<Self> {
        Self::builder().config(yaml).start().await
    }

    /// Starts with more than a configuration: arguments, environment, an existing home, another binary.
    pub fn builder() -> Builder {
        Builder {
            binary: "moongate".to_owned(),
            home: None,
            yaml: String::new(),
            arguments: Vec::new(),
            environment: Vec::new(),
        }
    }

    /// The URL of the MCP endpoint.
    pub fn endpoint(&self) -> &str {
        self.field("endpoint")
    }

    /// The base URL of the admin listener; empty when it is off.
    pub fn admin(&self) -> &str {
        self.field("admin")
    }

    /// The local token.
    pub fn token(&self) -> Result<String> {
        let path = self.field("token");
        let text = std::fs::read_to_string(path).with_context(|| format!("no token in {path:?}"))?;
        Ok(text.trim().to_owned())
    }

    /// The value of `key=` in the ready line; empty when absent. The token file comes last and may hold spaces.
    pub fn field(&self, key: &str) -> &str {
        let value = self.ready.split_once(&format!(" {key}=")).map_or("", |(_, rest)| rest);
        if key == "token" { value } else { value.split(' ').next().unwrap_or_default() }
    }

    /// The address of the MCP listener.
    pub fn address(&self) -> Result<SocketAddr> {
        address_of(self.endpoint())
    }

    /// The home, to run commands in or to start another gateway on.
    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// The process: stderr, memory, whether it runs.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Resident memory in bytes.
    pub fn resident(&self) -> Result<u64> {
        self.process.resident()
    }

    /// An HTTP/1.1 client with the local token.
    pub fn client(&self) -> Client {
        self.anonymous_client().with_token(&self.token().unwrap_or_default())
    }

    /// An HTTP/1.1 client without a token.
    pub fn anonymous_client(&self) -> Client {
        let address = self.address().expect("the ready line was checked at the start");
        Client::new(address, Protocol::Http1)
    }

    /// An HTTP/2 client with the local token: cleartext, prior knowledge.
    pub fn http2_client(&self) -> Client {
        let address = self.address().expect("the ready line was checked at the start");
        Client::new(address, Protocol::Http2).with_token(&self.token().unwrap_or_default())
    }

    /// A client of the admin listener, without a token.
    pub fn admin_client(&self) -> Result<Client> {
        Ok(Client::new(address_of(self.admin())?, Protocol::Http1))
    }

    /// A bare TCP connection to the MCP listener.
    pub async fn tcp(&self) -> Result<RawTcp> {
        RawTcp::connect(self.address()?).await
    }

    /// The Prometheus page.
    pub async fn metrics(&self) -> Result<String> {
        let answer = self.admin_client()?.get("/metrics").send().await?;
        anyhow::ensure!(answer.status == 200, "/metrics answered {}", answer.status);
        answer.text()
    }

    /// One sample of the Prometheus page, such as `moongate_refused_total{reason="host"}`; zero when absent.
    pub async fn metric(&self, sample: &str) -> Result<f64> {
        let page = self.metrics().await?;
        let value = page.lines().find_map(|line| line.strip_prefix(sample)?.strip_prefix(' '));
        value.map_or(Ok(0.0), |text| text.parse().map_err(Into::into))
    }

    /// Waits until the log has a line that contains `text`.
    pub async fn logged(&self, text: &str) -> Result<String> {
        let found = self.process.stderr().line(|line| line.contains(text));
        crate::patiently(&format!("the log line {text:?}"), found).await?
    }

    /// Replaces the configuration file; the gateway notices by itself.
    pub fn write_config(&self, yaml: &str) -> Result<PathBuf> {
        self.home.write_config(yaml)
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) -> Result<()> {
        self.process.signal(signal)
    }

    /// Sends SIGTERM: the two-phase drain.
    pub fn sigterm(&self) -> Result<()> {
        self.signal(Signal::TERM)
    }

    /// Waits for the end of the process.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.process.wait(limit).await
    }

    /// SIGTERM, then waits for the end.
    pub async fn stop(&mut self) -> Result<ExitStatus> {
        self.sigterm()?;
        self.wait(PATIENCE).await
    }
}

impl Builder {
    /// The configuration.
    #[must_use]
    pub fn config(mut self, yaml: &str) -> Self {
        yaml.clone_into(&mut self.yaml);
        self
    }

    /// Another binary of this workspace with the same command line.
    #[must_use]
    pub fn binary(mut self, name: &str) -> Self {
        name.clone_into(&mut self.binary);
        self
    }

    /// An existing home, with the state that is in it.
    #[must_use]
    pub fn home(mut self, home: &Arc<Home>) -> Self {
        self.home = Some(Arc::clone(home));
        self
    }

    /// One more argument of `serve`.
    #[must_use]
    pub fn arg(mut self, argument: &str) -> Self {
        self.arguments.push(argument.to_owned());
        self
    }

    /// One more environment variable.
    #[must_use]
    pub fn env(mut self, name: &str, value: &str) -> Self {
        self.environment.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Starts it and waits for the ready line.
    pub async fn start(self) -> Result<Gateway> {
        let home = match self.home {
            Some(home) => home,
            None => Arc::new(Home::create()?),
        };
        let config = home.write_config(&self.yaml)?;
        let mut command = home.command(&self.binary)?;
        command.arg("serve").arg("--config").arg(config).args(["--http-port", "0"]).args(&self.arguments);
        command.envs(self.environment).stdin(Pipe::null()).stdout(Pipe::null());
        let process = Process::spawn(&mut command)?;
        let ready = wait_until_ready(&process).await?;
        let gateway = Gateway { process, home, ready };
        gateway.address().with_context(|| format!("no endpoint in the ready line {:?}", gateway.ready))?;
        Ok(gateway)
    }
}

async fn wait_until_ready(process: &Process) -> Result<String> {
    let line = process.stderr().line(|line| line.starts_with(READY));
    match tokio::time::timeout(PATIENCE, line).await {
        Ok(Ok(line)) => Ok(line),
        Ok(Err(_)) => bail!("the gateway ended before it was ready; it said:\n{}", process.stderr().text()),
        Err(_) => bail!("the gateway was not ready in {PATIENCE:?}; it said:\n{}", process.stderr().text()),
    }
}

/// The socket address in a URL whose host is one.
pub(crate) fn address_of(url: &str) -> Result<SocketAddr> {
    let rest = url.split_once("://").context("a URL has a scheme")?.1;
    let host = rest.split('/').next().unwrap_or_default();
    host.parse().with_context(|| format!("{url:?} does not name an address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_read_from_urls() {
        assert_eq!(address_of("http://127.0.0.1:3847/mcp").unwrap(), "127.0.0.1:3847".parse().unwrap());
        assert_eq!(address_of("http://[::1]:1").unwrap(), "[::1]:1".parse().unwrap());
        assert!(address_of("127.0.0.1:3847").is_err());
    }
}
