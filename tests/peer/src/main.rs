//! `moongate-peer`: a scripted MCP server on stdio or on an ephemeral port of this machine.

use std::{path::PathBuf, time::Duration};

use anyhow::Result;
use clap::Parser;
use moongate_test_peer::{Breaches, Chaos, Misbehaviour, Setup, Transport, Version, http, stdio};

/// A scripted MCP server that speaks one protocol version and notes every breach of it.
#[derive(Debug, Parser)]
#[command(disable_version_flag = true)]
struct Arguments {
    /// The protocol version it speaks.
    #[arg(long)]
    version: Version,
    /// Serve on stdin and stdout.
    #[arg(long, required_unless_present = "http", conflicts_with = "http")]
    stdio: bool,
    /// Serve HTTP on an ephemeral port, which is the first line on stdout.
    #[arg(long)]
    http: bool,
    /// A file to append breaches to.
    #[arg(long)]
    breaches: Option<PathBuf>,
    /// Offer the extension for tasks, and a tool that only runs as one.
    #[arg(long)]
    tasks: bool,
    /// A way to misbehave; may be given several times.
    #[arg(long)]
    misbehave: Vec<Misbehaviour>,
}

#[tokio::main]
async fn main() -> Result<()> {
    let arguments = Arguments::parse();
    let slow = arguments.misbehave.iter().find_map(|one| match one {
        Misbehaviour::SlowStart(milliseconds) => Some(Duration::from_millis(*milliseconds)),
        _ => None,
    });
    if let Some(slow) = slow {
        tokio::time::sleep(slow).await;
    }
    let names = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
    let mut setup = Setup {
        version: arguments.version,
        transport: Transport::Stdio,
        chaos: Chaos(arguments.misbehave),
        breaches: Breaches::new(arguments.breaches),
        environment: names.collect(),
        tasks: arguments.tasks,
    };
    if arguments.http {
        setup.transport = Transport::Http;
        return http::serve(setup, tokio::io::stdout()).await;
    }
    let code = stdio::serve(setup, tokio::io::stdin(), tokio::io::stdout()).await?;
    // Returning would wait for the thread that reads stdin.
    std::process::exit(code)
}
