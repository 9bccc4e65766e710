//! Messages between OSDs and their monitor (maps are in `osd_map`).

use crate::macros::message;
use crate::types::{Intervals, OsdSuperblock, PaxosHeader, PgCreateExtra, PgCreateStamp, StrMap};
use base::id::Uuid;
use base::{AddrVec, Epoch, Eversion, OsdId, PgId, PoolId, SpgId, Utime};
use std::collections::BTreeMap;

message! {
    /// `MOSDBoot`: an OSD asks to be marked up. Its public addresses are those of its session.
    MOsdBoot = 71, 7, 7 {
        /// Version: the OSD's newest map epoch.
        paxos: PaxosHeader,
        sb: OsdSuperblock,
        hb_back_addrs: AddrVec,
        cluster_addrs: AddrVec,
        /// First epoch in which this process was up; 0 at first.
        boot_epoch: Epoch,
        hb_front_addrs: AddrVec,
        metadata: StrMap,
        osd_features: u64,
    }

    /// `MOSDFailure`: a heartbeat peer does not answer, or answers again.
    MOsdFailure = 72, 4, 4 {
        paxos: PaxosHeader,
        fsid: Uuid,
        target_osd: OsdId,
        target_addrs: AddrVec,
        epoch: Epoch,
        /// [`failure_flags`].
        flags: u8,
        /// Seconds for which the peer has not answered.
        failed_for: i32,
    }

    /// `MOSDAlive`: an OSD asks to raise its `up_thru`.
    MOsdAlive = 73, 1, 1 {
        /// Version: the sender's map epoch, which becomes `up_thru`.
        paxos: PaxosHeader,
        want: Epoch,
    }

    /// `MOSDMarkMeDown`: an OSD asks to be marked down before it stops; the monitor acknowledges it with the same
    /// message.
    MOsdMarkMeDown = 74, 4, 3 {
        paxos: PaxosHeader,
        fsid: Uuid,
        target_osd: OsdId,
        target_addrs: AddrVec,
        epoch: Epoch,
        request_ack: bool,
        down_and_dead: bool => 4,
    }

    /// `MOSDFull`: the OSD's fullness state has changed.
    MOsdFull = 75, 1, 1 {
        paxos: PaxosHeader,
        map_epoch: Epoch,
        /// State bits: 16 full, 32 nearfull, 64 backfillfull.
        state: u32,
    }

    /// `MMonGetPurgedSnaps`: an OSD requests the snapshots that were purged in a range of epochs.
    MMonGetPurgedSnaps = 76, 1, 1 {
        paxos: PaxosHeader,
        start: Epoch,
        last: Epoch,
    }

    /// `MMonGetPurgedSnapsReply`: the answer to [`MMonGetPurgedSnaps`]: ranges of purged snapshots by epoch and pool.
    MMonGetPurgedSnapsReply = 77, 1, 1 {
        paxos: PaxosHeader,
        start: Epoch,
        last: Epoch,
        purged_snaps: BTreeMap<Epoch, BTreeMap<PoolId, Intervals>>,
    }

    /// `MOSDPGTemp`: acting sets that shall differ from the up sets; an empty set removes an override.
    MOsdPgTemp = 78, 2, 1 {
        paxos: PaxosHeader,
        map_epoch: Epoch,
        pg_temp: BTreeMap<PgId, Vec<OsdId>>,
        forced: bool => 2,
    }

    /// `MOSDBeacon`: an OSD reports that it is alive.
    MOsdBeacon = 79, 3, 1 {
        /// Version: the sender's map epoch.
        paxos: PaxosHeader,
        /// PGs that hold back `min_last_epoch_clean`.
        pgs: Vec<PgId>,
        min_last_epoch_clean: Epoch,
        last_purged_snaps_scrub: Utime => 2,
        /// Report interval in seconds.
        osd_beacon_report_interval: i32 => 3,
    }

    /// `MOSDPGCreated`: a primary reports that it has created a PG.
    MOsdPgCreated = 116, 1, 1 {
        paxos: PaxosHeader,
        pgid: PgId,
    }

    /// `MOSDPGCreate2`: the monitor asks primaries to create PGs.
    MOsdPgCreate2 = 120, 2, 1 {
        /// Epoch for which the mapping was computed.
        epoch: Epoch,
        pgs: BTreeMap<SpgId, PgCreateStamp>,
        pg_extra: BTreeMap<SpgId, PgCreateExtra> => 2,
    }

    /// `MOSDPGReadyToMerge`: the primary of a merge's source PG reports that both PGs are ready to merge, or
    /// (`ready` false) that they are not.
    MOsdPgReadyToMerge = 122, 1, 1 {
        paxos: PaxosHeader,
        pgid: PgId,
        source_version: Eversion,
        target_version: Eversion,
        last_epoch_started: Epoch,
        last_epoch_clean: Epoch,
        ready: bool,
    }

    /// `MOSDMarkMeDead`: an OSD that was marked down declares its old instance dead.
    MOsdMarkMeDead = 123, 1, 1 {
        paxos: PaxosHeader,
        fsid: Uuid,
        target_osd: OsdId,
        epoch: Epoch,
    }
}

/// Bits of [`MOsdFailure::flags`].
pub mod failure_flags {
    /// The peer answers again; no other bit is set.
    pub const ALIVE: u8 = 0;
    /// The peer has failed.
    pub const FAILED: u8 = 1;
    /// The failure is certain: the peer's port refuses connections.
    pub const IMMEDIATE: u8 = 2;
}
