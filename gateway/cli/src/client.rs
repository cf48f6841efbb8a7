//! A client of the gateway, for commands: every request stands alone, as in the newest version.

use std::{
    fmt,
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
};

use anyhow::Context as _;
use futures_util::StreamExt as _;
use http::{HeaderValue, header};
use moongate_core::task::Group;
use moongate_security::Secret;
use moongate_upstream::{
    remote::{Remote, Spec},
    transport::{Dial as _, Event, Fault, Inbound, Outgoing, Transport},
};
use moongate_wire::{Message, Raw, RpcError, Version, header as headers, write};
use serde::Deserialize;
use serde_json::{Value, json};

const VERSION: Version = Version::V2026_07_28;
/// Pages of a list that are read; a page has a thousand tools.
const MAX_PAGES: usize = 1000;

/// A client of one endpoint.
pub(crate) struct Client {
    transport: Arc<dyn Transport>,
    capabilities: Value,
    next: AtomicI64,
    /// Owns the connections.
    _tasks: Group,
}

/// Why there is no result.
#[derive(Debug)]
pub(crate) enum Failed {
    /// The gateway said no.
    Refused(RpcError),
    /// It could not be asked.
    Unanswered(Fault),
    /// It answered with something else.
    Strange(&'static str),
}

/// A tool as the gateway lists it.
#[derive(Clone, Debug)]
pub(crate) struct Tool {
    /// Its name.
    pub name: String,
    /// What it does, in its own words.
    pub description: String,
    /// Everything that is listed of it.
    pub definition: Raw,
}

/// How far a call is.
#[derive(Clone, Debug, Deserialize)]
pub(crate) struct Progress {
    /// So far.
    #[serde(rename = "progress")]
    pub done: f64,
    /// Of so much, if that is known.
    pub total: Option<f64>,
    /// In words.
    pub message: Option<String>,
}

/// A request for one answer.
pub(crate) struct Ask {
    /// The method.
    pub method: &'static str,
    /// An object without `_meta`.
    pub params: Raw,
    /// What HTTP repeats of it.
    pub name: Option<Arc<str>>,
    /// Arguments that HTTP repeats.
    pub repeated: Vec<(Arc<str>, String)>,
}

impl Client {
    /// A client of the endpoint at `url` that believes the certificates in `authorities` too. `capabilities` are what it
    /// tells the gateway it can do.
    pub(crate) async fn connect(
        url: &str,
        token: &Secret,
        authorities: Vec<PathBuf>,
        capabilities: Value,
    ) -> anyhow::Result<Self> {
        let tasks = Group::new();
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.expose()))
            .context("the token is not one that can be sent")?;
        bearer.set_sensitive(true);
        let spec = Spec {
            headers: vec![(header::AUTHORIZATION, bearer)],
            ca_files: authorities,
            ..Spec::new("gateway", url.parse().with_context(|| format!("{url} is no address"))?)
        };
        let transport = Remote::new(spec, tasks.clone()).dial(Arc::new(Deaf)).await?;
        Ok(Self { transport, capabilities, next: AtomicI64::new(1), _tasks: tasks })
    }

    /// Sends a request and waits for its answer; `heard` is told of progress meanwhile.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request.
    pub(crate) async fn request(
        &self,
        ask: Ask,
        heard: &mut (dyn FnMut(Progress) + Send),
    ) -> Result<Raw, Failed> {
        let id = self.next.fetch_add(1, Ordering::Relaxed);
        let meta = json!({
            "io.modelcontextprotocol/protocolVersion": VERSION,
            "io.modelcontextprotocol/clientInfo": {"name": "moongate-cli", "version": env!("CARGO_PKG_VERSION")},
            "io.modelcontextprotocol/clientCapabilities": self.capabilities,
            "progressToken": id,
        });
        let params = write::with_members(&ask.params, &[("_meta", Raw::of(&meta))]);
        let mut exchange = self.transport.request(Outgoing {
            id,
            method: ask.method,
            message: write::request(&id.into(), ask.method, &params),
            version: Some(VERSION),
            name: ask.name,
            param_headers: ask.repeated,
            undeclared: Vec::new(),
        });
        while let Some(event) = exchange.next().await {
            match event {
                Event::Message(message) => progress(&message).into_iter().for_each(&mut *heard),
                Event::HungUp => {}
                Event::Answer(answer) => return answer.outcome.map_err(Failed::Refused),
                Event::Lost(fault) => return Err(Failed::Unanswered(fault)),
            }
        }
        Err(Failed::Strange("the answer broke off"))
    }

    /// All tools, in the order the gateway lists them.
    pub(crate) async fn tools(&self) -> Result<Vec<Tool>, Failed> {
        let (mut tools, mut cursor) = (Vec::new(), None);
        for _ in 0..MAX_PAGES {
            let params =
                cursor.as_ref().map_or_else(Raw::empty_object, |cursor| write::object([("cursor", cursor)]));
            let ask = Ask { method: "tools/list", params, name: None, repeated: Vec::new() };
            let page = self.request(ask, &mut |_| ()).await?;
            let listed = page.member("tools").filter(Raw::is_array);
            let listed = listed.ok_or(Failed::Strange("the list of tools is none"))?;
            tools.extend(listed.items().into_iter().filter_map(Tool::read));
            cursor = page.member("nextCursor").filter(|cursor| !cursor.is_null());
            if cursor.is_none() {
                break;
            }
        }
        Ok(tools)
    }
}

impl Tool {
    fn read(definition: Raw) -> Option<Self> {
        let text = |member: &str| definition.member(member)?.parse::<String>().ok();
        let (name, description) = (text("name")?, text("description").unwrap_or_default());
        Some(Self { name, description, definition })
    }

    /// What HTTP repeats of a call with these arguments.
    pub(crate) fn repeated(&self, arguments: &Raw) -> Vec<(Arc<str>, String)> {
        let schema = self.definition.member("inputSchema").unwrap_or_else(Raw::empty_object);
        let named = headers::header_params(&schema).unwrap_or_default();
        let value = |path: &[String]| {
            let at = path.iter().try_fold(arguments.clone(), |value, step| value.member(step));
            let value = at.filter(|value| !value.is_null())?;
            Some(value.parse::<String>().unwrap_or_else(|_| value.as_str().to_owned()))
        };
        named.into_iter().filter_map(|(header, path)| Some((header.into(), value(&path)?))).collect()
    }
}

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(error) => {
                let scope =
                    error.data.as_ref().and_then(|data| data.member("requiredScope")?.parse::<String>().ok());
                f.write_str(&error.message)?;
                scope.map_or(Ok(()), |scope| write!(f, "; this needs {scope}"))
            }
            Self::Unanswered(fault) => write!(f, "the gateway cannot be reached: {fault}"),
            Self::Strange(what) => write!(f, "the gateway does not answer as it should: {what}"),
        }
    }
}

impl std::error::Error for Failed {}

/// A gateway says nothing outside requests to a client that does not listen.
struct Deaf;

impl Inbound for Deaf {
    fn hear(&self, _message: Message) {}
}

fn progress(message: &Message) -> Option<Progress> {
    match message {
        Message::Notification(note) if note.method == "notifications/progress" => {
            note.params.raw()?.parse().ok()
        }
        _ => None,
    }
}
