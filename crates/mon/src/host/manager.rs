//! The manager role in the monitor's process: its view of the monitor, and the way of its commands.

use std::cell::RefCell;
use std::rc::Rc;
use std::sync::Arc;

use auth::CryptoKey;
use base::{AuthName, Epoch};
use cluster::OsdMap;
use mgr::files::Counted;
use mgr::host::images::Job;
use mgr::images::rates::Reported;
use mgr::monitor::{FileSystem, FirstRank, Monitor, RankInfo};
use wire::types::PerfMetricQuery;

use crate::command::HostJob;
use crate::core::MonCore;
use crate::state::ConfigKey;

/// The manager's view of the monitor.
pub(super) struct Seen(pub(super) Rc<RefCell<MonCore>>);

impl Monitor for Seen {
    fn is_active(&self) -> bool {
        !self.0.borrow().state().options.external_mgr
    }

    fn osdmap(&self) -> Arc<OsdMap> {
        Arc::clone(&self.0.borrow().state().osdmap)
    }

    fn identity(&self) -> Option<(AuthName, Option<CryptoKey>)> {
        let core = self.0.borrow();
        let name = core.state().manager_entity()?;
        let entry = core.state().auth.get(name)?;
        Some((name.clone(), core.state().options.auth.cephx.then(|| entry.key.clone())))
    }

    fn option(&self, name: &str) -> Option<String> {
        self.0.borrow().state().options.settings.given(name).map(str::to_owned)
    }

    fn stored_option(&self, who: &str, name: &str) -> Option<String> {
        let key = ConfigKey { who: who.to_owned(), name: name.to_owned() };
        self.0.borrow().state().config.values.get(&key).cloned()
    }

    fn report_period(&self) -> u32 {
        self.0.borrow().state().options.stats_period
    }

    fn add_query(&self, q: PerfMetricQuery) {
        self.0.borrow_mut().add_perf_query(q);
    }

    fn remove_query(&self, q: &PerfMetricQuery) {
        self.0.borrow_mut().remove_perf_query(q);
    }

    fn take_reports(&self, q: &PerfMetricQuery) -> Reported {
        self.0.borrow_mut().take_perf(q)
    }

    fn first_ranks(&self) -> Vec<FirstRank> {
        self.0.borrow().first_ranks()
    }

    fn ask_mds(&self, queries: Vec<PerfMetricQuery>) {
        self.0.borrow_mut().ask_mds(queries);
    }

    fn mds_counted(&self, daemon: &str) -> Option<Rc<Counted>> {
        self.0.borrow().mds_counted(daemon)
    }

    fn file_system(&self, name: &str) -> Option<FileSystem> {
        let core = self.0.borrow();
        let fscid = *core.state().fs.map.filesystems.iter().find(|(_, f)| f.mds_map.fs_name == name)?.0;
        Some(FileSystem { fscid, ranks: core.ranks(fscid).1 })
    }

    fn file_systems(&self) -> Vec<(i32, String)> {
        let core = self.0.borrow();
        core.state().fs.map.filesystems.iter().map(|(id, fs)| (*id, fs.mds_map.fs_name.clone())).collect()
    }

    fn ranks(&self, fscid: i32) -> (Epoch, Vec<RankInfo>) {
        self.0.borrow().ranks(fscid)
    }

    fn mon_addrs(&self) -> Vec<String> {
        crate::command::mon_addrs(self.0.borrow().state())
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
