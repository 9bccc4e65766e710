//! Pools: `pg_pool_t` and its parts.
//!
//! `codec` has the stored and sent form.

mod codec;

use crate::interval_set::IntervalSet;
use base::{Epoch, Eversion, PgId, PoolId, SnapId, Utime};
use bytes::Bytes;
use std::collections::{BTreeMap, BTreeSet};
use wire::codec::{Decode, Encode, Reader, Result, Writer};

/// Bits of [`PgPool::flags`].
pub mod flag {
    /// PGs of different pools hash to different places.
    pub const HASHPSPOOL: u64 = 1;
    /// No writes: the pool is full.
    pub const FULL: u64 = 1 << 1;
    /// The erasure-coded pool accepts overwrites.
    pub const EC_OVERWRITES: u64 = 1 << 2;
    /// The pool may hold clones without their data (cache tier).
    pub const INCOMPLETE_CLONES: u64 = 1 << 3;
    /// The pool must not be deleted.
    pub const NODELETE: u64 = 1 << 4;
    /// `pg_num` and `pgp_num` must not change.
    pub const NOPGCHANGE: u64 = 1 << 5;
    /// `size` and `min_size` must not change.
    pub const NOSIZECHANGE: u64 = 1 << 6;
    /// Writes carry fadvise DONTNEED.
    pub const WRITE_FADVISE_DONTNEED: u64 = 1 << 7;
    /// No scrubs.
    pub const NOSCRUB: u64 = 1 << 8;
    /// No deep scrubs.
    pub const NODEEP_SCRUB: u64 = 1 << 9;
    /// Full because a quota is reached.
    pub const FULL_QUOTA: u64 = 1 << 10;
    /// Some OSD of the pool is nearfull.
    pub const NEARFULL: u64 = 1 << 11;
    /// Some OSD of the pool is too full for backfill.
    pub const BACKFILLFULL: u64 = 1 << 12;
    /// Clients manage the snapshots.
    pub const SELFMANAGED_SNAPS: u64 = 1 << 13;
    /// The pool has or had snapshots of its own.
    pub const POOL_SNAPS: u64 = 1 << 14;
    /// Its PGs are still being created.
    pub const CREATING: u64 = 1 << 15;
    /// Clients get `EIO`.
    pub const EIO: u64 = 1 << 16;
    /// The pool is expected to be large.
    pub const BULK: u64 = 1 << 17;
    /// The erasure-coded pool accesses only the shards that an operation needs (Tentacle).
    pub const EC_OPTIMIZATIONS: u64 = 1 << 19;

    /// All flags with the names `osd dump` shows, in bit order.
    pub const NAMES: [(u64, &str); 19] = [
        (HASHPSPOOL, "hashpspool"),
        (FULL, "full"),
        (EC_OVERWRITES, "ec_overwrites"),
        (INCOMPLETE_CLONES, "incomplete_clones"),
        (NODELETE, "nodelete"),
        (NOPGCHANGE, "nopgchange"),
        (NOSIZECHANGE, "nosizechange"),
        (WRITE_FADVISE_DONTNEED, "write_fadvise_dontneed"),
        (NOSCRUB, "noscrub"),
        (NODEEP_SCRUB, "nodeep-scrub"),
        (FULL_QUOTA, "full_quota"),
        (NEARFULL, "nearfull"),
        (BACKFILLFULL, "backfillfull"),
        (SELFMANAGED_SNAPS, "selfmanaged_snaps"),
        (POOL_SNAPS, "pool_snaps"),
        (CREATING, "creating"),
        (EIO, "eio"),
        (BULK, "bulk"),
        (EC_OPTIMIZATIONS, "ec_optimizations"),
    ];
}

/// Kinds of pools.
pub mod kind {
    /// Full copies.
    pub const REPLICATED: u8 = 1;
    /// Erasure code.
    pub const ERASURE: u8 = 3;
}

/// Name hashes of pools.
pub mod name_hash {
    /// Linux dcache hash.
    pub const LINUX: u8 = 1;
    /// Jenkins' hash, the default.
    pub const RJENKINS: u8 = 2;
}

/// Autoscaler modes.
pub mod autoscale {
    /// Off.
    pub const OFF: u8 = 0;
    /// Only warn.
    pub const WARN: u8 = 1;
    /// Change `pg_num`.
    pub const ON: u8 = 2;
}

/// A snapshot of a pool (`pool_snap_info_t`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PoolSnap {
    /// Number.
    pub snapid: SnapId,
    /// Time taken.
    pub stamp: Utime,
    /// Name.
    pub name: String,
}

impl Encode for PoolSnap {
    fn encode(&self, w: &mut Writer) {
        w.versioned(2, 2, |w| {
            w.put(&self.snapid);
            w.put(&self.stamp);
            w.string(&self.name);
        });
    }
}

impl Decode for PoolSnap {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("pool_snap_info_t", 2, |r, _| Ok(Self { snapid: r.get()?, stamp: r.get()?, name: r.string()? }))
    }
}

/// Value of a pool option.
#[derive(Clone, Debug, PartialEq)]
pub enum PoolOpt {
    /// Text.
    Str(String),
    /// Number.
    Int(i64),
    /// Floating point.
    Float(f64),
}

/// Keys of pool options (`pool_opts_t::key_t`) with their names, in key order from 0.
pub const POOL_OPT_NAMES: [&str; 25] = [
    "scrub_min_interval",
    "scrub_max_interval",
    "deep_scrub_interval",
    "recovery_priority",
    "recovery_op_priority",
    "scrub_priority",
    "compression_mode",
    "compression_algorithm",
    "compression_required_ratio",
    "compression_max_blob_size",
    "compression_min_blob_size",
    "csum_type",
    "csum_max_block",
    "csum_min_block",
    "fingerprint_algorithm",
    "pg_num_min",
    "target_size_bytes",
    "target_size_ratio",
    "pg_autoscale_bias",
    "read_lease_interval",
    "dedup_tier",
    "dedup_chunk_algorithm",
    "dedup_cdc_chunk_size",
    "pg_num_max",
    "read_ratio",
];

/// `pg_merge_meta_t`: the last merge of two PGs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PgMergeMeta {
    /// PG that was merged into the other.
    pub source_pgid: PgId,
    /// Epoch in which both were ready.
    pub ready_epoch: Epoch,
    /// Last epoch started.
    pub last_epoch_started: Epoch,
    /// Last epoch clean.
    pub last_epoch_clean: Epoch,
    /// Version of the source.
    pub source_version: Eversion,
    /// Version of the target.
    pub target_version: Eversion,
}

impl Encode for PgMergeMeta {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.source_pgid);
            w.put(&self.ready_epoch);
            w.put(&self.last_epoch_started);
            w.put(&self.last_epoch_clean);
            w.put(&self.source_version);
            w.put(&self.target_version);
        });
    }
}

impl Decode for PgMergeMeta {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("pg_merge_meta_t", 1, |r, _| {
            Ok(Self {
                source_pgid: r.get()?,
                ready_epoch: r.get()?,
                last_epoch_started: r.get()?,
                last_epoch_clean: r.get()?,
                source_version: r.get()?,
                target_version: r.get()?,
            })
        })
    }
}

/// Stretch-mode fields of a pool (`pg_pool_t` version 30).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PoolStretch {
    /// Buckets that must be present to peer.
    pub bucket_count: u32,
    /// Number of buckets to reach.
    pub bucket_target: u32,
    /// CRUSH type of those buckets.
    pub bucket_barrier: u32,
    /// A bucket that must be among them.
    pub mandatory_member: i32,
}

/// `pg_pool_t`.
#[derive(Clone, Debug, PartialEq)]
pub struct PgPool {
    /// Kind of the pool; see [`kind`].
    pub kind: u8,
    /// Copies or shards.
    pub size: u8,
    /// Copies needed to serve I/O.
    pub min_size: u8,
    /// CRUSH rule.
    pub crush_rule: u8,
    /// Hash of object names; see [`name_hash`].
    pub object_hash: u8,
    /// Number of PGs.
    pub pg_num: u32,
    /// Number of placement seeds.
    pub pgp_num: u32,
    /// Epoch of the last change.
    pub last_change: Epoch,
    /// Newest snapshot number.
    pub snap_seq: SnapId,
    /// Epoch of the last snapshot change.
    pub snap_epoch: Epoch,
    /// Snapshots of the pool.
    pub snaps: BTreeMap<u64, PoolSnap>,
    /// Removed snapshots. Empty in Octopus and later, which use the queue in the map.
    pub removed_snaps: IntervalSet,
    /// Unused owner.
    pub auid: u64,
    /// Flags; see [`flag`].
    pub flags: u64,
    /// Byte quota, 0 for none.
    pub quota_max_bytes: u64,
    /// Object quota, 0 for none.
    pub quota_max_objects: u64,
    /// Cache tiers of this pool.
    pub tiers: BTreeSet<u64>,
    /// The pool this is a tier of, or -1.
    pub tier_of: i64,
    /// Cache mode.
    pub cache_mode: u8,
    /// Pool that serves reads, or -1.
    pub read_tier: i64,
    /// Pool that serves writes, or -1.
    pub write_tier: i64,
    /// Free-form properties of old releases; unused.
    pub properties: BTreeMap<String, String>,
    /// Encoded `HitSet::Params`, kept unparsed (one zero byte: none).
    pub hit_set_params: Bytes,
    /// Seconds per hit set.
    pub hit_set_period: u32,
    /// Hit sets kept.
    pub hit_set_count: u32,
    /// Stripe width of an erasure-coded pool.
    pub stripe_width: u32,
    /// Target size of a cache tier, in bytes.
    pub target_max_bytes: u64,
    /// Target size of a cache tier, in objects.
    pub target_max_objects: u64,
    /// Share of dirty objects from which a cache tier flushes, in millionths.
    pub cache_target_dirty_ratio_micro: u32,
    /// Share of dirty objects from which a cache tier flushes fast, in millionths.
    pub cache_target_dirty_high_ratio_micro: u32,
    /// Share of the target size from which a cache tier evicts, in millionths.
    pub cache_target_full_ratio_micro: u32,
    /// Least age of an object in seconds before a cache tier flushes it.
    pub cache_min_flush_age: u32,
    /// Least age of an object in seconds before a cache tier evicts it.
    pub cache_min_evict_age: u32,
    /// Erasure-code profile.
    pub erasure_code_profile: String,
    /// Last epoch that made clients resend (for clients before Luminous).
    pub last_force_op_resend_preluminous: Epoch,
    /// Last epoch that made clients resend (for clients before Nautilus).
    pub last_force_op_resend_prenautilus: Epoch,
    /// Last epoch that made clients resend.
    pub last_force_op_resend: Epoch,
    /// Hits before promotion on read.
    pub min_read_recency_for_promote: i32,
    /// Hits before promotion on write.
    pub min_write_recency_for_promote: i32,
    /// Objects expected at creation.
    pub expected_num_objects: u64,
    /// True if hit sets are named in GMT.
    pub use_gmt_hitset: bool,
    /// True if reads request all shards and decode from the first that answer.
    pub fast_read: bool,
    /// Decay per hit set.
    pub hit_set_grade_decay_rate: i32,
    /// Hit sets searched.
    pub hit_set_search_last_n: i32,
    /// Options by key (see [`POOL_OPT_NAMES`]).
    pub opts: BTreeMap<i32, PoolOpt>,
    /// Application name to its key-value pairs.
    pub application_metadata: BTreeMap<String, BTreeMap<String, String>>,
    /// Time of creation.
    pub create_time: Utime,
    /// Target of `pg_num`.
    pub pg_num_target: u32,
    /// Target of `pgp_num`.
    pub pgp_num_target: u32,
    /// `pg_num` after the pending merge.
    pub pg_num_pending: u32,
    /// Mode of the autoscaler; see [`autoscale`].
    pub pg_autoscale_mode: u8,
    /// Last merge.
    pub last_pg_merge_meta: PgMergeMeta,
    /// Stretch mode of the pool.
    pub stretch: Option<PoolStretch>,
}

impl Default for PgPool {
    fn default() -> Self {
        Self {
            kind: 0,
            size: 0,
            min_size: 0,
            crush_rule: 0,
            object_hash: name_hash::RJENKINS,
            pg_num: 0,
            pgp_num: 0,
            last_change: Epoch(0),
            snap_seq: SnapId(0),
            snap_epoch: Epoch(0),
            snaps: BTreeMap::new(),
            removed_snaps: IntervalSet::new(),
            auid: 0,
            flags: 0,
            quota_max_bytes: 0,
            quota_max_objects: 0,
            tiers: BTreeSet::new(),
            tier_of: -1,
            cache_mode: 0,
            read_tier: -1,
            write_tier: -1,
            properties: BTreeMap::new(),
            hit_set_params: Bytes::from_static(&[0]),
            hit_set_period: 0,
            hit_set_count: 0,
            stripe_width: 0,
            target_max_bytes: 0,
            target_max_objects: 0,
            cache_target_dirty_ratio_micro: 400_000,
            cache_target_dirty_high_ratio_micro: 600_000,
            cache_target_full_ratio_micro: 800_000,
            cache_min_flush_age: 0,
            cache_min_evict_age: 0,
            erasure_code_profile: String::new(),
            last_force_op_resend_preluminous: Epoch(0),
            last_force_op_resend_prenautilus: Epoch(0),
            last_force_op_resend: Epoch(0),
            min_read_recency_for_promote: 0,
            min_write_recency_for_promote: 0,
            expected_num_objects: 0,
            use_gmt_hitset: true,
            fast_read: false,
            hit_set_grade_decay_rate: 0,
            hit_set_search_last_n: 1,
            opts: BTreeMap::new(),
            application_metadata: BTreeMap::new(),
            create_time: Utime::ZERO,
            pg_num_target: 0,
            pgp_num_target: 0,
            pg_num_pending: 0,
            pg_autoscale_mode: autoscale::ON,
            last_pg_merge_meta: PgMergeMeta::default(),
            stretch: None,
        }
    }
}

/// Smallest `2^n - 1` that covers `n - 1`.
#[must_use]
pub fn pg_mask(n: u32) -> u32 {
    match n {
        0 | 1 => 0,
        n => u32::MAX >> (n - 1).leading_zeros(),
    }
}

/// Ceph's stable modulo: when `b` grows, only the results of the split part change.
#[must_use]
pub fn stable_mod(x: u32, b: u32, mask: u32) -> u32 {
    if x & mask < b { x & mask } else { x & (mask >> 1) }
}

impl PgPool {
    /// True for replicated pools.
    #[must_use]
    pub fn is_replicated(&self) -> bool {
        self.kind == kind::REPLICATED
    }

    /// True for erasure-coded pools.
    #[must_use]
    pub fn is_erasure(&self) -> bool {
        self.kind == kind::ERASURE
    }

    /// Alignment in bytes that every append needs: for an erasure-coded pool without overwrites
    /// (`required_alignment`).
    #[must_use]
    pub fn required_alignment(&self) -> Option<u64> {
        let width = u64::from(self.stripe_width);
        (self.is_erasure() && !self.has_flag(flag::EC_OVERWRITES) && width > 0).then_some(width)
    }

    /// True if a gap in an up or acting set closes (replicated pools). In erasure-coded pools it stays a hole.
    #[must_use]
    pub fn can_shift_osds(&self) -> bool {
        self.is_replicated()
    }

    /// True if `bit` of [`flag`] is set.
    #[must_use]
    pub fn has_flag(&self, bit: u64) -> bool {
        self.flags & bit != 0
    }

    /// Names of the flags that are set, in bit order.
    pub fn flag_names(&self) -> impl Iterator<Item = &'static str> + '_ {
        flag::NAMES.iter().filter(|(b, _)| self.flags & b != 0).map(|(_, n)| *n)
    }

    /// True if this pool is a cache tier of another pool.
    #[must_use]
    pub fn is_tier(&self) -> bool {
        self.tier_of >= 0
    }

    /// True once clients manage the snapshots.
    #[must_use]
    pub fn is_unmanaged_snaps_mode(&self) -> bool {
        self.has_flag(flag::SELFMANAGED_SNAPS)
    }

    /// True once the pool has snapshots of its own.
    #[must_use]
    pub fn is_pool_snaps_mode(&self) -> bool {
        self.has_flag(flag::POOL_SNAPS)
    }

    /// Snapshot with this name.
    #[must_use]
    pub fn snap_by_name(&self, name: &str) -> Option<&PoolSnap> {
        self.snaps.values().find(|s| s.name == name)
    }

    /// Seed of the actual PG for an object hash.
    #[must_use]
    pub fn raw_pg_to_pg(&self, seed: u32) -> u32 {
        stable_mod(seed, self.pg_num, pg_mask(self.pg_num))
    }

    /// CRUSH input of a (raw or actual) PG seed of pool `id`.
    #[must_use]
    pub fn raw_pg_to_pps(&self, id: PoolId, seed: u32) -> u32 {
        let m = stable_mod(seed, self.pgp_num, pg_mask(self.pgp_num));
        if self.has_flag(flag::HASHPSPOOL) {
            crate::crush::hash::hash32_2(m, id.0 as u32)
        } else {
            m.wrapping_add(id.0 as u32)
        }
    }

    /// Option by name.
    #[must_use]
    pub fn opt(&self, name: &str) -> Option<&PoolOpt> {
        let k = POOL_OPT_NAMES.iter().position(|n| *n == name)?;
        self.opts.get(&(k as i32))
    }

    /// Number of low hash bits that identify the PG with this seed.
    #[must_use]
    pub fn pg_bits(&self, seed: u32) -> u32 {
        let mask = pg_mask(self.pg_num);
        if mask == 0 {
            return 0;
        }
        // A seed whose upper half is not split off covers both halves.
        let half = mask >> 1;
        let bits = mask.count_ones();
        if seed <= half && seed.wrapping_add(half).wrapping_add(1) >= self.pg_num { bits - 1 } else { bits }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks_and_stable_mod() {
        assert_eq!([0, 1, 2, 3, 4, 5, 24, 32, 33].map(pg_mask), [0, 0, 1, 3, 3, 7, 31, 31, 63]);
        assert_eq!(stable_mod(0x7fc1_f406, 24, 31), 6);
        assert_eq!(stable_mod(30, 24, 31), 14);
    }

    #[test]
    fn every_hash_of_a_pg_shares_its_bits() {
        for pg_num in 1..70u32 {
            let p = PgPool { pg_num, ..PgPool::default() };
            for h in 0..512u32 {
                let seed = p.raw_pg_to_pg(h);
                let mask = (1u64 << p.pg_bits(seed)) as u32 - 1;
                assert_eq!(h & mask, seed & mask, "pg_num {pg_num} hash {h}");
            }
        }
    }
}
