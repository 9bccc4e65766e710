//! Statistics that OSDs report and monitors sum: objects, PGs, pools, OSDs, and the digest.
//!
//! Field names are those of Ceph's `osd_types.h`.

use crate::codec::{Decode, Encode, Reader, Result, Writer};
use crate::macros::{plain, versioned};
use crate::types::{Intervals, PgShard, StrMap};
use base::{Epoch, Eversion, OsdId, PgId, PoolId, Utime};
use std::collections::{BTreeMap, BTreeSet};

macro_rules! stat_sum {
    ($(#[$m:meta])* $name:ident = $ceph:literal, $v:literal, $c:literal { $($f:ident: $t:ident,)* }) => {
        versioned! {
            $(#[$m])*
            #[derive(Copy, Eq)]
            $name = $ceph, $v, $c { $($f: $t,)* }
        }
        impl $name {
            /// Adds another sum, field by field; wraps around on overflow.
            pub fn add(&mut self, o: &Self) {
                $(self.$f = self.$f.wrapping_add(o.$f);)*
            }
            /// Subtracts another sum, field by field; wraps around on overflow.
            pub fn sub(&mut self, o: &Self) {
                $(self.$f = self.$f.wrapping_sub(o.$f);)*
            }
        }
    };
}

stat_sum! {
    /// `object_stat_sum_t`: counters over objects.
    ObjectStatSum = "object_stat_sum_t", 20, 14 {
        num_bytes: i64,
        num_objects: i64,
        num_object_clones: i64,
        num_object_copies: i64,
        num_objects_missing_on_primary: i64,
        num_objects_degraded: i64,
        num_objects_unfound: i64,
        num_rd: i64,
        num_rd_kb: i64,
        num_wr: i64,
        num_wr_kb: i64,
        num_scrub_errors: i64,
        num_objects_recovered: i64,
        num_bytes_recovered: i64,
        num_keys_recovered: i64,
        num_shallow_scrub_errors: i64,
        num_deep_scrub_errors: i64,
        num_objects_dirty: i64,
        num_whiteouts: i64,
        num_objects_omap: i64,
        num_objects_hit_set_archive: i64,
        num_objects_misplaced: i64,
        num_bytes_hit_set_archive: i64,
        num_flush: i64,
        num_flush_kb: i64,
        num_evict: i64,
        num_evict_kb: i64,
        num_promote: i64,
        num_flush_mode_high: i32,
        num_flush_mode_low: i32,
        num_evict_mode_some: i32,
        num_evict_mode_full: i32,
        num_objects_pinned: i64,
        num_objects_missing: i64,
        num_legacy_snapsets: i64,
        num_large_omap_objects: i64,
        num_objects_manifest: i64,
        num_omap_bytes: i64,
        num_omap_keys: i64,
        num_objects_repaired: i64,
    }
}

stat_sum! {
    /// `store_statfs_t`: space of a store, or of a pool on it, in bytes.
    StoreStatfs = "store_statfs_t", 1, 1 {
        total: i64,
        available: i64,
        internally_reserved: i64,
        allocated: i64,
        data_stored: i64,
        data_compressed: i64,
        data_compressed_allocated: i64,
        data_compressed_original: i64,
        omap_allocated: i64,
        internal_metadata: i64,
    }
}

versioned! {
    /// `object_stat_collection_t`: an [`ObjectStatSum`] in an envelope of its own.
    ObjectStatCollection = "object_stat_collection_t", 2, 2 {
        sum: ObjectStatSum,
        /// Obsolete sums by category: empty.
        categories: u32,
    }

    /// `pool_stat_t`: sums over a pool's PGs.
    PoolStat = "pool_stat_t", 7, 5 {
        stats: ObjectStatCollection,
        log_size: i64,
        ondisk_log_size: i64,
        up: i32 => 6,
        acting: i32 => 6,
        store_stats: StoreStatfs => 7,
        num_store_stats: i32 => 7,
    }

    /// `pow2_hist_t`: counts by powers of two.
    Pow2Hist = "pow2_hist_t", 1, 1 {
        h: Vec<i32>,
    }

    /// `osd_stat_t`: an OSD's report about itself, or a sum of reports.
    OsdStat = "osd_stat_t", 14, 2 {
        kb: i64,
        kb_used: i64,
        kb_avail: i64,
        snap_trim_queue_len: i32,
        num_snap_trimming: i32,
        hb_peers: Vec<OsdId>,
        /// Obsolete: empty.
        hb_out: Vec<OsdId>,
        op_queue_age_hist: Pow2Hist,
        os_perf_stat: ObjectstorePerfStat,
        up_from: Epoch => 5,
        /// `up_from << 32 | counter`.
        seq: u64 => 6,
        num_pgs: u32 => 7,
        kb_used_data: i64 => 8,
        kb_used_omap: i64 => 8,
        kb_used_meta: i64 => 8,
        statfs: StoreStatfs => 9,
        /// Alerts of the store, by OSD.
        os_alerts: BTreeMap<OsdId, StrMap> => 10,
        num_shards_repaired: u64 => 11,
        num_osds: i32 => 12,
        num_per_pool_osds: i32 => 12,
        num_per_pool_omap_osds: i32 => 13,
        hb_pingtime: BTreeMap<OsdId, HbPingTime> => 14,
    }

    /// `pg_stat_t`: a PG's statistics, reported by its primary.
    PgStat = "pg_stat_t", 26, 22 {
        version: Eversion,
        reported_seq: u64,
        reported_epoch: Epoch,
        /// Lower half of the state; see [`PgStat::state`].
        state_lo: u32,
        log_start: Eversion,
        ondisk_log_start: Eversion,
        created: Epoch,
        last_epoch_clean: Epoch,
        parent: PgId,
        parent_split_bits: u32,
        last_scrub: Eversion,
        last_scrub_stamp: Utime,
        stats: ObjectStatCollection,
        log_size: i64,
        ondisk_log_size: i64,
        up: Vec<OsdId>,
        acting: Vec<OsdId>,
        last_fresh: Utime,
        last_change: Utime,
        last_active: Utime,
        last_clean: Utime,
        last_unstale: Utime,
        mapping_epoch: Epoch,
        last_deep_scrub: Eversion,
        last_deep_scrub_stamp: Utime,
        stats_invalid: bool,
        last_clean_scrub_stamp: Utime,
        last_became_active: Utime,
        dirty_stats_invalid: bool,
        up_primary: OsdId,
        acting_primary: OsdId,
        omap_stats_invalid: bool,
        hitset_stats_invalid: bool,
        blocked_by: Vec<OsdId>,
        last_undegraded: Utime,
        last_fullsized: Utime,
        hitset_bytes_stats_invalid: bool,
        last_peered: Utime,
        last_became_peered: Utime,
        pin_stats_invalid: bool,
        snaptrimq_len: u32 => 23,
        /// Upper half of the state.
        state_hi: u32 => 24,
        purged_snaps: Intervals => 25,
        manifest_stats_invalid: bool => 25,
        avail_no_missing: Vec<PgShard> => 26,
        object_location_counts: BTreeMap<BTreeSet<PgShard>, i32> => 26,
    }

    /// `PGMapDigest`: the monitor's summary of all PG reports.
    ///
    /// Ceph keeps several of these maps unordered, so their order on the wire is arbitrary and pairs stay as they came.
    PgMapDigest = "PGMapDigest", 4, 1 {
        num_pg: i64,
        num_pg_active: i64,
        num_pg_unknown: i64,
        num_osd: i64,
        pg_pool_sum: Vec<(i32, PoolStat)>,
        pg_sum: PoolStat,
        osd_sum: OsdStat,
        num_pg_by_state: Vec<(u64, i32)>,
        num_pg_by_osd: Vec<(OsdId, PgCount)>,
        num_pg_by_pool: Vec<(PoolId, i64)>,
        osd_last_seq: Vec<u64>,
        per_pool_sum_delta: Vec<(PoolId, (PoolStat, Utime))>,
        per_pool_sum_deltas_stamps: Vec<(PoolId, Utime)>,
        pg_sum_delta: PoolStat,
        stamp_delta: Utime,
        avail_space_by_rule: Vec<(i32, i64)>,
        purged_snaps: Vec<(PoolId, Intervals)> => 3,
        osd_sum_by_class: Vec<(String, OsdStat)> => 4,
    }
}

plain! {
    /// Number of PGs of an OSD by role.
    PgCount {
        acting: i32,
        up_not_acting: i32,
        primary: i32,
    }

    /// `osd_stat_t::Interfaces`: heartbeat times to a peer in microseconds, over 1, 5 and 15 minutes.
    HbPingTime {
        last_update: u32,
        back_pingtime: [u32; 3],
        back_min: [u32; 3],
        back_max: [u32; 3],
        back_last: u32,
        front_pingtime: [u32; 3],
        front_min: [u32; 3],
        front_max: [u32; 3],
        front_last: u32,
    }
}

impl PgStat {
    /// State bits ([`pg_state`]).
    #[must_use]
    pub fn state(&self) -> u64 {
        u64::from(self.state_hi) << 32 | u64::from(self.state_lo)
    }

    /// Sets the state bits.
    pub fn set_state(&mut self, s: u64) {
        self.state_lo = s as u32;
        self.state_hi = (s >> 32) as u32;
    }
}

impl PoolStat {
    /// Adds the statistics of a PG.
    pub fn add_pg(&mut self, s: &PgStat) {
        self.stats.sum.add(&s.stats.sum);
        self.log_size += s.log_size;
        self.ondisk_log_size += s.ondisk_log_size;
        self.up += s.up.len() as i32;
        self.acting += s.acting.len() as i32;
    }
}

/// `objectstore_perf_stat_t`: latencies of the store.
///
/// In nanoseconds; on the wire in milliseconds for peers without `OS_PERF_STAT_NS`, which no release announces so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ObjectstorePerfStat {
    /// Latency until a write is durable.
    pub commit_latency_ns: u64,
    /// Latency until a write is readable.
    pub apply_latency_ns: u64,
}

const OS_PERF_STAT_NS: u64 = 1 << 17;
const NS_PER_MS: u64 = 1_000_000;

impl Encode for ObjectstorePerfStat {
    fn encode(&self, w: &mut Writer) {
        if w.features().has(OS_PERF_STAT_NS) {
            w.versioned(2, 2, |w| {
                w.u64(self.commit_latency_ns);
                w.u64(self.apply_latency_ns);
            });
        } else {
            w.versioned(1, 1, |w| {
                w.u32((self.commit_latency_ns / NS_PER_MS) as u32);
                w.u32((self.apply_latency_ns / NS_PER_MS) as u32);
            });
        }
    }
}
impl Decode for ObjectstorePerfStat {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("objectstore_perf_stat_t", 2, |r, v| {
            Ok(if v >= 2 {
                Self { commit_latency_ns: r.u64()?, apply_latency_ns: r.u64()? }
            } else {
                Self {
                    commit_latency_ns: u64::from(r.u32()?) * NS_PER_MS,
                    apply_latency_ns: u64::from(r.u32()?) * NS_PER_MS,
                }
            })
        })
    }
}

/// Bits of a PG's state (`PG_STATE_*`) and their names.
pub mod pg_state {
    macro_rules! states {
        ($($(#[$m:meta])* $name:ident = $bit:literal, $text:literal;)*) => {
            $($(#[$m])* pub const $name: u64 = 1 << $bit;)*
            const NAMES: &[(u64, &str)] = &[$(($name, $text)),*];
        };
    }

    // In Ceph's printing order.
    states! {
        /// The primary has not reported for too long.
        STALE = 17, "stale";
        /// The PG is being created.
        CREATING = 0, "creating";
        /// The PG serves operations.
        ACTIVE = 1, "active";
        /// The PG is activating its acting set.
        ACTIVATING = 24, "activating";
        /// All objects have all copies in place.
        CLEAN = 2, "clean";
        /// Recovery waits for a reservation.
        RECOVERY_WAIT = 22, "recovery_wait";
        /// A target OSD is too full for recovery.
        RECOVERY_TOOFULL = 28, "recovery_toofull";
        /// Objects are being recovered.
        RECOVERING = 14, "recovering";
        /// An operator forced recovery.
        FORCED_RECOVERY = 30, "forced_recovery";
        /// An OSD that may have the newest writes is down.
        DOWN = 4, "down";
        /// Some objects have no known valid copy.
        RECOVERY_UNFOUND = 5, "recovery_unfound";
        /// Backfill found objects without a known valid copy.
        BACKFILL_UNFOUND = 6, "backfill_unfound";
        /// The acting set is smaller than the pool's size.
        UNDERSIZED = 23, "undersized";
        /// Some objects have fewer copies than wanted.
        DEGRADED = 10, "degraded";
        /// The acting set differs from the up set.
        REMAPPED = 18, "remapped";
        /// The PG is about to merge.
        PREMERGE = 7, "premerge";
        /// The PG is being scrubbed.
        SCRUBBING = 8, "scrubbing";
        /// The scrub includes data.
        DEEP_SCRUB = 19, "deep";
        /// A scrub found inconsistencies.
        INCONSISTENT = 11, "inconsistent";
        /// The PG is peering.
        PEERING = 12, "peering";
        /// Inconsistencies are being repaired.
        REPAIR = 13, "repair";
        /// Backfill waits for a reservation.
        BACKFILL_WAIT = 15, "backfill_wait";
        /// Objects are being backfilled.
        BACKFILLING = 20, "backfilling";
        /// An operator forced backfill.
        FORCED_BACKFILL = 31, "forced_backfill";
        /// A target OSD is too full for backfill.
        BACKFILL_TOOFULL = 21, "backfill_toofull";
        /// There are too few OSDs to complete peering.
        INCOMPLETE = 16, "incomplete";
        /// Peering is complete, but there are too few OSDs to be active.
        PEERED = 25, "peered";
        /// Clones of removed snapshots are being trimmed.
        SNAPTRIM = 26, "snaptrim";
        /// Trimming waits for a reservation.
        SNAPTRIM_WAIT = 27, "snaptrim_wait";
        /// Trimming failed.
        SNAPTRIM_ERROR = 29, "snaptrim_error";
        /// A repair could not mend all inconsistencies.
        FAILED_REPAIR = 32, "failed_repair";
        /// The read lease has expired.
        LAGGY = 33, "laggy";
        /// The PG waits for a read lease of the previous interval to expire.
        WAIT = 34, "wait";
    }

    /// Names of the states joined by `+`; "unknown" for none.
    #[must_use]
    pub fn to_string(state: u64) -> String {
        let mut out = String::new();
        for (bit, name) in NAMES {
            if state & bit != 0 {
                if !out.is_empty() {
                    out.push('+');
                }
                out.push_str(name);
            }
        }
        if out.is_empty() { "unknown".to_owned() } else { out }
    }

    /// The bit of a state by its name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<u64> {
        let name = if name == "deep_scrub" { "deep" } else { name };
        NAMES.iter().find(|(_, n)| *n == name).map(|(b, _)| *b)
    }
}
