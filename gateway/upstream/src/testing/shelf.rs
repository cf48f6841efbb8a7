//! A store in memory.

use std::{collections::BTreeMap, sync::Mutex};

use moongate_core::BoxFuture;
use moongate_storage::{Batch, Error, Kind, Put, Revision, Row, Rows, Store, Summary};

/// A store in memory.
#[derive(Default)]
pub(crate) struct Shelf(Mutex<BTreeMap<(&'static str, String), Put>>);

impl Shelf {
    /// When the rows of one kind expire.
    pub(crate) fn expiries(&self, kind: &str) -> Vec<Option<u64>> {
        self.0.lock().unwrap().values().filter(|put| put.kind.0 == kind).map(|put| put.expires).collect()
    }

    /// Forgets the rows of one kind.
    pub(crate) fn clear(&self, kind: &str) {
        self.0.lock().unwrap().retain(|(of, _), _| *of != kind);
    }

    /// The keys of one kind.
    pub(crate) fn keys(&self, kind: &str) -> Vec<String> {
        self.0.lock().unwrap().keys().filter(|(of, _)| *of == kind).map(|(_, key)| key.clone()).collect()
    }
}

fn row(put: &Put) -> Row {
    Row { key: put.key.clone(), revision: Revision(1), expires: put.expires, body: put.body.clone() }
}

impl Store for Shelf {
    fn get<'a>(&'a self, kind: Kind, key: &'a str) -> BoxFuture<'a, Result<Option<Row>, Error>> {
        let found = self.0.lock().unwrap().get(&(kind.0, key.to_owned())).map(row);
        Box::pin(std::future::ready(Ok(found)))
    }

    fn scan<'a>(&'a self, kind: Kind, rows: Rows<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        let all = self.0.lock().unwrap();
        let wanted = all
            .iter()
            .filter(|((of, key), _)| *of == kind.0 && rows.after.is_none_or(|after| key.as_str() > after));
        let found = wanted.take(rows.limit).map(|(_, put)| row(put)).collect();
        Box::pin(std::future::ready(Ok(found)))
    }

    fn summary(&self, kind: Kind) -> BoxFuture<'_, Result<Summary, Error>> {
        let rows = self.keys(kind.0).len();
        Box::pin(std::future::ready(Ok(Summary { rows, ..Summary::default() })))
    }

    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, Error>> {
        let mut all = self.0.lock().unwrap();
        for put in batch.puts {
            all.insert((put.kind.0, put.key.clone()), put);
        }
        for (kind, key) in batch.deletes {
            all.remove(&(kind.0, key));
        }
        Box::pin(std::future::ready(Ok(Revision(1))))
    }
}
