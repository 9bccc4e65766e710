//! The OSD map: pools, OSDs, CRUSH and everything that decides where a PG lives.
//!
//! A map is a value. [`OsdMap::apply`] makes the next one from an [`Incremental`], and the two share unchanged
//! parts. The fields are the map's contents under Ceph's names. `encode.rs` holds the wire form, `place.rs` the
//! mapping from an object to its OSDs.
//!
//! | module | contents |
//! | --- | --- |
//! | `apply` | application of an incremental to a map |
//! | `clean` | removal of overrides without effect, which a monitor adds to an incremental |
//! | `encode` | wire form of OSD maps and incrementals, with their checksums |
//! | `flags` | bits of the map's flags and of OSD states, with the names Ceph shows |
//! | `incremental` | changes from one epoch of the OSD map to the next |
//! | `interval` | detection of new intervals |
//! | `place` | placement: from an object to its OSDs |

mod apply;
mod clean;
mod encode;
mod flags;
mod incremental;
pub mod interval;
mod place;

pub use clean::{RuleOsds, VoidPrimary, VoidUpmap};
pub use encode::{CANONICAL, CANONICAL_REEF};
pub use flags::{map_flag, osd_state};
pub use incremental::Incremental;
pub use place::{OsdSet, PlaceScratch, UpActing};

use crate::cow::{CowMap, CowVec};
use crate::crush::CrushMap;
use crate::interval_set::IntervalSet;
use crate::pool::PgPool;
use base::{AddrKind, AddrVec, EntityAddr, Epoch, OsdId, PgId, PoolId, Utime, id::Uuid};
use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Largest `max_osd` a map may have.
pub const MAX_OSD_LIMIT: i32 = 1 << 20;
/// Weight of an OSD that is fully in.
pub const WEIGHT_IN: u32 = 0x1_0000;
/// Primary affinity of an OSD without a preference.
pub const AFFINITY_DEFAULT: u32 = 0x1_0000;
/// Largest primary affinity.
pub const AFFINITY_MAX: u32 = 0x1_0000;

/// `osd_info_t`: history of an OSD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OsdInfo {
    /// First epoch of the last interval that ended cleanly.
    pub last_clean_begin: Epoch,
    /// Last epoch of that interval.
    pub last_clean_end: Epoch,
    /// Epoch in which the OSD was last marked up.
    pub up_from: Epoch,
    /// Latest epoch in which the OSD is known to have been alive.
    pub up_thru: Epoch,
    /// Epoch in which the OSD was last marked down.
    pub down_at: Epoch,
    /// Last epoch in which the OSD's data was declared lost.
    pub lost_at: Epoch,
}

/// `osd_xinfo_t`: further history of an OSD.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct OsdXinfo {
    /// Time of the last mark-down.
    pub down_stamp: Utime,
    /// Probability that the OSD is merely slow when reported down, times 2^32 - 1.
    pub laggy_probability: u32,
    /// Usual duration of its slow phases, in seconds.
    pub laggy_interval: u32,
    /// Feature mask with which the OSD booted.
    pub features: u64,
    /// Weight before the OSD was marked out automatically.
    pub old_weight: u32,
    /// Last scrub of purged snapshots.
    pub last_purged_snaps_scrub: Utime,
    /// Last epoch in which the OSD was declared dead.
    pub dead_epoch: Epoch,
}

/// Stretch mode of the whole map (OSD section version 10).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StretchMode {
    /// True if stretch mode is on.
    pub enabled: bool,
    /// Number of buckets that stretch mode expects.
    pub bucket_count: u32,
    /// Nonzero while a bucket is missing.
    pub degraded: u32,
    /// Nonzero while a bucket is recovering.
    pub recovering: u32,
    /// CRUSH type of the buckets.
    pub bucket: i32,
}

/// An address, ordered as in Ceph's blocklist: byte by byte as it is in memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct AddrKey(pub EntityAddr);

impl AddrKey {
    fn bytes(&self) -> [u8; 36] {
        let mut b = [0u8; 36];
        let mut put = |at: usize, v: &[u8]| {
            for (d, s) in b.iter_mut().skip(at).zip(v) {
                *d = *s;
            }
        };
        put(0, &self.0.kind.0.to_le_bytes());
        put(4, &self.0.nonce.to_le_bytes());
        match self.0.sock {
            None => {}
            Some(std::net::SocketAddr::V4(a)) => {
                put(8, &2u16.to_le_bytes());
                put(10, &a.port().to_be_bytes());
                put(12, &a.ip().octets());
            }
            Some(std::net::SocketAddr::V6(a)) => {
                put(8, &10u16.to_le_bytes());
                put(10, &a.port().to_be_bytes());
                put(12, &a.flowinfo().to_be_bytes());
                put(16, &a.ip().octets());
                put(32, &a.scope_id().to_le_bytes());
            }
        }
        b
    }
}

impl Ord for AddrKey {
    fn cmp(&self, o: &Self) -> Ordering {
        self.bytes().cmp(&o.bytes())
    }
}

impl PartialOrd for AddrKey {
    fn partial_cmp(&self, o: &Self) -> Option<Ordering> {
        Some(self.cmp(o))
    }
}

/// The OSD map of one epoch.
#[derive(Clone, Debug, PartialEq)]
pub struct OsdMap {
    /// The cluster.
    pub fsid: Uuid,
    /// Epoch of the map.
    pub epoch: Epoch,
    /// Time the cluster was made.
    pub created: Utime,
    /// Time of this epoch.
    pub modified: Utime,
    /// Pools.
    pub pools: Arc<BTreeMap<PoolId, Arc<PgPool>>>,
    /// Names of pools.
    pub pool_names: Arc<BTreeMap<PoolId, String>>,
    /// Highest pool number ever used.
    pub pool_max: i32,
    /// See [`map_flag`].
    pub flags: u32,
    /// Number of OSD slots.
    pub max_osd: i32,
    /// State bits of each OSD slot; see [`osd_state`].
    pub osd_state: Arc<Vec<u32>>,
    /// Weight of each OSD slot, 0 (out) to [`WEIGHT_IN`].
    pub osd_weight: Arc<Vec<u32>>,
    /// Addresses for clients, by OSD slot.
    pub client_addrs: CowVec<AddrVec>,
    /// Acting sets that override the up set.
    pub pg_temp: CowMap<PgId, Vec<OsdId>>,
    /// Acting primaries that override the default one.
    pub primary_temp: CowMap<PgId, OsdId>,
    /// Primary affinity of each OSD slot. `None`: all have [`AFFINITY_DEFAULT`].
    pub primary_affinity: Option<Arc<Vec<u32>>>,
    /// CRUSH.
    pub crush: Arc<CrushMap>,
    /// Erasure-code profiles by name.
    pub erasure_code_profiles: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    /// Replacements of whole raw sets.
    pub pg_upmap: CowMap<PgId, Vec<OsdId>>,
    /// Replacements of single OSDs `(from, to)`.
    pub pg_upmap_items: CowMap<PgId, Vec<(OsdId, OsdId)>>,
    /// Chosen primaries (Reef and later).
    pub pg_upmap_primaries: CowMap<PgId, OsdId>,
    /// Number of CRUSH changes.
    pub crush_version: i32,
    /// Snapshots removed in this epoch.
    pub new_removed_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Snapshots purged in this epoch.
    pub new_purged_snaps: BTreeMap<PoolId, IntervalSet>,
    /// Last time an OSD went up or down.
    pub last_up_change: Utime,
    /// Last time an OSD went in or out.
    pub last_in_change: Utime,

    /// Back-side heartbeat addresses, by OSD slot.
    pub hb_back_addrs: CowVec<AddrVec>,
    /// History of each OSD slot.
    pub osd_info: CowVec<OsdInfo>,
    /// Blocked client addresses, with their expiry.
    pub blocklist: CowMap<AddrKey, Utime>,
    /// Blocked ranges of addresses, each of kind [`AddrKind::CIDR`], with their expiry.
    pub range_blocklist: CowMap<AddrKey, Utime>,
    /// Addresses for other OSDs, by OSD slot.
    pub cluster_addrs: CowVec<AddrVec>,
    /// Epoch of the last cluster snapshot, a feature of old releases.
    pub cluster_snapshot_epoch: Epoch,
    /// Name of the last cluster snapshot, a feature of old releases.
    pub cluster_snapshot: String,
    /// Identity of each OSD slot's store.
    pub osd_uuid: CowVec<Uuid>,
    /// Further history of each OSD slot.
    pub osd_xinfo: CowVec<OsdXinfo>,
    /// Front-side heartbeat addresses, by OSD slot.
    pub hb_front_addrs: CowVec<AddrVec>,
    /// Usage ratio that raises a warning.
    pub nearfull_ratio: f32,
    /// Usage ratio that stops writes.
    pub full_ratio: f32,
    /// Usage ratio that stops backfill.
    pub backfillfull_ratio: f32,
    /// Oldest client release that can be served.
    pub require_min_compat_client: u8,
    /// Oldest OSD release that may boot.
    pub require_osd_release: u8,
    /// Snapshots whose removal is under way.
    pub removed_snaps_queue: Arc<BTreeMap<PoolId, IntervalSet>>,
    /// State bits (noout ...) set on CRUSH nodes.
    pub crush_node_flags: BTreeMap<i32, u32>,
    /// State bits set on device classes.
    pub device_class_flags: BTreeMap<i32, u32>,
    /// Stretch mode, present if it was ever switched on.
    pub stretch: StretchMode,
}

impl Default for OsdMap {
    fn default() -> Self {
        Self {
            fsid: Uuid::ZERO,
            epoch: Epoch(0),
            created: Utime::ZERO,
            modified: Utime::ZERO,
            pools: Arc::default(),
            pool_names: Arc::default(),
            pool_max: 0,
            flags: 0,
            max_osd: 0,
            osd_state: Arc::default(),
            osd_weight: Arc::default(),
            client_addrs: CowVec::default(),
            pg_temp: CowMap::default(),
            primary_temp: CowMap::default(),
            primary_affinity: None,
            crush: Arc::default(),
            erasure_code_profiles: Arc::default(),
            pg_upmap: CowMap::default(),
            pg_upmap_items: CowMap::default(),
            pg_upmap_primaries: CowMap::default(),
            crush_version: 1,
            new_removed_snaps: BTreeMap::new(),
            new_purged_snaps: BTreeMap::new(),
            last_up_change: Utime::ZERO,
            last_in_change: Utime::ZERO,
            hb_back_addrs: CowVec::default(),
            osd_info: CowVec::default(),
            blocklist: CowMap::default(),
            range_blocklist: CowMap::default(),
            cluster_addrs: CowVec::default(),
            cluster_snapshot_epoch: Epoch(0),
            cluster_snapshot: String::new(),
            osd_uuid: CowVec::default(),
            osd_xinfo: CowVec::default(),
            hb_front_addrs: CowVec::default(),
            nearfull_ratio: 0.0,
            full_ratio: 0.0,
            backfillfull_ratio: 0.0,
            require_min_compat_client: 0,
            require_osd_release: 0,
            removed_snaps_queue: Arc::default(),
            crush_node_flags: BTreeMap::new(),
            device_class_flags: BTreeMap::new(),
            stretch: StretchMode::default(),
        }
    }
}

fn slot(osd: OsdId) -> usize {
    // Negative numbers become slots outside every map.
    usize::try_from(osd.0).unwrap_or(usize::MAX)
}

impl OsdMap {
    /// The features in whose form this map is canonical, if `inc` led to it.
    #[must_use]
    pub fn canonical_features(&self, inc: &Incremental) -> wire::Features {
        let reef = !self.pg_upmap_primaries.is_empty() || inc.changes_primaries();
        if reef { CANONICAL_REEF } else { CANONICAL }
    }

    /// State bits of an OSD; 0 outside the map.
    #[must_use]
    pub fn state(&self, osd: OsdId) -> u32 {
        self.osd_state.get(slot(osd)).copied().unwrap_or(0)
    }

    /// True if the OSD exists.
    #[must_use]
    pub fn exists(&self, osd: OsdId) -> bool {
        self.state(osd) & osd_state::EXISTS != 0
    }

    /// True if the OSD exists and is up.
    #[must_use]
    pub fn is_up(&self, osd: OsdId) -> bool {
        const BOTH: u32 = osd_state::EXISTS | osd_state::UP;
        self.state(osd) & BOTH == BOTH
    }

    /// True unless the OSD is up.
    #[must_use]
    pub fn is_down(&self, osd: OsdId) -> bool {
        !self.is_up(osd)
    }

    /// Weight of an OSD: 0 (out) to [`WEIGHT_IN`]; 0 outside the map.
    #[must_use]
    pub fn weight(&self, osd: OsdId) -> u32 {
        self.osd_weight.get(slot(osd)).copied().unwrap_or(0)
    }

    /// True if the OSD does not exist or has no weight.
    #[must_use]
    pub fn is_out(&self, osd: OsdId) -> bool {
        !self.exists(osd) || self.weight(osd) == 0
    }

    /// True unless the OSD is out.
    #[must_use]
    pub fn is_in(&self, osd: OsdId) -> bool {
        !self.is_out(osd)
    }

    /// Primary affinity of an OSD.
    #[must_use]
    pub fn affinity(&self, osd: OsdId) -> u32 {
        self.primary_affinity.as_ref().and_then(|v| v.get(slot(osd)).copied()).unwrap_or(AFFINITY_DEFAULT)
    }

    /// History of an OSD, all zero outside the map.
    #[must_use]
    pub fn info(&self, osd: OsdId) -> OsdInfo {
        self.osd_info.get(slot(osd)).copied().unwrap_or_default()
    }

    /// More history of an OSD.
    #[must_use]
    pub fn xinfo(&self, osd: OsdId) -> OsdXinfo {
        self.osd_xinfo.get(slot(osd)).copied().unwrap_or_default()
    }

    /// Identity of an OSD's store.
    #[must_use]
    pub fn uuid(&self, osd: OsdId) -> Uuid {
        self.osd_uuid.get(slot(osd)).copied().unwrap_or(Uuid::ZERO)
    }

    /// Addresses on which an OSD serves clients.
    #[must_use]
    pub fn client_addr(&self, osd: OsdId) -> Option<&AddrVec> {
        self.client_addrs.get(slot(osd))
    }

    /// Addresses on which an OSD serves other OSDs.
    #[must_use]
    pub fn cluster_addr(&self, osd: OsdId) -> Option<&AddrVec> {
        self.cluster_addrs.get(slot(osd))
    }

    /// Back-side heartbeat addresses of an OSD.
    #[must_use]
    pub fn hb_back_addr(&self, osd: OsdId) -> Option<&AddrVec> {
        self.hb_back_addrs.get(slot(osd))
    }

    /// Front-side heartbeat addresses of an OSD.
    #[must_use]
    pub fn hb_front_addr(&self, osd: OsdId) -> Option<&AddrVec> {
        self.hb_front_addrs.get(slot(osd))
    }

    /// OSDs that exist, ascending.
    pub fn osds(&self) -> impl Iterator<Item = OsdId> + '_ {
        self.osd_state.iter().enumerate().filter(|(_, s)| *s & osd_state::EXISTS != 0).map(|(i, _)| OsdId(i as i32))
    }

    /// `(existing, up, in)` OSDs.
    #[must_use]
    pub fn osd_counts(&self) -> (usize, usize, usize) {
        self.osds().fold((0, 0, 0), |(n, up, inn), o| {
            (n + 1, up + usize::from(self.is_up(o)), inn + usize::from(self.is_in(o)))
        })
    }

    /// True if every bit of `f` (see [`map_flag`]) is set.
    #[must_use]
    pub fn has_flag(&self, f: u32) -> bool {
        self.flags & f == f
    }

    /// A pool.
    #[must_use]
    pub fn pool(&self, id: PoolId) -> Option<&Arc<PgPool>> {
        self.pools.get(&id)
    }

    /// A pool's name.
    #[must_use]
    pub fn pool_name(&self, id: PoolId) -> Option<&str> {
        self.pool_names.get(&id).map(String::as_str)
    }

    /// Id of the pool with this name.
    #[must_use]
    pub fn pool_by_name(&self, name: &str) -> Option<PoolId> {
        self.pool_names.iter().find(|(_, n)| *n == name).map(|(id, _)| *id)
    }

    /// True if the blocklist has neither addresses nor ranges.
    #[must_use]
    pub fn is_blocklist_empty(&self) -> bool {
        self.blocklist.is_empty() && self.range_blocklist.is_empty()
    }

    /// True if the blocklist has the address, its whole IP, or a range that contains its IP.
    #[must_use]
    pub fn is_blocklisted(&self, addr: &EntityAddr) -> bool {
        if self.range_blocklist.keys().any(|range| range.0.covers(addr)) {
            return true;
        }
        if self.blocklist.is_empty() {
            return false;
        }
        // Entries are of kind "any" in Nautilus and later, of kind legacy before.
        let kind = if self.require_osd_release < crate::release::NAUTILUS { AddrKind::LEGACY } else { AddrKind::ANY };
        let mut key = EntityAddr { kind, ..*addr };
        if self.blocklist.contains_key(&AddrKey(key)) {
            return true;
        }
        key.nonce = 0;
        if let Some(s) = &mut key.sock {
            s.set_port(0);
        }
        self.blocklist.contains_key(&AddrKey(key))
    }

    /// True if any of the addresses is blocklisted.
    #[must_use]
    pub fn is_any_blocklisted(&self, addrs: &AddrVec) -> bool {
        addrs.0.iter().any(|a| self.is_blocklisted(a))
    }

    /// State bits (noup, nodown, noin, noout) of an OSD, joined with those of its device class and of the CRUSH
    /// nodes above it.
    #[must_use]
    pub fn effective_state_bits(&self, osd: OsdId) -> u32 {
        let mut bits = self.state(osd);
        if !self.crush_node_flags.is_empty() {
            let mut at = Some(osd.0);
            let mut depth = 0;
            while let Some(node) = at
                && depth < crate::crush::MAX_DEPTH
            {
                bits |= self.crush_node_flags.get(&node).copied().unwrap_or(0);
                at = self.crush.parent_of(node);
                depth += 1;
            }
        }
        if let Some(c) = self.crush.class_map.get(&osd.0) {
            bits |= self.device_class_flags.get(c).copied().unwrap_or(0);
        }
        bits
    }
}
