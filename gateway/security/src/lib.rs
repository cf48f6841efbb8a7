//! A request becomes [`Admitted`], or a refusal.
//!
//! In: what a connection and a request head say about the caller ([`Knock`]). Out: who it is and what it may do
//! ([`Admitted`]), or why not, ready to be answered ([`Denied`]). An `Admitted` can be made by [`Gate`] alone, so a
//! route that skips the gate does not compile. [`policy::decide`] then says, for each thing that can be named, whether
//! this caller may see or use it.
//!
//! ```text
//! Knock ─origin→ Host, Origin ─authenticator→ Identity ─limit→ Admitted ─policy→ Allow | Hidden | NeedsScope
//! ```
//!
//! Nothing here reads the configuration file, parses a body or writes an answer.

pub mod address;
pub mod authenticator;
pub mod denied;
pub mod digest;
pub mod error;
pub mod gate;
pub mod headers;
pub mod keyring;
pub mod knock;
pub mod limit;
pub mod origin;
pub mod policy;
pub mod proxy;
pub mod secret;
pub mod token;

pub use authenticator::{Authenticator, Credentials, Flaw, Identity, LocalToken, Verdict};
pub use denied::{Denied, Reason};
pub use error::Error;
pub use gate::{Admitted, Gate, Settings};
pub use headers::{Head, Headers};
pub use keyring::{Keyring, Purpose, SealError};
pub use knock::{Conn, Knock, Said, Shown};
pub use origin::{Authority, Origin};
pub use secret::{Secret, TokenFile, Warning};
pub use token::{Claims, Issued, IssuedTokens};
