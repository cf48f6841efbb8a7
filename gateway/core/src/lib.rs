//! The seam where every crate meets.
//!
//! A call arrives as a [`Call`] with a [`Context`] at a [`Backend`], which answers with a [`Reply`] or a [`CallError`].
//! On the way it may report progress, log and ask the client through the context's [`Peer`]; what happens outside a
//! call leaves by [`Changes`]. Everything that crosses the seam is plain data; nothing here knows HTTP, stdio, eras or
//! the configuration file.

pub mod abilities;
pub mod address;
pub mod arguments;
pub mod backend;
pub mod builtin;
pub mod call;
pub mod changes;
pub mod clock;
pub mod context;
pub mod error;
pub mod hash;
pub mod html;
pub mod offer;
pub mod peer;
pub mod principal;
pub mod schema;
pub mod scope;
pub mod soon;
pub mod task;

pub use abilities::{Abilities, TASKS};
pub use backend::Backend;
pub use builtin::{Builtin, Resources};
pub use call::{Call, Operation, Reply, TaskAct};
pub use changes::{Announcement, Audience, Change, Changes};
pub use clock::Clock;
pub use context::{Client, Context, ContextIds, SessionKey, StateKey, StoreScope};
pub use error::{CallError, Kind, Side};
pub use futures_core::future::BoxFuture;
pub use moongate_wire::{Id, Raw, RpcError, Version};
pub use offer::{Offer, Prompt, Resource, ResourcePage, Template, Tool};
pub use peer::{Answer, Ask, Level, Note, Peer};
pub use principal::Principal;
pub use scope::{Scope, Scopes};
pub use soon::Soon;
