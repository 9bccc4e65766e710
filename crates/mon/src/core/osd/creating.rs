//! PGs that wait for their creation: which OSD is asked, and with which history.
//!
//! Each waiting PG is assigned to its current primary. When the primary changes, the next one is sent the interval in
//! which the last one may have accepted writes, as an OSD would compute it from the maps.
//!
//! Invariants:
//!  1. A new map is compared only with the waiting PGs that it may place elsewhere, at most [`PGS_A_TURN`] in one
//!     turn of the core. Until all are done no proposal begins and no OSD is sent PGs to create, so each PG sees
//!     every map in order.
//!  2. Targets exist only for waiting PGs.
//!
//! Tests: assertions (2), `tests/is_the_work_of_a_turn_bounded.rs` (1, `pgs_of_a_new_pool_are_placed_in_turns`,
//! `between_two_turns_queries_are_answered_and_no_proposal_begins`).

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Bound;
use std::sync::Arc;

use base::{Epoch, OsdId, PgId, PoolId, ShardId, SpgId};
use cluster::osdmap::UpActing;
use cluster::{Incremental, OsdMap};
use wire::msg::MOsdPgCreate2;
use wire::types::{CompactInterval, PastIntervals, PgCreateExtra, PgCreateStamp, PgHistory, PgShard, PiCompactRep};

use super::super::MonCore;
use crate::state::{ConnKey, CreatingPg};

/// Most PGs in a message.
const PGS_PER_MESSAGE: usize = 1024;
/// Most waiting PGs that are placed in one turn of the core: some 10 ms of work.
pub(in super::super) const PGS_A_TURN: usize = 1024;

/// A waiting PG, with its acting set and history.
#[derive(Clone, Debug)]
struct Target {
    sets: UpActing,
    history: PgHistory,
    past: PiCompactRep,
    /// The epoch since which the PG has this primary.
    since: Epoch,
}

/// The comparison of waiting PGs with a new map, across turns.
#[derive(Debug)]
struct Walk {
    /// The map before the new one; `None` at the start of the process.
    old: Option<Arc<OsdMap>>,
    /// The pools left, the current one first.
    pools: BTreeSet<PoolId>,
    /// The next PG of the current pool.
    next: u32,
}

/// All waiting PGs (volatile: rebuilt from the stored queue and the newest map at start).
#[derive(Debug, Default)]
pub(in super::super) struct CreatingTargets {
    pgs: BTreeMap<PgId, Target>,
    by_osd: BTreeMap<OsdId, BTreeMap<Epoch, BTreeSet<PgId>>>,
    walk: Option<Walk>,
    /// PGs placed since the start of the process, and the most of them in one turn.
    placed: (u64, usize),
}

impl CreatingTargets {
    fn unlink(&mut self, pg: PgId) {
        let Some(t) = self.pgs.remove(&pg) else { return };
        if let Some(epochs) = self.by_osd.get_mut(&t.sets.acting_primary) {
            if let Some(set) = epochs.get_mut(&t.since) {
                set.remove(&pg);
                if set.is_empty() {
                    epochs.remove(&t.since);
                }
            }
            if epochs.is_empty() {
                self.by_osd.remove(&t.sets.acting_primary);
            }
        }
    }

    fn link(&mut self, pg: PgId, t: Target) {
        debug_assert!(!self.pgs.contains_key(&pg), "a PG is unlinked before it is linked anew");
        self.by_osd.entry(t.sets.acting_primary).or_default().entry(t.since).or_default().insert(pg);
        self.pgs.insert(pg, t);
    }
}

/// The shards of a set, as an interval records them.
fn shards(map: &OsdMap, pg: PgId, set: &[OsdId]) -> BTreeSet<PgShard> {
    let erasure = map.pool(pg.pool).is_some_and(|p| p.is_erasure());
    set.iter()
        .enumerate()
        .filter(|(_, o)| **o != OsdId::NONE)
        .map(|(i, o)| if erasure { PgShard { osd: *o, shard: ShardId(i as i8) } } else { PgShard::replica(*o) })
        .collect()
}

impl MonCore {
    /// Notes that a PG no longer waits for its creation.
    pub(in super::super) fn no_longer_creating(&mut self, pg: PgId) {
        self.creating_targets.unlink(pg);
    }

    /// The pools with waiting PGs.
    fn creating_pools(&self) -> BTreeSet<PoolId> {
        let mut pools = BTreeSet::new();
        let mut next = self.state.osds.creating.keys().next();
        while let Some(pg) = next {
            pools.insert(pg.pool);
            let behind = (Bound::Excluded(PgId { pool: pg.pool, seed: u32::MAX }), Bound::Unbounded);
            next = self.state.osds.creating.range(behind).map(|(pg, _)| pg).next();
        }
        pools
    }

    /// Begins to assign all waiting PGs to primaries, at the start of the process.
    pub(in super::super) fn assign_creating(&mut self) {
        self.walk_creating(None, self.creating_pools());
    }

    fn walk_creating(&mut self, old: Option<Arc<OsdMap>>, pools: BTreeSet<PoolId>) {
        debug_assert!(self.creating_targets.walk.is_none(), "no map is made during a walk");
        if !pools.is_empty() {
            self.creating_targets.walk = Some(Walk { old, pools, next: 0 });
        }
    }

    /// True while waiting PGs are compared with the newest map.
    pub(in super::super) fn is_walking(&self) -> bool {
        self.creating_targets.walk.is_some()
    }

    /// Waiting PGs placed so far by this process, and the most of them in one turn.
    #[must_use]
    pub fn creating_work(&self) -> (u64, usize) {
        self.creating_targets.placed
    }

    /// Compares the next waiting PGs with the newest map; at the end of the walk OSDs are sent theirs.
    pub(in super::super) fn continue_walk(&mut self) {
        let Some(mut walk) = self.creating_targets.walk.take() else { return };
        let map = Arc::clone(&self.state.osdmap);
        let mut n = 0;
        while n < PGS_A_TURN
            && let Some(pool) = walk.pools.first().copied()
        {
            let rest = PgId { pool, seed: walk.next }..=PgId { pool, seed: u32::MAX };
            let some: Vec<_> =
                self.state.osds.creating.range(rest).take(PGS_A_TURN - n).map(|(pg, c)| (*pg, *c)).collect();
            match some.last() {
                Some((last, _)) if last.seed < u32::MAX && map.pool(pool).is_some() => walk.next = last.seed + 1,
                _ => {
                    walk.pools.remove(&pool);
                    walk.next = 0;
                }
            }
            n += some.len();
            for (pg, c) in some {
                self.place_creating(pg, c, walk.old.as_ref(), &map);
            }
        }
        let (all, most) = self.creating_targets.placed;
        self.creating_targets.placed = (all + n as u64, most.max(n));
        if !walk.pools.is_empty() {
            self.creating_targets.walk = Some(walk);
            return;
        }
        let targets = self.creating_targets.pgs.keys();
        debug_assert!(
            targets.clone().all(|pg| self.state.osds.creating.contains_key(pg)),
            "targets are of waiting PGs"
        );
        for c in self.subscribers("osd_pg_creates") {
            self.check_pg_creates(c);
        }
    }

    /// Assigns a waiting PG to its primary in the newest map.
    fn place_creating(&mut self, pg: PgId, c: CreatingPg, old: Option<&Arc<OsdMap>>, map: &Arc<OsdMap>) {
        if map.pool(pg.pool).is_none() {
            return;
        }
        let sets = map.pg_to_up_acting(pg);
        let Some(t) = self.creating_targets.pgs.get(&pg) else {
            let history = PgHistory {
                epoch_created: c.created,
                epoch_pool_created: c.created,
                same_interval_since: c.created,
                same_up_since: c.created,
                same_primary_since: c.created,
                last_scrub_stamp: c.stamp,
                last_deep_scrub_stamp: c.stamp,
                last_clean_scrub_stamp: c.stamp,
                ..PgHistory::default()
            };
            let past = PiCompactRep::default();
            return self.creating_targets.link(pg, Target { sets, history, past, since: map.epoch });
        };
        if t.sets == sets {
            return;
        }
        let mut next = t.clone();
        if let Some(old) = old {
            advance(&mut next, old, map, pg);
        }
        if next.sets.up != sets.up {
            next.history.same_up_since = map.epoch;
        }
        if next.sets.acting_primary != sets.acting_primary {
            next.history.same_primary_since = map.epoch;
            next.since = map.epoch;
        }
        next.history.same_interval_since = map.epoch;
        next.sets = sets;
        self.creating_targets.unlink(pg);
        self.creating_targets.link(pg, next);
    }

    /// Sends an OSD the PGs that it must create, from the epoch of its subscription on.
    pub(in super::super) fn check_pg_creates(&mut self, c: ConnKey) {
        let Some((osd, next)) = self.sessions.get(&c).and_then(|s| Some((s.osd()?, s.sub("osd_pg_creates")?.next)))
        else {
            return;
        };
        // The end of the walk sends what is due.
        if self.is_walking() || !self.state.osdmap.is_up(osd) {
            return;
        }
        if self.state.osdmap.client_addr(osd) != self.sessions.get(&c).map(|s| s.addrs()) {
            return;
        }
        let map = Arc::clone(&self.state.osdmap);
        let epoch = map.epoch;
        let from = Epoch(u32::try_from(next).unwrap_or(u32::MAX));
        let due: Vec<PgId> = self
            .creating_targets
            .by_osd
            .get(&osd)
            .map(|e| e.range(from..).flat_map(|(_, pgs)| pgs.iter().copied()).collect())
            .unwrap_or_default();
        if let Some(s) = self.sessions.get_mut(&c) {
            s.skip_to("osd_pg_creates", u64::from(epoch.0) + 1);
        }
        for chunk in due.chunks(PGS_PER_MESSAGE) {
            let mut m = MOsdPgCreate2 { epoch, ..MOsdPgCreate2::default() };
            for pg in chunk {
                let (Some(t), Some(w)) = (self.creating_targets.pgs.get(pg), self.state.osds.creating.get(pg)) else {
                    continue;
                };
                let primary = t.sets.acting_primary;
                let shard = map.pool(pg.pool).and_then(|p| map.shard_of(p, &t.sets.acting, primary));
                let id = SpgId { pg: *pg, shard: shard.unwrap_or(ShardId::NONE) };
                m.pgs.insert(id, PgCreateStamp { created: w.created, stamp: w.stamp });
                let past_intervals = PastIntervals(Some(t.past.clone()));
                m.pg_extra.insert(id, PgCreateExtra { history: t.history.clone(), past_intervals });
            }
            self.reply(c, 0, &m);
        }
    }

    /// Follows a map that was committed: compares the waiting PGs with it, starts or ends the times since which OSDs
    /// are down, and drops beacons of and reports about OSDs that are down.
    pub(in super::super) fn after_map_change(&mut self, old: &Arc<OsdMap>, inc: &Incremental) {
        let pools = if places_osds_anew(inc) { self.creating_pools() } else { named_pools(inc) };
        self.walk_creating(Some(Arc::clone(old)), pools);
        for osd in inc.new_state.keys().chain(inc.new_up_client.keys()).copied() {
            let map = &self.state.osdmap;
            if map.is_up(osd) {
                self.liveness.is_not_down(osd);
            } else {
                self.liveness.forget_beacon(osd);
                if map.exists(osd) && map.is_in(osd) {
                    self.liveness.is_down(osd, self.now.mono);
                } else {
                    self.liveness.is_not_down(osd);
                }
                self.failures.resolve(osd);
            }
        }
    }
}

/// True if the change may place PGs of any pool elsewhere.
fn places_osds_anew(inc: &Incremental) -> bool {
    !inc.crush.is_empty()
        || !inc.fullmap.is_empty()
        || inc.new_max_osd >= 0
        || !inc.new_up_client.is_empty()
        || !inc.new_state.is_empty()
        || !inc.new_weight.is_empty()
        || !inc.new_primary_affinity.is_empty()
}

/// The pools that the change names, in themselves or by a PG.
fn named_pools(inc: &Incremental) -> BTreeSet<PoolId> {
    let pgs = inc.new_pg_temp.keys().chain(inc.new_primary_temp.keys());
    let pgs = pgs.chain(inc.new_pg_upmap.keys()).chain(&inc.old_pg_upmap);
    let pgs = pgs.chain(inc.new_pg_upmap_items.keys()).chain(&inc.old_pg_upmap_items);
    let pgs = pgs.chain(inc.new_pg_upmap_primary.keys()).chain(&inc.old_pg_upmap_primary);
    inc.new_pools.keys().copied().chain(pgs.map(|pg| pg.pool)).collect()
}

/// Records the ended interval, if its OSDs may have accepted writes in it.
fn advance(t: &mut Target, old: &OsdMap, new: &OsdMap, pg: PgId) {
    let Some(pool) = old.pool(pg.pool) else { return };
    let first = t.history.same_interval_since;
    let last = Epoch(new.epoch.0.saturating_sub(1));
    let primary = t.sets.acting_primary;
    let live: Vec<OsdId> = t.sets.acting.iter().copied().filter(|o| *o != OsdId::NONE).collect();
    let (info, now) = (old.info(primary), new.info(primary));
    let up_thru = if now.up_from == info.up_from { now.up_thru.max(info.up_thru) } else { info.up_thru };
    let may_have_written =
        live.len() >= usize::from(pool.min_size).max(1) && primary.0 >= 0 && up_thru >= first && info.up_from <= first;
    if !may_have_written {
        return;
    }
    let acting = shards(old, pg, &t.sets.acting);
    t.past.all_participants.extend(acting.iter().copied());
    if t.past.intervals.is_empty() {
        t.past.first = first;
    }
    t.past.last = last;
    t.past.intervals.push(CompactInterval { first, last, acting });
}
