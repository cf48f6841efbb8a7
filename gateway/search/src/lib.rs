//! Finds words in texts of any language: tokens, ranking, snippets. No I/O.
//!
//! ```text
//! text ─chunk→ ten lines ─tokens→ terms ─index→ BM25 by chunk ─library→ hits with snippets
//! ```
//!
//! [`Library`] is all a caller needs: it keeps the terms of its documents and never their texts, which the caller hands
//! in for the few documents a search asks for. The modules below it can be used on their own.

pub mod chunk;
mod fold;
pub mod index;
mod library;
pub mod snippet;
pub mod tokens;

pub use chunk::LineRange;
pub use index::Index;
pub use library::{Finding, Hit, LITERAL_BYTES, Library};
