//! What tests of the client's half need: a server in memory that does as it is told, a client that answers by rules, a
//! store, and contexts.
//!
//! Requests that the rule of a [`Fake`] does not answer are held until the test takes them, so that a conversation reads
//! from top to bottom. Everything that arrives is on record. Waiting for what never comes ends with the paused clock.

mod caller;
mod fake;
mod shelf;

use std::{future::Future, time::Duration};

use moongate_wire::{Frame, Message, Raw, RpcError};
use serde_json::{Value, json};

pub(crate) use self::{
    caller::{Caller, Says},
    fake::{Dialled, Fake, Got, Held, React},
    shelf::Shelf,
};

/// Longer than anything that is waited for; passes at once when the clock is paused and nothing happens.
const NEVER: Duration = Duration::from_hours(1);

/// `work`, which must come to an end.
pub(crate) async fn soon<T>(work: impl Future<Output = T>) -> T {
    tokio::time::timeout(NEVER, work).await.expect("it never happened")
}

/// Lets everything happen that can happen without the clock.
pub(crate) async fn settle() {
    for _ in 0..64 {
        tokio::task::yield_now().await;
    }
}

/// A message as a server would write it.
pub(crate) fn message(mut text: Value) -> Message {
    text["jsonrpc"] = json!("2.0");
    match Frame::parse(&Raw::of(&text).into_bytes()) {
        Ok(Frame::One(message)) => message,
        other => panic!("no message: {other:?}"),
    }
}

/// A notification as a server would write it.
pub(crate) fn note(method: &str, params: Value) -> Message {
    message(json!({"method": method, "params": params}))
}

pub(crate) fn value(raw: &Raw) -> Value {
    raw.parse().unwrap()
}

/// A legacy server with these capabilities: its greeting.
pub(crate) fn greeting(version: &str, capabilities: Value) -> React {
    React::Result(json!({
        "protocolVersion": version, "capabilities": capabilities, "serverInfo": {"name": "fake", "version": "1"},
    }))
}

/// A modern server with these capabilities: its answer to `server/discover`.
pub(crate) fn discovered(capabilities: Value) -> React {
    React::Result(json!({
        "resultType": "complete", "supportedVersions": ["2026-07-28"], "capabilities": capabilities,
        "_meta": {"io.modelcontextprotocol/serverInfo": {"name": "fake", "version": "2"}},
    }))
}

pub(crate) fn refused(code: i64, text: &'static str) -> React {
    React::Error(RpcError::new(code, text))
}
