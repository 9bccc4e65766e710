//! Latency of the store's commits, sampled: at most one flush at a time is timed, so a turn reads the clock at most twice
//! for it.

use std::time::Duration;

use base::device::IoId;
use base::{Mono, unreached};

/// Sum and number of the sampled latencies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Latency {
    sum: Duration,
    n: u32,
}

impl Latency {
    /// Adds those of another reactor.
    pub fn add(&mut self, o: Self) {
        self.sum += o.sum;
        self.n += o.n;
    }

    /// The mean in nanoseconds; 0 without a sample.
    #[must_use]
    pub fn mean_ns(&self) -> u64 {
        u64::try_from(self.sum.as_nanos()).unwrap_or(u64::MAX).checked_div(self.n.into()).unwrap_or(0)
    }
}

/// The sampler of a reactor.
#[derive(Debug, Default)]
pub struct Commits {
    /// The flush that is timed, and when it was sent.
    timed: Option<(IoId, Mono)>,
    since: Latency,
    /// All samples since the start.
    all: Latency,
}

impl Commits {
    /// True if the next flush is to be timed.
    #[must_use]
    pub fn is_free(&self) -> bool {
        self.timed.is_none()
    }

    /// Begins to time a flush.
    pub fn sent(&mut self, id: IoId, now: Mono) {
        self.timed = Some((id, now));
    }

    /// True if this request is the one that is timed.
    #[must_use]
    pub fn awaits(&self, id: IoId) -> bool {
        self.timed.is_some_and(|(t, _)| t == id)
    }

    /// Ends the timing. Returns the time that the flush took.
    pub fn done(&mut self, now: Mono) -> Duration {
        let Some((_, sent)) = self.timed.take() else { return unreached("a flush is timed") };
        let one = Latency { sum: now.since(sent), n: 1 };
        self.since.add(one);
        self.all.add(one);
        one.sum
    }

    /// Sum of all samples since the start in nanoseconds, and their number.
    #[must_use]
    pub fn all(&self) -> (u64, u64) {
        (u64::try_from(self.all.sum.as_nanos()).unwrap_or(u64::MAX), self.all.n.into())
    }

    /// Takes the latencies since the last call.
    pub fn take(&mut self) -> Latency {
        std::mem::take(&mut self.since)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mean_is_that_of_the_timed_flushes_since_the_last_report() {
        let mut c = Commits::default();
        assert_eq!(c.take().mean_ns(), 0);
        for (id, ms) in [(1, 4), (2, 8)] {
            assert!(c.is_free() && !c.awaits(IoId(id)));
            c.sent(IoId(id), Mono(1_000_000));
            assert!(!c.is_free() && c.awaits(IoId(id)) && !c.awaits(IoId(9)));
            assert_eq!(c.done(Mono(1_000_000 + ms * 1_000_000)), Duration::from_millis(ms));
        }
        let mut all = c.take();
        assert_eq!(all.mean_ns(), 6_000_000);
        assert_eq!(c.take(), Latency::default());
        assert_eq!(c.all(), (12_000_000, 2), "the sum since the start stays");
        all.add(Latency { sum: Duration::from_millis(18), n: 1 });
        assert_eq!(all.mean_ns(), 10_000_000);
    }
}
