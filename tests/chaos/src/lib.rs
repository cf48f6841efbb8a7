//! Servers that misbehave, die and change behind the real binary; here is what several of the tests need.
//!
//! What holds in each of them: the caller gets exactly one answer that names the server, everybody else is served as if
//! nothing had happened, memory stays bounded, and no process outlives the gateway.

mod caller;
mod family;
mod scene;
mod waiting;

pub use self::{
    caller::Caller,
    family::Family,
    scene::{Bad, EVERYWHERE, LEGACY, MODERN, PROCESSES, Place, REMOTES, Scene, play, play_with},
    waiting::{peak, text_of},
};
pub use moongate_test_support::eventually;

/// No limits on rates, for tests that make more requests than one person would.
pub const UNLIMITED: &str =
    "security: {limits: {per_address: off, per_principal: off, flood: off, calls: off}}\n";
