//! Performance queries: what OSDs are asked to count of images' operations, and what they report.

use super::MonCore;
use super::session::ConnKey;
use mgr::images::rates::Reported;
use wire::types::PerfMetricQuery;

impl MonCore {
    /// Asks all OSDs from now on.
    pub fn add_perf_query(&mut self, q: PerfMetricQuery) {
        if self.state.mgr.add_query(q) {
            self.configure_osds();
        }
    }

    /// Asks no more.
    pub fn remove_perf_query(&mut self, q: &PerfMetricQuery) {
        if self.state.mgr.remove_query(q) {
            self.configure_osds();
        }
    }

    /// What OSDs reported for a query since the last time.
    pub fn take_perf(&mut self, q: &PerfMetricQuery) -> Reported {
        self.state.mgr.take_reports(q)
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
        let configure = self.state.mgr.configuration(is_osd, self.state.options.stats_period);
        self.reply(c, 0, &configure);
    }
}
