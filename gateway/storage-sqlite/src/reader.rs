//! The threads that read, each with a connection of its own.
//!
//! In: queries from the queue they share. Out: rows. A connection is opened with the first query: a gateway that never
//! reads does not pay for it.

use std::sync::{Arc, Mutex, PoisonError};

use moongate_core::Clock;
use moongate_storage::{
    Error,
    store::{Kind, Revision, Row, Summary},
};
use rusqlite::{Connection, Params, params};
use tokio::sync::{mpsc, oneshot};

use crate::{connect::Database, error::failed, number::Number};

/// A query about the rows of one scope and kind.
pub(crate) struct Read {
    pub(crate) scope: Arc<str>,
    pub(crate) kind: Kind,
    pub(crate) query: Query,
}

/// Who waits for an answer.
pub(crate) type Answer<T> = oneshot::Sender<Result<T, Error>>;

/// What is asked, and by whom.
pub(crate) enum Query {
    /// The row with this key.
    One { key: String, answer: Answer<Vec<Row>> },
    /// Rows in order of their keys.
    Many { after: Option<String>, limit: usize, answer: Answer<Vec<Row>> },
    /// How many and how large they are.
    Summary { answer: Answer<Summary> },
}

/// Reads until the queue is closed and empty.
pub(crate) fn run(database: &Database, queue: &Mutex<mpsc::Receiver<Read>>, clock: &Clock) {
    let mut connection = None;
    while let Some(read) = next(queue) {
        let open = connected(&mut connection, database);
        let place = Place { scope: &read.scope, kind: read.kind.0, now: Number(clock.millis()) };
        match read.query {
            Query::One { key, answer } => respond(answer, open, |open| place.one(open, &key)),
            Query::Many { after, limit, answer } => {
                respond(answer, open, |open| place.many(open, after.as_deref(), limit));
            }
            Query::Summary { answer } => respond(answer, open, |open| place.summary(open)),
        }
    }
}

/// Asks, if somebody still waits for it.
fn respond<T>(
    answer: Answer<T>,
    open: Result<&Connection, Error>,
    ask: impl FnOnce(&Connection) -> rusqlite::Result<T>,
) {
    if answer.is_closed() {
        return;
    }
    let found = open.and_then(|open| ask(open).map_err(|error| failed("reading the database", error)));
    drop(answer.send(found));
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

/// The rows a query is about: those of one scope and kind that have not expired.
struct Place<'a> {
    scope: &'a str,
    kind: &'a str,
    now: Number,
}

const IN_PLACE: &str = "scope = ?1 AND kind = ?2 AND (expires IS NULL OR expires > ?3)";

impl Place<'_> {
    fn one(&self, connection: &Connection, key: &str) -> rusqlite::Result<Vec<Row>> {
        select(connection, "key = ?4", params![self.scope, self.kind, self.now, key])
    }

    fn many(&self, connection: &Connection, after: Option<&str>, limit: usize) -> rusqlite::Result<Vec<Row>> {
        let limit = i64::try_from(limit).unwrap_or(i64::MAX);
        // Without a first key all of them: none is less than the empty one.
        let (condition, from) = after.map_or(("key >= ?4", ""), |after| ("key > ?4", after));
        let condition = format!("{condition} ORDER BY key LIMIT ?5");
        select(connection, &condition, params![self.scope, self.kind, self.now, from, limit])
    }

    /// Bodies come after everything that is looked at here, and the length of a body before it, so that long ones are passed
    /// over unread.
    fn summary(&self, connection: &Connection) -> rusqlite::Result<Summary> {
        let mut statement = connection.prepare_cached(&format!(
            "SELECT count(*), coalesce(sum(length(body)), 0), coalesce(max(rev), 0) FROM doc WHERE {IN_PLACE}"
        ))?;
        statement.query_row(params![self.scope, self.kind, self.now], |row| {
            let (Number(rows), Number(bytes), Number(newest)) = (row.get(0)?, row.get(1)?, row.get(2)?);
            Ok(Summary { rows: usize::try_from(rows).unwrap_or(usize::MAX), bytes, newest: Revision(newest) })
        })
    }
}

fn select(connection: &Connection, condition: &str, params: impl Params) -> rusqlite::Result<Vec<Row>> {
    let mut statement = connection.prepare_cached(&format!(
        "SELECT key, rev, expires, body FROM doc WHERE {IN_PLACE} AND {condition}"
    ))?;
    let rows = statement.query_map(params, |row| {
        let (Number(revision), expires) = (row.get(1)?, row.get::<_, Option<Number>>(2)?);
        let expires = expires.map(|Number(millis)| millis);
        Ok(Row { key: row.get(0)?, revision: Revision(revision), expires, body: row.get(3)? })
    })?;
    rows.collect()
}
