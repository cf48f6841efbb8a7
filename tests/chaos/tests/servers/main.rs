//! Six real servers of npm and Python behind one gateway, called by every official SDK, then killed one by one.
//!
//! `./test servers` installs them and says where they are: `MOONGATE_SERVERS` (with `node_modules`), `MOONGATE_CLIENTS`
//! (scripts beside their packages), `MOONGATE_NODE` and `MOONGATE_PYTHON` (interpreters, the latter with the servers).

mod clients;
mod site;

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use anyhow::{Context as _, Result};
use moongate_test_chaos::{Caller, Family, text_of};
use moongate_test_support::PATIENCE;
use serde_json::{Value, json};
use site::{NAMES, Site};
use tokio::{task::JoinSet, time::Instant};

#[tokio::test]
async fn six_real_servers_are_one_to_every_client_and_die_one_by_one() -> Result<()> {
    let mut site = Site::open().await?;
    let tools = site.all_tools().await?;
    let calls = site.calls();
    for (client, eras) in clients::ALL {
        for era in eras {
            let what = || format!("{client:?}, {era}");
            let report = client.run(&site, era, &calls).await.with_context(what)?;
            assert_eq!(names(&report), tools, "{}", what());
            let results = report.get("results").and_then(Value::as_array).cloned().unwrap_or_default();
            assert_eq!(results.len(), calls.len(), "{}", what());
            for (result, call) in results.iter().zip(&calls) {
                call.judge(result).with_context(what)?;
            }
        }
    }
    for name in NAMES {
        lose(&site, name).await.with_context(|| format!("without {name}"))?;
    }
    let family = Family::of(site.gateway.process().pid())?;
    site.gateway.stop().await?;
    family.gone(PATIENCE).await
}

/// Kills one server while clients call all the others: those answer, and the killed one is back when it is called.
async fn lose(site: &Site, lost: &str) -> Result<()> {
    let (over, rounds) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for caller in Caller::several(&site.gateway, 2).await? {
        let (over, rounds, calls) = (Arc::clone(&over), Arc::clone(&rounds), site.calls());
        let others: Vec<_> = calls.into_iter().filter(|call| call.server != lost).collect();
        tasks.spawn(async move {
            while !over.load(Ordering::Relaxed) {
                for call in &others {
                    call.judge(&caller.call(&call.name, &call.arguments).await?)?;
                }
                rounds.fetch_add(1, Ordering::Relaxed);
            }
            caller.leave().await
        });
    }
    let began = Instant::now();
    let victims = site.processes(lost)?;
    anyhow::ensure!(!victims.is_empty(), "it runs");
    victims.kill()?;
    victims.gone(PATIENCE).await?;
    let caller = Caller::several(&site.gateway, 1).await?.pop().context("there is one")?;
    let call = site.calls().into_iter().find(|call| call.server == lost).context("each is called")?;
    let back = caller.call(&call.name, &call.arguments).await?;
    call.judge(&back)?;
    caller.leave().await?;
    over.store(true, Ordering::Relaxed);
    while let Some(done) = tasks.join_next().await {
        done??;
    }
    let rounds = rounds.load(Ordering::Relaxed);
    eprintln!(
        "{lost} was back after {:.1?}; meanwhile the others were called in {rounds} rounds",
        began.elapsed()
    );
    Ok(())
}

/// One call and what its result has to say.
#[derive(Clone, Debug)]
struct Call {
    server: &'static str,
    name: String,
    arguments: Value,
    expected: String,
}

impl Call {
    fn judge(&self, answer: &Value) -> Result<()> {
        let said = text_of(answer);
        let failed = answer.get("isError").or_else(|| answer.pointer("/result/isError"));
        let fine = said.contains(&self.expected) && failed != Some(&json!(true));
        anyhow::ensure!(fine, "{} should say {:?}: {answer}", self.name, self.expected);
        Ok(())
    }
}

/// The names of the tools in a list, sorted.
fn names(listed: &Value) -> Vec<String> {
    let tools = listed.get("tools").and_then(Value::as_array).into_iter().flatten();
    let mut names: Vec<String> =
        tools.filter_map(|tool| tool.get("name")?.as_str()).map(str::to_owned).collect();
    names.sort();
    names
}
