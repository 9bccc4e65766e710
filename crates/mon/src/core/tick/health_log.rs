//! Changes of the cluster's health in the cluster log, in Ceph's words, so that an operator finds afterwards what was
//! wrong and when.
//!
//! Invariants:
//!  1. An alert is told when it comes, when its severity rises and when it goes. A new text of the same alert, such as
//!     another percentage, is told once a minute at most.
//!  2. A monitor that begins to lead tells what it finds in one line, since it does not know what its predecessor told.
//!
//! Tests: below.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Mono;

use crate::command::{Checks, Severity};
use crate::core::MonCore;
use crate::state::log::Prio;

/// Seconds between two looks at the health.
const LOOK_SECONDS: u64 = 5;
/// Least time between two lines about another text of an alert.
const UPDATE_EVERY: Duration = Duration::from_secs(60);
/// Most lines of a look; the rest follows with the next one.
const LINES_MAX: usize = 64;
/// Most alerts that the first line names.
const NAMED_MAX: usize = 32;

/// An alert as it was told.
#[derive(Clone, Debug)]
struct Told {
    severity: Severity,
    summary: String,
    at: Mono,
}

/// The alerts that the cluster log has told of.
#[derive(Debug, Default)]
pub(in crate::core) struct HealthLog {
    told: BTreeMap<String, Told>,
    has_begun: bool,
}

fn prio(s: Severity) -> Prio {
    match s {
        Severity::Ok => Prio::INFO,
        Severity::Warn => Prio::WARN,
        Severity::Err => Prio::ERROR,
    }
}

impl HealthLog {
    /// Lines about what has changed, and remembers the alerts as told.
    fn changes(&mut self, checks: &Checks, now: Mono) -> Vec<(Prio, String)> {
        if !std::mem::replace(&mut self.has_begun, true) {
            return self.begin(checks, now);
        }
        let mut lines = Vec::new();
        for (code, c) in checks {
            if lines.len() >= LINES_MAX {
                return lines;
            }
            let what = match self.told.get(code) {
                None => "failed",
                Some(t) if t.severity < c.severity => "update",
                Some(t) if t.summary != c.summary && now.since(t.at) >= UPDATE_EVERY => "update",
                Some(_) => continue,
            };
            lines.push((prio(c.severity), format!("Health check {what}: {} ({code})", c.summary)));
            self.told.insert(code.clone(), Told { severity: c.severity, summary: c.summary.clone(), at: now });
        }
        let was_ill = !self.told.is_empty();
        self.told.retain(|code, t| {
            let stays = checks.contains_key(code) || lines.len() >= LINES_MAX;
            if !stays {
                lines.push((Prio::INFO, format!("Health check cleared: {code} (was: {})", t.summary)));
            }
            stays
        });
        if was_ill && self.told.is_empty() {
            lines.push((Prio::INFO, "Cluster is now healthy".to_owned()));
        }
        lines
    }

    fn begin(&mut self, checks: &Checks, now: Mono) -> Vec<(Prio, String)> {
        let told = |(code, c): (&String, &crate::command::Check)| {
            (code.clone(), Told { severity: c.severity, summary: c.summary.clone(), at: now })
        };
        self.told = checks.iter().map(told).collect();
        let Some(worst) = checks.values().map(|c| c.severity).max() else { return Vec::new() };
        let mut named: Vec<&str> = checks.values().map(|c| c.summary.as_str()).take(NAMED_MAX).collect();
        if checks.len() > NAMED_MAX {
            named.push("...");
        }
        vec![(prio(worst), format!("overall {} {}", worst.word(), named.join("; ")))]
    }
}

impl MonCore {
    /// Tells changes of the health in the cluster log.
    pub(in crate::core) fn tick_health_log(&mut self) {
        if !self.ticks.is_nth(LOOK_SECONDS) {
            return;
        }
        let checks = crate::command::checks(&self.state, self.now);
        for (prio, line) in self.ticks.health_log.changes(&checks, self.now.mono) {
            self.pending.log(&self.state, self.now, prio, "cluster", line);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::Check;

    fn checks(of: &[(&str, Severity, &str)]) -> Checks {
        let check = |severity, summary: &str| Check { severity, summary: summary.into(), detail: Vec::new(), count: 1 };
        of.iter().map(|(code, s, text)| ((*code).to_owned(), check(*s, text))).collect()
    }

    fn at(s: u64) -> Mono {
        Mono(s * 1_000_000_000)
    }

    #[test]
    fn alerts_are_told_when_they_come_grow_and_go() {
        use Severity::{Err, Warn};
        let mut l = HealthLog::default();
        let mut lines = |of: &[(&str, Severity, &str)], s: u64| -> Vec<(u16, String)> {
            l.changes(&checks(of), at(s)).into_iter().map(|(p, t)| (p.0, t)).collect()
        };
        assert!(lines(&[], 0).is_empty());
        let down = ("OSD_DOWN", Warn, "1 osds down");
        assert_eq!(lines(&[down], 5), [(3, "Health check failed: 1 osds down (OSD_DOWN)".into())]);
        assert!(lines(&[down], 10).is_empty());
        let two = ("OSD_DOWN", Warn, "2 osds down");
        assert!(lines(&[two], 15).is_empty(), "the text alone waits");
        assert_eq!(lines(&[two], 65), [(3, "Health check update: 2 osds down (OSD_DOWN)".into())]);
        let (bad, full) = (("OSD_DOWN", Err, "all osds down"), ("OSD_FULL", Err, "1 full osd(s)"));
        let more = lines(&[bad, full], 70);
        assert_eq!(
            more[0],
            (4, "Health check update: all osds down (OSD_DOWN)".into()),
            "what grows worse does not wait"
        );
        assert_eq!(more[1].1, "Health check failed: 1 full osd(s) (OSD_FULL)");
        assert_eq!(lines(&[bad], 75), [(1, "Health check cleared: OSD_FULL (was: 1 full osd(s))".into())]);
        let end = lines(&[], 80);
        assert_eq!(end[0].1, "Health check cleared: OSD_DOWN (was: all osds down)");
        assert_eq!((end.len(), end[1].1.as_str()), (2, "Cluster is now healthy"));
        assert!(lines(&[], 85).is_empty());
    }

    #[test]
    fn the_first_look_is_one_line_and_each_look_has_a_bound() {
        let many: Vec<(String, Check)> = (0..200)
            .map(|n| {
                let summary = format!("alert {n}");
                (format!("CODE_{n:03}"), Check { severity: Severity::Warn, summary, detail: Vec::new(), count: 1 })
            })
            .collect();
        let all: Checks = many.iter().cloned().collect();
        let mut first = HealthLog::default();
        let line = first.changes(&all, at(0));
        assert!(
            line.len() == 1 && line[0].1.starts_with("overall HEALTH_WARN alert 0; ") && line[0].1.ends_with("; ...")
        );
        let mut later = HealthLog::default();
        assert!(later.changes(&Checks::new(), at(0)).is_empty());
        let mut told = 0;
        for s in 1..=4 {
            let n = later.changes(&all, at(s)).len();
            assert!(n <= LINES_MAX);
            told += n;
        }
        assert_eq!(told, 200);
        let mut cleared = 0;
        for s in 5..=8 {
            cleared += later.changes(&Checks::new(), at(s)).len();
        }
        assert_eq!(cleared, 201, "and that all is well");
    }
}
