//! What must survive and what may be lost, as two traits.
//!
//! [`Store`] keeps rows on disk: it answers after the write is durable. [`State`] keeps sessions, event logs, rate
//! counts and volatile documents: a restart forgets them. Both are addressed only by keys that come from a caller's
//! context, so isolation does not depend on anybody remembering to filter. [`memory::MemoryState`] is the State of a
//! single process; the embedded Store is its own crate.

pub mod document;
pub mod error;
pub mod memory;
pub mod state;
pub mod store;

pub use document::{Document, Documents, Plain};
pub use error::Error;
pub use memory::{Eviction, MemoryOptions, MemoryState};
pub use state::{Entry, EventId, Note, Quota, Rate, SessionRecord, State, StreamId, To};
pub use store::{Batch, Kind, Put, Renewal, Revision, Row, Rows, Store, Stores, Summary};
