//! The index of one session, and how it follows the rows.

use std::{
    collections::BTreeMap,
    num::NonZero,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use moongate_search::Library;
use moongate_storage::store::Summary;
use tokio::{sync::OwnedRwLockWriteGuard, task::spawn_blocking};

use crate::{
    error::Error,
    item::Moment,
    shelf::{Shelf, Stored},
};

/// A removal costs as much as a look at all terms: with more of them a new index is cheaper.
const FEW: usize = 8;
/// What is done with so many bytes takes a thread of its own, so that other calls do not wait for it.
const HEAVY: usize = 32 << 10;
/// Words take up to some twenty times their text, so that an index is weighed before it can have grown much over its limit.
const WEIGHED_PART: usize = 64;
/// About what an entry takes beside its texts.
const ENTRY: usize = 256;

/// The words of one session's texts, and which texts these are.
#[derive(Default)]
pub(crate) struct SessionIndex {
    pub(crate) library: Library<Document>,
    documents: BTreeMap<String, Document>,
    /// Of the rows that it was made of.
    summary: Option<Summary>,
    /// What it took when it was last weighed, which is a walk over all terms.
    weight: usize,
    /// Bytes of texts that came since.
    unweighed: usize,
    /// How many texts it does not have the words of, because it has come to its limit.
    left_out: usize,
}

/// A text as a search knows it; the same one if the id is the same.
#[derive(Clone, Debug)]
pub(crate) struct Document(Arc<Known>);

#[derive(Debug)]
struct Known {
    id: String,
    filename: String,
    /// When it was last noted as used.
    accessed: AtomicU64,
}

impl SessionIndex {
    /// Whether it was made of exactly the rows that have this summary.
    pub(crate) fn is_of(&self, summary: Summary) -> bool {
        self.summary == Some(summary)
    }

    /// About how many bytes it takes.
    pub(crate) fn memory(&self) -> usize {
        self.weight + ENTRY
    }

    /// Of how many texts it lacks the words, if of any: those are found literally only.
    pub(crate) fn left_out(&self) -> Option<NonZero<usize>> {
        NonZero::new(self.left_out)
    }

    fn weigh(&mut self) {
        self.weight = self.library.memory() + self.documents.len() * ENTRY;
        self.unweighed = 0;
    }

    /// Adds a text, its words only as long as there is room for them.
    fn add(&mut self, document: Document, text: &str, most: usize) {
        let is_full = self.weight > most;
        self.left_out += usize::from(is_full);
        self.library.add(document.clone(), document.filename(), if is_full { "" } else { text });
        self.unweighed += text.len();
        if !is_full && self.unweighed > most / WEIGHED_PART {
            self.weigh();
        }
        self.documents.insert(document.id().to_owned(), document);
    }

    /// Drops what is not among `stored` any more.
    fn drop_all_but(&mut self, stored: &[Stored]) {
        let kept: Vec<&str> = stored.iter().map(|stored| stored.id.as_str()).collect();
        let is_gone = |id: &str| kept.binary_search(&id).is_err();
        let gone: Vec<Document> =
            self.documents.values().filter(|document| is_gone(document.id())).cloned().collect();
        // There is room again for words that were left out.
        if gone.len() > FEW || (self.left_out > 0 && !gone.is_empty()) {
            *self = Self::default();
        }
        for document in gone {
            self.library.remove(&document);
            self.documents.remove(document.id());
        }
    }
}

/// Brings an index to the rows on `shelf`, which were `summary` before they are looked at: what comes in meanwhile shows as
/// another summary, and is looked at again with the next search.
pub(super) async fn catch_up(
    mut index: OwnedRwLockWriteGuard<SessionIndex>,
    shelf: &Shelf<'_>,
    summary: Summary,
    most: usize,
) -> Result<OwnedRwLockWriteGuard<SessionIndex>, Error> {
    let stored = shelf.all().await?;
    // If this is given up half way, it fits no rows, not even those it was made of.
    index.summary = None;
    let weight = index.weight;
    let (mut index, stored) = run_sized(weight, move || {
        index.drop_all_but(&stored);
        (index, stored)
    })
    .await;
    for stored in stored {
        if index.documents.contains_key(&stored.id) {
            continue;
        }
        // It may be gone by now.
        let Some(text) = shelf.text(&stored.id).await? else { continue };
        index = run_sized(text.len(), move || {
            index.add(Document::of(stored), &text, most);
            index
        })
        .await;
    }
    let weight = index.weight + index.unweighed;
    Ok(run_sized(weight, move || {
        index.weigh();
        index.summary = Some(summary);
        index
    })
    .await)
}

/// Does some work on so many bytes, here or on a thread of its own.
pub(crate) async fn run_sized<T: Send + 'static>(
    bytes: usize,
    work: impl FnOnce() -> T + Send + 'static,
) -> T {
    if bytes < HEAVY {
        return work();
    }
    match spawn_blocking(work).await {
        Ok(done) => done,
        Err(error) => std::panic::resume_unwind(error.into_panic()),
    }
}

impl Document {
    fn of(stored: Stored) -> Self {
        let Stored { id, item, .. } = stored;
        Self(Arc::new(Known { id, filename: item.filename, accessed: item.last_accessed_at.0.into() }))
    }

    pub(crate) fn id(&self) -> &str {
        &self.0.id
    }

    pub(crate) fn filename(&self) -> &str {
        &self.0.filename
    }

    pub(crate) fn accessed(&self) -> Moment {
        Moment(self.0.accessed.load(Ordering::Relaxed))
    }

    pub(crate) fn set_accessed(&self, Moment(millis): Moment) {
        self.0.accessed.store(millis, Ordering::Relaxed);
    }
}

impl PartialEq for Document {
    fn eq(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0) || self.0.id == other.0.id
    }
}
