//! A gateway on a pipe: `moongate stdio`, spoken to as an IDE would.

use std::{
    process::{ExitStatus, Stdio as Pipe},
    sync::Arc,
    time::Duration,
};

use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    process::{ChildStdin, ChildStdout},
};

use crate::{
    Answers, Home, Outcome, Process,
    message::{self, Kind},
    patiently,
};

/// How messages are told apart on the pipe.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Framing {
    /// One message per line.
    Line,
    /// A `Content-Length` header before each message.
    ContentLength,
}

/// A running `moongate stdio`. It is killed when dropped.
#[derive(Debug)]
pub struct Stdio {
    process: Process,
    home: Arc<Home>,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    framing: Framing,
    answers: Answers,
    next: u64,
}

impl Stdio {
    /// Starts it in a new home with the configuration `yaml`, speaking lines.
    pub fn start(yaml: &str) -> Result<Self> {
        Self::start_in(&Arc::new(Home::create()?), yaml, &[])
    }

    /// Starts it in `home` with more arguments of `stdio`.
    pub fn start_in(home: &Arc<Home>, yaml: &str, arguments: &[&str]) -> Result<Self> {
        Self::start_with_env(home, yaml, arguments, &[])
    }

    /// Starts it in `home` with more arguments of `stdio` and more environment variables.
    pub fn start_with_env(
        home: &Arc<Home>,
        yaml: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        Self::start_binary("moongate", home, yaml, arguments, environment)
    }

    /// Starts another binary of this workspace with the same command line.
    pub fn start_binary(
        binary: &str,
        home: &Arc<Home>,
        yaml: &str,
        arguments: &[&str],
        environment: &[(&str, &str)],
    ) -> Result<Self> {
        let config = home.write_config(yaml)?;
        let mut command = home.command(binary)?;
        command.arg("stdio").arg("--config").arg(config).args(arguments).envs(environment.iter().copied());
        let mut process = Process::spawn(command.stdin(Pipe::piped()).stdout(Pipe::piped()))?;
        let stdin = process.take_stdin();
        let stdout = BufReader::new(process.take_stdout().context("stdout was asked for")?);
        let (framing, answers) = (Framing::Line, Answers::none());
        Ok(Self { process, home: Arc::clone(home), stdin, stdout, framing, answers, next: 1 })
    }

    /// Speaks another framing from here on.
    #[must_use]
    pub fn with_framing(mut self, framing: Framing) -> Self {
        self.framing = framing;
        self
    }

    /// Answers what the server asks.
    #[must_use]
    pub fn with_answers(mut self, answers: Answers) -> Self {
        self.answers = answers;
        self
    }

    /// The home.
    pub fn home(&self) -> &Arc<Home> {
        &self.home
    }

    /// The process: stderr, signals.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// The legacy handshake: the result of `initialize`.
    pub async fn initialize(&mut self, version: &str, capabilities: &Value) -> Result<Value> {
        let welcome =
            self.request("initialize", &message::initialize(version, capabilities)).await?.result()?;
        self.notify("notifications/initialized", &Value::Null).await?;
        Ok(welcome)
    }

    /// Sends a request, answers what the server asks meanwhile, and returns the response.
    pub async fn request(&mut self, method: &str, params: &Value) -> Result<Outcome> {
        let id = self.next;
        self.next += 1;
        self.send(&message::request(id, method, params)).await?;
        self.outcome(&json!(id)).await
    }

    /// `tools/call`: the result, which may have `isError`.
    pub async fn call(&mut self, tool: &str, arguments: Value) -> Result<Value> {
        self.request("tools/call", &json!({"name": tool, "arguments": arguments})).await?.result()
    }

    /// Sends a notification.
    pub async fn notify(&mut self, method: &str, params: &Value) -> Result<()> {
        self.send(&message::notification(method, params)).await
    }

    /// Sends one message in the framing in use.
    pub async fn send(&mut self, message: &Value) -> Result<()> {
        let text = message.to_string();
        match self.framing {
            Framing::Line => self.send_raw(format!("{text}\n")).await,
            Framing::ContentLength => {
                self.send_raw(format!("Content-Length: {}\r\n\r\n{text}", text.len())).await
            }
        }
    }

    /// Writes any bytes.
    pub async fn send_raw(&mut self, bytes: impl AsRef<[u8]>) -> Result<()> {
        let stdin = self.stdin.as_mut().context("stdin was closed")?;
        stdin.write_all(bytes.as_ref()).await?;
        stdin.flush().await.map_err(Into::into)
    }

    /// Reads messages up to the response to `id`, answering questions.
    pub async fn outcome(&mut self, id: &Value) -> Result<Outcome> {
        let mut notifications = Vec::new();
        let mut questions = Vec::new();
        loop {
            let message = self.receive().await?.context("stdout ended before the response")?;
            match message::kind(&message) {
                Kind::Response if message["id"] == *id => {
                    return Ok(Outcome { status: 200, response: message, notifications, questions });
                }
                Kind::Response => anyhow::bail!("a response to another request: {message}"),
                Kind::Notification => notifications.push(message),
                Kind::Question => {
                    self.send(&self.answers.respond(&message)).await?;
                    questions.push(message);
                }
            }
        }
    }

    /// The next message; none at the end of stdout. Anything but a message in the framing in use is an error.
    pub async fn receive(&mut self) -> Result<Option<Value>> {
        let framing = self.framing;
        let read = async {
            match framing {
                Framing::Line => read_line(&mut self.stdout).await,
                Framing::ContentLength => read_framed(&mut self.stdout).await,
            }
        };
        let Some(text) = patiently("a message on stdout", read).await?? else { return Ok(None) };
        serde_json::from_str(&text)
            .map(Some)
            .with_context(|| format!("stdout has more than protocol: {text:?}"))
    }

    /// Closes stdin, which asks the gateway to end.
    pub fn close_stdin(&mut self) {
        self.stdin = None;
    }

    /// Waits for the end of the process.
    pub async fn wait(&mut self, limit: Duration) -> Result<ExitStatus> {
        self.process.wait(limit).await
    }
}

async fn read_line(stdout: &mut BufReader<ChildStdout>) -> Result<Option<String>> {
    let mut line = String::new();
    let count = stdout.read_line(&mut line).await?;
    Ok((count > 0).then(|| line.trim_end().to_owned()))
}

async fn read_framed(stdout: &mut BufReader<ChildStdout>) -> Result<Option<String>> {
    let mut length = None;
    loop {
        let Some(line) = read_line(stdout).await? else { return Ok(None) };
        match line.split_once(':') {
            Some((name, value)) if name.eq_ignore_ascii_case("content-length") => {
                length = Some(value.trim().parse::<usize>()?);
            }
            Some(_) => {}
            None if line.is_empty() => break,
            None => anyhow::bail!("not a header: {line:?}"),
        }
    }
    let mut body = vec![0; length.context("a frame has a Content-Length")?];
    stdout.read_exact(&mut body).await?;
    Ok(Some(String::from_utf8(body)?))
}
