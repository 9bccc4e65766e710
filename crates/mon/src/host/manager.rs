//! The manager role in the monitor's process: its view of the monitor, and the way of its commands.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use auth::CryptoKey;
use base::{AddrVec, AuthName, Epoch};
use cluster::OsdMap;
use mgr::files::Counted;
use mgr::host::images::Job;
use mgr::images::rates::Reported;
use mgr::monitor::{FileSystem, FirstRank, Monitor, RankInfo};
use wire::types::PerfMetricQuery;

use super::bridge::Bridge;
use crate::command::HostJob;
use crate::core::MonCore;
use crate::state::ConfigKey;

/// The manager's view of the monitor.
pub(super) struct Seen {
    pub(super) core: Rc<RefCell<MonCore>>,
    pub(super) bridge: Rc<Bridge>,
}

impl Monitor for Seen {
    fn is_active(&self) -> bool {
        !self.core.borrow().state().options.external_mgr
    }

    fn osdmap(&self) -> Arc<OsdMap> {
        Arc::clone(&self.core.borrow().state().osdmap)
    }

    fn identity(&self) -> Option<(AuthName, Option<CryptoKey>)> {
        let core = self.core.borrow();
        let name = core.state().manager_entity()?;
        let entry = core.state().auth.get(name)?;
        Some((name.clone(), core.state().options.auth.cephx.then(|| entry.key.clone())))
    }

    fn names_clients(&self, clients: Vec<AddrVec>) -> bool {
        self.bridge.names_clients(clients)
    }

    fn option(&self, name: &str) -> Option<String> {
        self.core.borrow().state().options.settings.given(name).map(str::to_owned)
    }

    fn stored_option(&self, who: &str, name: &str) -> Option<String> {
        let key = ConfigKey { who: who.to_owned(), name: name.to_owned() };
        self.core.borrow().state().config.values.get(&key).cloned()
    }

    fn report_period(&self) -> u32 {
        self.core.borrow().state().options.stats_period
    }

    fn add_query(&self, q: PerfMetricQuery) {
        self.core.borrow_mut().add_perf_query(q);
    }

    fn remove_query(&self, q: &PerfMetricQuery) {
        self.core.borrow_mut().remove_perf_query(q);
    }

    fn take_reports(&self, q: &PerfMetricQuery) -> Reported {
        self.core.borrow_mut().take_perf(q)
    }

    fn first_ranks(&self) -> Vec<FirstRank> {
        self.core.borrow().first_ranks()
    }

    fn ask_mds(&self, queries: Vec<PerfMetricQuery>) {
        self.core.borrow_mut().ask_mds(queries);
    }

    fn mds_counted(&self, daemon: &str) -> Option<Rc<Counted>> {
        self.core.borrow().mds_counted(daemon)
    }

    fn file_system(&self, name: &str) -> Option<FileSystem> {
        let core = self.core.borrow();
        let fscid = *core.state().fs.map.filesystems.iter().find(|(_, f)| f.mds_map.fs_name == name)?.0;
        Some(FileSystem { fscid, ranks: core.ranks(fscid).1 })
    }

    fn file_systems(&self) -> Vec<(i32, String)> {
        let core = self.core.borrow();
        core.state().fs.map.filesystems.iter().map(|(id, fs)| (*id, fs.mds_map.fs_name.clone())).collect()
    }

    fn ranks(&self, fscid: i32) -> (Epoch, Vec<RankInfo>) {
        self.core.borrow().ranks(fscid)
    }

    fn mon_addrs(&self) -> Vec<String> {
        crate::command::mon_addrs(self.core.borrow().state())
    }
}

/// A job for the manager from a command, with its sender's rights.
pub(super) fn job(j: HostJob) -> Job {
    let principal = j.session.principal;
    let may = move |pool: &str, nspace: &str, need| {
        let args = [("pool".to_owned(), pool.to_owned()), ("namespace".to_owned(), nspace.to_owned())].into();
        principal.allows_module(crate::command::IMAGES_MODULE, "", &args, need)
    };
    Job { prefix: j.prefix, args: j.args, may: Box::new(may) }
}
