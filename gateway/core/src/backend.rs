//! What the router calls: built-in backends, child processes and remote servers alike.

use std::sync::Arc;

use crate::{BoxFuture, Call, CallError, Context, Offer, Reply, ResourcePage, SessionKey};

/// Something that offers tools, prompts and resources and answers calls to them.
pub trait Backend: Send + Sync {
    /// What this caller is offered. Shared and cached; may start the upstream, waits no longer than the context's
    /// deadline, and announces what turns up later through its [`crate::Changes`].
    fn offer<'a>(&'a self, cx: &'a Context) -> BoxFuture<'a, Arc<Offer>>;

    /// Answers one call. Dropping the future cancels it.
    fn call<'a>(&'a self, call: Call, cx: &'a Context) -> BoxFuture<'a, Result<Reply, CallError>>;

    /// The resources that are this caller's own, those behind `after` or the first ones. Asked only where the offer says that
    /// there are some: they depend on the session and may change with each call, so nobody caches them.
    fn resources<'a>(
        &'a self,
        after: Option<&'a str>,
        cx: &'a Context,
    ) -> BoxFuture<'a, Result<ResourcePage, CallError>>;

    /// The client of a legacy session says that its roots have changed: what it said about them does not hold any more.
    fn roots_changed(&self, session: &SessionKey);

    /// The transport session is over: free what was kept for it in memory. Stored rows stay.
    fn session_ended(&self, session: &SessionKey);
}
