//! A gateway with one bad server and one good one behind it, and everybody who calls them.

use std::time::Duration;

use anyhow::{Context as _, Result};
use moongate_test_support::{EventStream, Gateway, LegacySession, ModernClient, PATIENCE, Peer};
use rustix::process::Signal;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::{Family, UNLIMITED, eventually, peak, text_of};

/// Longer than any call takes of a server that works, on a machine that is busy.
const NORMAL: Duration = Duration::from_secs(2);
/// How long processes may take to end after the gateway was killed, which could not tell them.
const AFTER_A_KILL: Duration = Duration::from_secs(2);
/// What the gateway may need at most for whatever one server does: the largest message it takes (16 MiB) from two callers
/// at once, and as much again for what becomes of them.
const BOUND: u64 = 64 << 20;
/// How every error of the bad server begins.
const NAMED: &str = "The upstream bad failed: ";
/// The last version with a handshake.
pub const LEGACY: &str = "2025-11-25";
/// The version without.
pub const MODERN: &str = "2026-07-28";

/// Where a bad server stands and what it speaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Place {
    /// A process, of this version.
    Process(&'static str),
    /// A remote server, of this version.
    Remote(&'static str),
}

/// Processes of both eras.
pub const PROCESSES: [Place; 2] = [Place::Process(LEGACY), Place::Process(MODERN)];
/// Remote servers of both eras.
pub const REMOTES: [Place; 2] = [Place::Remote(LEGACY), Place::Remote(MODERN)];
/// Both ways to reach a server, in both eras.
pub const EVERYWHERE: [Place; 4] =
    [Place::Process(LEGACY), Place::Process(MODERN), Place::Remote(LEGACY), Place::Remote(MODERN)];

/// A server that misbehaves.
#[derive(Debug)]
pub struct Bad {
    place: Place,
    yaml: String,
    /// Where it is not the gateway that starts it.
    _peer: Option<Peer>,
}

/// The gateway, the servers behind it and its clients.
#[derive(Debug)]
pub struct Scene {
    /// The gateway.
    pub gateway: Gateway,
    /// A client with a session.
    pub legacy: LegacySession,
    /// A client without.
    pub modern: ModernClient,
    transport: &'static str,
    /// The most memory the gateway had before anything bad happened.
    before: u64,
    _bad: Bad,
}

impl Bad {
    /// A peer that misbehaves by `how`, with more lines of configuration.
    pub async fn new(place: Place, how: &[&str], more: &str) -> Result<Self> {
        let arguments: Vec<&str> = how.iter().flat_map(|one| ["--misbehave", one]).collect();
        let (yaml, peer) = match place {
            Place::Process(version) => (Peer::stdio_yaml("bad", version, &arguments)?, None),
            Place::Remote(version) => {
                let peer = Peer::http(version, &arguments).await?;
                (peer.url_yaml("bad"), Some(peer))
            }
        };
        Ok(Self { place, yaml: indented(yaml, more), _peer: peer })
    }

    /// A program that is no peer.
    pub fn command(command: &str, arguments: &[&str], more: &str) -> Self {
        let yaml = format!("  bad:\n    command: {}\n    args: {}\n", json!(command), json!(arguments));
        Self { place: Place::Process(LEGACY), yaml: indented(yaml, more), _peer: None }
    }
}

fn indented(yaml: String, more: &str) -> String {
    more.lines().fold(yaml, |yaml, line| yaml + "    " + line.trim() + "\n")
}

impl Scene {
    /// Starts everything. The good server and the built-in tools have answered once.
    pub async fn open(bad: Bad) -> Result<Self> {
        let good = Peer::stdio_yaml("good", LEGACY, &[])?;
        let gateway = Gateway::start(&format!("{UNLIMITED}upstreams:\n{good}{}", bad.yaml)).await?;
        let legacy = LegacySession::open(&gateway.client(), LEGACY).await?;
        let modern = ModernClient::new(&gateway.client());
        let transport = match bad.place {
            Place::Process(_) => "pipe",
            Place::Remote(_) => "tcp",
        };
        let mut scene = Self { gateway, legacy, modern, transport, before: 0, _bad: bad };
        scene.legacy.call("good__echo", json!({"text": "warm"})).await?;
        scene.modern.call("list_goals", json!({})).await?;
        scene.before = peak(scene.gateway.process().pid())?;
        Ok(scene)
    }

    /// Calls `tool` of the bad server as clients of both eras, side by side: the one response that each of them gets.
    /// Meanwhile the others are served as ever.
    pub async fn call(&self, tool: &str, arguments: &Value) -> Result<[Value; 2]> {
        let params = json!({"name": format!("bad__{tool}"), "arguments": arguments});
        let legacy = async { only_response(self.legacy.prepare("tools/call", &params).open().await?).await };
        let modern = self.modern.prepare("tools/call", &params).over(self.modern.http());
        let modern = async { only_response(modern.open().await?).await };
        // On the heap: the futures of requests are large.
        let both = Box::pin(async { tokio::try_join!(legacy, modern) });
        let (legacy, modern) = self.while_others_answer(both).await??;
        Ok([legacy, modern])
    }

    /// Calls `tool` of the bad server, which fails for both clients: what each is told after the server's name.
    pub async fn call_fails(&self, tool: &str, arguments: &Value) -> Result<[String; 2]> {
        let answers = self.call(tool, arguments).await?;
        let mut told = [String::new(), String::new()];
        for (told, answer) in told.iter_mut().zip(&answers) {
            anyhow::ensure!(answer.pointer("/error/code") == Some(&json!(-32603)), "not our error: {answer}");
            let text = text_of(answer).strip_prefix(NAMED);
            text.with_context(|| format!("does not name the server: {answer}"))?.clone_into(told);
        }
        Ok(told)
    }

    /// Calls `echo` of the bad server, which works for both clients.
    pub async fn echoes(&self) -> Result<()> {
        for answer in self.call("echo", &json!({"text": "as told"})).await? {
            anyhow::ensure!(text_of(&answer) == "as told", "{answer}");
        }
        Ok(())
    }

    /// Drives `work`, and calls the good server and a built-in tool again and again until it is done, but once at least.
    pub async fn while_others_answer<T>(&self, work: impl Future<Output = T>) -> Result<T> {
        let others = Box::pin(async {
            loop {
                self.others_answer().await?;
            }
        });
        let mut work = Box::pin(work);
        let done = tokio::select! {
            done = &mut work => done,
            failed = others => return failed,
        };
        Box::pin(self.others_answer()).await?;
        Ok(done)
    }

    /// The good server and a built-in tool answer within normal time.
    pub async fn others_answer(&self) -> Result<()> {
        let began = Instant::now();
        let echo = self.legacy.call("good__echo", json!({"text": "still here"}));
        let (echo, goals) = tokio::try_join!(echo, self.modern.call("list_goals", json!({})))?;
        let took = began.elapsed();
        anyhow::ensure!(text_of(&echo) == "still here", "{echo}");
        anyhow::ensure!(goals.get("isError") != Some(&json!(true)), "{goals}");
        anyhow::ensure!(took < NORMAL, "the others took {took:?}");
        Ok(())
    }

    /// Requests to the bad server of `method` that ended with `error`; empty for those that ended well.
    pub async fn requests(&self, method: &str, error: &str) -> Result<f64> {
        let sample = format!(
            "mcp_client_operation_duration_seconds_count{{error_type=\"{error}\",mcp_method_name=\"{method}\",\
             network_transport=\"{}\",upstream=\"bad\"}}",
            self.transport
        );
        self.gateway.metric(&sample).await
    }

    /// Open connections to the bad server.
    pub async fn up(&self) -> Result<f64> {
        self.gateway.metric("moongate_upstream_up{upstream=\"bad\"}").await
    }

    /// How often a connection to the bad server was lost.
    pub async fn restarts(&self) -> Result<f64> {
        self.gateway.metric("moongate_upstream_restarts_total{upstream=\"bad\"}").await
    }

    /// What `moongate doctor` reads of the bad server, once it shows this state (one of those that `|` separates) and, in the
    /// last error, these words; empty for no error. Of the good server it shows nothing but that it is up.
    pub async fn doctor_shows(&self, state: &str, error: &str) -> Result<Value> {
        let mut shown = Value::Null;
        let waiting = eventually("the doctor to show it", async || {
            shown = self.upstream("bad").await?;
            let told = shown.get("last_error").and_then(Value::as_str).unwrap_or_default();
            let right = if error.is_empty() { told.is_empty() } else { told.contains(error) };
            let now = shown.get("state").and_then(Value::as_str).unwrap_or_default();
            Ok((right && state.split('|').any(|state| state == now)).then_some(()))
        });
        Box::pin(waiting).await.with_context(|| format!("{state}, {error:?}: {shown}"))?;
        let good = self.upstream("good").await?;
        anyhow::ensure!(good.get("state") == Some(&json!("up")), "{good}");
        anyhow::ensure!(good.get("last_error") == Some(&Value::Null), "{good}");
        Ok(shown)
    }

    /// The same, with a note about what was overlooked.
    pub async fn doctor_notes(&self, state: &str, error: &str, note: &str) -> Result<()> {
        let shown = self.doctor_shows(state, error).await?;
        let notes = shown.get("notes").and_then(Value::as_array).into_iter().flatten();
        anyhow::ensure!(
            notes.filter_map(Value::as_str).any(|text| text.ends_with(note)),
            "no note of {note}: {shown}"
        );
        Ok(())
    }

    /// The last error of the bad server that is shown now; empty for none.
    pub async fn last_error(&self) -> Result<String> {
        let shown = self.upstream("bad").await?;
        Ok(shown.get("last_error").and_then(Value::as_str).unwrap_or_default().to_owned())
    }

    /// What `moongate doctor` itself prints, which finds something `wrong` or not.
    pub async fn doctor(&self, wrong: bool) -> Result<String> {
        let output = self.gateway.home().run(&["doctor"]).await?;
        let text = String::from_utf8(output.stdout)?;
        anyhow::ensure!(output.status.code() == Some(i32::from(wrong)), "{:?}: {text}", output.status);
        Ok(text)
    }

    /// Whether the bad server is a process.
    pub fn is_process(&self) -> bool {
        self.transport == "pipe"
    }

    async fn upstream(&self, name: &str) -> Result<Value> {
        let admin = self.gateway.admin_client()?.with_token(&self.gateway.token()?);
        let all = admin.get("/api/v1/upstreams").send().await?.json()?;
        let named = |upstream: &&Value| upstream.get("name") == Some(&json!(name));
        let found = all.as_array().into_iter().flatten().find(named);
        found.cloned().with_context(|| format!("{name} is not shown: {all}"))
    }

    /// Everybody else is still served, and no process is left however the gateway ends.
    pub async fn close(mut self, signal: Signal) -> Result<()> {
        Box::pin(self.others_answer()).await?;
        let pid = self.gateway.process().pid();
        let more = peak(pid)?.saturating_sub(self.before);
        anyhow::ensure!(more < BOUND, "the gateway has grown by {} KiB", more >> 10);
        let family = Family::of(pid)?;
        anyhow::ensure!(family.len() >= 2, "the good server and its supervisor run: {family:?}");
        self.gateway.signal(signal)?;
        self.gateway.wait(PATIENCE).await?;
        family.gone(AFTER_A_KILL).await
    }
}

/// The response, which must be the only one and the last thing that is said.
async fn only_response(mut stream: EventStream) -> Result<Value> {
    let kind = stream.headers.get("content-type").and_then(|value| value.to_str().ok());
    if !kind.is_some_and(|kind| kind.starts_with("text/event-stream")) {
        return stream
            .body_json()
            .await?
            .with_context(|| format!("status {}, and no response", stream.status));
    }
    let mut responses = Vec::new();
    while let Some(message) = stream.message().await? {
        if message.get("method").is_none() {
            responses.push(message);
        }
    }
    anyhow::ensure!(responses.len() == 1, "one response, not {responses:?}");
    responses.pop().context("there is one")
}

/// Tells `story` in each of `places`, with a server that misbehaves by `how` and has more lines of configuration. The
/// gateway ends now by being told, now by being killed.
pub async fn play(
    places: &[Place],
    how: &[&str],
    more: &str,
    story: impl AsyncFn(&Scene) -> Result<()>,
) -> Result<()> {
    for (place, signal) in places.iter().zip([Signal::TERM, Signal::KILL].into_iter().cycle()) {
        play_with(Bad::new(*place, how, more).await?, signal, &story)
            .await
            .with_context(|| format!("{place:?}"))?;
    }
    Ok(())
}

/// Tells `story` of `bad`, and ends the gateway by `signal`.
pub async fn play_with(bad: Bad, signal: Signal, story: impl AsyncFn(&Scene) -> Result<()>) -> Result<()> {
    let scene = Scene::open(bad).await?;
    if let Err(error) = story(&scene).await {
        let text = scene.gateway.metrics().await?;
        let shown = text.lines().filter(|line| line.contains("\"bad\"") && !line.contains("_bucket"));
        return Err(error.context(shown.collect::<Vec<_>>().join("\n")));
    }
    scene.close(signal).await
}
