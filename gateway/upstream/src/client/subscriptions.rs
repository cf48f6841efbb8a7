//! Which resources and tasks are watched at a server, and how it is told: one by one to a legacy server, as one standing
//! request with everything in it to a modern one.
//!
//! A modern filter cannot be changed, so a new request with the new filter is opened and acknowledged before the old one
//! is dropped: nothing is missed in between. A request that is lost is made again, and lists count as changed then.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use moongate_core::{Raw, hash::Map};
use moongate_wire::{Era, Notification};
use serde_json::json;
use tokio::sync::{Mutex, watch};

use super::{
    connection::{Connection, Request},
    refusal::Failure,
};
use crate::transport::Fault;

mod standing;

/// How long a modern server is waited for to say what it will tell.
const ACKNOWLEDGED: Duration = Duration::from_secs(2);
/// The lists that can change: the capability, and the word for it in a filter.
const LISTS: [(&str, &str); 3] =
    [("tools", "toolsListChanged"), ("prompts", "promptsListChanged"), ("resources", "resourcesListChanged")];

/// What is watched through one connection.
#[derive(Debug)]
pub(super) struct Subscriptions {
    /// How many watch each resource.
    watched: Mutex<Map<Arc<str>, usize>>,
    /// How many watch each task. They end with the connection that made them, at the latest.
    tasks: Mutex<Map<Arc<str>, usize>>,
    /// For a modern server: what its listen should hold.
    wanted: watch::Sender<Wanted>,
    /// What the last acknowledgement of a modern server honoured.
    honoured: watch::Sender<Honoured>,
}

#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Wanted {
    /// Grows with each change, so that whoever waits knows when its own has been answered.
    number: u64,
    uris: BTreeSet<Arc<str>>,
    tasks: BTreeSet<Arc<str>>,
    ended: bool,
}

/// What a server said it will tell, at last; nothing while no listen is open.
#[derive(Clone, Debug, Default)]
struct Honoured {
    /// `None`: it has not answered yet.
    number: Option<u64>,
    uris: BTreeSet<String>,
    tasks: BTreeSet<String>,
    /// Words of [`LISTS`].
    lists: BTreeSet<String>,
}

impl Honoured {
    fn nothing(number: u64) -> Self {
        Self { number: Some(number), ..Self::default() }
    }

    /// Reads an acknowledgement.
    fn read(notification: &Notification, number: u64) -> Self {
        let filter = notification.params.raw().and_then(|params| params.member("notifications"));
        let said = filter.as_ref().map(Raw::members).unwrap_or_default();
        let (mut uris, mut tasks, mut lists) = (BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
        for (name, value) in said {
            match name.as_str() {
                "resourceSubscriptions" => uris = value.parse().unwrap_or_default(),
                "taskIds" => tasks = value.parse().unwrap_or_default(),
                _ if value.as_str() == "true" => drop(lists.insert(name)),
                _ => {}
            }
        }
        Self { number: Some(number), uris, tasks, lists }
    }
}

impl Default for Subscriptions {
    fn default() -> Self {
        let (wanted, honoured) =
            (watch::Sender::new(Wanted::default()), watch::Sender::new(Honoured::default()));
        Self { watched: Mutex::default(), tasks: Mutex::default(), wanted, honoured }
    }
}

impl Subscriptions {
    /// Whether anything is watched.
    pub(super) fn any(&self) -> bool {
        let any = |watched: &Mutex<Map<_, _>>| watched.try_lock().map_or(true, |watched| !watched.is_empty());
        any(&self.watched) || any(&self.tasks)
    }

    /// Whether somebody watches this task.
    fn follows(&self, task: &str) -> bool {
        self.wanted.borrow().tasks.contains(task)
    }

    /// Whether a modern server has said that it tells when this list changes.
    pub(super) fn tells(&self, capability: &str) -> bool {
        let word = LISTS.iter().find(|(of, _)| *of == capability).map(|(_, word)| *word);
        word.is_some_and(|word| self.honoured.borrow().lists.contains(word))
    }

    /// Takes back what was not honoured; nobody waits for an answer to that.
    fn want_no_more(&self, change: impl FnOnce(&mut Wanted) -> bool) {
        self.wanted.send_if_modified(change);
    }

    /// There is nothing to be heard any more: nothing is honoured, and nobody waits for that.
    fn deaf(&self) {
        self.honoured.send_replace(Honoured::nothing(u64::MAX));
    }

    pub(super) fn end(&self) {
        self.wanted.send_modify(|wanted| wanted.ended = true);
    }
}

impl Connection {
    /// Watches a resource; the second to watch it costs nothing.
    ///
    /// # Errors
    /// What the server said, or that it does not watch this one.
    pub(crate) async fn subscribe(&self, uri: &Arc<str>) -> Result<(), Failure> {
        let mut watched = self.subscriptions.watched.lock().await;
        if let Some(count) = watched.get_mut(uri) {
            *count += 1;
            return Ok(());
        }
        match self.version().era() {
            Era::Legacy => {
                self.ask(&Request::own("resources/subscribe", Raw::of(&json!({"uri": uri})))).await?;
            }
            Era::Modern => {
                let told = self.want(|wanted| wanted.uris.insert(Arc::clone(uri))).await?;
                if !told.uris.contains(&**uri) {
                    self.subscriptions.want_no_more(|wanted| wanted.uris.remove(uri));
                    return Err(moongate_core::CallError::unknown_resource(uri).into());
                }
            }
        }
        watched.insert(Arc::clone(uri), 1);
        Ok(())
    }

    /// Ends one watch of a resource, and with the last one the server's.
    ///
    /// # Errors
    /// What the server said.
    pub(crate) async fn unsubscribe(&self, uri: &Arc<str>) -> Result<(), Failure> {
        let mut watched = self.subscriptions.watched.lock().await;
        match watched.get_mut(uri) {
            None => return Ok(()),
            Some(count) if *count > 1 => {
                *count -= 1;
                return Ok(());
            }
            Some(_) => watched.remove(uri),
        };
        match self.version().era() {
            Era::Legacy => {
                self.ask(&Request::own("resources/unsubscribe", Raw::of(&json!({"uri": uri})))).await?;
            }
            Era::Modern => drop(self.want(|wanted| wanted.uris.remove(uri)).await?),
        }
        Ok(())
    }

    /// Watches a task of a modern server.
    ///
    /// # Errors
    /// That the server does not tell of this one, or why it cannot be asked.
    pub(super) async fn watch_task(&self, id: &Arc<str>) -> Result<(), Failure> {
        let mut tasks = self.subscriptions.tasks.lock().await;
        if let Some(count) = tasks.get_mut(id) {
            *count += 1;
            return Ok(());
        }
        let told = self.want(|wanted| wanted.tasks.insert(Arc::clone(id))).await?;
        if !told.tasks.contains(&**id) {
            self.subscriptions.want_no_more(|wanted| wanted.tasks.remove(id));
            return Err(Failure::invalid("it does not tell of this task"));
        }
        tasks.insert(Arc::clone(id), 1);
        Ok(())
    }

    /// Ends one watch of a task, and with the last one the server's.
    ///
    /// # Errors
    /// Why the server cannot be told.
    pub(super) async fn unwatch_task(&self, id: &Arc<str>) -> Result<(), Failure> {
        let mut tasks = self.subscriptions.tasks.lock().await;
        match tasks.get_mut(id) {
            None => return Ok(()),
            Some(count) if *count > 1 => {
                *count -= 1;
                return Ok(());
            }
            Some(_) => tasks.remove(id),
        };
        self.want(|wanted| wanted.tasks.remove(id)).await.map(drop)
    }

    /// The resources that are watched, for the connection that replaces this one.
    pub(crate) async fn watched(&self) -> Vec<(Arc<str>, usize)> {
        let watched = self.subscriptions.watched.lock().await;
        watched.iter().map(|(uri, count)| (Arc::clone(uri), *count)).collect()
    }

    /// Resolves when it is known what a modern server will tell, or when it takes too long to say so.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn acknowledged(&self) {
        let mut honoured = self.subscriptions.honoured.subscribe();
        if self.version().era() == Era::Modern {
            let answered = honoured.wait_for(|honoured| honoured.number.is_some());
            // Who does not say it in time does not tell, as far as we know.
            drop(tokio::time::timeout(ACKNOWLEDGED, answered).await);
        }
    }

    /// Changes what a modern server is listened to for, and waits until it has taken note. What it will tell now.
    async fn want(&self, change: impl FnOnce(&mut Wanted) -> bool) -> Result<Honoured, Failure> {
        let mut honoured = self.subscriptions.honoured.subscribe();
        let mut number = 0;
        self.subscriptions.wanted.send_modify(|wanted| {
            change(wanted);
            wanted.number += 1;
            number = wanted.number;
        });
        let seen = honoured.wait_for(|honoured| honoured.number >= Some(number)).await;
        seen.map(|seen| seen.clone()).map_err(|_| Failure::from(Fault::Lost("the connection ended".into())))
    }
}
