//! Where a command finds a gateway: the running one of this user, or one of its own that ends with the command.

use std::{
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use anyhow::Context as _;
use moongate_config::{Config, Listen};
use moongate_core::{Changes, task::Group};
use moongate_proxy::edge::serve::{self as http, Drain};
use moongate_security::Secret;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::{
    Extra,
    assemble::{Assembly, open_token},
    client::Client,
    fetch, listen,
    pipe::token_of_caller,
    ready,
    runfile::{Record, RunDirectory},
    settings::{self, Settings},
};

/// How long what runs in a gateway of our own may go on when the command is done.
const GRACE: Duration = Duration::from_millis(500);

/// A gateway that answers this user.
pub(crate) struct Found {
    /// Its URL, without a path.
    url: String,
    token: Secret,
    /// What its admin listener is shown: that is the user's own, whoever the tools are called as.
    admin_token: Secret,
    /// Certificates to believe beside the system's.
    authorities: Vec<PathBuf>,
    side: Side,
}

enum Side {
    Running(Record),
    Own(Box<Own>),
}

/// A gateway inside this process. It serves on a port of this machine that nobody is told of, under the same guard as
/// every other, so that commands need one way to it and not two.
struct Own {
    assembly: Arc<Assembly>,
    tasks: Group,
}

/// What a gateway tells about a server behind it; the same as its own `Status`.
#[derive(Clone, Debug, Default, Deserialize, Serialize)]
#[serde(default)]
pub(crate) struct Upstream {
    pub name: String,
    pub state: String,
    pub version: Option<String>,
    pub server: Option<String>,
    pub era: Option<String>,
    pub connections: usize,
    pub starts: u64,
    pub pids: Vec<u32>,
    /// Tools, prompts, resources, templates.
    pub offers: Option<[usize; 4]>,
    pub tools: Vec<String>,
    pub left_out: Vec<String>,
    pub last_error: Option<String>,
    pub stderr: Vec<String>,
    pub notes: Vec<String>,
}

/// The running gateway of this user, if there is one. With `config`, only one that has this very file.
pub(crate) fn running(config: Option<&Path>) -> anyhow::Result<Option<Record>> {
    let run = RunDirectory::open(settings::runtime_directory(), &settings::directories().state)?;
    let record = run.running().context("cannot read the run file")?;
    let wanted = config.map(std::path::absolute).transpose()?;
    Ok(record.filter(|record| wanted.is_none() || wanted == record.own.config_file))
}

/// The configuration of the running gateway, or of the one that would run.
pub(crate) fn settings(config: Option<PathBuf>, running: Option<&Record>) -> Settings {
    Settings::of(config.or_else(|| running.and_then(|record| record.own.config_file.clone())))
}

impl Found {
    /// The running gateway. `config` is its configuration, as far as it could be read.
    pub(crate) fn at(record: Record, config: Option<&Config>) -> anyhow::Result<Self> {
        let admin_token = local_token(&record, config)?;
        let token = token_of_caller()?.unwrap_or_else(|| admin_token.clone());
        let tls = config.and_then(|config| config.server.tls.as_ref()).filter(|_| record.tls);
        let url = record.own.url.clone().unwrap_or_else(|| {
            let scheme = if record.tls { "https" } else { "http" };
            format!("{scheme}://{}", ready::reachable(record.address))
        });
        let authorities = tls.map(|tls| tls.cert.clone()).into_iter().collect();
        Ok(Self { url, token, admin_token, authorities, side: Side::Running(record) })
    }

    /// A gateway of `config` in this process.
    pub(crate) async fn own(
        mut config: Config,
        extra: impl FnOnce(&Changes) -> Vec<Extra> + Send + 'static,
    ) -> anyhow::Result<Self> {
        let loopback = SocketAddr::from((Ipv4Addr::LOCALHOST, 0));
        config.server.listen = Listen::exact(loopback);
        let listener = listen::bind(&config.server.listen, "")?;
        let address = listener.local_addr()?;
        let token_file = config.security.token_file.clone();
        // Opening the database and the key files blocks.
        let assembly = tokio::task::spawn_blocking(move || Assembly::build(config, extra)).await??;
        let assembly = Arc::new(assembly);
        let tasks = Group::new();
        tasks.spawn(Arc::clone(&assembly.gateway).run());
        let app = Arc::clone(&assembly.gateway);
        tasks.spawn(http::serve(listener, http::Options::default(), app, Drain::new()));
        let admin_token = open_token(&token_file)?.token()?;
        let token = token_of_caller()?.unwrap_or_else(|| admin_token.clone());
        let own = Own { assembly, tasks };
        Ok(Self {
            url: format!("http://{address}"),
            token,
            admin_token,
            authorities: Vec::new(),
            side: Side::Own(Box::new(own)),
        })
    }

    /// A client of it, who is offered `profile`.
    pub(crate) async fn client(&self, profile: Option<&str>, capabilities: Value) -> anyhow::Result<Client> {
        let url = match profile {
            Some(profile) => format!("{}/mcp/{profile}", self.url),
            None => format!("{}/mcp", self.url),
        };
        Client::connect(&url, &self.token, self.authorities.clone(), capabilities).await
    }

    /// How the servers behind it are. Those of our own gateway are all asked now.
    pub(crate) async fn examined(&self) -> anyhow::Result<Vec<Upstream>> {
        if let Side::Own(own) = &self.side {
            own.assembly.upstreams().examine().await;
        }
        self.upstreams().await
    }

    /// How the servers behind it are.
    pub(crate) async fn upstreams(&self) -> anyhow::Result<Vec<Upstream>> {
        let text = match &self.side {
            Side::Own(own) => serde_json::to_vec(&own.assembly.upstreams().status())?.into(),
            Side::Running(record) => {
                let admin = record.admin.context("it has no admin listener (admin.enabled: false)")?;
                fetch::page(ready::reachable(admin), "/api/v1/upstreams", Some(&self.admin_token)).await?
            }
        };
        Ok(serde_json::from_slice(&text)?)
    }

    /// Ends a gateway of our own, with every process it has started.
    pub(crate) async fn end(self) {
        if let Side::Own(own) = self.side {
            own.assembly.gateway.shut_down(GRACE).await;
            tokio::join!(own.assembly.upstreams().stop(GRACE), own.assembly.site().close());
            own.tasks.shut_down(GRACE).await;
        }
    }
}

/// The token of the running gateway: its file is where that one says, whatever this configuration has.
fn local_token(record: &Record, config: Option<&Config>) -> anyhow::Result<Secret> {
    let configured = config.map(|config| config.security.token_file.clone());
    let file = record.own.token_file.clone().or(configured).context("nobody says where the token is")?;
    Ok(open_token(&file)?.token()?)
}
