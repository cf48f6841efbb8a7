//! Counts instructions: the one figure that a noisy machine does not change.
//!
//! Everything is run twice with different numbers of calls; the difference is what the calls cost, without start and end.

use std::{path::Path, process::Stdio, time::Duration};

use anyhow::{Context as _, Result, ensure};
use moongate_test_support::{Home, Process};
use rustix::process::Signal;
use tokio::process::Command;

use crate::{
    load::Limit,
    subject::{self, Extra},
    template::{Caller, Era},
};

/// An instrumented program is fifty times slower.
const PATIENCE: Duration = Duration::from_mins(5);

/// So many calls in the shorter and in the longer run.
#[derive(Clone, Copy, Debug)]
pub struct Calls {
    /// The shorter.
    pub few: u64,
    /// The longer.
    pub many: u64,
}

impl Calls {
    #[expect(clippy::cast_precision_loss, reason = "instruction counts far below 2^52")]
    fn each(self, few: u64, many: u64) -> f64 {
        many.saturating_sub(few) as f64 / (self.many - self.few) as f64
    }
}

/// Whether valgrind is installed.
pub async fn is_available() -> bool {
    let mut command = Command::new("valgrind");
    command.arg("--version").stdout(Stdio::null()).stderr(Stdio::null());
    command.status().await.is_ok_and(|status| status.success())
}

/// Instructions of one call to the gateway: its process alone, in user mode.
pub async fn gateway_call(calls: Calls, era: Era, extra: Extra) -> Result<f64> {
    let few = gateway_run(calls.few, era, extra).await?;
    Ok(calls.each(few, gateway_run(calls.many, era, extra).await?))
}

async fn gateway_run(count: u64, era: Era, extra: Extra) -> Result<u64> {
    let home = Home::create()?;
    let config = home.write_config(subject::CONFIG)?;
    let program = home.command("moongate")?.as_std().get_program().to_owned();
    let counts = home.path().join("callgrind.out");
    let mut command = home.command_at("valgrind");
    command.args(options(&counts)).arg(program);
    command.arg("serve").arg("--config").arg(config).args(["--http-port", "0"]);
    command.stdin(Stdio::null()).stdout(Stdio::null());
    let mut process = Process::spawn(&mut command)?;
    let caller = tokio::time::timeout(PATIENCE, ready(&process)).await.context("never got ready")??;
    let load = subject::calls(&caller, era, extra).await?;
    let round = load.run(Limit { time: PATIENCE, calls: count }).await?;
    ensure!(round.calls == count, "only {} of {count} calls were made in time", round.calls);
    process.signal(Signal::TERM)?;
    let status = process.wait(PATIENCE).await?;
    ensure!(status.success(), "the gateway ended with {status}: {}", process.stderr().text());
    instructions(&counts)
}

async fn ready(process: &Process) -> Result<Caller> {
    let line = process.stderr().line(|line| line.starts_with("moongate ready")).await;
    let line = line.with_context(|| format!("the gateway did not start: {}", process.stderr().text()))?;
    let field = |key: &str| line.split_once(&format!(" {key}=")).map(|(_, rest)| rest);
    let endpoint = field("endpoint").and_then(|rest| rest.strip_prefix("http://")?.split('/').next());
    let token = field("token").context("no token file in the ready line")?;
    Ok(Caller {
        address: endpoint.context("no endpoint in the ready line")?.parse()?,
        token: std::fs::read_to_string(token)?.trim().to_owned(),
    })
}

/// Instructions of one step of the [driver](crate::driver).
pub async fn driver_step(calls: Calls, step: &str) -> Result<f64> {
    let few = driver_run(calls.few, step).await?;
    Ok(calls.each(few, driver_run(calls.many, step).await?))
}

async fn driver_run(count: u64, step: &str) -> Result<u64> {
    let directory = tempfile::tempdir()?;
    let counts = directory.path().join("callgrind.out");
    let mut command = Command::new("valgrind");
    command.args(options(&counts)).arg(std::env::current_exe()?);
    command.args([crate::driver::FLAG, step, "--count", &count.to_string()]).kill_on_drop(true);
    let output = tokio::time::timeout(PATIENCE, command.output()).await.context("took too long")??;
    ensure!(output.status.success(), "the driver failed: {}", String::from_utf8_lossy(&output.stderr));
    instructions(&counts)
}

fn options(counts: &Path) -> [String; 2] {
    ["--tool=callgrind".to_owned(), format!("--callgrind-out-file={}", counts.display())]
}

/// The sum in a file that callgrind wrote.
fn instructions(counts: &Path) -> Result<u64> {
    let text = std::fs::read_to_string(counts).context("valgrind wrote no counts")?;
    total(&text).context("the counts have no sum")
}

fn total(text: &str) -> Option<u64> {
    let sums = text.lines().rev().find_map(|line| line.strip_prefix("totals:"));
    sums.or_else(|| text.lines().find_map(|line| line.strip_prefix("summary:")))?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sum_is_found() {
        assert_eq!(total("events: Ir\nsummary: 12\nfn=(1)\n1 5\ntotals: 34\n"), Some(34));
        assert_eq!(total("events: Ir\nsummary: 12\n"), Some(12));
        assert_eq!(total("events: Ir\n"), None);
    }

    #[test]
    fn the_difference_is_what_calls_cost() {
        let calls = Calls { few: 500, many: 2500 };
        assert!((calls.each(1_000_500, 1_002_500) - 1.0).abs() < f64::EPSILON);
    }
}
