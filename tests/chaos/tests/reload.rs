//! A configuration that changes its servers while fifty clients call: who is not concerned does not notice.

use std::sync::{
    Arc,
    atomic::{AtomicBool, AtomicU64, Ordering},
};

use anyhow::{Context as _, Result};
use moongate_test_chaos::{Caller, Family, LEGACY, MODERN, UNLIMITED, eventually, text_of};
use moongate_test_support::{Gateway, ModernClient, PATIENCE, Peer};
use serde_json::{Value, json};
use tokio::task::JoinSet;

const CLIENTS: usize = 50;
const APPLIED: &str = "moongate_config_reloads_total{outcome=\"applied\"}";

/// Clients that call what does not change, again and again.
struct Crowd {
    tasks: JoinSet<Result<Caller>>,
    calls: Arc<Vec<AtomicU64>>,
    over: Arc<AtomicBool>,
}

impl Crowd {
    async fn gather(gateway: &Gateway) -> Result<Self> {
        let calls: Arc<Vec<AtomicU64>> = Arc::new((0..CLIENTS).map(|_| AtomicU64::new(0)).collect());
        let (mut tasks, over) = (JoinSet::new(), Arc::new(AtomicBool::new(false)));
        for (number, caller) in Caller::several(gateway, CLIENTS).await?.into_iter().enumerate() {
            let (calls, over) = (Arc::clone(&calls), Arc::clone(&over));
            tasks.spawn(async move {
                while !over.load(Ordering::Relaxed) {
                    for tool in ["one__echo", "two__echo", "list_goals"] {
                        let answer = caller.call(tool, &json!({"text": "here"})).await?;
                        let fine = tool == "list_goals" || text_of(&answer) == "here";
                        anyhow::ensure!(fine && answer.get("error").is_none(), "{tool}: {answer}");
                        calls.get(number).context("each has a counter")?.fetch_add(1, Ordering::Relaxed);
                    }
                }
                Ok(caller)
            });
        }
        Ok(Self { tasks, calls, over })
    }

    /// Waits until each client has called everything from the beginning of the wait.
    async fn go_round(&self) -> Result<()> {
        let now = || self.calls.iter().map(|count| count.load(Ordering::Relaxed)).collect::<Vec<_>>();
        let before = now();
        eventually("every client to have called everything", async || {
            anyhow::ensure!(self.tasks.len() == CLIENTS, "somebody has ended");
            // Twice three, because the first round may have begun before.
            Ok(now().iter().zip(&before).all(|(now, before)| *now >= before + 6).then_some(()))
        })
        .await
    }

    /// Sends them home: how often they called. An error is the first call that failed.
    async fn dissolve(mut self) -> Result<u64> {
        self.over.store(true, Ordering::Relaxed);
        while let Some(caller) = self.tasks.join_next().await {
            caller??.leave().await?;
        }
        Ok(self.calls.iter().map(|count| count.load(Ordering::Relaxed)).sum())
    }
}

/// The configuration with these entries beside the two that stay; `one` has more lines.
fn yaml(one: &str, others: &[String]) -> Result<String> {
    let stay = Peer::stdio_yaml("one", LEGACY, &[])? + one + &Peer::stdio_yaml("two", MODERN, &[])?;
    Ok(format!("{UNLIMITED}upstreams:\n{stay}{}", others.concat()))
}

async fn applied(gateway: &Gateway, times: f64) -> Result<()> {
    eventually("the reload", async || Ok((gateway.metric(APPLIED).await? >= times).then_some(()))).await
}

async fn tools(client: &ModernClient) -> Result<Vec<String>> {
    let listed = Box::pin(client.list("tools/list")).await?;
    let tools = listed.get("tools").and_then(Value::as_array).into_iter().flatten();
    Ok(tools.filter_map(|tool| tool.get("name")?.as_str()).map(str::to_owned).collect())
}

/// A client that may read only.
async fn reader(gateway: &Gateway) -> Result<ModernClient> {
    let issue = ["token", "issue", "--subject", "reader", "--scopes", "read", "--ttl", "1h"];
    let output = gateway.home().run(&issue).await?;
    let token = String::from_utf8(output.stdout)?;
    Ok(ModernClient::new(&gateway.anonymous_client().with_token(token.trim())))
}

#[tokio::test]
async fn servers_come_change_and_go_and_the_others_do_not_notice() -> Result<()> {
    let changing = |arguments: &[&str]| Peer::stdio_yaml("changing", LEGACY, arguments);
    let leaving = Peer::stdio_yaml("leaving", MODERN, &[])?;
    let mut gateway = Gateway::start(&yaml("", &[changing(&[])?, leaving])?).await?;
    let own = ModernClient::new(&gateway.client());
    let caller = Caller::Modern(Box::new(own.clone()));
    let (one, two) = (caller.pid("one").await?, caller.pid("two").await?);
    let changed = Family::only([caller.pid("changing").await?])?;
    let left = Family::only([caller.pid("leaving").await?])?;
    let crowd = Crowd::gather(&gateway).await?;
    crowd.go_round().await?;

    let arriving = Peer::stdio_yaml("arriving", LEGACY, &[])?;
    gateway.write_config(&yaml("", &[changing(&["--misbehave", "tools=1"])?, arriving])?)?;
    applied(&gateway, 1.0).await?;
    changed.gone(PATIENCE).await?;
    left.gone(PATIENCE).await?;
    eventually("the new tools", async || {
        let tools = tools(&own).await?;
        let has = |name: &str| tools.iter().any(|tool| tool.starts_with(name));
        Ok((has("arriving__echo") && has("changing__generated_1") && !has("leaving__")).then_some(()))
    })
    .await?;
    caller.pid("arriving").await?;
    caller.pid("changing").await?;
    let gone = caller.call("leaving__echo", &json!({"text": "?"})).await?;
    assert_eq!(text_of(&gone), "Unknown tool: leaving__echo");
    let page = gateway.metrics().await?;
    assert!(!page.contains("moongate_upstream_up{upstream=\"leaving\"}"), "it is off the page");
    crowd.go_round().await?;
    assert_eq!((caller.pid("one").await?, caller.pid("two").await?), (one, two));

    // What the server would not notice keeps it, and is in force all the same.
    let reader = reader(&gateway).await?;
    let echo = json!({"name": "one__echo", "arguments": {"text": "read"}});
    let refused = Box::pin(reader.request("tools/call", &echo)).await?;
    assert_eq!(refused.status, 403, "{:?}", refused.response);
    let more = "    scope: read\n    list_timeout: 3s\n    idle_timeout: off\n    timeout: 30s\n";
    let others = [changing(&["--misbehave", "tools=1"])?];
    gateway.write_config(&yaml(more, &others)?)?;
    applied(&gateway, 2.0).await?;
    let welcome = Box::pin(reader.request("tools/call", &echo)).await?;
    assert_eq!(text_of(&welcome.response), "read");
    crowd.go_round().await?;
    assert_eq!((caller.pid("one").await?, caller.pid("two").await?), (one, two));

    let calls = crowd.dissolve().await?;
    eprintln!("{CLIENTS} clients made {calls} calls, and none failed");
    let family = Family::of(gateway.process().pid())?;
    gateway.stop().await?;
    family.gone(PATIENCE).await
}
