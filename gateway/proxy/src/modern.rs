//! What a modern request does, whichever edge it came by: quick requests, and calls that park and come back.

use moongate_core::{CallError, Client, Operation};
use moongate_wire::{Id, Method, Params, Raw, Request, RpcError, Version};

use crate::{
    engine::{self, Caller, Identity},
    gateway::Gateway,
    job::{Job, Outcome, Questions},
    parked::Resumed,
    shape,
};

/// The client a modern request describes, and the log level it wants.
///
/// # Errors
/// `InvalidParams` for a level that is none.
pub(crate) fn client(
    version: Version,
    params: &Params,
) -> Result<(Client, Option<moongate_core::Level>), CallError> {
    let log_level = params.meta.log_level.as_ref().map(engine::log_level).transpose()?;
    let capabilities = params.meta.client_capabilities.clone().unwrap_or_else(Raw::empty_object);
    Ok((Client { version, capabilities, info: params.meta.client_info.clone() }, log_level))
}

impl Gateway {
    /// Requests that are answered at once; `None` for the others.
    pub(crate) async fn modern_quick(
        &self,
        caller: &Caller,
        method: Method,
        request: &Request,
        params: &Params,
    ) -> Option<Outcome> {
        Some(match method {
            Method::Discover => Ok(self.discover(caller).await),
            Method::ListTools | Method::ListPrompts | Method::ListResources | Method::ListTemplates => {
                self.list(caller, method, params.cursor.as_deref()).await
            }
            Method::Complete => {
                let all = request.params.clone().unwrap_or_else(Raw::empty_object);
                self.call_quietly(caller, params, Operation::Complete { params: all }).await
            }
            _ => return None,
        })
    }

    /// Takes up a parked call with a retry's answers.
    pub(crate) fn resume(
        &self,
        caller: &Caller,
        id: Id,
        identity: &Identity,
        state: &Raw,
        params: &Params,
    ) -> Result<Resumed, RpcError> {
        let principal = caller.admitted.principal();
        let resumed = self.parked.resume(
            state,
            params.input_responses.as_ref(),
            principal,
            &identity.fingerprint(),
            id,
        )?;
        if let Resumed::Go(job) = &resumed {
            job.outbox().rebind(params.meta.progress_token.clone(), caller.log_level);
        }
        Ok(match resumed {
            Resumed::Again(result) => Resumed::Again(shape::input_required(&result)),
            go @ Resumed::Go(_) => go,
        })
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
        parked.map(|result| shape::input_required(&result))
    }
}
