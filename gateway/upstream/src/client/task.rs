//! Tools that only run as tasks, for clients that know nothing of tasks: the gateway starts the task, answers what it
//! asks, and waits for its result. What clients do that know tasks is left to [`super::relay`].
//!
//! A legacy server (2025-11-25) says so in the tool's definition, and `tasks/result` waits for the end. A modern one
//! refuses the call of a client without the extension, and is asked again and again how far the task is. A call that is
//! dropped cancels its task.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use moongate_core::{Context, Raw, Reply, TASKS};
use moongate_wire::{RpcError, edit, write};
use serde::Deserialize;
use serde_json::json;

use super::{
    call::Answered,
    connection::{Connection, Request},
    envelope::{self, Question},
    refusal::{Failure, quoted},
};

/// How often a server is asked that does not say how often it wants to be.
const USUAL_PAUSE: Duration = Duration::from_secs(1);
/// Whatever it says, it is asked no more and no less often.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// A task as either era describes it.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
struct Task {
    #[serde(rename = "taskId")]
    id: String,
    status: Status,
    status_message: Option<String>,
    #[serde(alias = "pollInterval")]
    poll_interval_ms: Option<u64>,
    input_requests: Option<Raw>,
    result: Option<Raw>,
    error: Option<RpcError>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Status {
    Working,
    InputRequired,
    Completed,
    Failed,
    Cancelled,
}

impl Task {
    fn pause(&self) -> Duration {
        let wanted = self.poll_interval_ms.map_or(USUAL_PAUSE, Duration::from_millis);
        wanted.clamp(SHORTEST_PAUSE, LONGEST_PAUSE)
    }
}

/// Whether a modern server refused a call because its client did not declare tasks.
pub(super) fn wants_task(failure: &Failure) -> bool {
    let Failure::Rpc(error) = failure else { return false };
    let required =
        error.data.as_ref().and_then(|data| data.member("requiredCapabilities")?.member("extensions"));
    error.code == moongate_wire::code::MISSING_CAPABILITY
        && required.is_some_and(|extensions| extensions.member(TASKS).is_some())
}

/// Whether a legacy tool's definition says that it only runs as a task.
pub(crate) fn only_runs_as_task(definition: &Raw) -> bool {
    let support =
        || definition.member("execution")?.member("taskSupport")?.text().map(|text| text == "required");
    definition.may_name("taskSupport") && support().unwrap_or(false)
}

impl Connection {
    /// Runs a tool of a legacy server as a task.
    ///
    /// # Errors
    /// What the server or the way to it said.
    pub(super) async fn legacy_task(
        &self,
        upstream: &str,
        ask: &Request<'_>,
        cx: &Context,
    ) -> Result<Reply, Failure> {
        let params = ask.params.with(&[("task", Raw::empty_object())]);
        let created = self.call_legacy(upstream, &Request { params, ..ask.clone() }, cx).await?;
        let Some(task) = created.result.member("task").and_then(|task| task.parse::<Task>().ok()) else {
            // It answered at once after all.
            return Ok(created);
        };
        let params = Raw::of(&json!({"taskId": task.id}));
        let cancel = Request::own("tasks/cancel", params.clone());
        let running = Running { connection: self, cancel: Some(cancel) };
        let ended = self.call_legacy(upstream, &Request::own("tasks/result", params), cx).await;
        let reply = ended.map_err(Failure::once_begun)?;
        running.ended();
        Ok(Reply { result: without_relation(&reply.result), ..reply })
    }

    /// Follows a task that a modern server has made for the call `ask`, made with [`declaring`], to its end.
    ///
    /// # Errors
    /// What the server, the way to it or the client said.
    pub(super) async fn drive(&self, made: &Raw, ask: &Request<'_>, cx: &Context) -> Result<Reply, Failure> {
        let unreadable = |error: serde_json::Error| {
            let why = quoted(&error.to_string());
            Failure::Invalid(format!("its task cannot be read: {why}").into())
        };
        let mut task: Task = made.parse().map_err(unreadable)?;
        let params = Raw::of(&json!({"taskId": task.id}));
        let name: Arc<str> = task.id.as_str().into();
        let capabilities = declaring(ask).capabilities;
        let of_task = |method, params| Request {
            name: Some(Arc::clone(&name)),
            capabilities: capabilities.clone(),
            ..Request::own(method, params)
        };
        let cancel = of_task("tasks/cancel", params.clone());
        let running = Running { connection: self, cancel: Some(cancel) };
        let mut answered = BTreeSet::new();
        loop {
            match task.status {
                Status::Working => {}
                Status::InputRequired => {
                    if let Some(answers) = self.answer_task(&task, &mut answered, ask, cx).await? {
                        let update = write::with_members(&params, &[("inputResponses", answers)]);
                        self.ask(&of_task("tasks/update", update)).await.map_err(Failure::once_begun)?;
                    }
                }
                Status::Completed | Status::Failed | Status::Cancelled => {
                    running.ended();
                    return outcome(task);
                }
            }
            tokio::time::sleep(task.pause()).await;
            let reply = self.ask(&of_task("tasks/get", params.clone())).await.map_err(Failure::once_begun)?;
            task = reply.result.parse().map_err(unreadable)?;
        }
    }

    /// Asks the client what a task wants to know and was not told yet.
    async fn answer_task(
        &self,
        task: &Task,
        answered: &mut BTreeSet<String>,
        ask: &Request<'_>,
        cx: &Context,
    ) -> Result<Option<Raw>, Failure> {
        let asked = task.input_requests.as_ref().map(Raw::members).unwrap_or_default();
        let read = |(key, question): (String, Raw)| Some((key, question.parse::<Question>().ok()?));
        let open: Vec<_> =
            asked.into_iter().filter(|(key, _)| !answered.contains(key)).filter_map(read).collect();
        if open.is_empty() {
            return Ok(None);
        }
        answered.extend(open.iter().map(|(key, _)| key.clone()));
        match self.answers(open, ask, cx).await? {
            Answered::All(answers) => Ok(Some(answers)),
            Answered::Refused(error) => Err(error.into()),
        }
    }
}

/// What a task that has ended amounts to.
fn outcome(task: Task) -> Result<Reply, Failure> {
    match (task.status, task.result, task.error) {
        (Status::Completed, Some(result), _) => Ok(envelope::plain(&result).into()),
        (Status::Failed, _, Some(error)) => Err(error.into()),
        (Status::Cancelled, ..) => Err(Failure::invalid("its task was cancelled")),
        _ => {
            let said = task.status_message.as_deref().unwrap_or("its task ended without a result");
            Err(Failure::Invalid(quoted(said).into()))
        }
    }
}

/// The same request of a client that knows tasks.
pub(super) fn declaring<'a>(ask: &Request<'a>) -> Request<'a> {
    Request { capabilities: Some(with_extension(ask.capabilities.as_ref())), ..ask.clone() }
}

/// A client's capabilities with the extension for tasks among them.
pub(crate) fn with_extension(capabilities: Option<&Raw>) -> Raw {
    let mut all: serde_json::Map<String, serde_json::Value> =
        capabilities.and_then(|declared| declared.parse().ok()).unwrap_or_default();
    let extensions = all.entry("extensions").or_insert_with(|| json!({}));
    if let Some(extensions) = extensions.as_object_mut() {
        extensions.insert(TASKS.to_owned(), json!({}));
    }
    Raw::of(&all)
}

/// A result without the word about its task, which the client did not ask for.
fn without_relation(result: &Raw) -> Raw {
    edit::members(result, |name, value| match name {
        "_meta" => {
            let rest = edit::remove(value, |key, _| key == "io.modelcontextprotocol/related-task");
            if rest == *value { edit::Edit::Keep } else { edit::Edit::Replace(rest) }
        }
        _ => edit::Edit::Keep,
    })
}

/// A task under way; cancelled when dropped.
struct Running<'a> {
    connection: &'a Connection,
    /// What cancels it, until it has ended.
    cancel: Option<Request<'static>>,
}

impl Running<'_> {
    /// There is nothing to cancel any more.
    fn ended(mut self) {
        self.cancel = None;
    }
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let Some(ask) = self.cancel.take() else { return };
        let mut exchange = self.connection.exchange(self.connection.mint(), &ask, &ask.params);
        self.connection.hearing.spawn(async move {
            // Whatever it says to that, nobody waits for it.
            while exchange.next().await.is_some() {}
        });
    }
}
