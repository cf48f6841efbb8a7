//! `./bench`: measures what `./dist` builds, holds it against its budgets and writes the figures down.

use std::{io::Write as _, path::PathBuf, process::ExitCode, time::Duration};

use anyhow::{Context as _, Result};
use clap::{Parser, ValueEnum};
use moongate_test_bench::{
    bare,
    cores::Cores,
    driver::{self, Step},
    facts,
    parts::{Part, Settings},
    record,
    report::Section,
    results, upstream,
};

/// The gateway's own, so that what it is compared with differs from it in nothing else.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

/// Measures what ./dist builds and writes tests/bench/RESULTS.md; exit status 1 when a budget is missed.
#[derive(Debug, Parser)]
#[command(name = "bench")]
struct Arguments {
    /// What to measure; without any, everything but fuzz
    #[arg(value_name = "PART")]
    parts: Vec<Part>,
    /// Names the parts
    #[arg(long)]
    list: bool,
    /// A short run that shows that everything works; its figures are not written down
    #[arg(long)]
    quick: bool,
    /// How long each fuzz target runs
    #[arg(long, value_name = "N", default_value_t = 10)]
    minutes: u64,
    /// Where the figures go
    #[arg(long, value_name = "FILE", default_value = "tests/bench/RESULTS.md")]
    results: PathBuf,
    #[arg(long = "as", hide = true)]
    role: Option<Role>,
    #[command(flatten)]
    upstream: upstream::Options,
    #[arg(long, hide = true)]
    as_driver: Option<Step>,
    #[arg(long, hide = true, default_value_t = 0)]
    count: u64,
}

/// What else this program is, when it measures nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Role {
    /// The server that the gateway is compared with
    BareServer,
    /// The server behind the gateway, over HTTP
    UpstreamHttp,
    /// The server behind the gateway, as a child process
    UpstreamPipe,
    /// Whoever makes the gateway work while `./dist` counts
    Recorder,
}

fn main() -> Result<ExitCode> {
    let arguments = Arguments::parse();
    let served = match arguments.role {
        Some(Role::BareServer) => Some(bare::main()),
        Some(Role::UpstreamHttp) => Some(upstream::serve_http(arguments.upstream)),
        Some(Role::UpstreamPipe) => Some(upstream::serve_pipe(arguments.upstream)),
        Some(Role::Recorder) | None => None,
    };
    if let Some(served) = served {
        return served.map(|()| ExitCode::SUCCESS);
    }
    if let Some(step) = arguments.as_driver {
        return driver::main(step, arguments.count).map(|()| ExitCode::SUCCESS);
    }
    if arguments.list {
        for part in Part::value_variants() {
            say(&format!("{:<9} {}", part.name(), part.about()))?;
        }
        return Ok(ExitCode::SUCCESS);
    }
    // One thread, so that pinning it pins the whole load generator.
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    if arguments.role == Some(Role::Recorder) {
        return runtime.block_on(record::run()).map(|()| ExitCode::SUCCESS);
    }
    runtime.block_on(measure(&arguments))
}

async fn measure(arguments: &Arguments) -> Result<ExitCode> {
    let fuzzing = Duration::from_secs(60 * arguments.minutes);
    let settings = Settings { quick: arguments.quick, fuzzing, cores: Cores::find()? };
    let parts = if arguments.parts.is_empty() { &Part::USUAL[..] } else { &arguments.parts };
    let facts = facts::describe(&settings.cores)?;
    say(&facts)?;
    let (mut written, mut missed) = (Vec::new(), Vec::new());
    for part in parts {
        say(&format!("\n## {}: {}\n", part.name(), part.about()))?;
        match part.run(&settings).await {
            Ok(section) => {
                say(&section.markdown())?;
                missed.extend(over(*part, &section));
                written.push((part.name(), format!("{}. {facts}\n\n{}", part.about(), section.markdown())));
            }
            Err(error) => {
                say(&format!("failed: {error:#}"))?;
                missed.push(format!("{}: failed", part.name()));
            }
        }
    }
    if !arguments.quick {
        let names: Vec<_> = Part::value_variants().iter().map(|part| part.name()).collect();
        results::write(&arguments.results, &names, &written).context("the figures could not be written")?;
    }
    for miss in &missed {
        say(&format!("OVER BUDGET  {miss}"))?;
    }
    Ok(if missed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

fn over(part: Part, section: &Section) -> Vec<String> {
    section.missed().map(|what| format!("{}: {what}", part.name())).collect()
}

fn say(text: &str) -> Result<()> {
    let mut output = std::io::stdout();
    writeln!(output, "{text}")?;
    output.flush().map_err(Into::into)
}
