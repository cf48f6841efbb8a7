//! One call: to the connection of its slot, and once more where that cannot do anything twice.

use std::sync::Arc;

use moongate_core::{Call, CallError, Context, Operation, Raw, Reply, SessionKey, TASKS, TaskAct};
use moongate_wire::{Era, code};
use serde_json::json;

use super::{Inner, Share, offering, seating::Seat, timing::Timing};
use crate::{
    client::{self, Connection, Failure, Request},
    transport::{Fault, Way},
};

impl Inner {
    pub(super) async fn call(self: &Arc<Self>, call: &Call, cx: &Context) -> Result<Reply, CallError> {
        let seat = self.seat(&call.operation, cx).await?;
        let slot = Arc::clone(&seat.slot);
        if let Operation::Unsubscribe { uri } = &call.operation
            && slot.watch_no_more(uri)
        {
            return Ok(Raw::empty_object().into());
        }
        let name = &*self.name;
        let mut again = true;
        loop {
            let told = |failure: Failure| failure.into_call_error(name);
            let connection = self.connection(&slot).await.map_err(|fault| told(fault.into()))?;
            slot.used(
                cx.transport_session
                    .clone()
                    .map(|session| SessionKey { principal: cx.principal.clone(), session }),
            );
            // What is rare is on the heap, here and below: a future has room for all its branches and is moved whole.
            let outcome = match self.wanted(call, &seat, &connection, cx) {
                Some(wanted) => {
                    let sending = self.send(&connection, &seat, call, cx);
                    Box::pin(self.readings.read(&wanted, &self.metrics, sending)).await
                }
                None => self.send(&connection, &seat, call, cx).await,
            };
            let Err(failure) = outcome else { return outcome.map_err(told) };
            if !std::mem::take(&mut again)
                || !Box::pin(self.may_go_again(&failure, &call.operation, &seat, &connection)).await
            {
                return Err(told(failure));
            }
        }
    }

    /// Makes a call, and counts it: only what is sent counts, and not what was kept.
    async fn send(
        &self,
        connection: &Connection,
        seat: &Seat,
        call: &Call,
        cx: &Context,
    ) -> Result<Reply, Failure> {
        let timing = Timing::begin(&self.metrics, &seat.slot, method(&call.operation), cx.deadline);
        seat.begin();
        let outcome = self.perform(connection, seat, call, cx).await;
        timing.end(&outcome);
        if !matches!(outcome, Err(Failure::Fault(_) | Failure::Invalid(_))) {
            seat.answered();
        }
        outcome
    }

    /// Does what a failure asks for. True when the call may be made once more: the server did nothing, or nothing that
    /// cannot be done twice.
    async fn may_go_again(
        self: &Arc<Self>,
        failure: &Failure,
        operation: &Operation,
        seat: &Seat,
        connection: &Arc<Connection>,
    ) -> bool {
        let slot = &seat.slot;
        let modern = connection.version().era() == Era::Modern;
        match failure {
            Failure::Fault(fault @ (Fault::SessionGone | Fault::Unreached(_))) => {
                self.lost(slot, connection, fault).await;
                true
            }
            Failure::Fault(fault @ Fault::Lost(_)) => {
                // Over HTTP that was one stream of many; others go on.
                if self.reach.main.way() == Way::Pipe {
                    self.lost(slot, connection, fault).await;
                }
                reads(operation)
            }
            // The server is another than the one that was greeted.
            Failure::Rpc(error) if modern && error.code == code::UNSUPPORTED_VERSION => {
                self.doubt().await;
                let fault = Fault::Garbled("the server does not speak our version any more".into());
                self.lost(slot, connection, &fault).await;
                true
            }
            // The tool has changed, and with it what headers repeat.
            Failure::Rpc(error) if modern && error.code == code::HEADER_MISMATCH => {
                let listed = seat.lists.listed(&seat.abilities);
                self.refresh(&seat.lists, &listed, &[]);
                listed.fetched().await;
                true
            }
            Failure::Fault(_) | Failure::Rpc(_) | Failure::Call(_) | Failure::Invalid(_) => false,
        }
    }

    async fn perform(
        &self,
        connection: &Connection,
        seat: &Seat,
        call: &Call,
        cx: &Context,
    ) -> Result<Reply, Failure> {
        // A modern server hears with each request what its client can do; one that all share hears of nothing.
        let legacy = connection.version().era() == Era::Legacy;
        let told = !legacy && self.settings().share != Share::Gateway;
        let others = self.other_extensions(cx);
        let extended = told && !others.is_empty();
        let capabilities = told.then(|| seat.abilities.capabilities_with(others));
        let mut ask = match &call.operation {
            Operation::CallTool { name, arguments } => {
                let callable = seat.lists.listed(&seat.abilities).callable(name);
                let tool = callable.as_ref().map(|callable| &callable.tool);
                Request {
                    undeclared: offering::undeclared(tool, &call.undeclared),
                    param_headers: tool
                        .map(|tool| offering::param_headers(tool, arguments))
                        .unwrap_or_default(),
                    // Modern servers decide that themselves.
                    as_task: legacy && callable.as_ref().is_some_and(|callable| callable.only_as_task),
                    ..Request::named("tools/call", name, arguments)
                }
            }
            Operation::GetPrompt { name, arguments } => Request::named("prompts/get", name, arguments),
            Operation::ReadResource { uri } => Request {
                name: Some(Arc::clone(uri)),
                ..Request::own("resources/read", Raw::of(&json!({"uri": uri})))
            },
            Operation::Complete { params } => {
                let params = moongate_wire::edit::remove(params, |key, _| key == "_meta");
                Request::own("completion/complete", params)
            }
            Operation::Subscribe { uri } => {
                Box::pin(connection.subscribe(uri)).await?;
                return Ok(Raw::empty_object().into());
            }
            Operation::Unsubscribe { uri } => {
                Box::pin(connection.unsubscribe(uri)).await?;
                return Ok(Raw::empty_object().into());
            }
            Operation::Task { id, act } => {
                let capabilities = client::with_extension(capabilities.as_ref());
                return Box::pin(connection.act_on_task(id, act, capabilities, call.meta.as_ref())).await;
            }
        };
        ask.meta = call.meta.as_ref();
        ask.progress = call.meta.as_ref().is_some_and(wants_progress);
        ask.log_level = cx.log_level;
        ask.extended = extended;
        ask.relays_tasks = told
            && ask.method == "tools/call"
            && cx.client.has_extension(TASKS)
            && connection.greeting().offers_tasks();
        ask.capabilities =
            if ask.relays_tasks { Some(client::with_extension(capabilities.as_ref())) } else { capabilities };
        connection.call(&self.name, &ask, cx).await
    }
}

/// Whether a client gave a token to report progress under.
fn wants_progress(meta: &Raw) -> bool {
    meta.member("progressToken").is_some_and(|token| !token.is_null())
}

/// The method of an operation, for those who count.
fn method(operation: &Operation) -> &'static str {
    match operation {
        Operation::CallTool { .. } => "tools/call",
        Operation::GetPrompt { .. } => "prompts/get",
        Operation::ReadResource { .. } => "resources/read",
        Operation::Complete { .. } => "completion/complete",
        Operation::Subscribe { .. } => "resources/subscribe",
        Operation::Unsubscribe { .. } => "resources/unsubscribe",
        Operation::Task { act: TaskAct::Get, .. } => "tasks/get",
        Operation::Task { act: TaskAct::Update { .. }, .. } => "tasks/update",
        Operation::Task { act: TaskAct::Cancel, .. } => "tasks/cancel",
        // As the server is asked: a part of what is listened for.
        Operation::Task { act: TaskAct::Watch | TaskAct::Unwatch, .. } => "subscriptions/listen",
    }
}

/// Whether an operation changes nothing, so that it may be asked twice.
fn reads(operation: &Operation) -> bool {
    match operation {
        Operation::CallTool { .. } | Operation::Task { act: TaskAct::Update { .. }, .. } => false,
        Operation::Task { .. }
        | Operation::GetPrompt { .. }
        | Operation::ReadResource { .. }
        | Operation::Complete { .. }
        | Operation::Subscribe { .. }
        | Operation::Unsubscribe { .. } => true,
    }
}
