//! The threads that read, each with a connection of its own.
//!
//! In: queries from the queue they share. Out: rows. A connection is opened with the first query: a gateway that never
//! reads does not pay for it.

use std::sync::{Arc, Mutex, PoisonError};

use moongate_core::Clock;
use moongate_storage::{
    Error,
    store::{Kind, Revision, Row},
};
use rusqlite::{Connection, Params, params};
use tokio::sync::{mpsc, oneshot};

use crate::{connect::Database, error::failed, number::Number};

/// A query, and who waits for it.
pub(crate) struct Read {
    pub(crate) scope: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) query: Query,
    pub(crate) answer: oneshot::Sender<Result<Vec<Row>, Error>>,
}

/// Which rows.
pub(crate) enum Query {
    /// The one with this key.
    One(String),
    /// In order of their keys.
    Many { after: Option<String>, limit: usize },
}

/// Reads until the queue is closed and empty.
pub(crate) fn run(database: &Database, queue: &Mutex<mpsc::Receiver<Read>>, clock: &Clock) {
    let mut connection = None;
    while let Some(read) = next(queue) {
        if read.answer.is_closed() {
            continue; // nobody waits any more
        }
        let rows = connected(&mut connection, database).and_then(|open| {
            rows(open, &read, clock.millis()).map_err(|error| failed("reading the database", error))
        });
        drop(read.answer.send(rows));
    }
}

/// Waits with the lock held: the other threads then wait for the lock instead of the queue, which is the same.
fn next(queue: &Mutex<mpsc::Receiver<Read>>) -> Option<Read> {
    queue.lock().unwrap_or_else(PoisonError::into_inner).blocking_recv()
}

fn connected<'a>(
    connection: &'a mut Option<Connection>,
    database: &Database,
) -> Result<&'a Connection, Error> {
    if connection.is_none() {
        *connection = Some(database.reader()?);
    }
    Ok(connection.as_ref().expect("it was just made"))
}

fn rows(connection: &Connection, read: &Read, now: u64) -> rusqlite::Result<Vec<Row>> {
    let (scope, kind, now) = (&*read.scope, read.kind.0, Number(now));
    match &read.query {
        Query::One(key) => select(connection, "key = ?4", params![scope, kind, now, key]),
        Query::Many { after, limit } => {
            let limit = i64::try_from(*limit).unwrap_or(i64::MAX);
            // Without a first key all of them: none is less than the empty one.
            let (condition, from) = after.as_deref().map_or(("key >= ?4", ""), |after| ("key > ?4", after));
            select(
                connection,
                &format!("{condition} ORDER BY key LIMIT ?5"),
                params![scope, kind, now, from, limit],
            )
        }
    }
}

fn select(connection: &Connection, condition: &str, params: impl Params) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT key, rev, expires, body FROM doc
         WHERE scope = ?1 AND kind = ?2 AND (expires IS NULL OR expires > ?3) AND {condition}"
    ))?;
    let rows = statement.query_map(params, |row| {
        let (Number(revision), expires) = (row.get(1)?, row.get::<_, Option<Number>>(2)?);
        let expires = expires.map(|Number(millis)| millis);
        Ok(Row { key: row.get(0)?, revision: Revision(revision), expires, body: row.get(3)? })
    })?;
    rows.collect()
}
