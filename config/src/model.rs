//! The two shapes of a configuration.
//!
//! `Raw*` mirrors the file: everything may be absent, every value knows where it stands. [`Config`] is what the program
//! trusts: every value parsed, every name resolved, every default filled in. Each section has both in one file.

use std::{collections::BTreeMap, time::Duration};

use self::{
    admin::{Admin, RawAdmin},
    backends::{Backends, RawBackends, RawStorage, Storage},
    context::{Context, RawContext, RawSessions, Sessions},
    routing::{Cache, Profile, RawProfile, RawRoute, Route},
    security::{RawSecurity, Security},
    server::{Directories, RawServer, Server},
    telemetry::{RawTelemetry, Telemetry},
    upstreams::{RawUpstream, Upstream},
};
use crate::load::{
    declare::section,
    read::{At, Entries, Given},
};

pub(crate) mod admin;
pub(crate) mod backends;
pub(crate) mod context;
pub(crate) mod routing;
pub(crate) mod security;
pub(crate) mod server;
pub(crate) mod telemetry;
pub(crate) mod upstreams;

section! {
    /// Configuration of the Moongate gateway. Every key has a default; an empty file is valid.
    #[schemars(rename = "Moongate")]
    struct RawConfig {
        /// How the gateway is reached.
        server: RawServer,
        /// The admin listener: metrics and health.
        admin: RawAdmin,
        /// Transport sessions of clients that have them.
        sessions: RawSessions,
        /// Where the session, assistant and thread of a call come from, and how long its state lives.
        context: RawContext,
        /// Who may do what, and how often.
        security: RawSecurity,
        /// Other MCP servers, by name: processes that are started, and remote ones.
        upstreams: Entries<Given<RawUpstream>>,
        /// Exceptions to "every tool goes to its own backend"; the first that matches wins.
        routes: Vec<At<RawRoute>>,
        /// Named subsets, each served at `/mcp/{name}`.
        profiles: Entries<RawProfile>,
        /// The built-in backends.
        backends: RawBackends,
        /// Where durable data lies.
        storage: RawStorage,
        /// Logs.
        telemetry: RawTelemetry,
    }
    later: ["state", "audit"]
}

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
    /// Other MCP servers, in the order of the file; no two have the same name.
    pub upstreams: Vec<Upstream>,
    /// Exceptions to "every tool goes to its own backend", first match wins.
    pub routes: Vec<Route>,
    /// How long resources are kept that were read: the routes with `cache`, first match wins.
    pub caches: Vec<Cache>,
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
            upstreams: Vec::new(),
            routes: Vec::new(),
            caches: Vec::new(),
            profiles: BTreeMap::new(),
            backends: Backends::defaults(directories),
            storage: Storage::defaults(directories),
            telemetry: Telemetry::default(),
        }
    }

    /// How long what is read at `uri` of `upstream` is kept, if a route says.
    pub fn cache_of(&self, upstream: &str, uri: &str) -> Option<Duration> {
        let of = |cache: &&Cache| cache.upstream.as_deref().is_none_or(|name| name == upstream);
        let cache = self.caches.iter().filter(of).find(|cache| cache.pattern.matches(uri))?;
        Some(cache.keep)
    }

    /// The upstream called `name`, enabled or not.
    pub fn upstream(&self, name: &str) -> Option<&Upstream> {
        self.upstreams.iter().find(|upstream| upstream.name == name)
    }
}

/// The defaults for a process without a home: its files lie in `.moongate`. Meant for tests; the program loads an empty
/// text instead, which asks the environment where the user's directories are.
impl Default for Config {
    fn default() -> Self {
        Self::defaults(&Directories::default())
    }
}
