//! The backend itself: what it offers, and which file answers which call.

use std::sync::{
    Arc, Mutex, MutexGuard, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use moongate_core::{
    Backend, BoxFuture, Call, CallError, Change, Changes, Context, Offer, Operation, Raw, Reply,
    ResourcePage, SessionKey,
};

use crate::{completion, prompts, resources, tools};

/// The fixtures of the conformance suite.
#[derive(Debug)]
pub struct Fixture {
    changes: Changes,
    offer: Mutex<Arc<Offer>>,
    asked_twice: AtomicU64,
}

impl Fixture {
    /// A fixture that announces its changes to `changes`.
    pub fn new(changes: &Changes) -> Self {
        let offer = Offer {
            tools: tools::all(),
            prompts: prompts::all(),
            resources: resources::all(),
            templates: resources::templates(),
            instructions: Some("Fixtures of the MCP conformance suite.".into()),
            ..Offer::default()
        };
        Self { changes: changes.clone(), offer: Mutex::new(Arc::new(offer)), asked_twice: AtomicU64::new(0) }
    }

    /// Adds one more tool, or takes it away again, and says so.
    pub(crate) fn change_tools(&self) {
        self.change(Change::Tools, |offer| toggle(&mut offer.tools, tools::extra(), |tool| &tool.name));
    }

    /// Adds one more prompt, or takes it away again, and says so.
    pub(crate) fn change_prompts(&self) {
        self.change(Change::Prompts, |offer| {
            toggle(&mut offer.prompts, prompts::extra(), |prompt| &prompt.name);
        });
    }

    /// Says that the watched resource was updated.
    pub(crate) fn update_watched(&self) {
        self.changes.send(Change::Updated { uri: resources::WATCHED.into() });
    }

    /// Counts a start of the tool that asks twice: a call that is resumed must not be started again.
    pub(crate) fn count_execution(&self) -> u64 {
        self.asked_twice.fetch_add(1, Ordering::Relaxed) + 1
    }

    fn change(&self, change: Change, edit: impl FnOnce(&mut Offer)) {
        let mut current = self.current();
        edit(Arc::make_mut(&mut current));
        drop(current);
        // Only now: whoever hears of it and asks at once must see the new list.
        self.changes.send(change);
    }

    fn current(&self) -> MutexGuard<'_, Arc<Offer>> {
        self.offer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn answer(&self, operation: Operation, cx: &Context) -> Result<Reply, CallError> {
        match operation {
            Operation::CallTool { name, arguments } => {
                Ok(tools::call(self, &name, &arguments, cx).await?.into())
            }
            Operation::GetPrompt { name, arguments } => Ok(prompts::get(&name, &arguments, cx).await?.into()),
            Operation::ReadResource { uri } => resources::read(&uri),
            Operation::Complete { params } => Ok(completion::complete(&params)?.into()),
            Operation::Subscribe { uri } | Operation::Unsubscribe { uri } => {
                // The gateway remembers who subscribed; here it only matters that there is something to watch.
                resources::read(&uri).map(|_| Raw::empty_object().into())
            }
            Operation::Task { .. } => {
                Err(CallError::client(moongate_core::Kind::Unsupported, "Nothing here runs as a task"))
            }
        }
    }
}

impl Backend for Fixture {
    fn offer<'a>(&'a self, _cx: &'a Context) -> BoxFuture<'a, Arc<Offer>> {
        Box::pin(async { Arc::clone(&self.current()) })
    }

    fn call<'a>(&'a self, call: Call, cx: &'a Context) -> BoxFuture<'a, Result<Reply, CallError>> {
        Box::pin(self.answer(call.operation, cx))
    }

    fn resources<'a>(
        &'a self,
        _after: Option<&'a str>,
        _cx: &'a Context,
    ) -> BoxFuture<'a, Result<ResourcePage, CallError>> {
        Box::pin(std::future::ready(Ok(ResourcePage::default())))
    }

    fn roots_changed(&self, _session: &SessionKey) {
        // Nothing is kept of them.
    }

    fn session_ended(&self, _session: &SessionKey) {
        // Nothing is kept for a session.
    }
}

/// Removes the item called like `item`, or appends it when there is none.
fn toggle<T>(items: &mut Vec<Arc<T>>, item: Arc<T>, name: impl Fn(&T) -> &str) {
    let before = items.len();
    items.retain(|present| name(present) != name(&item));
    if items.len() == before {
        items.push(item);
    }
}

#[cfg(test)]
mod tests;
