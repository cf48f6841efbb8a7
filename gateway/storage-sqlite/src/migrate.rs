//! The tables, and how an older database gets them.
//!
//! A migration only adds: builds of several ages may use one file. Each says which build is the oldest that can still
//! read the file after it; removing something takes two releases, the first of which stops using it.

use moongate_storage::Error;
use rusqlite::{Connection, TransactionBehavior};

use crate::error::{Foreign, failed};

/// One step; the schema's number is how many have run.
pub(crate) struct Migration {
    sql: &'static str,
    /// The least number of steps a build must know to use the file from now on.
    min_reader: u32,
}

/// All steps, oldest first. A released step never changes.
pub(crate) const MIGRATIONS: &[Migration] = &[Migration {
    // `doc` has row ids: a body may be large, and would make the search for a key slow if it lay beside it.
    sql: "
        CREATE TABLE meta (
            only INTEGER PRIMARY KEY CHECK (only = 1),
            schema INTEGER NOT NULL,
            min_reader INTEGER NOT NULL,
            revision INTEGER NOT NULL
        ) STRICT;
        INSERT INTO meta VALUES (1, 0, 0, 0);
        CREATE TABLE doc (
            scope TEXT NOT NULL,
            kind TEXT NOT NULL,
            key TEXT NOT NULL,
            rev INTEGER NOT NULL,
            expires INTEGER,
            body BLOB NOT NULL,
            PRIMARY KEY (scope, kind, key)
        ) STRICT;
        CREATE INDEX doc_expires ON doc (expires) WHERE expires IS NOT NULL;",
    min_reader: 1,
}];

const DOING: &str = "bringing the database up to date";

/// What the file says about itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Age {
    schema: u32,
    min_reader: u32,
}

/// Runs the steps that the database has not seen. A newer database is left as it is, and used if it allows that.
pub(crate) fn run(connection: &mut Connection, migrations: &[Migration]) -> Result<(), Error> {
    let known = u32::try_from(migrations.len()).expect("a short list");
    let is_current = |age: Age| {
        if age.min_reader > known {
            return Err(Error::TooOld { needed: age.min_reader, known });
        }
        Ok(age.schema >= known)
    };
    // Most starts find nothing to do, and need not wait for whoever is writing.
    if is_current(age(connection)?)? {
        return Ok(());
    }
    let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate);
    let transaction = transaction.map_err(|error| failed(DOING, error))?;
    let age = age(&transaction)?; // another process may have been here meanwhile
    if is_current(age)? {
        return Ok(());
    }
    let seen = usize::try_from(age.schema).expect("less than what is known");
    for migration in migrations.iter().skip(seen) {
        apply(&transaction, migration).map_err(|error| failed(DOING, error))?;
    }
    transaction.commit().map_err(|error| failed(DOING, error))
}

fn apply(connection: &Connection, migration: &Migration) -> rusqlite::Result<()> {
    connection.execute_batch(migration.sql)?;
    let record = "UPDATE meta SET schema = schema + 1, min_reader = max(min_reader, ?1)";
    connection.execute(record, [migration.min_reader]).map(drop)
}

fn age(connection: &Connection) -> Result<Age, Error> {
    let tables = "SELECT count(*), count(*) FILTER (WHERE name = 'meta') FROM sqlite_schema";
    let tables = connection.query_row(tables, [], |row| Ok((row.get::<_, u32>(0)?, row.get::<_, u32>(1)?)));
    match tables.map_err(|error| failed("reading the database", error))? {
        (0, _) => Ok(Age::default()),
        (_, 0) => Err(Error::Corrupt(Foreign.into())),
        _ => {
            let age = connection.query_row("SELECT schema, min_reader FROM meta", [], |row| {
                Ok(Age { schema: row.get(0)?, min_reader: row.get(1)? })
            });
            // Another program's table may be called so, too.
            age.map_err(|_| Error::Corrupt(Foreign.into()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn newer(min_reader: u32) -> Vec<Migration> {
        let first = MIGRATIONS.iter().map(|step| Migration { ..*step });
        first.chain([Migration { sql: "CREATE TABLE token (word TEXT) STRICT", min_reader }]).collect()
    }

    fn tables(connection: &Connection) -> Vec<String> {
        let mut names =
            connection.prepare("SELECT name FROM sqlite_schema WHERE type = 'table' ORDER BY name").unwrap();
        names.query_map([], |row| row.get(0)).unwrap().map(Result::unwrap).collect()
    }

    #[test]
    fn an_old_database_gets_what_is_new_and_keeps_its_rows() {
        let mut connection = Connection::open_in_memory().unwrap();
        run(&mut connection, MIGRATIONS).unwrap();
        connection.execute("INSERT INTO doc VALUES ('s', 'k', 'key', 1, NULL, x'00')", []).unwrap();
        run(&mut connection, &newer(1)).unwrap();
        run(&mut connection, &newer(1)).unwrap();
        assert_eq!(tables(&connection), ["doc", "meta", "token"]);
        assert_eq!(age(&connection).unwrap(), Age { schema: 2, min_reader: 1 });
        let rows: u32 = connection.query_row("SELECT count(*) FROM doc", [], |row| row.get(0)).unwrap();
        assert_eq!(rows, 1);
    }

    #[test]
    fn a_newer_database_is_used_as_long_as_it_allows_that() {
        let mut connection = Connection::open_in_memory().unwrap();
        run(&mut connection, &newer(1)).unwrap();
        run(&mut connection, MIGRATIONS).unwrap();
        assert_eq!(age(&connection).unwrap().schema, 2, "and is left as it is");

        let mut connection = Connection::open_in_memory().unwrap();
        run(&mut connection, &newer(2)).unwrap();
        let refused = run(&mut connection, MIGRATIONS);
        assert!(matches!(refused, Err(Error::TooOld { needed: 2, known: 1 })), "{refused:?}");
    }

    #[test]
    fn a_failed_step_leaves_nothing() {
        let mut connection = Connection::open_in_memory().unwrap();
        let mut steps = newer(1);
        steps.push(Migration { sql: "CREATE TABLE doc (x)", min_reader: 1 });
        assert!(matches!(run(&mut connection, &steps), Err(Error::Backend { .. })));
        assert!(tables(&connection).is_empty());
    }

    #[test]
    fn a_database_of_another_program_is_not_touched() {
        for theirs in ["CREATE TABLE users (name)", "CREATE TABLE meta (name, value)"] {
            let mut connection = Connection::open_in_memory().unwrap();
            connection.execute_batch(theirs).unwrap();
            assert!(matches!(run(&mut connection, MIGRATIONS), Err(Error::Corrupt(_))), "{theirs}");
            assert_eq!(tables(&connection).len(), 1);
        }
    }
}
