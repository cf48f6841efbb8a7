//! `subscriptions/listen`: a modern client's long-lived request for what changes.

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc};

use moongate_core::{CallError, Change, Operation, TaskAct};
use moongate_wire::{Id, Params, Raw, write};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    engine::{self, Caller},
    gateway::Gateway,
    hub::{self, Filter, Listener},
    tally::Counted,
    tasks::{Known, must_know_tasks},
    watch::{self, Watch},
};

/// Messages on their way to the client; when full the listen waits, and changes coalesce meanwhile.
pub const CAPACITY: usize = 8;

/// What a client asks to hear, and what is acknowledged.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Wanted {
    #[serde(skip_serializing_if = "is_false")]
    tools_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    prompts_list_changed: bool,
    #[serde(skip_serializing_if = "is_false")]
    resources_list_changed: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    resource_subscriptions: Vec<String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    task_ids: Vec<String>,
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde's signature")]
fn is_false(value: &bool) -> bool {
    !value
}

/// How the server ends a listen: one page of the specification wants the result, another the notification, and a pipe
/// can carry both.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Closing {
    /// HTTP: the result, then the stream ends.
    Result,
    /// A pipe: the result, then `notifications/cancelled`.
    ResultAndCancelled,
}

/// Resources, or tasks, one client may watch at a time; every change is compared with each.
pub const MAX_SUBSCRIPTIONS: usize = 1024;

/// A running listen.
#[derive(Debug)]
pub struct Listening {
    id: Id,
    listener: Listener,
    honoured: Wanted,
    held: Held,
    /// A listen counts as a call in progress.
    _counted: Counted,
}

/// What backends were asked to watch for a listen. However it ends, they are told.
#[derive(Debug)]
struct Held {
    caller: Caller,
    gateway: Arc<Gateway>,
    watches: Vec<Watch>,
    tasks: Vec<Known>,
}

impl Held {
    /// Tells the backends that it is over; there is nothing left to tell then.
    fn release(&mut self) -> impl Future<Output = ()> + Send + use<> {
        let (caller, gateway) = (self.caller.clone(), Arc::clone(&self.gateway));
        let (watches, tasks) = (std::mem::take(&mut self.watches), std::mem::take(&mut self.tasks));
        async move {
            watch::end_all(watches).await;
            for task in tasks {
                if let Err(error) = gateway.act_quietly(&caller, &task, TaskAct::Unwatch).await {
                    tracing::debug!(%error, "a task is still watched");
                }
            }
        }
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        if !self.watches.is_empty() || !self.tasks.is_empty() {
            let release = self.release();
            self.gateway.tasks.spawn(release);
        }
    }
}

impl Gateway {
    /// Starts listening for what `params` asks; what cannot be honoured is left out of the acknowledgement.
    ///
    /// # Errors
    /// `InvalidParams` when the filter cannot be read, `MissingCapability` when it names tasks and the client does not know
    /// them.
    ///
    /// # Cancel safety
    /// Dropping the future ends what was begun.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        caller: &Caller,
        id: Id,
        params: &Params,
    ) -> Result<Listening, CallError> {
        let counted = self.count_call(caller)?;
        let filter = params.raw().and_then(|params| params.member("notifications"));
        // Without this look an array would do as well: its items would be taken for the members in order.
        let filter = filter
            .filter(Raw::is_object)
            .ok_or_else(|| CallError::invalid_params("notifications is required, as an object"))?;
        let mut wanted = filter.parse::<Wanted>().map_err(CallError::invalid_params)?;
        if wanted.resource_subscriptions.len() > MAX_SUBSCRIPTIONS {
            let message = format!("at most {MAX_SUBSCRIPTIONS} resources can be watched at a time");
            return Err(CallError::invalid_params(message));
        }
        if wanted.task_ids.len() > MAX_SUBSCRIPTIONS {
            let message = format!("at most {MAX_SUBSCRIPTIONS} tasks can be watched at a time");
            return Err(CallError::invalid_params(message));
        }
        let tasks = self.tasks_of(caller, &mut wanted).await?;
        // Listen before subscribing: a change right after the subscription must not be missed.
        let session = engine::session_of(caller, params);
        let for_session =
            |uris: &[String]| uris.iter().map(|uri| (uri.clone(), session.to_string())).collect();
        let filter = Filter {
            tools: wanted.tools_list_changed,
            prompts: wanted.prompts_list_changed,
            resources: wanted.resources_list_changed,
            uris: for_session(&wanted.resource_subscriptions),
            tasks: addresses(&tasks),
        };
        let listener = self.hub.listen(caller.admitted.principal().clone(), filter);
        let client = Arc::new(caller.client.detached());
        let mut held = Held {
            caller: Caller { client, ..caller.clone() },
            gateway: Arc::clone(self),
            watches: Vec::new(),
            tasks: Vec::new(),
        };
        for uri in std::mem::take(&mut wanted.resource_subscriptions) {
            match Box::pin(self.watch(caller, params, &uri.as_str().into())).await {
                Ok(watch) => {
                    held.watches.push(watch);
                    wanted.resource_subscriptions.push(uri);
                }
                Err(error) => tracing::debug!(%uri, %error, "subscription not honoured"),
            }
        }
        for task in tasks {
            match Box::pin(self.act_quietly(caller, &task, TaskAct::Watch)).await {
                Ok(()) => held.tasks.push(task),
                Err(error) => tracing::debug!(%error, "a task is not told of"),
            }
        }
        wanted.task_ids = held.tasks.iter().map(|task| task.given.as_ref().into()).collect();
        listener.refine(|filter| {
            filter.uris = for_session(&wanted.resource_subscriptions);
            filter.tasks = addresses(&held.tasks);
        });
        Ok(Listening { id, listener, honoured: wanted, held, _counted: counted })
    }

    /// The tasks a client wants to hear of, as far as they are its own.
    async fn tasks_of(&self, caller: &Caller, wanted: &mut Wanted) -> Result<Vec<Known>, CallError> {
        let given = std::mem::take(&mut wanted.task_ids);
        if !given.is_empty() {
            must_know_tasks(caller)?;
        }
        let mut tasks: Vec<Known> = Vec::new();
        for id in given {
            match Box::pin(self.find_task(caller, &id)).await {
                Ok(task) if tasks.iter().any(|other| other.is_same(&task)) => {}
                Ok(task) => tasks.push(task),
                Err(error) => tracing::debug!(%error, "a task is not told of"),
            }
        }
        Ok(tasks)
    }

    async fn act_quietly(&self, caller: &Caller, task: &Known, act: TaskAct) -> Result<(), CallError> {
        let operation = Operation::Task { id: Arc::clone(&task.id), act };
        self.quietly(caller, &Params::default(), &task.member, operation, task.inject).await.map(drop)
    }
}

/// The tasks as their backends announce them.
fn addresses(tasks: &[Known]) -> BTreeSet<(Arc<str>, Arc<str>)> {
    tasks.iter().map(|task| (Arc::clone(&task.member.name), Arc::clone(&task.id))).collect()
}

impl Listening {
    /// Tells `out` what changes until the client leaves or cancels, or `stop` resolves and the listen is closed in order.
    ///
    /// # Cancel safety
    /// Dropping the future ends what backends watch for it, in a task of the gateway.
    pub async fn run(
        mut self,
        out: mpsc::Sender<Raw>,
        cancelled: Pin<&mut (impl Future<Output = ()> + Send)>,
        stop: Pin<&mut (impl Future<Output = ()> + Send)>,
        closing: Closing,
    ) {
        if out.send(self.acknowledgement()).await.is_ok() {
            tokio::select! {
                () = out.closed() => {}
                () = cancelled => {}
                () = self.tell(&out) => {}
                () = stop => self.close(&out, closing).await,
            }
        }
        // On the heap: a listen waits for hours, and should not carry the room of a call all the while.
        Box::pin(self.held.release()).await;
    }

    fn meta(&self) -> Raw {
        Raw::of(&json!({"io.modelcontextprotocol/subscriptionId": self.id}))
    }

    fn acknowledgement(&self) -> Raw {
        let (meta, honoured) = (self.meta(), Raw::of(&self.honoured));
        let params = write::object([("_meta", &meta), ("notifications", &honoured)]);
        write::notification("notifications/subscriptions/acknowledged", &params)
    }

    async fn close(&self, out: &mpsc::Sender<Raw>, closing: Closing) {
        let result = write::object([("resultType", &Raw::of("complete")), ("_meta", &self.meta())]);
        // A client that left in the same moment needs neither.
        drop(out.send(write::result(&self.id, &result)).await);
        if closing == Closing::ResultAndCancelled {
            let params = Raw::of(&json!({"requestId": self.id, "reason": "the gateway ends"}));
            drop(out.send(write::notification("notifications/cancelled", &params)).await);
        }
    }

    async fn tell(&self, out: &mpsc::Sender<Raw>) {
        loop {
            for change in self.listener.changes().await {
                let Some(change) = self.told(change) else { continue };
                if out.send(hub::notification(&change, Some(&self.id))).await.is_err() {
                    return;
                }
            }
        }
    }

    /// A change as this client knows it.
    fn told(&self, change: Change) -> Option<Change> {
        let Change::Task { backend, id, task } = change else { return Some(change) };
        let known = self.held.tasks.iter().find(|known| known.id == id && known.member.name == backend)?;
        let said = Raw::from_text(task.to_string()).ok()?;
        let task = known.told(&said, self.held.caller.client.version).as_str().into();
        Some(Change::Task { backend, id, task })
    }
}
