//! An answer that is nearly always there at once, and else comes later.
//!
//! A trait whose usual implementation waits for nothing would box a future for each call; with this it boxes only what
//! has to wait.

use std::{
    fmt,
    future::Future,
    pin::Pin,
    task::{Context, Poll},
};

use crate::BoxFuture;

/// See the module.
pub struct Soon<'a, T>(State<'a, T>);

enum State<'a, T> {
    Now(Option<T>),
    Later(BoxFuture<'a, T>),
}

impl<'a, T> Soon<'a, T> {
    /// The answer itself.
    pub fn now(answer: T) -> Self {
        Self(State::Now(Some(answer)))
    }

    /// An answer that must be waited for.
    pub fn later(answer: impl Future<Output = T> + Send + 'a) -> Self {
        Self(State::Later(Box::pin(answer)))
    }
}

impl<T: Unpin> Future for Soon<'_, T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, poller: &mut Context<'_>) -> Poll<T> {
        match &mut self.0 {
            // Polled after its end it waits for ever; it does not panic.
            State::Now(answer) => answer.take().map_or(Poll::Pending, Poll::Ready),
            State::Later(answer) => answer.as_mut().poll(poller),
        }
    }
}

impl<T> fmt::Debug for Soon<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.0 {
            State::Now(_) => "Soon(now)",
            State::Later(_) => "Soon(later)",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn both_kinds_answer() {
        assert_eq!(Soon::now(1).await, 1);
        assert_eq!(Soon::later(async { 2 }).await, 2);
    }
}
