//! Modern requests over HTTP: each stands alone, and who closes the connection cancels.
//!
//! The head of the answer waits for the first thing the call says: an outcome is JSON with its own status, a note makes
//! the answer a stream, and questions end it as `input_required`.

use std::{
    pin::pin,
    sync::Arc,
    task::{Context, Poll},
};

use bytes::Bytes;
use http::Response;
use moongate_core::{CallError, Kind};
use moongate_telemetry::Transport;
use moongate_wire::{
    Method, Params, Raw, Request, Version, header,
    ladder::{self, Headers},
    write,
};
use tokio::sync::mpsc;

use super::{Visit, accept::Accept, answer, names, standing::Standing};
use crate::{
    edge::{
        body::{Body, Source},
        sse,
    },
    engine::{self, Caller, Identity, Way},
    gateway::Gateway,
    job::{Job, Step},
    listen::{self, Closing},
    modern,
    parked::Resumed,
    shape,
    target::Undeclared,
    view::ToolEntry,
};

impl Visit<'_> {
    pub(super) async fn modern(&self, request: &Request, accept: Accept) -> Response<Body> {
        let headers = Headers {
            version: names::repeated(self.named.version),
            method: names::repeated(self.named.method),
            name: names::repeated(self.named.name),
        };
        let (version, method) = match ladder::check_http(request, &headers) {
            Ok(checked) => checked,
            Err(refusal) => return answer::refused(Some(&request.id), &refusal),
        };
        if let Err(response) = self.enter(Some(&request.id), None).await {
            return *response;
        }
        let caller = match self.modern_caller(version, &request.params) {
            Ok(caller) => caller,
            Err(error) => return answer::failure(&request.id, method, &error, version, accept),
        };
        if method.may_ask() {
            return self.modern_call(&caller, request, method, accept).await;
        }
        if method == Method::Listen {
            return Box::pin(self.listen(&caller, request, version, accept)).await;
        }
        let started = tokio::time::Instant::now();
        let outcome = Box::pin(self.gateway.modern_quick(&caller, method, request)).await;
        self.gateway.observe(method, Transport::Tcp, started, &outcome);
        answer::outcome(&request.id, method, outcome, version, accept)
    }

    fn modern_caller(&self, version: Version, params: &Params) -> Result<Caller, CallError> {
        let (client, log_level) = modern::client(version, params)?;
        Ok(Caller {
            snapshot: Arc::clone(&self.snapshot),
            admitted: Arc::clone(&self.admitted),
            profile: self.profile.clone(),
            client: Arc::new(client),
            transport: Transport::Tcp,
            header_ids: self.header_ids(),
            trace: self.trace(),
            transport_session: None,
            log_level,
        })
    }

    async fn modern_call(
        &self,
        caller: &Caller,
        request: &Request,
        method: Method,
        accept: Accept,
    ) -> Response<Body> {
        let (id, params) = (&request.id, &request.params);
        let version = caller.client.version;
        // Only those who ask are asked again.
        let identity = || Identity::of(caller.profile.as_ref(), method, params);
        let check = |entry: &ToolEntry, arguments: &Raw| self.header_params(entry, arguments);
        let request = (id.clone(), method, params);
        let started = if let Some(state) = params.request_state() {
            Box::pin(self.gateway.resume(caller, request, &identity(), &state, &check)).await
        } else {
            let way = Way::Rounds { responses: params.input_responses() };
            let outbox = engine::outbox(caller, params);
            self.gateway.begin(caller, request, outbox, way, &check).await.map(Resumed::Go)
        };
        let mut job = match started {
            Ok(Resumed::Go(job)) => job,
            Ok(Resumed::Again(result)) => return answer::message(200, write::result(id, &result), accept),
            Err(error) => return answer::failure(id, method, &error, version, accept),
        };
        loop {
            match job.step().await {
                Step::Message(message) if accept.events => {
                    let call = RunningCall {
                        gateway: Arc::clone(self.gateway),
                        caller: caller.clone(),
                        method,
                        identity: identity(),
                        job: Some(job),
                        first: Some(message),
                    };
                    return answer::events(|open| Body::live(call, open), self.gateway.open_stream());
                }
                // Without a stream notes cannot be told.
                Step::Message(_) | Step::HangUp => {}
                Step::Ask(questions) => {
                    return match self.gateway.park(caller, &identity(), job, questions) {
                        Ok(result) => answer::message(200, write::result(id, &result), accept),
                        Err(error) => answer::failure(id, method, &error, version, accept),
                    };
                }
                Step::Cancelled => return answer::accepted(),
                Step::Done(outcome) => return answer::outcome(id, method, outcome, version, accept),
            }
        }
    }

    /// Checks the headers that repeat arguments; those that repeat none go on to an upstream as they came.
    fn header_params(&self, entry: &ToolEntry, arguments: &Raw) -> Result<Undeclared, CallError> {
        let params = entry
            .tool
            .header_params
            .iter()
            .map(|param| (&*param.header, param.path.iter().map(|step| &**step)));
        let value = |name: &str| {
            let name = format!("{}{name}", header::PARAM_PREFIX);
            self.head.headers.get(&name)
        };
        header::check_params(params, arguments, value)
            .map_err(|error| CallError::client(Kind::Rpc { error: error.clone() }, error.message))?;
        let passes_on = self.named.has_params && entry.member.is_upstream;
        Ok(if passes_on { names::undeclared(&self.head.headers, &entry.tool) } else { Vec::new() })
    }

    async fn listen(
        &self,
        caller: &Caller,
        request: &Request,
        version: Version,
        accept: Accept,
    ) -> Response<Body> {
        if !accept.events {
            let error = CallError::invalid_params(
                "subscriptions/listen answers with text/event-stream, which is not accepted",
            );
            return answer::failure(&request.id, Method::Listen, &error, version, accept);
        }
        let id = &request.id;
        let listening = match self.gateway.listen(caller, id.clone(), &request.params).await {
            Ok(listening) => listening,
            Err(error) => return answer::failure(id, Method::Listen, &error, version, accept),
        };
        let (out, messages) = mpsc::channel(listen::CAPACITY);
        let (drain, standing) = (self.conn.drain.clone(), Standing::of(self));
        self.gateway.tasks.spawn(async move {
            let (lost, draining) = (pin!(standing.lost()), pin!(drain.begun()));
            listening.run(out, lost, draining, Closing::Result).await;
        });
        answer::events(|open| Body::live(Messages(messages), open), self.gateway.open_stream())
    }
}

/// A modern call that answers with a stream. Dropping it cancels the call.
struct RunningCall {
    gateway: Arc<Gateway>,
    caller: Caller,
    method: Method,
    identity: Identity,
    job: Option<Job>,
    /// What was said before the stream began.
    first: Option<Raw>,
}

impl RunningCall {
    /// The last message for a step that ends the stream, if it does.
    fn last(&mut self, step: Step) -> Option<Raw> {
        let version = self.caller.client.version;
        let job = self.job.take()?;
        let id = job.id.clone();
        match step {
            Step::Ask(questions) => match self.gateway.park(&self.caller, &self.identity, job, questions) {
                Ok(result) => Some(write::result(&id, &result)),
                Err(error) => Some(shape::final_message(&id, self.method, Err(error), version)),
            },
            Step::Done(outcome) => Some(shape::final_message(&id, self.method, outcome, version)),
            Step::Cancelled | Step::Message(_) | Step::HangUp => None,
        }
    }
}

impl Source for RunningCall {
    fn poll_event(&mut self, poller: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if let Some(first) = self.first.take() {
            return Poll::Ready(Some(sse::event(None, &first)));
        }
        loop {
            let Some(job) = &mut self.job else { return Poll::Ready(None) };
            match job.poll_step(poller) {
                Poll::Pending => return Poll::Pending,
                Poll::Ready(Step::Message(message)) => return Poll::Ready(Some(sse::event(None, &message))),
                Poll::Ready(Step::HangUp) => {}
                Poll::Ready(step) => {
                    return Poll::Ready(self.last(step).map(|message| sse::event(None, &message)));
                }
            }
        }
    }
}

/// Messages that another task writes.
struct Messages(mpsc::Receiver<Raw>);

impl Source for Messages {
    fn poll_event(&mut self, poller: &mut Context<'_>) -> Poll<Option<Bytes>> {
        self.0.poll_recv(poller).map(|message| message.map(|message| sse::event(None, &message)))
    }
}
