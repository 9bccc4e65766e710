//! Changes of the FSMap that time brings about: silent daemons are replaced, ranks are added and removed, standbys
//! take over failed ranks or follow active ones.
//!
//! A silent daemon is removed only if another daemon was heard recently: if all are silent, the cause may be this
//! monitor. After a stall of the monitor, or when it hears beacons again, the grace of every daemon starts anew.

use std::collections::BTreeMap;
use std::time::Duration;

use base::Mono;
use wire::types::{FsMap, fs_flag, mds_state};

use crate::core::MonCore;
use crate::state::fs::edit::FsEdit;
use crate::state::fs::map::{self, NO_FS};
use crate::state::log::Prio;
use crate::state::options::MdsOptions;

/// Times of one MDS daemon.
#[derive(Debug)]
struct Heard {
    /// Time of the last beacon, or of the last restart of the grace.
    at: Mono,
    /// Time at which the youngest session that brought a beacon opened. `None`: no beacon came yet.
    session: Option<Mono>,
}

/// Times of the beacons of MDS daemons.
#[derive(Debug, Default)]
pub(in crate::core) struct MdsWatch {
    /// Times of each MDS, by global ID.
    daemons: BTreeMap<u64, Heard>,
    /// Time of the last check.
    checked: Option<Mono>,
    /// True if no MDS was heard recently.
    heard_none: bool,
}

impl MdsWatch {
    /// Notes a beacon that came by a session which opened at `session`.
    pub(super) fn heard(&mut self, gid: u64, session: Mono, now: Mono) {
        let d = self.daemons.entry(gid).or_insert(Heard { at: now, session: None });
        d.at = now;
        d.session = d.session.max(Some(session));
    }

    /// True if a daemon may be younger than one whose session opened at `session`: it was heard within the grace, by a
    /// younger session. A leader does not know the sessions by which the leaders before it heard a daemon. So a daemon
    /// that it has not heard yet may be younger, too, until it has had the time for a beacon.
    pub(super) fn may_be_younger(&self, gid: u64, session: Mono, o: &MdsOptions, now: Mono) -> bool {
        match self.daemons.get(&gid) {
            None => true,
            Some(Heard { at, session: None }) => now.since(*at) < recent(o),
            Some(Heard { at, session: Some(s) }) => now.since(*at) < o.beacon_grace && *s > session,
        }
    }

    /// Checks the daemons of a map. Returns whether any was heard recently, and those whose grace is over.
    fn check(&mut self, map: &FsMap, o: &MdsOptions, now: Mono) -> (bool, Vec<u64>) {
        let (grace, interval) = (o.beacon_grace, o.beacon_interval);
        let stalled = self.checked.is_some_and(|t| now.since(t) > grace.saturating_sub(interval));
        self.checked = Some(now);
        self.daemons.retain(|g, _| map.mds_roles.contains_key(g));
        for g in map.mds_roles.keys() {
            self.daemons.entry(*g).or_insert(Heard { at: now, session: None });
        }
        let heard = self.daemons.values().any(|d| now.since(d.at) < recent(o));
        // The first beacon after a silence shows that the monitor hears again, not that the other daemons are gone.
        let again = std::mem::replace(&mut self.heard_none, !heard) && heard;
        if stalled || again {
            tracing::info!("mon: restarting the grace of all MDS daemons: no beacon came for a while");
            self.daemons.values_mut().for_each(|d| d.at = now);
        }
        let silent = self.daemons.iter().filter(|(_, d)| now.since(d.at) >= grace).map(|(g, _)| *g).collect();
        (heard, silent)
    }
}

/// Time in which a daemon that runs is heard.
fn recent(o: &MdsOptions) -> Duration {
    o.beacon_interval.max(o.beacon_grace / 2)
}

impl MonCore {
    /// Runs once a second, and after every change of the map.
    pub(in crate::core) fn tick_fs(&mut self) {
        if self.state.fs.map.mds_roles.is_empty() && self.state.fs.map.filesystems.is_empty() {
            return;
        }
        self.forget_silent();
        self.arrange_fs();
    }

    /// Marks daemons without recent beacons as laggy and replaces them.
    fn forget_silent(&mut self) {
        let (heard, silent) = self.mds_watch.check(&self.state.fs.map, &self.state.options.mds, self.now.mono);
        self.state.forget_removed_mds();
        let wall = self.now.wall;
        let mut e = self.fs_edit();
        for gid in silent {
            let Some(info) = e.map().daemon(gid).cloned() else { continue };
            if !info.is_laggy() {
                map::modify_daemon(e.map_mut(), wall, gid, |i| i.laggy_since = wall);
            }
            if heard && e.drop_daemon(gid) {
                let line = format!("MDS {} is removed because it is dead or otherwise unavailable.", info.human_name());
                e.log(Prio::INFO, line);
            }
        }
    }

    /// Adjusts preferences, number of ranks, takeovers and standby-replay daemons.
    fn arrange_fs(&mut self) {
        let ids: Vec<i32> = self.state.fs.map.filesystems.keys().copied().collect();
        let mut e = self.fs_edit();
        for id in &ids {
            e.want_standby(*id);
            e.prefer(*id);
        }
        for id in &ids {
            e.resize(*id);
        }
        for id in &ids {
            e.take_over(*id);
        }
    }
}

impl FsEdit<'_> {
    /// Removes a silent daemon and assigns its rank to another one. If no other daemon can take it, the daemon keeps
    /// the rank.
    fn drop_daemon(&mut self, gid: u64) -> bool {
        let Some(info) = self.map().daemon(gid).cloned() else { return false };
        if info.is_frozen() {
            return false;
        }
        if info.rank < 0 || info.is_follower() {
            self.fail(gid);
            return true;
        }
        let Some(fs) = self.map().fs_of(gid) else { return false };
        let fscid = fs.fscid;
        if fs.mds_map.has_flag(fs_flag::NOT_JOINABLE) {
            return false;
        }
        let Some(next) = self.map().replacement(fscid, info.rank).cloned() else { return false };
        if next.is_laggy() {
            return false;
        }
        let (old, new) = (info.human_name(), next.human_name());
        self.log(Prio::WARN, format!("Replacing {old} as rank {} with standby {new}", info.rank));
        self.fail(gid);
        self.promote(next.global_id, fscid, info.rank);
        true
    }

    /// Once there is a standby beside an active daemon, the file system wants one: an alert is raised when it has
    /// none.
    fn want_standby(&mut self, fscid: i32) {
        let Some(fs) = self.map().filesystems.get(&fscid) else { return };
        let m = &fs.mds_map;
        let standbys = m.count(mds_state::STANDBY_REPLAY) + self.map().standby_daemons.len();
        if m.standby_count_wanted == -1 && m.count(mds_state::ACTIVE) > 0 && standbys > 0 {
            let now = self.wall();
            map::modify_fs(self.map_mut(), now, fscid, |f| f.mds_map.standby_count_wanted = 1);
        }
    }

    /// Replaces a daemon that prefers another file system, or none, by a standby that prefers this one; one at a
    /// time.
    fn prefer(&mut self, fscid: i32) {
        let Some(fs) = self.map().filesystems.get(&fscid) else { return };
        if fs.mds_map.has_flag(fs_flag::NOT_JOINABLE) || !fs.mds_map.is_resizeable() {
            return;
        }
        for info in fs.mds_map.mds_info.values().filter(|i| i.join_fscid != fscid) {
            let next = match info.state {
                mds_state::STANDBY_REPLAY => self.map().available_standby(fs),
                mds_state::ACTIVE => self.map().replacement(fscid, info.rank),
                _ => None,
            };
            let Some(next) = next else { break };
            let better = next.join_fscid == fscid || info.join_fscid != NO_FS && next.join_fscid == NO_FS;
            if !better {
                continue;
            }
            let (gid, who, follower) = (info.global_id, info.human_name(), info.is_follower());
            let part = if follower { "standby-replay" } else { "active" };
            self.log(Prio::INFO, format!("Dropping low affinity {part} {who} in favor of higher affinity standby."));
            if follower {
                self.fail(gid);
            } else {
                self.drop_daemon(gid);
            }
            break;
        }
    }

    /// Adds a rank, or stops the highest one, until there are `max_mds`.
    fn resize(&mut self, fscid: i32) {
        // The committed and the pending map must both have settled ranks.
        let settled = self.state.fs.map.filesystems.get(&fscid).is_some_and(|f| f.mds_map.is_resizeable());
        let Some(fs) = self.map().filesystems.get(&fscid) else { return };
        let m = &fs.mds_map;
        if !settled || !m.is_resizeable() {
            return;
        }
        let (have, want) = (m.ranks_in.len() as i32, m.max_mds);
        if have < want && !m.has_flag(fs_flag::NOT_JOINABLE) {
            let Some(rank) = (0..=have).find(|r| !m.up.contains_key(r) && !m.failed.contains(r)) else { return };
            let Some(next) = self.map().replacement(fscid, rank) else { return };
            let (gid, who, name) = (next.global_id, next.human_name(), &m.fs_name);
            let line = format!("{who} assigned to filesystem {name} as rank {rank} (now has {} ranks)", have + 1);
            self.log(Prio::INFO, line);
            self.promote(gid, fscid, rank);
        } else if have > want {
            let Some(info) = m.holder(have - 1).filter(|i| i.state == mds_state::ACTIVE) else { return };
            let (gid, who) = (info.global_id, info.human_name());
            self.log(Prio::INFO, format!("stopping {who}"));
            let now = self.wall();
            map::modify_daemon(self.map_mut(), now, gid, |i| i.state = mds_state::STOPPING);
        }
    }

    /// Assigns failed ranks to standbys. Remaining standbys follow active ranks, if the file system allows it.
    fn take_over(&mut self, fscid: i32) {
        let Some(fs) = self.map().filesystems.get(&fscid) else { return };
        if fs.mds_map.has_flag(fs_flag::NOT_JOINABLE) {
            return;
        }
        for rank in fs.mds_map.failed.clone() {
            let Some(next) = self.map().replacement(fscid, rank) else { continue };
            let (gid, who) = (next.global_id, next.human_name());
            let name = self.map().filesystems.get(&fscid).map(|f| f.mds_map.fs_name.clone()).unwrap_or_default();
            self.log(Prio::INFO, format!("Standby {who} assigned to filesystem {name} as rank {rank}"));
            self.promote(gid, fscid, rank);
        }
        loop {
            let Some(fs) = self.map().filesystems.get(&fscid) else { return };
            let m = &fs.mds_map;
            if !m.is_resizeable() || !m.has_flag(fs_flag::ALLOW_STANDBY_REPLAY) {
                return;
            }
            let free = |r: &&i32| m.holder(**r).is_some_and(|i| !i.is_degraded()) && m.follower(**r).is_none();
            let Some(rank) = m.ranks_in.iter().find(free).copied() else { return };
            let Some(gid) = self.map().available_standby(fs).map(|i| i.global_id) else { return };
            let now = self.wall();
            if !map::follow(self.map_mut(), now, gid, fscid, rank) {
                return;
            }
        }
    }
}
