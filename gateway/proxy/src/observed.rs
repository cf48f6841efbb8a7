//! How calls ended: one duration per call, one log line with its three context ids, and nothing of what was said.

use std::sync::Arc;

use moongate_core::{CallError, Context, Kind, Raw};
use moongate_telemetry::{ErrorType, Operation};
use moongate_wire::{Method, raw::Needle};
use serde::Deserialize;
use tokio::time::Instant;

use crate::job::Outcome;

/// A name in a log line is cut after this many bytes: resources are named by the client.
const SHOWN_NAME: usize = 128;

/// Notes how a call ended, also when it is dropped on the way.
pub(crate) struct Observed {
    method: Method,
    /// Tool, prompt or resource, as clients see it.
    name: Arc<str>,
    metric: Operation,
    started: Instant,
    pub(crate) cx: Context,
    finished: bool,
}

impl Observed {
    pub(crate) fn new(
        method: Method,
        name: Arc<str>,
        metric: Operation,
        started: Instant,
        cx: Context,
    ) -> Self {
        Self { method, name, metric, started, cx, finished: false }
    }

    fn name(&self) -> &str {
        self.name.get(..self.name.floor_char_boundary(SHOWN_NAME)).unwrap_or_default()
    }

    pub(crate) fn finish(mut self, outcome: &Outcome) {
        self.finished = true;
        let error = match outcome {
            Ok(reply) => is_tool_error(&reply.result).then_some(ErrorType::Tool),
            Err(error) => Some(error_type(error)),
        };
        self.note(error);
        if let Err(error) = outcome {
            let source = std::error::Error::source(error).map(ToString::to_string);
            tracing::info!(
                method = self.method.as_str(),
                name = self.name(),
                principal = self.cx.principal.as_str(),
                session = &*self.cx.ids.session,
                assistant = self.cx.ids.assistant.as_deref(),
                thread = self.cx.ids.thread.as_deref(),
                kind = error_type(error).as_str(),
                source,
                "call failed"
            );
        }
    }

    fn note(&self, error: Option<ErrorType>) {
        let elapsed = self.started.elapsed();
        self.metric.observe(elapsed, error);
        tracing::debug!(
            method = self.method.as_str(),
            name = self.name(),
            principal = self.cx.principal.as_str(),
            session = &*self.cx.ids.session,
            assistant = self.cx.ids.assistant.as_deref(),
            thread = self.cx.ids.thread.as_deref(),
            micros = u64::try_from(elapsed.as_micros()).unwrap_or(u64::MAX),
            error = error.map(ErrorType::as_str),
            "call"
        );
    }
}

impl Drop for Observed {
    fn drop(&mut self) {
        if !self.finished {
            self.note(Some(ErrorType::Cancelled));
        }
    }
}

/// Whether a result says `isError: true`, without building it.
fn is_tool_error(result: &Raw) -> bool {
    static IS_ERROR: Needle = Needle::new("isError");
    #[derive(Deserialize)]
    struct Flag {
        #[serde(default, rename = "isError")]
        is_error: bool,
    }
    // Most results are no errors, and most say so at their end: do not read them through for that.
    !result.as_bytes().ends_with(br#""isError":false}"#)
        && IS_ERROR.may_be_in(result)
        && result.parse::<Flag>().is_ok_and(|flag| flag.is_error)
}

pub(crate) fn error_type(error: &CallError) -> ErrorType {
    match &error.kind {
        Kind::Unknown | Kind::InvalidParams => ErrorType::InvalidParams,
        Kind::UnknownResource { .. } => ErrorType::ResourceNotFound,
        Kind::Unsupported => ErrorType::MethodNotFound,
        Kind::MissingCapability { .. } => ErrorType::MissingCapability,
        Kind::MissingScope { .. } => ErrorType::Forbidden,
        Kind::Timeout => ErrorType::Timeout,
        Kind::Cancelled => ErrorType::Cancelled,
        Kind::Limited { .. } => ErrorType::Limited,
        Kind::Unavailable => ErrorType::Unavailable,
        Kind::Rpc { error } => ErrorType::of_code(error.code),
        Kind::Internal => ErrorType::Internal,
    }
}
