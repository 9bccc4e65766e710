//! When operations start in an open loop: at a rate of their own, whether or not earlier ones have been answered.
//!
//! An operation's latency counts from the time when it should have started. So a server that stalls is charged for all
//! operations that the stall delayed, and not for one of each connection (no coordinated omission).

use super::pattern::unit;
use base::rng::Rng;
use std::time::Duration;

/// Times between starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Arrivals {
    /// All the same.
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
    /// `rate` starts a second. The first one is up to an interval away, so that threads do not start in step.
    #[must_use]
    pub fn new(rate: f64, arrivals: Arrivals, rng: &mut Rng) -> Self {
        let interval = 1.0 / rate.max(1e-6);
        Self { interval, arrivals, next: interval * unit(rng) }
    }

    /// Time of the next start, since the begin.
    #[must_use]
    pub fn due(&self) -> Duration {
        Duration::from_secs_f64(self.next)
    }

    /// Goes on to the one after it.
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
