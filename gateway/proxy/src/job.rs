//! One running call: the backend's future, and everything it says before it ends.
//!
//! An edge drives a [`Job`] step by step and writes what comes out: notes and server requests, then the outcome. The
//! job runs inside whoever polls it, so nothing is spawned for a call that is answered at once. Dropping a job cancels
//! the call; moving it elsewhere (a parked call, a legacy call whose client left) keeps it running.

use std::{
    collections::VecDeque,
    fmt,
    future::poll_fn,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context as Poller, Poll, Waker},
    time::Duration,
};

use futures_core::future::BoxFuture;
use moongate_core::{Answer, Ask, CallError, Kind, Level, Note, Reply};
use moongate_wire::{Id, Raw, write};
use tokio::{sync::oneshot, time::Instant};

/// Notes that wait for a client which does not keep up; more are dropped and counted. Questions are never dropped.
const MAX_WAITING_NOTES: usize = 64;

/// How a call ended.
pub type Outcome = Result<Reply, CallError>;

/// What a job produces next.
#[derive(Debug)]
pub enum Step {
    /// A notification or a server request, ready for the wire.
    Message(Raw),
    /// Questions for a modern client: the call parks until they are answered.
    Ask(Questions),
    /// The backend wants the connection closed and the call to go on.
    HangUp,
    /// The client cancelled: there is no answer.
    Cancelled,
    /// The end.
    Done(Outcome),
}

/// Questions of a modern call that wait for the client's next request.
#[derive(Debug)]
pub struct Questions {
    /// What is still to be answered.
    pub open: Vec<(Box<str>, Ask)>,
    /// What was answered in an earlier round.
    pub answered: Vec<(Box<str>, Answer)>,
    /// Where all answers go.
    pub reply: oneshot::Sender<Vec<(Box<str>, Answer)>>,
}

/// A call that is running.
pub struct Job {
    /// The id of the request that is to be answered; a retry of a parked call brings a new one.
    pub id: Id,
    outbox: Arc<Outbox>,
    future: Option<BoxFuture<'static, Outcome>>,
    ended: Option<Outcome>,
}

impl Job {
    /// A job that runs `future`, whose notes go through `outbox`.
    pub fn new(id: Id, outbox: Arc<Outbox>, future: BoxFuture<'static, Outcome>) -> Self {
        Self { id, outbox, future: Some(future), ended: None }
    }

    /// The job's way out.
    pub fn outbox(&self) -> &Arc<Outbox> {
        &self.outbox
    }

    /// The next step. [`Step::Done`] and [`Step::Cancelled`] are the last.
    ///
    /// # Cancel safety
    /// Cancel safe: nothing is lost but the poll.
    pub async fn step(&mut self) -> Step {
        poll_fn(|poller| self.poll_step(poller)).await
    }

    /// As [`Job::step`], for bodies that are polled.
    pub fn poll_step(&mut self, poller: &mut Poller<'_>) -> Poll<Step> {
        if let Some(step) = self.outbox.pop(poller) {
            return Poll::Ready(self.checked(step));
        }
        if let Some(future) = &mut self.future
            && let Poll::Ready(outcome) = future.as_mut().poll(poller)
        {
            self.future = None;
            self.ended = Some(outcome);
        }
        // What was said before the end comes before the end.
        if let Some(step) = self.outbox.pop(poller) {
            return Poll::Ready(self.checked(step));
        }
        match self.ended.take() {
            Some(outcome) => Poll::Ready(Step::Done(outcome)),
            None => Poll::Pending,
        }
    }

    fn checked(&mut self, step: Step) -> Step {
        if matches!(step, Step::Cancelled) {
            self.future = None;
            self.ended = None;
        }
        step
    }

    /// Puts an end back that nobody could be told of yet.
    pub fn hold(&mut self, outcome: Outcome) {
        self.ended = Some(outcome);
    }

    /// Runs to the end with nobody listening.
    pub async fn run_unheard(mut self) {
        while !matches!(self.step().await, Step::Done(_) | Step::Cancelled) {}
    }
}

impl fmt::Debug for Job {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Job({})", self.id)
    }
}

/// What a call wants to say, on its way to whoever drives the job.
#[derive(Debug, Default)]
pub struct Outbox(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    steps: VecDeque<Step>,
    waker: Option<Waker>,
    /// The client's progress token; without one progress is not reported.
    token: Option<Raw>,
    /// The least severe level the client wants; without one nothing is logged.
    level: Option<Level>,
    last_progress: Option<f64>,
    /// Answers that the present request brought and nobody asked for yet.
    responses: Vec<(String, Raw)>,
    /// How many questions wait for the client, and since when the first of them.
    asking: usize,
    asking_since: Option<Instant>,
    waited: Duration,
    dropped: u64,
}

impl Outbox {
    /// An outbox for a client that gave this progress token and log level.
    pub fn new(token: Option<Raw>, level: Option<Level>) -> Self {
        Self(Mutex::new(Waiting { token, level, ..Waiting::default() }))
    }

    /// From now on the call belongs to another request, with its own token and level.
    pub fn rebind(&self, token: Option<Raw>, level: Option<Level>) {
        let mut waiting = self.lock();
        waiting.token = token;
        waiting.level = level;
        waiting.last_progress = None;
    }

    /// Keeps what the present request answers, for questions that are asked while it runs.
    pub fn bring(&self, responses: Vec<(String, Raw)>) {
        self.lock().responses = responses;
    }

    /// Looks through what the present request answers; `take` removes what it uses.
    pub fn answers<R>(&self, take: impl FnOnce(&mut Vec<(String, Raw)>) -> R) -> R {
        take(&mut self.lock().responses)
    }

    /// Says something on the way, unless the client does not want it or does not keep up.
    pub fn note(&self, note: &Note) {
        let mut waiting = self.lock();
        let Some(message) = waiting.render(note) else { return };
        if waiting.steps.len() >= MAX_WAITING_NOTES {
            waiting.dropped += 1;
            return;
        }
        waiting.push(Step::Message(message));
    }

    /// Sends a server request or a notification that must not be lost.
    pub fn message(&self, message: Raw) {
        self.lock().push(Step::Message(message));
    }

    /// Asks a modern client.
    pub fn ask(&self, questions: Questions) {
        self.lock().push(Step::Ask(questions));
    }

    /// Ends the connection, not the call.
    pub fn hang_up(&self) {
        self.lock().push(Step::HangUp);
    }

    /// Ends the call without an answer. What waits is thrown away.
    pub fn cancel(&self) {
        let mut waiting = self.lock();
        waiting.steps.clear();
        waiting.push(Step::Cancelled);
    }

    /// Whether the call was cancelled and nobody has taken note yet.
    pub fn is_cancelled(&self) -> bool {
        matches!(self.lock().steps.front(), Some(Step::Cancelled))
    }

    /// How many notes were dropped since this was last asked.
    pub fn take_dropped(&self) -> u64 {
        std::mem::take(&mut self.lock().dropped)
    }

    /// Marks the time until the guard is dropped as waiting for the client, which counts in no deadline.
    pub fn waiting_for_client(&self) -> WaitGuard<'_> {
        let mut waiting = self.lock();
        waiting.asking += 1;
        waiting.asking_since.get_or_insert_with(Instant::now);
        drop(waiting);
        WaitGuard(self)
    }

    fn time_not_counted(&self) -> Option<Duration> {
        let waiting = self.lock();
        waiting.asking_since.is_none().then_some(waiting.waited)
    }

    fn pop(&self, poller: &Poller<'_>) -> Option<Step> {
        let mut waiting = self.lock();
        let step = waiting.steps.pop_front();
        if step.is_none() && !waiting.waker.as_ref().is_some_and(|waker| waker.will_wake(poller.waker())) {
            waiting.waker = Some(poller.waker().clone());
        }
        step
    }

    fn lock(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Waiting {
    fn push(&mut self, step: Step) {
        self.steps.push_back(step);
        if let Some(waker) = self.waker.take() {
            waker.wake();
        }
    }

    fn render(&mut self, note: &Note) -> Option<Raw> {
        match note {
            Note::Progress { progress, total, message } => {
                let token = self.token.clone()?;
                // Values must grow; a parked call may report the same again on its retry.
                if self.last_progress.is_some_and(|last| *progress <= last) {
                    return None;
                }
                self.last_progress = Some(*progress);
                let mut members = vec![("progressToken", token), ("progress", number(*progress))];
                members.extend(total.map(|total| ("total", number(total))));
                members.extend(message.as_ref().map(|message| ("message", Raw::of(message))));
                let params = write::object(members.iter().map(|(key, value)| (*key, value)));
                Some(write::notification("notifications/progress", &params))
            }
            Note::Log { level, logger, data } => {
                if *level < self.level? {
                    return None;
                }
                let mut members = vec![("level", Raw::of(level))];
                members.extend(logger.as_ref().map(|logger| ("logger", Raw::of(logger))));
                members.push(("data", data.clone()));
                let params = write::object(members.iter().map(|(key, value)| (*key, value)));
                Some(write::notification("notifications/message", &params))
            }
        }
    }
}

/// A number as people write it: `3`, not `3.0`, which some clients cannot read as a count.
fn number(value: f64) -> Raw {
    /// Up to here every whole number is one.
    const EXACT: f64 = 9_007_199_254_740_992.0;
    if value.fract() == 0.0 && value.abs() <= EXACT {
        #[expect(clippy::cast_possible_truncation, reason = "it is whole and fits")]
        return Raw::of(&(value as i64));
    }
    Raw::of(&value)
}

/// While it lives, the call waits for the client.
#[derive(Debug)]
pub struct WaitGuard<'a>(&'a Outbox);

impl Drop for WaitGuard<'_> {
    fn drop(&mut self) {
        let mut waiting = self.0.lock();
        waiting.asking -= 1;
        if waiting.asking == 0
            && let Some(since) = waiting.asking_since.take()
        {
            waiting.waited += since.elapsed();
        }
    }
}

/// Runs `call`, which began at `start`, for at most `limit`, not counting the time it waits for the client.
///
/// # Cancel safety
/// Dropping the future drops the call.
pub async fn within<T>(
    limit: Duration,
    start: Instant,
    outbox: &Outbox,
    upstream: Option<&str>,
    mut call: BoxFuture<'_, Result<T, CallError>>,
) -> Result<T, CallError> {
    let mut sleep: Option<Pin<Box<tokio::time::Sleep>>> = None;
    poll_fn(|poller| {
        if let Poll::Ready(outcome) = call.as_mut().poll(poller) {
            return Poll::Ready(outcome);
        }
        loop {
            // While it waits for the client there is no deadline; the answer wakes the call and us with it.
            let Some(not_counted) = outbox.time_not_counted() else { return Poll::Pending };
            let deadline = start + limit + not_counted;
            let sleep = sleep.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(deadline)));
            if sleep.deadline() != deadline {
                sleep.as_mut().reset(deadline);
            }
            // A call that always has something to do uses up its turn, which must not stop the clock.
            let mut sleep = tokio::task::coop::unconstrained(sleep.as_mut());
            if Pin::new(&mut sleep).poll(poller).is_pending() {
                return Poll::Pending;
            }
            if Instant::now() >= deadline {
                let seconds = limit.as_secs_f32();
                let late = match upstream {
                    Some(name) => format!(
                        "The upstream {name} failed: the call took longer than {seconds} s and was cancelled"
                    ),
                    None => format!("The call took longer than {seconds} s and was cancelled"),
                };
                return Poll::Ready(Err(CallError::upstream(Kind::Timeout, late)));
            }
        }
    })
    .await
}

#[cfg(test)]
mod tests {
    use super::*;

    fn done() -> Reply {
        Raw::empty_object().into()
    }

    #[tokio::test(start_paused = true)]
    async fn a_call_that_is_always_busy_has_a_deadline_too() {
        let busy: BoxFuture<'_, Outcome> = Box::pin(async {
            loop {
                tokio::time::advance(Duration::from_millis(1)).await;
                while tokio::task::coop::has_budget_remaining() {
                    tokio::task::coop::consume_budget().await;
                }
            }
        });
        let limit = Duration::from_secs(1);
        let (start, outbox) = (Instant::now(), Outbox::default());
        let error = within(limit, start, &outbox, None, busy).await.unwrap_err();
        assert_eq!(error.kind, Kind::Timeout);
        assert!(start.elapsed() < 2 * limit, "{:?}", start.elapsed());
    }

    fn progress(value: f64) -> Note {
        Note::Progress { progress: value, total: None, message: None }
    }

    #[tokio::test]
    async fn what_was_said_before_the_end_comes_before_the_end() {
        let outbox = Arc::new(Outbox::new(Some(Raw::of("t")), None));
        let inner = Arc::clone(&outbox);
        let mut job = Job::new(
            Id::from(1),
            outbox,
            Box::pin(async move {
                inner.note(&progress(1.0));
                inner.note(&progress(1.0));
                inner.note(&progress(2.0));
                Ok(done())
            }),
        );
        let mut messages = 0;
        loop {
            match job.step().await {
                Step::Message(_) => messages += 1,
                Step::Done(outcome) => break assert!(outcome.is_ok()),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(messages, 2, "a value that does not grow is not told");
    }

    #[test]
    fn whole_progress_is_told_as_whole_numbers() {
        for (value, text) in [(3.0, "3"), (0.5, "0.5"), (-0.0, "0"), (-2.0, "-2")] {
            assert_eq!(number(value).as_str(), text);
        }
    }

    #[tokio::test]
    async fn a_client_without_token_and_level_hears_nothing() {
        let outbox = Outbox::new(None, None);
        outbox.note(&progress(1.0));
        outbox.note(&Note::Log { level: Level::Emergency, logger: None, data: Raw::null() });
        assert!(outbox.lock().steps.is_empty());
    }

    #[tokio::test]
    async fn a_client_that_does_not_keep_up_loses_notes_but_no_question() {
        let outbox = Outbox::new(None, Some(Level::Debug));
        for _ in 0..MAX_WAITING_NOTES + 5 {
            outbox.note(&Note::Log { level: Level::Info, logger: None, data: Raw::null() });
        }
        let (reply, _answers) = oneshot::channel();
        outbox.ask(Questions { open: Vec::new(), answered: Vec::new(), reply });
        assert_eq!(outbox.take_dropped(), 5);
        assert!(matches!(outbox.lock().steps.back(), Some(Step::Ask(_))));
    }

    #[tokio::test]
    async fn a_cancelled_job_drops_its_call() {
        struct Flag(Arc<Mutex<bool>>);
        impl Drop for Flag {
            fn drop(&mut self) {
                *self.0.lock().unwrap() = true;
            }
        }
        let dropped = Arc::new(Mutex::new(false));
        let flag = Flag(Arc::clone(&dropped));
        let outbox = Arc::new(Outbox::default());
        let mut job = Job::new(
            Id::from(1),
            Arc::clone(&outbox),
            Box::pin(async move {
                let _flag = flag;
                std::future::pending().await
            }),
        );
        assert!(!outbox.is_cancelled());
        outbox.cancel();
        assert!(outbox.is_cancelled());
        assert!(matches!(job.step().await, Step::Cancelled));
        assert!(*dropped.lock().unwrap());
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_for_the_client_counts_in_no_deadline() {
        let outbox = Arc::new(Outbox::default());
        let inner = Arc::clone(&outbox);
        let call: BoxFuture<'static, Outcome> = Box::pin(async move {
            let guard = inner.waiting_for_client();
            tokio::time::sleep(Duration::from_secs(100)).await;
            drop(guard);
            tokio::time::sleep(Duration::from_secs(5)).await;
            Ok(done())
        });
        assert!(within(Duration::from_secs(10), Instant::now(), &outbox, None, call).await.is_ok());

        let call: BoxFuture<'static, Outcome> = Box::pin(async {
            tokio::time::sleep(Duration::from_secs(11)).await;
            Ok(done())
        });
        let late = within(Duration::from_secs(10), Instant::now(), &Outbox::default(), None, call).await;
        assert!(matches!(late, Err(CallError { kind: Kind::Timeout, .. })));
    }
}
