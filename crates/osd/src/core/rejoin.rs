//! Return after the OSD was marked down by mistake.
//!
//! An unreliable link would make an OSD go down and up forever, and each turn makes all its PGs peer again. So
//! each repetition within a window doubles the pause before the next boot. An OSD that can't reach its peers
//! does not boot, and neither does one that misses a peer which it had reported: the monitor took one end of a cut link
//! out of service, and the link has to work before both can serve again. (Ceph exits after the sixth time in ten minutes; a process that stays can still be queried.)

use base::planted::{Bug, acts};
use base::{Mono, Now, OsdId};
use std::collections::VecDeque;
use std::time::Duration;

/// Window in which repetitions count (`osd_max_markdown_period`).
const WINDOW: Duration = Duration::from_secs(600);
/// Pause after the second time; doubled for each further one.
const PAUSE_MIN: Duration = Duration::from_secs(1);
/// Longest pause.
const PAUSE_MAX: Duration = Duration::from_secs(120);
/// Share of the heartbeat peers that must answer (`osd_heartbeat_min_healthy_ratio`), in thirds.
const HEALTHY_THIRDS: usize = 1;
/// Interval at which the peers are checked again.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// State of the return; see the module.
#[derive(Debug, Default)]
pub struct Rejoin {
    times: VecDeque<Mono>,
    /// Earliest time of the next boot, while down by mistake.
    not_before: Option<Mono>,
    look_at: Mono,
}

impl Rejoin {
    /// Records that the map shows us down though we run. Returns the pause before the next boot.
    pub fn marked_down(&mut self, now: Now) -> Duration {
        while self.times.front().is_some_and(|t| now.mono.since(*t) > WINDOW) {
            self.times.pop_front();
        }
        let before = self.times.len() as u32;
        self.times.push_back(now.mono);
        let pause = match before {
            0 => Duration::ZERO,
            n => PAUSE_MIN.saturating_mul(1 << (n - 1).min(16)).min(PAUSE_MAX),
        };
        // Bounded: with more repetitions the pause is the longest anyway.
        if self.times.len() > 16 {
            self.times.pop_front();
        }
        self.not_before = Some(now.mono + pause);
        self.look_at = now.mono + pause;
        pause
    }

    /// True from being marked down until up again; peers are still watched meanwhile.
    #[must_use]
    pub fn is_waiting(&self) -> bool {
        self.not_before.is_some()
    }

    /// True if the OSD may boot. `health` is the number of peers that answer, and of all; `missed` has the peers that it
    /// had reported when it was marked down, and that do not answer yet.
    pub fn may_boot(&mut self, health: (usize, usize), missed: &[OsdId], now: Now) -> bool {
        let Some(at) = self.not_before else { return true };
        if now.mono < at {
            return false;
        }
        let (well, all) = health;
        let ok = well * 3 >= all * HEALTHY_THIRDS && (missed.is_empty() || acts(Bug::BootDespiteCut));
        if !ok {
            tracing::info!(well, all, ?missed, "waiting for heartbeat peers before booting again");
            self.look_at = now.mono + LOOK_EVERY;
        }
        ok
    }

    /// Records that the map shows us up.
    pub fn came_up(&mut self) {
        self.not_before = None;
    }

    /// Time of the next check.
    #[must_use]
    pub fn next_deadline(&self) -> Option<Mono> {
        self.not_before.map(|_| self.look_at)
    }

    /// True if a check is due.
    pub fn is_due(&mut self, now: Now) -> bool {
        let due = self.not_before.is_some() && now.mono >= self.look_at;
        if due {
            self.look_at = now.mono + LOOK_EVERY;
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::Utime;

    fn at(s: u64) -> Now {
        Now { mono: Mono((1000 + s) * 1_000_000_000), wall: Utime { sec: 1, nsec: 0 } }
    }

    #[test]
    fn pauses_double_and_are_forgotten() {
        let mut r = Rejoin::default();
        let all: Vec<u64> = (0..10).map(|i| r.marked_down(at(i)).as_secs()).collect();
        assert_eq!(all, [0, 1, 2, 4, 8, 16, 32, 64, 120, 120]);
        assert_eq!(r.marked_down(at(700)).as_secs(), 0, "ten quiet minutes");
    }

    #[test]
    fn boots_after_the_pause_once_a_third_of_the_peers_answers() {
        let mut r = Rejoin::default();
        assert!(r.may_boot((0, 9), &[], at(0)), "the first boot waits for nobody");
        r.marked_down(at(0));
        assert!(!r.may_boot((2, 9), &[], at(0)));
        assert!(r.may_boot((3, 9), &[], at(0)));
        assert!(!r.may_boot((8, 9), &[OsdId(4)], at(0)), "the other end of a cut link");
        assert!(r.may_boot((0, 0), &[], at(0)), "nobody to ask");
        r.came_up();
        r.marked_down(at(1));
        assert!(!r.may_boot((9, 9), &[], at(1)));
        assert_eq!(r.next_deadline(), Some(at(2).mono));
        assert!(r.is_due(at(2)) && !r.is_due(at(2)));
        assert!(r.may_boot((9, 9), &[], at(2)));
    }
}
