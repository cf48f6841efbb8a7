//! Tasks of a modern server, for clients that know tasks: what one does with a task is passed on, and what the server says
//! of it comes back in the plain form of the seam.
//!
//! Which client may see which task is not known here; the ids are the server's own.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use moongate_core::{Raw, Reply, TaskAct, hash::Map};
use moongate_wire::{RpcError, code, write};
use serde::Deserialize;
use serde_json::json;
use tokio::time::Instant;

use super::{
    connection::{Connection, Request},
    envelope,
    refusal::Failure,
};

/// The longest id of a task that is passed on: it comes back in a header.
const MAX_ID: usize = 1024;
/// The longest time that a task nobody asks after keeps its server running, whatever it says.
const LONGEST_LIFE: Duration = Duration::from_hours(1);
/// Tasks of one connection beyond which further ones do not keep it open.
const MAX_OPEN: usize = 1024;

/// Tasks that clients were given and that have not ended, as far as is known: until when a server is kept running for each.
#[derive(Debug, Default)]
pub(super) struct OpenTasks(Mutex<Map<Arc<str>, Instant>>);

impl OpenTasks {
    /// Whether the server may be at work on one.
    pub(super) fn any(&self) -> bool {
        let now = Instant::now();
        self.lock().values().any(|until| now < *until)
    }

    fn open(&self, id: Arc<str>, life: Duration) {
        let (now, mut tasks) = (Instant::now(), self.lock());
        if tasks.len() >= MAX_OPEN {
            tasks.retain(|_, until| now < *until);
        }
        if tasks.len() < MAX_OPEN {
            tasks.insert(id, now + life.min(LONGEST_LIFE));
        }
    }

    fn ended(&self, id: &str) {
        self.lock().remove(id);
    }

    fn lock(&self) -> MutexGuard<'_, Map<Arc<str>, Instant>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The reply to a call that has made a task.
///
/// # Errors
/// That nobody could ask after such a task.
pub(super) fn made(connection: &Connection, said: &Raw) -> Result<Reply, Failure> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Made {
        task_id: Arc<str>,
        ttl_ms: Option<f64>,
    }
    let Made { task_id, ttl_ms } =
        said.parse().map_err(|_| Failure::invalid("it made a task that has no id"))?;
    if task_id.is_empty() || task_id.len() > MAX_ID {
        return Err(Failure::invalid("it made a task whose id is empty or longer than 1024 bytes"));
    }
    let life = ttl_ms.and_then(|ttl| Duration::try_from_secs_f64(ttl / 1000.0).ok()).unwrap_or(LONGEST_LIFE);
    connection.open_tasks.open(Arc::clone(&task_id), life);
    Ok(Reply { task: Some(task_id), ..envelope::task(said).into() })
}

/// Whether a task in this state stays as it is.
fn has_ended(task: &Raw) -> bool {
    let status = task.member("status");
    status.is_some_and(|status| ["completed", "failed", "cancelled"].iter().any(|end| status.is_text(end)))
}

impl Connection {
    /// Does something with a task. `capabilities` are what the server is told, the extension among them.
    ///
    /// # Errors
    /// What the server or the way to it said.
    pub(crate) async fn act_on_task(
        &self,
        id: &Arc<str>,
        act: &TaskAct,
        capabilities: Raw,
        meta: Option<&Raw>,
    ) -> Result<Reply, Failure> {
        if !self.greeting.offers_tasks() {
            // It may be another server than the one that made it.
            return Err(RpcError::new(code::INVALID_PARAMS, "Invalid params: no such task").into());
        }
        let _under_way = self.hearing.begin();
        let name = Raw::of(&json!({"taskId": id}));
        let (method, params) = match act {
            TaskAct::Get => ("tasks/get", name),
            TaskAct::Update { responses } => {
                ("tasks/update", write::with_members(&name, &[("inputResponses", responses.clone())]))
            }
            TaskAct::Cancel => ("tasks/cancel", name),
            TaskAct::Watch => return self.watch_task(id).await.map(|()| Raw::empty_object().into()),
            TaskAct::Unwatch => return self.unwatch_task(id).await.map(|()| Raw::empty_object().into()),
        };
        let (name, capabilities) = (Some(Arc::clone(id)), Some(capabilities));
        let ask = Request { name, meta, capabilities, ..Request::own(method, params) };
        if !matches!(act, TaskAct::Get) {
            return self.ask(&ask).await;
        }
        let said = self.result_of(&ask).await?;
        let described = said.member("taskId").is_some_and(|said| said.is_text(id));
        if !described || said.member("status").is_none() {
            return Err(Failure::invalid("it described no task, or another one"));
        }
        if has_ended(&said) {
            self.open_tasks.ended(id);
        }
        Ok(envelope::task(&said).into())
    }
}
