//! Write-only sinks: what happened leaves the process as metrics and log lines, and nothing here decides anything.
//!
//! [`Metrics`] is built once and handed down; the request path holds resolved handles ([`Operation`], [`Gauge`],
//! [`Counter`]), so that counting needs no label lookup. [`log`] writes to standard error only: standard output
//! belongs to the stdio transport.

pub mod error;
pub mod log;
pub mod metrics;
pub mod operation;
pub mod upstream;

pub use error::Error;
pub use metrics::{Counter, Gauge, Held, Metrics, ReloadOutcome};
pub use operation::{ErrorType, Operation, Transport};
pub use upstream::Upstream;
