//! Between hyper and the application: counts the requests of a connection and says good-bye while draining.

use std::{
    convert::Infallible,
    future::Future,
    pin::Pin,
    sync::Arc,
    task::{Context, Poll, ready},
};

use bytes::Bytes;
use futures_core::future::BoxFuture;
use http::{HeaderValue, Request, Response, Version, header::CONNECTION};
use http_body::{Body, Frame, SizeHint};
use hyper::{body::Incoming, service::Service};

use super::{
    App, Conn,
    activity::{Activity, Running},
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
    /// Taken into the response's body when the head is ready.
    running: Option<Running>,
    version: Version,
    conn: Arc<Conn>,
    activity: Arc<Activity>,
}

/// A body that keeps its request counted until it is sent or given up.
#[derive(Debug)]
pub(super) struct Counted<B> {
    inner: B,
    running: Option<Running>,
}

impl<A: App> Service<Request<Incoming>> for Answering<A> {
    type Response = Response<Counted<A::Body>>;
    type Error = Infallible;
    type Future = Answer<A::Body>;

    fn call(&self, request: Request<Incoming>) -> Self::Future {
        Answer {
            running: Some(self.activity.begin()),
            version: request.version(),
            conn: Arc::clone(&self.conn),
            activity: Arc::clone(&self.activity),
            inner: Arc::clone(&self.app).handle(request, Arc::clone(&self.conn)),
        }
    }
}

impl<B> Future for Answer<B> {
    type Output = Result<Response<Counted<B>>, Infallible>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let mut response = ready!(self.inner.as_mut().poll(cx));
        let leaving = self.conn.drain.is_draining() || self.activity.is_leaving();
        // HTTP/2 has no such header: it is sent away with a GOAWAY.
        if leaving && self.version < Version::HTTP_2 {
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        let running = self.running.take();
        Poll::Ready(Ok(response.map(|inner| Counted { inner, running })))
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Counted<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.inner).poll_frame(cx));
        if frame.is_none() {
            self.running = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.inner.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.inner.size_hint()
    }
}
