//! Tasks of upstreams, for modern clients that know them (the extension `io.modelcontextprotocol/tasks`).
//!
//! The id that a client is given is sealed: it says which upstream made the task, by which tool, and what the task is
//! called there, and is good for one principal on one path. So `tasks/*` find their way without a table, on every replica
//! and after a restart, and who may not call a tool any more may not ask after its tasks either.

use std::sync::Arc;

use moongate_core::{CallError, Operation, Principal, Reply, RpcError, TASKS, TaskAct};
use moongate_security::keyring::{Keyring, Purpose};
use moongate_wire::{
    Method, Params, Raw, Version,
    edit::{self, Edit},
};
use serde::{Deserialize, Serialize};

use crate::{
    engine::{Caller, unsupported},
    extras::Inject,
    gateway::Gateway,
    job::Outcome,
    member::Member,
    returned, shape,
    target::unlisted,
};

/// What a task's id says once opened.
#[derive(Debug, Serialize, Deserialize)]
struct Ticket {
    upstream: String,
    /// The tool as the client called it.
    shown: String,
    /// The tool as the upstream knows it.
    tool: String,
    /// The task as the upstream knows it.
    task: Arc<str>,
}

/// Seals and opens the ids of tasks.
#[derive(Clone)]
pub(crate) struct TaskIds(Arc<Keyring>);

impl TaskIds {
    pub(crate) fn new(keyring: Arc<Keyring>) -> Self {
        Self(keyring)
    }

    fn seal(&self, owner: &[u8], ticket: &Ticket) -> String {
        let plain = serde_json::to_vec(ticket).expect("a ticket is plain data");
        self.0.seal(Purpose::TaskId, owner, &plain)
    }

    fn open(&self, owner: &[u8], id: &str) -> Option<Ticket> {
        let plain = self.0.open(Purpose::TaskId, owner, id).ok()?;
        serde_json::from_slice(&plain).ok()
    }
}

impl std::fmt::Debug for TaskIds {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TaskIds")
    }
}

/// Whose an id is. No principal has a line break in it.
fn owner(principal: &Principal, profile: Option<&str>) -> Vec<u8> {
    format!("{}\n{}", principal.as_str(), profile.unwrap_or_default()).into_bytes()
}

/// Gives the task that a tool call may make an id of ours.
#[derive(Debug)]
pub(crate) struct Issuer {
    pub(crate) ids: TaskIds,
    pub(crate) profile: Option<Arc<str>>,
    pub(crate) shown: Arc<str>,
    pub(crate) tool: Arc<str>,
}

impl Issuer {
    /// The same reply; if it describes a task, by our id.
    pub(crate) fn issue(&self, reply: Reply, member: &Member, principal: &Principal) -> Reply {
        let Some(task) = &reply.task else { return reply };
        let ticket = Ticket {
            upstream: member.name.as_ref().into(),
            shown: self.shown.as_ref().into(),
            tool: self.tool.as_ref().into(),
            task: Arc::clone(task),
        };
        let id = Raw::of(&self.ids.seal(&owner(principal, self.profile.as_deref()), &ticket));
        let named =
            |name: &str, _: &Raw| if name == "taskId" { Edit::Replace(id.clone()) } else { Edit::Keep };
        Reply { result: edit::members(&reply.result, named), ..reply }
    }
}

/// A task as its client knows it, and where it runs.
#[derive(Clone, Debug)]
pub(crate) struct Known {
    /// What the client calls it.
    pub(crate) given: Arc<str>,
    /// What its upstream calls it.
    pub(crate) id: Arc<str>,
    pub(crate) member: Arc<Member>,
    /// How the upstream learns the context ids.
    pub(crate) inject: Inject,
    /// Whether its tool's output is listed wrapped.
    wraps: bool,
}

impl Known {
    /// Whether both are the same task; one may have several ids.
    pub(crate) fn is_same(&self, other: &Self) -> bool {
        self.id == other.id && self.member.name == other.member.name
    }

    /// What its upstream says of it, for a client of `version`: with the client's id, a result as the tool itself would have
    /// answered, and an error as the call would have failed.
    pub(crate) fn told(&self, task: &Raw, version: Version) -> Raw {
        edit::members(task, |name, value| match name {
            "taskId" => Edit::Replace(Raw::of(&*self.given)),
            "result" => {
                let method = Method::CallTool;
                let reply = value.clone().into();
                let reply = returned::reply(reply, method, &self.member, version, self.wraps);
                Edit::Replace(shape::inner(method, &reply, version))
            }
            "error" => value.parse::<RpcError>().map_or(Edit::Keep, |error| {
                let error = CallError::upstream(moongate_core::Kind::Rpc { error }, "");
                match shape::error(Method::GetTask, &returned::error(error, None), version) {
                    shape::Failed::Error(refusal) => Edit::Replace(Raw::of(&refusal.error)),
                    _ => Edit::Keep,
                }
            }),
            _ => Edit::Keep,
        })
    }
}

impl Gateway {
    /// `tasks/get`, `tasks/update` and `tasks/cancel`.
    pub(crate) async fn task(&self, caller: &Caller, method: Method, params: &Params) -> Outcome {
        let given = params.task_id();
        let ticket = given.and_then(|id| self.ticket(caller, id));
        // A method of an extension that is not offered is none; who has a task was offered it once.
        if ticket.is_none() && !caller.snapshot.catalog.offers_tasks(caller.profile.as_deref(), None) {
            return Err(unsupported(method));
        }
        must_know_tasks(caller)?;
        let (given, ticket) = given.zip(ticket).ok_or_else(no_such_task)?;
        let act = match method {
            Method::GetTask => TaskAct::Get,
            Method::CancelTask => TaskAct::Cancel,
            Method::UpdateTask => {
                let responses = params
                    .input_responses()
                    .filter(Raw::is_object)
                    .ok_or_else(|| CallError::invalid_params("inputResponses is required, as an object"))?;
                TaskAct::Update { responses }
            }
            _ => return Err(unsupported(method)),
        };
        let task = self.known_task(caller, given, &ticket).await;
        let task = task.inspect_err(|error| self.refused(caller, error))?;
        let _counted = self.count_call(caller)?;
        let asks = matches!(act, TaskAct::Get);
        let operation = Operation::Task { id: Arc::clone(&task.id), act };
        let outcome = self.quietly(caller, params, &task.member, operation, task.inject).await;
        let (reply, cx) = outcome.map_err(|error| returned::error(error, None))?;
        if !asks {
            return Ok(Reply { freshness: None, ..reply });
        }
        if let Some(result) = reply.result.member("result") {
            self.learnt.learn(&cx.principal, &task.member.name, Method::CallTool, &result);
        }
        Ok(task.told(&reply.result, caller.client.version).into())
    }

    /// The task that a client calls `given`, if it is one of this caller's and the caller may still call its tool.
    ///
    /// # Errors
    /// Whatever forbids it.
    pub(crate) async fn find_task(&self, caller: &Caller, given: &str) -> Result<Known, CallError> {
        let ticket = self.ticket(caller, given).ok_or_else(no_such_task)?;
        self.known_task(caller, given, &ticket).await
    }

    fn ticket(&self, caller: &Caller, given: &str) -> Option<Ticket> {
        let owner = owner(caller.admitted.principal(), caller.profile.as_deref());
        self.task_ids.open(&owner, given)
    }

    async fn known_task(&self, caller: &Caller, given: &str, ticket: &Ticket) -> Result<Known, CallError> {
        let view = self.view(caller).await;
        let forwarded;
        let entry = match view.tool(&ticket.shown) {
            Ok(entry) => &**entry,
            Err(error) => {
                forwarded = unlisted(caller, &ticket.shown, error)?;
                &forwarded
            }
        };
        // The name may mean another tool by now.
        if *entry.member.name != *ticket.upstream || *entry.tool.name != *ticket.tool {
            return Err(no_such_task());
        }
        Ok(Known {
            given: given.into(),
            id: Arc::clone(&ticket.task),
            member: Arc::clone(&entry.member),
            inject: entry.extras.inject,
            wraps: entry.wraps,
        })
    }
}

/// Whether a request may speak of tasks.
///
/// # Errors
/// `MissingCapability`: it did not declare the extension.
pub(crate) fn must_know_tasks(caller: &Caller) -> Result<(), CallError> {
    if caller.client.has_extension(TASKS) { Ok(()) } else { Err(CallError::missing_extension(TASKS)) }
}

fn no_such_task() -> CallError {
    CallError::invalid_params("taskId: it is not one that this gateway gave to this caller here")
}

#[cfg(test)]
mod tests;
