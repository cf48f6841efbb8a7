//! Tests over the wire, against the real binary; here is what several of them need.

pub mod caller;
pub mod fixture;
pub mod pipe;
pub mod waiting;

/// No limits on rates, for tests that make more requests than one person would.
pub const UNLIMITED: &str =
    "security: {limits: {per_address: off, per_principal: off, flood: off, calls: off}}\n";
