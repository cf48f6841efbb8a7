//! What a person or a program reads when the gateway is ready.

use std::{
    fmt::Write as _,
    net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr},
    path::Path,
};

use moongate_config::Config;

/// Where the gateway can be reached.
#[derive(Clone, Debug)]
pub(crate) struct Ready<'a> {
    /// The MCP endpoint.
    pub endpoint: &'a str,
    /// The admin listener's base URL, if there is one.
    pub admin: Option<&'a str>,
    /// The file with the local token.
    pub token_file: &'a Path,
    /// The configuration file, if the command line named one.
    pub config_file: Option<&'a Path>,
    /// Whether the command line named the token's file, of which other commands know nothing.
    pub token_moved: bool,
}

/// The MCP endpoint of a gateway that listens on `address`, as a client should write it.
pub(crate) fn endpoint(config: &Config, address: SocketAddr, profile: Option<&str>) -> String {
    let base = match &config.server.public_url {
        Some(url) => url.base.clone(),
        None => own_url(config, address),
    };
    match profile {
        Some(profile) => format!("{base}/mcp/{profile}"),
        None => format!("{base}/mcp"),
    }
}

/// The URL of a gateway that listens on `address`, without a path and past any balancer.
pub(crate) fn own_url(config: &Config, address: SocketAddr) -> String {
    let scheme = if config.server.tls.is_some() { "https" } else { "http" };
    format!("{scheme}://{}", authority(&config.security.hosts, address))
}

/// Where to connect to reach a listener on `address`: one for all addresses is reached by that of this machine too.
pub(crate) fn reachable(address: SocketAddr) -> SocketAddr {
    let ip = match address.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    SocketAddr::new(ip, address.port())
}

/// A name under which a listener on `address` may be called: beyond this machine only those in `hosts` are allowed.
fn authority(hosts: &[String], address: SocketAddr) -> String {
    let own = reachable(address).to_string();
    let portless = own.strip_suffix(&format!(":{}", address.port())).unwrap_or(&own);
    let allowed = address.ip().is_loopback() || hosts.iter().any(|host| *host == own || host == portless);
    match hosts.first() {
        Some(first) if !allowed => {
            // After the bracket of an IPv6 address, a colon is that of a port.
            let has_port = first.rsplit(']').next().is_some_and(|rest| rest.contains(':'));
            if has_port { first.clone() } else { format!("{first}:{}", address.port()) }
        }
        _ => own,
    }
}

impl Ready<'_> {
    /// One line for programs: `moongate ready`, then words of `key=value`.
    pub(crate) fn line(&self) -> String {
        let mut line = format!("moongate ready endpoint={}", self.endpoint);
        if let Some(admin) = self.admin {
            line.push_str(" admin=");
            line.push_str(admin);
        }
        // Last, because a path may hold spaces.
        let _infallible = write!(line, " token={}", self.token_file.display());
        line
    }

    /// The block for people: where things are, and what to paste into an IDE.
    ///
    /// The token itself is not shown: terminals scroll back and logs are kept.
    pub(crate) fn welcome(&self) -> String {
        let Self { endpoint, admin, .. } = self;
        let (token, token_file) = (self.token_source(), self.token_file.display());
        let admin = admin.map_or_else(String::new, |admin| format!("\n  Metrics     {admin}/metrics"));
        format!(
            r#"
  Endpoint    {endpoint}
  Token file  {token_file}{admin}

  For your IDE (mcp.json), with {token} after "Bearer":

    {{
      "mcpServers": {{
        "moongate": {{
          "url": "{endpoint}",
          "headers": {{ "Authorization": "Bearer TOKEN" }}
        }}
      }}
    }}

  or, for an IDE that starts its servers, without a token:

    {{ "mcpServers": {{ "moongate": {{ "command": "moongate", "args": ["stdio"] }} }} }}
"#
        )
    }

    /// Where a person finds the token.
    fn token_source(&self) -> String {
        match self.config_file {
            _ if self.token_moved => format!("the contents of {}", self.token_file.display()),
            Some(file) => format!("the output of `moongate token show --config {}`", file.display()),
            None => "the output of `moongate token show`".to_owned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ready(admin: Option<&str>) -> Ready<'_> {
        Ready {
            endpoint: "http://127.0.0.1:3847/mcp",
            admin,
            token_file: Path::new("/home/me/my state/token"),
            config_file: None,
            token_moved: false,
        }
    }

    #[test]
    fn the_line_names_endpoint_admin_and_token_file() {
        assert_eq!(
            ready(Some("http://127.0.0.1:3860")).line(),
            "moongate ready endpoint=http://127.0.0.1:3847/mcp admin=http://127.0.0.1:3860 token=/home/me/my state/token"
        );
        assert_eq!(
            ready(None).line(),
            "moongate ready endpoint=http://127.0.0.1:3847/mcp token=/home/me/my state/token"
        );
    }

    #[test]
    fn the_welcome_is_ready_to_paste() {
        insta::assert_snapshot!(ready(Some("http://127.0.0.1:3860")).welcome());
    }

    #[test]
    fn the_welcome_says_where_the_token_of_this_very_gateway_is() {
        let configured = Ready { config_file: Some(Path::new("team.yaml")), ..ready(None) };
        assert!(
            configured
                .welcome()
                .contains("with the output of `moongate token show --config team.yaml` after")
        );
        let moved = Ready { token_moved: true, ..configured };
        assert!(moved.welcome().contains("with the contents of /home/me/my state/token after"));
    }

    #[test]
    fn the_endpoint_is_one_that_is_answered() {
        for (hosts, address, expected) in [
            (&[][..], "127.0.0.1:80", "127.0.0.1:80"),
            (&["a.example"], "127.0.0.5:80", "127.0.0.5:80"),
            (&[], "0.0.0.0:80", "127.0.0.1:80"),
            (&[], "[::]:80", "[::1]:80"),
            (&["a.example", "127.0.0.1"], "0.0.0.0:80", "127.0.0.1:80"),
            (&["a.example", "[::1]:80"], "[::]:80", "[::1]:80"),
            (&["a.example", "b.example"], "0.0.0.0:80", "a.example:80"),
            (&["a.example:443"], "10.0.0.5:80", "a.example:443"),
            (&["[fd00::1]"], "[fd00::2]:80", "[fd00::1]:80"),
            (&["10.0.0.5"], "10.0.0.5:80", "10.0.0.5:80"),
        ] {
            let hosts: Vec<_> = hosts.iter().map(|host: &&str| (*host).to_owned()).collect();
            assert_eq!(authority(&hosts, address.parse().unwrap()), expected, "{hosts:?} {address}");
        }
    }
}
