//! Failure reports about OSDs, and the decision when to believe them.
//!
//! Reports count by failure domain: several OSDs of one host are one witness. The time without an answer must exceed
//! the grace, which is longer for an OSD (and for reporters) known to be slow rather than dead.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use base::{Epoch, OsdId, Utime};
use cluster::osdmap::{OsdMap, OsdXinfo};

use crate::state::options::MonOptions;

/// Time after which half of an OSD's laggy history is forgotten (`mon_osd_laggy_halflife`).
pub(in crate::core) const LAGGY_HALFLIFE: Duration = Duration::from_secs(3600);
/// Reports that are older than the grace plus this time are dropped.
pub(in crate::core) const REPORT_LIFE: Duration = Duration::from_secs(600);
/// Most reporters recorded per OSD.
pub(in crate::core) const MAX_REPORTERS: usize = 1024;

/// One failure report.
#[derive(Clone, Debug)]
struct Report {
    failed_since: Utime,
    /// Failure domain of the reporter: a CRUSH node.
    domain: i32,
    /// The reporter's connection and map epoch, to answer it with the new map.
    waiter: (u64, u32),
}

/// All open reports, by the OSD that they report.
#[derive(Clone, Debug, Default)]
pub(in crate::core) struct FailureReports {
    targets: BTreeMap<OsdId, BTreeMap<OsdId, Report>>,
    /// OSDs that are to be called dead when their sessions end, with the epoch in which they came up; see
    /// [`crate::core::osd`].
    refused: BTreeMap<OsdId, Epoch>,
    /// True if one was added, or a session of one has ended, since they were judged.
    judge: bool,
}

fn before(t: Utime, d: Duration) -> Utime {
    Utime::from_unix(t.to_unix().saturating_sub(d))
}

fn since(now: Utime, then: Utime) -> Duration {
    now.to_unix().saturating_sub(then.to_unix())
}

/// Seconds that an OSD's laggy history adds to the grace.
fn laggy_term(x: &OsdXinfo, elapsed: Duration) -> f64 {
    let decay = (-std::f64::consts::LN_2 * elapsed.as_secs_f64() / LAGGY_HALFLIFE.as_secs_f64()).exp();
    let probability = f64::from(x.laggy_probability) / f64::from(u32::MAX);
    decay * f64::from(x.laggy_interval) * probability
}

impl FailureReports {
    /// Records a report: `reporter` has had no answer from `target` for `failed_for`.
    pub(in crate::core) fn report(
        &mut self,
        target: OsdId,
        reporter: OsdId,
        domain: i32,
        failed_for: Duration,
        now: Utime,
        waiter: (u64, u32),
    ) {
        let reports = self.targets.entry(target).or_default();
        if reports.len() < MAX_REPORTERS || reports.contains_key(&reporter) {
            reports.insert(reporter, Report { failed_since: before(now, failed_for), domain, waiter });
        }
    }

    /// Drops the report of `reporter` about `target`.
    pub(in crate::core) fn cancel(&mut self, target: OsdId, reporter: OsdId) {
        if let Some(r) = self.targets.get_mut(&target) {
            r.remove(&reporter);
            if r.is_empty() {
                self.targets.remove(&target);
            }
        }
    }

    /// Drops all reports about `target`, and returns the connection and map epoch of each reporter, which waits for
    /// the new map.
    pub(in crate::core) fn resolve(&mut self, target: OsdId) -> Vec<(u64, u32)> {
        self.targets.remove(&target).into_iter().flatten().map(|(_, r)| r.waiter).collect()
    }

    /// Drops all reports by an OSD that went down itself.
    pub(in crate::core) fn forget_reporter(&mut self, reporter: OsdId) {
        self.targets.retain(|_, r| {
            r.remove(&reporter);
            !r.is_empty()
        });
    }

    /// Notes that an OSD which is down has refused a connection; `up_from` is the epoch in which it came up.
    pub(in crate::core) fn refused_connection(&mut self, osd: OsdId, up_from: Epoch) {
        self.refused.insert(osd, up_from);
        self.judge = true;
    }

    /// Notes that a session of an OSD has ended.
    pub(in crate::core) fn session_ended(&mut self, osd: OsdId) {
        self.judge |= self.refused.contains_key(&osd);
    }

    /// Takes the OSDs that refused a connection, if there is news of one.
    pub(in crate::core) fn take_refused(&mut self) -> BTreeMap<OsdId, Epoch> {
        if std::mem::take(&mut self.judge) { std::mem::take(&mut self.refused) } else { BTreeMap::new() }
    }

    /// Keeps an OSD that refused a connection until there is news of it.
    pub(in crate::core) fn wait_for_sessions_of(&mut self, osd: OsdId, up_from: Epoch) {
        self.refused.insert(osd, up_from);
    }

    /// OSDs with open reports.
    pub(in crate::core) fn targets(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.targets.keys().copied()
    }

    /// Pairs of OSDs of which each has reported the other for longer than `grace`, the smaller number first.
    pub(in crate::core) fn links(&self, grace: Duration, now: Utime) -> impl Iterator<Item = (OsdId, OsdId)> + '_ {
        let old = move |r: &Report| since(now, r.failed_since) >= grace;
        self.targets.iter().flat_map(move |(a, by)| {
            let mutual = by.iter().filter(move |(b, r)| *a < **b && old(r) && self.by(**b, *a).is_some_and(old));
            mutual.map(|(b, _)| (*a, *b))
        })
    }

    fn by(&self, target: OsdId, reporter: OsdId) -> Option<&Report> {
        self.targets.get(&target)?.get(&reporter)
    }

    /// Drops reports that were not renewed. Those of both ends of a link are kept: they tell of a cut that lasts.
    pub(in crate::core) fn expire(&mut self, opts: &MonOptions, now: Utime) {
        let limit = opts.osds.heartbeat_grace + REPORT_LIFE;
        let links: BTreeSet<(OsdId, OsdId)> = self.links(limit, now).collect();
        self.targets.retain(|t, r| {
            let mutual = |o: &OsdId| links.contains(&(*t.min(o), *t.max(o)));
            r.retain(|o, rep| since(now, rep.failed_since) <= limit || mutual(o));
            !r.is_empty()
        });
    }

    /// The grounds to mark `target` down, if the reports about it suffice.
    #[must_use]
    pub(in crate::core) fn verdict(
        &self,
        map: &OsdMap,
        opts: &MonOptions,
        target: OsdId,
        now: Utime,
    ) -> Option<Verdict> {
        let reports = self.targets.get(&target)?;
        let domains: BTreeSet<i32> = reports.values().map(|r| r.domain).collect();
        if domains.len() < opts.osds.min_down_reporters {
            return None;
        }
        let newest = reports.values().map(|r| r.failed_since).max().unwrap_or(now);
        let failed_for = since(now, newest);
        let mut grace = opts.osds.heartbeat_grace.as_secs_f64();
        if opts.osds.adjust_heartbeat_grace {
            grace += laggy_term(&map.xinfo(target), failed_for);
            let peers: f64 = reports
                .keys()
                .map(|o| {
                    let x = map.xinfo(*o);
                    laggy_term(&x, since(now, x.down_stamp))
                })
                .sum();
            grace += peers / reports.len() as f64;
        }
        let failed_for = failed_for.as_secs_f64();
        (failed_for >= grace).then_some(Verdict { reporters: domains.len(), failed_for, grace })
    }
}

/// The grounds on which an OSD counts as failed. Plain data.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(in crate::core) struct Verdict {
    /// Number of failure domains that reported the OSD.
    pub(in crate::core) reporters: usize,
    /// Seconds without an answer.
    pub(in crate::core) failed_for: f64,
    /// Grace of the OSD, in seconds.
    pub(in crate::core) grace: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    const T0: Utime = Utime { sec: 1_000_000, nsec: 0 };

    fn at(s: u64) -> Utime {
        T0.plus(Duration::from_secs(s))
    }

    fn secs(s: u64) -> Duration {
        Duration::from_secs(s)
    }

    #[test]
    fn two_domains_and_the_grace_are_needed() {
        let (map, opts) = (OsdMap::default(), MonOptions::default());
        let mut f = FailureReports::default();
        let t = OsdId(0);
        f.report(t, OsdId(1), -2, secs(21), T0, (1, 5));
        f.report(t, OsdId(2), -2, secs(21), T0, (2, 5));
        assert!(f.verdict(&map, &opts, t, at(10)).is_none(), "one host is one witness");
        f.report(t, OsdId(3), -3, secs(5), T0, (3, 6));
        assert!(f.verdict(&map, &opts, t, at(10)).is_none(), "the newest report is too young");
        assert!(f.verdict(&map, &opts, t, at(15)).is_some());
        f.cancel(t, OsdId(3));
        assert!(f.verdict(&map, &opts, t, at(15)).is_none());
        assert_eq!(f.resolve(t), vec![(1, 5), (2, 5)]);
        assert_eq!(f.targets().count(), 0);
    }

    #[test]
    fn a_slow_osd_gets_more_time_for_a_while() {
        let opts = MonOptions::default();
        let x = OsdXinfo { laggy_probability: u32::MAX, laggy_interval: 60, ..OsdXinfo::default() };
        assert!((laggy_term(&x, Duration::ZERO) - 60.0).abs() < 1e-6);
        assert!((laggy_term(&x, LAGGY_HALFLIFE) - 30.0).abs() < 1e-6);
        let mut f = FailureReports::default();
        f.report(OsdId(0), OsdId(1), 1, secs(0), T0, (1, 1));
        f.expire(&opts, at(619));
        assert_eq!(f.targets().count(), 1);
        f.expire(&opts, at(621));
        assert_eq!(f.targets().count(), 0);
    }

    #[test]
    fn laggy_history_counts_only_if_the_option_is_set() {
        let mut map = OsdMap::default();
        map.set_max_osd(3).unwrap();
        let mut inc = cluster::Incremental::new(map.fsid, map.epoch.next(), T0);
        inc.new_weight.insert(OsdId(0), 0x10000);
        let x = OsdXinfo { laggy_probability: u32::MAX, laggy_interval: 100, ..OsdXinfo::default() };
        inc.new_xinfo.insert(OsdId(0), x);
        let map = map.apply(&inc).unwrap();
        let mut opts = MonOptions::default();
        let mut f = FailureReports::default();
        f.report(OsdId(0), OsdId(1), 1, secs(30), T0, (1, 1));
        f.report(OsdId(0), OsdId(2), 2, secs(30), T0, (1, 1));
        assert_eq!(f.verdict(&map, &opts, OsdId(0), T0), None, "known to be slow");
        opts.osds.adjust_heartbeat_grace = false;
        let v = f.verdict(&map, &opts, OsdId(0), T0).unwrap();
        assert_eq!(v, Verdict { reporters: 2, failed_for: 30.0, grace: 20.0 });
    }

    #[test]
    fn reports_of_an_osd_that_is_down_are_dropped() {
        let mut f = FailureReports::default();
        f.report(OsdId(0), OsdId(1), 1, secs(30), T0, (1, 1));
        f.report(OsdId(2), OsdId(1), 1, secs(30), T0, (1, 1));
        f.forget_reporter(OsdId(1));
        assert_eq!(f.targets().count(), 0);
    }
}
