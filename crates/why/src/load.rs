//! The time of all operations in the span, as the measure of every cause's share.

use crate::evidence::{Evidence, Osd};
use std::collections::BTreeMap;

/// Mean time from which operations count as slow in themselves.
const SLOW_MS: f64 = 20.0;
/// Mean time below which nothing counts as slow.
const QUICK_MS: f64 = 2.0;
/// Factor over the mean of the last ten minutes from which operations count as slow.
const SLOWER: f64 = 1.5;
/// Age from which a waiting operation makes its cluster slow.
const STUCK_S: f64 = 2.0;

/// Time of all operations.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Load {
    /// Answered operations.
    pub ops: u64,
    /// Time of answered operations, and age of the others.
    pub us: f64,
    /// The same by cause.
    pub causes: BTreeMap<String, f64>,
    /// Mean time of an answered operation in milliseconds.
    pub mean_ms: f64,
    /// The same for the last ten minutes.
    pub long_mean_ms: f64,
    /// Age in seconds of the oldest operation without an answer.
    pub oldest: f64,
}

/// Age that counts of the operations that wait in an OSD for a cause: at most the span for each.
fn waiting_us(o: &Osd, cause: &str) -> f64 {
    let span = |n: u64| o.seconds.max(1.0) * 1e6 * n as f64;
    o.waiting.iter().filter(|w| w.cause == cause).map(|w| (w.us as f64).min(span(w.ops))).sum()
}

impl Load {
    /// Load of a cluster.
    #[must_use]
    pub fn of(e: &Evidence) -> Self {
        let mut l = Self::default();
        let (mut us, mut long_us, mut long_ops) = (0_u64, 0_u64, 0_u64);
        for o in &e.osds {
            l.ops += o.ops;
            long_us += o.long_us;
            long_ops += o.long_ops;
            for (cause, t) in o.us.iter().filter(|(c, _)| *c != "client") {
                us += t;
                *l.causes.entry(cause.clone()).or_default() += *t as f64;
            }
            for w in &o.waiting {
                l.oldest = l.oldest.max(w.oldest);
            }
            let mut causes: Vec<&str> = o.waiting.iter().map(|w| w.cause.as_str()).collect();
            causes.sort_unstable();
            causes.dedup();
            for c in causes {
                *l.causes.entry(c.to_owned()).or_default() += waiting_us(o, c);
            }
        }
        l.us = l.causes.values().sum();
        let mean = |us: u64, n: u64| if n == 0 { 0.0 } else { us as f64 / n as f64 / 1000.0 };
        (l.mean_ms, l.long_mean_ms) = (mean(us, l.ops), mean(long_us, long_ops));
        l
    }

    /// Part of the time, from 0 to 1.
    #[must_use]
    pub fn share(&self, us: f64) -> f64 {
        if self.us > 0.0 { (us / self.us).min(1.0) } else { 0.0 }
    }

    /// Time of a cause in all OSDs.
    #[must_use]
    pub fn cause(&self, name: &str) -> f64 {
        self.causes.get(name).copied().unwrap_or(0.0)
    }

    /// Time that an OSD's operations spent for a cause, waiting ones included.
    #[must_use]
    pub fn at(&self, o: &Osd, cause: &str) -> f64 {
        o.cause(cause) as f64 + waiting_us(o, cause)
    }

    /// Time for which operations of other OSDs waited for this one.
    #[must_use]
    pub fn blamed(&self, e: &Evidence, osd: i32) -> f64 {
        let others = || e.osds.iter().filter(|o| o.osd != osd);
        let answered = others().flat_map(|o| &o.peers).filter(|p| p.osd == osd).map(|p| p.blamed_us as f64);
        let waiting = others().flat_map(|o| {
            let span = o.seconds.max(1.0) * 1e6;
            o.waiting.iter().filter(|w| w.behind == Some(osd)).map(move |w| (w.us as f64).min(span * w.ops as f64))
        });
        answered.sum::<f64>() + waiting.sum::<f64>()
    }

    /// True if operations take long, or longer than in the last ten minutes, or do not end.
    #[must_use]
    pub fn is_slow(&self) -> bool {
        self.mean_ms >= SLOW_MS
            || self.mean_ms >= QUICK_MS && self.mean_ms >= SLOWER * self.long_mean_ms && self.long_mean_ms > 0.0
            || self.oldest >= STUCK_S
    }
}
