//! Thousands of calls over servers that are killed again and again: each is answered once, and nothing is left behind.
//!
//! `MOONGATE_SOAK=20000` makes it that many calls; `./bench` does.

use std::sync::{
    Arc, Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use anyhow::{Context as _, Result};
use moongate_test_chaos::{Caller, Family, LEGACY, MODERN, UNLIMITED, eventually, text_of};
use moongate_test_support::{Client, Gateway, PATIENCE, Peer};
use serde_json::{Value, json};
use tokio::{task::JoinSet, time::Instant};

/// Calls, unless the environment says otherwise.
const CALLS: u64 = 2_000;
/// Calls between two kills.
const BETWEEN: u64 = 100;
const CHILDREN: [&str; 4] = ["north", "east", "south", "west"];
const CLIENTS: usize = 4;

/// What happened.
struct Log {
    /// To see which processes the gateway takes for alive.
    admin: Client,
    next: AtomicU64,
    answered: AtomicU64,
    failures: Mutex<Vec<Failure>>,
    kills: Mutex<Vec<Kill>>,
}

struct Failure {
    child: usize,
    began: Instant,
    ended: Instant,
    text: String,
}

struct Kill {
    child: usize,
    began: Instant,
    /// From here on the gateway sends it nothing more.
    noticed: Instant,
}

impl Log {
    fn new(gateway: &Gateway) -> Result<Self> {
        Ok(Self {
            admin: gateway.admin_client()?.with_token(&gateway.token()?),
            next: AtomicU64::default(),
            answered: AtomicU64::default(),
            failures: Mutex::default(),
            kills: Mutex::default(),
        })
    }

    /// Calls until there were `calls` of all clients together.
    async fn drive(self: Arc<Self>, caller: Caller, calls: u64) -> Result<Caller> {
        loop {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            if number >= calls {
                return Ok(caller);
            }
            if number % BETWEEN == BETWEEN / 2 {
                self.kill(&caller, chosen(number, 1)).await?;
            }
            let (child, text) = (chosen(number, 2), format!("call {number}"));
            let began = Instant::now();
            let name = CHILDREN.get(child).context("one of them is chosen")?;
            // An error here is a call without an answer, which is what must not be.
            let answer = caller.call(&format!("{name}__echo"), &json!({"text": text})).await?;
            self.answered.fetch_add(1, Ordering::Relaxed);
            if answer.get("error").is_some() {
                let text = text_of(&answer).to_owned();
                anyhow::ensure!(text.starts_with(&format!("The upstream {name} failed: ")), "{text}");
                push(&self.failures, Failure { child, began, ended: Instant::now(), text });
            } else {
                anyhow::ensure!(text_of(&answer) == text, "{text} was answered {answer}");
            }
        }
    }

    /// Kills a child and waits until the gateway has noticed: only what was on its way by then may fail.
    async fn kill(&self, caller: &Caller, child: usize) -> Result<()> {
        let name = CHILDREN.get(child).context("one of them is chosen")?;
        let pid = match caller.pid(name).await {
            Ok(pid) => pid,
            // Another client has killed it in this very moment.
            Err(_) => caller.pid(name).await?,
        };
        let family = Family::only([pid])?;
        let began = Instant::now();
        family.kill()?;
        family.gone(PATIENCE).await?;
        let noticing = async {
            while self.is_used(name, pid).await? {}
            anyhow::Ok(())
        };
        tokio::time::timeout(PATIENCE, noticing).await.context("the gateway does not notice")??;
        push(&self.kills, Kill { child, began, noticed: Instant::now() });
        Ok(())
    }

    /// Whether the gateway takes this process of a child for alive.
    async fn is_used(&self, name: &str, pid: u32) -> Result<bool> {
        let all = self.admin.get("/api/v1/upstreams").send().await?.json()?;
        let named = |upstream: &&Value| upstream.get("name") == Some(&json!(name));
        let child = all.as_array().into_iter().flatten().find(named);
        let pids = child.and_then(|child| child.get("pids")?.as_array()).context("it has processes")?;
        Ok(pids.contains(&json!(pid)))
    }
}

fn push<T>(list: &Mutex<Vec<T>>, item: T) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}

fn taken<T>(list: &Mutex<Vec<T>>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

/// One of the children, by chance that is the same in every run.
fn chosen(number: u64, salt: u64) -> usize {
    let mixed = (number * 2 + salt).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    usize::try_from(mixed >> 62).unwrap_or_default()
}

#[tokio::test]
async fn thousands_of_calls_survive_servers_that_are_killed() -> Result<()> {
    let calls = std::env::var("MOONGATE_SOAK").ok().map_or(Ok(CALLS), |text| text.parse())?;
    let mut yaml = format!("{UNLIMITED}upstreams:\n");
    for (name, version) in CHILDREN.iter().zip([LEGACY, MODERN].into_iter().cycle()) {
        yaml += &Peer::stdio_yaml(name, version, &[])?;
    }
    let mut gateway = Gateway::start(&yaml).await?;
    let sessions = gateway.metric("moongate_sessions").await?;
    let (log, mut tasks) = (Arc::new(Log::new(&gateway)?), JoinSet::new());
    let callers = Caller::several(&gateway, CLIENTS).await?;
    let first = callers.first().context("there is one")?;
    for name in CHILDREN {
        assert!(log.is_used(name, first.pid(name).await?).await?, "{name} is shown while it lives");
    }
    let began = Instant::now();
    for caller in callers {
        tasks.spawn(Arc::clone(&log).drive(caller, calls));
    }
    while let Some(caller) = tasks.join_next().await {
        caller??.leave().await?;
    }
    let took = began.elapsed();
    let (failures, kills) = (taken(&log.failures), taken(&log.kills));
    eprintln!(
        "{calls} calls in {took:.1?} by {CLIENTS} clients, {} kills, {} calls failed; resident {} KiB",
        kills.len(),
        failures.len(),
        gateway.resident()? >> 10,
    );
    assert_eq!(log.answered.load(Ordering::Relaxed), calls, "every call is answered, and once");
    assert_eq!(kills.len() as u64, calls / BETWEEN);
    for failure in &failures {
        let fits = |kill: &Kill| {
            kill.child == failure.child && failure.began < kill.noticed && failure.ended > kill.began
        };
        assert!(kills.iter().any(fits), "nobody was killed, and yet: {}", failure.text);
    }
    assert!(failures.len() as u64 * 100 <= calls, "too many of them");
    let settled = async || Ok((gateway.metric("moongate_sessions").await? <= sessions).then_some(()));
    eventually("the sessions to be gone", settled).await?;
    // One process and its supervisor for each that is up, and not one of those that were killed.
    let pid = gateway.process().pid();
    eventually("the killed to be gone", async || {
        let mut up = 0.0;
        for name in CHILDREN {
            up += gateway.metric(&format!("moongate_upstream_up{{upstream=\"{name}\"}}")).await?;
        }
        let left = f64::from(u32::try_from(Family::of(pid)?.len())?);
        Ok((left <= 2.0 * up).then_some(()))
    })
    .await?;
    let family = Family::of(pid)?;
    gateway.stop().await?;
    family.gone(PATIENCE).await
}
