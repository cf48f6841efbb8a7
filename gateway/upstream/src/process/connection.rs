//! A connection to a process that runs: its tasks, and the face that others see.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use futures_util::{FutureExt as _, StreamExt as _, stream};
use moongate_core::{
    BoxFuture,
    task::{Group, Signal},
};
use moongate_launch::{Notice, Report, Started};
use moongate_wire::Version;
use tokio::{
    io::{AsyncBufRead, AsyncBufReadExt as _},
    sync::{mpsc, watch},
};
use tracing::debug;

use super::{
    Spec,
    attend::Attendant,
    pending::{Pending, Ticket},
    pipe::{self, Garbage, Item, Reader},
    ring::{Mask, Ring},
};
use crate::transport::{Diagnosis, Event, Exchange, Fault, Inbound, Outgoing, Outward, Transport};

/// What the tasks of a connection and its face share.
#[derive(Debug)]
pub(super) struct Shared {
    pub(super) name: Arc<str>,
    pub(super) report: Report,
    pub(super) pending: Arc<Pending>,
    ring: Mutex<Ring>,
    /// The command was not run, for this reason.
    not_run: Mutex<Option<String>>,
    /// Nothing more is written: closes the standard input.
    pub(super) finish: Signal,
    /// Nothing more is read: closes what the process writes to, whereupon the supervisor kills everything.
    pub(super) cut: Signal,
    /// Standard output and standard error have ended.
    pub(super) silent: [Signal; 2],
    /// The supervisor has ended, or was given up.
    pub(super) gone: Signal,
}

impl Shared {
    /// The last line the process wrote for people.
    pub(super) fn last_words(&self) -> Option<String> {
        self.ring.lock().unwrap_or_else(PoisonError::into_inner).last().map(str::to_owned)
    }

    /// Why the command was not run, if it was not.
    pub(super) fn not_run(&self) -> Option<String> {
        self.not_run.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// See the module.
#[derive(Debug)]
struct Connection {
    shared: Arc<Shared>,
    queue: mpsc::Sender<Item>,
    closing: watch::Sender<Option<Duration>>,
}

/// Starts the tasks of a process that was just started.
pub(super) fn connect(
    spec: &Spec,
    started: Started,
    inbound: Arc<dyn Inbound>,
    tasks: &Group,
) -> Arc<dyn Transport> {
    let Started { supervisor, stdin, stdout, stderr } = started;
    let report = supervisor.report.clone();
    let shared = Arc::new(Shared {
        name: Arc::clone(&spec.name),
        report,
        pending: Arc::default(),
        ring: Mutex::default(),
        not_run: Mutex::default(),
        finish: Signal::default(),
        cut: Signal::default(),
        silent: Default::default(),
        gone: Signal::default(),
    });
    let (queue, queued) = mpsc::channel(pipe::QUEUE);
    let (closing, close) = watch::channel(None);
    // One each for the reader and the writer, of which each ends once.
    let (broken, breaks) = mpsc::channel(2);

    let reader = Reader {
        name: Arc::clone(&spec.name),
        pending: Arc::clone(&shared.pending),
        inbound,
        queue: queue.clone(),
        garbage: Garbage::default(),
    };
    let (longest, breaking, sharing) = (spec.max_message, broken.clone(), Arc::clone(&shared));
    tasks.spawn(async move {
        let _silent = Given(sharing.silent[0].clone());
        tokio::select! {
            fault = reader.read(stdout, longest) => drop(breaking.try_send(fault)),
            () = sharing.cut.given() => {}
        }
    });
    let sharing = Arc::clone(&shared);
    let writer = stdin.map(|stdin| async move {
        // A message that is cut off by the end of the pipe is not missed by anybody.
        tokio::select! {
            _broken = pipe::write(stdin, queued, &sharing.pending) => {
                drop(broken.try_send(Fault::Lost("the process closed its standard input".into())));
            }
            () = sharing.finish.given() => {}
        }
    });
    if let Some(writer) = writer {
        tasks.spawn(writer);
    }
    let (mask, sharing) = (Mask::of(spec, std::env::vars_os()), Arc::clone(&shared));
    tasks.spawn(async move {
        let _silent = Given(sharing.silent[1].clone());
        tokio::select! {
            () = remember(stderr, &mask, &sharing) => {}
            () = sharing.cut.given() => {}
        }
    });
    tasks.spawn(Attendant { supervisor, shared: Arc::clone(&shared), breaks, close }.attend());
    Arc::new(Connection { shared, queue, closing })
}

/// A signal that is given whichever way a task ends.
struct Given(Signal);

impl Drop for Given {
    fn drop(&mut self) {
        self.0.give();
    }
}

/// Keeps what a process writes for people, until it has no more to say.
async fn remember(mut stderr: impl AsyncBufRead + Unpin, mask: &Mask, shared: &Shared) {
    let mut line = Vec::new();
    let mut lines = 0_u64;
    loop {
        let Ok(chunk) = stderr.fill_buf().await else { return };
        if chunk.is_empty() && line.is_empty() {
            return;
        }
        let end = memchr::memchr(b'\n', chunk);
        let part = chunk.get(..end.unwrap_or(chunk.len())).unwrap_or_default();
        let room = mask.reach().saturating_sub(line.len());
        line.extend_from_slice(part.get(..room).unwrap_or(part));
        let (complete, used) = (end.is_some() || chunk.is_empty(), part.len() + usize::from(end.is_some()));
        stderr.consume(used);
        if complete {
            let text = mask.apply(&line);
            line.clear();
            debug!(upstream = %shared.name, line = text, "standard error");
            lines += 1;
            // Only the first can be about starting: a command that runs has no reason to say so.
            if let (1, Some(Notice::Failed(reason))) = (lines, Notice::read(&text)) {
                *shared.not_run.lock().unwrap_or_else(PoisonError::into_inner) = Some(reason);
            } else {
                shared.ring.lock().unwrap_or_else(PoisonError::into_inner).push(text);
            }
        }
    }
}

/// How far an exchange is.
enum Step {
    Begin { pending: Arc<Pending>, queue: mpsc::Sender<Item>, request: Outgoing },
    Wait(Ticket),
    Over,
}

async fn advance(step: Step) -> Option<(Event, Step)> {
    let ticket = match step {
        Step::Begin { pending, queue, request } => post(&pending, &queue, request).await,
        Step::Wait(ticket) => Ok(ticket),
        Step::Over => return None,
    };
    let mut ticket = match ticket {
        Ok(ticket) => ticket,
        Err(fault) => return Some((Event::Lost(fault), Step::Over)),
    };
    Some(match ticket.next().await {
        Event::Message(message) => (Event::Message(message), Step::Wait(ticket)),
        end => (end, Step::Over),
    })
}

/// Queues a request as soon as there is room. It is registered only then, so that whoever waits for room can be forgotten.
async fn post(
    pending: &Arc<Pending>,
    queue: &mpsc::Sender<Item>,
    request: Outgoing,
) -> Result<Ticket, Fault> {
    let permit = room(pending, queue).await?;
    let ticket = pending.open(request.id, request.method)?;
    permit.send(Item::Request { id: request.id, text: request.message });
    Ok(ticket)
}

async fn room<'a>(pending: &Pending, queue: &'a mpsc::Sender<Item>) -> Result<mpsc::Permit<'a, Item>, Fault> {
    tokio::select! {
        biased;
        fault = pending.refusal() => Err(fault),
        permit = queue.reserve() => match permit {
            Ok(permit) => Ok(permit),
            // The writer has ended, and why is about to be known.
            Err(_) => Err(pending.refusal().await),
        },
    }
}

impl Transport for Connection {
    fn request(&self, request: Outgoing) -> Exchange {
        let pending = Arc::clone(&self.shared.pending);
        stream::unfold(Step::Begin { pending, queue: self.queue.clone(), request }, advance).boxed()
    }

    fn send(&self, message: Outward) -> BoxFuture<'_, Result<(), Fault>> {
        async move {
            let permit = room(&self.shared.pending, &self.queue).await?;
            permit.send(Item::Other(message.message));
            Ok(())
        }
        .boxed()
    }

    /// A pipe always speaks.
    fn listen(&self, _version: Version) -> BoxFuture<'_, bool> {
        std::future::ready(true).boxed()
    }

    fn closed(&self) -> BoxFuture<'_, Fault> {
        self.shared.pending.over().boxed()
    }

    fn close(&self, grace: Duration) -> BoxFuture<'_, ()> {
        async move {
            // Who asks first says how long; whoever asks again waits for the same end.
            self.closing.send_if_modified(|asked| asked.is_none().then(|| *asked = Some(grace)).is_some());
            self.shared.gone.given().await;
        }
        .boxed()
    }

    fn diagnosis(&self) -> Diagnosis {
        let Shared { report, pending, ring, .. } = self.shared.as_ref();
        let counts = pending.counts();
        let mut notes = report.notes.clone();
        for (count, what) in [
            (counts.unasked, "answers that nobody waited for"),
            (counts.dropped, "messages dropped, because their call was not read"),
            (counts.garbage, "lines on standard output that are not MCP"),
        ] {
            notes.extend((count > 0).then(|| format!("{count} {what}")));
        }
        let stderr = ring.lock().unwrap_or_else(PoisonError::into_inner).lines();
        Diagnosis { pid: u32::try_from(report.pid).ok(), stderr, notes }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.shared.cut.give();
    }
}
