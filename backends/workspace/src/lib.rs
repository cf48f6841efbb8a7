//! A directory that belongs to a session: its files, and the commands that run in it.
//!
//! What must outlive a change of the configuration is the [`Site`]; a [`Workspace`] is that and what the configuration says
//! about it.

use std::{io, path::PathBuf, sync::Arc, time::Duration};

use moongate_core::{
    Builtin, CallError, Changes, Clock, Context, Kind, Principal, Raw, SessionKey,
    builtin::{ToolError, ToolOutput, ToolSpec},
    task::Group,
};
use moongate_launch::{Limits, Network};
use tracing::warn;

pub mod files;
mod instance;
mod process;
pub mod resources;
pub mod room;
pub mod tenants;

use files::{FileOptions, Files};
use process::Processes;
use resources::WorkspaceResources;
use room::Room;
use tenants::{Tenant, Tenants};

const NAME: &str = "workspace";
/// How long sessions and processes have to end when everything does: their grace, and time to kill and to remove. The
/// gateway promises to end within five seconds.
const LAST_ENDS: Duration = Duration::from_secs(4);
/// How long tasks have to notice that everything is over.
const LAST_TASKS: Duration = Duration::from_millis(250);
/// How long the removal of rooms has then; what is left of it is done by whoever starts next.
const LAST_ROOMS: Duration = Duration::from_millis(500);

/// The directories of all sessions and the processes that run in them.
#[derive(Debug)]
pub struct Site {
    rooms: Arc<Tenants>,
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

/// The workspace where it is switched off: it offers nothing, and hears of sessions that end.
#[derive(Debug)]
pub struct Closed(pub Arc<Site>);

impl Site {
    /// A site below `root`, where nothing is made before it is needed. `launcher` is our own executable, whose `main` asks
    /// [`moongate_launch::launched`] first. Changes of watched files are told by `changes`.
    pub fn new(root: PathBuf, launcher: PathBuf, changes: Changes, clock: Clock) -> Self {
        let tasks = Group::new();
        let rooms = Arc::new(Tenants::new(root, clock.clone()));
        let resources = WorkspaceResources::new(Arc::clone(&rooms), changes, tasks.clone());
        let processes = Processes::new(&rooms, launcher, clock.clone(), tasks.clone());
        Self { rooms, resources, processes, clock, tasks, ends: Group::new() }
    }

    /// The files of the sessions, by address; as large as `options` say.
    pub fn resources(&self, options: &FileOptions) -> WorkspaceResources {
        self.resources.with(options)
    }

    /// The directory of a caller's session, made now if it is not there.
    async fn room(&self, cx: &Context) -> io::Result<Room> {
        let (rooms, tenant) = (Arc::clone(&self.rooms), Tenant::of(cx));
        tokio::task::spawn_blocking(move || rooms.open(&tenant)).await.map_err(io::Error::other)?
    }

    /// The directory of a caller's session to look into, without making it.
    async fn look(&self, cx: &Context) -> io::Result<Room> {
        let (rooms, tenant) = (Arc::clone(&self.rooms), Tenant::of(cx));
        tokio::task::spawn_blocking(move || rooms.look(&tenant)).await.map_err(io::Error::other)?
    }

    /// The names of the sessions in which a command runs: their time is not up, however long nobody asks.
    pub fn busy(&self) -> Vec<Arc<str>> {
        self.processes.busy()
    }

    /// Forgets processes that have ended long ago, removes directories that nobody has used for `retention`, and what dead
    /// gateways left. What runs here or elsewhere is never touched. Blocks on the file system.
    pub fn sweep(&self, retention: Duration) {
        self.processes.sweep();
        if let Err(error) = self.rooms.sweep(retention) {
            warn!(%error, "directories of old sessions stay for now");
        }
    }

    /// Lets only those work here whom `admits` names, from now on, and has the processes of all others ended: nobody can
    /// reach them any more.
    pub fn admit(self: &Arc<Self>, admits: impl Fn(&Principal) -> bool + Send + Sync + 'static) {
        let unreachable = self.processes.admit(admits);
        self.ends.spawn(unreachable.end());
    }

    /// Ends the processes of a transport session that is over, then removes its directory.
    fn session_ended(self: &Arc<Self>, session: &SessionKey) {
        self.resources.session_ended(session);
        // Before anything is removed: see there.
        self.rooms.end(session);
        let (site, session) = (Arc::clone(self), session.clone());
        self.ends.spawn(async move {
            site.processes.end(&session).await;
            let removed = tokio::task::spawn_blocking(move || site.rooms.remove(&session)).await;
            if let Ok(Err(error)) = removed {
                warn!(%error, "the directory of a session that is over stays for now");
            }
        });
    }

    /// Ends every process, for good, waits for sessions that are about to end, and removes the directories of those that
    /// end with this gateway. Takes less than five seconds; what is left then is killed.
    pub async fn close(&self) {
        let ends = async { tokio::join!(self.processes.end_all(), self.ends.settle(LAST_ENDS)) };
        drop(tokio::time::timeout(LAST_ENDS, ends).await);
        tokio::join!(self.ends.shut_down(LAST_TASKS), self.tasks.shut_down(LAST_TASKS));
        let rooms = Arc::clone(&self.rooms);
        let removed = tokio::task::spawn_blocking(move || rooms.close());
        if let Ok(Ok(Err(error))) = tokio::time::timeout(LAST_ROOMS, removed).await {
            warn!(%error, "directories of sessions that are over stay for now");
        }
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
        NAME
    }

    fn tools(&self) -> Vec<ToolSpec> {
        [process::specs(self.options.network), files::specs()].concat()
    }

    async fn call_tool(&self, tool: &str, arguments: Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
        if let Some(called) = process::call(&self.site, &self.options, tool, &arguments, cx).await {
            return called;
        }
        let room = if Files::makes(tool) { self.site.room(cx).await } else { self.site.look(cx).await };
        let room = room.map_err(|error| CallError::internal("The workspace cannot be opened", error))?;
        self.files.call(tool, &arguments, &room).await
    }

    fn session_ended(&self, session: &SessionKey) {
        self.site.session_ended(session);
    }
}

impl Builtin for Closed {
    fn name(&self) -> &'static str {
        NAME
    }

    fn tools(&self) -> Vec<ToolSpec> {
        Vec::new()
    }

    async fn call_tool(&self, tool: &str, _arguments: Raw, _cx: &Context) -> Result<ToolOutput, ToolError> {
        Err(CallError::client(Kind::Unknown, format!("Unknown tool: {tool}")).into())
    }

    // Its directory was made when the workspace was open.
    fn session_ended(&self, session: &SessionKey) {
        self.0.session_ended(session);
    }
}

/// 128 bits that nobody can guess.
fn random_name() -> String {
    let mut bytes = [0; 16];
    aws_lc_rs::rand::fill(&mut bytes).expect("the system has randomness");
    format!("{:032x}", u128::from_be_bytes(bytes))
}

#[cfg(test)]
mod tests;
