//! Queries on file-system maps: active, degraded and replacement daemons.

use super::{CompatSet, Filesystem, FsMap, MdsInfo, MdsMap, fs_flag};
use base::Utime;

/// States of an MDS daemon (`MDSMap::DaemonState`).
pub mod mds_state {
    /// The daemon is removed.
    pub const DNE: i32 = 0;
    /// The rank has been stopped.
    pub const STOPPED: i32 = -1;
    /// The daemon boots.
    pub const BOOT: i32 = -4;
    /// The daemon waits for a rank.
    pub const STANDBY: i32 = -5;
    /// The daemon creates a new rank.
    pub const CREATING: i32 = -6;
    /// The daemon restarts a stopped rank.
    pub const STARTING: i32 = -7;
    /// The daemon follows the journal of a rank.
    pub const STANDBY_REPLAY: i32 = -8;
    /// The daemon replays the journal of a failed rank.
    pub const REPLAY: i32 = 8;
    /// The daemon resolves unfinished operations with other ranks.
    pub const RESOLVE: i32 = 9;
    /// The daemon waits for clients to reconnect.
    pub const RECONNECT: i32 = 10;
    /// The daemon synchronizes its cache with other ranks.
    pub const REJOIN: i32 = 11;
    /// The daemon replays requests of clients.
    pub const CLIENTREPLAY: i32 = 12;
    /// The daemon serves the rank.
    pub const ACTIVE: i32 = 13;
    /// The daemon stops and exports its subtrees to other ranks.
    pub const STOPPING: i32 = 14;
    /// The rank cannot be served and needs repair.
    pub const DAMAGED: i32 = 15;

    /// Name of a state.
    #[must_use]
    pub fn name(state: i32) -> &'static str {
        match state {
            DNE => "down:dne",
            STOPPED => "down:stopped",
            DAMAGED => "down:damaged",
            BOOT => "up:boot",
            STANDBY => "up:standby",
            CREATING => "up:creating",
            STARTING => "up:starting",
            STANDBY_REPLAY => "up:standby-replay",
            REPLAY => "up:replay",
            RESOLVE => "up:resolve",
            RECONNECT => "up:reconnect",
            REJOIN => "up:rejoin",
            CLIENTREPLAY => "up:clientreplay",
            ACTIVE => "up:active",
            STOPPING => "up:stopping",
            _ => "???",
        }
    }

    /// True if a daemon with a rank may change from one state to the other by its own beacon.
    #[must_use]
    pub fn may_follow(from: i32, to: i32) -> bool {
        if from == to || to == DAMAGED {
            return true;
        }
        match from {
            CREATING | STARTING => to == ACTIVE,
            REPLAY => matches!(to, RESOLVE | RECONNECT),
            RESOLVE => to == RECONNECT,
            RECONNECT => to == REJOIN,
            REJOIN => matches!(to, CLIENTREPLAY | ACTIVE | STOPPED),
            CLIENTREPLAY => to == ACTIVE,
            ACTIVE => to == STOPPING,
            STOPPING => to == STOPPED,
            _ => false,
        }
    }
}

/// Bit of [`MdsInfo::flags`]: frozen, so that the daemon is neither removed nor given a rank.
const FROZEN: u64 = 1;

impl MdsInfo {
    /// True if the daemon's beacons are overdue.
    #[must_use]
    pub fn is_laggy(&self) -> bool {
        self.laggy_since != Utime::default()
    }

    /// True if an operator froze the daemon.
    #[must_use]
    pub fn is_frozen(&self) -> bool {
        self.flags & FROZEN != 0
    }

    /// Freezes or unfreezes the daemon.
    pub fn set_frozen(&mut self, on: bool) {
        self.flags = if on { self.flags | FROZEN } else { self.flags & !FROZEN };
    }

    /// True if the daemon's rank has failed and is not fully serving again.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        (mds_state::REPLAY..=mds_state::CLIENTREPLAY).contains(&self.state)
    }

    /// True if the daemon follows a rank without holding one.
    #[must_use]
    pub fn is_follower(&self) -> bool {
        self.state == mds_state::STANDBY_REPLAY
    }

    /// `daemon mds.NAME`.
    #[must_use]
    pub fn human_name(&self) -> String {
        format!("daemon mds.{}", self.name)
    }
}

impl MdsMap {
    /// True if the flag is set.
    #[must_use]
    pub fn has_flag(&self, flag: u32) -> bool {
        self.flags & flag != 0
    }

    /// Sets or clears a flag.
    pub fn set_flag(&mut self, flag: u32, on: bool) {
        self.flags = if on { self.flags | flag } else { self.flags & !flag };
    }

    /// Number of daemons in a state.
    #[must_use]
    pub fn count(&self, state: i32) -> usize {
        self.mds_info.values().filter(|i| i.state == state).count()
    }

    /// True if a rank has no daemon, is damaged, or is recovering.
    #[must_use]
    pub fn is_degraded(&self) -> bool {
        !self.failed.is_empty() || !self.damaged.is_empty() || self.mds_info.values().any(MdsInfo::is_degraded)
    }

    /// True if ranks may be added or removed at present.
    #[must_use]
    pub fn is_resizeable(&self) -> bool {
        use mds_state::{CREATING, STARTING, STOPPING};
        !self.is_degraded() && [CREATING, STARTING, STOPPING].iter().all(|s| self.count(*s) == 0)
    }

    /// True if a daemon may add on-disk features that the file system lacks.
    #[must_use]
    pub fn is_upgradeable(&self) -> bool {
        let followers = self.has_flag(fs_flag::ALLOW_STANDBY_REPLAY);
        self.ranks_in.is_empty() || !followers && (self.ranks_in.len() == 1 || self.up.is_empty())
    }

    /// The daemon that holds a rank.
    #[must_use]
    pub fn holder(&self, rank: i32) -> Option<&MdsInfo> {
        self.up.get(&rank).and_then(|gid| self.mds_info.get(gid))
    }

    /// The daemon that follows a rank.
    #[must_use]
    pub fn follower(&self, rank: i32) -> Option<&MdsInfo> {
        self.mds_info.values().find(|i| i.rank == rank && i.is_follower())
    }

    /// Number of missing standby daemons, if `standbys` daemons have no rank.
    #[must_use]
    pub fn standbys_missing(&self, standbys: usize) -> usize {
        let wanted = usize::try_from(self.standby_count_wanted).unwrap_or(0);
        wanted.saturating_sub(self.count(mds_state::STANDBY_REPLAY) + standbys)
    }

    /// True if the feature bit is required of clients.
    #[must_use]
    pub fn requires_client(&self, bit: usize) -> bool {
        self.required_client_features.get(bit / 8).is_some_and(|b| b & (1 << (bit % 8)) != 0)
    }

    /// Adds or removes a required client feature.
    pub fn require_client(&mut self, bit: usize, on: bool) {
        let mut v = self.required_client_features.to_vec();
        if on && v.len() <= bit / 8 {
            v.resize((bit / 64 + 1) * 8, 0);
        }
        if let Some(b) = v.get_mut(bit / 8) {
            *b = if on { *b | 1 << (bit % 8) } else { *b & !(1 << (bit % 8)) };
        }
        while v.len() >= 8 && v.iter().rev().take(8).all(|b| *b == 0) {
            v.truncate(v.len() - 8);
        }
        self.required_client_features = v.into();
    }
}

impl FsMap {
    /// A daemon by global id, with or without a rank.
    #[must_use]
    pub fn daemon(&self, gid: u64) -> Option<&MdsInfo> {
        match self.mds_roles.get(&gid)? {
            -1 => self.standby_daemons.get(&gid),
            fscid => self.filesystems.get(fscid)?.mds_map.mds_info.get(&gid),
        }
    }

    /// All daemons by global id.
    pub fn daemons(&self) -> impl Iterator<Item = &MdsInfo> {
        self.mds_roles.keys().filter_map(|gid| self.daemon(*gid))
    }

    /// A daemon by name; standby daemons first, then those of each file system.
    #[must_use]
    pub fn daemon_by_name(&self, name: &str) -> Option<&MdsInfo> {
        let held = self.filesystems.values().flat_map(|f| f.mds_map.mds_info.values());
        self.standby_daemons.values().chain(held).find(|i| i.name == name)
    }

    /// The file system whose rank a daemon holds or follows.
    #[must_use]
    pub fn fs_of(&self, gid: u64) -> Option<&Filesystem> {
        self.filesystems.get(self.mds_roles.get(&gid)?)
    }

    /// A file system by name.
    #[must_use]
    pub fn fs_by_name(&self, name: &str) -> Option<&Filesystem> {
        self.filesystems.values().find(|f| f.mds_map.fs_name == name)
    }

    /// The epoch that a daemon must have: its file system's, or that of its own record if it has none.
    #[must_use]
    pub fn effective_epoch(&self, gid: u64) -> Option<base::Epoch> {
        match self.fs_of(gid) {
            Some(fs) => Some(fs.mds_map.epoch),
            None => self.standby_epochs.get(&gid).copied(),
        }
    }

    /// The standby daemon for a file system: one that prefers it, else one without a preference, else, if allowed, one
    /// that prefers another.
    #[must_use]
    pub fn available_standby(&self, fs: &Filesystem) -> Option<&MdsInfo> {
        let map = &fs.mds_map;
        let fits = |c: &CompatSet| c.writeable(&map.compat) && (map.is_upgradeable() || map.compat.writeable(c));
        let mut who: Option<&MdsInfo> = None;
        for info in self.standby_daemons.values() {
            if info.is_laggy() || info.is_frozen() || !fits(&info.compat) {
                continue;
            }
            if info.join_fscid == fs.fscid {
                return Some(info);
            }
            let last_resort = who.is_none() && !map.has_flag(fs_flag::REFUSE_STANDBY_FOR_ANOTHER_FS);
            if info.join_fscid == -1 || last_resort {
                who = Some(info);
            }
        }
        who
    }

    /// The daemon to take over a rank: its follower, else a standby daemon.
    #[must_use]
    pub fn replacement(&self, fscid: i32, rank: i32) -> Option<&MdsInfo> {
        let fs = self.filesystems.get(&fscid)?;
        match fs.mds_map.follower(rank) {
            Some(f) if f.is_frozen() => None,
            Some(f) => Some(f),
            None => self.available_standby(fs),
        }
    }

    /// True if a pool belongs to a file system.
    #[must_use]
    pub fn uses_pool(&self, pool: base::PoolId) -> bool {
        self.filesystems.values().any(|f| f.mds_map.metadata_pool == pool || f.mds_map.data_pools.contains(&pool))
    }

    /// The map for a client that is limited to the named file systems (no names: unlimited). Standby daemons are always
    /// visible.
    #[must_use]
    pub fn filtered(&self, names: &[&str]) -> std::borrow::Cow<'_, Self> {
        if names.is_empty() {
            return std::borrow::Cow::Borrowed(self);
        }
        let mut m = self.clone();
        m.filesystems.retain(|_, f| names.contains(&f.mds_map.fs_name.as_str()));
        m.mds_roles.retain(|_, fscid| *fscid == -1 || m.filesystems.contains_key(fscid));
        if !m.filesystems.contains_key(&m.legacy_client_fscid) {
            m.legacy_client_fscid = -1;
        }
        std::borrow::Cow::Owned(m)
    }
}
