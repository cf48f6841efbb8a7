//! `subscriptions/listen`: a modern client's long-lived request for what changes.

use std::{future::Future, pin::Pin, sync::Arc};

use moongate_core::{CallError, Operation};
use moongate_wire::{Id, Params, Raw, write};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    engine::{self, Caller},
    gateway::Gateway,
    hub::{self, Filter, Listener},
    tally::Counted,
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

/// Resources one client may watch at a time; every change is compared with each.
pub const MAX_SUBSCRIPTIONS: usize = 1024;

/// A running listen.
#[derive(Debug)]
pub struct Listening {
    id: Id,
    caller: Caller,
    gateway: Arc<Gateway>,
    listener: Listener,
    honoured: Wanted,
    /// A listen counts as a call in progress.
    _counted: Counted,
}

impl Gateway {
    /// Starts listening for what `params` asks; what cannot be honoured is left out of the acknowledgement.
    ///
    /// # Errors
    /// `InvalidParams` when the filter cannot be read.
    pub(crate) async fn listen(
        self: &Arc<Self>,
        caller: &Caller,
        id: Id,
        params: Option<&Raw>,
    ) -> Result<Listening, CallError> {
        let counted = self.count_call(caller)?;
        let filter = params.and_then(|params| params.member("notifications"));
        // Without this look an array would do as well: its items would be taken for the members in order.
        let filter = filter
            .filter(Raw::is_object)
            .ok_or_else(|| CallError::invalid_params("notifications is required, as an object"))?;
        let mut wanted = filter.parse::<Wanted>().map_err(CallError::invalid_params)?;
        if wanted.resource_subscriptions.len() > MAX_SUBSCRIPTIONS {
            let message = format!("at most {MAX_SUBSCRIPTIONS} resources can be watched at a time");
            return Err(CallError::invalid_params(message));
        }
        // Listen before subscribing: a change right after the subscription must not be missed.
        let session = engine::session_of(caller, &Params::default());
        let watched = |uris: &[String]| uris.iter().map(|uri| (uri.clone(), session.to_string())).collect();
        let filter = Filter {
            tools: wanted.tools_list_changed,
            prompts: wanted.prompts_list_changed,
            resources: wanted.resources_list_changed,
            uris: watched(&wanted.resource_subscriptions),
        };
        let listener = self.hub.listen(caller.admitted.principal().clone(), filter);
        let mut honoured = Vec::new();
        for uri in std::mem::take(&mut wanted.resource_subscriptions) {
            let operation = Operation::Subscribe { uri: uri.as_str().into() };
            match Box::pin(self.call_quietly(caller, &Params::default(), operation)).await {
                Ok(_) => honoured.push(uri),
                Err(error) => tracing::debug!(%uri, %error, "subscription not honoured"),
            }
        }
        listener.refine(|filter| filter.uris = watched(&honoured));
        wanted.resource_subscriptions = honoured;
        let client = Arc::new(caller.client.detached());
        Ok(Listening {
            id,
            caller: Caller { client, ..caller.clone() },
            gateway: Arc::clone(self),
            listener,
            honoured: wanted,
            _counted: counted,
        })
    }
}

impl Listening {
    /// Tells `out` what changes until the client leaves or cancels, or `stop` resolves and the listen is closed in order.
    ///
    /// # Cancel safety
    /// Dropping the future leaves subscriptions at their backends; run it to its end.
    pub async fn run(
        &self,
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
        for uri in &self.honoured.resource_subscriptions {
            let operation = Operation::Unsubscribe { uri: uri.as_str().into() };
            // On the heap: a listen waits for hours, and should not carry the room of a call all the while.
            let params = Params::default();
            let call = Box::pin(self.gateway.call_quietly(&self.caller, &params, operation));
            if let Err(error) = call.await {
                tracing::debug!(%uri, %error, "unsubscribe failed");
            }
        }
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
                if out.send(hub::notification(&change, Some(&self.id))).await.is_err() {
                    return;
                }
            }
        }
    }
}
