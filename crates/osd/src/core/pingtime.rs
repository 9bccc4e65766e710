//! Ping times of one link in microseconds, over one, five and fifteen minutes, as in `dump_osd_network` and
//! Ceph's slow-ping alerts.

use base::Mono;
use std::collections::VecDeque;
use std::time::Duration;

/// Lengths of the windows.
const WINDOWS: [Duration; 3] = [Duration::from_secs(60), Duration::from_secs(300), Duration::from_secs(900)];
/// Most samples kept: those of the longest window at the usual interval, and some.
const SAMPLES_MAX: usize = 400;

/// Ping times of one link.
#[derive(Debug, Default)]
pub struct PingTimes {
    samples: VecDeque<(Mono, u32)>,
}

/// Statistics of the samples, by window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Figures {
    /// Mean.
    pub mean: [u32; 3],
    /// Shortest.
    pub min: [u32; 3],
    /// Longest.
    pub max: [u32; 3],
    /// Newest.
    pub last: u32,
}

impl PingTimes {
    /// Adds an answer that came after `took`.
    pub fn add(&mut self, took: Duration, now: Mono) {
        while self.samples.len() >= SAMPLES_MAX || self.samples.front().is_some_and(|(t, _)| now.since(*t) > WINDOWS[2])
        {
            self.samples.pop_front();
        }
        self.samples.push_back((now, u32::try_from(took.as_micros()).unwrap_or(u32::MAX)));
    }

    /// Means and extremes; `None` before the first answer. The windows end with the newest answer.
    #[must_use]
    pub fn figures(&self) -> Option<Figures> {
        let (newest, last) = *self.samples.back()?;
        let mut f = Figures { last, ..Figures::default() };
        for (i, w) in WINDOWS.iter().enumerate() {
            let inside = self.samples.iter().filter(|(t, _)| newest.since(*t) <= *w).map(|(_, us)| *us);
            let (mut sum, mut n, mut min, mut max) = (0u64, 0u64, u32::MAX, 0);
            for us in inside {
                sum += u64::from(us);
                n += 1;
                min = min.min(us);
                max = max.max(us);
            }
            f.mean[i] = u32::try_from(sum / n.max(1)).unwrap_or(u32::MAX);
            f.min[i] = min;
            f.max[i] = max;
        }
        Some(f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_window_counts_its_own_samples() {
        let mut p = PingTimes::default();
        assert_eq!(p.figures(), None);
        let at = |s: u64| Mono(s * 1_000_000_000);
        p.add(Duration::from_micros(900), at(10));
        p.add(Duration::from_micros(300), at(200));
        p.add(Duration::from_micros(100), at(250));
        let f = p.figures().unwrap();
        assert_eq!((f.mean, f.last), ([200, 433, 433], 100));
        assert_eq!((f.min, f.max), ([100; 3], [300, 900, 900]));
        for s in 0..2000 {
            p.add(Duration::from_micros(7), at(1000 + s * 6));
        }
        assert!(p.samples.len() <= SAMPLES_MAX);
        assert_eq!(p.figures().unwrap().mean, [7; 3]);
    }
}
