//! PGs that wait for their creation: which OSD is asked, and with which history.
//!
//! Each waiting PG is assigned to its current primary. When the primary changes, the next one is sent the interval in
//! which the last one may have accepted writes, as an OSD would compute it from the maps.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use base::{Epoch, OsdId, PgId, ShardId, SpgId};
use cluster::osdmap::UpActing;
use cluster::{Incremental, OsdMap};
use wire::msg::MOsdPgCreate2;
use wire::types::{CompactInterval, PastIntervals, PgCreateExtra, PgCreateStamp, PgHistory, PgShard, PiCompactRep};

use super::super::MonCore;
use super::super::session::ConnKey;

/// Most PGs in a message.
const PGS_PER_MESSAGE: usize = 1024;

/// A waiting PG, with its acting set and history.
#[derive(Clone, Debug)]
struct Target {
    sets: UpActing,
    history: PgHistory,
    past: PiCompactRep,
    /// The epoch since which the PG has this primary.
    since: Epoch,
}

/// All waiting PGs (volatile: rebuilt from the stored queue and the newest map at start).
#[derive(Debug, Default)]
pub(in super::super) struct CreatingTargets {
    pgs: BTreeMap<PgId, Target>,
    by_osd: BTreeMap<OsdId, BTreeMap<Epoch, BTreeSet<PgId>>>,
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
    /// Assigns the waiting PGs to primaries after a new map.
    pub(in super::super) fn update_creating(&mut self, old: Option<&Arc<OsdMap>>) {
        let map = Arc::clone(&self.state.osdmap);
        let gone: Vec<PgId> =
            self.creating_targets.pgs.keys().filter(|pg| !self.state.creating.contains_key(pg)).copied().collect();
        for pg in gone {
            self.creating_targets.unlink(pg);
        }
        let waiting: Vec<_> = self.state.creating.iter().map(|(pg, c)| (*pg, *c)).collect();
        for (pg, c) in waiting {
            if map.pool(pg.pool).is_none() {
                continue;
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
                self.creating_targets
                    .link(pg, Target { sets, history, past: PiCompactRep::default(), since: map.epoch });
                continue;
            };
            if t.sets == sets {
                continue;
            }
            let mut next = t.clone();
            if let Some(old) = old {
                advance(&mut next, old, &map, pg);
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
    }

    /// Sends an OSD the PGs that it must create, from the epoch of its subscription on.
    pub(in super::super) fn check_pg_creates(&mut self, c: ConnKey) {
        let Some((osd, next)) =
            self.sessions.get(&c).and_then(|s| Some((s.osd()?, s.subs.get("osd_pg_creates")?.next)))
        else {
            return;
        };
        if !self.state.osdmap.is_up(osd) {
            return;
        }
        if self.state.osdmap.client_addr(osd) != self.sessions.get(&c).map(|s| &s.addrs) {
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
        if let Some(sub) = self.sessions.get_mut(&c).and_then(|s| s.subs.get_mut("osd_pg_creates")) {
            sub.next = u64::from(epoch.0) + 1;
        }
        for chunk in due.chunks(PGS_PER_MESSAGE) {
            let mut m = MOsdPgCreate2 { epoch, ..MOsdPgCreate2::default() };
            for pg in chunk {
                let (Some(t), Some(w)) = (self.creating_targets.pgs.get(pg), self.state.creating.get(pg)) else {
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

    /// Does all that follows a new map.
    pub(in super::super) fn after_map_change(&mut self, old: &Arc<OsdMap>, inc: &Incremental) {
        self.update_creating(Some(old));
        for osd in inc.new_state.keys().chain(inc.new_up_client.keys()).copied() {
            let map = &self.state.osdmap;
            if map.is_up(osd) {
                self.down_since.remove(&osd);
            } else {
                self.beacons.remove(&osd);
                if map.exists(osd) && map.is_in(osd) {
                    self.down_since.entry(osd).or_insert(self.now.mono);
                } else {
                    self.down_since.remove(&osd);
                }
                self.failures.resolve(osd);
            }
        }
    }
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
