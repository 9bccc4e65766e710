//! Performance queries: what OSDs are asked to count of images' operations, and what they report.

use super::MonCore;
use super::session::ConnKey;
use mgr::images::rates::Reported;
use wire::msg::MMgrConfigure;
use wire::types::{MetricReport, PerfMetricQuery};

/// Lowest priority of performance counters that daemons are asked for.
const STATS_THRESHOLD: u32 = 5;

impl MonCore {
    /// Asks all OSDs from now on.
    pub fn add_perf_query(&mut self, q: PerfMetricQuery) {
        if self.perf.add(q) {
            self.configure_osds();
        }
    }

    /// Asks no more.
    pub fn remove_perf_query(&mut self, q: &PerfMetricQuery) {
        if self.perf.remove(q) {
            self.configure_osds();
        }
    }

    /// What OSDs reported for a query since the last time.
    pub fn take_perf(&mut self, q: &PerfMetricQuery) -> Reported {
        self.perf.take(q)
    }

    pub(super) fn perf_reports(&mut self, m: &wire::msg::MMgrReport) {
        match &m.metric_report {
            Some(MetricReport::Osd(r)) => self.perf.take_reports(r),
            _ => self.perf.take_reports(&m.osd_perf_metric_reports),
        }
    }

    fn configure_osds(&mut self) {
        let osds: Vec<ConnKey> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.mgr_daemon.is_some() && s.osd().is_some())
            .map(|(c, _)| *c)
            .collect();
        for c in osds {
            self.configure(c);
        }
    }

    /// Tells a daemon how often to report, and what.
    pub(super) fn configure(&mut self, c: ConnKey) {
        let is_osd = self.sessions.get(&c).is_some_and(|s| s.osd().is_some());
        let configure = MMgrConfigure {
            stats_period: self.state.options.stats_period,
            stats_threshold: STATS_THRESHOLD,
            osd_perf_metric_queries: if is_osd { self.perf.asked() } else { Vec::new() },
            ..MMgrConfigure::default()
        };
        self.reply(c, 0, &configure);
    }
}
