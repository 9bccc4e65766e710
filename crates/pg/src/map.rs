//! The part of an OSD map that one PG needs. With it the machine needs no CRUSH, and tests need no full map.

use crate::shards::{PeerId, ShardSet};
use base::{EntityAddr, Epoch, OsdId, PoolId};
use cluster::IntervalSet;
use std::cell::RefCell;
use std::rc::Rc;
use wire::msg::PeerFeatures;

/// Up and acting sets of a PG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// The up set: CRUSH's answer without the OSDs that are down.
    pub up: Vec<OsdId>,
    /// Primary of the up set.
    pub up_primary: OsdId,
    /// The acting set.
    pub acting: Vec<OsdId>,
    /// Primary of the acting set.
    pub acting_primary: OsdId,
}

impl Mapping {
    /// The acting set, with shards if the pool is `coded`.
    #[must_use]
    pub fn acting(&self, coded: bool) -> ShardSet<'_> {
        ShardSet::new(&self.acting, coded)
    }

    /// The up set, with shards if the pool is `coded`.
    #[must_use]
    pub fn up(&self, coded: bool) -> ShardSet<'_> {
        ShardSet::new(&self.up, coded)
    }

    /// The acting primary with its shard.
    #[must_use]
    pub fn primary(&self, coded: bool) -> PeerId {
        self.acting(coded).on(self.acting_primary).unwrap_or(PeerId { osd: self.acting_primary, ..PeerId::NONE })
    }
}

/// Kind of a pool (`pg_pool_t::type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// Each copy has whole objects.
    #[default]
    Replicated,
    /// Each copy has one erasure-coded shard of the objects.
    Erasure,
}

/// Erasure code of a pool, from its profile and stripe width.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The coding technique.
    pub technique: ec::Technique,
    /// Data shards.
    pub k: u8,
    /// Coding shards.
    pub m: u8,
    /// Bytes of one shard in one stripe.
    pub chunk: u32,
}

/// Pool flags (`pg_pool_t::FLAG_*`).
pub mod pool_flags {
    /// The pool has no space for writes.
    pub const FULL: u64 = 1 << 1;
    /// Objects of an erasure-coded pool may be written in part.
    pub const EC_OVERWRITES: u64 = 1 << 2;
    /// Scrubs run only when an operator asks for them.
    pub const NOSCRUB: u64 = 1 << 8;
    /// Deep scrubs run only when an operator asks for them.
    pub const NODEEP_SCRUB: u64 = 1 << 9;
    /// The pool is full because of a quota.
    pub const FULL_QUOTA: u64 = 1 << 10;
    /// Clients manage the snapshots.
    pub const SELFMANAGED_SNAPS: u64 = 1 << 13;
    /// The monitor manages the snapshots.
    pub const POOL_SNAPS: u64 = 1 << 14;
    /// PGs are still being created.
    pub const CREATING: u64 = 1 << 15;
    /// Every operation answers `EIO`.
    pub const EIO: u64 = 1 << 16;
}

/// Map flags (`CEPH_OSDMAP_*`).
pub mod map_flags {
    /// The cluster is full.
    pub const FULL: u32 = 1 << 1;
    /// Reads are held.
    pub const PAUSERD: u32 = 1 << 2;
    /// Writes are held.
    pub const PAUSEWR: u32 = 1 << 3;
    /// Backfill is paused.
    pub const NOBACKFILL: u32 = 1 << 9;
    /// Recovery is paused.
    pub const NORECOVER: u32 = 1 << 10;
    /// Scrubs run only when an operator asks for them.
    pub const NOSCRUB: u32 = 1 << 11;
    /// Deep scrubs run only when an operator asks for them.
    pub const NODEEP_SCRUB: u32 = 1 << 12;
    /// Backfill of PGs that are not degraded is paused.
    pub const NOREBALANCE: u32 = 1 << 14;
    /// Snapshot trimming is paused.
    pub const NOSNAPTRIM: u32 = 1 << 21;
}

/// The versions at which two PGs were merged (`pg_merge_meta_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeMeta {
    /// Seed of the source PG, which the merge removed.
    pub source: u32,
    /// Newest version of the source.
    pub source_version: base::Eversion,
    /// Newest version of the target.
    pub target_version: base::Eversion,
}

/// Ranges of snapshots, as (first, number).
type Ranges = Rc<[(u64, u64)]>;

/// Ranges of snapshots that one version of a set has more than an earlier one: found by the first PG of a pool that
/// needs them, for all.
#[derive(Clone, Debug, Default)]
pub struct SnapsAdded(RefCell<Option<(IntervalSet, Ranges)>>);

impl PartialEq for SnapsAdded {
    /// Always true: the sets are compared themselves.
    fn eq(&self, _: &Self) -> bool {
        true
    }
}

impl Eq for SnapsAdded {}

/// A pool at one epoch, shared by its PGs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Pool id.
    pub id: PoolId,
    /// Replicated or erasure-coded.
    pub kind: PoolKind,
    /// Erasure code of the objects; `None` in a replicated pool, and if the profile is not supported.
    pub code: Option<Code>,
    /// Copies per PG.
    pub size: u32,
    /// Fewest copies with which a PG serves.
    pub min_size: u32,
    /// Number of PGs.
    pub pg_num: u32,
    /// Number of PGs after an announced merge; 0 or `pg_num` if none is announced.
    pub pg_num_pending: u32,
    /// The most recent merge.
    pub last_merge: MergeMeta,
    /// [`pool_flags`].
    pub flags: u64,
    /// Newest snapshot.
    pub snap_seq: u64,
    /// Pool snapshots, newest first.
    pub snaps: Vec<u64>,
    /// Snapshots removed but not yet purged by all PGs (`removed_snaps_queue`). Maps and PGs share it.
    pub removed_snaps: IntervalSet,
    /// Members of `removed_snaps` that the set before has not, if a PG has asked.
    pub removed_since: SnapsAdded,
    /// The pool has a cache tier or is one.
    pub tiered: bool,
    /// Operations that clients sent under older maps are dropped (`last_force_op_resend`).
    pub last_force_resend: Epoch,
    /// Scrub schedule of the pool, which overrides the OSD's settings.
    pub scrub: crate::scrub::due::PoolScrub,
    /// Added to the priority of the pool's recovery, -10 to 10.
    pub recovery_priority: i32,
}

impl PoolView {
    /// True if `flag` is set.
    #[must_use]
    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// The ranges of `removed_snaps` that `before` has not.
    pub(crate) fn snaps_removed_since(&self, before: &IntervalSet) -> Rc<[(u64, u64)]> {
        let mut known = self.removed_since.0.borrow_mut();
        match &*known {
            Some((set, added)) if set.is_version_of(before) => Rc::clone(added),
            _ => {
                let added: Rc<[(u64, u64)]> = self.removed_snaps.added_since(before).into();
                *known = Some((before.clone(), Rc::clone(&added)));
                added
            }
        }
    }
}

/// Lookup of blocklisted addresses.
pub trait Blocklist {
    /// True if no address is blocklisted.
    fn is_empty(&self) -> bool;
    /// True if `addr` is blocklisted.
    fn contains(&self, addr: &EntityAddr) -> bool;
}

/// An empty blocklist.
#[derive(Debug, Default)]
pub struct NoBlocklist;

impl Blocklist for NoBlocklist {
    fn is_empty(&self) -> bool {
        true
    }
    fn contains(&self, _: &EntityAddr) -> bool {
        false
    }
}

/// Lookup of the state of OSDs.
pub trait Osds {
    /// True if the OSD is up.
    fn is_up(&self, osd: OsdId) -> bool;
    /// All OSDs that exist.
    fn all(&self) -> Vec<OsdId> {
        Vec::new()
    }
    /// Epoch at which the OSD was last marked up.
    fn up_from(&self, osd: OsdId) -> Epoch;
    /// Newest epoch at which the monitor knows the OSD to have been alive.
    fn up_thru(&self, osd: OsdId) -> Epoch;
    /// Epoch as of which the operator declared the OSD's data lost; 0: never. An OSD that does not exist counts as
    /// lost for ever.
    fn lost_at(&self, osd: OsdId) -> Epoch;
    /// True if the OSD is down and its process is known to have ended, so that no lease it holds is in use.
    fn is_dead(&self, _osd: OsdId) -> bool {
        false
    }
    /// True if the OSD has no space left.
    fn is_full(&self, _osd: OsdId) -> bool {
        false
    }
    /// Messages between PGs that the OSD understands.
    fn peer_features(&self, _osd: OsdId) -> PeerFeatures {
        PeerFeatures::OURS
    }
    /// The fill ratio from which an OSD refuses backfill.
    fn backfillfull_ratio(&self) -> f32 {
        0.9
    }
}

/// All OSDs are up since the first epoch; for tests.
#[derive(Debug, Default)]
pub struct AllUp;

impl Osds for AllUp {
    fn is_up(&self, _: OsdId) -> bool {
        true
    }
    fn up_from(&self, _: OsdId) -> Epoch {
        Epoch(1)
    }
    fn up_thru(&self, _: OsdId) -> Epoch {
        Epoch(u32::MAX)
    }
    fn lost_at(&self, _: OsdId) -> Epoch {
        Epoch(0)
    }
}

/// One epoch of the map as one PG sees it.
#[derive(Clone)]
pub struct MapView {
    /// The epoch.
    pub epoch: Epoch,
    /// [`map_flags`].
    pub flags: u32,
    /// The pool; `None` if it does not exist.
    pub pool: Option<Rc<PoolView>>,
    /// Up and acting sets of the PG.
    pub mapping: Mapping,
    /// `up_thru` of this OSD.
    pub up_thru: Epoch,
    /// Epoch since which this OSD is up.
    pub up_from: Epoch,
    /// This OSD has seen every map from this epoch on. Older ones that a PG has not processed are unknown.
    pub since: Epoch,
    /// State of all OSDs.
    pub osds: Rc<dyn Osds>,
    /// Blocklisted addresses.
    pub blocklist: Rc<dyn Blocklist>,
}

impl std::fmt::Debug for MapView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapView").field("epoch", &self.epoch).field("mapping", &self.mapping).finish_non_exhaustive()
    }
}
