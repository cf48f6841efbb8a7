//! The body of a request on its way from the connection to the application.
//!
//! Nearly every body is there with its head. Another is read as it is asked for: by the connection, which polls the answer,
//! and the answer polls the body. So nobody has to be woken for it but the one who already is.

use std::{
    io,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll},
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};
use hyper::body::Incoming;

/// What a client sends with its request.
#[derive(Debug)]
pub struct Received(Kind);

#[derive(Debug)]
enum Kind {
    /// All of it, until it is taken.
    Whole(Option<Bytes>),
    /// What the connection reads.
    Fed(Arc<Feed>),
    /// A stream of HTTP/2.
    Stream(Incoming),
}

/// The place where the connection puts what the application takes.
#[derive(Debug, Default)]
pub(super) struct Feed(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    piece: Option<io::Result<Bytes>>,
    /// Somebody waits for a piece.
    wanted: bool,
    ended: bool,
    /// How much is to come, as far as that was said.
    left: u64,
}

impl Received {
    /// A body that is there, or none.
    pub(super) fn whole(bytes: Option<Bytes>) -> Self {
        Self(Kind::Whole(bytes))
    }

    /// A body that is put into `feed`.
    pub(super) fn fed(feed: Arc<Feed>) -> Self {
        Self(Kind::Fed(feed))
    }

    /// What is left of a stream of HTTP/2. The rest of another body is read by its connection.
    pub fn unread_stream(self) -> Option<Incoming> {
        match self.0 {
            Kind::Stream(stream) => Some(stream).filter(|stream| !http_body::Body::is_end_stream(stream)),
            Kind::Whole(_) | Kind::Fed(_) => None,
        }
    }
}

impl From<Incoming> for Received {
    fn from(stream: Incoming) -> Self {
        Self(Kind::Stream(stream))
    }
}

impl Feed {
    /// One for a body of which so much is to come, as far as that was said.
    pub(super) fn new(left: u64) -> Self {
        Self(Mutex::new(State { left, ..State::default() }))
    }

    /// Whether somebody waits for a piece.
    pub(super) fn is_wanted(&self) -> bool {
        self.lock().wanted
    }

    /// Gives a piece to the one who waits for it. After it there is so much to come, or nothing at all.
    pub(super) fn put(&self, piece: Option<io::Result<Bytes>>, left: u64, ended: bool) {
        *self.lock() = State { piece, wanted: false, ended, left };
    }

    fn take(&self) -> Poll<Option<io::Result<Bytes>>> {
        let mut state = self.lock();
        match state.piece.take() {
            Some(piece) => Poll::Ready(Some(piece)),
            None if state.ended => Poll::Ready(None),
            None => {
                state.wanted = true;
                Poll::Pending
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl http_body::Body for Received {
    type Data = Bytes;
    type Error = io::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, io::Error>>> {
        match &mut self.0 {
            Kind::Whole(bytes) => Poll::Ready(bytes.take().map(|bytes| Ok(Frame::data(bytes)))),
            Kind::Fed(feed) => feed.take().map_ok(Frame::data),
            Kind::Stream(stream) => Pin::new(stream).poll_frame(cx).map_err(io::Error::other),
        }
    }

    fn is_end_stream(&self) -> bool {
        match &self.0 {
            Kind::Whole(bytes) => bytes.is_none(),
            Kind::Fed(feed) => {
                let state = feed.lock();
                state.ended && state.piece.is_none()
            }
            Kind::Stream(stream) => stream.is_end_stream(),
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.0 {
            Kind::Whole(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Kind::Fed(feed) => {
                let mut hint = SizeHint::new();
                hint.set_lower(feed.lock().left);
                hint
            }
            Kind::Stream(stream) => stream.size_hint(),
        }
    }
}
