//! Child processes, with the real supervisor: small scripts as servers, and whatever can go wrong with them.
#![cfg(target_os = "linux")]

#[cfg(test)]
#[path = "process/ends.rs"]
mod ends;
#[cfg(test)]
#[path = "process/limits.rs"]
mod limits;
#[cfg(test)]
#[path = "process/support.rs"]
mod support;
#[cfg(test)]
#[path = "process/talk.rs"]
mod talk;
