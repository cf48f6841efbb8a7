//! A server that has been greeted: requests by its era, answers in the plain form.

use std::{
    collections::HashSet,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use moongate_core::{Level, Raw, Reply, TASKS};
use moongate_wire::{Era, Message, Version};
use serde_json::json;
use tokio::sync::Mutex;

use super::{
    Declared,
    envelope::{self, Envelope, Paged, Params, Shape},
    hearing::Hearing,
    refusal::Failure,
    relay::OpenTasks,
    subscriptions::Subscriptions,
};
use crate::transport::{Diagnosis, Event, Exchange, Fault, Outgoing, Transport};

/// Entries of one list beyond which a server is not asked for more.
const MAX_ENTRIES: usize = 20_000;
/// Pages of one list beyond which a server is not asked for more.
const MAX_PAGES: usize = 1_000;

/// Bytes of all pages of one list beyond which a server is not asked for more.
const MAX_LISTED: usize = 64 << 20;

/// What a server said about itself.
#[derive(Clone, Debug)]
pub(crate) struct Greeting {
    /// The version we speak with it.
    pub(crate) version: Version,
    /// Its capabilities, as it wrote them.
    pub(crate) capabilities: Raw,
    /// `{name, version, …}`, as it wrote it.
    pub(crate) info: Option<Raw>,
    /// What it tells the model.
    pub(crate) instructions: Option<Arc<str>>,
}

impl Greeting {
    /// What the server calls itself, and its version.
    pub(crate) fn name(&self) -> Option<String> {
        #[derive(serde::Deserialize)]
        struct Info {
            name: String,
            #[serde(default)]
            version: String,
        }
        let info: Info = self.info.as_ref()?.parse().ok()?;
        let name = format!("{} {}", info.name, info.version);
        Some(name.trim().chars().filter(|c| !c.is_control()).take(128).collect())
    }

    /// Whether the server declared `capability`, and inside it `setting` if one is named.
    pub(crate) fn has(&self, capability: &str, setting: Option<&str>) -> bool {
        let Some(declared) = self.capabilities.member(capability).filter(|value| !value.is_null()) else {
            return false;
        };
        setting.is_none_or(|setting| declared.member(setting).is_some_and(|value| value.as_str() == "true"))
    }

    /// Whether the server makes tasks for clients that know them.
    pub(crate) fn offers_tasks(&self) -> bool {
        let settings = || self.capabilities.member("extensions")?.member(TASKS);
        self.version.era() == Era::Modern && settings().is_some_and(|settings| !settings.is_null())
    }
}

/// A connection to a server that has been greeted.
pub(crate) struct Connection {
    pub(super) transport: Arc<dyn Transport>,
    pub(super) greeting: Greeting,
    pub(super) hearing: Arc<Hearing>,
    /// What is declared on behalf of those who share this connection.
    pub(super) abilities: Declared,
    /// The same, written.
    capabilities: Raw,
    ids: Arc<AtomicI64>,
    /// The least severe level a legacy server was told to log.
    level: Mutex<Option<Level>>,
    /// Whether a legacy server has a way to say something by itself.
    hears: bool,
    pub(super) subscriptions: Subscriptions,
    /// Tasks that clients have been given.
    pub(super) open_tasks: OpenTasks,
}

/// A request and what goes with it.
#[derive(Clone, Debug)]
#[expect(clippy::struct_excessive_bools, reason = "each is a matter of its own")]
pub(crate) struct Request<'a> {
    pub(crate) method: &'static str,
    pub(crate) params: Params<'a>,
    /// What `Mcp-Name` repeats.
    pub(crate) name: Option<Arc<str>>,
    /// What `Mcp-Param-*` repeat.
    pub(crate) param_headers: Vec<(Arc<str>, String)>,
    /// What the client said in `Mcp-Param-*` that no schema declares.
    pub(crate) undeclared: Vec<(Arc<str>, Arc<str>)>,
    /// The client's `_meta`.
    pub(crate) meta: Option<&'a Raw>,
    /// Whether the client wants to hear of progress.
    pub(crate) progress: bool,
    pub(crate) log_level: Option<Level>,
    /// What the client can do, where a server is told with each request; else what it was told at first.
    pub(crate) capabilities: Option<Raw>,
    /// Whether a legacy server runs it as a task only.
    pub(crate) as_task: bool,
    /// Whether a modern server may answer with a task, which the client then follows itself.
    pub(crate) relays_tasks: bool,
    /// Whether the server is told of extensions that the gateway does not know, and may answer by them.
    pub(crate) extended: bool,
}

impl<'a> Request<'a> {
    /// A request of the gateway itself.
    pub(crate) fn own(method: &'static str, params: Raw) -> Self {
        Self::of(method, Params::Whole(params))
    }

    /// A request that names something.
    pub(crate) fn named(method: &'static str, name: &'a Arc<str>, arguments: &'a Raw) -> Self {
        Self { name: Some(Arc::clone(name)), ..Self::of(method, Params::Named { name, arguments }) }
    }

    fn of(method: &'static str, params: Params<'a>) -> Self {
        Self {
            method,
            params,
            name: None,
            param_headers: Vec::new(),
            undeclared: Vec::new(),
            meta: None,
            progress: false,
            log_level: None,
            capabilities: None,
            as_task: false,
            relays_tasks: false,
            extended: false,
        }
    }
}

impl Connection {
    pub(super) fn new(
        transport: Arc<dyn Transport>,
        greeting: Greeting,
        hearing: Arc<Hearing>,
        abilities: &Declared,
        ids: Arc<AtomicI64>,
        hears: bool,
    ) -> Self {
        Self {
            transport,
            greeting,
            hearing,
            abilities: abilities.clone(),
            capabilities: abilities.capabilities(),
            ids,
            level: Mutex::default(),
            hears,
            subscriptions: Subscriptions::default(),
            open_tasks: OpenTasks::default(),
        }
    }

    /// What the server said about itself.
    pub(crate) fn greeting(&self) -> &Greeting {
        &self.greeting
    }

    /// The version spoken.
    pub(crate) fn version(&self) -> Version {
        self.greeting.version
    }

    /// Resolves when the connection is of no use any more.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn closed(&self) -> Fault {
        self.transport.closed().await
    }

    /// Ends it in order.
    pub(crate) async fn close(&self, grace: Duration) {
        self.subscriptions.end();
        self.transport.close(grace).await;
    }

    /// For people who ask why it does not work.
    pub(crate) fn diagnosis(&self) -> Diagnosis {
        self.transport.diagnosis()
    }

    /// Resolves when no call is under way on it.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn quiet(&self) {
        self.hearing.quiet().await;
    }

    /// Whether somebody watches something through it, or a call or a task is under way on it.
    pub(crate) fn is_busy(&self) -> bool {
        self.subscriptions.any() || self.hearing.any() || self.open_tasks.any()
    }

    /// Whether a call is under way on it.
    pub(crate) fn is_called(&self) -> bool {
        self.hearing.any()
    }

    /// Whether the server announces when one of its lists has changed.
    pub(crate) fn announces(&self, capability: &str) -> bool {
        match self.version().era() {
            Era::Legacy => self.hears && self.greeting.has(capability, Some("listChanged")),
            Era::Modern => self.subscriptions.tells(capability),
        }
    }

    /// All entries of a list, up to limits that no honest server meets.
    ///
    /// # Errors
    /// What the server or the way to it said; a server that does not know the method has an empty list.
    ///
    /// # Cancel safety
    /// Dropping the future cancels the request under way.
    pub(crate) async fn list(
        &self,
        mut ask: Request<'_>,
        member: &str,
    ) -> Result<(Vec<Raw>, Reply), Failure> {
        let (mut entries, mut first, mut cursor) = (Vec::new(), None, None::<String>);
        let (mut seen, mut listed) = (HashSet::new(), 0);
        for _ in 0..MAX_PAGES {
            let page = cursor.as_ref().map_or_else(Raw::empty_object, |at| Raw::of(&json!({"cursor": at})));
            ask.params = Params::Whole(page);
            let reply = self.ask(&ask).await?;
            // Entries are parts of their page, so this is what they take.
            listed += reply.result.as_str().len();
            if listed > MAX_LISTED {
                tracing::warn!(
                    method = ask.method,
                    entries = entries.len(),
                    "a list is too large and was cut"
                );
                break;
            }
            let page = Paged::read(&reply.result, member);
            entries.extend(page.entries);
            first.get_or_insert(reply);
            // A cursor that was there before would lead nowhere else for ever.
            let leads_on = page.next.as_ref().is_some_and(|next| seen.insert(next.clone()));
            if !leads_on || entries.len() >= MAX_ENTRIES {
                break;
            }
            cursor = page.next;
        }
        entries.truncate(MAX_ENTRIES);
        Ok((entries, first.unwrap_or_else(|| Raw::empty_object().into())))
    }

    /// A request that neither reports nor asks.
    ///
    /// # Errors
    /// What the server or the way to it said.
    pub(crate) async fn ask(&self, ask: &Request<'_>) -> Result<Reply, Failure> {
        match envelope::read(&self.result_of(ask).await?, self.version()) {
            Shape::Complete(reply) => Ok(reply),
            Shape::InputRequired { .. } => Err(Failure::invalid("it asked a question where none is allowed")),
            Shape::Task(_) => Err(Failure::unknown_result("task")),
            Shape::Unknown(what) => Err(Failure::unknown_result(&what)),
        }
    }

    /// The result of a request that neither reports nor asks, as the server wrote it.
    pub(super) async fn result_of(&self, ask: &Request<'_>) -> Result<Raw, Failure> {
        let id = self.mint();
        let mut exchange = self.exchange(id, ask, &ask.params);
        loop {
            match exchange.next().await {
                Some(Event::Message(message)) => self.unexpected(message),
                Some(Event::HungUp) => {}
                Some(Event::Answer(answer)) => return Ok(answer.outcome?),
                Some(Event::Lost(fault)) => return Err(fault.into()),
                None => return Err(Fault::Lost("the answer never came".into()).into()),
            }
        }
    }

    /// Something said on the stream of a request that is none of its business.
    fn unexpected(&self, message: Message) {
        self.hearing.hear_unrelated(message);
    }

    pub(super) fn mint(&self) -> i64 {
        self.ids.fetch_add(1, Ordering::Relaxed)
    }

    /// Starts a request with these parameters, which are those of `ask` or grew out of them.
    pub(super) fn exchange(&self, id: i64, ask: &Request<'_>, params: &Params<'_>) -> Exchange {
        let version = self.version();
        let envelope = Envelope {
            meta: ask.meta,
            progress: ask.progress.then_some(id),
            capabilities: Some(ask.capabilities.as_ref().unwrap_or(&self.capabilities)),
            log_level: ask.log_level,
        };
        let modern = version.era() == Era::Modern;
        self.transport.request(Outgoing {
            id,
            method: ask.method,
            message: envelope.request(id, ask.method, params, version),
            version: Some(version),
            name: ask.name.clone().filter(|_| modern),
            param_headers: if modern { ask.param_headers.clone() } else { Vec::new() },
            undeclared: if modern { ask.undeclared.clone() } else { Vec::new() },
        })
    }

    /// Makes sure that a legacy server logs what a client wants to hear. Each client filters what it gets.
    pub(super) async fn log_at(&self, level: Option<Level>) {
        let Some(level) = level.filter(|_| self.version().era() == Era::Legacy) else { return };
        if !self.greeting.has("logging", None) {
            return;
        }
        let mut told = self.level.lock().await;
        if told.is_some_and(|told| told <= level) {
            return;
        }
        let params = Raw::of(&json!({"level": level}));
        match self.ask(&Request::own("logging/setLevel", params)).await {
            Ok(_) => *told = Some(level),
            Err(failure) => {
                tracing::debug!(%failure, "a server did not take the log level");
                // Asked once more it would say the same.
                if let Failure::Rpc(_) = failure {
                    *told = Some(level);
                }
            }
        }
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Connection({})", self.greeting.version)
    }
}
