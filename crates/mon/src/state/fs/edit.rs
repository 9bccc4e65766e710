//! A change of the FSMap with its side effects: blocklisting in the OSD map, lines of the log, metadata.

use base::planted::{Bug, acts};
use base::{AddrVec, Epoch, Now, Utime};
use wire::types::{FsMap, mds_state};

use super::map;
use crate::state::log::Prio;
use crate::state::{ClusterState, Pending};

/// The FSMap with pending changes, and the proposal that it becomes part of.
pub(crate) struct FsEdit<'a> {
    /// The committed state.
    pub(crate) state: &'a ClusterState,
    /// The proposal under construction.
    pub(crate) pending: &'a mut Pending,
    /// The current time.
    pub(crate) now: Now,
}

impl FsEdit<'_> {
    /// The FSMap with pending changes.
    pub(crate) fn map(&self) -> &FsMap {
        self.pending.fsmap.as_ref().unwrap_or(&self.state.fs.map)
    }

    /// The pending FSMap for writing, with the next epoch.
    pub(crate) fn map_mut(&mut self) -> &mut FsMap {
        self.pending.fsmap_mut(self.state)
    }

    /// The wall-clock time.
    pub(crate) fn wall(&self) -> Utime {
        self.now.wall
    }

    /// Adds a line to the cluster log.
    pub(crate) fn log(&mut self, prio: Prio, line: String) {
        self.pending.log(self.state, self.now, prio, "cluster", line);
    }

    /// Blocklists addresses at the OSDs, and returns the OSD map epoch from which this holds.
    pub(crate) fn fence(&mut self, addrs: &AddrVec) -> Epoch {
        let until = self.now.wall.plus(self.state.options.mds.blocklist);
        let none = AddrVec::default();
        let addrs = if acts(Bug::MdsWithoutFence) { &none } else { addrs };
        self.pending.fence(self.state, addrs, until)
    }

    /// Removes a daemon from the map. A daemon with a rank is blocklisted at the OSDs first, so that it cannot write
    /// beside its successor.
    pub(crate) fn fail(&mut self, gid: u64) {
        let Some(info) = self.map().daemon(gid) else { return };
        let holds = info.rank >= 0 && !info.is_follower();
        let addrs = info.addrs.clone();
        let fenced = holds.then(|| self.fence(&addrs));
        let now = self.wall();
        map::erase(self.map_mut(), now, gid, fenced);
    }

    /// Assigns a rank to a daemon.
    pub(crate) fn promote(&mut self, gid: u64, fscid: i32, rank: i32) {
        let now = self.wall();
        map::promote(self.map_mut(), now, gid, fscid, rank);
    }

    /// Marks a rank damaged: its daemon and standby-replay daemons are removed, and it waits for repair.
    pub(crate) fn damage(&mut self, fscid: i32, rank: i32) {
        let Some(fs) = self.map().filesystems.get(&fscid) else { return };
        let follower = fs.mds_map.follower(rank).map(|i| i.global_id);
        let Some((gid, addrs)) = fs.mds_map.holder(rank).map(|i| (i.global_id, i.addrs.clone())) else { return };
        let fenced = self.fence(&addrs);
        if let Some(f) = follower {
            self.fail(f);
        }
        let now = self.wall();
        map::damaged(self.map_mut(), now, gid, fenced);
    }

    /// Sets the state that a daemon reported.
    pub(crate) fn set_state(&mut self, gid: u64, state: i32, seq: u64) {
        let now = self.wall();
        let info = self.map().daemon(gid);
        if state == mds_state::ACTIVE
            && let Some(i) = info.filter(|i| i.state != mds_state::ACTIVE)
            && let Some(fs) = self.map().fs_of(gid)
        {
            let (who, rank, name) = (i.human_name(), i.rank, &fs.mds_map.fs_name);
            let line = format!("{who} is now active in filesystem {name} as rank {rank}");
            self.log(Prio::INFO, line);
        }
        map::modify_daemon(self.map_mut(), now, gid, |i| {
            i.state = state;
            i.state_seq = seq;
        });
    }
}
