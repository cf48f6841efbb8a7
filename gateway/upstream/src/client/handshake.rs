//! Finds out which era a server is of, and greets it.
//!
//! A modern server answers `server/discover`; nothing else a server says to it proves that it is legacy, so whatever is
//! not a modern answer leads to `initialize`. Some servers end at a request they do not know: then a fresh connection is
//! made for the handshake. Others take longer to start than a question may take: they are still heard when they answer it
//! late. Refusals that are about us (credentials, overload) are no evidence and end the attempt.

use std::{
    pin::pin,
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use futures_util::StreamExt as _;
use moongate_core::{Raw, task::Group};
use moongate_wire::{Era, Version, write};
use serde::{Deserialize, Serialize};
use serde_json::json;

pub(crate) use self::evidence::contradicts;
use self::evidence::{Discovered, as_status, is_about_us, not_discovered, said, supported};
use super::{
    Connection, Declared,
    connection::Greeting,
    envelope::{self, Envelope, Params},
    hearing::Hearing,
    refusal::quoted,
};
use crate::transport::{Answer, Dial, Event, Fault, Outgoing, Outward, Transport, Way};

mod evidence;
#[cfg(test)]
mod tests;

/// How long a child may think about a question that a legacy server does not know.
const PROBE: Duration = Duration::from_secs(2);
/// The same where nobody waits for it: also a server that has to be fetched first has started by then.
const PATIENT_PROBE: Duration = Duration::from_secs(30);

/// What the configuration says about a server's era.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EraChoice {
    /// Find out.
    #[default]
    Auto,
    /// Legacy, without asking.
    Legacy,
    /// Modern, without asking.
    Modern,
}

/// What was found out about a server, to be remembered.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Verdict {
    /// Whether it is modern.
    pub(crate) modern: bool,
    /// Whether it speaks the old HTTP+SSE.
    pub(crate) old_sse: bool,
}

/// The ways to a server.
pub(crate) struct Ways<'a> {
    /// The usual one.
    pub(crate) main: &'a dyn Dial,
    /// HTTP+SSE of 2024-11-05, where it may be tried.
    pub(crate) old: Option<&'a dyn Dial>,
}

/// Connects and greets, by the era that is known or by finding out.
///
/// # Errors
/// Why there is no connection. Whether that speaks against a known era, [`contradicts`] says.
///
/// # Cancel safety
/// Dropping the future undoes what was begun.
pub(crate) async fn connect(
    ways: Ways<'_>,
    known: Option<&Verdict>,
    abilities: &Declared,
    hearing: impl Fn() -> Hearing + Send + Sync,
    tasks: &Group,
) -> Result<(Arc<Connection>, Verdict), Fault> {
    let attempt = Attempt { abilities, hearing: &hearing, tasks };
    match known {
        Some(Verdict { old_sse: true, .. }) => {
            attempt.initialize_at(ways.old.unwrap_or(ways.main), true).await
        }
        Some(Verdict { modern: true, .. }) => {
            let dialled = attempt.dial(ways.main).await?;
            let found = match attempt.discover(&dialled, ways.main.way()).await {
                Ok(Discovered::Modern(greeting)) => Ok(greeting),
                Ok(Discovered::NotModern) => {
                    Err(Fault::Garbled("the server does not speak 2026-07-28 (any more)".into()))
                }
                Err(fault) => Err(fault),
            };
            attempt.finish(dialled, found, false).await
        }
        Some(_) => attempt.legacy(&ways).await,
        None => attempt.find_out(&ways).await,
    }
}

/// Whether a server is modern, asked by a connection of its own, which is closed afterwards.
///
/// # Errors
/// Why it did not say anything about that.
///
/// # Cancel safety
/// Dropping the future undoes what was begun.
pub(crate) async fn probe(
    way: &dyn Dial,
    hearing: impl Fn() -> Hearing + Send + Sync,
    tasks: &Group,
) -> Result<bool, Fault> {
    let attempt = Attempt { abilities: &Declared::default(), hearing: &hearing, tasks };
    let dialled = attempt.dial(way).await?;
    let found = tokio::time::timeout(PATIENT_PROBE, attempt.discover(&dialled, way.way())).await;
    dialled.abandon().await;
    match (found, way.way()) {
        (Ok(found), _) => found.map(|found| matches!(found, Discovered::Modern(_))),
        // Some children never answer what they do not know.
        (Err(_), Way::Pipe) => Ok(false),
        (Err(_), Way::Http) => Err(Fault::Unreached("it did not answer".into())),
    }
}

struct Attempt<'a, H> {
    abilities: &'a Declared,
    hearing: &'a H,
    tasks: &'a Group,
}

/// A connection that has not been greeted.
struct Dialled {
    transport: Arc<dyn Transport>,
    hearing: Arc<Hearing>,
    ids: Arc<AtomicI64>,
}

impl<H: Fn() -> Hearing + Send + Sync> Attempt<'_, H> {
    async fn find_out(&self, ways: &Ways<'_>) -> Result<(Arc<Connection>, Verdict), Fault> {
        let dialled = self.dial(ways.main).await?;
        let found = match ways.main.way() {
            Way::Http => self.ask_over_http(&dialled).await,
            Way::Pipe => self.ask_over_pipe(&dialled).await,
        };
        match (found, ways.main.way()) {
            (Ok(Err(_)), Way::Pipe) => {
                dialled.abandon().await;
                self.initialize_at(ways.main, false).await
            }
            (Ok(Err(refused)), Way::Http) => {
                dialled.abandon().await;
                self.old_instead(ways, refused).await
            }
            (Ok(Ok(greeting)), _) => self.finish(dialled, Ok(greeting), false).await,
            (Err(fault), _) => self.finish(dialled, Err(fault), false).await,
        }
    }

    /// A legacy server, without asking first.
    async fn legacy(&self, ways: &Ways<'_>) -> Result<(Arc<Connection>, Verdict), Fault> {
        match self.initialize_at(ways.main, false).await {
            Err(refused) => self.old_instead(ways, refused).await,
            connected => connected,
        }
    }

    /// Tries HTTP+SSE where the main way was refused as servers of that time do.
    async fn old_instead(
        &self,
        ways: &Ways<'_>,
        refused: Fault,
    ) -> Result<(Arc<Connection>, Verdict), Fault> {
        match (ways.old, &refused) {
            (Some(old), Fault::Status { status: 400 | 404 | 405, .. }) => {
                // If that is not it either, what the main way said is more to the point.
                self.initialize_at(old, true).await.map_err(|_| refused)
            }
            _ => Err(refused),
        }
    }

    /// The greeting of a server of either era. Inside: why it did not let itself be initialised.
    async fn ask_over_http(&self, dialled: &Dialled) -> Result<Result<Greeting, Fault>, Fault> {
        match self.discover(dialled, Way::Http).await? {
            Discovered::Modern(greeting) => Ok(Ok(greeting)),
            Discovered::NotModern => Ok(self.greet(dialled).await),
        }
    }

    /// As [`Self::ask_over_http`]. A child may say nothing at all, or end: both are how legacy servers take a question
    /// they do not know.
    async fn ask_over_pipe(&self, dialled: &Dialled) -> Result<Result<Greeting, Fault>, Fault> {
        let mut discovering = pin!(self.discover(dialled, Way::Pipe));
        match tokio::time::timeout(PROBE, discovering.as_mut()).await {
            Ok(Ok(Discovered::Modern(greeting))) => return Ok(Ok(greeting)),
            Ok(Err(fault)) if !matches!(fault, Fault::Unreached(_)) => return Err(fault),
            // On the same pipe first: most servers do not mind having been asked something else before.
            Ok(_) => return Ok(self.greet(dialled).await),
            Err(_) => {}
        }
        // It may also be still starting: then it answers both, and its first word counts.
        let mut greeting = pin!(self.greet(dialled));
        tokio::select! {
            biased;
            found = discovering.as_mut() => match found {
                Ok(Discovered::Modern(modern)) => Ok(Ok(modern)),
                Ok(Discovered::NotModern) | Err(Fault::Unreached(_)) => Ok(greeting.await),
                Err(fault) => Err(fault),
            },
            greeted = greeting.as_mut() => match greeted {
                Ok(legacy) => Ok(Ok(legacy)),
                // A modern server has no such method, and may say so before it has dealt with the first question.
                Err(refused) => match tokio::time::timeout(PROBE, discovering).await {
                    Ok(Ok(Discovered::Modern(modern))) => Ok(Ok(modern)),
                    _ => Ok(Err(refused)),
                },
            },
        }
    }

    async fn dial(&self, way: &dyn Dial) -> Result<Dialled, Fault> {
        let hearing = Arc::new((self.hearing)());
        let transport = way.dial(Arc::clone(&hearing) as Arc<dyn crate::transport::Inbound>).await?;
        hearing.bind(&transport);
        Ok(Dialled { transport, hearing, ids: Arc::new(AtomicI64::new(1)) })
    }

    /// Asks a server who it is in the modern way.
    async fn discover(&self, dialled: &Dialled, way: Way) -> Result<Discovered, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Discover {
            supported_versions: Vec<String>,
            capabilities: Raw,
            instructions: Option<Arc<str>>,
        }
        let version = Version::V2026_07_28;
        let capabilities = self.abilities.capabilities();
        let envelope = Envelope { capabilities: Some(&capabilities), ..Envelope::default() };
        let nothing = Params::Whole(Raw::empty_object());
        let message = |id| envelope.request(id, "server/discover", &nothing, version);
        let answer = match dialled.request("server/discover", message, Some(version)).await {
            Ok(answer) => answer,
            Err(fault) if contradicts(&fault, way) => return Ok(Discovered::NotModern),
            Err(fault) => return Err(fault),
        };
        let result = match (answer.outcome, answer.status) {
            (Ok(result), _) => result,
            (Err(error), Some(status)) if is_about_us(status) => return Err(as_status(status, &error)),
            (Err(error), _) => return not_discovered(&error),
        };
        let info = result.member("_meta").and_then(|meta| meta.member("io.modelcontextprotocol/serverInfo"));
        match result.parse::<Discover>() {
            Ok(found) if found.supported_versions.iter().any(|spoken| spoken == version.as_str()) => {
                Ok(Discovered::Modern(Greeting {
                    version,
                    capabilities: found.capabilities.detached(),
                    info: info.map(|info| info.detached()),
                    instructions: found.instructions,
                }))
            }
            // It answers whatever it is asked.
            _ => Ok(Discovered::NotModern),
        }
    }

    async fn initialize_at(
        &self,
        way: &dyn Dial,
        old_sse: bool,
    ) -> Result<(Arc<Connection>, Verdict), Fault> {
        let dialled = self.dial(way).await?;
        let greeting = self.greet(&dialled).await;
        self.finish(dialled, greeting, old_sse).await
    }

    /// The legacy handshake.
    async fn greet(&self, dialled: &Dialled) -> Result<Greeting, Fault> {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct Initialized {
            protocol_version: String,
            #[serde(default = "Raw::empty_object")]
            capabilities: Raw,
            server_info: Option<Raw>,
            instructions: Option<Arc<str>>,
        }
        let mut answer = self.initialize(dialled, Version::LATEST_LEGACY).await?;
        // A server should answer with a version of its own; some refuse and name those they have.
        if let Err(error) = &answer.outcome
            && let Some(version) = supported(error).filter(|version| *version < Version::LATEST_LEGACY)
        {
            answer = self.initialize(dialled, version).await?;
        }
        let result = answer.outcome.map_err(|error| match answer.status {
            Some(status @ 400..) => as_status(status, &error),
            _ => Fault::Garbled(format!("the server refused to be initialised: {}", said(&error)).into()),
        })?;
        let unreadable = |error: serde_json::Error| {
            let why = quoted(&error.to_string());
            Fault::Garbled(format!("the server's greeting cannot be read: {why}").into())
        };
        let found: Initialized = result.parse().map_err(unreadable)?;
        let version = Version::parse(&found.protocol_version).filter(|version| version.era() == Era::Legacy);
        let Some(version) = version else {
            let spoken: String = found.protocol_version.chars().take(32).collect();
            return Err(Fault::Garbled(format!("the server wants protocol version {spoken:?}").into()));
        };
        let message = write::notification("notifications/initialized", &Raw::empty_object());
        dialled.transport.send(Outward { message, version }).await?;
        Ok(Greeting {
            version,
            capabilities: found.capabilities.detached(),
            info: found.server_info.map(|info| info.detached()),
            instructions: found.instructions,
        })
    }

    async fn initialize(&self, dialled: &Dialled, version: Version) -> Result<Answer, Fault> {
        let params = json!({
            "protocolVersion": version.as_str(),
            "capabilities": self.abilities.capabilities(),
            "clientInfo": *envelope::OUR_INFO,
        });
        let message = |id: i64| write::request(&id.into(), "initialize", &Raw::of(&params));
        dialled.request("initialize", message, None).await
    }

    /// Goes on with a server that was greeted, and leaves one that was not.
    async fn finish(
        &self,
        dialled: Dialled,
        greeting: Result<Greeting, Fault>,
        old_sse: bool,
    ) -> Result<(Arc<Connection>, Verdict), Fault> {
        let greeting = match greeting {
            Ok(greeting) => greeting,
            Err(fault) => {
                dialled.abandon().await;
                return Err(fault);
            }
        };
        let modern = greeting.version.era() == Era::Modern;
        dialled.hearing.greeted(greeting.version);
        let hears = modern || dialled.transport.listen(greeting.version).await;
        let Dialled { transport, hearing, ids } = dialled;
        let connection = Arc::new(Connection::new(transport, greeting, hearing, self.abilities, ids, hears));
        if modern {
            Connection::keep_listening(&connection, self.tasks);
        }
        Ok((connection, Verdict { modern, old_sse }))
    }
}

impl Dialled {
    /// Ends a connection that turned out to be the wrong one.
    async fn abandon(self) {
        self.transport.close(Duration::from_secs(1)).await;
    }

    /// One request before anything is agreed on; what else the server says meanwhile goes where it always goes.
    async fn request(
        &self,
        method: &'static str,
        message: impl FnOnce(i64) -> Raw,
        version: Option<Version>,
    ) -> Result<Answer, Fault> {
        let id = self.ids.fetch_add(1, Ordering::Relaxed);
        let (message, param_headers, undeclared) = (message(id), Vec::new(), Vec::new());
        let request = Outgoing { id, method, message, version, name: None, param_headers, undeclared };
        let mut exchange = self.transport.request(request);
        loop {
            match exchange.next().await {
                Some(Event::Message(message)) => self.hearing.hear_unrelated(message),
                Some(Event::HungUp) => {}
                Some(Event::Answer(answer)) => return Ok(answer),
                Some(Event::Lost(fault)) => return Err(fault),
                None => return Err(Fault::Lost("the answer never came".into())),
            }
        }
    }
}
