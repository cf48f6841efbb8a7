//! Connections to a server in memory, and calls through them.

mod asking;
mod calling;
mod listening;
mod relaying;
mod rounds;
mod tasks;

use std::sync::{Arc, Mutex};

use moongate_core::{CallError, Client, Context, Raw, Reply, Version, task::Group};
use serde_json::{Value, json};

use super::*;
use crate::{
    testing::{Caller, Dialled, Fake, Got, React, discovered, greeting, refused, soon, value},
    transport::Way,
};

/// Everything that a client is asked can be answered.
fn everything() -> Value {
    json!({"sampling": {}, "elicitation": {"form": {}, "url": {}}, "roots": {}})
}

/// A connection, and the server behind it.
struct Line {
    fake: Arc<Fake>,
    connection: Arc<Connection>,
    news: Arc<Mutex<Vec<News>>>,
    tasks: Group,
}

impl Line {
    /// Connects with everything declared.
    async fn to(fake: Arc<Fake>) -> Self {
        Self::declaring(fake, everything(), None).await
    }

    async fn declaring(fake: Arc<Fake>, capabilities: Value, roots: Option<Raw>) -> Self {
        let client = Client { capabilities: Raw::of(&capabilities), ..Client::bare(Version::V2025_11_25) };
        let (abilities, news, tasks) =
            (Declared::of(&client), Arc::<Mutex<Vec<News>>>::default(), Group::new());
        let hearing = || {
            let told = Arc::clone(&news);
            let open = Open { fixed: roots.clone(), asked: abilities.roots, ..Open::default() };
            Hearing::new("git".into(), open, tasks.clone(), move |news| {
                told.lock().unwrap().push(news);
            })
            .at("here")
        };
        let way = Dialled(Arc::clone(&fake));
        let ways = Ways { main: &way, old: None };
        let (connection, _) = connect(ways, None, &abilities, hearing, &tasks).await.unwrap();
        Self { fake, connection, news, tasks }
    }

    /// Calls the tool `t` in a task; the outcome can be waited for.
    fn call(&self, cx: &Context) -> Running {
        self.request(Request::own("tools/call", Raw::of(&json!({"name": "t", "arguments": {}}))), cx)
    }

    fn request(&self, ask: Request<'static>, cx: &Context) -> Running {
        let (sender, outcome) = tokio::sync::oneshot::channel();
        let (connection, cx, tasks) = (Arc::clone(&self.connection), cx.clone(), Group::new());
        tasks.spawn(async move {
            let outcome = connection.call("git", &ask, &cx).await;
            // A test may not want to know.
            drop(sender.send(outcome));
        });
        Running { outcome, tasks }
    }

    fn news(&self) -> Vec<News> {
        self.news.lock().unwrap().clone()
    }
}

/// A call under way.
struct Running {
    outcome: tokio::sync::oneshot::Receiver<Result<Reply, Failure>>,
    tasks: Group,
}

impl Running {
    async fn outcome(self) -> Result<Value, Failure> {
        soon(self.outcome).await.unwrap().map(|reply| value(&reply.result))
    }

    async fn result(self) -> Value {
        self.outcome().await.unwrap()
    }

    async fn error(self) -> CallError {
        self.outcome().await.unwrap_err().into_call_error("git")
    }

    /// Drops the call.
    fn cancel(&self) {
        self.tasks.cancel();
    }
}

/// A legacy server; what it is not asked at the handshake is for the test.
fn legacy(way: Way) -> Arc<Fake> {
    legacy_with(way, json!({"tools": {}, "logging": {}, "resources": {"subscribe": true}}))
}

fn legacy_with(way: Way, capabilities: Value) -> Arc<Fake> {
    Fake::new(way, move |got| match got.method {
        "server/discover" => refused(-32601, "no such method"),
        "initialize" => greeting("2025-11-25", capabilities.clone()),
        "logging/setLevel" => React::Result(json!({})),
        _ => React::Hold,
    })
}

/// A modern server; what it is not asked at the handshake is for the test.
fn modern(way: Way, capabilities: Value) -> Arc<Fake> {
    Fake::new(way, move |got| match got.method {
        "server/discover" => discovered(capabilities.clone()),
        _ => React::Hold,
    })
}

fn legacy_client(caller: &Arc<Caller>) -> Context {
    caller.context(Version::V2025_11_25, everything())
}

fn modern_client(caller: &Arc<Caller>) -> Context {
    caller.context(Version::V2026_07_28, everything())
}

/// The requests of one method so far.
fn of_method(fake: &Fake, method: &str) -> Vec<Got> {
    fake.requests().into_iter().filter(|got| got.method == method).collect()
}
