//! Metadata of a PG: history, past intervals, info, and the records that OSDs exchange in peering.
//!
//! Field names are those of Ceph's `osd_types.h`.

use crate::codec::{Decode, DecodeError, Encode, Reader, Result, Writer};
use crate::macros::{plain, versioned};
use crate::types::{Intervals, PgStat, Span};
use base::{Epoch, Eversion, HObject, OsdId, PgId, ShardId, Utime};
use std::collections::BTreeSet;

/// `pg_shard_t`: an OSD with its shard of a PG.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct PgShard {
    /// Id of the OSD.
    pub osd: OsdId,
    /// Shard of an erasure-coded PG.
    pub shard: ShardId,
}

impl PgShard {
    /// A member of a replicated PG.
    #[must_use]
    pub fn replica(osd: OsdId) -> Self {
        Self { osd, shard: ShardId::NONE }
    }
}

impl Encode for PgShard {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| {
            w.put(&self.osd);
            w.put(&self.shard);
        });
    }
}
impl Decode for PgShard {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("pg_shard_t", 1, |r, _| Ok(Self { osd: r.get()?, shard: r.get()? }))
    }
}

versioned! {
    /// `pg_history_t`: epochs of the PG's creation, intervals, splits and scrubs.
    PgHistory = "pg_history_t", 10, 4 {
        epoch_created: Epoch,
        last_epoch_started: Epoch,
        last_epoch_clean: Epoch,
        last_epoch_split: Epoch,
        same_interval_since: Epoch,
        same_up_since: Epoch,
        same_primary_since: Epoch,
        last_scrub: Eversion,
        last_scrub_stamp: Utime,
        last_deep_scrub: Eversion,
        last_deep_scrub_stamp: Utime,
        last_clean_scrub_stamp: Utime,
        last_epoch_marked_full: Epoch => 7,
        last_interval_started: Epoch => 8,
        last_interval_clean: Epoch => 8,
        epoch_pool_created: Epoch => 9,
        /// Upper bound of the previous interval's read lease.
        prior_readable_until_ub: Span => 10,
    }

    /// `compact_interval_t`: an interval in which the PG may have accepted writes.
    CompactInterval = "compact_interval_t", 1, 1 {
        first: Epoch,
        last: Epoch,
        acting: BTreeSet<PgShard>,
    }

    /// `pi_compact_rep`: the intervals since the PG was last clean.
    PiCompactRep = "pi_compact_rep", 1, 1 {
        first: Epoch,
        last: Epoch,
        all_participants: BTreeSet<PgShard>,
        intervals: Vec<CompactInterval>,
    }

    /// `pg_hit_set_info_t`: period and version of one hit set.
    PgHitSetInfo = "pg_hit_set_info_t", 2, 1 {
        begin: Utime,
        end: Utime,
        version: Eversion,
        using_gmt: bool => 2,
    }

    /// `pg_hit_set_history_t`; part of the info, unused without cache tiers.
    PgHitSetHistory = "pg_hit_set_history_t", 1, 1 {
        current_last_update: Eversion,
        current_last_stamp: Utime,
        current_info: PgHitSetInfo,
        history: Vec<PgHitSetInfo>,
    }

    /// `pg_info_t`: state of a PG on an OSD, which it sends to the primary.
    PgInfo = "pg_info_t", 32, 26 {
        pgid: PgId,
        last_update: Eversion,
        last_complete: Eversion,
        log_tail: Eversion,
        /// Obsolete; the minimum object.
        old_last_backfill: HObject,
        stats: PgStat,
        history: PgHistory,
        purged_snaps: Intervals,
        last_epoch_started: Epoch,
        last_user_version: u64,
        hit_set: PgHitSetHistory,
        shard: ShardId,
        last_backfill: HObject,
        last_backfill_bitwise: bool,
        last_interval_started: Epoch => 32,
    }

    /// `pg_notify_t`: an OSD reports its PG's state to the primary.
    PgNotify = "pg_notify_t", 3, 2 {
        query_epoch: Epoch,
        epoch_sent: Epoch,
        info: PgInfo,
        to: ShardId,
        from: ShardId,
        past_intervals: PastIntervals => 3,
    }

    /// `pg_query_t`: the primary queries another OSD. Types: 0 info, 1 log, 4 missing, 5 full log.
    PgQuery = "pg_query_t", 3, 3 {
        kind: i32,
        since: Eversion,
        history: PgHistory,
        epoch_sent: Epoch,
        to: ShardId,
        from: ShardId,
    }

    /// `pg_lease_t`: the primary extends the time in which replicas may serve reads.
    PgLease = "pg_lease_t", 1, 1 {
        readable_until: Span,
        readable_until_ub: Span,
        interval: Span,
    }

    /// `pg_lease_ack_t`: a replica acknowledges a lease, by its upper bound.
    PgLeaseAck = "pg_lease_ack_t", 1, 1 {
        readable_until_ub: Span,
    }
}

plain! {
    /// Epoch and time of a PG's creation (MOSDPGCreate2).
    PgCreateStamp {
        created: Epoch,
        stamp: Utime,
    }

    /// History and past intervals of a PG to be created (MOSDPGCreate2).
    PgCreateExtra {
        history: PgHistory,
        past_intervals: PastIntervals,
    }
}

/// `PastIntervals`: empty, or the compact representation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PastIntervals(pub Option<PiCompactRep>);

const PI_NONE: u8 = 0;
const PI_COMPACT: u8 = 2;

impl PastIntervals {
    /// Past intervals of a new PG: a compact representation without intervals.
    #[must_use]
    pub fn fresh() -> Self {
        Self(Some(PiCompactRep::default()))
    }
}

impl Encode for PastIntervals {
    fn encode(&self, w: &mut Writer) {
        w.versioned(1, 1, |w| match &self.0 {
            None => w.u8(PI_NONE),
            Some(rep) => {
                w.u8(PI_COMPACT);
                w.put(rep);
            }
        });
    }
}
impl Decode for PastIntervals {
    fn decode(r: &mut Reader<'_>) -> Result<Self> {
        r.versioned("PastIntervals", 1, |r, _| match r.u8()? {
            PI_NONE => Ok(Self(None)),
            PI_COMPACT => Ok(Self(Some(r.get()?))),
            t => Err(DecodeError::BadValue { what: "PastIntervals kind", value: t.into() }),
        })
    }
}
