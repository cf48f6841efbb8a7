//! How soon the gateway answers after exec, and how big it is.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use moongate_test_support::{Gateway, Home};
use tokio::time::Instant;

use super::Settings;
use crate::{
    facts,
    load::Connection,
    report::{Section, bytes},
    statistics::Spread,
    template::Caller,
};

const FIRST_ANSWER: f64 = 60.0;
const BINARY: f64 = 25.0;

pub(super) async fn run(settings: &Settings) -> Result<Section> {
    let rounds = settings.choose(20, 5);
    let home = Arc::new(Home::create()?);
    first_answer(&home).await?;
    let (mut again, mut fresh) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        again.push(first_answer(&home).await?);
        fresh.push(first_answer(&Arc::new(Home::create()?)).await?);
    }
    let mut section = Section::new();
    for (what, samples) in [("with the files of an earlier start", again), ("in an empty home", fresh)] {
        let spread = Spread::of(samples);
        let what = format!("exec to first answer, {what}");
        section.at_most(what, spread.median, format!("{spread:.1} ms"), FIRST_ANSWER, " ms");
    }
    let size = binary_size(&home)?;
    #[expect(clippy::cast_precision_loss, reason = "a size far below 2^52")]
    let mebibytes = size as f64 / f64::from(1 << 20);
    section.at_most(format!("binary, profile {}", facts::profile()?), mebibytes, bytes(size), BINARY, " MiB");
    section.note(format!(
        "Median of {rounds} starts with the default configuration; the first request is `initialize` with the local \
         token. An empty home also gets its token, its key and its database made."
    ));
    Ok(section)
}

/// Milliseconds from exec to the answer of `initialize`.
async fn first_answer(home: &Arc<Home>) -> Result<f64> {
    let begun = Instant::now();
    let mut gateway = Gateway::builder().home(home).start().await?;
    let caller = Caller { address: gateway.address()?, token: gateway.token()? };
    let mut connection = Connection::open(caller.address).await?;
    let status = connection.send(caller.initialize().bytes()).await?.status;
    let elapsed = begun.elapsed();
    ensure!(status == 200, "the first request got status {status}");
    drop(connection);
    gateway.stop().await?;
    Ok(elapsed.as_secs_f64() * 1000.0)
}

fn binary_size(home: &Home) -> Result<u64> {
    let command = home.command("moongate")?;
    Ok(std::fs::metadata(command.as_std().get_program()).context("the binary cannot be found")?.len())
}
