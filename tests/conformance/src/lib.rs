//! Every fixture that the official conformance suite wants from a server, as one backend behind the seam.
//!
//! Written once for all versions of the protocol: questions, progress and logs go through the call's `Peer`, changes of
//! the lists through `Changes`. Names and payloads are those the suite documents. A few tools of our own follow the
//! suite's, for what the suite does not look at: a call that asks twice, one that takes long, an updated resource.

mod completion;
mod content;
mod fixture;
mod prompts;
mod question;
mod resources;
mod tools;

pub use fixture::Fixture;
