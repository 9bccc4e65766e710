//! The monitor's state of an epoch, for the tests.

use super::POOL;
use base::{Epoch, OsdId, PoolId, ShardId};
use pg::map::{Mapping, NoBlocklist, Osds, PoolKind};
use pg::{MapView, PoolView};
use std::rc::Rc;

/// The monitor's state of one epoch.
#[derive(Clone, Debug)]
pub struct Map {
    pub epoch: u32,
    pub up: Vec<bool>,
    pub up_from: Vec<u32>,
    pub up_thru: Vec<u32>,
    /// OSDs in order of preference; those that are up among the first `size` form the up set.
    pub order: Vec<i32>,
    pub temp: Vec<i32>,
    pub size: u32,
    pub min_size: u32,
    pub removed_snaps: Vec<u64>,
    pub snap_seq: u64,
    /// Full OSDs.
    pub full: Vec<i32>,
    /// OSDs that an operator declared lost.
    pub lost: Vec<i32>,
    pub backfillfull: f32,
    /// Data and coding shards, if the pool is erasure-coded. OSD `n` has shard `n % size`.
    pub code: Option<(u8, u8)>,
    /// Objects of an erasure-coded pool may be written in part.
    pub overwrites: bool,
    /// The pool is full.
    pub pool_full: bool,
}

/// Bytes of a shard in one stripe.
pub const CHUNK: u32 = 4096;

struct OsdTable(Map);

impl Osds for OsdTable {
    fn is_up(&self, o: OsdId) -> bool {
        self.0.up.get(o.0 as usize).copied().unwrap_or(false)
    }
    fn up_from(&self, o: OsdId) -> Epoch {
        Epoch(self.0.up_from.get(o.0 as usize).copied().unwrap_or(0))
    }
    fn up_thru(&self, o: OsdId) -> Epoch {
        Epoch(self.0.up_thru.get(o.0 as usize).copied().unwrap_or(0))
    }
    fn lost_at(&self, o: OsdId) -> Epoch {
        Epoch(if self.0.lost.contains(&o.0) { self.0.epoch } else { 0 })
    }
    fn is_full(&self, o: OsdId) -> bool {
        self.0.full.contains(&o.0)
    }
    fn backfillfull_ratio(&self) -> f32 {
        self.0.backfillfull
    }
}

impl Map {
    /// The first map of a cluster, in which all OSDs are up.
    pub fn first(osds: usize, size: u32, min_size: u32, code: Option<(u8, u8)>) -> Self {
        Self {
            epoch: 10,
            up: vec![true; osds],
            up_from: vec![5; osds],
            up_thru: vec![5; osds],
            order: (0..osds as i32).collect(),
            temp: Vec::new(),
            size,
            min_size,
            removed_snaps: Vec::new(),
            snap_seq: 0,
            full: Vec::new(),
            lost: Vec::new(),
            backfillfull: 0.9,
            code,
            overwrites: true,
            pool_full: false,
        }
    }

    pub fn is_up(&self, o: i32) -> bool {
        self.up[o as usize]
    }
    /// The shard of an OSD.
    pub fn shard(&self, o: i32) -> ShardId {
        if self.code.is_some() { ShardId((o % self.size as i32) as i8) } else { ShardId::NONE }
    }

    fn places(&self) -> Mapping {
        let size = self.size as usize;
        let at = |place: usize| {
            let mut all = self.order.iter().copied().filter(|o| *o as usize % size == place && self.is_up(*o));
            all.next().map_or(OsdId::NONE, OsdId)
        };
        let up: Vec<OsdId> = (0..size).map(at).collect();
        let there = |o: i32| if o != OsdId::NONE.0 && self.is_up(o) { OsdId(o) } else { OsdId::NONE };
        let acting = if self.temp.is_empty() { up.clone() } else { self.temp.iter().map(|o| there(*o)).collect() };
        let first = |v: &[OsdId]| v.iter().copied().find(|o| *o != OsdId::NONE).unwrap_or(OsdId(-1));
        Mapping { up_primary: first(&up), acting_primary: first(&acting), up, acting }
    }

    pub fn mapping(&self) -> Mapping {
        if self.code.is_some() {
            return self.places();
        }
        let up: Vec<OsdId> =
            self.order.iter().copied().take(self.size as usize).filter(|o| self.is_up(*o)).map(OsdId).collect();
        let temp: Vec<OsdId> = self.temp.iter().copied().filter(|o| self.is_up(*o)).map(OsdId).collect();
        let acting = if temp.is_empty() { up.clone() } else { temp };
        let first = |v: &[OsdId]| v.first().copied().unwrap_or(OsdId(-1));
        Mapping { up_primary: first(&up), acting_primary: first(&acting), up, acting }
    }
    pub fn view(&self, whoami: i32) -> MapView {
        let mut pool = PoolView {
            id: PoolId(POOL),
            kind: if self.code.is_some() { PoolKind::Erasure } else { PoolKind::Replicated },
            code: self.code.map(|(k, m)| pg::map::Code {
                technique: ec::Technique::JerasureVandermonde,
                k,
                m,
                chunk: CHUNK,
            }),
            size: self.size,
            min_size: self.min_size,
            pg_num: 1,
            pg_num_pending: 1,
            snap_seq: self.snap_seq,
            ..PoolView::default()
        };
        pool.flags |= pg::map::pool_flags::SELFMANAGED_SNAPS;
        if self.pool_full {
            pool.flags |= pg::map::pool_flags::FULL;
        }
        if self.code.is_some() && self.overwrites {
            pool.flags |= pg::map::pool_flags::EC_OVERWRITES;
        }
        for s in &self.removed_snaps {
            pool.removed_snaps.insert(*s, 1);
        }
        MapView {
            epoch: Epoch(self.epoch),
            flags: 0,
            pool: Some(Rc::new(pool)),
            mapping: self.mapping(),
            up_thru: Epoch(self.up_thru[whoami as usize]),
            up_from: Epoch(self.up_from[whoami as usize]),
            since: Epoch(0),
            osds: Rc::new(OsdTable(self.clone())),
            blocklist: Rc::new(NoBlocklist),
        }
    }
}
