//! Runs the gateway: assembles it, opens its ways in, and ends it as signals ask.

use std::{io, net::SocketAddr, sync::Arc, time::Duration};

use anyhow::Context as _;
use moongate_config::{Config, LogFormat};
use moongate_core::{Changes, task::Group};
use moongate_proxy::edge::{
    serve::{self as http, Drain, Patience},
    stdio,
    tls::{Files, Tls},
};
use moongate_telemetry::log;
use tokio::net::TcpListener;
use tracing::{info, warn};

use crate::{
    Extra,
    args::{Serve, Transport},
    assemble::Assembly,
    flood::Guarded,
    handover,
    host::{self, Host},
    listen, notify,
    ready::Ready,
    reload::{Reloader, Status},
    runfile::{Record, Recorded, RunDirectory},
    settings::{self, Settings},
    signal::{Order, Signals},
};

/// The environment variable that says who is calling on a pipe.
const TOKEN: &str = "MOONGATE_TOKEN";
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
        let loaded = settings.load()?;
        let log = start_log(&loaded.config)?;
        for warning in loaded.config.warnings() {
            warn!("{warning}");
        }
        let status = Status::default();
        let prepared =
            Prepared { arguments: self.arguments, extra: self.extra, settings, loaded, log, status };
        match prepared.arguments.transport {
            Transport::Stdio => prepared.run_pipe(),
            Transport::Http | Transport::Both => prepared.run_host(),
        }
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
            let (running, _) = self.assemble().await?;
            let pipe = running.pipe(std::future::pending())?;
            tokio::select! {
                outcome = pipe => outcome?,
                () = running.obey_reloads(&mut signals) => info!(transport = "stdio", event = "stop", "ended by a signal"),
            }
            running.end().await;
            Ok(())
        });
        // A read of standard input cannot be interrupted: its thread is left behind.
        runtime.shutdown_background();
        outcome
    }

    fn run_host(self) -> anyhow::Result<()> {
        let run = RunDirectory::open(settings::runtime_directory(), &settings::directories().state)?;
        host::run(run.upgrade_socket(), move |host| self.serve(host, run))
    }

    async fn serve(self, host: Host, run: RunDirectory) -> anyhow::Result<()> {
        let mut signals = Signals::install()?;
        // Everything that can fail comes before the listeners: a successor that fails must not have taken them.
        let (running, config) = self.assemble().await?;
        let listeners = Listeners::open(&config, &running.arguments, &host, &run).await?;
        running.serve(&host, &run, listeners, &config, &mut signals).await
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

/// The sockets of a gateway.
struct Listeners {
    gateway: TcpListener,
    admin: Option<TcpListener>,
}

impl Listeners {
    async fn open(
        config: &Config,
        arguments: &Serve,
        host: &Host,
        run: &RunDirectory,
    ) -> anyhow::Result<Self> {
        let listeners = if arguments.upgrade {
            let inherited = handover::take_over(host, run, config.admin.enabled).await?;
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
        listeners: Listeners,
        config: &Config,
        signals: &mut Signals,
    ) -> anyhow::Result<()> {
        let address = listeners.gateway.local_addr()?;
        let admin = listeners.admin.as_ref().map(TcpListener::local_addr).transpose()?;
        self.start_listeners(listeners, config);
        if self.arguments.transport == Transport::Both {
            self.start_pipe()?;
        }
        let endpoint = self.endpoint(config, address);
        let record = Record { pid: std::process::id(), endpoint: endpoint.clone(), address, admin };
        let _recorded = record_unless_another_runs(run, &record, self.arguments.upgrade)?;
        announce(&endpoint, admin, config);
        notify::ready();
        let ended = self.until_ended(host, run, signals).await;
        self.end().await;
        ended
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
        let defaults = http::Options::default();
        let options = http::Options {
            tls: self.tls.as_ref().map(Tls::acceptor),
            max_connections: config.security.limits.connections.map_or(defaults.max_connections, usize::from),
            unwelcome: self.assembly.flood.unwelcome(),
            trusted: Arc::new(trusted),
            gauge: Some(self.assembly.metrics().connections().clone()),
            ..defaults
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
    fn start_pipe(&self) -> anyhow::Result<()> {
        let drain = self.drain.clone();
        let pipe = self.pipe(async move { drain.begun().await })?;
        self.tasks.spawn(async move {
            match pipe.await {
                Ok(()) => {
                    info!(transport = "stdio", event = "eof", "standard input ended; the port stays open");
                }
                Err(error) => warn!(transport = "stdio", event = "fatal", "{error:#}; the port stays open"),
            }
        });
        Ok(())
    }

    /// Serves standard input and output until the input ends or `stop` resolves.
    fn pipe<S: Future<Output = ()> + Send + 'static>(
        &self,
        stop: S,
    ) -> anyhow::Result<impl Future<Output = anyhow::Result<()>> + Send + use<S>> {
        let gateway = Arc::clone(&self.assembly.gateway);
        let profile: Option<Arc<str>> = self.arguments.profile.as_deref().map(Into::into);
        if let Some(name) = &profile {
            let known = gateway.snapshot().config.profiles.contains_key(&**name);
            anyhow::ensure!(known, "there is no profile called {name}");
        }
        let token = std::env::var(TOKEN).ok().filter(|token| !token.is_empty());
        Ok(async move {
            let admitted = gateway.snapshot().gate.admit_local(token.as_deref()).await;
            let admitted = admitted.with_context(|| format!("the token in {TOKEN} is refused"))?;
            info!(transport = "stdio", event = "start", principal = %admitted.principal(), "serving standard input and output");
            let peer = stdio::Peer { admitted, profile };
            stdio::serve(gateway, peer, tokio::io::stdin(), tokio::io::stdout(), stop).await;
            Ok(())
        })
    }

    /// Obeys signals until one says to end, and drains.
    async fn until_ended(
        &self,
        host: &Host,
        run: &RunDirectory,
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
                        handed = handover::give_over(host, run) => handed,
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
        self.tasks.shut_down(LAST_CALLS).await;
        info!(event = "stop", "ended");
    }

    fn endpoint(&self, config: &Config, address: SocketAddr) -> String {
        let base = match (&config.server.public_url, &self.tls) {
            (Some(url), _) => url.base.clone(),
            (None, Some(_)) => format!("https://{address}"),
            (None, None) => format!("http://{address}"),
        };
        match &self.arguments.profile {
            Some(profile) => format!("{base}/mcp/{profile}"),
            None => format!("{base}/mcp"),
        }
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
    let files = config.server.tls.as_ref();
    let files = files.map(|tls| Files { certificate: tls.cert.clone(), key: tls.key.clone() });
    Ok(files.map(Tls::load).transpose()?)
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

/// Tells programs, and people where log lines are for people.
fn announce(endpoint: &str, admin: Option<SocketAddr>, config: &Config) {
    let admin = admin.map(|admin| format!("http://{admin}"));
    let ready = Ready { endpoint, admin: admin.as_deref(), token_file: &config.security.token_file };
    let mut text = ready.line() + "\n";
    if config.telemetry.log_format == LogFormat::Text {
        text += &ready.welcome();
    }
    // Not a log line: it must be there whatever the log's level.
    if let Err(error) = io::Write::write_all(&mut io::stderr().lock(), text.as_bytes()) {
        warn!(%error, "nobody could be told that the gateway is ready");
    }
}
