//! Legacy sessions of this process.
//!
//! What must be known about a session lives in `State`; a [`Live`] holds what only makes sense here and now: running
//! calls by request id, questions that wait for the client's answer, and the ends of open streams. It exists from a
//! session's first request after `initialize` to its end, so that a call finds everything ready; a session that this
//! process did not create has one while a stream or a call does.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use moongate_core::{
    Answer, Ask, BoxFuture, CallError, Client, Kind, Note, Principal,
    hash::Map,
    peer::{Answers, Link},
};
use moongate_storage::SessionRecord;
use moongate_wire::{Id, Raw, Version, frame::Outcome, write};
use tokio::{
    sync::{mpsc, oneshot},
    time::Instant,
};
use tokio_util::sync::CancellationToken;

use crate::{
    downgrade::question,
    hub::{Filter, Hub, Listener},
    job::Outbox,
    stream::Chunk,
    tally::Counted,
    watch::Watches,
};

/// How long a person may take to answer.
pub const ASK_TIMEOUT: Duration = Duration::from_mins(10);

/// The sessions of this process.
#[derive(Debug)]
pub struct Sessions {
    /// Names this process in the ids of questions, so that an answer finds its way back.
    instance: Arc<str>,
    live: Mutex<Map<Arc<str>, Weak<Live>>>,
    kept: Mutex<Map<Arc<str>, Kept>>,
    hub: Arc<Hub>,
}

/// What is kept for a session between its calls.
#[derive(Debug)]
struct Kept {
    _counted: Counted,
    /// From the first GET stream or subscription on, so that no change is lost while no stream is open.
    listener: Option<Arc<Listener>>,
    /// From the first request after `initialize` on.
    live: Option<Arc<Live>>,
}

/// One session as this process knows it.
#[derive(Debug)]
pub struct Live {
    /// The session's id.
    pub id: Arc<str>,
    instance: Arc<str>,
    sessions: Weak<Sessions>,
    client: OnceLock<Arc<Client>>,
    pending: Mutex<Map<Box<str>, oneshot::Sender<Outcome>>>,
    running: Mutex<Open<Calls>>,
    streams: Mutex<Open<Map<u64, Attached>>>,
    /// Numbers questions and writers.
    questions: AtomicU64,
    /// Held while the session's record is read, changed and written back.
    pub(crate) editing: tokio::sync::Mutex<()>,
    /// Held while a resource begins or ceases to be watched.
    pub(crate) watches: tokio::sync::Mutex<Watches>,
}

/// What is open in a session; once the session has ended, nothing opens any more.
#[derive(Debug, Default)]
struct Open<T> {
    entries: T,
    ended: bool,
}

/// The running calls of a session by their ids. Most sessions have one or none, which is too few to be hashed; many are
/// looked through, at most as many as `security.limits.calls` lets one caller have.
#[derive(Debug, Default)]
struct Calls(Vec<(Id, Arc<Outbox>)>);

impl Calls {
    fn contains(&self, id: &Id) -> bool {
        self.0.iter().any(|(known, _)| known == id)
    }

    fn get_mut(&mut self, id: &Id) -> Option<&mut Arc<Outbox>> {
        self.0.iter_mut().find(|(known, _)| known == id).map(|(_, outbox)| outbox)
    }

    /// Takes out the call with this id, if it is one that `goes`.
    fn take(&mut self, id: &Id, goes: impl FnOnce(&Arc<Outbox>) -> bool) -> Option<Arc<Outbox>> {
        let at = self.0.iter().position(|(known, _)| known == id)?;
        let (_, outbox) = self.0.get(at)?;
        goes(outbox).then(|| self.0.swap_remove(at).1)
    }
}

/// Why a call cannot start.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotStarted {
    /// A request with this id is still running.
    InUse,
    /// The session is over.
    Ended,
}

impl From<NotStarted> for CallError {
    fn from(why: NotStarted) -> Self {
        match why {
            NotStarted::InUse => {
                Self::client(Kind::InvalidParams, "Invalid params: a request with this id is still running")
            }
            NotStarted::Ended => Self::client(Kind::Cancelled, "session expired"),
        }
    }
}

/// Where a stream's events go now.
#[derive(Debug)]
struct Attached {
    /// Who writes: a second GET stream has the same number as the first, but another writer.
    writer: u64,
    reader: Option<mpsc::Sender<Chunk>>,
    /// Cancelled when the reader left or was replaced.
    gone: CancellationToken,
}

impl Sessions {
    /// No sessions yet.
    pub fn new(instance: Arc<str>, hub: Arc<Hub>) -> Self {
        Self { instance, live: Mutex::default(), kept: Mutex::default(), hub }
    }

    /// The name of this process in the ids of questions.
    pub fn instance(&self) -> Arc<str> {
        Arc::clone(&self.instance)
    }

    /// Remembers a session that was just created.
    pub fn created(&self, id: &Arc<str>, counted: Counted) {
        lock(&self.kept).insert(Arc::clone(id), Kept { _counted: counted, listener: None, live: None });
    }

    /// The session for use; every holder sees the same one.
    pub fn enter(self: &Arc<Self>, id: &str) -> Arc<Live> {
        let mut live = lock(&self.live);
        if let Some(found) = live.get(id).and_then(Weak::upgrade) {
            return found;
        }
        let new = Arc::new(Live::new(id.into(), Arc::clone(&self.instance), Arc::downgrade(self)));
        live.insert(Arc::clone(&new.id), Arc::downgrade(&new));
        if let Some(kept) = lock(&self.kept).get_mut(id) {
            kept.live = Some(Arc::clone(&new));
        }
        new
    }

    /// The session, if it is known here.
    fn find(&self, id: &str) -> Option<Arc<Live>> {
        lock(&self.live).get(id).and_then(Weak::upgrade)
    }

    /// The sessions that must not expire now.
    pub fn in_use(&self) -> Vec<Arc<str>> {
        let (live, kept) = (lock(&self.live), lock(&self.kept));
        // One holder may be what keeps it ready.
        let idle = |id: &str| kept.get(id).is_some_and(|kept| kept.live.is_some());
        let used = |id: &str, holders: usize| holders > 1 || (holders == 1 && !idle(id));
        live.iter().filter(|(id, live)| used(id, live.strong_count())).map(|(id, _)| Arc::clone(id)).collect()
    }

    /// What this session of `principal` hears of changes, from now on until it ends.
    pub fn listener(
        &self,
        id: &Arc<str>,
        principal: &Principal,
        uris: impl FnOnce(&mut Filter),
    ) -> Option<Arc<Listener>> {
        let mut kept = lock(&self.kept);
        let entry = kept.get_mut(id)?;
        let listen = || Arc::new(self.hub.listen(principal.clone(), Filter::lists()));
        let listener = entry.listener.get_or_insert_with(listen);
        listener.refine(uris);
        Some(Arc::clone(listener))
    }

    /// The session is over: its calls are cancelled, its streams end. What is left of it here is returned.
    pub fn ended(&self, id: &str) -> Option<Arc<Live>> {
        // Let go of only after the lock: the last holder of a session takes it off the list.
        let _kept = lock(&self.kept).remove(id);
        let live = self.find(id)?;
        live.end();
        Some(live)
    }
}

impl Live {
    /// A session of its own, such as a pipe's.
    pub fn new(id: Arc<str>, instance: Arc<str>, sessions: Weak<Sessions>) -> Self {
        Self {
            id,
            instance,
            sessions,
            client: OnceLock::new(),
            pending: Mutex::default(),
            running: Mutex::default(),
            streams: Mutex::default(),
            questions: AtomicU64::new(1),
            editing: tokio::sync::Mutex::default(),
            watches: tokio::sync::Mutex::default(),
        }
    }

    /// What the session's client said about itself in `initialize`.
    pub fn client(&self, record: &SessionRecord) -> Arc<Client> {
        Arc::clone(self.client.get_or_init(|| {
            Arc::new(Client {
                version: record.version,
                capabilities: record.capabilities.clone(),
                info: record.info.clone(),
                able: OnceLock::new(),
            })
        }))
    }

    /// Registers a call before it runs, so that it can be cancelled by its id from now on.
    pub fn start(self: &Arc<Self>, id: &Id, outbox: &Arc<Outbox>) -> Result<Running, NotStarted> {
        let mut running = lock(&self.running);
        if running.ended {
            return Err(NotStarted::Ended);
        }
        if running.entries.contains(id) {
            return Err(NotStarted::InUse);
        }
        running.entries.0.push((id.clone(), Arc::clone(outbox)));
        Ok(Running { live: Arc::clone(self), id: id.clone(), outbox: Arc::clone(outbox) })
    }

    /// Cancels a running call. Unknown ids are ignored, as late cancellations are normal.
    pub fn cancel(&self, id: &Id) {
        if let Some(outbox) = lock(&self.running).entries.take(id, |_| true) {
            outbox.cancel();
        }
    }

    /// Delivers the client's answer to a question. Unknown or late ids are ignored.
    pub fn answer(&self, id: &Id, outcome: Outcome) {
        let Id::Text(id) = id else { return };
        if let Some(waiting) = lock(&self.pending).remove(id) {
            // The asker may have gone away in the meantime; then nobody cares.
            drop(waiting.send(outcome));
        }
    }

    /// Starts a stream with its first reader, ending a stream of the same number. Answers who writes it.
    pub fn attach(&self, stream: u64, reader: mpsc::Sender<Chunk>, gone: CancellationToken) -> u64 {
        let writer = self.questions.fetch_add(1, Ordering::Relaxed);
        let mut streams = lock(&self.streams);
        if streams.ended {
            // Without its sender the reader ends at once.
            gone.cancel();
            return writer;
        }
        let attached = Attached { writer, reader: Some(reader), gone };
        if let Some(replaced) = streams.entries.insert(stream, attached) {
            replaced.gone.cancel();
        }
        writer
    }

    /// Replaces the reader of a stream that is still being written. False when it is not.
    pub fn reattach(&self, stream: u64, reader: mpsc::Sender<Chunk>, gone: CancellationToken) -> bool {
        match lock(&self.streams).entries.get_mut(&stream) {
            Some(attached) => {
                attached.gone.cancel();
                (attached.reader, attached.gone) = (Some(reader), gone);
                true
            }
            None => false,
        }
    }

    /// The stream's reader, if it has one.
    pub fn reader(&self, stream: u64, writer: u64) -> Option<mpsc::Sender<Chunk>> {
        let streams = lock(&self.streams);
        streams.entries.get(&stream).filter(|attached| attached.writer == writer)?.reader.clone()
    }

    /// Cancelled when the stream's present reader leaves; at once when the stream is not this writer's any more.
    pub fn reader_gone(&self, stream: u64, writer: u64) -> CancellationToken {
        let streams = lock(&self.streams);
        let present = streams.entries.get(&stream).filter(|attached| attached.writer == writer);
        present.map_or_else(
            || {
                let gone = CancellationToken::new();
                gone.cancel();
                gone
            },
            |attached| attached.gone.clone(),
        )
    }

    /// The stream is finished.
    pub fn close(&self, stream: u64, writer: u64) {
        let mut streams = lock(&self.streams);
        if streams.entries.get(&stream).is_some_and(|attached| attached.writer == writer) {
            streams.entries.remove(&stream);
        }
    }

    /// Takes the stream's reader away but keeps the stream, so that a client can come back to it.
    pub fn hang_up(&self, stream: u64, writer: u64) {
        let mut streams = lock(&self.streams);
        if let Some(attached) = streams.entries.get_mut(&stream).filter(|attached| attached.writer == writer)
        {
            attached.reader = None;
            attached.gone.cancel();
        }
    }

    /// Whether it watches something, or is about to.
    pub(crate) fn is_watching(&self) -> bool {
        self.watches.try_lock().map_or(true, |watches| !watches.is_empty())
    }

    /// Cancels everything; nothing starts in this session any more.
    pub fn end(&self) {
        let mut running = lock(&self.running);
        running.ended = true;
        for (_, outbox) in running.entries.0.drain(..) {
            outbox.cancel();
        }
        drop(running);
        let mut streams = lock(&self.streams);
        streams.ended = true;
        for (_, attached) in streams.entries.drain() {
            attached.gone.cancel();
        }
        drop(streams);
        lock(&self.pending).clear();
    }
}

impl Drop for Live {
    fn drop(&mut self) {
        if let Some(sessions) = self.sessions.upgrade() {
            let mut live = lock(&sessions.live);
            // Somebody may have entered again between the last release and now.
            if live.get(&self.id).is_some_and(|entry| entry.strong_count() == 0) {
                live.remove(&self.id);
            }
        }
    }
}

/// A registered call; it is forgotten when dropped.
#[derive(Debug)]
pub struct Running {
    live: Arc<Live>,
    id: Id,
    outbox: Arc<Outbox>,
}

impl Running {
    /// The call turned out to be one that was parked, with an outbox of its own: from now on that one is cancelled.
    pub fn rebind(&mut self, outbox: &Arc<Outbox>) {
        let mut running = lock(&self.live.running);
        match running.entries.get_mut(&self.id).filter(|current| Arc::ptr_eq(current, &self.outbox)) {
            Some(current) => *current = Arc::clone(outbox),
            // Cancelled before it was found.
            None => outbox.cancel(),
        }
        drop(running);
        self.outbox = Arc::clone(outbox);
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // After a cancellation another call may have taken the id.
        lock(&self.live.running).entries.take(&self.id, |current| Arc::ptr_eq(current, &self.outbox));
    }
}

/// The link of a call in a legacy session: a question is a server request on the call's own stream.
#[derive(Debug)]
pub struct SessionLink {
    /// The session whose client is asked.
    pub live: Arc<Live>,
    /// The call's way out.
    pub outbox: Arc<Outbox>,
    /// What the client speaks.
    pub version: Version,
    /// False when the client takes JSON only: then it cannot be asked.
    pub can_stream: bool,
}

impl Link for SessionLink {
    fn notify(&self, mut note: Note) {
        // The first version counts without words.
        if self.version < Version::V2025_03_26
            && let Note::Progress { message, .. } = &mut note
        {
            *message = None;
        }
        self.outbox.note(&note);
    }

    fn ask(&self, questions: Vec<(Box<str>, Ask)>) -> BoxFuture<'_, Answers> {
        Box::pin(async move {
            let mut answers = Vec::with_capacity(questions.len());
            let mut sayable = Vec::with_capacity(questions.len());
            for (key, question) in questions {
                match question::shape(question, self.version) {
                    Ok(question) => sayable.push((key, question)),
                    Err(answer) => answers.push((key, answer)),
                }
            }
            if sayable.is_empty() {
                return Ok(answers);
            }
            if !self.can_stream {
                let hint =
                    "This call asks the client something, and the request accepts no text/event-stream";
                return Err(CallError::client(Kind::InvalidParams, hint));
            }
            let _wait = self.outbox.waiting_for_client();
            let open: Vec<_> =
                sayable.into_iter().map(|(key, question)| (key, Question::send(self, &question))).collect();
            // One person answers them all, so they share the time.
            let late = Instant::now() + ASK_TIMEOUT;
            for (key, question) in open {
                answers.push((key, question.answer(late).await?));
            }
            Ok(answers)
        })
    }

    fn hang_up(&self) {
        self.outbox.hang_up();
    }
}

/// One question on the wire; withdrawn when dropped before the answer came.
struct Question<'a> {
    link: &'a SessionLink,
    id: Box<str>,
    answer: oneshot::Receiver<Outcome>,
}

impl<'a> Question<'a> {
    fn send(link: &'a SessionLink, question: &Ask) -> Self {
        let number = link.live.questions.fetch_add(1, Ordering::Relaxed);
        let id: Box<str> = format!("{}-{number}", link.live.instance).into();
        let (sender, answer) = oneshot::channel();
        lock(&link.live.pending).insert(id.clone(), sender);
        let frame = write::request(&Id::Text(id.clone()), question.method(), &question.params());
        link.outbox.message(frame);
        Self { link, id, answer }
    }

    async fn answer(mut self, late: Instant) -> Result<Answer, CallError> {
        match tokio::time::timeout_at(late, &mut self.answer).await {
            Ok(Ok(Ok(result))) => Ok(Answer::Result(result)),
            Ok(Ok(Err(error))) => Ok(Answer::Refused(error)),
            Ok(Err(_)) => {
                Err(CallError::client(Kind::Cancelled, "The session ended before the client answered"))
            }
            Err(_) => Err(CallError::client(Kind::Timeout, "The client did not answer the question in time")),
        }
    }
}

impl Drop for Question<'_> {
    fn drop(&mut self) {
        if lock(&self.link.live.pending).remove(&self.id).is_some() {
            let params = Raw::of(&serde_json::json!({"requestId": self.id, "reason": "no longer needed"}));
            self.link.outbox.message(write::notification("notifications/cancelled", &params));
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        job::{Job, Step},
        tally::Tally,
    };

    fn sessions() -> Arc<Sessions> {
        Arc::new(Sessions::new("i1".into(), Arc::default()))
    }

    #[test]
    fn a_session_is_live_while_somebody_holds_it() {
        let sessions = sessions();
        let id: Arc<str> = "s".into();
        let first = sessions.enter(&id);
        let second = sessions.enter(&id);
        assert!(Arc::ptr_eq(&first, &second));
        drop(first);
        assert_eq!(sessions.in_use(), [Arc::clone(&id)]);
        drop(second);
        assert!(sessions.in_use().is_empty() && lock(&sessions.live).is_empty());
    }

    #[test]
    fn a_session_of_this_process_stays_ready_without_being_in_use_until_it_ends() {
        let sessions = sessions();
        let id: Arc<str> = "s".into();
        sessions.created(&id, Tally::default().count(&Principal::local(), 10).unwrap());
        let first = Arc::downgrade(&sessions.enter(&id));
        assert!(sessions.in_use().is_empty());
        let again = sessions.enter(&id);
        assert!(Weak::ptr_eq(&first, &Arc::downgrade(&again)));
        assert_eq!(sessions.in_use(), [Arc::clone(&id)]);
        drop(again);
        sessions.ended("s");
        assert!(first.upgrade().is_none() && lock(&sessions.live).is_empty());
    }

    #[test]
    fn an_id_in_use_is_refused_and_free_again_afterwards() {
        let live = sessions().enter("s");
        let outbox = Arc::new(Outbox::default());
        let running = live.start(&Id::from(1), &outbox).unwrap();
        assert_eq!(live.start(&Id::from(1), &outbox).err(), Some(NotStarted::InUse));
        assert!(live.start(&Id::from("1"), &outbox).is_ok());
        live.cancel(&Id::from(1));
        let second = live.start(&Id::from(1), &Arc::default()).unwrap();
        drop(running);
        assert_eq!(
            live.start(&Id::from(1), &outbox).err(),
            Some(NotStarted::InUse),
            "the first does not free the second"
        );
        drop(second);
        assert!(live.start(&Id::from(1), &outbox).is_ok());
        live.end();
        assert_eq!(live.start(&Id::from(1), &outbox).err(), Some(NotStarted::Ended));
    }

    fn link(live: &Arc<Live>, version: Version) -> SessionLink {
        SessionLink { live: Arc::clone(live), outbox: Arc::default(), version, can_stream: true }
    }

    #[tokio::test]
    async fn what_an_older_client_cannot_show_is_answered_without_asking_it() {
        let live = sessions().enter("s");
        let link = SessionLink { can_stream: false, ..link(&live, Version::V2025_06_18) };
        let page = Raw::of(&serde_json::json!({"mode": "url", "url": "https://x", "message": "?"}));
        let answers = link.ask(vec![("k".into(), Ask::Elicit { params: page })]).await.unwrap();
        let [(key, Answer::Result(answer))] = answers.as_slice() else { panic!("{answers:?}") };
        assert_eq!((&**key, answer.as_str()), ("k", r#"{"action":"cancel"}"#));
        assert!(lock(&live.pending).is_empty());
    }

    #[tokio::test]
    async fn the_first_version_is_told_of_progress_without_words() {
        let live = sessions().enter("s");
        for (version, words) in [(Version::V2024_11_05, false), (Version::V2025_03_26, true)] {
            let outbox = Arc::new(Outbox::new(Some(Raw::of("t")), None));
            let link = SessionLink { outbox: Arc::clone(&outbox), ..link(&live, version) };
            link.notify(Note::Progress { progress: 1.0, total: None, message: Some("one".to_owned()) });
            let mut job = Job::new(Id::from(1), outbox, Box::pin(std::future::pending()));
            let Step::Message(told) = job.step().await else { panic!("it was not told") };
            assert_eq!(told.as_str().contains(r#""message":"one""#), words, "{told:?}");
        }
    }

    #[tokio::test]
    async fn an_answer_finds_its_question_and_a_dropped_question_is_withdrawn() {
        let live = sessions().enter("s");
        let link = link(&live, Version::LATEST_LEGACY);
        let asked = link.ask(vec![("k".into(), Ask::Roots)]);
        let answered = async {
            live.answer(&Id::from("i1-1"), Ok(Raw::of(&serde_json::json!({"roots": []}))));
        };
        let (answers, ()) = tokio::join!(asked, answered);
        assert!(matches!(answers.unwrap().as_slice(), [(key, Answer::Result(_))] if &**key == "k"));

        drop(Question::send(&link, &Ask::Roots));
        assert!(lock(&live.pending).is_empty());
    }

    #[test]
    fn a_session_hears_of_changes_until_it_ends() {
        let sessions = sessions();
        let id: Arc<str> = "s".into();
        let me = Principal::local();
        assert!(sessions.listener(&id, &me, |_| {}).is_none(), "unknown sessions have no listener");
        let tally = Tally::default();
        sessions.created(&id, tally.count(&Principal::local(), 10).unwrap());
        assert!(sessions.listener(&id, &me, |_| {}).is_some());
        sessions.ended("s");
        assert_eq!(tally.total(), 0);
    }
}
