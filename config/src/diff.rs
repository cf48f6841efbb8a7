//! What a new configuration changes, and what of that needs a restart.

use crate::model::Config;

/// What changed between two configurations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Diff {
    /// The sections that differ, by their key.
    pub changed: Vec<&'static str>,
    /// The keys that differ and cannot change while the gateway runs: with any of them, a reload is refused.
    pub needs_restart: Vec<&'static str>,
}

impl Diff {
    /// Whether both configurations are the same.
    pub fn is_empty(&self) -> bool {
        self.changed.is_empty()
    }
}

/// Compares the running configuration with a new one.
pub fn diff(old: &Config, new: &Config) -> Diff {
    let changed = [
        ("server", old.server != new.server),
        ("admin", old.admin != new.admin),
        ("sessions", old.sessions != new.sessions),
        ("context", old.context != new.context),
        ("security", old.security != new.security),
        ("upstreams", old.upstreams != new.upstreams),
        ("routes", old.routes != new.routes || old.caches != new.caches),
        ("profiles", old.profiles != new.profiles),
        ("backends", old.backends != new.backends),
        ("storage", old.storage != new.storage),
        ("telemetry", old.telemetry != new.telemetry),
    ];
    let needs_restart = [
        ("server.listen", old.server.listen != new.server.listen),
        // Certificates are replaced as they change; what a listener speaks is settled when it opens.
        ("server.tls", old.server.tls.is_some() != new.server.tls.is_some()),
        ("admin.enabled", old.admin.enabled != new.admin.enabled),
        ("admin.listen", old.admin.listen != new.admin.listen),
        // A listener's places are given out when it opens.
        ("security.limits.connections", old.security.limits.connections != new.security.limits.connections),
        // Everything that is sealed or signed hangs on it.
        ("security.key", old.security.key != new.security.key),
        ("storage", old.storage != new.storage),
        // Sessions and their processes live there.
        ("backends.workspace.root", old.backends.workspace.root != new.backends.workspace.root),
        // A log that changed its shape in the middle would be no use to its readers.
        ("telemetry.log_format", old.telemetry.log_format != new.telemetry.log_format),
    ];
    let names = |list: &[(&'static str, bool)]| {
        list.iter().filter_map(|(name, differs)| differs.then_some(*name)).collect()
    };
    Diff { changed: names(&changed), needs_restart: names(&needs_restart) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::{
        security::RootKey,
        server::{Listen, Tls},
        telemetry::LogFormat,
    };

    fn differing(change: impl FnOnce(&mut Config)) -> Diff {
        let old = Config::default();
        let mut new = old.clone();
        change(&mut new);
        diff(&old, &new)
    }

    #[test]
    fn equal_configurations_do_not_differ() {
        assert!(differing(|_| {}).is_empty());
    }

    #[test]
    fn most_changes_need_no_restart() {
        let diff = differing(|config| {
            config.security.anonymous = true;
            config.backends.ui.enabled = false;
            config.server.max_body = 1024;
        });
        assert_eq!(diff.changed, ["server", "security", "backends"]);
        assert!(diff.needs_restart.is_empty(), "{diff:?}");
    }

    #[test]
    fn what_is_opened_at_the_start_needs_a_restart() {
        let tls = |name: &str| Some(Tls { cert: name.into(), key: name.into() });
        let diff = differing(|config| {
            config.server.listen = Listen::exact(([127, 0, 0, 1], 1).into());
            config.admin.listen = Listen::exact(([127, 0, 0, 1], 2).into());
            config.server.tls = tls("a");
            config.security.limits.connections = None;
            config.security.key = RootKey::File("elsewhere.key".into());
            config.storage.path = "elsewhere.db".into();
            config.backends.workspace.root = "elsewhere".into();
            config.telemetry.log_format = LogFormat::Json;
        });
        let keys = [
            "server.listen",
            "server.tls",
            "admin.listen",
            "security.limits.connections",
            "security.key",
            "storage",
            "backends.workspace.root",
            "telemetry.log_format",
        ];
        assert_eq!(diff.needs_restart, keys);

        let mut old = Config::default();
        old.server.tls = tls("a");
        let mut new = old.clone();
        new.server.tls = tls("b");
        assert_eq!(super::diff(&old, &new), Diff { changed: vec!["server"], needs_restart: vec![] });
    }
}
