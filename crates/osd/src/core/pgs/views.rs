//! Views of a map for PGs. Parts that all PGs share are computed once.

use super::copies::code_of;
use base::{EntityAddr, Epoch, OsdId, PgId, PoolId};
use cluster::osdmap::{UpActing, osd_state};
use cluster::{OsdMap, PgPool};
use pg::map::{Blocklist, Mapping, Osds, PoolKind};
use pg::{MapView, PoolView};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use wire::msg::PeerFeatures;

pub(super) struct MapBlocklist(Arc<OsdMap>);

impl Blocklist for MapBlocklist {
    fn is_empty(&self) -> bool {
        self.0.is_blocklist_empty()
    }
    fn contains(&self, addr: &EntityAddr) -> bool {
        self.0.is_blocklisted(addr)
    }
}

pub(super) struct MapOsds(Arc<OsdMap>);

impl Osds for MapOsds {
    fn is_up(&self, osd: OsdId) -> bool {
        self.0.is_up(osd)
    }
    fn all(&self) -> Vec<OsdId> {
        self.0.osds().filter(|o| self.0.exists(*o)).collect()
    }
    fn up_from(&self, osd: OsdId) -> Epoch {
        self.0.info(osd).up_from
    }
    fn up_thru(&self, osd: OsdId) -> Epoch {
        self.0.info(osd).up_thru
    }
    fn is_dead(&self, osd: OsdId) -> bool {
        self.0.exists(osd) && !self.0.is_up(osd) && self.0.xinfo(osd).dead_epoch > self.0.info(osd).up_from
    }
    fn is_full(&self, osd: OsdId) -> bool {
        self.0.state(osd) & osd_state::FULL != 0
    }
    fn peer_features(&self, osd: OsdId) -> PeerFeatures {
        PeerFeatures::of_mask(self.0.xinfo(osd).features)
    }
    fn backfillfull_ratio(&self) -> f32 {
        self.0.backfillfull_ratio
    }
    fn lost_at(&self, osd: OsdId) -> Epoch {
        if self.0.exists(osd) { self.0.info(osd).lost_at } else { Epoch(u32::MAX) }
    }
}

pub(super) fn pool_view(map: &OsdMap, id: PoolId, p: &PgPool) -> PoolView {
    PoolView {
        id,
        kind: if p.kind == cluster::pool::kind::ERASURE { PoolKind::Erasure } else { PoolKind::Replicated },
        code: code_of(map, p),
        size: p.size.into(),
        min_size: p.min_size.into(),
        pg_num: p.pg_num,
        pg_num_pending: p.pg_num_pending,
        flags: p.flags,
        snap_seq: p.snap_seq.0,
        snaps: p.snaps.keys().rev().copied().collect(),
        removed_since: Default::default(),
        removed_snaps: map.removed_snaps_queue.get(&id).cloned().unwrap_or_default(),
        tiered: !p.tiers.is_empty() || p.tier_of >= 0,
        last_merge: pg::MergeMeta {
            source: p.last_pg_merge_meta.source_pgid.seed,
            source_version: p.last_pg_merge_meta.source_version,
            target_version: p.last_pg_merge_meta.target_version,
        },
        last_force_resend: p.last_force_op_resend,
        scrub: crate::core::scrub::pool_scrub(p),
        recovery_priority: match p.opt("recovery_priority") {
            Some(cluster::pool::PoolOpt::Int(i)) => i32::try_from(*i).unwrap_or(0).clamp(-10, 10),
            _ => 0,
        },
    }
}

/// The view of a pool with the parts of the map that it was made from.
struct Made {
    pool: Arc<PgPool>,
    profiles: Arc<BTreeMap<String, BTreeMap<String, String>>>,
    view: Rc<PoolView>,
}

impl Made {
    /// True if a view from `map` would be equal.
    fn holds(&self, map: &OsdMap, p: &Arc<PgPool>) -> bool {
        let removed = match map.removed_snaps_queue.get(&self.view.id) {
            Some(q) => q.is_version_of(&self.view.removed_snaps),
            None => self.view.removed_snaps.is_empty(),
        };
        removed && Arc::ptr_eq(p, &self.pool) && Arc::ptr_eq(&map.erasure_code_profiles, &self.profiles)
    }
}

/// Views of pools, shared by the views of all maps of a reactor.
pub(super) type SharedPools = Rc<RefCell<PoolViews>>;

/// Views of pools, kept from map to map: a pool that a map does not change keeps its view.
#[derive(Default)]
pub(super) struct PoolViews(BTreeMap<PoolId, Made>);

impl PoolViews {
    fn of(&mut self, map: &OsdMap, id: PoolId) -> Option<Rc<PoolView>> {
        let Some(p) = map.pool(id) else {
            self.0.remove(&id);
            return None;
        };
        if let Some(m) = self.0.get(&id).filter(|m| m.holds(map, p)) {
            return Some(m.view.clone());
        }
        let view = Rc::new(pool_view(map, id, p));
        let made = Made { pool: p.clone(), profiles: map.erasure_code_profiles.clone(), view: view.clone() };
        self.0.insert(id, made);
        Some(view)
    }
}

/// Views of one map, shared by all PGs.
pub(super) struct Views {
    map: Arc<OsdMap>,
    whoami: OsdId,
    since: Epoch,
    pools: BTreeMap<PoolId, Option<Rc<PoolView>>>,
    made: SharedPools,
    osds: Rc<dyn Osds>,
    blocklist: Rc<dyn Blocklist>,
}

impl Views {
    /// Views of a map for `whoami`, which has seen every map from `since` on. `made`: the views of pools in earlier
    /// maps.
    pub(super) fn new(map: &Arc<OsdMap>, whoami: OsdId, since: Epoch, made: &SharedPools) -> Self {
        Self {
            map: map.clone(),
            whoami,
            since,
            pools: BTreeMap::new(),
            made: made.clone(),
            osds: Rc::new(MapOsds(map.clone())),
            blocklist: Rc::new(MapBlocklist(map.clone())),
        }
    }

    /// The map.
    pub(super) fn map(&self) -> &Arc<OsdMap> {
        &self.map
    }

    /// View of a PG.
    pub(super) fn of(&mut self, pg: PgId) -> MapView {
        let (map, made) = (&self.map, &self.made);
        let pool = self.pools.entry(pg.pool).or_insert_with(|| made.borrow_mut().of(map, pg.pool)).clone();
        let UpActing { up, up_primary, acting, acting_primary } = map.pg_to_up_acting(pg);
        MapView {
            epoch: map.epoch,
            flags: map.flags,
            pool,
            mapping: Mapping { up: up.to_vec(), up_primary, acting: acting.to_vec(), acting_primary },
            up_thru: map.info(self.whoami).up_thru,
            up_from: map.info(self.whoami).up_from,
            since: self.since,
            osds: self.osds.clone(),
            blocklist: self.blocklist.clone(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use base::{AddrKind, Utime, id::Uuid};
    use cluster::Incremental;
    use cluster::osdmap::AddrKey;

    #[test]
    fn a_pool_that_a_map_does_not_change_keeps_its_view() {
        let (id, made) = (PoolId(3), SharedPools::default());
        let mut first = OsdMap { fsid: Uuid::ZERO, epoch: Epoch(1), ..OsdMap::default() };
        Arc::make_mut(&mut first.pools).insert(id, Arc::new(PgPool { pg_num: 1, ..PgPool::default() }));
        let view = |map: &OsdMap| made.borrow_mut().of(map, id);
        let a = view(&first).unwrap();
        let mut inc = Incremental::new(Uuid::ZERO, Epoch(2), Utime::ZERO);
        let second = first.apply(&inc).unwrap();
        assert!(Rc::ptr_eq(&a, &view(&second).unwrap()));
        inc.epoch = Epoch(3);
        inc.new_removed_snaps.entry(id).or_default().insert(7, 1);
        let third = second.apply(&inc).unwrap();
        let b = view(&third).unwrap();
        assert!(b.removed_snaps.contains(7) && !a.removed_snaps.contains(7));
        assert!(b.removed_snaps.is_version_of(&third.removed_snaps_queue[&id]), "map and PGs share the set");
        inc.epoch = Epoch(4);
        inc.new_purged_snaps = std::mem::take(&mut inc.new_removed_snaps);
        let fourth = third.apply(&inc).unwrap();
        assert!(view(&fourth).unwrap().removed_snaps.is_empty());
        inc.epoch = Epoch(5);
        inc.new_purged_snaps.clear();
        inc.new_pools.insert(id, PgPool { pg_num: 2, ..PgPool::default() });
        let fifth = fourth.apply(&inc).unwrap();
        assert_eq!(view(&fifth).unwrap().pg_num, 2);
        inc.epoch = Epoch(6);
        inc.new_pools.clear();
        inc.old_pools.insert(id);
        assert!(view(&fifth.apply(&inc).unwrap()).is_none() && made.borrow().0.is_empty());
    }

    #[test]
    fn a_blocklisted_range_alone_is_enforced() {
        let mut inc = Incremental::new(Uuid::ZERO, Epoch(1), Utime::ZERO);
        let sock = "10.1.2.0:0".parse().ok();
        inc.new_range_blocklist.insert(AddrKey(EntityAddr { kind: AddrKind::CIDR, nonce: 24, sock }), Utime::ZERO);
        let of = |m: OsdMap| MapBlocklist(Arc::new(m));
        let (before, with) = (of(OsdMap::default()), of(OsdMap::default().apply(&inc).unwrap()));
        let from = |s: &str| EntityAddr::msgr2(s.parse().unwrap(), 3);
        assert!(before.is_empty() && !before.contains(&from("10.1.2.3:4")));
        assert!(!with.is_empty() && with.contains(&from("10.1.2.3:4")) && !with.contains(&from("10.1.3.3:4")));
    }
}
