//! The fastest MCP server there could be behind a gateway, so that what is measured is the gateway.
//!
//! This program again with another flag: over HTTP, or as a child process on its standard streams. It shares the core of
//! the load generator, to which it moves by itself: a child process starts on the core of the gateway.

use std::{net::SocketAddr, path::PathBuf, process::Stdio};

use anyhow::{Context as _, Result};
use tokio::{
    io::{AsyncBufReadExt as _, BufReader},
    process::{Child, Command},
};

use crate::{
    cores::{self, Cores},
    template::Era,
};

mod answers;
mod http;
mod pipe;

pub use self::answers::{Answers, ECHO};

/// The flag that makes this program a server over HTTP.
const HTTP: &str = "--as=upstream-http";
/// The flag that makes it one on its standard streams.
const PIPE: &str = "--as=upstream-pipe";

/// What kind of server to be.
#[derive(Clone, Copy, Debug, clap::Args)]
pub struct Options {
    /// The era that it speaks
    #[arg(long, hide = true, value_enum, default_value_t = Era::Legacy)]
    pub era: Era,
    /// How many tools it has
    #[arg(long, hide = true, default_value_t = 1)]
    pub tools: usize,
    /// Where it runs
    #[arg(long, hide = true)]
    pub core: Option<usize>,
}

impl Options {
    /// A server with so many tools on the core of the load.
    pub fn new(era: Era, tools: usize, cores: &Cores) -> Self {
        Self { era, tools, core: cores.load() }
    }

    fn arguments(self, flag: &str) -> Vec<String> {
        let mut arguments =
            vec![flag.to_owned(), format!("--era={}", self.era.word()), format!("--tools={}", self.tools)];
        arguments.extend(self.core.map(|core| format!("--core={core}")));
        arguments
    }

    fn settle(self) -> Result<Answers> {
        self.core.map_or(Ok(()), cores::pin)?;
        Ok(Answers::new(self.era, self.tools))
    }
}

/// A server over HTTP; killed when dropped.
#[derive(Debug)]
pub struct Remote {
    child: Child,
    /// Where it listens.
    pub address: SocketAddr,
}

impl Remote {
    /// Starts one.
    pub async fn start(options: Options) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(options.arguments(HTTP))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .context("the upstream does not start")?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("stdout was asked for")?).read_line(&mut line).await?;
        let address = line.trim().parse().context("the upstream did not say where it listens")?;
        Ok(Self { child, address })
    }

    /// Its process id.
    pub fn pid(&self) -> Result<u32> {
        self.child.id().context("the upstream has ended")
    }

    /// As it is written under a name in the gateway's configuration.
    pub fn configured(&self) -> String {
        format!("{{url: \"http://{}/mcp\"}}", self.address)
    }
}

/// A server that the gateway starts itself, as it is written under a name in the configuration.
pub fn configured_child(options: Options) -> Result<String> {
    let program: PathBuf = std::env::current_exe()?;
    let program = serde_json::to_string(program.to_str().context("the path of this program is no text")?)?;
    let arguments = serde_json::to_string(&options.arguments(PIPE))?;
    Ok(format!("{{command: {program}, args: {arguments}}}"))
}

/// What the process over HTTP does: says where it listens, serves until it is killed.
pub fn serve_http(options: Options) -> Result<()> {
    let answers = options.settle()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(http::serve(answers))
}

/// What the child process does: answers line by line until its standard input ends.
pub fn serve_pipe(options: Options) -> Result<()> {
    let answers = options.settle()?;
    pipe::serve(&answers, std::io::stdin().lock(), std::io::stdout().lock()).map_err(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_is_written_as_yaml_can_read_it() {
        let options = Options { era: Era::Modern, tools: 50, core: Some(1) };
        let text = configured_child(options).unwrap();
        assert!(text.starts_with("{command: \"/"), "{text}");
        let expected = r#"args: ["--as=upstream-pipe","--era=modern","--tools=50","--core=1"]}"#;
        assert!(text.ends_with(expected), "{text}");
    }
}
