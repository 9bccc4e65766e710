//! File-system maps, as far as monitors must answer subscriptions to them and keep MDS daemons.

use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::macros::{plain, versioned};
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

    /// `MDSMap`: the ranks and pools of one file system.
    MdsMap = "MDSMap", 5, 4 {
        epoch: Epoch,
        flags: u32,
        last_failure: Epoch,
        root: i32,
        session_timeout: u32,
        session_autoclose: u32,
        max_file_size: u64,
        max_mds: i32,
        mds_info: BTreeMap<u64, MdsInfo>,
        data_pools: Vec<PoolId>,
        cas_pool: PoolId,
        extended: MdsMapExtended,
    }

    /// `MirrorInfo::ClusterInfo`.
    MirrorCluster = "MirrorInfo::ClusterInfo", 1, 1 {
        client_name: String,
        cluster_name: String,
        fs_name: String,
    }

    /// `MirrorInfo::Peer`.
    MirrorPeer = "MirrorInfo::Peer", 1, 1 {
        uuid: String,
        remote: MirrorCluster,
    }

    /// `MirrorInfo`.
    MirrorInfo = "MirrorInfo", 1, 1 {
        mirrored: bool,
        peers: Vec<MirrorPeer>,
    }

    /// `Filesystem`.
    Filesystem = "Filesystem", 2, 1 {
        fscid: i32,
        /// An encoded [`MdsMap`].
        mds_map: Bytes,
        mirror_info: MirrorInfo => 2,
    }

    /// `FSMap`: all file systems and standby daemons.
    FsMap = "FSMap", 7, 6 {
        epoch: Epoch,
        next_filesystem_id: u64,
        legacy_client_fscid: i32,
        default_compat: CompatSet,
        enable_multiple: bool,
        filesystems: Vec<Filesystem>,
        mds_roles: BTreeMap<u64, i32>,
        standby_daemons: BTreeMap<u64, MdsInfo>,
        standby_epochs: BTreeMap<u64, Epoch>,
        ever_enabled_multiple: bool => 7,
    }

    /// `FSMapUser::fs_info_t`.
    FsUserInfo = "fs_info_t", 1, 1 {
        cid: i32,
        name: String,
    }

    /// `FSMapUser`: names of file systems, for clients.
    FsMapUser = "FSMapUser", 1, 1 {
        epoch: Epoch,
        legacy_client_fscid: i32,
        filesystems: BTreeMap<i32, FsUserInfo>,
    }

    /// `MDSHealthMetric`.
    MdsHealthMetric = "MDSHealthMetric", 1, 1 {
        kind: u16,
        severity: u8,
        message: Text,
        metadata: StrMap,
    }

    /// `MDSHealth`.
    MdsHealth = "MDSHealth", 1, 1 {
        metrics: Vec<MdsHealthMetric>,
    }
}

plain! {
    /// Second part of an `MDSMap`, which has a version of its own in front.
    MdsMapTail {
        compat: CompatSet,
        metadata_pool: PoolId,
        created: Utime,
        modified: Utime,
        tableserver: i32,
        ranks_in: BTreeSet<i32>,
        inc: BTreeMap<i32, i32>,
        up: BTreeMap<i32, u64>,
        failed: BTreeSet<i32>,
        stopped: BTreeSet<i32>,
        last_failure_osd_epoch: Epoch,
        ever_allowed_features: bool,
        explicitly_allowed_features: bool,
        inline_data_enabled: bool,
        enabled: bool,
        fs_name: String,
        damaged: BTreeSet<i32>,
        balancer: String,
        standby_count_wanted: i32,
        old_max_mds: i32,
        min_compat_client: i8,
        required_client_features: Bytes,
    }
}

/// Version of [`MdsMapTail`] that Pacific writes.
const MDSMAP_EV: u16 = 16;

/// [`MdsMapTail`] behind its version; newer versions add fields at the end.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MdsMapExtended(pub MdsMapTail);

impl Encode for MdsMapExtended {
    fn encode(&self, w: &mut Writer) {
        w.u16(MDSMAP_EV);
        w.put(&self.0);
    }
}
impl Decode for MdsMapExtended {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        let ev = r.u16()?;
        if ev < MDSMAP_EV {
            return Err(crate::DecodeError::BadValue { what: "MDSMap ev", value: ev.into() });
        }
        Ok(Self(r.get()?))
    }
}

impl MdsMap {
    /// The map of no file system, as a monitor gives it to a daemon or client that is in none.
    #[must_use]
    pub fn null(epoch: Epoch) -> Self {
        Self {
            epoch,
            flags: 0x12,
            session_timeout: 60,
            session_autoclose: 300,
            max_file_size: 1 << 40,
            max_mds: 1,
            cas_pool: PoolId(-1),
            extended: MdsMapExtended(MdsMapTail {
                metadata_pool: PoolId(0),
                fs_name: "cephfs".to_owned(),
                standby_count_wanted: -1,
                ..MdsMapTail::default()
            }),
            ..Self::default()
        }
    }
}

impl FsMap {
    /// No file system at all, as a fresh monitor holds it.
    #[must_use]
    pub fn empty(epoch: Epoch) -> Self {
        Self {
            epoch,
            next_filesystem_id: 1,
            legacy_client_fscid: -1,
            default_compat: mds_default_compat(),
            enable_multiple: true,
            ever_enabled_multiple: true,
            ..Self::default()
        }
    }
}

impl FsMapUser {
    /// No file system at all.
    #[must_use]
    pub fn empty(epoch: Epoch) -> Self {
        Self { epoch, legacy_client_fscid: -1, ..Self::default() }
    }
}

/// Features every MDS of the supported releases has.
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
    c.incompat.mask = NAMES.iter().fold(0, |m, (b, _)| m | 1 << b);
    c.incompat.names = NAMES.iter().map(|(b, n)| (*b, (*n).to_owned())).collect();
    c
}
