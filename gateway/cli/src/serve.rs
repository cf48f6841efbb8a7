//! Runs the gateway: assembles it, opens its ways in, and ends it as signals ask.

use std::{io, num::NonZeroUsize, path::Path, sync::Arc, time::Duration};

use anyhow::Context as _;
use moongate_config::{Config, LogFormat};
use moongate_core::{Changes, task::Group};
use moongate_proxy::edge::{
    serve::{self as http, Drain, Patience},
    tls::Tls,
};
use moongate_telemetry::log;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use tokio::{
    net::TcpListener,
    sync::{Semaphore, oneshot},
};
use tracing::{info, warn};

use crate::{
    Extra,
    args::{Serve, Transport},
    assemble::Assembly,
    flood::Guarded,
    handover,
    host::{self, Host},
    listen, notify,
    pipe::Caller,
    ready::{self, Ready},
    reload::{Reloader, Status, tls_files},
    runfile::{Own, Record, Recorded, RunDirectory},
    settings::{self, Settings},
    signal::{Order, Signals},
};

/// What is left of the five seconds an end may take, after the drain: calls that nobody waits for any more.
const LAST_CALLS: Duration = Duration::from_millis(500);
/// How long connections may finish after a successor has taken the listeners. Nobody waits for this process then.
const AFTER_HAND_OVER: Duration = Duration::from_secs(10);

/// What to run.
pub(crate) struct Launch<E> {
    /// The options of `serve`.
    pub arguments: Serve,
    /// Makes further backends.
    pub extra: E,
}

impl<E: FnOnce(&Changes) -> Vec<Extra> + Send + 'static> Launch<E> {
    /// Runs until a signal or, on a pipe alone, the end of input.
    pub(crate) fn run(self) -> anyhow::Result<()> {
        let settings = Settings::of_serve(&self.arguments);
        if self.arguments.transport == Transport::Stdio {
            return self.prepare(settings)?.run_pipe();
        }
        let run = RunDirectory::open(settings::runtime_directory(), &settings::directories().state)?;
        let predecessor = self.arguments.upgrade.then(|| handover::predecessor(&run)).transpose()?;
        // Whether this gateway may serve where that one does is settled before that one hears of it.
        let settings = match &predecessor {
            Some(predecessor) => settings.after(predecessor.clone()),
            None => settings,
        };
        self.prepare(settings)?.run_host(run, predecessor)
    }

    fn prepare(self, settings: Settings) -> anyhow::Result<Prepared<E>> {
        let loaded = settings.load()?;
        let log = start_log(&loaded.config)?;
        for warning in loaded.config.warnings() {
            warn!("{warning}");
        }
        let status = Status::default();
        Ok(Prepared { arguments: self.arguments, extra: self.extra, settings, loaded, log, status })
    }
}

/// Everything that is known before anything runs.
struct Prepared<E> {
    arguments: Serve,
    extra: E,
    settings: Settings,
    loaded: moongate_config::Loaded,
    log: log::Handle,
    status: Status,
}

impl<E: FnOnce(&Changes) -> Vec<Extra> + Send + 'static> Prepared<E> {
    /// A pipe and nothing else needs no host.
    fn run_pipe(self) -> anyhow::Result<()> {
        let ignored = self.arguments.http_options();
        if !ignored.is_empty() {
            warn!("{} ignored: there is no port with --transport stdio", ignored.join(", "));
        }
        let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
        let outcome = runtime.block_on(async {
            let mut signals = Signals::install()?;
            let caller = Caller::from_env(self.arguments.profile.as_deref(), &self.loaded.config)?;
            let (running, _) = self.assemble().await?;
            let (stop, stopped) = oneshot::channel::<()>();
            let gateway = Arc::clone(&running.assembly.gateway);
            let pipe = caller.serve(gateway, async move { drop(stopped.await) });
            let signalled = async {
                running.obey_reloads(&mut signals).await;
                info!(transport = "stdio", event = "stop", "ended by a signal");
                // Not simply dropped: what listens on the pipe is told that it ends, and so are the backends.
                drop(stop);
            };
            tokio::pin!(pipe);
            tokio::select! {
                outcome = &mut pipe => outcome?,
                () = signalled => pipe.await?,
            }
            running.end().await;
            Ok(())
        });
        // A read of standard input cannot be interrupted: its thread is left behind.
        runtime.shutdown_background();
        outcome
    }

    fn run_host(self, run: RunDirectory, predecessor: Option<Record>) -> anyhow::Result<()> {
        raise_file_limit();
        host::run(run.upgrade_socket(), move |host| self.serve(host, run, predecessor))
    }

    async fn serve(self, host: Host, run: RunDirectory, predecessor: Option<Record>) -> anyhow::Result<()> {
        let mut signals = Signals::install()?;
        // Everything that can fail comes before the listeners: a successor that fails must not have taken them.
        let caller = self.caller_beside_port()?;
        let (running, config) = self.assemble().await?;
        let listeners = tokio::select! {
            listeners = Listeners::open(&config, predecessor.as_ref(), &host, &run) => listeners?,
            // A predecessor that was asked already sees nobody take its place, and serves on.
            () = signals.end() => {
                running.end().await;
                return Ok(());
            }
        };
        running.serve(&host, &run, Ways { listeners, caller }, &config, &mut signals).await
    }

    /// With both transports, who calls on the pipe.
    fn caller_beside_port(&self) -> anyhow::Result<Option<Caller>> {
        let Serve { transport, profile, .. } = &self.arguments;
        let caller = || Caller::from_env(profile.as_deref(), &self.loaded.config);
        (*transport == Transport::Both).then(caller).transpose()
    }

    async fn assemble(self) -> anyhow::Result<(Running, Config)> {
        let Self { arguments, extra, settings, loaded, log, status } = self;
        let config = loaded.config.clone();
        let tls = load_tls(&config)?;
        let given = loaded.config.clone();
        // Opening the database and the key files blocks.
        let assembly = tokio::task::spawn_blocking(move || Assembly::build(given, extra)).await??;
        let assembly = Arc::new(assembly);
        let tasks = Group::new();
        let gateway = Arc::clone(&assembly.gateway);
        tasks.spawn(gateway.run());
        let housekeeping = Arc::clone(&assembly);
        tasks.spawn(async move { housekeeping.keep_house().await });
        let reloader = Arc::new(Reloader::new(
            settings,
            loaded,
            Arc::clone(&assembly),
            tls.clone(),
            log,
            status.clone(),
        ));
        let watching = Arc::clone(&reloader);
        tasks.spawn(async move { watching.watch().await });
        Ok((Running { arguments, assembly, reloader, tls, status, tasks, drain: Drain::new() }, config))
    }
}

/// The ways into a gateway with a port.
struct Ways {
    listeners: Listeners,
    caller: Option<Caller>,
}

/// The sockets of a gateway.
struct Listeners {
    gateway: TcpListener,
    admin: Option<TcpListener>,
}

impl Listeners {
    async fn open(
        config: &Config,
        predecessor: Option<&Record>,
        host: &Host,
        run: &RunDirectory,
    ) -> anyhow::Result<Self> {
        let listeners = if let Some(predecessor) = predecessor {
            let inherited = handover::take_over(host, run, predecessor, config.admin.enabled).await?;
            let admin = match inherited.admin {
                None => bind_admin(config)?,
                admin => admin,
            };
            Self { gateway: inherited.gateway, admin }
        } else {
            let advice = "choose another with --http-port or server.listen, or stop the process that has it";
            Self { gateway: listen::bind(&config.server.listen, advice)?, admin: bind_admin(config)? }
        };
        host.add(&listeners.gateway)?;
        if let Some(admin) = &listeners.admin {
            host.add(admin)?;
        }
        Ok(listeners)
    }
}

fn bind_admin(config: &Config) -> anyhow::Result<Option<TcpListener>> {
    let advice = "choose another with admin.listen, or turn it off with admin.enabled: false";
    config.admin.enabled.then(|| listen::bind(&config.admin.listen, advice)).transpose()
}

/// An assembled gateway.
struct Running {
    arguments: Serve,
    assembly: Arc<Assembly>,
    reloader: Arc<Reloader>,
    tls: Option<Tls>,
    status: Status,
    tasks: Group,
    drain: Drain,
}

impl Running {
    async fn serve(
        &self,
        host: &Host,
        run: &RunDirectory,
        Ways { listeners, caller }: Ways,
        config: &Config,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        let address = listeners.gateway.local_addr()?;
        let admin = listeners.admin.as_ref().map(TcpListener::local_addr).transpose()?;
        self.start_listeners(listeners, config);
        if let Some(caller) = caller {
            self.start_pipe(caller);
        }
        let endpoint = ready::endpoint(config, address, self.arguments.profile.as_deref());
        let own = Own {
            url: Some(ready::own_url(config, address)),
            token_file: Some(config.security.token_file.clone()),
            config_file: self.reloader.file().map(Path::to_owned),
        };
        let tls = config.server.tls.is_some();
        let record = Record { pid: std::process::id(), endpoint, address, admin, tls, own };
        let recorded = record_unless_another_runs(run, &record, self.arguments.upgrade);
        let ended = match &recorded {
            Ok(recorded) => {
                self.announce(&record, config);
                notify::ready();
                self.until_ended(host, run, recorded.as_ref(), signals).await
            }
            // Somebody may have called already, and is answered.
            Err(_) => self.drained(self.drain.finish(Patience::default()), signals).await,
        };
        self.end().await;
        recorded.and(ended)
    }

    fn start_listeners(&self, listeners: Listeners, config: &Config) {
        let app = Arc::new(Guarded::new(
            Arc::clone(&self.assembly.gateway),
            self.assembly.flood.clone(),
            self.assembly.metrics(),
        ));
        let gateway = Arc::clone(&self.assembly.gateway);
        let trusted = move |address| {
            let snapshot = gateway.snapshot();
            snapshot.config.server.trusted_proxies.iter().any(|net| net.contains(&address))
        };
        let options = http::Options {
            tls: self.tls.as_ref().map(Tls::acceptor),
            max_connections: most_connections(config.security.limits.connections),
            unwelcome: self.assembly.flood.unwelcome(),
            trusted: Arc::new(trusted),
            gauge: Some(self.assembly.metrics().connections().clone()),
            ..http::Options::default()
        };
        self.tasks.spawn(http::serve(listeners.gateway, options, app, self.drain.clone()));
        if let Some(listener) = listeners.admin {
            let (view, drain) = (self.status.view(&self.assembly, &self.drain), self.drain.clone());
            self.tasks.spawn(async move {
                if let Err(error) =
                    moongate_admin::serve(listener, view, async { drain.closed().await }).await
                {
                    warn!(%error, "the admin listener ended");
                }
            });
        }
    }

    /// The pipe beside a port: its end is not the end of the process.
    fn start_pipe(&self, caller: Caller) {
        let drain = self.drain.clone();
        let pipe = caller.serve(Arc::clone(&self.assembly.gateway), async move { drain.begun().await });
        self.tasks.spawn(async move {
            match pipe.await {
                Ok(()) => {
                    info!(transport = "stdio", event = "eof", "standard input ended; the port stays open");
                }
                Err(error) => warn!(transport = "stdio", event = "fatal", "{error:#}; the port stays open"),
            }
        });
    }

    /// Obeys signals until one says to end, and drains.
    async fn until_ended(
        &self,
        host: &Host,
        run: &RunDirectory,
        recorded: Option<&Recorded>,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        loop {
            match signals.next().await {
                Order::Reload => self.reloader.ask(),
                Order::End => {
                    info!(event = "stop", "ending: finishing what runs");
                    notify::stopping();
                    return self.drained(self.drain.finish(Patience::default()), signals).await;
                }
                Order::HandOver => {
                    let handed = tokio::select! {
                        handed = handover::give_over(host, run, recorded) => handed,
                        () = signals.end() => {
                            return self.drained(self.drain.finish(Patience::default()), signals).await;
                        }
                    };
                    match handed {
                        Ok(()) => return self.drained(self.drain.hand_over(AFTER_HAND_OVER), signals).await,
                        Err(error) => warn!("not handing over, serving on: {error:#}"),
                    }
                }
            }
        }
    }

    async fn drained(
        &self,
        draining: impl Future<Output = usize>,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        tokio::select! {
            cut = draining => {
                if cut > 0 {
                    warn!(connections = cut, "connections had to be cut");
                }
                Ok(())
            }
            () = signals.end() => anyhow::bail!("ended at once by a second signal"),
        }
    }

    /// For a pipe: reloads until the first order to end.
    async fn obey_reloads(&self, signals: &mut Signals) {
        loop {
            match signals.next().await {
                Order::Reload => self.reloader.ask(),
                Order::HandOver => {
                    warn!("not handing over, serving on: there is no port with --transport stdio");
                }
                Order::End => return,
            }
        }
    }

    async fn end(&self) {
        self.assembly.gateway.shut_down(LAST_CALLS).await;
        tokio::join!(self.assembly.upstreams().stop(LAST_CALLS), self.assembly.site().close());
        self.tasks.shut_down(LAST_CALLS).await;
        info!(event = "stop", "ended");
    }

    /// Tells programs, and people where log lines are for people.
    fn announce(&self, record: &Record, config: &Config) {
        let admin = record.admin.map(|admin| format!("http://{}", ready::reachable(admin)));
        let ready = Ready {
            endpoint: &record.endpoint,
            admin: admin.as_deref(),
            token_file: &config.security.token_file,
            config_file: self.arguments.config.as_deref(),
            token_moved: self.arguments.http_token_path.is_some(),
        };
        let mut text = ready.line() + "\n";
        if config.telemetry.log_format == LogFormat::Text {
            text += &ready.welcome();
        }
        // Not a log line: it must be there whatever the log's level.
        if let Err(error) = io::Write::write_all(&mut io::stderr().lock(), text.as_bytes()) {
            warn!(%error, "nobody could be told that the gateway is ready");
        }
    }
}

/// How many connections may be open: `off` is as many as can be counted.
fn most_connections(limit: Option<NonZeroUsize>) -> usize {
    limit.map_or(Semaphore::MAX_PERMITS, |limit| limit.get().min(Semaphore::MAX_PERMITS))
}

/// Asks for as many open files as this user may have: connections need them, and the usual soft limit is for programs
/// that use `select`.
fn raise_file_limit() {
    let limit = getrlimit(Resource::Nofile);
    let raised = Rlimit { current: limit.maximum, ..limit };
    if let Err(error) = setrlimit(Resource::Nofile, raised) {
        warn!(%error, "the limit of open files stays as it is");
    }
}

fn start_log(config: &Config) -> anyhow::Result<log::Handle> {
    let format = match config.telemetry.log_format {
        LogFormat::Text => log::Format::Text,
        LogFormat::Json => log::Format::Json,
    };
    Ok(log::init(format, config.telemetry.log_level.as_str())?)
}

fn load_tls(config: &Config) -> anyhow::Result<Option<Tls>> {
    Ok(tls_files(config).map(Tls::load).transpose()?)
}

/// Records this gateway, unless it is a second one of the same user: commands go on to find the first.
fn record_unless_another_runs(
    run: &RunDirectory,
    record: &Record,
    successor: bool,
) -> anyhow::Result<Option<Recorded>> {
    match run.running()? {
        Some(other) if !successor => {
            info!(
                pid = other.pid,
                endpoint = other.endpoint,
                "another gateway of this user runs; this one is not recorded"
            );
            Ok(None)
        }
        _ => Ok(Some(run.record(record).context("cannot write the run file")?)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn connections_without_a_limit_have_none() {
        assert_eq!(most_connections(None), Semaphore::MAX_PERMITS);
        assert_eq!(most_connections(NonZeroUsize::new(5)), 5);
        // More than a semaphore can hold would be a panic.
        let most = Semaphore::new(most_connections(Some(NonZeroUsize::MAX)));
        assert_eq!(most.available_permits(), Semaphore::MAX_PERMITS);
    }
}
