//! What the admin pages show, as the running process sees it.

use serde::Serialize;

/// The running process, seen from outside.
pub trait View: Send + Sync + 'static {
    /// The metrics page in Prometheus' text format. May take milliseconds; called where blocking is allowed.
    fn metrics(&self) -> String;

    /// Whether new work may be sent here. Must not block.
    fn readiness(&self) -> Readiness;
}

/// Whether the process takes work, and why not.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Readiness {
    /// Whether it does.
    pub ready: bool,
    /// What is wrong, the outcome of the last reload, the state of what is behind it. Never a secret.
    pub details: serde_json::Value,
}
