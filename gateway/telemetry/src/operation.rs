//! The duration histogram of MCP operations, and the handles that fill it without a label lookup.
//!
//! A handle belongs to one method, tool and transport. Its series appear on the page with their first observation, so
//! that a catalog of ten thousand tools does not make ten thousand empty histograms.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError},
    time::Duration,
};

use prometheus::{Histogram, HistogramOpts, HistogramVec};

/// The label that stands for every value nobody configured: tools and methods a caller made up.
pub const OTHER: &str = "_OTHER";

/// OpenTelemetry's boundaries for MCP durations, and three below them: built-in tools answer within a millisecond.
pub(crate) const SECONDS: [f64; 17] =
    [0.000_5, 0.001, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0];

/// What carries the messages of a client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Transport {
    /// HTTP.
    Tcp,
    /// Standard input and output.
    Pipe,
}

/// Why an operation did not succeed. A closed set, so that no caller can make new series.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ErrorType {
    /// The tool answered with `isError`.
    Tool,
    /// -32700
    Parse,
    /// -32600
    InvalidRequest,
    /// -32601
    MethodNotFound,
    /// -32602
    InvalidParams,
    /// -32603
    Internal,
    /// -32001
    Forbidden,
    /// -32002
    ResourceNotFound,
    /// -32020
    HeaderMismatch,
    /// -32021
    MissingCapability,
    /// -32022
    UnsupportedVersion,
    /// The deadline passed.
    Timeout,
    /// The client went away or said so.
    Cancelled,
    /// A limit was reached.
    Limited,
    /// An upstream could not be reached.
    Unavailable,
    /// Any other code, such as an upstream's own.
    Other,
}

/// One method of one tool over one transport: cheap to clone, cheap to observe.
#[derive(Clone)]
pub struct Operation(Arc<Series>);

/// Every operation that was resolved and not forgotten.
pub(crate) struct Operations {
    durations: HistogramVec,
    series: Mutex<HashMap<Key, Arc<Series>>>,
}

#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    method: &'static str,
    tool: Arc<str>,
    transport: Transport,
}

struct Series {
    key: Key,
    durations: HistogramVec,
    /// False once the tool was forgotten: what is still running then must not bring its series back.
    live: Mutex<bool>,
    success: OnceLock<Histogram>,
    errors: [OnceLock<Histogram>; ErrorType::ALL.len()],
}

impl Transport {
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Self::Tcp => "tcp",
            Self::Pipe => "pipe",
        }
    }
}

impl ErrorType {
    pub(crate) const ALL: [Self; 16] = [
        Self::Tool,
        Self::Parse,
        Self::InvalidRequest,
        Self::MethodNotFound,
        Self::InvalidParams,
        Self::Internal,
        Self::Forbidden,
        Self::ResourceNotFound,
        Self::HeaderMismatch,
        Self::MissingCapability,
        Self::UnsupportedVersion,
        Self::Timeout,
        Self::Cancelled,
        Self::Limited,
        Self::Unavailable,
        Self::Other,
    ];

    /// The type of a JSON-RPC error code.
    pub fn of_code(code: i64) -> Self {
        match code {
            -32700 => Self::Parse,
            -32600 => Self::InvalidRequest,
            -32601 => Self::MethodNotFound,
            -32602 => Self::InvalidParams,
            -32603 => Self::Internal,
            -32001 => Self::Forbidden,
            -32002 => Self::ResourceNotFound,
            -32020 => Self::HeaderMismatch,
            -32021 => Self::MissingCapability,
            -32022 => Self::UnsupportedVersion,
            _ => Self::Other,
        }
    }

    /// The value of the label `error_type`: the code where there is one, as OpenTelemetry has it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Tool => "tool_error",
            Self::Parse => "-32700",
            Self::InvalidRequest => "-32600",
            Self::MethodNotFound => "-32601",
            Self::InvalidParams => "-32602",
            Self::Internal => "-32603",
            Self::Forbidden => "-32001",
            Self::ResourceNotFound => "-32002",
            Self::HeaderMismatch => "-32020",
            Self::MissingCapability => "-32021",
            Self::UnsupportedVersion => "-32022",
            Self::Timeout => "timeout",
            Self::Cancelled => "cancelled",
            Self::Limited => "limited",
            Self::Unavailable => "unavailable",
            Self::Other => OTHER,
        }
    }
}

impl Operation {
    /// Records one operation that took `duration` and ended well, or with `error`.
    pub fn observe(&self, duration: Duration, error: Option<ErrorType>) {
        if let Some(histogram) = self.0.resolved(error) {
            histogram.observe(duration.as_secs_f64());
        }
    }
}

impl Series {
    fn resolved(&self, error: Option<ErrorType>) -> Option<&Histogram> {
        let slot = match error {
            None => &self.success,
            Some(error) => self.errors.get(error as usize)?,
        };
        slot.get().or_else(|| self.resolve(slot, error))
    }

    #[cold]
    fn resolve<'a>(&self, slot: &'a OnceLock<Histogram>, error: Option<ErrorType>) -> Option<&'a Histogram> {
        let live = lock(&self.live);
        live.then(|| slot.get_or_init(|| self.durations.with_label_values(&self.labels(error))))
    }

    fn retire(&self) {
        *lock(&self.live) = false;
        let failed = ErrorType::ALL.into_iter().zip(&self.errors).map(|(error, slot)| (Some(error), slot));
        for (error, _) in failed.chain([(None, &self.success)]).filter(|(_, slot)| slot.get().is_some()) {
            // It can only be gone already, which is what is wanted.
            drop(self.durations.remove_label_values(&self.labels(error)));
        }
    }

    fn labels(&self, error: Option<ErrorType>) -> [&str; 4] {
        [self.key.method, &self.key.tool, error.map_or("", ErrorType::as_str), self.key.transport.as_str()]
    }
}

impl Operations {
    pub(crate) fn new() -> Self {
        let options = HistogramOpts::new(
            "mcp_server_operation_duration_seconds",
            "Time from the arrival of an MCP request or notification to its answer.",
        )
        .buckets(SECONDS.to_vec());
        let labels = ["mcp_method_name", "gen_ai_tool_name", "error_type", "network_transport"];
        let durations = HistogramVec::new(options, &labels).expect("the names and buckets above are valid");
        Self { durations, series: Mutex::default() }
    }

    pub(crate) fn collector(&self) -> HistogramVec {
        self.durations.clone()
    }

    /// The same handle for the same three, so that a reload keeps what is resolved.
    pub(crate) fn resolve(&self, method: &'static str, tool: &str, transport: Transport) -> Operation {
        let key = Key { method, tool: tool.into(), transport };
        let mut all = lock(&self.series);
        let series = all.entry(key).or_insert_with_key(|key| {
            Arc::new(Series {
                key: key.clone(),
                durations: self.durations.clone(),
                live: Mutex::new(true),
                success: OnceLock::new(),
                errors: std::array::from_fn(|_| OnceLock::new()),
            })
        });
        Operation(Arc::clone(series))
    }

    pub(crate) fn forget_tool(&self, tool: &str) {
        let mut all = lock(&self.series);
        for series in all.extract_if(|key, _| &*key.tool == tool).map(|(_, series)| series) {
            series.retire();
        }
    }
}

impl fmt::Debug for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Key { method, tool, transport } = &self.0.key;
        write!(f, "Operation({method} {tool} {})", transport.as_str())
    }
}

/// The sections behind these locks cannot leave a half-made value behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_error_type_finds_its_own_slot() {
        for (index, error) in ErrorType::ALL.into_iter().enumerate() {
            assert_eq!(error as usize, index, "{error:?} is out of order in ALL");
        }
    }

    #[test]
    fn codes_are_their_own_label() {
        for code in [-32700, -32600, -32601, -32602, -32603, -32001, -32002, -32020, -32021, -32022] {
            assert_eq!(ErrorType::of_code(code).as_str(), code.to_string());
        }
        assert_eq!(ErrorType::of_code(-1).as_str(), OTHER);
    }

    #[test]
    fn boundaries_grow() {
        assert!(SECONDS.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn the_same_operation_is_resolved_once() {
        let operations = Operations::new();
        let first = operations.resolve("tools/call", "echo", Transport::Tcp);
        let second = operations.resolve("tools/call", "echo", Transport::Tcp);
        let piped = operations.resolve("tools/call", "echo", Transport::Pipe);
        assert!(Arc::ptr_eq(&first.0, &second.0));
        assert!(!Arc::ptr_eq(&first.0, &piped.0));
    }
}
