//! What a server offers those who share a connection: listed once, kept, and listed anew when it says so or grows old.
//!
//! An old list is served while a new one is fetched. Concurrent wishes for a new one are one request, and so are those of
//! a moment: a server that announces a change with each list must not keep us listing.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use futures_util::FutureExt as _;
use moongate_core::{Change, Offer, Raw, Tool, call::Freshness, hash::Map};
use moongate_wire::Era;
use tokio::{sync::watch, time::Instant};

use super::offering::Lists;
use crate::client::{self, Connection, Declared, Failure, Request};

/// How long a list of a legacy server that announces no changes is taken for current.
const UNANNOUNCED: Duration = Duration::from_mins(1);
/// The shortest time a list is taken for current, whatever a server says: a call looks it up as well.
const SHORTEST: Duration = Duration::from_secs(1);
/// The shortest time between two fetches.
const TOGETHER: Duration = Duration::from_millis(100);

/// What one slot offers to clients that can do the same.
#[derive(Debug)]
pub(crate) struct Listed {
    /// What a modern server is told with each list.
    pub(crate) abilities: Declared,
    kept: Mutex<Option<Kept>>,
    /// When it was last written to disk, or read from it.
    remembered: Mutex<Instant>,
    fetching: watch::Sender<Fetching>,
}

/// Whether somebody is fetching, and what for.
#[derive(Debug, Default)]
struct Fetching {
    busy: bool,
    /// What the server said has changed since the last fetch began, each once.
    said: Vec<Change>,
    /// When the last one began.
    began: Option<Instant>,
}

/// What is kept of a server's lists.
#[derive(Clone, Debug)]
pub(crate) struct Kept {
    pub(crate) offer: Arc<Offer>,
    /// The tools of the offer by their names: each call looks one up.
    pub(crate) callable: Arc<Map<Arc<str>, Callable>>,
    pub(crate) lists: Arc<Lists>,
    /// One sentence for each definition that is not offered.
    pub(crate) left_out: Arc<[String]>,
    /// Until when it is current; `None`: until told.
    pub(crate) until: Option<Instant>,
}

/// A tool that can be called.
#[derive(Clone, Debug)]
pub(crate) struct Callable {
    pub(crate) tool: Arc<Tool>,
    /// Whether a legacy server runs it as a task only.
    pub(crate) only_as_task: bool,
}

impl Callable {
    /// The tools of an offer; of several with one name the first, as everywhere.
    pub(crate) fn all(offer: &Offer) -> Map<Arc<str>, Self> {
        let mut all = Map::default();
        for tool in &offer.tools {
            let only_as_task = client::only_runs_as_task(&tool.definition);
            let new = || Self { tool: Arc::clone(tool), only_as_task };
            all.entry(Arc::clone(&tool.name)).or_insert_with(new);
        }
        all
    }
}

impl Listed {
    pub(crate) fn new(abilities: Declared) -> Self {
        let remembered = Mutex::new(Instant::now());
        Self { abilities, kept: Mutex::default(), remembered, fetching: watch::Sender::default() }
    }

    /// What is kept, current or not.
    pub(crate) fn kept(&self) -> Option<Kept> {
        self.lock().clone()
    }

    /// The tool of that name, if it is offered.
    pub(crate) fn callable(&self, name: &str) -> Option<Callable> {
        self.lock().as_ref()?.callable.get(name).cloned()
    }

    pub(crate) fn keep(&self, kept: Kept) {
        *self.lock() = Some(kept);
    }

    /// What is kept is on disk, as of now.
    pub(crate) fn remembered(&self) {
        *self.remembered.lock().unwrap_or_else(PoisonError::into_inner) = Instant::now();
    }

    /// Whether that was so long ago.
    pub(crate) fn was_remembered_before(&self, age: Duration) -> bool {
        self.remembered.lock().unwrap_or_else(PoisonError::into_inner).elapsed() >= age
    }

    /// Keeps what `change` makes of what is kept, if anything is.
    pub(crate) fn alter(&self, change: impl FnOnce(&Kept) -> Kept) {
        if let Some(kept) = &mut *self.lock() {
            *kept = change(kept);
        }
    }

    /// Resolves when something is kept or no fetch is under way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn offered(&self) {
        let mut fetching = self.fetching.subscribe();
        // It fails only when the slot is gone, and then there is nothing to wait for.
        let _seen = fetching.wait_for(|fetching| !fetching.busy || self.lock().is_some()).await.is_ok();
    }

    /// Resolves when no fetch is under way.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn fetched(&self) {
        let mut fetching = self.fetching.subscribe();
        let _seen = fetching.wait_for(|fetching| !fetching.busy).await.is_ok();
    }

    /// What is kept is not current any more, because the server `said` so or for another reason. Gives the right to fetch
    /// anew, unless somebody has it, who looks again then.
    pub(crate) fn outdate(self: &Arc<Self>, said: &[Change]) -> Option<Claim> {
        if let Some(kept) = &mut *self.lock() {
            kept.until = Some(Instant::now());
        }
        let mut ours = false;
        self.fetching.send_if_modified(|fetching| {
            for change in said {
                // A server may say the same again and again while a fetch takes its time.
                if !fetching.said.contains(change) {
                    fetching.said.push(change.clone());
                }
            }
            ours = !std::mem::replace(&mut fetching.busy, true);
            false
        });
        ours.then(|| Claim { listed: Arc::clone(self), begun: false, over: false })
    }

    fn lock(&self) -> MutexGuard<'_, Option<Kept>> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    pub(crate) fn is_current(&self) -> bool {
        self.until.is_none_or(|until| Instant::now() < until)
    }
}

/// The right to fetch; given back when dropped.
pub(crate) struct Claim {
    listed: Arc<Listed>,
    /// One fetch was made.
    begun: bool,
    /// Given back.
    over: bool,
}

impl Claim {
    /// Resolves when it is time for the next fetch, with what the server said has changed; `None` when nothing has since
    /// the last one, and the right is gone.
    pub(crate) async fn next(&mut self) -> Option<Vec<Change>> {
        let mut began = None;
        self.listed.fetching.send_modify(|fetching| {
            began = fetching.began;
            self.over = self.begun && fetching.said.is_empty();
            fetching.busy = !self.over;
        });
        if self.over {
            return None;
        }
        if let Some(began) = began {
            tokio::time::sleep_until(began + TOGETHER).await;
        }
        self.begun = true;
        let mut said = Vec::new();
        self.listed.fetching.send_if_modified(|fetching| {
            said = std::mem::take(&mut fetching.said);
            fetching.began = Some(Instant::now());
            false
        });
        Some(said)
    }
}

impl Drop for Claim {
    fn drop(&mut self) {
        if !self.over {
            self.listed.fetching.send_modify(|fetching| fetching.busy = false);
        }
    }
}

/// Everything a server lists, and how long that stays current; `None`: until it says otherwise.
///
/// A list that the server refuses stays as it was `before`, and is asked for again later.
///
/// # Errors
/// What the way to the server said.
pub(crate) async fn fetch(
    connection: &Connection,
    abilities: &Declared,
    before: &Lists,
) -> Result<(Lists, Option<Duration>), Failure> {
    let capabilities = abilities.capabilities();
    let (tools, prompts, resources, templates, ()) = tokio::try_join!(
        list(connection, &capabilities, "tools", "tools/list", "tools", &before.tools),
        list(connection, &capabilities, "prompts", "prompts/list", "prompts", &before.prompts),
        list(connection, &capabilities, "resources", "resources/list", "resources", &before.resources),
        list(
            connection,
            &capabilities,
            "resources",
            "resources/templates/list",
            "resourceTemplates",
            &before.templates
        ),
        // How long they are current depends on what the server will tell.
        connection.acknowledged().map(Ok),
    )?;
    let ttl = [
        current_for(connection, "tools", tools.1),
        current_for(connection, "prompts", prompts.1),
        current_for(connection, "resources", resources.1),
        current_for(connection, "resources", templates.1),
    ];
    let ttl = ttl.into_iter().flatten().min();
    let lists = Lists {
        tools: tools.0,
        prompts: prompts.0,
        resources: resources.0,
        templates: templates.0,
        instructions: connection.greeting().instructions.clone(),
    };
    Ok((lists, ttl))
}

/// What is known of how long a list is current.
#[derive(Clone, Copy, Debug)]
enum Current {
    /// There is none, and there will be none.
    Always,
    /// As its server says.
    Said(Option<Freshness>),
    /// It could not be had.
    Refused,
}

async fn list(
    connection: &Connection,
    capabilities: &Raw,
    capability: &str,
    method: &'static str,
    member: &str,
    before: &[Raw],
) -> Result<(Vec<Raw>, Current), Failure> {
    if !connection.greeting().has(capability, None) {
        return Ok((Vec::new(), Current::Always));
    }
    let ask =
        Request { capabilities: Some(capabilities.clone()), ..Request::own(method, Raw::empty_object()) };
    match connection.list(ask, member).await {
        // A list shares its memory with the answer it came in, which is of no more use.
        Ok((entries, first)) => {
            Ok((entries.iter().map(Raw::detached).collect(), Current::Said(first.freshness)))
        }
        // Templates have no capability of their own, and some servers have none.
        Err(failure) if failure.is_unsupported() => Ok((Vec::new(), Current::Said(None))),
        Err(Failure::Fault(fault)) => Err(fault.into()),
        Err(failure) => {
            tracing::warn!(method, %failure, "a server does not list what it has");
            Ok((before.to_vec(), Current::Refused))
        }
    }
}

fn current_for(connection: &Connection, capability: &str, current: Current) -> Option<Duration> {
    let freshness = match current {
        Current::Always => return None,
        Current::Refused => return Some(UNANNOUNCED),
        Current::Said(_) if connection.announces(capability) => return None,
        Current::Said(freshness) => freshness,
    };
    match connection.version().era() {
        Era::Legacy => Some(UNANNOUNCED),
        Era::Modern => Some(freshness.map_or(SHORTEST, |freshness| freshness.ttl.max(SHORTEST))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_while_a_fetch_is_under_way_is_kept_once() {
        let listed = Arc::new(Listed::new(Declared::default()));
        let claim = listed.outdate(&[Change::Tools]);
        for _ in 0..100 {
            assert!(listed.outdate(&[Change::Tools, Change::Prompts]).is_none());
        }
        assert_eq!(listed.fetching.borrow().said, [Change::Tools, Change::Prompts]);
        drop(claim);
    }
}
