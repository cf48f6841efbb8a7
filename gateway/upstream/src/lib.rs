//! Ways to reach a backend.
//!
//! [`BuiltinBackend`] puts a backend that lives in this process behind the same trait as every other, so that the router
//! cannot tell them apart. [`Server`] does that for servers elsewhere: [`process`] starts them as children, [`remote`]
//! reaches them over HTTP, and [`transport`] is the common face of both.

pub mod builtin;
mod client;
mod pending;
pub mod process;
pub mod remote;
mod schema;
pub mod server;
#[cfg(test)]
#[expect(clippy::needless_pass_by_value, reason = "tests read better with values as they are written")]
mod testing;
pub mod transport;

pub use builtin::{BuiltinBackend, NoResources, ToolErrors};
pub use server::Server;
