//! Who has a room, and for how long: a room that was named stays, one of a transport's session goes with it.
//!
//! Nobody can name the session of a transport once it is over, so its room would be in nobody's reach. It is removed when
//! the session ends, else when its gateway does, else by whoever starts next. Everything here but [`Tenants::end`] blocks
//! on the file system.

use std::{
    io,
    path::PathBuf,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use moongate_core::{Clock, Context, SessionKey, hash::Set};
use tokio::time::Instant;

use crate::{
    instance::Instances,
    room::{self, Room, Rooms},
};

/// Beside the rooms, whose names are never this.
const INSTANCES: &str = "output";
/// How long a session that is over is remembered at least. Its calls are cancelled when it ends; none of them goes on for
/// longer than it takes to notice.
const REMEMBERED: Duration = Duration::from_mins(1);

/// Whose room it is.
#[derive(Clone, Debug)]
pub struct Tenant {
    session: SessionKey,
    /// Whether the session is a transport's.
    passing: bool,
}

/// The rooms of all sessions.
#[derive(Debug)]
pub struct Tenants {
    rooms: Rooms,
    instances: Arc<Instances>,
    ended: Arc<Ended>,
}

/// The transport sessions that ended lately: what their last calls begin is not begun.
#[derive(Debug, Default)]
pub(crate) struct Ended(Mutex<Generations>);

/// Those of this while and of the one before, so that forgetting takes no search.
#[derive(Debug, Default)]
struct Generations {
    young: Set<SessionKey>,
    old: Set<SessionKey>,
    since: Option<Instant>,
}

impl Tenant {
    /// The session of a caller.
    pub fn of(cx: &Context) -> Self {
        Self { session: cx.session_key(), passing: cx.transport_session.as_ref() == Some(&cx.ids.session) }
    }
}

impl Tenants {
    /// Rooms below `root`, where nothing is made before it is needed.
    pub fn new(root: PathBuf, clock: Clock) -> Self {
        let instances = Arc::new(Instances::new(root.join(INSTANCES)));
        Self { rooms: Rooms::new(root, clock), instances, ended: Arc::default() }
    }

    pub(crate) fn instances(&self) -> &Arc<Instances> {
        &self.instances
    }

    pub(crate) fn ended(&self) -> &Arc<Ended> {
        &self.ended
    }

    /// The room of `tenant`, made now if it is not there.
    ///
    /// # Errors
    /// Those of the file system; `NotFound` when the session is over.
    pub fn open(&self, Tenant { session, passing }: &Tenant) -> io::Result<Room> {
        if *passing {
            // First: a room without a mark would stay if this process were killed now.
            self.instances.open()?.mark(&room::name(session))?;
        }
        let room = self.rooms.open(session)?;
        // Asked afterwards: a session is noted as ended before its room is removed. Either it was, and the room that was
        // made too late is removed here; or it ends from now on, and then the room is removed there.
        if self.ended.has(session) {
            drop(room);
            self.remove(session)?;
            return Err(io::Error::new(io::ErrorKind::NotFound, "the session is over"));
        }
        Ok(room)
    }

    /// The room of `tenant` to look into; an empty one if it is not there.
    pub fn look(&self, Tenant { session, .. }: &Tenant) -> io::Result<Room> {
        self.rooms.look(session)
    }

    /// Notes that a transport session is over: nobody makes its room from now on. What is there is left to
    /// [`Tenants::remove`].
    pub fn end(&self, session: &SessionKey) {
        self.ended.add(session.clone());
    }

    /// Removes the room of a session that is over.
    pub fn remove(&self, session: &SessionKey) -> io::Result<()> {
        let name = room::name(session);
        self.rooms.remove_named(std::slice::from_ref(&name))?;
        if let Some(own) = self.instances.own() {
            own.unmark(&name);
        }
        Ok(())
    }

    /// Removes the rooms that nobody has used for `retention`, and what dead gateways left. What is in use stays.
    pub fn sweep(&self, retention: Duration) -> io::Result<()> {
        // Only set aside while others wait for it; what it takes to remove them comes then.
        let dead = self.instances.sweep(|room| self.rooms.set_aside_named(room).map(drop));
        let unused = self.rooms.sweep(retention);
        dead.and(unused).map(drop)
    }

    /// Removes what goes with this gateway, which ends. What there is no time for is set aside, and whoever starts next
    /// removes it.
    pub fn close(&self) -> io::Result<()> {
        let removed = self.instances.own().map_or(Ok(()), |own| self.rooms.remove_named(&own.marked()));
        self.instances.close();
        removed
    }
}

impl Ended {
    fn add(&self, session: SessionKey) {
        let mut ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        let Generations { young, old, since } = &mut *ended;
        if now.duration_since(*since.get_or_insert(now)) >= REMEMBERED {
            (*old, *since) = (std::mem::take(young), Some(now));
        }
        young.insert(session);
    }

    /// Whether this session ended lately.
    pub(crate) fn has(&self, session: &SessionKey) -> bool {
        let ended = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        ended.young.contains(session) || ended.old.contains(session)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use moongate_core::Principal;

    use super::*;

    const DAY: Duration = Duration::from_hours(24);

    fn tenant(session: &str, passing: bool) -> Tenant {
        Tenant { session: SessionKey { principal: Principal::local(), session: session.into() }, passing }
    }

    fn tenants(root: &tempfile::TempDir) -> Tenants {
        Tenants::new(root.path().to_owned(), Clock::system())
    }

    /// A room with something in it.
    fn lived_in(tenants: &Tenants, tenant: &Tenant) -> PathBuf {
        let path = tenants.open(tenant).unwrap().path().to_owned();
        fs::write(path.join("file"), "x").unwrap();
        path
    }

    #[test]
    fn who_is_passing_through_leaves_nothing_when_the_gateway_ends() {
        let root = tempfile::tempdir().unwrap();
        let tenants = tenants(&root);
        let [passing, named] = [("t", true), ("default", false)]
            .map(|(session, passing)| lived_in(&tenants, &tenant(session, passing)));
        tenants.close().unwrap();
        assert!(!passing.exists() && named.join("file").exists());
        assert_eq!(fs::read_dir(root.path().join(INSTANCES)).unwrap().count(), 1, "the lock of all");
    }

    #[test]
    fn what_a_dead_gateway_left_goes_with_the_next_sweep_and_what_a_living_one_has_stays() {
        let root = tempfile::tempdir().unwrap();
        let (dead, living) = (tenants(&root), tenants(&root));
        let left = lived_in(&dead, &tenant("t", true));
        let kept = [("u", true), ("named", false)]
            .map(|(session, passing)| lived_in(&living, &tenant(session, passing)));
        living.sweep(DAY).unwrap();
        assert!(left.exists(), "it still lives");
        // As a process that is killed: its lock goes, and nothing else.
        let own = dead.instances.own().unwrap();
        fs::rename(root.path().join(INSTANCES), root.path().join("moved")).unwrap();
        drop((own, dead));
        fs::rename(root.path().join("moved"), root.path().join(INSTANCES)).unwrap();
        living.sweep(DAY).unwrap();
        assert!(!left.exists() && kept.iter().all(|room| room.join("file").exists()));
        let gone = |entry: &fs::DirEntry| entry.file_name().to_string_lossy().ends_with(".gone");
        assert!(!fs::read_dir(root.path()).unwrap().flatten().any(|entry| gone(&entry)), "and for good");
    }

    #[test]
    fn a_room_that_is_made_too_late_is_not_left() {
        let root = tempfile::tempdir().unwrap();
        let tenants = tenants(&root);
        let late = tenant("t", true);
        let path = lived_in(&tenants, &late);
        tenants.end(&late.session);
        tenants.remove(&late.session).unwrap();
        assert_eq!(tenants.open(&late).unwrap_err().kind(), io::ErrorKind::NotFound);
        assert!(!path.exists());
        assert_eq!(tenants.instances.own().unwrap().marked(), [""; 0]);
    }

    #[tokio::test(start_paused = true)]
    async fn sessions_that_are_over_are_remembered_for_a_while() {
        let ended = Ended::default();
        let session = |number: u32| tenant(&number.to_string(), true).session;
        ended.add(session(0));
        tokio::time::advance(REMEMBERED / 2).await;
        ended.add(session(1));
        tokio::time::advance(REMEMBERED).await;
        ended.add(session(2));
        assert_eq!([0, 1, 2].map(|number| ended.has(&session(number))), [true; 3]);
        tokio::time::advance(REMEMBERED).await;
        ended.add(session(3));
        assert_eq!([0, 1, 2, 3].map(|number| ended.has(&session(number))), [false, false, true, true]);
    }
}
