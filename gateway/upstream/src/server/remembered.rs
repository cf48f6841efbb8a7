//! What is remembered of a server between two runs of the gateway: its era, its lists, and that it asks questions.
//!
//! Kept under the hash of how the server is reached, so that another command or address is another server, and under who
//! the caller is and what its client can do, because a server may offer different things to each.

use std::{
    hash::{DefaultHasher, Hash as _, Hasher as _},
    sync::{Arc, Mutex},
    time::Duration,
};

use moongate_core::{Clock, Principal, Raw};
use moongate_storage::{Batch, Kind, Put, Store};
use serde::{Deserialize, Serialize};

use super::{EraChoice, Inner, key::alike, lock, offering::Lists};
use crate::client::{Declared, Verdict};

/// Lists that would take more than this are not remembered.
const MAX_BODY: usize = 8 << 20;

/// How long something is remembered that nobody asks for.
const REMEMBERED_FOR: Duration = Duration::from_hours(90 * 24);
/// How old it is, at least, when it is written again because it is used: not with each start or list.
pub(super) const RENEWED_AFTER: Duration = Duration::from_hours(24);

const LISTS: Kind = Kind("upstream_lists");
const VERDICT: Kind = Kind("upstream_verdict");

/// The memory of one server.
pub(crate) struct Remembered {
    store: Arc<dyn Store>,
    clock: Clock,
    upstream: Arc<str>,
    /// Of the way to reach it.
    fingerprint: String,
}

/// What was found out about a server.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Known {
    pub(crate) verdict: Verdict,
    /// When, in milliseconds since 1970; 0: it is to be found out again.
    pub(crate) at: u64,
    /// It has asked a question without saying whose call that was about.
    #[serde(default)]
    pub(crate) asks: bool,
    /// It has asked for the roots of a client.
    #[serde(default)]
    pub(crate) asks_roots: bool,
    /// What it calls itself, with its version.
    #[serde(default)]
    pub(crate) server: Option<String>,
    /// What it was last told that a client of the local user can do, where it is told once.
    #[serde(default)]
    pub(crate) declared: Option<Raw>,
    /// It makes tasks for clients that know them.
    #[serde(default)]
    pub(crate) tasks: bool,
}

impl Remembered {
    /// Names the way the server is reached.
    pub(crate) fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    pub(crate) fn new(store: Arc<dyn Store>, clock: Clock, upstream: Arc<str>, fingerprint: String) -> Self {
        Self { store, clock, upstream, fingerprint }
    }

    /// What a principal whose client can do this was offered; `None`: anybody.
    pub(crate) async fn lists(&self, principal: Option<&Principal>, abilities: &Declared) -> Option<Lists> {
        self.get(LISTS, &self.lists_key(principal, abilities)).await
    }

    pub(crate) async fn remember_lists(
        &self,
        principal: Option<&Principal>,
        abilities: &Declared,
        lists: &Lists,
    ) {
        self.put(LISTS, self.lists_key(principal, abilities), lists).await;
    }

    pub(crate) async fn known(&self) -> Option<Known> {
        self.get(VERDICT, &self.key()).await
    }

    pub(crate) async fn remember(&self, known: &Known) {
        self.put(VERDICT, self.key(), known).await;
    }

    async fn get<T: for<'de> Deserialize<'de>>(&self, kind: Kind, key: &str) -> Option<T> {
        let row = match self.store.get(kind, key).await {
            Ok(row) => row?,
            Err(error) => {
                tracing::warn!(upstream = &*self.upstream, %error, "what was remembered cannot be read");
                return None;
            }
        };
        // What another version wrote and this one cannot read is as good as nothing.
        let value = serde_json::from_slice(&row.body).ok()?;
        if row
            .expires
            .is_none_or(|expires| expires < self.in_future(REMEMBERED_FOR.saturating_sub(RENEWED_AFTER)))
        {
            self.write(kind, row.key, row.body).await;
        }
        Some(value)
    }

    async fn put(&self, kind: Kind, key: String, value: &impl Serialize) {
        let Ok(body) = serde_json::to_vec(value) else { return };
        if body.len() <= MAX_BODY {
            self.write(kind, key, body).await;
        }
    }

    async fn write(&self, kind: Kind, key: String, body: Vec<u8>) {
        let expires = Some(self.in_future(REMEMBERED_FOR));
        let put = Put { kind, key, body, expires, expected: None };
        if let Err(error) = self.store.commit(Batch { puts: vec![put], ..Batch::default() }).await {
            tracing::warn!(upstream = &*self.upstream, %error, "what the server offers is not remembered");
        }
    }

    /// In milliseconds since 1970.
    fn in_future(&self, by: Duration) -> u64 {
        self.clock.millis().saturating_add(u64::try_from(by.as_millis()).unwrap_or(u64::MAX))
    }

    fn key(&self) -> String {
        format!("{}/{}", self.upstream, self.fingerprint)
    }

    fn lists_key(&self, principal: Option<&Principal>, abilities: &Declared) -> String {
        // The standard hasher has fixed keys: the same in every run of one build. Another build lists anew.
        let mut hasher = DefaultHasher::new();
        alike(abilities).hash(&mut hasher);
        let whose = principal.map_or("", Principal::as_str);
        format!("{}/{:016x}/{whose}", self.key(), hasher.finish())
    }
}

impl Inner {
    /// The era that the configuration says.
    pub(super) fn configured_verdict(&self) -> Option<Verdict> {
        let modern = match self.settings().era {
            EraChoice::Auto => return None,
            EraChoice::Legacy => false,
            EraChoice::Modern => true,
        };
        Some(Verdict { modern, old_sse: false })
    }

    /// The era to connect with, if it is known. How old that is does not matter here: it is looked at again beside the
    /// calls.
    pub(super) async fn verdict(&self) -> Option<Verdict> {
        let configured = self.configured_verdict();
        let known = lock(self.known().await).clone().filter(|known| {
            let agrees =
                configured.as_ref().is_none_or(|configured| configured.modern == known.verdict.modern);
            agrees && known.at > 0
        });
        known.map(|known| known.verdict).or(configured)
    }

    /// The server is not, or may not be, what it was: the next start looks again.
    pub(super) async fn doubt(&self) {
        if let Some(known) = &mut *lock(self.known().await) {
            known.verdict = Verdict { modern: false, old_sse: false };
            known.at = 0;
        }
    }

    pub(super) async fn known(&self) -> &Mutex<Option<Known>> {
        self.known.get_or_init(|| async { Mutex::new(self.remembered.known().await) }).await
    }

    pub(super) async fn learn(&self, change: impl FnOnce(&mut Known)) {
        let known = self.known().await;
        let learnt = {
            let mut known = lock(known);
            let mut new = known.clone().unwrap_or_default();
            change(&mut new);
            if known.as_ref() == Some(&new) {
                return;
            }
            *known = Some(new.clone());
            new
        };
        self.remembered.remember(&learnt).await;
    }
}
