//! From what the file says to what the program trusts.
//!
//! Pure: no files, no network, no clock. Whatever is wrong is reported and replaced by its default, so that everything
//! after it is still looked at; a configuration with a report never leaves this crate.

use crate::{
    load::read::{At, Place, Report},
    model::{
        Config, RawConfig,
        admin::{Admin, RawAdmin},
        backends::{Backend, Backends, RawBackend, RawBackends, RawStorage, Storage},
        server::Directories,
        telemetry::{RawTelemetry, Telemetry},
    },
    problem::{Problem, ProblemKind},
};

mod content;
mod context;
pub(crate) mod exposure;
mod routing;
mod security;
mod server;
mod upstreams;
mod workspace;

/// Turns the file's shape into the program's, reporting every problem on the way.
pub(crate) fn check(raw: RawConfig, directories: &Directories, report: &mut Report) -> Config {
    let mut check = Check { report };
    let mut config = Config::defaults(directories);
    let places = exposure::Places::of(&raw);
    check.section(raw.server, |check, raw| config.server = server::server(raw, check));
    check.section(raw.admin, |_, raw| config.admin = admin(&raw));
    check.section(raw.sessions, |check, raw| config.sessions = context::sessions(raw, check));
    check.section(raw.context, |check, raw| config.context = context::context(raw, check));
    check.section(raw.backends, |check, raw| backends(raw, &mut config.backends, check));
    check.section(raw.storage, |_, raw| storage(raw, &mut config.storage));
    check.section(raw.telemetry, |_, raw| config.telemetry = telemetry(&raw));
    let scopes = security::Scopes::of(raw.security.as_ref());
    check.section(raw.security, |check, raw| security::security(raw, &scopes, &mut config.security, check));
    let mut known = Vec::new();
    check.section(raw.upstreams, |check, raw| {
        known = upstreams::upstreams(raw, &scopes, &mut config, check);
    });
    let mut routing = routing::Routing { scopes: &scopes, upstreams: &known, config: &mut config };
    check.section(raw.routes, |check, raw| routing.routes(raw, check));
    check.section(raw.profiles, |check, raw| routing.profiles(raw, check));
    config.security.scopes_closed = scopes.closed;
    config.security.scopes.extend(scopes.into_known());
    exposure::report(&config, &places, &mut check);
    config
}

/// Where checks put what they find.
struct Check<'r> {
    report: &'r mut Report,
}

impl Check<'_> {
    fn section<T>(&mut self, raw: Option<At<T>>, run: impl FnOnce(&mut Self, T)) {
        if let Some(raw) = raw {
            run(self, raw.value);
        }
    }

    fn push(&mut self, problem: Problem) {
        self.report.problems.push(problem);
    }

    /// A value that does not fit, or not to another.
    fn conflict(&mut self, place: &Place, message: impl Into<String>, expected: impl Into<String>) {
        let problem = Problem::new(ProblemKind::Conflict, &place.path, place.span.clone(), message);
        self.push(problem.found(&place.found).expected(expected));
    }

    /// A key that the mapping at `place` needs.
    fn missing(&mut self, place: &Place, key: &str) {
        let message = format!("the key `{key}` is missing");
        self.push(Problem::new(ProblemKind::MissingKey, &place.path, place.span.clone(), message));
    }

    /// A name of something that does not exist; `known` are those that do.
    fn unknown<'a>(&mut self, name: &At<String>, what: &str, known: impl Iterator<Item = &'a str> + Clone) {
        let At { value, place } = name;
        let list = known.clone().collect::<Vec<_>>().join(", ");
        let message = format!("there is no {what} called {}", place.found);
        let problem = Problem::new(ProblemKind::UnknownName, &place.path, place.span.clone(), message);
        let near = if place.secret { "" } else { value };
        self.push(problem.found(&place.found).expected(format!("one of {list}")).near(near, known));
    }
}

/// Puts a value that was given over a default.
fn set<T, U: From<T>>(target: &mut U, given: Option<At<T>>) {
    if let Some(given) = given {
        *target = given.value.into();
    }
}

fn admin(raw: &RawAdmin) -> Admin {
    let mut admin = Admin::default();
    set(&mut admin.enabled, raw.enabled.clone());
    set(&mut admin.listen, raw.listen.clone());
    admin
}

fn backends(raw: RawBackends, backends: &mut Backends, check: &mut Check<'_>) {
    let backend = |raw: Option<At<RawBackend>>| {
        let mut backend = Backend::default();
        if let Some(At { value, .. }) = raw {
            set(&mut backend.enabled, value.enabled);
            set(&mut backend.tool_errors, value.tool_errors);
        }
        backend
    };
    backends.planning = backend(raw.planning);
    backends.playbook = backend(raw.playbook);
    backends.ui = backend(raw.ui);
    check.section(raw.content, |check, raw| backends.content = content::content(raw, check));
    check.section(raw.workspace, |check, raw| workspace::workspace(raw, &mut backends.workspace, check));
}

fn storage(raw: RawStorage, storage: &mut Storage) {
    if let Some(url) = raw.url {
        storage.path = url.value.0;
    }
    set(&mut storage.durability, raw.durability);
}

fn telemetry(raw: &RawTelemetry) -> Telemetry {
    let mut telemetry = Telemetry::default();
    set(&mut telemetry.log_format, raw.log_format.clone());
    set(&mut telemetry.log_level, raw.log_level.clone());
    telemetry
}
