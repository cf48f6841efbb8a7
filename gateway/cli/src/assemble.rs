//! Puts the gateway together: the only place that names every concrete part.
//!
//! ```text
//! Config ─ metrics ─ State ─ Store ─ keys and tokens ─ backends ─ Snapshot ─ Gateway
//! ```
//! A reload replaces the snapshot, made of the same lasting parts.

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use anyhow::Context as _;
use moongate_backend_content::{Content, ContentLimits, ContentOptions};
use moongate_backend_planning::Planning;
use moongate_backend_playbook::{Playbook, PlaybookOptions};
use moongate_backend_ui::Ui;
use moongate_backend_workspace::{Closed, Site, Workspace};
use moongate_config::{Config, Durability, Eviction, RootKey};
use moongate_core::{Builtin, Changes, Clock, Principal, Resources};
use moongate_proxy::{
    Catalog, Gateway, Member, Parts, Snapshot,
    gateway::{Announced, StateHandle},
};
use moongate_security::{Authenticator, IssuedTokens, Keyring, LocalToken, Secret, TokenFile};
use moongate_storage::{MemoryOptions, MemoryState, State, Stores};
use moongate_storage_sqlite::SqliteStore;
use moongate_telemetry::Metrics;
use moongate_upstream::{BuiltinBackend, NoResources, ToolErrors};
use tokio::{task, time};
use tracing::{debug, warn};

use crate::{
    Extra,
    flood::Flood,
    guard,
    upstreams::{Plan, Upstreams},
    workspace,
};

/// How often rows that have expired are removed.
const PURGE_EVERY: Duration = Duration::from_hours(1);

/// A gateway and everything that lives as long as it does.
pub(crate) struct Assembly {
    /// The gateway itself.
    pub gateway: Arc<Gateway>,
    /// The guard before it.
    pub flood: Flood,
    parts: Lasting,
}

/// What no reload replaces.
struct Lasting {
    metrics: Arc<Metrics>,
    clock: Clock,
    state: Arc<MemoryState>,
    stores: Arc<dyn Stores>,
    issued: Arc<IssuedTokens>,
    /// Opened anew when the configuration names another file.
    token: Mutex<Arc<TokenFile>>,
    extra: Vec<Member>,
    upstreams: Upstreams,
    changes: Changes,
    /// The directories of sessions, and the processes that run in them.
    site: Arc<Site>,
}

impl Assembly {
    /// Builds everything for `config`. Blocks for a few file operations.
    pub(crate) fn build(config: Config, extra: impl FnOnce(&Changes) -> Vec<Extra>) -> anyhow::Result<Self> {
        // First, because everything counts into it.
        let metrics = Arc::new(Metrics::new());
        // One clock, so that expiry means the same everywhere.
        let clock = Clock::system();
        // What may be lost, before all that keep things in it: backends, the gate's rates, sessions.
        let state = Arc::new(MemoryState::new(memory_options(&config)));
        // What must survive, before the backends and the list of issued tokens.
        let stores: Arc<dyn Stores> = Arc::new(open_store(&config, &clock)?);
        // Keys before tokens, which are signed with them.
        let keyring = Arc::new(open_keyring(&config)?);
        let issued = Arc::new(IssuedTokens::new(Arc::clone(&keyring), &*stores, clock.clone()));
        let token = Mutex::new(open_token(&config.security.token_file)?);
        // The way to announce changes, before the backends that do and the gateway that hears them.
        let announced = Announced::new();
        // Extra backends are listed first: their names win.
        let extra = extra(&announced.sender()).into_iter().map(Extra::into_member).collect();
        // Servers elsewhere, which are started by this very program so that none outlives it.
        let launcher = std::env::current_exe().context("cannot tell which program this is")?;
        let site = Site::new(
            config.backends.workspace.root.clone(),
            launcher.clone(),
            announced.sender(),
            clock.clone(),
        );
        let upstreams =
            Upstreams::new(stores.own(), announced.sender(), clock.clone(), Arc::clone(&metrics), launcher);
        let parts = Lasting {
            metrics,
            clock: clock.clone(),
            state,
            stores,
            issued,
            token,
            extra,
            upstreams,
            changes: announced.sender(),
            site: Arc::new(site),
        };
        // Last but one, because it needs all of them: what a reload replaces as a whole.
        let flood = Flood::default();
        flood.set(config.security.limits.flood);
        let plan = parts.upstreams.plan(&config);
        let snapshot = parts.snapshot_with(config, parts.current_token(), &plan)?;
        parts.upstreams.adopt(plan);
        let gateway = Gateway::new(Parts {
            snapshot,
            state: StateHandle(Arc::clone(&parts.state) as Arc<dyn State>),
            keyring,
            metrics: Arc::clone(&parts.metrics),
            clock,
            announced,
        });
        Ok(Self { gateway, flood, parts })
    }

    /// Puts another configuration in force: all of it, or on an error nothing. Blocks for a few file operations.
    pub(crate) fn apply(&self, config: Config) -> anyhow::Result<()> {
        let old = Arc::clone(&self.gateway.snapshot().config);
        let limit = config.security.limits.flood;
        let memory = memory_options(&config);
        let token = self.parts.token_for(&config)?;
        let plan = self.parts.upstreams.plan(&config);
        let snapshot = self.parts.snapshot_with(config, Arc::clone(&token), &plan)?;
        // Nothing below can fail.
        *self.parts.token.lock().unwrap_or_else(PoisonError::into_inner) = token;
        self.parts.state.set_options(memory);
        if limit != old.security.limits.flood {
            self.flood.set(limit);
        }
        plan.reconfigure();
        let workspace = &snapshot.config.backends.workspace;
        let callers = workspace.backend.enabled.then(|| workspace::callers(workspace));
        self.gateway.reload(snapshot);
        let admits =
            move |principal: &Principal| callers.as_ref().is_some_and(|callers| callers.include(principal));
        self.parts.site.admit(admits);
        // After the calls that enter from now on know the new ones.
        self.parts.upstreams.adopt(plan);
        Ok(())
    }

    /// Where the gateway counts.
    pub(crate) fn metrics(&self) -> &Arc<Metrics> {
        &self.parts.metrics
    }

    /// The servers behind the gateway.
    pub(crate) fn upstreams(&self) -> &Upstreams {
        &self.parts.upstreams
    }

    /// The directories of sessions, and the processes that run in them.
    pub(crate) fn site(&self) -> &Arc<Site> {
        &self.parts.site
    }

    /// Removes expired rows and what sessions left now and then, for as long as it is polled.
    pub(crate) async fn keep_house(&self) {
        let mut beat = time::interval(PURGE_EVERY);
        loop {
            beat.tick().await;
            match self.parts.stores.purge(self.parts.clock.millis()).await {
                Ok(rows) => debug!(rows, "expired rows removed"),
                Err(error) => warn!(%error, "expired rows stay for now"),
            }
            let site = Arc::clone(&self.parts.site);
            let retention = self.gateway.snapshot().config.backends.workspace.retention;
            // It says itself what went wrong.
            drop(task::spawn_blocking(move || site.sweep(retention)).await);
        }
    }
}

impl fmt::Debug for Assembly {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Assembly").field("gateway", &self.gateway).finish_non_exhaustive()
    }
}

impl Lasting {
    fn snapshot_with(&self, config: Config, token: Arc<TokenFile>, plan: &Plan) -> anyhow::Result<Snapshot> {
        // The local token first: it is the cheapest to tell.
        let authenticators: Vec<Arc<dyn Authenticator>> =
            vec![Arc::new(LocalToken::new(token)), Arc::clone(&self.issued) as Arc<dyn Authenticator>];
        let gate = guard::gate(&config, authenticators, Arc::clone(&self.state) as Arc<dyn State>)?;
        let rules = guard::rules(&config);
        let config = Arc::new(config);
        let catalog =
            Catalog::new(self.members(&config, plan), Arc::clone(&config), rules, Arc::clone(&self.metrics));
        Ok(Snapshot { config, gate, catalog })
    }

    /// The backends in the order their tools are listed.
    fn members(&self, config: &Config, plan: &Plan) -> Vec<Member> {
        let builtins = self.builtins(config).into_iter().flatten();
        self.extra.iter().cloned().chain(builtins).chain(plan.members()).collect()
    }

    /// The backends of this build, but for those that are switched off. They keep nothing themselves but what they can make
    /// again, so new ones for a new configuration find everything where the old ones left it.
    fn builtins(&self, config: &Config) -> [Option<Member>; 5] {
        let state = || Arc::clone(&self.state) as Arc<dyn State>;
        let (stores, clock) = (|| Arc::clone(&self.stores), || self.clock.clone());
        let options = workspace::options(&config.backends.workspace);
        let files = self.site.resources(&options.files);
        let workspace = Workspace::new(Arc::clone(&self.site), options);
        let playbook = PlaybookOptions { require_assistant: config.context.require_assistant };
        let content = Content::new(stores(), self.changes.clone(), clock(), content_options(config));
        [
            member(config, Planning::new(state(), clock()), NoResources),
            member(config, Playbook::new(stores(), clock(), playbook), NoResources),
            member(config, Ui::new(state(), clock()), NoResources),
            member(config, content.clone(), content),
            // A command is not ended by the time its session is idle, only by its session's end.
            member(config, workspace, files)
                .map(|member| {
                    let site = Arc::clone(&self.site);
                    let callers = workspace::callers(&config.backends.workspace);
                    member.with_callers(callers).with_busy(Arc::new(move || site.busy()))
                })
                .or_else(|| Some(self.closed_workspace())),
        ]
    }

    /// In place of a workspace that is switched off, so that sessions that used it still take everything along.
    fn closed_workspace(&self) -> Member {
        let closed = Closed(Arc::clone(&self.site));
        let (name, backend) = (closed.name(), BuiltinBackend::new(closed, ToolErrors::Result));
        Member::builtin(name, Arc::new(backend))
    }

    fn current_token(&self) -> Arc<TokenFile> {
        Arc::clone(&self.token.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn token_for(&self, config: &Config) -> anyhow::Result<Arc<TokenFile>> {
        let current = self.current_token();
        if current.path() == config.security.token_file {
            Ok(current)
        } else {
            open_token(&config.security.token_file)
        }
    }
}

fn member(
    config: &Config,
    builtin: impl Builtin + 'static,
    resources: impl Resources + 'static,
) -> Option<Member> {
    let name = builtin.name();
    let settings = config.backends.get(name).filter(|settings| settings.enabled)?;
    let tool_errors = match settings.tool_errors {
        moongate_config::ToolErrors::Result => ToolErrors::Result,
        moongate_config::ToolErrors::Jsonrpc => ToolErrors::JsonRpc,
    };
    let backend = BuiltinBackend::with_resources(builtin, resources, tool_errors);
    Some(Member::builtin(name, Arc::new(backend)))
}

fn content_options(config: &Config) -> ContentOptions {
    let moongate_config::Content { roots, retention, limits, .. } = &config.backends.content;
    ContentOptions {
        roots: roots.clone(),
        retention: *retention,
        limits: ContentLimits {
            text: limits.text.0,
            file: limits.file.0,
            contents: limits.contents.get(),
            total: limits.total.0,
        },
    }
}

fn memory_options(config: &Config) -> MemoryOptions {
    MemoryOptions {
        session_ttl: config.sessions.idle_timeout,
        document_ttl: config.context.state_ttl,
        document_cap: config.context.lru_max.get(),
        eviction: match config.context.eviction {
            Eviction::Ttl => moongate_storage::Eviction::Ttl,
            Eviction::Lru => moongate_storage::Eviction::Lru,
            Eviction::TtlLru => moongate_storage::Eviction::TtlAndLru,
        },
        ..MemoryOptions::default()
    }
}

/// The database of `config`.
pub(crate) fn open_store(config: &Config, clock: &Clock) -> anyhow::Result<SqliteStore> {
    let path = &config.storage.path;
    let durability = match config.storage.durability {
        Durability::Full => moongate_storage_sqlite::Durability::Full,
        Durability::Relaxed => moongate_storage_sqlite::Durability::Relaxed,
    };
    let options = moongate_storage_sqlite::Options { durability, clock: clock.clone() };
    SqliteStore::open(path, options).with_context(|| format!("cannot open the database {}", path.display()))
}

/// The keys of `config`.
pub(crate) fn open_keyring(config: &Config) -> anyhow::Result<Keyring> {
    match &config.security.key {
        RootKey::File(path) => {
            let (keyring, warnings) = Keyring::open_or_create(path)?;
            tell(&warnings);
            Ok(keyring)
        }
        RootKey::Given(key) => Ok(Keyring::fixed(&Secret::new(key.expose().to_owned()))?),
    }
}

/// The local token, made if there is none.
pub(crate) fn open_token(path: &Path) -> anyhow::Result<Arc<TokenFile>> {
    let (file, warnings) = TokenFile::open_or_create(path)?;
    tell(&warnings);
    Ok(Arc::new(file))
}

/// Says what the owner of a secret should know.
pub(crate) fn tell(warnings: &[moongate_security::Warning]) {
    for warning in warnings {
        warn!("{warning}");
    }
}
