//! Servers that are child processes and speak MCP on their standard streams.
//!
//! In: a [`Spec`], which says what to run. Out: a [`Launcher`], which starts it under a supervisor each time it is dialled,
//! and its connection. When to start one, to share it, to start it again or to stop it is left to the client above.
//!
//! ```text
//! spec ─spawn→ moongate_launch (our program again, as supervisor) ─exec→ command
//!                                                                │ stdin, stdout, stderr
//! exchange ←pending─ pipe (a reader, a writer) ──────────────────┤
//! diagnosis ←ring────────────────────────────────────────────────┘     attend: the end, in order
//! ```

mod attend;
mod connection;
mod lines;
mod pending;
mod pipe;
mod ring;
mod spawn;

use std::{fmt, path::PathBuf, sync::Arc};

use moongate_core::{BoxFuture, task::Group};
use moongate_launch::Limits;
use zeroize::Zeroizing;

use crate::transport::{Dial, Fault, Inbound, Transport, Way};

/// How long a message of a server may be, unless something else is said. Results with images have megabytes.
pub const MAX_MESSAGE: usize = 16 << 20;

/// What to run, and how.
#[derive(Clone, Debug)]
pub struct Spec {
    /// The upstream's name in logs.
    pub name: Arc<str>,
    /// A program in `PATH`, or the path of one; a relative path begins at `cwd`.
    pub command: String,
    /// Its arguments. They can be seen in every list of processes.
    pub args: Vec<String>,
    /// Texts that are masked in what it writes to standard error beside the values of `env`, such as arguments that came
    /// from a secret.
    pub secrets: Vec<Secret>,
    /// Variables it is given. Their values are masked in what it writes to standard error.
    pub env: Vec<(String, Secret)>,
    /// Variables of ours that it is given beside those every program gets. The value of one whose name tells of a secret
    /// is masked like those of `env`.
    pub inherit_env: Vec<String>,
    /// Where it runs; else where we do.
    pub cwd: Option<PathBuf>,
    /// What it may use.
    pub limits: Limits,
    /// How many bytes a message of it may have.
    pub max_message: usize,
    /// Our own executable, whose `main` asks [`moongate_launch::launched`] first.
    pub launcher: PathBuf,
}

impl Spec {
    /// Runs `command` without arguments and limits, in the environment every program gets.
    pub fn new(name: impl Into<Arc<str>>, command: impl Into<String>, launcher: impl Into<PathBuf>) -> Self {
        Self {
            name: name.into(),
            command: command.into(),
            args: Vec::new(),
            secrets: Vec::new(),
            env: Vec::new(),
            inherit_env: Vec::new(),
            cwd: None,
            limits: Limits::default(),
            max_message: MAX_MESSAGE,
            launcher: launcher.into(),
        }
    }
}

/// The value of a variable, which is never shown: `Debug` prints `***`, and the memory is wiped when it is dropped.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Zeroizing<String>);

impl Secret {
    /// Hides `text`.
    pub fn new(text: impl Into<String>) -> Self {
        Self(Zeroizing::new(text.into()))
    }

    fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Starts processes of one [`Spec`].
#[derive(Debug)]
pub struct Launcher {
    spec: Spec,
    tasks: Group,
}

impl Launcher {
    /// Will run what `spec` says; `tasks` own what reads and writes its pipes, and when they are cancelled it is killed.
    pub fn new(spec: Spec, tasks: Group) -> Self {
        Self { spec, tasks }
    }
}

impl Dial for Launcher {
    fn dial(&self, inbound: Arc<dyn Inbound>) -> BoxFuture<'_, Result<Arc<dyn Transport>, Fault>> {
        Box::pin(async move {
            let started = spawn::spawn(&self.spec).await?;
            Ok(connection::connect(&self.spec, started, inbound, &self.tasks))
        })
    }

    fn way(&self) -> Way {
        Way::Pipe
    }
}
