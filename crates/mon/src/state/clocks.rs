//! The measured clock differences of the other monitors.

use std::collections::BTreeMap;
use std::time::Duration;

use base::{Mono, Now, Utime};

use super::ClusterState;
use super::config::mon_option;

/// The difference between another monitor's clock and the leader's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Difference {
    /// Seconds that the other monitor's clock is ahead; negative if it is behind.
    pub skew: f64,
    /// Half the round trip of the answer, in seconds.
    pub latency: f64,
}

impl Difference {
    /// The text of the alert; `allowed` is the limit in seconds.
    #[must_use]
    pub fn text(&self, allowed: f64) -> String {
        format!("clock skew {}s > max {}s", short(self.skew.abs()), short(allowed))
    }

    /// The text of the latency.
    #[must_use]
    pub fn latency_text(&self) -> String {
        format!("(latency {}s)", short(self.latency))
    }
}

/// The form of a number in a C++ stream: at most six significant digits.
fn short(x: f64) -> String {
    let whole = if x.abs() < 1.0 { 0 } else { x.abs().log10().floor() as usize + 1 };
    let text = format!("{x:.*}", 6usize.saturating_sub(whole));
    match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text,
    }
}

/// The measured clock differences of the other monitors.
#[derive(Clone, Debug, Default)]
pub struct Clocks {
    round: u64,
    asked: Option<Now>,
    next: Option<Mono>,
    of: BTreeMap<String, Difference>,
}

impl Clocks {
    /// Begins the next round at the next tick.
    pub fn soon(&mut self) {
        self.next = None;
    }

    /// Number of rounds begun.
    #[must_use]
    pub fn rounds(&self) -> u64 {
        self.round
    }

    /// The measured differences by monitor.
    #[must_use]
    pub fn differences(&self) -> &BTreeMap<String, Difference> {
        &self.of
    }

    /// Begins the next round at `at` or sooner.
    pub(crate) fn no_later(&mut self, at: Mono) {
        self.next = Some(self.next.map_or(at, |t| t.min(at)));
    }

    /// Begins a round and returns its number, if one is due; `every` is the time until the next.
    pub(crate) fn begin(&mut self, every: Duration, now: Now) -> Option<u64> {
        if self.next.is_some_and(|t| now.mono < t) {
            return None;
        }
        self.next = Some(now.mono + every);
        self.round += 1;
        self.asked = Some(now);
        Some(self.round)
    }

    /// Records a monitor's answer to a round.
    pub(crate) fn answered(&mut self, name: &str, round: u64, here: Utime, now: Now) {
        // An answer to an earlier round has an unknown latency.
        let Some(asked) = self.asked.filter(|_| round == self.round) else { return };
        let latency = now.mono.since(asked.mono).as_secs_f64() / 2.0;
        let off = here.to_unix().as_secs_f64() - (asked.wall.to_unix().as_secs_f64() + latency);
        let skew = (off.abs() - latency).max(0.0).copysign(off);
        self.of.insert(name.to_owned(), Difference { skew, latency });
    }

    /// Forgets monitors that do not run.
    pub(crate) fn retain(&mut self, there: &[String]) {
        self.of.retain(|name, _| there.contains(name));
    }
}

/// A monitor option in seconds; `otherwise` if it is not a number.
pub(crate) fn seconds(state: &ClusterState, option: &str, otherwise: f64) -> f64 {
    let given = mon_option(state, option).parse().ok();
    given.filter(|s: &f64| s.is_finite() && *s >= 0.0).unwrap_or(otherwise)
}

/// Seconds by which clocks of monitors may differ.
#[must_use]
pub(crate) fn clock_drift_allowed(state: &ClusterState) -> f64 {
    seconds(state, "mon_clock_drift_allowed", 0.05)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(mono_ms: u64, wall_ms: u64) -> Now {
        Now { mono: Mono(mono_ms * 1_000_000), wall: Utime::from_unix(Duration::from_millis(wall_ms)) }
    }

    fn told(here_ms: u64, took_ms: u64) -> Difference {
        let mut c = Clocks::default();
        let round = c.begin(Duration::from_secs(300), at(1000, 50_000)).unwrap();
        c.answered("b", round, at(0, here_ms).wall, at(1000 + took_ms, 50_000 + took_ms));
        c.differences()["b"]
    }

    #[test]
    fn a_difference_within_the_travel_time_is_no_skew() {
        let near = |d: Difference, skew: f64, latency: f64| {
            assert!((d.skew - skew).abs() < 1e-6 && (d.latency - latency).abs() < 1e-6, "{d:?}");
        };
        near(told(50_005, 10), 0.0, 0.005);
        near(told(50_010, 10), 0.0, 0.005);
        near(told(50_000, 10), 0.0, 0.005);
        near(told(52_005, 10), 1.995, 0.005);
        near(told(48_005, 10), -1.995, 0.005);
        near(told(50_400, 1000), 0.0, 0.5);
    }

    #[test]
    fn an_answer_to_another_round_is_ignored() {
        let mut c = Clocks::default();
        assert_eq!(c.begin(Duration::from_secs(300), at(1000, 0)), Some(1));
        assert_eq!(c.begin(Duration::from_secs(300), at(300_999, 0)), None);
        assert_eq!(c.begin(Duration::from_secs(300), at(301_000, 0)), Some(2));
        c.answered("b", 1, at(0, 99_000).wall, at(301_001, 0));
        c.answered("b", 3, at(0, 99_000).wall, at(301_001, 0));
        assert!(c.differences().is_empty());
        c.soon();
        assert_eq!(c.begin(Duration::from_secs(300), at(301_002, 0)), Some(3));
        c.answered("b", 3, at(0, 9_000).wall, at(301_003, 0));
        c.retain(&["a".to_owned()]);
        assert!(c.differences().is_empty());
    }
}
