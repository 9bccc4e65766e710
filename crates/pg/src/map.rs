//! What one PG needs of an OSD map, so that the machine needs no CRUSH and tests need no map.

use crate::object::Intervals;
use crate::shards::{PeerId, ShardSet};
use base::{EntityAddr, Epoch, OsdId, PoolId};
use std::rc::Rc;

/// Who serves a PG.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Mapping {
    /// CRUSH's answer.
    pub up: Vec<OsdId>,
    /// Its primary.
    pub up_primary: OsdId,
    /// Who serves now.
    pub acting: Vec<OsdId>,
    /// Its primary.
    pub acting_primary: OsdId,
}

impl Mapping {
    /// Who serves, with shards if the pool is `coded`.
    #[must_use]
    pub fn acting(&self, coded: bool) -> ShardSet<'_> {
        ShardSet::new(&self.acting, coded)
    }

    /// CRUSH's answer, with shards if the pool is `coded`.
    #[must_use]
    pub fn up(&self, coded: bool) -> ShardSet<'_> {
        ShardSet::new(&self.up, coded)
    }

    /// The primary with its shard.
    #[must_use]
    pub fn primary(&self, coded: bool) -> PeerId {
        self.acting(coded).on(self.acting_primary).unwrap_or(PeerId { osd: self.acting_primary, ..PeerId::NONE })
    }
}

/// Kind of a pool (`pg_pool_t::type`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PoolKind {
    /// Whole copies.
    #[default]
    Replicated,
    /// Erasure-coded shards.
    Erasure,
}

/// How a pool's objects are coded: what its profile and stripe width say.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Code {
    /// The code.
    pub technique: ec::Technique,
    /// Data shards.
    pub k: u8,
    /// Coding shards.
    pub m: u8,
    /// Bytes of a shard in one stripe.
    pub chunk: u32,
}

/// Pool flags (`pg_pool_t::FLAG_*`).
pub mod pool_flags {
    /// No space for its writes.
    pub const FULL: u64 = 1 << 1;
    /// Objects of an erasure-coded pool may be written in part.
    pub const EC_OVERWRITES: u64 = 1 << 2;
    /// No scrubs but those an operator asks for.
    pub const NOSCRUB: u64 = 1 << 8;
    /// No deep scrubs but those an operator asks for.
    pub const NODEEP_SCRUB: u64 = 1 << 9;
    /// A quota is the reason.
    pub const FULL_QUOTA: u64 = 1 << 10;
    /// Clients make snapshots.
    pub const SELFMANAGED_SNAPS: u64 = 1 << 13;
    /// The monitor makes snapshots.
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
    /// Reads wait.
    pub const PAUSERD: u32 = 1 << 2;
    /// Writes wait.
    pub const PAUSEWR: u32 = 1 << 3;
    /// No backfill.
    pub const NOBACKFILL: u32 = 1 << 9;
    /// No recovery.
    pub const NORECOVER: u32 = 1 << 10;
    /// No scrubs but those an operator asks for.
    pub const NOSCRUB: u32 = 1 << 11;
    /// No deep scrubs but those an operator asks for.
    pub const NODEEP_SCRUB: u32 = 1 << 12;
    /// No backfill of what is not degraded.
    pub const NOREBALANCE: u32 = 1 << 14;
    /// Snapshots are not trimmed.
    pub const NOSNAPTRIM: u32 = 1 << 21;
}

/// As of what two PGs were joined (`pg_merge_meta_t`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct MergeMeta {
    /// Which one is no more.
    pub source: u32,
    /// Its newest version.
    pub source_version: base::Eversion,
    /// That of the other one.
    pub target_version: base::Eversion,
}

/// A pool at one epoch, shared by its PGs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolView {
    /// Its number.
    pub id: PoolId,
    /// Replicated or not.
    pub kind: PoolKind,
    /// How objects are coded; `None` in a replicated pool, and if the profile is not understood.
    pub code: Option<Code>,
    /// Copies wanted.
    pub size: u32,
    /// Copies needed to serve.
    pub min_size: u32,
    /// Number of PGs.
    pub pg_num: u32,
    /// Number of PGs that will be, if it is about to shrink.
    pub pg_num_pending: u32,
    /// The last two PGs that were joined.
    pub last_merge: MergeMeta,
    /// [`pool_flags`].
    pub flags: u64,
    /// Newest snapshot.
    pub snap_seq: u64,
    /// Pool snapshots, newest first.
    pub snaps: Vec<u64>,
    /// Snapshots removed but not yet purged by all PGs (`removed_snaps_queue`).
    pub removed_snaps: Intervals,
    /// A cache tier hangs on it, or it is one.
    pub tiered: bool,
    /// Operations of clients with older maps are dropped (`last_force_op_resend`).
    pub last_force_resend: Epoch,
    /// When to scrub, in place of the OSD's settings.
    pub scrub: crate::scrub::due::PoolScrub,
    /// Added to the priority of its recovery, -10 to 10.
    pub recovery_priority: i32,
}

impl PoolView {
    /// True if `flag` is set.
    #[must_use]
    pub fn has(&self, flag: u64) -> bool {
        self.flags & flag != 0
    }

    /// True if objects of the pool may have clones.
    #[must_use]
    pub fn may_have_clones(&self) -> bool {
        self.snap_seq > 0 || self.has(pool_flags::SELFMANAGED_SNAPS | pool_flags::POOL_SNAPS)
    }
}

/// Asks whether an address is fenced off.
pub trait Blocklist {
    /// True if nothing is.
    fn is_empty(&self) -> bool;
    /// True if `addr` is.
    fn contains(&self, addr: &EntityAddr) -> bool;
}

/// Nobody is fenced off.
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

/// Asks about OSDs.
pub trait Osds {
    /// True if it is up.
    fn is_up(&self, osd: OsdId) -> bool;
    /// Since which epoch it is up, or was before it went down.
    fn up_from(&self, osd: OsdId) -> Epoch;
    /// The newest interval it is known to have been up in.
    fn up_thru(&self, osd: OsdId) -> Epoch;
    /// The operator gave its data up as of this epoch; 0: never. An OSD that does not exist any more is lost for ever.
    fn lost_at(&self, osd: OsdId) -> Epoch;
    /// It is down and its process has ended, as far as is known: nobody can use leases that it was given.
    fn is_dead(&self, _osd: OsdId) -> bool {
        false
    }
    /// It has no space left.
    fn is_full(&self, _osd: OsdId) -> bool {
        false
    }
    /// Up to how full an OSD may be filled.
    fn backfillfull_ratio(&self) -> f32 {
        0.9
    }
}

/// All OSDs are up since the first epoch.
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

/// One epoch as one PG sees it.
#[derive(Clone)]
pub struct MapView {
    /// The epoch.
    pub epoch: Epoch,
    /// [`map_flags`].
    pub flags: u32,
    /// The pool; `None` if it does not exist (any more).
    pub pool: Option<Rc<PoolView>>,
    /// Who serves the PG.
    pub mapping: Mapping,
    /// `up_thru` of this OSD.
    pub up_thru: Epoch,
    /// Epoch since which this OSD is up.
    pub up_from: Epoch,
    /// All OSDs.
    pub osds: Rc<dyn Osds>,
    /// Fenced-off addresses.
    pub blocklist: Rc<dyn Blocklist>,
}

impl std::fmt::Debug for MapView {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MapView").field("epoch", &self.epoch).field("mapping", &self.mapping).finish_non_exhaustive()
    }
}
