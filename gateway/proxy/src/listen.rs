//! `subscriptions/listen`: a modern client's long-lived request for what changes.

use std::{future::Future, sync::Arc};

use moongate_core::{CallError, Operation};
use moongate_wire::{Id, Params, Raw, write};
use serde::{Deserialize, Serialize};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    engine::Caller,
    gateway::Gateway,
    hub::{self, Filter, Listener},
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

/// A running listen.
#[derive(Debug)]
pub struct Listening {
    id: Id,
    caller: Caller,
    gateway: Arc<Gateway>,
    listener: Listener,
    honoured: Wanted,
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
        #[derive(Deserialize)]
        struct Filtered {
            notifications: Wanted,
        }
        let filtered = params.ok_or_else(|| CallError::invalid_params("notifications is required"))?;
        let mut wanted = filtered.parse::<Filtered>().map_err(CallError::invalid_params)?.notifications;
        // Listen before subscribing: a change right after the subscription must not be missed.
        let listener = self.hub.listen(Filter {
            tools: wanted.tools_list_changed,
            prompts: wanted.prompts_list_changed,
            resources: wanted.resources_list_changed,
            uris: wanted.resource_subscriptions.iter().cloned().collect(),
        });
        let mut honoured = Vec::new();
        for uri in std::mem::take(&mut wanted.resource_subscriptions) {
            let operation = Operation::Subscribe { uri: uri.as_str().into() };
            match self.call_quietly(caller, &Params::default(), operation).await {
                Ok(_) => honoured.push(uri),
                Err(error) => tracing::debug!(%uri, %error, "subscription not honoured"),
            }
        }
        listener.refine(|filter| filter.uris = honoured.iter().cloned().collect());
        wanted.resource_subscriptions = honoured;
        Ok(Listening { id, caller: caller.clone(), gateway: Arc::clone(self), listener, honoured: wanted })
    }
}

impl Listening {
    /// Tells `out` what changes until the client leaves, or `end` resolves and the listen is closed in order.
    ///
    /// # Cancel safety
    /// Dropping the future leaves subscriptions at their backends; run it to its end.
    pub async fn run(self, out: mpsc::Sender<Raw>, end: impl Future<Output = ()> + Send) {
        let meta = Raw::of(&json!({"io.modelcontextprotocol/subscriptionId": self.id}));
        let honoured = Raw::of(&self.honoured);
        let params = write::object([("_meta", &meta), ("notifications", &honoured)]);
        let acknowledged = write::notification("notifications/subscriptions/acknowledged", &params);
        if out.send(acknowledged).await.is_ok() {
            tokio::select! {
                () = out.closed() => {}
                () = self.tell(&out) => {}
                () = end => {
                    let result = write::object([("resultType", &Raw::of("complete")), ("_meta", &meta)]);
                    // A client that left in the same moment does not need the result.
                    drop(out.send(write::result(&self.id, &result)).await);
                }
            }
        }
        for uri in &self.honoured.resource_subscriptions {
            let operation = Operation::Unsubscribe { uri: uri.as_str().into() };
            if let Err(error) = self.gateway.call_quietly(&self.caller, &Params::default(), operation).await {
                tracing::debug!(%uri, %error, "unsubscribe failed");
            }
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
