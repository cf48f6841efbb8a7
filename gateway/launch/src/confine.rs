//! Confines a command, and all that it starts, to a directory.
//!
//! Applied by the second step of a start to itself, just before it becomes the command: what a process has given up it
//! cannot give its children. The supervisor stays outside, so that it can always kill. Several things together, because
//! none of them covers all: landlock decides about paths, TCP and signals but not about Unix sockets, UDP, modes, owners
//! and times of files; a filter of system calls decides about those but sees no path; so a view of the file system that is
//! read-only elsewhere lets files be changed in the directory, where there can be one; and without capabilities a root is a
//! user like any other.

#[cfg(target_os = "linux")]
mod calls;
#[cfg(target_os = "linux")]
mod files;
#[cfg(target_os = "linux")]
mod view;

use std::path::PathBuf;

use serde::{Deserialize, Serialize};

/// Where a command is confined to.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    /// Where it may read, write and run what it likes.
    pub directory: PathBuf,
    /// What it may read and run beside the programs and libraries of the system.
    pub readable: Vec<PathBuf>,
    /// Whom it may speak to.
    pub network: Network,
    /// Whether it is not run at all where something of this cannot be enforced.
    pub required: bool,
}

/// Whom a confined command may speak to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum Network {
    /// Nobody.
    #[default]
    None,
    /// Whom it likes over IP, this machine included. It cannot be spoken to over TCP.
    Outbound,
}

/// What came of it, in words.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    /// How it is enforced, where there is more than one way.
    pub(crate) notes: Vec<String>,
    /// What could not be enforced.
    pub(crate) missing: Vec<String>,
}

impl Confinement {
    /// Confines this process for good.
    pub(crate) fn enter(&self) -> Result<Outcome, String> {
        let outcome = self.restrict();
        if self.required && !outcome.missing.is_empty() {
            return Err(format!("the confinement is not complete here: {}", outcome.missing.join("; ")));
        }
        Ok(outcome)
    }

    #[cfg(target_os = "linux")]
    fn restrict(&self) -> Outcome {
        // In this order: each step takes away what those before it need.
        self.restrict_with(view::narrow(&self.directory))
    }

    /// With a view of the file system, or the reason why there is none.
    #[cfg(target_os = "linux")]
    fn restrict_with(&self, view: Result<(), String>) -> Outcome {
        let files = if view.is_ok() { calls::Metadata::Allowed } else { calls::Metadata::Refused };
        let steps = [("capabilities", drop_capabilities()), ("landlock", files::restrict(self))];
        let steps = steps.into_iter().chain([("seccomp", calls::restrict(self.network, files))]);
        let missing = steps.filter_map(|(what, done)| Some(format!("{what}: {}", done.err()?))).collect();
        let note = match view {
            Ok(()) => "in the directory only, by mounts that are read-only elsewhere".to_owned(),
            Err(reason) => format!("not at all, by seccomp ({reason})"),
        };
        Outcome { notes: vec![format!("modes, owners and times of files: changed {note}")], missing }
    }

    #[cfg(not(target_os = "linux"))]
    fn restrict(&self) -> Outcome {
        let missing = vec!["this system has neither landlock nor seccomp".to_owned()];
        Outcome { missing, ..Outcome::default() }
    }
}

/// Gives up every capability, and the way to get one by running a program.
#[cfg(target_os = "linux")]
fn drop_capabilities() -> Result<(), String> {
    use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities, set_no_new_privs};
    let none = CapabilitySet::empty();
    set_no_new_privs(true)
        .and_then(|()| {
            set_capabilities(None, CapabilitySets { effective: none, permitted: none, inheritable: none })
        })
        .map_err(|error| format!("they stay: {error}"))
}

#[cfg(test)]
#[cfg(target_os = "linux")]
mod tests;
