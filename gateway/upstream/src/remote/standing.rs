//! The stream on which a legacy server speaks outside requests: a GET that stays open.
//!
//! A server need not have one. Once it had, we come back whenever the stream ends, with the last event id, waiting
//! longer each time that nothing came.

use std::{
    future::ready,
    hash::{BuildHasher as _, RandomState},
    sync::Arc,
    time::Duration,
};

use http::{HeaderValue, StatusCode};
use http_body_util::BodyExt as _;
use moongate_core::{BoxFuture, task::Signal};
use moongate_wire::Version;
use tracing::debug;

use super::{
    exchange::{MAX_RETRY, MIN_RETRY, RETRY},
    head::Kind,
    pool::Body,
    session::{Session, messages},
    sse::{Name, Parser},
};
use crate::transport::Fault;

/// How long we wait for the head of the stream. Some servers send it with their first event; to them we listen, too.
const PATIENCE: Duration = Duration::from_secs(5);

/// What comes of asking for the stream.
enum Opened {
    Stream(Body),
    /// Not now.
    Failed,
    /// The server has no such stream, or no such session.
    Refused,
}

struct Standing {
    session: Arc<Session>,
    version: Version,
    parser: Parser,
    /// How often in a row a stream ended without an event.
    idle: u32,
}

/// Asks for the stream and reads it in a task until the session is over or `stop` is given. False when there is none.
pub(super) async fn listen(session: &Arc<Session>, version: Version, stop: Signal) -> bool {
    let mut opening: BoxFuture<'static, Opened> = Box::pin(open(Arc::clone(session), version, None, false));
    match tokio::time::timeout(PATIENCE, &mut opening).await {
        Ok(Opened::Stream(body)) => opening = Box::pin(ready(Opened::Stream(body))),
        Ok(Opened::Failed | Opened::Refused) => return false,
        Err(_) => {}
    }
    let parser = Parser::new(session.link.max_message);
    let standing = Standing { session: Arc::clone(session), version, parser, idle: 0 };
    session.link.tasks.spawn(async move {
        let session = Arc::clone(&standing.session);
        tokio::select! {
            () = standing.run(opening) => {}
            () = stop.given() => {}
            _ = session.over() => {}
        }
    });
    true
}

/// Asks for the stream, which the server has `had` before or not.
async fn open(session: Arc<Session>, version: Version, last_id: Option<HeaderValue>, had: bool) -> Opened {
    let (request, in_session) = session.get(Some(version), last_id);
    let (answer, body) = match session.link.ask(&request).await {
        Ok(answered) => answered,
        Err(fault) => {
            debug!(upstream = %session.link.name, %fault, "no stream of notifications");
            return Opened::Failed;
        }
    };
    match answer.status {
        status if status.is_success() && answer.kind() == Kind::Events => Opened::Stream(body),
        // A server without a GET route says 404, too: only one that had the stream means the session by it.
        StatusCode::NOT_FOUND if in_session && had => {
            session.noted(Fault::SessionGone);
            Opened::Refused
        }
        // The server still believes in our last stream, or is busy.
        StatusCode::CONFLICT | StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT => Opened::Failed,
        status if status.is_server_error() => Opened::Failed,
        _ => Opened::Refused,
    }
}

impl Standing {
    async fn run(mut self, mut opening: BoxFuture<'static, Opened>) {
        let mut had = false;
        loop {
            match opening.await {
                Opened::Stream(body) => {
                    had = true;
                    self.read(body).await;
                }
                Opened::Failed => {}
                Opened::Refused => return,
            }
            tokio::time::sleep(delay(self.parser.retry(), self.idle)).await;
            self.idle = self.idle.saturating_add(1);
            let last_id = self.parser.last_id().and_then(|id| HeaderValue::from_bytes(id).ok());
            self.parser.resume();
            opening = Box::pin(open(Arc::clone(&self.session), self.version, last_id, had));
        }
    }

    /// Hands on messages until the stream ends, or cannot be read on.
    async fn read(&mut self, mut body: Body) {
        while let Some(Ok(frame)) = body.frame().await {
            let Ok(data) = frame.into_data() else { continue };
            self.parser.feed(data);
            loop {
                // As where an answer is awaited: others want a turn.
                tokio::task::coop::consume_budget().await;
                match self.parser.next() {
                    Ok(Some(event)) if event.name == Name::Message => {
                        self.idle = 0;
                        messages(&event.data, |message| match message {
                            Ok(message) => self.session.hear(message),
                            Err(_) => self.session.stray(),
                        });
                    }
                    Ok(Some(_)) => {}
                    Ok(None) => break,
                    Err(_) => return self.session.stray(),
                }
            }
        }
    }
}

/// How long to wait before the next attempt: as the server says, doubled for each stream without an event, and a little
/// longer, so that not all come back at the same moment.
fn delay(retry: Option<Duration>, idle: u32) -> Duration {
    let delay = retry.unwrap_or(RETRY).max(MIN_RETRY);
    let delay = delay.saturating_mul(2_u32.saturating_pow(idle)).min(MAX_RETRY);
    // A new hasher is keyed at random.
    let quarters = u32::try_from(RandomState::new().hash_one(0) % 256).unwrap_or(0);
    delay.saturating_add(delay / 4 * quarters / 256).min(MAX_RETRY)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn attempts_become_rarer() {
        let second = Duration::from_secs(1);
        for (retry, idle, least) in [
            (None, 0, second),
            (None, 3, 8 * second),
            (None, 5, MAX_RETRY),
            (None, u32::MAX, MAX_RETRY),
            (Some(Duration::from_millis(100)), 1, Duration::from_millis(200)),
            (Some(Duration::ZERO), 0, Duration::from_millis(100)),
            (Some(Duration::ZERO), 3, Duration::from_millis(800)),
            (Some(Duration::from_hours(1)), 0, MAX_RETRY),
        ] {
            let delay = delay(retry, idle);
            assert!(delay >= least && delay <= (least * 5 / 4).min(MAX_RETRY), "{retry:?} {idle}: {delay:?}");
        }
    }
}
