//! The stored playbooks of one caller: every way to one goes through the ownership check here.

use std::sync::Arc;

use moongate_core::Context;
use moongate_storage::{
    self as storage,
    store::{Batch, Kind, Put, Revision, Row, Rows, Store, Stores},
};
use serde::Serialize;

use crate::{
    error::Error,
    record::{MAX_SIZE, Record},
};

/// Playbooks of one session, whoever owns them.
pub(crate) const MAX_PLAYBOOKS: usize = 1000;
/// Bytes of the playbooks in one answer.
pub(crate) const MAX_LISTED: usize = 4 * 1024 * 1024;
/// Rows read at once, so that a walk over the largest playbooks holds a few megabytes.
const CHUNK: usize = 4 * 1024 * 1024 / MAX_SIZE;
/// Each lost race means that somebody else won one; nobody loses this many in a row by chance.
const ATTEMPTS: usize = 32;

const PLAYBOOK: Kind = Kind("playbook");

/// The playbooks a caller may reach.
pub(crate) struct Library<'a> {
    store: Arc<dyn Store>,
    assistant: Option<&'a str>,
}

/// Which part of a list is wanted.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Window {
    /// From 1.
    pub(crate) page: usize,
    /// `None` for all on one page.
    pub(crate) size: Option<usize>,
}

/// One page of playbooks.
#[derive(Debug)]
pub(crate) struct Listing {
    pub(crate) records: Vec<Record>,
    pub(crate) place: Place,
}

/// Where a page lies in the whole list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct Place {
    pub(crate) page: usize,
    pub(crate) page_size: i64,
    pub(crate) total_items: usize,
    pub(crate) total_pages: usize,
}

impl<'a> Library<'a> {
    /// Opens the rows of the caller's durable session.
    pub(crate) fn open(
        stores: &dyn Stores,
        cx: &Context,
        assistant: Option<&'a str>,
        require_assistant: bool,
    ) -> Result<Self, Error> {
        if require_assistant && assistant.is_none() {
            return Err(Error::NoAssistant);
        }
        Ok(Self { store: stores.open(&cx.store_scope()), assistant })
    }

    /// Who creates here.
    pub(crate) fn owner(&self) -> Option<&'a str> {
        self.assistant
    }

    /// A playbook the caller may use.
    pub(crate) async fn get(&self, id: &str) -> Result<Record, Error> {
        Ok(self.load(id).await?.0)
    }

    /// Stores a new playbook under an id that nobody has. `make` gets ids until one is free.
    pub(crate) async fn create(&self, make: impl Fn() -> Result<Record, Error>) -> Result<Record, Error> {
        self.make_room().await?;
        for _ in 0..ATTEMPTS {
            let record = make()?;
            if self.put(&record, Revision(0)).await? {
                return Ok(record);
            }
        }
        Err(storage::Error::Conflict.into())
    }

    /// Changes a playbook: reads, changes and writes it if it is still what was read; otherwise once more.
    pub(crate) async fn update(
        &self,
        id: &str,
        change: impl Fn(&mut Record) -> Result<(), Error>,
    ) -> Result<Record, Error> {
        for _ in 0..ATTEMPTS {
            let (mut record, revision) = self.load(id).await?;
            change(&mut record)?;
            if self.put(&record, revision).await? {
                return Ok(record);
            }
        }
        Err(Error::Busy(id.to_owned()))
    }

    /// Removes a playbook. Its owner never changes, so nobody can slip in between check and removal.
    pub(crate) async fn delete(&self, id: &str) -> Result<(), Error> {
        self.load(id).await?;
        let batch = Batch { deletes: vec![(PLAYBOOK, id.to_owned())], ..Batch::default() };
        self.store.commit(batch).await?;
        Ok(())
    }

    /// The caller's playbooks, oldest first: those of its assistant, or all when it has none.
    pub(crate) async fn list(&self, window: Window) -> Result<Listing, Error> {
        let (mut records, mut bytes, mut total) = (Vec::new(), 0, 0);
        let mut after = None;
        loop {
            let rows = self.chunk(after.as_deref()).await?;
            let Some(last) = rows.last().map(|row| row.key.clone()) else { break };
            for row in &rows {
                let record = decode(row)?;
                if self.check(&record).is_err() {
                    continue;
                }
                if window.shows(total) {
                    bytes += row.body.len();
                    if bytes > MAX_LISTED {
                        return Err(Error::PageTooLarge);
                    }
                    records.push(record);
                }
                total += 1;
            }
            after = Some(last);
        }
        Ok(Listing { records, place: window.place(total) })
    }

    async fn load(&self, id: &str) -> Result<(Record, Revision), Error> {
        let row = self.store.get(PLAYBOOK, id).await?.ok_or_else(|| Error::NotFound(id.to_owned()))?;
        let record = decode(&row)?;
        self.check(&record)?;
        Ok((record, row.revision))
    }

    fn check(&self, record: &Record) -> Result<(), Error> {
        match self.assistant {
            Some(assistant) if assistant != record.agent_id => {
                Err(Error::Denied { id: record.id.clone(), assistant: assistant.to_owned() })
            }
            _ => Ok(()),
        }
    }

    /// False when the row is no longer at `expected`.
    async fn put(&self, record: &Record, expected: Revision) -> Result<bool, Error> {
        let put = Put {
            kind: PLAYBOOK,
            key: record.id.clone(),
            body: record.encode()?,
            expires: None,
            expected: Some(expected),
        };
        match self.store.commit(Batch { puts: vec![put], ..Batch::default() }).await {
            Ok(_) => Ok(true),
            Err(storage::Error::Conflict) => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Refuses when the session is full. Creations that overlap may go a few over the limit, which hurts nobody.
    async fn make_room(&self) -> Result<(), Error> {
        if self.store.summary(PLAYBOOK).await?.rows < MAX_PLAYBOOKS { Ok(()) } else { Err(Error::Full) }
    }

    async fn chunk(&self, after: Option<&str>) -> Result<Vec<Row>, Error> {
        Ok(self.store.scan(PLAYBOOK, Rows { after, limit: CHUNK }).await?)
    }
}

fn decode(row: &Row) -> Result<Record, Error> {
    serde_json::from_slice(&row.body).map_err(|error| storage::Error::Corrupt(error.into()).into())
}

impl Window {
    fn shows(&self, index: usize) -> bool {
        match self.size {
            None => self.page == 1,
            Some(size) => index / size == self.page - 1,
        }
    }

    fn place(&self, total: usize) -> Place {
        let total_pages = self.size.map_or(1, |size| total.div_ceil(size).max(1));
        let page_size = self.size.map_or(-1, |size| i64::try_from(size).unwrap_or(i64::MAX));
        Place { page: self.page, page_size, total_items: total, total_pages }
    }
}
