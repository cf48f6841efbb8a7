//! The stored texts of one session: what each is (a small row) and what it says (a large one), written and removed together.

use std::{sync::Arc, time::Duration};

use moongate_core::StoreScope;
use moongate_storage::{
    self as storage,
    store::{Batch, Kind, Put, Renewal, Revision, Row, Rows, Store, Stores, Summary},
};

use crate::{
    ContentOptions,
    error::Error,
    item::{Item, Moment},
};

/// What a text is.
const ITEM: Kind = Kind("content");
/// What it says.
const TEXT: Kind = Kind("content_text");

/// That somebody has removed it.
const GONE: Kind = Kind("content_gone");
/// How long that is remembered: longer than two removals overlap.
const REMOVED: Duration = Duration::from_mins(1);

/// Small rows read at once.
const CHUNK: usize = 200;
/// A text that is used is noted at most this often...
const NOTED_EVERY: Duration = Duration::from_hours(1);
/// ...and often enough for the shortest retention: what is in use goes no earlier than this part of it.
const RETENTION_PART: u32 = 16;

/// The texts a caller may reach.
pub(crate) struct Shelf<'a> {
    store: Arc<dyn Store>,
    options: &'a ContentOptions,
    now: u64,
}

/// A stored text and what it is called.
pub(crate) struct Stored {
    pub(crate) id: String,
    pub(crate) item: Item,
    revision: Revision,
}

impl<'a> Shelf<'a> {
    /// Opens the rows of `scope` at the time `now`.
    pub(crate) fn open(
        stores: &dyn Stores,
        scope: &StoreScope,
        options: &'a ContentOptions,
        now: u64,
    ) -> Self {
        Self { store: stores.open(scope), options, now }
    }

    /// The time it was opened at.
    pub(crate) fn now(&self) -> Moment {
        Moment(self.now)
    }

    /// Stores a new text.
    pub(crate) async fn add(&self, id: &str, item: &Item, text: String) -> Result<(), Error> {
        self.make_room(text.len()).await?;
        let puts = vec![self.put(ITEM, id, item.encode()), self.put(TEXT, id, text.into_bytes())];
        self.store.commit(Batch { puts, ..Batch::default() }).await?;
        Ok(())
    }

    /// What a text is.
    pub(crate) async fn item(&self, id: &str) -> Result<Stored, Error> {
        let row = self.store.get(ITEM, id).await?.ok_or_else(|| Error::NotFound(id.to_owned()))?;
        stored(row)
    }

    /// A text, which counts as used by that, and what it is.
    pub(crate) async fn read(&self, id: &str) -> Result<(Stored, String), Error> {
        let stored = self.item(id).await?;
        let text = self.text(id).await?.ok_or_else(|| Error::NotFound(id.to_owned()))?;
        self.note_use(std::slice::from_ref(&stored)).await;
        Ok((stored, text))
    }

    /// What a text says, unless it is gone.
    pub(crate) async fn text(&self, id: &str) -> Result<Option<String>, Error> {
        let Some(row) = self.store.get(TEXT, id).await? else { return Ok(None) };
        let text = String::from_utf8(row.body).map_err(|error| storage::Error::Corrupt(error.into()))?;
        Ok(Some(text))
    }

    /// Some of the texts in the order they were added: at most `limit` behind `after`.
    pub(crate) async fn page(&self, after: Option<&str>, limit: usize) -> Result<Vec<Stored>, Error> {
        let rows = self.store.scan(ITEM, Rows { after, limit }).await?;
        rows.into_iter().map(stored).collect()
    }

    /// All texts in the order they were added.
    pub(crate) async fn all(&self) -> Result<Vec<Stored>, Error> {
        let mut all: Vec<Stored> = Vec::new();
        loop {
            let page = self.page(all.last().map(|last| last.id.as_str()), CHUNK).await?;
            let ended = page.len() < CHUNK;
            all.extend(page);
            if ended {
                return Ok(all);
            }
        }
    }

    /// Removes a text.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Error> {
        self.item(id).await?;
        let deletes = vec![(ITEM, id.to_owned()), (TEXT, id.to_owned())];
        // Of those who remove it at the same time one is the first; ids do not come back.
        let expires = Some(self.now.saturating_add(millis(REMOVED)));
        let first = Put { expires, ..self.put(GONE, id, Vec::new()) };
        match self.store.commit(Batch { puts: vec![first], deletes, ..Batch::default() }).await {
            Ok(_) => Ok(()),
            Err(storage::Error::Conflict) => Err(Error::NotFound(id.to_owned())),
            Err(error) => Err(error.into()),
        }
    }

    /// Tells whether the texts are still the same ones: they never change, they only come and go.
    pub(crate) async fn summary(&self) -> Result<Summary, Error> {
        Ok(self.store.summary(TEXT).await?)
    }

    /// Whether a text that was last noted as used at `accessed` is to be noted again.
    pub(crate) fn is_due(&self, accessed: Moment) -> bool {
        let often = self.options.retention.map_or(NOTED_EVERY, |kept| NOTED_EVERY.min(kept / RETENTION_PART));
        self.now.saturating_sub(accessed.0) > millis(often)
    }

    /// Notes that texts are used, now and then, and lets them stay for so much longer. Whoever reads them need not hear that it failed.
    pub(crate) async fn note_use(&self, texts: &[Stored]) {
        let mut batch = Batch::default();
        for Stored { id, item, revision } in texts.iter().filter(|one| self.is_due(one.item.last_accessed_at))
        {
            let item = Item { last_accessed_at: Moment(self.now), ..item.clone() };
            batch.puts.push(Put { expected: Some(*revision), ..self.put(ITEM, id, item.encode()) });
            batch.renewals.push(Renewal { kind: TEXT, key: id.clone(), expires: self.expires() });
        }
        if batch.puts.is_empty() {
            return;
        }
        match self.store.commit(batch).await {
            // Somebody else has noted one of them, or removed it.
            Ok(_) | Err(storage::Error::Conflict) => {}
            Err(error) => tracing::warn!(%error, "the use of texts is not noted"),
        }
    }

    /// Refuses what is too much. Additions that overlap may go over the limit by as much as overlaps.
    async fn make_room(&self, size: usize) -> Result<(), Error> {
        let limits = &self.options.limits;
        let Summary { rows, bytes, .. } = self.summary().await?;
        if rows >= limits.contents {
            return Err(Error::TooMany(limits.contents));
        }
        if bytes.saturating_add(size as u64) > limits.total {
            return Err(Error::Full(limits.total));
        }
        Ok(())
    }

    /// A row that is new.
    fn put(&self, kind: Kind, id: &str, body: Vec<u8>) -> Put {
        Put { kind, key: id.to_owned(), body, expires: self.expires(), expected: Some(Revision(0)) }
    }

    fn expires(&self) -> Option<u64> {
        self.options.retention.map(|kept| self.now.saturating_add(millis(kept)))
    }
}

fn stored(row: Row) -> Result<Stored, Error> {
    Ok(Stored { item: Item::decode(&row.body)?, id: row.key, revision: row.revision })
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}
