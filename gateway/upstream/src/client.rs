//! The client's half of MCP towards one server: eras, handshakes, calls, and what the server says by itself.
//!
//! ```text
//! Dial ─ handshake ─→ Connection ─ call ─→ Reply
//!                         ╰─ hearing: changes to the catalog, questions to the call they belong to
//! ```
//! A [`Connection`] speaks to a server of either era over any transport and answers in the plain form of the seam, so that
//! whoever uses it knows neither. Who shares a connection, and when there is one, is left to [`crate::server`].

mod asking;
mod call;
mod connection;
mod declared;
mod envelope;
mod handshake;
mod hearing;
mod mailbox;
mod naming;
mod refusal;
mod relay;
mod roots;
mod subscriptions;
mod task;

pub(crate) use connection::{Connection, Request};
pub(crate) use declared::{Declared, other_extensions};
pub use handshake::EraChoice;
pub(crate) use handshake::{Verdict, Ways, connect, contradicts, probe};
pub(crate) use hearing::{Hearing, News, Open};
pub(crate) use refusal::{Failure, quoted};
pub(crate) use roots::{Book, Roots, listed as listed_roots};
pub(crate) use task::{only_runs_as_task, with_extension};

#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tests read better with values as they are written")]
mod tests;
