//! The gateway listener, and the directories its files lie in by default.

use std::{
    fmt,
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    path::{Path, PathBuf},
};

use http::{Uri, uri::Scheme};
use ipnet::IpNet;

use crate::{
    load::{
        declare::{section, text},
        read::At,
    },
    units::Size,
};

/// The ports tried in turn when none is configured: a second gateway of the same user starts without questions.
const GATEWAY_PORTS: RangeInclusive<u16> = 3847..=3857;

/// What every gateway of the field accepts; larger documents belong in resources.
const MAX_BODY: usize = 4 << 20;

section! {
    /// How the gateway is reached.
    #[schemars(rename = "Server")]
    struct RawServer {
        /// Address and port, such as `127.0.0.1:3847` or `[::1]:3847`; port 0 takes any free one. Absent: port 3847 of this
        /// machine, or the first free one up to 3857.
        listen: Listen,
        /// The address clients use when it is another, such as that of a proxy: `https://mcp.example.com`. Its host is an
        /// allowed `Host`.
        public_url: PublicUrl,
        /// Networks such as `10.0.0.0/8` whose `X-Forwarded-For` and PROXY headers are believed.
        trusted_proxies: Vec<At<Network>>,
        /// Certificate and key for TLS.
        tls: RawTls,
        /// The largest request body.
        #[schemars(extend("default" = "4MiB"))]
        max_body: Size,
        /// Lets the gateway listen beyond this machine without TLS. It warns about it at every start.
        #[schemars(extend("default" = false))]
        allow_insecure: bool,
    }
}

section! {
    /// Files for TLS, read again when they change.
    #[schemars(rename = "Tls")]
    struct RawTls {
        /// The certificate chain, as PEM.
        #[schemars(required)]
        cert: PathBuf,
        /// Its private key, as PEM.
        #[schemars(required)]
        key: PathBuf,
    }
    later: ["client_ca"]
}

/// A network in the file: a prefix, or a single address.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Network(pub(crate) IpNet);

text!(Listen, "an address and a port, such as `127.0.0.1:3847`", r".+:[0-9]{1,5}", Listen::parse);
text!(PublicUrl, "an address such as `https://mcp.example.com`", r"https?://[^@?#]+", PublicUrl::parse);
text!(Network, "a network such as `10.0.0.0/8`", r"[0-9a-fA-F.:]+(?:/[0-9]{1,3})?", Network::parse);

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

    fn parse(text: &str) -> Result<Self, &'static str> {
        let numeric = text.strip_prefix("localhost:").map(|port| format!("127.0.0.1:{port}"));
        let numeric = numeric.as_deref().unwrap_or(text);
        numeric.parse().map(Self::exact).map_err(|_| "is not an address and a port")
    }

    /// The addresses to try, in order.
    pub fn candidates(&self) -> impl Iterator<Item = SocketAddr> + use<> {
        let address = self.address;
        self.ports.clone().map(move |port| SocketAddr::new(address, port))
    }

    /// Whether a socket at `address` is one that this asks for.
    pub fn admits(&self, address: SocketAddr) -> bool {
        let any_port = *self.ports.end() == 0;
        self.address == address.ip() && (any_port || self.ports.contains(&address.port()))
    }

    /// Whether only this machine can connect.
    pub fn is_loopback(&self) -> bool {
        self.address.to_canonical().is_loopback()
    }
}

impl fmt::Display for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, *self.ports.start()).fmt(f)?;
        if self.ports.start() == self.ports.end() { Ok(()) } else { write!(f, "–{}", self.ports.end()) }
    }
}

impl fmt::Debug for Listen {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Listen({self})")
    }
}

impl PublicUrl {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "is not a URL")?;
        let (Some(scheme), Some(authority)) = (uri.scheme(), uri.authority()) else {
            return Err("is not a URL");
        };
        if *scheme != Scheme::HTTP && *scheme != Scheme::HTTPS {
            return Err("is neither `http` nor `https`");
        }
        if authority.as_str().contains('@') {
            return Err("holds a user or a password");
        }
        // `Uri` drops a fragment without a word.
        if uri.query().is_some() || text.contains('#') {
            return Err("has a query or a fragment");
        }
        let authority_text = authority.as_str().to_ascii_lowercase();
        let base = format!("{scheme}://{authority_text}{}", uri.path().trim_end_matches('/'));
        let host = authority.host().to_ascii_lowercase();
        Ok(Self { base, authority: authority_text, host })
    }

    /// Whether it leads to this machine only.
    pub fn is_loopback(&self) -> bool {
        is_loopback(&self.host)
    }
}

/// Whether a host, as a URL spells it in lower case, is this machine.
pub(super) fn is_loopback(host: &str) -> bool {
    let address = host.trim_matches(['[', ']']).parse::<IpAddr>();
    host == "localhost" || address.is_ok_and(|address| address.to_canonical().is_loopback())
}

impl Network {
    fn parse(text: &str) -> Result<Self, &'static str> {
        let single = |_| text.parse::<IpAddr>().map(IpNet::from);
        let network = text.parse::<IpNet>().or_else(single).map_err(|_| "is not a network")?;
        // Whoever is trusted may claim any address, so this would switch off every limit per address.
        if network.prefix_len() == 0 {
            return Err("is everyone");
        }
        Ok(Self(network))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn listen_is_one_address_or_a_search() {
        let parsed = Listen::parse("0.0.0.0:80").unwrap();
        assert_eq!((parsed.to_string().as_str(), parsed.is_loopback()), ("0.0.0.0:80", false));
        assert_eq!(Listen::parse("localhost:0").unwrap(), Listen::exact(([127, 0, 0, 1], 0).into()));
        assert!(
            Listen::parse("[::1]:1").unwrap().is_loopback()
                && Listen::parse("[::ffff:127.0.0.1]:1").unwrap().is_loopback()
        );
        assert!(
            ["3847", "127.0.0.1", "example.com:80", "127.0.0.1:99999", "::1:80"]
                .iter()
                .all(|bad| Listen::parse(bad).is_err())
        );
        let [any, one] = ["127.0.0.1:0", "127.0.0.1:80"].map(|text| Listen::parse(text).unwrap());
        for (listen, address, admitted) in [
            (&any, "127.0.0.1:80", true),
            (&any, "0.0.0.0:80", false),
            (&one, "127.0.0.1:80", true),
            (&one, "127.0.0.1:81", false),
            (&one, "[::1]:80", false),
            (&Server::default().listen, "127.0.0.1:3857", true),
            (&Server::default().listen, "127.0.0.1:3858", false),
        ] {
            assert_eq!(listen.admits(address.parse().unwrap()), admitted, "{listen} {address}");
        }
        let search = Server::default().listen;
        assert_eq!((search.candidates().count(), search.to_string().as_str()), (11, "127.0.0.1:3847–3857"));
    }

    #[test]
    fn public_urls_are_normalised() {
        let url = PublicUrl::parse("https://MCP.example.com:8443/gate/").unwrap();
        assert_eq!(url.base, "https://mcp.example.com:8443/gate");
        assert_eq!((url.authority.as_str(), url.host.as_str()), ("mcp.example.com:8443", "mcp.example.com"));
        assert!(PublicUrl::parse("http://[::1]:80").unwrap().is_loopback() && !url.is_loopback());
        for bad in ["mcp.example.com", "ftp://x", "https://u:p@x", "https://x?y", "https://x#y", "/x", ""] {
            assert!(PublicUrl::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_may_be_single_addresses_but_not_everyone() {
        assert_eq!(Network::parse("10.0.0.1").unwrap().0.to_string(), "10.0.0.1/32");
        assert_eq!(Network::parse("fd00::/8").unwrap().0.to_string(), "fd00::/8");
        assert!(["0.0.0.0/0", "::/0", "10.0.0.0/33", "x"].iter().all(|bad| Network::parse(bad).is_err()));
    }

    #[test]
    fn directories_follow_the_environment() {
        let env = |name: &str| match name {
            "HOME" => Some("/home/me".to_owned()),
            "XDG_DATA_HOME" => Some("/data".to_owned()),
            "XDG_STATE_HOME" => Some("relative/is/ignored".to_owned()),
            _ => None,
        };
        let directories = Directories::from_env(&env);
        assert_eq!(directories.state, Path::new("/home/me/.local/state/moongate"));
        assert_eq!(directories.data, Path::new("/data/moongate"));
        assert_eq!(directories.resolve("~/x", Path::new("/etc")), Path::new("/home/me/x"));
        assert_eq!(directories.resolve("x", Path::new("/etc")), Path::new("/etc/x"));
        assert_eq!(directories.resolve("/x", Path::new("/etc")), Path::new("/x"));
        assert_eq!(Directories::from_env(&|_| None), Directories::default());
    }
}
