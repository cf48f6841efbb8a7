//! What the program trusts: every value parsed, every name resolved, every default filled in.

use std::collections::BTreeMap;

use self::{
    admin::Admin,
    backends::{Backends, Storage},
    context::{Context, Sessions},
    routing::{Profile, Route},
    security::Security,
    server::{Directories, Server},
    telemetry::Telemetry,
};

pub(crate) mod admin;
pub(crate) mod backends;
pub(crate) mod context;
pub(crate) mod routing;
pub(crate) mod security;
pub(crate) mod server;
pub(crate) mod telemetry;

/// A whole configuration.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// The gateway listener.
    pub server: Server,
    /// The admin listener.
    pub admin: Admin,
    /// Transport sessions.
    pub sessions: Sessions,
    /// Where the context of a call comes from and how long state lives.
    pub context: Context,
    /// Who may do what, and how often.
    pub security: Security,
    /// Exceptions to "every tool goes to its own backend", first match wins.
    pub routes: Vec<Route>,
    /// Named subsets, by the name in their path `/mcp/{profile}`.
    pub profiles: BTreeMap<String, Profile>,
    /// The built-in backends.
    pub backends: Backends,
    /// Where durable data lies.
    pub storage: Storage,
    /// Logs.
    pub telemetry: Telemetry,
}

impl Config {
    /// What an empty file means to the user with these directories.
    pub fn defaults(directories: &Directories) -> Self {
        Self {
            server: Server::default(),
            admin: Admin::default(),
            sessions: Sessions::default(),
            context: Context::default(),
            security: Security::defaults(directories),
            routes: Vec::new(),
            profiles: BTreeMap::new(),
            backends: Backends::default(),
            storage: Storage::defaults(directories),
            telemetry: Telemetry::default(),
        }
    }
}

/// The defaults for a process without a home: its files lie in `.moongate`. Meant for tests; the program loads an empty
/// text instead, which asks the environment where the user's directories are.
impl Default for Config {
    fn default() -> Self {
        Self::defaults(&Directories::default())
    }
}
