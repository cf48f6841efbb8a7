//! Tells sessions that a file they watch has changed, with one watcher for all of them.
//!
//! For every file, the directories from the room down to it are watched, as far as they exist, and in each the next name on
//! the way: so a file is noticed that is replaced, that comes later, or whose directory does. Directories are watched by
//! descriptor, as they were opened below the room, so that no symbolic link makes us watch another's.
//!
//! The watcher's thread only notes which files were hit. A task waits a little, since changes come in bursts, looks again
//! where each file is, and announces it.

use std::{
    ffi::OsStr,
    os::fd::{AsRawFd, OwnedFd},
    path::{Path, PathBuf},
    sync::{Arc, Mutex, MutexGuard, Once, PoisonError},
    time::Duration,
};

use moongate_core::{
    Audience, CallError, Change, Changes, SessionKey,
    hash::{Map, Set},
    task::Group,
};
use notify::{ErrorKind, Event, RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::Notify;

use crate::{
    files::{beneath, path::RelativePath},
    room::Room,
};

/// Files that one session watches, and that all do.
const MAX_PER_SESSION: usize = 100;
const MAX_WATCHES: usize = 1000;
/// Directories that are watched; each is kept open.
const MAX_DIRECTORIES: usize = 500;
/// How long changes are gathered before they are told.
const GATHER: Duration = Duration::from_millis(50);
/// When it is worth asking again for one more watch.
const LATER: Duration = Duration::from_mins(1);

/// All watched files.
#[derive(Debug)]
pub(crate) struct Watches {
    table: Mutex<Table>,
    hits: Arc<Hits>,
    changes: Changes,
    started: Once,
}

#[derive(Debug, Default)]
struct Table {
    watcher: Option<RecommendedWatcher>,
    watches: Map<Number, Watch>,
    numbers: Map<(SessionKey, Arc<str>), Number>,
    directories: Map<Identity, Directory>,
    last: Number,
}

type Number = u64;
/// Device and inode: which directory it is, by whatever name.
type Identity = (u64, u64);

/// One file that one session watches.
#[derive(Debug)]
struct Watch {
    session: SessionKey,
    uri: Arc<str>,
    /// How often the session asked for it.
    times: usize,
    room: Room,
    path: RelativePath,
    stations: Vec<Station>,
}

/// A name in a watched directory, on the way to a file.
#[derive(Debug)]
struct Station {
    directory: Identity,
    /// How the watcher calls it in its events.
    path: PathBuf,
}

#[derive(Debug)]
struct Directory {
    /// Kept open, so that the path names this directory and its identity is no other's.
    _open: OwnedFd,
    path: PathBuf,
    users: usize,
}

/// What the watcher's thread and ours share. That thread waits for no other lock.
#[derive(Debug, Default)]
struct Hits {
    noted: Mutex<Noted>,
    any: Notify,
}

#[derive(Debug, Default)]
struct Noted {
    wanted: Map<PathBuf, Set<Number>>,
    hit: Set<Number>,
}

impl Watches {
    pub(crate) fn new(changes: Changes) -> Self {
        Self { table: Mutex::default(), hits: Arc::default(), changes, started: Once::new() }
    }

    /// Starts the task that announces, unless it runs.
    pub(crate) fn start(self: &Arc<Self>, tasks: &Group) {
        self.started.call_once(|| {
            let watches = Arc::clone(self);
            tasks.spawn(async move {
                loop {
                    watches.hits.any.notified().await;
                    tokio::time::sleep(GATHER).await;
                    let watches = Arc::clone(&watches);
                    drop(tokio::task::spawn_blocking(move || watches.announce()).await);
                }
            });
        });
    }

    /// Watches the file at `path` in `room` for `session`, which calls it `uri`.
    pub(crate) fn add(
        &self,
        session: SessionKey,
        uri: Arc<str>,
        room: Room,
        path: RelativePath,
    ) -> Result<(), CallError> {
        let mut table = self.lock();
        let table = &mut *table;
        let name = (session, uri);
        if let Some(watch) = table.numbers.get(&name).and_then(|number| table.watches.get_mut(number)) {
            watch.times += 1;
            return Ok(());
        }
        let own = table.numbers.keys().filter(|(session, _)| *session == name.0).count();
        if own >= MAX_PER_SESSION || table.watches.len() >= MAX_WATCHES {
            return Err(CallError::limited(LATER, "Too many files are watched. Unsubscribe from some first"));
        }
        table.last += 1;
        let number = table.last;
        let stations = table.stations(&self.hits, number, &room, &path);
        let stations = stations.map_err(|error| match error.kind {
            ErrorKind::MaxFilesWatch => CallError::limited(LATER, "Too many directories are watched"),
            _ => CallError::internal("The file cannot be watched", error),
        })?;
        let (session, uri) = name.clone();
        table.watches.insert(number, Watch { session, uri, times: 1, room, path, stations });
        table.numbers.insert(name, number);
        Ok(())
    }

    /// One subscription less; none is no error, since the session may have ended.
    pub(crate) fn remove(&self, session: &SessionKey, uri: &Arc<str>) {
        let mut table = self.lock();
        let table = &mut *table;
        let name = (session.clone(), Arc::clone(uri));
        let Some(number) = table.numbers.get(&name).copied() else { return };
        let Some(watch) = table.watches.get_mut(&number) else { return };
        watch.times -= 1;
        if watch.times == 0 {
            table.end(&self.hits, number);
        }
    }

    /// Ends everything that `session` watches.
    pub(crate) fn end_session(&self, session: &SessionKey) {
        let mut table = self.lock();
        let own: Vec<Number> = table
            .numbers
            .iter()
            .filter(|((whose, _), _)| whose == session)
            .map(|(_, number)| *number)
            .collect();
        for number in own {
            table.end(&self.hits, number);
        }
    }

    /// Looks again where the files are that were hit, and tells their sessions.
    fn announce(&self) {
        let hit = std::mem::take(&mut self.hits.lock().hit);
        for number in hit {
            let mut table = self.lock();
            let Some(watch) = table.watches.get(&number) else { continue };
            let (room, path) = (watch.room.clone(), watch.path.clone());
            let audience = Audience::Session(watch.session.clone());
            let change = Change::Updated { uri: Arc::clone(&watch.uri) };
            match table.stations(&self.hits, number, &room, &path) {
                // The new ones are watched before the old ones are let go: most are the same.
                Ok(stations) => {
                    let before = table.watches.get_mut(&number);
                    let before = before.map(|watch| std::mem::replace(&mut watch.stations, stations));
                    table.leave(&self.hits, number, before.unwrap_or_default());
                }
                Err(error) => tracing::warn!(%error, "a watched file may change unnoticed from now on"),
            }
            drop(table);
            self.changes.send_to(audience, change);
        }
    }

    /// How many files and how many directories are watched.
    #[cfg(test)]
    pub(crate) fn counts(&self) -> (usize, usize) {
        let table = self.lock();
        (table.watches.len(), table.directories.len())
    }

    fn lock(&self) -> MutexGuard<'_, Table> {
        self.table.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Table {
    /// The stations on the way to `path`, each watched before the next one is looked for.
    fn stations(
        &mut self,
        hits: &Arc<Hits>,
        number: Number,
        room: &Room,
        path: &RelativePath,
    ) -> notify::Result<Vec<Station>> {
        let mut stations = Vec::new();
        let outcome = self.add_stations(hits, number, room, path, &mut stations);
        if outcome.is_err() {
            self.leave(hits, number, std::mem::take(&mut stations));
        }
        outcome.map(|()| stations)
    }

    fn add_stations(
        &mut self,
        hits: &Arc<Hits>,
        number: Number,
        room: &Room,
        path: &RelativePath,
        stations: &mut Vec<Station>,
    ) -> notify::Result<()> {
        let mut prefix = PathBuf::from(".");
        for component in path.components() {
            let Ok(directory) = beneath::directory(room.directory(), &prefix) else { break };
            prefix.push(component);
            stations.push(self.station(hits, number, directory, &prefix, room)?);
        }
        // Where symbolic links at the end lead.
        if let Ok(place) = beneath::place(room.directory(), path.as_path()) {
            stations.push(self.station(hits, number, place.directory, Path::new(&place.name), room)?);
        }
        Ok(())
    }

    /// Watches `open` for the last name of `path`.
    fn station(
        &mut self,
        hits: &Arc<Hits>,
        number: Number,
        open: OwnedFd,
        path: &Path,
        room: &Room,
    ) -> notify::Result<Station> {
        let stat = rustix::fs::fstat(&open).map_err(std::io::Error::from)?;
        let identity = (stat.st_dev, stat.st_ino);
        let name = path.file_name().unwrap_or(OsStr::new("."));
        if let Some(directory) = self.directories.get_mut(&identity) {
            directory.users += 1;
            let path = directory.path.join(name);
            hits.want(path.clone(), number);
            return Ok(Station { directory: identity, path });
        }
        if self.directories.len() >= MAX_DIRECTORIES {
            return Err(notify::Error::new(ErrorKind::MaxFilesWatch));
        }
        let watched = watched_path(&open, path, room);
        let path = watched.join(name);
        hits.want(path.clone(), number);
        if let Err(error) = self.watcher(hits).and_then(|w| w.watch(&watched, RecursiveMode::NonRecursive)) {
            hits.forget(&path, number);
            return Err(error);
        }
        self.directories.insert(identity, Directory { _open: open, path: watched, users: 1 });
        Ok(Station { directory: identity, path })
    }

    fn watcher(&mut self, hits: &Arc<Hits>) -> notify::Result<&mut RecommendedWatcher> {
        if self.watcher.is_none() {
            let hits = Arc::clone(hits);
            self.watcher = Some(notify::recommended_watcher(move |event| hits.note(event))?);
        }
        self.watcher.as_mut().ok_or_else(|| notify::Error::generic("there is no watcher"))
    }

    /// Ends the watch with that number.
    fn end(&mut self, hits: &Hits, number: Number) {
        let Some(watch) = self.watches.remove(&number) else { return };
        self.numbers.remove(&(watch.session, watch.uri));
        self.leave(hits, number, watch.stations);
        hits.lock().hit.remove(&number);
    }

    fn leave(&mut self, hits: &Hits, number: Number, stations: Vec<Station>) {
        let kept: Set<PathBuf> = self
            .watches
            .get(&number)
            .into_iter()
            .flat_map(|watch| &watch.stations)
            .map(|station| station.path.clone())
            .collect();
        for station in stations {
            if !kept.contains(&station.path) {
                hits.forget(&station.path, number);
            }
            let Some(directory) = self.directories.get_mut(&station.directory) else { continue };
            directory.users -= 1;
            if directory.users > 0 {
                continue;
            }
            if let Some(watcher) = &mut self.watcher {
                // It is not watched any more if the directory was removed.
                drop(watcher.unwatch(&directory.path));
            }
            self.directories.remove(&station.directory);
        }
    }
}

impl Hits {
    /// Notes which files an event is about. Runs on the watcher's thread.
    fn note(&self, event: notify::Result<Event>) {
        let Ok(event) = event else { return };
        if event.kind.is_access() {
            return;
        }
        let mut noted = self.lock();
        let Noted { wanted, hit } = &mut *noted;
        if event.need_rescan() {
            hit.extend(wanted.values().flatten());
        }
        for path in &event.paths {
            hit.extend(wanted.get(path).into_iter().flatten());
        }
        if !hit.is_empty() {
            self.any.notify_one();
        }
    }

    fn want(&self, path: PathBuf, number: Number) {
        self.lock().wanted.entry(path).or_default().insert(number);
    }

    fn forget(&self, path: &Path, number: Number) {
        let mut noted = self.lock();
        if let Some(numbers) = noted.wanted.get_mut(path) {
            numbers.remove(&number);
            if numbers.is_empty() {
                noted.wanted.remove(path);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Noted> {
        self.noted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A path that means the open directory and nothing else, for as long as it is open.
#[cfg(target_os = "linux")]
fn watched_path(open: &OwnedFd, _path: &Path, _room: &Room) -> PathBuf {
    PathBuf::from(format!("/proc/self/fd/{}", open.as_raw_fd()))
}

/// Where there is no such path, the one that it was found by.
#[cfg(not(target_os = "linux"))]
fn watched_path(_open: &OwnedFd, path: &Path, room: &Room) -> PathBuf {
    let inner = path.parent().unwrap_or(Path::new("."));
    room.path().join(inner)
}
