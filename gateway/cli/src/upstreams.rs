//! The servers of the configuration, made once and kept over reloads as long as the way to reach them stays the same.
//!
//! A reload plans first, which changes nothing, and adopts the plan when everything else is known to be fine. What is no
//! longer configured takes no new call, finishes what runs and stops.

use std::{
    fmt,
    path::PathBuf,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use http::HeaderValue;
use moongate_config::{self as config, Config, Reach, RemoteTransport};
use moongate_core::{Backend, Changes, Clock, Scope, task::Group};
use moongate_launch::Limits;
use moongate_proxy::{Member, Naming};
use moongate_storage::Store;
use moongate_telemetry::{Metrics, Transport};
use moongate_upstream::{
    Server, process, remote,
    server::{self, EraChoice, Settings, Share, Status, StoreHandle},
};

/// How long calls that run on a removed server may go on.
const LAST_CALLS: Duration = Duration::from_mins(10);

/// How long a session with a remote server is kept that nobody uses.
const REMOTE_IDLE: Duration = Duration::from_mins(30);

/// What servers are made with.
pub(crate) struct Upstreams {
    store: Arc<dyn Store>,
    changes: Changes,
    clock: Clock,
    metrics: Arc<Metrics>,
    /// This program, which starts processes so that none outlives it.
    launcher: PathBuf,
    current: Mutex<Vec<Kept>>,
    /// What servers do beside calls, and the ends of those that were removed.
    tasks: Group,
}

/// A server and what it was made of.
#[derive(Clone)]
struct Kept {
    config: config::Upstream,
    server: Arc<Server>,
}

/// The servers of a configuration that is not in force yet.
pub(crate) struct Plan(Vec<Planned>);

struct Planned {
    kept: Kept,
    /// It serves already.
    runs: bool,
}

impl Upstreams {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        changes: Changes,
        clock: Clock,
        metrics: Arc<Metrics>,
        launcher: PathBuf,
    ) -> Self {
        Self { store, changes, clock, metrics, launcher, current: Mutex::default(), tasks: Group::new() }
    }

    /// The servers that `config` wants, as far as possible those that are there.
    pub(crate) fn plan(&self, config: &Config) -> Plan {
        let current = self.lock();
        let wanted = config.upstreams.iter().filter(|upstream| upstream.enabled);
        let planned = wanted.map(|wanted| {
            let same = |kept: &&Kept| kept.config.name == wanted.name && kept.config.same_connection(wanted);
            let server = current.iter().find(same).map(|kept| Arc::clone(&kept.server));
            let runs = server.is_some();
            let server = server.unwrap_or_else(|| Arc::new(self.server(wanted)));
            Planned { kept: Kept { config: wanted.clone(), server }, runs }
        });
        Plan(planned.collect())
    }

    /// Puts a plan in force. What is not in it ends.
    pub(crate) fn adopt(&self, plan: Plan) {
        let fresh: Vec<Kept> =
            plan.0.iter().filter(|planned| !planned.runs).map(|planned| planned.kept.clone()).collect();
        let new: Vec<Kept> = plan.0.into_iter().map(|planned| planned.kept).collect();
        let old = std::mem::replace(&mut *self.lock(), new.clone());
        for Kept { config, server } in old {
            if new.iter().any(|kept| Arc::ptr_eq(&kept.server, &server)) {
                continue;
            }
            if !new.iter().any(|kept| kept.config.name == config.name) {
                self.metrics.forget_upstream(&config.name);
            }
            self.tasks.spawn(async move { server.stop(LAST_CALLS).await });
        }
        for Kept { config, server } in fresh {
            let eager =
                matches!(&config.reach, Reach::Process(process) if process.start == config::Start::Eager);
            self.tasks.spawn(async move {
                if eager {
                    server.warm().await;
                }
                server.keep_house().await;
            });
        }
    }

    /// How each server is, in the order of the configuration.
    pub(crate) fn status(&self) -> Vec<Status> {
        self.lock().iter().map(|kept| kept.server.status()).collect()
    }

    /// Connects to every server and lists what it offers, so that its status tells how it is now.
    pub(crate) async fn examine(&self) {
        let all = self.lock().clone();
        futures_util::future::join_all(all.iter().map(|kept| kept.server.examine())).await;
    }

    /// The state of each server by its name.
    pub(crate) fn states(&self) -> serde_json::Map<String, serde_json::Value> {
        let state = |kept: &Kept| (kept.config.name.clone(), kept.server.state().as_str().into());
        self.lock().iter().map(state).collect()
    }

    /// Ends every connection and process.
    pub(crate) async fn stop(&self, patience: Duration) {
        let all = std::mem::take(&mut *self.lock());
        futures_util::future::join_all(all.iter().map(|kept| kept.server.stop(patience))).await;
        self.tasks.shut_down(patience).await;
    }

    fn server(&self, upstream: &config::Upstream) -> Server {
        let tasks = Group::new();
        let (reach, transport) = self.reach(upstream, &tasks);
        let parts = server::Parts {
            reach,
            store: StoreHandle(Arc::clone(&self.store)),
            changes: self.changes.clone(),
            clock: self.clock.clone(),
            metrics: self.metrics.upstream(&upstream.name, transport),
            fingerprint: fingerprint(upstream),
            tasks,
        };
        Server::new(settings(upstream), parts)
    }

    fn reach(&self, upstream: &config::Upstream, tasks: &Group) -> (server::Reach, Transport) {
        match &upstream.reach {
            Reach::Process(process) => {
                let spec = self.process_spec(upstream, process);
                let main = Arc::new(process::Launcher::new(spec, tasks.clone()));
                (server::Reach { main, old: None }, Transport::Pipe)
            }
            Reach::Remote(remote) => {
                let spec = remote_spec(upstream, remote);
                let old = || Arc::new(remote::OldSse::new(spec.clone(), tasks.clone()));
                let main = || Arc::new(remote::Remote::new(spec.clone(), tasks.clone()));
                let reach = match remote.transport {
                    RemoteTransport::Auto => server::Reach { main: main(), old: Some(old()) },
                    RemoteTransport::Streamable => server::Reach { main: main(), old: None },
                    RemoteTransport::Sse => server::Reach { main: old(), old: None },
                };
                (reach, Transport::Tcp)
            }
        }
    }

    fn process_spec(&self, upstream: &config::Upstream, process: &config::Process) -> process::Spec {
        let secret = |text: &str| process::Secret::new(text.to_owned());
        let limits = &process.limits;
        let number = |limit: Option<std::num::NonZeroUsize>| limit.map(|limit| limit.get() as u64);
        // Of `--token=…` a process may well write the value alone.
        let parts = |text: &'_ str| {
            let value = text.split_once('=').map(|(_, value)| secret(value));
            std::iter::once(secret(text)).chain(value)
        };
        let secrets = process.args.iter().filter(|argument| matches!(argument, config::Argument::Secret(_)));
        process::Spec {
            args: process.args.iter().map(|argument| argument.expose().to_owned()).collect(),
            secrets: secrets.flat_map(|argument| parts(argument.expose())).collect(),
            env: process.env.iter().map(|(name, value)| (name.clone(), secret(value.expose()))).collect(),
            inherit_env: process.inherit_env.clone(),
            cwd: process.cwd.clone(),
            limits: Limits {
                memory: limits.memory,
                cpu: limits.cpu,
                open_files: number(limits.open_files),
                processes: number(limits.processes),
                file_size: None,
            },
            max_message: upstream.max_message,
            ..process::Spec::new(&*upstream.name, process.command.clone(), self.launcher.clone())
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Kept>> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Plan {
    /// Tells the servers that stay how they are used from now on. Before the plan is in force, so that nobody who looks up
    /// the new configuration is offered something by the old one.
    pub(crate) fn reconfigure(&self) {
        for Planned { kept, .. } in self.0.iter().filter(|planned| planned.runs) {
            kept.server.reconfigure(settings(&kept.config));
        }
    }

    /// The servers as the catalog knows them, in the order of the configuration.
    pub(crate) fn members(&self) -> impl Iterator<Item = Member> {
        self.0.iter().map(|planned| {
            let Kept { config, server } = &planned.kept;
            let naming = match config.prefix.as_str() {
                Some(prefix) => Naming::Prefixed(prefix.into()),
                None => Naming::Bare,
            };
            let (told, known) = (Arc::clone(server), Arc::clone(server));
            Member::upstream(&*config.name, Arc::clone(server) as Arc<dyn Backend>)
                .with_condition(Arc::new(move || told.state().as_str()))
                .with_tasks(Arc::new(move || known.offers_tasks()))
                .with_naming(naming)
                .with_list_timeout(config.list_timeout)
                .with_timeout(config.timeout)
                .with_unlisted(config.forward_unlisted.then(|| Scope::new(&config.scope)))
        })
    }
}

impl fmt::Debug for Upstreams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.lock().iter().map(|kept| kept.config.name.clone()).collect();
        f.debug_tuple("Upstreams").field(&names).finish()
    }
}

fn settings(upstream: &config::Upstream) -> Settings {
    let (share, idle_timeout, max_processes) = match &upstream.reach {
        Reach::Process(process) => {
            let share = match process.share {
                config::Share::Gateway => Share::Gateway,
                config::Share::Principal => Share::Principal,
                config::Share::Session => Share::Session,
            };
            (share, process.idle_timeout, process.max_processes)
        }
        // An HTTP session costs the server something too.
        Reach::Remote(_) => (Share::Principal, Some(REMOTE_IDLE), std::num::NonZeroUsize::MIN),
    };
    Settings {
        name: upstream.name.as_str().into(),
        era: match upstream.era {
            config::EraChoice::Auto => EraChoice::Auto,
            config::EraChoice::Legacy => EraChoice::Legacy,
            config::EraChoice::Modern => EraChoice::Modern,
        },
        share,
        scope: Scope::new(&upstream.scope),
        roots: upstream.roots.clone(),
        idle_timeout,
        max_processes,
        list_timeout: upstream.list_timeout,
        instructions: upstream.instructions,
        extensions: upstream.forward_unlisted,
    }
}

fn remote_spec(upstream: &config::Upstream, remote: &config::Remote) -> remote::Spec {
    let header = |(name, value): &(http::HeaderName, config::Secret)| {
        let mut value = HeaderValue::from_str(value.expose()).ok()?;
        value.set_sensitive(true);
        Some((name.clone(), value))
    };
    remote::Spec {
        headers: remote.headers.iter().filter_map(header).collect(),
        ca_files: remote.ca.clone(),
        max_message: upstream.max_message,
        ..remote::Spec::new(&*upstream.name, remote.url.uri().clone())
    }
}

/// Names the way a server is reached, without telling its secrets: what is remembered of it is kept under this.
fn fingerprint(upstream: &config::Upstream) -> String {
    let mut parts: Vec<&[u8]> = Vec::new();
    let uri;
    match &upstream.reach {
        Reach::Process(process) => {
            parts.push(b"process");
            parts.push(process.command.as_bytes());
            parts.extend(process.args.iter().map(|argument| argument.expose().as_bytes()));
            for (name, value) in &process.env {
                parts.extend([b"env".as_slice(), name.as_bytes(), value.expose().as_bytes()]);
            }
            let cwd = process.cwd.as_ref().map(|cwd| cwd.as_os_str().as_encoded_bytes());
            parts.extend([b"cwd".as_slice(), cwd.unwrap_or_default()]);
        }
        Reach::Remote(remote) => {
            uri = remote.url.uri().to_string();
            parts.extend([b"remote".as_slice(), uri.as_bytes()]);
            for (name, value) in &remote.headers {
                parts.extend([name.as_str().as_bytes(), value.expose().as_bytes()]);
            }
        }
    }
    moongate_security::digest::name_of(&parts)
}
