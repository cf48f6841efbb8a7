//! The resources that a legacy session watches, each at the backend that was asked to.
//!
//! A backend counts who watches a resource and does not know them apart. So a session remembers what it asked for, asks no
//! backend twice, and takes back nothing but its own: by request, or all of it when it ends. It is taken back from the
//! backend that was asked, as the caller who asked, whatever became of names and rules meanwhile.

use std::{sync::Arc, time::Duration};

use futures_util::future::join_all;
use moongate_core::{Call, CallError, Context, Operation, hash::Map};
use moongate_wire::Params;
use tokio::time::Instant;

use crate::{
    engine::Caller,
    extras::Inject,
    gateway::Gateway,
    job::{Outbox, Outcome, within},
    member::Member,
    returned,
    session::Live,
};

/// How long backends may take to let go of what an ended session watched.
const RELEASE: Duration = Duration::from_secs(10);

/// What one session watches, by address.
pub(crate) type Watches = Map<Arc<str>, Watch>;

/// One resource that a backend was asked to watch.
#[derive(Debug)]
pub(crate) struct Watch {
    pub(crate) member: Arc<Member>,
    uri: Arc<str>,
    cx: Context,
}

impl Watch {
    /// Tells the backend that this one is over.
    ///
    /// # Errors
    /// What the backend said, or that it took longer than `limit`.
    pub(crate) async fn end(self, limit: Duration) -> Outcome {
        let Self { member, uri, cx } = self;
        let start = Instant::now();
        let cx = Context { deadline: start + limit, ..cx };
        let call = Call::new(Operation::Unsubscribe { uri: Arc::clone(&uri) });
        let ending = member.backend.call(call, &cx);
        let outcome = within(limit, start, &Outbox::default(), member.upstream_name(), ending).await;
        outcome.map_err(|error| returned::error(error, Some(&uri)))
    }
}

impl Gateway {
    /// Asks the backend that owns `uri` to watch it.
    ///
    /// # Errors
    /// That nobody owns it, or what the backend said.
    ///
    /// # Cancel safety
    /// Cancel safe, as far as the backend is.
    pub(crate) async fn watch(
        &self,
        caller: &Caller,
        params: &Params,
        uri: &Arc<str>,
    ) -> Result<Watch, CallError> {
        let view = self.view(caller).await;
        let _counted = self.count_call(caller)?;
        let owner =
            self.resource_owner(caller, &view, uri).inspect_err(|error| self.refused(caller, error))?;
        let operation = Operation::Subscribe { uri: Arc::clone(uri) };
        match self.quietly(caller, params, owner, operation, Inject::None).await {
            Ok((_, cx)) => Ok(Watch { member: Arc::clone(owner), uri: Arc::clone(uri), cx }),
            Err(error) => Err(returned::error(error, Some(uri))),
        }
    }

    /// Ends all that a session watches; it must not watch anything new by now.
    pub(crate) async fn release(&self, live: &Live) {
        let watches = std::mem::take(&mut *live.watches.lock().await);
        end_all(watches.into_values()).await;
    }
}

/// Tells the backends that all of these are over.
pub(crate) async fn end_all(watches: impl IntoIterator<Item = Watch>) {
    // Not an async closure: rustc 1.95 stumbles over one here when it compiles incrementally.
    let ends = watches.into_iter().map(|watch| async move {
        let uri = Arc::clone(&watch.uri);
        if let Err(error) = watch.end(RELEASE).await {
            tracing::debug!(%uri, %error, "what is not watched any more was not released");
        }
    });
    join_all(ends).await;
}

#[cfg(test)]
mod tests;
