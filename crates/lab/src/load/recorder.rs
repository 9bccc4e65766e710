//! Measurements of a run: latency histograms, and sums for each second.

use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// Upper bound of recorded latencies in nanoseconds (ten minutes); longer ones count as this.
const NANOS_MAX: u64 = 600_000_000_000;

/// Histogram of latencies in nanoseconds, with three significant digits.
#[derive(Clone, Debug)]
pub struct Latencies {
    h: Histogram<u64>,
}

impl Default for Latencies {
    fn default() -> Self {
        // The histogram crate accepts these constant bounds; the fallback is a histogram that resizes itself.
        let h = Histogram::new_with_bounds(1_000, NANOS_MAX, 3).or_else(|_| Histogram::new(3));
        Self { h: h.unwrap_or_else(|e| unreachable!("three digits are allowed: {e}")) }
    }
}

impl Latencies {
    /// Records the latency of one operation.
    #[inline]
    pub fn record(&mut self, nanos: u64) {
        self.h.saturating_record(nanos.min(NANOS_MAX));
    }

    /// Adds the latencies of another thread.
    pub fn merge(&mut self, other: &Self) {
        // Adding cannot fail: both histograms have the same bounds.
        let _ = self.h.add(&other.h);
    }

    /// Number of recorded operations.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.h.len()
    }

    /// Latency in microseconds at a quantile from 0 to 1; 0 without operations.
    #[must_use]
    pub fn at(&self, quantile: f64) -> f64 {
        if self.h.is_empty() { 0.0 } else { self.h.value_at_quantile(quantile) as f64 / 1e3 }
    }

    /// Mean latency in microseconds.
    #[must_use]
    pub fn mean(&self) -> f64 {
        if self.h.is_empty() { 0.0 } else { self.h.mean() / 1e3 }
    }

    /// Longest latency in microseconds.
    #[must_use]
    pub fn max(&self) -> f64 {
        if self.h.is_empty() { 0.0 } else { self.h.max() as f64 / 1e3 }
    }

    /// Shortest latency in microseconds.
    #[must_use]
    pub fn min(&self) -> f64 {
        if self.h.is_empty() { 0.0 } else { self.h.min() as f64 / 1e3 }
    }

    /// Standard deviation of the latencies in microseconds.
    #[must_use]
    pub fn deviation(&self) -> f64 {
        if self.h.is_empty() { 0.0 } else { self.h.stdev() / 1e3 }
    }

    /// Summary in microseconds, with the histogram as pairs of a value and its count.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let pairs: Vec<Value> =
            self.h.iter_recorded().map(|i| json!([i.value_iterated_to() as f64 / 1e3, i.count_at_value()])).collect();
        json!({
            "count": self.count(), "min": self.min(), "mean": self.mean(), "stddev": self.deviation(),
            "p1": self.at(0.01), "p10": self.at(0.10), "p25": self.at(0.25), "p50": self.at(0.50), "p75": self.at(0.75),
            "p90": self.at(0.90), "p95": self.at(0.95), "p99": self.at(0.99), "p99.9": self.at(0.999),
            "p99.99": self.at(0.9999), "max": self.max(), "histogram": pairs,
        })
    }
}

/// Statistics of one second.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Second {
    /// End of this second, in seconds since the load began.
    pub at: f64,
    /// Length in seconds; the last one may be shorter.
    pub length: f64,
    /// Operations in flight at the end.
    pub in_flight: u64,
    /// Operations started since the load began.
    pub started: u64,
    /// Operations finished since the load began.
    pub finished: u64,
    /// Operations finished in this second.
    pub ops: u64,
    /// Bytes of these operations.
    pub bytes: u64,
    /// Mean latency of these operations in microseconds; 0 without any.
    pub mean_us: f64,
    /// Whether this second belongs to the warm-up.
    pub warm_up: bool,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles() {
        let mut a = Latencies::default();
        for i in 1..=1000u64 {
            a.record(i * 1_000_000);
        }
        assert!((a.at(0.5) / 500_000.0 - 1.0).abs() < 0.002, "{}", a.at(0.5));
        assert!((a.at(0.999) / 999_000.0 - 1.0).abs() < 0.002);
        let mut b = Latencies::default();
        b.record(u64::MAX);
        a.merge(&b);
        assert_eq!(a.count(), 1001);
        assert!(a.max() >= 599_000_000.0);
        assert_eq!(Latencies::default().at(0.99), 0.0);
        let j = a.to_json();
        assert_eq!(j["count"], 1001);
        let sum: u64 = j["histogram"].as_array().unwrap().iter().map(|p| p[1].as_u64().unwrap()).sum();
        assert_eq!(sum, 1001);
    }
}
