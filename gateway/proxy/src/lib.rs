//! The request path, in reading order: an edge reads a frame, the gate admits its sender, the engine finds session,
//! context and route, a backend answers, and the answer goes back shaped for the client's version.
//!
//! What each crate behind it knows is in its own first lines; this one knows both eras, and nothing of what a tool does.

pub mod catalog;
pub mod context;
pub mod downgrade;
pub mod edge;
pub mod engine;
pub mod extras;
#[cfg(test)]
mod fake;
pub mod fingerprint;
pub mod gateway;
pub mod hub;
pub mod job;
mod learnt;
mod legacy;
pub mod list;
pub mod listen;
pub mod member;
mod modern;
pub mod naming;
mod observed;
mod own;
pub mod parked;
mod returned;
pub mod session;
pub mod shape;
pub mod stream;
pub mod tally;
mod target;
mod tasks;
pub mod trace;
pub mod view;
mod watch;

pub use catalog::Catalog;
pub use gateway::{Gateway, Parts, Snapshot};
pub use member::Member;
pub use naming::Naming;
