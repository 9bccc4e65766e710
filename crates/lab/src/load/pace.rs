//! Start times of operations in an open loop: a fixed rate, whether or not earlier operations were answered.
//!
//! Latency counts from the time when an operation should have started. A stalled server is therefore charged for every
//! delayed operation, not for one on each connection (no coordinated omission).

use super::pattern::unit;
use base::rng::Rng;
use std::time::Duration;

/// Distribution of the times between starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// Constant.
    Even,
    /// Exponentially distributed, as of many independent clients.
    Poisson,
}

/// Start times at a rate.
#[derive(Clone, Debug)]
pub struct Pace {
    interval: f64,
    arrivals: Arrivals,
    next: f64,
}

impl Pace {
    /// `rate` is in starts per second. The first start is up to an interval away, so that threads do not start in step.
    #[must_use]
    pub fn new(rate: f64, arrivals: Arrivals, rng: &mut Rng) -> Self {
        let interval = 1.0 / rate.max(1e-6);
        Self { interval, arrivals, next: interval * unit(rng) }
    }

    /// Time of the next start, counted from the begin of the load.
    #[must_use]
    pub fn due(&self) -> Duration {
        Duration::from_secs_f64(self.next)
    }

    /// Moves to the following start.
    pub fn advance(&mut self, rng: &mut Rng) {
        self.next += match self.arrivals {
            Arrivals::Even => self.interval,
            Arrivals::Poisson => -(1.0 - unit(rng)).ln() * self.interval,
        };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_keep_the_rate() {
        for arrivals in [Arrivals::Even, Arrivals::Poisson] {
            let mut rng = Rng::new(1);
            let mut p = Pace::new(1000.0, arrivals, &mut rng);
            let (mut n, mut last, mut gaps) = (0u32, 0.0, Vec::new());
            while p.due() < Duration::from_secs(50) {
                gaps.push(p.due().as_secs_f64() - last);
                last = p.due().as_secs_f64();
                p.advance(&mut rng);
                n += 1;
            }
            assert!((49_000..51_000).contains(&n), "{arrivals:?} {n}");
            let longest = gaps.iter().copied().fold(0.0, f64::max);
            assert_eq!(arrivals == Arrivals::Poisson, longest > 0.005, "{arrivals:?} {longest}");
        }
    }
}
