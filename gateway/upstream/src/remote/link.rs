//! The pooled client of one server, with what every request to it carries.
//!
//! In: requests. Out: heads of answers, or why there is none: whether the server can have seen the request decides
//! between [`Fault::Unreached`] and [`Fault::Lost`]. What an answer means is left to those who asked.

use std::{fmt, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::Uri;
use http_body::Body as _;
use http_body_util::BodyExt as _;
use moongate_core::task::Group;

use super::{
    Spec,
    connect::{Connector, place},
    head::Head,
    outbound::Outbound,
    pool::{Body, Pool, Unanswered},
};
use crate::transport::Fault;

/// What of a body that nobody reads is taken in, and for how long, so that its connection can be used again.
const DRAIN_BYTES: usize = 64 * 1024;
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// The way to one server.
pub(super) struct Link {
    /// The upstream, in the log.
    pub(super) name: Arc<str>,
    pub(super) url: Uri,
    /// Host and port, for texts.
    pub(super) place: String,
    pub(super) max_message: usize,
    pub(super) connect_timeout: Duration,
    pub(super) tasks: Group,
    pool: Arc<Pool>,
}

impl Link {
    pub(super) fn new(spec: Spec, tasks: Group) -> Self {
        let connector = Connector::new(spec.ca_files, spec.connect_timeout);
        let mut headers = spec.headers;
        for (_, value) in &mut headers {
            value.set_sensitive(true);
        }
        let pool = Arc::new(Pool::new(connector, &spec.url, headers, spec.idle, tasks.clone()));
        Self {
            name: spec.name,
            place: place(&spec.url),
            url: spec.url,
            max_message: spec.max_message,
            connect_timeout: spec.connect_timeout,
            tasks,
            pool,
        }
    }

    /// Sends a request to the endpoint and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream or closes the connection.
    pub(super) async fn ask(&self, request: &Outbound) -> Result<(Head, Body), Fault> {
        self.ask_at(&self.url, request).await
    }

    /// As [`Self::ask`], at another address of the same server.
    pub(super) async fn ask_at(&self, url: &Uri, request: &Outbound) -> Result<(Head, Body), Fault> {
        self.pool.ask(url, request).await.map_err(|error| self.fault(&error))
    }

    /// Why there is no head of an answer.
    fn fault(&self, error: &Unanswered) -> Fault {
        let place = &self.place;
        match error {
            Unanswered::Unconnected(failure) => Fault::Unreached(failure.to_string().into()),
            Unanswered::Unsent(error) => {
                let why = cause(error);
                Fault::Unreached(
                    format!("the connection to {place} closed before the request was sent: {why}").into(),
                )
            }
            Unanswered::Lost(error) => self.lost(error),
        }
    }

    /// The connection ended in the middle of an answer.
    pub(super) fn lost(&self, error: &dyn std::error::Error) -> Fault {
        let text = format!("the connection to {} was lost before the answer: {}", self.place, cause(error));
        Fault::Lost(text.into())
    }

    /// A whole body.
    pub(super) async fn collect(&self, mut body: Body) -> Result<Bytes, Fault> {
        let too_long = || {
            let text = format!("the server's answer is longer than {} bytes", self.max_message);
            Fault::Garbled(text.into())
        };
        if body.size_hint().lower() > self.max_message as u64 {
            return Err(too_long());
        }
        // Nearly every answer is one piece, which is not copied.
        let mut first = Bytes::new();
        let mut all = BytesMut::new();
        while !body.is_end_stream() {
            let Some(frame) = body.frame().await else { break };
            let Ok(data) = frame.map_err(|error| self.lost(&error))?.into_data() else { continue };
            if first.len().max(all.len()) + data.len() > self.max_message {
                return Err(too_long());
            }
            if first.is_empty() {
                first = data;
                continue;
            }
            if all.is_empty() {
                let rest = usize::try_from(body.size_hint().lower()).unwrap_or(0).min(self.max_message);
                all.reserve(first.len() + data.len() + rest);
                all.extend_from_slice(&first);
            }
            all.extend_from_slice(&data);
        }
        Ok(if all.is_empty() { first } else { all.freeze() })
    }

    /// Takes in the end of a body that nobody needs, so that its connection can be used again. Most bodies have ended
    /// already; the others get a moment.
    pub(super) fn drain(&self, mut body: Body) {
        if body.is_end_stream() {
            return;
        }
        let mut rest = Box::pin(async move {
            let mut left = DRAIN_BYTES;
            while let Some(Ok(frame)) = body.frame().await {
                let length = frame.data_ref().map_or(0, Bytes::len);
                let Some(still) = left.checked_sub(length) else { return };
                left = still;
            }
        });
        if rest.as_mut().now_or_never().is_none() {
            self.tasks.spawn(async move { drop(tokio::time::timeout(DRAIN_PATIENCE, rest).await) });
        }
    }
}

impl fmt::Debug for Link {
    /// The place only: headers and the rest of an address may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).finish_non_exhaustive()
    }
}

/// The innermost reason, which says most in the fewest words.
fn cause(error: &dyn std::error::Error) -> String {
    let mut error = error;
    while let Some(source) = error.source() {
        error = source;
    }
    error.to_string()
}
