//! What a server says outside the stream of a request, and whose call it belongs to.
//!
//! On a pipe a question does not say which call caused it: it goes to the youngest call that is not waiting for an answer
//! already, else to the youngest. Changes go to the catalog. What nobody can answer is refused at once, so that no server
//! waits for ever; only a question for roots, which servers like to ask before anything else, waits for the first call.

use std::{
    collections::VecDeque,
    hash::{BuildHasher as _, RandomState},
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicBool, Ordering},
    },
};

use moongate_core::{Context, Principal, Raw, task::Group};
use moongate_wire::{Era, Id, Message, Notification, Request, RpcError, Version, code, write};
use tokio::sync::{Notify, Semaphore};

use super::{
    mailbox::{Mailbox, Slit},
    roots::{Book, Roots},
};
use crate::transport::{Inbound, Outward, Transport};

/// Questions for roots that wait for a call; further ones are refused.
const WAITING: usize = 4;

/// Answers that a server has not taken yet; one that asks on and never reads gets no further ones.
const UNTAKEN: usize = 64;

/// Something that happened at a server outside any call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum News {
    /// Its tools changed.
    Tools,
    /// Its prompts changed.
    Prompts,
    /// Its resources or templates changed.
    Resources,
    /// A resource was updated.
    Updated(Arc<str>),
    /// A task that is watched has got further.
    Task {
        /// Which.
        id: Arc<str>,
        /// How far it is, as `tasks/get` would say.
        task: Raw,
    },
    /// It asked a question where a question does not say whose call it belongs to.
    AskedUnbound,
    /// It asked for the roots of a client: from now on it is one that keeps to those.
    AskedRoots,
}

/// What a server that asks for roots is told.
#[derive(Clone, Debug, Default)]
pub(crate) struct Open {
    /// The result of `roots/list`, where it is known for all who share the connection.
    pub(crate) fixed: Option<Raw>,
    /// Whether whoever makes calls can be asked for roots.
    pub(crate) asked: bool,
    /// What sessions have said.
    pub(crate) book: Arc<Book>,
}

/// Listens to one connection.
pub(crate) struct Hearing {
    upstream: Arc<str>,
    tasks: Group,
    /// Tells this connection's tasks from those of others.
    mark: Arc<str>,
    open: Open,
    /// It was told that the server asks for roots.
    told_of_roots: AtomicBool,
    news: Box<dyn Fn(News) + Send + Sync>,
    transport: OnceLock<Weak<dyn Transport>>,
    version: OnceLock<Version>,
    calls: Mutex<Calls>,
    /// Told when the last call ends.
    quiet: Notify,
    /// Room for answers that the server has not taken yet.
    untaken: Arc<Semaphore>,
}

#[derive(Default)]
struct Calls {
    /// How many are under way, also those that wait for their client or for a task and have no request open.
    under_way: usize,
    /// Those with a request open, the youngest last. Most end in the order they began.
    running: VecDeque<Running>,
    /// Questions for roots that came before any call.
    waiting: Vec<Request>,
}

struct Running {
    id: i64,
    /// Whose call it is.
    principal: Principal,
    /// The session it came from; `None` where it does not say, which is nobody else's either.
    session: Option<Arc<str>>,
    messages: Slit,
}

/// A call that hears what is said to it; until it is dropped.
pub(super) struct Attention {
    hearing: Arc<Hearing>,
    id: i64,
    /// What is said.
    pub(super) messages: Mailbox,
}

impl Drop for Attention {
    fn drop(&mut self) {
        let mut calls = self.hearing.lock();
        let mine = calls.running.iter().position(|running| running.id == self.id);
        mine.and_then(|at| calls.running.remove(at));
    }
}

/// A call from its first request to its end; until it is dropped.
pub(super) struct UnderWay(Arc<Hearing>);

impl Drop for UnderWay {
    fn drop(&mut self) {
        let mut calls = self.0.lock();
        calls.under_way -= 1;
        if calls.under_way == 0 {
            self.0.quiet.notify_waiters();
        }
    }
}

impl Hearing {
    pub(crate) fn new(
        upstream: Arc<str>,
        open: Open,
        tasks: Group,
        news: impl Fn(News) + Send + Sync + 'static,
    ) -> Self {
        Self {
            upstream,
            // A new hasher is keyed at random.
            mark: format!("{:016x}", RandomState::new().hash_one(0)).into(),
            tasks,
            open,
            told_of_roots: AtomicBool::new(false),
            news: Box::new(news),
            transport: OnceLock::new(),
            version: OnceLock::new(),
            calls: Mutex::default(),
            quiet: Notify::new(),
            untaken: Arc::new(Semaphore::new(UNTAKEN)),
        }
    }

    /// The same, for a server whose tasks outlive a connection to it: whoever reaches it as `place` says finds them again.
    pub(crate) fn at(mut self, place: &str) -> Self {
        self.mark = place.into();
        self
    }

    /// A task of this connection as others know it: processes that count their tasks give the same names.
    pub(super) fn marked(&self, task: &str) -> Arc<str> {
        format!("{}/{task}", self.mark).into()
    }

    /// What the server calls a task that others know by `name`, if it is one of this connection's.
    pub(super) fn unmarked(&self, name: &str) -> Option<Arc<str>> {
        name.strip_prefix(&*self.mark)?.strip_prefix('/').map(Arc::from)
    }

    /// Answers go this way from now on.
    pub(super) fn bind(&self, transport: &Arc<dyn Transport>) {
        // A connection is bound once.
        let _bound = self.transport.set(Arc::downgrade(transport)).is_ok();
    }

    pub(super) fn greeted(&self, version: Version) {
        let _first = self.version.set(version).is_ok();
    }

    /// A call begins, of one request or several.
    pub(super) fn begin(self: &Arc<Self>) -> UnderWay {
        self.lock().under_way += 1;
        UnderWay(Arc::clone(self))
    }

    /// A request of a call of `cx` begins.
    pub(super) fn attend(self: &Arc<Self>, id: i64, cx: &Context) -> Attention {
        let messages = Mailbox::default();
        let mut calls = self.lock();
        for question in calls.waiting.drain(..) {
            // There is room for these: nobody else knows the channel yet.
            let _heard = messages.slit().put(Message::Request(question)).is_ok();
        }
        calls.running.push_back(Running {
            id,
            principal: cx.principal.clone(),
            session: cx.session_named.then(|| Arc::clone(&cx.ids.session)),
            messages: messages.slit(),
        });
        drop(calls);
        Attention { hearing: Arc::clone(self), id, messages }
    }

    /// Whether any call is under way.
    pub(super) fn any(&self) -> bool {
        self.lock().under_way > 0
    }

    /// Resolves when no call is under way.
    pub(super) async fn quiet(&self) {
        loop {
            let quiet = self.quiet.notified();
            if !self.any() {
                return;
            }
            quiet.await;
        }
    }

    /// Runs something that nobody waits for.
    pub(super) fn spawn(&self, work: impl Future<Output = ()> + Send + 'static) {
        self.tasks.spawn(work);
    }

    pub(super) fn tell(&self, news: News) {
        (self.news)(news);
    }

    /// The answer to `roots/list` for a call of `cx`, where it is known; `told` if the server was told that the client can
    /// be asked.
    pub(super) fn roots(&self, cx: &Context, told: bool) -> Option<Raw> {
        let kept = || self.open.book.kept(cx).filter(|_| told);
        self.open.fixed.clone().or_else(|| Some(kept()?.told))
    }

    /// The client of `cx` has said which roots it has.
    pub(super) fn keep_roots(&self, cx: &Context, told: &Raw) {
        if let Some(roots) = Roots::read(told) {
            self.open.book.keep(cx, &roots);
        }
    }

    /// The server asks for the roots of a client. Where they are known for all who share it, it learns nothing by that, and
    /// nothing more by asking again.
    pub(super) fn asks_for_roots(&self) {
        if self.open.fixed.is_none() && !self.told_of_roots.swap(true, Ordering::Relaxed) {
            self.tell(News::AskedRoots);
        }
    }

    /// As [`Inbound::hear`], for what came on a request's stream that has no call behind it.
    pub(super) fn hear_unrelated(&self, message: Message) {
        match message {
            Message::Notification(notification) => self.notified(notification),
            Message::Request(request) => self.asked(request, false),
            Message::Response(_) => {}
        }
    }

    fn notified(&self, notification: Notification) {
        match &*notification.method {
            "notifications/message" => self.logged(notification),
            "notifications/progress" => self.progressed(notification),
            "notifications/cancelled" => self.withdrawn(&notification),
            _ => self.changed(&notification),
        }
    }

    /// A change is one wherever it is said, also on the stream of a call that caused it. Other notifications are none.
    pub(super) fn changed(&self, notification: &Notification) {
        match &*notification.method {
            "notifications/tools/list_changed" => self.tell(News::Tools),
            "notifications/prompts/list_changed" => self.tell(News::Prompts),
            "notifications/resources/list_changed" => self.tell(News::Resources),
            "notifications/resources/updated" => {
                if let Some(uri) = notification.params.uri() {
                    self.tell(News::Updated(uri.into()));
                }
            }
            _ => {}
        }
    }

    /// The server does not want to know something any more. Whoever asks that question knows its id.
    fn withdrawn(&self, notification: &Notification) {
        let id = notification.params.raw().and_then(|params| params.member("requestId")?.parse::<Id>().ok());
        let mut calls = self.lock();
        calls.waiting.retain(|waiting| Some(&waiting.id) != id.as_ref());
        for call in &calls.running {
            let _heard = call.messages.put(Message::Notification(notification.clone())).is_ok();
        }
    }

    /// Where all calls share one stream, the token says whose progress it is: it is the call's id.
    fn progressed(&self, notification: Notification) {
        let token = notification.params.raw().and_then(|params| params.member("progressToken"));
        let Some(id) = token.and_then(|token| token.parse::<i64>().ok()) else { return };
        let calls = self.lock();
        let call = calls.running.iter().find(|call| call.id == id);
        // A call that does not keep up loses progress, as any client does.
        let _heard = call.is_some_and(|call| call.messages.put(Message::Notification(notification)).is_ok());
    }

    /// A log line goes to the call that is most likely its cause, unless that might be somebody else's.
    fn logged(&self, notification: Notification) {
        let calls = self.lock();
        let Some(youngest) = calls.running.back() else { return };
        if calls.running.iter().all(|call| call.principal == youngest.principal) {
            // A call that does not keep up loses logs, as any client does.
            let _heard = youngest.messages.put(Message::Notification(notification)).is_ok();
        }
    }

    fn asked(&self, request: Request, to_a_call: bool) {
        if self.version.get().is_some_and(|version| version.era() == Era::Modern) {
            return self.asked_by_a_modern_server(request);
        }
        match &*request.method {
            "ping" => self.respond(write::result(&request.id, &Raw::empty_object())),
            "roots/list" if self.open.fixed.is_some() => {
                let roots = self.open.fixed.clone().unwrap_or_else(Raw::null);
                self.respond(write::result(&request.id, &roots));
            }
            "sampling/createMessage" | "elicitation/create" | "roots/list" if to_a_call => {
                let roots = &*request.method == "roots/list";
                if !roots {
                    self.tell(News::AskedUnbound);
                }
                if self.is_anybodys() {
                    if roots {
                        self.asks_for_roots();
                    }
                    let why = "calls of several sessions are under way, and the question does not say whose it is; \
                               try again";
                    let error = RpcError::new(code::INTERNAL, why);
                    return self.respond(write::error(Some(&request.id), write::NoId::Omit, &error));
                }
                if let Some(unheard) = self.ask_the_youngest(request) {
                    self.refuse(&unheard.id, "no call is under way whose client could be asked");
                }
            }
            method => {
                let text = format!("the gateway does not answer {method} here");
                self.refuse(&request.id, text);
            }
        }
    }

    /// Its version has no requests of servers, and no answers to them: the call that it came with fails.
    fn asked_by_a_modern_server(&self, request: Request) {
        tracing::debug!(
            upstream = &*self.upstream,
            method = &*request.method,
            "a modern server sent a request"
        );
        if &*request.method != "ping" {
            // Where there is no call, or no room, nothing is lost by saying nothing.
            let _unheard = self.ask_the_youngest(request);
        }
    }

    /// Whether a question could be for the client of several calls, which are then told why they fail. Those that wait for
    /// an answer already are not taken for its cause: a modern client may have left them for good. Once a server has asked,
    /// each session has a connection of its own, and so has each call without one.
    fn is_anybodys(&self) -> bool {
        let calls = self.lock();
        let free = || calls.running.iter().filter(|call| !call.messages.is_asking());
        let Some(first) = free().next() else { return false };
        let several = free().skip(1).any(|other| {
            other.session.is_none()
                || (&other.principal, &other.session) != (&first.principal, &first.session)
        });
        if several {
            free().for_each(|call| call.messages.refuse());
        }
        several
    }

    /// Hands a question to the call that is most likely its cause. Gives it back when there is none.
    fn ask_the_youngest(&self, request: Request) -> Option<Request> {
        let mut calls = self.lock();
        let free = calls.running.iter().rev().find(|call| !call.messages.is_asking());
        let Some(call) = free.or_else(|| calls.running.back()) else {
            return if &*request.method == "roots/list" {
                self.wait(&mut calls, request)
            } else {
                Some(request)
            };
        };
        call.messages.asks();
        match *call.messages.put(Message::Request(request)).err()? {
            Message::Request(unheard) => Some(unheard),
            Message::Notification(_) | Message::Response(_) => None,
        }
    }

    /// Keeps a question for roots for the next call. Gives it back when nobody could answer it, or too many wait.
    fn wait(&self, calls: &mut Calls, request: Request) -> Option<Request> {
        if !self.open.asked || calls.waiting.len() >= WAITING {
            return Some(request);
        }
        calls.waiting.push(request);
        None
    }

    /// A question for roots that a call had no time for.
    pub(super) fn ask_later(&self, request: Request) {
        let unheard = self.wait(&mut self.lock(), request);
        if let Some(unheard) = unheard {
            self.refuse(&unheard.id, "no call is under way whose client could be asked");
        }
    }

    pub(super) fn refuse(&self, id: &Id, why: impl Into<std::borrow::Cow<'static, str>>) {
        let error = RpcError::new(code::METHOD_NOT_FOUND, why);
        self.respond(write::error(Some(id), write::NoId::Omit, &error));
    }

    /// Sends an answer without waiting for it to be taken: the one who listens must not block. A server that leaves too
    /// many untaken gets no more.
    pub(super) fn respond(&self, message: Raw) {
        let Some(transport) = self.transport.get().and_then(Weak::upgrade) else { return };
        let version = self.version.get().copied().unwrap_or(Version::LATEST_LEGACY);
        let upstream = Arc::clone(&self.upstream);
        let Ok(room) = Arc::clone(&self.untaken).try_acquire_owned() else {
            tracing::debug!(upstream = &*upstream, "a server does not take its answers; one was dropped");
            return;
        };
        self.tasks.spawn(async move {
            let _room = room;
            if let Err(error) = transport.send(Outward { message, version }).await {
                tracing::debug!(upstream = &*upstream, %error, "an answer to the server was lost");
            }
        });
    }

    fn lock(&self) -> MutexGuard<'_, Calls> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inbound for Hearing {
    fn hear(&self, message: Message) {
        match message {
            Message::Notification(notification) => self.notified(notification),
            Message::Request(request) => self.asked(request, true),
            // Transports keep responses to themselves.
            Message::Response(_) => {}
        }
    }
}
