//! Intervals: runs of epochs in which nothing that matters to a PG changed, and what is remembered of past ones.
//!
//! Invariants:
//!  1. Within an interval acting set, primary, size, min_size and what hashes are the PG's are constant; every write of the log belongs
//!     to one interval.
//!  2. A past interval is remembered until the PG is clean again; only intervals that may have accepted writes block.

use crate::map::{MapView, Mapping};
use crate::shards::{PeerId, ShardSet};
use base::{Epoch, OsdId, PgId, ShardId};
use cluster::osdmap::interval::{is_merge, is_split};
use std::collections::BTreeSet;
use wire::types::PastIntervals;
use wire::{Decode, Encode, Reader, Writer};

/// A finished interval (`PastIntervals::pg_interval_t`).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PastInterval {
    /// First epoch.
    pub first: Epoch,
    /// Last epoch.
    pub last: Epoch,
    /// Who served it.
    pub acting: Vec<OsdId>,
    /// Whose was the lead.
    pub primary: OsdId,
    /// It may have accepted writes: `up_thru` of its primary reached it.
    pub maybe_went_rw: bool,
}

impl Encode for PastInterval {
    fn encode(&self, w: &mut Writer) {
        w.put(&self.first);
        w.put(&self.last);
        w.put(&self.acting);
        w.put(&self.primary);
        w.bool(self.maybe_went_rw);
    }
}

impl Decode for PastInterval {
    fn decode(r: &mut Reader<'_>) -> wire::codec::Result<Self> {
        Ok(Self { first: r.get()?, last: r.get()?, acting: r.get()?, primary: r.get()?, maybe_went_rw: r.bool()? })
    }
}

/// What an interval is made of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalKey {
    /// Who serves.
    pub mapping: Mapping,
    /// Pool's size.
    pub size: u32,
    /// Pool's min_size.
    pub min_size: u32,
    /// Pool's pg_num.
    pub pg_num: u32,
    /// Pool's pg_num_pending.
    pub pg_num_pending: u32,
}

impl IntervalKey {
    /// True if a PG that was in an interval of this kind is in the same one with `next`: other PGs of the pool may have been
    /// split or joined, but not this one.
    #[must_use]
    pub fn continues(&self, next: &Self, pg: PgId) -> bool {
        let (old, new) = (self.pg_num, next.pg_num);
        let (was, will) = (self.pg_num_pending, next.pg_num_pending);
        self.mapping == next.mapping
            && self.size == next.size
            && self.min_size == next.min_size
            && !is_split(pg, old, new)
            && !is_merge(pg, old, new)
            && !is_merge(pg, was, will)
            && !is_merge(pg, will, was)
    }

    /// Of a map; `None` if the pool is gone.
    #[must_use]
    pub fn of(m: &MapView) -> Option<Self> {
        let p = m.pool.as_ref()?;
        Some(Self {
            mapping: m.mapping.clone(),
            size: p.size,
            min_size: p.min_size,
            pg_num: p.pg_num,
            pg_num_pending: p.pg_num_pending,
        })
    }
}

/// Whom a new primary must ask, and whom it cannot.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prior {
    /// Members of intervals that may have taken writes, and of the present one, that are up.
    pub probe: BTreeSet<PeerId>,
    /// No member of one of those intervals can be asked; these could be if they came back.
    pub blocked_by: BTreeSet<OsdId>,
}

impl Prior {
    /// For the present interval of `map`, with what is known of older ones. Intervals that ended before `started` don't
    /// matter: what they wrote is in whoever took part in the one that started then. A copy that `failed` can be asked as little as one that is down.
    /// `coded`: how many shards of an erasure-coded PG give its content; of each interval as many must be there.
    #[must_use]
    pub fn build(
        past: &[PastInterval],
        started: Epoch,
        map: &MapView,
        failed: &BTreeSet<PeerId>,
        coded: Option<usize>,
    ) -> Self {
        let m = &map.mapping;
        let mut prior = Self::default();
        let is_coded = coded.is_some();
        let now = m.up(is_coded).iter().chain(m.acting(is_coded).iter());
        let asks = |o: PeerId| map.osds.is_up(o.osd) && !failed.contains(&o);
        prior.probe.extend(now.filter(|o| asks(*o)));
        for p in past.iter().filter(|p| p.maybe_went_rw && p.last >= started) {
            let (mut witnesses, mut down) = (0, Vec::new());
            for o in ShardSet::new(&p.acting, is_coded).iter() {
                let lost = map.osds.lost_at(o.osd);
                if asks(o) {
                    prior.probe.insert(o);
                    witnesses += 1;
                } else if lost == Epoch(u32::MAX) {
                    // It does not exist any more: nobody waits for it, but it is no witness either.
                } else if lost > p.first {
                    witnesses += 1;
                } else {
                    down.push(o.osd);
                }
            }
            if witnesses < coded.unwrap_or(1) {
                prior.blocked_by.extend(down);
            }
        }
        prior
    }
}

/// Past intervals as the monitor tells them: only those that may have taken writes are listed.
#[must_use]
pub fn from_monitor(p: &PastIntervals) -> Vec<PastInterval> {
    p.0.iter()
        .flat_map(|r| &r.intervals)
        .map(|i| {
            let coded = i.acting.iter().any(|s| s.shard != ShardId::NONE);
            let mut acting: Vec<OsdId> = Vec::new();
            for s in &i.acting {
                if let (true, Ok(at)) = (coded, usize::try_from(s.shard.0)) {
                    acting.resize(acting.len().max(at + 1), OsdId::NONE);
                    acting[at] = s.osd;
                } else {
                    acting.push(s.osd);
                }
            }
            let primary = acting.iter().find(|o| **o != OsdId::NONE).copied().unwrap_or(OsdId(-1));
            PastInterval { first: i.first, last: i.last, acting, primary, maybe_went_rw: true }
        })
        .collect()
}
