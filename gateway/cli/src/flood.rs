//! The guard before everything else: too many requests of one address, counted in constant memory.
//!
//! Limits by principal and tool come later and know more. This one looks at nothing but the address and cannot grow,
//! however many addresses there are; in exchange it may count two addresses as one.

use std::{fmt, net::IpAddr, sync::Arc, time::Duration};

use arc_swap::ArcSwapOption;
use http::{HeaderValue, Response, StatusCode, header};
use moongate_core::BoxFuture;
use moongate_proxy::{
    Gateway,
    edge::{
        body::Body,
        serve::{AddressTest, App, Conn, Received},
    },
};
use moongate_security::{Denied, Head, address};
use moongate_telemetry::{Counter, Metrics};
use moongate_wire::write::{self, NoId};
use pingora_limits::rate::Rate;

/// An address that goes on at so many times its limit is not even accepted any more.
const DEAF_AT: isize = 2;

/// Counts requests by address.
#[derive(Clone, Default)]
pub(crate) struct Flood(Arc<ArcSwapOption<Window>>);

struct Window {
    counted: Rate,
    limit: isize,
    length: Duration,
}

impl Flood {
    /// Counts against `limit` from now on; without one, nothing.
    pub(crate) fn set(&self, limit: Option<moongate_config::Rate>) {
        self.0.store(limit.map(|limit| {
            let length = limit.per.duration();
            let limit = isize::try_from(limit.count.get()).unwrap_or(isize::MAX);
            Arc::new(Window { counted: Rate::new(length), limit, length })
        }));
    }

    /// Counts a request; the time to wait when there were too many.
    fn count(&self, address: IpAddr) -> Option<Duration> {
        let window = self.0.load();
        let window = window.as_ref()?;
        (window.counted.observe(&address::fold(address), 1) > window.limit).then_some(window.length)
    }

    /// Whether an address went on for so long that its connections are closed.
    fn is_deaf_to(&self, address: IpAddr) -> bool {
        let window = self.0.load();
        let Some(window) = window.as_ref() else { return false };
        window.counted.observe(&address::fold(address), 0) > window.limit.saturating_mul(DEAF_AT)
    }

    /// For the listener: which addresses are closed unanswered.
    pub(crate) fn unwelcome(&self) -> AddressTest {
        let flood = self.clone();
        Arc::new(move |address| flood.is_deaf_to(address))
    }
}

impl fmt::Debug for Flood {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Flood({:?})", self.0.load().as_ref().map(|window| (window.limit, window.length)))
    }
}

/// The gateway behind the guard.
#[derive(Debug)]
pub(crate) struct Guarded {
    gateway: Arc<Gateway>,
    flood: Flood,
    refused: Counter,
}

impl Guarded {
    /// Puts `flood` before `gateway`.
    pub(crate) fn new(gateway: Arc<Gateway>, flood: Flood, metrics: &Metrics) -> Self {
        let refused = metrics.refused(Denied::flood(Duration::ZERO).reason.as_str());
        Self { gateway, flood, refused }
    }
}

impl App for Guarded {
    type Body = Body;

    fn handle(
        self: Arc<Self>,
        head: Head,
        body: Received,
        conn: Arc<Conn>,
    ) -> BoxFuture<'static, Response<Body>> {
        let client = self.gateway.client_address(conn.address.ip(), &head.headers);
        match self.flood.count(client) {
            None => Arc::clone(&self.gateway).handle(head, body, conn),
            Some(wait) => {
                self.refused.increment();
                Box::pin(std::future::ready(refusal(&Denied::flood(wait))))
            }
        }
    }
}

fn refusal(denied: &Denied) -> Response<Body> {
    let body = write::error(None, NoId::Omit, &denied.error).into_bytes();
    let mut response = Response::new(Body::from(body));
    *response.status_mut() = StatusCode::TOO_MANY_REQUESTS;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    headers.insert(header::RETRY_AFTER, denied.retry_after_seconds().unwrap_or(1).into());
    response
}

#[cfg(test)]
mod tests {
    use moongate_config::Per;

    use super::*;

    const ADDRESS: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(192, 0, 2, 1));

    #[test]
    fn requests_over_the_limit_wait_and_those_far_over_are_not_heard() {
        let flood = Flood::default();
        flood.set(Some(moongate_config::Rate::new(3, Per::Hour)));
        let waits: Vec<_> = (0..7).map(|_| flood.count(ADDRESS).is_some()).collect();
        assert_eq!(waits, [false, false, false, true, true, true, true]);
        assert!((flood.unwelcome())(ADDRESS));
        assert_eq!(flood.count("192.0.2.2".parse().unwrap()), None);
    }

    #[test]
    fn a_network_of_ipv6_counts_as_one_address() {
        let flood = Flood::default();
        flood.set(Some(moongate_config::Rate::new(1, Per::Hour)));
        assert_eq!(flood.count("2001:db8::1".parse().unwrap()), None);
        assert!(flood.count("2001:db8::2".parse().unwrap()).is_some());
    }

    #[test]
    fn off_counts_nothing() {
        let flood = Flood::default();
        assert!((0..100_000).all(|_| flood.count(ADDRESS).is_none()));
        assert!(!(flood.unwelcome())(ADDRESS));
    }

    #[test]
    fn a_refusal_says_when_to_come_back() {
        let response = refusal(&Denied::flood(Duration::from_mins(1)));
        assert_eq!(response.status(), 429);
        assert_eq!(response.headers()[header::RETRY_AFTER], "60");
    }
}
