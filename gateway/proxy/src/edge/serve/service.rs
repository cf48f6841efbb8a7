//! Between hyper, which speaks HTTP/2, and the application: counts the requests of a connection, and follows their answers
//! until they are written.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::{Buf, Bytes};
use futures_core::future::BoxFuture;
use http::{Request, Response};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};
use moongate_security::Head;

use super::{
    App, Conn,
    activity::{Activity, Running},
    http1::Received,
};

/// One connection's view of the application.
#[derive(Debug)]
pub(super) struct Answering<A> {
    pub(super) app: Arc<A>,
    pub(super) conn: Arc<Conn>,
    pub(super) activity: Arc<Activity>,
}

/// The answer to one request, while the application works on it.
pub(super) struct Answer<B> {
    inner: BoxFuture<'static, Response<B>>,
    running: Running,
}

/// A body that keeps its request counted until it is sent or given up.
#[derive(Debug)]
pub(super) struct Counted<B> {
    inner: B,
    running: Running,
}

/// The data of one frame until it is written or given up. It outlives its body where hyper or h2 keep it for a client
/// that does not take it.
#[derive(Debug)]
pub(super) struct Unsent {
    bytes: Bytes,
    running: Running,
}

impl<A: App> Service<Request<Incoming>> for Answering<A> {
    type Response = Response<Counted<A::Body>>;
    type Error = Infallible;
    type Future = Answer<A::Body>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        let (parts, body) = request.into_parts();
        Answer {
            running: self.activity.begin(),
            inner: Arc::clone(&self.app).handle(
                Head::from(parts),
                Received::from(body),
                Arc::clone(&self.conn),
            ),
        }
    }
}

impl<B> Future for Answer<B> {
    type Output = Result<Response<Counted<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let response = ready!(self.inner.as_mut().poll(cx));
        let running = self.running.clone();
        Poll::Ready(Ok(response.map(|inner| Counted { inner, running })))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Unsent;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        let unsent = |bytes| Unsent::new(bytes, &self.running);
        Poll::Ready(frame.map(|frame| frame.map(|frame| frame.map_data(unsent))))
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}

impl Unsent {
    fn new(bytes: Bytes, running: &Running) -> Self {
        running.frame_waits();
        Self { bytes, running: running.clone() }
    }
}

impl Buf for Unsent {
    fn remaining(&self) -> usize {
        self.bytes.remaining()
    }

    fn chunk(&self) -> &[u8] {
        self.bytes.chunk()
    }

    fn advance(&mut self, count: usize) {
        self.bytes.advance(count);
        self.running.bytes_moved();
    }
}

impl Drop for Unsent {
    fn drop(&mut self) {
        self.running.frame_left();
    }
}
