//! A directory that belongs to a session: its files, and the commands that run in it.
//!
//! What must outlive a change of the configuration is the [`Site`]; a [`Workspace`] is that and what the configuration says
//! about it.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use moongate_core::{
    Builtin, CallError, Changes, Clock, Context, Raw, SessionKey,
    builtin::{ToolError, ToolOutput, ToolSpec},
    task::Group,
};
use moongate_launch::{Limits, Network};
use tracing::warn;

pub mod files;
mod process;
pub mod resources;
pub mod room;

use files::{FileOptions, Files};
use process::{Processes, Spool};
use resources::WorkspaceResources;
use room::{Room, Rooms};

/// Beside the rooms, whose names are never this.
const OUTPUT: &str = "output";
/// How long sessions and processes have to end when everything does: their grace, and time to kill and to remove. The
/// gateway promises to end within five seconds.
const LAST_ENDS: Duration = Duration::from_secs(4);
/// How long tasks have to notice that everything is over.
const LAST_TASKS: Duration = Duration::from_millis(250);

/// The directories of all sessions and the processes that run in them.
#[derive(Debug)]
pub struct Site {
    rooms: Arc<Rooms>,
    resources: WorkspaceResources,
    processes: Processes,
    clock: Clock,
    /// What happens beside calls.
    tasks: Group,
    /// The ends of sessions and their processes, which are waited for before the tasks are cancelled that attend to them.
    ends: Group,
}

/// What an operator can choose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Options {
    /// Whom commands may speak to.
    pub network: Network,
    /// Whether nothing is run where confinement is not complete.
    pub required: bool,
    /// What files may be.
    pub files: FileOptions,
    /// What commands may read beside the programs of the system.
    pub readable: Vec<PathBuf>,
    /// What each command may use.
    pub limits: Limits,
    /// Bytes of output that are kept of each stream.
    pub output: u64,
    /// Commands that run in a session at a time.
    pub running: usize,
    /// How long a command may take that is waited for.
    pub wait: Duration,
}

/// The workspace backend.
#[derive(Debug)]
pub struct Workspace {
    site: Arc<Site>,
    options: Options,
    files: Files,
}

impl Site {
    /// A site below `root`, where nothing is made before it is needed. `launcher` is our own executable, whose `main` asks
    /// [`moongate_launch::launched`] first. Changes of watched files are told by `changes`.
    pub fn new(root: PathBuf, launcher: PathBuf, changes: Changes, clock: Clock) -> Self {
        let tasks = Group::new();
        let spool = Spool::new(root.join(OUTPUT));
        let rooms = Arc::new(Rooms::new(root, clock.clone()));
        let resources = WorkspaceResources::new(Arc::clone(&rooms), changes, tasks.clone());
        let processes = Processes::new(spool, launcher, clock.clone(), tasks.clone());
        Self { rooms, resources, processes, clock, tasks, ends: Group::new() }
    }

    /// The files of the sessions, by address; as large as `options` say.
    pub fn resources(&self, options: &FileOptions) -> WorkspaceResources {
        self.resources.with(options)
    }

    /// The directory of a session, made now if it is not there.
    async fn room(&self, session: &SessionKey) -> io::Result<Room> {
        let (rooms, session) = (Arc::clone(&self.rooms), session.clone());
        tokio::task::spawn_blocking(move || rooms.open(&session)).await.map_err(io::Error::other)?
    }

    /// The directory of a session to look into, without making it.
    async fn look(&self, session: &SessionKey) -> io::Result<Room> {
        let (rooms, session) = (Arc::clone(&self.rooms), session.clone());
        tokio::task::spawn_blocking(move || rooms.look(&session)).await.map_err(io::Error::other)?
    }

    /// The names of the sessions in which a command runs: their time is not up, however long nobody asks.
    pub fn busy(&self) -> Vec<Arc<str>> {
        self.processes.busy()
    }

    /// Forgets processes that have ended long ago, removes directories that nobody has used for `retention`, and what dead
    /// gateways left. What runs is never touched. Blocks on the file system.
    pub fn sweep(&self, retention: Duration) {
        self.processes.sweep();
        if let Err(error) = self.rooms.sweep(retention) {
            warn!(%error, "directories of old sessions stay for now");
        }
    }

    /// Has every process ended, because nobody can reach them any more.
    pub fn vacate(self: &Arc<Self>) {
        let site = Arc::clone(self);
        self.ends.spawn(async move { site.processes.end_all().await });
    }

    /// Ends every process, for good, and waits for sessions that are about to end. Takes less than five seconds; what is
    /// left then is killed.
    pub async fn close(&self) {
        let ends = async { tokio::join!(self.processes.end_all(), self.ends.settle(LAST_ENDS)) };
        drop(tokio::time::timeout(LAST_ENDS, ends).await);
        tokio::join!(self.ends.shut_down(LAST_TASKS), self.tasks.shut_down(LAST_TASKS));
        self.processes.close();
    }
}

impl Workspace {
    /// A backend that works at `site` as `options` say.
    pub fn new(site: Arc<Site>, options: Options) -> Self {
        let files = Files::new(options.files.clone(), site.clock.clone());
        Self { site, options, files }
    }
}

impl Builtin for Workspace {
    fn name(&self) -> &'static str {
        "workspace"
    }

    fn tools(&self) -> Vec<ToolSpec> {
        [process::specs(self.options.network), files::specs()].concat()
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
        if let Some(called) = process::call(&self.site, &self.options, tool, &arguments, cx).await {
            return called;
        }
        let session = cx.session_key();
        let room =
            if Files::makes(tool) { self.site.room(&session).await } else { self.site.look(&session).await };
        let room = room.map_err(|error| CallError::internal("The workspace cannot be opened", error))?;
        self.files.call(tool, &arguments, &room).await
    }

    /// Ends its processes, then removes its directory.
    fn session_ended(&self, session: &SessionKey) {
        self.site.resources.session_ended(session);
        let (site, session) = (Arc::clone(&self.site), session.clone());
        self.site.ends.spawn(async move {
            site.processes.end(&session).await;
            let removed = tokio::task::spawn_blocking(move || site.rooms.remove(&session)).await;
            if let Ok(Err(error)) = removed {
                warn!(%error, "the directory of a session that is over stays for now");
            }
        });
    }
}
