//! The embedded Store: one writer thread, a few readers, SQLite.
//!
//! ```text
//! commit, purge      ─bounded queue→ writer thread ─ ≤ 256 changes in one transaction ─fsync→ answers
//! get, scan, summary ─bounded queue→ reader threads, each with a connection of its own ──→ answers
//! ```
//! An fsync costs as much for one change as for many, so whatever was queued while the last transaction was being
//! written goes into the next one together. Several processes may use the same file. What a row means, and who may see
//! it, is left to others: a handle carries its scope in every statement it sends.

mod connect;
mod error;
mod migrate;
mod number;
mod reader;
#[cfg(test)]
mod tests;
mod writer;

use std::{
    fmt,
    path::Path,
    sync::{Arc, Mutex},
    thread::{self, JoinHandle},
};

use moongate_core::{BoxFuture, Clock, StoreScope};
use moongate_storage::{
    Error,
    store::{Batch, Kind, Revision, Row, Rows, Store, Stores, Summary},
};
use rusqlite::Connection;
use tokio::sync::{mpsc, oneshot};

use self::{
    connect::Database,
    reader::{Answer, Query, Read},
    writer::{Change, Write},
};

/// Changes and reads waiting for a thread. When a queue is full, callers wait; nothing is shed.
const QUEUE: usize = 1024;

/// Threads that read: a slow scan leaves the other one for short reads.
const READERS: usize = 2;

/// What stands between a principal's text, which never contains it (it is percent-encoded), and the session, which may
/// contain anything.
const SEPARATOR: char = '\u{1f}';

/// How a database is opened.
#[derive(Clone, Debug)]
pub struct Options {
    /// What an acknowledged commit survives.
    pub durability: Durability,
    /// Tells which rows have expired.
    pub clock: Clock,
}

/// What an acknowledged commit survives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Durability {
    /// Power loss.
    #[default]
    Full,
    /// The end of the process, however it dies. After power loss the file is sound, but the last commits may be gone.
    Relaxed,
}

impl Default for Options {
    fn default() -> Self {
        Self { durability: Durability::default(), clock: Clock::system() }
    }
}

/// All rows of all scopes, in one file.
///
/// The last of this and its handles to be dropped waits for the threads, which first finish what was queued.
pub struct SqliteStore(Arc<Threads>);

/// The threads. Fields are dropped in order: the readers are gone when the writer's connection, then the last one,
/// closes, and so writes the log into the database.
struct Threads {
    readers: Lane<Read>,
    writer: Lane<Write>,
}

/// The way to some threads, and the threads. Again in order: the queue closes, and the threads, which end with it, are
/// awaited.
struct Lane<T> {
    queue: mpsc::Sender<T>,
    _running: Running,
}

#[derive(Default)]
struct Running(Vec<JoinHandle<()>>);

/// The rows of one scope.
struct Handle {
    scope: Arc<str>,
    threads: Arc<Threads>,
}

impl SqliteStore {
    /// Opens the database at `path`, and makes it if it is not there, readable by this user only. Brings an older one
    /// up to date.
    ///
    /// Blocks for a few file operations. The readers open their connections when they first read.
    ///
    /// # Errors
    /// [`Error::TooOld`] when a newer build says so in the file, [`Error::Corrupt`] when the file is something else.
    pub fn open(path: &Path, options: Options) -> Result<Self, Error> {
        let Options { durability, clock } = options;
        let database = Database::at(path, durability)?;
        let connection = database.writer()?;
        let readers = start_readers(&database, &clock)?;
        let writer = start_writer(connection, clock)?;
        Ok(Self(Arc::new(Threads { readers, writer })))
    }

    fn handle(&self, scope: Arc<str>) -> Arc<dyn Store> {
        Arc::new(Handle { scope, threads: Arc::clone(&self.0) })
    }
}

impl Stores for SqliteStore {
    fn open(&self, scope: &StoreScope) -> Arc<dyn Store> {
        self.handle(format!("{}{SEPARATOR}{}", scope.principal(), scope.session()).into())
    }

    fn own(&self) -> Arc<dyn Store> {
        self.handle("".into()) // no principal's text is empty
    }

    fn purge(&self, now: u64) -> BoxFuture<'_, Result<u64, Error>> {
        Box::pin(self.0.write(Change::Purge { now }))
    }
}

impl Store for Handle {
    fn get<'a>(&'a self, kind: Kind, key: &'a str) -> BoxFuture<'a, Result<Option<Row>, Error>> {
        Box::pin(async move {
            let key = key.into();
            let query = |answer| Query::One { key, answer };
            let mut rows = self.threads.read(&self.scope, kind, query).await?;
            Ok(rows.pop())
        })
    }

    fn scan<'a>(&'a self, kind: Kind, rows: Rows<'a>) -> BoxFuture<'a, Result<Vec<Row>, Error>> {
        let Rows { after, limit } = rows;
        let after = after.map(Into::into);
        Box::pin(self.threads.read(&self.scope, kind, move |answer| Query::Many { after, limit, answer }))
    }

    fn summary(&self, kind: Kind) -> BoxFuture<'_, Result<Summary, Error>> {
        Box::pin(self.threads.read(&self.scope, kind, |answer| Query::Summary { answer }))
    }

    /// # Cancel safety
    /// Dropping the future leaves all of the batch applied or nothing.
    fn commit(&self, batch: Batch) -> BoxFuture<'_, Result<Revision, Error>> {
        let change = Change::Commit { scope: Arc::clone(&self.scope), batch };
        Box::pin(async move { self.threads.write(change).await.map(Revision) })
    }
}

fn start_readers(database: &Database, clock: &Clock) -> Result<Lane<Read>, Error> {
    let (queue, waiting) = mpsc::channel(QUEUE);
    let waiting = Arc::new(Mutex::new(waiting));
    let mut running = Running::default();
    for _ in 0..READERS {
        let (database, waiting, clock) = (database.clone(), Arc::clone(&waiting), clock.clone());
        running.start("store-reader", move || reader::run(&database, &waiting, &clock))?;
    }
    Ok(Lane { queue, _running: running })
}

fn start_writer(connection: Connection, clock: Clock) -> Result<Lane<Write>, Error> {
    let (queue, waiting) = mpsc::channel(QUEUE);
    let mut running = Running::default();
    running.start("store-writer", move || writer::run(connection, waiting, &clock))?;
    Ok(Lane { queue, _running: running })
}

impl Threads {
    async fn write(&self, change: Change) -> Result<u64, Error> {
        let (answer, answered) = oneshot::channel();
        self.writer.queue.send(Write { change, answer }).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }

    async fn read<T>(
        &self,
        scope: &Arc<str>,
        kind: Kind,
        query: impl FnOnce(Answer<T>) -> Query,
    ) -> Result<T, Error> {
        let (answer, answered) = oneshot::channel();
        let read = Read { scope: Arc::clone(scope), kind, query: query(answer) };
        self.readers.queue.send(read).await.map_err(|_| Error::Closed)?;
        answered.await.map_err(|_| Error::Closed)?
    }
}

impl Running {
    fn start(&mut self, name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), Error> {
        let thread = thread::Builder::new().name(name.into()).spawn(work);
        let thread =
            thread.map_err(|source| Error::Backend { doing: "starting a thread", source: source.into() })?;
        self.0.push(thread);
        Ok(())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        for thread in self.0.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a storage thread panicked");
            }
        }
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SqliteStore")
    }
}
