//! Performance queries: OSDs count operations on images, MDS daemons count operations of clients, and both report the
//! counts.

use crate::core::MonCore;
use crate::core::session::Session;
use crate::state::ConnKey;
use base::EntityKind;
use mgr::files::Counted;
use mgr::images::rates::Reported;
use mgr::monitor::FirstRank;
use std::rc::Rc;
use wire::types::{PerfMetricQuery, mds_state};

impl MonCore {
    /// Adds a query, which all OSDs get.
    pub fn add_perf_query(&mut self, q: PerfMetricQuery) {
        if self.state.mgr_mut().add_query(q) {
            self.configure_all(EntityKind::OSD);
        }
    }

    /// Removes a query.
    pub fn remove_perf_query(&mut self, q: &PerfMetricQuery) {
        if self.state.mgr_mut().remove_query(q) {
            self.configure_all(EntityKind::OSD);
        }
    }

    /// Takes the reports of OSDs for a query since the last call.
    pub fn take_perf(&mut self, q: &PerfMetricQuery) -> Reported {
        self.state.mgr_mut().take_reports(q)
    }

    /// Replaces the queries of all MDS daemons by these, and sends them even if they are unchanged.
    pub fn ask_mds(&mut self, queries: Vec<PerfMetricQuery>) {
        self.state.mgr_mut().ask_mds(queries);
        self.configure_all(EntityKind::MDS);
    }

    /// The newest report of an MDS daemon.
    #[must_use]
    pub fn mds_counted(&self, daemon: &str) -> Option<Rc<Counted>> {
        self.state.mgr.mds_counted(daemon)
    }

    /// The daemons of first ranks that serve.
    #[must_use]
    pub fn first_ranks(&self) -> Vec<FirstRank> {
        let of = |fs: &wire::types::Filesystem| {
            let map = &fs.mds_map;
            let info = map.mds_info.get(map.up.get(&0)?).filter(|i| i.state == mds_state::ACTIVE)?;
            let addr = *info.addrs.msgr2()?;
            Some(FirstRank { fs: map.fs_name.clone(), daemon: info.name.clone(), gid: info.global_id, addr })
        };
        self.state.fs.map.filesystems.values().filter_map(of).collect()
    }

    /// The daemons of a file system's ranks.
    #[must_use]
    pub fn ranks(&self, fscid: i32) -> (base::Epoch, Vec<mgr::monitor::RankInfo>) {
        let Some(fs) = self.state.fs.map.filesystems.get(&fscid) else { return (base::Epoch(0), Vec::new()) };
        let map = &fs.mds_map;
        let of = |(rank, gid): (&i32, &u64)| {
            let info = map.mds_info.get(gid)?;
            let addr = *info.addrs.msgr2()?;
            Some(mgr::monitor::RankInfo { rank: *rank, gid: *gid, addr, state: info.state })
        };
        (map.epoch, map.up.iter().filter_map(of).collect())
    }

    fn configure_all(&mut self, kind: EntityKind) {
        let daemons: Vec<ConnKey> = self
            .sessions
            .iter()
            .filter(|(_, s)| s.mgr_daemon().is_some() && reports_as(s) == kind)
            .map(|(c, _)| *c)
            .collect();
        for c in daemons {
            self.configure(c);
        }
    }

    /// Sends a daemon its report period and the queries.
    pub(in crate::core) fn configure(&mut self, c: ConnKey) {
        let kind = self.sessions.get(&c).map_or(EntityKind::CLIENT, reports_as);
        let configure = self.state.mgr.configuration(kind, self.state.options.stats_period);
        self.reply(c, 0, &configure);
    }
}

/// The kind of daemon that the reports of a session are of.
fn reports_as(s: &Session) -> EntityKind {
    if s.osd().is_some() { EntityKind::OSD } else { s.who().name.kind }
}
