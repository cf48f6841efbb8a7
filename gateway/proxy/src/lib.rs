//! The request path, in reading order: an edge reads a frame, the gate admits its sender, the engine finds session,
//! context and route, a backend answers, and the answer goes back shaped for the client's version.
//!
//! What each crate behind it knows is in its own first lines; this one knows both eras, and nothing of what a tool does.

pub mod catalog;
pub mod context;
pub mod edge;
pub mod engine;
pub mod fingerprint;
pub mod gateway;
pub mod hub;
pub mod job;
mod legacy;
pub mod list;
pub mod listen;
mod modern;
mod observed;
pub mod parked;
pub mod session;
pub mod shape;
pub mod stream;
pub mod tally;
mod target;
pub mod view;

pub use catalog::{Catalog, Member};
pub use gateway::{Gateway, Parts, Snapshot};
