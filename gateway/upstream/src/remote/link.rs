//! The pooled client of one server, with what every request to it carries.
//!
//! In: requests. Out: heads of answers, or why there is none: whether the server can have seen the request decides
//! between [`Fault::Unreached`] and [`Fault::Lost`]. What an answer means is left to those who asked.

use std::{fmt, sync::Arc, time::Duration};

use bytes::{Bytes, BytesMut};
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response, Uri, header};
use http_body::Body as _;
use http_body_util::BodyExt as _;
use moongate_core::task::Group;
use moongate_wire::{Version, header as names};

use super::{
    Spec,
    connect::{Connector, place},
    pool::{Body, Outbound, Pool, Unanswered},
};
use crate::transport::Fault;

/// What of a body that nobody reads is taken in, and for how long, so that its connection can be used again.
const DRAIN_BYTES: usize = 64 * 1024;
const DRAIN_PATIENCE: Duration = Duration::from_secs(1);

/// How many headers a request has beside those that all have; more of them make it grow.
const OWN_HEADERS: usize = 8;
const JSON: HeaderValue = HeaderValue::from_static("application/json");
const EVENTS: HeaderValue = HeaderValue::from_static("text/event-stream");
const BOTH: HeaderValue = HeaderValue::from_static("application/json, text/event-stream");
const PROTOCOL_VERSION: HeaderName = HeaderName::from_static(names::PROTOCOL_VERSION);
pub(super) const SESSION_ID: HeaderName = HeaderName::from_static(names::SESSION_ID);
pub(super) const LAST_EVENT_ID: HeaderName = HeaderName::from_static(names::LAST_EVENT_ID);

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

/// What kind of body an answer has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Json,
    Events,
    Other,
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

    /// A message to post.
    pub(super) fn post(version: Option<Version>, message: Bytes) -> Outbound {
        request(Method::POST, version, &[(header::CONTENT_TYPE, JSON), (header::ACCEPT, BOTH)], message)
    }

    /// A request for a stream of events.
    pub(super) fn get(version: Option<Version>) -> Outbound {
        request(Method::GET, version, &[(header::ACCEPT, EVENTS)], Bytes::new())
    }

    /// A request to end something.
    pub(super) fn delete(version: Option<Version>) -> Outbound {
        request(Method::DELETE, version, &[], Bytes::new())
    }

    /// Sends a request to the endpoint and waits for the head of its answer.
    ///
    /// # Cancel safety
    /// Dropping the future resets the stream or closes the connection.
    pub(super) async fn ask(&self, request: Outbound) -> Result<Response<Body>, Fault> {
        self.ask_at(&self.url, request).await
    }

    /// As [`Self::ask`], at another address of the same server.
    pub(super) async fn ask_at(&self, url: &Uri, request: Outbound) -> Result<Response<Body>, Fault> {
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
                let rest = usize::try_from(body.size_hint().lower()).unwrap_or(0);
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

fn request(
    method: Method,
    version: Option<Version>,
    headers: &[(HeaderName, HeaderValue)],
    body: Bytes,
) -> Outbound {
    let mut request = Outbound { method, headers: Vec::with_capacity(OWN_HEADERS), body };
    request.headers.extend_from_slice(headers);
    // Servers of earlier versions do not know the header.
    if let Some(version) = version.filter(|version| *version >= Version::V2025_06_18) {
        request.headers.push((PROTOCOL_VERSION, HeaderValue::from_static(version.as_str())));
    }
    request
}

impl fmt::Debug for Link {
    /// The place only: headers and the rest of an address may be secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Link").field("place", &self.place).finish_non_exhaustive()
    }
}

impl Kind {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let value = headers.get(header::CONTENT_TYPE).map_or(&b""[..], HeaderValue::as_bytes);
        let essence = value.split(|byte| *byte == b';').next().unwrap_or_default().trim_ascii();
        match essence {
            _ if essence.eq_ignore_ascii_case(JSON.as_bytes()) => Self::Json,
            _ if essence.eq_ignore_ascii_case(EVENTS.as_bytes()) => Self::Events,
            _ => Self::Other,
        }
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
