//! The body of an event stream: what the script said at once, then what comes later, then the end.

use std::{collections::VecDeque, mem, sync::Arc};

use bytes::Bytes;
use futures_util::{Stream, stream::unfold};
use hyper::body::Frame;
use tokio::{sync::mpsc, task::yield_now};

use super::{
    event,
    session::{Part, Session},
};

/// One stream. Dropping it tells the session that the client is gone, or that it has been told everything.
#[derive(Debug)]
pub(super) struct Feed {
    session: Arc<Session>,
    exchange: Option<u64>,
    said: VecDeque<Part>,
    coming: mpsc::Receiver<Part>,
}

impl Feed {
    pub(super) fn new(
        session: Arc<Session>,
        exchange: Option<u64>,
        mut said: VecDeque<Part>,
        coming: mpsc::Receiver<Part>,
    ) -> Self {
        said.make_contiguous();
        Self { session, exchange, said, coming }
    }

    /// What was said at once.
    pub(super) fn so_far(&self) -> &[Part] {
        self.said.as_slices().0
    }

    pub(super) fn into_stream(self) -> impl Stream<Item = Result<Frame<Bytes>, std::io::Error>> + Send {
        unfold(self, |mut feed| async move {
            let bytes = feed.next().await?;
            Some((Ok(Frame::data(bytes)), feed))
        })
    }

    async fn next(&mut self) -> Option<Bytes> {
        match self.part().await? {
            Part::Message(message) | Part::Refusal(_, message) => Some(event(&message)),
            Part::Endpoint(path) => Some(Bytes::from(format!("event: endpoint\ndata: {path}\n\n"))),
            Part::Text(text) => Some(Bytes::from(format!("data: {text}\n\n"))),
            Part::End => None,
            Part::Exit { half: true, code } => {
                self.said.push_front(Part::Exit { half: false, code });
                Some(Bytes::from_static(br#"data: {"jsonrpc":"2.0","id""#))
            }
            Part::Exit { half: false, code } => {
                // What has been said is written while this is awaited.
                yield_now().await;
                std::process::exit(code);
            }
        }
    }

    async fn part(&mut self) -> Option<Part> {
        if let Some(part) = self.said.pop_front() {
            return Some(part);
        }
        if let Ok(part) = self.coming.try_recv() {
            return Some(part);
        }
        match self.session.flood(self.exchange) {
            Some(note) => {
                yield_now().await;
                Some(Part::Message(note))
            }
            None => self.coming.recv().await,
        }
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        if let Some(exchange) = mem::take(&mut self.exchange) {
            self.session.closed(exchange);
        }
    }
}
