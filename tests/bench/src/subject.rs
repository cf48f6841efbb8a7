//! The gateway that is measured: the default configuration, but with limits that are never reached.

use std::sync::Arc;

use anyhow::{Context as _, Result, ensure};
use moongate_test_support::Gateway;
use serde_json::json;

use crate::{
    load::{Connection, Ids, Load},
    template::{Caller, Era, Template, ToolCall},
};

/// Counting must happen, refusing must not. Every open `subscriptions/listen` is a call in progress.
pub const CONFIG: &str = "security:\n  limits: {per_address: 1000000000/s, per_principal: 1000000000/s, \
                          flood: 1000000000/s, calls: 10000}\n";

/// How many sessions the calls are spread over.
pub const SESSIONS: usize = 100;

/// So many memos are kept; once there are as many, every answer has the same size.
const MEMOS: usize = 10;

/// What is remembered in every call.
const MEMO: &str = "the totals of the invoice are rounded per line, not per page";

/// A running gateway.
#[derive(Debug)]
pub struct Subject {
    /// The process.
    pub gateway: Gateway,
    /// Whom to call, and as whom.
    pub caller: Caller,
}

impl Subject {
    /// Starts the gateway of this build.
    pub async fn start() -> Result<Self> {
        Self::start_before(&[]).await
    }

    /// Starts it in front of upstreams: their names, and what the configuration says of each.
    pub async fn start_before(upstreams: &[(String, String)]) -> Result<Self> {
        let mut config = CONFIG.to_owned();
        for (number, (name, upstream)) in upstreams.iter().enumerate() {
            config.push_str(if number == 0 { "upstreams:\n" } else { "" });
            config.extend(["  ", name, ": ", upstream, "\n"]);
        }
        let gateway = Gateway::start(&config).await?;
        let caller = Caller { address: gateway.address()?, token: gateway.token()? };
        Ok(Self { gateway, caller })
    }

    /// Its process id.
    pub fn pid(&mut self) -> u32 {
        self.gateway.process().pid()
    }
}

/// Opens a legacy session and returns its id.
pub async fn open_session(connection: &mut Connection, caller: &Caller) -> Result<String> {
    let answer = connection.send(caller.initialize().bytes()).await?;
    let text = || String::from_utf8_lossy(answer.body).into_owned();
    ensure!(answer.status == 200, "initialize got status {}: {}", answer.status, text());
    let head = std::str::from_utf8(answer.head)?;
    let id = head.lines().find_map(|line| {
        let (name, value) = line.split_once(':')?;
        name.eq_ignore_ascii_case("mcp-session-id").then(|| value.trim().to_owned())
    });
    let id = id.context("initialize gave no session id")?;
    let answer = connection.send(caller.initialized(&id).bytes()).await?;
    ensure!(answer.status == 202, "notifications/initialized got status {}", answer.status);
    Ok(id)
}

/// Opens so many legacy sessions.
pub async fn open_sessions(caller: &Caller, count: usize) -> Result<Vec<String>> {
    let mut connection = Connection::open(caller.address).await?;
    let mut ids = Vec::with_capacity(count);
    for _ in 0..count {
        ids.push(open_session(&mut connection, caller).await?);
    }
    Ok(ids)
}

/// What is added to every call.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Extra {
    /// Nothing.
    #[default]
    Plain,
    /// The three headers that name session, assistant and thread.
    Headers,
    /// The three fields in the arguments, which are forged and must be stripped.
    Fields,
}

/// `add_memo` and `get_planning_state` for [`SESSIONS`] sessions, whose state is full already.
pub async fn calls(caller: &Caller, era: Era, extra: Extra) -> Result<Load> {
    let names = match era {
        Era::Legacy => open_sessions(caller, SESSIONS).await?,
        Era::Modern => (0..SESSIONS).map(|number| format!("bench-{number:03}")).collect(),
    };
    let sessions: Vec<_> = names.iter().map(|name| both(caller, era, name, extra)).collect();
    let load = Load {
        address: caller.address,
        sessions: sessions.into(),
        connections: 1,
        ids: Ids::Echoed,
        shares_core: false,
    };
    for _ in 0..=MEMOS {
        load.check().await?;
    }
    Ok(load)
}

/// Calls of `tool` for [`SESSIONS`] sessions, by a load that shares its core with whoever has the tool.
pub async fn upstream_calls(caller: &Caller, era: Era, tool: &str) -> Result<Load> {
    let call = ToolCall { name: tool, arguments: json!({"text": MEMO}), headers: &[] };
    let sessions: Vec<_> = match era {
        Era::Legacy => {
            let ids = open_sessions(caller, SESSIONS).await?;
            ids.iter().map(|id| vec![caller.legacy_call(id, &call)]).collect()
        }
        Era::Modern => {
            let names = (0..SESSIONS).map(|number| format!("bench-{number:03}"));
            let one = |name: String| {
                caller.modern_call(&ToolCall { headers: &[("x-session-id", &*name)], ..call.clone() })
            };
            names.map(|name| vec![one(name)]).collect()
        }
    };
    let load = Load {
        address: caller.address,
        sessions: sessions.into(),
        connections: 1,
        ids: Ids::Echoed,
        shares_core: true,
    };
    load.check().await?;
    Ok(load)
}

fn both(caller: &Caller, era: Era, session: &str, extra: Extra) -> Vec<Template> {
    let mut headers = match (era, extra) {
        (_, Extra::Headers) | (Era::Modern, _) => vec![("x-session-id", session)],
        (Era::Legacy, _) => Vec::new(),
    };
    if extra == Extra::Headers {
        headers.extend([("x-assistant-id", "bench-assistant"), ("x-thread-id", "bench-thread")]);
    }
    let call = |name, mut arguments: serde_json::Value| {
        if let (Extra::Fields, Some(members)) = (extra, arguments.as_object_mut()) {
            for (field, value) in [("__sessionId", session), ("__assistantId", "a"), ("__threadId", "t")] {
                members.insert(field.to_owned(), json!(value));
            }
        }
        let call = ToolCall { name, arguments, headers: &headers };
        match era {
            Era::Legacy => caller.legacy_call(session, &call),
            Era::Modern => caller.modern_call(&call),
        }
    };
    vec![call("add_memo", json!({"memo": MEMO})), call("get_planning_state", json!({}))]
}

/// The shorter answer of the two calls of `load`, as the constant of a bare server: the harder one to beat.
pub async fn constant(load: &Load) -> Result<Vec<u8>> {
    let mut connection = Connection::open(load.address).await?;
    let mut shortest: Option<Vec<u8>> = None;
    for template in load.sessions.first().context("no sessions")? {
        let answer = connection.send(template.bytes()).await?.body;
        if shortest.as_ref().is_none_or(|known| answer.len() < known.len()) {
            shortest = Some(answer.to_owned());
        }
    }
    shortest.context("no calls")
}

impl Load {
    /// The same calls by so many connections.
    #[must_use]
    pub fn with_connections(&self, connections: usize) -> Self {
        Self { connections, sessions: Arc::clone(&self.sessions), ..self.clone() }
    }

    /// The same calls to a server that answers a constant.
    #[must_use]
    pub fn to_bare(&self, address: std::net::SocketAddr) -> Self {
        Self { address, ids: Ids::Constant, ..self.clone() }
    }
}
