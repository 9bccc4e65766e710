//! Changes from one epoch of the OSD map to the next.

use super::{AddrKey, OsdXinfo, StretchMode};
use crate::interval_set::IntervalSet;
use crate::pool::PgPool;
use base::{AddrVec, Epoch, OsdId, PgId, PoolId, Utime, id::Uuid};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};

/// `OSDMap::Incremental`. By default, with `fsid`, `epoch` and `modified` set, it changes nothing.
#[derive(Clone, Debug, PartialEq)]
pub struct Incremental {
    /// The cluster.
    pub fsid: Uuid,
    /// Epoch of the resulting map.
    pub epoch: Epoch,
    /// Time of that epoch.
    pub modified: Utime,
    /// New `pool_max`, -1 for unchanged.
    pub new_pool_max: i64,
    /// New flags, -1 for unchanged.
    pub new_flags: i32,
    /// Encoded full map that replaces the old one; empty for none.
    pub fullmap: Bytes,
    /// Encoded new CRUSH map; empty for none.
    pub crush: Bytes,
    /// New `max_osd`, -1 for unchanged.
    pub new_max_osd: i32,
    /// Created and changed pools.
    pub new_pools: BTreeMap<PoolId, PgPool>,
    /// New and changed pool names.
    pub new_pool_names: BTreeMap<PoolId, String>,
    /// Removed pools.
    pub old_pools: BTreeSet<PoolId>,
    /// OSDs marked up, with their client addresses. Each needs entries in the heartbeat and cluster maps too.
    pub new_up_client: BTreeMap<OsdId, AddrVec>,
    /// State bits to flip; 0 means [`super::osd_state::UP`].
    pub new_state: BTreeMap<OsdId, u32>,
    /// New weights.
    pub new_weight: BTreeMap<OsdId, u32>,
    /// New acting sets; an empty set removes the override.
    pub new_pg_temp: BTreeMap<PgId, Vec<OsdId>>,
    /// New acting primaries; -1 removes the override.
    pub new_primary_temp: BTreeMap<PgId, OsdId>,
    /// New primary affinities.
    pub new_primary_affinity: BTreeMap<OsdId, u32>,
    /// Added erasure-code profiles.
    pub new_erasure_code_profiles: BTreeMap<String, BTreeMap<String, String>>,
    /// Removed erasure-code profiles.
    pub old_erasure_code_profiles: Vec<String>,
    /// Added replacements of whole raw sets.
    pub new_pg_upmap: BTreeMap<PgId, Vec<OsdId>>,
    /// Removed replacements of raw sets.
    pub old_pg_upmap: BTreeSet<PgId>,
    /// Added replacements of single OSDs.
    pub new_pg_upmap_items: BTreeMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Removed replacements of single OSDs.
    pub old_pg_upmap_items: BTreeSet<PgId>,
    /// Added choices of primaries (Reef and later).
    pub new_pg_upmap_primary: BTreeMap<PgId, OsdId>,
    /// Removed choices of primaries.
    pub old_pg_upmap_primary: BTreeSet<PgId>,
    /// Snapshots to remove.
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Snapshots whose objects are purged.
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Time of an up or down change, zero for none.
    pub new_last_up_change: Utime,
    /// Time of an in or out change, zero for none.
    pub new_last_in_change: Utime,

    /// Back-side heartbeat addresses of OSDs marked up.
    pub new_hb_back_up: BTreeMap<OsdId, AddrVec>,
    /// Epochs in which OSDs are known to have been alive.
    pub new_up_thru: BTreeMap<OsdId, Epoch>,
    /// Last clean intervals of OSDs.
    pub new_last_clean_interval: BTreeMap<OsdId, (Epoch, Epoch)>,
    /// OSDs declared lost.
    pub new_lost: BTreeMap<OsdId, Epoch>,
    /// Addresses added to the blocklist, with their expiry.
    pub new_blocklist: BTreeMap<AddrKey, Utime>,
    /// Addresses removed from the blocklist.
    pub old_blocklist: Vec<AddrKey>,
    /// Address ranges added to the blocklist, each of kind [`base::AddrKind::CIDR`], with their expiry.
    pub new_range_blocklist: BTreeMap<AddrKey, Utime>,
    /// Address ranges removed from the blocklist.
    pub old_range_blocklist: Vec<AddrKey>,
    /// Cluster addresses of OSDs marked up.
    pub new_up_cluster: BTreeMap<OsdId, AddrVec>,
    /// Name of a new cluster snapshot, a feature of old releases; empty for none.
    pub cluster_snapshot: String,
    /// Store identities.
    pub new_uuid: BTreeMap<OsdId, Uuid>,
    /// Further history of OSDs.
    pub new_xinfo: BTreeMap<OsdId, OsdXinfo>,
    /// Front-side heartbeat addresses of OSDs marked up.
    pub new_hb_front_up: BTreeMap<OsdId, AddrVec>,
    /// Features with which the author encoded its full map. Set by decoding; encoding writes the features in
    /// use.
    pub encode_features: u64,
    /// New `nearfull_ratio`, -1 for unchanged.
    pub new_nearfull_ratio: f32,
    /// New `full_ratio`, -1 for unchanged.
    pub new_full_ratio: f32,
    /// New `backfillfull_ratio`, -1 for unchanged.
    pub new_backfillfull_ratio: f32,
    /// New `require_min_compat_client`, 0xff for unchanged.
    pub new_require_min_compat_client: u8,
    /// New `require_osd_release`, 0xff for unchanged.
    pub new_require_osd_release: u8,
    /// State bits of CRUSH nodes; 0 removes the entry.
    pub new_crush_node_flags: BTreeMap<i32, u32>,
    /// State bits of device classes; 0 removes the entry.
    pub new_device_class_flags: BTreeMap<i32, u32>,
    /// New stretch mode.
    pub new_stretch: Option<StretchMode>,
    /// Checksum of the resulting map in the author's encoding. Set by decoding; see
    /// [`Incremental::encode_blob`].
    pub full_crc: u32,
    /// Checksum of the incremental itself. Set by decoding.
    pub inc_crc: u32,
}

/// Release number that leaves the required release unchanged.
pub(super) const RELEASE_UNCHANGED: u8 = 0xff;

impl Incremental {
    /// An incremental for `epoch` without changes.
    #[must_use]
    pub fn new(fsid: Uuid, epoch: Epoch, modified: Utime) -> Self {
        Self { fsid, epoch, modified, ..Self::default() }
    }

    /// True if the change chooses primaries by upmap, or ends such choices.
    #[must_use]
    pub fn changes_primaries(&self) -> bool {
        !self.new_pg_upmap_primary.is_empty() || !self.old_pg_upmap_primary.is_empty()
    }

    /// The release that the change requires of OSDs; `None` if it leaves that as it is.
    #[must_use]
    pub fn changed_osd_release(&self) -> Option<u8> {
        changed_release(self.new_require_osd_release)
    }
}

/// The release in a field of an incremental; `None` if the field changes nothing.
pub(super) fn changed_release(r: u8) -> Option<u8> {
    (r != RELEASE_UNCHANGED && r != 0).then_some(r)
}

impl Default for Incremental {
    fn default() -> Self {
        Self {
            fsid: Uuid::ZERO,
            epoch: Epoch(0),
            modified: Utime::ZERO,
            new_pool_max: -1,
            new_flags: -1,
            fullmap: Bytes::new(),
            crush: Bytes::new(),
            new_max_osd: -1,
            new_pools: BTreeMap::new(),
            new_pool_names: BTreeMap::new(),
            old_pools: BTreeSet::new(),
            new_up_client: BTreeMap::new(),
            new_state: BTreeMap::new(),
            new_weight: BTreeMap::new(),
            new_pg_temp: BTreeMap::new(),
            new_primary_temp: BTreeMap::new(),
            new_primary_affinity: BTreeMap::new(),
            new_erasure_code_profiles: BTreeMap::new(),
            old_erasure_code_profiles: Vec::new(),
            new_pg_upmap: BTreeMap::new(),
            old_pg_upmap: BTreeSet::new(),
            new_pg_upmap_items: BTreeMap::new(),
            old_pg_upmap_items: BTreeSet::new(),
            new_pg_upmap_primary: BTreeMap::new(),
            old_pg_upmap_primary: BTreeSet::new(),
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            new_last_up_change: Utime::ZERO,
            new_last_in_change: Utime::ZERO,
            new_hb_back_up: BTreeMap::new(),
            new_up_thru: BTreeMap::new(),
            new_last_clean_interval: BTreeMap::new(),
            new_lost: BTreeMap::new(),
            new_blocklist: BTreeMap::new(),
            old_blocklist: Vec::new(),
            new_range_blocklist: BTreeMap::new(),
            old_range_blocklist: Vec::new(),
            new_up_cluster: BTreeMap::new(),
            cluster_snapshot: String::new(),
            new_uuid: BTreeMap::new(),
            new_xinfo: BTreeMap::new(),
            new_hb_front_up: BTreeMap::new(),
            encode_features: 0,
            new_nearfull_ratio: -1.0,
            new_full_ratio: -1.0,
            new_backfillfull_ratio: -1.0,
            new_require_min_compat_client: RELEASE_UNCHANGED,
            new_require_osd_release: RELEASE_UNCHANGED,
            new_crush_node_flags: BTreeMap::new(),
            new_device_class_flags: BTreeMap::new(),
            new_stretch: None,
            full_crc: 0,
            inc_crc: 0,
        }
    }
}
