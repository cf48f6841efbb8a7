//! Servers as backends, in front of a server in memory.

mod calling;
mod connecting;
mod offering;
mod pooling;
mod probing;
mod reading;
mod roots;
mod sharing;

use std::{
    sync::{Arc, Mutex},
    time::{Duration, SystemTime},
};

use moongate_core::{
    Announcement, Audience, Backend as _, Call, CallError, Change, Changes, Clock, Context, Offer, Operation,
    Principal, Raw, Scope, SessionKey, Version, clock::ClockHandle, task::Group,
};
use moongate_telemetry::{Metrics, Transport};
use serde_json::{Value, json};
use tokio::sync::watch;

use super::*;
use crate::{
    testing::{
        Caller, Dialled, Fake, Got, React, Shelf, discovered, greeting, note, refused, settle, soon, value,
    },
    transport::{Fault, Way},
};

/// A server under test, and everything around it.
struct Setup {
    fake: Arc<Fake>,
    server: Arc<Server>,
    shelf: Arc<Shelf>,
    announcements: Arc<Mutex<Vec<Announcement>>>,
    changed: watch::Sender<()>,
    clock: ClockHandle,
}

impl Setup {
    fn new(fake: Arc<Fake>) -> Self {
        Self::with(fake, |_| {})
    }

    fn with(fake: Arc<Fake>, adjust: impl FnOnce(&mut Settings)) -> Self {
        Self::on(Arc::default(), fake, adjust)
    }

    /// With what an earlier run remembered.
    fn on(shelf: Arc<Shelf>, fake: Arc<Fake>, adjust: impl FnOnce(&mut Settings)) -> Self {
        Self::old(shelf, fake, None, adjust)
    }

    fn old(
        shelf: Arc<Shelf>,
        fake: Arc<Fake>,
        old: Option<Arc<Fake>>,
        adjust: impl FnOnce(&mut Settings),
    ) -> Self {
        let mut settings = Settings {
            name: "git".into(),
            era: EraChoice::Auto,
            share: Share::Principal,
            scope: Scope::write(),
            roots: None,
            idle_timeout: None,
            max_processes: NonZeroUsize::new(4).unwrap(),
            list_timeout: Duration::from_secs(10),
            instructions: true,
            extensions: false,
        };
        adjust(&mut settings);
        let (clock, handle) = Clock::settable(SystemTime::UNIX_EPOCH + Duration::from_hours(1_000_000));
        let announcements = Arc::<Mutex<Vec<Announcement>>>::default();
        let changed = watch::Sender::new(());
        let (log, bell) = (Arc::clone(&announcements), changed.clone());
        let parts = Parts {
            reach: Reach {
                main: Arc::new(Dialled(Arc::clone(&fake))),
                old: old.map(|old| Arc::new(Dialled(old)) as Arc<dyn Dial>),
            },
            store: StoreHandle(Arc::clone(&shelf) as Arc<dyn Store>),
            changes: Changes::new(move |change| {
                log.lock().unwrap().push(change);
                bell.send_replace(());
            }),
            clock,
            metrics: Metrics::new().upstream("git", Transport::Pipe),
            fingerprint: "f".to_owned(),
            tasks: Group::new(),
        };
        let server = Arc::new(Server::new(settings, parts));
        Self { fake, server, shelf, announcements, changed, clock: handle }
    }

    /// What was announced since this was last asked.
    fn changes(&self) -> Vec<Change> {
        let all = std::mem::take(&mut *self.announcements.lock().unwrap());
        all.into_iter().map(|announcement| announcement.change).collect()
    }

    /// Resolves when something was announced, with whom it concerns.
    async fn announced(&self, change: Change) -> Audience {
        let mut changed = self.changed.subscribe();
        soon(async {
            loop {
                let found = {
                    let all = self.announcements.lock().unwrap();
                    all.iter().find(|told| told.change == change).map(|told| told.audience.clone())
                };
                match found {
                    Some(audience) => return audience,
                    None => changed.changed().await.unwrap(),
                }
            }
        })
        .await
    }

    async fn offer(&self, cx: &Context) -> Arc<Offer> {
        soon(self.server.offer(cx)).await
    }

    /// Asks what is offered, in a task.
    fn begin_offer(&self, cx: &Context) -> tokio::sync::oneshot::Receiver<Arc<Offer>> {
        let (sender, outcome) = tokio::sync::oneshot::channel();
        let (server, cx) = (Arc::clone(&self.server), cx.clone());
        Group::new().spawn(async move { drop(sender.send(server.offer(&cx).await)) });
        outcome
    }

    /// Calls the tool `t`.
    async fn call(&self, cx: &Context) -> Result<Value, CallError> {
        self.perform(tool(), cx).await
    }

    async fn perform(&self, operation: Operation, cx: &Context) -> Result<Value, CallError> {
        let reply = soon(self.server.call(Call::new(operation), cx)).await;
        reply.map(|reply| value(&reply.result))
    }

    /// Calls in a task.
    fn begin(
        &self,
        operation: Operation,
        cx: &Context,
    ) -> tokio::sync::oneshot::Receiver<Result<Value, CallError>> {
        self.begin_call(Call::new(operation), cx)
    }

    fn begin_call(
        &self,
        call: Call,
        cx: &Context,
    ) -> tokio::sync::oneshot::Receiver<Result<Value, CallError>> {
        let (sender, outcome) = tokio::sync::oneshot::channel();
        let (server, cx) = (Arc::clone(&self.server), cx.clone());
        Group::new().spawn(async move {
            let reply = server.call(call, &cx).await;
            drop(sender.send(reply.map(|reply| value(&reply.result))));
        });
        outcome
    }
}

fn tool() -> Operation {
    Operation::CallTool { name: "t".into(), arguments: Raw::of(&json!({"x": 1})) }
}

fn read() -> Operation {
    Operation::ReadResource { uri: "x://1".into() }
}

fn subscribe() -> Operation {
    Operation::Subscribe { uri: "x://1".into() }
}

fn unsubscribe() -> Operation {
    Operation::Unsubscribe { uri: "x://1".into() }
}

/// A client of `version` that declared these, in the transport session `session`.
fn client(version: Version, capabilities: Value, session: &str) -> Context {
    let mut cx = Caller::willing().context(version, capabilities);
    cx.ids.session = session.into();
    cx.transport_session = Some(session.into());
    cx
}

/// A client that can do nothing.
fn bare() -> Context {
    client(Version::V2025_11_25, json!({}), "s")
}

fn session(cx: &Context) -> SessionKey {
    SessionKey { principal: cx.principal.clone(), session: cx.transport_session.clone().unwrap() }
}

fn tools(names: &[&str]) -> React {
    let tools: Vec<_> =
        names.iter().map(|name| json!({"name": name, "inputSchema": {"type": "object"}})).collect();
    React::Result(json!({"tools": tools}))
}

fn names(offer: &Arc<Offer>) -> Vec<&str> {
    offer.tools.iter().map(|tool| &*tool.name).collect()
}

/// A legacy server with one tool that answers every call.
fn legacy(way: Way) -> Arc<Fake> {
    legacy_but(way, |_| None)
}

/// The same, but for what `rule` does.
fn legacy_but(way: Way, rule: impl Fn(&Got) -> Option<React> + Send + Sync + 'static) -> Arc<Fake> {
    Fake::new(way, move |got| {
        rule(got).unwrap_or_else(|| match got.method {
            "initialize" => greeting("2025-11-25", json!({"tools": {}, "resources": {"subscribe": true}})),
            "tools/list" => tools(&["t"]),
            "resources/list" => React::Result(json!({"resources": []})),
            "tools/call" => {
                React::Result(json!({"content": [{"type": "text", "text": got.line.to_string()}]}))
            }
            "resources/read" => React::Result(json!({"contents": []})),
            "resources/subscribe" | "resources/unsubscribe" => React::Result(json!({})),
            _ => refused(-32601, "no such method"),
        })
    })
}

/// A modern server with one tool that answers every call.
fn modern(way: Way) -> Arc<Fake> {
    modern_but(way, |_| None)
}

fn modern_but(way: Way, rule: impl Fn(&Got) -> Option<React> + Send + Sync + 'static) -> Arc<Fake> {
    Fake::new(way, move |got| {
        rule(got).unwrap_or_else(|| match got.method {
            "server/discover" => discovered(json!({"tools": {}})),
            "tools/list" => tools(&["t"]),
            "tools/call" => React::Result(json!({"resultType": "complete", "content": []})),
            _ => refused(-32601, "no such method"),
        })
    })
}

/// The text of a tool's result, which names the connection it came by.
fn line(result: Result<Value, CallError>) -> usize {
    result.unwrap()["content"][0]["text"].as_str().unwrap().parse().unwrap()
}
