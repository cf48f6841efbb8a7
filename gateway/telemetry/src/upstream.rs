//! What is counted of each server behind the gateway.

use std::{
    fmt,
    sync::{Arc, OnceLock},
    time::Duration,
};

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounterVec, IntGaugeVec, Opts, Registry};

use crate::{
    ErrorType, Transport,
    metrics::{Counter, Gauge, register},
    operation::SECONDS,
};

/// The metrics of all servers.
pub(crate) struct Upstreams {
    durations: HistogramVec,
    up: IntGaugeVec,
    restarts: IntCounterVec,
    cache: IntCounterVec,
}

/// The requests that calls become. Their series are looked up once; others are rare.
const FREQUENT: [&str; 4] = ["tools/call", "resources/read", "prompts/get", "completion/complete"];

/// Where the durations of one method go, by how it ended: well, or with which error.
#[derive(Default)]
struct Series {
    success: OnceLock<Histogram>,
    errors: [OnceLock<Histogram>; ErrorType::ALL.len()],
}

/// The metrics of one server: cheap to clone.
#[derive(Clone)]
pub struct Upstream {
    name: String,
    transport: Transport,
    durations: HistogramVec,
    frequent: Arc<[Series; FREQUENT.len()]>,
    up: Gauge,
    restarts: Counter,
    cache_hits: Counter,
    cache_misses: Counter,
}

impl Upstreams {
    pub(crate) fn new(registry: &Registry) -> Self {
        let options = HistogramOpts::new(
            "mcp_client_operation_duration_seconds",
            "Time from sending a request to an upstream to its answer.",
        )
        .buckets(SECONDS.to_vec());
        let labels = ["mcp_method_name", "error_type", "network_transport", "upstream"];
        let durations = HistogramVec::new(options, &labels).expect("the names and buckets above are valid");
        let up = Opts::new("moongate_upstream_up", "Open connections to an upstream.");
        let up = IntGaugeVec::new(up, &["upstream"]).expect("the name above is valid");
        let restarts =
            Opts::new("moongate_upstream_restarts_total", "Connections made again after one was lost.");
        let restarts = IntCounterVec::new(restarts, &["upstream"]).expect("the name above is valid");
        register(registry, durations.clone());
        register(registry, up.clone());
        let cache =
            Opts::new("moongate_cache_total", "Resources that were kept when read, or had to be fetched.");
        let cache = IntCounterVec::new(cache, &["result", "upstream"]).expect("the name above is valid");
        register(registry, restarts.clone());
        register(registry, cache.clone());
        Self { durations, up, restarts, cache }
    }

    pub(crate) fn resolve(&self, name: &str, transport: Transport) -> Upstream {
        Upstream {
            name: name.to_owned(),
            transport,
            durations: self.durations.clone(),
            frequent: Arc::default(),
            up: Gauge(self.up.with_label_values(&[name])),
            restarts: Counter(self.restarts.with_label_values(&[name])),
            cache_hits: Counter(self.cache.with_label_values(&["hit", name])),
            cache_misses: Counter(self.cache.with_label_values(&["miss", name])),
        }
    }

    /// Takes a server that is no longer configured off the page.
    pub(crate) fn forget(&self, name: &str) {
        // What is not there need not go.
        drop(self.up.remove_label_values(&[name]));
        drop(self.restarts.remove_label_values(&[name]));
        for result in ["hit", "miss"] {
            drop(self.cache.remove_label_values(&[result, name]));
        }
    }
}

impl Upstream {
    /// Records one request that took `duration` and ended well, or with `error`.
    pub fn observe(&self, method: &'static str, duration: Duration, error: Option<ErrorType>) {
        let look_up = || {
            let labels = [method, error.map_or("", ErrorType::as_str), self.transport.as_str(), &self.name];
            self.durations.with_label_values(&labels)
        };
        let seconds = duration.as_secs_f64();
        match self.slot(method, error) {
            Some(slot) => slot.get_or_init(look_up).observe(seconds),
            None => look_up().observe(seconds),
        }
    }

    fn slot(&self, method: &'static str, error: Option<ErrorType>) -> Option<&OnceLock<Histogram>> {
        let (_, series) = FREQUENT.iter().zip(&*self.frequent).find(|(frequent, _)| **frequent == method)?;
        error.map_or(Some(&series.success), |error| series.errors.get(error as usize))
    }

    /// `moongate_upstream_up`
    pub fn up(&self) -> &Gauge {
        &self.up
    }

    /// `moongate_cache_total` for what was kept.
    pub fn cache_hits(&self) -> &Counter {
        &self.cache_hits
    }

    /// `moongate_cache_total` for what had to be fetched.
    pub fn cache_misses(&self) -> &Counter {
        &self.cache_misses
    }

    /// `moongate_upstream_restarts_total`
    pub fn restarts(&self) -> &Counter {
        &self.restarts
    }
}

impl fmt::Debug for Upstream {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Upstream({})", self.name)
    }
}

#[cfg(test)]
mod tests {
    use crate::{ErrorType, Metrics, Transport};

    use super::*;

    #[test]
    fn requests_are_counted_by_method_and_end_whether_looked_up_before_or_not() {
        let metrics = Metrics::new();
        let upstream = metrics.upstream("u", Transport::Pipe);
        for method in ["tools/call", "resources/subscribe"] {
            for error in [None, Some(ErrorType::Timeout), None, Some(ErrorType::Other)] {
                upstream.clone().observe(method, Duration::from_secs(1), error);
            }
            for (error, count) in [("", 2), ("timeout", 1), ("_OTHER", 1)] {
                let line = format!(
                    "mcp_client_operation_duration_seconds_count{{error_type=\"{error}\",\
                     mcp_method_name=\"{method}\",network_transport=\"pipe\",upstream=\"u\"}} {count}\n"
                );
                assert!(metrics.render().contains(&line), "{line}{}", metrics.render());
            }
        }
    }
}
