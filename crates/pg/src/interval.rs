//! Intervals: runs of epochs in which a PG's mapping and pool parameters do not change, and the PG's memory of past
//! ones.
//!
//! Invariants:
//!  1. Within an interval the acting set, primary, size, min_size and hash range of the PG are constant. Each write
//!     of the log belongs to one interval.
//!  2. A past interval is remembered until the PG is clean. Only intervals that may have accepted writes block
//!     peering.
//!
//! Tests: `tests/peering.rs`, `tests/life.rs`.

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
    /// The acting set.
    pub acting: Vec<OsdId>,
    /// The acting primary.
    pub primary: OsdId,
    /// The interval may have accepted writes: `up_thru` of its primary reached it.
    pub maybe_went_rw: bool,
}

impl PastInterval {
    /// The epochs whose maps this OSD has missed for good. Any OSDs may have been members, and may have taken writes.
    #[must_use]
    pub fn unknown(first: Epoch, last: Epoch) -> Self {
        Self { first, last, acting: Vec::new(), primary: OsdId(-1), maybe_went_rw: true }
    }

    /// True if the members are not known.
    #[must_use]
    pub fn is_unknown(&self) -> bool {
        self.maybe_went_rw && self.acting.is_empty()
    }
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

/// The parameters that are constant in an interval; a change of any of them starts a new one.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IntervalKey {
    /// Up and acting sets with their primaries.
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
    /// True if the interval goes on under `next`: no parameter changed, and this PG itself was neither split nor
    /// merged. Splits and merges of the pool's other PGs do not count.
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

    /// The parameters at the epoch of a map; `None` if the pool is gone.
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

/// The copies that a new primary must ask, and the OSDs it would need but cannot ask.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Prior {
    /// Members of the present interval and of past ones that may have taken writes, as far as they are up.
    pub probe: BTreeSet<PeerId>,
    /// OSDs that are down, of a past interval of which too few members can be asked. Peering goes on when one of them
    /// is back.
    pub blocked_by: BTreeSet<OsdId>,
    /// An interval of unknown members counts: a copy that knows its members must answer, or all OSDs.
    pub unknown: bool,
}

impl Prior {
    /// Builds the sets for the present interval of `map` from the remembered past ones.
    ///
    /// Intervals that ended before `started` don't matter: the members of the interval that started then have their
    /// writes. A copy in `failed` can't be asked, as if its OSD were down. `coded`: the number of shards that hold a
    /// whole object of an erasure-coded PG; as many must be there of each interval. `wide`: of an interval whose
    /// members are unknown, every OSD may hold what no other does.
    #[must_use]
    pub fn build(
        past: &[PastInterval],
        started: Epoch,
        map: &MapView,
        failed: &BTreeSet<PeerId>,
        coded: Option<usize>,
        wide: bool,
    ) -> Self {
        let m = &map.mapping;
        let mut prior = Self::default();
        let is_coded = coded.is_some();
        let now = m.up(is_coded).iter().chain(m.acting(is_coded).iter());
        let asks = |o: PeerId| map.osds.is_up(o.osd) && !failed.contains(&o);
        prior.probe.extend(now.filter(|o| asks(*o)));
        for p in past.iter().filter(|p| p.maybe_went_rw && p.last >= started) {
            if p.is_unknown() {
                prior.unknown = true;
                if wide {
                    prior.ask_everyone(p.first, map, is_coded, &asks);
                }
                continue;
            }
            let (mut witnesses, mut down) = (0, Vec::new());
            for o in ShardSet::new(&p.acting, is_coded).iter() {
                let lost = map.osds.lost_at(o.osd);
                if asks(o) {
                    prior.probe.insert(o);
                    witnesses += 1;
                } else if lost == Epoch(u32::MAX) {
                    // The OSD was destroyed: nothing waits for it, but it does not count as a witness.
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

    /// Adds every OSD: to those to ask if it is up, else to those to wait for, unless its data is lost.
    fn ask_everyone(&mut self, first: Epoch, map: &MapView, coded: bool, asks: &dyn Fn(PeerId) -> bool) {
        let places = map.mapping.up.len().max(map.mapping.acting.len());
        let shards: Vec<ShardId> = if coded {
            (0..places).filter_map(|i| i8::try_from(i).ok()).map(ShardId).collect()
        } else {
            vec![ShardId::NONE]
        };
        for osd in map.osds.all() {
            for p in shards.iter().map(|shard| PeerId { osd, shard: *shard }) {
                let lost = map.osds.lost_at(osd);
                if asks(p) {
                    self.probe.insert(p);
                } else if lost <= first {
                    self.blocked_by.insert(osd);
                }
            }
        }
    }
}

/// Converts the monitor's past intervals. The monitor lists only those that may have taken writes.
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
