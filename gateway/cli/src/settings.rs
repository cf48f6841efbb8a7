//! Where the configuration comes from: a file, and what the command line says instead.

use std::{
    env,
    ffi::OsString,
    fmt, fs, io,
    net::SocketAddr,
    path::{Path, PathBuf},
};

use moongate_config::{Admin, Config, Directories, Listen, Loaded, LogFormat, Problems, Server};

use crate::{args, runfile::Record};

/// The name of the file that is looked for.
const FILE: &str = "moongate.yaml";

/// Where the configuration comes from. Reading it again gives what is there then.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    /// The file; without one, the defaults.
    file: Option<PathBuf>,
    overrides: Overrides,
    /// The gateway whose listeners are taken over: this one is reached where that one was, whatever else is said.
    predecessor: Option<Record>,
}

/// What the command line says instead of the file.
#[derive(Clone, Debug, Default)]
struct Overrides {
    address: Option<std::net::IpAddr>,
    port: Option<u16>,
    token_file: Option<PathBuf>,
    log_format: Option<LogFormat>,
}

/// Why there is no configuration.
#[derive(Debug)]
pub(crate) enum Unusable {
    /// The file cannot be read.
    Unreadable(PathBuf, io::Error),
    /// The file is wrong, here and there.
    Wrong(Problems),
    /// The file is right, but not together with the command line.
    Refused(String),
}

impl Settings {
    /// Those of `file`, or of the first place where one is found.
    pub(crate) fn of(file: Option<PathBuf>) -> Self {
        let file = file.or_else(|| usual_places().into_iter().find(|place| place.is_file()));
        // Absolute, so that watching and reading again do not depend on where the process stands.
        let file = file.map(|file| std::path::absolute(&file).unwrap_or(file));
        Self { file, overrides: Overrides::default(), predecessor: None }
    }

    /// Those of `serve` with these arguments.
    pub(crate) fn of_serve(arguments: &args::Serve) -> Self {
        let overrides = Overrides {
            address: arguments.http_bind,
            port: arguments.http_port,
            // Absolute, because others are told where it is.
            token_file: arguments
                .http_token_path
                .clone()
                .map(|path| std::path::absolute(&path).unwrap_or(path)),
            log_format: arguments.log_format.map(|format| match format {
                args::LogFormat::Text => LogFormat::Text,
                args::LogFormat::Json => LogFormat::Json,
            }),
        };
        Self { overrides, ..Self::of(arguments.config.clone()) }
    }

    /// The same for a gateway that takes over the listeners of `predecessor`. A configuration that asks for others, or
    /// that must not be served on these, is then unusable.
    pub(crate) fn after(self, predecessor: Record) -> Self {
        Self { predecessor: Some(predecessor), ..self }
    }

    /// The file, if there is one.
    pub(crate) fn file(&self) -> Option<&Path> {
        self.file.as_deref()
    }

    /// Reads and checks everything.
    pub(crate) fn load(&self) -> Result<Loaded, Unusable> {
        let text = match &self.file {
            Some(file) => fs::read(file).map_err(|error| Unusable::Unreadable(file.clone(), error))?,
            None => Vec::new(),
        };
        let origin = self.file.clone().unwrap_or_else(|| FILE.into());
        let mut loaded = moongate_config::load(text, &origin, &variable, &|path| fs::read_to_string(path))
            .map_err(Unusable::Wrong)?;
        self.overrides.apply(&mut loaded.config);
        if let Some(predecessor) = &self.predecessor {
            inherit(&mut loaded.config, predecessor).map_err(Unusable::Refused)?;
        }
        match loaded.config.refusals().first() {
            None => Ok(loaded),
            Some(refusal) => {
                Err(Unusable::Refused(format!("{}; expected {}", refusal.message, refusal.expected)))
            }
        }
    }
}

impl Overrides {
    fn apply(&self, config: &mut Config) {
        if let Some(address) = self.address {
            config.server.listen.address = address;
        }
        if let Some(port) = self.port {
            config.server.listen = Listen::exact(SocketAddr::new(config.server.listen.address, port));
        }
        if let Some(file) = &self.token_file {
            config.security.token_file.clone_from(file);
        }
        if let Some(format) = self.log_format {
            config.telemetry.log_format = format;
        }
    }
}

/// Puts the addresses that are taken over into `config`, so that it is checked with them.
fn inherit(config: &mut Config, from: &Record) -> Result<(), String> {
    let spoken = |tls| if tls { "TLS" } else { "no TLS" };
    let wanted = config.server.tls.is_some();
    if wanted != from.tls {
        return Err(contradiction("server.tls", spoken(wanted), spoken(from.tls)));
    }
    inherit_address("server.listen", &mut config.server.listen, &Server::default().listen, from.address)?;
    match from.admin {
        Some(address) if config.admin.enabled => {
            inherit_address("admin.listen", &mut config.admin.listen, &Admin::default().listen, address)
        }
        _ => Ok(()),
    }
}

/// An address that nobody chose gives way; one that somebody chose must be the one there is.
fn inherit_address(
    key: &str,
    listen: &mut Listen,
    default: &Listen,
    address: SocketAddr,
) -> Result<(), String> {
    if listen != default && !listen.admits(address) {
        return Err(contradiction(key, &listen.to_string(), &address.to_string()));
    }
    *listen = Listen::exact(address);
    Ok(())
}

fn contradiction(key: &str, wanted: &str, found: &str) -> String {
    format!(
        "`{key}` asks for {wanted}, and the gateway to be replaced has {found}; stop it and start anew without --upgrade"
    )
}

impl fmt::Display for Unusable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unreadable(path, _) => write!(f, "cannot read {}", path.display()),
            Self::Wrong(problems) => write!(f, "{problems}"),
            Self::Refused(reason) => f.write_str(reason),
        }
    }
}

impl std::error::Error for Unusable {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Unreadable(_, error) => Some(error),
            Self::Wrong(_) | Self::Refused(_) => None,
        }
    }
}

/// The user's directories, as the environment describes them.
pub(crate) fn directories() -> Directories {
    Directories::from_env(&variable)
}

/// `$XDG_RUNTIME_DIR`, if it is usable.
pub(crate) fn runtime_directory() -> Option<PathBuf> {
    absolute("XDG_RUNTIME_DIR").filter(|path| path.is_dir())
}

fn usual_places() -> Vec<PathBuf> {
    let user = absolute("XDG_CONFIG_HOME").or_else(|| Some(absolute("HOME")?.join(".config")));
    [Some(FILE.into()), user.map(|directory| directory.join("moongate").join(FILE))]
        .into_iter()
        .flatten()
        .collect()
}

fn absolute(variable: &str) -> Option<PathBuf> {
    env::var_os(variable)
        .filter(|value: &OsString| !value.is_empty())
        .map(PathBuf::from)
        .filter(|path| path.is_absolute())
}

fn variable(name: &str) -> Option<String> {
    env::var(name).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runfile::Own;

    fn serve(arguments: &[&str]) -> args::Serve {
        let all = std::iter::once("moongate").chain(arguments.iter().copied());
        <args::Cli as clap::Parser>::try_parse_from(all).unwrap().serve
    }

    fn load(yaml: &str, arguments: &[&str]) -> Result<Config, Unusable> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        fs::write(&file, yaml).unwrap();
        let arguments = args::Serve { config: Some(file), ..serve(arguments) };
        Settings::of_serve(&arguments).load().map(|loaded| loaded.config)
    }

    #[test]
    fn the_command_line_wins_over_the_file() {
        let yaml = "server: {listen: 127.0.0.1:9000}";
        let arguments =
            ["--http-port", "0", "--http-bind", "::1", "--http-token-path", "/t", "--log-format", "json"];
        let config = load(yaml, &arguments).unwrap();
        assert_eq!(config.server.listen, Listen::exact("[::1]:0".parse().unwrap()));
        assert_eq!(config.security.token_file, Path::new("/t"));
        assert_eq!(config.telemetry.log_format, LogFormat::Json);
        assert_eq!(load(yaml, &[]).unwrap().server.listen, Listen::exact("127.0.0.1:9000".parse().unwrap()));
    }

    #[test]
    fn an_address_on_the_command_line_is_checked_like_one_in_the_file() {
        let error = load("", &["--http-bind", "0.0.0.0"]).unwrap_err().to_string();
        assert!(error.contains("allow_insecure"), "{error}");
        load("server: {allow_insecure: true}", &["--http-bind", "0.0.0.0"]).unwrap();
    }

    fn succeed(yaml: &str, arguments: &[&str], predecessor: &Record) -> Result<Config, String> {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join(FILE);
        fs::write(&file, yaml).unwrap();
        let arguments = args::Serve { config: Some(file), ..serve(arguments) };
        let settings = Settings::of_serve(&arguments).after(predecessor.clone());
        settings.load().map(|loaded| loaded.config).map_err(|unusable| unusable.to_string())
    }

    fn running_at(address: &str, admin: Option<&str>, tls: bool) -> Record {
        let parse = |text: &str| text.parse().unwrap();
        let (address, admin) = (parse(address), admin.map(parse));
        Record { pid: 1, endpoint: String::new(), address, admin, tls, own: Own::default() }
    }

    #[test]
    fn a_successor_is_where_its_predecessor_was() {
        let local = running_at("127.0.0.1:4000", Some("127.0.0.1:4001"), false);
        for (yaml, arguments) in [
            ("", &[][..]),
            ("", &["--http-port", "0"]),
            ("", &["--http-bind", "127.0.0.1", "--http-port", "4000"]),
            ("{server: {listen: 127.0.0.1:4000}, admin: {listen: 127.0.0.1:0}}", &[]),
        ] {
            let config = succeed(yaml, arguments, &local).unwrap();
            assert_eq!(config.server.listen, Listen::exact(local.address), "{yaml} {arguments:?}");
            assert_eq!(Some(config.admin.listen), local.admin.map(Listen::exact), "{yaml} {arguments:?}");
        }
        let without = succeed("admin: {enabled: false, listen: 127.0.0.1:1}", &[], &local).unwrap();
        assert_eq!(without.admin.listen, Listen::exact("127.0.0.1:1".parse().unwrap()));
    }

    #[test]
    fn a_successor_that_asks_for_another_listener_is_refused() {
        let local = running_at("127.0.0.1:4000", Some("127.0.0.1:4001"), false);
        for (yaml, arguments, key) in [
            ("server: {listen: 127.0.0.1:4002}", &[][..], "server.listen"),
            ("", &["--http-port", "4002"], "server.listen"),
            ("", &["--http-bind", "::1"], "server.listen"),
            ("admin: {listen: 127.0.0.1:4002}", &[], "admin.listen"),
            ("server: {tls: {cert: a, key: b}}", &[], "server.tls"),
        ] {
            let error = succeed(yaml, arguments, &local).unwrap_err();
            assert!(error.contains(key) && error.contains("--upgrade"), "{yaml} {arguments:?}: {error}");
        }
        let error = succeed("", &[], &running_at("127.0.0.1:4000", None, true)).unwrap_err();
        assert!(error.contains("server.tls"), "{error}");
    }

    #[test]
    fn a_successor_must_be_allowed_to_serve_where_its_predecessor_was() {
        let open = running_at("0.0.0.0:4000", None, false);
        let error = succeed("", &[], &open).unwrap_err();
        assert!(error.contains("tokens would travel in the clear"), "{error}");
        let error =
            succeed("{server: {allow_insecure: true}, security: {anonymous: true}}", &[], &open).unwrap_err();
        assert!(error.contains("callers would need no token"), "{error}");
        succeed("server: {allow_insecure: true}", &[], &open).unwrap();
        let admin = running_at("127.0.0.1:4000", Some("0.0.0.0:4001"), false);
        let error = succeed("", &[], &admin).unwrap_err();
        assert!(error.contains("admin listener has no TLS"), "{error}");
        succeed("admin: {enabled: false}", &[], &admin).unwrap();
    }

    #[test]
    fn a_file_that_was_named_must_be_there() {
        let error = Settings::of(Some("/nowhere/moongate.yaml".into())).load().unwrap_err();
        assert_eq!(error.to_string(), "cannot read /nowhere/moongate.yaml");
    }

    #[test]
    fn the_container_ships_a_configuration_that_works() {
        let file = Path::new("../../deploy/container/moongate.yaml").to_owned();
        let config = Settings::of(Some(file)).load().unwrap().config;
        assert!(!config.server.listen.is_loopback());
    }

    #[test]
    fn problems_keep_their_place() {
        let Unusable::Wrong(problems) = load("server: {lisen: x}", &[]).unwrap_err() else { panic!() };
        assert_eq!(problems.iter().next().unwrap().line, 1);
    }
}
