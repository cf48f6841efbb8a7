//! JSON-RPC and MCP as data: no I/O, no clock, no runtime.
//!
//! In: bytes of one frame, and the few headers that repeat parts of it. Out: typed messages whose arguments and
//! results stay text ([`Raw`]), the decisions that follow from them ([`era`], [`ladder`]), edits of that text
//! ([`edit`]), and the bytes of answers.
//! Everything here is a pure function of its input, so it is tested by tables and fuzzed.

pub mod body;
pub mod edit;
pub mod era;
pub mod error;
pub mod frame;
pub mod header;
pub mod id;
pub mod ladder;
pub mod method;
mod outline;
pub mod params;
pub mod raw;
pub mod scan;
mod stack;
pub mod version;
mod walk;
pub mod write;

pub use error::{Refusal, RpcError, code};
pub use frame::{Frame, Malformed, Message, Notification, Outcome, Request, Response};
pub use id::Id;
pub use method::Method;
pub use params::{Meta, Mistyped, Params};
pub use raw::Raw;
pub use version::{Era, Version};
