//! Takes up changed files while the gateway runs: all of a new configuration, or nothing.
//!
//! ```text
//! file change, SIGHUP ─ load ─ check ─ diff ─ build ─ swap
//!                          ╰──────┴───────┴──────┴─ a problem: the running configuration stays, and says why
//! ```

use std::{
    collections::BTreeSet,
    fs,
    hash::{DefaultHasher, Hash as _, Hasher as _},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moongate_admin::{Readiness, View};
use moongate_config::{Config, Loaded, diff};
use moongate_core::BoxFuture;
use moongate_proxy::edge::{
    serve::Drain,
    tls::{Certificate, Files, Tls},
};
use moongate_telemetry::{ReloadOutcome, log};
use notify_debouncer_full::{
    DebounceEventResult, Debouncer, RecommendedCache, new_debouncer,
    notify::{RecommendedWatcher, RecursiveMode},
};
use tokio::sync::Notify;
use tracing::{error, info, warn};

use crate::{
    assemble::Assembly,
    settings::{Settings, Unusable},
};

/// Editors and deployment tools write in several steps; this is how long the last one may be away.
const SETTLE: Duration = Duration::from_millis(150);

/// Reads the configuration again and puts it in force.
pub(crate) struct Reloader {
    settings: Settings,
    current: Mutex<Loaded>,
    assembly: Arc<Assembly>,
    tls: Option<Tls>,
    log: log::Handle,
    status: Status,
    asked: Arc<Notify>,
    /// What the files held at the last attempt: one change is often reported twice.
    seen: AtomicU64,
}

/// Which look at the files this is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Look {
    /// The one that a change or somebody asked for.
    First,
    /// One more, because the first one found files that were not watched while it read them. What it finds to be wrong
    /// still has been told.
    Second,
}

/// How the last reload ended, for whoever asks.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status(Arc<Mutex<Option<Result<(), String>>>>);

impl Reloader {
    /// Reloads `settings`, of which `current` is in force.
    pub(crate) fn new(
        settings: Settings,
        current: Loaded,
        assembly: Arc<Assembly>,
        tls: Option<Tls>,
        log: log::Handle,
        status: Status,
    ) -> Self {
        Self {
            settings,
            current: Mutex::new(current),
            assembly,
            tls,
            log,
            status,
            asked: Arc::default(),
            seen: AtomicU64::new(0),
        }
    }

    /// The configuration file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.settings.file()
    }

    /// Reloads soon, whether or not a file has changed.
    pub(crate) fn ask(&self) {
        self.seen.store(0, Ordering::Release);
        self.asked.notify_one();
    }

    /// Reloads whenever a file changes or somebody asks, for as long as it is polled.
    pub(crate) async fn watch(self: Arc<Self>) {
        let mut watched = Watched::new(Arc::clone(&self.asked));
        let mut look = Look::First;
        loop {
            let files = self.files();
            watched.follow(files.clone());
            // Looked at before waiting: a file may have changed between being read and being watched. In a thread where
            // it may block: files are read, and a token may be made.
            let reloader = Arc::clone(&self);
            if let Err(error) = tokio::task::spawn_blocking(move || reloader.reload(look)).await {
                error!(%error, "a reload failed");
            }
            // A new configuration may name other files: those are watched before anything is waited for.
            look = if self.files() == files { Look::First } else { Look::Second };
            if look == Look::First {
                self.asked.notified().await;
            }
        }
    }

    /// The files that matter: the configuration, what it names, the certificate.
    fn files(&self) -> BTreeSet<PathBuf> {
        let named = self.current.lock().unwrap_or_else(PoisonError::into_inner).files.clone();
        let tls = self.tls.as_ref().map(Tls::files);
        let tls = tls.into_iter().flat_map(|files| [files.certificate, files.key]);
        self.settings.file().map(Path::to_owned).into_iter().chain(named).chain(tls).collect()
    }

    /// Something about what the files hold; never zero.
    fn contents(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        for file in self.files() {
            (fs::read(&file).ok(), file).hash(&mut hasher);
        }
        hasher.finish() | 1
    }

    fn reload(&self, look: Look) {
        let contents = self.contents();
        if self.seen.swap(contents, Ordering::AcqRel) == contents {
            return;
        }
        let configuration = self.reload_configuration();
        let certificate = self.reload_certificate();
        let outcome = match (&configuration, &certificate) {
            (None, None) => return,
            (Some(Err(reason)), _) | (_, Some(Err(reason))) => Err(reason.clone()),
            _ => Ok(()),
        };
        if look == Look::Second && outcome.is_err() && self.status.get().as_ref() == Some(&outcome) {
            return;
        }
        for (what, outcome) in [("configuration", configuration), ("certificate", certificate)] {
            if let Some(Err(reason)) = outcome {
                error!("the {what} stays as it was: {reason}");
            }
        }
        let counted = if outcome.is_ok() { ReloadOutcome::Applied } else { ReloadOutcome::Refused };
        self.assembly.metrics().reloaded(counted);
        self.status.set(outcome);
    }

    fn reload_configuration(&self) -> Option<Result<(), String>> {
        let fresh = match self.settings.load() {
            Ok(fresh) => fresh,
            Err(problem) => return Some(self.refuse(&problem)),
        };
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        if *current == fresh && !self.status.is_refused() {
            return None;
        }
        let difference = diff(&current.config, &fresh.config);
        if !difference.needs_restart.is_empty() {
            return Some(Err(format!("needs a restart: {}", difference.needs_restart.join(", "))));
        }
        if let Err(error) = self.apply(&fresh.config) {
            return Some(Err(format!("{error:#}")));
        }
        if let Err(error) = self.log.set_level(fresh.config.telemetry.log_level.as_str()) {
            warn!(%error, "the log keeps its level");
        }
        info!(changed = difference.changed.join(", "), "configuration reloaded");
        for warning in fresh.config.warnings() {
            warn!("{warning}");
        }
        *current = fresh;
        Some(Ok(()))
    }

    /// Puts `config` in force: all of it, or on an error nothing.
    fn apply(&self, config: &Config) -> anyhow::Result<()> {
        let moved = self.tls.as_ref().zip(tls_files(config)).filter(|(tls, files)| tls.files() != *files);
        let moved = match moved {
            Some((tls, files)) => Some((tls, Certificate::read(files)?)),
            None => None,
        };
        self.assembly.apply(config.clone())?;
        // Nothing below can fail.
        if let Some((tls, certificate)) = moved {
            tls.show(certificate);
        }
        Ok(())
    }

    fn refuse(&self, problem: &Unusable) -> Result<(), String> {
        if let Unusable::Wrong(problems) = problem {
            // A file that could mend it is watched even if it was not named before.
            let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
            let named: BTreeSet<_> = current.files.iter().chain(problems.files()).cloned().collect();
            current.files = named.into_iter().collect();
        }
        Err(problem.to_string())
    }

    fn reload_certificate(&self) -> Option<Result<(), String>> {
        match self.tls.as_ref()?.reload() {
            Ok(false) => None,
            Ok(true) => {
                info!("certificate reloaded");
                Some(Ok(()))
            }
            Err(error) => Some(Err(format!("{:#}", anyhow::Error::from(error)))),
        }
    }
}

impl Status {
    fn set(&self, outcome: Result<(), String>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(outcome);
    }

    fn get(&self) -> Option<Result<(), String>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn is_refused(&self) -> bool {
        matches!(self.get(), Some(Err(_)))
    }

    /// What the admin listener shows.
    pub(crate) fn view(&self, assembly: &Arc<Assembly>, drain: &Drain) -> Arc<dyn View> {
        Arc::new(Process { status: self.clone(), assembly: Arc::clone(assembly), drain: drain.clone() })
    }
}

/// The process, as an operator sees it.
struct Process {
    status: Status,
    assembly: Arc<Assembly>,
    drain: Drain,
}

impl View for Process {
    fn metrics(&self) -> String {
        self.assembly.metrics().render()
    }

    fn readiness(&self) -> Readiness {
        let draining = self.drain.is_draining();
        let reload = match self.status.get() {
            None => serde_json::json!({ "outcome": "none" }),
            Some(Ok(())) => serde_json::json!({ "outcome": "applied" }),
            Some(Err(reason)) => serde_json::json!({ "outcome": "refused", "reason": reason }),
        };
        let mut details = serde_json::Map::from_iter([
            ("draining".to_owned(), draining.into()),
            ("reload".to_owned(), reload),
        ]);
        let states = self.assembly.upstreams().states();
        if !states.is_empty() {
            details.insert("upstreams".to_owned(), states.into());
        }
        // A refused reload is told, but the gateway still takes work, as configured before; so it does without a server.
        Readiness { ready: !draining, details: details.into() }
    }

    fn admits<'a>(&'a self, token: &'a str) -> BoxFuture<'a, bool> {
        Box::pin(async move {
            let snapshot = self.assembly.gateway.snapshot();
            let admitted = snapshot.gate.admit_local(Some(token)).await;
            admitted.is_ok_and(|admitted| admitted.scopes().allow_named("admin"))
        })
    }

    fn upstreams(&self) -> serde_json::Value {
        serde_json::json!(self.assembly.upstreams().status())
    }
}

/// Watches the directories of some files. Directories, because editors and orchestrators replace files.
struct Watched {
    debouncer: Option<Debouncer<RecommendedWatcher, RecommendedCache>>,
    names: Arc<Mutex<BTreeSet<PathBuf>>>,
    directories: BTreeSet<PathBuf>,
}

impl Watched {
    fn new(asked: Arc<Notify>) -> Self {
        let names: Arc<Mutex<BTreeSet<PathBuf>>> = Arc::default();
        let interesting = Arc::clone(&names);
        let handler = move |result: DebounceEventResult| {
            let names = interesting.lock().unwrap_or_else(PoisonError::into_inner);
            let matters = |path: &PathBuf| names.contains(path) || is_swapped_link(path);
            let events = result.unwrap_or_default();
            if events.iter().any(|event| !event.kind.is_access() && event.paths.iter().any(matters)) {
                asked.notify_one();
            }
        };
        let debouncer = new_debouncer(SETTLE, None, handler)
            .inspect_err(|error| warn!(%error, "files are not watched; SIGHUP reloads"))
            .ok();
        Self { debouncer, names, directories: BTreeSet::new() }
    }

    /// Watches `files` from now on.
    fn follow(&mut self, files: BTreeSet<PathBuf>) {
        let Some(debouncer) = &mut self.debouncer else { return };
        let parents =
            files.iter().filter_map(|file| file.parent()).map(Path::to_owned).collect::<BTreeSet<_>>();
        for directory in parents.difference(&self.directories) {
            if let Err(error) = debouncer.watch(directory, RecursiveMode::NonRecursive) {
                warn!(%error, directory = %directory.display(), "changes there are not noticed; SIGHUP reloads");
            }
        }
        self.directories.extend(parents);
        *self.names.lock().unwrap_or_else(PoisonError::into_inner) = files;
    }
}

/// Where the certificate of `config` lies, if it has one.
pub(crate) fn tls_files(config: &Config) -> Option<Files> {
    let tls = config.server.tls.as_ref()?;
    Some(Files { certificate: tls.cert.clone(), key: tls.key.clone() })
}

/// Kubernetes changes mounted files by moving a symbolic link called `..data` beside them.
fn is_swapped_link(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name == "..data")
}
