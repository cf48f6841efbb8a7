//! The tools that run commands: what each takes, does and answers.

mod answer;
mod error;
mod output;
mod registry;
mod run;
mod tools;

use std::{convert::Infallible, sync::Arc, time::Duration};

use moongate_core::{
    Context, Peer, Raw,
    arguments::{Whole, parse},
    builtin::{ToolError, ToolOutput},
};
use serde::Deserialize;
use tokio::{
    task::spawn_blocking,
    time::{Instant, interval_at, timeout},
};

use self::{
    error::Error,
    output::{End, Lines, Source},
    run::{KillOnDrop, Process, Status},
};
pub(crate) use self::{
    registry::{Order, Processes},
    tools::all as specs,
};
use crate::{Options, Site};

/// How long a command that is not waited for is watched in case it fails at once.
const FIRST_LOOK: Duration = Duration::from_millis(100);
/// How often a caller who waits is told that the command runs.
const TOLD_EVERY: Duration = Duration::from_secs(5);
/// Lines of each stream in the answer of a command that was waited for.
const SHOWN: usize = 100;
/// Lines that a poll shows.
const POLLED: usize = 10;
/// Lines that a reading shows.
const READ: usize = 20;

/// Whether a call waits for its command.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
enum RunMode {
    Sync,
    Async,
}

#[derive(Deserialize)]
struct Execute {
    command: String,
    run_mode: Option<RunMode>,
    timeout: Option<Whole>,
}

/// A process, by either spelling.
#[derive(Deserialize)]
struct Named {
    #[serde(rename = "processId")]
    camel: Option<String>,
    #[serde(rename = "process_id")]
    snake: Option<String>,
}

impl Named {
    fn id(&self) -> Option<&str> {
        self.camel.as_deref().or(self.snake.as_deref())
    }
}

#[derive(Deserialize)]
struct Poll {
    #[serde(flatten)]
    process: Named,
    tail: Option<Tail>,
}

#[derive(Deserialize)]
struct Tail {
    #[serde(default)]
    src: Source,
    n: Option<Whole>,
}

#[derive(Deserialize)]
struct Read {
    #[serde(flatten)]
    process: Named,
    stream: Source,
    #[serde(default)]
    mode: End,
    lines: Option<Whole>,
}

#[derive(Deserialize)]
struct List {
    #[serde(default)]
    status_filter: Filter,
}

#[derive(Clone, Copy, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Filter {
    #[default]
    All,
    Running,
    Finished,
}

#[derive(Deserialize)]
struct Terminate {
    #[serde(flatten)]
    process: Named,
    #[serde(default)]
    force: bool,
}

/// Runs the tool, if it is one of [`specs`].
pub(crate) async fn call(
    site: &Site,
    options: &Options,
    tool: &str,
    arguments: &Raw,
    cx: &Context,
) -> Option<Result<ToolOutput, ToolError>> {
    let processes = &site.processes;
    Some(match tool {
        "execute_command" => execute(site, options, arguments, RunMode::Async, cx).await,
        "execute_shell" => execute(site, options, arguments, RunMode::Sync, cx).await,
        "poll_process" => poll(processes, arguments, cx).await,
        "read_process_output" => read(processes, arguments, cx).await,
        "list_processes" => list(processes, arguments, cx),
        "terminate_process" => terminate(processes, arguments, cx).await,
        _ => return None,
    })
}

async fn execute(
    site: &Site,
    options: &Options,
    arguments: &Raw,
    usual: RunMode,
    cx: &Context,
) -> Result<ToolOutput, ToolError> {
    let args: Execute = parse(arguments)?;
    let mode = args.run_mode.unwrap_or(usual);
    let seconds = args.timeout.map(|Whole(seconds)| u64::try_from(seconds).unwrap_or(1).max(1));
    let wall = match (mode, seconds.map(Duration::from_secs)) {
        (RunMode::Sync, None) => Some(options.wait),
        (RunMode::Sync, Some(wall)) if wall > options.wait => {
            return Err(Error::TooLong(options.wait.as_secs()).into());
        }
        (_, wall) => wall,
    };
    let room = site.room(cx).await.map_err(Error::NoRoom)?;
    let order = Order { session: cx.session_key(), command: args.command, wall, room, options };
    let process = site.processes.start(order).await?;
    match mode {
        RunMode::Sync => wait(process, &cx.peer).await,
        RunMode::Async => look(process).await,
    }
}

/// Waits for the end, and tells `peer` that it does. Whoever stops waiting ends it.
async fn wait(process: Arc<Process>, peer: &Peer) -> Result<ToolOutput, ToolError> {
    let unattended = KillOnDrop(Arc::clone(&process));
    let state = tokio::select! {
        state = process.ended() => state,
        never = tell(&process, peer) => match never {},
    };
    drop(unattended);
    if state.timed_out {
        let time = state.finished_at.and_then(|end| end.duration_since(process.started_at).ok());
        let error = Error::TimedOut(time.unwrap_or_default().as_secs());
        return Err(ToolError::from(error).with_details(answer::brief(&process)));
    }
    let stdout = lines(&process, Source::Stdout, End::Tail, SHOWN).await?;
    let stderr = lines(&process, Source::Stderr, End::Tail, SHOWN).await?;
    Ok(answer::ended(&process, &stdout, &stderr))
}

/// Tells now and then that it runs; whether anybody wants to know is the peer's business. How far it is nobody knows.
async fn tell(process: &Process, peer: &Peer) -> Infallible {
    let begun = Instant::now();
    let mut beat = interval_at(begun + TOLD_EVERY, TOLD_EVERY);
    loop {
        let time = beat.tick().await.duration_since(begun);
        let (seconds, size) = (time.as_secs(), process.output.size());
        let message = format!("running for {seconds} s, {size} bytes of output");
        peer.progress(time.as_secs_f64(), None, Some(&message));
    }
}

/// Waits just long enough to see whether it fails at once.
async fn look(process: Arc<Process>) -> Result<ToolOutput, ToolError> {
    match timeout(FIRST_LOOK, process.ended()).await {
        Ok(state) if state.status != Status::Finished => {
            let stderr = lines(&process, Source::Stderr, End::Tail, POLLED).await?;
            Ok(answer::failed_at_once(&process, &stderr))
        }
        _ => Ok(answer::started(&process)),
    }
}

async fn poll(processes: &Processes, arguments: &Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
    let args: Poll = parse(arguments)?;
    let process = processes.find(&cx.session_key(), args.process.id())?;
    let polls = process.polled();
    let source = args.tail.as_ref().map_or(Source::Stdout, |tail| tail.src);
    let count = args.tail.as_ref().and_then(|tail| tail.n);
    let lines = lines(&process, source, End::Tail, count_of(count, POLLED)).await?;
    Ok(answer::polled(&process, polls, &lines, args.tail.is_some().then_some(source)))
}

async fn read(processes: &Processes, arguments: &Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
    let args: Read = parse(arguments)?;
    let process = processes.find(&cx.session_key(), args.process.id())?;
    let count = count_of(args.lines, READ);
    let lines = lines(&process, args.stream, args.mode, count).await?;
    Ok(answer::read(&process, args.stream, args.mode, count, &lines))
}

fn list(processes: &Processes, arguments: &Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
    let args: List = parse(arguments)?;
    let all = processes.list(&cx.session_key());
    let fits = |process: &Arc<Process>| match args.status_filter {
        Filter::All => true,
        Filter::Running => !process.is_over(),
        Filter::Finished => process.is_over(),
    };
    Ok(answer::listed(&all, fits))
}

async fn terminate(processes: &Processes, arguments: &Raw, cx: &Context) -> Result<ToolOutput, ToolError> {
    let args: Terminate = parse(arguments)?;
    let process = processes.find(&cx.session_key(), args.process.id())?;
    if args.force {
        process.kill();
    } else {
        process.terminate();
    }
    process.ended().await;
    Ok(answer::terminated(&process))
}

async fn lines(process: &Arc<Process>, source: Source, end: End, count: usize) -> Result<Lines, Error> {
    let process = Arc::clone(process);
    let read = spawn_blocking(move || process.output.stream(source).lines(end, count)).await;
    read.map_err(std::io::Error::other).and_then(|read| read).map_err(Error::NoOutput)
}

fn count_of(asked: Option<Whole>, usual: usize) -> usize {
    asked.map_or(usual, |Whole(count)| usize::try_from(count).unwrap_or(1).clamp(1, SHOWN))
}

#[cfg(test)]
mod tests;
