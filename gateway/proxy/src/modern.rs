//! What a modern request does, whichever edge it came by: quick requests, and calls that park and come back.

use std::sync::OnceLock;

use moongate_core::{CallError, Client, Kind, Operation};
use moongate_wire::{Id, Method, Params, Raw, Request, Version};

use crate::{
    engine::{self, Caller, Identity},
    gateway::Gateway,
    job::{Job, Outcome, Questions},
    parked::Resumed,
    shape,
    target::Check,
};

/// The client a modern request describes, and the log level it wants.
///
/// # Errors
/// `InvalidParams` for a level that is none.
pub(crate) fn client(
    version: Version,
    params: &Params,
) -> Result<(Client, Option<moongate_core::Level>), CallError> {
    let log_level = params.meta().log_level().as_ref().map(engine::log_level).transpose()?;
    let capabilities = params.meta().client_capabilities().unwrap_or_else(Raw::empty_object);
    let info = params.meta().client_info();
    Ok((Client { version, capabilities, info, able: OnceLock::new() }, log_level))
}

impl Gateway {
    /// Requests that are answered at once.
    pub(crate) async fn modern_quick(&self, caller: &Caller, method: Method, request: &Request) -> Outcome {
        let params = &request.params;
        match method {
            Method::Discover => Ok(self.discover(caller)),
            Method::ListTools | Method::ListPrompts | Method::ListResources | Method::ListTemplates => {
                self.list(caller, method, params).await
            }
            Method::Complete => {
                let all = params.raw().unwrap_or_else(Raw::empty_object);
                self.call_quietly(caller, params, Operation::Complete { params: all }).await
            }
            Method::GetTask | Method::UpdateTask | Method::CancelTask => {
                self.task(caller, method, params).await
            }
            _ => Err(engine::unsupported(method)),
        }
    }

    /// Takes up a parked call with a retry's answers, if the caller may still make that call.
    ///
    /// # Cancel safety
    /// As [`crate::parked::Parked::resume`].
    pub(crate) async fn resume(
        &self,
        caller: &Caller,
        request: (Id, Method, &Params),
        identity: &Identity,
        state: &Raw,
        check: &Check<'_>,
    ) -> Result<Resumed, CallError> {
        let (id, method, params) = request;
        self.target(caller, method, params, check).await.inspect_err(|error| self.refused(caller, error))?;
        let (principal, responses) = (caller.admitted.principal(), params.input_responses());
        let resumed =
            self.parked.resume(state, responses.as_ref(), principal, &identity.fingerprint(), id).await;
        self.metrics.parked_calls().set(self.parked.len());
        match resumed.map_err(|error| CallError::client(Kind::Rpc { error: error.clone() }, error.message))? {
            Resumed::Again(result) => Ok(Resumed::Again(shape::input_required(&result))),
            Resumed::Go(job) => {
                job.outbox().rebind(params.meta().progress_token(), caller.log_level);
                Ok(Resumed::Go(job))
            }
        }
    }

    /// Parks a call; the shaped `input_required` result.
    pub(crate) fn park(
        &self,
        caller: &Caller,
        identity: &Identity,
        job: Job,
        questions: Questions,
    ) -> Result<Raw, CallError> {
        let limit = caller.snapshot.config.security.limits.parked.map_or(usize::MAX, Into::into);
        let parked =
            self.parked.park(job, questions, caller.admitted.principal(), &identity.fingerprint(), limit);
        self.metrics.parked_calls().set(self.parked.len());
        parked.map(|result| shape::input_required(&result)).inspect_err(|error| self.refused(caller, error))
    }
}
