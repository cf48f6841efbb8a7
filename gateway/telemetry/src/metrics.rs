//! Everything this process counts, under one registry of its own.
//!
//! In: observations from the request path. Out: one page in Prometheus' text format. Names follow OpenTelemetry's
//! conventions for MCP where those have one. Label values come from enums, the configuration and the catalog only.

use prometheus::{
    IntCounter, IntCounterVec, IntGauge, Opts, Registry, TextEncoder,
    core::{Collector, GenericCounter},
};
use tracing::error;

use crate::{
    operation::{OTHER, Operation, Operations, Transport},
    upstream::{Upstream, Upstreams},
};

/// The metrics of this process.
pub struct Metrics {
    registry: Registry,
    operations: Operations,
    upstreams: Upstreams,
    refused: IntCounterVec,
    reloads: IntCounterVec,
    sessions: Gauge,
    parked_calls: Gauge,
    connections: Gauge,
    open_streams: Gauge,
    notes_dropped: Counter,
}

/// A number that goes up and down.
#[derive(Clone, Debug)]
pub struct Gauge(pub(crate) IntGauge);

/// A number that only grows.
#[derive(Clone, Debug)]
pub struct Counter(pub(crate) IntCounter);

/// One unit of a [`Gauge`], given back when dropped.
#[derive(Debug)]
#[must_use = "dropping it gives the unit back at once"]
pub struct Held(IntGauge);

/// How a reload of the configuration ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReloadOutcome {
    /// The new configuration is in force.
    Applied,
    /// The new configuration was bad or needs a restart; the old one stays.
    Refused,
}

impl Metrics {
    /// The tool name that stands for all tools nobody offers.
    pub const UNKNOWN_TOOL: &'static str = OTHER;
    /// The method that stands for all methods that do not exist.
    pub const UNKNOWN_METHOD: &'static str = OTHER;

    /// Metrics that all stand at zero.
    pub fn new() -> Self {
        let registry = Registry::new();
        let operations = Operations::new();
        register(&registry, operations.collector());
        register_process(&registry);
        Self {
            upstreams: Upstreams::new(&registry),
            refused: counters(
                &registry,
                "moongate_refused_total",
                "Requests refused before any method ran.",
                "reason",
            ),
            reloads: counters(
                &registry,
                "moongate_config_reloads_total",
                "Reloads of the configuration.",
                "outcome",
            ),
            sessions: gauge(&registry, "moongate_sessions", "Sessions of legacy clients."),
            parked_calls: gauge(
                &registry,
                "moongate_parked_calls",
                "Calls that wait for an answer of their client.",
            ),
            connections: gauge(&registry, "moongate_connections", "Open connections of clients."),
            open_streams: gauge(&registry, "moongate_open_streams", "Open event streams."),
            notes_dropped: counter(
                &registry,
                "moongate_notes_dropped_total",
                "Progress and log notifications dropped because their client did not keep up.",
            ),
            operations,
            registry,
        }
    }

    /// The handle of `method`, on `tool` where the method names one (else `""`), over `transport`.
    ///
    /// Resolve it when the catalog or the configuration is loaded, and hold it in the route. Never resolve a name that
    /// only a caller knows: those share [`Metrics::UNKNOWN_TOOL`].
    pub fn operation(&self, method: &'static str, tool: &str, transport: Transport) -> Operation {
        self.operations.resolve(method, tool, transport)
    }

    /// Takes a tool that left the catalog off the page. Handles of it that are still held count for nobody.
    pub fn forget_tool(&self, tool: &str) {
        self.operations.forget_tool(tool);
    }

    /// The handle of the server called `name`, which is reached over `transport`.
    pub fn upstream(&self, name: &str, transport: Transport) -> Upstream {
        self.upstreams.resolve(name, transport)
    }

    /// Takes a server that is no longer configured off the page.
    pub fn forget_upstream(&self, name: &str) {
        self.upstreams.forget(name);
    }

    /// `moongate_refused_total` for one reason.
    pub fn refused(&self, reason: &'static str) -> Counter {
        Counter(self.refused.with_label_values(&[reason]))
    }

    /// Counts one reload.
    pub fn reloaded(&self, outcome: ReloadOutcome) {
        self.reloads.with_label_values(&[outcome.as_str()]).inc();
    }

    /// `moongate_sessions`
    pub fn sessions(&self) -> &Gauge {
        &self.sessions
    }

    /// `moongate_parked_calls`
    pub fn parked_calls(&self) -> &Gauge {
        &self.parked_calls
    }

    /// `moongate_connections`
    pub fn connections(&self) -> &Gauge {
        &self.connections
    }

    /// `moongate_open_streams`
    pub fn open_streams(&self) -> &Gauge {
        &self.open_streams
    }

    /// `moongate_notes_dropped_total`
    pub fn notes_dropped(&self) -> &Counter {
        &self.notes_dropped
    }

    /// The page in Prometheus' text format. Takes milliseconds with many series: call it where blocking is allowed.
    pub fn render(&self) -> String {
        TextEncoder::new().encode_to_string(&self.registry.gather()).unwrap_or_else(|error| {
            error!(%error, "metrics could not be written");
            String::new()
        })
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl std::fmt::Debug for Metrics {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Metrics")
    }
}

impl Gauge {
    /// Sets the number.
    pub fn set(&self, value: usize) {
        self.0.set(i64::try_from(value).unwrap_or(i64::MAX));
    }

    /// Adds one for as long as the returned value lives.
    pub fn hold(&self) -> Held {
        self.0.inc();
        Held(self.0.clone())
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.0.dec();
    }
}

impl Counter {
    /// Adds one.
    pub fn increment(&self) {
        self.0.inc();
    }

    /// Adds `count`.
    pub fn add(&self, count: u64) {
        self.0.inc_by(count);
    }
}

impl ReloadOutcome {
    fn as_str(self) -> &'static str {
        match self {
            Self::Applied => "applied",
            Self::Refused => "refused",
        }
    }
}

fn gauge(registry: &Registry, name: &str, help: &str) -> Gauge {
    let gauge = IntGauge::new(name, help).expect("the names in this file are valid");
    register(registry, gauge.clone());
    Gauge(gauge)
}

fn counter(registry: &Registry, name: &str, help: &str) -> Counter {
    let counter = GenericCounter::new(name, help).expect("the names in this file are valid");
    register(registry, counter.clone());
    Counter(counter)
}

fn counters(registry: &Registry, name: &str, help: &str, label: &str) -> IntCounterVec {
    let counters =
        IntCounterVec::new(Opts::new(name, help), &[label]).expect("the names in this file are valid");
    register(registry, counters.clone());
    counters
}

pub(crate) fn register(registry: &Registry, collector: impl Collector + 'static) {
    registry.register(Box::new(collector)).expect("each name is registered once");
}

/// Memory, descriptors, threads and processor time, read from `/proc` at each scrape.
#[cfg(target_os = "linux")]
fn register_process(registry: &Registry) {
    register(registry, prometheus::process_collector::ProcessCollector::for_self());
}

/// Only Linux tells cheaply.
#[cfg(not(target_os = "linux"))]
fn register_process(_registry: &Registry) {}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::ErrorType;

    const SERIES: &str = "mcp_server_operation_duration_seconds_count";

    fn line<'a>(page: &'a str, start: &str) -> Option<&'a str> {
        page.lines().find(|line| line.starts_with(start))
    }

    #[test]
    fn an_operation_is_counted_under_its_labels() {
        let metrics = Metrics::new();
        let echo = metrics.operation("tools/call", "echo", Transport::Tcp);
        echo.observe(Duration::from_millis(3), None);
        echo.observe(Duration::from_millis(3), None);
        echo.observe(Duration::from_secs(1), Some(ErrorType::Timeout));
        let page = metrics.render();
        let labels = |error: &str| {
            format!(
                r#"{SERIES}{{error_type="{error}",gen_ai_tool_name="echo",mcp_method_name="tools/call",network_transport="tcp"}}"#
            )
        };
        assert_eq!(line(&page, &labels("")), Some(&*format!("{} 2", labels(""))));
        assert_eq!(line(&page, &labels("timeout")), Some(&*format!("{} 1", labels("timeout"))));
    }

    #[test]
    fn a_resolved_operation_shows_only_once_it_ran() {
        let metrics = Metrics::new();
        let ping = metrics.operation("ping", "", Transport::Pipe);
        assert_eq!(line(&metrics.render(), SERIES), None);
        ping.observe(Duration::ZERO, None);
        assert!(line(&metrics.render(), SERIES).is_some());
    }

    #[test]
    fn a_forgotten_tool_leaves_the_page_and_stays_away() {
        let metrics = Metrics::new();
        let gone = metrics.operation("tools/call", "gone", Transport::Tcp);
        let kept = metrics.operation("tools/call", "kept", Transport::Tcp);
        gone.observe(Duration::ZERO, None);
        gone.observe(Duration::ZERO, Some(ErrorType::Tool));
        kept.observe(Duration::ZERO, None);
        metrics.forget_tool("gone");
        gone.observe(Duration::ZERO, None);
        gone.observe(Duration::ZERO, Some(ErrorType::Internal));
        let page = metrics.render();
        assert!(!page.contains("gone"), "{page}");
        assert!(page.contains("kept"));
    }

    #[test]
    fn a_tool_that_comes_back_starts_anew() {
        let metrics = Metrics::new();
        metrics.operation("tools/call", "back", Transport::Tcp).observe(Duration::ZERO, None);
        metrics.forget_tool("back");
        metrics.operation("tools/call", "back", Transport::Tcp).observe(Duration::ZERO, None);
        let page = metrics.render();
        assert!(line(&page, SERIES).is_some_and(|line| line.ends_with(" 1")), "{page}");
    }

    #[test]
    fn what_is_held_is_given_back() {
        let metrics = Metrics::new();
        let first = metrics.connections().hold();
        let second = metrics.connections().hold();
        assert_eq!(line(&metrics.render(), "moongate_connections"), Some("moongate_connections 2"));
        drop((first, second));
        assert_eq!(line(&metrics.render(), "moongate_connections"), Some("moongate_connections 0"));
    }

    #[test]
    fn counters_carry_their_reason_and_outcome() {
        let metrics = Metrics::new();
        metrics.refused("bad_host").increment();
        metrics.reloaded(ReloadOutcome::Refused);
        metrics.notes_dropped().increment();
        metrics.sessions().set(7);
        let page = metrics.render();
        for expected in [
            r#"moongate_refused_total{reason="bad_host"} 1"#,
            r#"moongate_config_reloads_total{outcome="refused"} 1"#,
            "moongate_notes_dropped_total 1",
            "moongate_sessions 7",
        ] {
            assert!(page.lines().any(|line| line == expected), "{expected} in\n{page}");
        }
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn the_process_is_measured() {
        let page = Metrics::new().render();
        let memory = line(&page, "process_resident_memory_bytes ").expect("a line of its own");
        let bytes: f64 = memory.rsplit(' ').next().unwrap().parse().unwrap();
        assert!(bytes > 0.0);
    }

    #[test]
    fn two_registries_do_not_share_numbers() {
        let (one, other) = (Metrics::new(), Metrics::new());
        one.notes_dropped().increment();
        assert!(other.render().contains("moongate_notes_dropped_total 0"));
    }
}
