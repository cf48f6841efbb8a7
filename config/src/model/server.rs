//! The gateway listener, and the directories its files lie in by default.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use ipnet::IpNet;

/// The ports tried in turn when none is configured: a second gateway of the same user starts without questions.
const GATEWAY_PORTS: RangeInclusive<u16> = 3847..=3857;

/// What every gateway of the field accepts; larger documents belong in resources.
const MAX_BODY: usize = 4 << 20;

/// How the gateway is reached.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Where it listens.
    pub listen: Listen,
    /// The address clients use, if it is another than `listen`.
    pub public_url: Option<PublicUrl>,
    /// Whose `X-Forwarded-For` and PROXY headers are believed.
    pub trusted_proxies: Vec<IpNet>,
    /// Certificate and key, if it speaks TLS.
    pub tls: Option<Tls>,
    /// The largest request body, in bytes.
    pub max_body: usize,
    /// Whether it may listen beyond this machine without TLS.
    pub allow_insecure: bool,
}

/// An address and the ports that are tried on it, in order.
#[derive(Clone, PartialEq, Eq)]
pub struct Listen {
    /// The address.
    pub address: IpAddr,
    /// One port if it was configured, several if not. Port 0 lets the system choose.
    pub ports: RangeInclusive<u16>,
}

/// The address clients use, for example that of a proxy in front of the gateway.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PublicUrl {
    /// Scheme, host, port and path, without a slash at the end.
    pub base: String,
    /// Host and, if written, port: an allowed `Host`.
    pub authority: String,
    /// The host alone.
    pub host: String,
}

/// Files for TLS, read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tls {
    /// The certificate chain, PEM.
    pub cert: PathBuf,
    /// Its private key, PEM.
    pub key: PathBuf,
}

/// Where a user's files lie by default, after the XDG base directories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Directories {
    /// `~`
    pub home: PathBuf,
    /// Tokens, keys, the run file: `$XDG_STATE_HOME/moongate`, else `~/.local/state/moongate`.
    pub state: PathBuf,
    /// The database: `$XDG_DATA_HOME/moongate`, else `~/.local/share/moongate`.
    pub data: PathBuf,
}

impl Default for Server {
    fn default() -> Self {
        Self {
            listen: Listen::search(GATEWAY_PORTS),
            public_url: None,
            trusted_proxies: Vec::new(),
            tls: None,
            max_body: MAX_BODY,
            allow_insecure: false,
        }
    }
}

impl Listen {
    /// Exactly this address and port.
    pub fn exact(address: SocketAddr) -> Self {
        Self { address: address.ip(), ports: address.port()..=address.port() }
    }

    /// The first free one of `ports` on loopback.
    pub fn search(ports: RangeInclusive<u16>) -> Self {
        Self { address: Ipv4Addr::LOCALHOST.into(), ports }
    }

    /// The addresses to try, in order.
    pub fn candidates(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let address = self.address;
        self.ports.clone().map(move |port| SocketAddr::new(address, port))
    }

    /// Whether only this machine can connect.
    pub fn is_loopback(&self) -> bool {
        self.address.to_canonical().is_loopback()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, *self.ports.start()).fmt(f)?;
        match self.ports.start() == self.ports.end() {
            true => Ok(()),
            false => write!(f, "–{}", self.ports.end()),
        }
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listen({self})")
    }
}

impl Directories {
    /// What the environment says, each variable looked up through `env`.
    pub fn from_env(env: &dyn Fn(&str) -> Option<String>) -> Self {
        let absolute = |name: &str| env(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let Some(home) = absolute("HOME") else { return Self::default() };
        let under =
            |name: &str, default: &str| absolute(name).unwrap_or_else(|| home.join(default)).join("moongate");
        Self {
            state: under("XDG_STATE_HOME", ".local/state"),
            data: under("XDG_DATA_HOME", ".local/share"),
            home,
        }
    }

    /// `text` as a path: `~` is the home, and what is relative lies in `base`.
    pub(crate) fn resolve(&self, text: &str, base: &Path) -> PathBuf {
        match text.strip_prefix("~/") {
            Some(rest) => self.home.join(rest),
            None if text == "~" => self.home.clone(),
            None => base.join(text),
        }
    }
}

/// For a process without a home: everything in `.moongate`, below the working directory.
impl Default for Directories {
    fn default() -> Self {
        let home = PathBuf::from(".moongate");
        Self { state: home.clone(), data: home.clone(), home }
    }
}
