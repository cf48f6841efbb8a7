//! The streams of a legacy session: an answer that becomes one, the GET stream, and coming back to either.

use std::{pin::pin, sync::Arc};

use http::Response;
use moongate_security::headers::text;
use moongate_storage::EventId;
use moongate_wire::{Method, Raw, Refusal, Version, code, header};
use tokio::time::Instant;

use super::{
    answer,
    legacy::{InSession, Patient},
    standing::Standing,
};
use crate::{
    edge::body::Body,
    hub,
    job::Step,
    shape,
    stream::{self, Stream},
};

impl InSession<'_> {
    /// Answers with a stream that the client is to `leave`, if at all, at this time, but not before it has an event to come
    /// back to. From here the call belongs to the session, not to this connection.
    pub(super) fn stream(
        &self,
        mut patient: Patient,
        method: Method,
        first: Option<Raw>,
        leave: Option<Instant>,
    ) -> Response<Body> {
        let gateway = Arc::clone(self.gateway());
        let (stream, reader) = Stream::open(&self.live, gateway.state(), gateway.next_stream());
        let reader = reader.leaving(leave);
        let version = self.version();
        let Some(mut job) = patient.job.take() else { return answer::accepted() };
        gateway.tasks.spawn(async move {
            if version >= Version::V2025_11_25 {
                stream.prime().await;
            }
            if let Some(first) = first {
                stream.emit(&first).await;
            }
            loop {
                match job.step().await {
                    Step::Message(message) => stream.emit(&message).await,
                    Step::HangUp if version >= Version::V2025_11_25 => stream.hang_up(),
                    Step::HangUp | Step::Ask(_) => {}
                    Step::Cancelled => break,
                    Step::Done(outcome) => {
                        stream.emit(&shape::final_message(&job.id, method, outcome, version)).await;
                        break;
                    }
                }
            }
        });
        answer::events(|open| Body::legacy(reader, open), self.gateway().open_stream())
    }

    /// The GET stream: back to an earlier stream, or what changes from now on.
    pub(super) async fn open_stream(&self) -> Response<Body> {
        let last = self.visit.head.headers.get(header::LAST_EVENT_ID).and_then(text);
        match last {
            Some(last) => self.resume(last).await,
            None => self.listen(None).await,
        }
    }

    async fn resume(&self, last: &str) -> Response<Body> {
        let Ok(after) = last.parse::<EventId>() else {
            return answer::refused(
                None,
                &Refusal::new(
                    400,
                    code::INVALID_REQUEST,
                    "Bad Request: Last-Event-ID is not one of this server",
                ),
            );
        };
        if after.stream == stream::GET_STREAM {
            return self.listen(Some(after)).await;
        }
        match stream::resume(&self.live, self.gateway().state(), after).await {
            Ok(Some(reader)) => {
                let reader = reader.leaving(self.sent_away());
                answer::events(|open| Body::legacy(reader, open), self.gateway().open_stream())
            }
            // What is not in the log any more cannot be replayed; the client still gets what comes.
            Ok(None) => self.listen(None).await,
            Err(error) => unreadable_log(&error),
        }
    }

    /// Tells the session what changes from now on, and first what came after the event it saw last.
    async fn listen(&self, after: Option<EventId>) -> Response<Body> {
        let gateway = self.gateway();
        let principal = self.visit.admitted.principal();
        let Some(listener) = gateway.sessions.listener(&self.live.id, principal, |_| {}) else {
            return answer::refused(None, &Refusal::new(404, code::FORBIDDEN, "session expired"));
        };
        // Opened before the log is read: an event that comes in between is in both, and the reader skips the second.
        let (stream, mut reader) = Stream::open(&self.live, gateway.state(), stream::GET_STREAM);
        if let Some(after) = after {
            match stream::replay(&self.live, gateway.state(), after).await {
                Ok(replay) => (reader.replay, reader.seen) = (replay.unwrap_or_default(), after.sequence),
                Err(error) => return unreadable_log(&error),
            }
        }
        let (drain, standing) = (self.visit.conn.drain.clone(), Standing::of(self.visit));
        let prime = self.version() >= Version::V2025_11_25;
        gateway.tasks.spawn(async move {
            if prime {
                stream.prime().await;
            }
            // Pinned before the loop: begun anew with every change, a busy stream would never be asked for again.
            let (mut lost, mut draining) = (pin!(standing.lost()), pin!(drain.begun()));
            loop {
                tokio::select! {
                    changes = listener.changes() => {
                        // A stream that took our place tells them instead.
                        if !stream.is_current() {
                            listener.untold(changes);
                            break;
                        }
                        for change in changes {
                            stream.emit(&hub::notification(&change, None)).await;
                        }
                    }
                    () = stream.abandoned() => break,
                    () = &mut lost => break,
                    () = &mut draining => break,
                }
            }
        });
        answer::events(|open| Body::legacy(reader, open), gateway.open_stream())
    }
}

fn unreadable_log(error: &moongate_storage::Error) -> Response<Body> {
    tracing::error!(%error, "the event log cannot be read");
    answer::refused(None, &Refusal::new(503, code::INTERNAL, "Internal error: events cannot be replayed"))
}
