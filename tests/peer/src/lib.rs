//! A scripted MCP server to stand behind the gateway: it speaks one protocol version and notes every breach of it.
//!
//! `script` is the server itself, a state machine: a message in, effects out. `rules` and the files beside it know what
//! a client of each version may send; `stdio` and `http` are thin shells that carry messages. Nothing is shared with the
//! product, not even its types: a test double must not have the product's bugs.
#![expect(
    clippy::indexing_slicing,
    reason = "a member that a JSON value lacks reads as null, and the rules say so"
)]

mod answers;
mod ask;
mod breaches;
mod call;
mod chaos;
mod headers;
pub mod http;
mod methods;
mod offer;
mod rules;
mod script;
pub mod stdio;
mod tasks;
mod tools;
mod version;

pub use self::{
    breaches::Breaches,
    chaos::{Chaos, Misbehaviour},
    headers::Headers,
    script::{Effect, Script, Setup, Stream, Transport},
    version::Version,
};
