//! Ways to reach a backend.
//!
//! Today there is one: [`BuiltinBackend`] puts a backend that lives in this process behind the same trait as every
//! other, so that the router cannot tell them apart.

pub mod builtin;
mod schema;

pub use builtin::{BuiltinBackend, ToolErrors};
