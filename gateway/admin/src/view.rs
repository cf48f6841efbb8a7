//! What the admin pages show, as the running process sees it.

use moongate_core::BoxFuture;
use serde::Serialize;

/// The running process, seen from outside.
pub trait View: Send + Sync + 'static {
    /// The metrics page in Prometheus' text format. May take milliseconds; called where blocking is allowed.
    fn metrics(&self) -> String;

    /// Whether new work may be sent here. Must not block.
    fn readiness(&self) -> Readiness;

    /// Whether the holder of `token` may see what only administrators may.
    fn admits<'a>(&'a self, token: &'a str) -> BoxFuture<'a, bool>;

    /// How each server behind the gateway is, with its errors and the end of its standard error. Must not block.
    fn upstreams(&self) -> serde_json::Value;
}

/// Whether the process takes work, and why not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Readiness {
    /// Whether it does.
    pub ready: bool,
    /// What is wrong, the outcome of the last reload, the state of what is behind it. Never a secret.
    pub details: serde_json::Value,
}
