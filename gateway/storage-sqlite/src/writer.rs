//! The thread that writes: many changes, one transaction.
//!
//! In: changes from the queue. Out: an answer to each, after all of them are durable. One change that fails does not
//! take the others with it; a transaction that fails does.

use std::sync::Arc;

use moongate_core::Clock;
use moongate_storage::{
    Error,
    store::{Batch, Put, Renewal},
};
use rusqlite::{Connection, OptionalExtension, TransactionBehavior, params};
use tokio::sync::{mpsc, oneshot};

use crate::{error::failed, number::Number};

/// Changes in one transaction, at most: a bound on how long the first waits for the last.
const GROUP: usize = 256;

const DOING: &str = "writing to the database";

/// A change, and who waits for it.
pub(crate) struct Write {
    pub(crate) change: Change,
    /// The revision of a commit, or how many rows a purge removed.
    pub(crate) answer: oneshot::Sender<Result<u64, Error>>,
}

/// What to change.
pub(crate) enum Change {
    /// Rows of one scope.
    Commit { scope: Arc<str>, batch: Batch },
    /// Expired rows of all scopes.
    Purge { now: u64 },
}

/// Writes until the queue is closed and empty.
pub(crate) fn run(mut connection: Connection, mut queue: mpsc::Receiver<Write>, clock: &Clock) {
    while let Some(first) = queue.blocking_recv() {
        let mut group = vec![first];
        while group.len() < GROUP
            && let Ok(next) = queue.try_recv()
        {
            group.push(next);
        }
        write(&mut connection, group, clock.millis());
    }
}

fn write(connection: &mut Connection, group: Vec<Write>, now: u64) {
    let (changes, waiting): (Vec<_>, Vec<_>) =
        group.into_iter().map(|write| (write.change, write.answer)).unzip();
    let outcomes = transact(connection, &changes, now).unwrap_or_else(|error| {
        let error = Arc::new(error);
        changes.iter().map(|_| Err(failed(DOING, Arc::clone(&error)))).collect()
    });
    for (answer, outcome) in waiting.into_iter().zip(outcomes) {
        // Whoever does not wait any more need not know.
        drop(answer.send(outcome));
    }
}

/// Applies all changes and commits them. An error means that none of them happened.
fn transact(
    connection: &mut Connection,
    changes: &[Change],
    now: u64,
) -> rusqlite::Result<Vec<Result<u64, Error>>> {
    let mut transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
    let Number(before) =
        transaction.prepare_cached("SELECT revision FROM meta")?.query_row([], |row| row.get(0))?;
    let mut revision = before;
    let mut outcomes = Vec::with_capacity(changes.len());
    for change in changes {
        let savepoint = transaction.savepoint()?;
        let outcome = match change {
            Change::Commit { scope, batch } => commit(&savepoint, scope, batch, revision + 1, now),
            Change::Purge { now } => purge(&savepoint, *now).map_err(Refused::Sqlite),
        };
        match outcome {
            Ok(answer) => {
                savepoint.commit()?;
                revision += u64::from(matches!(change, Change::Commit { .. }));
                outcomes.push(Ok(answer));
            }
            // Some errors, such as a full disk, have undone the whole transaction already.
            Err(Refused::Sqlite(error)) if savepoint.is_autocommit() => return Err(error),
            Err(refused) => {
                savepoint.finish()?;
                outcomes.push(Err(refused.into()));
            }
        }
    }
    if revision > before {
        transaction.prepare_cached("UPDATE meta SET revision = ?1")?.execute([Number(revision)])?;
    }
    transaction.commit()?;
    Ok(outcomes)
}

/// Why one change was not applied.
enum Refused {
    Conflict,
    Sqlite(rusqlite::Error),
}

impl From<rusqlite::Error> for Refused {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

impl From<Refused> for Error {
    fn from(refused: Refused) -> Self {
        match refused {
            Refused::Conflict => Self::Conflict,
            Refused::Sqlite(error) => failed(DOING, error),
        }
    }
}

/// What a batch expects is about the rows before it; a row it both deletes and puts is there afterwards.
fn commit(
    connection: &Connection,
    scope: &str,
    batch: &Batch,
    revision: u64,
    now: u64,
) -> Result<u64, Refused> {
    for put in &batch.puts {
        if let Some(expected) = put.expected
            && current(connection, scope, put, now)? != expected.0
        {
            return Err(Refused::Conflict);
        }
    }
    let mut delete =
        connection.prepare_cached("DELETE FROM doc WHERE scope = ?1 AND kind = ?2 AND key = ?3")?;
    for (kind, key) in &batch.deletes {
        delete.execute(params![scope, kind.0, key])?;
    }
    let mut upsert = connection.prepare_cached(
        "INSERT INTO doc (scope, kind, key, rev, expires, body) VALUES (?1, ?2, ?3, ?4, ?5, ?6)
         ON CONFLICT DO UPDATE SET rev = excluded.rev, expires = excluded.expires, body = excluded.body",
    )?;
    for Put { kind, key, body, expires, .. } in &batch.puts {
        upsert.execute(params![scope, kind.0, key, Number(revision), expires.map(Number), body])?;
    }
    let mut renew = connection.prepare_cached(
        "UPDATE doc SET expires = ?5 WHERE scope = ?1 AND kind = ?2 AND key = ?3 AND (expires IS NULL OR expires > ?4)",
    )?;
    for Renewal { kind, key, expires } in &batch.renewals {
        renew.execute(params![scope, kind.0, key, Number(now), expires.map(Number)])?;
    }
    Ok(revision)
}

/// The revision of the row that `put` would replace; 0 when there is none, or none any more.
fn current(connection: &Connection, scope: &str, put: &Put, now: u64) -> rusqlite::Result<u64> {
    let mut select = connection.prepare_cached(
        "SELECT rev FROM doc WHERE scope = ?1 AND kind = ?2 AND key = ?3 AND (expires IS NULL OR expires > ?4)",
    )?;
    let found = select.query_row(params![scope, put.kind.0, put.key, Number(now)], |row| row.get(0));
    Ok(found.optional()?.map_or(0, |Number(revision)| revision))
}

fn purge(connection: &Connection, now: u64) -> rusqlite::Result<u64> {
    let removed = connection.prepare_cached("DELETE FROM doc WHERE expires <= ?1")?.execute([Number(now)])?;
    Ok(removed as u64)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use moongate_storage::store::{Kind, Revision};

    use super::*;
    use crate::{Durability, connect::Database};

    const KIND: Kind = Kind("playbook");

    fn put(key: &str, expected: Option<u64>) -> Put {
        Put { kind: KIND, key: key.into(), body: Vec::new(), expires: None, expected: expected.map(Revision) }
    }

    fn commit(puts: impl Into<Vec<Put>>) -> Change {
        Change::Commit { scope: "s".into(), batch: Batch { puts: puts.into(), ..Batch::default() } }
    }

    fn connect(directory: &tempfile::TempDir) -> Connection {
        let database = Database::at(&directory.path().join("db"), Durability::Relaxed).unwrap();
        database.writer().unwrap()
    }

    fn keys(connection: &Connection) -> Vec<String> {
        let mut keys = connection.prepare("SELECT key FROM doc ORDER BY key").unwrap();
        keys.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn one_conflict_in_a_group_fails_alone() {
        let directory = tempfile::tempdir().unwrap();
        let mut connection = connect(&directory);
        let group = [
            commit([put("a", Some(0))]),
            commit([put("half", None), put("a", Some(9))]),
            commit([put("b", None)]),
            commit([put("a", Some(1))]),
            Change::Purge { now: 5 },
            commit([put("a", Some(1))]),
            commit([put("c", None)]),
        ];
        let outcomes = transact(&mut connection, &group, 0).unwrap();
        let outcomes: Vec<_> = outcomes
            .into_iter()
            .map(|outcome| outcome.inspect_err(|error| assert!(matches!(error, Error::Conflict))).ok())
            .collect();
        assert_eq!(outcomes, [Some(1), None, Some(2), Some(3), Some(0), None, Some(4)]);
        assert_eq!(keys(&connection), ["a", "b", "c"]);
        let next = transact(&mut connection, &[commit([put("d", None)])], 0).unwrap();
        assert!(matches!(next.as_slice(), [Ok(5)]), "the revision was kept");
    }

    #[test]
    fn a_failed_change_is_undone_and_leaves_the_others() {
        let directory = tempfile::tempdir().unwrap();
        let mut connection = connect(&directory);
        let refuse = "CREATE TRIGGER refuse BEFORE INSERT ON doc WHEN new.key = 'bad' BEGIN SELECT raise(ABORT, 'no'); END";
        connection.execute_batch(refuse).unwrap();
        let group = [
            commit([put("a", None)]),
            commit([put("half", None), put("bad", None)]),
            commit([put("b", None)]),
        ];
        let outcomes = transact(&mut connection, &group, 0).unwrap();
        assert!(matches!(outcomes.as_slice(), [Ok(1), Err(Error::Backend { .. }), Ok(2)]), "{outcomes:?}");
        assert_eq!(keys(&connection), ["a", "b"]);
    }

    #[test]
    fn a_failed_transaction_fails_everybody_and_changes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let (mut connection, other) = (connect(&directory), connect(&directory));
        connection.busy_timeout(Duration::ZERO).unwrap();
        other.execute_batch("BEGIN IMMEDIATE").unwrap();
        let (group, mut answers): (Vec<_>, Vec<_>) = ["a", "b"]
            .into_iter()
            .map(|key| {
                let (answer, answered) = oneshot::channel();
                (Write { change: commit([put(key, None)]), answer }, answered)
            })
            .unzip();
        write(&mut connection, group, 0);
        for answer in &mut answers {
            let outcome = answer.try_recv().unwrap();
            assert!(matches!(outcome, Err(Error::Backend { doing: DOING, .. })), "{outcome:?}");
        }
        other.execute_batch("ROLLBACK").unwrap();
        assert!(keys(&connection).is_empty());

        let undo = "CREATE TRIGGER undo BEFORE INSERT ON doc WHEN new.key = 'bad' BEGIN SELECT raise(ROLLBACK, 'no'); END";
        connection.execute_batch(undo).unwrap();
        let group = [commit([put("a", None)]), commit([put("bad", None)]), commit([put("b", None)])];
        assert!(transact(&mut connection, &group, 0).is_err(), "SQLite gave all of it up");
        assert!(keys(&connection).is_empty());
        assert!(matches!(
            transact(&mut connection, &[commit([put("c", None)])], 0).unwrap().as_slice(),
            [Ok(1)]
        ));
    }
}
