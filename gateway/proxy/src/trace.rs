//! W3C trace context on its way from a client's headers to another server's `_meta`.
//!
//! What a client wrote into `_meta` itself is passed on with the rest of it and wins; headers are how the others name their
//! trace, and no upstream ever sees those.

use std::sync::Arc;

use moongate_core::Raw;
use moongate_wire::write;

/// The keys, in headers and in `_meta` alike. The first names the trace; the others only mean something beside it.
const KEYS: [&str; 3] = ["traceparent", "tracestate", "baggage"];

/// The trace that a request's headers name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trace(Vec<(&'static str, Raw)>);

impl Trace {
    /// That of these values of the headers, in the order of their keys. Nothing is made where there is none.
    pub fn of(values: [Option<&str>; 3]) -> Option<Arc<Self>> {
        if values.iter().all(Option::is_none) {
            return None;
        }
        let named = KEYS.into_iter().zip(values);
        Some(Arc::new(Self(named.filter_map(|(key, value)| Some((key, Raw::of(value?)))).collect())))
    }

    /// Adds it to a call's `_meta`, unless that names a trace already.
    pub fn join(&self, meta: &mut Option<Raw>) {
        let own = meta.take().unwrap_or_else(Raw::empty_object);
        let says = |key: &str| own.member(key).is_some();
        // Parent and state belong together: one of the client's with one of a proxy's would be neither's.
        let in_trace = says("traceparent");
        let wanted = |key: &str| !says(key) && (key == "baggage" || !in_trace);
        let added: Vec<_> = self.0.iter().filter(|(key, _)| wanted(key)).cloned().collect();
        *meta = Some(if added.is_empty() { own } else { write::with_members(&own, &added) });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_meta_says_wins_over_the_headers() {
        for (meta, expected) in [
            (None, r#"{"traceparent":"p","tracestate":"s","baggage":"b"}"#),
            (Some(r#"{"a":1}"#), r#"{"traceparent":"p","tracestate":"s","baggage":"b","a":1}"#),
            (Some(r#"{"traceparent":"q"}"#), r#"{"baggage":"b","traceparent":"q"}"#),
            (Some(r#"{"baggage":"c"}"#), r#"{"traceparent":"p","tracestate":"s","baggage":"c"}"#),
        ] {
            let trace = Trace::of([Some("p"), Some("s"), Some("b")]).unwrap();
            let mut joined = meta.map(|text| Raw::from_text(text.to_owned()).unwrap());
            trace.join(&mut joined);
            assert_eq!(joined.unwrap().as_str(), expected, "{meta:?}");
        }
    }

    #[test]
    fn a_request_without_headers_costs_nothing() {
        assert_eq!(Trace::of([None, None, None]), None);
        let mut alone = None;
        Trace::of([None, None, Some("b")]).unwrap().join(&mut alone);
        assert_eq!(alone.unwrap().as_str(), r#"{"baggage":"b"}"#);
    }
}
