//! Changes of what is not stored: the running monitors, refused daemons, the store's answers, options of this process,
//! and the parts that own their fields.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{AuthName, EntityKind, Epoch, Mono, OsdId};
use bytes::Bytes;
use mgr::Manager;
use state::etcd::care::Condition;
use wire::types::MdsHealth;

use super::ClusterState;
use crate::state::clocks::Clocks;
use crate::state::cuts::Cuts;
use crate::state::options::MonOptions;
use crate::state::separate_mgr::SeparateMgr;
use crate::state::session::Sessions;
use crate::state::wrong_keys::WrongKeys;

impl ClusterState {
    /// The manager role, which owns its state.
    pub(crate) fn mgr_mut(&mut self) -> &mut Manager {
        &mut self.view.mgr
    }

    /// The entity whose key the built-in manager role uses for its own client: the first manager.
    pub(crate) fn manager_entity(&self) -> Option<&AuthName> {
        self.auth.keys().find(|n| n.kind == EntityKind::MGR)
    }

    /// The list of open sessions.
    pub(crate) fn sessions_mut(&mut self) -> &mut Sessions {
        &mut self.view.sessions
    }

    /// The words of the separate manager.
    pub(crate) fn separate_mgr_mut(&mut self) -> &mut SeparateMgr {
        &mut self.view.separate_mgr
    }

    /// The clock differences of the other monitors.
    pub(crate) fn clocks_mut(&mut self) -> &mut Clocks {
        &mut self.view.mons.clocks
    }

    /// The daemons that came with a wrong key.
    pub(crate) fn wrong_keys_mut(&mut self) -> &mut WrongKeys {
        &mut self.view.refused.keys
    }

    /// The cut links between OSDs.
    pub(crate) fn cuts_mut(&mut self) -> &mut Cuts {
        &mut self.view.osds.cuts
    }

    /// Changes options of this process, which are not stored.
    pub(crate) fn change_options<R>(&mut self, change: impl FnOnce(&mut MonOptions) -> R) -> R {
        change(&mut self.view.options)
    }

    /// Counts a line of the cluster log that is sent and not stored.
    pub(crate) fn skip_log_line(&mut self) {
        self.view.log.skip();
    }

    /// Keeps a stored map that was read again for a reply.
    pub(crate) fn cache_fetched_map(&mut self, e: Epoch, b: Bytes) {
        self.view.history.put_fetched(e, b);
    }

    /// Notes that a request to the state store failed.
    pub(crate) fn store_failed(&mut self, error: String) {
        self.view.store.error = Some(error);
    }

    /// Begins the next term of a leader, and returns its number.
    pub(crate) fn begin_term(&mut self) -> u64 {
        self.view.mons.term += 1;
        self.view.mons.term
    }

    /// Makes this monitor one of several, all of which count as running before the list is read.
    pub(crate) fn join_monitors(&mut self) {
        self.view.mons.up = Some(self.view.monmap.ranks.iter().cloned().collect());
    }

    /// Sets the running monitors, unless there is a single one.
    pub(crate) fn set_monitors_up(&mut self, names: BTreeSet<String>) {
        if self.view.mons.up.as_ref().is_some_and(|up| *up != names) {
            self.view.mons.up = Some(names);
        }
    }

    /// Sets the metadata of the running monitors. Of those that do not run, what they last told stays.
    pub(crate) fn set_monitor_metadata(&mut self, all: BTreeMap<String, BTreeMap<String, String>>) {
        let (known, map) = (&mut self.view.mons.metadata, &self.view.monmap);
        known.extend(all);
        known.retain(|name, _| map.mons.contains_key(name));
    }

    /// Sets the condition of the etcd cluster.
    pub(crate) fn set_etcd(&mut self, condition: Option<Arc<Condition>>) {
        self.view.mons.etcd = condition;
    }

    /// Sets the free and all bytes of the file system with the state.
    pub(crate) fn set_space(&mut self, space: Option<(u64, u64)>) {
        self.view.store.space = space;
    }

    /// Notes whether daemons of this program run in different versions.
    pub(crate) fn note_versions(&mut self, differ: bool, now: Mono) {
        let mixed = &mut self.view.mons.mixed_since;
        *mixed = differ.then(|| mixed.unwrap_or(now));
    }

    /// Notes that an OSD was refused because it has a newer map. Returns false if that was known.
    pub(crate) fn osd_is_ahead(&mut self, osd: OsdId, newest: Epoch) -> bool {
        self.view.refused.ahead.insert(osd, newest) != Some(newest)
    }

    /// Notes that an OSD was refused because it cannot work with those that are up.
    pub(crate) fn osd_is_foreign(&mut self, osd: OsdId, why: String) {
        self.view.refused.foreign.insert(osd, why);
    }

    /// Notes that an OSD can work with those that are up.
    pub(crate) fn osd_fits(&mut self, osd: OsdId) {
        self.view.refused.foreign.remove(&osd);
    }

    /// Sets the warnings of an MDS, and returns the earlier ones.
    pub(crate) fn set_mds_health(&mut self, gid: u64, health: MdsHealth) -> MdsHealth {
        self.view.fs.health.insert(gid, health).unwrap_or_default()
    }

    /// Drops the warnings and counters of MDS daemons that the map does not have.
    pub(crate) fn forget_removed_mds(&mut self) {
        let fs = &mut self.view.fs;
        let map = &fs.map;
        fs.health.retain(|g, _| map.mds_roles.contains_key(g));
        self.view.mgr.retain_mds(|n| map.daemon_by_name(n).is_some());
    }

    /// Makes the state in memory differ from the stored one, for a test.
    #[cfg(feature = "pretend")]
    pub(crate) fn pretend(&mut self, change: impl FnOnce(&mut super::StateView)) {
        change(&mut self.view);
    }
}
