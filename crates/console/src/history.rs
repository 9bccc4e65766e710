//! Figures over time, in rings of a fixed size: the last hour in steps of ten seconds, the last week in steps of ten
//! minutes.

use serde_json::{Value, json};
use std::collections::VecDeque;

/// Seconds between samples.
pub const STEP: u64 = 10;
/// Samples of the fine ring.
const FINE: usize = 360;
/// Samples of the fine ring in one of the coarse ring.
const IN_COARSE: usize = 60;
/// Samples of the coarse ring.
const COARSE: usize = 1008;

/// Figures of the whole cluster at one time.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Sample {
    /// Seconds since 1970.
    pub time: u64,
    /// Bytes that clients read in a second.
    pub read_bytes: f64,
    /// Bytes that clients wrote in a second.
    pub written_bytes: f64,
    /// Operations of clients that read, in a second.
    pub reads: f64,
    /// Operations of clients that wrote, in a second.
    pub writes: f64,
    /// Bytes that were recovered in a second.
    pub recovered_bytes: f64,
    /// Mean of the OSDs' commit latencies in ms.
    pub commit_ms: f64,
    /// Largest of the OSDs' commit latencies in ms.
    pub commit_ms_max: f64,
    /// Used bytes of all OSDs.
    pub used: f64,
    /// Bytes of all OSDs.
    pub total: f64,
}

impl Sample {
    const NAMES: [&str; 10] = [
        "time",
        "read_bytes",
        "written_bytes",
        "reads",
        "writes",
        "recovered_bytes",
        "commit_ms",
        "commit_ms_max",
        "used",
        "total",
    ];

    fn values(&self) -> [f64; 10] {
        [
            self.time as f64,
            self.read_bytes,
            self.written_bytes,
            self.reads,
            self.writes,
            self.recovered_bytes,
            self.commit_ms,
            self.commit_ms_max,
            self.used,
            self.total,
        ]
    }

    /// Means of samples; of the largest latency the largest, and the newest time and sizes.
    fn mean(all: &[Self]) -> Self {
        let last = all.last().copied().unwrap_or_default();
        let mean = |of: fn(&Self) -> f64| all.iter().map(of).sum::<f64>() / all.len().max(1) as f64;
        Self {
            read_bytes: mean(|s| s.read_bytes),
            written_bytes: mean(|s| s.written_bytes),
            reads: mean(|s| s.reads),
            writes: mean(|s| s.writes),
            recovered_bytes: mean(|s| s.recovered_bytes),
            commit_ms: mean(|s| s.commit_ms),
            commit_ms_max: all.iter().map(|s| s.commit_ms_max).fold(0.0, f64::max),
            ..last
        }
    }
}

/// The rings.
#[derive(Clone, Debug, Default)]
pub struct History {
    fine: VecDeque<Sample>,
    coarse: VecDeque<Sample>,
    /// Samples since the last one of the coarse ring.
    part: Vec<Sample>,
}

fn push(ring: &mut VecDeque<Sample>, s: Sample, most: usize) {
    if ring.len() >= most {
        ring.pop_front();
    }
    ring.push_back(s);
}

impl History {
    /// Adds a sample if the last one is at least [`STEP`] seconds old.
    pub fn add(&mut self, s: Sample) {
        // A clock that was set back begins anew.
        if self.fine.back().is_some_and(|l| (l.time..l.time + STEP).contains(&s.time)) {
            return;
        }
        push(&mut self.fine, s, FINE);
        self.part.push(s);
        if self.part.len() >= IN_COARSE {
            push(&mut self.coarse, Sample::mean(&self.part), COARSE);
            self.part.clear();
        }
    }

    /// Seconds until the cluster is full at the rate of the coarse ring, or of the fine one before that has two samples;
    /// `None` if use does not grow.
    #[must_use]
    pub fn full_in(&self) -> Option<f64> {
        let ring = if self.coarse.len() > 1 { &self.coarse } else { &self.fine };
        let (first, last) = (ring.front()?, ring.back()?);
        let time = last.time.checked_sub(first.time).filter(|t| *t > 0)? as f64;
        let rate = (last.used - first.used) / time;
        (rate > 0.0 && last.total > last.used).then(|| (last.total - last.used) / rate)
    }

    /// Both rings as JSON: names, and a row for each sample.
    #[must_use]
    pub fn json(&self) -> Value {
        let rows = |ring: &VecDeque<Sample>| ring.iter().map(|s| json!(s.values())).collect::<Vec<_>>();
        json!({
            "names": Sample::NAMES,
            "hour": rows(&self.fine),
            "week": rows(&self.coarse),
            "full_in_seconds": self.full_in(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rings_are_bounded_and_coarse_samples_are_means() {
        let mut h = History::default();
        let n = (COARSE + 10) * IN_COARSE;
        for i in 0..n as u64 {
            let s = Sample {
                time: 1000 + i * STEP,
                reads: (i % 2) as f64,
                commit_ms_max: i as f64,
                used: i as f64,
                total: 2.0 * n as f64,
                ..Sample::default()
            };
            h.add(s);
            h.add(Sample { time: s.time + STEP - 1, ..s });
        }
        assert_eq!((h.fine.len(), h.coarse.len()), (FINE, COARSE));
        let last = h.coarse.back().unwrap();
        assert_eq!((last.reads, last.commit_ms_max, last.used), (0.5, (n - 1) as f64, (n - 1) as f64));
        let left = h.full_in().unwrap();
        assert!((left - STEP as f64 * (n + 1) as f64).abs() < 1.0, "{left}");
        assert_eq!(h.json()["hour"].as_array().unwrap().len(), FINE);
        assert!(h.json().to_string().len() < 400 << 10);
    }

    #[test]
    fn a_clock_that_was_set_back_is_no_end() {
        let mut h = History::default();
        assert_eq!(h.full_in(), None);
        h.add(Sample { time: 5000, ..Sample::default() });
        h.add(Sample { time: 100, used: 5.0, ..Sample::default() });
        assert_eq!((h.fine.len(), h.full_in()), (2, None));
    }
}
