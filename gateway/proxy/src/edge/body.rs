//! What an HTTP answer carries: bytes, a legacy stream, or a modern call that is still running.

use std::{
    array,
    convert::Infallible,
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use bytes::Bytes;
use http_body::{Frame, SizeHint};

use crate::{
    edge::sse,
    stream::{Reader, Stay},
};

/// An idle stream gets a comment this often.
const KEEP_ALIVE: Duration = Duration::from_secs(15);

/// The body of an answer.
#[derive(Debug)]
pub enum Body {
    /// Known bytes, perhaps none.
    Full(Option<Bytes>),
    /// Known bytes in pieces.
    Pieces(Box<array::IntoIter<Bytes, 3>>),
    /// Events of a legacy session's stream.
    Legacy(Box<Events<Reader>>),
    /// Events of something that ends when the client leaves.
    Live(Box<Events<BoxSource>>),
}

/// A source of events behind a pointer.
pub type BoxSource = Box<dyn Source + Send>;

/// Something that yields events until it ends. Dropping it is how it learns that the client left.
pub trait Source {
    /// The next event's bytes, `None` at the end.
    fn poll_event(&mut self, poller: &mut Context<'_>) -> Poll<Option<Bytes>>;
}

/// A source with keep-alive comments in its pauses.
pub struct Events<S> {
    source: S,
    pause: Option<Pin<Box<tokio::time::Sleep>>>,
    ended: bool,
    _open: OpenStream,
}

/// Counts an open stream while it lives.
pub struct OpenStream(Box<dyn FnMut() + Send>);

impl OpenStream {
    /// Runs `on_close` when the stream ends.
    pub fn new(on_close: impl FnMut() + Send + 'static) -> Self {
        Self(Box::new(on_close))
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        (self.0)();
    }
}

impl std::fmt::Debug for OpenStream {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("OpenStream")
    }
}

impl<S> std::fmt::Debug for Events<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Events").field("ended", &self.ended).finish_non_exhaustive()
    }
}

impl Body {
    /// No bytes.
    pub fn empty() -> Self {
        Self::Full(None)
    }

    /// Known bytes in pieces, which are sent one after the other.
    pub fn pieces(pieces: [Bytes; 3]) -> Self {
        Self::Pieces(Box::new(pieces.into_iter()))
    }

    /// A legacy session's stream.
    pub fn legacy(reader: Reader, open: OpenStream) -> Self {
        Self::Legacy(Box::new(Events { source: reader, pause: None, ended: false, _open: open }))
    }

    /// Events that end with the client.
    pub fn live(source: impl Source + Send + 'static, open: OpenStream) -> Self {
        Self::Live(Box::new(Events { source: Box::new(source), pause: None, ended: false, _open: open }))
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self::Full(Some(bytes))
    }
}

impl Source for BoxSource {
    fn poll_event(&mut self, poller: &mut Context<'_>) -> Poll<Option<Bytes>> {
        (**self).poll_event(poller)
    }
}

impl Source for Reader {
    fn poll_event(&mut self, poller: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if matches!(self.stay, Stay::Over) {
            return Poll::Ready(None);
        }
        if let Some(chunk) = self.replay.pop_front() {
            self.seen = self.seen.max(chunk.sequence);
            return Poll::Ready(Some(chunk.bytes));
        }
        loop {
            match self.events.poll_recv(poller) {
                Poll::Ready(Some(chunk)) if chunk.sequence <= self.seen => {}
                Poll::Ready(Some(chunk)) => {
                    // An event that could not be logged has no place; the next logged one still has.
                    if chunk.sequence != u64::MAX {
                        self.seen = chunk.sequence;
                    }
                    return Poll::Ready(Some(chunk.bytes));
                }
                Poll::Ready(None) => return Poll::Ready(None),
                Poll::Pending => break,
            }
        }
        self.poll_farewell(poller).map_or(Poll::Pending, |farewell| Poll::Ready(Some(farewell)))
    }
}

impl<S: Source> Events<S> {
    fn poll_bytes(&mut self, poller: &mut Context<'_>) -> Poll<Option<Bytes>> {
        if self.ended {
            return Poll::Ready(None);
        }
        match self.source.poll_event(poller) {
            Poll::Ready(Some(bytes)) => {
                self.pause = None;
                return Poll::Ready(Some(bytes));
            }
            Poll::Ready(None) => {
                self.ended = true;
                return Poll::Ready(None);
            }
            Poll::Pending => {}
        }
        let pause = self.pause.get_or_insert_with(|| Box::pin(tokio::time::sleep(KEEP_ALIVE)));
        if pause.as_mut().poll(poller).is_ready() {
            self.pause = None;
            poller.waker().wake_by_ref();
            return Poll::Ready(Some(Bytes::from_static(sse::KEEP_ALIVE)));
        }
        Poll::Pending
    }
}

impl http_body::Body for Body {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        self: Pin<&mut Self>,
        poller: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let bytes = match self.get_mut() {
            Self::Full(bytes) => Poll::Ready(bytes.take()),
            Self::Pieces(pieces) => Poll::Ready(pieces.next()),
            Self::Legacy(events) => events.poll_bytes(poller),
            Self::Live(events) => events.poll_bytes(poller),
        };
        bytes.map(|bytes| bytes.map(|bytes| Ok(Frame::data(bytes))))
    }

    fn is_end_stream(&self) -> bool {
        match self {
            Self::Full(bytes) => bytes.is_none(),
            Self::Pieces(pieces) => pieces.as_slice().is_empty(),
            Self::Legacy(events) => events.ended,
            Self::Live(events) => events.ended,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match self {
            Self::Full(bytes) => SizeHint::with_exact(bytes.as_ref().map_or(0, |bytes| bytes.len() as u64)),
            Self::Pieces(pieces) => {
                SizeHint::with_exact(pieces.as_slice().iter().map(|piece| piece.len() as u64).sum())
            }
            Self::Legacy(_) | Self::Live(_) => SizeHint::default(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Arc};

    use http_body_util::BodyExt as _;
    use tokio::{sync::mpsc, time::Instant};
    use tokio_util::sync::CancellationToken;

    use super::*;
    use crate::{session::Live, stream::Chunk};

    impl Source for mpsc::Receiver<Bytes> {
        fn poll_event(&mut self, poller: &mut Context<'_>) -> Poll<Option<Bytes>> {
            self.poll_recv(poller)
        }
    }

    /// A reader of a session's stream that is sent away after `leave`, and where its events come from.
    fn reader(seen: u64, leave: Duration) -> (mpsc::Sender<Chunk>, Body) {
        let (sender, events) = mpsc::channel(4);
        let live = Arc::new(Live::new("s".into(), "i".into(), std::sync::Weak::new()));
        let gone = CancellationToken::new().drop_guard();
        let reader =
            Reader { stream: 3, replay: VecDeque::new(), events, seen, stay: Stay::Long, gone, live };
        (sender, Body::legacy(reader.leaving(Some(Instant::now() + leave)), OpenStream::new(|| {})))
    }

    fn farewell(sequence: u64) -> Bytes {
        Bytes::from(format!("id: 3-{sequence}\nretry: 1000\ndata: \n\n"))
    }

    fn chunk(sequence: u64) -> Chunk {
        Chunk { sequence, bytes: Bytes::from(format!("data: {sequence}\n\n")) }
    }

    async fn next(body: &mut Body) -> Option<Bytes> {
        body.frame().await.map(|frame| frame.unwrap().into_data().unwrap())
    }

    #[tokio::test]
    async fn pieces_come_one_after_the_other_and_their_length_is_known() {
        let mut body = Body::pieces(["ab", "c", "d"].map(|text| Bytes::from_static(text.as_bytes())));
        assert_eq!(http_body::Body::size_hint(&body).exact(), Some(4));
        assert_eq!(next(&mut body).await.as_deref(), Some(&b"ab"[..]));
        assert!(!http_body::Body::is_end_stream(&body));
        assert_eq!(next(&mut body).await.as_deref(), Some(&b"c"[..]));
        assert_eq!(next(&mut body).await.as_deref(), Some(&b"d"[..]));
        assert!(http_body::Body::is_end_stream(&body));
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_stream_gets_a_comment_now_and_then_and_a_busy_one_none() {
        let (events, source) = mpsc::channel(8);
        let mut body = Body::live(source, OpenStream::new(|| {}));
        let begun = Instant::now();
        for beats in 1..=3 {
            assert_eq!(next(&mut body).await.as_deref(), Some(sse::KEEP_ALIVE));
            assert!(begun.elapsed() >= KEEP_ALIVE * beats, "{:?} after {beats}", begun.elapsed());
        }
        // An event begins the wait anew.
        let begun = Instant::now();
        let half = async {
            tokio::time::sleep(KEEP_ALIVE / 2).await;
            events.send(Bytes::from_static(b"data: 1\n\n")).await.unwrap();
        };
        let (event, ()) = tokio::join!(next(&mut body), half);
        assert_eq!(event.as_deref(), Some(&b"data: 1\n\n"[..]));
        assert_eq!(next(&mut body).await.as_deref(), Some(sse::KEEP_ALIVE));
        assert!(begun.elapsed() >= KEEP_ALIVE + KEEP_ALIVE / 2, "{:?}", begun.elapsed());
        drop(events);
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_is_sent_away_in_time_but_not_without_an_event_to_come_back_to() {
        const LEAVE: Duration = Duration::from_secs(10);
        for (seen, first) in [(0, 1), (7, 8)] {
            let (begun, (events, mut body)) = (Instant::now(), reader(seen, LEAVE));
            events.send(chunk(first)).await.unwrap();
            assert_eq!(next(&mut body).await, Some(chunk(first).bytes));
            assert_eq!(next(&mut body).await, Some(farewell(first)));
            assert_eq!(begun.elapsed(), LEAVE);
            // What comes now waits in the log.
            events.send(chunk(first + 1)).await.unwrap();
            assert_eq!(next(&mut body).await, None);
            assert!(http_body::Body::is_end_stream(&body));
        }
        // Came back, and nothing was said.
        let (begun, (_events, mut body)) = (Instant::now(), reader(7, LEAVE));
        assert_eq!((next(&mut body).await, begun.elapsed()), (Some(farewell(7)), LEAVE));
        assert_eq!(next(&mut body).await, None);

        // What could not be logged is nothing to come back to, nor is a comment.
        let (events, mut body) = reader(0, LEAVE);
        tokio::time::sleep(2 * LEAVE).await;
        events.send(chunk(u64::MAX)).await.unwrap();
        assert!(next(&mut body).await.is_some());
        assert_eq!(next(&mut body).await.as_deref(), Some(sse::KEEP_ALIVE));
        // What is there already is told first.
        events.send(chunk(1)).await.unwrap();
        events.send(chunk(2)).await.unwrap();
        assert_eq!(next(&mut body).await, Some(chunk(1).bytes));
        assert_eq!(next(&mut body).await, Some(chunk(2).bytes));
        assert_eq!(next(&mut body).await, Some(farewell(2)));
        assert_eq!(next(&mut body).await, None);
    }

    #[tokio::test]
    async fn an_open_stream_is_counted_until_its_body_goes() {
        let (closed, mut heard) = mpsc::channel(1);
        let (_events, source) = mpsc::channel::<Bytes>(1);
        let body = Body::live(source, OpenStream::new(move || closed.try_send(()).unwrap()));
        assert!(heard.try_recv().is_err());
        drop(body);
        assert!(heard.try_recv().is_ok());
    }
}
