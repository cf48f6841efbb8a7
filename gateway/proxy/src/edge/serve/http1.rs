//! A connection of HTTP/1.1: one request after another, each answered before the next is read.
//!
//! In: bytes of a client. Out: requests to the application, and its answers to the client. All of it is one task without a
//! channel: who polls the connection polls the answer, which polls the body of the request. A client that closes its side
//! has left, and its request is dropped. What bytes mean is left to `request` and `reply`, times to `activity`.
//!
//! ```text
//! read head ─→ app ─→ write answer ─┐
//!    ↑          ↕ body               │
//!    └──────── skip what is unread ←─┘
//! ```

use std::{
    future::{Future as _, poll_fn},
    io,
    pin::{Pin, pin},
    sync::Arc,
    task::{Context, Poll, ready},
    time::Duration,
};

use bytes::{Buf, Bytes, BytesMut};
use futures_core::future::BoxFuture;
use http::{Method, Response, StatusCode, Version};
use http_body::Body as _;
use moongate_wire::body::{Decoder, Step};
use tokio::{
    io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _},
    time,
};

use self::{
    received::Feed,
    reply::{Framing, Keeps},
    request::Asked,
};
use super::{
    App, Conn,
    activity::{Activity, Running},
    presence::Presence,
};

mod received;
mod reply;
mod request;

pub use self::received::Received;

/// Room for a request of usual size.
const ROOM: usize = 8 * 1024;
/// Room for the rest of a large one.
const LARGE_ROOM: usize = 64 * 1024;
/// How much is read of what follows a request that runs, where only that tells whether its client is there.
const AHEAD: usize = 512;
/// What is put together into one piece before it is written. Nearly every answer with its head is smaller; what is larger
/// would cost more to copy than it saves.
const WHOLE: usize = 8 * 1024;
/// How long the rest of a body is still read that nobody wanted, or what else comes after an answer that is the last. A
/// connection that is closed with unread bytes is reset, and a reset takes the answer with it before the client has seen it.
const LINGER: Duration = Duration::from_secs(5);
/// How much of it, in bytes.
const DISCARDED: usize = 64 << 20;
/// The word that a client waits for before it sends a body.
const GO_ON: &[u8] = b"HTTP/1.1 100 Continue\r\n\r\n";

/// A connection.
pub(super) struct Http1<A, S> {
    stream: S,
    /// What came and was not read yet.
    buffer: BytesMut,
    /// What is to be written.
    out: Vec<u8>,
    app: Arc<A>,
    conn: Arc<Conn>,
    activity: Arc<Activity>,
    /// How large a head may be.
    max_head: usize,
}

/// The body of a request that is still to come.
struct Intake {
    feed: Arc<Feed>,
    decoder: Decoder,
    /// What the client waits for, as far as it was not written yet.
    unsaid: &'static [u8],
    /// What follows cannot be understood.
    broken: bool,
}

/// What comes after an answer.
enum Next {
    Request,
    End {
        /// Something of the client was not read.
        unread: bool,
    },
}

/// What comes next of an answer.
enum Turn {
    Data(Bytes),
    /// Nothing for now, so that what there is should be written.
    Pause,
    End,
}

impl<A, S> Http1<A, S>
where
    A: App,
    S: AsyncRead + AsyncWrite + Presence + Unpin,
{
    pub(super) fn new(
        stream: S,
        app: Arc<A>,
        conn: Arc<Conn>,
        activity: Arc<Activity>,
        max_head: usize,
    ) -> Self {
        Self { stream, buffer: BytesMut::new(), out: Vec::new(), app, conn, activity, max_head }
    }

    /// Serves the client until it leaves, or until it is sent away.
    ///
    /// # Cancel safety
    /// Not cancel safe: dropping the future drops the request that runs and closes the connection.
    pub(super) async fn serve(mut self) -> io::Result<()> {
        let mut unread = false;
        while let Some(asked) = self.next_request().await? {
            let asked = match asked {
                Ok(asked) => asked,
                Err(status) => {
                    reply::refusal(&mut self.out, status);
                    self.write_out().await?;
                    unread = true;
                    break;
                }
            };
            match self.answer(asked).await? {
                Next::Request => {}
                Next::End { unread: rest } => {
                    unread = rest;
                    break;
                }
            }
        }
        self.stream.shutdown().await?;
        if unread || !self.buffer.is_empty() || poll_fn(|cx| Poll::Ready(self.has_more(cx))).await {
            // Whatever it is: the connection is over.
            drop(time::timeout(LINGER, self.skip_all()).await);
        }
        Ok(())
    }

    /// The next request; the status to refuse it with when it is none; `None` when the client, or the gateway, has ended
    /// the connection between two.
    async fn next_request(&mut self) -> io::Result<Option<Result<Asked, StatusCode>>> {
        let mut seen = 0;
        loop {
            if seen == 0 && request::skip_empty_lines(&mut self.buffer) && self.buffer.is_empty() {
                self.activity.nothing_begun();
            }
            if self.buffer.is_empty() {
                // Nobody knows for how long nothing comes.
                if self.buffer.capacity() > 2 * ROOM {
                    self.buffer = BytesMut::new();
                }
            } else {
                if let Some(read) = request::read(&mut self.buffer, seen, self.max_head).transpose() {
                    return Ok(Some(read));
                }
                seen = self.buffer.len();
                // It may have come with the request before it.
                self.activity.bytes_arrived();
            }
            self.buffer.reserve(ROOM);
            if self.stream.read_buf(&mut self.buffer).await? == 0 {
                return if self.buffer.is_empty() {
                    Ok(None)
                } else {
                    Err(io::ErrorKind::UnexpectedEof.into())
                };
            }
        }
    }

    async fn answer(&mut self, asked: Asked) -> io::Result<Next> {
        let running = self.activity.begin();
        let Asked { head, body, keeps, waits } = asked;
        let current = head.version == Version::HTTP_11;
        let for_head = head.method == Method::HEAD;
        let (received, mut intake) = self.intake(body, waits);
        let mut answer = Arc::clone(&self.app).handle(head, received, Arc::clone(&self.conn));
        let response = poll_fn(|cx| self.poll_answer(cx, &mut answer, &mut intake)).await?;
        // It may hold what the request was read into.
        drop(answer);
        let mut intake = intake.filter(|intake| !intake.decoder.has_ended());
        if let Some(rest) = intake.as_mut().filter(|rest| rest.unsaid.len() < GO_ON.len()) {
            // A word that was begun is finished.
            self.out.extend_from_slice(std::mem::take(&mut rest.unsaid));
        }
        // A client that was not told to go on may do so or not: nobody knows what comes next.
        let readable =
            |rest: &Intake| !rest.broken && rest.unsaid.is_empty() && rest.decoder.left() <= DISCARDED as u64;
        let readable = intake.as_ref().is_none_or(readable);
        let keeps = self.write(response, current, for_head, keeps && readable, &running).await?;
        match intake {
            None if keeps => Ok(Next::Request),
            Some(rest) if keeps => {
                Ok(if self.skip(rest).await { Next::Request } else { Next::End { unread: true } })
            }
            rest => Ok(Next::End { unread: rest.is_some() }),
        }
    }

    /// The body of a request as the application gets it, and what is to be done for it.
    fn intake(&mut self, body: Decoder, waits: bool) -> (Received, Option<Intake>) {
        if body.has_ended() {
            return (Received::whole(None), None);
        }
        let left = body.left();
        let here = usize::try_from(left).ok().filter(|left| (1..=self.buffer.len()).contains(left));
        if let Some(here) = here {
            return (Received::whole(Some(self.buffer.split_to(here).freeze())), None);
        }
        let feed = Arc::new(Feed::new(left));
        let unsaid = if waits && self.buffer.is_empty() { GO_ON } else { &[] };
        (Received::fed(Arc::clone(&feed)), Some(Intake { feed, decoder: body, unsaid, broken: false }))
    }

    /// Polls the answer, and reads the body for it as far as it wants.
    fn poll_answer(
        &mut self,
        cx: &mut Context<'_>,
        answer: &mut BoxFuture<'static, Response<A::Body>>,
        intake: &mut Option<Intake>,
    ) -> Poll<io::Result<Response<A::Body>>> {
        loop {
            if let Poll::Ready(response) = answer.as_mut().poll(cx) {
                return Poll::Ready(Ok(response));
            }
            match intake {
                Some(intake) if intake.feed.is_wanted() => ready!(self.poll_feed(cx, intake))?,
                // What comes first now is the rest of the body.
                Some(intake) if !intake.decoder.has_ended() => return Poll::Pending,
                _ if self.is_gone(cx) => return Poll::Ready(Err(left())),
                _ => return Poll::Pending,
            }
        }
    }

    /// Reads one piece of a body that somebody waits for.
    fn poll_feed(&mut self, cx: &mut Context<'_>, intake: &mut Intake) -> Poll<io::Result<()>> {
        while !intake.unsaid.is_empty() {
            let written = ready!(Pin::new(&mut self.stream).poll_write(cx, intake.unsaid))?;
            if written == 0 {
                return Poll::Ready(Err(io::ErrorKind::WriteZero.into()));
            }
            intake.unsaid = intake.unsaid.get(written..).unwrap_or_default();
        }
        // Encrypted, a word that was written may not have been sent.
        ready!(Pin::new(&mut self.stream).poll_flush(cx))?;
        let piece = loop {
            match intake.decoder.next(&mut self.buffer) {
                Ok(Step::Data(data)) => break Some(Ok(data)),
                Ok(Step::End) => break None,
                Ok(Step::More) => {}
                Err(garbled) => {
                    intake.broken = true;
                    break Some(Err(io::Error::new(io::ErrorKind::InvalidData, garbled)));
                }
            }
            let room = usize::try_from(intake.decoder.left()).unwrap_or(LARGE_ROOM).clamp(ROOM, LARGE_ROOM);
            self.buffer.reserve(room);
            if ready!(pin!(self.stream.read_buf(&mut self.buffer)).poll(cx))? == 0 {
                intake.broken = true;
                break Some(Err(io::ErrorKind::UnexpectedEof.into()));
            }
        };
        let ended = intake.broken || intake.decoder.has_ended();
        intake.feed.put(piece, intake.decoder.left(), ended);
        Poll::Ready(Ok(()))
    }

    /// Whether the client of the request that runs has left.
    fn is_gone(&mut self, cx: &mut Context<'_>) -> bool {
        if S::TELLS {
            return self.stream.poll_gone(cx).is_ready();
        }
        while self.buffer.len() < AHEAD {
            self.buffer.reserve(AHEAD);
            match pin!(self.stream.read_buf(&mut self.buffer)).poll(cx) {
                Poll::Ready(Ok(0) | Err(_)) => return true,
                Poll::Ready(Ok(_)) => {}
                Poll::Pending => return false,
            }
        }
        false
    }

    /// Whether the client has sent something that nobody has read.
    fn has_more(&mut self, cx: &mut Context<'_>) -> bool {
        self.buffer.reserve(AHEAD);
        matches!(pin!(self.stream.read_buf(&mut self.buffer)).poll(cx), Poll::Ready(Ok(read)) if read > 0)
    }

    /// Writes an answer. True when another request may follow.
    async fn write(
        &mut self,
        response: Response<A::Body>,
        current: bool,
        for_head: bool,
        keeps: bool,
        running: &Running,
    ) -> io::Result<bool> {
        let (parts, mut body) = response.into_parts();
        let length = body.size_hint().exact();
        let framing = match length {
            _ if matches!(parts.status, StatusCode::NO_CONTENT | StatusCode::NOT_MODIFIED) => Framing::None,
            Some(length) => Framing::Length(length),
            None if current => Framing::Chunks,
            None => Framing::UntilClosed,
        };
        let keeps = keeps && framing != Framing::UntilClosed && !running.is_last();
        let told = match keeps {
            false => Keeps::Not,
            true if current => Keeps::Silently,
            true => Keeps::Says,
        };
        reply::write_head(&mut self.out, &parts, framing, told);
        drop(parts);
        if length.is_none() && self.buffer.is_empty() {
            // A stream may last for hours, and its client says nothing meanwhile.
            self.buffer = BytesMut::new();
        }
        if framing == Framing::None || for_head {
            self.write_out().await?;
            return Ok(keeps);
        }
        let chunks = framing == Framing::Chunks;
        let mut written = 0;
        loop {
            let turn = poll_fn(|cx| self.poll_turn(cx, &mut body)).await?;
            match turn {
                Turn::Data(data) => {
                    written += data.len() as u64;
                    if length.is_some_and(|length| written > length) {
                        break;
                    }
                    self.write_data(data, chunks).await?;
                }
                Turn::Pause => self.write_out().await?,
                Turn::End => break,
            }
        }
        if chunks {
            self.out.extend_from_slice(b"0\r\n\r\n");
        }
        self.write_out().await?;
        if length.is_some_and(|length| length != written) {
            return Err(io::Error::other("an answer was not as long as it said"));
        }
        Ok(keeps)
    }

    fn poll_turn(&mut self, cx: &mut Context<'_>, body: &mut A::Body) -> Poll<io::Result<Turn>> {
        loop {
            match Pin::new(&mut *body).poll_frame(cx) {
                Poll::Ready(Some(Ok(frame))) => match frame.into_data() {
                    Ok(data) if !data.is_empty() => return Poll::Ready(Ok(Turn::Data(data))),
                    Ok(_) | Err(_) => {}
                },
                Poll::Ready(Some(Err(error))) => return Poll::Ready(Err(io::Error::other(error))),
                Poll::Ready(None) => return Poll::Ready(Ok(Turn::End)),
                Poll::Pending if !self.out.is_empty() => return Poll::Ready(Ok(Turn::Pause)),
                Poll::Pending if self.is_gone(cx) => return Poll::Ready(Err(left())),
                Poll::Pending => return Poll::Pending,
            }
        }
    }

    /// Puts a piece of a body behind what is to be written; together they are written if they are large.
    async fn write_data(&mut self, data: Bytes, chunks: bool) -> io::Result<()> {
        if chunks {
            reply::write_size(&mut self.out, data.len());
        }
        if self.out.len() + data.len() <= WHOLE {
            self.out.extend_from_slice(&data);
        } else {
            let mut both = Buf::chain(self.out.as_slice(), data);
            self.stream.write_all_buf(&mut both).await?;
            self.stream.flush().await?;
            self.out.clear();
        }
        if chunks {
            self.out.extend_from_slice(b"\r\n");
        }
        Ok(())
    }

    async fn write_out(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.out).await?;
        self.out.clear();
        self.stream.flush().await
    }

    /// Reads the rest of a body that nobody wanted. True when all of it was read, so that another request may follow.
    async fn skip(&mut self, mut rest: Intake) -> bool {
        let all = async {
            let mut left = DISCARDED;
            loop {
                match rest.decoder.next(&mut self.buffer) {
                    Ok(Step::End) => return true,
                    Ok(Step::Data(data)) => match left.checked_sub(data.len()) {
                        Some(still) => left = still,
                        None => return false,
                    },
                    Ok(Step::More) => {
                        self.buffer.reserve(LARGE_ROOM);
                        if !self.stream.read_buf(&mut self.buffer).await.is_ok_and(|read| read > 0) {
                            return false;
                        }
                    }
                    Err(_) => return false,
                }
            }
        };
        time::timeout(LINGER, all).await.unwrap_or(false)
    }

    /// Reads whatever comes, until the client has seen that the connection is over.
    async fn skip_all(&mut self) {
        let mut left = DISCARDED;
        loop {
            self.buffer.clear();
            self.buffer.reserve(LARGE_ROOM);
            let read = self.stream.read_buf(&mut self.buffer).await.unwrap_or(0);
            match left.checked_sub(read) {
                Some(still) if read > 0 => left = still,
                _ => return,
            }
        }
    }
}

fn left() -> io::Error {
    io::Error::new(io::ErrorKind::ConnectionAborted, "the client has left")
}

#[cfg(test)]
mod tests;
