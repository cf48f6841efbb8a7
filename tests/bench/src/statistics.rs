//! Medians and quartiles: a mean would let one disturbed round speak for all.

use std::fmt;

/// The middle of some numbers and how far the middle half spreads.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Spread {
    /// A quarter is below.
    pub low: f64,
    /// Half is below.
    pub median: f64,
    /// Three quarters are below.
    pub high: f64,
}

impl Spread {
    /// Of `values`; all zero when there are none.
    pub fn of(values: impl IntoIterator<Item = f64>) -> Self {
        let mut values: Vec<f64> = values.into_iter().collect();
        values.sort_unstable_by(f64::total_cmp);
        Self { low: at(&values, 0.25), median: at(&values, 0.5), high: at(&values, 0.75) }
    }
}

/// `0.74 (0.72–0.75)`
impl fmt::Display for Spread {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let digits = f.precision().unwrap_or(2);
        write!(f, "{:.digits$} ({:.digits$}–{:.digits$})", self.median, self.low, self.high)
    }
}

/// The value below which the given part of the sorted `values` lies, between two values their weighted mean.
#[expect(
    clippy::cast_precision_loss,
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "an index into a vector, never negative and far below 2^52"
)]
fn at(values: &[f64], part: f64) -> f64 {
    let Some(last) = values.len().checked_sub(1) else { return 0.0 };
    let place = part * last as f64;
    let below = place.floor();
    let value = |index: f64| values.get(index as usize).copied().unwrap_or_default();
    value(below) + (value(place.ceil()) - value(below)) * (place - below)
}

/// The latency below which `percent` of the sorted `nanoseconds` lie, in microseconds.
pub fn percentile(nanoseconds: &[u32], percent: usize) -> f64 {
    let index = (nanoseconds.len() * percent / 100).min(nanoseconds.len().saturating_sub(1));
    f64::from(nanoseconds.get(index).copied().unwrap_or_default()) / 1000.0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quartiles_lie_between_values() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]);
        assert_eq!(spread, Spread { low: 1.75, median: 2.5, high: 3.25 });
        assert_eq!(Spread::of([7.0]), Spread { low: 7.0, median: 7.0, high: 7.0 });
        assert_eq!(Spread::of([]), Spread { low: 0.0, median: 0.0, high: 0.0 });
        assert_eq!(format!("{spread:.1}"), "2.5 (1.8–3.2)");
    }

    #[test]
    fn percentiles_are_in_microseconds() {
        let latencies: Vec<u32> = (1..=100).map(|n| n * 1000).collect();
        let shown = [0, 50, 99, 100].map(|percent| percentile(&latencies, percent).to_string());
        assert_eq!(shown, ["1", "51", "100", "100"]);
        assert_eq!(percentile(&[], 50).to_string(), "0");
    }
}
