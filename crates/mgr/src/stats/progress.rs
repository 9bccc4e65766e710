//! Progress of recovery: the fraction of degraded or misplaced copies that were restored, and the remaining time.
//!
//! An event begins with the first degraded or misplaced object and ends when there are none. The remainder may grow
//! meanwhile, as when another OSD fails; the total then grows and the completed fraction shrinks.

use base::Utime;

/// A recovery event: degraded or misplaced copies that are being restored.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RecoveryEvent {
    /// Start time.
    pub started: Utime,
    /// Copies to restore, counted since the start.
    pub total: i64,
    /// Copies still to restore.
    pub left: i64,
}

/// Width of the progress bar without its ends.
const BAR: usize = 28;

impl RecoveryEvent {
    /// Completed fraction, 0 to 1.
    #[must_use]
    pub fn progress(&self) -> f64 {
        if self.total <= 0 { 1.0 } else { (self.total - self.left).max(0) as f64 / self.total as f64 }
    }

    /// Seconds since the start.
    #[must_use]
    pub fn seconds(&self, now: Utime) -> u64 {
        u64::from(now.sec.saturating_sub(self.started.sec))
    }

    /// Estimated seconds until the end; `None` before any copy is restored.
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

/// A duration in its largest non-zero unit: `5s`, `3m`, `2h`, `4d`.
fn span(s: u64) -> String {
    match s {
        0..60 => format!("{s}s"),
        60..3600 => format!("{}m", s / 60),
        3600..86_400 => format!("{}h", s / 3600),
        _ => format!("{}d", s / 86_400),
    }
}

/// The event after an update of the remaining copies.
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
        // The total grows, so the completed fraction shrinks.
        let e = next(Some(e), 150, at(1060)).expect("goes on");
        assert_eq!((e.total, e.progress()), (200, 0.25));
        assert_eq!(e.remaining(at(1060)), Some(180));
        assert_eq!(next(Some(e), 0, at(1070)), None);
    }
}
