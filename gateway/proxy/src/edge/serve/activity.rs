//! What one connection is doing, and when that has taken too long.
//!
//! A connection may be idle for long, but a head that has begun must be complete soon. A client that does not read its
//! answer is noticed too. In: bytes read and written ([`Watched`]), requests begun ([`Activity::begin`]) and what of
//! their answers waits ([`Running`]). Out: a verdict when the connection's timer asks.

use std::{
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::Instant,
};

use super::presence::Presence;

/// How long a connection that was told to end may take to do so.
const LINGER: Duration = Duration::from_secs(1);

/// The time a connection has for each thing it may be doing.
#[derive(Clone, Copy, Debug)]
pub struct Times {
    /// Between two requests, and before the first.
    pub idle: Duration,
    /// From a request's first byte to the end of its head.
    pub head: Duration,
    /// For the client to read what fills the socket's buffer, and to let the next byte of an HTTP/2 answer come.
    pub write: Duration,
    /// While draining: how long a connection without a request is waited for.
    pub quiet: Duration,
}

impl Default for Times {
    fn default() -> Self {
        Self {
            // Longer than the 60 s of common balancers, so that they close first and never race a request with us.
            idle: Duration::from_secs(75),
            head: Duration::from_secs(15),
            write: Duration::from_secs(30),
            // A client under load sends its next request long before, one that is idle loses nothing.
            quiet: Duration::from_millis(300),
        }
    }
}

/// What to do about a connection now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// Nothing; ask again then.
    Wait(Instant),
    /// End it as soon as it is between two requests.
    HangUp,
    /// Close it, whatever it does.
    Cut(&'static str),
}

/// A moment that [`Activity::settle`] has yet to give its time.
const JUST_NOW: u64 = u64::MAX;

/// The state of one connection. Moments are milliseconds since it was accepted, plus one; zero is "not so".
#[derive(Debug)]
pub(super) struct Activity {
    accepted: Instant,
    /// How many [`Running`] there are.
    running: AtomicU32,
    answered: AtomicBool,
    multiplexed: AtomicBool,
    idle: AtomicU64,
    head: AtomicU64,
    blocked: AtomicU64,
    draining: AtomicU64,
    hung_up: AtomicU64,
    /// One for each request that runs on a multiplexed connection.
    taking: Mutex<Vec<Arc<Mutex<Taking>>>>,
}

/// How the client takes an answer of a multiplexed connection. The socket does not tell: on HTTP/2 each answer waits for
/// its own window, while pings and other answers are written. On HTTP/1.1 it does, and nothing is kept.
#[derive(Debug)]
struct Taking {
    /// Frames that are not written in full.
    waiting: usize,
    /// When the first of them began to wait, or the last byte moved.
    since: Instant,
}

/// One request, from its head to the last byte of its answer: it runs as long as a clone of this lives.
#[derive(Debug)]
pub(super) struct Running {
    activity: Arc<Activity>,
    taking: Option<Arc<Mutex<Taking>>>,
}

impl Activity {
    pub(super) fn new() -> Self {
        Self {
            accepted: Instant::now(),
            running: AtomicU32::new(0),
            answered: AtomicBool::new(false),
            multiplexed: AtomicBool::new(false),
            idle: AtomicU64::new(1),
            head: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            draining: AtomicU64::new(0),
            hung_up: AtomicU64::new(0),
            taking: Mutex::new(Vec::new()),
        }
    }

    fn mark(&self, moment: &AtomicU64) {
        moment.store(self.this_moment(), Ordering::Release);
    }

    fn this_moment(&self) -> u64 {
        u64::try_from(self.accepted.elapsed().as_millis()).map_or(JUST_NOW - 1, |since| since + 1)
    }

    /// When it was, as far as that is known at `now`.
    fn moment(&self, moment: &AtomicU64, now: Instant) -> Option<Instant> {
        match moment.load(Ordering::Acquire) {
            0 => None,
            JUST_NOW => Some(now),
            since => Some(self.accepted + Duration::from_millis(since - 1)),
        }
    }

    /// The connection was polled and waits again: what happened meanwhile gets its moment. Most requests are read and
    /// answered within one poll, and one look at the clock is enough for all of it.
    pub(super) fn settle(&self) {
        let is_fresh = |moment: &&AtomicU64| moment.load(Ordering::Acquire) == JUST_NOW;
        let mut fresh = [&self.head, &self.idle].into_iter().filter(is_fresh).peekable();
        if fresh.peek().is_some() {
            let now = self.this_moment();
            fresh.for_each(|moment| moment.store(now, Ordering::Release));
        }
    }

    fn is_running(&self) -> bool {
        self.running.load(Ordering::Acquire) > 0
    }

    /// A request's head is complete.
    pub(super) fn begin(self: &Arc<Self>) -> Running {
        self.running.fetch_add(1, Ordering::AcqRel);
        self.head.store(0, Ordering::Release);
        let taking = self.is_multiplexed().then(|| {
            let taking = Arc::new(Mutex::new(Taking { waiting: 0, since: Instant::now() }));
            lock(&self.taking).push(Arc::clone(&taking));
            taking
        });
        Running { activity: Arc::clone(self), taking }
    }

    /// Whether many requests share the connection.
    pub(super) fn is_multiplexed(&self) -> bool {
        self.multiplexed.load(Ordering::Acquire)
    }

    /// Many requests share the connection: bytes no longer tell where a head begins.
    pub(super) fn multiplex(&self) {
        self.multiplexed.store(true, Ordering::Release);
        self.head.store(0, Ordering::Release);
    }

    /// What was read so far was not a request: a PROXY header, a handshake.
    pub(super) fn prelude_over(&self) {
        self.nothing_begun();
        self.mark(&self.idle);
    }

    /// What came begins no request: empty lines.
    pub(super) fn nothing_begun(&self) {
        self.head.store(0, Ordering::Release);
    }

    /// The server is draining.
    pub(super) fn drain(&self) {
        self.mark(&self.draining);
    }

    /// Ends the connection between two requests.
    pub(super) fn hang_up(&self) {
        self.mark(&self.hung_up);
    }

    fn is_draining(&self) -> bool {
        self.draining.load(Ordering::Acquire) != 0
    }

    /// Whether the next answer should be the last.
    pub(super) fn is_leaving(&self) -> bool {
        self.hung_up.load(Ordering::Acquire) != 0
    }

    /// Whether a multiplexed connection should be told to open no more streams. A fresh one is not: its first request is
    /// on its way, and being sent off before it would make the client reconnect in a loop.
    pub(super) fn should_go_away(&self) -> bool {
        self.is_leaving()
            || (self.is_draining() && (self.is_running() || self.answered.load(Ordering::Acquire)))
    }

    /// Whether a read may report the end of input although the client has not closed.
    fn may_end(&self) -> bool {
        self.is_leaving() && !self.is_running() && self.head.load(Ordering::Acquire) == 0
    }

    /// Something of a head has come, if no request runs.
    pub(super) fn bytes_arrived(&self) {
        let tracked = !self.is_multiplexed();
        if tracked && !self.is_running() && self.head.load(Ordering::Acquire) == 0 {
            self.head.store(JUST_NOW, Ordering::Release);
        }
    }

    fn write_was(&self, blocked: bool) {
        let before = self.blocked.load(Ordering::Acquire) != 0;
        match (before, blocked) {
            (false, true) => self.mark(&self.blocked),
            (true, false) => self.blocked.store(0, Ordering::Release),
            (true, true) | (false, false) => {}
        }
    }

    /// Since when the client takes nothing, although there is something for it.
    fn stalled(&self, now: Instant) -> Option<Instant> {
        let taking = lock(&self.taking);
        let answers = taking.iter().filter_map(|taking| lock(taking).stalled());
        answers.chain(self.moment(&self.blocked, now)).min()
    }

    /// What to do about the connection at `now`.
    ///
    /// Waiting times are never longer than the shortest limit that could start right after `now`, so one lazy timer is
    /// enough and no timer is touched on the request path.
    pub(super) fn verdict(&self, now: Instant, times: &Times) -> Verdict {
        let draining = self.moment(&self.draining, now);
        let soonest =
            if draining.is_some() { times.quiet } else { times.head.min(times.write).min(times.idle) };
        let mut wait = now + soonest;
        if let Some(stalled) = self.stalled(now) {
            if stalled + times.write <= now {
                return Verdict::Cut("the client does not read its answer");
            }
            wait = wait.min(stalled + times.write);
        }
        if self.is_running() {
            return Verdict::Wait(wait);
        }
        if let Some(head) = self.moment(&self.head, now) {
            let deadline = head + times.head;
            return if deadline <= now {
                Verdict::Cut("slow request head")
            } else {
                Verdict::Wait(wait.min(deadline))
            };
        }
        if let Some(hung_up) = self.moment(&self.hung_up, now) {
            let deadline = hung_up + LINGER;
            return if deadline <= now {
                Verdict::Cut("did not close in time")
            } else {
                Verdict::Wait(deadline)
            };
        }
        let idle = self.moment(&self.idle, now).unwrap_or(self.accepted);
        let quiet = draining.map(|since| since.max(idle) + times.quiet);
        let deadline = quiet.map_or(idle + times.idle, |quiet| quiet.min(idle + times.idle));
        if deadline <= now { Verdict::HangUp } else { Verdict::Wait(wait.min(deadline)) }
    }
}

impl Taking {
    fn stalled(&self) -> Option<Instant> {
        (self.waiting > 0).then_some(self.since)
    }
}

impl Running {
    /// Whether its answer should be the connection's last.
    pub(super) fn is_last(&self) -> bool {
        self.activity.is_draining() || self.activity.is_leaving()
    }

    /// A frame of the answer waits to be written.
    pub(super) fn frame_waits(&self) {
        let Some(mut taking) = self.taking() else { return };
        if taking.waiting == 0 {
            taking.since = Instant::now();
        }
        taking.waiting += 1;
    }

    /// Bytes of a frame that waits were written.
    pub(super) fn bytes_moved(&self) {
        if let Some(mut taking) = self.taking() {
            taking.since = Instant::now();
        }
    }

    /// A frame is written in full, or given up.
    pub(super) fn frame_left(&self) {
        if let Some(mut taking) = self.taking() {
            taking.waiting = taking.waiting.saturating_sub(1);
        }
    }

    fn taking(&self) -> Option<MutexGuard<'_, Taking>> {
        self.taking.as_deref().map(lock)
    }
}

impl Clone for Running {
    fn clone(&self) -> Self {
        self.activity.running.fetch_add(1, Ordering::AcqRel);
        Self { activity: Arc::clone(&self.activity), taking: self.taking.clone() }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let activity = &self.activity;
        activity.answered.store(true, Ordering::Release);
        // Marked before the count falls, so that no verdict sees an idle connection with an old moment.
        if let Some(mine) = self.taking.take() {
            // Other tasks end the requests of a multiplexed connection, and nobody settles it for them.
            activity.mark(&activity.idle);
            let mut taking = lock(&activity.taking);
            // The list's own and this one: let go of under the lock, so that exactly one sees that it is the last.
            if Arc::strong_count(&mine) == 2 {
                taking.retain(|taking| !Arc::ptr_eq(taking, &mine));
            }
            drop(mine);
        } else {
            activity.idle.store(JUST_NOW, Ordering::Release);
        }
        activity.running.fetch_sub(1, Ordering::AcqRel);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A stream that tells its [`Activity`] about bytes, and ends when the activity says so.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    activity: Arc<Activity>,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, activity: Arc<Activity>) -> Self {
        Self { stream, activity }
    }

    pub(super) fn into_inner(self) -> S {
        self.stream
    }
}

impl<S> Watched<S> {
    fn wrote<T>(&self, result: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        self.activity.write_was(result.is_pending());
        result
    }
}

impl<S: Presence> Presence for Watched<S> {
    const TELLS: bool = S::TELLS;

    fn poll_gone(&self, cx: &mut Context<'_>) -> Poll<()> {
        self.stream.poll_gone(cx)
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buf.filled().len();
        let result = Pin::new(&mut self.stream).poll_read(cx, buf);
        match &result {
            Poll::Ready(Ok(())) if buf.filled().len() > before => self.activity.bytes_arrived(),
            // Only with nothing left in the socket: a request that has arrived is answered, never dropped.
            Poll::Pending if self.activity.may_end() => return Poll::Ready(Ok(())),
            Poll::Ready(_) | Poll::Pending => {}
        }
        result
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write(cx, buf);
        self.wrote(result)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let result = Pin::new(&mut self.stream).poll_flush(cx);
        self.wrote(result)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let result = Pin::new(&mut self.stream).poll_write_vectored(cx, bufs);
        self.wrote(result)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::{io::AsyncReadExt as _, io::AsyncWriteExt as _, time};

    use super::*;

    const TIMES: Times = Times {
        idle: Duration::from_secs(75),
        head: Duration::from_secs(15),
        write: Duration::from_secs(30),
        quiet: Duration::from_millis(300),
    };

    /// Asks for verdicts as the connection's timer does, until one is not "wait"; returns it and when.
    fn outcome(activity: &Activity, mut now: Instant) -> (Verdict, Duration) {
        loop {
            match activity.verdict(now, &TIMES) {
                Verdict::Wait(until) => {
                    assert!(until > now, "a timer that does not move would spin");
                    now = until;
                }
                verdict => return (verdict, now - activity.accepted),
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_connection_is_hung_up_after_its_time() {
        let activity = Activity::new();
        assert_eq!(outcome(&activity, Instant::now()), (Verdict::HangUp, TIMES.idle));
    }

    #[tokio::test(start_paused = true)]
    async fn a_head_has_its_time_from_its_first_byte() {
        let activity = Activity::new();
        time::advance(Duration::from_secs(70)).await;
        activity.bytes_arrived();
        activity.settle();
        time::advance(Duration::from_secs(10)).await;
        activity.bytes_arrived();
        activity.settle();
        let expected = Duration::from_secs(70) + TIMES.head;
        assert_eq!(outcome(&activity, Instant::now()), (Verdict::Cut("slow request head"), expected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_running_request_may_take_as_long_as_it_likes() {
        let activity = Arc::new(Activity::new());
        activity.bytes_arrived();
        let running = activity.begin();
        time::advance(Duration::from_hours(1)).await;
        assert!(matches!(activity.verdict(Instant::now(), &TIMES), Verdict::Wait(_)));
        drop(running.clone());
        assert!(matches!(activity.verdict(Instant::now(), &TIMES), Verdict::Wait(_)));
        drop(running);
        activity.settle();
        let expected = Duration::from_hours(1) + TIMES.idle;
        assert_eq!(outcome(&activity, Instant::now()), (Verdict::HangUp, expected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_stalls_is_cut_and_one_that_goes_on_is_not() {
        let activity = Arc::new(Activity::new());
        let _running = activity.begin();
        let (near, mut far) = tokio::io::duplex(8);
        let mut near = Watched::new(near, Arc::clone(&activity));
        assert!(time::timeout(Duration::from_secs(1), near.write_all(&[0; 64])).await.is_err());
        let stalled = outcome(&activity, Instant::now());
        assert_eq!(stalled, (Verdict::Cut("the client does not read its answer"), TIMES.write));
        let mut read = [0; 8];
        far.read_exact(&mut read).await.unwrap();
        near.write_all(b"x").await.unwrap();
        assert!(matches!(activity.verdict(Instant::now() + TIMES.write * 2, &TIMES), Verdict::Wait(_)));
    }

    #[tokio::test(start_paused = true)]
    async fn an_answer_that_waits_is_cut_whatever_the_others_do() {
        let activity = Arc::new(Activity::new());
        activity.multiplex();
        let (silent, read, unread) = (activity.begin(), activity.begin(), activity.begin());
        time::advance(Duration::from_secs(40)).await;
        read.frame_waits();
        unread.frame_waits();
        time::advance(Duration::from_secs(10)).await;
        unread.bytes_moved();
        // Behind the first frame a second waits, which is no progress.
        time::advance(Duration::from_secs(10)).await;
        unread.frame_waits();
        read.bytes_moved();
        read.frame_left();
        let expected =
            (Verdict::Cut("the client does not read its answer"), Duration::from_secs(50) + TIMES.write);
        assert_eq!(outcome(&activity, Instant::now()), expected);
        unread.frame_left();
        assert_eq!(outcome(&activity, Instant::now()), expected);
        unread.frame_left();
        let in_an_hour = Instant::now() + Duration::from_hours(1);
        assert!(matches!(activity.verdict(in_an_hour, &TIMES), Verdict::Wait(_)));
        let same = read.clone();
        drop((silent, read, unread));
        assert_eq!(lock(&activity.taking).len(), 1);
        drop(same);
        assert!(lock(&activity.taking).is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn draining_waits_only_for_the_quiet_time() {
        let activity = Activity::new();
        time::advance(Duration::from_secs(10)).await;
        activity.drain();
        let expected = Duration::from_secs(10) + TIMES.quiet;
        assert_eq!(outcome(&activity, Instant::now()), (Verdict::HangUp, expected));
    }

    #[tokio::test(start_paused = true)]
    async fn a_request_that_has_arrived_is_read_before_the_end_is_reported() {
        let activity = Arc::new(Activity::new());
        let (near, mut far) = tokio::io::duplex(64);
        let mut near = Watched::new(near, Arc::clone(&activity));
        far.write_all(b"GET").await.unwrap();
        activity.hang_up();
        let mut read = [0; 64];
        assert_eq!(near.read(&mut read).await.unwrap(), 3);
        let more = time::timeout(Duration::from_secs(1), near.read(&mut read)).await;
        assert!(more.is_err(), "a head has begun: the rest of it is waited for");
        drop(activity.begin());
        assert_eq!(near.read(&mut read).await.unwrap(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_fresh_multiplexed_connection_is_not_sent_off_before_its_first_request() {
        let activity = Arc::new(Activity::new());
        activity.multiplex();
        activity.drain();
        assert!(!activity.should_go_away());
        let running = activity.begin();
        assert!(activity.should_go_away());
        drop(running);
        assert!(activity.should_go_away());
    }
}
