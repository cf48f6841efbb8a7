//! The processes of all sessions: who may start one, who may see it, and when it is forgotten.
//!
//! A process is known by its id within its session. The sessions of one principal may know of each other's processes, not
//! touch them; of another principal's nothing can be known.

use std::{
    collections::HashMap,
    fmt, io,
    path::PathBuf,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use moongate_core::{Clock, Principal, SessionKey, task::Group};
use moongate_launch::{Confinement, Input, Launch, Report};
use tokio::task::spawn_blocking;
use tracing::{info, warn};

use super::{
    error::Error,
    output::Output,
    run::{self, Bounds, GRACE, Process, State, Status},
};
use crate::{
    Options,
    instance::Instances,
    room::Room,
    tenants::{Ended, Tenants},
};

/// How long a process is remembered after its end.
const REMEMBERED: Duration = Duration::from_hours(24);
/// How many that have ended are remembered in a session, and how much output of theirs: the oldest go first.
const MAX_ENDED: usize = 100;
const MAX_KEPT: u64 = 1 << 30;
/// How much output is kept of all sessions together, as far as there are processes that have ended to forget.
const MAX_KEPT_IN_ALL: u64 = 4 << 30;
/// How many run at a time, all sessions together: each takes a few file descriptors of ours.
const MAX_RUNNING: usize = 256;
/// How much longer than [`GRACE`] an end may take before it is no longer waited for.
const PATIENCE: Duration = Duration::from_secs(7);

/// Where programs are looked for.
const PATH: &str = "/bin:/usr/bin:/usr/local/bin";
const SHELL: &str = "/bin/sh";
/// For temporary files, in the directory of the session.
const TEMPORARY: &str = ".tmp";

type Sessions = HashMap<SessionKey, Vec<Arc<Process>>>;

/// See the module.
#[derive(Debug)]
pub(crate) struct Processes {
    sessions: Mutex<Sessions>,
    /// What may not start is decided by these two with the sessions locked. Whoever changes one of them looks at the
    /// sessions afterwards: so nothing starts unseen.
    ended: Arc<Ended>,
    admits: Mutex<Admits>,
    instances: Arc<Instances>,
    /// This program, which starts commands so that none outlives it.
    launcher: PathBuf,
    clock: Clock,
    tasks: Group,
    /// It was said once that confinement is not complete here.
    warned: AtomicBool,
}

/// Who may have processes.
struct Admits(Box<dyn Fn(&Principal) -> bool + Send + Sync>);

/// Processes that are no longer to be found and still run.
#[must_use]
#[derive(Debug)]
pub(crate) struct Forgotten(Vec<Arc<Process>>);

/// What is to be run.
#[derive(Debug)]
pub(crate) struct Order<'a> {
    pub(crate) session: SessionKey,
    pub(crate) command: String,
    /// How long it may run.
    pub(crate) wall: Option<Duration>,
    pub(crate) room: Room,
    pub(crate) options: &'a Options,
}

impl Processes {
    pub(crate) fn new(rooms: &Tenants, launcher: PathBuf, clock: Clock, tasks: Group) -> Self {
        Self {
            sessions: Mutex::default(),
            ended: Arc::clone(rooms.ended()),
            admits: Mutex::new(Admits(Box::new(|_| true))),
            instances: Arc::clone(rooms.instances()),
            launcher,
            clock,
            tasks,
            warned: AtomicBool::new(false),
        }
    }

    /// Starts a command in the directory of its session.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was started.
    pub(crate) async fn start(&self, order: Order<'_>) -> Result<Arc<Process>, Error> {
        if order.command.contains('\0') {
            return Err(Error::Null);
        }
        let Order { session, command, wall, room, options } = order;
        let id = crate::random_name();
        let output = self.output(&id, &room).await.map_err(Error::NoOutput)?;
        let process = Arc::new(Process::new(id, session, command, output, self.clock.now()));
        let place = Place::take(self, Arc::clone(&process), options.running)?;
        let started = self.launch(&process.command, &room, options).start(Input::Empty).await?;
        self.tell(&started.supervisor.report);
        process.begin(started.supervisor.report.pid);
        let bounds = Bounds { output: options.output, wall };
        self.tasks.spawn(run::attend(Arc::clone(&process), started, bounds, self.clock.clone(), room));
        place.keep();
        Ok(process)
    }

    /// Makes the directories for a process.
    async fn output(&self, id: &str, room: &Room) -> io::Result<Output> {
        let (instances, id, temporary) =
            (Arc::clone(&self.instances), id.to_owned(), room.path().join(TEMPORARY));
        let made = spawn_blocking(move || {
            match std::fs::create_dir(temporary) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
            instances.open()?.directory(&id).map(Output::new)
        });
        made.await.map_err(io::Error::other)?
    }

    fn launch(&self, command: &str, room: &Room, options: &Options) -> Launch {
        let here = room.path().to_owned();
        let variable = |name: &str, value: PathBuf| (name.into(), value.into());
        let environment = vec![
            variable("PATH", PATH.into()),
            variable("HOME", here.clone()),
            variable("PWD", here.clone()),
            variable("TMPDIR", here.join(TEMPORARY)),
            variable("LANG", "C.UTF-8".into()),
        ];
        Launch {
            launcher: self.launcher.clone(),
            program: SHELL.into(),
            name: SHELL.into(),
            args: vec!["-c".into(), command.into()],
            environment,
            limits: options.limits.clone(),
            confinement: Some(Confinement {
                directory: here.clone(),
                readable: options.readable.clone(),
                network: options.network,
                required: options.required,
            }),
            directory: here,
        }
    }

    /// Says once what is not as it should be.
    fn tell(&self, report: &Report) {
        if !report.unconfined.is_empty() && !self.warned.swap(true, Ordering::Relaxed) {
            let missing = report.unconfined.join("; ");
            warn!(missing, "commands of the workspace are not fully confined on this machine");
        }
    }

    /// The process `id` of `session`.
    pub(crate) fn find(&self, session: &SessionKey, id: Option<&str>) -> Result<Arc<Process>, Error> {
        let id = id.filter(|id| !id.is_empty()).ok_or(Error::NoId)?;
        let sessions = self.lock();
        let own = sessions.get(session).filter(|own| !own.is_empty()).ok_or(Error::NoProcesses)?;
        let is_it = |process: &&Arc<Process>| process.id == id;
        if let Some(process) = own.iter().find(is_it) {
            return if process.session == *session { Ok(Arc::clone(process)) } else { Err(Error::NotYours) };
        }
        let others = sessions.iter().filter(|(other, _)| other.principal == session.principal);
        let known = others.flat_map(|(_, processes)| processes).any(|process| process.id == id);
        Err(if known { Error::NotYours } else { Error::NotFound })
    }

    /// The processes of `session`, the newest first.
    pub(crate) fn list(&self, session: &SessionKey) -> Vec<Arc<Process>> {
        self.lock().get(session).into_iter().flatten().rev().cloned().collect()
    }

    /// The names of the sessions in which something runs.
    pub(crate) fn busy(&self) -> Vec<Arc<str>> {
        let sessions = self.lock();
        let runs = |processes: &[Arc<Process>]| processes.iter().any(|process| !process.is_over());
        let busy = sessions.iter().filter(|(_, processes)| runs(processes));
        busy.map(|(key, _)| Arc::clone(&key.session)).collect()
    }

    /// Ends every process of `session` and forgets them.
    pub(crate) async fn end(&self, session: &SessionKey) {
        let processes = self.lock().remove(session).unwrap_or_default();
        Forgotten(processes).end().await;
    }

    /// Ends every process there is.
    pub(crate) async fn end_all(&self) {
        let all = std::mem::take(&mut *self.lock());
        Forgotten(all.into_values().flatten().collect()).end().await;
    }

    /// Lets only those have processes whom `admits` names, and forgets those of all others.
    pub(crate) fn admit(&self, admits: impl Fn(&Principal) -> bool + Send + Sync + 'static) -> Forgotten {
        let mut now = self.admits.lock().unwrap_or_else(PoisonError::into_inner);
        *now = Admits(Box::new(admits));
        let mut sessions = self.lock();
        let others = sessions.extract_if(|session, _| !(now.0)(&session.principal));
        Forgotten(others.flat_map(|(_, processes)| processes).collect())
    }

    /// Forgets what has ended long ago. Running processes are never touched. Blocks on the file system.
    pub(crate) fn sweep(&self) {
        let now = self.clock.now();
        let is_old = |process: &Arc<Process>| {
            let age = process.state().finished_at.and_then(|end| now.duration_since(end).ok());
            age.is_some_and(|age| age > REMEMBERED)
        };
        let mut sessions = self.lock();
        let mut old = make_room_in_all(&mut sessions);
        sessions.retain(|_, processes| {
            old.extend(processes.extract_if(.., |process| is_old(process)));
            !processes.is_empty()
        });
        drop(sessions);
        if !old.is_empty() {
            info!(processes = old.len(), "ended processes are forgotten");
        }
    }

    fn lock(&self) -> MutexGuard<'_, Sessions> {
        self.sessions.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Forgotten {
    /// Asks all of them to end, and waits until they have.
    pub(crate) async fn end(self) {
        for process in &self.0 {
            process.terminate();
        }
        let ends = async {
            for process in &self.0 {
                process.ended().await;
            }
        };
        // Each is killed by its own task when it takes too long.
        drop(tokio::time::timeout(GRACE + PATIENCE, ends).await);
    }
}

impl fmt::Debug for Admits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Admits")
    }
}

/// A process in the registry whose start may still fail.
struct Place<'a> {
    registry: &'a Processes,
    process: Option<Arc<Process>>,
}

impl<'a> Place<'a> {
    fn take(registry: &'a Processes, process: Arc<Process>, most: usize) -> Result<Self, Error> {
        // Locked in this order everywhere.
        let admits = registry.admits.lock().unwrap_or_else(PoisonError::into_inner);
        let mut sessions = registry.lock();
        if !(admits.0)(&process.session.principal) {
            return Err(Error::NotAdmitted);
        }
        drop(admits);
        if registry.ended.has(&process.session) {
            return Err(Error::Over);
        }
        let running =
            |processes: &[Arc<Process>]| processes.iter().filter(|process| !process.is_over()).count();
        if sessions.values().map(|processes| running(processes)).sum::<usize>() >= MAX_RUNNING {
            return Err(Error::Crowded);
        }
        let own = sessions.entry(process.session.clone()).or_default();
        if running(own) >= most {
            return Err(Error::TooMany(most));
        }
        let mut forgotten = make_room(own);
        own.push(Arc::clone(&process));
        forgotten.extend(make_room_in_all(&mut sessions));
        drop(sessions);
        // Only now, when nobody waits for it.
        drop(forgotten);
        Ok(Self { registry, process: Some(process) })
    }

    fn keep(mut self) {
        self.process = None;
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        let Some(process) = self.process.take() else { return };
        // For whoever waits for its end: it never began.
        process.finish(State { status: Status::Failed, ..process.state() });
        let mut sessions = self.registry.lock();
        if let Some(own) = sessions.get_mut(&process.session) {
            own.retain(|other| !Arc::ptr_eq(other, &process));
            if own.is_empty() {
                sessions.remove(&process.session);
            }
        }
    }
}

/// Takes out the oldest that have ended, if they are too many or have written too much.
fn make_room(processes: &mut Vec<Arc<Process>>) -> Vec<Arc<Process>> {
    let (mut count, mut kept) = (0, 0);
    let mut keep: Vec<bool> = Vec::with_capacity(processes.len());
    for process in processes.iter().rev() {
        let over = process.is_over();
        (count, kept) = if over { (count + 1, kept + process.output.size()) } else { (count, kept) };
        keep.push(!over || (count < MAX_ENDED && kept < MAX_KEPT));
    }
    let mut keep = keep.into_iter().rev();
    processes.extract_if(.., |_| !keep.next().unwrap_or(true)).collect()
}

/// Takes out those of all sessions that ended first, if all together have written too much.
fn make_room_in_all(sessions: &mut Sessions) -> Vec<Arc<Process>> {
    let mut kept: u64 = sessions.values().flatten().map(|process| process.output.size()).sum();
    if kept <= MAX_KEPT_IN_ALL {
        return Vec::new();
    }
    let mut ended: Vec<_> =
        sessions.values().flatten().filter(|process| process.is_over()).cloned().collect();
    ended.sort_by_key(|process| process.state().finished_at);
    ended.retain(|process| {
        let goes = kept > MAX_KEPT_IN_ALL;
        kept = if goes { kept.saturating_sub(process.output.size()) } else { kept };
        goes
    });
    sessions.retain(|_, own| {
        own.retain(|process| !ended.iter().any(|gone| Arc::ptr_eq(gone, process)));
        !own.is_empty()
    });
    ended
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use moongate_core::clock::ClockHandle;

    use super::*;

    struct Scene {
        processes: Processes,
        hand: ClockHandle,
        directory: tempfile::TempDir,
    }

    impl Scene {
        fn set() -> Self {
            let directory = tempfile::tempdir().unwrap();
            let (clock, hand) = Clock::settable(UNIX_EPOCH + Duration::from_hours(24 * 365 * 50));
            let rooms = Tenants::new(directory.path().join("rooms"), clock.clone());
            let processes = Processes::new(&rooms, "no launcher".into(), clock, Group::new());
            Self { processes, hand, directory }
        }

        /// A process that runs, as far as anybody can tell.
        fn running(&self, id: &str, session: &SessionKey, most: usize) -> Result<Arc<Process>, Error> {
            let path = self.directory.path().join(id);
            std::fs::create_dir(&path).unwrap();
            let (command, output) = ("true".to_owned(), Output::new(path));
            let process =
                Process::new(id.to_owned(), session.clone(), command, output, self.processes.clock.now());
            let process = Arc::new(process);
            process.begin(1);
            Place::take(&self.processes, Arc::clone(&process), most)?.keep();
            Ok(process)
        }

        fn finish(&self, process: &Process) {
            let finished_at = Some(self.processes.clock.now());
            let status = Status::Finished;
            process.finish(State { status, pid: None, exit_code: Some(0), finished_at, timed_out: false });
        }
    }

    fn key(principal: Principal, session: &str) -> SessionKey {
        SessionKey { principal, session: session.into() }
    }

    #[test]
    fn ended_processes_are_forgotten_after_a_day_and_running_ones_never() {
        let scene = Scene::set();
        let session = key(Principal::local(), "s");
        let ended = scene.running("ended", &session, 9).unwrap();
        scene.running("running", &session, 9).unwrap();
        scene.finish(&ended);
        drop(ended);
        scene.hand.advance(REMEMBERED);
        scene.processes.sweep();
        assert_eq!(scene.processes.list(&session).len(), 2, "not before the day is over");
        scene.hand.advance(Duration::from_secs(1));
        scene.processes.sweep();
        let left = scene.processes.list(&session);
        assert_eq!(left.iter().map(|process| process.id.as_str()).collect::<Vec<_>>(), ["running"]);
        assert!(
            !scene.directory.path().join("ended").exists() && scene.directory.path().join("running").exists()
        );
        scene.hand.advance(Duration::from_hours(1000));
        scene.processes.sweep();
        assert_eq!(scene.processes.list(&session).len(), 1);
    }

    #[test]
    fn only_its_session_finds_a_process_and_only_its_principal_hears_of_it() {
        let scene = Scene::set();
        let [own, other] = ["one", "two"].map(|session| key(Principal::local(), session));
        let stranger = key(Principal::issued("ann"), "one");
        scene.running("p", &own, 9).unwrap();
        let refused = |session: &SessionKey, id| scene.processes.find(session, id).unwrap_err();
        assert!(scene.processes.find(&own, Some("p")).is_ok());
        assert!(matches!(refused(&own, None), Error::NoId));
        assert!(matches!(refused(&other, Some("p")), Error::NoProcesses));
        scene.running("q", &other, 9).unwrap();
        scene.running("r", &stranger, 9).unwrap();
        assert!(matches!(refused(&other, Some("p")), Error::NotYours));
        assert!(matches!(refused(&stranger, Some("p")), Error::NotFound));
        assert!(matches!(refused(&own, Some("x")), Error::NotFound));
    }

    #[test]
    fn the_oldest_that_have_ended_make_room() {
        let scene = Scene::set();
        let session = key(Principal::local(), "s");
        let kept = scene.running("kept", &session, 2).unwrap();
        for number in 0..MAX_ENDED + 5 {
            let process = scene.running(&number.to_string(), &session, 2).unwrap();
            assert!(matches!(scene.running(&format!("{number}x"), &session, 2), Err(Error::TooMany(2))));
            scene.finish(&process);
        }
        let ids: Vec<_> = scene.processes.list(&session).iter().map(|process| process.id.clone()).collect();
        assert_eq!(ids.len(), MAX_ENDED + 1, "with the one that runs");
        assert_eq!(ids.first().unwrap(), &(MAX_ENDED + 4).to_string());
        assert_eq!(ids.last().unwrap(), &kept.id);
        assert!(!scene.directory.path().join("0").exists(), "its output is gone, too");
    }

    #[test]
    fn all_sessions_together_keep_so_much_output_and_what_ended_first_goes_first() {
        let scene = Scene::set();
        let session = |number: u32| key(Principal::local(), &number.to_string());
        let running = scene.running("running", &session(0), 9).unwrap();
        running.output.pretend(MAX_KEPT);
        for number in 1..=4 {
            let process = scene.running(&number.to_string(), &session(number), 9).unwrap();
            process.output.pretend(MAX_KEPT - 1);
            scene.hand.advance(Duration::from_secs(1));
            scene.finish(&process);
        }
        scene.running("next", &session(9), 9).unwrap();
        let left = |number| scene.processes.list(&session(number)).len();
        assert_eq!([0, 1, 2, 3, 4, 9].map(left), [1, 0, 1, 1, 1, 1]);
        assert!(!scene.directory.path().join("1").exists() && scene.directory.path().join("2").exists());
    }

    #[test]
    fn who_is_not_admitted_any_more_has_no_processes_and_gets_none() {
        let scene = Scene::set();
        let (own, other) = (key(Principal::local(), "s"), key(Principal::issued("ann"), "s"));
        let (kept, ended) = (scene.running("kept", &own, 9).unwrap(), scene.running("x", &other, 9).unwrap());
        let Forgotten(forgotten) = scene.processes.admit(|principal| *principal == Principal::local());
        assert!(forgotten.len() == 1 && Arc::ptr_eq(&forgotten[0], &ended));
        assert!(scene.processes.list(&other).is_empty());
        assert!(matches!(scene.running("y", &other, 9), Err(Error::NotAdmitted)));
        assert_eq!(scene.processes.list(&own).len(), 1);
        assert!(!kept.is_over());
        let Forgotten(none) = scene.processes.admit(|_| true);
        assert!(none.is_empty());
        scene.running("z", &other, 9).unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn nobody_waits_for_the_end_of_what_never_began() {
        let scene = Scene::set();
        let session = key(Principal::local(), "s");
        let path = scene.directory.path().join("p");
        std::fs::create_dir(&path).unwrap();
        let now = scene.processes.clock.now();
        let process =
            Process::new("p".to_owned(), session.clone(), "true".to_owned(), Output::new(path), now);
        let place = Place::take(&scene.processes, Arc::new(process), 9).unwrap();
        let begun = tokio::time::Instant::now();
        tokio::join!(scene.processes.end(&session), async { drop(place) });
        assert_eq!(begun.elapsed(), Duration::ZERO);
    }
}
