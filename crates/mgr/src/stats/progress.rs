//! How far the cluster is with bringing copies back to where they belong, and when it will be done.
//!
//! An event begins when the first object is degraded or misplaced and ends when none is. What is left may grow meanwhile (another
//! OSD fails): then there was more to do than it seemed, and the share that is done shrinks.

use base::Utime;

/// Copies of objects that are missing or not in place, as one piece of work.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryEvent {
    /// When it began.
    pub started: Utime,
    /// Copies to bring back, counted since then.
    pub total: i64,
    /// Those left.
    pub left: i64,
}

/// Width of the bar, without its ends.
const BAR: usize = 28;

impl RecoveryEvent {
    /// Share done, 0 to 1.
    #[must_use]
    pub fn progress(&self) -> f64 {
        if self.total <= 0 { 1.0 } else { (self.total - self.left).max(0) as f64 / self.total as f64 }
    }

    /// Seconds since it began.
    #[must_use]
    pub fn seconds(&self, now: Utime) -> u64 {
        u64::from(now.sec.saturating_sub(self.started.sec))
    }

    /// Seconds until it ends, if it goes on as it did; `None` before anything is done.
    #[must_use]
    pub fn remaining(&self, now: Utime) -> Option<u64> {
        let done = self.total - self.left;
        let took = self.seconds(now);
        (done > 0 && took > 0).then(|| (took as f64 * self.left as f64 / done as f64).ceil() as u64)
    }

    /// Two lines as `ceph -s` shows them, the second indented by six.
    #[must_use]
    pub fn text(&self, now: Utime) -> String {
        let filled = ((self.progress() * BAR as f64) as usize).min(BAR);
        let bar = format!("[{}{}]", "=".repeat(filled), ".".repeat(BAR - filled));
        let left = self.remaining(now).map(|s| format!(" (remaining: {})", span(s))).unwrap_or_default();
        format!("Global Recovery Event ({})\n      {bar}{left}", span(self.seconds(now)))
    }
}

/// `5s`, `3m`, `2h`, `4d`: the largest unit of which there is one.
fn span(s: u64) -> String {
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m", s / 60),
        3600..86_400 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// The event after a look at what is left.
pub(super) fn next(before: Option<RecoveryEvent>, left: i64, now: Utime) -> Option<RecoveryEvent> {
    if left <= 0 {
        return None;
    }
    let e = before.unwrap_or(RecoveryEvent { started: now, total: left, left });
    Some(RecoveryEvent { total: e.total + (left - e.left).max(0), left, ..e })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_event_tells_how_far_it_is_and_ends() {
        let at = |sec| Utime { sec, nsec: 0 };
        let e = next(None, 100, at(1000)).expect("began");
        assert_eq!(e.text(at(1000)), format!("Global Recovery Event (0s)\n      [{}]", ".".repeat(28)));
        let e = next(Some(e), 50, at(1030)).expect("goes on");
        let bar = format!("[{}{}]", "=".repeat(14), ".".repeat(14));
        assert_eq!(e.text(at(1030)), format!("Global Recovery Event (30s)\n      {bar} (remaining: 30s)"));
        // More to do: the share that is done shrinks.
        let e = next(Some(e), 150, at(1060)).expect("goes on");
        assert_eq!((e.total, e.progress()), (200, 0.25));
        assert_eq!(e.remaining(at(1060)), Some(180));
        assert_eq!(next(Some(e), 0, at(1070)), None);
    }
}
