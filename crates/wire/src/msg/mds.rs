//! File-system maps for subscribers, and beacons of MDS daemons.

use crate::codec::{Reader, Result, Writer};
use crate::frame::WireMessage;
use crate::macros::message;
use crate::types::{CompatSet, FsMap, FsMapUser, MdsHealth, PaxosHeader, StrMap};
use base::id::Uuid;
use base::{Epoch, SnapId};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

message! {
    /// `MMDSMap`: the map of one file system, for subscribers to `mdsmap`.
    MMdsMap = 21, 2, 1 {
        fsid: Uuid,
        epoch: Epoch,
        /// An encoded [`crate::types::MdsMap`].
        encoded: Bytes,
        map_fs_name: String => 2,
    }

    /// `MFSMap`: the maps of all file systems, for subscribers to `fsmap`.
    MFsMap = 45, 1, 1 {
        epoch: Epoch,
        fsmap: FsMap,
    }

    /// `MMDSLoadTargets`: ranks to which the sender migrates directories.
    MMdsLoadTargets = 0x20a, 1, 0 {
        paxos: PaxosHeader,
        global_id: u64,
        targets: BTreeSet<i32>,
    }

    /// `MRemoveSnaps`: an MDS asks to remove snapshots of pools; the monitor replies with the same message.
    MRemoveSnaps = 90, 1, 0 {
        paxos: PaxosHeader,
        snaps: BTreeMap<i32, Vec<SnapId>>,
    }

    /// `MFSMapUser`: ids and names of all file systems, for subscribers to `fsmap.user`.
    MFsMapUser = 103, 1, 1 {
        epoch: Epoch,
        fsmap: FsMapUser,
    }
}

/// `MMDSBeacon`: an MDS reports that it is alive and requests a state; the monitor replies with the same message.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MMdsBeacon {
    /// Paxos header.
    pub paxos: PaxosHeader,
    /// Cluster id.
    pub fsid: Uuid,
    /// Global id of the daemon.
    pub global_id: u64,
    /// Current or requested state; [`MMdsBeacon::BOOT`] at first.
    pub state: i32,
    /// Sequence number; the reply echoes it.
    pub seq: u64,
    /// Name of the daemon.
    pub name: String,
    /// Obsolete, -1.
    pub standby_for_rank: i32,
    /// Obsolete, empty.
    pub standby_for_name: String,
    /// On-disk features.
    pub compat: CompatSet,
    /// Health warnings.
    pub health: MdsHealth,
    /// Metadata; only while booting.
    pub sys_info: StrMap,
    /// Feature bits.
    pub mds_features: u64,
    /// Obsolete, -1.
    pub standby_for_fscid: i32,
    /// Obsolete, false.
    pub standby_replay: bool,
    /// File system that the daemon prefers to join.
    pub fs: String,
}

impl MMdsBeacon {
    /// `MDSMap::STATE_BOOT`.
    pub const BOOT: i32 = -4;
}

impl WireMessage for MMdsBeacon {
    const KIND: u16 = 100;
    const VERSION: u16 = 8;
    const COMPAT: u16 = 6;

    fn encode_front(&self, w: &mut Writer) {
        w.put(&self.paxos);
        w.put(&self.fsid);
        w.u64(self.global_id);
        w.i32(self.state);
        w.u64(self.seq);
        w.string(&self.name);
        w.i32(self.standby_for_rank);
        w.string(&self.standby_for_name);
        w.put(&self.compat);
        w.put(&self.health);
        if self.state == Self::BOOT {
            w.put(&self.sys_info);
        }
        w.u64(self.mds_features);
        w.i32(self.standby_for_fscid);
        w.bool(self.standby_replay);
        w.string(&self.fs);
    }

    fn decode_front(r: &mut Reader<'_>, version: u16, _: &Bytes) -> Result<Self> {
        let mut m = Self {
            paxos: r.get()?,
            fsid: r.get()?,
            global_id: r.u64()?,
            state: r.i32()?,
            seq: r.u64()?,
            name: r.string()?,
            standby_for_rank: r.i32()?,
            standby_for_name: r.string()?,
            compat: r.get()?,
            health: r.get()?,
            ..Self::default()
        };
        if m.state == Self::BOOT {
            m.sys_info = r.get()?;
        }
        m.mds_features = r.u64()?;
        m.standby_for_fscid = r.i32()?;
        if version >= 7 {
            m.standby_replay = r.bool()?;
        }
        if version >= 8 {
            m.fs = r.string()?;
        }
        Ok(m)
    }
}
