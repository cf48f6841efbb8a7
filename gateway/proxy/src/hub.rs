//! Tells listeners what changed: GET streams, pipes and `subscriptions/listen`. Nobody hears of what concerns others only.
//!
//! Each listener keeps a set of changes it has not told yet. A change that is already in the set is not added twice, so
//! nothing is lost and nothing piles up, however slow the client is.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moongate_core::{Announcement, Audience, Change, Principal};
use moongate_wire::{Id, Raw, edit, write};
use tokio::sync::Notify;

/// Changes within this time are told together.
const COALESCE: Duration = Duration::from_millis(20);

/// Which changes a listener wants.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `notifications/tools/list_changed`
    pub tools: bool,
    /// `notifications/prompts/list_changed`
    pub prompts: bool,
    /// `notifications/resources/list_changed`
    pub resources: bool,
    /// `notifications/resources/updated` of these, and of what lies inside them; each with the session it is watched for.
    pub uris: BTreeMap<String, String>,
    /// `notifications/tasks` of these: the backend and what it calls the task.
    pub tasks: BTreeSet<(Arc<str>, Arc<str>)>,
}

impl Filter {
    /// All lists, no resource.
    pub fn lists() -> Self {
        Self { tools: true, prompts: true, resources: true, ..Self::default() }
    }

    /// Whether `principal` wants to hear of `change`, told to `audience`. Lists are the same in all sessions of a principal.
    fn wants(&self, change: &Change, principal: &Principal, audience: &Audience) -> bool {
        match change {
            Change::Tools => self.tools && audience.has(principal),
            Change::Prompts => self.prompts && audience.has(principal),
            Change::Resources | Change::OwnResources => self.resources && audience.has(principal),
            Change::Updated { uri } => self
                .uris
                .iter()
                .any(|(watched, session)| covers(watched, uri) && audience.has_session(principal, session)),
            // Lists and tasks are a principal's; a task's name at its backend says of which session and process it is.
            Change::Task { backend, id, .. } => {
                audience.has(principal) && self.tasks.contains(&(Arc::clone(backend), Arc::clone(id)))
            }
        }
    }
}

/// Whether a subscription to `watched` covers `uri`: the same, or a sub-resource of it.
fn covers(watched: &str, uri: &str) -> bool {
    uri.strip_prefix(watched)
        .is_some_and(|rest| rest.is_empty() || watched.ends_with('/') || rest.starts_with(['/', '#', '?']))
}

/// Everybody who listens in this process.
#[derive(Debug, Default)]
pub struct Hub {
    listeners: Mutex<HashMap<u64, Arc<Inbox>>>,
    next: AtomicU64,
}

#[derive(Debug)]
struct Inbox {
    principal: Principal,
    filter: Mutex<Filter>,
    untold: Mutex<BTreeSet<Change>>,
    news: Notify,
}

/// One listener; it stops listening when dropped.
#[derive(Debug)]
pub struct Listener {
    hub: Arc<Hub>,
    number: u64,
    inbox: Arc<Inbox>,
}

impl Hub {
    /// Starts listening on behalf of `principal`.
    pub fn listen(self: &Arc<Self>, principal: Principal, filter: Filter) -> Listener {
        let (filter, untold, news) = (Mutex::new(filter), Mutex::default(), Notify::new());
        let inbox = Arc::new(Inbox { principal, filter, untold, news });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        lock(&self.listeners).insert(number, Arc::clone(&inbox));
        Listener { hub: Arc::clone(self), number, inbox }
    }

    /// Tells everybody whom it concerns and who wants to know. Never blocks.
    pub fn publish(&self, Announcement { change, audience }: &Announcement) {
        for inbox in lock(&self.listeners).values() {
            if lock(&inbox.filter).wants(change, &inbox.principal, audience) {
                let mut untold = lock(&inbox.untold);
                if matches!(change, Change::Task { .. }) {
                    untold.retain(|older| !older.is_outdone_by(change));
                }
                untold.insert(change.clone());
                drop(untold);
                inbox.news.notify_one();
            }
        }
    }
}

impl Listener {
    /// Waits for changes and takes all that came within a short while.
    ///
    /// # Cancel safety
    /// Cancel safe: changes that were not returned stay untold.
    pub async fn changes(&self) -> Vec<Change> {
        loop {
            if !lock(&self.inbox.untold).is_empty() {
                tokio::time::sleep(COALESCE).await;
                return std::mem::take(&mut *lock(&self.inbox.untold)).into_iter().collect();
            }
            self.inbox.news.notified().await;
        }
    }

    /// Takes changes back that could not be told.
    pub fn untold(&self, changes: impl IntoIterator<Item = Change>) {
        lock(&self.inbox.untold).extend(changes);
        self.inbox.news.notify_one();
    }

    /// Changes what is listened for.
    pub fn refine(&self, change: impl FnOnce(&mut Filter)) {
        change(&mut lock(&self.inbox.filter));
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        lock(&self.hub.listeners).remove(&self.number);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The notification for a change; on a `subscriptions/listen` it names the listen request.
pub fn notification(change: &Change, subscription: Option<&Id>) -> Raw {
    let (method, params) = match change {
        Change::Tools => ("notifications/tools/list_changed", Raw::empty_object()),
        Change::Prompts => ("notifications/prompts/list_changed", Raw::empty_object()),
        Change::Resources | Change::OwnResources => {
            ("notifications/resources/list_changed", Raw::empty_object())
        }
        Change::Updated { uri } => {
            ("notifications/resources/updated", write::object([("uri", &Raw::of(&**uri))]))
        }
        Change::Task { task, .. } => {
            let task = Raw::from_text(task.to_string()).unwrap_or_else(|_| Raw::empty_object());
            ("notifications/tasks", task)
        }
    };
    write::notification(method, &subscription.map_or_else(|| params.clone(), |id| naming(&params, id)))
}

/// `params` that name the listen request they belong to.
fn naming(params: &Raw, subscription: &Id) -> Raw {
    let own = params.member("_meta").filter(Raw::is_object).unwrap_or_else(Raw::empty_object);
    let named = ("io.modelcontextprotocol/subscriptionId", Raw::of(subscription));
    let rest = edit::remove(params, |name, _| name == "_meta");
    write::with_members(&rest, &[("_meta", write::with_members(&own, &[named]))])
}

#[cfg(test)]
mod tests {
    use moongate_core::SessionKey;

    use super::*;

    fn updated(uri: &str) -> Change {
        Change::Updated { uri: uri.into() }
    }

    fn to_all(change: Change) -> Announcement {
        Announcement { change, audience: Audience::Everybody }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_coalesced_and_never_lost() {
        let hub = Arc::new(Hub::default());
        let listener = hub.listen(Principal::local(), Filter::lists());
        for _ in 0..1000 {
            hub.publish(&to_all(Change::Tools));
        }
        hub.publish(&to_all(Change::Prompts));
        hub.publish(&to_all(updated("test://x")));
        assert_eq!(listener.changes().await, [Change::Tools, Change::Prompts]);
        listener.refine(|filter| filter.uris = [("test://x".to_owned(), "s".to_owned())].into());
        hub.publish(&to_all(updated("test://x/part")));
        hub.publish(&to_all(updated("test://xy")));
        assert_eq!(listener.changes().await, [updated("test://x/part")]);
        drop(listener);
        assert!(lock(&hub.listeners).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn of_a_task_only_the_last_word_is_told_and_only_to_those_who_follow_it() {
        let hub = Arc::new(Hub::default());
        let follower = hub.listen(
            Principal::local(),
            Filter { tasks: [("a".into(), "1".into())].into(), ..Filter::default() },
        );
        let others = hub.listen(Principal::local(), Filter::lists());
        let task = |backend: &str, id: &str, text: &str| Change::Task {
            backend: backend.into(),
            id: id.into(),
            task: text.into(),
        };
        hub.publish(&to_all(task("a", "1", r#"{"status":"working"}"#)));
        hub.publish(&to_all(task("b", "1", "{}")));
        hub.publish(&to_all(task("a", "2", "{}")));
        let last = task("a", "1", r#"{"status":"completed","_meta":{"x":1}}"#);
        hub.publish(&to_all(last.clone()));
        hub.publish(&to_all(Change::Tools));
        assert_eq!(follower.changes().await, std::slice::from_ref(&last));
        assert_eq!(others.changes().await, [Change::Tools]);
        let told: serde_json::Value = notification(&last, Some(&Id::from(7))).parse().unwrap();
        assert_eq!(told["method"], "notifications/tasks");
        let meta = serde_json::json!({"x": 1, "io.modelcontextprotocol/subscriptionId": 7});
        assert_eq!(told["params"], serde_json::json!({"status": "completed", "_meta": meta}));
    }

    #[test]
    fn a_list_with_resources_of_ones_own_is_told_as_changed_to_its_owner() {
        let hub = Arc::new(Hub::default());
        let listen = |principal| hub.listen(principal, Filter { resources: true, ..Filter::default() });
        let (owner, other) = (listen(Principal::local()), listen(Principal::issued("other")));
        let audience = Audience::Principal(Principal::local());
        hub.publish(&Announcement { change: Change::OwnResources, audience });
        let told = lock(&owner.inbox.untold).first().map(|change| notification(change, None));
        let told = told.unwrap_or_else(Raw::empty_object);
        assert!(told.as_str().contains("notifications/resources/list_changed"), "{}", told.as_str());
        assert!(lock(&other.inbox.untold).is_empty());
    }

    #[test]
    fn nobody_is_told_what_concerns_others() {
        let hub = Arc::new(Hub::default());
        let uris: BTreeMap<_, _> = [("test://x".to_owned(), "s".to_owned())].into();
        let listen = |subject| {
            hub.listen(Principal::issued(subject), Filter { uris: uris.clone(), ..Filter::lists() })
        };
        let (a, b) = (listen("a"), listen("b"));
        let untold = |listener: &Listener| lock(&listener.inbox.untold).len();
        let key = |session: &str| SessionKey { principal: Principal::issued("a"), session: session.into() };
        let own = Audience::Principal(Principal::issued("a"));
        for (audience, change, told) in [
            (own.clone(), updated("test://x"), 1),
            (Audience::Session(key("t")), updated("test://x/1"), 1),
            (Audience::Session(key("s")), updated("test://x/2"), 2),
            (own, Change::Tools, 3),
            (Audience::Session(key("t")), Change::Prompts, 4),
        ] {
            hub.publish(&Announcement { change, audience });
            assert_eq!((untold(&a), untold(&b)), (told, 0));
        }
        hub.publish(&to_all(Change::Resources));
        assert_eq!((untold(&a), untold(&b)), (5, 1));
    }

    #[test]
    fn a_listen_notification_names_its_request_with_its_type() {
        let text = notification(&Change::Tools, Some(&Id::from(7)));
        assert!(text.as_str().contains(r#""io.modelcontextprotocol/subscriptionId":7"#), "{}", text.as_str());
        assert_eq!(
            notification(&Change::Tools, None).as_str(),
            r#"{"jsonrpc":"2.0","method":"notifications/tools/list_changed","params":{}}"#
        );
    }
}
