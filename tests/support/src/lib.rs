//! Starts the real binary and talks to it, for every other test crate.
//!
//! Nothing here links the gateway: what a test sees is what a client on the network or on a pipe sees. Everything is
//! loopback, every port is ephemeral and all state lives in a temporary directory.
//!
//! ```no_run
//! # async fn example() -> anyhow::Result<()> {
//! use moongate_test_support::{Gateway, LegacySession};
//! use serde_json::json;
//!
//! let gateway = Gateway::start("").await?;
//! let session = LegacySession::open(&gateway.client(), "2025-11-25").await?;
//! let reply = session.call("create_goal", json!({"goal": "ship"})).await?;
//! assert_eq!(reply["isError"], json!(false));
//! # Ok(())
//! # }
//! ```
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the test says so"
)]

mod answers;
mod connection;
mod gateway;
mod home;
mod http;
mod legacy;
mod message;
mod modern;
mod output;
mod peer;
mod process;
mod sse;
mod stdio;
mod tcp;

pub use self::{
    answers::Answers,
    connection::{Connection, Protocol},
    gateway::{Builder, Gateway},
    home::Home,
    http::{Answer, Client, Request},
    legacy::LegacySession,
    message::Outcome,
    modern::{Modern, ModernClient, header_value},
    output::Output,
    peer::Peer,
    process::Process,
    sse::{Event, EventStream, Parser},
    stdio::{Framing, Stdio},
    tcp::RawTcp,
};

use std::{future::Future, time::Duration};

use anyhow::Context as _;
use tokio::time::Instant;

/// How long any single wait of a test may take before the test fails. Long, because the machine may be busy.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// Between two looks: often enough for no test to be slow, seldom enough to leave the machine to the others.
const BEAT: Duration = Duration::from_millis(20);

/// Waits for `future`, and fails naming `what` when it takes longer than [`PATIENCE`].
pub async fn patiently<T>(what: &str, future: impl Future<Output = T>) -> anyhow::Result<T> {
    tokio::time::timeout(PATIENCE, future).await.with_context(|| format!("waited {PATIENCE:?} for {what}"))
}

/// Looks again and again until `look` finds something, for what can only be looked at and not listened to; fails naming
/// `what` when it takes longer than [`PATIENCE`].
pub async fn eventually<T>(
    what: &str,
    mut look: impl AsyncFnMut() -> anyhow::Result<Option<T>>,
) -> anyhow::Result<T> {
    let (deadline, mut beat) = (Instant::now() + PATIENCE, tokio::time::interval(BEAT));
    loop {
        beat.tick().await;
        if let Some(found) = look().await? {
            return Ok(found);
        }
        anyhow::ensure!(Instant::now() < deadline, "waited {PATIENCE:?} for {what}");
    }
}
