//! The workspace over the wire: commands, their processes, and that nothing gets out or stays behind.
#![cfg(target_os = "linux")]

#[cfg(test)]
#[path = "workspace/confined.rs"]
mod confined;
#[cfg(test)]
#[path = "workspace/limits.rs"]
mod limits;
#[cfg(test)]
#[path = "workspace/lives.rs"]
mod lives;
#[cfg(test)]
#[path = "workspace/missing.rs"]
mod missing;
#[cfg(test)]
#[path = "workspace/refusals.rs"]
mod refusals;
#[cfg(test)]
#[path = "workspace/sessions.rs"]
mod sessions;
#[cfg(test)]
#[path = "workspace/support.rs"]
mod support;
#[cfg(test)]
#[path = "workspace/tools.rs"]
mod tools;
