//! File-system maps (MDS daemons, ranks, pools), and the contents of MDS beacons.
//!
//! Layouts: `src/mds/MDSMap.cc`, `FSMap.cc`, `FSMapUser.h`, `messages/MMDSBeacon.h`. An `MDSMap` has a second version
//! in the middle ([`MdsMap::ev`]). Decoders skip what they do not know, so the newest form serves every release. A
//! decoded map is encoded in the version it came in.

use crate::DecodeError;
use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::macros::versioned;
use crate::types::{CompatSet, StrMap, Text};
use base::{AddrVec, Epoch, PoolId, Utime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

versioned! {
    /// `MDSMap::mds_info_t`: one MDS daemon.
    MdsInfo = "mds_info_t", 10, 4 {
        global_id: u64,
        name: String,
        rank: i32,
        inc: i32,
        state: i32,
        state_seq: u64,
        addrs: AddrVec,
        laggy_since: Utime,
        standby_for_rank: i32,
        standby_for_name: String,
        export_targets: BTreeSet<i32> => 5,
        mds_features: u64 => 5,
        join_fscid: i32 => 6,
        standby_replay: bool => 7,
        flags: u64 => 9,
        compat: CompatSet => 10,
    }

    /// `MirrorInfo::ClusterInfo`: a file system of another cluster, and the client name used there.
    MirrorCluster = "MirrorInfo::ClusterInfo", 1, 1 {
        client_name: String,
        cluster_name: String,
        fs_name: String,
    }

    /// `MirrorInfo::Peer`: a target to which a file system is mirrored.
    MirrorPeer = "MirrorInfo::Peer", 1, 1 {
        uuid: String,
        remote: MirrorCluster,
    }

    /// `MirrorInfo`: whether a file system is mirrored, and to which peers.
    MirrorInfo = "MirrorInfo", 1, 1 {
        mirrored: bool,
        peers: Vec<MirrorPeer>,
    }

    /// `FSMapUser::fs_info_t`: id and name of a file system.
    FsUserInfo = "fs_info_t", 1, 1 {
        cid: i32,
        name: String,
    }

    /// `FSMapUser`: names of file systems, for clients.
    FsMapUser = "FSMapUser", 1, 1 {
        epoch: Epoch,
        legacy_client_fscid: i32,
        filesystems: Vec<FsUserInfo>,
    }

    /// `MDSHealthMetric`: one health warning of an MDS daemon.
    MdsHealthMetric = "MDSHealthMetric", 1, 1 {
        kind: u16,
        severity: u8,
        message: Text,
        metadata: StrMap,
    }

    /// `MDSHealth`: all health warnings of an MDS daemon.
    MdsHealth = "MDSHealth", 1, 1 {
        metrics: Vec<MdsHealthMetric>,
    }
}

/// `MDSMap`: the daemons, ranks and pools of one file system.
#[derive(Clone, Debug, PartialEq)]
pub struct MdsMap {
    /// Epoch of the [`FsMap`] that changed it last.
    pub epoch: Epoch,
    /// Bits of [`fs_flag`].
    pub flags: u32,
    /// Obsolete, 0.
    pub last_failure: Epoch,
    /// Rank of the root directory, 0.
    pub root: i32,
    /// Seconds without a message after which a client session is stale.
    pub session_timeout: u32,
    /// Seconds without a message after which a client session is evicted.
    pub session_autoclose: u32,
    /// Largest file size in bytes.
    pub max_file_size: u64,
    /// Number of active ranks wanted.
    pub max_mds: i32,
    /// Daemons that hold or follow a rank, by global id.
    pub mds_info: BTreeMap<u64, MdsInfo>,
    /// Data pools; the first one is the default.
    pub data_pools: Vec<PoolId>,
    /// Obsolete, -1.
    pub cas_pool: PoolId,
    /// Version of the second half, 16 (Pacific) to 19 (Tentacle).
    pub ev: u16,
    /// On-disk features of the file system.
    pub compat: CompatSet,
    /// Metadata pool.
    pub metadata_pool: PoolId,
    /// Creation time.
    pub created: Utime,
    /// Time of the last change.
    pub modified: Utime,
    /// Rank of the tables, 0.
    pub tableserver: i32,
    /// Ranks that exist.
    pub ranks_in: BTreeSet<i32>,
    /// Obsolete: the epoch, for every existing rank.
    pub inc: BTreeMap<i32, i32>,
    /// Daemon of each rank that has one.
    pub up: BTreeMap<i32, u64>,
    /// Ranks that exist and have no daemon.
    pub failed: BTreeSet<i32>,
    /// Ranks that have been stopped.
    pub stopped: BTreeSet<i32>,
    /// OSD map epoch that a rank must have before it replays its journal: in it the failed daemon is blocklisted.
    pub last_failure_osd_epoch: Epoch,
    /// Flags that were ever set.
    pub ever_allowed_features: u8,
    /// Flags that an operator set.
    pub explicitly_allowed_features: u8,
    /// Small files are stored in their inodes.
    pub inline_data_enabled: bool,
    /// Whether the file system exists.
    pub enabled: bool,
    /// Name of the file system.
    pub fs_name: String,
    /// Ranks that are damaged and need repair.
    pub damaged: BTreeSet<i32>,
    /// Name of the object with the metadata balancer's Lua program; empty for the built-in balancer.
    pub balancer: String,
    /// Number of standby daemons wanted; -1 until one existed.
    pub standby_count_wanted: i32,
    /// `max_mds` before the file system was taken down.
    pub old_max_mds: i32,
    /// Obsolete, 0.
    pub min_compat_client: u8,
    /// Required client features, in blocks of 8 bytes.
    pub required_client_features: Bytes,
    /// Ranks that the balancer uses, in hexadecimal; `-1` for all. Present if `ev` is at least 17.
    pub bal_rank_mask: String,
    /// Limit in bytes for all xattrs of an inode. Present if `ev` is at least 18.
    pub max_xattr_size: u64,
    /// Global id of the leader of the quiesce database; 0 for none. Present if `ev` is at least 19.
    pub qdb_leader: u64,
    /// Global ids of the daemons in the quiesce database. Present if `ev` is at least 19.
    pub qdb_members: Vec<u64>,
}

/// Bits of [`MdsMap::flags`].
pub mod fs_flag {
    /// No daemon may take a rank.
    pub const NOT_JOINABLE: u32 = 1;
    /// Snapshots may be made.
    pub const ALLOW_SNAPS: u32 = 1 << 1;
    /// Snapshots are supported with several active ranks.
    pub const ALLOW_MULTIMDS_SNAPS: u32 = 1 << 4;
    /// Standby daemons may follow ranks.
    pub const ALLOW_STANDBY_REPLAY: u32 = 1 << 5;
    /// No client may open a session.
    pub const REFUSE_CLIENT_SESSION: u32 = 1 << 6;
    /// Standby daemons that prefer another file system are not used.
    pub const REFUSE_STANDBY_FOR_ANOTHER_FS: u32 = 1 << 7;
    /// The balancer may migrate directories.
    pub const BALANCE_AUTOMATE: u32 = 1 << 8;
    /// Flags of a new file system.
    pub const DEFAULT: u32 = ALLOW_SNAPS | ALLOW_MULTIMDS_SNAPS;
}

/// Supported versions of the second half of an `MDSMap`.
const MDSMAP_EV: std::ops::RangeInclusive<u16> = 16..=19;

impl Default for MdsMap {
    /// The map without a file system.
    fn default() -> Self {
        Self {
            epoch: Epoch(0),
            flags: fs_flag::DEFAULT,
            last_failure: Epoch(0),
            root: 0,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_mds: 1,
            mds_info: BTreeMap::new(),
            data_pools: Vec::new(),
            cas_pool: PoolId(-1),
            ev: *MDSMAP_EV.end(),
            compat: CompatSet::default(),
            metadata_pool: PoolId(-1),
            created: Utime::default(),
            modified: Utime::default(),
            tableserver: 0,
            ranks_in: BTreeSet::new(),
            inc: BTreeMap::new(),
            up: BTreeMap::new(),
            failed: BTreeSet::new(),
            stopped: BTreeSet::new(),
            last_failure_osd_epoch: Epoch(0),
            ever_allowed_features: 0,
            explicitly_allowed_features: 0,
            inline_data_enabled: false,
            enabled: false,
            fs_name: "cephfs".to_owned(),
            damaged: BTreeSet::new(),
            balancer: String::new(),
            standby_count_wanted: -1,
            old_max_mds: 0,
            min_compat_client: 0,
            required_client_features: Bytes::new(),
            bal_rank_mask: "-1".to_owned(),
            max_xattr_size: 1 << 16,
            qdb_leader: 0,
            qdb_members: Vec::new(),
        }
    }
}

impl Encode for MdsMap {
    fn encode(&self, w: &mut Writer) {
        w.versioned(5, 4, |w| {
            w.put(&self.epoch);
            w.u32(self.flags);
            w.put(&self.last_failure);
            w.i32(self.root);
            w.u32(self.session_timeout);
            w.u32(self.session_autoclose);
            w.u64(self.max_file_size);
            w.i32(self.max_mds);
            w.put(&self.mds_info);
            w.put(&self.data_pools);
            w.put(&self.cas_pool);
            let ev = self.ev.clamp(*MDSMAP_EV.start(), *MDSMAP_EV.end());
            w.u16(ev);
            w.put(&self.compat);
            w.put(&self.metadata_pool);
            w.put(&self.created);
            w.put(&self.modified);
            w.i32(self.tableserver);
            w.put(&self.ranks_in);
            w.put(&self.inc);
            w.put(&self.up);
            w.put(&self.failed);
            w.put(&self.stopped);
            w.put(&self.last_failure_osd_epoch);
            w.u8(self.ever_allowed_features);
            w.u8(self.explicitly_allowed_features);
            w.bool(self.inline_data_enabled);
            w.bool(self.enabled);
            w.string(&self.fs_name);
            w.put(&self.damaged);
            w.string(&self.balancer);
            w.i32(self.standby_count_wanted);
            w.i32(self.old_max_mds);
            w.u8(self.min_compat_client);
            w.put(&self.required_client_features);
            if ev >= 17 {
                w.string(&self.bal_rank_mask);
            }
            if ev >= 18 {
                w.u64(self.max_xattr_size);
            }
            if ev >= 19 {
                w.u64(self.qdb_leader);
                w.put(&self.qdb_members);
            }
        });
    }
}

impl Decode for MdsMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("MDSMap", 5, |r, _| {
            let mut m = Self {
                epoch: r.get()?,
                flags: r.u32()?,
                last_failure: r.get()?,
                root: r.i32()?,
                session_timeout: r.u32()?,
                session_autoclose: r.u32()?,
                max_file_size: r.u64()?,
                max_mds: r.i32()?,
                mds_info: r.get()?,
                data_pools: r.get()?,
                cas_pool: r.get()?,
                ..Self::default()
            };
            let ev = r.u16()?;
            if ev < *MDSMAP_EV.start() {
                return Err(DecodeError::BadValue { what: "MDSMap ev", value: ev.into() });
            }
            m.ev = ev.min(*MDSMAP_EV.end());
            m.compat = r.get()?;
            m.metadata_pool = r.get()?;
            m.created = r.get()?;
            m.modified = r.get()?;
            m.tableserver = r.i32()?;
            m.ranks_in = r.get()?;
            m.inc = r.get()?;
            m.up = r.get()?;
            m.failed = r.get()?;
            m.stopped = r.get()?;
            m.last_failure_osd_epoch = r.get()?;
            m.ever_allowed_features = r.u8()?;
            m.explicitly_allowed_features = r.u8()?;
            m.inline_data_enabled = r.bool()?;
            m.enabled = r.bool()?;
            m.fs_name = r.string()?;
            m.damaged = r.get()?;
            m.balancer = r.string()?;
            m.standby_count_wanted = r.i32()?;
            m.old_max_mds = r.i32()?;
            m.min_compat_client = r.u8()?;
            m.required_client_features = r.get()?;
            if ev >= 17 {
                m.bal_rank_mask = r.string()?;
            }
            if ev >= 18 {
                m.max_xattr_size = r.u64()?;
            }
            if ev >= 19 {
                m.qdb_leader = r.u64()?;
                m.qdb_members = r.get()?;
            }
            Ok(m)
        })
    }
}

/// `Filesystem`: one file system of an [`FsMap`].
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Filesystem {
    /// Id of the file system.
    pub fscid: i32,
    /// Daemons, ranks, pools.
    pub mds_map: MdsMap,
    /// Clusters to which the file system is mirrored.
    pub mirror_info: MirrorInfo,
}

impl Encode for Filesystem {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 1, |w| {
            w.i32(self.fscid);
            w.sized(|w| w.put(&self.mds_map));
            w.put(&self.mirror_info);
        });
    }
}

impl Decode for Filesystem {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("Filesystem", 2, |r, v| {
            Ok(Self {
                fscid: r.i32()?,
                mds_map: MdsMap::from_bytes(&r.blob()?)?,
                mirror_info: if v >= 2 { r.get()? } else { MirrorInfo::default() },
            })
        })
    }
}

/// `FSMap`: all file systems and standby daemons.
#[derive(Clone, Debug, PartialEq)]
pub struct FsMap {
    /// Epoch.
    pub epoch: Epoch,
    /// Id of the next file system.
    pub next_filesystem_id: u64,
    /// Id of the file system for clients that name none; -1 for none.
    pub legacy_client_fscid: i32,
    /// On-disk features of a new file system.
    pub default_compat: CompatSet,
    /// Whether more than one file system may exist.
    pub enable_multiple: bool,
    /// File systems by id.
    pub filesystems: BTreeMap<i32, Filesystem>,
    /// Id of each daemon's file system; -1 for a standby.
    pub mds_roles: BTreeMap<u64, i32>,
    /// Daemons without a rank.
    pub standby_daemons: BTreeMap<u64, MdsInfo>,
    /// Epoch in which each standby daemon changed last.
    pub standby_epochs: BTreeMap<u64, Epoch>,
    /// Whether more than one file system was ever allowed.
    pub ever_enabled_multiple: bool,
    /// Time at which the epoch was made. Present from version 8 of the map (Tentacle) on.
    pub btime: Option<Utime>,
}

impl Default for FsMap {
    /// A map without file systems.
    fn default() -> Self {
        Self {
            epoch: Epoch(0),
            next_filesystem_id: 1,
            legacy_client_fscid: -1,
            default_compat: mds_default_compat(),
            enable_multiple: true,
            filesystems: BTreeMap::new(),
            mds_roles: BTreeMap::new(),
            standby_daemons: BTreeMap::new(),
            standby_epochs: BTreeMap::new(),
            ever_enabled_multiple: true,
            btime: None,
        }
    }
}

impl Encode for FsMap {
    fn encode(&self, w: &mut Writer) {
        w.versioned(if self.btime.is_some() { 8 } else { 7 }, 6, |w| {
            w.put(&self.epoch);
            w.u64(self.next_filesystem_id);
            w.i32(self.legacy_client_fscid);
            w.put(&self.default_compat);
            w.bool(self.enable_multiple);
            w.seq(self.filesystems.values(), |w, fs| w.put(fs));
            w.put(&self.mds_roles);
            w.put(&self.standby_daemons);
            w.put(&self.standby_epochs);
            w.bool(self.ever_enabled_multiple);
            if let Some(t) = &self.btime {
                w.put(t);
            }
        });
    }
}

impl Decode for FsMap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("FSMap", 8, |r, v| {
            if v < 7 {
                return Err(DecodeError::BadValue { what: "FSMap version", value: v.into() });
            }
            let mut m = Self {
                epoch: r.get()?,
                next_filesystem_id: r.u64()?,
                legacy_client_fscid: r.i32()?,
                default_compat: r.get()?,
                enable_multiple: r.bool()?,
                ..Self::default()
            };
            for fs in r.vec_with("file systems", |r| r.get::<Filesystem>())? {
                let id = fs.fscid;
                if m.filesystems.insert(id, fs).is_some() {
                    return Err(DecodeError::BadValue { what: "file system id", value: id as u64 });
                }
            }
            m.mds_roles = r.get()?;
            m.standby_daemons = r.get()?;
            m.standby_epochs = r.get()?;
            m.ever_enabled_multiple = r.bool()?;
            if v >= 8 {
                m.btime = Some(r.get()?);
            }
            Ok(m)
        })
    }
}

impl FsMapUser {
    /// A map without file systems.
    #[must_use]
    pub fn empty(epoch: Epoch) -> Self {
        Self { epoch, legacy_client_fscid: -1, ..Self::default() }
    }
}

/// On-disk feature of an MDS that stores small files in inodes; every supported release has it.
pub const INLINE_DATA: (u64, &str) = (7, "mds uses inline data");

/// Features that every supported MDS release has and a new file system requires.
#[must_use]
pub fn mds_default_compat() -> CompatSet {
    const NAMES: [(u64, &str); 9] = [
        (1, "base v0.20"),
        (2, "client writeable ranges"),
        (3, "default file layouts on dirs"),
        (4, "dir inode in separate object"),
        (5, "mds uses versioned encoding"),
        (6, "dirfrag is stored in omap"),
        (8, "no anchor table"),
        (9, "file layout v2"),
        (10, "snaprealm v2"),
    ];
    let mut c = CompatSet::default();
    for (bit, name) in NAMES {
        c.incompat.insert(bit, name);
    }
    c
}
